//! What two runs of the same thing differ by, which no single run's trials can show.

use super::Kind;
use crate::confidence::Level;
use crate::sample::Sample;

/// Degrees of freedom without which a spread is a guess: from two runs, 95 % would mean 18 times their distance.
const DEGREES_MIN: usize = 2;

/// The means of runs that were repeated identically, in groups: the runs of a group are alike, those of different groups
/// need not be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Noise {
    groups: Vec<Sample>,
    /// A ratio above 1 by which the machine itself was another one.
    machine: Option<f64>,
}

impl Noise {
    /// From one list of run means for each group.
    pub fn new(groups: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let groups = groups.into_iter().map(Sample::from).filter(|group| group.len() > 1).collect();
        Self { groups, machine: None }
    }

    /// This noise, where the machine that made the new run was by this ratio, either way, slower or faster than the old run's:
    /// a change of so much may be the machine's.
    #[must_use]
    pub fn on_another_machine(self, ratio: f64) -> Self {
        Self { machine: Some(ratio.max(1.0 / ratio)), ..self }
    }

    /// Runs that say something about the spread: those with at least one other like them.
    pub fn runs(&self) -> usize {
        self.groups.iter().map(Sample::len).sum()
    }

    /// The largest change that two further runs of the same thing show with the probability of `level`, as a ratio above 1
    /// or a difference above 0; `None` for fewer than three alike runs.
    ///
    /// With s the pooled standard deviation of the groups' run means (of their logarithms, for a ratio) and d its degrees
    /// of freedom, t(level, d) * sqrt(2) * s: the prediction interval of the difference of two means, of which s has the
    /// scatter of trials in it as well.
    ///
    /// A mean of zero has no logarithm. Where the history has one, the spread is that of the means themselves, and the
    /// ratio is what it makes of `smaller`, the smaller mean of the two that are compared.
    pub(super) fn floor(&self, kind: Kind, level: Level, smaller: f64) -> Option<f64> {
        let of_machine = self.machine.map(|ratio| if kind == Kind::Ratio { ratio } else { (ratio - 1.0) * smaller });
        match (self.of_runs(kind, level, smaller), of_machine) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        }
    }

    fn of_runs(&self, kind: Kind, level: Level, smaller: f64) -> Option<f64> {
        let is_positive = self.groups.iter().flat_map(Sample::values).all(|&mean| mean > 0.0);
        let by_logarithm = kind == Kind::Ratio && is_positive;
        let scaled = |value: f64| if by_logarithm { value.ln() } else { value };
        let groups: Vec<Sample> =
            self.groups.iter().map(|group| group.values().iter().copied().map(scaled).collect()).collect();
        let degrees: usize = groups.iter().map(|group| group.len() - 1).sum();
        if degrees < DEGREES_MIN {
            return None;
        }
        let squares: f64 = groups.iter().filter_map(|group| Some(group.variance()? * (group.len() - 1) as f64)).sum();
        let spread = (squares / degrees as f64).sqrt();
        let largest = level.student_t(degrees as f64) * std::f64::consts::SQRT_2 * spread;
        let floor = match kind {
            Kind::Ratio if by_logarithm => largest.exp(),
            Kind::Ratio => 1.0 + largest / smaller,
            Kind::Difference => largest,
        };
        // Infinity would not survive JSON.
        (!floor.is_nan()).then_some(floor.min(f64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::NormalVariates;

    fn floor(groups: &[&[f64]], kind: Kind) -> Option<f64> {
        Noise::new(groups.iter().map(|group| group.to_vec())).floor(kind, Level::default(), 2.0)
    }

    #[test]
    fn a_floor_by_hand() {
        // s = 1, t(95 %, 2) = 4.302653: 4.302653 * 1.414214 = 6.084870
        let found = floor(&[&[9.0, 10.0, 11.0]], Kind::Difference).unwrap();
        assert!((found - 6.084_870).abs() < 1e-5, "{found}");
        // Two groups around means of their own: sums of squares 2 + 2 over 4 degrees, t(95 %, 4) = 2.776445.
        let found = floor(&[&[9.0, 10.0, 11.0], &[99.0, 100.0, 101.0]], Kind::Difference).unwrap();
        assert!((found - 2.776_445 * 2f64.sqrt()).abs() < 1e-5, "{found}");
        // Logarithms -1, 0 and 1 in units of ln 1.01.
        let found = floor(&[&[100.0 / 1.01, 100.0, 101.0]], Kind::Ratio).unwrap();
        assert!((found.ln() / 1.01f64.ln() - 6.084_870).abs() < 1e-5, "{found}");
        assert_eq!(floor(&[&[5.0, 5.0, 5.0]], Kind::Ratio), Some(1.0));
    }

    #[test]
    fn few_runs_tell_no_spread() {
        assert_eq!(floor(&[], Kind::Ratio), None);
        assert_eq!(floor(&[&[1.0], &[2.0], &[3.0]], Kind::Ratio), None, "alone in their groups");
        assert_eq!(floor(&[&[1.0, 2.0]], Kind::Ratio), None);
        assert!(floor(&[&[1.0, 2.0], &[3.0, 4.0]], Kind::Ratio).is_some(), "two pairs have two degrees of freedom");
        assert_eq!(Noise::new([vec![1.0], vec![1.0, 2.0]]).runs(), 2);
    }

    /// One idle run among them: its spread counts, and the comparison is with a mean of 2.
    #[test]
    fn a_zero_in_the_history_does_not_hide_its_spread() {
        // s of 0, 2, 4 is 2: a floor of 2 * 6.084870 around a mean of 2.
        let found = floor(&[&[0.0, 2.0, 4.0]], Kind::Ratio).unwrap();
        assert!((found - 7.084_870).abs() < 1e-5, "{found}");
        let found = floor(&[&[0.0, 2.0, 4.0]], Kind::Difference).unwrap();
        assert!((found - 12.169_739).abs() < 1e-4, "{found}");
    }

    #[test]
    fn two_further_runs_stay_below_the_floor_as_often_as_it_says() {
        let mut normal = NormalVariates(20_260_401);
        for runs in [3, 5, 10] {
            let below = (0..4000)
                .filter(|_| {
                    let floor = floor(&[&normal.draws(runs, 100.0, 3.0)], Kind::Ratio).unwrap();
                    let ratio = normal.draw(100.0, 3.0) / normal.draw(100.0, 3.0);
                    ratio.max(1.0 / ratio) <= floor
                })
                .count();
            assert!((3720..3880).contains(&below), "{below} of 4000 with {runs} runs");
        }
    }
}
