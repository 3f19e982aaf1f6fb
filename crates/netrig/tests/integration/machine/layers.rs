//! What each layer costs, by stacks sampled on this machine.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rig_facts::claim::{Metric, Side};
use rig_facts::figures::figure;
use rig_facts::layers::{CpuTimeOwner, LayersData, MUCH_UNKNOWN, Map, OTHERS, Pairing, differences, of_scenario};
use rig_facts::record::TrialRecord;
use rig_run::run::{Execute, Rig};
use rig_skip::{Lack, skip};
use rig_stats::confidence::Level;
use rig_suite::suite::Suite;

use serde_json::Value;

use super::dut::{as_root, is_lacking};
use super::world::{self, expect, netrig};

/// A stream without segmentation offload, so that every layer has its part of each packet.
fn suite(path: &str, from: &str, to: &str) -> Suite {
    let text = format!(
        "name = \"by-layer\"\ntitle = \"By layer\"\n\
         [defaults]\nwindow = \"500ms\"\nwarm_up = \"50ms\"\ncool_down = \"20ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ segmentation_offload = false }}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"{path}\"\nfrom = \"{from}\"\nto = \"{to}\"\n\
         load = {{ kind = \"tcp-stream\", message = \"16k\" }}\n"
    );
    Suite::parse("by-layer.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A rig that divides what it samples by layer; `None` where the machine gives no samples, which is told.
fn dividing_rig() -> Option<Rig> {
    let mut rig = world::rig()?;
    if let Err(error) = rig.divide_by(Map::built_in()) {
        skip(Lack::Sampling, format_args!("{error:#}"));
        return None;
    }
    Some(rig)
}

fn trial(rig: &mut Rig, suite: &Suite) -> Option<TrialRecord> {
    if is_lacking(&suite.scenarios[0], rig) {
        return None;
    }
    Some(rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap())
}

/// What `work` gives, and the programs that the kernel has had meanwhile.
fn with_programs<T>(work: impl FnOnce() -> T) -> (T, BTreeSet<String>) {
    thread::scope(|scope| {
        // Also a panic lets it go.
        let (working, done) = mpsc::channel::<Infallible>();
        let watcher = scope.spawn(move || {
            let mut seen = programs();
            // Those of a test that ends are there for longer than that.
            while done.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                seen.extend(programs());
            }
            seen.extend(programs());
            seen
        });
        let worked = work();
        drop(working);
        (worked, watcher.join().unwrap())
    })
}

/// The BPF programs of this kernel, as its symbols name them: `bpf_prog_TAG_NAME`.
fn programs() -> BTreeSet<String> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let names = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)?.strip_prefix("bpf_prog_"));
    names.filter_map(|symbol| Some(symbol.split_once('_').filter(|(tag, _)| tag.len() == 16)?.1.to_owned())).collect()
}

fn percent(ends: &[LayersData], layer: &str) -> f64 {
    let parts = ends.iter().flat_map(|end| &end.parts).filter(|part| part.layer == layer);
    parts.map(|part| part.percent).fold(0.0, f64::max)
}

