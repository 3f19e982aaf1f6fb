//! Claims: statements about the figures of a suite, such as `D.throughput >= 0.9 * B.throughput`, that a run proves,
//! refutes or leaves undecided.
//!
//! A verdict comes from the confidence interval of the claim's *effect*, the one value that is compared with a number:
//! - a side without figures is the threshold and the other side is the effect: `B.sender.cpu <= 50`,
//!   `A.throughput / B.throughput within 3 .. 4`;
//! - of two sides that are sums, products, ratios and extremes of positive figures the effect is their ratio, and their
//!   numeric factors make the threshold: `D.throughput >= 0.9 * B.throughput` asks whether
//!   `D.throughput / B.throughput` is at least 0.9;
//! - otherwise (something is subtracted, or a figure is zero or less in some trial) it is their difference, compared with 0.
//!
//! The claim holds when the whole interval is on the right side of the threshold, is refuted when the whole interval is on
//! the wrong side, and is undecided when the interval reaches across. With a two-sided 95 % interval a one-sided claim is
//! thus proved or refuted with 97.5 % confidence. Intervals are those of [`rig_stats::propagate`], ratios on a logarithmic
//! scale.
//!
//! A figure may be no more than a limit: the rate at which the load generator itself gave up says that the path carries
//! *at least* that ([`Bound`]). So does what is computed from it, on the side that it bounds: with a numerator that is "at
//! least" so much, `A.limit >= 2 * B.limit` can hold, and can never be refuted; of two limits the ratio says nothing.

mod blocks;
mod expression;
mod parse;

use std::fmt;

pub use crate::figures::{FigureError, FigureRef, Metric, Quantity, Side, Statistic, is_phase_name, is_scenario_id};
pub use blocks::{BlockSpread, ClaimBlocks, Disturbance, OneSidedP, VerdictReason};
use expression::{Dimension, Expr, Operator};
use parse::{ParsedClaim, Test};
use rig_stats::compare::TRIALS_MIN;
use rig_stats::confidence::{Interval, Level};
use rig_stats::propagate::{PropagateError, Scale, Series, propagate};
use rig_stats::sample::{Bound, Range, Sample};
use rig_stats::units::BitRate;
use serde::{Deserialize, Serialize};

/// Below this a p of few trials is about the shape of a distribution's far tail, which they do not show.
const LEAST_P: f64 = 1e-6;

/// A statement with the expression that says when it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    text: String,
    expression: String,
    left: Expr,
    test: Test,
    /// The unit of both sides.
    dimension: Dimension,
    figures: Vec<FigureRef>,
}

/// Why an expression cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}; {hint}")]
pub struct ClaimError {
    /// The column of the character at fault in the expression, counted from 1.
    pub column: usize,
    pub what: String,
    /// What to write instead.
    pub hint: String,
}

/// What a run says about a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    pub verdict: Verdict,
    /// What was compared with the threshold, e.g. `D.throughput / B.throughput`.
    pub effect_is: String,
    pub unit: EffectUnit,
    /// `None` when figures are missing or the value cannot be computed from them.
    pub effect: Option<f64>,
    /// `None` when there is no effect or a scenario has a single trial.
    pub interval: Option<Interval>,
    /// Set when the effect is only a limit, because a figure is one; the interval is then that of the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    pub threshold: Threshold,
    /// All of this in a sentence, with the reason when it is undecided.
    pub words: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Holds,
    Refuted,
    Undecided,
    /// Refuted here, and a published study's: on other machines, so that neither is wrong.
    Differs,
}

/// In which unit effect, interval and threshold are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectUnit {
    /// A ratio, or the units of the figures as they stand.
    Number,
    BitsPerSecond,
    Microseconds,
}

/// What is claimed of the effect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threshold {
    AtLeast(f64),
    AtMost(f64),
    Above(f64),
    Below(f64),
    /// Both bounds included.
    Within {
        low: f64,
        high: f64,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holds => "holds",
            Self::Refuted => "refuted",
            Self::Undecided => "undecided",
            Self::Differs => "differs from the study",
        })
    }
}

impl EffectUnit {
    /// Four significant digits and the unit.
    pub fn show(self, value: f64) -> String {
        self.show_to(4, value)
    }

