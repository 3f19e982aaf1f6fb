//! Every kind of load over every path, one alone and two at once.

use std::path::PathBuf;

use netrig::claim::{Metric, Side};
use netrig::figures::figure;
use netrig::record::{Flag, TrialRecord};
use netrig::run::{Execute, Rig};
use netrig::suite::Suite;
use netrig::testbed::topology::Path;
use rig_load::driver::Cancel;
use rig_load::record::{Direction, End};
use rig_sys::cpu::CpuSet;

use crate::world;

/// Two CPUs or more, and a rig over them; says why not where there are too few.
fn rig() -> Option<Rig> {
    let cpus = CpuSet::allowed().unwrap();
    if cpus.len() < 2 {
        world::skip("two nodes need two CPUs");
        return None;
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_netrig"));
    Some(Rig::new(program, &cpus, 2, Cancel::new().unwrap()).unwrap())
}

/// One scenario over `path`.
fn suite(path: Path, family: &str, scenario: &str) -> Suite {
    let (testbed, from, to) = match path {
        Path::Raw => ("two", "a", "b"),
        Path::Colocated => ("one", "a/c", "a/d"),
        _ => ("two", "a/c", "b/d"),
    };
    let text = format!(
        "name = \"loads\"\ntitle = \"Loads\"\n\
         [defaults]\nwindow = \"200ms\"\nwarm_up = \"50ms\"\ncool_down = \"30ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n[testbed.one]\nnodes = [\"a\"]\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"{testbed}\"\npath = \"{path}\"\nfamily = \"{family}\"\n\
         from = \"{from}\"\nto = \"{to}\"\n{scenario}\n"
    );
    Suite::parse("loads.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A trial of each path and family.
fn everywhere(scenario: &str, check: impl Fn(&TrialRecord, &str)) {
    let Some(mut rig) = rig() else { return };
    for (path, family) in Path::ALL.into_iter().flat_map(|path| ["ipv4", "ipv6"].map(|family| (path, family))) {
        let what = format!("{path}, {family}");
        let suite = suite(path, family, scenario);
        let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ());
        let record = record.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        check(&record, &what);
    }
}

#[track_caller]
fn some(record: &TrialRecord, side: Side, metric: Metric, what: &str) -> f64 {
    let value = figure(record, side, metric);
    assert!(value.is_some_and(|value| value > 0.0), "{what}: {side} {metric} is {value:?}\n{:?}", record.flags);
    value.unwrap()
}

fn directions(record: &TrialRecord) -> Vec<(Option<End>, Direction)> {
    record.workers.iter().filter(|worker| !worker.background).map(|worker| (worker.end, worker.direction)).collect()
}

/// A TCP stream arrives as it was sent, but for what is under way.
#[test]
fn tcp_streams_go_either_way() {
    world::own(|| {
        for (kind, listening) in [("tcp-stream", Direction::Receive), ("tcp-maerts", Direction::Send)] {
            everywhere(&format!("load = {{ kind = \"{kind}\", message = \"16k\" }}"), |record, what| {
                let what = format!("{kind}, {what}");
                some(record, Side::Sender, Metric::Throughput, &what);
                some(record, Side::Receiver, Metric::Throughput, &what);
                some(record, Side::Local, Metric::Cpu, &what);
                some(record, Side::Remote, Metric::Cpu, &what);
                assert_eq!(directions(record)[0], (Some(End::Listen), listening), "{what}");
            });
        }
    });
}
