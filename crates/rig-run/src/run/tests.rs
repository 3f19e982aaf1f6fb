//! The loop over a fake machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use rig_cli::exit::StoppedByUser;
use rig_cli::exit::{Exit, Failure};
use rig_facts::store::{NewRun, RunEnd, RunState, Store};
use rig_suite::options::Options;

use super::*;

mod failed;
mod unmade;

/// One by which the first of two scenarios comes first.
fn seed() -> u64 {
    (0..).find(|seed| order(*seed, 0, 2) == [0, 1]).unwrap()
}

/// A fake rig that returns given figures, and remembers which trials were asked for.
struct Fake<F> {
    /// Mbit/s and CPU percent of the trial of a scenario with an ordinal.
    answer: F,
    made: Vec<String>,
    timings: Vec<Timing>,
}

impl<F: FnMut(&str, u32) -> Result<(f64, f64)>> Fake<F> {
    fn new(answer: F) -> Self {
        Self { answer, made: Vec::new(), timings: Vec::new() }
    }
}

impl<F: FnMut(&str, u32) -> Result<(f64, f64)>> Execute for Fake<F> {
    fn trial(
        &mut self,
        scenario: &Scenario,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Interim),
    ) -> Result<TrialRecord> {
        self.made.push(format!("{}{ordinal}", scenario.id));
        self.timings.push(*timing);
        let record = trial(&scenario.id, ordinal, (self.answer)(&scenario.id, ordinal)?);
        for worker in &record.workers {
            interim(&worker.name, &record.workers[0].samples[0]);
        }
        Ok(record)
    }

    fn rig_cost(&mut self, _: &Scenario, _: &Timing) -> Result<RigCost> {
        bail!("the loop does not measure the rig's cost")
    }
}

/// A trial in which `mbit` per second were carried and all CPUs were busy for `cpu` percent.
fn trial(scenario: &str, ordinal: u32, (mbit, cpu): (f64, f64)) -> TrialRecord {
    let text = rig_facts::fixture::STREAM_TRIAL;
    let mut record: TrialRecord = serde_json::from_str(text).unwrap();
    record.scenario = scenario.to_owned();
    record.ordinal = ordinal;
    for worker in &mut record.workers {
        worker.window_end_ns = worker.window_begin_ns + 8_000_000_000;
        worker.connections.truncate(1);
        worker.connections[0].bytes = (mbit * 1e6) as u64;
    }
    for used in record.nodes.iter_mut().flat_map(|node| &mut node.cpus) {
        *used = rig_facts::record::CpuUse { user: cpu, idle: 100.0 - cpu, ..*used };
        (used.system, used.softirq, used.irq, used.steal) = (0.0, 0.0, 0.0, 0.0);
    }
    record
}

fn suite(ids: &[&str]) -> Suite {
    let mut text = "name = \"fake\"\ntitle = \"Fake\"\n\
                    [defaults]\nwindow = \"8s\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\n\
                    confidence = { level = 95, width = \"5%\", min = 3, max = 6 }\n\
                    [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"128k\"\n\
                    [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {}\n"
        .to_owned();
    for id in ids {
        text.push_str(&format!("[[scenario]]\nid = \"{id}\"\nname = \"{id}\"\ntestbed = \"two\"\npath = \"raw\"\n"));
        text.push_str("from = \"a\"\nto = \"b\"\n");
    }
    Suite::parse("fake.toml", &text).unwrap()
}

fn times(suite: &Suite, trials: u32) -> Timing {
    Timing { repeat: Repeat::Times(trials), ..suite.timing }
}

