//! What the JSON Schema of loads says beside their keys: by its kind which of them a load may have. A load that names no
//! kind, because the defaults do, may have any.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::super::file::Endpoints;
use super::keys::{LoadFile, LoadKind, UnderFile};

/// The keys by which a load under another one names endpoints of its own; without them it has those of the load above it.
const ENDPOINTS: [&str; 2] = ["from", "to"];

/// Says of each key which kinds have it, and of each kind which keys it has.
pub(super) fn by_kind(schema: &mut Schema) {
    for (key, kinds) in LoadFile::KEYS {
        let property = schema.pointer_mut(&format!("/properties/{key}")).and_then(Value::as_object_mut);
        if let (Some(object), true) = (property, kinds.len() < LoadKind::ALL.len()) {
            let words = object.get("description").and_then(Value::as_str).unwrap_or_default();
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            object.insert("description".to_owned(), format!("{words}\n\nOf {}.", kinds.join(", ")).into());
        }
    }
    schema.insert("allOf".to_owned(), keys_of_kinds(&[]));
}

fn keys_of_kinds(besides: &[&'static str]) -> Value {
    let of_kind = LoadKind::ALL.map(|kind| {
        let names: Vec<&str> = ["kind"].into_iter().chain(besides.iter().copied()).chain(kind.keys()).collect();
        json!({
            "if": { "properties": { "kind": { "const": kind.name() } }, "required": ["kind"] },
            "then": { "propertyNames": { "enum": names } },
        })
    });
    json!(of_kind)
}

impl JsonSchema for UnderFile {
    fn schema_name() -> Cow<'static, str> {
        "LoadUnder".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = LoadFile::json_schema(generator);
        for endpoint in ENDPOINTS {
            let mut own = generator.subschema_for::<Endpoints>();
            let words = "Of this load; those of the load that it runs under by default. Give both or neither.";
            own.insert("description".to_owned(), words.into());
            own.insert("examples".to_owned(), json!(["a/sender"]));
            let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
            properties.map(|properties: &mut Map<_, _>| properties.insert(endpoint.to_owned(), own.to_value()));
        }
        schema.insert("allOf".to_owned(), keys_of_kinds(&ENDPOINTS));
        schema
    }
}
