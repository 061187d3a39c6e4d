//! Compares verdicts with those of the crate `jsonschema`.

use jsonschema::PatternOptions;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Schema, dialect::Draft};

const DRAFTS: [&str; 5] = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// `None` if the schema is not valid, or the place and text of a mismatch, or nothing.
fn expected(schema: &Value, value: &Value) -> Option<Option<(String, String)>> {
    let patterns = PatternOptions::fancy_regex().backtrack_limit(10_000);
    let linear = jsonschema::options().with_pattern_options(PatternOptions::regex()).build(schema);
    let validator =
        linear.or_else(|_| jsonschema::options().with_pattern_options(patterns).build(schema)).ok()?;
    let mismatch = validator.validate(value).err();
    Some(mismatch.map(|error| (error.instance_path().to_string(), error.to_string())))
}

fn found(schema: &Value, value: &Value) -> Option<Option<(String, String)>> {
    let schema = Schema::new(schema)?;
    Some(schema.check(value).err().map(|failure| (failure.place(), failure.to_string())))
}

fn in_draft(draft: usize, schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Value::Object(members) = &mut schema {
        members.insert("$schema".into(), DRAFTS[draft].into());
    }
    schema
}

fn agree(schema: &Value, value: &Value) -> Result<(), TestCaseError> {
    let (expected, found) = (expected(schema, value), found(schema, value));
    let (is_met, should_be_met) =
        (found.as_ref().map(Option::is_none), expected.as_ref().map(Option::is_none));
    prop_assert_eq!(is_met, should_be_met, "{} {}: {:?}, expected {:?}", schema, value, found, expected);
    Ok(())
}

/// Each dynamic reference belongs to one draft. In others, the crate sometimes reads it and sometimes does not.
fn has_own_references(draft: usize, schema: &Value) -> bool {
    let text = schema.to_string();
    (draft == 4 || !text.contains("$dynamicRef")) && (draft == 3 || !text.contains("$recursiveRef"))
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "ab", "", "1", "é", "a b", "x/y~z"]).prop_map(str::to_owned)
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-3_i64..6).prop_map(Value::from),
        prop::sample::select(vec![0.5, 1.0, 1.5, 2.0, -0.0, 0.1, 0.3, 1e20, 1e300, 1e-9])
            .prop_map(Value::from),
        prop::sample::select(vec![u64::MAX, 1 << 53, (1 << 53) + 1]).prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        word().prop_map(Value::from),
        prop::sample::select(vec![
            "2024-02-30",
            "2024-02-29",
            "12:00:60Z",
            "23:59:60Z",
            "2020-01-01T00:00:00+01:00",
            "a@b.c",
            "a@[::1]",
            "\"a b\"@c",
            "http://a/b?c#d",
            "//a:1/%20",
            "a:b",
            ":",
            "::1",
            "127.0.0.1",
            "/a/~0",
            "0#",
            "01",
            "[a",
            "(?=a)b",
            "{a,b:3}",
            "a.b-c",
            "-a",
            "http://é/",
            "YWI=",
            "{\"a\":1}",
            "a..b@c",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::from),
        ]
    })
}

fn members(of: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((word(), of), 0..4).prop_map(|members| members.into_iter().collect())
}

