//! What is asked for.

use std::fmt;
use std::time::Duration;

use rig_stats::units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How entries are spread; Windows' VrssQueueSchedulingMode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Everything on the base CPU.
    StaticVmq,
    /// Spread evenly over all CPUs that may be used, for good.
    StaticVrss,
    /// As many CPUs as the load needs.
    #[default]
    Dynamic,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::StaticVmq, Self::StaticVrss, Self::Dynamic];

    pub fn name(self) -> &'static str {
        match self {
            Self::StaticVmq => "static-vmq",
            Self::StaticVrss => "static-vrss",
            Self::Dynamic => "dynamic",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a user asks of one interface. What is in force may differ: [`effective`](crate::effective()).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Settings {
    /// VrssQueueSchedulingMode.
    pub mode: Mode,
    /// VrssMaxQueuePairs: most distinct CPUs that entries are on; at least 1.
    pub max_queue_pairs: u32,
    /// VrssMinQueuePairs: fewest distinct CPUs that entries are on; at least 1.
    pub min_queue_pairs: u32,
    /// VrssExcludePrimaryProcessor: no entry is on the base CPU, which only distributes.
    pub exclude_primary: bool,
    /// VrssIndependentHostSpreading: spread also when what is behind the interface does not spread itself.
    pub independent_host_spreading: bool,
    /// The CPU that packets are to reach first. Without it, one that suits.
    pub base: Option<u32>,
    /// The CPUs that may be used, SMT siblings and isolated ones among them where they are named. Without it, all that are
    /// online but those two kinds.
    pub cpus: Option<Vec<u32>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Dynamic,
            max_queue_pairs: 16,
            min_queue_pairs: 1,
            exclude_primary: false,
            independent_host_spreading: false,
            base: None,
            cpus: None,
        }
    }
}

/// A value of [`Settings`] or [`Tuning`] that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct SettingsError {
    what: String,
}

fn refuse<T>(what: String) -> Result<T, SettingsError> {
    Err(SettingsError { what })
}

impl Settings {
    /// # Errors
    /// When a number of queue pairs is 0, the least is above the most, or no CPU is allowed.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.max_queue_pairs == 0 || self.min_queue_pairs == 0 {
            return refuse("max_queue_pairs and min_queue_pairs are at least 1".to_owned());
        }
        if self.min_queue_pairs > self.max_queue_pairs {
            return refuse(format!(
                "min_queue_pairs is {}, more than max_queue_pairs, which is {}",
                self.min_queue_pairs, self.max_queue_pairs
            ));
        }
        if self.cpus.as_ref().is_some_and(Vec::is_empty) {
            return refuse("cpus names no CPU; leave it out for all".to_owned());
        }
        Ok(())
    }
}

/// Numbers that the policy decides by. The defaults are those that docs/decisions/spreading-policy.md gives reasons for.
///
/// Loads are fractions of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Tuning {
    /// A CPU above this load is hot: entries leave it.
    pub hi: f64,
    /// Fewer CPUs are tried only if none of them is predicted above this load.
    pub lo: f64,
    /// CPUs that take entries are filled up to this load.
    pub fill: f64,
    /// Below so many packets per second an interface is idle.
    pub park_rate: f64,
    /// How long it is idle until its entries are parked.
    pub park_after: Span,
    /// On how many CPUs entries are parked, at most.
    pub park_cpus: u32,
    /// How long the parked placement stays after a burst began.
    pub keep_parked: Span,
    /// How long the load has to be low until fewer CPUs are tried.
    pub hold: Span,
    /// What doubling of `hold` ends at.
    pub most_hold: Span,
    /// Fewer CPUs that prove too few within this time, or within `hold` where that is longer, double `hold`.
    pub regret: Span,
    /// After so long without such a mistake, `hold` is as at the beginning.
    pub forgive: Span,
    /// How long an entry stays at least where it came.
    pub dwell: Span,
    /// Looks at a hot CPU until entries leave it.
    pub looks: u32,
    /// What measured rates of a CPU without idle time are multiplied by: what it could not take is not seen.
    pub hidden: f64,
    /// The most loaded CPU above the mean by this: entries move between CPUs in use.
    pub imbalance: f64,
    /// How long it is so, until they do.
    pub imbalance_after: Span,
    /// Moves a minute that are not urgent (coalescing, rebalancing) of entries with traffic; at least one of each entry is
    /// allowed.
    pub moves_per_minute: u32,
    /// Other work on the base CPU above this load, for as long as `imbalance_after`: the base moves, where it can.
    pub base_other: f64,
    /// What a packet costs on another NUMA node, to what it costs on its own, until that is measured.
    pub numa_factor: f64,
    /// What distributing a packet costs, to what processing it costs, until that is measured.
    pub distribute_factor: f64,
    /// How long after moves their effect is watched, to take them back.
    pub watch: Span,
    /// How long CPUs are avoided to which moves were taken back.
    pub grudge: Span,
    /// How long a move that the actuator refused is not tried again.
    pub retry: Span,
}

