//! The header `tracestate` of W3C Trace Context: data of tracing systems, which the gateway passes on.

use std::sync::Arc;

/// Entries of one list; a longer list is refused.
const MAX_ENTRIES: usize = 32;

/// Bytes that are passed on, as the specification asks for.
const MAX_BYTES: usize = 512;

/// An entry above this size is the first to go if the list is too large.
const LARGE_ENTRY: usize = 128;

/// Bytes of a key, and of a value.
const MAX_PART: usize = 256;

/// The entries of a valid `tracestate`, as one header value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceState(Arc<str>);

impl TraceState {
    /// Reads the values of all headers of the name. `None` if there are no entries, or if one of them is malformed.
    pub(crate) fn parse<'v>(values: impl IntoIterator<Item = &'v str>) -> Option<Self> {
        let mut entries: Vec<(&str, &str)> = Vec::new();
        for entry in values.into_iter().flat_map(|value| value.split(',')) {
            let entry = entry.trim_matches([' ', '\t']);
            if entry.is_empty() {
                continue;
            }
            let (key, value) = entry.split_once('=')?;
            let is_new = entries.iter().all(|(other, _)| *other != key);
            if !is_new || !is_key(key) || !is_value(value) || entries.len() == MAX_ENTRIES {
                return None;
            }
            entries.push((key, value));
        }
        let mut entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let size = |entries: &[String]| entries.iter().map(|entry| entry.len() + 1).sum::<usize>();
        while size(&entries) > MAX_BYTES + 1 {
            let large = entries.iter().rposition(|entry| entry.len() > LARGE_ENTRY);
            entries.remove(large.unwrap_or(entries.len() - 1));
        }
        (!entries.is_empty()).then(|| Self(entries.join(",").into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_key(key: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let starts_well = key.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit());
    starts_well && key.len() <= MAX_PART && key.bytes().all(is_allowed)
}

fn is_value(value: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
    !value.is_empty() && value.len() <= MAX_PART && value.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Option<String> {
        TraceState::parse(values.iter().copied()).map(|state| state.as_str().to_owned())
    }

    #[test]
    fn several_headers_are_one_list() {
        assert_eq!(
            read(&["rojo=00f067aa,congo=t61 a", " ,\tx@y=1, "]).as_deref(),
            Some("rojo=00f067aa,congo=t61 a,x@y=1")
        );
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["", " , "]), None);
    }

    #[test]
    fn a_malformed_entry_discards_the_list() {
        for bad in ["a", "=1", "a=", "A=1", "a=1,a=2", "a=1=2", "a=ü", "é=1", "a b=1", "a=1,b"] {
            assert_eq!(read(&[bad]), None, "{bad}");
        }
        assert_eq!(read(&[&format!("a={}", "x".repeat(MAX_PART + 1))]), None);
        let many: Vec<_> = (0..=MAX_ENTRIES).map(|number| format!("k{number}=1")).collect();
        assert_eq!(read(&[&many.join(",")]), None);
        assert!(read(&[&many[1..].join(",")]).is_some());
    }

    #[test]
    fn a_large_list_loses_large_entries_first() {
        let large = format!("large={}", "x".repeat(200));
        let small: Vec<_> = (0..5).map(|number| format!("k{number}={}", "y".repeat(80))).collect();
        let list = format!("first=1,{large},{}", small.join(","));
        assert_eq!(read(&[&list]), Some(format!("first=1,{}", small.join(","))));
        let rest: Vec<_> = (0..10).map(|number| format!("k{number}={}", "y".repeat(80))).collect();
        let kept = read(&[&rest.join(",")]).unwrap();
        assert!(kept.len() <= MAX_BYTES && rest.join(",").starts_with(&kept), "{kept}");
    }
}
