use proptest::collection::vec;
use proptest::prelude::*;

use super::{compare as compare_samples, *};
use crate::normal::NormalVariates;
use crate::sample::Resolution;

fn compare(old: &[f64], new: &[f64], rule: &Rule, noise: &Noise) -> Judgement {
    compare_samples(&old.to_vec().into(), &new.to_vec().into(), rule, noise)
}

fn rule() -> Rule {
    Rule {
        level: Level::default(),
        minimum: Percent::new(5.0).unwrap(),
        resolution: 0.0,
        better: Better::Higher,
        is_fact: false,
        resampling: Resampling::default(),
    }
}

/// The rule with fewer draws, for simulations.
fn quick() -> Rule {
    Rule { resampling: Resampling { draws: 199, seed: 7 }, ..rule() }
}

fn silent() -> Noise {
    Noise::default()
}

fn judged(old: &[f64], new: &[f64]) -> Judgement {
    compare(old, new, &rule(), &silent())
}

fn verdict(old: &[f64], new: &[f64]) -> Verdict {
    judged(old, new).verdict
}

fn reason(old: &[f64], new: &[f64]) -> Reason {
    let judgement = judged(old, new);
    assert_eq!(judgement.verdict, Verdict::Undecided);
    judgement.reason.unwrap()
}

#[test]
fn a_clear_change_is_better_or_worse_by_its_direction() {
    let (slow, fast) = ([9.0, 9.1, 8.9, 9.0], [18.0, 18.1, 17.9, 18.2]);
    let lower = Rule { better: Better::Lower, ..rule() };
    assert_eq!(verdict(&slow, &fast), Verdict::Better);
    assert_eq!(verdict(&fast, &slow), Verdict::Worse);
    assert_eq!(compare(&slow, &fast, &lower, &silent()).verdict, Verdict::Worse);
    assert_eq!(compare(&fast, &slow, &lower, &silent()).verdict, Verdict::Better);
    let effect = judged(&slow, &fast).effect.unwrap();
    assert_eq!(effect.kind, Kind::Ratio);
    assert!((effect.value - 72.2 / 36.0).abs() < 1e-12 && effect.interval.unwrap().contains(2.0));
    assert_eq!((effect.p, effect.minimum, effect.noise_floor), (Some(2.0 / 70.0), 1.05, None));
}

#[test]
fn the_interval_is_never_narrower_than_welchs_or_the_bootstraps() {
    // One in five trials runs at triple speed: the bootstrap reaches further up than Welch's logarithm does down.
    let (old, new) = ([10.0, 10.1, 9.9, 10.0, 30.0], [10.0, 10.2, 9.8, 10.1, 10.0]);
    let interval = judged(&old, &new).effect.unwrap().interval.unwrap();
    let samples = [old, new].map(|values| Sample::from(values.to_vec()));
    let series = [0, 1].map(|group| Series { group, sample: &samples[group] });
    let welch = propagate(&series, Level::default(), Scale::Logarithmic, |m| m[1] / m[0]).unwrap().interval.unwrap();
    let boot = rule().resampling.bootstrap(&old, &new, Level::default(), |old, new| new / old);
    assert_eq!((interval.low, interval.high), (welch.low.min(boot.0), welch.high.max(boot.1)));
}

#[test]
fn within_the_minimum_is_the_same_and_across_it_is_undecided() {
    let old = [100.0, 100.2, 99.8, 100.1];
    let times = |factor: f64| old.map(|value| value * factor);
    assert_eq!(verdict(&old, &old), Verdict::Same);
    assert_eq!(verdict(&old, &times(1.04)), Verdict::Same);
    assert_eq!(verdict(&old, &times(0.96)), Verdict::Same);
    assert_eq!(reason(&old, &times(1.05)), Reason::Wide);
    assert_eq!(reason(&old, &times(1.0 / 1.05)), Reason::Wide);
    assert_eq!(verdict(&old, &times(1.06)), Verdict::Better);
    assert_eq!(verdict(&old, &times(0.94)), Verdict::Worse);
    assert_eq!(reason(&[80.0, 120.0, 100.0], &[85.0, 125.0, 105.0]), Reason::Wide);
    let strict = Rule { minimum: Percent::new(1.0).unwrap(), ..rule() };
    assert_eq!(compare(&old, &times(1.04), &strict, &silent()).verdict, Verdict::Better);
}

