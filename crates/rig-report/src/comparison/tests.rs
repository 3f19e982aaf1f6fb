use rig_facts::claim::{Metric, Side};
use rig_facts::record::Environment;
use rig_facts::record::ab_run::{AbRun, Side as Variant};
use rig_stats::compare::{Kind, Verdict};
use rig_stats::confidence::Level;
use rig_stats::units::Percent;
use rig_suite::suite::Suite;
use rig_verdict::compare::*;
use rig_verdict::export::data;
use rig_verdict::export::*;
use rig_verdict::export::{CertaintyKind, PhasesData, RunHead, RunKind, RunStatus};
use rig_verdict::fixture::netperf::netperf_view;
use serde_json::json;

use super::*;

mod history;
mod readable;

const NAME: [&str; 2] = ["run 1", "run 2"];

/// A run of scenarios A and B of the suite `layers`, in which every trial of B received so many bit/s.
fn run(id: u32, received: &[f64]) -> RunData {
    let level = Level::default();
    let scenario = |id: &str, values: &[f64]| {
        let some = |factor: f64| values.iter().map(|value| Some(value * factor)).collect::<Vec<_>>();
        let figures = [
            FigureData::new(Side::Receiver, Metric::Throughput, some(1.0), level),
            FigureData::new(Side::Sender, Metric::Cpu, some(40.0 / values[0]), level),
            FigureData::new(Side::Sender, Metric::Retransmits, some(0.0), level),
        ];
        ScenarioData {
            id: id.into(),
            name: format!("Scenario {id}"),
            notes: Vec::new(),
            load: "TCP stream".into(),
            plan: json!({}),
            checks: Vec::new(),
            layers: Vec::new(),
            frame_ledgers: Vec::new(),
            latency: None,
            delay: None,
            certainty: CertaintyKind::Fixed,
            certainty_missed: None,
            figures: figures.into_iter().flatten().collect(),
            trials: values.iter().map(|_| json!({"flags": []})).collect(),
        }
    };
    let suite = Suite::load("layers").unwrap();
    RunData {
        kind: RunKind::Run,
        run: RunHead {
            id: id.to_string(),
            suite: suite.name,
            suite_file: suite.file,
            suite_text: suite.text,
            started_unix_ms: 1_780_000_000_000 + i64::from(id),
            status: RunStatus::Complete,
            options: "full".into(),
            repetition: "4 trials".into(),
            cpus: vec!["0".into(), "1".into()],
            phases_s: PhasesData { warm_up: 1.0, window: 15.0, cool_down: 0.2, sample_interval: 1.0 },
            confidence_level_percent: 95.0,
            set_apart: None,
            turns: None,
            peer: None,
            tool: None,
        },
        environment: Environment {
            kernel: "6.18".into(),
            sysctls: vec![("net.core.rmem_max".into(), "212992".into())],
            ..Environment::default()
        },
        aa_check: None,
        claims: Vec::new(),
        rig_cost: None,
        left_out: Vec::new(),
        scenarios: vec![scenario("A", &[2e9, 2.01e9, 1.99e9, 2e9]), scenario("B", received)],
        comparison: None,
        error: None,
    }
}

const FAST: [f64; 4] = [1e9, 1.001e9, 0.999e9, 1e9];
const SLOW: [f64; 4] = [8e8, 8.01e8, 7.99e8, 8e8];

fn options() -> Options {
    Options {
        level: Level::default(),
        minimum: Percent::new(MINIMUM_PERCENT).unwrap(),
        only: Vec::new(),
        metrics: Vec::new(),
    }
}

fn compared_with(old: &RunData, new: &RunData, history: &[RunData], options: &Options) -> Comparison {
    let input = |name: &str, data: &RunData| Input { name: name.to_owned(), data: data.clone() };
    compare(&input(NAME[0], old), &input(NAME[1], new), history, options).unwrap()
}

fn compared(old: &RunData, new: &RunData) -> Comparison {
    compared_with(old, new, &[], &options())
}

fn figure<'a>(comparison: &'a Comparison, scenario: &str, metric: &str) -> &'a FigureComparison {
    comparison.figures.iter().find(|f| f.scenario == scenario && f.metric == metric).unwrap()
}

