//! Two runs that took turns: each block of one has a block of the other beside it, so that what the machine did to both cancels
//! ([`crate::blocks`]).

use super::{
    Effect, Judgement, Kind, Noise, Reason, Rule, SampleSide, TRIALS_MIN, change, compare, incomplete, mean, one_sided,
};
use crate::blocks::covariate::{Covariate, adjust};
use crate::blocks::modes::Modes;
use crate::blocks::{Contrast, least_p};
use crate::confidence::Interval;
use crate::sample::Sample;

/// Judges the change from `old` to `new`, which have a value for each block that both runs made, in the same order; NaN stands for one
/// that was not measured. `disturbances` tell, on a logarithmic scale, by how much more the new trial of each block was disturbed.
///
/// The effect is the centre of the blocks' ratios, or of their differences where a value is zero; the interval is that of
/// [`Contrast::interval`]. Verdicts follow as in [`compare`], with the sign-flip test in place of the permutation test and without a
/// noise floor: what runs differ by from one time to another is in both. What blocks cannot help with is compared as there: facts, limits,
/// what is known to a grid only, and two-valued results, of which each trial takes its value by itself.
pub fn compare_blocks(old: &Sample, new: &Sample, disturbances: &[Covariate], rule: &Rule) -> Judgement {
    let unpaired = |sample: &Sample| {
        sample.bound().is_some() || sample.resolution().width() > 0.0 || Modes::of(sample.values()).is_some()
    };
    if rule.is_fact || unpaired(old) || unpaired(new) {
        return compare(old, new, rule, &Noise::default());
    }
    let undecided = Judgement::undecided;
    let (old, new) = (old.values(), new.values());
    if let Some(reason) = incomplete(old, new) {
        return undecided(reason, None);
    }
    let kind = Kind::of(old, new);
    let scaled = |value: f64| if kind == Kind::Ratio { value.ln() } else { value };
    let unscaled = |value: f64| if kind == Kind::Ratio { value.exp() } else { value };
    let contrast = Contrast::of(old.iter().zip(new).map(|(old, new)| scaled(change(kind, *old, *new))).collect());
    let Some(contrast) = contrast else { return undecided(Reason::NotFinite, None) };
    // Only of a ratio is it known what a disturbance does to it.
    let adjusted = adjust(&contrast, if kind == Kind::Ratio { disturbances } else { &[] });
    let contrast = adjusted.map_or(contrast, |adjusted| adjusted.contrast);

    let smaller = mean(old).abs().min(mean(new).abs());
    let minimum = rule.least(kind, smaller);
    let value = unscaled(contrast.centre());
    if !value.is_finite() || !minimum.is_finite() {
        return undecided(Reason::NotFinite, None);
    }
    let mut effect =
        Effect { kind, value, interval: None, p: None, p_welch: None, minimum, noise_floor: None, bound: None };
    let interval = |level| {
        let interval = contrast.interval(level, rule.resampling)?;
        Some(Interval { low: unscaled(interval.low), high: unscaled(interval.high), ..interval })
    };
    let (Some(wide), Some(narrow)) = (interval(rule.level), interval(one_sided(rule.level))) else {
        return undecided(Reason::SingleTrial(SampleSide::Both), Some(effect));
    };
    let neutral = scaled(kind.neutral());
    let p = contrast.flips(neutral, rule.resampling);
    effect.interval = Some(wide);
    effect.p = Some(p);
    effect.p_welch = Some((2.0 * contrast.p_above(neutral).min(contrast.p_below(neutral))).min(1.0));

    let (below, above) = (kind.mirrored(minimum), minimum);
    let alpha = rule.level.alpha();
    let beyond = wide.high < below || wide.low > above;
    let inside = narrow.low >= below && narrow.high <= above;
    let reason = if smaller == 0.0 && minimum == 0.0 && wide.width() > 0.0 {
        Some(Reason::ZeroMean)
    } else if !beyond {
        (!inside).then_some(Reason::Wide)
    } else if contrast.blocks() < TRIALS_MIN {
        Some(Reason::FewTrials)
    } else {
        (p > alpha.max(least_p(contrast.blocks()))).then_some(Reason::Chance { p })
    };
    rule.judgement(effect, reason, inside)
}

#[cfg(test)]
mod tests {
    use super::super::{Better, Verdict};
    use super::*;
    use crate::confidence::Level;
    use crate::resample::Resampling;
    use crate::sample::Bound;
    use crate::units::Percent;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn rule() -> Rule {
        Rule {
            level: Level::default(),
            minimum: Percent::new(5.0).unwrap(),
            resolution: 0.0,
            better: Better::Lower,
            is_fact: false,
            resampling: Resampling { draws: 999, seed: 1 },
        }
    }

