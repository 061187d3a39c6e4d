//! The shapes of personal data and secrets, and the pseudonyms of the found values.

use std::{collections::HashMap, ops::Range, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

/// The deepest JSON in a string that is looked into.
const MAX_NESTED: usize = 4;

/// The names of members whose whole value is a secret.
const SECRET_MEMBERS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "clientsecret",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "accesstoken",
    "refreshtoken",
    "idtoken",
    "authtoken",
    "bearertoken",
    "authorization",
    "proxyauthorization",
    "cookie",
    "setcookie",
    "xapikey",
];

/// Members of an event that are part of the protocol and not of its content.
const PROTOCOL_MEMBERS: &[&str] = &["type", "role", "protocolVersion", "timestamp", "op", "status"];

/// Members that hold bytes as base64: a shape in them is chance.
const BINARY_MEMBERS: &[&str] = &["encryptedValue"];

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Shape {
    Email,
    Card,
    Token,
    Key,
    Text,
}

impl Shape {
    const ALL: [Self; 5] = [Self::Email, Self::Card, Self::Token, Self::Key, Self::Text];

    fn name(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Card => "card",
            Self::Token => "token",
            Self::Key => "key",
            Self::Text => "text",
        }
    }

    /// The value in one spelling: the same address or number gets the same pseudonym.
    fn normal(self, found: &str) -> String {
        match self {
            Self::Email => found.to_lowercase(),
            Self::Card => found.chars().filter(char::is_ascii_digit).collect(),
            _ => found.to_owned(),
        }
    }

    fn pseudonym(self, number: usize) -> String {
        match self {
            Self::Email => format!("email-{number}@redacted.invalid"),
            other => format!("{}-{number}", other.name()),
        }
    }
}

/// The patterns of each shape; the first group is the value, if there is one.
static PATTERNS: LazyLock<Vec<(Shape, Regex)>> = LazyLock::new(|| {
    let patterns = [
        // Keys before tokens and addresses: the longest and surest shapes first.
        (
            Shape::Key,
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
        ),
        (Shape::Token, r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),
        (Shape::Key, r"\b(?:sk|rk|pk)[-_](?:[a-z0-9]+[-_])*[A-Za-z0-9_-]{16,}"),
        (Shape::Key, r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16}\b"),
        (Shape::Key, r"\bAIza[A-Za-z0-9_-]{30,}"),
        (Shape::Key, r"\b(?:hf|lsv2_pt|lsv2_sk|gsk|npm|pypi|dop_v1|glsa|shpat)[_-][A-Za-z0-9_-]{20,}"),
        (
            Shape::Token,
            r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})",
        ),
        (Shape::Token, r"\bxox[a-z]-[A-Za-z0-9-]{10,}"),
        (Shape::Token, r"(?i)\b(?:bearer|basic|token)[ :=]+([A-Za-z0-9._~+/-]{16,}=*)"),
        (
            Shape::Key,
            r#"(?i)\b(?:api[_-]?key|secret|password|passwd|access[_-]?token|client[_-]?secret)["']?\s*[:=]\s*["']?([^\s"',;&]{6,})"#,
        ),
        (Shape::Token, r"(?i)[?&](?:access_token|token|key|sig|signature|api_key)=([^&\s#]{8,})"),
        (Shape::Token, r"://[^/\s:@]+:([^/\s@]{3,})@"),
        (Shape::Email, r"[\p{L}0-9._%+\-]+@(?:[\p{L}0-9](?:[\p{L}0-9\-]*[\p{L}0-9])?\.)+\p{L}{2,}"),
        (Shape::Card, r"[0-9](?:[ -]?[0-9]){12,18}"),
    ];
    patterns
        .iter()
        .map(|(shape, text)| (*shape, Regex::new(text).expect("the pattern is constant")))
        .collect()
});

/// The found values and their pseudonyms.
pub(crate) struct Pseudonyms {
    shapes: Vec<Shape>,
    texts: Vec<String>,
    known: HashMap<(Shape, String), usize>,
    values: HashMap<Shape, usize>,
    places: HashMap<Shape, usize>,
}

impl Pseudonyms {
    /// For the named presets, or all, and for given texts.
    pub(crate) fn new(presets: &[String], texts: &[String]) -> Self {
        let is_chosen = |shape: &Shape| presets.is_empty() || presets.iter().any(|name| name == shape.name());
        Self {
            shapes: Shape::ALL.into_iter().filter(is_chosen).collect(),
            texts: texts.iter().filter(|text| !text.is_empty()).cloned().collect(),
            known: HashMap::new(),
            values: HashMap::new(),
            places: HashMap::new(),
        }
    }

