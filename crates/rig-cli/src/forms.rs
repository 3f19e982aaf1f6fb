//! Forms that values of TOML files take: what can be said short or long.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use schemars::JsonSchema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};

use crate::source::Spanned;

/// A text, or a table with more to say.
#[derive(Debug)]
pub enum TextOrTable<T> {
    Text(String),
    Table(T),
}

/// A value, or a list of them.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged, rename = "OneOrMany_{T}")]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<Spanned<T>>),
}

/// What a file can say one or many of.
pub trait Item {
    /// What is expected where neither is found.
    const EXPECTED: &'static str;
}

impl Item for String {
    const EXPECTED: &'static str = "a string or a list of strings";
}

impl Item for bool {
    const EXPECTED: &'static str = "true or false, or a list of both";
}

impl Item for u32 {
    const EXPECTED: &'static str = "a number, or a list of them such as [1, 2, 4]";
}

impl<T> OneOrMany<T> {
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Many(_))
    }

    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(many) => many.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), &[][..]),
            Self::Many(many) => (None, many.as_slice()),
        };
        one.into_iter().chain(many.iter().map(Spanned::get_ref))
    }

    /// Each with where it stands; `span` is that of all.
    pub fn each(&self, span: Range<usize>) -> Vec<(Range<usize>, &T)> {
        match self {
            Self::One(one) => vec![(span, one)],
            Self::Many(many) => many.iter().map(|one| (one.span(), one.get_ref())).collect(),
        }
    }
}

// By hand, because serde's untagged enums forget where things were and what was wrong with them.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOrTable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UntaggedVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for UntaggedVisitor<T> {
            type Value = TextOrTable<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a table")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOrTable::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(TextOrTable::Table)
            }
        }

        deserializer.deserialize_any(UntaggedVisitor(PhantomData))
    }
}

impl<'de, T: Item + Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UntaggedVisitor<T>(PhantomData<T>);

        impl<'de, T: Item + Deserialize<'de>> Visitor<'de> for UntaggedVisitor<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
                let one = T::deserialize(IntoDeserializer::<E>::into_deserializer(value)).map(OneOrMany::One);
                one.map_err(|_| E::invalid_type(Unexpected::Bool(value), &self))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
                let one = T::deserialize(IntoDeserializer::<E>::into_deserializer(value)).map(OneOrMany::One);
                one.map_err(|_| E::invalid_type(Unexpected::Signed(value), &self))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
                let one = T::deserialize(IntoDeserializer::<E>::into_deserializer(value)).map(OneOrMany::One);
                one.map_err(|_| E::invalid_type(Unexpected::Str(value), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany::Many)
            }
        }

        deserializer.deserialize_any(UntaggedVisitor(PhantomData))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::source::Source;

    fn read<T: Item + de::DeserializeOwned>(value: &str) -> Result<OneOrMany<T>, String> {
        #[derive(serde::Deserialize)]
        #[serde(bound = "T: Item + de::DeserializeOwned")]
        struct File<T> {
            key: Spanned<OneOrMany<T>>,
        }
        let text = format!("\nkey = {value}");
        let read = Source { file: "f", text: &text }.read::<File<T>>();
        read.map(|file| file.key.into_inner()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_is_written_as_it_is_and_several_as_a_list() {
        let one = read::<u32>("4").unwrap();
        assert_eq!((one.is_list(), one.iter().collect::<Vec<_>>()), (false, vec![&4]));
        let list = read::<u32>("[4,\n5]").unwrap();
        assert_eq!((list.is_list(), list.iter().collect::<Vec<_>>()), (true, vec![&4, &5]));
        let (first, second) = (&list.each(0..1)[0], &list.each(0..1)[1]);
        assert!(first.0.start < second.0.start && *second.1 == 5);
        assert_eq!(one.each(3..4), [(3..4, &4)]);
        assert_eq!(read::<bool>("true").unwrap().iter().collect::<Vec<_>>(), [&true]);
        assert_eq!(read::<String>("'a'").unwrap().iter().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn what_is_neither_is_told_with_what_it_is() {
        assert_eq!(
            read::<u32>("'a'").unwrap_err(),
            "f:2: invalid type: string \"a\", expected a number, or a list of them such as [1, 2, 4]"
        );
        assert!(read::<u32>("-1").unwrap_err().contains("integer `-1`, expected a number"));
        assert!(read::<String>("1").unwrap_err().contains("expected a string or a list of strings"));
        assert!(read::<bool>("['a']").unwrap_err().contains("invalid type: string \"a\", expected a boolean"));
    }
}