/// A run in a store of its own.
struct Bench {
    _directory: tempfile::TempDir,
    store: Store,
    id: RunId,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(&directory.path().join("runs.sqlite")).unwrap();
        let new = NewRun {
            suite: "fake".into(),
            title: "Fake".into(),
            suite_file: "fake.toml".into(),
            suite_text: String::new(),
            options: serde_json::json!({}),
            environment: Default::default(),
            planned_trials: 1,
            started_unix_ms: 0,
        };
        let id = store.begin_run(&new).unwrap();
        Self { _directory: directory, store, id }
    }

    fn run(
        &mut self,
        suite: &Suite,
        timing: &Timing,
        execute: &mut dyn Execute,
        observer: &mut dyn Observer,
    ) -> (Result<()>, Vec<ScenarioCertainty>) {
        let mut settled = Vec::new();
        let plan = Plan { suite, timing, seed: seed(), rests: true };
        let mut left_out = Vec::new();
        let mut without = SkippedScenarioLog::of(&mut self.store, self.id, &mut left_out);
        let result = run(&plan, self.id, execute, observer, &mut settled, &mut without);
        (result, settled)
    }

    /// Each scenario that the stored run goes without, with the reason.
    fn left_out(&self) -> Vec<String> {
        let options = self.store.run(self.id).unwrap().options;
        let left_out = options.get("left_out").cloned().unwrap_or_default();
        let left_out: Option<Vec<SkippedScenarios>> = serde_json::from_value(left_out).unwrap();
        left_out.into_iter().flatten().map(|one| one.to_string()).collect()
    }

    fn stored(&self) -> Vec<String> {
        let trials = self.store.run(self.id).unwrap().trials;
        trials.iter().map(|trial| format!("{}{}", trial.scenario, trial.ordinal)).collect()
    }
}

fn steady(_: &str, _: u32) -> Result<(f64, f64)> {
    Ok((1000.0, 50.0))
}

#[test]
fn each_block_has_every_scenario_once_in_the_order_that_the_seed_says() {
    let suite = suite(&["A", "B", "C"]);
    let mut fake = Fake::new(steady);
    let mut bench = Bench::new();
    let (result, settled) = bench.run(&suite, &times(&suite, 4), &mut fake, &mut ());
    result.unwrap();
    let expected: Vec<String> = (1..=4)
        .flat_map(|block| {
            order(seed(), block - 1, 3).into_iter().map(move |i| format!("{}{block}", ["A", "B", "C"][i]))
        })
        .collect();
    assert_eq!(fake.made, expected);
    assert_eq!(bench.stored(), fake.made);
    let blocks: Vec<_> = bench.store.run(bench.id).unwrap().trials.iter().map(|t| (t.ordinal, t.block)).collect();
    assert!(blocks.iter().all(|(ordinal, block)| Some(*ordinal) == *block), "{blocks:?}");
    let expected =
        ["A", "B", "C"].map(|id| ScenarioCertainty { scenario: id.into(), trials: 4, outcome: RepetitionEnd::Fixed });
    assert_eq!(settled, expected);
    assert!(fake.timings.iter().all(|timing| *timing == times(&suite, 4)));
}

#[test]
fn a_fixed_number_of_trials_is_made_however_certain_they_are() {
    let suite = suite(&["A"]);
    for trials in [1, 2, 20] {
        let mut fake = Fake::new(steady);
        let (result, settled) = Bench::new().run(&suite, &times(&suite, trials), &mut fake, &mut ());
        result.unwrap();
        assert_eq!((fake.made.len() as u32, settled[0].trials), (trials, trials));
    }
}

