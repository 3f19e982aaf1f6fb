//! A figure with its interval, and how many digits of it are shown.

use std::fmt;

use rig_stats::sample::Bound;
use serde::{Deserialize, Serialize};

/// The most digits before an interval is taken to be as exact as it claims.
const MOST_DIGITS: i32 = 4;

/// Half an interval's width, as a share of the value, that no digit shows.
const UNSEEN: f64 = 5e-5;

/// How far, in half widths, an interval's middle may lie from its value.
const LOPSIDED: f64 = 0.5;

/// A figure with what is known of its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Number {
    pub value: f64,
    /// Digits after the decimal point in texts; programs get the whole value.
    pub decimals: u8,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<Interval>,
    /// The figure that this one is held against, e.g. a study's published one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<f64>,
    /// Set when the value is only a limit; it is written before it, `>= 12.3`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bound: Option<Bound>,
}

impl Number {
    pub fn new(value: f64, decimals: u8) -> Self {
        Self { value, decimals, interval: None, reference: None, bound: None }
    }

    #[must_use]
    pub fn with_bound(mut self, bound: Option<Bound>) -> Self {
        self.bound = bound;
        self
    }

    #[must_use]
    pub fn with_interval(mut self, interval: Option<Interval>) -> Self {
        self.interval = interval.filter(|i| i.low.is_finite() && i.high.is_finite());
        self
    }

    /// The number with three significant figures, more where the interval allows more, fewer where it makes them meaningless.
    #[must_use]
    pub fn rounded(mut self) -> Self {
        self.decimals = decimals(&self);
        self
    }

    /// Of a number as [`rounded()`](Self::rounded), its digits after the point beside `others`: a fourth significant one only where
    /// all that were measured of its magnitude have it. What is exact, such as a baseline of 100, goes with them, and where there
    /// are none with those just below it.
    pub fn decimals_among(&self, others: &[Self]) -> u8 {
        let (own, three) = (magnitude(self.value), |magnitude: i32| (2 - magnitude).clamp(0, 6) as u8);
        if self.value == 0.0 || self.decimals < three(own) {
            return self.decimals;
        }
        let is_measured = |other: &Self| other.half() > 0.0;
        let any = others.iter().any(is_measured);
        let least = |of: i32| {
            let alike = others.iter().filter(|other| magnitude(other.value) == of && other.value != self.value);
            let known = alike.filter(|other| is_measured(other) || !any);
            known.map(|other| other.decimals).filter(|decimals| *decimals >= three(of)).min()
        };
        if is_measured(self) {
            return least(own).map_or(self.decimals, |decimals| decimals.min(self.decimals));
        }
        let is_first = format!("{:.2e}", self.value.abs()).starts_with("1.00e");
        let below = || least(own - 1).filter(|_| is_first);
        let most = (MOST_DIGITS - 1 - own).clamp(0, 6) as u8;
        least(own).or_else(below).map_or(self.decimals, |decimals| decimals.min(most))
    }

    /// `36.7 ±1.2 %`: the number, with its interval where it has one.
    pub fn with_words(&self) -> String {
        match self.interval_words() {
            Some(words) => format!("{self} {words}"),
            None => self.to_string(),
        }
    }

    /// The interval in words, where it says more than the number's digits: not one without width, or narrower than any digit that is shown,
    /// as of trials that all found the same.
    pub fn interval_words(&self) -> Option<String> {
        let interval = self.interval?;
        let narrow = interval.high - interval.low <= 2.0 * UNSEEN * self.value.abs();
        (!narrow).then(|| interval.describe(self.value, self.decimals))
    }

    /// Half of the interval's width.
    pub(crate) fn half(&self) -> f64 {
        self.interval.map_or(0.0, |i| (i.high - i.low) / 2.0)
    }

    /// Whether it is what was counted, known exactly.
    pub fn is_count(&self) -> bool {
        self.decimals == 0 && self.value.fract() == 0.0 && self.half() == 0.0
    }

    /// The reference with as many decimals as the number, within three to four significant digits.
    pub fn reference_number(&self) -> Option<Self> {
        let reference = self.reference?;
        if reference == 0.0 {
            return Some(Self::new(reference, self.decimals));
        }
        let [three, most] = [3, MOST_DIGITS].map(|digits| (digits - 1 - magnitude(reference)).clamp(0, 6) as u8);
        Some(Self::new(reference, self.decimals.clamp(three, most)))
    }

