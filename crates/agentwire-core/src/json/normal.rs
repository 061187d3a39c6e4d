//! Normalises JSON text to a form that every peer accepts.
//!
//! Three deviations pass a lenient parser and fail at a peer: white space (a line break would end an SSE line), half of
//! a surrogate pair (most parsers refuse it), and numbers or nesting beyond the peer's limits. The first two are
//! repaired, the third is refused.

use std::borrow::Cow;

/// The deepest nesting. serde_json refuses more than 128 levels, counting the document.
pub const MAX_DEPTH: usize = 126;

/// The reason why a JSON value cannot be carried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// It is not JSON.
    #[error("{0}")]
    Syntax(String),
    /// It is nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// It contains a number beyond the range of a double.
    #[error("number `{0}` is out of range")]
    NumberOutOfRange(String),
}

/// True if `value` stays within [`MAX_DEPTH`] when nested `levels` deeper.
pub(crate) fn fits(value: &str, levels: usize) -> bool {
    let (mut depth, mut deepest) = (0_usize, 0);
    let bytes = value.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        at += 1;
    }
    deepest + levels <= MAX_DEPTH
}

/// The valid JSON `text` without white space and lone surrogates, and the number of the latter that were replaced by
/// U+FFFD.
pub(super) fn normalise(text: &str) -> Result<(Cow<'_, str>, usize), Unfit> {
    let bytes = text.as_bytes();
    // Bytes up to `kept` are already in `out`, which stays empty until the first change.
    let mut out = String::new();
    let mut kept = 0;
    let mut depth = 0;
    let mut replaced = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' => {
                out.push_str(&text[kept..at]);
                at += 1;
                kept = at;
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(Unfit::TooDeep);
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'"' => {
                at += 1;
                loop {
                    match memchr::memchr2(b'"', b'\\', &bytes[at..]) {
                        None => return Err(Unfit::Syntax("unterminated string".into())),
                        Some(skip) if bytes[at + skip] == b'"' => {
                            at += skip + 1;
                            break;
                        }
                        Some(skip) => {
                            at += skip;
                            match surrogate(&bytes[at..]) {
                                Surrogate::No => at += 2,
                                Surrogate::Pair => at += 12,
                                Surrogate::Lone => {
                                    out.push_str(&text[kept..at]);
                                    out.push_str("\\ufffd");
                                    replaced += 1;
                                    at += 6;
                                    kept = at;
                                }
                            }
                        }
                    }
                }
            }
            b'-' | b'0'..=b'9' => {
                let start = at;
                while at < bytes.len() && matches!(bytes[at], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                {
                    at += 1;
                }
                let number = &text[start..at];
                let suspicious = number.len() > 300 || number.contains(['e', 'E']);
                if suspicious && !number.parse::<f64>().is_ok_and(f64::is_finite) {
                    let shown: String = number.chars().take(40).collect();
                    return Err(Unfit::NumberOutOfRange(shown));
                }
            }
            _ => at += 1,
        }
    }
    if kept == 0 {
        return Ok((Cow::Borrowed(text), 0));
    }
    out.push_str(&text[kept..]);
    Ok((Cow::Owned(out), replaced))
}

/// A JSON `text` that a parser refused, with lone surrogates replaced; `None` if it has none.
pub(super) fn without_lone_surrogates(text: &str) -> Option<(String, usize)> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let (mut kept, mut at, mut replaced) = (0, 0, 0);
    while let Some(skip) = memchr::memchr(b'\\', &bytes[at..]) {
        at += skip;
        match surrogate(&bytes[at..]) {
            Surrogate::No => at = (at + 2).min(bytes.len()),
            Surrogate::Pair => at += 12,
            Surrogate::Lone => {
                out.push_str(&text[kept..at]);
                out.push_str("\\ufffd");
                replaced += 1;
                at += 6;
                kept = at;
            }
        }
    }
    (replaced > 0).then(|| {
        out.push_str(&text[kept..]);
        (out, replaced)
    })
}

enum Surrogate {
    No,
    Pair,
    Lone,
}

/// The kind of the escape at the start of `bytes`.
fn surrogate(bytes: &[u8]) -> Surrogate {
    match code_unit(bytes) {
        Some(0xD800..0xDC00) => match bytes.get(6..).and_then(code_unit) {
            Some(0xDC00..0xE000) => Surrogate::Pair,
            _ => Surrogate::Lone,
        },
        Some(0xDC00..0xE000) => Surrogate::Lone,
        _ => Surrogate::No,
    }
}

/// The code unit of `\uXXXX` at the start of `bytes`.
fn code_unit(bytes: &[u8]) -> Option<u16> {
    let hex = bytes.strip_prefix(b"\\u")?.get(..4)?;
    let mut unit = 0;
    for digit in hex {
        unit = unit * 16 + char::from(*digit).to_digit(16)? as u16;
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_text_is_not_copied() {
        assert!(matches!(normalise(r#"{"a":[1,"x y\n"]}"#), Ok((Cow::Borrowed(_), 0))));
    }

    #[test]
    fn white_space_goes_only_between_tokens() {
        let (text, _) = normalise("{ \"a b\" :\n[ 1 , 2 ] }").unwrap();
        assert_eq!(text, r#"{"a b":[1,2]}"#);
    }

    #[test]
    fn surrogates() {
        for (given, wanted, count) in [
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#, 0),
            (r#""a\ud83d""#, r#""a\ufffd""#, 1),
            (r#""\ude00b""#, r#""\ufffdb""#, 1),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#, 1),
            (r#""\\ud83d""#, r#""\\ud83d""#, 0),
        ] {
            assert_eq!(normalise(given).unwrap(), (Cow::Borrowed(wanted), count), "{given}");
        }
        assert_eq!(without_lone_surrogates(r#"{"a":"\ud800"}"#), Some((r#"{"a":"\ufffd"}"#.into(), 1)));
        assert_eq!(without_lone_surrogates(r#"{"a":"\ud83d\ude00\"#), None);
    }

    #[test]
    fn limits() {
        assert_eq!(normalise("1e999"), Err(Unfit::NumberOutOfRange("1e999".into())));
        assert_eq!(normalise(&("[".repeat(10_000) + &"]".repeat(10_000))), Err(Unfit::TooDeep));
        assert!(normalise("[1e308,-0.1E-999,123456789012345678901234567890]").is_ok());
    }
}