#[test]
fn a_scenario_that_is_certain_rests_while_the_others_go_on() {
    let suite = suite(&["Calm", "Wild", "Late"]);
    let answer = |id: &str, ordinal| {
        Ok(match (id, ordinal) {
            ("Wild", _) => (if ordinal % 2 == 0 { 500.0 } else { 1500.0 }, 50.0),
            ("Late", 1) => (1050.0, 50.0),
            _ => (1000.0, 50.0),
        })
    };
    let mut fake = Fake::new(answer);
    let mut bench = Bench::new();
    let (result, settled) = bench.run(&suite, &suite.timing, &mut fake, &mut ());
    result.unwrap();
    let count = |id: &str| fake.made.iter().filter(|made| made.starts_with(id)).count() as u32;
    assert_eq!((count("Calm"), count("Wild")), (3, 6));
    // 2 t s / (sqrt(n) mean) of 1050, 1000, 1000, ... is 14.1 %, 7.9 %, 5.5 % and 4.2 % after 3, 4, 5 and 6 trials.
    assert_eq!(count("Late"), 6);
    let outcomes: BTreeMap<&str, &RepetitionEnd> = settled.iter().map(|s| (s.scenario.as_str(), &s.outcome)).collect();
    assert_eq!((outcomes["Calm"], outcomes["Late"]), (&RepetitionEnd::Reached, &RepetitionEnd::Reached));
    let RepetitionEnd::NotReached(missed) = outcomes["Wild"] else { panic!("{:?}", outcomes["Wild"]) };
    // By hand: s = 547.72, t(5) = 2.5706, 2 * 2.5706 * 547.72 / (sqrt(6) * 1000) = 1.1496.
    let names: Vec<&str> = missed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["sender throughput", "receiver throughput"], "CPU was certain");
    for (name, width) in missed {
        assert!((width.unwrap() - 1.1496).abs() < 1e-3, "{name}: {width:?}");
    }
    let said = outcomes["Wild"].to_string();
    assert!(said.contains("not reached") && said.contains("sender throughput ±57.5 %"), "{said}");
    let last: Vec<&str> = fake.made.iter().skip(9).map(|made| &made[..made.len() - 1]).collect();
    assert!(!last.contains(&"Calm"), "{last:?}");
}

/// Three scenarios, of which two are told apart by a claim.
fn with_claims(time_ms: u64, blocks: u32) -> (Suite, Timing) {
    let mut suite = suite(&["Fast", "Slow", "Other"]);
    let claim = |text: &str| rig_facts::claim::Claim::parse(text, text).unwrap();
    suite.claims.push(claim("Slow.throughput <= 0.9 * Fast.throughput"));
    suite.claims.push(claim("Other.throughput <= 900mbit"));
    let timing = Timing { repeat: Repeat::Within(rig_suite::suite::Budget { time_ms, blocks }), ..suite.timing };
    (suite, timing)
}

fn scattered(id: &str, ordinal: u32) -> Result<(f64, f64)> {
    let wave = (f64::from(ordinal) * 2.4).sin();
    Ok(match id {
        "Fast" => (1000.0 + 5.0 * wave, 50.0),
        "Slow" => (500.0 - 4.0 * wave, 50.0),
        // Too close to what is claimed to be told.
        _ => (900.0 + 100.0 * wave, 50.0),
    })
}

#[test]
fn what_is_decided_rests_and_the_others_have_its_time() {
    let (suite, timing) = with_claims(u64::MAX / 2000, 12);
    let mut fake = Fake::new(scattered);
    let mut timing = timing;
    let each_ms = trial("Fast", 1, (1.0, 1.0)).total_us / 1000;
    let time_ms = 12 * 3 * each_ms;
    timing.repeat = Repeat::Within(rig_suite::suite::Budget { time_ms, blocks: 12 });
    let (result, settled) = Bench::new().run(&suite, &timing, &mut fake, &mut ());
    result.unwrap();
    let of = |id: &str| settled.iter().find(|s| s.scenario == id).unwrap();
    // The first look of twelve blocks is after eight.
    assert_eq!((of("Fast").trials, &of("Fast").outcome), (8, &RepetitionEnd::Decided));
    assert_eq!((of("Slow").trials, &of("Slow").outcome), (8, &RepetitionEnd::Decided));
    assert_eq!(of("Other").outcome, RepetitionEnd::TimeUp);
    assert!(of("Other").trials > 12 && of("Other").trials <= 20, "{}", of("Other").trials);
    assert!(fake.made.len() as u64 * each_ms <= time_ms);
}

