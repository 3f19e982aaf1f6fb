//! Claims about runs that were made in blocks: what each block says, and how surely all of them do.

use std::fmt::Write;

use rig_stats::blocks::covariate::{AdjustedValues, Covariate, adjust};
use rig_stats::blocks::modes::Modes;
use rig_stats::blocks::{Contrast, least_p, plan, sequential};
use rig_stats::compare::{Resampling, TRIALS_MIN};
use rig_stats::confidence::{Interval, Level};
use rig_stats::propagate::Scale;

use super::{Claim, Effect, EffectUnit, Judgement, Metric, Threshold, Verdict};

/// A claim with its effect in each block.
#[derive(Debug, Clone)]
pub struct ClaimBlocks {
    effect_is: String,
    unit: EffectUnit,
    threshold: Threshold,
    scale: Scale,
    /// What was measured; on a logarithmic scale, logarithms.
    measured: Contrast,
    covariates: Vec<(&'static str, Covariate)>,
    /// The measured contrast, adjusted by a covariate that explains a part of its scatter, where there is one.
    contrast: Contrast,
    /// The name of that covariate, and the part of the scatter that is left.
    adjusted: Option<(&'static str, f64)>,
}

/// What blocks tell of other runs of the same, on the scale of their values: logarithms, of ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockSpread {
    /// What the value of one block scatters by, as a standard deviation.
    pub deviation: f64,
    /// Of so many blocks.
    pub blocks: usize,
    /// From the nearest border of what is claimed; `None` where it has none.
    pub distance: Option<f64>,
    /// Whether both are logarithms.
    pub is_ratio: bool,
}

/// What was done to the trials that a claim's figures are of.
#[derive(Debug, Clone, PartialEq)]
pub struct Disturbance {
    pub name: &'static str,
    /// What it multiplies each figure by where that is known of all, as logarithms; else how large it was, on any scale.
    pub is_factor: bool,
    /// In each block, for each of the claim's figures.
    pub blocks: Vec<Vec<f64>>,
}

/// Step by which an effect's dependence on its figures is found.
const STEP: f64 = 1e-4;

/// How much blocks speak against each answer, as one-sided p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneSidedP {
    /// Small where the claim holds.
    pub not_holding: f64,
    /// Small where it is refuted.
    pub holding: f64,
}

impl OneSidedP {
    /// The p of the answer that the blocks lean to.
    pub fn least(self) -> f64 {
        self.not_holding.min(self.holding)
    }

    pub fn leaning(self) -> Verdict {
        if self.not_holding <= self.holding { Verdict::Holds } else { Verdict::Refuted }
    }
}

impl Claim {
    /// Whether the claim is about what was counted in one trial of one scenario, which does not scatter: how many connections
    /// failed or were held, and how many packets and bytes each took.
    pub fn is_fact(&self) -> bool {
        let [first, ..] = self.figures.as_slice() else { return false };
        let one_trial = self.figures.iter().all(|f| (&f.scenario, &f.phase) == (&first.scenario, &first.phase));
        let state = |metric| matches!(metric, Metric::Failed | Metric::Concurrent);
        let counted = |metric| {
            state(metric)
                || matches!(
                    metric,
                    Metric::Connections
                        | Metric::Transactions
                        | Metric::PacketsOut
                        | Metric::PacketsIn
                        | Metric::BitsOut
                        | Metric::BitsIn
                        | Metric::DutPacketsIn
                        | Metric::DutPacketsOut
                        | Metric::DutBitsIn
                        | Metric::DutBitsOut
                )
        };
        // A count for each of another; a rate by itself scatters.
        let all = |test: &dyn Fn(Metric) -> bool| self.figures.iter().all(|figure| test(figure.metric));
        one_trial && (all(&state) || (self.figures.len() > 1 && all(&counted)))
    }