#[test]
fn borders_belong_to_the_same() {
    // Without scatter the interval is the value itself.
    assert_eq!(verdict(&[100.0; 3], &[105.0; 3]), Verdict::Same);
    assert_eq!(verdict(&[100.0; 3], &[105.1; 3]), Verdict::Better);
}

#[test]
fn what_is_missing_is_named() {
    let some = [1.0, 2.0, 3.0];
    let nan = f64::NAN;
    assert_eq!(reason(&[], &some), Reason::NotMeasured(SampleSide::Old));
    assert_eq!(reason(&some, &[nan, nan]), Reason::NotMeasured(SampleSide::New));
    assert_eq!(reason(&[nan], &[]), Reason::NotMeasured(SampleSide::Both));
    let missing = Reason::Missing { which: SampleSide::New, missing: 1, of: 3 };
    assert_eq!(reason(&some, &[1.0, nan, 2.0]), missing);
    assert_eq!(missing.to_string(), "1 of 3 trials of the new run lacks the figure");
    assert_eq!(reason(&[1.0, nan], &[nan, 1.0]), Reason::Missing { which: SampleSide::Both, missing: 2, of: 4 });
    assert_eq!(reason(&some, &[f64::INFINITY, 1.0]), Reason::Missing { which: SampleSide::New, missing: 1, of: 2 });
    assert_eq!(judged(&[], &some).effect, None);
}

#[test]
fn few_trials_claim_little() {
    assert_eq!(reason(&[1.0], &[2.0]), Reason::SingleTrial(SampleSide::Both));
    assert_eq!(reason(&[1.0, 1.0], &[2.0]), Reason::SingleTrial(SampleSide::New));
    let effect = judged(&[1.0], &[2.0]).effect.unwrap();
    assert_eq!((effect.value, effect.interval, effect.p), (2.0, None, None));
    // Two trials may happen to lie close together: 12 of 100 times where a path runs at one of two speeds.
    assert_eq!(reason(&[10.0, 10.0], &[20.0, 20.0]), Reason::FewTrials);
    assert_eq!(reason(&[10.0, 10.0, 10.0], &[20.0, 20.0]), Reason::FewTrials);
    // With three, only where all of one lie above all of the other.
    assert_eq!(verdict(&[10.0, 10.1, 10.2], &[20.0, 20.1, 20.2]), Verdict::Better);
    assert_eq!(verdict(&[10.0, 10.0, 10.0], &[20.0, 20.0, 20.0]), Verdict::Better);
    // Two trials can be the same: they are as close as the interval says.
    assert_eq!(verdict(&[100.0, 100.01], &[100.02, 100.0]), Verdict::Same);
}

#[test]
fn chance_has_a_veto() {
    // Three values close together inside a wide sample: Welch trusts their closeness, and the bootstrap does too.
    let old = [10.0, 10.1, 9.9];
    let new: Vec<f64> = (0..20).map(|i| 8.0 + 0.6 * f64::from(i)).collect();
    let judgement = judged(&old, &new);
    let effect = judgement.effect.unwrap();
    assert!(effect.interval.unwrap().low > effect.minimum, "{effect:?}");
    let p = effect.p.unwrap();
    assert!((0.05..0.5).contains(&p), "{p}");
    assert_eq!((judgement.verdict, judgement.reason), (Verdict::Undecided, Some(Reason::Chance { p })));
}

