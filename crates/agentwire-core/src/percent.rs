//! Percent-encoding of text for one segment of a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All bytes but the unreserved characters of RFC 3986, which are safe anywhere in a URL.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes every byte but letters, digits and `-._~` as `%XX`.
///
/// ```
/// assert_eq!(agentwire_core::percent::encode("a b/ü"), "a%20b%2F%C3%BC");
/// ```
#[must_use]
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
