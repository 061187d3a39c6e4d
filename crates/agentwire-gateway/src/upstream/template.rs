//! Templates of bodies and URLs: JSON whose strings contain `{{…}}` placeholders, filled from the run input.

use agentwire_core::{
    event::{Content, ContentPart, MessageBody, RunInput},
    format::{ag_ui, langgraph},
    percent,
};
use serde_json::Value;

use crate::agent::BuildError;

/// The names of placeholders, besides JSON pointers into the AG-UI request.
const NAMES: &[&str] =
    &["input", "thread", "run", "message", "messages", "langchain", "state", "tools", "context"];

/// The values of placeholders.
#[derive(Debug)]
pub(super) struct TemplateValues {
    /// The AG-UI request.
    input: Value,
    /// The last message of the user.
    message: String,
    /// The conversation as LangChain writes it.
    langchain: Value,
}

impl TemplateValues {
    pub(super) fn of(input: &RunInput) -> Self {
        let message = input.messages.iter().rev().find_map(|message| match &message.body {
            MessageBody::User { content } => Some(text(content)),
            _ => None,
        });
        Self {
            input: serde_json::from_str(&ag_ui::input::to_json(input)).unwrap_or_default(),
            message: message.unwrap_or_default(),
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

/// Checks that every placeholder in a template has a known name, for [`EventsOptions::body`](super::EventsOptions) and
/// [`LangGraphOptions::context`](super::LangGraphOptions).
///
/// # Errors
/// When a name is unknown; the message lists the known ones.
pub fn check(template: &Value) -> Result<(), BuildError> {
    match template {
        Value::String(text) => check_text(text),
        Value::Array(list) => list.iter().try_for_each(check),
        Value::Object(map) => map.values().try_for_each(check),
        _ => Ok(()),
    }
}

/// The same for a string.
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

/// Fills a template. A string that consists of one placeholder becomes its value, of any type.
pub(super) fn fill(template: &Value, values: &TemplateValues) -> Value {
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

/// Fills a URL; the values are percent-encoded. `None` if they make a segment `.` or `..`, which would lead to another
/// path of the server.
pub(super) fn fill_url(template: &str, values: &TemplateValues) -> Option<String> {
    let url = fill_text(template, values, |out, piece| out.push_str(&percent::encode(piece)));
    let is_dots = |segment: &str| matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | "..");
    let path = url.split(['?', '#']).next().unwrap_or_default();
    (!path.split('/').any(is_dots)).then_some(url)
}

fn fill_text(template: &str, values: &TemplateValues, mut append: impl FnMut(&mut String, &str)) -> String {
    let mut out = String::new();
    split(template, |piece| match piece {
        Piece::Text(text) => out.push_str(text),
        Piece::Name(name) => match values.get(name) {
            Value::Null => {}
            Value::String(text) => append(&mut out, &text),
            other => append(&mut out, &other.to_string()),
        },
    });
    out
}

enum Piece<'t> {
    Text(&'t str),
    Name(&'t str),
}

fn split<'t>(mut rest: &'t str, mut visit: impl FnMut(Piece<'t>)) {
    while let Some((text, behind)) = rest.split_once("{{")
        && let Some((name, behind)) = behind.split_once("}}")
    {
        visit(Piece::Text(text));
        visit(Piece::Name(name.trim()));
        rest = behind;
    }
    visit(Piece::Text(rest));
}

#[cfg(test)]
mod tests {
    use agentwire_core::{event::Message, json::Json};
    use serde_json::json;

    use super::*;

    fn values() -> TemplateValues {
        let mut input = RunInput::new("t 1", "r1");
        input.messages.push(Message::user("m1", "first"));
        input.messages.push(Message::user("m2", "say \"hi\" & go"));
        input.state = Some(Json::parse(r#"{"n":1}"#).unwrap());
        TemplateValues::of(&input)
    }

    #[test]
    fn a_string_of_one_placeholder_becomes_the_value() {
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
    fn incomplete_placeholders_are_plain_text() {
        for text in ["{{", "}}", "{{}", "a {{ b", "{x}"] {
            assert_eq!(fill(&json!(text), &values()), json!(text));
            assert_eq!(check(&json!(text)), Ok(()));
        }
    }

    #[test]
    fn values_in_urls_are_percent_encoded() {
        let url = fill_url("http://x/{{thread}}?q={{message}}", &values());
        assert_eq!(url.as_deref(), Some("http://x/t%201?q=say%20%22hi%22%20%26%20go"));
    }

    #[test]
    fn values_in_urls_make_no_other_path() {
        let mut input = RunInput::new("..", "r1");
        input.messages.push(Message::user("m1", "."));
        let values = TemplateValues::of(&input);
        for template in [
            "http://x/a/{{thread}}/run",
            "http://x/a/{{thread}}",
            "http://x/a/{{message}}",
            "http://x/a/{{message}}{{message}}?q",
            "http://x/a/.{{message}}/run",
            "http://x/a/%2e{{message}}/run",
        ] {
            assert_eq!(fill_url(template, &values), None, "{template}");
        }
        for template in ["http://x/a/{{thread}}.json", "http://x/a?q=/{{thread}}/", "http://x/a#{{thread}}"] {
            assert!(fill_url(template, &values).is_some(), "{template}");
        }
    }

    #[test]
    fn unknown_names_are_refused() {
        let error = check(&json!({"a": ["x {{massage}}"]})).unwrap_err().to_string();
        assert!(error.starts_with("unknown name `massage` in a template (known: input, thread"), "{error}");
        assert!(check_text("{{/messages/0/content}}{{run}}").is_ok());
        assert!(check_text("{{}}").is_err());
    }
}
