//! Settings from bytes of a fuzzer.

use crate::settings::Settings;

/// Reads settings as a file has them, and asks which rule decides about interfaces that they name. An error is an answer. How many
/// rules there are.
///
/// # Panics
/// When a rule has settings that the policy does not take, or none decides about an interface that one is for.
pub fn exercise(text: &str) -> usize {
    let Ok(settings) = Settings::parse("spread.toml", text).map_err(|error| error.to_string()) else { return 0 };
    for rule in &settings.rules {
        assert!(rule.settings.check().is_ok() && rule.tuning.check().is_ok(), "{rule:?}");
        assert!(!rule.actuators.is_empty(), "{rule:?}");
        // One that the pattern is for, with as little as it allows in the place of its wildcards.
        let name = rule.name.to_string().replace('*', "").replace('?', "x");
        assert!(rule.name.matches(&name), "{rule:?}");
        let first = settings.rules.iter().find(|rule| rule.name.matches(&name));
        assert_eq!(settings.rule_for(&name), first);
    }
    settings.rules.len()
}
