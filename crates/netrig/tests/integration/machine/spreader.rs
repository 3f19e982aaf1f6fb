//! The receive spreader as a datapath of the rig: a receiver that owns all CPUs, told other modes while it receives.

use std::collections::BTreeSet;

use rig_cli::mistakes::FileError;
use rig_facts::record::{AgentRecord, TrialRecord};
use rig_run::run::Execute;
use rig_spread::History;
use rig_suite::checks::{Procedure, Verdict};
use rig_suite::suite::Suite;
use rig_sys::cpu::CpuSet;
use serde_json::Value;

use super::world;

fn suite(settings: &str, phases: &str) -> Result<Suite, FileError> {
    let text = format!(
        "name = \"v\"\ntitle = \"V\"\n\
         [defaults]\nwindow = \"600ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nreceiver_cpus = \"all\"\n\
         wire = {{ queues = 4, segmentation_offload = false }}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
         load = {{ kind = \"tcp-stream\", message = \"4k\", connections = 8, throttle = \"2MB/s\" }}\n\
         [[scenario.datapath]]\nname = \"spreader\"\nnodes = [\"b\"]\n{settings}\n{phases}\n"
    );
    let suite = Suite::parse("v.toml", &text)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    Ok(suite)
}

fn phase(name: &str, command: &str) -> String {
    format!("[[scenario.phase]]\nname = \"{name}\"\ncommand = [{{ datapath = \"spreader\", {command} }}]\n")
}

fn trial(settings: &str, phases: &[String]) -> Option<TrialRecord> {
    let mut rig = world::rig()?;
    let suite = suite(settings, &phases.concat()).unwrap_or_else(|error| panic!("{error}"));
    let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ());
    Some(record.unwrap_or_else(|error| panic!("{error:#}")))
}

fn agent(record: &TrialRecord) -> &AgentRecord {
    record.agents.iter().find(|agent| agent.name == "spreader" && agent.node == "b").unwrap()
}

/// With masks, as no threads of the kernel are seen in a process namespace of one's own.
#[test]
fn a_mode_that_is_set_moves_entries_while_the_load_goes_on() {
    world::own(|| {
        let phases = [
            phase("one", "name = \"status\""),
            phase("all", "name = \"set\", arguments = { mode = \"static-vrss\" }"),
            phase("again", "name = \"set\", arguments = { mode = \"StaticVmq\" }"),
            phase("told", "name = \"status\""),
        ];
        let Some(record) = trial("actuator = [\"rps\"]\nmode = \"static-vmq\"\nbase = 0", &phases) else { return };
        let online = CpuSet::online().unwrap();
        let agent = agent(&record);
        assert_eq!(agent.cpus, online.as_slice());
        assert!(agent.version.contains("rps"), "{}", agent.version);
        assert_eq!(agent.settings["base"], 0);
        let histories: Vec<History> = serde_json::from_value(agent.state.more["histories"].clone()).unwrap();
        let [history] = &histories[..] else { panic!("{histories:?}") };
        assert_eq!((history.table.len(), history.lost, history.exact_order), (4, 0, false));
        let on = |phase: &str| -> BTreeSet<u32> {
            let phase = record.phases.iter().find(|one| one.name == phase).unwrap();
            history.table_at(phase.end_ns).into_iter().flatten().collect()
        };
        let base = BTreeSet::from([0]);
        assert_eq!((on("one"), on("again")), (base.clone(), base));
        assert_eq!(on("all").len(), online.len().min(4), "{history:?}");
        // The load went on during all moves, and each packet was counted on a CPU.
        for name in ["one", "all", "again", "told"] {
            let of_phase = record.of_phase(name).unwrap();
            let receiver = of_phase.workers.iter().find(|worker| worker.name == "b").unwrap();
            assert!(receiver.bytes() > 0, "{name}: nothing arrived");
        }
        let counted = |counter: &str| agent.counters.counts.get(counter).copied().unwrap_or(0);
        let by_cpu: u64 = online.as_slice().iter().map(|cpu| counted(&format!("cpu{cpu}_packets"))).sum();
        let by_entry: u64 = (0..4).map(|entry| counted(&format!("entry{entry}_packets"))).sum();
        assert!(by_cpu > 0 && by_cpu == by_entry, "{by_cpu} on CPUs, {by_entry} in entries");
        assert!(counted("moves") >= 2, "{:?}", agent.counters);
        let told = record.phases[3].commands[0].answers[0].1.pointer("/interfaces/0/effective/mode");
        assert_eq!(told.and_then(Value::as_str), Some("static-vmq"));
        // Its phases are none of the guide's.
        let checks = Procedure::ReceiveSpreading.judge(&[record]);
        assert!(checks.iter().any(|check| check.verdict == Verdict::Unknown));
    });
}

#[test]
fn what_is_said_wrong_is_told_with_its_line() {
    let refused = |settings: &str, phases: &str, words: &[&str]| {
        let error = suite(settings, phases).unwrap_err();
        let text = error.to_string();
        assert!(error.line.is_some() && words.iter().all(|word| text.contains(word)), "{text}");
    };
    refused("mode = \"fast\"", "", &["'fast' is not a mode", "dynamic"]);
    refused("colour = 1", "", &["colour"]);
    refused("actuator = []", "", &["no actuator"]);
    refused("tuning = { hold = \"soon\" }", "", &["soon"]);
    refused("", &phase("p", "name = \"set\""), &["nothing to set"]);
    refused("", &phase("p", "name = \"set\", arguments = { mode = 3 }"), &["command 'set'", "expected a string"]);
    refused("", &phase("p", "name = \"stop\""), &["stop", "set, status"]);
}
