//! Equality of values in JSON Schema: `1` and `1.0` are, and members have no order.

use std::{
    cmp::Ordering,
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use serde_json::{Number, Value};

pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right).is_eq(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let is_in_right = |(key, value)| right.get(key).is_some_and(|other| equal(value, other));
            left.len() == right.len() && left.iter().all(is_in_right)
        }
        _ => left == right,
    }
}

/// The order of two numbers, exact also where one of them is no `f64`.
pub(super) fn compare(left: &Number, right: &Number) -> Ordering {
    match (left.as_i128(), right.as_i128()) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_mixed(left, float(right)),
        (None, Some(right)) => compare_mixed(right, float(left)).reverse(),
        (None, None) => float(left).total_cmp(&float(right)),
    }
}

fn float(number: &Number) -> f64 {
    // Adding zero makes one of the two zeros.
    number.as_f64().unwrap_or(f64::NAN) + 0.0
}

/// Numbers of 64 bits, so the conversion of a float to 128 bits loses only its fraction.
fn compare_mixed(whole: i128, float: f64) -> Ordering {
    whole
        .cmp(&(float.trunc() as i128))
        .then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal))
}

pub(super) fn has_duplicates(values: &[Value]) -> bool {
    let mut known: HashMap<u64, Vec<&Value>> = HashMap::with_capacity(values.len());
    values.iter().any(|value| {
        let mut hasher = DefaultHasher::new();
        hash(value, &mut hasher);
        let same = known.entry(hasher.finish()).or_default();
        let is_known = same.iter().any(|other| equal(value, other));
        same.push(value);
        is_known
    })
}

/// Equal values have the same hash.
fn hash(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(value) => (1_u8, value).hash(hasher),
        Value::Number(number) => (2_u8, float(number).to_bits()).hash(hasher),
        Value::String(text) => (3_u8, text).hash(hasher),
        Value::Array(elements) => {
            (4_u8, elements.len()).hash(hasher);
            elements.iter().for_each(|element| hash(element, hasher));
        }
        Value::Object(members) => {
            // A sum, because members have no order.
            let sum = members.iter().fold(0_u64, |sum, (key, value)| {
                let mut member = DefaultHasher::new();
                key.hash(&mut member);
                hash(value, &mut member);
                sum.wrapping_add(member.finish())
            });
            (5_u8, members.len(), sum).hash(hasher);
        }
    }
}

pub(super) fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// True if a number has neither a fraction nor an exponent, as draft 4 asks. One beyond 64 bits may have been written so.
pub(super) fn is_written_whole(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|number| number.abs() >= 9_223_372_036_854_775_808.0)
}

/// True if a number is a multiple of another, both read as the decimals that they are written as.
pub(super) fn is_multiple(number: &Number, of: &Number) -> bool {
    if let (Some(number), Some(of)) = (number.as_i128(), of.as_i128()) {
        return of != 0 && number % of == 0;
    }
    let (Some(number), Some(of)) = (number.as_f64(), of.as_f64()) else { return false };
    if number == 0.0 || of.fract() == 0.0 {
        return number.fract() == 0.0 && number % of == 0.0;
    }
    decimal(number).zip(decimal(of)).is_some_and(|(number, of)| divides(number, of))
}

/// Digits have at most 17 places, so that a product of two of them has 128 bits.
fn divides((number, exponent): (i128, i32), (of, exponent_of): (i128, i32)) -> bool {
    let places = exponent.abs_diff(exponent_of);
    if exponent < exponent_of {
        // A number with less places than the power of ten is no multiple of it.
        let power = 10_i128.checked_pow(places).and_then(|power| power.checked_mul(of));
        return power.is_some_and(|power| number % power == 0);
    }
    (0..places).fold(number % of, |rest, _| rest * 10 % of) == 0
}

/// The digits of a number, and the power of ten that they are multiplied with.
fn decimal(number: f64) -> Option<(i128, i32)> {
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e')?;
    let places = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let exponent: i32 = exponent.parse().ok()?;
    Some((digits.replace('.', "").parse().ok()?, exponent - i32::try_from(places).ok()?))
}