#[test]
fn the_layers_of_each_path_have_their_part_and_all_parts_add_up() {
    world::own_among_processes(|| {
        let Some(mut rig) = dividing_rig() else { return };
        let paths = [
            ("raw", "a", "b", "ip"),
            ("etun", "a/sender", "b/receiver", "veth"),
            ("bridge", "a/sender", "b/receiver", "bridge"),
            ("macvlan", "a/sender", "b/receiver", "macvlan"),
            ("vxlan", "a/sender", "b/receiver", "vxlan"),
        ];
        for (path, from, to, layer) in paths {
            let Some(record) = trial(&mut rig, &suite(path, from, to)) else { return };
            let layers = record.layers.as_ref().unwrap();
            // Samples are taken in a window of their own, so that they do not cost CPU time in the window that is measured.
            assert!(layers.window_begin_ns >= record.window_end_ns, "{path}: {layers:?}");
            assert!(
                layers.totals.iter().all(|(_, total)| *total > 0.0) && layers.totals.len() >= 2,
                "{path}: {layers:?}"
            );
            assert_eq!(layers.map, Map::built_in().digest());
            let ends = of_scenario(std::slice::from_ref(&record), Level::default());
            assert_eq!(ends.len(), 2, "{path}: {ends:#?}");
            for end in &ends {
                let sum: f64 = end.parts.iter().map(|part| part.mean).sum();
                assert!((sum - end.total).abs() <= 1e-9 * end.total, "{path}: {end:#?}");
                assert!(end.unknown_percent <= MUCH_UNKNOWN, "{path}: {end:#?}");
                // With offload switched off no stream of half a second leaves its CPU idle.
                assert!(end.samples > 50, "{path}: {end:#?}");
            }
            assert!(percent(&ends, layer) > 0.0, "{path} has no {layer}: {ends:#?}");
            assert!(percent(&ends, "socket") > 0.0 && percent(&ends, "copy") > 0.0, "{path}: {ends:#?}");
            // What the path does not have takes no time: of a stray packet at most.
            for other in ["bridge", "macvlan", "vxlan"].iter().filter(|other| **other != layer) {
                let is_below = path == "vxlan" && *other == "bridge";
                assert!(is_below || percent(&ends, other) < 1.0, "{path} has {other}: {ends:#?}");
            }
            let profile = layers.nodes[0].profile.as_ref().unwrap();
            assert!(!profile.stacks.is_empty());
        }
    });
}

/// A scenario asks for its own stacks on a path without a device under test, too.
#[test]
fn a_scenario_with_profile_has_the_stacks_of_its_ends() {
    world::own_among_processes(|| {
        let Some(mut rig) = world::rig() else { return };
        if let Err(error) = rig.prepare_samples() {
            return skip(Lack::Sampling, format_args!("{error:#}"));
        }
        let text =
            |profile| suite("raw", "a", "b").text.replace("id = \"S\"", &format!("id = \"S\"\nprofile = {profile}"));
        for profile in [false, true] {
            let suite = Suite::parse("profile.toml", &text(profile)).unwrap();
            let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap();
            let nodes = record.layers.map_or_else(Vec::new, |layers| layers.nodes);
            let sampled =
                nodes.iter().filter(|node| node.profile.as_ref().is_some_and(|p| !p.stacks.is_empty())).count();
            assert_eq!(sampled, if profile { 2 } else { 0 });
        }
    });
}

/// Samples of a layer on all CPUs, and of all layers but other programs.
fn samples(record: &TrialRecord, layer: &str) -> (u64, u64) {
    let layers = record.layers.as_ref().unwrap();
    let number = |id: &str| layers.layers.iter().position(|(own, _)| own == id).unwrap();
    let (own, others) = (number(layer), number(OTHERS));
    let parts = || layers.nodes.iter().flat_map(|node| &node.parts);
    let sum = |is_it: &dyn Fn(usize) -> bool| parts().filter(|part| is_it(part.layer)).map(|part| part.samples).sum();
    (sum(&|layer| layer == own), sum(&|layer| layer != others))
}

