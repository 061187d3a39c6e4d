//! JSON Schema of the configuration file, for completion and validation in editors.

use serde_json::{Map, Value as Json, json};

use super::{
    description,
    table::{Field, Shape},
};

/// The JSON Schema of the file.
pub(crate) fn schema() -> Json {
    let mut schema = object(&description(), None);
    let head = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agentwire.toml",
        "description": "The configuration of `agentwire serve`.",
    });
    let Json::Object(mut all) = head else { return schema };
    if let Some(rest) = schema.as_object_mut() {
        all.append(rest);
    }
    Json::Object(all)
}

/// Schema of a table with these keys; `tag` is an additional key with a constant value.
fn object(fields: &[Field], tag: Option<(&str, &str)>) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    if let Some((key, value)) = tag {
        properties.insert(key.into(), json!({ "const": value }));
        required.push(key);
    }
    for field in fields {
        let mut schema = shape_schema(&field.shape);
        schema["description"] = match &field.default {
            Some(default) => format!("{} Default: `{default}`.", field.about).into(),
            None => field.about.into(),
        };
        properties.insert(field.name.into(), schema);
        if field.required {
            required.push(field.name);
        }
    }
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn shape_schema(shape: &Shape) -> Json {
    match shape {
        Shape::Value(_, schema) => schema.clone(),
        Shape::Table(fields) => object(fields, None),
        Shape::Named(fields) => json!({ "type": "object", "additionalProperties": object(fields, None) }),
        Shape::List(each) => json!({ "type": "array", "items": shape_schema(each) }),
        Shape::Either(shapes) => json!({ "anyOf": shapes.iter().map(shape_schema).collect::<Vec<_>>() }),
        Shape::Tagged(tag, variants) => {
            let variants = variants.iter().map(|variant| {
                let mut schema = object(&variant.fields, Some((tag, variant.name)));
                schema["description"] = variant.about.into();
                schema
            });
            json!({ "oneOf": variants.collect::<Vec<_>>() })
        }
    }
}
