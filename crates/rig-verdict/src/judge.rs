//! The judge of claims: which evidence a run has for each, and how surely the evidence decides all of them together.
//!
//! In this order:
//! 1. A fact ([`Claim::is_fact`]) is decided by each trial alone.
//! 2. Where the trials were made in blocks, the effect is computed in each block and judged by the blocks
//!    ([`rig_stats::blocks`]). The verdict needs both the test that is corrected for all claims that are judged so (Holm) and the
//!    interval, which assumes less. A run with a budget is looked at several times; the boundaries keep the error
//!    ([`rig_stats::blocks::sequential`]), and what was decided at a look stays decided. Of a ratio that takes one of two
//!    values both have to say the same. Measured disturbances of the trials are taken out of the effect where that makes blocks
//!    scatter less ([`rig_stats::blocks::covariate`]).
//! 3. Otherwise trials are independent samples ([`Claim::evaluate`]): those of runs without blocks, of scenarios that share fewer
//!    than six blocks and less than half of those made, and figures that are limits or known to a grid only. They are judged once
//!    no more are to come, and are corrected together with the claims that have blocks.
//!
//! Claims have no noise floor: both sides of one are of the same run, so that what differs from run to run is in both.

mod aa;
mod data;
pub(crate) mod disturbances;

use std::collections::{BTreeMap, BTreeSet};

use rig_facts::claim::{BlockSpread, Claim, ClaimBlocks, FigureRef, Judgement, Verdict, VerdictReason};
use rig_facts::figures::phases::reading_of;
use rig_facts::figures::sample_of;
use rig_facts::record::TrialRecord;
use rig_stats::blocks::holm;
use rig_stats::blocks::sequential::{InterimAnalysis, LEAST, boundaries};
use rig_stats::compare::TRIALS_MIN;
use rig_stats::confidence::Level;
use rig_stats::sample::{Reading, Sample};

pub use self::aa::{AaData, AaFigure, AaVerdict};
pub use self::data::{ClaimData, ClaimEvidence};

/// How sure to be, and how often the results are looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    pub level: Level,
    /// The planned blocks of a run that stops scenarios whose claims are decided; `None` for a run that makes all trials in any case.
    pub planned: Option<u32>,
    /// Whether no more blocks are to come.
    pub is_over: bool,
}

impl Rule {
    /// Whether this looks at all trials there will be.
    fn is_last_look(&self) -> bool {
        self.is_over || self.planned.is_none()
    }
}

/// What is said of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Ruling {
    pub judgement: Judgement,
    pub evidence: Evidence,
    /// Blocks that would decide it, about, where it is undecided and that is known.
    pub blocks_needed: Option<u32>,
    /// The disturbance of trials that was taken out of the effect.
    pub adjusted_for: Option<&'static str>,
}

/// What a claim was judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Each trial decides.
    Fact,
    Blocks(usize),
    /// Trials as independent samples.
    Samples,
}

impl Ruling {
    pub fn is_decided(&self) -> bool {
        self.judgement.verdict != Verdict::Undecided
    }
}

