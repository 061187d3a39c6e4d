//! The drafts of JSON Schema: which keywords they have, and what is a valid schema in each.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::format;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    Draft4,
    Draft6,
    Draft7,
    Draft2019,
    Draft2020,
}

use Draft::{Draft4, Draft6, Draft7, Draft2019, Draft2020};

impl Draft {
    /// The draft of a schema. `None` if it names one that is not known.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let Some(Value::String(uri)) = schema.get("$schema") else { return Some(Draft2020) };
        let uri = uri.trim_end_matches('#');
        let name =
            uri.strip_prefix("https://json-schema.org/").or(uri.strip_prefix("http://json-schema.org/"));
        match name? {
            "draft/2020-12/schema" | "schema" => Some(Draft2020),
            "draft/2019-09/schema" => Some(Draft2019),
            "draft-07/schema" => Some(Draft7),
            "draft-06/schema" => Some(Draft6),
            "draft-04/schema" => Some(Draft4),
            _ => None,
        }
    }

    /// Other keywords beside `$ref` mean nothing.
    pub(super) fn ignores_siblings(self) -> bool {
        self <= Draft7
    }

    /// `format` is checked.
    pub(super) fn has_formats(self) -> bool {
        self <= Draft7
    }

    /// The keyword that names a resource.
    pub(super) fn id_keyword(self) -> &'static str {
        if self == Draft4 { "id" } else { "$id" }
    }

    /// True if a draft has a keyword.
    #[cfg(test)]
    pub(super) fn has(self, keyword: &str) -> bool {
        let is_reference = matches!(keyword, "$recursiveRef" | "$dynamicRef");
        self.rank(keyword).is_some() || (form(self, keyword).is_some() && !is_reference)
    }

    /// The order in which keywords are checked, from cheap to expensive. `None` if it means nothing in this draft.
    pub(super) fn rank(self, keyword: &str) -> Option<u8> {
        let (rank, since, until) = match keyword {
            "type" => (1, Draft4, Draft2020),
            "const" => (5, Draft6, Draft2020),
            "enum" => (6, Draft4, Draft2020),
            "minimum" => (10, Draft4, Draft2020),
            "maximum" => (11, Draft4, Draft2020),
            "exclusiveMinimum" => (12, Draft6, Draft2020),
            "exclusiveMaximum" => (13, Draft6, Draft2020),
            "multipleOf" => (14, Draft4, Draft2020),
            "minLength" => (20, Draft4, Draft2020),
            "maxLength" => (21, Draft4, Draft2020),
            "minItems" => (22, Draft4, Draft2020),
            "maxItems" => (23, Draft4, Draft2020),
            "minProperties" => (24, Draft4, Draft2020),
            "maxProperties" => (25, Draft4, Draft2020),
            "required" => (26, Draft4, Draft2020),
            "dependentRequired" => (27, Draft2019, Draft2020),
            "pattern" => (30, Draft4, Draft2020),
            "format" => (31, Draft4, Draft7),
            "contentEncoding" => (32, Draft6, Draft7),
            "contentMediaType" => (33, Draft6, Draft7),
            "uniqueItems" => (35, Draft4, Draft2020),
            "properties" => (40, Draft4, Draft2020),
            "patternProperties" => (41, Draft4, Draft2020),
            "additionalProperties" => (42, Draft4, Draft2020),
            "propertyNames" => (43, Draft6, Draft2020),
            "items" => (44, Draft4, Draft2020),
            "prefixItems" => (45, Draft2020, Draft2020),
            "additionalItems" => (46, Draft4, Draft2019),
            "contains" => (47, Draft6, Draft2020),
            "dependencies" => (48, Draft4, Draft2020),
            "dependentSchemas" => (49, Draft2019, Draft2020),
            "allOf" => (50, Draft4, Draft2020),
            "anyOf" => (51, Draft4, Draft2020),
            "oneOf" => (52, Draft4, Draft2020),
            "not" => (53, Draft4, Draft2020),
            "if" => (54, Draft7, Draft2020),
            // Checked with `if`.
            "then" | "else" => (55, Draft7, Draft2020),
            "$ref" => (70, Draft4, Draft2020),
            "$recursiveRef" => (71, Draft2019, Draft2019),
            "$dynamicRef" => (72, Draft2020, Draft2020),
            // They need to know what the others have looked at.
            "unevaluatedProperties" => (80, Draft2019, Draft2020),
            "unevaluatedItems" => (81, Draft2019, Draft2020),
            _ => return None,
        };
        (since <= self && self <= until).then_some(rank)
    }
}