fn difference<'a>(comparison: &'a Comparison, what: &str) -> Option<(&'a str, &'a str)> {
    comparison.differences.iter().find(|d| d.what == what).map(|d| (d.old.as_str(), d.new.as_str()))
}

/// Two runs that took turns on a machine that was three times as fast in some blocks as in others.
fn in_turn(ratio: f64) -> [RunData; 2] {
    let blocks = [9e8, 3e8, 6e8, 4e8, 8e8, 5e8, 7e8, 3.5e8];
    [(1, 1.0, Variant::Old), (2, ratio, Variant::New)].map(|(id, ratio, side)| {
        let mut data = run(id, &blocks.map(|value| value * ratio));
        data.run.turns = Some(AbRun { pair: "19ab".into(), side, command: format!("switch {side}") });
        for (block, trial) in data.scenarios[1].trials.iter_mut().enumerate() {
            trial["block"] = json!(block + 1);
        }
        data
    })
}

#[test]
fn runs_that_took_turns_are_compared_block_by_block() {
    let [old, new] = in_turn(0.9);
    let comparison = compared(&old, &new);
    assert_eq!(comparison.blocks, Some(8));
    let throughput = figure(&comparison, "B", "throughput");
    assert_eq!(throughput.verdict, Verdict::Worse, "{throughput:?}");
    assert!((throughput.effect.unwrap().value - 0.9).abs() < 1e-9);
    assert_eq!(difference(&comparison, "Command before each trial"), Some(("switch old", "switch new")));
    let words = text(&document(&comparison));
    assert!(words.contains("The two took turns, trial by trial") && words.contains("8 blocks or more"), "{words}");
    assert!(words.contains("sign-flip test") && !words.contains("needs 3 complete runs"), "{words}");

    let [old, same] = in_turn(1.0);
    assert_eq!(figure(&compared(&old, &same), "B", "throughput").verdict, Verdict::Same);
    // With these values, but runs that did not take turns, nothing can be said.
    let mut alone = same.clone();
    alone.run.turns = None;
    let comparison = compared(&old, &alone);
    assert_eq!((comparison.blocks, figure(&comparison, "B", "throughput").verdict), (None, Verdict::Undecided));
    // Nor of the same side of two pairs.
    alone.run.turns = Some(AbRun { pair: "20cd".into(), side: Variant::New, command: String::new() });
    assert_eq!(compared(&old, &alone).blocks, None);
}

#[test]
fn a_trial_without_its_counterpart_is_left_out_of_a_comparison_in_turn() {
    let [old, mut new] = in_turn(1.0);
    // What the new run made of the last block was never made by the old one.
    new.scenarios[1].trials[7]["block"] = json!(9);
    let comparison = compared(&old, &new);
    assert_eq!((comparison.blocks, figure(&comparison, "B", "throughput").verdict), (Some(7), Verdict::Same));
}

#[test]
fn each_figure_gets_its_verdict() {
    let comparison = compared(&run(1, &FAST), &run(2, &SLOW));
    let throughput = figure(&comparison, "B", "throughput");
    assert_eq!((throughput.verdict, throughput.better), (Verdict::Worse, rig_stats::compare::Better::Higher));
    let effect = throughput.effect.unwrap();
    assert_eq!(effect.kind, Kind::Ratio);
    assert!((effect.value - 0.8).abs() < 1e-9 && effect.low.unwrap() < 0.8 && effect.high.unwrap() > 0.8);
    assert_eq!(figure(&comparison, "B", "cpu").verdict, Verdict::Same);
    assert_eq!(figure(&comparison, "B", "retransmits").verdict, Verdict::Same);
    assert_eq!(figure(&comparison, "A", "throughput").verdict, Verdict::Same);
    assert_eq!(comparison.totals, Totals { better: 0, worse: 1, same: 5, undecided: 0 });
    let back = compared(&run(2, &SLOW), &run(1, &FAST));
    assert_eq!(back.totals, Totals { better: 1, worse: 0, same: 5, undecided: 0 });
}

