//! The answer to a suite's question: sentences made of what was measured.

use rig_stats::confidence::Level;

use crate::claim::Claim;
use crate::judge;
use crate::record::TrialRecord;
use crate::view::Effect;

/// A clause: its text, then each value with its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub text: String,
    /// Of plain numbers.
    pub unit: String,
    pub parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Its value is asked for, and nothing is claimed of it.
    pub value: Claim,
    pub text: String,
}

/// `Containers keep 109 % (105 to 113) behind a bridge and 98 % (96 to 100) over VXLAN; a byte takes ...`, of what the trials
/// tell; `None` where they tell nothing of it.
pub fn answer(answers: &[Answer], trials: &[TrialRecord], level: Level) -> Option<String> {
    let clauses: Vec<String> = answers.iter().filter_map(|answer| answer.clause(trials, level)).collect();
    let text = clauses.join("; ");
    let first = text.chars().next()?;
    Some(format!("{}{}.", first.to_uppercase(), &text[first.len_utf8()..]))
}

impl Answer {
    fn clause(&self, trials: &[TrialRecord], level: Level) -> Option<String> {
        let effects: Vec<(Effect, &str)> = self
            .parts
            .iter()
            .filter_map(|part| Some((Effect::of(judge::value(&part.value, trials, level))?, part.text.as_str())))
            .collect();
        let show = |(effect, text): &(Effect, &str)| {
            let value = effect.measured_in(&self.unit);
            if text.is_empty() { value } else { format!("{value} {text}") }
        };
        let shown: Vec<String> = effects.iter().map(show).collect();
        let listed = match shown.as_slice() {
            [] => return None,
            [only] => only.clone(),
            [first @ .., last] => format!("{} and {last}", first.join(", ")),
        };
        let single = effects.iter().all(|(effect, _)| effect.interval.is_none());
        Some(format!("{} {listed}{}", self.text, if single { " in one trial" } else { "" }))
    }
}