    /// Judges a fact by each trial alone; `trials` has the claim's figures in each. `None` without trials.
    pub fn evaluate_fact(&self, trials: &[Vec<f64>]) -> Option<Judgement> {
        let effect = self.effect(trials.iter().flatten().all(|value| *value > 0.0));
        let values: Vec<f64> = trials.iter().map(|figures| effect.expr.value(figures)).collect();
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let failing = values.iter().filter(|value| !effect.threshold.holds(**value)).count();
        let verdict = if failing == 0 { Verdict::Holds } else { Verdict::Refuted };
        let Effect { threshold, unit, .. } = effect;
        let effect_is = effect.expr.written(&self.figures).to_string();
        let range = if low == high { unit.show(low) } else { format!("{} to {}", unit.show(low), unit.show(high)) };
        let mut words =
            format!("{effect_is} is {range}, claimed {}; counted, so that each trial decides", threshold.show(unit));
        if failing > 0 {
            let _ = write!(words, ", and {failing} of {} do not hold", values.len());
        }
        let effect = Some(if failing > 0 && threshold.holds(low) { high } else { low });
        Some(Judgement { verdict, effect_is, unit, effect, interval: None, bound: None, threshold, words })
    }

    /// The claim's effect in each block; `blocks` has the claim's figures in each, and `disturbances` what was done to them. `None` where
    /// it cannot be computed in one.
    pub fn by_block(&self, blocks: &[Vec<f64>], disturbances: &[Disturbance]) -> Option<ClaimBlocks> {
        let Effect { expr, threshold, scale, unit } = self.effect(blocks.iter().flatten().all(|value| *value > 0.0));
        let value = |figures: &Vec<f64>| {
            let value = expr.value(figures);
            if scale == Scale::Logarithmic { value.ln() } else { value }
        };
        let contrast = Contrast::of(blocks.iter().map(value).collect())?;
        // By how much the effect's logarithm follows that of each figure: 1 above a line, -1 below.
        let weighed = |figures: &Vec<f64>, of_each: &Vec<f64>| -> f64 {
            let weight = |place: usize| {
                let mut more = figures.clone();
                more[place] *= STEP.exp();
                (value(&more) - value(figures)) / STEP
            };
            of_each.iter().enumerate().map(|(place, z)| weight(place) * z).sum()
        };
        let covariate = |disturbance: &Disturbance| {
            let differences =
                blocks.iter().zip(&disturbance.blocks).map(|(one, of_each)| weighed(one, of_each)).collect();
            (disturbance.name, Covariate { differences, slope: disturbance.is_factor.then_some(1.0) })
        };
        let covariates =
            if scale == Scale::Logarithmic { disturbances.iter().map(covariate).collect() } else { Vec::new() };
        let effect_is = expr.written(&self.figures).to_string();
        let measured = contrast.clone();
        Some(
            ClaimBlocks { effect_is, unit, threshold, scale, measured, covariates, contrast, adjusted: None }
                .adjusted(),
        )
    }
}

impl Threshold {
    /// The border below which the claim does not hold, and the one above.
    pub(super) fn borders(self) -> (Option<f64>, Option<f64>) {
        match self {
            Self::AtLeast(t) | Self::Above(t) => (Some(t), None),
            Self::AtMost(t) | Self::Below(t) => (None, Some(t)),
            Self::Within { low, high } => (Some(low), Some(high)),
        }
    }
}

impl ClaimBlocks {
    pub fn blocks(&self) -> usize {
        self.contrast.blocks()
    }

    /// Whether it can be judged on the scale of its effect: of a ratio's threshold a logarithm is needed, too.
    pub fn is_judged(&self) -> bool {
        let (least, _) = self.threshold.borders();
        self.scale == Scale::Linear || least.is_none_or(|border| border > 0.0)
    }

    /// As it was after so many blocks.
    pub fn after(&self, blocks: usize) -> Option<Self> {
        let measured = self.measured.first(blocks)?;
        let covariates = self.covariates.iter().map(|(name, covariate)| (*name, covariate.first(blocks))).collect();
        let effect_is = self.effect_is.clone();
        Some(Self { contrast: measured.clone(), measured, covariates, effect_is, ..*self }.adjusted())
    }

    /// Without what disturbed it.
    fn adjusted(self) -> Self {
        let covariates: Vec<Covariate> = self.covariates.iter().map(|(_, covariate)| covariate.clone()).collect();
        match adjust(&self.measured, &covariates) {
            Some(AdjustedValues { contrast, covariate, left, .. }) => {
                Self { contrast, adjusted: Some((self.covariates[covariate].0, left)), ..self }
            }
            None => Self { adjusted: None, ..self },
        }
    }