    /// The number of values and of their places, by shape.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, usize, usize)> {
        let count = |map: &HashMap<Shape, usize>, shape| map.get(&shape).copied().unwrap_or(0);
        Shape::ALL.into_iter().filter_map(move |shape| {
            let (values, places) = (count(&self.values, shape), count(&self.places, shape));
            (places > 0 || (self.shapes.contains(&shape) && shape != Shape::Text)).then_some((
                shape.name(),
                values,
                places,
            ))
        })
    }

    fn pseudonym(&mut self, shape: Shape, found: &str) -> String {
        *self.places.entry(shape).or_default() += 1;
        let key = (shape, shape.normal(found));
        let number = match self.known.get(&key) {
            Some(number) => *number,
            None => {
                let number = self.values.entry(shape).or_default();
                *number += 1;
                self.known.insert(key, *number);
                *number
            }
        };
        shape.pseudonym(number)
    }

    /// The ranges of the values in a text, in order, with their pseudonyms.
    pub(crate) fn edits(&mut self, text: &str) -> Vec<(Range<usize>, String)> {
        let mut found: Vec<(Range<usize>, Shape)> = Vec::new();
        let is_free = |found: &[(Range<usize>, Shape)], range: &Range<usize>| {
            found.iter().all(|(other, _)| range.end <= other.start || range.start >= other.end)
        };
        for given in &self.texts {
            for (at, part) in text.match_indices(given.as_str()) {
                let range = at..at + part.len();
                if is_free(&found, &range) {
                    found.push((range, Shape::Text));
                }
            }
        }
        for (shape, pattern) in PATTERNS.iter().filter(|(shape, _)| self.shapes.contains(shape)) {
            for captures in pattern.captures_iter(text) {
                let Some(matched) = captures.get(1).or_else(|| captures.get(0)) else { continue };
                let range = matched.range();
                if is_free(&found, &range) && is_real(*shape, text, &range) {
                    found.push((range, *shape));
                }
            }
        }
        found.sort_by_key(|(range, _)| range.start);
        found.into_iter().map(|(range, shape)| (range.clone(), self.pseudonym(shape, &text[range]))).collect()
    }

    /// A text with its values replaced, if it has any.
    fn replaced(&mut self, text: &str) -> Option<String> {
        let edits = self.edits(text);
        if edits.is_empty() {
            return None;
        }
        let mut out = String::new();
        let mut from = 0;
        for (range, new) in edits {
            out.push_str(&text[from..range.start]);
            out.push_str(&new);
            from = range.end;
        }
        out.push_str(&text[from..]);
        Some(out)
    }

    /// A JSON text, or any other text, with its values replaced, if it has any.
    pub(crate) fn replaced_json(&mut self, text: &str) -> Option<String> {
        self.replaced_nested(text, 0)
    }

    fn replaced_nested(&mut self, text: &str, depth: usize) -> Option<String> {
        let is_json = matches!(text.trim_start().as_bytes().first(), Some(b'{' | b'[')) && depth < MAX_NESTED;
        if is_json && let Ok(mut value) = serde_json::from_str::<Value>(text) {
            return self.replace_in(&mut value, depth + 1, false).then(|| value.to_string());
        }
        self.replaced(text)
    }

    /// Replaces the values in an event in AG-UI form.
    pub(crate) fn replace_in_event(&mut self, event: &mut Value) {
        self.replace_in(event, 0, true);
    }

    /// Replaces the values in all strings, numbers and member names; true if there were any.
    fn replace_in(&mut self, value: &mut Value, depth: usize, is_event: bool) -> bool {
        match value {
            Value::String(text) => match self.replaced_nested(text, depth) {
                Some(new) => {
                    *text = new;
                    true
                }
                None => false,
            },
            Value::Number(number) => {
                let text = number.to_string();
                match self.edits(&text).pop() {
                    Some((range, new)) if range.len() == text.len() => {
                        *value = Value::String(new);
                        true
                    }
                    _ => false,
                }
            }
            Value::Array(list) => {
                let mut is_changed = false;
                for item in list {
                    is_changed |= self.replace_in(item, depth, is_event);
                }
                is_changed
            }
            Value::Object(object) => {
                let mut is_changed = false;
                let members = std::mem::take(object);
                for (name, mut value) in members {
                    if is_event
                        && (PROTOCOL_MEMBERS.contains(&&*name) || BINARY_MEMBERS.contains(&&*name))
                        && !value.is_object()
                    {
                        object.insert(name, value);
                        continue;
                    }
                    if self.is_secret(&name, &value) {
                        let text = value.as_str().unwrap_or_default().to_owned();
                        value = Value::String(self.pseudonym(Shape::Key, &text));
                        is_changed = true;
                    } else if !is_base64_data(&name, &value) {
                        is_changed |= self.replace_in(&mut value, depth, is_event && !is_content(&name));
                    }
                    let new_name = self.replaced(&name);
                    is_changed |= new_name.is_some();
                    object.insert(new_name.unwrap_or(name), value);
                }
                is_changed
            }
            Value::Null | Value::Bool(_) => false,
        }
    }

    /// True if the name of a member says that its value is a secret that was not replaced before.
    fn is_secret(&self, name: &str, value: &Value) -> bool {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let is_named = SECRET_MEMBERS.contains(&plain.to_ascii_lowercase().as_str());
        let is_pseudonym = |text: &str| {
            let numbered = |name: &str| {
                text.strip_prefix(name).is_some_and(|rest| rest.chars().all(|it| it.is_ascii_digit()))
            };
            ["key-", "token-", "text-", "card-"].into_iter().any(numbered)
        };
        is_named
            && self.shapes.contains(&Shape::Key)
            && value.as_str().is_some_and(|text| !text.trim().is_empty() && !is_pseudonym(text))
    }
}