    #[must_use]
    pub fn with_reference(mut self, reference: Option<f64>) -> Self {
        self.reference = reference.filter(|r| r.is_finite());
        self
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.*}", usize::from(self.decimals), self.value);
        // "-0.0" is a rounding artefact, not a figure.
        let zero = text.strip_prefix('-').filter(|t| t.chars().all(|c| c == '0' || c == '.'));
        let text = zero.unwrap_or(&text);
        match self.bound {
            None => f.pad(text),
            Some(bound) => f.pad(&format!("{}{text}", bound.sign())),
        }
    }
}

/// A confidence interval, in the unit of its value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

impl Interval {
    /// The interval in words: `±1.2 %` of `value`, half its width; `±3` where `value` is 0; `(9.1 to 9.9)` where half its width
    /// would mislead: its middle is far from the value, or it is wider than the value.
    fn describe(&self, value: f64, decimals: u8) -> String {
        let show = |value| Number::new(value, decimals);
        let half = (self.high - self.low) / 2.0;
        let middle = (self.high + self.low) / 2.0;
        let lopsided = (middle - value).abs() > LOPSIDED * half.abs() + 1e-9 * value.abs();
        let relative = 100.0 * half / value.abs();
        let misleads = relative.is_finite() && relative > 100.0;
        // Ends that no shown digit tells apart say nothing.
        let told_apart = show(self.low).to_string() != show(self.high).to_string();
        if (lopsided || misleads) && told_apart {
            format!("({} to {})", show(self.low), show(self.high))
        } else if !relative.is_finite() || relative > 999.0 {
            format!("±{}", show(half))
        } else if relative >= 10.0 {
            format!("±{relative:.0} %")
        } else if relative >= 0.095 {
            format!("±{relative:.1} %")
        } else {
            format!("±{relative:.2} %")
        }
    }
}

/// The power of ten of the first of three significant digits: rounding may make one more, 99.97 is 100.
fn magnitude(value: f64) -> i32 {
    let rounded = format!("{:.2e}", value.abs()).parse::<f64>().unwrap_or(value.abs());
    rounded.log10().floor() as i32
}

/// Digits after the point: those of three significant figures, more where the interval allows more, less where it makes
/// them meaningless; none for what was counted.
fn decimals(number: &Number) -> u8 {
    let half = number.half();
    if number.value == 0.0 && half == 0.0 || number.is_count() {
        return 0;
    }
    let value = if number.value == 0.0 { half } else { number.value };
    let mut digits = 2 - magnitude(value);
    if half > 0.0 {
        let known = -(half.log10().floor() as i32);
        digits = digits.clamp(known, known + 1);
    }
    digits.min(MOST_DIGITS - 1 - magnitude(value)).clamp(0, 6) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_no_digit_shows_is_not_written_out() {
        let words = |value: f64, low: f64, high: f64| {
            Number::new(value, 1).with_interval(Some(Interval { low, high })).with_words()
        };
        assert_eq!(words(190.3, 190.3, 190.3), "190.3");
        assert_eq!(words(190.3, 190.3, 190.301), "190.3");
        assert_eq!(words(190.3, 190.299, 190.301), "190.3");
        assert_eq!(words(190.3, 190.3, 190.34), "190.3 ±0.01 %", "lopsided, and not seen to be");
        assert_eq!(words(190.3, 190.3, 190.5), "190.3 (190.3 to 190.5)");
        assert_eq!(words(0.0, -3.0, 3.0), "0.0 ±3.0");
        assert_eq!(words(0.0, 0.0, 0.0), "0.0");
    }

    #[test]
    fn a_reference_has_three_or_four_significant_digits() {
        let reference = |decimals, reference| {
            let number = Number::new(1.0, decimals).with_reference(Some(reference));
            number.reference_number().map(|number| number.to_string())
        };
        assert_eq!(reference(4, 2.701).as_deref(), Some("2.701"));
        assert_eq!(reference(1, 2.701).as_deref(), Some("2.70"));
        assert_eq!(reference(0, 1_472_000.0).as_deref(), Some("1472000"));
        assert_eq!(reference(2, 0.0).as_deref(), Some("0.00"));
    }
}