    /// What was taken out of the effect, e.g. `other programs`.
    pub fn adjusted_for(&self) -> Option<&'static str> {
        self.adjusted.map(|(name, _)| name)
    }

    /// On the contrast's scale.
    fn borders(&self) -> (Option<f64>, Option<f64>) {
        let (low, high) = self.threshold.borders();
        let scaled = |border: Option<f64>| match self.scale {
            Scale::Linear => border,
            // A ratio that is to be at most 0 or less never is.
            Scale::Logarithmic => border.map(|border| if border > 0.0 { border.ln() } else { f64::NEG_INFINITY }),
        };
        (scaled(low), scaled(high))
    }

    pub fn against(&self) -> OneSidedP {
        match self.borders() {
            (Some(low), Some(high)) => {
                let equality = self.contrast.equality(low, high);
                OneSidedP { not_holding: equality.same, holding: equality.differs }
            }
            (Some(low), None) => {
                OneSidedP { not_holding: self.contrast.p_above(low), holding: self.contrast.p_below(low) }
            }
            (None, Some(high)) => {
                OneSidedP { not_holding: self.contrast.p_below(high), holding: self.contrast.p_above(high) }
            }
            (None, None) => OneSidedP { not_holding: 1.0, holding: 1.0 },
        }
    }

    /// The one-sided p of a leaning as a two-sided one, since levels, looks and the test of independent samples are two-sided.
    /// Equality is two one-sided tests, each with the whole error.
    pub fn two_sided(&self, leaning: Verdict, p: f64) -> f64 {
        let is_equality = leaning == Verdict::Holds && matches!(self.threshold, Threshold::Within { .. });
        if is_equality { p } else { (2.0 * p).min(1.0) }
    }

    /// Whether the interval, which assumes less of the blocks' distribution, says the same. For equality it is that of two
    /// one-sided tests, 90 % for 95 %.
    pub fn interval_agrees(&self, leaning: Verdict, level: Level) -> bool {
        let is_equality = leaning == Verdict::Holds && matches!(self.threshold, Threshold::Within { .. });
        let level = if is_equality { level.of_equality() } else { level };
        let interval = self.contrast.interval(level, Resampling::default()).map(|interval| self.unscaled(interval));
        interval.is_some_and(|interval| self.threshold.verdict(interval.low, interval.high) == leaning)
    }

    /// Both values of a ratio that takes one of two, each with its number of blocks.
    fn modes(&self) -> Option<[(f64, usize); 2]> {
        if self.scale != Scale::Logarithmic {
            return None;
        }
        let Modes { low, high } =
            Modes::of(&self.contrast.values().iter().map(|value| value.exp()).collect::<Vec<_>>())?;
        let mode = |values: &[f64]| (values.iter().sum::<f64>() / values.len() as f64, values.len());
        Some([mode(&low), mode(&high)])
    }

    /// Whether an effect that takes one of two values is on the leaning's side with both. What lies between them says nothing of
    /// either.
    pub fn modes_agree(&self, leaning: Verdict) -> bool {
        let agrees = |(value, _): &(f64, usize)| self.threshold.holds(*value) == (leaning == Verdict::Holds);
        self.modes().is_none_or(|modes| modes.iter().all(agrees))
    }

    fn unscaled(&self, interval: Interval) -> Interval {
        match self.scale {
            Scale::Linear => interval,
            Scale::Logarithmic => {
                Interval { low: interval.low.exp(), high: interval.high.exp().min(f64::MAX), ..interval }
            }
        }
    }

    /// How many blocks it would take in all to decide, about, beside so many other claims that are open; `None` where no number that is
    /// worth making would. Both the test has to reach its p, corrected for the others, and the interval to end at what is claimed.
    pub fn blocks_needed(&self, level: Level, open: usize) -> Option<u32> {
        let centre = self.contrast.trimmed_mean();
        let (low, high) = self.borders();
        let border = [low, high]
            .into_iter()
            .flatten()
            .min_by(|one, other| (centre - one).abs().total_cmp(&(centre - other).abs()))?;
        let distance = (centre - border).abs();
        let blocks = self.blocks() as f64;
        let deviation = self.contrast.error()? * blocks.sqrt();
        let by_test = plan::blocks_for_half_width(deviation, distance, level.among(open))?;
        let interval = self.contrast.interval(level, Resampling::default())?;
        let half = if border < centre { centre - interval.low } else { interval.high - centre };
        let by_interval = blocks * (half / distance).powi(2);
        let needed = f64::from(by_test).max(by_interval).max(blocks + 1.0).ceil();
        (needed <= 10_000.0).then_some(needed as u32)
    }

    /// What a run like this one can expect; `None` of a single block.
    pub fn outlook(&self) -> Option<BlockSpread> {
        let deviation = self.contrast.error()? * (self.blocks() as f64).sqrt();
        let centre = self.contrast.trimmed_mean();
        let (low, high) = self.borders();
        let distances = [low, high].into_iter().flatten().map(|border| (centre - border).abs());
        Some(BlockSpread {
            deviation,
            blocks: self.blocks(),
            distance: distances.filter(|distance| distance.is_finite()).reduce(f64::min),
            is_ratio: self.scale == Scale::Logarithmic,
        })
    }

    /// The claim as these blocks show it. `needed` is how many blocks would decide it, where it is undecided and that is known.
    pub fn judgement(&self, level: Level, verdict: Verdict, why: VerdictReason, needed: Option<u32>) -> Judgement {
        let value = match self.scale {
            Scale::Linear => self.contrast.centre(),
            Scale::Logarithmic => self.contrast.centre().exp(),
        };
        let interval = self.contrast.interval(level, Resampling::default()).map(|interval| self.unscaled(interval));
        let blocks = self.blocks();
        let (shown, ends) = self.unit.show_known(value, interval);
        let mut words = format!("{} is {shown}", self.effect_is);
        if let Some((low, high)) = ends {
            let _ = write!(words, " ({} % interval {low} to {high}, {blocks} blocks)", level.percent());
        }
        let _ = write!(words, ", claimed {}", self.threshold.show(self.unit));
        if let Some((name, left)) = self.adjusted {
            let _ =
                write!(words, "; adjusted for {name}, without which blocks scatter {:.1} times as much", 1.0 / left);
        }
        if let Some([(low, fewer), (high, more)]) = self.modes() {
            let (low, high) = (self.unit.show_to(3, low), self.unit.show_to(3, high));
            let _ = write!(words, "; two-valued, about {low} in {fewer} blocks and {high} in {more}");
        }
        words += &why.words(blocks);
        match (why, needed) {
            (VerdictReason::Among(_) | VerdictReason::Wide, Some(needed)) => {
                let _ = write!(words, ", about {needed} blocks in all should decide it");
            }
            (VerdictReason::Wide, None) => words += ", and too close to the effect for more blocks to decide it",
            _ => {}
        }
        if verdict != Verdict::Undecided && blocks < sequential::LEAST as usize {
            let _ = write!(
                words,
                "; with so few blocks this assumes normal scatter: a sign test alone cannot give p below {:.2}",
                least_p(blocks)
            );
        }
        Judgement {
            verdict,
            effect_is: self.effect_is.clone(),
            unit: self.unit,
            effect: Some(value),
            interval,
            bound: None,
            threshold: self.threshold,
            words,
        }
    }
}