/// The form of a keyword's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Schema,
    Schemas,
    SchemaOrSchemas,
    SchemaByName,
    SchemaByPattern,
    /// Schemas or lists of names.
    Dependencies,
    Names,
    NamesByName,
    Type,
    List,
    Text,
    Regex,
    Uri,
    UriReference,
    /// A URI reference without a fragment.
    Id,
    Anchor,
    Bool,
    BoolByName,
    Number,
    Positive,
    Count,
}

fn form(draft: Draft, keyword: &str) -> Option<Form> {
    let (form, since, until) = match keyword {
        "additionalProperties" | "not" => (Form::Schema, Draft4, Draft2020),
        "additionalItems" => (Form::Schema, Draft4, Draft2019),
        "contains" | "propertyNames" => (Form::Schema, Draft6, Draft2020),
        "if" | "then" | "else" => (Form::Schema, Draft7, Draft2020),
        "unevaluatedItems" | "unevaluatedProperties" | "contentSchema" => {
            (Form::Schema, Draft2019, Draft2020)
        }
        "items" if draft == Draft2020 => (Form::Schema, Draft2020, Draft2020),
        "items" => (Form::SchemaOrSchemas, Draft4, Draft2019),
        "prefixItems" => (Form::Schemas, Draft2020, Draft2020),
        "allOf" | "anyOf" | "oneOf" => (Form::Schemas, Draft4, Draft2020),
        "definitions" | "properties" => (Form::SchemaByName, Draft4, Draft2020),
        "patternProperties" => (Form::SchemaByPattern, Draft4, Draft2020),
        "$defs" | "dependentSchemas" => (Form::SchemaByName, Draft2019, Draft2020),
        "dependencies" => (Form::Dependencies, Draft4, Draft2020),
        "dependentRequired" => (Form::NamesByName, Draft2019, Draft2020),
        "required" => (Form::Names, Draft4, Draft2020),
        "type" => (Form::Type, Draft4, Draft2020),
        "enum" => (Form::List, Draft4, Draft2020),
        "examples" => (Form::List, Draft6, Draft2020),
        "title" | "description" | "format" => (Form::Text, Draft4, Draft2020),
        "id" => (Form::Text, Draft4, Draft4),
        "$schema" if draft == Draft4 => (Form::Text, Draft4, Draft4),
        "$schema" => (Form::Uri, Draft6, Draft2020),
        "$comment" | "contentMediaType" | "contentEncoding" => (Form::Text, Draft7, Draft2020),
        "$ref" => (Form::UriReference, Draft6, Draft2020),
        "$recursiveRef" => (Form::UriReference, Draft2019, Draft2020),
        "$dynamicRef" => (Form::UriReference, Draft2020, Draft2020),
        "$id" if draft <= Draft7 => (Form::UriReference, Draft6, Draft7),
        "$id" => (Form::Id, Draft2019, Draft2020),
        "$anchor" => (Form::Anchor, Draft2019, Draft2020),
        "$dynamicAnchor" => (Form::Anchor, Draft2020, Draft2020),
        "$recursiveAnchor" if draft == Draft2020 => (Form::Anchor, Draft2020, Draft2020),
        "$recursiveAnchor" => (Form::Bool, Draft2019, Draft2019),
        "$vocabulary" => (Form::BoolByName, Draft2019, Draft2020),
        "pattern" => (Form::Regex, Draft4, Draft2020),
        "uniqueItems" => (Form::Bool, Draft4, Draft2020),
        "readOnly" | "writeOnly" => (Form::Bool, Draft7, Draft2020),
        "deprecated" => (Form::Bool, Draft2019, Draft2020),
        "exclusiveMaximum" | "exclusiveMinimum" if draft == Draft4 => (Form::Bool, Draft4, Draft4),
        "maximum" | "minimum" | "exclusiveMaximum" | "exclusiveMinimum" => (Form::Number, Draft4, Draft2020),
        "multipleOf" => (Form::Positive, Draft4, Draft2020),
        "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties" => {
            (Form::Count, Draft4, Draft2020)
        }
        "maxContains" | "minContains" => (Form::Count, Draft2019, Draft2020),
        _ => return None,
    };
    (since <= draft && draft <= until).then_some(form)
}

/// The schemas in a keyword's value, in whichever draft has the keyword.
pub(super) fn schemas_in<'v>(keyword: &str, member: &'v Value) -> impl Iterator<Item = &'v Value> + use<'v> {
    let is_schema = |value: &&Value| value.is_object() || value.is_boolean();
    let (one, list, map) = match keyword {
        "additionalItems"
        | "additionalProperties"
        | "contains"
        | "contentSchema"
        | "else"
        | "if"
        | "not"
        | "propertyNames"
        | "then"
        | "unevaluatedItems"
        | "unevaluatedProperties" => (Some(member), None, None),
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => (None, member.as_array(), None),
        "items" => (Some(member), member.as_array(), None),
        "$defs" | "definitions" | "dependentSchemas" | "dependencies" | "patternProperties"
        | "properties" => (None, None, member.as_object()),
        _ => (None, None, None),
    };
    let of_list = list.into_iter().flatten();
    let of_map = map.into_iter().flat_map(Map::values);
    one.into_iter().chain(of_list).chain(of_map).filter(is_schema)
}

