//! Bodies and URLs made from the run input: JSON with `{{…}}` in its strings.

use agentwire_core::{
    event::{Content, ContentPart, MessageBody, RunInput},
    format::{ag_ui, langgraph},
    percent,
};
use serde_json::Value;

use crate::agent::BuildError;

/// What can stand between the braces, besides a JSON pointer into the AG-UI request.
const NAMES: &[&str] =
    &["input", "thread", "run", "message", "messages", "langchain", "state", "tools", "context"];

/// What a template is filled from.
#[derive(Debug)]
pub(super) struct Values {
    /// The AG-UI request.
    input: Value,
    /// What the person said last.
    message: String,
    /// The conversation as LangChain writes it.
    langchain: Value,
}

impl Values {
    pub(super) fn of(input: &RunInput) -> Self {
        let said = input.messages.iter().rev().find_map(|message| match &message.body {
            MessageBody::User { content } => Some(text(content)),
            _ => None,
        });
        Self {
            input: serde_json::from_str(&ag_ui::input::to_json(input)).unwrap_or_default(),
            message: said.unwrap_or_default(),
            langchain: Value::Array(langgraph::input::langchain_messages(&input.messages)),
        }
    }

    fn get(&self, name: &str) -> Value {
        let member = |name: &str| self.input.get(name).cloned().unwrap_or_default();
        match name {
            "input" => self.input.clone(),
            "thread" => member("threadId"),
            "run" => member("runId"),
            "message" => self.message.clone().into(),
            "langchain" => self.langchain.clone(),
            name if name.starts_with('/') => self.input.pointer(name).cloned().unwrap_or_default(),
            name => member(name),
        }
    }
}

fn text(content: &Content) -> String {
    match content {
        Content::Text(text) => text.to_string(),
        Content::Parts(parts) => {
            let texts = parts.iter().filter_map(|part| match part {
                ContentPart::Text { text, .. } => Some(&**text),
                _ => None,
            });
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// Whether every `{{…}}` in the strings of a template names something, as [`EventsOptions::body`](super::EventsOptions) and
/// [`LangGraphOptions::context`](super::LangGraphOptions) need it.
///
/// # Errors
/// When one does not; it says which, and what there is.
pub fn check(template: &Value) -> Result<(), BuildError> {
    match template {
        Value::String(text) => check_text(text),
        Value::Array(list) => list.iter().try_for_each(check),
        Value::Object(map) => map.values().try_for_each(check),
        _ => Ok(()),
    }
}

/// The same for text.
pub(super) fn check_text(text: &str) -> Result<(), BuildError> {
    let mut problem = None;
    split(text, |piece| {
        if let Piece::Name(name) = piece
            && !name.starts_with('/')
            && !NAMES.contains(&name)
        {
            let known = NAMES.join(", ");
            problem = Some(format!(
                "unknown name `{name}` in a template (known: {known}, and JSON pointers such as `/messages/0/content`)"
            ));
        }
    });
    problem.map_or(Ok(()), |problem| Err(BuildError(problem)))
}

/// A template with everything in its place. A string that is nothing but one `{{…}}` becomes the value itself.
pub(super) fn fill(template: &Value, values: &Values) -> Value {
    match template {
        Value::String(text) => {
            let whole = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
            match whole.filter(|name| !name.contains("}}")) {
                Some(name) => values.get(name.trim()),
                None => fill_text(text, values, |out, piece| out.push_str(piece)).into(),
            }
        }
        Value::Array(list) => list.iter().map(|item| fill(item, values)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), fill(value, values))).collect(),
        other => other.clone(),
    }
}

/// A URL with everything in its place, percent-encoded.
pub(super) fn fill_url(template: &str, values: &Values) -> String {
    fill_text(template, values, |out, piece| out.push_str(&percent::encode(piece)))
}

fn fill_text(template: &str, values: &Values, mut put: impl FnMut(&mut String, &str)) -> String {
    let mut out = String::new();
    split(template, |piece| match piece {
        Piece::Text(text) => out.push_str(text),
        Piece::Name(name) => match values.get(name) {
            Value::Null => {}
            Value::String(text) => put(&mut out, &text),
            other => put(&mut out, &other.to_string()),
        },
    });
    out
}

enum Piece<'t> {
    Text(&'t str),
    Name(&'t str),
}

fn split<'t>(mut rest: &'t str, mut take: impl FnMut(Piece<'t>)) {
    while let Some((text, behind)) = rest.split_once("{{")
        && let Some((name, behind)) = behind.split_once("}}")
    {
        take(Piece::Text(text));
        take(Piece::Name(name.trim()));
        rest = behind;
    }
    take(Piece::Text(rest));
}

#[cfg(test)]
mod tests {
    use agentwire_core::{event::Message, json::Json};
    use serde_json::json;

    use super::*;

    fn values() -> Values {
        let mut input = RunInput::new("t 1", "r1");
        input.messages.push(Message::user("m1", "first"));
        input.messages.push(Message::user("m2", "say \"hi\" & go"));
        input.state = Some(Json::parse(r#"{"n":1}"#).unwrap());
        Values::of(&input)
    }

    #[test]
    fn a_string_of_one_name_becomes_the_value() {
        let template = json!({"input": {"question": "{{message}}", "state": "{{ state }}", "n": "{{/state/n}}"},
            "config": ["{{thread}}-{{run}}", "x {{state}} y", 7, null, "{{/no/such}}", "a{{/no/such}}b"]});
        let wanted = json!({"input": {"question": "say \"hi\" & go", "state": {"n": 1}, "n": 1},
            "config": ["t 1-r1", "x {\"n\":1} y", 7, null, null, "ab"]});
        assert_eq!(fill(&template, &values()), wanted);
        assert_eq!(fill(&json!("{{messages}}"), &values())[1]["content"], "say \"hi\" & go");
        assert_eq!(fill(&json!("{{langchain}}"), &values())[0]["role"], "user");
        assert_eq!(fill(&json!("{{input}}"), &values())["threadId"], "t 1");
    }

    #[test]
    fn text_that_only_looks_like_a_name_stays() {
        for text in ["{{", "}}", "{{}", "a {{ b", "{x}"] {
            assert_eq!(fill(&json!(text), &values()), json!(text));
            assert_eq!(check(&json!(text)), Ok(()));
        }
    }

    #[test]
    fn urls_are_escaped() {
        let url = fill_url("http://x/{{thread}}?q={{message}}", &values());
        assert_eq!(url, "http://x/t%201?q=say%20%22hi%22%20%26%20go");
    }

    #[test]
    fn unknown_names_are_refused() {
        let error = check(&json!({"a": ["x {{massage}}"]})).unwrap_err().to_string();
        assert!(error.starts_with("unknown name `massage` in a template (known: input, thread"), "{error}");
        assert!(check_text("{{/messages/0/content}}{{run}}").is_ok());
        assert!(check_text("{{}}").is_err());
    }
}
