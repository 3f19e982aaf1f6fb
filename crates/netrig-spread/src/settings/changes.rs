//! Settings of an interface that are said, under Windows' names or ours; what is not said stays.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use clap::builder::BoolishValueParser;
use rig_spread::{Mode, Settings};
use rig_sys::cpu::CpuSet;
use serde::{Deserialize, Serialize};

/// A mode by our name or Windows': `static-vrss`, `StaticVrss`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SchedulingMode(pub Mode);

impl FromStr for SchedulingMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
        let found = Mode::ALL.into_iter().find(|mode| plain(mode.name()) == plain(text));
        found.map(Self).ok_or_else(|| format!("'{text}' is not a mode: {}", Mode::ALL.map(Mode::name).join(", ")))
    }
}

impl TryFrom<String> for SchedulingMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SchedulingMode> for String {
    fn from(mode: SchedulingMode) -> Self {
        mode.to_string()
    }
}

impl fmt::Display for SchedulingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value, or `any`: as if nothing had been said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingChange<T> {
    Any(AnyKeyword),
    This(T),
}

/// The word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AnyKeyword {
    #[serde(rename = "any")]
    Any,
}

impl<T: FromStr<Err: fmt::Display>> FromStr for SettingChange<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "any" => Ok(Self::Any(AnyKeyword::Any)),
            text => text.parse().map(Self::This).map_err(|error| format!("neither 'any' nor a value: {error}")),
        }
    }
}

impl<T> SettingChange<T> {
    /// What is asked for after this was said.
    fn value(&self) -> Option<&T> {
        match self {
            Self::Any(_) => None,
            Self::This(value) => Some(value),
        }
    }
}

/// What is to be another than before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(default, deny_unknown_fields)]
pub struct SettingChanges {
    /// static-vmq: all on the base CPU; static-vrss: spread for good; dynamic: as many CPUs as the load needs
    #[arg(long, visible_alias = "VrssQueueSchedulingMode", value_name = "MODE")]
    pub mode: Option<SchedulingMode>,
    /// Most CPUs that entries are on [default: 16]
    #[arg(long, visible_aliases = ["VrssMaxQueuePairs", "VmmqQueuePairs"], value_name = "N")]
    pub max_queue_pairs: Option<u32>,
    /// Fewest CPUs that entries are on [default: 1]
    #[arg(long, visible_alias = "VrssMinQueuePairs", value_name = "N")]
    pub min_queue_pairs: Option<u32>,
    /// Whether no entry is on the base CPU [default: false]
    #[arg(long, visible_alias = "VrssExcludePrimaryProcessor", value_name = "BOOL", value_parser = BoolishValueParser::new(), hide_short_help = true)]
    pub exclude_primary: Option<bool>,
    /// Whether to spread also what is for a receiver that does not spread itself [default: false]
    #[arg(long, visible_alias = "VrssIndependentHostSpreading", value_name = "BOOL", value_parser = BoolishValueParser::new(), hide_short_help = true)]
    pub independent_host_spreading: Option<bool>,
    /// The CPU that all is on when one will do; any: one that suits [default: any]
    #[arg(long, visible_alias = "BaseProcessorNumber", value_name = "CPU")]
    pub base: Option<SettingChange<u32>>,
    /// The CPUs that may be used, e.g. 1-3,6; any: all, one thread of each core, none that is isolated [default: any]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<SettingChange<CpuSet>>,
}

impl SettingChanges {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The settings with what is said of them.
    pub fn over(&self, before: &Settings) -> Settings {
        Settings {
            mode: self.mode.map_or(before.mode, |SchedulingMode(mode)| mode),
            max_queue_pairs: self.max_queue_pairs.unwrap_or(before.max_queue_pairs),
            min_queue_pairs: self.min_queue_pairs.unwrap_or(before.min_queue_pairs),
            exclude_primary: self.exclude_primary.unwrap_or(before.exclude_primary),
            independent_host_spreading: self.independent_host_spreading.unwrap_or(before.independent_host_spreading),
            base: self.base.as_ref().map_or(before.base, |base| base.value().copied()),
            cpus: match &self.cpus {
                Some(cpus) => cpus.value().map(|cpus| cpus.as_slice().to_vec()),
                None => before.cpus.clone(),
            },
        }
    }
}

impl SettingChanges {
    /// These, and what is said after them.
    #[must_use]
    pub fn with(&self, later: &Self) -> Self {
        Self {
            mode: later.mode.or(self.mode),
            max_queue_pairs: later.max_queue_pairs.or(self.max_queue_pairs),
            min_queue_pairs: later.min_queue_pairs.or(self.min_queue_pairs),
            exclude_primary: later.exclude_primary.or(self.exclude_primary),
            independent_host_spreading: later.independent_host_spreading.or(self.independent_host_spreading),
            base: later.base.clone().or_else(|| self.base.clone()),
            cpus: later.cpus.clone().or_else(|| self.cpus.clone()),
        }
    }
}