/// What one figure alone would show is not sure enough among those that decide together; what is only watched is not among them.
#[test]
fn figures_that_decide_are_judged_together() {
    let comparison = compared(&run(1, &FAST), &run(2, &[8e8, 9e8, 7e8, 8e8]));
    let throughput = figure(&comparison, "B", "throughput");
    let effect = throughput.effect.unwrap();
    assert!(throughput.gates && !figure(&comparison, "B", "retransmits").gates);
    assert!(effect.p_welch.unwrap() < 0.05 && effect.p_corrected.unwrap() > 0.05, "{effect:?}");
    assert_eq!(throughput.verdict, Verdict::Undecided);
    assert!(throughput.reason.as_ref().unwrap().contains("figures that decide together"));
    let alone = Options { metrics: vec![Metric::Retransmits], ..options() };
    let named = compared_with(&run(1, &FAST), &run(2, &FAST), &[], &alone);
    assert!(named.figures.iter().all(|figure| figure.gates), "what is named decides");
}

/// A machine that takes longer for the same arithmetic is named, and what it may have done is no verdict.
#[test]
fn a_run_on_another_machine_is_set_apart() {
    let on = |mut run: RunData, ns: u64| {
        let gauge = json!({"work_ns": [[0, ns]], "memory_ns": null, "wake_ns": null});
        for trial in run.scenarios.iter_mut().flat_map(|scenario| &mut scenario.trials) {
            trial["calibration"] = json!({"before": gauge.clone(), "after": gauge.clone()});
        }
        run
    };
    let named = |comparison: &Comparison| comparison.differences.iter().any(|one| one.what.starts_with("Machine, by"));
    let comparison = compared(&on(run(1, &FAST), 1000), &on(run(2, &SLOW), 1300));
    assert!(named(&comparison));
    assert_eq!(figure(&comparison, "B", "throughput").verdict, Verdict::Undecided);
    let alike = compared(&on(run(1, &FAST), 1000), &on(run(2, &SLOW), 1010));
    assert!(!named(&alike));
    assert_eq!(figure(&alike, "B", "throughput").verdict, Verdict::Worse);
    let old = compared(&run(1, &FAST), &on(run(2, &SLOW), 1000));
    assert!(named(&old), "what the old run lacks is said");

    // Of its repetitions those on another machine say nothing of this one.
    let (old, new) = (on(run(1, &FAST), 1000), on(run(2, &FAST), 1010));
    let repeated = [on(run(3, &FAST), 1000), on(run(4, &FAST), 990), on(run(5, &SLOW), 1300), run(6, &FAST)];
    let comparison = compared_with(&old, &new, &repeated, &options());
    assert_eq!(comparison.noise.runs_like_old, 4, "one without calibration is not known to be unlike");
    let others: Vec<(&str, f64)> =
        comparison.noise.other_machines.iter().map(|other| (&*other.run, other.slower_percent.round())).collect();
    assert_eq!(others, [("5", 30.0)]);
    let document = document(&comparison);
    let words = "Not in the noise floor: 1 run under these conditions, by calibration made on another machine: run 5, whose \
                 CPUs were 30 % slower than in run 1.";
    assert_eq!(document.headline.unwrap().caution.as_deref(), Some(words));
}

#[test]
fn every_metric_has_a_direction() {
    use rig_stats::compare::Better;
    let carried = [
        Metric::Throughput,
        Metric::Transactions,
        Metric::Datagrams,
        Metric::BackgroundThroughput,
        Metric::BackgroundPacketsOut,
        Metric::BackgroundPacketsIn,
        Metric::Connections,
        Metric::Concurrent,
        Metric::PacketsOut,
        Metric::PacketsIn,
        Metric::BitsOut,
        Metric::BitsIn,
        Metric::Limit,
        Metric::LimitHeld,
        Metric::DutPacketsIn,
        Metric::DutPacketsOut,
        Metric::DutBitsIn,
        Metric::DutBitsOut,
        Metric::DutConnections,
    ];
    for metric in Metric::ALL {
        let expected = if carried.contains(&metric) { Better::Higher } else { Better::Lower };
        assert_eq!(metric.row().policy.better, expected, "{metric}");
    }
    for metric in Metric::ALL {
        assert!(metric.row().policy.resolution >= 0.0 && metric.row().policy.resolution.is_finite());
    }
}