/// Scenarios that no claim is about rest when they are known well, and what became known after the planned blocks rests, too.
#[test]
fn what_nothing_more_is_asked_of_rests() {
    let (mut suite, mut timing) = with_claims(1, 12);
    suite.scenarios.extend(self::suite(&["Unclaimed", "Restless"]).scenarios);
    let each_ms = trial("Fast", 1, (1.0, 1.0)).total_us / 1000;
    timing.repeat = Repeat::Within(rig_suite::suite::Budget { time_ms: 5 * 12 * each_ms, blocks: 12 });
    let mut fake = Fake::new(|id: &str, ordinal: u32| match id {
        "Unclaimed" => Ok((700.0 + f64::from(ordinal % 3), 50.0)),
        "Restless" => Ok((if ordinal.is_multiple_of(2) { 100.0 } else { 900.0 }, 50.0)),
        // Decided at once, and known to 5 % only later.
        "Slow" => Ok((500.0 * if ordinal <= 4 { 1.0 + 0.1 * (f64::from(ordinal) - 2.5) } else { 1.0 }, 50.0)),
        _ => scattered(id, ordinal),
    });
    let (result, settled) = Bench::new().run(&suite, &timing, &mut fake, &mut ());
    result.unwrap();
    let of = |id: &str| settled.iter().find(|s| s.scenario == id).unwrap();
    assert_eq!((of("Unclaimed").trials, &of("Unclaimed").outcome), (8, &RepetitionEnd::Decided));
    assert_eq!(of("Restless").outcome, RepetitionEnd::TimeUp);
    assert_eq!(of("Slow").outcome, RepetitionEnd::Decided, "{settled:?}");
    assert!(of("Restless").trials > of("Slow").trials, "{settled:?}");
}

#[test]
fn a_time_that_is_up_ends_what_is_undecided() {
    let each_ms = trial("Fast", 1, (1.0, 1.0)).total_us / 1000;
    let (suite, timing) = with_claims(3 * 4 * each_ms, 4);
    let mut fake = Fake::new(scattered);
    let (result, settled) = Bench::new().run(&suite, &timing, &mut fake, &mut ());
    result.unwrap();
    assert_eq!(fake.made.len(), 12);
    assert!(settled.iter().all(|s| (s.trials, &s.outcome) == (4, &RepetitionEnd::TimeUp)), "{settled:?}");
}

#[test]
fn throughput_and_cpu_must_both_be_certain() {
    let suite = suite(&["A"]);
    let mut fake = Fake::new(|_: &str, ordinal| Ok((1000.0, if ordinal % 2 == 0 { 20.0 } else { 60.0 })));
    let (result, settled) = Bench::new().run(&suite, &suite.timing, &mut fake, &mut ());
    result.unwrap();
    let RepetitionEnd::NotReached(missed) = &settled[0].outcome else { panic!("{settled:?}") };
    let names: Vec<&str> = missed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["sender cpu", "receiver cpu"]);
    assert_eq!(settled[0].trials, 6);
}

#[test]
fn an_idle_cpu_need_not_be_known_to_a_share_of_nearly_nothing() {
    let suite = suite(&["A"]);
    // In relation to its mean the interval is far too wide, but it is less than one point of a CPU.
    let mut fake = Fake::new(|_: &str, ordinal| Ok((1000.0, if ordinal % 2 == 0 { 0.0 } else { 0.2 })));
    let (result, settled) = Bench::new().run(&suite, &suite.timing, &mut fake, &mut ());
    result.unwrap();
    assert_eq!((settled[0].trials, &settled[0].outcome), (3, &RepetitionEnd::Reached));
}

/// One busy CPU of many is a small share of the node, and has to be known as well as if it were alone.
#[test]
fn a_node_of_many_cpus_is_known_as_well_as_one_of_few() {
    let suite = suite(&["A"]);
    let outcome = |cpus: usize| {
        let mut progress = Progressing::new(&suite.scenarios[0]);
        for ordinal in 1..=3 {
            let mut record = trial("A", ordinal, (1000.0, 3.0 + 0.2 * f64::from(ordinal % 2)));
            for node in &mut record.nodes {
                node.cpus = vec![node.cpus[0]; cpus];
            }
            progress.add(&record);
        }
        progress.outcome(suite.timing.repeat)
    };
    assert_eq!(outcome(1), Some(RepetitionEnd::Reached));
    assert_eq!(outcome(32), None);
}