    /// Blocks of a machine that wanders by 15 %, whose trials scatter by `scatter`; the new ones are `ratio` times the old ones.
    fn turns(seed: u64, blocks: usize, scatter: f64, ratio: f64) -> (Sample, Sample) {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut normal = || {
            let (u, v): (f64, f64) = (generator.random_range(f64::MIN_POSITIVE..1.0), generator.random());
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        let (mut old, mut new) = (Sample::default(), Sample::default());
        for _ in 0..blocks {
            let machine = (0.15 * normal()).exp();
            old.push(100.0 * machine * (scatter * normal()).exp());
            new.push(100.0 * ratio * machine * (scatter * normal()).exp());
        }
        (old, new)
    }

    fn verdict(old: &Sample, new: &Sample) -> Verdict {
        compare_blocks(old, new, &[], &rule()).verdict
    }

    #[test]
    fn a_machine_that_wanders_hides_nothing_from_runs_that_took_turns() {
        let (old, new) = turns(1, 12, 0.02, 1.1);
        assert_eq!(verdict(&old, &new), Verdict::Worse);
        assert_eq!(verdict(&new, &old), Verdict::Better);
        let (old, same) = turns(2, 12, 0.02, 1.0);
        assert_eq!(verdict(&old, &same), Verdict::Same);
        // What the same values say when nothing is known of their blocks.
        assert_eq!(compare(&old, &same, &rule(), &Noise::default()).verdict, Verdict::Undecided);
        let effect = compare_blocks(&old, &same, &[], &rule()).effect.unwrap();
        assert!((effect.value - 1.0).abs() < 0.02 && effect.noise_floor.is_none(), "{effect:?}");
        assert!(effect.interval.unwrap().width() < 0.06, "{effect:?}");
    }

    #[test]
    fn equal_runs_are_seldom_called_different() {
        let rounds = 500;
        for blocks in [6, 9, 15] {
            let wrong = (0..rounds).filter(|round| {
                let (old, new) = turns(1000 * blocks as u64 + round, blocks, 0.1, 1.0);
                matches!(verdict(&old, &new), Verdict::Better | Verdict::Worse)
            });
            assert!(wrong.count() as f64 <= 0.05 * rounds as f64, "{blocks} blocks");
        }
    }

    #[test]
    fn ten_percent_more_is_hardly_ever_called_the_same() {
        let same = (0..500).filter(|round| {
            let (old, new) = turns(*round, 9, 0.05, 1.1);
            verdict(&old, &new) == Verdict::Same
        });
        assert!(same.count() <= 5);
    }

    #[test]
    fn a_known_disturbance_of_one_side_is_taken_out() {
        let (old, new) = turns(3, 12, 0.005, 1.0);
        let of_block = [0.0, 0.3, 0.0, 0.2, 0.0, 0.0, 0.4, 0.0, 0.0, 0.1, 0.0, 0.0];
        let new: Sample = new.values().iter().zip(of_block).map(|(value, z): (&f64, f64)| value * z.exp()).collect();
        assert_eq!(verdict(&old, &new), Verdict::Undecided);
        let known = [Covariate { differences: of_block.to_vec(), slope: Some(1.0) }];
        assert_eq!(compare_blocks(&old, &new, &known, &rule()).verdict, Verdict::Same);
    }

    #[test]
    fn a_figure_with_a_zero_is_told_by_its_differences() {
        let coarse = Rule { resolution: 10.0, ..rule() };
        let old = Sample::from(vec![0.0, 3.0, 1.0, 0.0, 2.0, 0.0]);
        let same = Sample::from(vec![1.0, 0.0, 2.0, 0.0, 0.0, 4.0]);
        let more = Sample::from(vec![50.0, 61.0, 48.0, 55.0, 70.0, 52.0]);
        let judged = compare_blocks(&old, &same, &[], &coarse);
        assert_eq!((judged.verdict, judged.effect.unwrap().kind), (Verdict::Same, Kind::Difference));
        assert_eq!(compare_blocks(&old, &more, &[], &coarse).verdict, Verdict::Worse);
        assert_eq!(compare_blocks(&old, &same, &[], &rule()).reason, Some(Reason::Wide));
    }

    #[test]
    fn what_blocks_cannot_tell_is_said_as_of_other_runs() {
        let few = |blocks| {
            let (old, new) = turns(4, blocks, 0.001, 2.0);
            compare_blocks(&old, &new, &[], &rule()).reason
        };
        assert_eq!(few(1), Some(Reason::SingleTrial(SampleSide::Both)));
        assert_eq!(few(2), Some(Reason::FewTrials));
        assert_eq!(few(3), None);
        let (old, mut new) = turns(5, 6, 0.01, 1.0);
        let limit = new.clone().with(new.resolution(), Some(Bound::AtLeast));
        assert_eq!(compare_blocks(&old, &limit, &[], &rule()).reason, Some(Reason::Bound(SampleSide::New)));
        new.push(f64::NAN);
        let (old, _) = turns(5, 7, 0.01, 1.0);
        assert!(matches!(
            compare_blocks(&old, &new, &[], &rule()).reason,
            Some(Reason::Missing { which: SampleSide::New, missing: 1, of: 7 })
        ));
        let fact = Rule { is_fact: true, resolution: 0.5, ..rule() };
        let none = Sample::from(vec![0.0]);
        assert_eq!(compare_blocks(&none, &Sample::from(vec![7.0]), &[], &fact).verdict, Verdict::Worse);
    }
}