/// The trial's datapath has samples of its own, and hardly anything is without a layer.
fn has_its_layer(suite: &Suite, layer: &str) {
    suite.check_datapaths(rig_datapaths::ALL).unwrap();
    let Some(mut rig) = dividing_rig() else { return };
    let (Some(record), meanwhile) = with_programs(|| trial(&mut rig, suite)) else { return };
    // Programs are the whole kernel's, those of other tests too.
    let map = Map::built_in();
    let has_program_of = |layer: &str| {
        let layer_of = |name: &String| map.layer_of(&format!("bpf:{name}_[j]"));
        meanwhile.iter().filter_map(layer_of).any(|own| own.id == layer)
    };
    assert!(meanwhile.is_empty() || has_program_of(layer), "no program of {layer} in {meanwhile:?}");
    let ((own, all), (unknown, _)) = (samples(&record, layer), samples(&record, "unknown"));
    let nodes = &record.layers.as_ref().unwrap().nodes;
    let names: Vec<_> = nodes.iter().flat_map(|node| &node.unknown).collect();
    println!("{layer}: {own} of {all} samples, {unknown} without a layer: {names:?}");
    assert!(own > 0, "{layer} has no sample of {all}: {:#?}", record.agents);
    assert!(unknown as f64 <= all as f64 * MUCH_UNKNOWN / 100.0, "{unknown} of {all} without a layer: {names:?}");
    // What another test has in the kernel meanwhile may run on these CPUs, too.
    for other in ["vrouter", "balancer", "spreader"].iter().filter(|other| **other != layer && !has_program_of(other)) {
        assert_eq!(samples(&record, other).0, 0, "{layer}'s samples count to {other}");
    }
    // Programs have names of their own.
    let profiles = nodes.iter().filter_map(|node| node.profile.as_ref());
    let mut stacks = profiles.flat_map(|profile| &profile.stacks);
    assert!(stacks.any(|(stack, _)| stack.contains("bpf:")), "no program was named");
}

#[test]
fn programs_of_the_vrouter_are_its_layer() {
    world::own_among_processes(|| has_its_layer(&suite("vrouter", "a/sender", "b/receiver"), "vrouter"));
}

