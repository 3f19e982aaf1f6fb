//! What happens when in a trial: phases, each with what changes when it begins and how long it lasts.
//!
//! Warm-up, window and cool-down are the simplest programme: one phase without a name. The warm-up is carried with what the
//! first phase begins with, the cool-down with what the last one left.

use std::time::Duration;

use rig_testbed::datapath::Settings;
use serde::{Deserialize, Serialize};

use crate::claim::{Metric, Side, Threshold};
pub use crate::record::ScenarioLoad;

/// Longest window for measuring what a load carries without its rate.
pub const LIMIT_WINDOW: Duration = Duration::from_secs(2);

/// The window of a trial, divided into phases.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Programme {
    /// How far apart counters are read for series over time; `None`: there are none.
    pub sample: Option<Duration>,
    /// At least one.
    pub phases: Vec<Phase>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What claims call it; empty of the only phase of a plain window.
    pub name: String,
    /// What changes when it begins.
    #[serde(rename = "begins")]
    pub steps: Vec<Step>,
    pub lasts: PhaseLength,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A load has this rate from now on; 0 stops it until the next.
    Rate { load: ScenarioLoad, rate: Rate },
    /// Agents of a datapath are told something.
    Command(Command),
}

/// What agents of a datapath are told: one of [`rig_testbed::datapath::Datapath::commands`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    pub datapath: String,
    /// The node whose agent is told; `None`: each node on which the datapath runs.
    pub node: Option<String>,
    pub name: String,
    pub arguments: Settings,
}

/// In the unit that the load's own rate has: transactions per second of a pair, payload bytes per second of a sending
/// thread, connections or requests per second of packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rate {
    At(f64),
    /// This share of the limit, which is measured before.
    OfLimit(f64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseLength {
    /// As long as the run's window.
    Window,
    Time(Duration),
    Until(WaitCondition),
}

/// A phase that ends when something has come about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitCondition {
    pub condition: Condition,
    /// For how long it has to be so without a break.
    pub hold: Duration,
    /// The phase ends after this time all the same, and the record says that it was in vain.
    pub deadline: Duration,
}

/// A figure of the last interval, and what it is to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// As the suite writes it, e.g. `throughput >= 5Gbit`.
    pub text: String,
    pub side: Side,
    pub metric: Metric,
    pub threshold: Threshold,
}

impl Default for Programme {
    /// A plain window.
    fn default() -> Self {
        let phase = Phase { name: String::new(), steps: Vec::new(), lasts: PhaseLength::Window };
        Self { sample: None, phases: vec![phase] }
    }
}

impl Programme {
    /// Whether it is a plain window: nothing changes in it, and nothing is sampled.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the limit of the scenario's load has to be known.
    pub fn needs_limit(&self) -> bool {
        self.phases.iter().flat_map(Phase::rates).any(|(_, rate)| matches!(rate, Rate::OfLimit(_)))
    }

    /// Whether the rate of a load changes.
    pub fn changes(&self, which: ScenarioLoad) -> bool {
        self.phases.iter().flat_map(Phase::rates).any(|(load, _)| load == which)
    }

    pub fn phase(&self, name: &str) -> Option<usize> {
        self.phases.iter().position(|phase| phase.name == name)
    }

    /// How long it takes at most.
    pub fn longest(&self, window: Duration) -> Duration {
        let lasts = self.phases.iter().map(|phase| phase.lasts.at_most(window));
        lasts.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// The rate that a load begins with, as far as the first phase says.
    pub fn first_rate(&self, which: ScenarioLoad) -> Option<Rate> {
        self.phases.first()?.rates().find(|(load, _)| *load == which).map(|(_, rate)| rate)
    }
}

impl Phase {
    /// What loads are told when it begins.
    pub fn rates(&self) -> impl Iterator<Item = (ScenarioLoad, Rate)> + '_ {
        self.steps.iter().filter_map(|step| match step {
            Step::Rate { load, rate } => Some((*load, *rate)),
            Step::Command(_) => None,
        })
    }

    /// What datapaths are told when it begins, in this order.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        self.steps.iter().filter_map(|step| match step {
            Step::Command(command) => Some(command),
            Step::Rate { .. } => None,
        })
    }
}

impl PhaseLength {
    /// The longest that it can be.
    pub fn at_most(&self, window: Duration) -> Duration {
        match self {
            Self::Window => window,
            Self::Time(time) => *time,
            Self::Until(wait) => wait.deadline,
        }
    }
}

impl Rate {
    /// Per second; `limit` is that of the load.
    pub fn per_second(self, limit: f64) -> f64 {
        match self {
            Self::At(rate) => rate,
            Self::OfLimit(share) => share * limit,
        }
    }
}

impl Condition {
    pub fn holds(&self, value: f64) -> bool {
        self.threshold.holds(value)
    }
}
