//! vRouters that are told other rules and other routes while they carry a load.

use rig_datapath::vrouter::Reason;
use rig_study::record::TrialRecord;
use rig_study::run::Execute;
use rig_study::suite::{Suite, SuiteError};
use serde_json::{Value, json};

use crate::world;

/// A stream of datagrams from one node's container to the other's, through phases.
fn suite(settings: &str, phases: &str) -> Result<Suite, SuiteError> {
    let text = format!(
        "name = \"v\"\ntitle = \"V\"\n\
         [defaults]\nwindow = \"500ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"vrouter\"\nfrom = \"a/c\"\nto = \"b/c\"\n\
         load = {{ kind = \"udp-stream\", message = \"500\", throttle = \"500KB/s\" }}\n\
         [[scenario.datapath]]\nname = \"vrouter\"\n{settings}\n{phases}\n"
    );
    let suite = Suite::parse("v.toml", &text)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    Ok(suite)
}

/// A phase in which the vRouters are told something, as `name = "policy", arguments = { rules = 10 }`.
fn phase(name: &str, command: &str) -> String {
    format!("[[scenario.phase]]\nname = \"{name}\"\ncommand = [{{ datapath = \"vrouter\", {command} }}]\n")
}

const STATUS: &str = "name = \"status\"";

fn trial(settings: &str, phases: &[String]) -> Option<Result<TrialRecord, String>> {
    let mut rig = world::rig()?;
    let suite = suite(settings, &phases.concat()).unwrap_or_else(|error| panic!("{error}"));
    let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ());
    Some(record.map_err(|error| format!("{error:#}")))
}

/// What arrived in a phase, bytes.
fn arrived(record: &TrialRecord, phase: &str) -> u64 {
    let of_phase = record.of_phase(phase).unwrap();
    let receiver = of_phase.workers.iter().find(|worker| worker.name == "b/c").unwrap();
    println!("{phase}: {} bytes", receiver.bytes());
    receiver.bytes()
}

/// What node `node` answered when the phase began.
fn answer<'a>(record: &'a TrialRecord, phase: &str, node: &str) -> &'a Value {
    let phase = record.phases.iter().find(|one| one.name == phase).unwrap();
    let (_, answer) = phase.commands[0].answers.iter().find(|(name, _)| name == node).unwrap();
    answer
}

fn dropped(record: &TrialRecord, node: &str, why: Reason) -> u64 {
    let agent = record.agents.iter().find(|agent| agent.node == node).unwrap();
    let all = agent.counters.drops.iter().filter(|(reason, _)| reason == why.text());
    all.map(|(_, count)| *count).sum()
}

#[test]
fn rules_that_come_and_go_are_for_flows_that_exist_too() {
    world::own(|| {
        let phases = [
            phase("open", STATUS),
            phase("ruled", "name = \"policy\", arguments = { rules = 1000 }"),
            phase("denied", "name = \"policy\", arguments = { rules = 10, action = \"deny\" }"),
            phase("withdrawn", "name = \"policy\""),
        ];
        let Some(record) = trial("", &phases) else { return };
        let record = record.unwrap();
        let [open, ruled, denied, withdrawn] =
            ["open", "ruled", "denied", "withdrawn"].map(|phase| arrived(&record, phase));
        assert!(open > 0 && ruled > open / 2, "1,000 rules: {ruled} of {open} bytes");
        // Until they are told, the phase has begun already.
        assert!(denied < open / 2 && withdrawn > open / 2, "{denied}, then {withdrawn} of {open} bytes");
        for (phase, rules, action) in
            [("open", 0, "allow"), ("ruled", 1000, "allow"), ("denied", 10, "deny"), ("withdrawn", 0, "allow")]
        {
            for node in ["a", "b"] {
                let said = answer(&record, phase, node);
                assert_eq!((&said["rules"], &said["action"]), (&json!(rules), &json!(action)), "{phase}, {node}");
            }
        }
        assert!(dropped(&record, "a", Reason::FlowActionDrop) > 0, "{:?}", record.agents);
        assert_eq!(dropped(&record, "a", Reason::NoRoute), 0);
        // As it is at the window's end.
        assert!(record.agents.iter().all(|agent| agent.settings["rules"] == 0), "{:?}", record.agents);
    });
}

#[test]
fn routes_of_a_node_are_withdrawn_and_given_back() {
    world::own(|| {
        let of_b = |command: &str| format!("node = \"a\", name = \"{command}\", arguments = {{ node = \"b\" }}");
        let phases = [phase("there", STATUS), phase("gone", &of_b("withdraw")), phase("back", &of_b("advertise"))];
        for settings in ["", "encapsulation = \"vxlan\"", "policy = false"] {
            let Some(record) = trial(settings, &phases) else { return };
            let record = record.unwrap();
            let [there, gone, back] = ["there", "gone", "back"].map(|phase| arrived(&record, phase));
            assert!(there > 0 && gone < there / 2 && back > there / 2, "{settings}: {there}, {gone}, {back} bytes");
            let [before, without, after] = ["there", "gone", "back"].map(|phase| answer(&record, phase, "a"));
            assert_eq!(before["routes"], after["routes"]);
            let withdrawn = without["withdrawn"].as_array().unwrap();
            assert!(!withdrawn.is_empty() && after["withdrawn"] == json!([]), "{without}, then {after}");
            let routes = before["routes"].as_array().unwrap();
            let kept = without["routes"].as_array().unwrap();
            assert!(withdrawn.iter().all(|route| routes.contains(route) && !kept.contains(route)), "{without}");
            assert!(dropped(&record, "a", Reason::NoRoute) > 0, "{:?}", record.agents);
        }
    });
}

#[test]
fn what_a_vrouter_cannot_do_is_refused() {
    // Before anything is built.
    for (command, said) in [
        ("name = \"polcy\"", "did you mean 'policy'?"),
        ("name = \"policy\", arguments = { rules = 1024 }", "command 'policy': 1024 rules"),
        ("name = \"policy\", arguments = { action = \"drop\" }", "`drop`"),
        ("name = \"withdraw\", arguments = { nodes = [\"b\"] }", "`nodes`"),
    ] {
        let error = suite("", &phase("one", command)).unwrap_err();
        assert_eq!(error.line, Some(23), "{error}");
        assert!(error.to_string().contains(said), "{error} lacks {said}");
    }
    // What depends on the testbed, and on the settings.
    world::own(|| {
        for (settings, command, said) in [
            ("", "name = \"withdraw\", arguments = { node = \"c\" }", "there is no node c: choose from a, b"),
            ("policy = false", "name = \"policy\", arguments = { rules = 1 }", "without policy"),
        ] {
            let phases = [phase("one", STATUS), phase("two", command)];
            let Some(record) = trial(settings, &phases) else { return };
            let error = record.unwrap_err();
            assert!(error.starts_with("begin phase two, ") && error.contains(said), "{error}");
        }
    });
}
