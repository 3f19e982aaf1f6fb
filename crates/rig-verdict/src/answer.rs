//! The answer to a suite's question: sentences with measured values in them.

use rig_facts::record::TrialRecord;
use rig_stats::confidence::Level;
use rig_suite::suite::Answer;

use crate::judge;
use crate::view::Effect;

/// Of values without an interval.
const SINGLE: &str = "in one trial";

/// `Containers keep 109 % (105 to 113) behind a bridge and 98 % (96 to 100) over VXLAN; a byte takes ...`, of what the trials
/// tell; `None` where they tell nothing of it.
pub fn answer(answers: &[Answer], trials: &[TrialRecord], level: Level) -> Option<String> {
    let clauses: Vec<(String, bool)> = answers.iter().filter_map(|answer| clause(answer, trials, level)).collect();
    let single = clauses.iter().all(|(_, single)| *single);
    let mark = |(text, own): &(String, bool)| if *own && !single { format!("{text} {SINGLE}") } else { text.clone() };
    let text = clauses.iter().map(mark).collect::<Vec<_>>().join("; ");
    let first = text.chars().next()?;
    let end = if single { format!(", {SINGLE}") } else { String::new() };
    Some(format!("{}{}{end}.", first.to_uppercase(), &text[first.len_utf8()..]))
}

/// The clause, and whether single trials are all that it has.
fn clause(answer: &Answer, trials: &[TrialRecord], level: Level) -> Option<(String, bool)> {
    let effects: Vec<(Effect, &str)> = answer
        .parts
        .iter()
        .filter_map(|part| Some((Effect::of(judge::value(&part.value, trials, level))?, part.text.as_str())))
        .collect();
    let show = |(effect, text): &(Effect, &str)| {
        let value = effect.measured_in(&answer.unit);
        if text.is_empty() { value } else { format!("{value} {text}") }
    };
    let shown: Vec<String> = effects.iter().map(show).collect();
    let listed = match shown.as_slice() {
        [] => return None,
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    };
    let single = effects.iter().all(|(effect, _)| effect.interval.is_none());
    Some((format!("{} {listed}", answer.text), single))
}

#[cfg(test)]
mod tests {
    use rig_facts::claim::Claim;
    use rig_suite::suite::AnswerClaim;

    use super::*;
    use crate::fixture;

    fn answers(unit: &str, parts: &[(&str, &str)]) -> Answer {
        let part = |(value, text): &(&str, &str)| AnswerClaim {
            value: Claim::value(value).unwrap(),
            text: (*text).to_owned(),
        };
        Answer { text: "containers keep".into(), unit: unit.into(), parts: parts.iter().map(part).collect() }
    }

    #[test]
    fn what_was_measured_is_told_in_a_sentence() {
        let view = fixture::run_view();
        let trials: Vec<TrialRecord> = view.scenarios.iter().flat_map(|scenario| scenario.trials.clone()).collect();
        let level = view.level;
        let two = answers("%", &[("100 * B.throughput / A.throughput", "behind a bridge"), ("A.throughput", "raw")]);
        let said = answer(&[two], &trials, level).unwrap();
        assert!(said.starts_with("Containers keep ") && said.ends_with(" raw."), "{said}");
        assert!(said.contains(" % (") && said.contains("behind a bridge and ") && said.contains("bit/s ("), "{said}");

        let other = answers("", &[("Z.throughput", "elsewhere"), ("B.throughput / A.throughput", "")]);
        let one: Vec<TrialRecord> =
            ["A", "B"].iter().filter_map(|id| trials.iter().find(|trial| trial.scenario == *id).cloned()).collect();
        let said = answer(std::slice::from_ref(&other), &one, level).unwrap();
        assert!(said.ends_with(", in one trial.") && !said.contains("elsewhere"), "{said}");
        assert_eq!(answer(&[other], &[], level), None);
    }
}
