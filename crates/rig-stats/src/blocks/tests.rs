//! By hand, as properties, and by simulation.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::normal::NormalVariates;

fn contrast(values: &[f64]) -> Contrast {
    Contrast::of(values.to_vec()).unwrap()
}

fn quick() -> Resampling {
    Resampling { draws: 999, ..Resampling::default() }
}

#[test]
fn blocks_without_both_values_are_counted_and_left_out() {
    let (ratios, lacking) = log_ratios(&[1.0, 2.0, f64::NAN, 0.0], &[2.0, 2.0, 1.0, 1.0]);
    assert_eq!((ratios, lacking), (vec![2f64.ln(), 0.0], 2));
    assert_eq!(Contrast::of(Vec::new()), None);
    assert_eq!(Contrast::of(vec![1.0, f64::NAN]), None);
}

#[test]
fn one_bad_block_moves_neither_estimate_nor_test() {
    let good = [0.10, 0.11, 0.09, 0.10, 0.12, 0.08, 0.10, 0.11];
    let mut bad = good;
    bad[3] = 5.0;
    let (good, bad) = (contrast(&good), contrast(&bad));
    assert!((good.centre() - bad.centre()).abs() < 0.01);
    assert!((good.trimmed_mean() - bad.trimmed_mean()).abs() < 0.01);
    assert!(bad.p_above(0.0) < 1e-3, "{}", bad.p_above(0.0));
    let interval = bad.interval(Level::default(), quick()).unwrap();
    assert!(interval.low > 0.08, "{interval:?}");
}

#[test]
fn few_blocks_have_students_interval_and_one_has_none() {
    let level = Level::default();
    assert_eq!(contrast(&[1.0]).interval(level, quick()), None);
    assert_eq!(contrast(&[1.0]).p_above(0.0), 1.0);
    // s = 1, t(95 %, 2) = 4.302653: 2 +- 2.484.
    let three = contrast(&[1.0, 2.0, 3.0]).interval(level, quick()).unwrap();
    assert!((three.low - (2.0 - 2.4841)).abs() < 1e-3, "{three:?}");
    // t = 2 * sqrt(3): p = 0.0371 one-sided with 2 degrees of freedom.
    assert!((contrast(&[1.0, 2.0, 3.0]).p_above(0.0) - 0.03709).abs() < 1e-4);
    // Equal blocks are no proof beyond their number.
    assert_eq!(contrast(&[1.0; 3]).p_above(0.0), 0.125);
    assert_eq!(contrast(&[1.0; 3]).p_below(0.0), 1.0);
}

#[test]
fn equality_is_two_one_sided_tests() {
    let near = contrast(&[0.01, -0.01, 0.0, 0.005, -0.005, 0.0]);
    let within = near.equality(-0.05, 0.05);
    assert!(within.same < 0.001 && within.differs > 0.99, "{within:?}");
    let far = contrast(&[0.11, 0.09, 0.1, 0.105, 0.095, 0.1]).equality(-0.05, 0.05);
    assert!(far.same > 0.99 && far.differs < 0.001, "{far:?}");
    let wide = contrast(&[0.2, -0.2, 0.1, -0.1, 0.3, -0.3]).equality(-0.05, 0.05);
    assert!(wide.same > 0.05 && wide.differs > 0.05, "{wide:?}");
}

/// Values around 0 with the scatter 1.
#[derive(Debug, Clone, Copy)]
enum Source {
    Normal,
    /// One in ten scatters five times as much.
    Heavy,
    /// The difference of two things that each run at one of two speeds.
    TwoSpeeds,
}

impl Source {
    fn draws(self, normal: &mut NormalVariates, n: usize) -> Vec<f64> {
        let speed = |normal: &mut NormalVariates| if normal.draw(0.0, 1.0) > 0.5 { 1.0 } else { 0.0 };
        (0..n)
            .map(|_| match self {
                Self::Heavy if normal.draw(0.0, 1.0).abs() > 1.645 => normal.draw(0.0, 5.0),
                Self::Normal | Self::Heavy => normal.draw(0.0, 1.0),
                Self::TwoSpeeds => speed(normal) - speed(normal) + normal.draw(0.0, 0.05),
            })
            .collect()
    }
}

