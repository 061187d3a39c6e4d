//! Formats of text, as drafts 4, 6 and 7 check them, and encodings of text.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::dialect::Draft;

/// True if a text has a format. A format that is not known accepts everything.
pub(super) fn is_valid(draft: Draft, format: &str, text: &str) -> bool {
    match format {
        "date" => is_date(text),
        "time" => is_time(text),
        "date-time" => text.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && is_time(time)),
        "email" => is_email(text),
        "hostname" if draft <= Draft::Draft6 => is_ascii_hostname(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "regex" => is_regex(text),
        "uri" => is_uri(text),
        "uri-reference" if draft >= Draft::Draft6 => is_uri_reference(text),
        "uri-template" if draft >= Draft::Draft6 => is_uri_template(text),
        "json-pointer" if draft >= Draft::Draft6 => is_json_pointer(text),
        "relative-json-pointer" if draft >= Draft::Draft7 => is_relative_json_pointer(text),
        "iri" if draft >= Draft::Draft7 => is_identifier(text, true, true),
        "iri-reference" if draft >= Draft::Draft7 => is_identifier(text, false, true),
        _ => true,
    }
}

pub(super) fn is_regex(text: &str) -> bool {
    jsonschema_regex::is_valid_ecma_regex(text)
}

pub(super) fn is_uri(text: &str) -> bool {
    is_identifier(text, true, false)
}

pub(super) fn is_uri_reference(text: &str) -> bool {
    is_identifier(text, false, false)
}

/// A number of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<u32> {
    (text.len() == count && text.bytes().all(|digit| digit.is_ascii_digit())).then(|| text.parse().ok())?
}

fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut next = |count| parts.next().and_then(|part| digits(part, count));
    let (Some(year), Some(month), Some(day)) = (next(4), next(2), next(2)) else { return false };
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    parts.next().is_none() && (1..=days).contains(&day)
}

fn is_time(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let mut parts = clock.split(':').map(|part| digits(part, 2));
    let (Some(Some(hour)), Some(Some(minute)), Some(Some(second)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|it: char| it.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    let minutes = match zone.split_at_checked(1) {
        Some(("Z" | "z", "")) => Some(0),
        Some((sign @ ("+" | "-"), offset)) => offset
            .split_once(':')
            .and_then(|(hours, minutes)| Some((digits(hours, 2)?, digits(minutes, 2)?)))
            .filter(|(hours, minutes)| *hours < 24 && *minutes < 60)
            .map(|(hours, minutes)| {
                let offset = hours.cast_signed() * 60 + minutes.cast_signed();
                if sign == "+" { -offset } else { offset }
            }),
        _ => None,
    };
    let Some(minutes) = minutes else { return false };
    // A leap second is the last of a day in UTC.
    let is_last = || (hour.cast_signed() * 60 + minute.cast_signed() + minutes).rem_euclid(1440) == 1439;
    hour < 24 && minute < 60 && (second < 60 || (second == 60 && is_last()))
}

fn is_email(text: &str) -> bool {
    let Some((name, host)) = text.rsplit_once('@') else { return false };
    let is_quoted = name.len() >= 2 && name.starts_with('"') && name.ends_with('"');
    let is_name = match is_quoted {
        true => is_quoted_name(&name[1..name.len() - 1]),
        false => name.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom)),
    };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => match address.split_at_checked(5) {
            Some((tag, address)) if tag.eq_ignore_ascii_case("IPv6:") => address.parse::<Ipv6Addr>().is_ok(),
            _ => address.parse::<Ipv4Addr>().is_ok(),
        },
        None => is_hostname(host),
    };
    name.len() <= 64 && is_name && is_host
}

fn is_atom(letter: u8) -> bool {
    letter.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&letter)
}

