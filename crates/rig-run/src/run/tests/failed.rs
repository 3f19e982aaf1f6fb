//! Scenarios that fail when trials of them were made, and those whose first trial fails by no lack of the machine.

use super::*;

#[test]
fn a_scenario_that_fails_is_closed_with_what_it_has_and_the_rest_is_measured() {
    let suite = suite(&["A", "B"]);
    let mut fake = Fake::new(|id: &str, ordinal| match (id, ordinal) {
        ("B", 3) => bail!("vrouter on b died\nand more of it"),
        _ => steady(id, ordinal),
    });
    let mut bench = Bench::new();
    let (result, settled) = bench.run(&suite, &times(&suite, 5), &mut fake, &mut ());
    result.unwrap();
    let mut stored = bench.stored();
    stored.sort();
    assert_eq!(stored, ["A1", "A2", "A3", "A4", "A5", "B1", "B2"]);
    assert_eq!(fake.made.iter().filter(|made| made.starts_with('B')).count(), 3, "it is not tried again");
    let failed = failed(3, "vrouter on b died");
    assert_eq!(ends(&settled), BTreeMap::from([("A", (5, &RepetitionEnd::Fixed)), ("B", (2, &failed))]));
    assert_eq!(failed.to_string(), "failed in trial 3: vrouter on b died");
    assert_eq!(bench.left_out(), [""; 0], "it is in the run, with two trials");
}

#[test]
fn a_scenario_that_was_certain_before_stays_so_when_the_last_open_one_fails() {
    let suite = suite(&["A", "B"]);
    let mut fake = Fake::new(|id: &str, ordinal| match (id, ordinal) {
        ("B", 4) => bail!("the worker died"),
        ("B", _) => Ok((f64::from(ordinal) * 1000.0, 50.0)),
        _ => steady(id, ordinal),
    });
    let (result, settled) = Bench::new().run(&suite, &suite.timing, &mut fake, &mut ());
    result.unwrap();
    let failed = failed(4, "the worker died");
    assert_eq!(ends(&settled), BTreeMap::from([("A", (3, &RepetitionEnd::Reached)), ("B", (3, &failed))]));
}

#[test]
fn a_run_ends_early_when_nothing_is_left_to_measure() {
    let suite = suite(&["A", "B"]);
    let mut fake = Fake::new(|id: &str, ordinal| match (id, ordinal) {
        ("A", 2) => bail!("an interface went away"),
        ("B", 3) => bail!("the worker died"),
        _ => steady(id, ordinal),
    });
    let mut bench = Bench::new();
    let (result, settled) = bench.run(&suite, &times(&suite, 5), &mut fake, &mut ());
    let error = result.unwrap_err();
    assert_eq!(format!("{error:#}"), "trial 3 of scenario B: the worker died");
    assert_eq!(Failure::from(error).exit, Exit::Failed);
    assert_eq!(bench.stored(), ["A1", "B1", "B2"]);
    let [a, b] = [failed(2, "an interface went away"), failed(3, "the worker died")];
    assert_eq!(ends(&settled), BTreeMap::from([("A", (1, &a)), ("B", (2, &b))]));
}

#[test]
fn a_scenario_whose_first_trial_fails_is_left_out_with_its_twin() {
    let suite = suite(&["A", "B"]).with_twin("B");
    let fault = |id: &str, ordinal| if id == "A" { steady(id, ordinal) } else { bail!("networks are not apart") };
    let mut fake = Fake::new(fault);
    let mut bench = Bench::new();
    let (result, settled) = bench.run(&suite, &times(&suite, 3), &mut fake, &mut ());
    result.unwrap();
    assert_eq!(ends(&settled), BTreeMap::from([("A", (3, &RepetitionEnd::Fixed))]));
    assert_eq!(bench.left_out(), ["B, B-again: networks are not apart"]);
    assert_eq!(fake.made.len(), 4);

    // Where it is the only one, its failure is the run's, and no lack of the machine.
    let suite = self::suite(&["B"]);
    let (result, settled) = Bench::new().run(&suite, &times(&suite, 3), &mut Fake::new(fault), &mut ());
    let error = result.unwrap_err();
    assert_eq!(format!("{error:#}"), "trial 1 of scenario B: networks are not apart");
    assert_eq!((Failure::from(error).exit, settled.len()), (Exit::Failed, 0));
}

#[test]
fn a_twin_is_closed_with_its_scenario() {
    let suite = suite(&["A", "B"]).with_twin("B");
    let fault = |id: &str, ordinal: u32| match id {
        "B-again" if ordinal == 2 => bail!("gone"),
        _ => steady(id, ordinal),
    };
    let (result, settled) = Bench::new().run(&suite, &times(&suite, 3), &mut Fake::new(fault), &mut ());
    result.unwrap();
    let ends = ends(&settled);
    assert_eq!(ends["A"], (3, &RepetitionEnd::Fixed));
    assert_eq!((ends["B"].1, ends["B-again"].1), (&failed(2, "gone"), &failed(2, "gone")));
}

#[test]
fn within_a_time_nothing_more_is_asked_of_what_failed() {
    let (suite, timing) = with_claims(u64::MAX / 2000, 12);
    let mut fake = Fake::new(|id: &str, ordinal| match (id, ordinal) {
        ("Other", 3) => bail!("the worker died"),
        _ => scattered(id, ordinal),
    });
    let (result, settled) = Bench::new().run(&suite, &timing, &mut fake, &mut ());
    result.unwrap();
    let ends = ends(&settled);
    assert_eq!(ends["Other"], (2, &failed(3, "the worker died")));
    assert_eq!((ends["Fast"], ends["Slow"]), ((8, &RepetitionEnd::Decided), (8, &RepetitionEnd::Decided)));
}

