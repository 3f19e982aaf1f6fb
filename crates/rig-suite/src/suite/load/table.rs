//! A load's table as the file has it, before its kind is known: its keys may be completed by those of the defaults, and
//! each key keeps its place, so that a mistake is told where it is written.

use std::ops::Range;

use rig_cli::mistakes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::keys::{LoadKeys, LoadKind};
use super::{LoadError, error, names};

const KIND: &str = "kind";
/// The keys by which a background load names endpoints of its own; without them it has those of the load above it.
pub(super) const ENDPOINTS: [&str; 2] = ["from", "to"];

/// A table of a load.
#[derive(Debug, Clone, Default)]
pub(in crate::suite) struct LoadTable<'a> {
    span: Range<usize>,
    keys: DeTable<'a>,
}

impl<'a> LoadTable<'a> {
    /// `None` of a value that is no table.
    pub fn of(value: &Spanned<DeValue<'a>>) -> Option<Self> {
        let DeValue::Table(keys) = value.get_ref() else { return None };
        Some(Self { span: value.span(), keys: keys.clone() })
    }

    /// Where the table is.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Where a key is.
    pub fn place(&self, key: &str) -> Option<Range<usize>> {
        self.keys.get_key_value(key).map(|(key, _)| key.span())
    }

    /// The keys that are there, but for its kind.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(|key| &**key.get_ref()).filter(|key| *key != KIND)
    }

    /// This table without a key.
    pub fn without(&self, key: &str) -> Self {
        let mut other = self.clone();
        other.keys.remove(key);
        other
    }

    /// Takes out what the table says under a key.
    pub fn take<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<Spanned<T>>, LoadError> {
        let Some(value) = self.keys.remove(key) else { return Ok(None) };
        let span = value.span();
        match T::deserialize(ValueDeserializer::from(value)) {
            Ok(value) => Ok(Some(Spanned::new(span, value))),
            Err(error) => Err(LoadError { at: Some(error.span().unwrap_or(span)), ..LoadError::from(error) }),
        }
    }

    /// Its kind, where it says one.
    pub fn kind(&self) -> Result<Option<LoadKind>, LoadError> {
        Ok(self.clone().take(KIND)?.map(Spanned::into_inner))
    }

    /// Whether every key is one of loads, and says what it can, whichever kind has it.
    pub fn check(&self) -> Result<(), LoadError> {
        self.check_names()?;
        self.kind()?;
        LoadKind::ALL.into_iter().try_for_each(|kind| LoadKeys::read(kind, &mut Reader::new(self.clone())).map(drop))
    }

    /// The keys of the load, with missing ones taken from `defaults`. Defaults that a load of its kind cannot have are ignored.
    ///
    /// # Errors
    /// When it has no kind, says something that a load of its kind knows nothing of, or says it in another way.
    pub fn complete(&self, defaults: &Self) -> Result<LoadKeys, LoadError> {
        self.check()?;
        let Some(kind) = self.kind()?.map_or_else(|| defaults.kind(), |kind| Ok(Some(kind)))? else {
            let kinds: Vec<String> = LoadKind::ALL.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
            return error(
                "the load has no kind",
                format!("write for instance kind = \"tcp-stream\": {}", kinds.join(", ")),
            );
        };
        let keys = kind.keys();
        if let Some(stranger) = self.given().find(|key| !keys.contains(key)) {
            let what = format!("a load of kind {} has no '{stranger}'", kind.name());
            let hint = Some(format!("remove it, or use one of {}", keys.join(", ")));
            return Err(LoadError { what, hint, at: self.place(stranger) });
        }
        let mut whole = self.clone();
        let others = defaults.keys.iter().filter(|(key, _)| !self.keys.contains_key(&**key.get_ref()));
        whole.keys.extend(others.map(|(key, value)| (key.clone(), value.clone())));
        LoadKeys::read(kind, &mut Reader::new(whole))
    }

    /// Refuses keys that no load has.
    fn check_names(&self) -> Result<(), LoadError> {
        let known = || LoadKind::ALL.into_iter().flat_map(LoadKind::keys).chain(ENDPOINTS);
        match self.given().find(|key| !known().any(|other| other == *key)) {
            None => Ok(()),
            Some(unknown) => {
                let hint = match mistakes::closest(unknown, known()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "its kind says what a load has: see `netrig schema suite`".to_owned(),
                };
                let what = format!("unknown field `{unknown}`");
                Err(LoadError { what, hint: Some(hint), at: self.place(unknown) })
            }
        }
    }
}

/// Keys that are read together.
#[derive(Debug, Clone, Copy)]
pub(in crate::suite) struct Group {
    pub keys: &'static [&'static str],
    /// Of an object with these keys.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

/// Reads a load's table group by group.
#[derive(Debug)]
pub(in crate::suite) struct Reader<'a> {
    table: LoadTable<'a>,
    groups: Vec<Group>,
}

impl<'a> Reader<'a> {
    pub fn new(table: LoadTable<'a>) -> Self {
        Self { table, groups: Vec::new() }
    }

    /// What the table says under the keys of `T`.
    pub fn group<T: DeserializeOwned + JsonSchema>(&mut self) -> Result<T, LoadError> {
        let keys = names::of::<T>();
        self.groups.push(Group { keys, schema: T::json_schema });
        let part = keys.iter().filter_map(|key| self.table.keys.remove_entry(*key)).collect();
        let part = Spanned::new(self.table.span(), DeValue::Table(part));
        Ok(T::deserialize(ValueDeserializer::from(part))?)
    }

    /// The groups of keys that were read.
    pub fn into_groups(self) -> Vec<Group> {
        self.groups
    }
}

impl From<toml::de::Error> for LoadError {
    fn from(error: toml::de::Error) -> Self {
        let (what, hint) = mistakes::of_serde(error.message());
        Self { what, hint, at: error.span() }
    }
}
