//! The question of a run and its answer, in a sentence.

use rig_stats::units::counted;
use rig_verdict::view::RunView;

use super::doubts::DoubtCount;
use super::{claims, doubts};
use crate::document::{Block, Chart, Claim, Headline, Number, Overview, Verdict};

/// From this share of trials with a doubt on, the whole is to be doubted; fewer are told below the answer.
const MANY: f64 = 0.5;

/// `lead` is what the report begins with.
pub(super) fn headline(view: &RunView, lead: &[Block]) -> Headline {
    let overview = lead.iter().find_map(|block| match block {
        Block::Figure(Chart::Overview(overview)) => Some(overview),
        _ => None,
    });
    let measured = view.scenarios.iter().any(|scenario| !scenario.trials.is_empty());
    let answer = match measured {
        false => "Nothing was measured.".to_owned(),
        true => measured_answer(view, overview),
    };
    let question = Some(view.question.clone()).filter(|question| !question.is_empty());
    Headline { question, answer, caution: caution(view) }
}

/// What the suite has words for, then how its claims fared; of a suite without words the first claim that the run says
/// something about.
fn measured_answer(view: &RunView, overview: Option<&Overview>) -> String {
    if let Some(answer) = &view.answer {
        // Claims that differ from the study have a line of their own below.
        let tally = claims::tally(&view.claims).filter(|_| claims::beside_the_study(view).is_none());
        let tally = tally.map_or_else(String::new, |tally| format!(" {tally}"));
        return format!("{answer}{tally}");
    }
    of_claims(&view.claims)
        .or_else(|| super::checks::answer(view))
        .or_else(|| overview.and_then(of_overview))
        .unwrap_or_else(|| "The tables say what was measured; the suite claims nothing of it.".to_owned())
}

/// The first claim that the run says something about, and how many fared how.
fn of_claims(all: &[Claim]) -> Option<String> {
    let tally = claims::tally(all)?;
    let first = |wanted: &dyn Fn(&Claim) -> bool| claims::whole(all).into_iter().find(|claim| wanted(claim));
    if let Some(claim) = first(&|claim| claim.open.is_none()) {
        let verdict = match claim.verdict {
            Verdict::Holds => "yes",
            Verdict::Differs => "not on this machine",
            Verdict::Refuted | Verdict::Undecided => "no",
        };
        let figures = claim.effect.as_ref().map(|e| format!(", {}, {}", e.measured(), e.claimed()));
        let rest = if all.len() > 1 { format!(" {tally}") } else { String::new() };
        return Some(format!("{}: {verdict}{}.{rest}", claim.text, figures.unwrap_or_default()));
    }
    if let Some(claim) = first(&|claim| claims::seen(claim).is_some()) {
        let effect = claim.effect.as_ref()?;
        let seen = format!("{}, {}", effect.measured(), effect.claimed());
        return Some(format!("{}: {seen}, as seen in one trial. {tally}", claim.text));
    }
    Some(format!("No claim could be decided. {tally}"))
}

/// The ends of the first panel.
fn of_overview(chart: &Overview) -> Option<String> {
    let axis = chart.panels.first()?;
    let mut rows: Vec<(String, Number)> =
        chart.rows.iter().filter_map(|row| Some((row.label.to_string(), (*row.numbers.first()?)?))).collect();
    rows.sort_by(|one, other| one.1.value.total_cmp(&other.1.value));
    let show =
        |(label, number): &(String, Number)| format!("{} ({label})", crate::readable::figure(number, &axis.unit));
    Some(match rows.as_slice() {
        [] => return None,
        [only] => format!("{}: {}.", axis.quantity, show(only)),
        [lowest, .., highest] => format!("{}: highest {}, lowest {}.", axis.quantity, show(highest), show(lowest)),
    })
}

fn caution(view: &RunView) -> Option<String> {
    let words: Vec<String> = another_machine(view).into_iter().chain(doubts_of_trials(view)).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn another_machine(view: &RunView) -> Option<String> {
    let apart = view.set_apart?;
    let runs = counted(apart.usual_runs, "run", "runs");
    Some(format!(
        "Another machine by calibration: the same arithmetic was {apart} than in {runs} of this store. Do not compare its figures with \
         theirs."
    ))
}

fn doubts_of_trials(view: &RunView) -> Option<String> {
    let (doubted, all) = doubted(view);
    if all == 0 || (doubted as f64) < MANY * all as f64 {
        return None;
    }
    let by_frequency = doubts::by_frequency(view);
    let often = by_frequency.first()?;
    let DoubtCount { kind, trials, worst } = often;
    let next = worst.next_step();
    let who = match (doubted, all) {
        (1, 1) => "The only trial carries a doubt".to_owned(),
        (doubted, all) if doubted == all => format!("Each of the {} carries a doubt", counted(all, "trial", "trials")),
        (doubted, all) => format!("{doubted} of {all} trials carry a doubt"),
    };
    let what = match (*trials == doubted, all) {
        (true, 1) => worst.to_string(),
        (true, _) => format!("at worst {worst}"),
        (false, _) => format!("most often ({trials}) of the kind \"{kind}\", at worst {worst}"),
    };
    Some(format!("{who}: {what}. Next: {next}."))
}

/// Trials that carry a doubt, and all.
fn doubted(view: &RunView) -> (usize, usize) {
    let trials = || view.scenarios.iter().flat_map(|scenario| &scenario.trials);
    (trials().filter(|trial| trial.flags.iter().any(doubts::is_open)).count(), trials().count())
}

/// Where some trials carry a doubt, but not so many that the whole is to be doubted: how many, and which.
pub(super) fn some_doubted(view: &RunView) -> Option<Block> {
    let (doubted, all) = doubted(view);
    if doubted == 0 || doubts_of_trials(view).is_some() {
        return None;
    }
    let kinds: Vec<String> =
        doubts::by_frequency(view).iter().map(|often| format!("{} ({})", often.kind, often.trials)).collect();
    let carry = if doubted == 1 { "carries" } else { "carry" };
    Some(Block::info(format!("{doubted} of {all} trials {carry} a doubt: {}.", kinds.join(", "))))
}
