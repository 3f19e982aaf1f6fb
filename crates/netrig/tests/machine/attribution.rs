//! "Sender CPU" and "receiver CPU" mean something only if all work for a node runs on the node's CPUs.

use netrig::record::{Flag, NodeRecord, TrialRecord};
use netrig::run::Execute;
use netrig::suite::Suite;
use netrig::testbed::topology::Path;
use netrig::testbed::{Testbed, UPLINK};
use rig_skip::{Lack, skip};

use crate::world;

/// A stream over each path between two nodes.
fn suite(segmentation_offload: bool) -> Suite {
    let paths = Path::PLAIN.into_iter().filter(|path| *path != Path::Colocated);
    let scenarios: String = paths
        .map(|path| {
            let (from, to) = if path == Path::Raw { ("a", "b") } else { ("a/sender", "b/receiver") };
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

/// Trials in which other programs' packets may hide what is looked for. They can only add to a CPU's count, so that a
/// node's own packets on the wrong CPUs would show in every trial.
const TRIALS: u32 = 12;

#[test]
fn a_busy_receiver_shows_on_the_receivers_cpus_alone() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        for segmentation_offload in [true, false] {
            let suite = suite(segmentation_offload);
            for scenario in &suite.scenarios {
                let alone = (1..=TRIALS).any(|ordinal| {
                    let record = rig.trial(scenario, ordinal, &suite.timing, &mut |_, _| ()).unwrap();
                    let received = received(&record, "b");
                    let (sender, receiver) = (processed(&record, "a"), processed(&record, "b"));
                    let own: u64 = node(&record, "a").interfaces.iter().map(|interface| interface.rx_packets).sum();
                    let what = format!(
                        "{}, segmentation offload {segmentation_offload}: b received {received} packets, CPUs of b \
                         processed {receiver}; a received {own}, CPUs of a processed {sender}",
                        scenario.id
                    );
                    println!("{what}");
                    assert_eq!(elsewhere(&record), [], "{what}");
                    // A few packets are always on their way.
                    assert!(receiver * 100 >= received * 95, "{what}");
                    // Large packets are too few to tell them from those of other programs.
                    segmentation_offload || (received >= 1000 && sender <= own + received / 2)
                });
                assert!(alone, "{}: packets that b received were processed by CPUs of a, in every trial", scenario.id);
            }
        }
    });
}

#[test]
fn a_receiver_that_is_not_steered_is_flagged() {
    world::own(|| {
        let Some(rig) = world::rig() else { return };
        let suite = suite(false);
        for scenario in &suite.scenarios {
            let testbed = Testbed::build(&scenario.topology, &rig.shares().all()).unwrap();
            let sysfs = testbed.places(1).next().unwrap().ns.sysfs().unwrap();
            if let Err(error) = sysfs.write(UPLINK, "queues/rx-0/rps_cpus", "0") {
                assert!(error.is_permission(), "{error}");
                return skip(Lack::Root, "only root may take the steering away");
            }
            let flagged = (1..=TRIALS).any(|ordinal| {
                let record = rig.trial_in(&testbed, scenario, ordinal, &suite.timing, &mut |_, _| ()).unwrap();
                let found = elsewhere(&record);
                println!("{}: {found:?}", scenario.id);
                found.iter().any(|(node, percent)| *node == "b" && *percent > 50.0)
            });
            assert!(flagged, "{}: nobody noticed", scenario.id);
        }
    });
}