/// Judges claims together by the trials made.
pub fn judge(claims: &[&Claim], trials: &[TrialRecord], rule: &Rule) -> Vec<Ruling> {
    let run = Trials::of(trials);
    let by_block: Vec<Option<ClaimBlocks>> = claims
        .iter()
        .map(|claim| if claim.is_fact() { None } else { run.by_block(claim).filter(ClaimBlocks::is_judged) })
        .collect();
    let samples: Vec<Option<(Judgement, f64)>> = claims
        .iter()
        .zip(&by_block)
        .map(|(claim, by_block)| {
            let sample = |figure: &FigureRef| run.sample(figure);
            (by_block.is_none() && !claim.is_fact()).then(|| {
                let judgement = claim.evaluate(rule.level, &sample);
                (judgement, if rule.is_last_look() { claim.least_p(&sample) } else { 1.0 })
            })
        })
        .collect();
    let evidence = by_block.iter().zip(&samples).map(|(by_block, sample)| match (by_block, sample) {
        (Some(by_block), _) => MeasuredEvidence::Blocks(by_block),
        (None, Some((judgement, p))) if judgement.interval.is_some() => {
            MeasuredEvidence::Samples(judgement.verdict, *p)
        }
        _ => MeasuredEvidence::Nothing,
    });
    let answers = decide(&evidence.collect::<Vec<_>>(), rule);
    let open = answers.iter().flatten().filter(|(verdict, _)| *verdict == Verdict::Undecided).count();
    let mut decided = answers.into_iter();
    let mut samples = samples.into_iter();
    let rule_on = |(claim, by_block): (&&Claim, &Option<ClaimBlocks>)| {
        let (answer, sample) = (decided.next().flatten(), samples.next().flatten());
        if let Some(judgement) = claim.is_fact().then(|| run.fact(claim)).flatten() {
            return Ruling { judgement, evidence: Evidence::Fact, blocks_needed: None, adjusted_for: None };
        }
        let Some((by_block, (verdict, why))) = by_block.as_ref().zip(answer) else {
            let judgement = sample.map(|(judgement, _)| judgement);
            let mut judgement = judgement.unwrap_or_else(|| claim.evaluate(rule.level, &|figure| run.sample(figure)));
            if let Some((verdict, why)) = answer.filter(|(verdict, _)| *verdict != judgement.verdict) {
                judgement.verdict = verdict;
                judgement.words += &why.words(0);
            }
            if let Some(why) = run.why_no_blocks(claim) {
                judgement.words += why;
            }
            return Ruling { judgement, evidence: Evidence::Samples, blocks_needed: None, adjusted_for: None };
        };
        // No number of blocks makes one value of two.
        let more_help = verdict == Verdict::Undecided && why != VerdictReason::TwoValued;
        let blocks_needed = by_block.blocks_needed(rule.level, open).filter(|_| more_help);
        Ruling {
            judgement: by_block.judgement(rule.level, verdict, why, blocks_needed),
            evidence: Evidence::Blocks(by_block.blocks()),
            blocks_needed,
            adjusted_for: by_block.adjusted_for(),
        }
    };
    claims.iter().zip(&by_block).map(rule_on).collect()
}

/// What runs like these trials can expect of each claim; `None` for a fact, and for a claim that is not judged by blocks.
pub fn outlook(claims: &[&Claim], trials: &[TrialRecord]) -> Vec<Option<BlockSpread>> {
    let run = Trials::of(trials);
    let of_one = |claim: &&Claim| run.by_block(claim).filter(ClaimBlocks::is_judged)?.outlook();
    claims.iter().map(|claim| if claim.is_fact() { None } else { of_one(claim) }).collect()
}

/// A value as answers and tables have it. A value that compares scenarios comes from the blocks that they share, as claims are
/// judged, so that both say the same. Other values are means of all trials, which count as independent of each other.
pub fn value<'a>(claim: &Claim, trials: impl IntoIterator<Item = &'a TrialRecord>, level: Level) -> Judgement {
    let run = Trials::of(trials);
    let scenarios: BTreeSet<&str> = claim.figures().iter().map(|figure| figure.scenario.as_str()).collect();
    let by_block = (scenarios.len() > 1).then(|| run.by_block(claim)).flatten().filter(|blocks| blocks.blocks() > 1);
    match by_block {
        Some(by_block) => by_block.judgement(level, Verdict::Undecided, VerdictReason::Wide, None),
        None => claim.evaluate(level, &|figure| run.sample(figure)),
    }
}

/// The evidence of a claim that is no fact.
enum MeasuredEvidence<'a> {
    Blocks(&'a ClaimBlocks),
    /// The verdict of independent samples by their interval alone, and how surely it decides, as a two-sided p.
    Samples(Verdict, f64),
    Nothing,
}

impl<'a> MeasuredEvidence<'a> {
    fn blocks(&self) -> Option<&'a ClaimBlocks> {
        match self {
            Self::Blocks(claim) => Some(claim),
            _ => None,
        }
    }
}

