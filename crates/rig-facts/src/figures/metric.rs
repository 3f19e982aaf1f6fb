//! What is measured, by the table of figures.

use std::fmt;
use std::str::FromStr;

use rig_stats::histogram::BEYOND;
use rig_stats::sample::Range;

use super::reference::{FigureError, Side, named};
use super::table::Metric;

/// What one number says of many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statistic {
    Mean,
    P50,
    P90,
    P99,
    P99_9,
    P99_99,
    Max,
}

/// Which literals a figure is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Plain numbers.
    Number,
    /// `600Mbit`; values are in bits per second.
    Rate,
    /// `100us`; values are in microseconds.
    Time,
}

impl Statistic {
    pub const ALL: [Self; 7] = [Self::Mean, Self::P50, Self::P90, Self::P99, Self::P99_9, Self::P99_99, Self::Max];

    /// At the head of a row.
    pub fn label(self) -> &'static str {
        match self {
            Self::Mean => "Mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P99_9 => "p99.9",
            Self::P99_99 => "p99.99",
            Self::Max => "Max",
        }
    }

    /// The percentile that it is; `None` of the mean.
    pub fn percentile(self) -> Option<f64> {
        match self {
            Self::Mean => None,
            Self::P50 => Some(50.0),
            Self::P90 => Some(90.0),
            Self::P99 => Some(99.0),
            Self::P99_9 => Some(99.9),
            Self::P99_99 => Some(99.99),
            Self::Max => Some(100.0),
        }
    }

    /// The least number of values with which it says something: of a percentile p as many as have [`BEYOND`] beyond it,
    /// BEYOND * 100 / (100 - p).
    pub fn least_values(self) -> u64 {
        match self {
            Self::Mean | Self::Max => 1,
            Self::P50 => 2 * BEYOND,
            Self::P90 => 10 * BEYOND,
            Self::P99 => 100 * BEYOND,
            Self::P99_9 => 1_000 * BEYOND,
            Self::P99_99 => 10_000 * BEYOND,
        }
    }
}

impl Metric {
    /// Whether it is of the load that runs beside the scenario's own.
    pub fn is_background(self) -> bool {
        matches!(self, Self::BackgroundThroughput | Self::BackgroundPacketsOut | Self::BackgroundPacketsIn)
    }

    pub fn name(self) -> &'static str {
        let names = self.row().names.iter();
        names.filter(|(metric, ..)| *metric == self).map(|(_, name, _)| *name).next().unwrap_or_default()
    }

    /// What reports call it.
    pub fn label(self) -> &'static str {
        let names = self.row().names.iter();
        names.filter(|(metric, ..)| *metric == self).map(|(.., label)| *label).next().unwrap_or_default()
    }

    /// What reports call it where there is room for a word.
    pub fn short_label(self) -> &'static str {
        match self.row().short {
            "" => self.label(),
            short => short,
        }
    }

    /// The unit that reports show it in.
    pub fn shown_unit(self) -> &'static str {
        match self.unit() {
            "bit/s" => "Mbit/s",
            "us/KB" => "µs/KB",
            "us/Tr" => "µs/Tr",
            "us" => "µs",
            unit => unit,
        }
    }

    /// What one number it says of many times; the mean of what is one number.
    pub fn statistic(self) -> Statistic {
        let own = self.row().names.iter().position(|(metric, ..)| *metric == self);
        own.map_or(Statistic::Mean, |at| Statistic::ALL[at])
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        self.row().unit
    }

    pub fn quantity(self) -> Quantity {
        self.row().quantity()
    }

    /// Where its values can lie at all. None is negative: times and counts are not, and shares are of a whole.
    pub fn range(self) -> Range {
        if self.unit() == "%" { Range::PERCENT } else { Range::NOT_NEGATIVE }
    }

    /// The sides that have it under any load.
    pub fn sides(self) -> &'static [Side] {
        self.row().sides
    }

    /// The side that is meant when none is named; `None` when one has to be.
    pub fn default_side(self) -> Option<Side> {
        self.row().default_side
    }

    /// Whether it decides what is said of a run.
    pub fn is_primary(self) -> bool {
        self.row().is_primary
    }
}

impl FromStr for Metric {
    type Err = FigureError;

    /// Version 0.1.0 called the device under test "middle": `middle_cpu` is `dut_cpu`.
    fn from_str(text: &str) -> Result<Self, FigureError> {
        let is_older = |metric: &Self| {
            let of_dut = metric.name().strip_prefix("dut_");
            of_dut.is_some() && text.strip_prefix("middle_") == of_dut
        };
        let older = Self::ALL.into_iter().find(is_older);
        older.map_or_else(|| named("metric", text, &Self::ALL, Self::name), Ok)
    }
}

impl TryFrom<String> for Metric {
    type Error = FigureError;

    fn try_from(text: String) -> Result<Self, FigureError> {
        text.parse()
    }
}

impl From<Metric> for &'static str {
    fn from(metric: Metric) -> Self {
        metric.name()
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