    /// A value and the ends of its interval: three significant digits, or four where three do not tell the ends apart, fewer where
    /// the interval makes them meaningless. All have as many places after the point, and zeros at the end: they say how well the
    /// value is known.
    pub fn show_known(self, value: f64, interval: Option<Interval>) -> (String, Option<(String, String)>) {
        let show = |digits: usize, one: f64| match self {
            Self::Number if (1e-4..1e6).contains(&value.abs()) => {
                // Of which rounding may make one less: 0.9997 is 1.00.
                let rounded = format!("{:.*e}", digits - 1, value.abs()).parse::<f64>().unwrap_or(value.abs());
                let after = digits as f64 - 1.0 - rounded.log10().floor();
                // No more places than the interval gives a meaning.
                let known = interval.map_or(after, |of| 1.0 - ((of.high - of.low) / 2.0).log10().floor());
                format!("{one:.*}", after.min(known).max(0.0) as usize)
            }
            unit => unit.show_to(digits, one),
        };
        let Some(Interval { low, high, .. }) = interval else { return (self.show_to(3, value), None) };
        let digits = if show(3, low) == show(3, high) { 4 } else { 3 };
        (show(digits, value), Some((show(digits, low), show(digits, high))))
    }

    /// So many significant digits, at least three, and the unit.
    pub fn show_to(self, digits: usize, value: f64) -> String {
        let significant = |value| significant(digits, value);
        match self {
            Self::Number => significant(value),
            Self::BitsPerSecond if !(1e3..1e15).contains(&value.abs()) => format!("{}bit/s", significant(value)),
            Self::BitsPerSecond => {
                let after = digits - 1 - (value.abs().log10().floor() as usize % 3);
                let sign = if value < 0.0 { "-" } else { "" };
                format!("{sign}{:.after$}/s", BitRate(value.abs().round() as u64))
            }
            Self::Microseconds => match value.abs() {
                1e6.. => format!("{}s", significant(value / 1e6)),
                1e3.. => format!("{}ms", significant(value / 1e3)),
                _ => format!("{}us", significant(value)),
            },
        }
    }
}

