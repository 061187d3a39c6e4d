//! The body of a run request as LangGraph's clients send it, as a canonical [`RunInput`].

use serde_json::{Value, value::RawValue};

use super::super::{
    raw_json,
    reader::{ListedCalls, NativeIds, canonical_message, one_or_many, reasoning_messages},
};
use crate::{
    event::{Message, RunId, RunInput, ThreadId},
    json::{Json, ReadError, ReadResult, kind_of},
    tally::Tally,
};

/// Members of `config.configurable` that name a place in a checkpointer, which is the server's to choose.
const PLACES: [&str; 4] = ["thread_id", "checkpoint_id", "checkpoint_ns", "run_id"];

/// Reads `input`, `command`, `config`, `context` and `metadata` of a run request; its other members are for the server.
///
/// The messages of `input` are the new ones; its other members are values of the state. A message without an id gets one
/// that is derived from the run's.
///
/// # Errors
/// When the body is not an object, when `input` is neither an object nor `null`, or when a message is unreadable.
pub fn from_json(
    body: &str,
    thread: impl Into<ThreadId>,
    run: impl Into<RunId>,
    tally: &mut Tally,
) -> ReadResult<RunInput> {
    let raw: &RawValue =
        serde_json::from_str(body).map_err(|error| ReadError::new("", format!("no JSON: {error}")))?;
    // Also checks the depth and the numbers.
    let whole = Json::parse(body).map_err(|error| ReadError::new("", error.to_string()))?;
    let Some(members) = raw_json::members(raw) else {
        return Err(ReadError::new("", format!("expected an object, found {}", kind_of(body))));
    };
    let mut input = RunInput::new(thread, run);
    let given = members.iter().find(|(name, _)| name == "input").map(|(_, value)| *value);
    if let Some(values) = given.filter(|values| values.get() != "null") {
        read_values(values, &mut input, tally)?;
    }
    input.forwarded = forwarded(&whole.to_value());
    Ok(input)
}

fn read_values(values: &RawValue, input: &mut RunInput, tally: &mut Tally) -> ReadResult {
    let Some(members) = raw_json::members(values) else {
        let message = format!("expected an object or null, found {}", kind_of(values.get()));
        return Err(ReadError::new("/input", message));
    };
    let mut state = serde_json::Map::new();
    for (name, value) in members {
        match &*name {
            "messages" if value.get() == "null" => {}
            "messages" => input.messages = messages(value, &input.run, tally)?,
            _ => drop(state.insert(name.into_owned(), raw_json::json(value, tally).to_value())),
        }
    }
    if !state.is_empty() {
        input.state = Some(Json::from(&Value::Object(state)));
    }
    Ok(())
}

fn messages(list: &RawValue, run: &RunId, tally: &mut Tally) -> ReadResult<Vec<Message>> {
    let (mut found, mut listed) = (Vec::new(), ListedCalls::default());
    // `["user", "hi"]` is one message, `["hi"]` is a list of one.
    for (position, raw) in one_or_many(list).into_iter().enumerate() {
        let path = format!("/input/messages/{position}");
        let Some((_, mut message)) = canonical_message(raw, position, &NativeIds, &mut listed, tally) else {
            let is_removal = raw_json::member(raw, "type").is_some_and(|kind| kind.get() == "\"remove\"");
            let message = match is_removal {
                true => "messages cannot be removed",
                false => "expected a message with a known `type` or `role` and a `content`",
            };
            return Err(ReadError::new(path, message));
        };
        let has_id = raw_json::member(raw, "id").is_some_and(|id| !matches!(id.get(), "null" | "\"\""));
        if !has_id {
            message.id = format!("{run}-input-{position}").into();
        }
        found.extend(reasoning_messages(raw, tally));
        found.push(message);
    }
    Ok(found)
}

/// The members that an agent behind LangGraph Server gets as they are.
fn forwarded(body: &Value) -> Option<Json> {
    let mut kept = serde_json::Map::new();
    for name in ["command", "config", "context", "metadata"] {
        let value = body.get(name).filter(|value| !value.is_null());
        kept.extend(value.map(|value| (name.to_owned(), value.clone())));
    }
    if let Some(Value::Object(configurable)) =
        kept.get_mut("config").and_then(|config| config.get_mut("configurable"))
    {
        configurable.retain(|name, _| !PLACES.contains(&&**name));
    }
    (!kept.is_empty()).then(|| Json::from(&Value::Object(kept)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Role;

    fn read(body: &str) -> ReadResult<RunInput> {
        from_json(body, "t", "r", &mut Tally::default())
    }

    #[test]
    fn every_form_of_a_message_is_read() {
        let input = read(
            r#"{"assistant_id":"a","input":{"messages":[
                {"type":"human","content":"one"},
                {"role":"user","content":[{"type":"text","text":"two"}],"id":"u2"},
                {"type":"ai","content":"","tool_calls":[{"name":"f","args":{},"id":"c"}],"id":"a1"},
                {"type":"tool","content":"done","tool_call_id":"c","id":null},
                "four"],"topic":"x","n":1.0}}"#,
        )
        .unwrap();
        let ids: Vec<_> = input.messages.iter().map(|message| message.id.as_str()).collect();
        assert_eq!(ids, ["r-input-0", "u2", "a1", "r-input-3", "r-input-4"]);
        let roles: Vec<_> = input.messages.iter().map(Message::role).collect();
        assert_eq!(roles, [Role::User, Role::User, Role::Assistant, Role::Tool, Role::User]);
        assert_eq!(input.state.unwrap().get(), r#"{"topic":"x","n":1.0}"#);
        let one = read(r#"{"input":{"messages":{"role":"user","content":"hi"}}}"#).unwrap();
        assert_eq!(one.messages.len(), 1);
        for nothing in [r#"{"input":null}"#, "{}", r#"{"input":{"messages":null}}"#, r#"{"input":{}}"#] {
            let input = read(nothing).unwrap();
            assert!(input.messages.is_empty() && input.state.is_none(), "{nothing}");
        }
    }

    #[test]
    fn places_in_a_checkpointer_are_not_passed_on() {
        let body = r#"{"command":{"resume":1},"config":{"configurable":{"thread_id":"x","run_id":"y","k":2},"tags":[]},
            "metadata":null,"webhook":"w"}"#;
        let forwarded = read(body).unwrap().forwarded.unwrap();
        assert_eq!(
            forwarded.get(),
            r#"{"command":{"resume":1},"config":{"configurable":{"k":2},"tags":[]}}"#
        );
    }

    #[test]
    fn unreadable_input_is_refused_with_its_path() {
        for (body, path) in [
            ("", ""),
            ("[]", ""),
            (r#"{"input":1}"#, "/input"),
            (r#"{"input":{"messages":[{"type":"human","content":"a"},{"type":"x"}]}}"#, "/input/messages/1"),
            (r#"{"input":{"messages":[{"type":"remove","id":"m"}]}}"#, "/input/messages/0"),
            (r#"{"input":{"messages":[1]}}"#, "/input/messages/0"),
            (r#"{"input":{"messages":[{"type":"tool","content":"no call"}]}}"#, "/input/messages/0"),
        ] {
            assert_eq!(read(body).unwrap_err().path(), path, "{body}");
        }
    }
}