fn is_quoted_name(text: &str) -> bool {
    let mut letters = text.bytes();
    while let Some(letter) = letters.next() {
        let is_fine = match letter {
            b'\\' => letters.next().is_some_and(|next| next.is_ascii_graphic()),
            b'"' => false,
            b'\t' | b' ' => true,
            _ => letter.is_ascii_graphic(),
        };
        if !is_fine {
            return false;
        }
    }
    true
}

fn is_ascii_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_hostname(text: &str) -> bool {
    let is_reserved = |label: &str| label.get(2..4) == Some("--") && !label.starts_with("xn");
    is_ascii_hostname(text) && !text.split('.').any(is_reserved)
}

fn is_json_pointer(text: &str) -> bool {
    (text.is_empty() || text.starts_with('/'))
        && text.split('~').skip(1).all(|after| after.starts_with(['0', '1']))
}

fn is_relative_json_pointer(text: &str) -> bool {
    let pointer = text.trim_start_matches(|it: char| it.is_ascii_digit());
    let number = &text[..text.len() - pointer.len()];
    let is_number = !number.is_empty() && (number == "0" || !number.starts_with('0'));
    is_number && (pointer == "#" || is_json_pointer(pointer))
}

fn is_hex_pair(bytes: Option<&[u8]>) -> bool {
    bytes.is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit))
}

/// A URI template: text and expressions in braces.
fn is_uri_template(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, expression) = rest.split_at(at);
        let Some((expression, after)) = expression.strip_prefix('{').and_then(|it| it.split_once('}')) else {
            return false;
        };
        let names = expression.strip_prefix(|it| "+#./;?&=,!@|".contains(it)).unwrap_or(expression);
        if !is_template_text(before) || !names.split(',').all(is_variable) {
            return false;
        }
        rest = after;
    }
    is_template_text(rest)
}

fn is_template_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => is_hex_pair(bytes.get(at + 1..at + 3)),
        0x00..=0x20 | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'|' | 0x7f => false,
        _ => true,
    })
}

fn is_variable(text: &str) -> bool {
    let name = match text.split_once(':') {
        Some((name, length)) => {
            let is_length = (1..=4).contains(&length.len())
                && !length.starts_with('0')
                && length.bytes().all(|digit| digit.is_ascii_digit());
            if !is_length {
                return false;
            }
            name
        }
        None => text.strip_suffix('*').unwrap_or(text),
    };
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        let is_fine = |(at, byte): (usize, &u8)| match byte {
            b'%' => is_hex_pair(bytes.get(at + 1..at + 3)),
            _ => byte.is_ascii_alphanumeric() || *byte == b'_',
        };
        !part.is_empty() && bytes.iter().enumerate().all(is_fine)
    };
    name.split('.').all(is_part)
}

/// A URI or IRI, or a reference to one.
fn is_identifier(text: &str, is_absolute: bool, is_international: bool) -> bool {
    let scheme = text.split_once(':').filter(|(scheme, _)| {
        scheme.starts_with(|it: char| it.is_ascii_alphabetic())
            && scheme.bytes().all(|it| it.is_ascii_alphanumeric() || b"+-.".contains(&it))
    });
    if is_absolute && scheme.is_none() {
        return false;
    }
    let rest = scheme.map_or(text, |(_, rest)| rest);
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let has = |text: &str, extra: &str, is_query: bool| {
        let mut letters = text.char_indices();
        letters.all(|(at, letter)| match letter {
            '%' => is_hex_pair(text.as_bytes().get(at + 1..at + 3)),
            _ if letter.is_ascii() => {
                letter.is_ascii_alphanumeric() || "-._~!$&'()*+,;=".contains(letter) || extra.contains(letter)
            }
            _ => is_international && (is_international_letter(letter) || (is_query && is_private(letter))),
        })
    };
    let path = match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            let (host, port) = match host.rfind(':').filter(|at| !host[*at..].contains(']')) {
                Some(at) => (&host[..at], &host[at + 1..]),
                None => (host, ""),
            };
            let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
                Some(literal) => is_ip_literal(literal),
                None => has(host, "", false),
            };
            if !has(user, ":", false) || !is_host || !port.bytes().all(|digit| digit.is_ascii_digit()) {
                return false;
            }
            path
        }
        None if scheme.is_none() && rest.split('/').next().is_some_and(|first| first.contains(':')) => {
            return false;
        }
        None => rest,
    };
    has(path, ":@/", false) && has(query, ":@/?", true) && has(fragment, ":@/?", false)
}