#[test]
fn a_host_that_is_lost_ends_the_run() {
    let suite = suite(&["A", "B"]);
    let lost = |id: &str, ordinal| match (id, ordinal) {
        ("B", 2) => Err(LostHost::new(anyhow::anyhow!("host child is gone")).into()),
        _ => steady(id, ordinal),
    };
    let mut bench = Bench::new();
    let mut fake = Fake::new(lost);
    let (result, settled) = bench.run(&suite, &times(&suite, 5), &mut fake, &mut ());
    assert_eq!(format!("{:#}", result.unwrap_err()), "trial 2 of scenario B: host child is gone");
    assert_eq!(fake.made.last().unwrap(), "B2");
    let unfinished = (1, &RepetitionEnd::Unfinished);
    assert_eq!(ends(&settled), BTreeMap::from([("A", unfinished), ("B", unfinished)]));
}

#[test]
fn a_cost_that_cannot_be_measured_ends_no_run() {
    struct DearRig(Vec<String>);
    impl Execute for DearRig {
        fn trial(
            &mut self,
            _: &Scenario,
            _: u32,
            _: &Timing,
            _: &mut dyn FnMut(&str, &Interim),
        ) -> Result<TrialRecord> {
            bail!("no trial is asked for")
        }

        fn rig_cost(&mut self, scenario: &Scenario, _: &Timing) -> Result<RigCost> {
            self.0.push(scenario.id.clone());
            bail!("an agent died")
        }
    }
    let suite = suite(&["A", "B"]);
    let timing = times(&suite, 1);
    let mut bench = Bench::new();
    let plan = Plan { suite: &suite, timing: &timing, seed: seed(), rests: true };
    let (mut dear, mut left_out) = (DearRig(Vec::new()), Vec::new());
    let mut without = SkippedScenarioLog::of(&mut bench.store, bench.id, &mut left_out);
    rig_cost(&plan, bench.id, &mut dear, &mut (), &mut without).unwrap();
    assert_eq!((dear.0.len(), left_out.len()), (2, 0), "each is tried, and none is left out for it");
}

/// Makes what a fake does; a trial whose words `fails` has fails once it is measured.
struct FailingAfterwards<F, G> {
    fake: Fake<F>,
    fails: G,
}

impl<F, G> Execute for FailingAfterwards<F, G>
where
    F: FnMut(&str, u32) -> Result<(f64, f64)>,
    G: Fn(&str, u32) -> Result<()>,
{
    fn trial(
        &mut self,
        scenario: &Scenario,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Interim),
    ) -> Result<TrialRecord> {
        let record = self.fake.trial(scenario, ordinal, timing, interim)?;
        match (self.fails)(&scenario.id, ordinal) {
            Ok(()) => Ok(record),
            Err(error) => Err(FailedAfterTrial::new(record, error).into()),
        }
    }

    fn rig_cost(&mut self, scenario: &Scenario, timing: &Timing) -> Result<RigCost> {
        self.fake.rig_cost(scenario, timing)
    }
}

#[test]
fn a_trial_is_kept_whose_testbed_cannot_be_taken_down() {
    let suite = suite(&["A", "B"]);
    let stands = |id: &str, ordinal| match (id, ordinal) {
        ("B", 2) => Err(anyhow::anyhow!("eth1 is gone").context("take down the testbed")),
        _ => Ok(()),
    };
    let mut bench = Bench::new();
    let mut failing = FailingAfterwards { fake: Fake::new(steady), fails: stands };
    let (result, settled) = bench.run(&suite, &times(&suite, 3), &mut failing, &mut ());
    result.unwrap();
    let mut stored = bench.stored();
    stored.sort();
    assert_eq!(stored, ["A1", "A2", "A3", "B1", "B2"]);
    let failed = failed(2, "take down the testbed: eth1 is gone");
    assert_eq!(ends(&settled), BTreeMap::from([("A", (3, &RepetitionEnd::Fixed)), ("B", (2, &failed))]));

    // The first, too: its scenario is in the run, with one trial.
    let first = |id: &str, _| if id == "B" { bail!("eth1 is gone") } else { Ok(()) };
    let mut bench = Bench::new();
    let mut failing = FailingAfterwards { fake: Fake::new(steady), fails: first };
    let (result, settled) = bench.run(&suite, &times(&suite, 2), &mut failing, &mut ());
    result.unwrap();
    assert_eq!((ends(&settled)["B"].0, bench.left_out()), (1, Vec::new()));
}

#[test]
fn a_trial_is_kept_after_which_the_host_is_lost() {
    let suite = suite(&["A", "B"]);
    let lost = |id: &str, ordinal| match (id, ordinal) {
        ("B", 2) => Err(LostHost::new(anyhow::anyhow!("host child is gone")).into()),
        _ => Ok(()),
    };
    let mut bench = Bench::new();
    let mut failing = FailingAfterwards { fake: Fake::new(steady), fails: lost };
    let (result, settled) = bench.run(&suite, &times(&suite, 5), &mut failing, &mut ());
    assert_eq!(format!("{:#}", result.unwrap_err()), "trial 2 of scenario B: host child is gone");
    assert_eq!(bench.stored().last().map(String::as_str), Some("B2"));
    assert_eq!(ends(&settled)["B"], (2, &RepetitionEnd::Unfinished));
    // Who does not know of the record has the failure, in the same words.
    let record = trial("A", 1, (1.0, 1.0));
    let error =
        anyhow::Error::from(FailedAfterTrial::new(record, anyhow::anyhow!("eth1 is gone").context("take down")));
    assert_eq!(format!("{error:#}"), "take down: eth1 is gone");
}