impl Default for Tuning {
    fn default() -> Self {
        let millis = |millis| Span(Duration::from_millis(millis));
        let seconds = |seconds| Span(Duration::from_secs(seconds));
        Self {
            hi: 0.85,
            lo: 0.78,
            fill: 0.75,
            park_rate: 100.0,
            park_after: seconds(1),
            park_cpus: 8,
            keep_parked: seconds(2),
            hold: seconds(3),
            most_hold: seconds(60),
            regret: seconds(5),
            forgive: seconds(300),
            dwell: millis(200),
            looks: 2,
            hidden: 1.5,
            imbalance: 0.15,
            imbalance_after: seconds(3),
            moves_per_minute: 60,
            base_other: 0.3,
            numa_factor: 1.3,
            distribute_factor: 0.35,
            watch: seconds(1),
            grudge: seconds(30),
            retry: seconds(2),
        }
    }
}

impl Tuning {
    /// # Errors
    /// When a fraction is out of its range, `fill <= lo < hi` does not hold, or a time or number is zero that may not be.
    pub fn check(&self) -> Result<(), SettingsError> {
        let fractions = [
            ("hi", self.hi),
            ("lo", self.lo),
            ("fill", self.fill),
            ("imbalance", self.imbalance),
            ("base_other", self.base_other),
        ];
        for (name, value) in fractions {
            if !(value > 0.0 && value <= 1.0) {
                return refuse(format!("{name} is {value}, and has to be above 0 and at most 1"));
            }
        }
        // With these in any other order, what one rule does the other takes back for ever.
        if !(self.fill <= self.lo && self.lo < self.hi) {
            return refuse(format!(
                "fill {} <= lo {} < hi {} does not hold, so that CPUs would be taken and given back without end",
                self.fill, self.lo, self.hi
            ));
        }
        let factors = [
            ("hidden", self.hidden, 1.0, 4.0),
            ("numa_factor", self.numa_factor, 1.0, 4.0),
            ("distribute_factor", self.distribute_factor, 0.0, 4.0),
            ("park_rate", self.park_rate, 0.0, 1e9),
        ];
        for (name, value, least, most) in factors {
            if !(value >= least && value <= most) {
                return refuse(format!("{name} is {value}, and has to be from {least} to {most}"));
            }
        }
        let times = [
            ("park_after", self.park_after),
            ("hold", self.hold),
            ("most_hold", self.most_hold),
            ("watch", self.watch),
            ("imbalance_after", self.imbalance_after),
        ];
        for (name, Span(time)) in times {
            if time.is_zero() {
                return refuse(format!("{name} is 0"));
            }
        }
        if self.most_hold < self.hold {
            return refuse(format!("most_hold is {}, less than hold, which is {}", self.most_hold, self.hold));
        }
        for (name, number) in [("park_cpus", self.park_cpus), ("looks", self.looks)] {
            if number == 0 {
                return refuse(format!("{name} is 0"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_order() {
        Settings::default().check().unwrap();
        Tuning::default().check().unwrap();
    }

    #[test]
    fn each_value_that_cannot_be_meant_is_refused_by_name() {
        let zero = Span(Duration::ZERO);
        let good = Tuning::default();
        let cases = [
            ("hi", Tuning { hi: 1.2, ..good }),
            ("lo", Tuning { lo: f64::NAN, ..good }),
            ("fill", Tuning { fill: 0.0, ..good }),
            ("lo 0.85 < hi", Tuning { lo: 0.85, ..good }),
            ("fill 0.8 <=", Tuning { fill: 0.8, ..good }),
            ("hidden", Tuning { hidden: 0.5, ..good }),
            ("numa_factor", Tuning { numa_factor: f64::INFINITY, ..good }),
            ("park_after", Tuning { park_after: zero, ..good }),
            ("most_hold", Tuning { most_hold: Span(Duration::from_secs(2)), ..good }),
            ("park_cpus", Tuning { park_cpus: 0, ..good }),
            ("looks", Tuning { looks: 0, ..good }),
        ];
        for (name, tuning) in cases {
            let said = tuning.check().unwrap_err().to_string();
            assert!(said.contains(name), "{name}: {said}");
        }
        let asked = Settings { min_queue_pairs: 4, max_queue_pairs: 2, ..Settings::default() };
        assert!(asked.check().unwrap_err().to_string().contains("min_queue_pairs is 4"));
        assert!(Settings { max_queue_pairs: 0, ..Settings::default() }.check().is_err());
        assert!(Settings { cpus: Some(vec![]), ..Settings::default() }.check().is_err());
    }
}
