//! Figures of other tools' tests, by their names.

use super::{Metric, Side};
use crate::record::{ToolFigure, ToolTrial};

impl ToolTrial {
    pub fn figure(&self, side: Side, metric: Metric) -> Option<f64> {
        let is = |figure: &&ToolFigure| figure.side == side.name() && figure.metric == metric.name();
        self.figures.iter().find(is).map(|figure| figure.value)
    }

    /// Adds a figure where there is one. What cannot be a figure's value, as outputs that were damaged have it, is none.
    pub fn add(&mut self, side: Side, metric: Metric, value: impl Into<Option<f64>>) {
        let Some(value) = value.into().filter(|value| value.is_finite() && *value >= 0.0) else { return };
        if metric.sides().contains(&side) && self.figure(side, metric).is_none() {
            self.figures.push(ToolFigure { side: side.name().to_owned(), metric: metric.name().to_owned(), value });
        }
    }

    /// Whether anything is known of a side.
    pub fn has(&self, side: Side) -> bool {
        self.figures.iter().any(|figure| figure.side == side.name())
    }
}