#[test]
fn intervals_hold_the_centre_as_often_as_they_say() {
    let mut normal = NormalVariates(2026);
    for source in [Source::Normal, Source::Heavy, Source::TwoSpeeds] {
        for n in [3, 5, 6, 8, 12, 30, 70] {
            let rounds = if n < 60 { 600 } else { 100 };
            let holds = |normal: &mut NormalVariates| {
                let contrast = contrast(&source.draws(normal, n));
                contrast.interval(Level::default(), quick()).unwrap().contains(0.0)
            };
            let held = (0..rounds).filter(|_| holds(&mut normal)).count() as f64 / f64::from(rounds);
            // Three values of two speeds are too often all alike; else 95 % less three standard deviations of the count.
            let deviation = (0.95 * 0.05 / f64::from(rounds)).sqrt();
            let few = n < 6 && matches!(source, Source::TwoSpeeds);
            let least = if few { 0.85 } else { 0.95 - 3.0 * deviation };
            assert!(held >= least, "{source:?}, {n} blocks: {held}");
        }
    }
}

#[test]
fn tests_are_wrong_as_seldom_as_they_say() {
    let mut normal = NormalVariates(2027);
    for source in [Source::Normal, Source::Heavy, Source::TwoSpeeds] {
        for n in [6, 8, 12, 30] {
            let rounds = 1000;
            let mut wrong = (0, 0);
            for _ in 0..rounds {
                let contrast = contrast(&source.draws(&mut normal, n));
                wrong.0 += i32::from(contrast.p_above(0.0) < 0.025);
                wrong.1 += i32::from(n <= 12 && contrast.flips(0.0, quick()) <= 0.05);
            }
            // 2.5 % and 5 % with four standard deviations of the count; Student's t of two speeds is an approximation.
            assert!(wrong.0 <= 45, "{source:?}, {n}: {wrong:?}");
            assert!(wrong.1 <= 78, "{source:?}, {n}: {wrong:?}");
        }
    }
}

/// What pairing is for: the machine's speed wanders by 10 %, and the two follow it alike.
#[test]
fn pairs_take_out_what_blocks_have_in_common() {
    let mut normal = NormalVariates(3);
    let speed = normal.draws(12, 0.0, 0.1);
    let measure = |normal: &mut NormalVariates, by: f64| -> Vec<f64> {
        speed.iter().map(|speed| (speed + by + normal.draw(0.0, 0.01)).exp()).collect()
    };
    let (old, new) = (measure(&mut normal, 0.0), measure(&mut normal, 0.03));
    let (ratios, _) = log_ratios(&old, &new);
    let paired = contrast(&ratios).interval(Level::default(), quick()).unwrap();
    assert!(paired.low > 0.015 && paired.high < 0.045, "{paired:?}");
    let samples = [old, new].map(Sample::from);
    let series = [(0, &samples[0]), (1, &samples[1])].map(|(group, sample)| crate::propagate::Series { group, sample });
    let welch =
        crate::propagate::propagate(&series, Level::default(), crate::propagate::Scale::Logarithmic, |m| m[1] / m[0]);
    assert!(welch.unwrap().interval.unwrap().width() > 3.0 * paired.width());
}

proptest! {
    #[test]
    fn moving_all_blocks_moves_all_that_is_known(values in vec(-1.0..1.0f64, 2..20), by in -3.0..3.0f64) {
        let one = contrast(&values);
        let other = contrast(&values.iter().map(|value| value + by).collect::<Vec<_>>());
        prop_assert!((other.centre() - one.centre() - by).abs() < 1e-9);
        let (a, b) = (one.interval(Level::default(), quick()).unwrap(), other.interval(Level::default(), quick()).unwrap());
        prop_assert!((b.low - a.low - by).abs() < 1e-9 && (b.high - a.high - by).abs() < 1e-9);
        prop_assert!((one.p_above(0.0) - other.p_above(by)).abs() < 1e-6);
    }

    #[test]
    fn the_other_way_round_is_the_mirror(values in vec(-1.0..1.0f64, 2..20)) {
        let one = contrast(&values);
        let other = contrast(&values.iter().map(|value| -value).collect::<Vec<_>>());
        prop_assert!((one.centre() + other.centre()).abs() < 1e-12);
        prop_assert!((one.p_above(0.1) - other.p_below(-0.1)).abs() < 1e-12);
        prop_assert!((one.p_above(0.1) + one.p_below(0.1) - 1.0).abs() < 1e-6 || one.p_above(0.1) == 1.0 || one.p_below(0.1) == 1.0);
    }

    #[test]
    fn estimates_lie_in_their_intervals(values in vec(-1.0..1.0f64, 2..80)) {
        let contrast = contrast(&values);
        let interval = contrast.interval(Level::default(), quick()).unwrap();
        prop_assert!(interval.contains(contrast.centre()));
        let narrow = contrast.interval(Level::new(80.0).unwrap(), quick()).unwrap();
        prop_assert!(narrow.width() <= interval.width() + 1e-12 || values.len() < 6);
    }
}
