//! Programmes on the machine: rates that change, waits, and what is sampled meanwhile.

use rig_facts::claim::{FigureRef, Metric, Side};
use rig_facts::figures::figure;
use rig_facts::figures::phases::{latency_over_time, rate_over_time, reading_of};
use rig_facts::record::{Flag, PhaseEnd, TrialRecord};
use rig_run::run::Execute;
use rig_suite::suite::Suite;

use super::world;

/// A trial of a scenario between two nodes; `None` where that cannot be made here.
fn trial(scenario: &str) -> Option<TrialRecord> {
    let mut rig = world::rig()?;
    let text = format!(
        "name = \"p\"\ntitle = \"P\"\n\
         [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n{scenario}\n"
    );
    let suite = Suite::parse("p.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap();
    // As the store keeps it.
    let text = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<TrialRecord>(&text).unwrap(), record);
    Some(record)
}

fn value(record: &TrialRecord, name: &str) -> f64 {
    let figure: FigureRef = name.parse().unwrap();
    reading_of(record, &figure).unwrap_or_else(|| panic!("no {name}: {:?}", record.flags)).value
}

#[test]
fn a_schedule_is_led_through_phases() {
    world::own(|| {
        let load = r#"
load = { kind = "tcp-rr", rate = 500, connections = 4, in_flight = 4, no_delay = true }
sample = "20ms"
[[scenario.phase]]
name = "low"
rate = "1% of limit"
[[scenario.phase]]
name = "off"
rate = 0
time = "200ms"
[[scenario.phase]]
name = "wait"
rate = 400
until = "transactions >= 1"
deadline = "20s"
"#;
        let Some(record) = trial(load) else { return };
        let limit = record.limit.as_ref().unwrap();
        assert!(limit.rate > 400.0, "{limit:?}");
        assert_eq!(record.phases.iter().map(|phase| phase.name.as_str()).collect::<Vec<_>>(), ["low", "off", "wait"]);
        assert_eq!(record.phases[0].rates[0].per_second, limit.rate * 0.01);
        assert!(matches!(record.phases[2].ended, PhaseEnd::Reached { .. }), "{:?}", record.phases[2].ended);
        // Nothing was due in this phase; only an answer to a request before it may have come in it.
        let off = record.of_phase("off").unwrap();
        assert!(off.workers.iter().filter_map(|w| w.transactions.as_ref()?.latency.as_ref()).all(|l| l.count() <= 1));
        assert!(value(&record, "S.low.transactions") > 0.0);
        assert!(value(&record, "S.low.remote.cpu") > 0.0);
        assert!((1.0..=64.0).contains(&value(&record, "S.low.remote.cpus_used")));
        let whole = figure(&record, Side::Local, Metric::Transactions).unwrap() * record.seconds();
        let series = record.series.as_ref().unwrap();
        let asked = record.workers.iter().position(|worker| worker.name == "a").unwrap();
        let counted: u64 = series.workers[asked].column("units").sum();
        assert!((counted as f64 - whole).abs() <= 0.02 * whole + 5.0, "{counted} of {whole}");
        assert!(series.nodes.iter().all(|node| node.span_us.len() > 10));
        assert!(record.workers.iter().all(|worker| worker.samples.is_empty() && worker.phases.len() == 3));
        assert!(!rate_over_time(&record, Side::Local, Metric::Transactions).is_empty());
        assert!(!latency_over_time(&record, "p99").is_empty());
    });
}

#[test]
fn a_wait_in_vain_is_told_and_the_load_under_is_stopped() {
    world::own(|| {
        let load = r#"
load = { kind = "udp-stream", message = "1000", throttle = "1MB/s" }
under = { kind = "tcp-stream", message = "16k", throttle = "4MB/s" }
[[scenario.phase]]
name = "both"
[[scenario.phase]]
name = "alone"
rate = "2MB/s"
under_rate = 0
until = "throughput > 1Gbit"
deadline = "400ms"
"#;
        let Some(record) = trial(load) else { return };
        assert!(matches!(&record.phases[1].ended, PhaseEnd::Deadline { after_us: 400_000, .. }));
        assert!(record.flags.iter().any(|flag| matches!(flag, Flag::NotReached { phase, .. } if phase == "alone")));
        assert!(value(&record, "S.both.background_throughput") > 0.0);
        assert!(value(&record, "S.alone.throughput") > 0.0);
        // What lay in the buffers may still arrive.
        let [both, alone] = ["both", "alone"].map(|name| value(&record, &format!("S.{name}.background_throughput")));
        assert!(alone < both / 2.0, "{alone} after {both}");
    });
}

#[test]
fn packets_change_their_rate() {
    world::own(|| {
        let load = r#"
load = { kind = "packets", protocol = "udp", connections_per_second = 1000 }
[[scenario.phase]]
name = "one"
[[scenario.phase]]
name = "none"
rate = 0
[[scenario.phase]]
name = "two"
rate = 2000
"#;
        let Some(record) = trial(load) else { return };
        let [one, none, two] = ["one", "none", "two"].map(|name| value(&record, &format!("S.{name}.connections")));
        // A worker's counters are a millisecond old, and one may be kept from its CPU.
        assert!(none < one / 2.0 && none < two / 2.0, "{one}, {none}, {two}");
        assert!(value(&record, "S.two.busy") > 0.0);
    });
}
