//! Settings of a datapath as suites say them.

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use crate::requirements::Settings;

/// What is wrong with settings, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}{}", .hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default())]
pub struct Mistake {
    /// The key that is to blame, where it is one.
    pub key: Option<String>,
    pub what: String,
    pub hint: Option<String>,
}

impl Mistake {
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { key: None, what: what.into(), hint: Some(hint.into()) }
    }

    #[must_use]
    pub fn at(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// The mistake that `check` finds in `settings`, at the key without which it would not be.
    ///
    /// # Errors
    /// The mistake.
    pub fn blamed<T>(settings: &Settings, check: impl Fn(&Settings) -> Result<T, Self>) -> Result<T, Self> {
        check(settings).map_err(|mistake| {
            let without = |key: &String| {
                let mut others = settings.clone();
                others.remove(key);
                others
            };
            let is_to_blame = |key: &&String| check(&without(key)).err().is_none_or(|other| other.what != mistake.what);
            match (&mistake.key, settings.keys().find(is_to_blame)) {
                (None, Some(key)) => mistake.at(key.clone()),
                _ => mistake,
            }
        })
    }
}

/// Settings as a datapath's own type, which refuses keys that it does not have.
///
/// # Errors
/// Says which key is wrong.
pub fn read_settings<T: DeserializeOwned>(settings: &Settings) -> Result<T, Mistake> {
    Mistake::blamed(settings, |settings| {
        serde_json::from_value(Value::Object(settings.clone())).map_err(|error| {
            let (what, hint) = rig_cli::mistakes::of_serde(&error.to_string());
            Mistake { key: None, what, hint }
        })
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "what is read is not looked at")]
    struct TestSettings {
        size: Option<u32>,
        word: Option<String>,
    }

    fn settings(value: Value) -> Settings {
        let Value::Object(settings) = value else { panic!("{value}") };
        settings
    }

    #[test]
    fn a_mistake_is_in_the_key_that_it_is_in() {
        let read = |value| read_settings::<TestSettings>(&settings(value));
        assert!(read(json!({"size": 3, "word": "x"})).is_ok());
        let mistake = read(json!({"word": "x", "size": -3})).unwrap_err();
        assert_eq!(mistake.key.as_deref(), Some("size"), "{mistake}");
        let mistake = read(json!({"word": "x", "sise": 3})).unwrap_err();
        assert_eq!(mistake.key.as_deref(), Some("sise"), "{mistake}");
        assert!(mistake.what.contains("sise"), "{mistake}");
        // Two keys that exclude each other: either would do.
        let both = Mistake::blamed(&settings(json!({"a": 1, "b": 2, "c": 3})), |settings| {
            if settings.contains_key("b") && settings.contains_key("c") {
                return Err(Mistake::new("both b and c", "remove one"));
            }
            Ok(())
        });
        assert_eq!(both.unwrap_err().key.as_deref(), Some("b"));
    }
}