/// Why a verdict is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictReason {
    /// After so many blocks.
    Decided { after: usize },
    /// There is one block only.
    Single,
    /// Fewer than [`TRIALS_MIN`] blocks.
    Few,
    /// Not surely enough for one of so many claims.
    Among(usize),
    /// The interval reaches across.
    Wide,
    /// The effect takes two values, of which one speaks for the claim and one against it.
    TwoValued,
    /// More trials are to come, and looking at independent samples before that is not allowed for.
    NotOver,
}

impl VerdictReason {
    /// What the reader is told of it, of a claim with so many blocks; begins with what parts it from the words before.
    pub fn words(self, blocks: usize) -> String {
        match self {
            Self::Decided { after } if after < blocks => format!("; decided after {after} blocks"),
            Self::Decided { .. } => String::new(),
            Self::Single => "; a single block gives no interval".to_owned(),
            Self::Few => format!("; fewer than {TRIALS_MIN} blocks lie apart by chance too often"),
            Self::Among(claims) => {
                format!("; decided by itself, but not with enough certainty as one of {claims} claims")
            }
            Self::Wide => "; the claimed value is inside the interval".to_owned(),
            Self::TwoValued => "; one of the two is on either side of what is claimed".to_owned(),
            Self::NotOver => "; judged when the run is over".to_owned(),
        }
    }
}
