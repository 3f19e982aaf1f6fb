//! Texts of files: what is read of them, where it stands, and errors that say so.

use std::borrow::Cow;
use std::ops::Range;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::mistakes::{FileError, line, of_serde};

/// A file with its text.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// As its user calls it.
    pub file: &'a str,
    pub text: &'a str,
}

impl Source<'_> {
    /// What the text is as TOML.
    ///
    /// # Errors
    /// When it is none, or does not have the form of `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        toml::from_str(self.text).map_err(|error: toml::de::Error| {
            let (what, hint) = of_serde(error.message());
            let line = error.span().map(|span| self.line(&span));
            FileError { file: self.file.to_owned(), line, what, hint }
        })
    }

    /// That something is wrong there.
    pub fn error(&self, span: Range<usize>, what: impl Into<String>, hint: Option<&str>) -> FileError {
        FileError { line: Some(self.line(&span)), ..self.whole(what, hint) }
    }

    /// That something is wrong with the file as a whole.
    pub fn whole(&self, what: impl Into<String>, hint: Option<&str>) -> FileError {
        FileError { file: self.file.to_owned(), line: None, what: what.into(), hint: hint.map(str::to_owned) }
    }

    /// In which line something begins, from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        line(self.text, span)
    }
}

/// A value of a file with its span: [`toml::Spanned`], which JSON Schemas describe as they do its value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Spanned<T>(toml::Spanned<T>);

impl<T> Spanned<T> {
    pub fn new(span: Range<usize>, value: T) -> Self {
        Self(toml::Spanned::new(span, value))
    }

    pub fn span(&self) -> Range<usize> {
        self.0.span()
    }

    pub fn get_ref(&self) -> &T {
        self.0.get_ref()
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct File {
        /// Of it.
        name: Spanned<String>,
        size: Option<Spanned<u32>>,
    }

    #[test]
    fn what_is_read_knows_where_it_stands() {
        let source = Source { file: "f.toml", text: "\nname = 'a'\nsize = 3\n" };
        let file: File = source.read().unwrap();
        let size = file.size.unwrap();
        assert_eq!((file.name.get_ref().as_str(), *size.get_ref()), ("a", 3));
        assert_eq!((source.line(&file.name.span()), source.line(&size.span())), (2, 3));
        let error = source.error(size.span(), "3 is too much", Some("choose 2"));
        assert_eq!(error.to_string(), "f.toml:3: 3 is too much\n  choose 2");
        assert_eq!(source.whole("it is empty", None).to_string(), "f.toml: it is empty");
    }

    #[test]
    fn what_is_not_read_is_told_with_its_line() {
        for (text, said) in [
            ("name = 'a'\nsiez = 3\n", "f.toml:2: unknown field `siez`\n  did you mean `size`?"),
            ("name = 'a'\n\nsize = 'x'\n", "f.toml:3: invalid type: string \"x\", expected u32"),
        ] {
            let error = Source { file: "f.toml", text }.read::<File>().unwrap_err();
            assert_eq!(error.to_string(), said);
        }
    }

    #[test]
    fn schemas_are_those_of_the_values() {
        let schema = schemars::schema_for!(File);
        assert_eq!(schema.pointer("/properties/name/description").unwrap(), "Of it.");
        assert_eq!(schema.pointer("/properties/name/type").unwrap(), "string");
        assert_eq!(*schema.pointer("/required").unwrap(), serde_json::json!(["name"]));
    }
}
