//! What LangChain's `dumpd` could not serialise.
//!
//! Interrupts, commands and exceptions have no form of their own in the `lc` envelope: all that is left of them is
//! `{"lc": 1, "type": "not_implemented", "id": […], "repr": TEXT}`, with the text that Python prints. It is read
//! back as far as it is made of plain values and of objects that print their fields, and takes the place of the
//! envelope, so that the rest of the reader sees what the server would have sent.

use serde_json::{Map, Value, json};

/// What every such envelope contains.
const MARK: &str = "\"not_implemented\"";

/// How deep a printed value may nest; deeper ones stay as they are. Interrupts nest a handful of levels.
const MAX_DEPTH: usize = 32;

/// The frame with its envelopes replaced; `None` if there is none.
pub(super) fn restored(frame: &str) -> Option<String> {
    memchr::memmem::find(frame.as_bytes(), MARK.as_bytes())?;
    let mut value: Value = serde_json::from_str(frame).ok()?;
    restore(&mut value).then(|| value.to_string())
}

/// Replaces all envelopes in `value`; says whether there was one. The parser has bounded the depth.
fn restore(value: &mut Value) -> bool {
    match value {
        Value::Object(members) if members.get("type").is_some_and(|kind| kind == "not_implemented") => {
            let Some(text) = members.get("repr").and_then(Value::as_str) else { return false };
            let Some(read) = object(text) else { return false };
            *value = read;
            true
        }
        Value::Object(members) => members.values_mut().fold(false, |any, member| restore(member) | any),
        Value::Array(elements) => elements.iter_mut().fold(false, |any, element| restore(element) | any),
        _ => false,
    }
}

/// The object that a text shows, in the form in which the server sends it.
fn object(text: &str) -> Option<Value> {
    let (class, arguments) = text.strip_suffix(')')?.split_once('(')?;
    if class.is_empty() || !class.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    match class {
        "Interrupt" | "Command" => match parse(text) {
            Some(value) => Some(value),
            // A value that prints as something else must not cost the id.
            None if class == "Interrupt" => {
                let id = arguments.rsplit_once("id='")?.1.split('\'').next()?;
                Some(json!({"id": id, "value": text}))
            }
            None => None,
        },
        _ if is_failure(class) => {
            let message = match parse(text) {
                Some(Value::Object(shown)) => match shown.get("args").and_then(Value::as_array) {
                    Some(args) => match &args[..] {
                        [Value::String(message)] => message.clone(),
                        _ => arguments.to_owned(),
                    },
                    None => arguments.to_owned(),
                },
                _ => arguments.to_owned(),
            };
            Some(json!({"error": class, "message": message}))
        }
        _ => None,
    }
}

/// Python's convention for the names of exceptions, and LangGraph's own that do not keep to it.
fn is_failure(class: &str) -> bool {
    ["Error", "Exception", "Interrupt", "Warning", "Timeout"].iter().any(|end| class.ends_with(end))
        || matches!(class, "ParentCommand" | "GraphBubbleUp" | "StopIteration" | "StopAsyncIteration")
}

/// A whole printed value.
fn parse(text: &str) -> Option<Value> {
    let mut reader = Printed { rest: text };
    let value = reader.value(MAX_DEPTH)?;
    reader.space();
    reader.rest.is_empty().then_some(value)
}

/// What is left to read of a printed value.
struct Printed<'a> {
    rest: &'a str,
}

