//! Scenarios whose testbed the machine does not let be made.

use super::*;

fn unmade(why: &str) -> anyhow::Error {
    TestbedUnavailable::new(anyhow::anyhow!("{why}").context("start the vRouter")).into()
}

#[test]
fn a_scenario_whose_testbed_is_not_made_is_left_out_and_the_rest_is_measured() {
    let mut suite = suite(&["A", "D", "F"]).with_twin("D");
    let claim = |text: &str| rig_facts::claim::Claim::parse(text, text).unwrap();
    suite.claims.push(claim("D.throughput <= A.throughput"));
    let answer = |id: &str, _| match id {
        "A" => steady(id, 1),
        "F" => Err(unmade("no link type vxlan")),
        _ => Err(unmade("the kernel refuses the program\n0: R1=ctx()\n1: (b7) r0 = 0")),
    };
    struct RecordedNotes(Vec<String>);
    impl Observer for RecordedNotes {
        fn left_out(&mut self, left_out: &SkippedScenarios) {
            self.0.push(left_out.to_string());
        }
    }
    let mut fake = Fake::new(answer);
    let (mut bench, mut told) = (Bench::new(), RecordedNotes(Vec::new()));
    let (result, settled) = bench.run(&suite, &times(&suite, 3), &mut fake, &mut told);
    result.unwrap();
    assert_eq!(bench.stored(), ["A1", "A2", "A3"]);
    assert_eq!(settled, [ScenarioCertainty { scenario: "A".into(), trials: 3, outcome: RepetitionEnd::Fixed }]);
    let tried: Vec<_> = fake.made.iter().filter(|made| !made.starts_with('A')).collect();
    assert_eq!(tried.len(), 2, "once for a scenario and its twin, and never again: {tried:?}");
    let mut left_out = bench.left_out();
    left_out.sort();
    let refused = "start the vRouter: the kernel refuses the program";
    assert_eq!(left_out, [format!("D, D-again: {refused}"), "F: start the vRouter: no link type vxlan".to_owned()]);
    told.0.sort();
    assert_eq!(told.0, left_out, "each is told when it is known; a verifier's log has no place in a line");
}

#[test]
fn within_a_time_nothing_is_asked_of_what_was_left_out() {
    let (suite, timing) = with_claims(u64::MAX / 2000, 12);
    let mut fake = Fake::new(|id: &str, ordinal| match id {
        "Other" => Err(unmade("no")),
        _ => scattered(id, ordinal),
    });
    let mut bench = Bench::new();
    let (result, settled) = bench.run(&suite, &timing, &mut fake, &mut ());
    result.unwrap();
    assert_eq!(settled.len(), 2, "{settled:?}");
    assert!(settled.iter().all(|one| (one.trials, &one.outcome) == (8, &RepetitionEnd::Decided)), "{settled:?}");
    assert_eq!(bench.left_out(), ["Other: start the vRouter: no"]);
}

#[test]
fn what_was_made_before_is_in_the_run_when_it_can_be_made_no_more() {
    let suite = suite(&["A", "B"]);
    let late = |id: &str, ordinal| if (id, ordinal) == ("B", 2) { Err(unmade("late")) } else { steady(id, ordinal) };
    let mut bench = Bench::new();
    let (result, settled) = bench.run(&suite, &times(&suite, 3), &mut Fake::new(late), &mut ());
    result.unwrap();
    assert_eq!(ends(&settled)["B"], (1, &failed(2, "start the vRouter: late")));
    assert_eq!(bench.left_out(), [""; 0]);
}

#[test]
fn a_run_of_which_nothing_can_be_made_ends_with_the_reasons() {
    let suite = suite(&["A", "B"]);
    let mut fake = Fake::new(|id: &str, _| Err(unmade(id)));
    let mut bench = Bench::new();
    let (result, settled) = bench.run(&suite, &times(&suite, 3), &mut fake, &mut ());
    let error = result.unwrap_err();
    let said = "no scenario can be run here:\n  A: start the vRouter: A\n  B: start the vRouter: B";
    assert_eq!((error.is::<NoScenarioLeft>(), error.to_string().as_str()), (true, said));
    assert_eq!(settled, []);
    assert_eq!(bench.left_out().len(), 2);
}

/// Those that a run goes without may be in the suite still, or taken away from it.
#[test]
fn a_run_is_refused_once_everything_is_left_out() {
    let left_out = |ids: &[&str]| {
        let scenarios = ids.iter().map(|id| (*id).to_owned()).collect();
        [SkippedScenarios { scenarios, reason: "no CPUs".into() }]
    };
    let two = suite(&["A", "B"]);
    let none = Suite { scenarios: Vec::new(), ..two.clone() };
    assert_eq!(NoScenarioLeft::refuse(&two, &left_out(&["A"])), Ok(()));
    let all = left_out(&["A", "B"]);
    for refused in [&two, &none] {
        assert_eq!(NoScenarioLeft::refuse(refused, &all), Err(NoScenarioLeft(all.to_vec())));
    }
}

#[test]
fn the_testbeds_cost_is_measured_with_the_largest_that_can_be_made() {
    struct ExpensiveRig(Vec<String>);
    impl Execute for ExpensiveRig {
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
            if scenario.id == "B" { Err(unmade("no")) } else { Ok(RigCost { nodes: Vec::new(), busy: Vec::new() }) }
        }
    }
    let suite = suite(&["A", "B"]);
    let timing = times(&suite, 1);
    let mut bench = Bench::new();
    let plan = Plan { suite: &suite, timing: &timing, seed: seed(), rests: true };
    let (mut costly, mut left_out) = (ExpensiveRig(Vec::new()), Vec::new());
    let mut without = SkippedScenarioLog::of(&mut bench.store, bench.id, &mut left_out);
    rig_cost(&plan, bench.id, &mut costly, &mut (), &mut without).unwrap();
    assert_eq!(costly.0, ["B", "A"]);
    let mut settled = Vec::new();
    let mut fake = Fake::new(steady);
    run(&plan, bench.id, &mut fake, &mut (), &mut settled, &mut without).unwrap();
    assert_eq!(fake.made, ["A1"], "what was not made for the cost is not tried again");
    assert_eq!(bench.left_out(), ["B: start the vRouter: no"]);
}