#[test]
fn zero_makes_the_effect_a_difference() {
    let with = |resolution| Rule { resolution, better: Better::Lower, ..rule() };
    let judge = |old: &[f64], new: &[f64], resolution| compare(old, new, &with(resolution), &silent());
    // No retransmit in either run.
    let none = judge(&[0.0; 4], &[0.0; 4], 0.0);
    assert_eq!((none.verdict, none.effect.unwrap().kind), (Verdict::Same, Kind::Difference));
    // Some now and then.
    let some = judge(&[0.0; 4], &[0.0, 7.0, 0.0, 1.0], 1.0);
    assert_eq!(some.reason, Some(Reason::Wide));
    // Many in every trial, where there were none.
    let many = judge(&[0.0; 4], &[90.0, 110.0, 95.0, 105.0], 1.0);
    assert_eq!((many.verdict, many.effect.unwrap().value), (Verdict::Worse, 100.0));
    assert_eq!(many.effect.unwrap().minimum, 1.0);
    // The change from none to many, without a resolution to measure it against.
    assert_eq!(judge(&[0.0; 4], &[90.0, 110.0, 95.0, 105.0], 0.0).reason, Some(Reason::ZeroMean));
    // A zero in one trial: 5 % of the smaller mean still counts.
    let dead = judge(&[100.0, 0.0, 101.0, 99.0], &[100.0, 99.0, 101.0, 100.0], 0.0);
    assert_eq!((dead.reason, dead.effect.unwrap().minimum), (Some(Reason::Wide), 3.75));
}

#[test]
fn below_the_resolution_nothing_matters() {
    // An idle CPU: from 0.4 to 0.6 % is half as much again, and nothing.
    let rule = Rule { resolution: 1.0, better: Better::Lower, ..rule() };
    let judgement = compare(&[0.40, 0.41, 0.39, 0.4], &[0.6, 0.61, 0.59, 0.6], &rule, &silent());
    assert_eq!(judgement.verdict, Verdict::Same);
    assert!((judgement.effect.unwrap().minimum - 3.5).abs() < 1e-9);
    // A busy one: 5 % of 40 % is more than one point.
    let judgement = compare(&[40.0, 40.1, 39.9, 40.0], &[43.0, 43.1, 42.9, 43.0], &rule, &silent());
    assert_eq!((judgement.verdict, judgement.effect.unwrap().minimum), (Verdict::Worse, 1.05));
}

#[test]
fn the_noise_floor_has_a_veto() {
    let (old, new) = ([100.0, 100.1, 99.9, 100.0], [120.0, 120.1, 119.9, 120.0]);
    let with = |runs: Vec<f64>, new: &[f64]| compare(&old, new, &rule(), &Noise::new([runs]));
    // s = 8 % of 100, times 6.08: a factor of about 1.6.
    let noisy = with(vec![92.0, 100.0, 108.0], &new);
    assert_eq!(noisy.reason, Some(Reason::WithinNoise));
    assert!((1.55..1.70).contains(&noisy.effect.unwrap().noise_floor.unwrap()), "{noisy:?}");
    assert_eq!(with(vec![92.0, 100.0, 108.0], &old).reason, Some(Reason::NoiseAboveMinimum));
    assert_eq!(with(vec![99.9, 100.0, 100.1], &new).verdict, Verdict::Better);
    assert_eq!(with(vec![99.9, 100.0, 100.1], &old).verdict, Verdict::Same);
    // Two runs tell no spread.
    assert_eq!(with(vec![92.0, 108.0], &new).verdict, Verdict::Better);
}

#[test]
fn what_cannot_be_computed_is_said() {
    assert_eq!(reason(&[1e-320, 1e-320], &[1e300, 1e300]), Reason::NotFinite);
    assert_eq!(reason(&[f64::MAX, f64::MAX], &[-f64::MAX, -f64::MAX]), Reason::NotFinite);
}

#[test]
fn the_same_samples_give_the_same_figures() {
    let mut normal = NormalVariates(3);
    let (old, new) = (normal.draws(9, 10.0, 2.0), normal.draws(10, 12.0, 3.0));
    assert_eq!(judged(&old, &new), judged(&old, &new));
    let other = Rule { resampling: Resampling { seed: 1, ..Resampling::default() }, ..rule() };
    let effect = |rule: &Rule| compare(&old, &new, rule, &silent()).effect.unwrap();
    let (one, two) = (effect(&rule()), effect(&other));
    assert_ne!(one.p, two.p, "the seed is used");
    assert!((one.p.unwrap() - two.p.unwrap()).abs() < 0.02, "and does not matter");
}

/// Where samples come from in simulations.
#[derive(Debug, Clone, Copy)]
enum Source {
    Normal {
        scatter: f64,
    },
    /// Logarithms are normal.
    Skewed {
        scatter: f64,
    },
    /// One of two speeds, the second of which is taken with this probability.
    TwoSpeeds {
        second: f64,
    },
}