#[test]
fn a_figure_that_no_trial_has_is_never_certain() {
    struct SilentObserver;
    impl Execute for SilentObserver {
        fn trial(
            &mut self,
            scenario: &Scenario,
            ordinal: u32,
            _: &Timing,
            _: &mut dyn FnMut(&str, &Interim),
        ) -> Result<TrialRecord> {
            let mut record = trial(&scenario.id, ordinal, (1000.0, 50.0));
            record.workers.remove(1);
            Ok(record)
        }
        fn rig_cost(&mut self, _: &Scenario, _: &Timing) -> Result<RigCost> {
            Ok(RigCost::default())
        }
    }
    let suite = suite(&["A"]);
    let (result, settled) = Bench::new().run(&suite, &suite.timing, &mut SilentObserver, &mut ());
    result.unwrap();
    assert_eq!(settled[0].trials, 6);
    let said = settled[0].outcome.to_string();
    assert!(said.contains("receiver throughput") && !said.contains("sender throughput"), "{said}");
}

/// What became of scenarios, with their trials.
fn ends(settled: &[ScenarioCertainty]) -> BTreeMap<&str, (u32, &RepetitionEnd)> {
    settled.iter().map(|one| (one.scenario.as_str(), (one.trials, &one.outcome))).collect()
}

fn failed(trial: u32, reason: &str) -> RepetitionEnd {
    RepetitionEnd::Failed { trial, reason: reason.to_owned() }
}

#[test]
fn a_user_who_stops_is_told_apart_from_a_failure() {
    let suite = suite(&["A", "B"]);
    let mut fake = Fake::new(|id: &str, ordinal| match (id, ordinal) {
        ("A", 2) => Err(StoppedByUser.into()),
        _ => steady(id, ordinal),
    });
    let mut bench = Bench::new();
    let (result, _) = bench.run(&suite, &times(&suite, 5), &mut fake, &mut ());
    let error = result.unwrap_err();
    assert!(error.is::<StoppedByUser>());
    assert_eq!(bench.stored(), ["A1", "B1", "B2"]);
    let failure = Failure::from(error);
    assert_eq!(failure.exit, Exit::Stopped);
    assert_eq!(failure.to_string(), "trial 2 of scenario A: stopped by the user");
}

#[test]
fn a_trial_that_cannot_be_stored_ends_the_run_at_once() {
    let suite = suite(&["A", "B"]);
    let mut bench = Bench::new();
    bench.store.finish_run(bench.id, &RunEnd::Complete, None, 1).unwrap();
    let mut fake = Fake::new(steady);
    let (result, _) = bench.run(&suite, &times(&suite, 5), &mut fake, &mut ());
    assert!(result.unwrap_err().to_string().contains("has ended already"));
    assert_eq!(fake.made, ["A1"]);
    assert_eq!(bench.store.run(bench.id).unwrap().summary.state, RunState::Complete);
}

/// Writes down what it is told, and what the store holds at that moment.
struct RecordingObserver<'a> {
    store: &'a Path,
    entries: Vec<String>,
}

impl Observer for RecordingObserver<'_> {
    fn trial_started(&mut self, scenario: &Scenario, ordinal: u32) {
        self.entries.push(format!("start {}{ordinal}", scenario.id));
    }

    fn interim(&mut self, worker: &str, _: &Interim) {
        self.entries.push(format!("interim {worker}"));
    }

    fn trial_done(&mut self, record: &TrialRecord) {
        let store = Store::open_to_read(self.store).unwrap();
        let stored = store.run(store.latest().unwrap()).unwrap().trials.len();
        self.entries.push(format!("done {}{}, {stored} stored", record.scenario, record.ordinal));
    }

    fn settled(&mut self, settled: &ScenarioCertainty) {
        self.entries.push(format!("settled {} after {}", settled.scenario, settled.trials));
    }
}

