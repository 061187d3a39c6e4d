//! The steps that a JSON Schema takes to check a value, counted before it is checked.
//!
//! Thirty definitions that each refer twice to the next one are a billion steps; so is a recursive definition in two
//! branches of `anyOf`, for a value that is nested thirty times. The count adds up in the number of pairs of schema and
//! value, because a pair that is met again has the same number.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The most steps of a check.
pub(super) const MAX_STEPS: u64 = 1_000_000;

/// The most pairs that are counted.
const MAX_PAIRS: usize = 100_000;

/// The deepest chain of schemas: the check calls itself as deep.
const MAX_DEPTH: usize = 200;

/// At least the steps that a check takes; [`u64::MAX`] if they cannot be counted.
pub(super) fn count(schema: &Value, value: &Value) -> u64 {
    let mut names = HashMap::new();
    let patterns = collect_names(schema, &mut names, 0);
    let steps = Steps { root: schema, names, known: HashMap::new() }.of(schema, value, 0);
    steps.saturating_add(patterns.saturating_mul(STEPS_OF_PATTERN))
}

/// The steps of compiling a pattern: a few letters can be megabytes of states.
const STEPS_OF_PATTERN: u64 = 10_000;

/// Letters of a text that a pattern matches in one step.
const LETTERS_PER_STEP: usize = 128;

/// Collects schemas that are referred to by a name. Returns the number of patterns.
fn collect_names<'v>(schema: &'v Value, names: &mut HashMap<&'v str, &'v Value>, depth: usize) -> u64 {
    if depth > MAX_DEPTH {
        return 0;
    }
    match schema {
        Value::Object(members) => {
            for name in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                if let Some(Value::String(name)) = members.get(name) {
                    names.insert(name.trim_start_matches('#'), schema);
                }
            }
            let own = u64::from(members.get("pattern").is_some_and(Value::is_string));
            let of_names = members.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
            let below = members.values().map(|member| collect_names(member, names, depth + 1));
            own + of_names as u64 + below.sum::<u64>()
        }
        Value::Array(elements) => {
            elements.iter().map(|element| collect_names(element, names, depth + 1)).sum()
        }
        _ => 0,
    }
}

struct Steps<'v> {
    root: &'v Value,
    names: HashMap<&'v str, &'v Value>,
    /// The steps of pairs of a schema and a value, by their addresses.
    known: HashMap<(*const Value, *const Value), u64>,
}

impl<'v> Steps<'v> {
    fn of(&mut self, schema: &'v Value, value: &'v Value, depth: usize) -> u64 {
        let Value::Object(members) = schema else { return 1 };
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if let Some(known) = self.known.get(&pair) {
            return *known;
        }
        if depth > MAX_DEPTH || self.known.len() >= MAX_PAIRS {
            return u64::MAX;
        }
        // Met again before it is counted: a reference to itself, which the check ends.
        self.known.insert(pair, 1);
        let mut steps: u64 = 1;
        for (keyword, member) in members {
            steps = steps.saturating_add(self.of_keyword(keyword, member, value, depth + 1));
        }
        self.known.insert(pair, steps);
        steps
    }

