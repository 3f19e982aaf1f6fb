//! The JSON Schema of suite files, for editors: what `netrig schema suite` prints.

use std::borrow::Cow;

use rig_cli::schema::{Schema, described};
use rig_stats::units::{ByteRate, PerSecond};
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::file::SuiteFile;
use super::programme::RateFile;

/// The JSON Schema of suite files. It cannot tell whether names agree with each other, whether figures exist and whether testbeds
/// are possible: [`super::Suite::parse`] does.
pub fn schema() -> Schema {
    let mut schema = described::<SuiteFile>(
        "A suite of netrig",
        "Scenarios that belong together, with tables of their results and claims about them: what `netrig run` takes.",
    );
    RecursiveTransform(without_null).transform(&mut schema);
    schema
}

/// TOML has no null: what is optional is not there.
fn without_null(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            object.insert("type".to_owned(), one);
        }
    }
    if object.get("default") == Some(&Value::Null) {
        object.remove("default");
    }
    let is_null = |schema: &Value| schema.get("type").is_some_and(|name| name == "null");
    let Some(Value::Array(choices)) = object.get_mut("anyOf") else { return };
    choices.retain(|choice| !is_null(choice));
    let only = match choices.as_mut_slice() {
        [Value::Object(only)] => std::mem::take(only),
        _ => return,
    };
    object.remove("anyOf");
    for (key, value) in only {
        object.entry(key).or_insert(value);
    }
}

impl JsonSchema for RateFile {
    fn schema_name() -> Cow<'static, str> {
        "PhaseRate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A rate in the unit of the load: per second, or of streams bytes per second; 0 to stop it; or a share of \
                            the limit that was measured before.",
            "anyOf": [
                generator.subschema_for::<PerSecond>(),
                generator.subschema_for::<ByteRate>(),
                {
                    "description": "A share of the limit, more than 0 % and at most 1000 %.",
                    "type": "string",
                    "pattern": r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*%\s*of limit\s*$",
                    "examples": ["25% of limit"],
                },
            ],
        })
    }
}