#[test]
fn whoever_watches_hears_of_everything_in_order_and_of_trials_when_they_are_stored() {
    let suite = suite(&["A", "B"]);
    let mut bench = Bench::new();
    let path = bench.store.path().to_owned();
    let mut diary = RecordingObserver { store: &path, entries: Vec::new() };
    bench.run(&suite, &times(&suite, 2), &mut Fake::new(steady), &mut diary).0.unwrap();
    let expected: Vec<String> = [("A1", 1), ("B1", 2), ("B2", 3), ("A2", 4)]
        .iter()
        .flat_map(|(trial, stored)| {
            let interim = ["interim a/sender", "interim b/receiver"].map(str::to_owned);
            [format!("start {trial}")].into_iter().chain(interim).chain([format!("done {trial}, {stored} stored")])
        })
        .chain(["settled A after 2", "settled B after 2"].map(str::to_owned))
        .collect();
    assert_eq!(diary.entries, expected);
}

/// What is stored with a run is read by later versions: the letter of it must not change.
#[test]
fn options_and_outcomes_are_stored_in_a_form_that_stays() {
    let suite = suite(&["A"]);
    let options = Options {
        quick: true,
        only: vec!["A".into()],
        cpus: vec!["0-1".into(), "2".into()],
        timing: Timing {
            phases: rig_load::plan::Phases { warm_up: Duration::from_millis(300), ..suite.timing.phases },
            repeat: suite.timing.repeat,
        },
        left_out: Vec::new(),
        seed: None,
        again: Vec::new(),
        aa: None,
        turns: None,
        pairs: None,
        ends: None,
        inside: Vec::new(),
        host: None,
        label: None,
        tool: None,
        gate: false,
    };
    let text = r#"{"quick":true,"only":["A"],"cpus":["0-1","2"],"timing":{"phases":{"warm_up":{"secs":0,"nanos":300000000},"window":{"secs":8,"nanos":0},"cool_down":{"secs":0,"nanos":0},"interval":{"secs":1,"nanos":0}},"repeat":{"until":{"level":95.0,"width":"5%","min":3,"max":6}}}}"#;
    assert_eq!(serde_json::from_str::<Options>(text).unwrap(), options);
    let fixed = text.replace(r#"{"until":{"level":95.0,"width":"5%","min":3,"max":6}}"#, r#"{"times":3}"#);
    assert_eq!(serde_json::from_str::<Options>(&fixed).unwrap().timing.repeat, Repeat::Times(3));

    let text = r#"[{"scenario":"A","trials":3,"outcome":"fixed"},{"scenario":"B","trials":3,"outcome":"reached"},{"scenario":"C","trials":10,"outcome":{"not-reached":[["sender cpu",0.12],["receiver cpu",null]]}},{"scenario":"D","trials":0,"outcome":"unfinished"}]"#;
    let missed = vec![("sender cpu".to_owned(), Some(0.12)), ("receiver cpu".to_owned(), None)];
    let outcomes = [
        ("A", 3, RepetitionEnd::Fixed),
        ("B", 3, RepetitionEnd::Reached),
        ("C", 10, RepetitionEnd::NotReached(missed)),
        ("D", 0, RepetitionEnd::Unfinished),
    ];
    let settled = outcomes.map(|(id, trials, outcome)| ScenarioCertainty { scenario: id.into(), trials, outcome });
    assert_eq!(serde_json::from_str::<Vec<ScenarioCertainty>>(text).unwrap(), settled);
    assert_eq!(serde_json::to_string(&settled).unwrap(), text);
    assert_eq!(settled[2].outcome.to_string(), "confidence not reached: sender cpu ±6.0 %, receiver cpu unknown");
}

/// Of request/response the rate of transactions and the CPU of both ends have to be certain, and a percentile if asked.
#[test]
fn the_goal_is_about_what_the_load_measures() {
    use rig_facts::fixture::{TrialOptions, loads};

    struct Answers(Vec<u64>);
    impl Execute for Answers {
        fn trial(
            &mut self,
            scenario: &Scenario,
            ordinal: u32,
            _: &Timing,
            _: &mut dyn FnMut(&str, &Interim),
        ) -> Result<TrialRecord> {
            let latency = self.0[(ordinal as usize - 1) % self.0.len()];
            let record = loads::transactions(&TrialOptions::default(), &loads::histogram(&[(latency, 10_000)]));
            Ok(TrialRecord { scenario: scenario.id.clone(), ordinal, ..record })
        }

        fn rig_cost(&mut self, _: &Scenario, _: &Timing) -> Result<RigCost> {
            bail!("the loop does not measure the rig's cost")
        }
    }

    let stream = "kind = \"tcp-stream\"\nmessage = \"128k\"";
    let text = suite(&["A"]).text.replace(stream, "kind = \"tcp-rr\"");
    let plain = Suite::parse("fake.toml", &text).unwrap();
    let asked = Suite::parse("fake.toml", &format!("{text}watch = [\"latency_p50\"]\n")).unwrap();
    let outcome = |suite: &Suite, latencies: &[u64]| {
        let (result, settled) = Bench::new().run(suite, &suite.timing, &mut Answers(latencies.to_vec()), &mut ());
        result.unwrap();
        settled.into_iter().next().unwrap().outcome
    };
    assert_eq!(outcome(&plain, &[50]), RepetitionEnd::Reached);
    assert_eq!(
        outcome(&plain, &[50, 500, 5000]),
        RepetitionEnd::Reached,
        "as many transactions, whatever their latency"
    );
    assert_eq!(outcome(&asked, &[50]), RepetitionEnd::Reached);
    let RepetitionEnd::NotReached(missed) = outcome(&asked, &[50, 500, 5000]) else {
        panic!("a median of 50 to 5000 us")
    };
    assert_eq!(missed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["local latency_p50"]);
}

/// A twin rests with the scenario beside which it is measured, not when its own figures are certain.
#[test]
fn a_twin_has_the_blocks_of_its_scenario() {
    let suite = suite(&["A", "B"]).with_twin("A");
    let mut bench = Bench::new();
    let unsteady = |id: &str, ordinal: u32| Ok((if id == "A" { 1000.0 * f64::from(ordinal) } else { 1000.0 }, 50.0));
    let mut fake = Fake::new(unsteady);
    let (result, settled) = bench.run(&suite, &suite.timing, &mut fake, &mut ());
    result.unwrap();
    let made = |id: &str| fake.made.iter().filter(|trial| trial.trim_end_matches(char::is_numeric) == id).count();
    assert_eq!((made("A"), made("B"), made("A-again")), (6, 3, 6), "{:?}", fake.made);
    let of = |id: &str| settled.iter().find(|settled| settled.scenario == id).unwrap();
    assert_eq!(of("A-again").outcome, of("A").outcome);
}

/// A quick run repeats what is claimed about; of the rest it makes a first look.
#[test]
fn quick_runs_repeat_what_is_asked_about() {
    let quick = "[quick]\nwindow = \"1s\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\ntrials = 2\ntrials_for_claims = 4\n";
    let text = suite(&["A", "B", "C", "D"]).text.replace("[defaults]\n", "baseline = \"D\"\n[defaults]\n")
        + quick
        + "[[claim]]\ntext = \"more\"\nholds = \"A.throughput > C.throughput\"\n";
    let mut suite = Suite::parse("fake.toml", &text).unwrap();
    let timing = suite.quick.unwrap();
    suite.hasten();
    let mut bench = Bench::new();
    let mut fake = Fake::new(|_, _| Ok((1000.0, 50.0)));
    let (result, settled) = bench.run(&suite, &timing, &mut fake, &mut ());
    result.unwrap();
    let made: BTreeMap<&str, u32> = settled.iter().map(|done| (&*done.scenario, done.trials)).collect();
    assert_eq!(made, BTreeMap::from([("A", 4), ("B", 2), ("C", 4), ("D", 4)]));
    assert_eq!(suite.most_trials(timing.repeat), 14);
    assert_eq!(suite.most_trials(suite.timing.repeat), 24, "other runs are not shortened");
    assert!(settled.iter().all(|done| done.outcome == RepetitionEnd::Fixed), "{settled:?}");

    for (trials, hint) in [("1", "choose 2 to 100"), ("101", "choose 2 to 100")] {
        let text = text.replace("trials_for_claims = 4", &format!("trials_for_claims = {trials}"));
        let error = Suite::parse("fake.toml", &text).unwrap_err().to_string();
        assert!(error.contains("trials for claims") && error.contains(hint), "{error}");
    }
}
