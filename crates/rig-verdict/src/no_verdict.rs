//! Claims that can have no verdict.

use rig_facts::claim::Claim;
use rig_facts::record::TrialRecord;
use rig_facts::record::certainty::{RepetitionEnd, ScenarioCertainty};
use rig_suite::options::Options;

/// Why a claim can have no verdict here, independent of its figures: the run left out one of its scenarios or closed one early because
/// a trial failed, or workers of a device under test had to share CPUs with the load, so that the figures are not those of so many workers.
pub fn no_verdict(
    claim: &Claim,
    options: &Options,
    settled: &[ScenarioCertainty],
    trials: &[TrialRecord],
) -> Option<NoVerdict> {
    let scenarios = || claim.figures().iter().map(|figure| figure.scenario.as_str());
    if let Some((id, reason)) = scenarios().find_map(|id| Some((id, options.why_left_out(id)?))) {
        return Some(NoVerdict { words: format!("{id} was left out: {reason}"), reason: reason.to_owned() });
    }
    let failure = |id: &str| {
        let outcome = settled.iter().find(|one| one.scenario == id).map(|one| &one.outcome);
        outcome.filter(|outcome| matches!(outcome, RepetitionEnd::Failed { .. })).map(ToString::to_string)
    };
    if let Some((id, reason)) = scenarios().find_map(|id| Some((id, failure(id)?))) {
        return Some(NoVerdict { words: format!("{id} {reason}"), reason });
    }
    let shares = |id: &str| {
        let duts = trials.iter().filter(|trial| trial.scenario == id).filter_map(|trial| trial.dut.as_ref());
        duts.clone().any(|dut| dut.workers.len() > 1 && !dut.shared.is_empty())
    };
    let id = scenarios().find(|id| shares(id))?;
    let shared = "shared CPUs with the load, because the machine has no others";
    Some(NoVerdict { words: format!("workers of {id} {shared}"), reason: format!("workers {shared}") })
}

/// Why a claim has no verdict, of its own scenario, and in the words that other claims share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoVerdict {
    pub words: String,
    pub reason: String,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_facts::record::{DutRecord, SkippedScenarios};
    use rig_suite::suite::Suite;

    use super::*;

    #[test]
    fn claims_about_what_is_not_there_have_no_verdict() {
        let text = rig_facts::fixture::PACKETS_TRIAL;
        let record: TrialRecord = serde_json::from_str(text).unwrap();
        let dut = |workers: &[u32], shared: &[u32]| DutRecord {
            workers: workers.to_vec(),
            shared: shared.to_vec(),
            ..rig_facts::fixture::dut()
        };
        let trial = |id: &str, dut| TrialRecord { scenario: id.to_owned(), dut: Some(dut), ..record.clone() };
        let trials = [trial("A-1", dut(&[0], &[0])), trial("A-2", dut(&[0, 1], &[1])), trial("B-2", dut(&[0, 1], &[]))];
        let suite = Suite::load("balancer").unwrap();
        let options = Options {
            quick: false,
            only: Vec::new(),
            cpus: Vec::new(),
            timing: suite.timing,
            left_out: vec![SkippedScenarios { scenarios: vec!["A-4".into()], reason: "more workers than CPUs".into() }],
            seed: None,
            again: Vec::new(),
            aa: None,
            turns: None,
            pairs: None,
            tool: None,
            ends: None,
            inside: Vec::new(),
            host: None,
            label: None,
            gate: false,
        };
        let outcome = RepetitionEnd::Failed { trial: 3, reason: "a worker died".into() };
        let failed = [ScenarioCertainty { scenario: "B-4".into(), trials: 2, outcome }];
        let claim = |holds: &str| Claim::parse("c", holds).unwrap();
        let why = |holds: &str| no_verdict(&claim(holds), &options, &failed, &trials).map(|one| one.words);
        assert_eq!(why("A-1.limit <= B-4.limit").unwrap(), "B-4 failed in trial 3: a worker died");
        assert_eq!(why("A-4.limit >= A-1.limit").unwrap(), "A-4 was left out: more workers than CPUs");
        assert!(why("A-1.limit <= A-2.limit").unwrap().starts_with("workers of A-2 shared CPUs with the load"));
        // One worker on a machine of one CPU has the same as all its peers.
        assert_eq!(why("A-1.limit >= 3 * B-2.limit"), None);
        // What is stored is read by later versions.
        let stored = serde_json::to_string(&options).unwrap();
        assert!(stored.contains(r#""left_out":[{"scenarios":["A-4"],"reason":"more workers than CPUs"}]"#), "{stored}");
        assert_eq!(serde_json::from_str::<Options>(&stored).unwrap(), options);
    }
}
