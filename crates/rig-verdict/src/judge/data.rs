//! What a run says of a claim, as plain values.

use rig_facts::claim::{Claim, Verdict};
use rig_stats::confidence::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Evidence, Ruling};

/// A claim and its verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimData {
    pub text: String,
    pub expression: String,
    #[schemars(with = "String", extend("enum" = ["holds", "refuted", "undecided"]))]
    pub verdict: Verdict,
    /// Whether the suite repeats a published study and the claim does not hold here: what a study found on its hardware is not
    /// disproved by another's, so that reports for readers say "differs from the study" of what is `refuted` here.
    #[serde(default)]
    pub differs_from_study: bool,
    /// `fact`: each trial decides. `blocks`: trials of the same block belong together. `samples`: trials count as independent.
    pub evidence: ClaimEvidence,
    /// What is compared with the claim's threshold, in the figures' units, and its confidence interval.
    pub effect: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Blocks that it was judged by.
    pub blocks: Option<u32>,
    /// Of an undecided claim: blocks that would decide it, about, and the time that those still to be made would take.
    pub blocks_needed: Option<u32>,
    pub seconds_needed: Option<f64>,
    /// What disturbed trials and was taken out of the effect, because blocks scatter less without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjusted_for: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimEvidence {
    Fact,
    Blocks,
    Samples,
}

impl ClaimData {
    /// `verdict` may be none where the ruling has one, because the figures are not what the claim is about.
    /// `is_studys`: the claim is of a suite that repeats a published study.
    pub fn new(claim: &Claim, ruling: &Ruling, verdict: Verdict, is_studys: bool) -> Self {
        let (evidence, blocks) = match ruling.evidence {
            Evidence::Fact => (ClaimEvidence::Fact, None),
            Evidence::Blocks(blocks) => (ClaimEvidence::Blocks, u32::try_from(blocks).ok()),
            Evidence::Samples => (ClaimEvidence::Samples, None),
        };
        let interval: Option<Interval> = ruling.judgement.interval;
        Self {
            text: claim.text().to_owned(),
            expression: claim.expression().to_owned(),
            verdict,
            differs_from_study: is_studys && verdict == Verdict::Refuted,
            evidence,
            effect: ruling.judgement.effect,
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
            blocks,
            blocks_needed: ruling.blocks_needed,
            seconds_needed: None,
            adjusted_for: ruling.adjusted_for.map(str::to_owned),
        }
    }
}
