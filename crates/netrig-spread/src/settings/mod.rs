//! `spread.toml`, and settings that are said on the command line or while the spreader runs.
//!
//! ```text
//! text --Letter--> Settings: rules, the first that an interface's name matches decides
//! a rule's settings + Changes ──> rig_spread::Settings of one interface
//! ```

mod changes;
mod pattern;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

pub use changes::{AnyKeyword, SchedulingMode, SettingChange, SettingChanges};
pub use pattern::Pattern;
use rig_cli::forms::OneOrMany;
use rig_cli::mistakes::{self, FileError};
use rig_cli::source::Source;
use rig_spread::Tuning;
use rig_stats::units::Span;
use rig_sys::socket::parse_address;
use serde::Deserialize;
use toml::Spanned;

use crate::actuator::Kind;

/// All that a file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// How often it looks while packets come: 1 ms to 1 s.
    pub tick: Duration,
    /// An interface is of the first rule that its name matches.
    pub rules: Vec<Rule>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { metrics: None, tick: TICK, rules: Vec::new() }
    }
}

const TICK: Duration = Duration::from_millis(10);

/// What holds for the interfaces whose names match.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub name: Pattern,
    /// What may move its entries, the most preferred first.
    pub actuators: Vec<Kind>,
    pub settings: rig_spread::Settings,
    pub tuning: Tuning,
}

impl Rule {
    /// With all defaults.
    pub fn of(name: Pattern) -> Self {
        Self {
            name,
            actuators: Kind::PREFERRED.to_vec(),
            settings: rig_spread::Settings::default(),
            tuning: Tuning::default(),
        }
    }
}

/// The letter of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    metrics: Option<Spanned<String>>,
    tick: Option<Spanned<Span>>,
    #[serde(default)]
    interface: Vec<Spanned<InterfaceSection>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterfaceSection {
    name: Spanned<String>,
    actuator: Option<Spanned<OneOrMany<String>>>,
    #[serde(alias = "VrssQueueSchedulingMode")]
    mode: Option<SchedulingMode>,
    #[serde(alias = "VrssMaxQueuePairs", alias = "VmmqQueuePairs")]
    max_queue_pairs: Option<u32>,
    #[serde(alias = "VrssMinQueuePairs")]
    min_queue_pairs: Option<u32>,
    #[serde(alias = "VrssExcludePrimaryProcessor")]
    exclude_primary: Option<bool>,
    #[serde(alias = "VrssIndependentHostSpreading")]
    independent_host_spreading: Option<bool>,
    #[serde(alias = "BaseProcessorNumber")]
    base: Option<u32>,
    cpus: Option<rig_sys::cpu::CpuSet>,
    tuning: Option<Spanned<Tuning>>,
}

impl Settings {
    /// # Errors
    /// With the line of what is wrong, and the next step.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        Self::parse(&path.display().to_string(), &mistakes::load_text(path)?)
    }

    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let source = Source { file, text };
        let letter: SettingsFile = source.read()?;
        let wrong = |span, what: String, hint: Option<&str>| source.error(span, what, hint);
        let mut settings = Self::default();
        if let Some(metrics) = &letter.metrics {
            let hint = Some("write an address and a port: metrics = \"127.0.0.1:9401\"");
            let what = |error| format!("'{}' is not an address to serve metrics at: {error}", metrics.as_ref());
            let address = parse_address(metrics.as_ref());
            settings.metrics = Some(address.map_err(|error| wrong(metrics.span(), what(error), hint))?);
        }
        if let Some(tick) = &letter.tick {
            let Span(asked) = *tick.as_ref();
            if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&asked) {
                return Err(wrong(
                    tick.span(),
                    format!("a tick of {} is not between 1 ms and 1 s", tick.as_ref()),
                    None,
                ));
            }
            settings.tick = asked;
        }
        if letter.interface.is_empty() {
            let hint = "name one: [[interface]] with name = \"eth0\", or a pattern such as \"veth*\"";
            return Err(wrong(0..0, "it names no interface".to_owned(), Some(hint)));
        }
        for interface in letter.interface {
            let span = interface.span();
            let letter = interface.into_inner();
            let name: Pattern = letter.name.as_ref().parse().map_err(|what| wrong(letter.name.span(), what, None))?;
            if settings.rules.iter().any(|rule| rule.name == name) {
                return Err(wrong(letter.name.span(), format!("there are two rules for '{name}'"), None));
            }
            let mut rule = Rule::of(name);
            if let Some(said) = &letter.actuator {
                rule.actuators = actuators(said.as_ref()).map_err(|what| wrong(said.span(), what, None))?;
            }
            let changes = SettingChanges {
                mode: letter.mode,
                max_queue_pairs: letter.max_queue_pairs,
                min_queue_pairs: letter.min_queue_pairs,
                exclude_primary: letter.exclude_primary,
                independent_host_spreading: letter.independent_host_spreading,
                base: letter.base.map(SettingChange::This),
                cpus: letter.cpus.map(SettingChange::This),
            };
            rule.settings = changes.over(&rule.settings);
            rule.settings.check().map_err(|error| wrong(span, error.to_string(), None))?;
            if let Some(tuning) = letter.tuning {
                tuning.as_ref().check().map_err(|error| wrong(tuning.span(), error.to_string(), None))?;
                rule.tuning = tuning.into_inner();
            }
            settings.rules.push(rule);
        }
        Ok(settings)
    }

    /// The rule that decides about an interface.
    pub fn rule_for(&self, interface: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.name.matches(interface))
    }
}

/// `auto`, one kind, or several by preference.
fn actuators(said: &OneOrMany<String>) -> Result<Vec<Kind>, String> {
    match said {
        OneOrMany::One(word) if word == "auto" => Ok(Kind::PREFERRED.to_vec()),
        OneOrMany::Many(words) if words.is_empty() => Err("an empty list of actuators: write \"auto\"".to_owned()),
        words => words.iter().map(|word| word.parse()).collect(),
    }
}