/// All have the mean 1.
impl Source {
    fn draws(self, normal: &mut NormalVariates, n: usize) -> Vec<f64> {
        let one = |normal: &mut NormalVariates| match self {
            // A throughput is not negative.
            Self::Normal { scatter } => normal.draw(1.0, scatter).max(1e-3),
            Self::Skewed { scatter } => (normal.draw(0.0, scatter) - scatter * scatter / 2.0).exp(),
            Self::TwoSpeeds { second } => {
                let is_second = normal.draw(0.0, 1.0) < quantile(second);
                let speed = if is_second { 3.0 } else { 1.0 };
                speed / (1.0 + 2.0 * second) * normal.draw(1.0, 0.01)
            }
        };
        (0..n).map(|_| one(normal)).collect()
    }
}

fn quantile(probability: f64) -> f64 {
    use statrs::distribution::{ContinuousCDF, Normal};
    Normal::standard().inverse_cdf(probability)
}

const SOURCES: [Source; 8] = [
    Source::Normal { scatter: 0.01 },
    Source::Normal { scatter: 0.05 },
    Source::Normal { scatter: 0.3 },
    Source::Skewed { scatter: 0.2 },
    Source::Skewed { scatter: 0.6 },
    Source::TwoSpeeds { second: 0.5 },
    Source::TwoSpeeds { second: 0.2 },
    Source::TwoSpeeds { second: 0.9 },
];

/// Of so many comparisons, the verdicts of two samples of `n` whose means are 1 and `ratio`.
fn simulate(source: Source, n: usize, ratio: f64, rounds: usize) -> Vec<Judgement> {
    let mut normal = NormalVariates(n as u64 * 1000 + (ratio * 100.0) as u64);
    (0..rounds)
        .map(|_| {
            let old = source.draws(&mut normal, n);
            let new: Vec<f64> = source.draws(&mut normal, n).iter().map(|value| value * ratio).collect();
            compare(&old, &new, &quick(), &silent())
        })
        .collect()
}

fn share(judgements: &[Judgement], test: impl Fn(&Judgement) -> bool) -> f64 {
    judgements.iter().filter(|judgement| test(judgement)).count() as f64 / judgements.len() as f64
}

fn is(verdict: Verdict) -> impl Fn(&Judgement) -> bool {
    move |judgement| judgement.verdict == verdict
}

fn covers(ratio: f64) -> impl Fn(&Judgement) -> bool {
    move |judgement| judgement.effect.and_then(|effect| effect.interval).is_some_and(|i| i.contains(ratio))
}

#[test]
fn equal_samples_are_seldom_called_better_or_worse() {
    let mut alarms = Vec::new();
    for source in SOURCES {
        for n in [2, 3, 5, 10] {
            let judgements = simulate(source, n, 1.0, 300);
            let wrong = share(&judgements, |j| matches!(j.verdict, Verdict::Better | Verdict::Worse));
            // 5 % and three standard deviations of a count of 300.
            assert!(wrong <= if n < TRIALS_MIN { 0.0 } else { 0.088 }, "{source:?}, {n}: {wrong}");
            alarms.push(wrong);
        }
    }
    let mean = alarms.iter().sum::<f64>() / alarms.len() as f64;
    assert!(mean > 0.0 && mean < 0.025, "{mean}: two-sided alarms are half a level each");
}

#[test]
fn a_change_that_matters_is_seldom_called_the_same() {
    for source in SOURCES {
        for n in [2, 3, 10] {
            let wrong = share(&simulate(source, n, 1.1, 300), is(Verdict::Same));
            assert!(wrong <= 0.01, "{source:?}, {n}: {wrong}");
        }
    }
}

/// What can be seen with how many trials, as docs/COMPARING.md tells it.
#[test]
fn power_grows_with_trials_and_falls_with_scatter() {
    let found = |scatter, n, ratio| share(&simulate(Source::Normal { scatter }, n, ratio, 200), is(Verdict::Better));
    let same = |scatter, n| share(&simulate(Source::Normal { scatter }, n, 1.0, 200), is(Verdict::Same));
    assert!(found(0.01, 3, 1.1) > 0.9 && same(0.01, 3) > 0.88);
    assert!(found(0.03, 3, 1.2) > 0.85 && found(0.03, 10, 1.1) > 0.8 && same(0.03, 10) > 0.75);
    assert!(found(0.03, 3, 1.1) < 0.35 && same(0.03, 3) < 0.3, "three trials that scatter by 3 % show little");
    assert_eq!(found(0.01, 2, 2.0), 0.0);
}

