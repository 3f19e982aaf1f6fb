use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::normal::NormalVariates;
use crate::sample::Resolution;

fn level() -> Level {
    Level::default()
}

/// A series that lives as long as the test.
fn series(group: usize, values: &[f64]) -> Series<'static> {
    of(group, values.to_vec().into())
}

fn of(group: usize, sample: Sample) -> Series<'static> {
    Series { group, sample: Box::leak(Box::new(sample)) }
}

fn linear(series: &[Series<'_>], f: impl Fn(&[f64]) -> f64) -> Estimate {
    propagate(series, level(), Scale::Linear, f).unwrap()
}

fn ratio(series: &[Series<'_>]) -> Estimate {
    propagate(series, level(), Scale::Logarithmic, |x| x[0] / x[1]).unwrap()
}

fn assert_near(actual: f64, expected: f64, tolerance: f64) {
    assert!((actual - expected).abs() <= tolerance, "{actual} is not {expected}");
}

#[test]
fn one_figure_gives_the_interval_of_its_mean() {
    let values = [98.0, 100.0, 102.0];
    let estimate = linear(&[series(0, &values)], |x| x[0]);
    let expected = level().mean_interval(&values.to_vec().into()).unwrap();
    assert_eq!(estimate.value, 100.0);
    assert_near(estimate.interval.unwrap().low, expected.low, 1e-9);
    assert_near(estimate.interval.unwrap().high, expected.high, 1e-9);
    assert_near(estimate.degrees_of_freedom.unwrap(), 2.0, 1e-9);
}

#[test]
fn the_difference_of_two_groups_is_welchs() {
    // s^2 = 1 and 4, u^2 = 1/3 + 4/3 = 5/3, degrees of freedom (25/9) / ((1/9)/2 + (16/9)/2) = 50/17
    let estimate = linear(&[series(0, &[1.0, 2.0, 3.0]), series(1, &[2.0, 4.0, 6.0])], |x| x[0] - x[1]);
    assert_near(estimate.value, -2.0, 1e-12);
    assert_near(estimate.degrees_of_freedom.unwrap(), 50.0 / 17.0, 1e-6);
    let half = level().student_t(50.0 / 17.0) * (5.0f64 / 3.0).sqrt();
    assert_near(estimate.interval.unwrap().high, -2.0 + half, 1e-6);
    assert_near(estimate.interval.unwrap().low, -2.0 - half, 1e-6);
}

#[test]
fn the_difference_within_a_group_is_the_paired_one() {
    // Differences -1, -2, -3: s = 1, n = 3, half width 4.302653 / sqrt(3)
    let estimate = linear(&[series(0, &[1.0, 2.0, 3.0]), series(0, &[2.0, 4.0, 6.0])], |x| x[0] - x[1]);
    assert_near(estimate.degrees_of_freedom.unwrap(), 2.0, 1e-9);
    assert_near(estimate.interval.unwrap().high, -2.0 + 4.302_653 / 3f64.sqrt(), 1e-5);
}

#[test]
fn a_ratio_by_hand() {
    // Relative errors of the means: 1/sqrt(3)/100 and 2/sqrt(3)/50; u^2 of the logarithm is the sum of their squares.
    let (a, b) = ([99.0, 100.0, 101.0], [48.0, 50.0, 52.0]);
    let estimate = ratio(&[series(0, &a), series(1, &b)]);
    let (u1, u2) = (1.0f64 / 3.0 / 1e4, 4.0 / 3.0 / 2500.0);
    let degrees = (u1 + u2).powi(2) / (u1 * u1 / 2.0 + u2 * u2 / 2.0);
    let half = level().student_t(degrees) * (u1 + u2).sqrt();
    assert_near(estimate.value, 2.0, 1e-12);
    assert_near(estimate.degrees_of_freedom.unwrap(), degrees, 1e-6);
    assert_near(estimate.interval.unwrap().low, 2.0 * (-half).exp(), 1e-7);
    assert_near(estimate.interval.unwrap().high, 2.0 * half.exp(), 1e-7);
}

#[test]
fn covariance_within_a_group_counts() {
    // The second figure is always half of the first, so that their ratio does not vary although both do.
    let (a, b) = ([80.0, 100.0, 120.0], [40.0, 50.0, 60.0]);
    let paired = ratio(&[series(0, &a), series(0, &b)]).interval.unwrap();
    assert!(paired.width() < 1e-6, "{paired:?}");
    let apart = ratio(&[series(0, &a), series(1, &b)]).interval.unwrap();
    // u^2 = 2 * 0.2^2 / 3 with 4 degrees of freedom: a factor of exp(2.776445 * 0.163299) = 1.573656 either way.
    assert_near(apart.low, 2.0 / 1.573_640, 1e-5);
    assert_near(apart.high, 2.0 * 1.573_640, 1e-5);
}

#[test]
fn a_single_trial_gives_no_interval() {
    let estimate = linear(&[series(0, &[3.0]), series(1, &[1.0, 2.0])], |x| x[0] + x[1]);
    assert_eq!(estimate, Estimate { value: 4.5, interval: None, degrees_of_freedom: None, bound: None });
}

#[test]
fn no_variance_is_exact() {
    for scale in [Scale::Linear, Scale::Logarithmic] {
        let (a, b) = ([27.0, 27.0], [30.0, 30.0, 30.0]);
        let estimate = propagate(&[series(0, &a), series(1, &b)], level(), scale, |x| x[0] / x[1]).unwrap();
        assert_eq!(estimate.value, 0.9);
        assert_eq!(estimate.interval, Some(Interval { low: 0.9, high: 0.9, level: level() }));
        assert_eq!(estimate.degrees_of_freedom, None);
    }
}

#[test]
fn variance_of_one_group_alone_has_its_degrees_of_freedom() {
    let estimate = linear(&[series(0, &[5.0, 5.0]), series(1, &[1.0, 2.0, 3.0, 4.0])], |x| x[0] * x[1]);
    assert_near(estimate.degrees_of_freedom.unwrap(), 3.0, 1e-6);
}

#[test]
fn a_mean_of_zero_is_no_obstacle_to_a_sum() {
    let estimate = linear(&[series(0, &[-1.0, 0.0, 1.0]), series(1, &[0.0, 0.0])], |x| x[0] + x[1]);
    assert_eq!(estimate.value, 0.0);
    assert_near(estimate.interval.unwrap().high, 4.302_653 / 3f64.sqrt(), 1e-5);
}

#[test]
fn what_cannot_be_computed_is_an_error() {
    let (a, zero) = ([1.0, 2.0], [0.0, 0.0]);
    let with = |scale, s: &[Series<'_>], f: fn(&[f64]) -> f64| propagate(s, level(), scale, f).unwrap_err();
    let divide: fn(&[f64]) -> f64 = |x| x[0] / x[1];
    assert_eq!(with(Scale::Linear, &[series(0, &a), series(1, &zero)], divide), PropagateError::NotFinite);
    assert_eq!(with(Scale::Linear, &[series(0, &a), series(1, &[])], divide), PropagateError::NoValues(1));
    assert_eq!(
        with(Scale::Linear, &[series(0, &a), series(0, &[1.0, 2.0, 3.0])], divide),
        PropagateError::Unpaired { one: 2, other: 3 }
    );
    assert_eq!(with(Scale::Logarithmic, &[series(0, &[-1.0, -2.0])], |x| x[0]), PropagateError::NotPositive);
    assert_eq!(with(Scale::Linear, &[series(0, &[1.0, f64::NAN])], |x| x[0]), PropagateError::NotFinite);
    assert_eq!(with(Scale::Linear, &[series(0, &[-1.0, 1.0])], |x| x[0].sqrt()), PropagateError::NotFinite);
}

#[test]
fn ends_stay_finite() {
    let wild = [1.0, 1e9];
    let level = Level::new(99.99).unwrap();
    let estimate = propagate(&[series(0, &wild)], level, Scale::Logarithmic, |x| x[0]).unwrap();
    let interval = estimate.interval.unwrap();
    assert!(interval.low >= 0.0 && interval.high == f64::MAX, "{interval:?}");
}

/// How many of 4000 intervals of a ratio of means contain the true ratio.
fn covered(seed: u64, na: usize, nb: usize, deviation_a: f64, deviation_b: f64) -> usize {
    let mut normal = NormalVariates(seed);
    (0..4000)
        .filter(|_| {
            let (a, b) = (normal.draws(na, 900.0, deviation_a), normal.draws(nb, 1000.0, deviation_b));
            ratio(&[series(0, &a), series(1, &b)]).interval.unwrap().contains(0.9)
        })
        .count()
}

#[test]
fn intervals_of_ratios_cover_the_true_ratio() {
    // Scatter of 5 % and 2 %, equal and unequal numbers of trials. Welch's interval is on the safe side for few trials.
    for (seed, na, nb) in [(1, 5, 5), (2, 3, 10), (3, 10, 3), (4, 3, 3)] {
        let covered = covered(seed, na, nb, 45.0, 20.0);
        assert!((3720..=3920).contains(&covered), "{covered} of 4000 for n = {na} and {nb}");
    }
}

#[test]
fn intervals_of_paired_ratios_cover_the_true_ratio() {
    let mut normal = NormalVariates(5);
    let covered = (0..4000)
        .filter(|_| {
            // Both figures follow the common speed of the trial, with a little scatter of their own.
            let (a, b): (Vec<_>, Vec<_>) = (0..5)
                .map(|_| {
                    let speed = normal.draw(1.0, 0.1);
                    (900.0 * speed + normal.draw(0.0, 9.0), 1000.0 * speed + normal.draw(0.0, 9.0))
                })
                .unzip();
            ratio(&[series(0, &a), series(0, &b)]).interval.unwrap().contains(0.9)
        })
        .count();
    assert!((3720..=3880).contains(&covered), "{covered} of 4000");
}

proptest! {
    #[test]
    fn the_reciprocal_has_the_reciprocal_interval(a in vec(1.0..100.0f64, 2..8), b in vec(1.0..100.0f64, 2..8)) {
        let forth = ratio(&[series(0, &a), series(1, &b)]).interval.unwrap();
        let back = ratio(&[series(0, &b), series(1, &a)]).interval.unwrap();
        prop_assert!((forth.low * back.high - 1.0).abs() < 1e-6);
        prop_assert!((forth.high * back.low - 1.0).abs() < 1e-6);
    }

    #[test]
    fn degrees_of_freedom_lie_between_the_smallest_and_the_sum(
        a in vec(1.0..100.0f64, 2..8), b in vec(1.0..100.0f64, 2..8), c in vec(1.0..100.0f64, 2..8),
    ) {
        let estimate = linear(&[series(7, &a), series(3, &b), series(5, &c)], |x| x[0] * x[1] - x[2]);
        let n = [a.len() - 1, b.len() - 1, c.len() - 1];
        if let Some(degrees) = estimate.degrees_of_freedom {
            prop_assert!(degrees >= *n.iter().min().unwrap() as f64 - 1e-6);
            prop_assert!(degrees <= n.iter().sum::<usize>() as f64 + 1e-6);
        }
    }

    #[test]
    fn the_unit_does_not_matter(a in vec(1.0..100.0f64, 2..8), b in vec(1.0..100.0f64, 2..8), unit in 1e-9..1e9f64) {
        let here = ratio(&[series(0, &a), series(1, &b)]).interval.unwrap();
        let scaled = |v: &[f64]| v.iter().map(|x| x * unit).collect::<Vec<_>>();
        let there = ratio(&[series(0, &scaled(&a)), series(1, &scaled(&b))]).interval.unwrap();
        prop_assert!((here.low / there.low - 1.0).abs() < 1e-6);
        prop_assert!((here.high / there.high - 1.0).abs() < 1e-6);
    }
}

/// A figure known to 4 of 100 without any scatter: u = 4 / sqrt(12), and as much counts as its scatter.
#[test]
fn the_resolution_of_a_figure_is_in_the_interval() {
    let grid = Resolution { below: 0.0, above: 4.0 };
    let sample = Sample::from(vec![100.0; 3]).with(grid, None);
    let estimate = linear(&[of(0, sample.clone())], |x| x[0]);
    let u = 4.0 / 12f64.sqrt();
    let half = (4.302_653 * u / 3f64.sqrt()).hypot(1.959_964 * u);
    assert_near(estimate.interval.unwrap().low, 102.0 - half, 1e-5);
    assert_near(estimate.interval.unwrap().high, 102.0 + half, 1e-5);
    let own = level().mean_interval(&sample).unwrap();
    assert_near(own.low, 102.0 - half, 1e-5);
    // Of a ratio of two such figures, twice the variance of the logarithm around nothing changed.
    let both = ratio(&[of(0, sample.clone()), of(1, sample)]);
    let u = (2.0f64 * (0.04f64).powi(2) / 12.0).sqrt();
    let interval = both.interval.unwrap();
    assert!(interval.high > (1.96 * u).exp() && interval.high < (2.8 * u).exp(), "{interval:?}");
    assert_near(interval.low * interval.high, 1.0, 1e-9);
}

#[test]
fn a_function_of_bounds_is_a_bound_itself() {
    let bound = |values: &[f64], bound| of(0, Sample::from(values.to_vec()).with(Resolution::EXACT, bound));
    let exact = bound(&[2.0, 2.1], None);
    let least = bound(&[4.0, 4.1], Some(Bound::AtLeast));
    let of = |series: &[Series<'_>], f: fn(&[f64]) -> f64| linear(series, f).bound;
    assert_eq!(of(&[exact], |x| x[0]), None);
    assert_eq!(of(&[least], |x| x[0]), Some(Bound::AtLeast));
    assert_eq!(of(&[least, exact], |x| x[0] / x[1]), Some(Bound::AtLeast));
    assert_eq!(of(&[exact, least], |x| x[0] / x[1]), Some(Bound::AtMost));
    assert_eq!(of(&[exact, least], |x| x[0] - x[1]), Some(Bound::AtMost));
    assert_eq!(of(&[least, least], |x| x[0] / x[1]), Some(Bound::Open));
    assert_eq!(of(&[least, least], |x| x[0] + x[1]), Some(Bound::AtLeast));
    // The larger one is exact, but the smaller one may be larger still.
    let small = bound(&[1.0, 1.1], Some(Bound::AtLeast));
    assert_eq!(of(&[exact, small], |x| x[0].max(x[1])), Some(Bound::AtLeast));
    assert_eq!(of(&[small, exact], |x| x[0].min(x[1])), Some(Bound::AtLeast));
    // The smaller one is exact, and the larger one can only be larger: a bound that does not matter.
    assert_eq!(of(&[exact, least], |x| x[0].min(x[1])), None);
}
