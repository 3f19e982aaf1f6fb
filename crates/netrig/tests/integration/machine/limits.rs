//! What a rate limit throws away makes the reader doubt the trial.

use std::path::PathBuf;

use rig_facts::record::{Flag, TrialRecord};
use rig_load::driver::Cancel;
use rig_run::run::{Execute, Rig};
use rig_skip::{Lack, skip};
use rig_suite::suite::Suite;
use rig_sys::cpu::CpuSet;

use super::world;

/// A trial of several connections over a bridge, through a wire with these options.
fn trial(wire: &str) -> TrialRecord {
    let text = format!(
        "name = \"limits\"\ntitle = \"Limits\"\n\
         [defaults]\nwindow = \"400ms\"\nwarm_up = \"100ms\"\ncool_down = \"20ms\"\n\
         [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"128k\"\nconnections = 8\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ {wire} }}\n\
         [[scenario]]\nid = \"A\"\nname = \"A\"\ntestbed = \"two\"\npath = \"bridge\"\n\
         from = \"a/sender\"\nto = \"b/receiver\"\n"
    );
    let suite = Suite::parse("limits.toml", &text).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_netrig"));
    let cpus = CpuSet::allowed().unwrap();
    let mut rig = Rig::new(program, &cpus, 2, Cancel::new().unwrap(), rig_datapaths::ALL).unwrap();
    rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap()
}

fn dropped_by_the_limit(record: &TrialRecord) -> Vec<(&str, u64)> {
    let found = record.flags.iter().filter_map(|flag| match flag {
        Flag::Dropped { place, packets } if place.ends_with("rate limit") => Some((place.as_str(), *packets)),
        _ => None,
    });
    found.collect()
}

#[test]
fn packets_that_the_wires_rate_limit_drops_are_flagged() {
    world::own(|| {
        if CpuSet::allowed().unwrap().len() < 2 {
            return skip(Lack::Cpus, "two nodes need two CPUs");
        }
        // Eight connections have more under way than the limit's queue holds.
        let slow = trial("rate = \"50mbit\"");
        let found = dropped_by_the_limit(&slow);
        assert!(matches!(found[..], [("a:eth0 rate limit", 1..)]), "{:?}", slow.flags);
        assert_eq!(dropped_by_the_limit(&trial("")), []);
    });
}
