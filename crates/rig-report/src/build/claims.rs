//! The claims: decided ones one by one, what was only seen without a verdict, and of what could not be told a line for each reason.

use rig_stats::units::counted;
use rig_verdict::view::RunView;

use crate::document::{Block, Claim, Open, Verdict};

/// Below a suite's answer the study comes second: how its claims fared in one line, those that differ here folded into it. `None` where
/// none differs or nothing stands above.
pub(super) fn beside_the_study(view: &RunView) -> Option<Block> {
    view.answer.as_ref()?;
    let claims: Vec<Claim> = whole(&view.claims).into_iter().filter(differs).collect();
    let summary = tally(&view.claims).filter(|_| !claims.is_empty())?;
    Some(Block::Folded { summary, blocks: vec![Block::Claims { claims }] })
}

fn differs(claim: &Claim) -> bool {
    claim.open.is_none() && claim.verdict == Verdict::Differs
}

/// The claims of the run, each where it belongs, but those beside the study.
pub(super) fn blocks(view: &RunView) -> Vec<Block> {
    let apart = beside_the_study(view).is_some();
    let claims: Vec<Claim> = whole(&view.claims).into_iter().filter(|claim| !(apart && differs(claim))).collect();
    if claims.is_empty() {
        return aa(view).into_iter().collect();
    }
    let mut blocks = vec![Block::heading(2, "Claims")];
    let (decided, open): (Vec<Claim>, Vec<Claim>) = claims.into_iter().partition(|claim| claim.open.is_none());
    let (single, open): (Vec<Claim>, Vec<Claim>) = open.into_iter().partition(|claim| seen(claim).is_some());
    if !decided.is_empty() {
        blocks.push(Block::Claims { claims: decided });
    }
    if !single.is_empty() {
        blocks.push(Block::paragraph("One trial each, so no verdict; what it saw speaks for or against the claim:"));
        blocks.push(Block::Claims { claims: single.into_iter().map(as_seen).collect() });
    }
    let mut kinds: Vec<(Open, Vec<Claim>)> = Vec::new();
    for claim in open {
        let Some(why) = claim.open.clone() else { continue };
        match kinds.iter_mut().find(|(known, _)| *known == why) {
            Some((_, claims)) => claims.push(claim),
            None => kinds.push((why, vec![claim])),
        }
    }
    blocks.extend(kinds.into_iter().map(|(why, claims)| Block::Folded {
        summary: summary(&why, claims.len()),
        blocks: vec![Block::Claims { claims }],
    }));
    blocks.extend(aa(view));
    blocks
}

/// How the judge of the claims did where the answer is known.
fn aa(view: &RunView) -> Option<Block> {
    let check = view.aa.as_ref()?;
    let trials = view.scenarios.iter().filter(|scenario| scenario.id == check.scenario).flat_map(|one| &one.trials);
    let cost = super::accounting::cost_of_both(trials).map_or_else(String::new, |cost| format!(" {cost}"));
    let words = format!("{check}.{cost}");
    Some(if check.more_than_chance { Block::warning(words) } else { Block::paragraph(words) })
}

/// What a single trial says of a claim, which is no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SingleTrialHint {
    For,
    Against,
}

impl SingleTrialHint {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::For => "for",
            Self::Against => "against",
        }
    }
}

/// `None` of claims that no single trial says anything of.
pub(crate) fn seen(claim: &Claim) -> Option<SingleTrialHint> {
    let effect = claim.effect.as_ref().filter(|_| claim.open == Some(Open::SingleTrial))?;
    Some(if effect.threshold.holds(effect.value) { SingleTrialHint::For } else { SingleTrialHint::Against })
}

/// `... and five times those of HAProxy` goes on with the claim before it, which may not stand there any more.
pub(super) fn whole(claims: &[Claim]) -> Vec<Claim> {
    let mut before: Option<(String, bool)> = None;
    let mut whole = Vec::new();
    for claim in claims {
        let mut own = claim.clone();
        let goes_on = claim.text.starts_with("...");
        let stands_apart = |decided: bool| decided != claim.open.is_none();
        match &before {
            Some((first, decided)) if goes_on && stands_apart(*decided) => {
                own.text = format!("{} {}", first.trim_end_matches(['.', ' ']), claim.text);
            }
            _ => {}
        }
        if !goes_on {
            before = Some((claim.text.clone(), claim.open.is_none()));
        }
        whole.push(own);
    }
    whole
}

/// `3.4 × nftables in one trial`
fn as_seen(mut claim: Claim) -> Claim {
    if let Some(effect) = &claim.effect {
        claim.words = format!("{} in one trial; {}", told(effect), effect.claimed());
    }
    claim
}

/// `cps-balancer-1.limit is 3.4 × cps-nftables-1.limit`, of other effects than ratios `D.throughput is 3.5gbit/s`.
fn told(effect: &crate::document::Effect) -> String {
    match effect.of.split_once(" / ") {
        Some((one, other)) if !other.contains(" / ") && !one.contains('(') => {
            format!("{one} is {} × {other}", effect.measured())
        }
        _ => format!("{} is {}", effect.of, effect.measured()),
    }
}

/// What the claims of one kind have in common, in a line.
fn summary(why: &Open, n: usize) -> String {
    let claims = counted(n, "claim", "claims");
    let was = if n == 1 { "was" } else { "were" };
    match why {
        Open::SingleTrial => format!("{claims} {was} not decided: a single trial gives no interval"),
        Open::Across => {
            format!("{claims} {was} not decided: the claimed value is inside the interval; more trials would narrow it")
        }
        Open::Limit => format!("{claims} {was} not decided: the figures are only the limits of the load generator"),
        Open::NotMeasured => format!("{claims} {was} not measured: the run has no figures for a scenario"),
        Open::Refused { reason } => format!("{claims} {was} not decided: {reason}"),
    }
}

/// `Of 11 claims 8 hold, 2 are refuted, 1 is undecided.`, `All 3 claims hold.`
pub(super) fn tally(claims: &[Claim]) -> Option<String> {
    if claims.is_empty() {
        return None;
    }
    let of = |verdict| claims.iter().filter(|claim| claim.open.is_none() && claim.verdict == verdict).count();
    let single = |what| claims.iter().filter(|claim| seen(claim) == Some(what)).count();
    let open = claims.iter().filter(|claim| claim.open.is_some() && seen(claim).is_none()).count();
    let parts: Vec<String> = [
        (of(Verdict::Holds), "holds", "hold"),
        (of(Verdict::Refuted), "is refuted", "are refuted"),
        (of(Verdict::Differs), "differs from the study", "differ from the study"),
        (single(SingleTrialHint::For), "has one trial for it", "have one trial for them"),
        (single(SingleTrialHint::Against), "has one trial against it", "have one trial against them"),
        (open, "is undecided", "are undecided"),
    ]
    .into_iter()
    .filter(|(n, ..)| *n > 0)
    .map(|(n, one, many)| counted(n, one, many))
    .collect();
    let claims = counted(claims.len(), "claim", "claims");
    Some(match parts.as_slice() {
        [only] if claims.starts_with("1 ") => format!("The claim {}.", only.trim_start_matches("1 ")),
        [only] => format!("All {claims} {}.", only.split_once(' ').map_or(only.as_str(), |(_, verdict)| verdict)),
        parts => format!("Of {claims} {}.", parts.join(", ")),
    })
}
