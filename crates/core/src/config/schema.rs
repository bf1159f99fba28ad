//! Generates a JSON Schema (draft 2020-12) from the key table, for editors.

use serde_json::{Map, Value, json};

use super::key::{ItemKind, KeyTree, Preset, ValueKind};

/// The schema of a configuration file in the current layout.
#[must_use]
pub fn schema() -> Value {
    let mut root = Map::new();
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("title".to_owned(), json!("Vambrace configuration"));
    if let Value::Object(body) = of(KeyTree::documented()) {
        root.extend(body);
    }
    Value::Object(root)
}

fn of(shape: &KeyTree) -> Value {
    let mut out = Map::new();
    let key = shape.key;
    if !key.doc.is_empty() {
        out.insert("description".to_owned(), json!(key.doc));
    }
    let body = match key.kind {
        ValueKind::Section | ValueKind::Named => mapping(shape),
        ValueKind::Items => {
            let item = shape.item.as_deref().map_or(json!({}), item_of);
            json!({"type": "array", "items": item})
        }
        ValueKind::Mapping => json!({"type": ["object", "null"]}),
        ValueKind::Bool | ValueKind::NeverOffInProject(_) => json!({"type": "boolean"}),
        ValueKind::AlwaysFalse(_) => json!({"const": false}),
        ValueKind::Int { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        ValueKind::Bytes { min, max } => json!({"anyOf": [
            {"type": "integer", "minimum": min, "maximum": max},
            {"type": "string", "pattern": "^[0-9]+ *([KMG]iB|B)?$"},
        ]}),
        ValueKind::Fraction => json!({"type": "number", "minimum": 0, "maximum": 1}),
        ValueKind::Text | ValueKind::Path => text(),
        ValueKind::Name => json!({"type": "string", "pattern": NAME}),
        ValueKind::Argv => json!({"anyOf": [text(), {"type": "array", "items": text(), "minItems": 1}]}),
        ValueKind::Choice(names) => json!({"enum": names}),
        ValueKind::Rates => {
            let number = json!({"type": "integer", "minimum": 1, "maximum": 1_000_000});
            json!({"anyOf": [number, {"type": "object", "additionalProperties": number}]})
        }
        ValueKind::List(item) => {
            let item = match item {
                ItemKind::Choice(names) => json!({"enum": names}),
                _ => text(),
            };
            json!({"type": "array", "items": item})
        }
    };
    if let Value::Object(body) = body {
        out.extend(body);
    }
    match key.preset {
        Preset::Unset => None,
        Preset::Bool(value) => out.insert("default".to_owned(), json!(value)),
        Preset::Int(value) => out.insert("default".to_owned(), json!(value)),
        Preset::Text(value) => out.insert("default".to_owned(), json!(value)),
        Preset::List(value) => out.insert("default".to_owned(), json!(value)),
    };
    Value::Object(out)
}

const NAME: &str = "^[A-Za-z][A-Za-z0-9_-]{0,63}$";

fn text() -> Value {
    json!({"type": "string", "minLength": 1})
}

fn mapping(shape: &KeyTree) -> Value {
    let fields: Map<String, Value> =
        shape.fields.iter().map(|(name, shape)| ((*name).to_owned(), of(shape))).collect();
    let mut out = Map::new();
    out.insert("type".to_owned(), json!(["object", "null"]));
    if !fields.is_empty() {
        out.insert("properties".to_owned(), Value::Object(fields));
    }
    if shape.any.is_some() {
        out.insert("propertyNames".to_owned(), json!({"pattern": NAME}));
    }
    out.insert("additionalProperties".to_owned(), shape.any.as_deref().map_or(json!(false), of));
    if shape.key.path == "secrets.scopes.NAME" {
        out.insert("oneOf".to_owned(), json!([{"required": ["env"]}, {"required": ["file"]}]));
    }
    if shape.key.path == "audit.witness" {
        out.insert("dependentRequired".to_owned(), json!({"url": ["key"], "key": ["url"]}));
    }
    Value::Object(out)
}

/// The schema of a list item, which has no row in the key table.
fn item_of(shape: &KeyTree) -> Value {
    let mut item = mapping(shape);
    if let Value::Object(item) = &mut item {
        item.insert("type".to_owned(), json!("object"));
        if shape.fields.iter().any(|(_, field)| field.key.path == "approvals.rules[].decision") {
            item.insert("required".to_owned(), json!(["decision"]));
        }
    }
    item
}
