//! Streamed arguments of a tool call.
//!
//! Gemini streams arguments as values at JSON paths; clients expect a growing JSON text. [`PartialArgsText`] writes that
//! text while the pieces arrive in document order, the order in which the model produces them. At the first piece out of
//! order it stops, and the closing event supplies the arguments.

use std::fmt::Write as _;

use serde_json::{Number, Value};

use crate::format::adk::wire::PartialArg;

/// The argument text so far.
#[derive(Debug, Default)]
pub(super) struct PartialArgsText {
    text: String,
    /// Length of the text that was emitted.
    sent: usize,
    /// Open containers, the outermost first; each contains the path segment at its depth.
    open: Vec<Container>,
    /// The path of the last value.
    last: Vec<Segment>,
    /// The last value is a string and its closing quote is not written yet: `willContinue` is not reliable, so a
    /// string ends only with the next value.
    in_string: bool,
    /// Set when a piece could not be appended; from then on all pieces are ignored.
    is_stuck: bool,
}

/// Maximum depth of a path, the same as for all JSON values.
const MAX_DEPTH: usize = 64;
/// Maximum length of the text, far above the output of a model in one call.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// Maximum number of members of an object whose names are kept to detect repeated ones.
const MAX_MEMBERS: usize = 1024;

#[derive(Debug)]
enum Container {
    /// An object and the names of its members.
    Object(Vec<String>),
    Array,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Key(String),
    Index(usize),
}

impl PartialArgsText {
    /// The text that was emitted.
    pub(super) fn sent(&self) -> &str {
        &self.text[..self.sent]
    }

    /// The text since the last call of this function.
    pub(super) fn take_unsent(&mut self) -> Option<&str> {
        let from = std::mem::replace(&mut self.sent, self.text.len());
        (from < self.text.len()).then(|| &self.text[from..])
    }

    /// Appends a piece. After the first piece that cannot be appended, nothing is written: the emitted text must
    /// remain a prefix of the arguments in the closing event.
    pub(super) fn push(&mut self, piece: &PartialArg<'_>) {
        let path = piece.path.as_ref().and_then(|path| segments(path.as_str()));
        self.is_stuck |= path.is_none() || self.text.len() > MAX_TEXT;
        let Some(path) = path.filter(|_| !self.is_stuck) else {
            return;
        };
        if let Some(string) = &piece.string
            && self.in_string
            && path == self.last
        {
            self.append_string(string.as_str());
            return;
        }
        let Some(value) = value_of(piece) else {
            // The start of a container, which its first member implies; ADK omits empty containers.
            return;
        };
        let before = self.text.len();
        if std::mem::take(&mut self.in_string) {
            self.text.push('"');
        }
        if self.move_to(path).is_none() {
            self.text.truncate(before);
            self.is_stuck = true;
            return;
        }
        match value {
            Value::String(string) => {
                self.text.push('"');
                self.append_string(&string);
                self.in_string = true;
            }
            other => write!(self.text, "{other}").expect("writing to memory does not fail"),
        }
    }

    /// Writes a piece of a string, escaped.
    fn append_string(&mut self, piece: &str) {
        let quoted = Value::from(piece).to_string();
        self.text.push_str(&quoted[1..quoted.len() - 1]);
    }

    /// Writes the brackets, commas and keys between the last value and the value at `path`; `None` if that value
    /// cannot follow.
    fn move_to(&mut self, path: Vec<Segment>) -> Option<()> {
        let deepest = path.len().checked_sub(1).filter(|deepest| *deepest < MAX_DEPTH)?;
        let mut depth = 0;
        if self.open.is_empty() {
            self.open_container(&path[0])?;
        } else {
            depth = path.iter().zip(&self.last).take_while(|(new, old)| new == old).count();
            if depth > deepest || depth >= self.last.len() {
                // The same value again, or a value inside a scalar.
                return None;
            }
            for container in self.open.drain(depth + 1..).rev() {
                self.text.push(match container {
                    Container::Object(_) => '}',
                    Container::Array => ']',
                });
            }
            self.text.push(',');
            match (&mut self.open[depth], &path[depth], &self.last[depth]) {
                (Container::Object(members), Segment::Key(key), _)
                    if members.len() < MAX_MEMBERS && !members.contains(key) =>
                {
                    self.text.push_str(&Value::from(key.as_str()).to_string());
                    self.text.push(':');
                    members.push(key.clone());
                }
                (Container::Array, Segment::Index(new), Segment::Index(old)) if *new == old + 1 => {}
                _ => return None,
            }
        }
        for segment in &path[depth + 1..] {
            self.open_container(segment)?;
        }
        self.last = path;
        Some(())
    }

    /// Opens the container of `segment`.
    fn open_container(&mut self, segment: &Segment) -> Option<()> {
        match segment {
            Segment::Key(key) => {
                write!(self.text, "{{{}:", Value::from(key.as_str()))
                    .expect("writing to memory does not fail");
                self.open.push(Container::Object(vec![key.clone()]));
            }
            Segment::Index(0) => {
                self.text.push('[');
                self.open.push(Container::Array);
            }
            Segment::Index(_) => return None,
        }
        Some(())
    }
}

/// The value of a piece, if it has one.
fn value_of(piece: &PartialArg<'_>) -> Option<Value> {
    match piece {
        PartialArg { string: Some(string), .. } => Some(string.as_str().into()),
        PartialArg { number: Some(number), .. } => {
            Some(serde_json::from_str::<Number>(number.get()).ok()?.into())
        }
        PartialArg { boolean: Some(boolean), .. } => Some((*boolean).into()),
        PartialArg { null: Some(_), .. } => Some(Value::Null),
        _ => None,
    }
}