/// True if a schema is valid in a draft, with all schemas in it, used or not.
pub(super) fn is_valid(draft: Draft, schema: &Value) -> bool {
    match schema {
        Value::Bool(_) => draft > Draft4,
        Value::Object(members) => {
            let has = |keyword| members.contains_key(keyword);
            let is_complete = draft > Draft4
                || ((!has("exclusiveMaximum") || has("maximum"))
                    && (!has("exclusiveMinimum") || has("minimum")));
            is_complete
                && members.iter().all(|(keyword, member)| {
                    form(draft, keyword).is_none_or(|form| fits(draft, keyword, form, member))
                })
        }
        _ => false,
    }
}

fn fits(draft: Draft, keyword: &str, form: Form, value: &Value) -> bool {
    let every = |fits: &dyn Fn(&Value) -> bool| value.as_object().is_some_and(|it| it.values().all(fits));
    let is_regex = |text: &str| !draft.has_formats() || format::is_regex(text);
    match form {
        // Draft 4 has `true` and `false` only in these places.
        Form::Schema if keyword.starts_with("additional") && value.is_boolean() => true,
        Form::Schema => is_valid(draft, value),
        Form::Schemas => {
            value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(|it| is_valid(draft, it)))
        }
        Form::SchemaOrSchemas if value.is_array() => fits(draft, keyword, Form::Schemas, value),
        Form::SchemaOrSchemas => is_valid(draft, value),
        Form::SchemaByName => every(&|it| is_valid(draft, it)),
        Form::SchemaByPattern => {
            every(&|it| is_valid(draft, it))
                && (draft == Draft4 || value.as_object().is_some_and(|it| it.keys().all(|key| is_regex(key))))
        }
        Form::Dependencies => every(&|it| is_valid(draft, it) || is_names(draft, it)),
        Form::Names => is_names(draft, value),
        Form::NamesByName => every(&|it| is_names(draft, it)),
        Form::Type => match value {
            Value::Array(list) => {
                let names: HashSet<_> =
                    list.iter().filter_map(Value::as_str).filter(|it| is_type(it)).collect();
                !list.is_empty() && names.len() == list.len()
            }
            _ => value.as_str().is_some_and(is_type),
        },
        Form::List => value.is_array(),
        Form::Text => value.is_string(),
        Form::Regex => value.as_str().is_some_and(is_regex),
        Form::Uri => value.as_str().is_some_and(|text| !draft.has_formats() || format::is_uri(text)),
        Form::UriReference => {
            value.as_str().is_some_and(|text| !draft.has_formats() || format::is_uri_reference(text))
        }
        Form::Id => value.as_str().is_some_and(|text| !text.strip_suffix('#').unwrap_or(text).contains('#')),
        Form::Anchor => value.as_str().is_some_and(|text| is_anchor(draft, text)),
        Form::Bool => value.is_boolean(),
        Form::BoolByName => every(&Value::is_boolean),
        Form::Number => value.is_number(),
        Form::Positive => value.as_f64().is_some_and(|number| number > 0.0),
        Form::Count => count(draft, value).is_some(),
    }
}

fn is_names(draft: Draft, value: &Value) -> bool {
    let Value::Array(list) = value else { return false };
    let names: HashSet<_> = list.iter().filter_map(Value::as_str).collect();
    names.len() == list.len() && (draft > Draft4 || !list.is_empty())
}

fn is_type(name: &str) -> bool {
    matches!(name, "array" | "boolean" | "integer" | "null" | "number" | "object" | "string")
}

fn is_anchor(draft: Draft, text: &str) -> bool {
    let mut letters = text.bytes();
    let starts = |letter: u8| letter.is_ascii_alphabetic() || (draft == Draft2020 && letter == b'_');
    let goes_on = |letter: u8| {
        letter.is_ascii_alphanumeric()
            || matches!(letter, b'-' | b'.' | b'_')
            || (draft == Draft2019 && letter == b':')
    };
    letters.next().is_some_and(starts) && letters.all(goes_on)
}

/// A whole number that is not negative. Draft 4 does not have `1.0` for it.
pub(super) fn count(draft: Draft, value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|it| *it >= 0.0 && it.fract() == 0.0)?;
        // The conversion keeps the largest number for those beyond it.
        (draft > Draft4 || number >= 18_446_744_073_709_551_616.0).then_some(number as u64)
    })
}
