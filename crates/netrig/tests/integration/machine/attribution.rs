//! "Sender CPU" and "receiver CPU" mean something only if all work for a node runs on the node's CPUs.

use rig_facts::record::{Flag, NodeRecord, TrialRecord};
use rig_skip::{Lack, skip};
use rig_suite::suite::Suite;
use rig_testbed::topology::{Endpoints, Layout, Path};
use rig_testbed::{Testbed, UPLINK};

use super::paths::agents;
use super::world;

/// A stream over each path between two nodes.
fn suite(segmentation_offload: bool) -> Suite {
    let paths = Path::plain().filter(|path| path.layout() != Layout::One);
    let scenarios: String = paths
        .map(|path| {
            let (from, to) = if path.endpoints() == Endpoints::Nodes { ("a", "b") } else { ("a/sender", "b/receiver") };
            format!(
                "[[scenario]]\nid = \"{path}\"\nname = \"{path}\"\ntestbed = \"two\"\npath = \"{path}\"\n\
                 from = \"{from}\"\nto = \"{to}\"\n"
            )
        })
        .collect();
    let text = format!(
        "name = \"attribution\"\ntitle = \"Where work runs\"\n\
         [defaults]\nwindow = \"200ms\"\nwarm_up = \"50ms\"\ncool_down = \"20ms\"\n\
         [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"16k\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ segmentation_offload = {segmentation_offload} }}\n{scenarios}"
    );
    Suite::parse("attribution.toml", &text).unwrap()
}

fn node<'a>(record: &'a TrialRecord, name: &str) -> &'a NodeRecord {
    record.nodes.iter().find(|node| node.name == name).unwrap()
}

/// Packets that a node took off the wire.
fn received(record: &TrialRecord, name: &str) -> u64 {
    let interface = format!("{name}:{UPLINK}");
    node(record, name).interfaces.iter().find(|i| i.name == interface).unwrap().rx_packets
}

/// Packets that the CPUs of a node processed, each as often as it passed an interface.
fn processed(record: &TrialRecord, name: &str) -> u64 {
    node(record, name).cpus.iter().map(|cpu| cpu.packets_processed).sum()
}

/// The share of each node's receive processing that was found elsewhere, by node.
fn elsewhere(record: &TrialRecord) -> Vec<(&str, f64)> {
    let found = record.flags.iter().filter_map(|flag| match flag {
        Flag::ReceiveElsewhere { node, percent } => Some((node.as_str(), *percent)),
        _ => None,
    });
    found.collect()
}

/// Trials of which the majority counts. What CPUs processed is counted for all programs, so other programs' packets may hide
/// what is looked for in a window; a node's own packets on the wrong CPUs show in every one. Where others disturb each tenth
/// window, the majority of nine is wrong once in 1,100 times (binomial).
const TRIALS: u32 = 9;
/// What the first so many trials agree on is decided: a fault that shows in nine of ten windows passes once in 100 times.
const AGREEING: u32 = 2;
/// Windows in which hardly anything comes through, as when others fill the CPUs' queues, show nothing; there may be this
/// many more.
const EMPTY: u32 = 20;
/// Packets that b must have received for a window to count.
const RECEIVED: u64 = 1000;

/// Whether something holds in the first [`AGREEING`] trials, or in more than half of [`TRIALS`]; ends when that is decided. Of those
/// that count `trial` says so, of the others nothing.
fn in_most_trials(mut trial: impl FnMut(u32) -> Option<bool>) -> bool {
    let mut counts = [0; 2];
    for holds in (1..=TRIALS + EMPTY).filter_map(&mut trial) {
        counts[usize::from(holds)] += 1;
        if counts == [0, AGREEING] || counts.iter().any(|count| count * 2 > TRIALS) {
            println!("in {} trials, and not in {}", counts[1], counts[0]);
            return counts[1] > counts[0];
        }
    }
    panic!("in {EMPTY} windows, hardly anything came through");
}

#[test]
fn a_busy_receiver_shows_on_the_receivers_cpus_alone() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        for segmentation_offload in [true, false] {
            let suite = suite(segmentation_offload);
            for scenario in &suite.scenarios {
                let shares = rig.placement().all();
                let (host, trials) = rig.parts();
                let testbed = Testbed::build_on(host, &scenario.topology, &shares).unwrap();
                let _agents = agents(&testbed);
                let alone = in_most_trials(|ordinal| {
                    let record = trials.trial_in(&testbed, scenario, ordinal, &suite.timing, &mut |_, _| ()).unwrap();
                    let received = received(&record, "b");
                    let (sender, receiver) = (processed(&record, "a"), processed(&record, "b"));
                    let own: u64 = node(&record, "a").interfaces.iter().map(|interface| interface.rx_packets).sum();
                    let what = format!(
                        "{}, segmentation offload {segmentation_offload}: b received {received} packets, CPUs of b \
                         processed {receiver}; a received {own}, CPUs of a processed {sender}",
                        scenario.id
                    );
                    println!("{what}");
                    let elsewhere = elsewhere(&record);
                    if !elsewhere.is_empty() {
                        println!("found elsewhere: {elsewhere:?}");
                    }
                    // A few packets are always on their way.
                    assert!(receiver * 100 >= received * 95, "{what}");
                    if segmentation_offload {
                        // Large packets are too few to tell them from those of other programs.
                        return Some(elsewhere.is_empty());
                    }
                    (received >= RECEIVED).then_some(elsewhere.is_empty() && sender <= own + received / 2)
                });
                assert!(alone, "{}: packets that b received were processed by CPUs of a, in most trials", scenario.id);
            }
        }
    });
}

#[test]
fn a_receiver_that_is_not_steered_is_flagged() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let suite = suite(false);
        // A testbed that stands already has nothing on its nodes.
        for scenario in suite.scenarios.iter().filter(|scenario| scenario.datapaths.is_empty()) {
            let shares = rig.placement().all();
            let (host, trials) = rig.parts();
            let testbed = Testbed::build_on(host, &scenario.topology, &shares).unwrap();
            let sysfs = testbed.namespaces(1).next().unwrap().ns.sysfs().unwrap();
            if let Err(error) = sysfs.write(UPLINK, "queues/rx-0/rps_cpus", "0") {
                assert!(error.is_permission(), "{error}");
                return skip(Lack::Root, "only root may take the steering away");
            }
            let flagged = in_most_trials(|ordinal| {
                let record = trials.trial_in(&testbed, scenario, ordinal, &suite.timing, &mut |_, _| ()).unwrap();
                let found = elsewhere(&record);
                println!("{}: {found:?}", scenario.id);
                let noticed = found.iter().any(|(node, percent)| *node == "b" && *percent > 50.0);
                (received(&record, "b") >= RECEIVED).then_some(noticed)
            });
            assert!(flagged, "{}: most times, it was not noticed", scenario.id);
        }
    });
}
