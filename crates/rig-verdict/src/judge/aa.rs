//! The A/A check of the judge: figures of a scenario compared with those of the same scenario measured again in each block. Every
//! difference that it finds is a false alarm, of which there may be as many as the level allows.

use std::collections::BTreeSet;
use std::fmt;

use rig_facts::claim::{Claim, FigureRef, Metric, Side, Verdict};
use rig_facts::figures::check;
use rig_facts::record::TrialRecord;
use rig_stats::units::counted;
use rig_suite::suite::{Scenario, Suite};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Evidence, Rule, Ruling, judge};

/// The relative difference within which figures are the same.
const MARGIN: f64 = 0.05;

/// What was said of a scenario that was measured twice in each block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AaData {
    pub scenario: String,
    /// Blocks that have both.
    pub blocks: u32,
    /// How many figures in a hundred may differ by chance.
    pub allowed_percent: f64,
    /// Whether some differ also when judged together, as claims are: of sound runs no more than `allowed_percent` in a hundred say so,
    /// however the figures hang together.
    pub more_than_chance: bool,
    /// Those that decide: of the claims, of the repetition, and the cost of a unit of traffic.
    pub figures: Vec<AaFigure>,
}

/// A figure of a scenario against the same figure of the same scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AaFigure {
    pub side: String,
    pub metric: String,
    pub verdict: AaVerdict,
    /// The second to the first, and its confidence interval.
    pub ratio: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AaVerdict {
    /// Wrong, or not the same after all.
    Differs,
    /// Within 5 %.
    Same,
    Undecided,
}

impl AaData {
    /// `scenario` of `suite` against its second time; `None` where the two have no blocks to compare.
    pub fn of(suite: &Suite, scenario: &Scenario, trials: &[TrialRecord], rule: &Rule) -> Option<Self> {
        let (id, twin) = (&scenario.id, Suite::name_of_again(&scenario.id));
        let trials: Vec<TrialRecord> =
            trials.iter().filter(|t| t.scenario == *id || t.scenario == twin).cloned().collect();
        let ratio = |(side, metric): &(Side, Metric), holds: &str| {
            Claim::parse("", &format!("{twin}.{side}.{metric} / {id}.{side}.{metric} {holds}")).ok()
        };
        let margin = format!("within {} .. {}", 1.0 - MARGIN, 1.0 + MARGIN);
        let alone = |claim: &Claim| judge(&[claim], &trials, rule).pop();
        let by_block = |ruling: &Ruling| match ruling.evidence {
            Evidence::Blocks(blocks) if blocks > 1 => Some(blocks),
            _ => None,
        };
        let (mut figures, mut blocks, mut differences) = (Vec::new(), 0, Vec::new());
        for figure in deciding(suite, scenario) {
            let (Some(differs), Some(same)) = (ratio(&figure, ">= 1"), ratio(&figure, &margin)) else { continue };
            let Some(ruling) = alone(&differs) else { continue };
            let (Some(own), Some(value)) = (by_block(&ruling), ruling.judgement.effect) else { continue };
            let is_same = || alone(&same).is_some_and(|ruling| ruling.judgement.verdict == Verdict::Holds);
            let verdict = if ruling.is_decided() {
                AaVerdict::Differs
            } else if is_same() {
                AaVerdict::Same
            } else {
                AaVerdict::Undecided
            };
            let interval = ruling.judgement.interval;
            figures.push(AaFigure {
                side: figure.0.to_string(),
                metric: figure.1.to_string(),
                verdict,
                ratio: value,
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
            });
            blocks = blocks.max(own);
            differences.push(differs);
        }
        let together = judge(&differences.iter().collect::<Vec<_>>(), &trials, rule);
        (!figures.is_empty()).then(|| Self {
            scenario: id.clone(),
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            allowed_percent: 100.0 - rule.level.percent(),
            more_than_chance: together.iter().any(Ruling::is_decided),
            figures,
        })
    }

    fn of_verdict(&self, verdict: AaVerdict) -> impl Iterator<Item = &AaFigure> {
        self.figures.iter().filter(move |figure| figure.verdict == verdict)
    }
}

/// The figures of a scenario that its suite's verdicts rest on.
fn deciding(suite: &Suite, scenario: &Scenario) -> BTreeSet<(Side, Metric)> {
    let claimed = suite.claims.iter().filter(|claim| !claim.is_fact()).flat_map(Claim::figures);
    let claimed = claimed.filter(|figure| figure.phase.is_none()).map(|figure| (figure.side, figure.metric));
    let cost = scenario.traffic.sides().into_iter().flat_map(|side| {
        Metric::ALL.into_iter().filter(|metric| metric.is_primary()).map(move |metric| (side, metric))
    });
    let has = |(side, metric): &(Side, Metric)| {
        let figure = FigureRef { scenario: scenario.id.clone(), phase: None, side: *side, metric: *metric };
        *metric != Metric::Failed && check(&scenario.plan(), &figure).is_ok()
    };
    // Where payload goes one way, the ends that connect and listen are the sender and the receiver under other names.
    let sides = scenario.traffic.sides();
    let is_named = |(side, metric): &(Side, Metric)| sides.contains(side) || metric.sides() == [*side];
    scenario.watched.iter().copied().chain(claimed).chain(cost).filter(is_named).filter(has).collect()
}