/// But for two trials of a source with two speeds, which may show one of them alone.
#[test]
fn intervals_hold_the_true_ratio() {
    for source in SOURCES {
        for n in [2, 3, 5, 10] {
            let covered = share(&simulate(source, n, 1.3, 300), covers(1.3));
            let two_of_one_speed = matches!(source, Source::TwoSpeeds { .. }) && n == 2;
            let least = if two_of_one_speed { 0.8 } else { 0.89 };
            assert!(covered >= least, "{source:?}, {n}: {covered}");
        }
    }
}

/// Runs that differ by 4 % among themselves, although their trials scatter by 0.5 % only.
#[test]
fn without_a_noise_floor_runs_that_wander_raise_false_alarms_and_with_it_few() {
    let mut normal = NormalVariates(99);
    let run = |normal: &mut NormalVariates| {
        let mean = normal.draw(1.0, 0.04);
        normal.draws(4, mean, 0.005)
    };
    let (mut blind, mut seeing) = (0, 0);
    let rounds = 300;
    for _ in 0..rounds {
        let noise = Noise::new([(0..5).map(|_| mean(&run(&mut normal))).collect()]);
        let (old, new) = (run(&mut normal), run(&mut normal));
        let alarm =
            |noise: &Noise| matches!(compare(&old, &new, &quick(), noise).verdict, Verdict::Better | Verdict::Worse);
        blind += usize::from(alarm(&silent()));
        seeing += usize::from(alarm(&noise));
    }
    assert!(blind > rounds / 5, "{blind}: trials alone cannot know");
    assert!(seeing < rounds / 12, "{seeing} of {rounds}");
}

fn sample() -> impl Strategy<Value = Vec<f64>> {
    vec(0.1..100.0f64, 2..7)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_follow_from_the_effect(old in sample(), new in sample(), runs in vec(0.1..100.0f64, 0..6)) {
        let noise = Noise::new([runs]);
        let judgement = compare(&old, &new, &quick(), &noise);
        let effect = judgement.effect.unwrap();
        let interval = effect.interval.unwrap();
        prop_assert!(interval.contains(effect.value));
        prop_assert_eq!(judgement.reason.is_some(), judgement.verdict == Verdict::Undecided);
        let floor = effect.noise_floor.unwrap_or(1.0);
        match judgement.verdict {
            Verdict::Better => prop_assert!(interval.low > effect.minimum && effect.value > floor),
            Verdict::Worse => prop_assert!(interval.high < 1.0 / effect.minimum && 1.0 / effect.value > floor),
            Verdict::Same => {
                prop_assert!(effect.value >= 1.0 / effect.minimum && effect.value <= effect.minimum);
                prop_assert!(floor <= effect.minimum || effect.noise_floor.is_none());
            }
            Verdict::Undecided => {}
        }
    }

    #[test]
    fn the_other_way_round_is_never_the_same_way(old in sample(), new in sample()) {
        let (there, back) = (compare(&old, &new, &quick(), &silent()), compare(&new, &old, &quick(), &silent()));
        let (one, other) = (there.effect.unwrap(), back.effect.unwrap());
        prop_assert!((one.value * other.value - 1.0).abs() < 1e-9);
        prop_assert!((one.minimum / other.minimum - 1.0).abs() < 1e-12);
        prop_assert!((one.p.unwrap() - other.p.unwrap()).abs() < 1e-9);
        let opposite = match there.verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            verdict => verdict,
        };
        // Other draws may push an interval over a border, and then nothing is decided.
        prop_assert!(back.verdict == opposite || [there.verdict, back.verdict].contains(&Verdict::Undecided));
    }

    #[test]
    fn the_unit_does_not_matter(old in sample(), new in sample(), power in -20i32..20) {
        let unit = 2f64.powi(power);
        let scaled = |values: &[f64]| values.iter().map(|value| value * unit).collect::<Vec<_>>();
        let (one, other) = (compare(&old, &new, &quick(), &silent()), compare(&scaled(&old), &scaled(&new), &quick(), &silent()));
        prop_assert_eq!(one.verdict, other.verdict);
    }

    #[test]
    fn nothing_is_decided_without_a_reason_and_nothing_panics(
        old in vec(prop_oneof![Just(0.0), Just(f64::NAN), Just(f64::INFINITY), any::<f64>()], 0..5),
        new in vec(prop_oneof![Just(0.0), Just(f64::NAN), Just(1e308), any::<f64>()], 0..5),
    ) {
        let judgement = compare(&old, &new, &quick(), &silent());
        prop_assert_eq!(judgement.reason.is_some(), judgement.verdict == Verdict::Undecided);
        let finite = old.iter().chain(&new).all(|value| value.is_finite()) && old.len().min(new.len()) > 1;
        prop_assert!(finite || judgement.verdict == Verdict::Undecided);
    }
}