#[test]
fn scenarios_and_metrics_can_be_chosen() {
    let (old, new) = (run(1, &FAST), run(2, &SLOW));
    let only = Options { only: vec!["A".into()], metrics: vec![Metric::Throughput], ..options() };
    let comparison = compared_with(&old, &new, &[], &only);
    assert_eq!(comparison.figures.len(), 1);
    assert_eq!(comparison.totals.worse, 0);
    let wide = Options { minimum: Percent::new(30.0).unwrap(), ..options() };
    assert_eq!(compared_with(&old, &new, &[], &wide).totals.worse, 0);
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_next_step() {
    let (old, new) = (run(1, &FAST), run(2, &SLOW));
    let refused = |old: &RunData, new: &RunData, options: &Options| {
        let input = |name: &str, data: &RunData| Input { name: name.to_owned(), data: data.clone() };
        compare(&input(NAME[0], old), &input(NAME[1], new), &[], options).unwrap_err().to_string()
    };
    assert!(refused(&old, &old, &options()).contains("run 1 and run 2 are the same run"));
    let mut other = new.clone();
    other.run.suite = "mine".into();
    assert!(refused(&old, &other, &options()).contains("run 1 is of suite 'layers' and run 2 of suite 'mine'"));
    let mut apart = (old.clone(), new.clone());
    apart.0.scenarios.truncate(1);
    apart.1.scenarios.remove(0);
    assert!(refused(&apart.0, &apart.1, &options()).contains("run 1 (A) and run 2 (B) have no scenario in common"));
    let unknown = Options { only: vec!["Z".into()], ..options() };
    assert_eq!(refused(&old, &new, &unknown), "no scenario 'Z' in both runs: choose from A, B");
}

#[test]
fn scenarios_of_one_run_alone_are_named() {
    let (mut old, new) = (run(1, &FAST), run(2, &FAST));
    old.scenarios.truncate(1);
    let comparison = compared(&old, &new);
    assert_eq!((comparison.only_in_old.len(), &comparison.only_in_new), (0, &vec!["B".to_owned()]));
    assert!(comparison.figures.iter().all(|figure| figure.scenario == "A"));
}

#[test]
fn missing_and_single_values_are_undecided_with_the_reason() {
    let (old, mut new) = (run(1, &FAST), run(2, &SLOW));
    new.scenarios[1].figures[0].values[2] = None;
    new.scenarios[0].figures.remove(0);
    let comparison = compared(&old, &new);
    let reason = |scenario| figure(&comparison, scenario, "throughput").reason.clone().unwrap();
    assert_eq!(reason("B"), "1 of 4 trials of the new run lacks the figure");
    assert_eq!(reason("A"), "not measured in the new run");
    let single = compared(&old, &run(2, &[8e8]));
    let throughput = figure(&single, "B", "throughput");
    assert_eq!(throughput.verdict, Verdict::Undecided);
    assert_eq!(throughput.reason.as_deref(), Some("a single trial in the new run shows no scatter: make at least 3"));
    assert!((throughput.effect.unwrap().value - 0.8).abs() < 1e-9);
}

#[test]
fn the_one_reason_of_all_that_is_undecided_is_told_once() {
    let single = compared(&run(1, &FAST), &run(2, &[8e8]));
    let [(reason, places)] = <[_; 1]>::try_from(undecided(&single)).unwrap();
    let said = text(&document(&single)).to_lowercase();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(said.matches(&reason.to_lowercase()).count(), 1, "{said}");
    assert!(said.contains(&format!("undecided: {} - {}", reason.to_lowercase(), places.to_lowercase())), "{said}");
}

#[test]
fn repetitions_under_the_same_conditions_make_the_noise_floor() {
    let (old, new) = (run(1, &FAST), run(2, &SLOW));
    // Runs of 1.0, 1.1 and 0.9 Gbit/s, as the old one is: a fifth less is what this machine does by itself.
    let times = |factor: f64| FAST.map(|value| value * factor);
    let repeated = [run(3, &times(1.1)), run(4, &times(0.9)), old.clone(), new.clone()];
    let comparison = compared_with(&old, &new, &repeated, &options());
    assert_eq!((comparison.noise.runs_like_old, comparison.noise.runs_like_new), (3, 0), "without the new run");
    let throughput = figure(&comparison, "B", "throughput");
    assert_eq!(throughput.verdict, Verdict::Undecided);
    assert_eq!(throughput.reason.as_deref(), Some("runs under the same conditions differ by as much (noise floor)"));
    // s of the logarithms is 0.1003, times t(95 %, 2) and the root of 2.
    assert!((throughput.effect.unwrap().noise_floor.unwrap().ln() - 0.6107).abs() < 1e-3);
    // Scenario A was steady in all of them.
    assert_eq!(figure(&comparison, "A", "throughput").effect.unwrap().noise_floor, Some(1.0));

    let elsewhere = repeated.clone().map(|run| RunData {
        environment: Environment { kernel: "6.19".into(), ..run.environment },
        run: RunHead { id: format!("{}0", run.run.id), ..run.run },
        ..run
    });
    let comparison = compared_with(&old, &new, &elsewhere, &options());
    assert_eq!(comparison.noise.runs_like_old, 1, "another kernel is no repetition");
    assert_eq!(figure(&comparison, "B", "throughput").verdict, Verdict::Worse);
    // But of a new run with that kernel they are.
    let mut moved = new.clone();
    moved.environment.kernel = "6.19".into();
    let comparison = compared_with(&old, &moved, &elsewhere, &options());
    assert_eq!((comparison.noise.runs_like_old, comparison.noise.runs_like_new), (1, 5));
}

/// A gate that compares nothing must not look as if all were well.
#[test]
fn a_metric_that_neither_run_has_is_refused() {
    let input = |name: &str, data: &RunData| Input { name: name.to_owned(), data: data.clone() };
    let (old, new) = (input(NAME[0], &run(1, &FAST)), input(NAME[1], &run(2, &SLOW)));
    let asked = |metrics: &[Metric]| compare(&old, &new, &[], &Options { metrics: metrics.to_vec(), ..options() });
    let error = asked(&[Metric::Cpu, Metric::Jitter]).unwrap_err();
    let known = "throughput, cpu, retransmits".to_owned();
    assert_eq!(error, CompareError::Metric { unknown: Metric::Jitter, known });
    assert_eq!(asked(&[Metric::Cpu]).unwrap().figures.len(), 2);
}

#[test]
fn conditions_are_alike_whatever_the_words_and_the_load_average() {
    let alike = |change: &dyn Fn(&mut RunData)| {
        let (one, mut other) = (run(1, &FAST), run(2, &FAST));
        change(&mut other);
        Conditions::of(&one).alike(&Conditions::of(&other), "B")
    };
    assert!(alike(&|_| ()));
    assert!(alike(&|run| run.environment.load_average_hundredths = 300));
    assert!(alike(&|run| run.environment.labels = [("rack".into(), "b1".into())].into()));
    assert!(alike(&|run| run.run.suite_text = run.run.suite_text.replace("name = \"Containers\"", "name = \"Other\"")));
    assert!(alike(&|run| run.run.repetition = "10 trials".into()));
    assert!(!alike(&|run| run.run.suite_text = run.run.suite_text.replace("message = \"128k\"", "message = \"64k\"")));
    assert!(!alike(&|run| run.run.suite_text = "not a suite".into()));
    assert!(!alike(&|run| run.run.phases_s.window = 1.5));
    assert!(!alike(&|run| run.run.cpus = vec!["2".into(), "3".into()]));
    assert!(!alike(&|run| run.environment.netrig_version = "9".into()));
    assert!(!alike(&|run| run.environment.sysctls[0].1 = "1".into()));
}

#[test]
fn what_else_differs_is_listed() {
    let (old, mut new) = (run(1, &FAST), run(2, &SLOW));
    assert_eq!(compared(&old, &new).differences, []);
    new.environment.kernel = "6.19".into();
    new.environment.turbo = Some(false);
    new.environment.labels = [("rack".into(), "b1".into())].into();
    new.environment.load_average_hundredths = 49;
    new.environment.sysctls = vec![("net.core.rmem_max".into(), "1".into()), ("net.core.somaxconn".into(), "9".into())];
    new.run.phases_s.window = 1.5;
    new.run.cpus = vec!["0-1".into(), "2-3".into()];
    new.scenarios[1].load = "TCP stream, 2 threads".into();
    new.scenarios[1].trials[0] = json!({"flags": [{"flag": "stolen"}, {"flag": "stolen"}]});
    let comparison = compared(&old, &new);
    for (what, before, after) in [
        ("Kernel", "6.18", "6.19"),
        ("Turbo", "not recorded", "off"),
        ("Label rack", "none", "b1"),
        ("net.core.rmem_max", "212992", "1"),
        ("net.core.somaxconn", "not recorded", "9"),
        ("Window", "15 s", "1.5 s"),
        ("CPUs of the nodes", "0 and 1", "0-1 and 2-3"),
        ("Load of scenario B", "TCP stream", "TCP stream, 2 threads"),
        ("Trials of B flagged stolen", "0 of 4", "1 of 4"),
    ] {
        assert_eq!(difference(&comparison, what), Some((before, after)), "{what}");
    }
    assert_eq!(comparison.differences.len(), 9, "{:?}", comparison.differences);
    new.environment.load_average_hundredths = 151;
    assert_eq!(difference(&compared(&old, &new), "Load average at the start"), Some(("0.00", "1.51")));
}

#[test]
fn a_run_that_counts_cpu_time_exactly_is_not_compared_with_another_without_a_word() {
    let trial = |counting: Option<f64>| json!({"nodes": [{"cpus": [{"cpu": 0, "counting": counting}, {"cpu": 1}]}]});
    let cost = |old: Option<f64>, new: Option<f64>| {
        let (mut one, mut other) = (run(1, &FAST), run(2, &SLOW));
        (one.scenarios[1].trials[0], other.scenarios[1].trials[0]) = (trial(old), trial(new));
        let comparison = compared(&one, &other);
        let found = comparison.differences.into_iter().find(|one| one.what.starts_with("Cost of counting CPU time"));
        found.map(|found| {
            assert!(found.what.contains("lowers rates") && found.what.contains("raises CPU figures"), "{}", found.what);
            (found.old, found.new)
        })
    };
    let said = |old: &str, new: &str| Some((old.to_owned(), new.to_owned()));
    assert_eq!(cost(Some(0.84), None), said("up to 0.84 % of a CPU", "none, not counted exactly"));
    assert_eq!(cost(None, Some(0.84)), said("none, not counted exactly", "up to 0.84 % of a CPU"));
    assert_eq!(cost(Some(2.0), Some(0.84)), said("up to 2.00 % of a CPU", "up to 0.84 % of a CPU"));
    assert_eq!((cost(Some(0.9), Some(0.84)), cost(None, None)), (None, None));
}

#[test]
fn a_scenario_that_the_suite_defines_otherwise_is_named() {
    let (old, mut new) = (run(1, &FAST), run(2, &SLOW));
    let changed = |run: &mut RunData, from: &str, to: &str| {
        assert!(run.run.suite_text.contains(from));
        run.run.suite_text = run.run.suite_text.replace(from, to);
    };
    changed(&mut new, "wire = { mtu = 1500 }", "wire = { mtu = 1500, segmentation_offload = false }");
    let comparison = compared(&old, &new);
    assert_eq!(difference(&comparison, "Segmentation offload of scenario B"), Some(("on", "off")));
    let mut new = run(2, &SLOW);
    changed(&mut new, "path = \"raw\"", "path = \"raw\" # as ever");
    assert_eq!(compared(&old, &new).differences, [], "a remark changes nothing");
    changed(&mut new, "wire = { mtu = 1500 }", "wire = { mtu = 9000 }");
    let comparison = compared(&old, &new);
    assert!(difference(&comparison, "Testbed or load of scenario A").is_some());
}

/// All texts of a document, one a line.
fn text(document: &crate::document::Document) -> String {
    let mut out = Vec::new();
    let look = crate::Options { colour: false, width: 200 };
    crate::write(document, crate::Format::Terminal, look, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_report_says_what_matters_first() {
    let (old, mut new) = (run(1, &FAST), run(2, &SLOW));
    new.environment.kernel = "6.19".into();
    new.run.status = RunStatus::Interrupted { trials_done: 8, trials_planned: 10 };
    let mut looks = String::new();
    let comparison = compared(&old, &new);
    looks += &text(&document(&comparison));
    let order = ["Run 2 against run 1", "Of 6 figures 1 is worse; 5 are the same", "not complete", "Worse", "Kernel"];
    let places: Vec<usize> = order.iter().map(|words| looks.find(words).unwrap_or_else(|| panic!("{looks}"))).collect();
    assert!(places.is_sorted(), "{looks}");
    assert!(
        looks.contains("B receiver throughput: -20.0 % (-20.1 to -19.9), from 1.00 Gbit/s to 800 Mbit/s"),
        "{looks}"
    );
    assert!(looks.contains("6.19"), "{looks}");
}

#[test]
fn comparisons_look_as_they_did() {
    let (old, mut new) = (run(1, &FAST), run(2, &[8e8, 8.5e8, 7.5e8, 8e8]));
    new.environment.kernel = "6.19".into();
    new.scenarios[0].figures[2].values = vec![Some(0.0), Some(90.0), Some(5.0), None];
    let repeated = [run(3, &FAST.map(|value| value * 1.01)), run(4, &FAST.map(|value| value * 0.99))];
    let comparison = compared_with(&old, &new, &repeated, &options());
    let looks = |format| {
        let mut out = Vec::new();
        let look = crate::Options { colour: false, width: 100 };
        crate::write(&document(&comparison), format, look, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    insta::assert_snapshot!("comparison.txt", looks(crate::Format::Terminal));
    insta::assert_snapshot!("comparison.md", looks(crate::Format::Markdown));
    insta::assert_snapshot!("comparison.csv", looks(crate::Format::Csv));
    insta::assert_snapshot!("comparison.prom", looks(crate::Format::Openmetrics));
    let html = looks(crate::Format::Html);
    assert!(html.contains("</html>") && html.contains("Run 2 against run 1"));
}

#[test]
fn a_runs_report_takes_the_comparison_in() {
    let mut document = crate::build::document(&rig_verdict::fixture::run_view());
    let comparison = compared(&run(1, &FAST), &run(2, &SLOW));
    append(&mut document, &comparison);
    let data: RunData = serde_json::from_value(document.data.clone()).unwrap();
    assert_eq!(data.comparison.as_ref(), Some(&comparison));
    let short = text(&document.brief("more"));
    assert!(short.contains("Against run 1") && short.contains("B receiver throughput: -20.0 %"), "{short}");
}

#[test]
fn json_reads_back() {
    let comparison = compared(&run(1, &FAST), &run(2, &[8e8]));
    let json = serde_json::to_string(&document(&comparison).data).unwrap();
    assert_eq!(serde_json::from_str::<Comparison>(&json).unwrap(), comparison);
}

#[test]
fn every_kind_of_load_is_compared_by_its_own_figures() {
    let old = data(&netperf_view());
    let mut new = old.clone();
    new.run.id = "14".into();
    let comparison = compared(&old, &new);
    assert_eq!(comparison.figures.len(), old.scenarios.iter().map(|s| s.figures.len()).sum::<usize>());
    assert_eq!((comparison.totals.better, comparison.totals.worse), (0, 0));
    for metric in ["transactions", "latency_p99", "loss", "throughput"] {
        assert!(comparison.figures.iter().any(|figure| figure.metric == metric), "{metric}");
    }
    assert!(text(&document(&comparison)).contains("No change was found: of "));
}

fn in_markdown(document: &crate::document::Document) -> String {
    let mut text = Vec::new();
    crate::write(document, crate::Format::Markdown, crate::Options::default(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// A run whose scenario B found these limits, the generator's own where `bound`.
fn searched(id: u32, limits: &[f64], above: f64, bound: bool) -> RunData {
    use rig_stats::sample::{Bound, Reading, Resolution};
    let mut run = run(id, &FAST);
    let bound = bound.then_some(Bound::AtLeast);
    let resolution = Resolution { below: 0.0, above };
    let readings = limits.iter().map(|&value| Some(Reading { value, resolution, bound }));
    run.scenarios[1].figures =
        FigureData::new(Side::Local, Metric::Limit, readings, Level::default()).into_iter().collect();
    // As from a file: what is known of the figure has to travel with it.
    serde_json::from_value(serde_json::to_value(run).unwrap()).unwrap()
}

#[test]
fn limits_of_the_generator_are_never_the_same() {
    let of = |old: &RunData, new: &RunData| {
        let comparison = compared(old, new);
        (figure(&comparison, "B", "limit").clone(), document(&comparison))
    };
    let (old, new) = (searched(1, &[1e5; 4], 0.0, true), searched(2, &[1e5; 4], 0.0, true));
    let (both, written) = of(&old, &new);
    assert_eq!(both.verdict, Verdict::Undecided);
    assert!(both.reason.unwrap().starts_with("both runs have only a limit"));
    assert_eq!((both.old.as_ref().unwrap().high, both.old.as_ref().unwrap().low), (None, Some(1e5)));
    assert!(serde_json::to_string(&written.details).unwrap().contains("\"bound\":\"at-least\""));
    let text = in_markdown(&written);
    assert!(text.contains("| >= 100 |"), "{text}");
    let (half, _) = of(&searched(1, &[5e4; 4], 0.0, false), &new);
    assert_eq!(half.verdict, Verdict::Better);
    let effect = half.effect.unwrap();
    assert!(effect.low.is_some_and(|low| low > 1.9) && effect.high.is_none());
}

#[test]
fn the_grid_of_a_search_is_in_the_comparison() {
    let verdict = |above: f64, new: f64| {
        let comparison = compared(&searched(1, &[1e5; 4], above, false), &searched(2, &[new; 4], above, false));
        figure(&comparison, "B", "limit").verdict
    };
    assert_eq!(verdict(0.0, 1.08e5), Verdict::Better, "an exact figure would have changed");
    assert_eq!(verdict(8e3, 1.08e5), Verdict::Undecided);
    assert_eq!(verdict(2e3, 1e5), Verdict::Same);
}

/// Another build of netrig, or another version of the device under test, is another condition: such runs say nothing
/// about what repetitions differ by.
#[test]
fn builds_and_duts_are_conditions() {
    let history: Vec<RunData> = [3, 4, 5].map(|id| run(id, &FAST)).into();
    let alike = |change: &dyn Fn(&mut RunData)| {
        let (mut old, new) = (run(1, &FAST), run(2, &FAST));
        change(&mut old);
        let comparison = compared_with(&old, &new, &history, &options());
        (comparison.noise.runs_like_old, comparison)
    };
    assert_eq!(alike(&|_| ()).0, 4);
    let (runs, comparison) = alike(&|run| run.environment.netrig_build = Some("abc1234, release, rustc 1.90.0".into()));
    assert_eq!((runs, comparison.noise.runs_like_new), (1, 4));
    assert!(difference(&comparison, "netrig's build").is_some());
    let method = serde_json::to_string(&document(&comparison).details).unwrap();
    assert!(method.contains("only one run says which build made it"), "{method}");
    let (runs, comparison) = alike(&|run| {
        run.scenarios[1].trials.iter_mut().for_each(|trial| trial["middle"] = json!({"system": "HAProxy 2.6.12"}));
    });
    assert_eq!(difference(&comparison, "Device under test of scenario B"), Some(("HAProxy 2.6.12", "")));
    assert_eq!(runs, 4, "scenario A has none and is as it was");
}

/// One run of the history in which nothing happened is no reason to know no floor, and none to say that runs are few.
#[test]
fn a_mean_of_zero_in_the_history_leaves_a_noise_floor() {
    let with = |id, retransmits: f64| {
        let mut run = run(id, &FAST);
        let values = [retransmits; 4].map(Some);
        let figure = FigureData::new(Side::Sender, Metric::Retransmits, values, Level::default()).unwrap();
        *run.scenarios[1].figures.iter_mut().find(|f| f.metric == "retransmits").unwrap() = figure;
        run
    };
    let history = [with(3, 0.0), with(4, 90.0), with(5, 100.0)];
    let comparison = compared_with(&with(1, 100.0), &with(2, 200.0), &history, &options());
    let retransmits = figure(&comparison, "B", "retransmits");
    let floor = retransmits.effect.unwrap().noise_floor.unwrap();
    assert!(floor > 2.0, "{floor}");
    assert_eq!(retransmits.verdict, Verdict::Undecided);
    assert!(!serde_json::to_string(&document(&comparison)).unwrap().contains("fewer than 3 runs"));
}
