//! Restores objects that LangChain's `dumpd` could not serialise from their Python `repr`.
//!
//! Interrupts, commands and exceptions have no `lc` form. They arrive as
//! `{"lc": 1, "type": "not_implemented", "id": […], "repr": TEXT}` with the text that Python prints. The text is
//! parsed if it consists of plain values and of objects that print their fields, and the result replaces the
//! envelope, so that the rest of the reader sees the form that the server sends.

use serde_json::{Map, Value, json};

/// Text that every such envelope contains.
const MARK: &str = "\"not_implemented\"";

/// Bound on the nesting of a printed value; deeper ones are not restored. Interrupts nest a handful of levels.
const MAX_DEPTH: usize = 32;

/// The frame with its envelopes replaced; `None` without any.
pub(super) fn restored(frame: &str) -> Option<String> {
    memchr::memmem::find(frame.as_bytes(), MARK.as_bytes())?;
    let mut value: Value = serde_json::from_str(frame).ok()?;
    restore(&mut value).then(|| value.to_string())
}

/// Replaces all envelopes in `value`; returns whether there was one. The JSON parser bounds the depth.
fn restore(value: &mut Value) -> bool {
    match value {
        Value::Object(members) if members.get("type").is_some_and(|kind| kind == "not_implemented") => {
            let Some(text) = members.get("repr").and_then(Value::as_str) else { return false };
            let Some(restored) = restore_object(text) else { return false };
            *value = restored;
            true
        }
        Value::Object(members) => members.values_mut().fold(false, |any, member| restore(member) | any),
        Value::Array(elements) => elements.iter_mut().fold(false, |any, element| restore(element) | any),
        _ => false,
    }
}

/// The printed object in the form that the server sends.
fn restore_object(text: &str) -> Option<Value> {
    let (class, arguments) = text.strip_suffix(')')?.split_once('(')?;
    if class.is_empty() || !class.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    match class {
        "Interrupt" | "Command" => match parse(text) {
            Some(value) => Some(value),
            // The id is kept even if the value cannot be parsed.
            None if class == "Interrupt" => {
                let id = arguments.rsplit_once("id='")?.1.split('\'').next()?;
                Some(json!({"id": id, "value": text}))
            }
            None => None,
        },
        _ if is_exception(class) => {
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

/// Whether a class is an exception: by Python's naming convention, or one of LangGraph's that do not follow it.
fn is_exception(class: &str) -> bool {
    ["Error", "Exception", "Interrupt", "Warning", "Timeout"].iter().any(|end| class.ends_with(end))
        || matches!(class, "ParentCommand" | "GraphBubbleUp" | "StopIteration" | "StopAsyncIteration")
}

/// Parses a printed value.
fn parse(text: &str) -> Option<Value> {
    let mut parser = ReprParser { rest: text };
    let value = parser.value(MAX_DEPTH)?;
    parser.skip_space();
    parser.rest.is_empty().then_some(value)
}

/// Parser of Python's `repr`; `rest` is the remaining text.
struct ReprParser<'a> {
    rest: &'a str,
}

impl ReprParser<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn skip_token(&mut self, token: &str) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.skip_space();
        match self.rest.chars().next()? {
            '{' => self.dict_or_set(depth),
            '[' => self.list("[", "]", depth),
            '(' => self.list("(", ")", depth),
            '\'' | '"' => self.string().map(Value::String),
            '-' | '0'..='9' => self.number(),
            first if first.is_alphabetic() || first == '_' => self.name_or_object(depth),
            _ => None,
        }
    }

    /// A dict, or a set, which becomes a list.
    fn dict_or_set(&mut self, depth: usize) -> Option<Value> {
        let mut members = Map::new();
        let mut elements = Vec::new();
        if !self.skip_token("{") {
            return None;
        }
        while !self.skip_token("}") {
            let key = self.value(depth)?;
            if self.skip_token(":") {
                let key = match key {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                members.insert(key, self.value(depth)?);
            } else {
                elements.push(key);
            }
            if !self.skip_token(",") && !self.rest.starts_with('}') {
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
        if !self.skip_token(open) {
            return None;
        }
        while !self.skip_token(close) {
            elements.push(self.value(depth)?);
            if !self.skip_token(",") && !self.rest.starts_with(close) {
                return None;
            }
        }
        Some(Value::Array(elements))
    }

    /// `None`, `True`, `b'…'`, or an object that prints as `Class(field=value)`.
    fn name_or_object(&mut self, depth: usize) -> Option<Value> {
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
        if !self.skip_token("(") {
            return None;
        }
        let mut fields = Map::new();
        let mut args = Vec::new();
        while !self.skip_token(")") {
            self.skip_space();
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
            if !self.skip_token(",") && !self.rest.starts_with(')') {
                return None;
            }
        }
        if !args.is_empty() {
            fields.insert("args".into(), args.into());
        }
        // A command is recognised by all of its fields, a message by its class.
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
            // Python prints numbers as JSON does, except for a trailing dot.
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
        // An unparsable value keeps the id.
        assert_eq!(read("Interrupt(value=<object at 0x7f>, id='cd')")["id"], "cd");
    }

    #[test]
    fn commands_keep_their_messages() {
        let shown =
            "Command(update={'messages': [ToolMessage(content='ok', tool_call_id='c')]}, goto='next')";
        let wanted = json!({
            "update": {"messages": [{"content": "ok", "tool_call_id": "c", "type": "ToolMessage"}]},
            "goto": "next", "graph": null, "resume": null,
        });
        assert_eq!(read(shown), wanted);
    }

    #[test]
    fn exceptions_become_class_and_message() {
        assert_eq!(read("ValueError('bad 1')"), json!({"error": "ValueError", "message": "bad 1"}));
        assert_eq!(read("KeyError(1, 2)"), json!({"error": "KeyError", "message": "1, 2"}));
        let shown = "GraphInterrupt((Interrupt(value='x', id='ab'),))";
        assert_eq!(
            read(shown),
            json!({"error": "GraphInterrupt", "message": "(Interrupt(value='x', id='ab'),)"})
        );
    }

    #[test]
    fn other_values_are_not_restored() {
        assert_eq!(restored(r#"{"a":1}"#), None);
        let deep = format!("Command(update={}{})", "[".repeat(5000), "]".repeat(5000));
        for text in
            ["<object at 0x7f>", "Foo(1)", "Command(", "Command(x=)", "", "(", "Interrupt(value=<x>)", &deep]
        {
            assert_eq!(restored(&envelope(text)), None, "{text}");
        }
    }
}
