//! What users have set on a testbed: offloads, queueing disciplines, receive packet steering, threaded NAPI, sysctls.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use rig_skip::{Lack, skip};
use rig_suite::suite::Suite;
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_testbed::Testbed;
use rig_testbed::topology::{Endpoint, Path, Rps, TestbedSettings, Topology, WireOptions};
use serde_json::Value;

use super::bench::Bench;
use super::world::{self, expect, netrig};

/// A wire between two nodes, with this set on it.
fn built(chosen: Vec<TestbedSettings>) -> Result<Testbed<'static>, String> {
    let ends: [Endpoint; 2] = ["a", "b"].map(|end| end.parse().unwrap());
    let path: Path = "raw".parse().unwrap();
    let names = ["a".to_owned(), "b".to_owned()];
    let topology = Topology::new(&names, Some(WireOptions::default()), path, &ends).unwrap();
    let topology = topology.with_chosen(chosen).unwrap();
    let cpus = CpuSet::allowed().unwrap();
    Testbed::build(&topology, &[cpus.clone(), cpus]).map_err(|error| format!("{error:#}"))
}

fn at_b() -> TestbedSettings {
    TestbedSettings { nodes: vec!["b".to_owned()], ..TestbedSettings::default() }
}

fn offloads(list: &[(&str, bool)]) -> BTreeMap<String, bool> {
    list.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect()
}

fn sysctls(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[test]
fn what_is_set_is_found_in_the_node_and_gone_with_it() {
    world::own(|| {
        let chosen = TestbedSettings {
            offloads: offloads(&[("rx-gro", true), ("tcp-segmentation-offload", false)]),
            qdisc: Some("pfifo".to_owned()),
            sysctls: sysctls("net.ipv4.tcp_rmem", "4096 8192 16384"),
            rps: Some(Rps::Off),
            threaded: Some(true),
            ..at_b()
        };
        let testbed = built(vec![chosen]).unwrap();
        let ns = |node: &str| testbed.namespace(node).unwrap().ns.try_clone().unwrap();
        let is_on = |node: &str, offload| ethtool::get(&ns(node), "eth0", offload).unwrap();
        assert!(is_on("b", Offload::Gro) && !is_on("b", Offload::Tso));
        assert!(is_on("a", Offload::Tso), "only what was named is set");
        let read = |node: &str, file: &str| ns(node).sysfs().unwrap().read("eth0", file).unwrap();
        assert_eq!((read("a", "threaded").as_str(), read("b", "threaded").as_str()), ("0", "1"));
        let is_steered = |node: &str| read(node, "queues/rx-0/rps_cpus").contains(|digit| !matches!(digit, '0' | ','));
        assert!(is_steered("a") && !is_steered("b"));
        let rmem = ns("b").run(|| fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap()).unwrap();
        assert_eq!(rmem.split_whitespace().collect::<Vec<_>>(), ["4096", "8192", "16384"]);
        match ns("b").run(|| Command::new("tc").args(["qdisc", "show", "dev", "eth0"]).output()).unwrap() {
            Ok(said) => assert!(world::text(&said.stdout).contains("qdisc pfifo "), "{said:?}"),
            Err(error) => skip(Lack::Program("tc"), error),
        }
        // The last of two that set the same holds.
        let on = |gro| TestbedSettings { offloads: offloads(&[("gro", gro)]), ..at_b() };
        let testbed = built(vec![on(true), on(false)]).unwrap();
        assert!(!ethtool::get(&testbed.namespace("b").unwrap().ns, "eth0", Offload::Gro).unwrap());
        testbed.tear_down().unwrap();
    });
}

#[test]
fn what_the_kernel_refuses_is_named() {
    world::own(|| {
        let refused = |chosen: TestbedSettings| built(vec![chosen]).unwrap_err();
        let offload = |name: &str, on: bool| refused(TestbedSettings { offloads: offloads(&[(name, on)]), ..at_b() });
        let unknown = offload("rx-groo", false);
        assert!(
            unknown.contains("switch rx-groo of eth0 off in b: the kernel has no feature of this name"),
            "{unknown}"
        );
        let fixed = offload("loopback", true);
        assert!(
            fixed.contains("switch loopback of eth0 on in b: the interface does not let it be switched"),
            "{fixed}"
        );
        built(vec![TestbedSettings { offloads: offloads(&[("loopback", false)]), ..at_b() }]).unwrap();
        let qdisc = |kind: &str| refused(TestbedSettings { qdisc: Some(kind.to_owned()), ..at_b() });
        let unknown = qdisc("nosuch");
        assert!(unknown.contains("set qdisc nosuch of eth0 in b: the kernel has no qdisc of this kind"), "{unknown}");
        assert!(qdisc("tbf").contains("set qdisc tbf of eth0 in b: "), "it needs a rate");
        let sysctl = |key: &str, value: &str| refused(TestbedSettings { sysctls: sysctls(key, value), ..at_b() });
        let machine = sysctl("net.core.netdev_budget", "300");
        assert!(
            machine.contains("net.core.netdev_budget = 300 in b") && machine.contains("whole machine's"),
            "{machine}"
        );
        let value = sysctl("net.ipv4.tcp_ecn", "many");
        assert!(value.contains("set sysctl net.ipv4.tcp_ecn = many in b: Invalid argument"), "{value}");
        let threads =
            refused(TestbedSettings { threaded: Some(true), offloads: offloads(&[("rx-gro", false)]), ..at_b() });
        assert!(threads.contains("switch threaded NAPI of eth0 in b") && threads.contains("with GRO on"), "{threads}");
        world::assert_nothing_left("of testbeds that were refused");
    });
}

/// The short suite with more in its scenario R; `None` where there are not two nodes.
fn suite_with(more: &str) -> Option<Bench> {
    let bench = Bench::new();
    let path = bench.path("suite.toml");
    let text = fs::read_to_string(&path).unwrap();
    let (head, _) = text.split_once("[[scenario]]\nid = \"V\"").or_else(|| {
        skip(Lack::Cpus, "two nodes need two CPUs");
        None
    })?;
    fs::write(&path, format!("{head}{more}\n")).unwrap();
    Some(bench)
}

#[test]
fn variants_of_a_scenario_are_measured_and_told_apart() {
    world::own(|| {
        let set = "[[scenario.set]]\nnodes = \"b\"\noffloads = { rx-gro = [true, false] }\n\
                   [[claim]]\ntext = \"GRO is no slower\"\n\
                   holds = \"R-b-rx-gro-on.throughput >= 0.001 * R-b-rx-gro-off.throughput\"\n";
        let Some(bench) = suite_with(set) else { return };
        let suite = bench.path("suite.toml");
        let (shown, _) = expect(&netrig().arg("show").arg(&suite).arg("--all").output().unwrap(), 0);
        assert!(shown.contains("R-b-rx-gro-off: Raw, rx-gro off at b"), "{shown}");
        assert!(shown.contains("set: rx-gro off at b eth0") && shown.contains("set: rx-gro on at b eth0"), "{shown}");
        let mut run = netrig();
        run.arg("run").arg(&suite).args(["--trials", "2", "--format", "json", "--store"]).arg(bench.store());
        let (out, said) = expect(&run.output().unwrap(), 0);
        let run: Value = serde_json::from_str(&out).unwrap();
        let scenarios = run["data"]["scenarios"].as_array().unwrap();
        let of = |id: &str| scenarios.iter().find(|one| one["id"] == id).unwrap_or_else(|| panic!("{id} {out} {said}"));
        for (id, told) in [("R-b-rx-gro-on", "rx-gro on of b"), ("R-b-rx-gro-off", "rx-gro off of b")] {
            let trials = of(id)["trials"].as_array().unwrap();
            assert!(trials.len() == 2 && trials.iter().all(|trial| trial["set"][0] == told), "{trials:?}");
        }
        let store = bench.store();
        let report = ["report", "1", "--all", "--store", store.to_str().unwrap()];
        let (words, _) = expect(&netrig().args(report).output().unwrap(), 0);
        assert!(words.contains("set: rx-gro off at b eth0"), "{words}");
        // Two runs of one scenario, of which the second has it set.
        let plain = fs::read_to_string(&suite).unwrap();
        let (head, _) = plain.split_once("[[scenario.set]]").unwrap();
        for (text, id) in [(head.to_owned(), "2"), (format!("{head}[[scenario.set]]\nqdisc = \"pfifo\"\n"), "3")] {
            assert!(Suite::parse("suite.toml", &text).is_ok(), "{text}");
            fs::write(&suite, text).unwrap();
            let mut run = netrig();
            run.arg("run").arg(&suite).args(["--trials", "2", "--quiet", "--store"]).arg(&store);
            expect(&run.output().unwrap(), 0);
            assert_eq!(bench.runs().len().to_string(), id);
        }
        let compare = ["compare", "2", "3", "--all", "--store", store.to_str().unwrap()];
        let output = netrig().args(compare).output().unwrap();
        // Where lines are wrapped depends on what else differs.
        let words = world::text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("What is set on the testbed of scenario R") && words.contains("qdisc pfifo"), "{words}");
    });
}