#[test]
fn programs_of_the_balancer_are_its_layer() {
    as_root(|| {
        let text = "name = \"by-layer\"\ntitle = \"By layer\"\n\
             [defaults]\nwindow = \"1s\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
             [testbed.three]\nnodes = [\"client\", \"lb\", \"server\"]\nwire = {}\n\
             [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"three\"\npath = \"balancer\"\nfrom = \"client\"\nto = \"server\"\n\
             load = { kind = \"packets\", protocol = \"tcp\", connections_per_second = 15000, server_addresses = 3 }\n";
        has_its_layer(&Suite::parse("by-layer.toml", text).unwrap_or_else(|error| panic!("{error}")), "balancer");
    });
}

#[test]
fn programs_of_the_spreader_are_its_layer() {
    world::own_among_processes(|| {
        let text = "name = \"by-layer\"\ntitle = \"By layer\"\n\
             [defaults]\nwindow = \"600ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
             [testbed.two]\nnodes = [\"a\", \"b\"]\nreceiver_cpus = \"all\"\n\
             wire = { queues = 4, segmentation_offload = false }\n\
             [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
             load = { kind = \"tcp-stream\", message = \"16k\", connections = 8 }\n\
             [[scenario.datapath]]\nname = \"spreader\"\nnodes = [\"b\"]\nactuator = [\"cpumap\"]\nmode = \"static-vrss\"\n";
        has_its_layer(&Suite::parse("by-layer.toml", text).unwrap_or_else(|error| panic!("{error}")), "spreader");
    });
}

/// A program that spends a known time on each packet is most of what the layers of its trial have more than those of the same without it.
#[test]
fn a_known_time_is_found_in_its_own_layer_before_all_others() {
    world::own_among_processes(|| {
        let Some(mut rig) = dividing_rig() else { return };
        let mut trial_of = |more: &str| {
            // As fast as it goes, so that the receiver's CPU has no rest: the kernel's timer is late on one that wakes for each burst, and
            // then shows its time where the burst began.
            let text = format!(
                "name = \"known\"\ntitle = \"A known time\"\n\
                 [defaults]\nwindow = \"1s\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
                 [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ segmentation_offload = false }}\n\
                 [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
                 load = {{ kind = \"tcp-stream\", message = \"16k\" }}\n{more}"
            );
            let suite = Suite::parse("known.toml", &text).unwrap_or_else(|error| panic!("{error}"));
            suite.check_datapaths(rig_datapaths::ALL).unwrap();
            let record = trial(&mut rig, &suite)?;
            let ends = of_scenario(std::slice::from_ref(&record), Level::default());
            let receiver = ends.into_iter().find(|end| end.end == CpuTimeOwner::Receiver).unwrap();
            Some((record, receiver))
        };
        let spin = "[[scenario.datapath]]\nname = \"spin\"\nnodes = [\"b\"]\ntime_ns = 20000\n";
        let (Some((_, plain)), Some((record, more))) = (trial_of(""), trial_of(spin)) else { return };
        let agent = record.agents.iter().find(|agent| agent.name == "spin").unwrap();
        let bytes_per_second = figure(&record, Side::Receiver, Metric::Throughput).unwrap() / 8.0;
        // As the program counted it, us/KB.
        let known = agent.counters.counts["spun_ns"] as f64 / 1e3 / (bytes_per_second * record.seconds() / 1024.0);
        let found = differences(&plain, &more, Pairing::None, Level::default()).unwrap();
        let added =
            |layer: &str| found.parts.iter().find(|part| part.layer == layer).map_or(0.0, |part| part.difference);
        let own = added("known-time");
        println!("{own:.2} of {known:.2} us/KB, {:.2} more in all: {:#?}", found.total.difference, found.parts);
        assert!((0.5..2.0).contains(&(own / known)), "{own} us/KB for {known}: {found:#?}");
        let others = found.parts.iter().filter(|part| !["known-time", OTHERS].contains(&part.layer.as_str()));
        let most = others.max_by(|one, other| one.difference.total_cmp(&other.difference)).unwrap();
        assert!(most.difference < own / 2.0, "{}: {found:#?}", most.layer);
    });
}

/// Two runs of one suite, of which the second has one thing more in the path.
#[test]
fn what_a_run_spends_more_than_another_is_explained_by_its_layer() {
    world::own_among_processes(|| {
        if let Err(error) = rig_sys::perf::probe() {
            return skip(Lack::Sampling, error);
        }
        if world::rig().is_none() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("change.toml");
        let store = directory.path().join("runs.sqlite");
        let ask = |arguments: &[&str]| -> String {
            let mut command = netrig();
            command.args(arguments).arg("--store").arg(&store);
            let output = command.output().unwrap();
            // Throughput that is worse, or cannot be decided, is not what is looked at here.
            let status = output.status.code().filter(|status| arguments[0] == "compare" && [1, 5].contains(status));
            expect(&output, status.unwrap_or(0)).0
        };
        for (path, from) in [("raw", "a"), ("bridge", "a/one")] {
            let text = format!(
                "name = \"change\"\ntitle = \"Change\"\n\
                 [defaults]\nwindow = \"500ms\"\nwarm_up = \"50ms\"\ncool_down = \"20ms\"\n\
                 [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ segmentation_offload = false }}\n\
                 [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"{path}\"\nfrom = \"{from}\"\nto = \"b\"\n\
                 load = {{ kind = \"tcp-stream\", message = \"16k\" }}\n"
            );
            fs::write(&file, text).unwrap();
            ask(&["run", file.to_str().unwrap(), "--layers", "--trials", "6", "--quiet"]);
        }
        let compared: Value = serde_json::from_str(&ask(&["compare", "1", "2", "--format", "json"])).unwrap();
        let ends = compared["data"]["layers"].as_array().unwrap();
        let sender = ends.iter().find(|end| end["changes"]["end"] == "sender").unwrap();
        let parts = sender["changes"]["parts"].as_array().unwrap();
        let sure = |layer: &str| {
            let part = parts.iter().find(|part| part["layer"] == layer);
            part.is_some_and(|part| part["difference"].as_f64() > Some(0.0) && part["low"].as_f64() > Some(0.0))
        };
        assert!(sure("bridge"), "{sender:#}");
        assert!(!["macvlan", "vxlan", "vrouter", "balancer"].into_iter().any(sure), "{sender:#}");
        let told = ask(&["compare", "1", "2", "--format", "markdown"]);
        let sentence = told.lines().find(|line| line.contains("S sender: ")).unwrap_or_else(|| panic!("{told}"));
        assert!(sentence.contains("by more than its interval") && sentence.contains("Bridge +"), "{sentence}");
    });
}