impl fmt::Display for AaData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differ: Vec<&AaFigure> = self.of_verdict(AaVerdict::Differs).collect();
        let figures = counted(self.figures.len(), "figure", "figures");
        write!(f, "A/A check: {figures} of {} compared with itself in {} blocks: ", self.scenario, self.blocks)?;
        let were = if differ.len() == 1 { "was" } else { "were" };
        let allowed = self.allowed_percent;
        write!(f, "{} {were} called different (by chance alone it may be {allowed} % of them)", differ.len())?;
        if differ.is_empty() {
            let same = counted(self.of_verdict(AaVerdict::Same).count(), "is", "are");
            return write!(f, "; {same} the same to within 5 %");
        }
        let names: Vec<String> =
            differ.iter().map(|figure| format!("{} {} by {:.3}", figure.side, figure.metric, figure.ratio)).collect();
        let names = names.join(", ");
        if self.more_than_chance {
            write!(f, ", more than chance explains ({names}): verdicts of this run are less sure than they say")
        } else {
            write!(f, ", which chance explains ({names})")
        }
    }
}

#[cfg(test)]
mod tests {
    use rig_stats::confidence::Level;

    use super::*;
    use crate::fixture::draws::{Draws, carried};

    /// A of suite layers twice in each block, the second time with `ratio` times as much.
    fn twice(draws: &mut Draws, blocks: u32, ratio: f64) -> Vec<TrialRecord> {
        let mut trials = Vec::new();
        for block in 1..=blocks {
            let speed = 1000.0 * (0.1 * draws.normal()).exp();
            for (id, factor) in [("A", 1.0), ("A-again", ratio)] {
                trials.push(carried(id, Some(block), speed * factor * (0.01 * draws.normal()).exp()));
            }
        }
        trials
    }

    fn check_of(trials: &[TrialRecord]) -> Option<AaData> {
        let suite = Suite::load("layers").unwrap();
        AaData::of(
            &suite,
            suite.scenario("A").unwrap(),
            trials,
            &Rule { level: Level::default(), planned: None, is_over: true },
        )
    }

    #[test]
    fn the_same_thing_twice_is_the_same() {
        let data = check_of(&twice(&mut Draws(21), 12, 1.0)).unwrap();
        assert_eq!((data.scenario.as_str(), data.blocks, data.allowed_percent), ("A", 12, 5.0));
        assert!(!data.more_than_chance, "{data:?}");
        let names: Vec<String> = data.figures.iter().map(|f| format!("{} {}", f.side, f.metric)).collect();
        for name in ["sender throughput", "receiver throughput", "sender cpu", "receiver service_demand"] {
            assert!(names.iter().any(|own| own == name), "{names:?}");
        }
        assert!(!names.iter().any(|own| own.contains("local") || own.contains("failed")), "{names:?}");
        let words = data.to_string();
        assert!(
            words.starts_with("A/A check: ") && words.contains(" figures of A compared with itself in 12 blocks: ")
        );
        assert!(words.contains("0 were called different (by chance alone it may be 5 % of them); "), "{words}");
    }

    #[test]
    fn what_differs_from_itself_is_said_aloud() {
        let data = check_of(&twice(&mut Draws(22), 12, 1.1)).unwrap();
        assert!(data.more_than_chance, "{data:?}");
        let words = data.to_string();
        assert!(words.contains("more than chance explains (") && words.contains("less sure than they say"), "{words}");
        assert!(words.contains("throughput by 1.1"), "{words}");
    }

    #[test]
    fn without_blocks_of_both_there_is_nothing_to_say() {
        let trials = twice(&mut Draws(23), 1, 1.0);
        assert_eq!(check_of(&trials), None, "a single block");
        assert_eq!(check_of(&trials[..1]), None);
        assert_eq!(check_of(&[]), None);
    }

    /// The rule by which a run is doubted is as rare as it says, although the figures of a trial hang together.
    #[test]
    fn sound_runs_are_doubted_as_seldom_as_the_level_says() {
        let mut draws = Draws(24);
        let (rounds, mut doubted, mut differ, mut figures) = (200, 0, 0, 0);
        for _ in 0..rounds {
            let data = check_of(&twice(&mut draws, 8, 1.0)).unwrap();
            doubted += usize::from(data.more_than_chance);
            differ += data.of_verdict(AaVerdict::Differs).count();
            figures += data.figures.len();
        }
        // Three standard deviations of 200 runs above 5 %.
        assert!(doubted as f64 <= 0.097 * f64::from(rounds), "{doubted} of {rounds}");
        assert!(differ as f64 <= 0.097 * figures as f64, "{differ} of {figures}");
    }
}
