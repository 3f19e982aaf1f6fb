//! JSON Schemas (draft 2020-12) of files that netrig reads and of what it publishes as JSON.

use schemars::{JsonSchema, schema_for};

pub use schemars::Schema;

/// The schema of `T` under a title and a description of its own.
pub fn described<T: JsonSchema>(title: &str, description: &str) -> Schema {
    let mut schema = schema_for!(T);
    schema.insert("title".to_owned(), title.into());
    schema.insert("description".to_owned(), description.into());
    schema
}
