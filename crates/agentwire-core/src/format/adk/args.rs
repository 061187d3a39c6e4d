//! Arguments that come in pieces.
//!
//! Gemini streams the arguments of a call as values at JSON paths. A user interface wants a growing JSON text.
//! [`ArgsText`] writes that text as long as the pieces come in document order, which is how the model produces
//! them. Where they do not, it stops, and the closing event decides.

use std::fmt::Write as _;

use super::wire::Piece;

/// The argument text so far.
#[derive(Debug, Default)]
pub(super) struct ArgsText {
    text: String,
    /// How much of the text was handed out.
    sent: usize,
    /// Open containers, the outermost first; each holds the path segment at its depth.
    open: Vec<Container>,
    /// The path of the last value.
    last: Vec<Segment>,
    /// The last value is a string that goes on.
    in_string: bool,
    /// A piece could not be placed behind the others.
    stuck: bool,
}

/// How deep paths may go: as deep as JSON that is carried.
const MAX_DEPTH: usize = 64;
/// How long the text may grow piece by piece: beyond what a model can say in one call.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// How many members of one object are remembered, to notice when one comes back.
const MAX_MEMBERS: usize = 1024;

#[derive(Debug)]
enum Container {
    /// An object and the members it has.
    Object(Vec<String>),
    Array,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Key(String),
    Index(usize),
}

impl ArgsText {
    /// What was handed out.
    pub(super) fn sent(&self) -> &str {
        &self.text[..self.sent]
    }

    /// The text that has come since this was asked last.
    pub(super) fn take(&mut self) -> Option<&str> {
        let from = std::mem::replace(&mut self.sent, self.text.len());
        (from < self.text.len()).then(|| &self.text[from..])
    }

    /// Takes in a piece.
    pub(super) fn push(&mut self, piece: &Piece<'_>) {
        let Some(path) = piece.path.as_ref().and_then(|path| segments(path.as_str())) else {
            self.stuck = true;
            return;
        };
        let more = piece.more == Some(true);
        if let Some(string) = &piece.string
            && self.in_string
            && path == self.last
        {
            self.string(string.as_str(), more);
            return;
        }
        if self.in_string {
            self.text.push('"');
            self.in_string = false;
        }
        let before = self.text.len();
        if self.stuck || before > MAX_TEXT || self.go(path).is_none() {
            self.text.truncate(before);
            self.stuck = true;
            return;
        }
        match piece {
            Piece { string: Some(string), .. } => {
                self.text.push('"');
                self.string(string.as_str(), more);
            }
            Piece { number: Some(number), .. } => {
                match serde_json::from_str::<serde_json::Number>(number.get()) {
                    Ok(number) => write!(self.text, "{number}").expect("writing to memory does not fail"),
                    Err(_) => self.stuck = true,
                }
            }
            Piece { boolean: Some(boolean), .. } => {
                self.text.push_str(if *boolean { "true" } else { "false" })
            }
            _ => self.text.push_str("null"),
        }
    }

    /// Writes a piece of a string, and its end if no more comes.
    fn string(&mut self, piece: &str, more: bool) {
        let quoted = serde_json::Value::from(piece).to_string();
        self.text.push_str(&quoted[1..quoted.len() - 1]);
        self.in_string = more;
        if !more {
            self.text.push('"');
        }
    }

    /// Writes what leads from the last value to the one at `path`.
    fn go(&mut self, path: Vec<Segment>) -> Option<()> {
        let deepest = path.len().checked_sub(1).filter(|deepest| *deepest < MAX_DEPTH)?;
        let mut depth = 0;
        if self.open.is_empty() {
            self.enter(&path[0])?;
        } else {
            depth = path.iter().zip(&self.last).take_while(|(new, old)| new == old).count();
            if depth > deepest || depth >= self.last.len() {
                // The same value again, or a value inside a value.
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
                    self.text.push_str(&serde_json::Value::from(key.as_str()).to_string());
                    self.text.push(':');
                    members.push(key.clone());
                }
                (Container::Array, Segment::Index(new), Segment::Index(old)) if *new == old + 1 => {}
                _ => return None,
            }
        }
        for segment in &path[depth + 1..] {
            self.enter(segment)?;
        }
        self.last = path;
        Some(())
    }

    /// Opens the container that holds `segment`.
    fn enter(&mut self, segment: &Segment) -> Option<()> {
        match segment {
            Segment::Key(key) => {
                write!(self.text, "{{{}:", serde_json::Value::from(key.as_str()))
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

/// The segments of a path such as `$.items[0].name` or `$['odd key']`.
fn segments(path: &str) -> Option<Vec<Segment>> {
    let mut rest = path.strip_prefix('$')?;
    let mut segments = Vec::new();
    while !rest.is_empty() && segments.len() <= MAX_DEPTH {
        if let Some(word) = rest.strip_prefix('.') {
            let end = word.find(['.', '[']).unwrap_or(word.len());
            segments.push(Segment::Key(word[..end].to_owned()));
            rest = &word[end..];
        } else {
            let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
            let quoted = |quote| inside.strip_prefix(quote)?.strip_suffix(quote);
            segments.push(match quoted('\'').or_else(|| quoted('"')) {
                Some(key) => Segment::Key(key.to_owned()),
                None => Segment::Index(inside.parse().ok()?),
            });
            rest = after;
        }
    }
    matches!(segments.first(), Some(Segment::Key(_))).then_some(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[&str]) -> (String, bool) {
        let mut args = ArgsText::default();
        for piece in pieces {
            args.push(&serde_json::from_str(piece).unwrap());
        }
        let sent = args.take().unwrap_or_default().to_owned();
        (sent, args.stuck)
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
    fn what_cannot_be_appended_is_left_to_the_closing_event() {
        for pieces in [
            [r#"{"jsonPath":"$.a","numberValue":1}"#, r#"{"jsonPath":"$.a","numberValue":2}"#],
            [r#"{"jsonPath":"$.a","numberValue":1}"#, r#"{"jsonPath":"$.a.b","numberValue":2}"#],
            [r#"{"jsonPath":"$.a[0]","numberValue":1}"#, r#"{"jsonPath":"$.a[2]","numberValue":2}"#],
            [r#"{"jsonPath":"nonsense","numberValue":1}"#, r#"{"jsonPath":"$","numberValue":2}"#],
        ] {
            let (text, stuck) = text(&pieces);
            assert!(stuck, "{text}");
        }
    }
}
