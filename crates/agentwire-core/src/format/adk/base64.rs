//! Base64 in the two alphabets: ADK writes the URL-safe one, data URLs and everybody else the standard one.

/// The same data in the standard alphabet, padded.
pub(super) fn standard(data: &str) -> Box<str> {
    let translate = |digit| match digit {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    let mut text: String = data.chars().filter(|c| !c.is_ascii_whitespace()).map(translate).collect();
    if !text.len().is_multiple_of(4) {
        text.truncate(text.trim_end_matches('=').len());
        while !text.len().is_multiple_of(4) {
            text.push('=');
        }
    }
    text.into()
}

/// The same data in the URL-safe alphabet. ADK refuses line breaks, which MIME allows.
pub(super) fn url_safe(data: &str) -> String {
    let translate = |digit| match digit {
        '+' => '-',
        '/' => '_',
        other => other,
    };
    data.chars().filter(|c| !c.is_ascii_whitespace()).map(translate).collect()
}

/// Encodes bytes in the URL-safe alphabet.
pub(super) fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            text.push(match digit <= group.len() {
                true => DIGITS[(bits >> (18 - 6 * digit) & 63) as usize].into(),
                false => '=',
            });
        }
    }
    text
}

/// Decodes base64 of either alphabet, with padding or without; `None` if it is none.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    // Of four digits one or two may be missing, never three.
    if text.len() - digits.len() > 2 || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_alphabets_become_the_standard_one() {
        assert_eq!(&*standard("-_8="), "+/8=");
        assert_eq!(&*standard("+/8="), "+/8=");
        assert_eq!(&*standard("-_8"), "+/8=");
        assert_eq!(&*standard("-_\r\n8="), "+/8=");
        assert_eq!(&*standard(""), "");
        assert_eq!(url_safe("+/\n8="), "-_8=");
    }

    #[test]
    fn bytes_are_encoded_as_the_standard_has_it() {
        for (text, wanted) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(encoded(text.as_bytes()), wanted);
        }
        assert_eq!(encoded(&[0xfb, 0xff]), "-_8=");
    }

    #[test]
    fn what_is_no_base64_is_refused() {
        for text in ["a", "abcde", "ab===", "a=b=", "ab c", "ä"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_was_encoded_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let text = encoded(&bytes);
            prop_assert_eq!(decoded(&text), Some(bytes.clone()));
            prop_assert_eq!(decoded(text.trim_end_matches('=')), Some(bytes.clone()));
            prop_assert_eq!(decoded(&standard(&text)), Some(bytes));
        }

        #[test]
        fn nothing_panics(text in ".{0,80}") {
            let _ = (decoded(&text), standard(&text), url_safe(&text));
        }
    }
}