/// A keyword with a value, mostly one that fits.
fn keyword(inner: impl Strategy<Value = Value> + Clone + 'static) -> impl Strategy<Value = (String, Value)> {
    let named = |names: &[&'static str]| prop::sample::select(names.to_vec()).prop_map(str::to_owned);
    let kind =
        prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"]);
    let names = prop::collection::vec(word().prop_map(Value::from), 0..3).prop_map(Value::from);
    let pattern = prop::sample::select(vec!["^a", "b$", "[0-9]", "^(?=a)", "(", "\\d", "", "^\\S*$", "\\cA"]);
    let patterns = prop::collection::vec((pattern.clone(), inner.clone()), 1..3)
        .prop_map(|list| list.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>());
    let format = prop::sample::select(vec![
        "date",
        "time",
        "date-time",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uri",
        "uri-reference",
        "iri",
        "iri-reference",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
        "regex",
        "uuid",
        "x",
    ]);
    let reference = prop::sample::select(vec![
        "#",
        "#/$defs/a",
        "#/definitions/b",
        "#n",
        "#/properties/a",
        "other",
        "other#n",
        "#/nowhere",
        "http://x/y",
    ]);
    let counts = [
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minContains",
        "maxContains",
    ];
    let count = prop_oneof![4 => (0_u64..4).prop_map(Value::from), 1 => number()];
    let one = [
        "items",
        "additionalItems",
        "contains",
        "additionalProperties",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedItems",
        "unevaluatedProperties",
    ];
    let kinds = prop_oneof![
        kind.clone().prop_map(Value::from),
        prop::collection::vec(kind.prop_map(Value::from), 0..3).prop_map(Value::from)
    ];
    prop_oneof![
        3 => kinds.prop_map(|kind| ("type".to_owned(), kind)),
        1 => value().prop_map(|value| ("const".to_owned(), value)),
        1 => prop::collection::vec(value(), 0..4).prop_map(|list| ("enum".to_owned(), list.into())),
        2 => (named(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), number()),
        // The crate is not exact beyond 53 bits.
        1 => prop::sample::select(vec![json!(2), json!(3), json!(0.5), json!(0.1), json!(1.5), json!(1e9), json!(0)])
            .prop_map(|it| ("multipleOf".to_owned(), it)),
        1 => (named(&["exclusiveMinimum", "exclusiveMaximum", "uniqueItems"]), any::<bool>().prop_map(Value::from)),
        3 => (named(&counts), count),
        2 => pattern.prop_map(|it| ("pattern".to_owned(), it.into())),
        2 => format.prop_map(|it| ("format".to_owned(), it.into())),
        2 => names.prop_map(|names| ("required".to_owned(), names)),
        4 => (named(&one), inner.clone()),
        4 => (named(&["properties", "$defs", "definitions", "dependentSchemas", "dependencies"]),
              members(inner.clone()).prop_map(Value::from)),
        2 => patterns.prop_map(|it| ("patternProperties".to_owned(), it.into())),
        1 => (named(&["dependencies", "dependentRequired"]), word(), word())
            .prop_map(|(keyword, name, needed)| (keyword, json!({name: [needed]}))),
        4 => (named(&["allOf", "anyOf", "oneOf", "prefixItems", "items"]),
              prop::collection::vec(inner, 0..3).prop_map(Value::from)),
        2 => (named(&["$ref", "$ref", "$dynamicRef", "$recursiveRef"]), reference.prop_map(Value::from)),
        1 => (named(&["$anchor", "$dynamicAnchor"]), Just("n".into())),
        1 => (named(&["$id", "id"]), prop::sample::select(vec!["other", "#n", "http://x/y"]).prop_map(Value::from)),
        1 => (named(&["contentEncoding"]), named(&["base64", "base16", "x"]).prop_map(Value::from)),
        1 => Just(("contentMediaType".to_owned(), "application/json".into())),
    ]
}

/// A schema with keywords of a draft.
fn schema(draft: usize) -> impl Strategy<Value = Value> {
    let draft = Draft::of(&json!({"$schema": DRAFTS[draft]})).expect("a draft");
    let leaf =
        prop_oneof![any::<bool>().prop_map(Value::from), Just(json!({})), Just(json!({"type": "string"}))];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let own = keyword(inner).prop_filter("a keyword of another draft", move |(name, _)| draft.has(name));
        prop::collection::vec(own, 1..5)
            .prop_map(|keywords| keywords.into_iter().collect::<Map<_, _>>().into())
    })
}