fn is_ip_literal(text: &str) -> bool {
    match text.strip_prefix(['v', 'V']).and_then(|text| text.split_once('.')) {
        Some((version, address)) => {
            let is_letter = |it: u8| it.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:".contains(&it);
            !version.is_empty()
                && version.bytes().all(|digit| digit.is_ascii_hexdigit())
                && !address.is_empty()
                && address.bytes().all(is_letter)
        }
        None => text.parse::<Ipv6Addr>().is_ok(),
    }
}

/// Letters beyond ASCII in an IRI.
fn is_international_letter(letter: char) -> bool {
    let number = u32::from(letter);
    match number {
        0xA0..=0xD7FF | 0xF900..=0xFDCF | 0xFDF0..=0xFFEF => true,
        0x1_0000..=0xE_FFFF => number & 0xFFFF <= 0xFFFD && !(0xE_0000..0xE_1000).contains(&number),
        _ => false,
    }
}

/// Letters for private use, which the query of an IRI may have.
fn is_private(letter: char) -> bool {
    matches!(u32::from(letter), 0xE000..=0xF8FF | 0xF_0000..=0xF_FFFD | 0x10_0000..=0x10_FFFD)
}

/// True if a text is JSON, in an encoding or none. An encoding that is not known is not checked.
pub(super) fn is_json(text: &str, encoding: Option<&str>) -> bool {
    let decoded = match encoding {
        None => return serde_json::from_str::<Value>(text).is_ok(),
        Some(encoding) => decode(text, encoding),
    };
    // The outer level says that the encoding is known, the inner one that the text has it.
    decoded.is_none_or(|bytes| {
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.is_some_and(|text| serde_json::from_str::<Value>(&text).is_ok())
    })
}

/// True if a text has an encoding. One that is not known accepts everything.
pub(super) fn is_encoded(text: &str, encoding: &str) -> bool {
    decode(text, encoding).is_none_or(|bytes| bytes.is_some())
}

fn decode(text: &str, encoding: &str) -> Option<Option<Vec<u8>>> {
    const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    match encoding {
        "base64" => Some(decode_bits(text, BASE64, 6, 4)),
        "base64url" => Some(decode_bits(text, BASE64_URL, 6, 4)),
        "base32" => Some(decode_bits(text, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 5, 8)),
        "base32hex" => Some(decode_bits(text, b"0123456789ABCDEFGHIJKLMNOPQRSTUV", 5, 8)),
        "base16" => Some(decode_bits(&text.to_ascii_uppercase(), b"0123456789ABCDEF", 4, 2)),
        _ => None,
    }
}

/// Decodes letters of some bits, padded with `=` to groups of some letters. `None` if the text is not written like this.
fn decode_bits(text: &str, alphabet: &[u8], bits: u32, group: usize) -> Option<Vec<u8>> {
    let letters = text.trim_end_matches('=');
    let padding = text.len() - letters.len();
    let mut decoded = Vec::with_capacity(text.len());
    let (mut held, mut count) = (0_u32, 0);
    for letter in letters.bytes() {
        let number = u32::try_from(alphabet.iter().position(|it| *it == letter)?).ok()?;
        held = (held << bits) | number;
        count += bits;
        if count >= 8 {
            count -= 8;
            decoded.push(u8::try_from(held >> count).ok()?);
            held &= (1 << count) - 1;
        }
    }
    // The rest has less bits than a letter, all zero.
    (text.len().is_multiple_of(group) && padding < group && count < bits && held == 0).then_some(decoded)
}