/// Members of an event whose value is free content: their own members are no members of the protocol.
fn is_content(name: &str) -> bool {
    matches!(
        name,
        "snapshot" | "value" | "result" | "state" | "forwardedProps" | "content" | "metadata" | "payload"
    )
}

/// True if a member is the data of a file.
fn is_base64_data(name: &str, value: &Value) -> bool {
    let is_base64 = |text: &str| {
        text.len() > 200
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_'))
    };
    matches!(name, "data" | "value" | "url")
        && value.as_str().is_some_and(|text| {
            is_base64(text)
                || text
                    .strip_prefix("data:")
                    .and_then(|it| it.split_once(";base64,"))
                    .is_some_and(|(_, it)| is_base64(it))
        })
}

/// True if a match is a value: the number of a card has a check digit, and a pseudonym is none.
fn is_real(shape: Shape, text: &str, range: &Range<usize>) -> bool {
    let found = &text[range.clone()];
    match shape {
        Shape::Email => !found.to_lowercase().ends_with("@redacted.invalid"),
        Shape::Card => {
            let digits: Vec<u32> = found.chars().filter_map(|letter| letter.to_digit(10)).collect();
            let is_part = text[range.end..].starts_with(|letter: char| letter.is_ascii_alphanumeric())
                || text[..range.start]
                    .ends_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '.');
            // Timestamps in milliseconds have 13 digits and begin with 1, which no card does.
            !is_part
                && (13..=19).contains(&digits.len())
                && matches!(digits[0], 2..=6)
                && has_check_digit(&digits)
        }
        _ => !found.ends_with("-redacted"),
    }
}

fn has_check_digit(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| if at % 2 == 0 { *digit } else { (digit * 2) / 10 + (digit * 2) % 10 })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replaced(text: &str) -> String {
        Pseudonyms::new(&[], &[]).replaced(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn shapes_are_found() {
        for (text, expected) in [
            ("to Jane.Doe+x@mail.example.org!", "to email-1@redacted.invalid!"),
            (
                "a@b.de and A@B.de and c@d.de",
                "email-1@redacted.invalid and email-1@redacted.invalid and email-2@redacted.invalid",
            ),
            ("card 4111 1111 1111 1111.", "card card-1."),
            ("4111-1111-1111-1111 and 4111111111111111", "card-1 and card-1"),
            ("Authorization: Bearer abcdefghijklmnop1234", "Authorization: Bearer token-1"),
            ("sk-proj-abcdefghijklmnopqrstuvwx", "key-1"),
            ("AKIAIOSFODNN7EXAMPLE", "key-1"),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "token-1"),
            ("eyJhbGciOi.eyJzdWIiOiI.SflKxwRJSM", "token-1"),
            ("password=hunter2hunter2", "password=key-1"),
            ("https://user:secretword@host/", "https://user:token-1@host/"),
            ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----", "key-1"),
        ] {
            assert_eq!(replaced(text), expected);
        }
    }

    #[test]
    fn other_text_stays() {
        for text in [
            "4111 1111 1111 1112",
            "1700000000000",
            "mail me @ noon",
            "2 * 3 = 6",
            "a sk-short one",
            "email-1@redacted.invalid",
            "a token of thanks",
            "run 4111111111111111a",
        ] {
            assert_eq!(replaced(text), text);
        }
    }

    #[test]
    fn json_stays_json() {
        let mut value = json!({"type": "CUSTOM", "value": {"password": "abc", "n": 4_111_111_111_111_111_u64,
            "nested": "{\"to\":\"a@b.de\"}", "a@b.de": 1}});
        Pseudonyms::new(&[], &[]).replace_in_event(&mut value);
        let expected = json!({"type": "CUSTOM", "value": {"password": "key-1", "n": "card-1",
            "nested": "{\"to\":\"email-1@redacted.invalid\"}", "email-1@redacted.invalid": 1}});
        assert_eq!(value, expected);
    }

    #[test]
    fn presets_and_texts_are_chosen() {
        let mut only = Pseudonyms::new(&["card".into()], &["Jane Doe".into()]);
        assert_eq!(
            only.replaced("Jane Doe, a@b.de, 4111111111111111"),
            Some("text-1, a@b.de, card-1".into())
        );
    }
}
