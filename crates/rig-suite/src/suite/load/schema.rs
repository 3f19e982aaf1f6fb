//! The JSON Schema of loads: every key that there is, and by its kind which of them a load may have. A load that names no
//! kind, because the defaults do, may have any.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::super::file::OneOrMany;
use super::keys::LoadKind;
use super::table::ENDPOINTS;

/// Stands for a load in what serde reads of a file: a table, which is read when its kind is known ([`super::LoadTable`]).
#[derive(Debug)]
pub(in crate::suite) struct LoadFile;

/// The same for a load that runs under another one, and may have endpoints of its own.
#[derive(Debug)]
pub(in crate::suite) struct UnderFile;

fn table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    std::collections::BTreeMap::<String, IgnoredAny>::deserialize(deserializer).map(drop)
}

impl<'de> Deserialize<'de> for LoadFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        table(deserializer).map(|()| Self)
    }
}

impl<'de> Deserialize<'de> for UnderFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        table(deserializer).map(|()| Self)
    }
}

impl JsonSchema for LoadFile {
    fn schema_name() -> Cow<'static, str> {
        "Load".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        of_load(generator, &[])
    }
}

impl JsonSchema for UnderFile {
    fn schema_name() -> Cow<'static, str> {
        "LoadUnder".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        of_load(generator, &ENDPOINTS)
    }
}

/// `endpoints` are the names of those that the load may have besides.
fn of_load(generator: &mut SchemaGenerator, endpoints: &[&str]) -> Schema {
    let mut properties = Map::new();
    for endpoint in endpoints {
        let mut schema = generator.subschema_for::<OneOrMany>();
        let words = "Of this load; those of the load that it runs under by default. Give both or neither.";
        schema.insert("description".to_owned(), words.into());
        schema.insert("examples".to_owned(), json!(["a/sender"]));
        properties.insert((*endpoint).to_owned(), schema.to_value());
    }
    for group in LoadKind::ALL.into_iter().flat_map(LoadKind::groups) {
        let mut schema = (group.schema)(generator).to_value();
        let Some(of_group) = schema.get_mut("properties").and_then(Value::as_object_mut) else { continue };
        for (key, mut schema) in std::mem::take(of_group) {
            let kinds: Vec<&str> =
                LoadKind::ALL.into_iter().filter(|kind| kind.keys().contains(&&*key)).map(LoadKind::name).collect();
            if let (Some(object), true) = (schema.as_object_mut(), kinds.len() < LoadKind::ALL.len()) {
                let words = object.get("description").and_then(Value::as_str).unwrap_or_default();
                object.insert("description".to_owned(), format!("{words}\n\nOf {}.", kinds.join(", ")).into());
            }
            properties.entry(key).or_insert(schema);
        }
    }
    let mut kind = generator.subschema_for::<LoadKind>();
    kind.insert("description".to_owned(), "What is sent; required, here or in the defaults.".into());
    let of_kind = LoadKind::ALL.map(|kind| {
        let mut names = vec!["kind"];
        names.extend(endpoints);
        names.extend(kind.keys());
        json!({
            "if": { "properties": { "kind": { "const": kind.name() } }, "required": ["kind"] },
            "then": { "propertyNames": { "enum": names } },
        })
    });
    properties.insert("kind".to_owned(), kind.to_value());
    json_schema!({
        "description": "What is sent. What it leaves open is taken from the load of the defaults.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "allOf": of_kind,
    })
}