/// `value` with so many significant digits, without trailing zeros.
fn significant(digits: usize, value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor();
    if !(-6.0..9.0).contains(&magnitude) {
        return format!("{value:.*e}", digits - 1);
    }
    let text = format!("{value:.*}", (digits as f64 - 1.0 - magnitude).max(0.0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

impl Threshold {
    /// Whether a value that is known exactly is what is claimed.
    pub fn holds(self, value: f64) -> bool {
        self.verdict(value, value) == Verdict::Holds
    }

    /// The verdict on a value that lies between `low` and `high`.
    fn verdict(self, low: f64, high: f64) -> Verdict {
        let (holds, refuted) = match self {
            Self::AtLeast(t) => (low >= t, high < t),
            Self::AtMost(t) => (high <= t, low > t),
            Self::Above(t) => (low > t, high <= t),
            Self::Below(t) => (high < t, low >= t),
            Self::Within { low: least, high: most } => (low >= least && high <= most, high < least || low > most),
        };
        match (holds, refuted) {
            (true, _) => Verdict::Holds,
            (_, true) => Verdict::Refuted,
            _ => Verdict::Undecided,
        }
    }

    /// `at least 0.9`, as it was written; of what has no end, such as a third, three significant digits.
    pub fn show(self, unit: EffectUnit) -> String {
        let show = |value: f64| {
            let is_whole = |digits: &usize| format!("{value:.*e}", digits - 1).parse() == Ok(value);
            unit.show_to((3..=6).find(is_whole).unwrap_or(3), value)
        };
        match self {
            Self::AtLeast(t) => format!("at least {}", show(t)),
            Self::AtMost(t) => format!("at most {}", show(t)),
            Self::Above(t) => format!("more than {}", show(t)),
            Self::Below(t) => format!("less than {}", show(t)),
            Self::Within { low, high } => format!("from {} to {}", show(low), show(high)),
        }
    }
}

/// A claim as one value and what it is compared with.
struct Effect {
    expr: Expr,
    threshold: Threshold,
    scale: Scale,
    unit: EffectUnit,
}

impl Claim {
    /// Reads the expression; `text` is the statement for the reader.
    ///
    /// # Errors
    /// With the column in `expression`, what is wrong there, and what to write instead.
    pub fn parse(text: &str, expression: &str) -> Result<Self, ClaimError> {
        let ParsedClaim { left, test, dimension, figures } = parse::parse(expression)?;
        Ok(Self { text: text.to_owned(), expression: expression.to_owned(), left, test, dimension, figures })
    }

    /// Reads an expression that is compared with nothing: a claim that its value is at least 0, so that the value can be asked for.
    ///
    /// # Errors
    /// As [`Claim::parse`].
    pub fn value(expression: &str) -> Result<Self, ClaimError> {
        let ParsedClaim { left, test, dimension, figures } = parse::parse_value(expression)?;
        Ok(Self { text: String::new(), expression: expression.to_owned(), left, test, dimension, figures })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The figures that the expression names, each once, in order of appearance.
    pub fn figures(&self) -> &[FigureRef] {
        &self.figures
    }

    /// The figure and what is claimed of it, where one figure as it stands is compared with a number.
    pub fn condition(&self) -> Option<(FigureRef, Threshold)> {
        let Effect { expr, threshold, .. } = self.effect(true);
        let Expr::Figure(index) = expr else { return None };
        Some((self.figures.get(index)?.clone(), threshold))
    }

    /// Judges the claim by the trials made.
    ///
    /// `values` gives a figure's values in trial order, so that those of all figures of a scenario belong together, or
    /// `None` when it was not measured.
    pub fn evaluate(&self, level: Level, values: &dyn Fn(&FigureRef) -> Option<Sample>) -> Judgement {
        let measured: Vec<Sample> = self.figures.iter().map(|figure| values(figure).unwrap_or_default()).collect();
        let effect = self.effect(measured.iter().flat_map(Sample::values).all(|value| *value > 0.0));
        let unmeasured = Judgement {
            verdict: Verdict::Undecided,
            effect_is: effect.expr.written(&self.figures).to_string(),
            unit: effect.unit,
            effect: None,
            interval: None,
            bound: None,
            threshold: effect.threshold,
            words: String::new(),
        };
        let because = |reason: String| Judgement { words: reason, ..unmeasured.clone() };

        let missing: Vec<_> = self.figures.iter().zip(&measured).filter(|(_, sample)| sample.is_empty()).collect();
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter().map(|(figure, _)| figure.to_string()).collect();
            return because(format!("not measured: {}", names.join(", ")));
        }
        let scenario = |figure: &FigureRef| self.figures.iter().position(|one| one.scenario == figure.scenario);
        let series: Vec<_> = self
            .figures
            .iter()
            .zip(&measured)
            .map(|(figure, sample)| Series { group: scenario(figure).unwrap_or(0), sample })
            .collect();
        let estimate = match propagate(&series, level, effect.scale, |means| effect.expr.value(means)) {
            Ok(estimate) => estimate,
            Err(PropagateError::Unpaired { one, other }) => {
                return because(format!("figures of the same scenario have values of {one} and of {other} trials"));
            }
            Err(error) => return because(format!("{} cannot be computed: {error}", unmeasured.effect_is)),
        };
        let Judgement { effect_is, unit, threshold, .. } = &unmeasured;
        let bound = estimate.bound;
        let claimed = threshold.show(*unit);
        let interval = estimate.interval.map(|interval| interval.within(self.range(&effect)));
        let (value, ends) = unit.show_known(estimate.value, interval);
        let value = format!("{}{value}", bound.map_or("", Bound::sign));
        let (verdict, words) = match interval.zip(ends) {
            None => {
                let single = self.figures.iter().zip(&measured).find(|(_, sample)| sample.len() == 1);
                let scenario = single.map_or("", |(figure, _)| &figure.scenario);
                let reason = format!("scenario {scenario} has a single trial, which gives no interval");
                (Verdict::Undecided, format!("{effect_is} is {value}, claimed {claimed}; {reason}"))
            }
            Some((interval, (low, high))) => {
                let least = if bound.is_some_and(Bound::is_open_below) { f64::NEG_INFINITY } else { interval.low };
                let most = if bound.is_some_and(Bound::is_open_above) { f64::INFINITY } else { interval.high };
                let told = threshold.verdict(least, most);
                let few = told != Verdict::Undecided && measured.iter().any(|sample| sample.len() < TRIALS_MIN);
                let verdict = if few { Verdict::Undecided } else { told };
                let mut words = format!(
                    "{effect_is} is {value} ({} % interval {low} to {high}), claimed {claimed}",
                    level.percent()
                );
                if few {
                    words += &format!("; fewer than {TRIALS_MIN} trials lie apart by chance too often");
                } else if verdict == Verdict::Undecided {
                    words += match bound {
                        None => "; the claimed value is inside the interval; more trials would narrow it",
                        Some(Bound::Open) => "; both figures are only limits, so how they relate is not known",
                        Some(_) => "; the figure is only a limit, and the true value may lie anywhere beyond it",
                    };
                }
                (verdict, words)
            }
        };
        Judgement { verdict, effect: Some(estimate.value), interval, bound, words, ..unmeasured }
    }

    /// How surely independent samples decide, as a two-sided p: 1 less the highest level whose interval has a verdict. 1 where none
    /// has, and never less than a millionth.
    pub fn least_p(&self, values: &dyn Fn(&FigureRef) -> Option<Sample>) -> f64 {
        let decides = |p: f64| {
            let level = Level::new(100.0 * (1.0 - p));
            level.is_ok_and(|level| self.evaluate(level, values).verdict != Verdict::Undecided)
        };
        let (mut least, mut most) = (LEAST_P, 0.5);
        if !decides(most) {
            return 1.0;
        }
        if decides(least) {
            return least;
        }
        // By halves on a logarithmic scale, to a thousandth.
        while most > least * 1.001 {
            let middle = (least * most).sqrt();
            if decides(middle) { most = middle } else { least = middle }
        }
        most
    }

    /// Where the effect can lie at all.
    fn range(&self, effect: &Effect) -> Range {
        match &effect.expr {
            Expr::Figure(index) => self.figures[*index].metric.range(),
            expr if expr.is_positive() => Range::NOT_NEGATIVE,
            _ => Range::ANY,
        }
    }

    /// The form in which the claim is judged; `positive` when all values of all figures are.
    fn effect(&self, positive: bool) -> Effect {
        let (relation, left, right) = match &self.test {
            Test::Within { low, high } => {
                return self.plain(&self.left, Threshold::Within { low: *low, high: *high }, positive);
            }
            // The figures come first: `3 <= A / B` is `A / B >= 3`.
            Test::Compare(relation, right) if self.left.constant().is_some() => {
                (relation.mirrored(), right, &self.left)
            }
            Test::Compare(relation, right) => (*relation, &self.left, right),
        };
        if let Some(threshold) = right.constant() {
            return self.plain(left, relation.threshold(threshold), positive);
        }
        if positive && left.is_positive() && right.is_positive() {
            let ((left_factor, left), (right_factor, right)) = (left.clone().factor(), right.clone().factor());
            let threshold = right_factor / left_factor;
            if threshold.is_normal() {
                return Effect {
                    expr: Expr::binary(Operator::Divide, left, right),
                    threshold: relation.threshold(threshold),
                    scale: Scale::Logarithmic,
                    unit: EffectUnit::Number,
                };
            }
        }
        Effect {
            expr: Expr::binary(Operator::Subtract, left.clone(), right.clone()),
            threshold: relation.threshold(0.0),
            scale: Scale::Linear,
            unit: self.unit(),
        }
    }

    /// The value of one side as it stands, compared with a number.
    fn plain(&self, expr: &Expr, threshold: Threshold, positive: bool) -> Effect {
        let scale = if positive && expr.is_positive() && expr.is_ratio() { Scale::Logarithmic } else { Scale::Linear };
        Effect { expr: expr.clone(), threshold, scale, unit: self.unit() }
    }

    fn unit(&self) -> EffectUnit {
        match self.dimension {
            Dimension::RATE => EffectUnit::BitsPerSecond,
            Dimension::TIME => EffectUnit::Microseconds,
            _ => EffectUnit::Number,
        }
    }
}

#[cfg(test)]
mod tests;
