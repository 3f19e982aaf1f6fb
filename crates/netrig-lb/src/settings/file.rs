//! The letter of a configuration file: what serde reads, nothing decided. [`super::read`] turns it into
//! [`super::Settings`].

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use rig_stats::units::Span;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub devices: Vec<Spanned<TextOr<DeviceFile>>>,
    pub workers: Option<Spanned<u32>>,
    pub cpus: Option<Spanned<String>>,
    pub hand_over: Option<Spanned<HandOverFile>>,
    pub connections: Option<Spanned<u32>>,
    pub room: Option<Spanned<RoomFile>>,
    pub metrics: Option<Spanned<String>>,
    /// 0: none.
    pub service_limit: Option<u32>,
    #[serde(default)]
    pub policy: PolicyFile,
    #[serde(default)]
    pub timeouts: TimeoutsFile,
    #[serde(default)]
    pub service: Vec<Spanned<ServiceFile>>,
}

pub(super) type TimeoutsFile = BTreeMap<String, Spanned<Span>>;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceFile {
    pub name: String,
    #[serde(default)]
    pub generic: bool,
}

#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HandOverFile {
    pub queue: Option<u32>,
    /// 0: none.
    pub priority: Option<u32>,
}

#[derive(Debug, Clone, Copy, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoomFile {
    pub services: Option<u32>,
    pub backends: Option<u32>,
    pub local_addresses: Option<u32>,
    pub schedule_entries: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    #[serde(default)]
    pub fragments: Unhandled,
    #[serde(default)]
    pub options: Unhandled,
}

#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Unhandled {
    #[default]
    Drop,
    Pass,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceFile {
    pub listen: Spanned<OneOrMany>,
    pub scheduler: Option<Spanned<String>>,
    pub forward: Option<Spanned<String>>,
    pub local: Option<Spanned<OneOrMany>>,
    /// 0: none.
    pub limit: Option<u32>,
    #[serde(default)]
    pub timeouts: TimeoutsFile,
    pub expire: Option<Spanned<String>>,
    #[serde(default)]
    pub sloppy_tcp: bool,
    #[serde(default)]
    pub backend: Vec<Spanned<TextOr<BackendFile>>>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackendFile {
    pub address: String,
    pub weight: Option<u32>,
    /// 0: none.
    pub limit: Option<u32>,
    #[serde(default)]
    pub drain: bool,
}

/// A text, or a table with more to say.
#[derive(Debug)]
pub(super) enum TextOr<T> {
    Text(String),
    Table(T),
}

/// A text, or a list of them.
#[derive(Debug)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<Spanned<String>>),
}

// By hand, because serde's untagged enums forget where things were and what was wrong with them.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a table")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(TextOr::Table)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(OneOrMany::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany::Many)
            }
        }

        deserializer.deserialize_any(Either)
    }
}
