//! JSON whose members keep their order, and the layout of it that iperf3 prints: tabs, and arrays on one line.

use std::fmt;
use std::io;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::ser::{CompactFormatter, Formatter};

#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    /// Printed without a fraction when it has none, as the original does.
    Number(f64),
    Integer(i64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The member of an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number, as whole as the original takes it.
    pub fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Self::Integer(number) => Some(*number),
            // As the cast saturates, so does the original.
            Self::Number(number) => Some(*number as i64),
            _ => None,
        }
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Self::Integer(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some(&Self::Bool(true))
    }

    /// Adds a member; of anything but an object it does nothing.
    pub fn add(&mut self, name: &str, value: impl Into<Self>) {
        if let Self::Object(members) = self {
            members.push((name.to_owned(), value.into()));
        }
    }

    /// Bytes to JSON.
    ///
    /// # Errors
    /// Those of serde_json, which bounds the depth.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    pub fn compact(&self) -> String {
        self.written(CompactFormatter)
    }

    pub fn pretty(&self) -> String {
        self.written(Tabs::default())
    }

    fn written(&self, formatter: impl Formatter) -> String {
        let mut bytes = Vec::new();
        // Writing to memory cannot fail, and every key is a string.
        let _ = self.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter));
        String::from_utf8(bytes).unwrap_or_default()
    }
}

/// An object of what is given.
pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

impl From<f64> for Json {
    fn from(number: f64) -> Self {
        Self::Number(if number.is_finite() { number } else { 0.0 })
    }
}

macro_rules! from_integers {
    ($($type:ty),*) => {
        $(impl From<$type> for Json {
            fn from(number: $type) -> Self {
                Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
            }
        })*
    };
}
from_integers!(i32, i64, u16, u32, u64, usize);

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<Json>> for Json {
    fn from(items: Vec<Json>) -> Self {
        Self::Array(items)
    }
}

/// Integers that a double holds exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) if number.fract() == 0.0 && number.abs() < EXACT => {
                serializer.serialize_i64(*number as i64)
            }
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| list.serialize_element(item))?;
                list.end()
            }
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                members.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}

struct AnyJson;

impl<'de> Visitor<'de> for AnyJson {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, Json>()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyJson)
    }
}

/// Members on lines of their own behind tabs, items of arrays on one.
#[derive(Debug, Default)]
struct Tabs {
    depth: usize,
}

impl Tabs {
    fn new_line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"\t"))
    }
}

impl Formatter for Tabs {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        self.new_line(writer)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b":\t")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        // An object without members has its brackets on two lines, too, in the original.
        self.new_line(writer)?;
        writer.write_all(b"}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_printed_as_the_original_prints() {
        let value = object([
            ("start", object([("connected", vec![object([("socket", 5.into())]), object([])].into())])),
            ("intervals", Json::Array(vec![])),
            ("seconds", 1.5.into()),
            ("whole", 3.0.into()),
            ("no", false.into()),
        ]);
        let text = "{\n\t\"start\":\t{\n\t\t\"connected\":\t[{\n\t\t\t\t\"socket\":\t5\n\t\t\t}, {\n\t\t\t}]\n\t},\n\
                    \t\"intervals\":\t[],\n\t\"seconds\":\t1.5,\n\t\"whole\":\t3,\n\t\"no\":\tfalse\n}";
        assert_eq!(value.pretty(), text);
        assert_eq!(
            value.compact(),
            r#"{"start":{"connected":[{"socket":5},{}]},"intervals":[],"seconds":1.5,"whole":3,"no":false}"#
        );
        assert_eq!(Json::read(value.compact().as_bytes()).unwrap().compact(), value.compact());
    }

    #[test]
    fn numbers_are_taken_as_whole_as_they_are_needed() {
        let value = Json::read(br#"{"a":1e30,"b":-3.7,"c":18446744073709551615,"d":"1"}"#).unwrap();
        assert_eq!(value.integer("a"), Some(i64::MAX));
        assert_eq!((value.integer("b"), value.number("b")), (Some(-3), Some(-3.7)));
        assert_eq!((value.integer("c"), value.integer("d"), value.integer("e")), (Some(i64::MAX), None, None));
        assert!(Json::read("[".repeat(100_000).as_bytes()).is_err());
        assert_eq!(Json::from(f64::NAN), Json::Number(0.0));
    }
}