#[test]
fn a_scenario_that_sets_what_the_kernel_does_not_have_is_left_out_before_the_first_trial() {
    world::own(|| {
        let lacking = "[[scenario.set]]\noffloads = { rx-groo = false }\n";
        let Some(bench) = suite_with(lacking) else { return };
        let suite = bench.path("suite.toml");
        let run = |more: &[&str], status| {
            let mut run = netrig();
            run.arg("run").arg(&suite).args(["--trials", "1", "--store"]).arg(bench.store()).args(more);
            expect(&run.output().unwrap(), status).1
        };
        let why = "set up the testbed: ";
        let said = run(&[], 3);
        assert!(said.contains(&format!("no scenario can be run here:\n  R: {why}")), "{said}");
        assert!(said.contains("the kernel has no feature of this name"), "{said}");
        assert!(!bench.store().exists(), "a run was stored");
        let text = fs::read_to_string(&suite).unwrap();
        let other =
            "[[scenario]]\nid = \"O\"\nname = \"O\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n";
        fs::write(&suite, format!("{text}{other}")).unwrap();
        let said = run(&["--strict"], 3);
        assert!(said.contains("--strict asks for all:\n  R: ") && !bench.store().exists(), "{said}");
        let said = run(&[], 0);
        assert!(said.contains(&format!("Not in this run: R: {why}")), "{said}");
        let ids: Vec<String> = bench.runs()[0].trials.iter().map(|trial| trial.scenario.clone()).collect();
        assert_eq!(ids, ["O"]);
        world::assert_nothing_left("of a scenario that was left out");
    });
}