fn found(values: &[f64], above: f64, bound: Option<Bound>) -> Sample {
    Sample::from(values.to_vec()).with(Resolution { below: 0.0, above }, bound)
}

/// What a search's grid hides is no certainty: neighbours on it are neither a change nor the same.
#[test]
fn a_grid_is_part_of_the_comparison() {
    let judge = |old: f64, new: f64, step: f64| {
        compare_samples(&found(&[old; 4], step, None), &found(&[new; 4], step, None), &rule(), &silent())
    };
    // Without it these would be a change of 8 % with an interval of no width.
    assert_eq!(judge(100.0, 108.0, 0.0).verdict, Verdict::Better);
    let near = judge(100.0, 108.0, 8.0);
    assert_eq!((near.verdict, near.reason), (Verdict::Undecided, Some(Reason::Coarse)));
    assert_eq!(judge(100.0, 100.0, 8.0).reason, Some(Reason::Coarse), "equal on so coarse a grid says little");
    assert_eq!(judge(100.0, 105.0, 2.0).reason, Some(Reason::Wide));
    let interval = judge(100.0, 100.0, 8.0).effect.unwrap().interval.unwrap();
    assert!(interval.low < 0.96 && interval.high > 1.04, "{interval:?}");
    assert_eq!(judge(100.0, 100.0, 2.0).verdict, Verdict::Same);
    assert_eq!(judge(100.0, 130.0, 8.0).verdict, Verdict::Better);
    // A difference, where one of both is zero.
    let judgement = compare_samples(&found(&[0.0; 4], 1.0, None), &found(&[1.0; 4], 1.0, None), &rule(), &silent());
    let interval = judgement.effect.unwrap().interval.unwrap();
    assert!(interval.low < 0.3 && interval.high > 1.7, "{interval:?}");
}

#[test]
fn bounds_prove_changes_but_never_that_nothing_changed() {
    let exact = |value: f64| found(&[value, value * 1.001, value * 0.999, value], 0.0, None);
    let least = |value: f64| exact(value).with(Resolution::EXACT, Some(Bound::AtLeast));
    let judge = |old: &Sample, new: &Sample| compare_samples(old, new, &rule(), &silent());
    let of = |old: &Sample, new: &Sample| (judge(old, new).verdict, judge(old, new).reason);
    // At least twice as much is better, with any limit; at least half as much may be better or worse.
    assert_eq!(of(&exact(100.0), &least(200.0)), (Verdict::Better, None));
    assert_eq!(of(&exact(100.0), &least(50.0)), (Verdict::Undecided, Some(Reason::Bound(SampleSide::New))));
    assert_eq!(of(&exact(100.0), &least(100.0)), (Verdict::Undecided, Some(Reason::Bound(SampleSide::New))));
    // What was at least 200 is now 100.
    assert_eq!(of(&least(200.0), &exact(100.0)), (Verdict::Worse, None));
    assert_eq!(of(&least(100.0), &exact(200.0)), (Verdict::Undecided, Some(Reason::Bound(SampleSide::Old))));
    for new in [50.0, 100.0, 200.0] {
        let judgement = judge(&least(100.0), &least(new));
        assert_eq!((judgement.verdict, judgement.reason), (Verdict::Undecided, Some(Reason::Bound(SampleSide::Both))));
        assert_eq!(judgement.effect.unwrap().bound, Some(Bound::Open));
    }
}