/// The segments of a path such as `$.items[0].name` or `$['odd \'key\'']`, parsed like in ADK.
fn segments(path: &str) -> Option<Vec<Segment>> {
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut segments = Vec::new();
    while !rest.is_empty() && segments.len() <= MAX_DEPTH {
        let Some(inside) = rest.strip_prefix('[') else {
            let (key, after) = unescape_until(rest.strip_prefix('.').unwrap_or(rest), &['.', '[', ']']);
            if key.is_empty() {
                return None;
            }
            segments.push(Segment::Key(key));
            rest = after;
            continue;
        };
        let quote = inside.chars().next().filter(|first| matches!(first, '\'' | '"'));
        rest = match quote {
            Some(quote) => {
                let (key, after) = unescape_until(&inside[1..], &[quote]);
                segments.push(Segment::Key(key));
                after.strip_prefix(quote)?.strip_prefix(']')?
            }
            None => {
                let (index, after) = inside.split_once(']')?;
                segments.push(Segment::Index(index.trim().parse().ok()?));
                after
            }
        };
    }
    matches!(segments.first(), Some(Segment::Key(_))).then_some(segments)
}

/// The unescaped text before the first of `ends`, and the rest.
fn unescape_until<'p>(text: &'p str, ends: &[char]) -> (String, &'p str) {
    let mut word = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next().filter(|next| !ends.contains(next)) {
        rest = &rest[next.len_utf8()..];
        let escaped = if next == '\\' { rest.chars().next() } else { None };
        let Some(escaped) = escaped else {
            word.push(next);
            continue;
        };
        rest = &rest[escaped.len_utf8()..];
        let code = (escaped == 'u').then(|| rest.get(..4)).flatten();
        let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
        word.push(match (escaped, code) {
            ('u', Some(character)) => {
                rest = &rest[4..];
                character
            }
            ('n', _) => '\n',
            ('r', _) => '\r',
            ('t', _) => '\t',
            ('b', _) => '\u{8}',
            ('f', _) => '\u{c}',
            (other, _) => other,
        });
    }
    (word, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[&str]) -> (String, bool) {
        let mut args = PartialArgsText::default();
        for piece in pieces {
            args.push(&serde_json::from_str(piece).unwrap());
        }
        let sent = args.take_unsent().unwrap_or_default().to_owned();
        (sent, args.is_stuck)
    }

    #[test]
    fn text_grows_with_the_pieces() {
        let (text, stuck) = text(&[
            r#"{"jsonPath":"$.title","stringValue":"On \"R","willContinue":true}"#,
            r#"{"jsonPath":"$.title","stringValue":"ust\n","willContinue":false}"#,
            r#"{"jsonPath":"$.pages","numberValue":3.0}"#,
            r#"{"json_path":"$.tags[0].name","string_value":"a"}"#,
            r#"{"jsonPath":"$.tags[1].name","stringValue":"b"}"#,
            r#"{"jsonPath":"$['odd key']","boolValue":false}"#,
            r#"{"jsonPath":"$.nothing","nullValue":"NULL_VALUE"}"#,
        ]);
        assert_eq!(
            text,
            r#"{"title":"On \"Rust\n","pages":3.0,"tags":[{"name":"a"},{"name":"b"}],"odd key":false,"nothing":null"#
        );
        assert!(!stuck);
    }

    #[test]
    fn string_continues_without_will_continue() {
        let (text, stuck) = text(&[
            r#"{"jsonPath":"$.a","stringValue":"x"}"#,
            r#"{"jsonPath":"$.a","stringValue":"y","willContinue":false}"#,
            r#"{"jsonPath":"$.a"}"#,
            r#"{"jsonPath":"$.a","stringValue":"z"}"#,
            r#"{"jsonPath":"$.b","willContinue":true}"#,
            r#"{"jsonPath":"$.b[0].c","numberValue":1}"#,
        ]);
        assert_eq!(text, r#"{"a":"xyz","b":[{"c":1"#);
        assert!(!stuck);
    }

    #[test]
    fn paths_are_parsed_like_in_adk() {
        let (text, stuck) = text(&[
            r#"{"jsonPath":"$['odd ]key']","numberValue":1}"#,
            r#"{"jsonPath":"$['it\\'s']","numberValue":2}"#,
            r#"{"jsonPath":"$[\"say \\\"hi\\\"\"][ 0 ]","numberValue":3}"#,
            r#"{"jsonPath":"$.list[0]['line\\n\\u00e9']","numberValue":4}"#,
            r#"{"jsonPath":"bare\\.dot","numberValue":5}"#,
        ]);
        assert_eq!(text, r#"{"odd ]key":1,"it's":2,"say \"hi\"":[3],"list":[{"line\né":4}],"bare.dot":5"#);
        assert!(!stuck);
    }

    #[test]
    fn pieces_out_of_order_are_left_to_the_closing_event() {
        for pieces in [
            [r#"{"jsonPath":"$.a","numberValue":1}"#, r#"{"jsonPath":"$.a","numberValue":2}"#],
            [r#"{"jsonPath":"$.a","numberValue":1}"#, r#"{"jsonPath":"$.a.b","numberValue":2}"#],
            [r#"{"jsonPath":"$.a[0]","numberValue":1}"#, r#"{"jsonPath":"$.a[2]","numberValue":2}"#],
            [r#"{"jsonPath":"$[0]","numberValue":1}"#, r#"{"jsonPath":"$","numberValue":2}"#],
            [r#"{"jsonPath":"$['a","numberValue":1}"#, r#"{"jsonPath":"$.a..b","numberValue":2}"#],
        ] {
            let (text, stuck) = text(&pieces);
            assert!(stuck, "{text}");
        }
    }
}
