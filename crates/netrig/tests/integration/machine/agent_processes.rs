//! Agents are processes of their own on every kind of host: what they tell, how they end, and that nothing of them is left.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rig_facts::record::{Profile, TrialRecord};
use rig_facts::store::{RunState, Store};
use rig_run::run::agents::Agents;
use rig_suite::suite::Suite;
use rig_sys::cpu::CpuSet;
use rig_testbed::datapath::{self, Agent, Datapath, Machine, Settings, Site, UnknownCommand};
use rig_testbed::host::{Host, Local, Remote};
use rig_testbed::topology::Topology;
use rig_testbed::{LostPeer, Placement, Testbed};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::dut::{as_root, is_lacking};
use super::world::{self, NETRIG, RandomSource, expect, netrig, text};

/// Longer than what is waited for takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const HOSTS: [&str; 2] = ["local", "child"];

fn host(kind: &str) -> Box<dyn Host> {
    match kind {
        "local" => {
            let local = Local::new().unwrap().with_program(NETRIG.into());
            Box::new(local.with_datapaths(rig_datapaths::ALL.on(Machine { rootless: false })))
        }
        _ => Box::new(Remote::child(Path::new(NETRIG)).unwrap()),
    }
}

/// A scenario on `path`, whose middle node, where it has one, has the datapath of the path's name.
fn of_three(path: &str) -> Suite {
    let text = format!(
        "name = \"agents\"\ntitle = \"Agents\"\n\
         [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.three]\nnodes = [\"client\", \"lb\", \"server\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"three\"\npath = \"{path}\"\nfrom = \"client\"\nto = \"server\"\n\
         load = {{ kind = \"packets\", protocol = \"tcp\", connections_per_second = 100, server_addresses = 3 }}\n\
         [[scenario.datapath]]\nname = \"{path}\"\n"
    );
    Suite::parse("agents.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A scenario between two nodes, with datapaths on them.
fn of_two(path: &str, ends: [&str; 2], window: &str, datapaths: &str) -> String {
    let [from, to] = ends;
    format!(
        "name = \"two\"\ntitle = \"Two\"\n\
         [defaults]\nwindow = \"{window}\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"{path}\"\nfrom = \"{from}\"\nto = \"{to}\"\n\
         load = {{ kind = \"udp-stream\", message = \"500\", throttle = \"500KB/s\" }}\n{datapaths}\n"
    )
}

/// Carried by a vRouter on each node.
fn overlay(window: &str) -> String {
    of_two("vrouter", ["a/c", "b/c"], window, "")
}

/// The agents of all runs in this world.
fn agents_at_work() -> Vec<u32> {
    let is_agent = |process: &world::Process| [" agent ", " --on-stdio"].iter().any(|of| process.command.contains(of));
    world::processes().into_iter().filter(is_agent).map(|process| process.pid).collect()
}

fn start(suite: &Path, store: &Path, more: &[&str]) -> Child {
    let mut command = netrig();
    command.arg("run").arg(suite).args(["--no-aa", "--store"]).arg(store).args(more);
    if !more.contains(&"--trials") {
        command.args(["--trials", "1"]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn each_datapath_between_clients_and_servers_works_on_each_host() {
    as_root(|| {
        let Some(rig) = world::rig() else { return };
        for path in ["balancer", "nftables", "haproxy", "ipvs"] {
            let suite = of_three(path);
            let scenario = &suite.scenarios[0];
            if is_lacking(scenario, &rig) {
                continue;
            }
            for kind in HOSTS {
                let what = format!("{path} on host {kind}");
                let mut host = host(kind);
                assert_eq!(host.missing(path, &Settings::new()).unwrap(), None, "{what}");
                host.try_out(path).unwrap_or_else(|error| panic!("{what}: {error:#}"));
                let shares = rig.placement().of(&scenario.topology, scenario.dut).unwrap();
                let mut testbed = Testbed::build_on(host.as_mut(), &scenario.topology, &shares).unwrap();
                testbed.route_pools().unwrap();
                let agents = Agents::attach(scenario, &testbed, rig_datapaths::ALL).unwrap();
                let counters = agents.counters().unwrap_or_else(|error| panic!("{what}: {error:#}"));
                let (name, node, _) = &counters[0];
                assert_eq!((name.as_str(), node.as_str()), (path, "lb"));
                let window = agents.begin(testbed.host(), false).unwrap();
                let observed = agents.end(testbed.host(), window, &[]).unwrap();
                let (records, _) = observed.records(testbed.host()).unwrap();
                let record = &records[0];
                let (begin, end) = record.read_ns.unwrap();
                assert!(!record.version.is_empty() && begin < end, "{what}: {record:?}");
                let services: Vec<&str> = record.state.services.iter().map(|one| one.address.as_str()).collect();
                assert_eq!(services.len(), 1, "{what}: {record:?}");
                // An error is the same wherever it was made.
                let refused = |name: &str, arguments: &Value| {
                    let error = agents.command(path, None, name, arguments).unwrap_err();
                    (error.is::<UnknownCommand>(), format!("{error:#}"))
                };
                let (is_unknown, said) = refused("dance", &Value::Null);
                assert!(is_unknown && said.contains(&format!("{path} knows no command 'dance'")), "{what}: {said}");
                if path == "balancer" {
                    let (is_unknown, said) = refused("weight", &json!({"backend": 4, "weight": 1}));
                    assert_eq!(
                        (is_unknown, said.as_str()),
                        (false, "tell balancer on lb: weight: there is no backend 4: see command counters")
                    );
                    let told = agents.command(path, None, "weight", &json!({"backend": 1, "weight": 7})).unwrap();
                    assert_eq!(told[0].1["changed"], 1, "{what}");
                }
                agents.detach().unwrap();
                testbed.tear_down().unwrap();
            }
        }
    });
}

/// Whether the machine lets stacks be sampled.
fn is_sampled() -> bool {
    rig_sys::perf::probe().is_ok()
}

/// The trials of a run of the suite on another host.
fn run_on_child(suite: &str, only: Option<&str>) -> Vec<TrialRecord> {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("runs.sqlite");
    let mut command = netrig();
    command.args(["run", suite, "--trials", "1", "--no-aa", "--host", "child", "--store"]).arg(&store);
    if let Some(only) = only {
        // In a shorter one a busy machine may leave a load no CPU time, and nothing is counted.
        command.args(["--quick", "--window", "500ms", "--only", only]);
    }
    if is_sampled() && suite == "layers" {
        command.arg("--layers");
    }
    let (_, said) = expect(&command.output().unwrap(), 0);
    let (out, _) = expect(&netrig().args(["report", "--all", "--store"]).arg(&store).output().unwrap(), 0);
    assert!(out.contains("nodes on host child"), "{out}");
    let store = Store::open_to_read(&store).unwrap();
    let run = store.run(store.latest().unwrap()).unwrap();
    assert_eq!(run.summary.state, RunState::Complete, "{said}");
    run.trials
}

#[test]
fn suites_with_datapaths_run_on_another_host() {
    world::own_among_processes(|| {
        if world::rig().is_none() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let spread = "[[scenario.datapath]]\nname = \"spreader\"\nnodes = [\"b\"]\nactuator = [\"rps\"]";
        let spin = "[[scenario]]\nid = \"P\"\nname = \"P\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
                    load = { kind = \"udp-stream\", message = \"500\", throttle = \"500KB/s\" }\n\
                    [[scenario.datapath]]\nname = \"spin\"\nnodes = [\"b\"]\ntime_ns = 100";
        let [file, balancer] = ["two.toml", "balancer.toml"].map(|name| directory.path().join(name));
        fs::write(&balancer, world::balancer_at_a_rate()).unwrap();
        fs::write(&file, of_two("raw", ["a", "b"], "300ms", &format!("{spread}\n{spin}"))).unwrap();
        for (suite, only, scenarios) in [
            (balancer.to_str().unwrap(), Some("cps-balancer-1"), &[("cps-balancer-1", &["balancer"][..])][..]),
            ("layers", Some("D"), &[("D", &["vrouter", "vrouter"][..])][..]),
            ("overlay", Some("crr-vrouter-10"), &[("crr-vrouter-10", &["vrouter", "vrouter"][..])][..]),
            (file.to_str().unwrap(), None, &[("S", &["spreader"][..]), ("P", &["spin"][..])][..]),
        ] {
            let trials = run_on_child(suite, only);
            assert_eq!(trials.len(), scenarios.len(), "{suite}");
            for trial in &trials {
                let (_, agents) = scenarios.iter().find(|(id, _)| *id == trial.scenario).unwrap();
                let names: Vec<&str> = trial.agents.iter().map(|agent| agent.name.as_str()).collect();
                assert_eq!(names, *agents, "{suite}");
                // With the stacks of the host's CPUs.
                let has_stacks = |profile: Option<&Profile>| profile.is_some_and(|profile| !profile.stacks.is_empty());
                if is_sampled() && trial.scenario == "cps-balancer-1" {
                    assert!(has_stacks(trial.dut.as_ref().unwrap().profile.as_ref()), "{:?}", trial.dut);
                }
                if is_sampled() && suite == "layers" {
                    let nodes = &trial.layers.as_ref().unwrap().nodes;
                    assert!(nodes.iter().all(|node| has_stacks(node.profile.as_ref())), "{nodes:?}");
                }
                let clock = trial.host.as_ref().unwrap().clock_at_begin;
                for agent in &trial.agents {
                    assert!(agent.counters.counts.values().any(|count| *count > 0), "{suite}: {agent:?}");
                    // Read when the window had begun, and when it had ended.
                    let (begin, end) = agent.read_ns.unwrap();
                    let edge = |at: u64| at.saturating_sub(clock.bound_ns);
                    assert!(begin >= edge(trial.window_begin_ns) && end >= edge(trial.window_end_ns), "{suite}");
                }
            }
        }
    });
}

#[test]
fn a_run_whose_agent_dies_says_which_and_how() {
    world::own(|| {
        if world::rig().is_none() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let [suite, store] = ["suite.toml", "runs.sqlite"].map(|name| directory.path().join(name));
        fs::write(&suite, overlay("1s")).unwrap();
        for kind in HOSTS {
            let mut run = start(&suite, &store, &["--host", kind]);
            // At work when the load's workers are there: first without load, for what the testbed costs, which a run does without.
            let is_worker = |process: &world::Process| process.command.ends_with(" worker");
            let mut killed = Vec::new();
            for _ in 0..2 {
                let are_others = || agents_at_work().iter().all(|agent| !killed.contains(agent));
                let loaded = || world::processes().iter().any(is_worker) && are_others();
                world::until(TIMEOUT, || loaded().then_some(())).expect("no load is started");
                let agents = agents_at_work();
                assert_eq!(agents.len(), 2, "{kind}");
                kill_process(Pid::from_raw(agents[0] as i32).unwrap(), Signal::KILL).unwrap();
                killed = agents;
            }
            let said = std::io::read_to_string(run.stderr.take().unwrap()).unwrap();
            let status = run.wait().unwrap();
            assert_eq!(status.code(), Some(4), "{kind}: {said}");
            let named = ["vrouter on a died (signal: 9", "vrouter on b died (signal: 9"];
            assert!(named.iter().any(|one| said.contains(one)), "{kind}: {said}");
            world::assert_nothing_left(kind);
        }
    });
}

/// [`overlay`], with a bare wire beside it about which it makes a claim.
fn overlay_and_wire() -> String {
    let scenario = "[[scenario]]\nid = \"R\"\nname = \"R\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
                    load = { kind = \"udp-stream\", message = \"500\", throttle = \"500KB/s\" }\n\
                    [[claim]]\ntext = \"The overlay carries it, too.\"\nholds = \"S.throughput >= 0.5 * R.throughput\"\n";
    of_two("vrouter", ["a/c", "b/c"], "1s", scenario)
}

/// What is done to a trial of scenario S that is not its first, when its load runs.
type Disturbance = fn();

fn kill_an_agent() {
    kill_process(Pid::from_raw(agents_at_work()[0] as i32).unwrap(), Signal::KILL).unwrap();
}

/// By the way of the process that has the namespace.
fn delete_a_wire() {
    let worker = world::processes().into_iter().find(|process| process.command.ends_with(" worker")).unwrap();
    let namespace = worker.pid.to_string();
    let links = Command::new("nsenter").args(["-t", &namespace, "-n", "ip", "-br", "link"]).output().unwrap();
    let links = text(&links.stdout);
    let link = links.split_whitespace().find(|name| name.starts_with("eth")).unwrap_or_else(|| panic!("{links}"));
    let link = link.split('@').next().unwrap();
    let deleted = Command::new("nsenter").args(["-t", &namespace, "-n", "ip", "link", "delete", link]).status();
    assert!(deleted.unwrap().success(), "{link}");
}

/// What dies or goes away in a trial takes its scenario alone.
#[test]
fn a_scenario_that_loses_its_datapath_or_an_interface_is_closed_and_the_rest_is_measured() {
    world::own(|| {
        if world::rig().is_none() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let suite = directory.path().join("suite.toml");
        fs::write(&suite, overlay_and_wire()).unwrap();
        let cases: [(&str, Disturbance, &str, &[&str], i32); 3] = [
            ("agent", kill_an_agent, "vrouter on ", &[], 0),
            ("agent of child", kill_an_agent, "vrouter on ", &["--host", "child", "--strict"], 4),
            ("wire", delete_a_wire, "", &[], 0),
        ];
        for (what, disturb, why, more, status) in cases {
            let store = directory.path().join(format!("{what}.sqlite"));
            let mut run = start(&suite, &store, &[&["--trials", "3"][..], more].concat());
            let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
            let is_first = |line: &String| line.contains(" S #1 ");
            assert!(lines.by_ref().any(|line| is_first(&line)), "{what}: no trial of S");
            let loaded = || {
                let is_worker = |process: &world::Process| process.command.ends_with(" worker");
                (agents_at_work().len() == 2 && world::processes().iter().any(is_worker)).then_some(())
            };
            world::until(TIMEOUT, loaded).expect("no second trial of S");
            // Its load runs by now.
            thread::sleep(Duration::from_millis(300));
            disturb();
            let said: Vec<String> = lines.collect();
            let said = said.join("\n");
            assert_eq!(run.wait().unwrap().code(), Some(status), "{what}: {said}");
            assert!(said.contains("failed in trial 2: ") && said.contains(why), "{what}: {said}");
            let json = netrig().args(["report", "--format", "json", "--store"]).arg(&store).output().unwrap();
            let json: Value = serde_json::from_str(&expect(&json, 0).0).unwrap();
            let of = |id: &str| {
                let scenarios = json["data"]["scenarios"].as_array().unwrap().iter();
                let one = scenarios.clone().find(|one| one["id"] == id).unwrap_or_else(|| panic!("{what}: {json}"));
                (one["certainty"].as_str().unwrap(), one["trials"].as_array().unwrap().len())
            };
            assert_eq!((of("S"), of("R")), (("failed", 1), ("fixed", 3)), "{what}: {said}");
            let claim = &json["data"]["claims"][0];
            assert_eq!(claim["verdict"], "undecided", "{what}: {claim}");
            assert!(json.to_string().contains("S failed in trial 2: "), "{what}: {json}");
            world::assert_nothing_left(what);
        }
    });
}

#[test]
fn a_run_with_agents_that_is_killed_leaves_nothing() {
    world::own(|| {
        if world::rig().is_none() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let [suite, store] = ["suite.toml", "runs.sqlite"].map(|name| directory.path().join(name));
        fs::write(&suite, overlay("1s")).unwrap();
        let mut dice = RandomSource::new();
        for kind in HOSTS {
            let mut at_work = 0;
            for life in 0..3 {
                let mut run = start(&suite, &store, &["--host", kind]);
                // The first at the first agent, which is being attached.
                match life {
                    0 => {
                        let is_there = world::until(TIMEOUT, || (!agents_at_work().is_empty()).then_some(()));
                        assert!(is_there.is_some(), "{kind}: no agent is started");
                    }
                    _ => thread::sleep(dice.up_to(Duration::from_millis(1500))),
                }
                at_work += u32::from(!agents_at_work().is_empty());
                run.kill().unwrap();
                run.wait().unwrap();
                world::assert_nothing_left(&format!("of life {life} on host {kind}"));
            }
            assert!(at_work > 0, "{kind}: no moment fell into the work of an agent");
        }
    });
}

/// A testbed of two nodes, on whose nodes `program` is what netrig would be.
fn with_program(program: &Path, body: impl FnOnce(&Testbed<'_>, &Site)) {
    let (topology, _) = Topology::smallest("raw".parse().unwrap()).unwrap();
    let cpus = Placement::new(&CpuSet::allowed().unwrap(), &[], 1).unwrap().of(&topology, None).unwrap();
    let host = Local::uncounted().unwrap().with_program(program.to_owned());
    let testbed = Testbed::build_in(host, &topology, topology.plan(&[cpus[0].clone(), cpus[0].clone()])).unwrap();
    let site = Site::new(&testbed, 0, None).unwrap();
    body(&testbed, &site);
}

fn attach(testbed: &Testbed<'_>, spin: &'static dyn Datapath, site: &Site) -> anyhow::Result<Box<dyn Agent>> {
    let settings = serde_json::from_value(json!({ "time_ns": 100 })).unwrap();
    datapath::start(testbed.host(), spin, site, &settings)?.attached()
}

#[test]
fn a_process_that_is_no_agent_is_given_up_with_the_reason() {
    world::own(|| {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("stranger");
        let spin = rig_datapaths::ALL.find("spin").unwrap();
        let greeting = r#"{"protocol":"netrig-agent","version":2,"build":"x"}"#;
        let attached = r#"{"answer":{"number":0,"value":"attached"}}"#;
        for (script, why) in [
            ("echo Welcome to this machine; cat >/dev/null", "no greeting of netrig's: 'Welcome to this machine'"),
            ("echo no such thing >&2; exit 127", "died (exit status: 127): no such thing"),
            (r#"echo '{"protocol":"netrig-agent","version":9}'; cat >/dev/null"#, "version 9 and the other 2"),
            (r#"echo '{"protocol":"netrig-host","version":2}'; cat >/dev/null"#, "it speaks 'netrig-host'"),
            (&format!("echo '{greeting}'; echo hello; cat >/dev/null"), "does not speak the protocol: 'hello'"),
            (&format!("echo '{greeting}'; kill -9 $$"), "died (signal: 9"),
            (
                &format!(r#"echo '{greeting}'; echo '{{"broken":{{"why":"no idea"}}}}'; cat >/dev/null"#),
                "it does not understand: no idea",
            ),
            (
                &format!(r#"echo '{greeting}'; echo '{{"answer":{{"number":7,"value":"attached"}}}}'; cat >/dev/null"#),
                "answers request 7 where 0 was asked",
            ),
            (
                &format!(r#"echo '{greeting}'; echo '{{"answer":{{"number":0,"value":"detached"}}}}'; cat >/dev/null"#),
                "it answered Detached",
            ),
        ] {
            fs::write(&program, format!("#!/bin/bash\n{script}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            with_program(&program, |testbed, site| {
                let error = attach(testbed, spin, site).unwrap_err();
                let said = format!("{error:#}");
                assert!(error.is::<LostPeer>() && said.contains("spin on a") && said.contains(why), "{script}: {said}");
            });
            world::assert_nothing_left(script);
        }
        // An agent that refuses what it is asked is not lost.
        let refusal = r#"{"refused":{"number":0,"why":{"what":"spend time: the verifier says no"}}}"#;
        fs::write(&program, format!("#!/bin/bash\necho '{greeting}'; echo '{refusal}'; cat >/dev/null\n")).unwrap();
        with_program(&program, |testbed, site| {
            let error = attach(testbed, spin, site).unwrap_err();
            assert!(!error.is::<LostPeer>());
            assert_eq!(format!("{error:#}"), "spend time: the verifier says no");
        });
        // An agent that attaches, and is gone at the next question.
        fs::write(
            &program,
            format!("#!/bin/bash\necho '{greeting}'; echo '{attached}'; read; read; echo ouch >&2; exit 3\n"),
        )
        .unwrap();
        with_program(&program, |testbed, site| {
            let mut agent = attach(testbed, spin, site).unwrap();
            let error = agent.counters().unwrap_err();
            assert_eq!(error.to_string(), "spin on a died (exit status: 3): ouch");
            let again = agent.counters().unwrap_err();
            assert_eq!(again.to_string(), error.to_string());
        });
        world::assert_nothing_left("of strangers");
    });
}

/// What `netrig agent NAME` says and how it ends, given `input`, and the end of the input where it `ends`.
fn served(name: &str, input: &str, ends: bool) -> (Vec<String>, String, Option<i32>) {
    let mut command = Command::new(NETRIG);
    command.args(["agent", name]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut agent = command.spawn().unwrap();
    let mut stdin = agent.stdin.take().unwrap();
    // It may have ended before it has read all of it.
    let _ = stdin.write_all(input.as_bytes());
    if ends {
        drop(stdin);
    }
    let mut out = String::new();
    agent.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let output = agent.wait_with_output().unwrap();
    (out.lines().map(str::to_owned).collect(), text(&output.stderr), output.status.code())
}

#[test]
fn an_agent_ends_with_the_reason_when_it_is_told_nonsense_and_at_once_when_it_is_left() {
    let greeting = "{\"protocol\":\"netrig-agent\",\"version\":2}\n";
    for (input, why) in [
        ("hello\n".to_owned(), "no greeting"),
        ("{\"protocol\":\"netrig-agent\",\"version\":9}\n".to_owned(), "version 9"),
        (format!("{greeting}hello\n"), "does not speak the protocol"),
        (format!("{greeting}{{\"number\":0,\"request\":\"fly\"}}\n"), "unknown variant `fly`"),
    ] {
        let (lines, said, status) = served("spin", &input, false);
        let last = lines.last().unwrap_or_else(|| panic!("{input}: {said}"));
        assert!(last.starts_with("{\"broken\"") && last.contains(why), "{input}: {last}");
        assert!(said.contains(why) && status == Some(4), "{input}: {status:?} {said}");
    }
    for input in ["", greeting] {
        let (lines, said, status) = served("spin", input, true);
        assert_eq!((lines.len(), said.as_str(), status), (1, "", Some(0)), "{input}");
    }
    // What was not attached cannot be asked, and says so.
    let asked = format!("{greeting}{{\"number\":0,\"request\":\"counters\"}}\n");
    let (lines, said, _) = served("spin", &asked, true);
    assert!(lines[1].contains("spin is not attached") && said.is_empty(), "{lines:?}");
    let (_, said, status) = served("dance", "", true);
    assert!(status == Some(2) && said.contains("no datapath 'dance'"), "{said}");
    let named: BTreeSet<&str> = rig_datapaths::ALL.all().map(Datapath::name).collect();
    assert!(named.iter().all(|name| said.contains(name)), "{said}");
}