impl Printed<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.space();
        match self.rest.chars().next()? {
            '{' => self.braces(depth),
            '[' => self.list("[", "]", depth),
            '(' => self.list("(", ")", depth),
            '\'' | '"' => self.string().map(Value::String),
            '-' | '0'..='9' => self.number(),
            first if first.is_alphabetic() || first == '_' => self.word(depth),
            _ => None,
        }
    }

    /// A dict, or a set, which becomes a list.
    fn braces(&mut self, depth: usize) -> Option<Value> {
        let mut members = Map::new();
        let mut elements = Vec::new();
        if !self.take("{") {
            return None;
        }
        while !self.take("}") {
            let key = self.value(depth)?;
            if self.take(":") {
                let key = match key {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                members.insert(key, self.value(depth)?);
            } else {
                elements.push(key);
            }
            if !self.take(",") && !self.rest.starts_with('}') {
                return None;
            }
        }
        match elements.is_empty() {
            true => Some(Value::Object(members)),
            false => members.is_empty().then_some(Value::Array(elements)),
        }
    }

    fn list(&mut self, open: &str, close: &str, depth: usize) -> Option<Value> {
        let mut elements = Vec::new();
        if !self.take(open) {
            return None;
        }
        while !self.take(close) {
            elements.push(self.value(depth)?);
            if !self.take(",") && !self.rest.starts_with(close) {
                return None;
            }
        }
        Some(Value::Array(elements))
    }

    /// `None`, `True`, `b'…'`, and objects that print as `Class(field=value)`.
    fn word(&mut self, depth: usize) -> Option<Value> {
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "None" | "nan" | "inf" => return Some(Value::Null),
            "True" => return Some(true.into()),
            "False" => return Some(false.into()),
            "b" if rest.starts_with(['\'', '"']) => return self.string().map(Value::String),
            _ => {}
        }
        if !self.take("(") {
            return None;
        }
        let mut fields = Map::new();
        let mut args = Vec::new();
        while !self.take(")") {
            self.space();
            let name = self.rest.split('=').next().filter(|name| {
                name.len() < self.rest.len()
                    && !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            });
            match name {
                Some(name) => {
                    self.rest = &self.rest[name.len() + 1..];
                    let value = self.value(depth)?;
                    fields.insert(name.to_owned(), value);
                }
                None => args.push(self.value(depth)?),
            }
            if !self.take(",") && !self.rest.starts_with(')') {
                return None;
            }
        }
        if !args.is_empty() {
            fields.insert("args".into(), args.into());
        }
        // A command is known by all of its fields, a message by its class.
        if word == "Command" {
            for name in ["graph", "update", "resume", "goto"] {
                fields.entry(name).or_insert(Value::Null);
            }
        } else if word.ends_with("Message") {
            fields.insert("type".into(), word.into());
        }
        Some(Value::Object(fields))
    }

    fn number(&mut self) -> Option<Value> {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.')))
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        match number {
            "-inf" => Some(Value::Null),
            // Python and JSON print numbers alike, but for a dot at the end.
            number => serde_json::from_str(number.trim_end_matches('.')).ok(),
        }
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.rest = &self.rest[at + 1..];
                return Some(text);
            }
            if c != '\\' {
                text.push(c);
                continue;
            }
            let (_, escaped) = chars.next()?;
            let digits = match escaped {
                'n' => {
                    text.push('\n');
                    continue;
                }
                'r' => {
                    text.push('\r');
                    continue;
                }
                't' => {
                    text.push('\t');
                    continue;
                }
                'x' => 2,
                'u' => 4,
                'U' => 8,
                other => {
                    text.push(other);
                    continue;
                }
            };
            let mut code = 0;
            for _ in 0..digits {
                code = code * 16 + chars.next()?.1.to_digit(16)?;
            }
            text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(repr: &str) -> String {
        json!({"a": [{"lc": 1, "type": "not_implemented", "id": ["x", "Y"], "repr": repr}]}).to_string()
    }

    fn read(repr: &str) -> Value {
        let frame = restored(&envelope(repr)).unwrap_or_else(|| panic!("{repr} was not read"));
        serde_json::from_str::<Value>(&frame).unwrap()["a"][0].take()
    }

    #[test]
    fn interrupts_keep_their_id_and_value() {
        let shown =
            r#"Interrupt(value={'q': "it's\n", 'n': [1, -2.5, None, True], 't': (1,), 's': {2}}, id='ab')"#;
        let wanted =
            json!({"value": {"q": "it's\n", "n": [1, -2.5, null, true], "t": [1], "s": [2]}, "id": "ab"});
        assert_eq!(read(shown), wanted);
        assert_eq!(read(r"Interrupt(value='\xe9\u4e16\U0001f680', id='c')")["value"], "é世🚀");
        // What nobody can read back does not cost the id.
        assert_eq!(read("Interrupt(value=<object at 0x7f>, id='cd')")["id"], "cd");
    }

    #[test]
    fn commands_keep_the_messages_that_they_hold() {
        let shown =
            "Command(update={'messages': [ToolMessage(content='ok', tool_call_id='c')]}, goto='next')";
        let wanted = json!({
            "update": {"messages": [{"content": "ok", "tool_call_id": "c", "type": "ToolMessage"}]},
            "goto": "next", "graph": null, "resume": null,
        });
        assert_eq!(read(shown), wanted);
    }

    #[test]
    fn exceptions_are_class_and_text() {
        assert_eq!(read("ValueError('bad 1')"), json!({"error": "ValueError", "message": "bad 1"}));
        assert_eq!(read("KeyError(1, 2)"), json!({"error": "KeyError", "message": "1, 2"}));
        let shown = "GraphInterrupt((Interrupt(value='x', id='ab'),))";
        assert_eq!(
            read(shown),
            json!({"error": "GraphInterrupt", "message": "(Interrupt(value='x', id='ab'),)"})
        );
    }

    #[test]
    fn everything_else_is_left_alone() {
        assert_eq!(restored(r#"{"a":1}"#), None);
        let deep = format!("Command(update={}{})", "[".repeat(5000), "]".repeat(5000));
        for text in
            ["<object at 0x7f>", "Foo(1)", "Command(", "Command(x=)", "", "(", "Interrupt(value=<x>)", &deep]
        {
            assert_eq!(restored(&envelope(text)), None, "{text}");
        }
    }
}
