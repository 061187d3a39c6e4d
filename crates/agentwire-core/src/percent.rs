//! Percent-encoding: text as a segment of a URL, and back.

/// Everything but letters, digits and `-._~` as `%XX`, as RFC 3986 allows it anywhere in a URL.
///
/// ```
/// assert_eq!(agentwire_core::percent::encode("a b/ü"), "a%20b%2F%C3%BC");
/// ```
#[must_use]
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The bytes behind `%XX`; what is not valid stays as it is.
///
/// ```
/// assert_eq!(agentwire_core::percent::decode("a%20b%2f%zz%"), b"a b/%zz%");
/// ```
#[must_use]
pub fn decode(text: &str) -> Vec<u8> {
    let raw = text.as_bytes();
    let hex = |index: usize| raw.get(index).and_then(|digit| char::from(*digit).to_digit(16));
    let mut bytes = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
    bytes
}