    fn of_keyword(&mut self, keyword: &str, member: &'v Value, value: &'v Value, depth: usize) -> u64 {
        let children = || -> Vec<&'v Value> {
            match value {
                Value::Object(members) => members.values().collect(),
                Value::Array(elements) => elements.iter().collect(),
                _ => Vec::new(),
            }
        };
        let schemas = || -> Vec<&'v Value> {
            match member {
                Value::Object(members) => members.values().collect(),
                Value::Array(elements) => elements.iter().collect(),
                _ => Vec::new(),
            }
        };
        let pairs: Vec<(&'v Value, &'v Value)> = match keyword {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                self.find(member).into_iter().map(|schema| (schema, value)).collect()
            }
            "not" | "if" | "then" | "else" => vec![(member, value)],
            "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies" => {
                schemas().into_iter().map(|schema| (schema, value)).collect()
            }
            "properties" => {
                let empty = Map::new();
                let members = member.as_object().unwrap_or(&empty).keys();
                let pair = |name: &String| Some((member.get(name)?, value.get(name)?));
                members.filter_map(pair).collect()
            }
            "patternProperties" => {
                let children = children();
                let with_all = |schema| children.iter().map(move |child| (schema, *child));
                schemas().into_iter().flat_map(with_all).collect()
            }
            "items" | "prefixItems" if member.is_array() => schemas().into_iter().zip(children()).collect(),
            "items"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames" => children().into_iter().map(|child| (member, child)).collect(),
            "enum" | "required" => return schemas().len() as u64,
            "pattern" | "format" => {
                return 1 + (value.as_str().map_or(0, str::len) / LETTERS_PER_STEP) as u64;
            }
            _ => return 1,
        };
        pairs
            .into_iter()
            .fold(1, |steps: u64, (schema, value)| steps.saturating_add(self.of(schema, value, depth)))
    }

    /// The schema that a reference names; `None` if it is elsewhere.
    fn find(&self, reference: &Value) -> Option<&'v Value> {
        let reference = reference.as_str()?;
        let local = reference.strip_prefix('#').unwrap_or(reference);
        if local.is_empty() {
            return Some(self.root);
        }
        if local.starts_with('/') {
            let pointer = percent_encoding::percent_decode_str(local).decode_utf8_lossy();
            return self.root.pointer(&pointer);
        }
        self.names.get(local).copied()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Definitions that each refer twice to the next one.
    fn doubling(keyword: &str, count: usize) -> Value {
        let mut definitions = serde_json::Map::new();
        for number in 0..count {
            let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
            definitions.insert(format!("d{number}"), json!({keyword: [next.clone(), next]}));
        }
        definitions.insert(format!("d{count}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    }

    #[test]
    fn exponential_schemas_are_counted_without_being_checked() {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            assert!(count(&doubling(keyword, 3), &json!(1)) < 100);
            assert!(count(&doubling(keyword, 60), &json!(1)) > MAX_STEPS);
        }
        let branch = json!({"properties": {"x": {"$ref": "#"}}});
        let tree = json!({"anyOf": [branch.clone(), branch]});
        let nested = (0..60).fold(json!(1), |value, _| json!({"x": value}));
        assert!(count(&tree, &nested) > MAX_STEPS);
        assert!(count(&tree, &json!({"x": {"x": 1}})) < 100);
        let named = json!({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "allOf": [{"$ref": "#b"}, {"$ref": "#b"}]},
            "b": {"$anchor": "b", "type": "string"}}});
        assert!((5..100).contains(&count(&named, &json!("x"))));
        let chain: serde_json::Map<_, _> =
            (0..5000).map(|at| (format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", at + 1)}))).collect();
        assert_eq!(count(&json!({"$ref": "#/$defs/d0", "$defs": chain}), &json!(1)), u64::MAX);
    }

    #[test]
    fn patterns_cost_their_states_and_the_text() {
        let patterns = |count: usize| {
            let all: Vec<Value> = (0..count).map(|at| json!({"pattern": format!("^x{at}")})).collect();
            json!({ "allOf": all })
        };
        assert!(count(&patterns(20), &json!("x")) < MAX_STEPS);
        assert!(count(&patterns(200), &json!("x")) > MAX_STEPS, "too many to compile");
        assert!(
            count(&patterns(50), &json!("x".repeat(10 << 20))) > MAX_STEPS,
            "too long a text for as many"
        );
        let names: Map<String, Value> = (0..200).map(|at| (format!("^x{at}"), json!(true))).collect();
        let unused = json!({"$defs": {"never": {"patternProperties": names}}});
        assert!(count(&unused, &json!(1)) > MAX_STEPS, "those that are not used are compiled too");
    }

    #[test]
    fn ordinary_schemas_are_far_below_the_limit() {
        let schema = json!({"type": "object", "required": ["rows"], "properties": {
            "rows": {"type": "array", "items": {"type": "object", "properties": {
                "id": {"type": "string", "pattern": "^[a-z]+$"}, "child": {"$ref": "#"}}}}}});
        let rows: Vec<Value> =
            (0..1000).map(|at| json!({"id": format!("r{at}"), "child": {"rows": []}})).collect();
        assert!(count(&schema, &json!({"rows": rows})) < MAX_STEPS / 10);
        assert!(count(&json!({"$ref": "#"}), &json!(1)) < 10);
        assert!(count(&json!(true), &json!(1)) < 10);
    }
}