#[test]
fn a_share_cannot_change_by_more_than_all_of_it() {
    let percent = |values: [f64; 2]| {
        let mut sample = Sample::within(Range::PERCENT);
        sample.extend(values);
        sample
    };
    let judgement = compare_samples(&percent([0.0, 40.0]), &percent([50.0, 90.0]), &rule(), &silent());
    let interval = judgement.effect.unwrap().interval.unwrap();
    assert_eq!(interval.high, 100.0, "by no more than from nothing to all: {interval:?}");
    assert!(interval.low > -100.0 && interval.low < 0.0, "{interval:?}");
}

/// The history has a run in which nothing happened: the floor is what the others and it scatter by, not none.
#[test]
fn a_zero_in_the_history_leaves_a_noise_floor() {
    let noise = Noise::new([vec![0.0, 10.0, 11.0, 10.5]]);
    let judgement = compare(&[10.0, 10.1, 9.9], &[20.0, 20.1, 19.9], &rule(), &noise);
    assert!(judgement.effect.unwrap().noise_floor.is_some_and(|floor| floor > 2.0));
    assert_eq!(judgement.reason, Some(Reason::WithinNoise));
}

#[test]
fn facts_are_decided_by_one_trial() {
    let fact = Rule { is_fact: true, resolution: 0.5, better: Better::Lower, ..rule() };
    let judge = |old: &[f64], new: &[f64]| {
        let judgement = compare(old, new, &fact, &silent());
        (judgement.verdict, judgement.reason)
    };
    assert_eq!(judge(&[0.0], &[0.0]), (Verdict::Same, None));
    assert_eq!(judge(&[0.0], &[1.0]), (Verdict::Worse, None));
    assert_eq!(judge(&[7.0, 9.0], &[0.0]), (Verdict::Better, None));
    assert_eq!(judge(&[0.0, 5.0], &[3.0]), (Verdict::Undecided, Some(Reason::Wide)));
    assert_eq!(judge(&[0.0], &[]), (Verdict::Undecided, Some(Reason::NotMeasured(SampleSide::New))));
}

/// Two speeds 30 % apart: the means of 5 of 10 and of 6 of 10 differ, and the speeds do not.
#[test]
fn two_valued_results_are_compared_mode_by_mode() {
    let two = |high: usize, by: f64| -> Vec<f64> {
        (0..12).map(|i| by * if i < high { 130.0 } else { 100.0 } * (1.0 + 0.002 * (i as f64 * 1.3).sin())).collect()
    };
    let judgement = judged(&two(6, 1.0), &two(7, 1.0));
    assert_eq!(judgement.verdict, Verdict::Same, "{judgement:?}");
    let modes = judgement.modes.unwrap();
    let old = modes.old.unwrap();
    assert!((old.low - 100.0).abs() < 0.2 && (old.high - 130.0).abs() < 0.2 && old.share_high == 0.5, "{old:?}");
    assert!(modes.share_p.unwrap() > 0.5);
    assert_eq!(judged(&two(6, 1.0), &two(7, 1.1)).verdict, Verdict::Better);
    // How often each is taken changed: that is a change of the mean.
    let shifted = judged(&two(3, 1.0), &two(9, 1.0));
    assert!(shifted.modes.unwrap().share_p.unwrap() < 0.05 && shifted.verdict != Verdict::Same, "{shifted:?}");
    assert_eq!(judged(&two(6, 1.0), &[115.0, 115.1, 114.9, 115.2, 115.0, 114.8]).modes.unwrap().share_p, None);
}

#[test]
fn another_machine_may_be_the_change() {
    let (old, new) = ([100.0, 100.5, 99.5, 100.2], [110.0, 110.5, 109.5, 110.2]);
    assert_eq!(compare(&old, &new, &rule(), &silent()).verdict, Verdict::Better);
    let judgement = compare(&old, &new, &rule(), &silent().on_another_machine(1.0 / 1.15));
    assert_eq!((judgement.verdict, judgement.reason), (Verdict::Undecided, Some(Reason::WithinNoise)));
}
