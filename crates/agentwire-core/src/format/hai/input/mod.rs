//! `RunAgentInput` of HAI clients, to and from the canonical [`RunInput`].
//!
//! The standard's sample and its reference client omit, empty or repeat members that AG-UI requires: ids, state,
//! messages; `context` is a list of messages; attachments are in the `extra` of a message. All of these are
//! accepted. A person's answer arrives as the result of a front-end tool; [`take_answers`] finds
//! those that answer interrupts.

use bytes::BytesMut;
use serde_json::{Value, value::RawValue};

use super::{
    FORMAT,
    fields::{filled_id, need_string, object, opt_string, some_json, text_or_json},
    options::OPTIONS,
    reader::messages::{self as message_reader, MessagePurpose},
    writer::messages::{self as message_writer, MessageOptions},
};
use crate::{
    event::{
        Context, GivenResult, InterruptId, Message, MessageBody, ResumeStatus, Role, RunId, RunInput,
        ThreadId, Tool,
    },
    format::ag_ui::shapes,
    json::{Fields, Json, ObjectWriter, Path, ReadResult, elements},
    tally::Tally,
};

/// Reads a request body; `thread` and `run` are the defaults of its ids.
///
/// ```
/// use agentwire_core::{Tally, format::hai::input};
/// let body = r#"{"threadId":"","messages":[{"role":"user","content":"Hi"}],"context":null}"#;
/// let input = input::from_json(body, &"t1".into(), &"r1".into(), &mut Tally::default()).unwrap();
/// assert_eq!((&*input.thread, &*input.run, input.messages.len()), ("t1", "r1", 1));
/// ```
///
/// # Errors
/// When it is not JSON or a known member is malformed; names the JSON path.
pub fn from_json(body: &str, thread: &ThreadId, run: &RunId, tally: &mut Tally) -> ReadResult<RunInput> {
    let mut f = Fields::parse(body, Path::Root)?;
    let thread = filled_id(&mut f, "threadId", tally)?.map_or_else(|| thread.clone(), ThreadId::from);
    let run = filled_id(&mut f, "runId", tally)?.map_or_else(|| run.clone(), RunId::from);
    let mut input = RunInput::new(thread, run);
    input.parent_run = opt_string(&mut f, "parentRunId", tally)?.map(Into::into);
    input.protocol_version = opt_string(&mut f, "protocolVersion", tally)?.map(Into::into);
    input.state = some_json(&mut f, "state", tally)?;
    input.messages = message_reader::read_list(&mut f, MessagePurpose::Request, &input.run, tally)?;
    if let Some(raw) = f.take_unless_null("tools") {
        let path = Path::Key(&Path::Root, "tools");
        for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
            input.tools.push(read_tool(raw, Path::Index(&path, index), tally)?);
        }
    }
    if let Some(raw) = f.take_unless_null("context") {
        let path = Path::Key(&Path::Root, "context");
        for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
            input.context.push(read_context(raw, Path::Index(&path, index), tally)?);
        }
    }
    input.forwarded = some_json(&mut f, "forwardedProps", tally)?;
    if let Some(raw) = f.take_unless_null("resume") {
        let path = Path::Key(&Path::Root, "resume");
        input.resume = Some(if raw.get().starts_with('{') {
            vec![shapes::read_resume_entry(raw, path, tally)?]
        } else {
            let mut entries = Vec::new();
            for (index, raw) in elements(raw, path)?.into_iter().enumerate() {
                entries.push(shapes::read_resume_entry(raw, Path::Index(&path, index), tally)?);
            }
            entries
        });
    }
    input.unknown = f.rest("RunAgentInput", tally)?;
    Ok(input)
}

