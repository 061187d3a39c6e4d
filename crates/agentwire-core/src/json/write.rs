//! JSON writers for the output buffer.
//!
//! Wire objects have a handful of optional members each; serialising them through structs would need one struct per
//! event and profile. These two writers keep the member order visible in the calling code and allocate nothing.

use bytes::{BufMut, BytesMut};

use super::{Json, Object};

/// Appends `text` as a JSON string.
pub fn write_str(out: &mut BytesMut, text: &str) {
    if is_plain(text) {
        out.reserve(text.len() + 2);
        out.put_u8(b'"');
        out.put_slice(text.as_bytes());
        out.put_u8(b'"');
        return;
    }
    serde_json::to_writer(out.writer(), text).expect("writing to memory does not fail");
}

/// True if `text` is its own form in a JSON string: there is nothing to escape.
pub(crate) fn is_plain(text: &str) -> bool {
    let needs_escape = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    // Without a branch per byte, so that the loop is vectorised.
    !text.bytes().fold(false, |found, byte| found | needs_escape(byte))
}

/// An object being written.
#[derive(Debug)]
pub struct ObjectWriter<'b> {
    out: &'b mut BytesMut,
    first: bool,
}

/// An array being written.
#[derive(Debug)]
pub struct ArrayWriter<'b> {
    out: &'b mut BytesMut,
    first: bool,
}

impl<'b> ObjectWriter<'b> {
    /// Opens the object.
    pub fn new(out: &'b mut BytesMut) -> Self {
        out.put_u8(b'{');
        Self { out, first: true }
    }

    fn comma(&mut self) {
        if !self.first {
            self.out.put_u8(b',');
        }
        self.first = false;
    }

    /// Keys of wire objects are plain words, so they need no escaping.
    fn key(&mut self, key: &'static str) {
        self.comma();
        self.out.put_u8(b'"');
        self.out.put_slice(key.as_bytes());
        self.out.put_slice(b"\":");
    }

    /// A member with any key.
    pub fn entry(&mut self, key: &str, value: &Json) -> &mut Self {
        self.comma();
        write_str(self.out, key);
        self.out.put_u8(b':');
        self.out.put_slice(value.get().as_bytes());
        self
    }

    /// A string.
    pub fn str(&mut self, key: &'static str, value: &str) -> &mut Self {
        self.key(key);
        write_str(self.out, value);
        self
    }

    /// A string, if there is one.
    pub fn opt_str(&mut self, key: &'static str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.str(key, value);
        }
        self
    }

    /// An integer.
    pub fn int(&mut self, key: &'static str, value: i64) -> &mut Self {
        self.key(key);
        serde_json::to_writer((&mut *self.out).writer(), &value).expect("writing to memory does not fail");
        self
    }

    /// An integer, if there is one.
    pub fn opt_int(&mut self, key: &'static str, value: Option<i64>) -> &mut Self {
        if let Some(value) = value {
            self.int(key, value);
        }
        self
    }

    /// A boolean.
    pub fn bool(&mut self, key: &'static str, value: bool) -> &mut Self {
        self.key(key);
        self.out.put_slice(if value { b"true" } else { b"false" });
        self
    }

    /// Any JSON.
    pub fn json(&mut self, key: &'static str, value: &Json) -> &mut Self {
        self.key(key);
        self.out.put_slice(value.get().as_bytes());
        self
    }

    /// Any JSON, if there is some.
    pub fn opt_json(&mut self, key: &'static str, value: Option<&Json>) -> &mut Self {
        if let Some(value) = value {
            self.json(key, value);
        }
        self
    }

    /// An open object, if there is one.
    pub fn opt_object(&mut self, key: &'static str, value: Option<&Object>) -> &mut Self {
        self.opt_json(key, value.map(Object::as_json))
    }

    /// A nested object.
    pub fn nested(&mut self, key: &'static str, fill: impl FnOnce(&mut ObjectWriter<'_>)) -> &mut Self {
        self.key(key);
        let mut inner = ObjectWriter::new(self.out);
        fill(&mut inner);
        inner.end();
        self
    }

    /// A nested array.
    pub fn array(&mut self, key: &'static str, fill: impl FnOnce(&mut ArrayWriter<'_>)) -> &mut Self {
        self.key(key);
        let mut inner = ArrayWriter::new(self.out);
        fill(&mut inner);
        inner.end();
        self
    }

    /// Closes the object.
    pub fn end(self) {
        self.out.put_u8(b'}');
    }
}

impl<'b> ArrayWriter<'b> {
    /// Opens the array.
    pub fn new(out: &'b mut BytesMut) -> Self {
        out.put_u8(b'[');
        Self { out, first: true }
    }

    fn next(&mut self) {
        if !self.first {
            self.out.put_u8(b',');
        }
        self.first = false;
    }

    /// A string.
    pub fn str(&mut self, value: &str) -> &mut Self {
        self.next();
        write_str(self.out, value);
        self
    }

    /// Any JSON.
    pub fn json(&mut self, value: &Json) -> &mut Self {
        self.next();
        self.out.put_slice(value.get().as_bytes());
        self
    }

    /// A nested object.
    pub fn object(&mut self, fill: impl FnOnce(&mut ObjectWriter<'_>)) -> &mut Self {
        self.next();
        let mut inner = ObjectWriter::new(self.out);
        fill(&mut inner);
        inner.end();
        self
    }

    /// Closes the array.
    pub fn end(self) {
        self.out.put_u8(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_written_as_by_serde_json() {
        let every_char = (0..0x300).filter_map(char::from_u32);
        let texts =
            every_char.map(|char| format!("a{char}b")).chain(["".into(), "漢🦀".into(), "x".repeat(100)]);
        for text in texts {
            let mut out = BytesMut::new();
            write_str(&mut out, &text);
            assert_eq!(out, serde_json::to_string(&text).unwrap());
        }
    }
}
