//! How well the clocks of two machines are known, where figures depend on it.

use std::collections::BTreeMap;

use rig_facts::claim::Side;
use rig_facts::figures;
use rig_facts::record::{EndClocks, TrialRecord};

/// Those at which datagrams may arrive.
const SIDES: [Side; 3] = [Side::Receiver, Side::Local, Side::Remote];

/// What the reader of one-way delays between two machines has to know; `None` of others.
pub fn of_delays(trials: &[TrialRecord]) -> Option<String> {
    let is_hidden = |trial: &TrialRecord| SIDES.iter().any(|side| figures::hidden_delay_us(trial, *side).is_some());
    let is_given = |trial: &TrialRecord| SIDES.iter().any(|side| !figures::delay([trial], *side).is_empty());
    let trials = trials.iter().filter(|trial| is_hidden(trial) || is_given(trial));
    let trials: Vec<_> = trials.filter_map(|trial| Some((trial.end_clocks.as_ref()?, is_hidden(trial)))).collect();
    let EndClocks { from, to, bound_ns, .. } = trials.iter().map(|(clocks, _)| *clocks).max_by_key(|of| of.bound_ns)?;
    let way = if trials.iter().all(|(clocks, _)| clocks.is_by_path()) {
        "exchanges over the load's own path"
    } else {
        "questions and answers beside the load"
    };
    let known = format!("the clocks of {from} and {to} are known to ±{} by {way}", microseconds(*bound_ns));
    let reasons = trials.iter().filter(|(_, is_hidden)| *is_hidden).map(|(clocks, _)| clocks.limit());
    let reasons: Vec<String> = reasons.map(|limit| limit.to_string()).collect();
    Some(match reasons.len() {
        0 => format!("one-way delay: {known}"),
        hidden if hidden == trials.len() => {
            format!("one-way delay is not given: {known}, and the median is below that ({})", counted_reasons(&reasons))
        }
        hidden => format!(
            "one-way delay is not given of {hidden} of {} trials: {known}, and their median is below their bound ({})",
            trials.len(),
            counted_reasons(&reasons)
        ),
    })
}

/// Each reason once, with how many have it where there are several.
pub fn counted_reasons(reasons: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    reasons.iter().for_each(|reason| *counts.entry(reason).or_default() += 1);
    match counts.len() {
        1 => reasons[0].clone(),
        _ => counts
            .into_iter()
            .map(|(reason, count)| format!("{}: {reason}", rig_stats::units::counted(count, "trial", "trials")))
            .collect::<Vec<_>>()
            .join("; "),
    }
}

fn microseconds(ns: u64) -> String {
    let us = ns as f64 / 1000.0;
    if us < 10.0 { format!("{us:.1} µs") } else { format!("{us:.0} µs") }
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::TrialOptions;
    use rig_facts::fixture::loads::{datagrams, histogram};
    use rig_facts::record::{ClockOffset, OffsetReading};
    use rig_load::record::DatagramRecord;
    use rig_verdict::fixture::run_view;

    use super::*;

    fn trial(bound_ns: Option<u64>) -> TrialRecord {
        let delay = Some(histogram(&[(100, 600), (300, 400)]));
        let counted = DatagramRecord { received: 1000, delay, ..DatagramRecord::default() };
        let of = |bound_ns| {
            let offset = OffsetReading { at_ns: 0, path: None, asked: ClockOffset { ns: 7, bound_ns } };
            EndClocks::between("a", "b", &offset, &offset)
        };
        TrialRecord { end_clocks: bound_ns.map(of), ..datagrams(&TrialOptions::default(), 1000, &counted) }
    }

    #[test]
    fn a_delay_below_the_bound_is_not_given_and_the_report_says_so() {
        let mut scenario = run_view().scenarios.remove(0);
        let mut said = |bounds: &[Option<u64>]| {
            scenario.trials = bounds.iter().map(|bound| trial(*bound)).collect();
            (of_delays(&scenario.trials), figures::delay(&scenario.trials, Side::Receiver).count())
        };
        assert_eq!(said(&[None]), (None, 1000));
        let known = "the clocks of a and b are known to ";
        let given = format!("one-way delay: {known}±99 µs by questions and answers beside the load");
        assert_eq!(said(&[Some(400), Some(98_900)]), (Some(given), 2000));
        let all = format!(
            "one-way delay is not given: {known}±120 µs by questions and answers beside the load, and the median is below \
             that (exchanges over the load's own path were not answered)"
        );
        assert_eq!(said(&[Some(120_000)]), (Some(all), 0));
        let two = ["a", "b", "a"].map(str::to_owned);
        assert_eq!((counted_reasons(&two[..1]), counted_reasons(&two)), ("a".into(), "2 trials: a; 1 trial: b".into()));
        let (some, count) = said(&[Some(120_000), Some(400)]);
        assert!(
            some.is_some_and(|some| some.starts_with("one-way delay is not given of 1 of 2 trials")) && count == 1000
        );
    }
}
