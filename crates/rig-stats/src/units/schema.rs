//! JSON Schemas of quantities: what an editor can tell of a text before netrig reads it. A text that is read fits its
//! pattern; one that fits may still be refused, for what no pattern knows: how much is too much, and what is whole.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::{
    BIT_RATE, BYTE_RATE, BYTES, BitRate, ByteRate, Bytes, Notation, PER_SECOND, PERCENT, PerSecond, Percent, SPAN, Span,
};

/// A number as [`Notation::split`] finds it.
const NUMBER: &str = r"([0-9]+\.?[0-9]*|\.[0-9]+)";

impl Notation {
    /// A regular expression (ECMA-262) of numbers with a unit, of which `letter` says how each letter may be written, and
    /// perhaps `after` behind it.
    fn pattern(&self, letter: impl Fn(char) -> String, after: &str) -> String {
        let unit = |(name, _): &(&str, u64)| name.chars().map(&letter).collect::<String>();
        let units: Vec<String> = self.units.iter().map(unit).collect();
        format!(r"{NUMBER}\s*({}){after}", units.join("|"))
    }

    /// Texts of any of these patterns, and bare numbers of this JSON type if there is one.
    fn schema(&self, patterns: &[String], number: Option<&str>) -> Schema {
        let expected = self.expected.strip_prefix("a ").unwrap_or(self.expected);
        let mut schema = json_schema!({
            "description": format!("A {expected} such as {}; units: {}.", self.example, self.known),
            "type": "string",
            "pattern": format!(r"^\s*({})\s*$", patterns.join("|")),
            "examples": [self.example],
        });
        if let Some(number) = number {
            schema.insert("type".to_owned(), vec!["string", number].into());
            schema.insert("minimum".to_owned(), 0.into());
        }
        schema
    }
}

fn as_written(letter: char) -> String {
    letter.to_string()
}

fn any_case(letter: char) -> String {
    match letter {
        letter if letter.is_ascii_alphabetic() => {
            format!("[{}{}]", letter.to_ascii_lowercase(), letter.to_ascii_uppercase())
        }
        other => other.to_string(),
    }
}

/// Micro is written in three ways.
fn micro(letter: char) -> String {
    if letter == 'u' { "[u\u{b5}\u{3bc}]".to_owned() } else { letter.to_string() }
}

macro_rules! schema {
    ($($type:ident: $schema:expr;)*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )*};
}

schema! {
    Bytes: BYTES.schema(&[BYTES.pattern(as_written, "")], Some("integer"));
    BitRate: BIT_RATE.schema(&[BIT_RATE.pattern(any_case, "(/[sS])?")], None);
    ByteRate: BYTE_RATE.schema(&[BYTE_RATE.pattern(as_written, "")], None);
    Span: SPAN.schema(&[SPAN.pattern(micro, "")], None);
    PerSecond: PER_SECOND.schema(
        &[PER_SECOND.pattern(any_case, r"\s*(/[sS])?"), format!(r"\+?{NUMBER}([eE][+-]?[0-9]+)?")],
        Some("number"),
    );
    Percent: PERCENT.schema(&[PERCENT.pattern(as_written, "")], Some("number"));
}

/// Of a percentage, or half of it behind `+-`.
pub(crate) fn percent_or_half(description: &str) -> Schema {
    let full = PERCENT.pattern(as_written, "");
    let mut schema = PERCENT.schema(&[full.clone(), format!("(\\+-|\u{b1})\\s*{full}")], Some("number"));
    schema.insert("description".to_owned(), description.into());
    schema
}
