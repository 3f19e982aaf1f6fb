//! Names of figures: which metric of which side of which scenario.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One figure of a scenario, measured once in every trial.
///
/// Written `SCENARIO.METRIC` or `SCENARIO.SIDE.METRIC`: `D.throughput`, `B.sender.cpu`. Throughput is the receiver's and
/// retransmits are the sender's unless a side is named; `cpu` and `service_demand` have no side of their own and need one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FigureRef {
    pub scenario: String,
    pub side: Side,
    pub metric: Metric,
}

/// The end of the load that a figure belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Sender,
    Receiver,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Payload, bits per second.
    Throughput,
    /// Share of the node's CPU time that was not idle, percent of all its CPUs.
    Cpu,
    /// CPU time of the node for each KB (1024 bytes) of payload, microseconds.
    ServiceDemand,
    /// Segments sent again inside the window.
    Retransmits,
}

/// Why a text names no figure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {hint}")]
pub struct FigureError {
    pub what: String,
    /// What to write instead.
    pub hint: String,
}

impl Side {
    pub const ALL: [Self; 2] = [Self::Sender, Self::Receiver];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }
}

impl Metric {
    pub const ALL: [Self; 4] = [Self::Throughput, Self::Cpu, Self::ServiceDemand, Self::Retransmits];

    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Cpu => "cpu",
            Self::ServiceDemand => "service_demand",
            Self::Retransmits => "retransmits",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "bit/s",
            Self::Cpu => "%",
            Self::ServiceDemand => "us/KB",
            Self::Retransmits => "segments",
        }
    }

    /// The side that is meant when none is named; `None` when one has to be.
    pub fn default_side(self) -> Option<Side> {
        match self {
            Self::Throughput => Some(Side::Receiver),
            Self::Retransmits => Some(Side::Sender),
            Self::Cpu | Self::ServiceDemand => None,
        }
    }
}

/// Whether `text` can name a scenario: a letter, then letters, digits, `_` and `-`.
pub fn is_scenario_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn error(what: impl Into<String>, hint: impl Into<String>) -> FigureError {
    FigureError { what: what.into(), hint: hint.into() }
}

/// The one of `all` that is called `text`; `kind` says what they are.
fn named<T: Copy>(kind: &str, text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, FigureError> {
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| {
        let known = all.iter().map(|one| format!("`{}`", name(*one))).collect::<Vec<_>>().join(", ");
        let hint = if text.contains('-') {
            "a `-` inside a name belongs to the name: put spaces around it to subtract".into()
        } else {
            format!("a {kind} is one of {known}")
        };
        error(format!("unknown {kind} `{text}`"), hint)
    })
}

impl FigureRef {
    /// From the parts between the dots. An error comes with the index of the part that is at fault.
    pub(super) fn from_parts(parts: &[&str]) -> Result<Self, (usize, FigureError)> {
        let (scenario, side, metric) = match parts {
            [scenario, metric] => (*scenario, None, *metric),
            [scenario, side, metric] => (*scenario, Some(*side), *metric),
            [one] => {
                let hint =
                    format!("a figure is SCENARIO.METRIC or SCENARIO.SIDE.METRIC, for example `{one}.throughput`");
                return Err((0, error(format!("`{one}` is not a figure"), hint)));
            }
            _ => {
                let hint = "a figure is SCENARIO.METRIC or SCENARIO.SIDE.METRIC, for example `D.sender.cpu`";
                return Err((0, error(format!("`{}` has too many parts", parts.join(".")), hint)));
            }
        };
        if !is_scenario_id(scenario) {
            let hint = "it begins with a letter, followed by letters, digits, `_` and `-`";
            return Err((0, error(format!("`{scenario}` cannot name a scenario"), hint)));
        }
        let at_metric = parts.len() - 1;
        let side = match side {
            Some(side) => Some(side.parse().map_err(|e| (1, e))?),
            None => None,
        };
        let metric: Metric = metric.parse().map_err(|e| (at_metric, e))?;
        let side = side.or(metric.default_side()).ok_or_else(|| {
            let what = format!("`{scenario}.{metric}` does not say whose {metric} it is");
            (at_metric, error(what, format!("write `{scenario}.sender.{metric}` or `{scenario}.receiver.{metric}`")))
        })?;
        Ok(Self { scenario: scenario.to_owned(), side, metric })
    }
}

impl FromStr for Side {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<Self, FigureError> {
        named("side", text, &Self::ALL, Self::name)
    }
}

impl FromStr for Metric {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<Self, FigureError> {
        named("metric", text, &Self::ALL, Self::name)
    }
}

impl FromStr for FigureRef {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<Self, FigureError> {
        Self::from_parts(&text.split('.').collect::<Vec<_>>()).map_err(|(_, error)| error)
    }
}

impl TryFrom<String> for FigureRef {
    type Error = FigureError;

    fn try_from(text: String) -> Result<Self, FigureError> {
        text.parse()
    }
}

impl From<FigureRef> for String {
    fn from(figure: FigureRef) -> Self {
        figure.to_string()
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for FigureRef {
    /// In the shortest form that reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, side, metric } = self;
        if metric.default_side() == Some(*side) {
            write!(f, "{scenario}.{metric}")
        } else {
            write!(f, "{scenario}.{side}.{metric}")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn figure(text: &str) -> FigureRef {
        text.parse().unwrap()
    }

    #[test]
    fn sides_have_their_defaults() {
        assert_eq!(figure("D.throughput"), figure("D.receiver.throughput"));
        assert_eq!(figure("D.retransmits"), figure("D.sender.retransmits"));
        assert_eq!(figure("D.sender.throughput").side, Side::Sender);
        assert_eq!(figure("B-2x.sender.cpu").scenario, "B-2x");
    }

    #[test]
    fn errors_name_the_next_step() {
        let message = |text: &str| text.parse::<FigureRef>().unwrap_err().to_string();
        assert_eq!(message("D.cpu"), "`D.cpu` does not say whose cpu it is; write `D.sender.cpu` or `D.receiver.cpu`");
        assert!(
            message("D.service_demand").ends_with("write `D.sender.service_demand` or `D.receiver.service_demand`")
        );
        assert_eq!(message("D.middle.cpu"), "unknown side `middle`; a side is one of `sender`, `receiver`");
        assert_eq!(
            message("D.sender.speed"),
            "unknown metric `speed`; a metric is one of `throughput`, `cpu`, `service_demand`, `retransmits`"
        );
        assert!(message("D").contains("for example `D.throughput`"));
        assert!(message("a.b.c.d").contains("too many parts"));
        assert!(message("2D.throughput").contains("`2D` cannot name a scenario; it begins with a letter"));
        assert!(message(".throughput").contains("cannot name a scenario"));
        assert!(message("").contains("is not a figure"));
    }

    #[test]
    fn travels_as_text() {
        let figure = figure("D.sender.cpu");
        let json = serde_json::to_string(&figure).unwrap();
        assert_eq!(json, "\"D.sender.cpu\"");
        assert_eq!(serde_json::from_str::<FigureRef>(&json).unwrap(), figure);
        assert!(serde_json::from_str::<FigureRef>("\"D.cpu\"").is_err());
    }

    proptest! {
        #[test]
        fn what_is_displayed_reads_back(
            scenario in "[A-Za-z][A-Za-z0-9_-]{0,8}", side in select(&Side::ALL), metric in select(&Metric::ALL),
        ) {
            let figure = FigureRef { scenario, side, metric };
            prop_assert_eq!(figure.to_string().parse(), Ok(figure));
        }
    }
}
