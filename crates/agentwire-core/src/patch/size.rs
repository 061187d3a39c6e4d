//! The length of a value as JSON text, without allocating it.
//!
//! [`apply`](super::apply) measures the growth of a document, and [`diff`](super::diff) chooses the shorter of two
//! patches. The lengths come from serde_json's own writer, so they are exact for every escape and every number.

use std::io;

use serde::Serialize;
use serde_json::Value;

/// The length of `value` as compact JSON.
pub(super) fn json_len<T: Serialize + ?Sized>(value: &T) -> usize {
    json_len_within(value, usize::MAX).expect("no value is longer than the address space")
}

/// The length of `value` as compact JSON, if that is at most `cap`; looks at no more than about `cap` bytes.
pub(super) fn json_len_within<T: Serialize + ?Sized>(value: &T, cap: usize) -> Option<usize> {
    let mut counter = Counter { length: 0, cap };
    serde_json::to_writer(&mut counter, value).ok()?;
    Some(counter.length)
}

/// The nesting depth of `value`, itself included; 0 for a scalar. `None` if there are more than `left` values in it;
/// `left` is reduced by their number.
pub(super) fn depth_within(value: &Value, left: &mut usize) -> Option<usize> {
    *left = left.checked_sub(1)?;
    let mut deepest = 0;
    match value {
        Value::Array(elements) => {
            for element in elements {
                deepest = deepest.max(depth_within(element, left)?);
            }
        }
        Value::Object(members) => {
            for member in members.values() {
                deepest = deepest.max(depth_within(member, left)?);
            }
        }
        _ => return Some(0),
    }
    Some(1 + deepest)
}

/// The number of lists and objects in `value`, itself included.
pub(super) fn containers(value: &Value) -> usize {
    match value {
        Value::Array(elements) => 1 + elements.iter().map(containers).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(containers).sum::<usize>(),
        _ => 0,
    }
}

/// A writer that keeps nothing and fails once more than `cap` bytes were written.
struct Counter {
    length: usize,
    cap: usize,
}

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len();
        if self.length > self.cap { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn length_is_that_of_the_text() {
        for value in [json!(null), json!({"a\n\"": [1, -2.5e300, "é\u{1}"], "b": {}}), json!([])] {
            let text = value.to_string();
            assert_eq!(json_len(&value), text.len());
            assert_eq!(json_len_within(&value, text.len()), Some(text.len()));
            assert_eq!(json_len_within(&value, text.len() - 1), None);
        }
        assert_eq!(json_len("~\\"), 5);
    }

    #[test]
    fn depth_counts_containers() {
        for (value, wanted) in [(json!(1), 0), (json!([]), 1), (json!({"a": [1, {}], "b": 2}), 3)] {
            assert_eq!(depth_within(&value, &mut 5), Some(wanted), "{value}");
        }
        assert_eq!(depth_within(&json!({"a": [1, {}], "b": 2}), &mut 4), None);
    }
}