fn read_tool(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Tool> {
    let mut f = Fields::of(raw, path)?;
    let tool = Tool {
        name: need_string(&mut f, "name", tally)?.into(),
        description: opt_string(&mut f, "description", tally)?.unwrap_or_default().into(),
        parameters: some_json(&mut f, "parameters", tally)?,
        metadata: object(&mut f, "metadata", tally)?,
    };
    f.rest("tool", tally)?;
    Ok(tool)
}

/// Reads a context entry: AG-UI's `{description, value}`, or a message as in the reference server.
fn read_context(raw: &RawValue, path: Path<'_>, tally: &mut Tally) -> ReadResult<Context> {
    let mut f = Fields::of(raw, path)?;
    let value = |f: &mut Fields<'_, '_>, key: &str, tally: &mut Tally| {
        let raw = f.take_unless_null(key);
        raw.map(|raw| text_or_json(raw, Path::Key(&path, key), tally)).transpose()
    };
    let role = opt_string(&mut f, "role", tally)?;
    let role = role.filter(|_| f.peek("description").is_none() || f.peek("value").is_none());
    let context = match role {
        Some(role) => {
            Context { description: role.into(), value: value(&mut f, "content", tally)?.unwrap_or_default() }
        }
        None => Context {
            description: opt_string(&mut f, "description", tally)?.unwrap_or_default().into(),
            value: value(&mut f, "value", tally)?.ok_or_else(|| f.missing("value", "a string"))?,
        },
    };
    f.take("content");
    f.take("id");
    f.rest("context", tally)?;
    Ok(context)
}

/// Writes a request body for a HAI server.
///
/// The models of the reference server require `id`, `role` and `content` of every message, also in `context`, and an
/// object as `forwardedProps`. HAI has no resume entries: an interrupt is a call of a front-end tool there, so each
/// answer is a tool message with the interrupt's id as `toolCallId`; a cancelled one has an `error`.
#[must_use]
pub fn to_json(input: &RunInput) -> String {
    let mut out = BytesMut::new();
    let mut w = ObjectWriter::new(&mut out);
    w.str("threadId", &input.thread)
        .str("runId", &input.run)
        .opt_str("parentRunId", input.parent_run.as_deref())
        .opt_str("protocolVersion", input.protocol_version.as_deref());
    w.array("messages", |list| {
        message_writer::write_list(list, &input.messages, MessageOptions::REQUEST);
        for entry in input.resume.iter().flatten() {
            let is_cancelled = entry.status == ResumeStatus::Cancelled;
            list.object(|w| {
                w.str("id", &format!("{}:answer", entry.interrupt))
                    .str("role", "tool")
                    .str("toolCallId", &entry.interrupt)
                    .str("content", &entry.payload.as_ref().map(answer_text).unwrap_or_default())
                    .opt_str("error", is_cancelled.then_some("cancelled"));
            });
        }
    });
    w.array("context", |list| {
        for (index, Context { description, value }) in input.context.iter().enumerate() {
            // A message as the reference server types it; for all others its role says nothing.
            let role = Role::parse(description);
            list.object(|w| {
                w.str("id", &format!("context-{index}"))
                    .str("role", role.map_or("system", Role::as_str))
                    .str("content", value);
                if role.is_none() {
                    w.str("description", description).str("value", value);
                }
            });
        }
    });
    shapes::write_tools(&mut w, &input.tools);
    match input.forwarded.as_ref().filter(|forwarded| forwarded.get().starts_with('{')) {
        Some(forwarded) => w.json("forwardedProps", forwarded),
        None => w.nested("forwardedProps", |_| {}),
    };
    w.opt_json("state", input.state.as_ref());
    for (key, value) in input.unknown.iter().flat_map(crate::json::Object::entries) {
        w.entry(&key, &value);
    }
    w.end();
    String::from_utf8(out.into()).expect("JSON text is UTF-8")
}

/// An answer as the content of a tool message; the inverse of [`parse_answer`].
fn answer_text(payload: &Json) -> String {
    match payload.as_str() {
        Some(text) if Json::parse(&text).is_err() => text,
        _ => payload.get().to_owned(),
    }
}

/// The value of a person's answer: JSON (`true` and `false` included) is parsed, any other content is a string.
///
/// ```
/// use agentwire_core::format::hai::input::parse_answer;
/// assert_eq!(parse_answer("true").get(), "true");
/// assert_eq!(parse_answer(r#" {"ok": 1}"#).get(), r#"{"ok":1}"#);
/// assert_eq!(parse_answer("maybe").get(), r#""maybe""#);
/// ```
#[must_use]
pub fn parse_answer(content: &str) -> Json {
    Json::parse(content).unwrap_or_else(|_| Json::string(content))
}

/// Removes the tool messages that answer `interrupts` from a conversation and returns the last one for each.
///
/// An interrupt is shown as a call of a front-end tool with the interrupt's id, so its answer has the form of that
/// tool's result. Of several results the last one counts: an agent may ask again under the same id.
pub fn take_answers(messages: &mut Vec<Message>, interrupts: &[InterruptId]) -> Vec<GivenResult> {
    let mut found: Vec<GivenResult> = Vec::new();
    messages.retain(|message| {
        let MessageBody::Tool { call, .. } = &message.body else { return true };
        if !interrupts.iter().any(|interrupt| **interrupt == **call) {
            return true;
        }
        found.retain(|earlier| earlier.call != *call);
        found.extend(GivenResult::of(message));
        false
    });
    found
}

/// The output preferences of a request, from `forwardedProps.hai`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputPreferences {
    /// The profile, from `hai.delta`.
    pub profile: Option<&'static str>,
    /// Options as `key=value` pairs.
    pub options: Vec<String>,
}

/// Reads `forwardedProps.hai`. Unknown and forbidden entries are counted and ignored.
#[must_use]
pub fn output_preferences(input: &RunInput, tally: &mut Tally) -> OutputPreferences {
    let mut preferences = OutputPreferences::default();
    let hai = input.forwarded.clone().and_then(Json::into_object).and_then(|props| props.member("hai"));
    for (key, value) in hai.and_then(Json::into_object).iter().flat_map(crate::json::Object::entries) {
        let text = match value.to_value() {
            Value::String(text) => text,
            other => other.to_string(),
        };
        if key == "delta" {
            preferences.profile =
                FORMAT.profiles.iter().map(|profile| profile.name).find(|name| *name == text);
            if preferences.profile.is_none() {
                tally.note("unknown wish", &format!("delta={text}"));
            }
            continue;
        }
        // A client may choose the presentation, but neither access to developer messages nor timestamps.
        let spec = OPTIONS.iter().find(|spec| {
            spec.name == key && !matches!(key.as_str(), "include_developer" | "stamp" | "events")
        });
        match spec {
            Some(spec) if spec.allows(&text) => {
                preferences.options.push(format!("{key}={text}"));
            }
            _ => tally.note("unknown wish", &format!("{key}={text}")),
        }
    }
    preferences
}
