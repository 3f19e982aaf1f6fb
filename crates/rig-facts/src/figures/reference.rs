//! Names of figures: which metric of which side of which scenario.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::table::Metric;

/// One figure of a scenario, measured once in every trial.
///
/// Written `SCENARIO.METRIC` or `SCENARIO.SIDE.METRIC`: `D.throughput`, `B.sender.cpu`. Where no side is named,
/// [`Metric::default_side`] is meant; CPU figures have no side of their own and need one.
///
/// That of one phase of the scenario's programme has the phase's name behind the scenario's: `D.burst.throughput`,
/// `D.burst.sender.cpu`. A phase cannot be called as a side is, or a metric, so that the two are told apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FigureRef {
    pub scenario: String,
    /// `None`: the whole window.
    pub phase: Option<String>,
    pub side: Side,
    pub metric: Metric,
}

/// The end of the load that a figure belongs to.
///
/// Every load has a local and a remote end. Only one whose payload goes one way has a sender and a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Sender,
    Receiver,
    /// netperf's word for the end that connects, and sends the requests.
    Local,
    /// netperf's word for the end that listens, and answers them.
    Remote,
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
    pub const ALL: [Self; 4] = [Self::Sender, Self::Receiver, Self::Local, Self::Remote];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// Whether `text` can name a scenario: a letter, then letters, digits, `_` and `-`.
pub fn is_scenario_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Whether `text` can name a phase: as a scenario, but neither a side nor a metric, nor a metric with something behind a
/// `-`, which is a subtraction that lacks its spaces.
pub fn is_phase_name(text: &str) -> bool {
    let first = text.split('-').next().unwrap_or_default();
    is_scenario_id(text) && text.parse::<Side>().is_err() && first.parse::<Metric>().is_err()
}

fn error(what: impl Into<String>, hint: impl Into<String>) -> FigureError {
    FigureError { what: what.into(), hint: hint.into() }
}

/// The one of `all` that is called `text`; `kind` says what they are.
pub(super) fn named<T: Copy>(
    kind: &str,
    text: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, FigureError> {
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
    pub(crate) fn from_parts(parts: &[&str]) -> Result<Self, (usize, FigureError)> {
        let (scenario, phase, side, metric) = match parts {
            [scenario, metric] => (*scenario, None, None, *metric),
            [scenario, phase, metric] if is_phase_name(phase) => (*scenario, Some(*phase), None, *metric),
            [scenario, side, metric] => (*scenario, None, Some((1, *side)), *metric),
            [scenario, phase, side, metric] => (*scenario, Some(*phase), Some((2, *side)), *metric),
            [one] => {
                let hint =
                    format!("a figure is SCENARIO.METRIC or SCENARIO.SIDE.METRIC, for example `{one}.throughput`");
                return Err((0, error(format!("`{one}` is not a figure"), hint)));
            }
            _ => {
                let hint = "a figure is SCENARIO.METRIC or SCENARIO.SIDE.METRIC, for example `D.sender.cpu`; that of a \
                            phase has its name behind the scenario's, for example `D.burst.sender.cpu`";
                return Err((0, error(format!("`{}` has too many parts", parts.join(".")), hint)));
            }
        };
        if !is_scenario_id(scenario) {
            let hint = "it begins with a letter, followed by letters, digits, `_` and `-`";
            return Err((0, error(format!("`{scenario}` cannot name a scenario"), hint)));
        }
        if let Some(phase) = phase.filter(|phase| !is_phase_name(phase)) {
            let hint =
                "it begins with a letter, followed by letters, digits, `_` and `-`, and is no side and no metric";
            return Err((1, error(format!("`{phase}` cannot name a phase"), hint)));
        }
        let at_metric = parts.len() - 1;
        let side = match side {
            Some((at, side)) => Some(side.parse().map_err(|e| (at, e))?),
            None => None,
        };
        let scenario = &[Some(scenario), phase].into_iter().flatten().collect::<Vec<_>>().join(".");
        let metric: Metric = metric.parse().map_err(|e| (at_metric, e))?;
        let sides = |separator: &str| {
            let forms = metric.sides().iter().map(|side| format!("`{scenario}.{side}.{metric}`"));
            forms.collect::<Vec<_>>().join(separator)
        };
        let side = side.or(metric.default_side()).ok_or_else(|| {
            let what = format!("`{scenario}.{metric}` does not say whose {metric} it is");
            let hint = match metric.sides() {
                [_, _] => format!("write {}", sides(" or ")),
                // Not every load has a sender and a receiver.
                _ => format!(
                    "write `{scenario}.local.{metric}` for the end that connects, or `{scenario}.remote.{metric}` for the \
                     one that listens; a load that goes one way also has a `sender` and a `receiver`"
                ),
            };
            (at_metric, error(what, hint))
        })?;
        if !metric.sides().contains(&side) {
            return Err((
                at_metric - 1,
                error(format!("the {side} has no {metric}"), format!("write {}", sides(" or "))),
            ));
        }
        Ok(Self { scenario: parts[0].to_owned(), phase: phase.map(str::to_owned), side, metric })
    }
}

impl FromStr for Side {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<Self, FigureError> {
        named("side", text, &Self::ALL, Self::name)
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

impl fmt::Display for FigureRef {
    /// In the shortest form that reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, phase, side, metric } = self;
        write!(f, "{scenario}.")?;
        if let Some(phase) = phase {
            write!(f, "{phase}.")?;
        }
        if metric.default_side() == Some(*side) { write!(f, "{metric}") } else { write!(f, "{side}.{metric}") }
    }
}
