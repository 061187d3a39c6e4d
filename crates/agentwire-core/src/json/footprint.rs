//! The memory of parsed JSON.

use serde_json::Value;

/// About the bytes that an object takes, however short its text is.
const OBJECT: usize = 400;

/// About the bytes that any other value takes beside its text.
const VALUE: usize = 64;

/// Estimates the memory that JSON text takes once it is parsed: `{"":0}` has seven bytes and takes hundreds. The text comes
/// in pieces, cut anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    bytes: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl Footprint {
    /// The most memory that a document may take: more than the longest state with members of usual length does.
    pub const MAX: usize = 192 << 20;

    /// The problem of a document beyond [`MAX`](Self::MAX), for a message that begins with its name.
    pub const PROBLEM: &str = "has so many objects and values that they take more than 192 MiB of memory";

    /// The memory of a value beside the first one in its list or object.
    pub(crate) const SIBLING: usize = VALUE;

    /// About the memory of a parsed document: as much as its text announces.
    #[must_use]
    pub fn of(value: &Value) -> usize {
        let siblings = |count: usize| count.saturating_sub(1) * VALUE;
        match value {
            Value::Array(elements) => {
                VALUE + siblings(elements.len()) + elements.iter().map(Self::of).sum::<usize>()
            }
            Value::Object(members) => {
                OBJECT + siblings(members.len()) + members.values().map(Self::of).sum::<usize>()
            }
            _ => 0,
        }
    }

    /// The same of a document that is not parsed.
    #[must_use]
    pub fn of_text(text: &str) -> usize {
        let mut footprint = Self::default();
        footprint.push(text.as_bytes());
        footprint.bytes
    }

    /// At most the memory of a document whose text has `length` bytes.
    #[must_use]
    pub fn bound(length: usize) -> usize {
        length.saturating_mul(OBJECT)
    }

    /// Texts up to this length cannot take more than [`MAX`](Self::MAX): no byte counts more than an object.
    const SMALL: usize = Self::MAX / OBJECT;

    /// True if documents that are held together take more than [`MAX`](Self::MAX). Short ones are not looked at.
    #[must_use]
    pub fn are_too_large<'t>(texts: impl Iterator<Item = &'t str> + Clone) -> bool {
        if texts.clone().map(str::len).sum::<usize>() <= Self::SMALL {
            return false;
        }
        let mut footprint = Self::default();
        texts.for_each(|text| footprint.push(text.as_bytes()));
        footprint.is_too_large()
    }

    /// Adds a piece of the text.
    pub fn push(&mut self, text: &[u8]) {
        let mut at = 0;
        if std::mem::take(&mut self.is_escaped) {
            at = 1;
        }
        while at < text.len() {
            if self.is_in_string {
                let Some(skip) = memchr::memchr2(b'"', b'\\', &text[at..]) else { return };
                at += skip + 1;
                match text[at - 1] {
                    b'"' => self.is_in_string = false,
                    _ if at == text.len() => self.is_escaped = true,
                    _ => at += 1,
                }
                continue;
            }
            match text[at] {
                b'"' => self.is_in_string = true,
                other => self.bytes = self.bytes.saturating_add(of_byte(other)),
            }
            at += 1;
        }
    }

    /// True if a document like this takes more than [`MAX`](Self::MAX).
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        self.bytes > Self::MAX
    }
}

/// The memory of the value that a byte outside of strings announces.
const fn of_byte(byte: u8) -> usize {
    match byte {
        b'{' => OBJECT,
        b'[' | b',' => VALUE,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, cut: usize) -> usize {
        let mut footprint = Footprint::default();
        text.as_bytes().chunks(cut).for_each(|piece| footprint.push(piece));
        footprint.bytes
    }

    #[test]
    fn values_count_and_text_does_not() {
        for (text, bytes) in [
            (r#"{"a":[1,2]}"#, OBJECT + 2 * VALUE),
            (r#"["{[,",{}]"#, VALUE + VALUE + OBJECT),
            (r#"["\"{","\\",{"\\\"[":0}]"#, 3 * VALUE + OBJECT),
            ("12", 0),
        ] {
            for cut in 1..=text.len() {
                assert_eq!(of(text, cut), bytes, "{text} in pieces of {cut}");
            }
            let parsed: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!((Footprint::of(&parsed), Footprint::of_text(text)), (bytes, bytes), "{text}");
            assert!(Footprint::bound(text.len()) >= bytes);
        }
    }

    #[test]
    fn dense_documents_are_too_large() {
        let mut dense = Footprint::default();
        let objects = "{\"\":0},".repeat(1000);
        (0..1000).for_each(|_| dense.push(objects.as_bytes()));
        assert!(dense.is_too_large());
        let mut usual = Footprint::default();
        let members = r#"{"id":"3f6c","name":"A name of usual length","done":false,"parts":["one","two"]},"#
            .repeat(100);
        (0..1000).for_each(|_| usual.push(members.as_bytes()));
        assert!(!usual.is_too_large(), "8 MB of usual members");
        let list = format!("[{}0]", "{},".repeat(300_000));
        assert!(!Footprint::are_too_large([&*list].into_iter()));
        assert!(Footprint::are_too_large([&*list, &*list].into_iter()), "together");
    }
}
