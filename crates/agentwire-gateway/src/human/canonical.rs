//! Canonical JSON (RFC 8785) and the hash of arguments that an approver confirms.

use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

/// The SHA-256 of a value as canonical JSON, in hex.
pub(crate) fn hash(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(element, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            // The order of UTF-16 code units, not of characters.
            members.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            out.push('{');
            for (at, (name, member)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write(member, out);
            }
            out.push('}');
        }
        Value::Number(number) => out.push_str(&write_number(number)),
        // serde_json escapes strings as RFC 8785 wants them.
        other => out.push_str(&other.to_string()),
    }
}

/// A number as ECMAScript writes it: every number is a double.
fn write_number(number: &Number) -> String {
    let value = number.as_f64().unwrap_or(0.0);
    if value == 0.0 {
        return "0".into();
    }
    // serde_json has the digits of ECMAScript: the shortest, the closest of these, the even one of two.
    let text = Value::from(value.abs()).to_string();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let leading = all.len() - all.trim_start_matches('0').len();
    let digits = all.trim_matches('0');
    // The position of the decimal point behind the first digit.
    let point = exponent + i32::try_from(whole.len()).unwrap_or(0) - i32::try_from(leading).unwrap_or(0);
    let exponent = point - 1;
    let count = i32::try_from(digits.len()).unwrap_or(1);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let at = usize::try_from(point).unwrap_or(0);
    let written = if point >= count && point <= 21 {
        format!("{digits}{}", zeros(point - count))
    } else if point > 0 && point <= 21 {
        format!("{}.{}", &digits[..at], &digits[at..])
    } else if point > -6 && point <= 0 {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let fraction = if count > 1 { format!(".{}", &digits[1..]) } else { String::new() };
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}{fraction}e{sign}{}", &digits[..1], exponent.abs())
    };
    if value < 0.0 { format!("-{written}") } else { written }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        let mut out = String::new();
        write(&serde_json::from_str(text).expect(text), &mut out);
        out
    }

    /// The examples of RFC 8785, sections 3.2.2, 3.2.3 and appendix B.
    #[test]
    fn canonical_json_is_that_of_rfc_8785() {
        assert_eq!(
            canonical(
                r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                    "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#
            ),
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
        );
        let sorted = canonical(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        );
        let places: Vec<_> = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]
            .iter()
            .map(|name| sorted.find(name))
            .collect();
        assert!(places.is_sorted(), "{sorted}");
        for (bits, expected) in [
            (0x0000_0000_0000_0001_u64, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let number = Number::from_f64(f64::from_bits(bits)).expect("a number");
            assert_eq!(write_number(&number), expected);
        }
        assert_eq!(
            canonical("[0, -0, -0.0, 1.0, 100, 1e2, 9007199254740993]"),
            "[0,0,0,1,100,100,9007199254740992]"
        );
    }

    #[test]
    fn the_order_of_members_does_not_change_the_hash() {
        let hash_of = |text: &str| hash(&serde_json::from_str(text).expect(text));
        assert_eq!(hash_of(r#"{"a": 1, "b": [1.0]}"#), hash_of(r#"{"b":[1],"a":1e0}"#));
        assert_ne!(hash_of(r#"{"a": 1}"#), hash_of(r#"{"a": 2}"#));
        // sha256 of `{}`.
        assert_eq!(hash_of("{}"), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }
}