fn schema_in_draft() -> impl Strategy<Value = Value> {
    (0..DRAFTS.len()).prop_flat_map(|draft| schema(draft).prop_map(move |schema| in_draft(draft, &schema)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_agree_for_any_schema(schema in schema_in_draft(), values in prop::collection::vec(value(), 8)) {
        for value in &values {
            agree(&schema, value)?;
        }
    }

    /// Most of these schemas are valid. They may have keywords of other drafts.
    #[test]
    fn verdicts_agree_for_simple_schemas(
        draft in 0..5_usize,
        keywords in prop::collection::vec(keyword(Just(json!({"type": ["string", "integer"]}))), 1..4),
        values in prop::collection::vec(value(), 16),
    ) {
        let schema = keywords.into_iter().collect::<Map<_, _>>().into();
        prop_assume!(has_own_references(draft, &schema));
        let schema = in_draft(draft, &schema);
        for value in &values {
            agree(&schema, value)?;
        }
    }
}

#[test]
fn messages_name_the_same_place_and_reason() {
    let cases = [
        (json!({"type": "string"}), json!(5)),
        (json!({"type": ["string", "null"]}), json!(5)),
        (json!({"enum": [1, 2, 3]}), json!(4)),
        (json!({"enum": [1, 2, 3, 4]}), json!("x")),
        (json!({"const": {"a": 1}}), json!([])),
        (json!({"minimum": 2}), json!(1)),
        (json!({"maximum": 2}), json!(3)),
        (json!({"exclusiveMinimum": 2}), json!(2)),
        (json!({"exclusiveMaximum": 2}), json!(2)),
        (json!({"multipleOf": 2}), json!(3)),
        (json!({"minLength": 1}), json!("")),
        (json!({"maxLength": 2}), json!("abc")),
        (json!({"minItems": 1}), json!([])),
        (json!({"maxItems": 1}), json!([1, 2])),
        (json!({"minProperties": 1}), json!({})),
        (json!({"maxProperties": 1}), json!({"a": 1, "b": 2})),
        (json!({"pattern": "^a"}), json!("b")),
        (json!({"uniqueItems": true}), json!([1, 1.0])),
        (json!({"required": ["a"]}), json!({})),
        (json!({"dependentRequired": {"a": ["b"]}}), json!({"a": 1})),
        (json!({"properties": {"a/b": {"items": {"type": "string"}}}}), json!({"a/b": ["x", 1]})),
        (json!({"properties": {"a": false}}), json!({"a": 1})),
        (json!({"properties": {"c": true}, "additionalProperties": false}), json!({"a": 1})),
        (json!({"prefixItems": [{"type": "null"}]}), json!([1])),
        (json!({"propertyNames": {"maxLength": 1}}), json!({"ab": 1})),
        (json!({"contains": {"type": "null"}}), json!([1])),
        (json!({"anyOf": [{"type": "null"}, {"minimum": 3}]}), json!(1)),
        (json!({"oneOf": [{"type": "null"}, {"minimum": 3}]}), json!(1)),
        (json!({"oneOf": [true, true]}), json!(1)),
        (json!({"allOf": [{"properties": {"a": {"minimum": 3}}}]}), json!({"a": 1})),
        (json!({"not": {"type": "null"}}), json!(null)),
        (json!({"if": true, "then": {"type": "null"}}), json!(1)),
        (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}), json!(1)),
        (json!({"unevaluatedProperties": false}), json!({"a": 1})),
        (json!({"$schema": DRAFTS[2], "format": "date"}), json!("today")),
        (json!({"$schema": DRAFTS[2], "items": [true], "additionalItems": false}), json!([1, 2])),
        // The cheap keyword is checked first.
        (json!({"properties": {"a": {"type": "null"}}, "required": ["b"]}), json!({"a": 1})),
    ];
    for (schema, value) in cases {
        assert_eq!(found(&schema, &value), expected(&schema, &value), "{schema} {value}");
    }
}

#[test]
fn invalid_schemas_and_foreign_references_are_not_read() {
    for schema in [
        json!({"type": "text"}),
        json!({"minLength": -1}),
        json!({"properties": {"a": 5}}),
        json!({"required": "a"}),
        json!({"pattern": "("}),
        json!({"$ref": "#/$defs/none"}),
        json!({"$ref": "https://example.org/schema"}),
        json!({"$schema": "https://example.org/mine"}),
        json!({"$schema": DRAFTS[0], "const": 1, "required": []}),
        json!(5),
    ] {
        assert!(Schema::new(&schema).is_none(), "{schema}");
    }
}

#[test]
fn patterns_may_look_around() {
    let schema = json!({"pattern": "^(?=.*[0-9])[a-z0-9]+$"});
    assert_eq!(found(&schema, &json!("abc1")), Some(None));
    assert!(matches!(found(&schema, &json!("abc")), Some(Some(_))));
}

#[test]
fn long_chains_and_loops_of_references_end() {
    let link = |at: usize| json!({"properties": {"x": {"$ref": format!("#/$defs/d{at}")}}});
    let chain: Map<_, _> = (0..5_000).map(|at| (format!("d{at}"), link((at + 1) % 5_000))).collect();
    let schema = json!({"$ref": "#/$defs/d0", "$defs": chain.clone()});
    let deep = (0..110).fold(json!(1), |value, _| json!({"x": value}));
    assert!(Schema::new(&schema).expect("valid").check(&json!({"x": {"x": 1}})).is_ok());
    let failure = Schema::new(&schema).expect("valid").check(&deep).map_err(|failure| failure.is_unknown());
    assert_eq!(failure, Err(true), "deeper than a check goes");
    let negated = json!({"not": {"$ref": "#/$defs/d0"}, "$defs": chain});
    let failure = Schema::new(&negated).expect("valid").check(&deep).map_err(|failure| failure.is_unknown());
    assert_eq!(failure, Err(true), "not knowing is no mismatch");
    assert_eq!(found(&json!({"$ref": "#"}), &json!(1)), Some(None));
    assert_eq!(found(&json!({"allOf": [{"$ref": "#"}]}), &json!(1)), Some(None));
}
