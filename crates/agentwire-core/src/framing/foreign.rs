//! Bodies that are not event streams: an error page, a line of text, an empty body.
//!
//! Servers and proxies respond with these when the agent is down. They contain no frame, so neither decoder nor reader
//! can describe the problem.

use std::fmt;

use super::{
    Framing,
    buffer::{is_blank, without_byte_order_mark},
    detect,
};

/// The quoted length of a foreign body: enough for a status line or the title of an error page.
const QUOTED: usize = 120;

/// A body that is in none of the framings that a format is read from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}, found {found}", Names(.expected))]
pub struct Foreign {
    found: Box<str>,
    expected: &'static [Framing],
    empty: bool,
}

impl Foreign {
    /// Whether the body was empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.empty
    }
}

/// The framing, one of `allowed`, of the stream that starts with `start`, like [`detect`], or a description of the body.
///
/// ```
/// use agentwire_core::framing::{Framing, recognize};
/// let foreign = recognize(b"<!doctype html><title>502</title>", &[Framing::Sse, Framing::Lines]).unwrap_err();
/// assert_eq!(
///     foreign.to_string(),
///     "expected SSE or JSON lines, found an HTML page: `<!doctype html><title>502</title>`",
/// );
/// ```
///
/// # Errors
/// When `start` is empty or white space, or fits none of `allowed`. Text instead of binary is an error too: four bytes of
/// text would be a length of more than 150 MB.
pub fn recognize(start: &[u8], allowed: &'static [Framing]) -> Result<Framing, Foreign> {
    let text = without_byte_order_mark(start);
    let text = &text[text.iter().position(|&byte| !is_blank(byte)).unwrap_or(text.len())..];
    let foreign = match allowed {
        [Framing::Text] => false,
        [Framing::Prefixed] => {
            text.is_empty() || start.get(..4).is_some_and(|length| length.iter().all(is_text))
        }
        _ => text.is_empty(),
    };
    match detect(start, allowed) {
        Some(framing) if !foreign => Ok(framing),
        _ => Err(Foreign { empty: text.is_empty(), found: describe(text).into(), expected: allowed }),
    }
}

/// Whether a byte may be part of the start of an error page.
fn is_text(byte: &u8) -> bool {
    is_blank(*byte) || byte.is_ascii_graphic()
}

fn describe(text: &[u8]) -> String {
    let begins =
        |name: &str| text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()));
    if is_binary(text) {
        return describe_binary(text);
    }
    let what = if text.is_empty() {
        return "an empty body".into();
    } else if begins("<!doctype html") || begins("<html") || begins("<head") || begins("<body") {
        "an HTML page"
    } else if begins("<") {
        "markup"
    } else {
        "text"
    };
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * QUOTED)]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut quoted = String::new();
    for character in words.chars().take(QUOTED) {
        if character.is_control() {
            quoted.extend(character.escape_unicode());
        } else {
            quoted.push(character);
        }
    }
    let more = if words.chars().nth(QUOTED).is_some() { "…" } else { "" };
    format!("{what}: `{quoted}{more}`")
}

/// True if the start of a body is not text: control characters, or bytes that are not UTF-8.
fn is_binary(text: &[u8]) -> bool {
    let start = &text[..text.len().min(QUOTED)];
    // A character may be cut at the end of the excerpt.
    let is_utf8 = std::str::from_utf8(start).err().is_none_or(|error| error.error_len().is_none());
    !is_utf8 || start.iter().any(|&byte| byte < b' ' && !byte.is_ascii_whitespace() && byte != 0x1b)
}

/// Names binary data by its signature, or quotes its first bytes.
fn describe_binary(bytes: &[u8]) -> String {
    const SIGNATURES: [(&[u8], &str); 11] = [
        (b"\x7fELF", "a program"),
        (b"\x89PNG", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"%PDF", "a PDF document"),
        (b"SQLite format 3", "a SQLite database"),
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ", "xz"),
        (b"BZh", "bzip2"),
        (b"GIF8", "a GIF image"),
    ];
    if let Some((_, name)) = SIGNATURES.iter().find(|(signature, _)| bytes.starts_with(signature)) {
        return format!("binary data ({name})");
    }
    let first: Vec<_> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("binary data (`{}…`)", first.join(" "))
}

/// Joins the names of framings for a sentence.
struct Names<'f>(&'f [Framing]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, framing) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" or ")?;
            }
            f.write_str(framing.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: &[Framing] = &[Framing::Sse, Framing::Lines, Framing::Array];

    fn found(start: &[u8], allowed: &'static [Framing]) -> String {
        recognize(start, allowed).expect_err("the body is foreign").to_string()
    }

    #[test]
    fn streams_are_recognized() {
        assert_eq!(recognize(b"data: {}\n\n", TEXTS), Ok(Framing::Sse));
        assert_eq!(recognize(b"{}\n", &[Framing::Lines]), Ok(Framing::Lines));
        assert_eq!(recognize(&[0, 0, 1, 2, 8], &[Framing::Prefixed]), Ok(Framing::Prefixed));
        assert_eq!(recognize(&[255, 255, 255, 255, 8], &[Framing::Prefixed]), Ok(Framing::Prefixed));
        assert_eq!(recognize(&[0, 0], &[Framing::Prefixed]), Ok(Framing::Prefixed));
        assert_eq!(recognize(b"", &[Framing::Text]), Ok(Framing::Text));
    }

    #[test]
    fn pages_text_and_nothing_are_named() {
        let expected = "expected SSE or JSON lines or JSON array, found";
        assert_eq!(
            found(b"\xef\xbb\xbf\n <!DOCTYPE html>\n<html>", TEXTS),
            format!("{expected} an HTML page: `<!DOCTYPE html> <html>`")
        );
        assert_eq!(
            found(b"<?xml version=\"1.0\"?>", TEXTS),
            format!("{expected} markup: `<?xml version=\"1.0\"?>`")
        );
        assert_eq!(
            found(b"Internal Server Error", TEXTS),
            format!("{expected} text: `Internal Server Error`")
        );
        assert_eq!(found(b" \r\n\t", TEXTS), format!("{expected} an empty body"));
        assert_eq!(found(b"\x01\x02", TEXTS), format!("{expected} binary data (`01 02…`)"));
    }

    #[test]
    fn text_is_no_binary_stream() {
        let expected = "expected length-prefixed binary, found";
        assert_eq!(found(b"", &[Framing::Prefixed]), format!("{expected} an empty body"));
        assert_eq!(found(b"Bad Gateway", &[Framing::Prefixed]), format!("{expected} text: `Bad Gateway`"));
    }

    #[test]
    fn a_long_body_is_quoted_in_part() {
        let body = "ä ".repeat(100_000);
        let error = found(body.as_bytes(), TEXTS);
        assert!(error.ends_with("…`") && error.len() < 400, "{error}");
    }
}