/// The verdict on each claim that was measured, and why.
fn decide(claims: &[MeasuredEvidence<'_>], rule: &Rule) -> Vec<Option<(Verdict, VerdictReason)>> {
    let alpha = rule.level.alpha();
    let is_last = rule.is_last_look();
    // After how many blocks each claim is looked at, and the p that is to be reached then.
    let looks: Vec<Vec<InterimAnalysis>> = claims
        .iter()
        .map(|claim| {
            let Some(made) = claim.blocks().map(|claim| u32::try_from(claim.blocks()).unwrap_or(u32::MAX)) else {
                return Vec::new();
            };
            match rule.planned {
                None => vec![InterimAnalysis { blocks: made, p: alpha }],
                Some(planned) if rule.is_over => boundaries(planned, made, alpha),
                Some(planned) => {
                    let most_before_last = planned.saturating_sub(1);
                    let planned = boundaries(planned, planned, alpha);
                    // The last look is at all blocks, of which more may come than were planned.
                    planned.into_iter().filter(|look| look.blocks <= made.min(most_before_last)).collect()
                }
            }
        })
        .collect();
    let most = looks.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut answers: Vec<Option<(Verdict, VerdictReason)>> = claims.iter().map(first_word).collect();
    let mut last: Vec<f64> = vec![1.0; claims.len()];
    let family: Vec<usize> = (0..claims.len()).filter(|index| answers[*index].is_some()).collect();
    for round in 0..most {
        let are_samples_judged = is_last && round + 1 == most;
        let is_open = |answer: &Option<(Verdict, VerdictReason)>| {
            answer.is_some_and(|(verdict, _)| verdict == Verdict::Undecided)
        };
        let mut leanings = vec![Verdict::Undecided; claims.len()];
        let mut at_look: Vec<Option<(ClaimBlocks, InterimAnalysis)>> = vec![None; claims.len()];
        for &index in &family {
            if let MeasuredEvidence::Samples(_, p) = claims[index]
                && are_samples_judged
            {
                last[index] = p;
            }
            let (Some(claim), Some(&look)) = (claims[index].blocks(), looks[index].get(round)) else { continue };
            if !is_open(&answers[index]) {
                continue;
            }
            let Some(claim) = claim.after(look.blocks as usize) else { continue };
            let against = claim.against();
            leanings[index] = against.leaning();
            last[index] = claim.two_sided(leanings[index], against.least());
            at_look[index] = Some((claim, look));
        }
        let corrected = holm(&family.iter().map(|index| last[*index]).collect::<Vec<_>>());
        for (&index, corrected) in family.iter().zip(corrected) {
            if let MeasuredEvidence::Samples(verdict, _) = claims[index]
                && are_samples_judged
            {
                let is_sure = verdict == Verdict::Undecided || corrected <= alpha;
                let among = (Verdict::Undecided, VerdictReason::Among(family.len()));
                answers[index] = Some(if is_sure { (verdict, VerdictReason::Decided { after: 0 }) } else { among });
            }
            let Some((claim, look)) = &at_look[index] else { continue };
            let leaning = leanings[index];
            if claim.blocks() < TRIALS_MIN {
                continue;
            }
            let agrees = claim.interval_agrees(leaning, rule.level);
            answers[index] = Some(if agrees && corrected <= look.p {
                match claim.modes_agree(leaning) {
                    true => (leaning, VerdictReason::Decided { after: claim.blocks() }),
                    false => (Verdict::Undecided, VerdictReason::TwoValued),
                }
            } else if agrees && last[index] <= look.p {
                (Verdict::Undecided, VerdictReason::Among(family.len()))
            } else {
                (Verdict::Undecided, VerdictReason::Wide)
            });
        }
    }
    answers
}

fn first_word(claim: &MeasuredEvidence<'_>) -> Option<(Verdict, VerdictReason)> {
    let why = match claim {
        MeasuredEvidence::Nothing => return None,
        MeasuredEvidence::Samples(..) => VerdictReason::NotOver,
        MeasuredEvidence::Blocks(claim) => match claim.blocks() {
            0 | 1 => VerdictReason::Single,
            few if few < TRIALS_MIN => VerdictReason::Few,
            _ => VerdictReason::Wide,
        },
    };
    Some((Verdict::Undecided, why))
}

/// The trials of a run by scenario, in the order in which they were made.
struct Trials<'a>(BTreeMap<&'a str, Vec<&'a TrialRecord>>);

impl<'a> Trials<'a> {
    fn of(trials: impl IntoIterator<Item = &'a TrialRecord>) -> Self {
        let mut by_scenario: BTreeMap<&str, Vec<&TrialRecord>> = BTreeMap::new();
        for trial in trials {
            by_scenario.entry(&trial.scenario).or_default().push(trial);
        }
        Self(by_scenario)
    }

    fn scenario(&self, id: &str) -> &[&'a TrialRecord] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }

    /// As independent samples have it; `None` where a trial lacks the figure.
    fn sample(&self, figure: &FigureRef) -> Option<Sample> {
        let readings: Option<Vec<Reading>> =
            self.scenario(&figure.scenario).iter().map(|trial| reading_of(trial, figure)).collect();
        readings.filter(|readings| !readings.is_empty()).map(|readings| sample_of(readings, figure.metric))
    }

    fn fact(&self, claim: &Claim) -> Option<Judgement> {
        let scenario = &claim.figures().first()?.scenario;
        let values = |trial: &&TrialRecord| claim.figures().iter().map(|f| exact(trial, f)).collect::<Option<Vec<_>>>();
        let trials: Option<Vec<_>> = self.scenario(scenario).iter().map(values).collect();
        claim.evaluate_fact(&trials?)
    }

    fn blocks_of(&self, scenario: &str) -> Option<BTreeMap<u32, &'a TrialRecord>> {
        self.scenario(scenario).iter().map(|trial| Some((trial.block?, *trial))).collect()
    }

    /// The blocks that all scenarios of the claim have; `None` where there are none, or too few: less than half of those made, unless
    /// they are enough for a test that assumes nothing of how blocks scatter. A scenario that rests because its claims are decided
    /// leaves those of others with the blocks made until then.
    fn common(&self, claim: &Claim) -> Option<Vec<u32>> {
        let scenarios: BTreeSet<&str> = claim.figures().iter().map(|figure| figure.scenario.as_str()).collect();
        let blocks: Vec<BTreeSet<u32>> =
            scenarios.iter().map(|id| Some(self.blocks_of(id)?.into_keys().collect())).collect::<Option<_>>()?;
        let longest = blocks.iter().map(BTreeSet::len).max()?;
        let common = blocks.into_iter().reduce(|one, other| &one & &other)?;
        let is_enough = common.len() >= LEAST as usize || (!common.is_empty() && 2 * common.len() >= longest);
        is_enough.then(|| common.into_iter().collect())
    }

    fn by_block(&self, claim: &Claim) -> Option<ClaimBlocks> {
        let common = self.common(claim)?;
        let scenarios = claim.figures().iter().map(|figure| figure.scenario.as_str());
        let trials: BTreeMap<&str, BTreeMap<u32, &TrialRecord>> =
            scenarios.map(|id| Some((id, self.blocks_of(id)?))).collect::<Option<_>>()?;
        let trial = |figure: &FigureRef, block: &u32| trials.get(figure.scenario.as_str())?.get(block).copied();
        let block = |block: &u32| -> Option<Vec<f64>> {
            claim.figures().iter().map(|figure| exact(trial(figure, block)?, figure)).collect()
        };
        let figures = common.iter().map(block).collect::<Option<Vec<_>>>()?;
        claim.by_block(&figures, &disturbances::of(claim, &common, &trial))
    }

    /// What the reader must know of a claim that is not judged by blocks although it has trials.
    fn why_no_blocks(&self, claim: &Claim) -> Option<&'static str> {
        let scenarios = || claim.figures().iter().map(|figure| figure.scenario.as_str());
        if scenarios().any(|id| self.scenario(id).is_empty()) {
            return None;
        }
        if scenarios().any(|id| self.blocks_of(id).is_none()) {
            return Some("; the run has no blocks, so trials are taken as independent");
        }
        let is_alone = scenarios().collect::<BTreeSet<_>>().len() == 1;
        (self.common(claim).is_none() && !is_alone)
            .then_some("; the scenarios share too few blocks, so trials are taken as independent")
    }
}

/// The value of a figure that is neither a limit nor known to a grid only.
fn exact(trial: &TrialRecord, figure: &FigureRef) -> Option<f64> {
    let reading = reading_of(trial, figure)?;
    (reading.bound.is_none() && reading.resolution.width() == 0.0).then_some(reading.value)
}

#[cfg(test)]
mod tests;
