//! Suites whose nodes are on several hosts: here each host's machine is a network namespace, and a veth pair is the network.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::world::{self, NETRIG};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Machines in a row, each joined with the next one: all have an `eth1`, and those between two others an `eth2`.
pub(super) struct Machines {
    pub(super) machines: Vec<NetNs>,
    directory: tempfile::TempDir,
}

impl Machines {
    pub(super) fn new(count: usize) -> Self {
        let machines: Vec<NetNs> = (0..count).map(|_| NetNs::create().unwrap()).collect();
        let netlink = |ns: &NetNs| Netlink::open(ns).unwrap();
        machines.iter().for_each(|ns| netlink(ns).set_up("lo").unwrap());
        for (number, pair) in machines.windows(2).enumerate() {
            let [name, peer] = [if number == 0 { "eth1" } else { "eth2" }, "eth1"];
            netlink(&pair[0]).add_veth(&VethPair { name, peer, peer_ns: &pair[1], queues: 1, mtu: 1500 }).unwrap();
            for ((ns, name), host) in pair.iter().zip([name, peer]).zip(1..) {
                netlink(ns).set_up(name).unwrap();
                netlink(ns).add_address(name, [192, 0, 2 + number as u8, host].into(), 24).unwrap();
            }
        }
        // What a machine is like before a run is compared with what it is like after it.
        for (number, ns) in machines.iter().enumerate() {
            let names = if number == 0 || number + 1 == count { &["eth1"][..] } else { &["eth1", "eth2"] };
            let up = || names.iter().all(|name| netlink(ns).is_operational(name).unwrap()).then_some(());
            world::until(TIMEOUT, up).expect("wires come up");
        }
        let directory = tempfile::tempdir().unwrap();
        let host = |(name, ns): (&str, &NetNs)| {
            let path = format!("/proc/{}/fd/{}", std::process::id(), ns.raw_fd());
            format!("[host.{name}]\ncommand = [\"nsenter\", \"--net={path}\"]\nprogram = \"{NETRIG}\"\n")
        };
        let text: String = ["m1", "m2", "m3"].into_iter().zip(&machines).map(host).collect();
        fs::write(directory.path().join("hosts.toml"), text).unwrap();
        Self { machines, directory }
    }

    /// With a host `ahead`: the second machine, whose CLOCK_MONOTONIC shows so many seconds more. False where the kernel has no namespaces of
    /// time.
    fn with_one_ahead(&self, seconds: u32) -> bool {
        let in_time = ["--time", "--monotonic", &seconds.to_string(), "--fork", "--kill-child"].map(str::to_owned);
        let probe = Command::new("unshare").args(&in_time).arg("true").stdin(Stdio::null()).output().unwrap();
        if !probe.status.success() {
            skip(Lack::Namespaces, String::from_utf8_lossy(&probe.stderr));
            return false;
        }
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.machines[1].raw_fd());
        let command: Vec<String> =
            [&["unshare".to_owned()], &in_time[..], &["nsenter".to_owned(), format!("--net={path}")]].concat();
        let host = format!("[host.ahead]\ncommand = {command:?}\nprogram = \"{NETRIG}\"\n");
        let hosts = fs::read_to_string(self.file("hosts.toml")).unwrap();
        fs::write(self.file("hosts.toml"), hosts + &host).unwrap();
        true
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What `ip` tells of both machines' links, addresses and routes.
    fn state(&self) -> Vec<String> {
        let of = |ns: &NetNs, what: &[&str]| {
            let output = ns.run(|| Command::new("ip").args(what).output().unwrap()).unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        // Those of IPv6 change by themselves at first.
        let asked: [&[&str]; 3] = [&["-o", "link"], &["-4", "-o", "addr"], &["-4", "route", "show", "table", "all"]];
        self.machines.iter().flat_map(|ns| asked.map(|what| of(ns, what))).collect()
    }

    fn run(&self, suite: &str, arguments: &[&str]) -> std::process::Output {
        self.call(&[&["run", suite, "--no-aa"], arguments].concat())
    }

    /// A command that makes runs.
    fn call(&self, arguments: &[&str]) -> std::process::Output {
        let mut run = world::netrig();
        run.args(arguments).args(["--format", "json", "--quiet", "--hosts"]).arg(self.file("hosts.toml"));
        run.arg("--store").arg(self.file("store.sqlite"));
        run.stdin(Stdio::null()).output().unwrap()
    }

    /// The report of a run.
    fn report(&self, suite: &str, arguments: &[&str]) -> Value {
        let output = self.run(suite, arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refusal(&self, arguments: &[&str]) -> String {
        let output = self.run("layers", arguments);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

/// With short warm-ups, too: loads go as fast as they can.
const SHORT: [&str; 5] = ["--quick", "--trials", "1", "--window", "200ms"];

/// The trials of a report, by their scenarios.
fn trials(report: &Value) -> BTreeMap<&str, &Value> {
    let scenarios = report["data"]["scenarios"].as_array().unwrap();
    scenarios.iter().map(|scenario| (scenario["id"].as_str().unwrap(), &scenario["trials"][0])).collect()
}

#[test]
fn nodes_on_two_hosts_share_the_interfaces_that_join_them() {
    world::own(|| {
        let machines = Machines::new(2);
        let before = machines.state();
        let on = ["--on", "a=m1", "--on", "b=m2"];
        let only = ["--only", "A,B,C,D,D-vxlan,F-vxlan"];
        let report = machines.report("layers", &[&on[..], &only, &SHORT].concat());
        let made = trials(&report);
        assert_eq!(made.keys().copied().collect::<Vec<_>>(), ["A", "C", "D", "D-vxlan"]);
        for (id, trial) in &made {
            let hosts: Vec<_> = trial["hosts"].as_array().unwrap().iter().map(|of| (&of[0], &of[1]["name"])).collect();
            let all: [(Value, Value); 2] = [("a".into(), "m1".into()), ("b".into(), "m2".into())];
            let of_both = all.each_ref().map(|(node, host)| (node, host));
            // C has containers of one node alone.
            assert_eq!(hosts, if *id == "C" { &of_both[..1] } else { &of_both }, "{id}");
            let names: Vec<&Value> = trial["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
            assert_eq!(names, if *id == "C" { vec!["a"] } else { vec!["a", "b"] }, "{id}");
            // Frames may be lost by the host's interface, too, below the node's own.
            let frames = trial["frames"].as_array().unwrap();
            let namespaces = frames.iter().map(|node| &node["namespaces"][0]["interfaces"]);
            let is_below = |own: &&Value| own["of_host"] == true && own["name"] == "eth1";
            let below = namespaces.filter(|all| all.as_array().is_some_and(|all| all.iter().any(|own| is_below(&own))));
            assert_eq!(below.count(), if *id == "C" { 0 } else { 2 }, "{id}: {frames:?}");
        }
        let options = report["data"]["run"]["options"].as_str().unwrap();
        assert!(options.contains("nodes on host a=m1 b=m2"), "{options}");
        let machines_told = &report["data"]["environment"]["machines"];
        assert_eq!(machines_told["b"]["cards"]["eth1"]["driver"], "veth", "{machines_told}");
        let text = report.to_string();
        for why in [
            "B: an interface over eth1 of m1 receives nothing for a bridge's other ports: name it, --on a=m1:eth1",
            "F-vxlan: the offloads of eth1 are those of m1",
        ] {
            let (id, why) = why.split_once(": ").unwrap();
            assert!(text.contains(why) && text.contains(id), "{why}: {text}");
        }
        assert_eq!(machines.state(), before);
        drop(machines);
        world::assert_nothing_left("of a run over two hosts");
    });
}

#[test]
fn nodes_have_the_interfaces_that_are_named_until_the_run_ends() {
    world::own(|| {
        let machines = Machines::new(2);
        let before = machines.state();
        let on = ["--on", "a=m1:eth1", "--on", "b=m2:eth1"];
        let report = machines.report("layers", &[&on[..], &["--only", "A,B,F-vxlan"], &SHORT].concat());
        assert_eq!(trials(&report).keys().copied().collect::<Vec<_>>(), ["A", "B", "F-vxlan"]);
        let options = report["data"]["run"]["options"].as_str().unwrap();
        assert!(options.contains("nodes on host a=m1:eth1 b=m2:eth1"), "{options}");
        assert_eq!(machines.state(), before);
        drop(machines);
        world::assert_nothing_left("of a run that had its machines' interfaces");
    });
}

#[test]
fn a_side_on_hosts_takes_turns_with_one_of_this_machine() {
    world::own(|| {
        let machines = Machines::new(2);
        let before = machines.state();
        let ab = |arguments: &[&str]| machines.call(&[&["ab", "layers"], arguments].concat());
        let new_on = ["--new-on", "a=m1", "--new-on", "b=m2"];
        // B is none of theirs: they let its turns pass.
        let options = ["--quick", "--only", "A,B", "--trials", "2", "--window", "200ms"];
        let output = ab(&[&new_on[..], &options].concat());
        assert!(output.status.code() < Some(2), "{}", String::from_utf8_lossy(&output.stderr));
        let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
        let data = &comparison["data"];
        assert_eq!((&data["blocks"], &data["only_in_old"]), (&2.into(), &serde_json::json!(["B"])), "{data}");
        let differences = data["differences"].as_array().unwrap();
        let host = differences.iter().find(|one| one["what"] == "Host of the nodes").unwrap();
        assert_eq!((&host["old"], &host["new"]), (&"the runner's own".into(), &"a=m1 b=m2".into()));
        for (wrong, why) in
            [(&new_on[..2], "one node alone has a host"), (&[], "and none is named: --old-on or --new-on")]
        {
            let output = ab(wrong);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
        }
        assert_eq!(machines.state(), before);
        drop(machines);
        world::assert_nothing_left("of two runs of which one was over hosts");
    });
}

#[test]
fn a_dut_has_an_interface_for_each_of_its_wires() {
    // Threads of the kernel receive for a DUT.
    world::own_among_processes(|| {
        let machines = Machines::new(3);
        let before = machines.state();
        let on = ["--on", "client=m1:eth1", "--on", "dut=m2:eth1,eth2", "--on", "server=m3:eth1"];
        let suite = machines.file("balancer.toml");
        fs::write(&suite, world::balancer_at_a_rate()).unwrap();
        let only = ["--only", "cps-balancer-1"];
        let report = machines.report(suite.to_str().unwrap(), &[&on[..], &only, &SHORT].concat());
        let trial = trials(&report)["cps-balancer-1"];
        let nodes: Vec<_> = trial["hosts"].as_array().unwrap().iter().map(|of| (&of[0], &of[1]["name"])).collect();
        let named =
            [("client", "m1"), ("balancer", "m2"), ("server", "m3")].map(|(node, host)| (node.into(), host.into()));
        assert_eq!(nodes, named.iter().map(|(node, host): &(Value, Value)| (node, host)).collect::<Vec<_>>());
        assert_eq!(machines.state(), before);
    });
}

#[test]
fn hosts_are_checked_ahead() {
    world::own(|| {
        let machines = Machines::new(2);
        let before = machines.state();
        let schemas = netrig::schemas();
        let (_, schema) = schemas.iter().find(|(name, _)| *name == "hosts-check.json").unwrap();
        let schema = jsonschema::validator_for(schema.as_value()).unwrap();
        let check = |nodes: &[&str]| {
            let mut check = world::netrig();
            check.args(["hosts", "check", "--json", "--hosts"]).arg(machines.file("hosts.toml")).args(nodes);
            let output = check.stdin(Stdio::null()).output().unwrap();
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(schema.is_valid(&report), "{report}");
            (output.status.code(), report)
        };
        let hosts = fs::read_to_string(machines.file("hosts.toml")).unwrap();
        let hosts = hosts.replace("]\ncommand", "]\nlabels = { rack = \"b1\" }\ncommand");
        fs::write(machines.file("hosts.toml"), hosts).unwrap();
        let (status, report) = check(&["--host-label", "rack=b1"]);
        let [a, b] = [0, 1].map(|number| &report["hosts"][number]);
        assert_eq!([&a["node"], &a["host"], &b["node"], &b["host"]], ["a", "m1", "b", "m2"]);
        assert_eq!(a["labels"]["rack"], "b1");
        assert_eq!((status, &report["ready"]), (Some(0), &true.into()), "{report}");
        assert_eq!(report["hosts"][0]["interfaces"][0]["addresses"][0], "192.0.2.1/24");
        assert_eq!(report["networks"][0]["interfaces"], serde_json::json!(["eth1", "eth1"]));
        let suites = report["suites"].as_array().unwrap();
        let layers = suites.iter().find(|suite| suite["suite"] == "layers").unwrap();
        let text = layers["left_out"].to_string();
        assert!(
            text.contains("a bridge's other ports") && layers["scenarios"].to_string().contains("D-vxlan"),
            "{layers}"
        );
        // The other end takes no packet that is larger.
        machines.machines[1]
            .run(|| {
                let small = Command::new("ip").args(["link", "set", "eth1", "mtu", "1400"]).status().unwrap();
                assert!(small.success());
            })
            .unwrap();
        let (status, report) = check(&["a=m1", "b=m2"]);
        let fault = report["networks"][0]["fault"].as_str().unwrap();
        assert!(status == Some(3) && fault.contains("eth1 of m2 has an MTU of 1400 bytes"), "{report}");
        machines.machines[1]
            .run(|| Command::new("ip").args(["link", "set", "eth1", "mtu", "1500"]).status().unwrap())
            .unwrap();
        assert_eq!(machines.state(), before);
        let (status, report) = check(&["a=m1", "b=nowhere.invalid"]);
        let why = report["hosts"][1]["why"].as_str().unwrap();
        assert!(status == Some(3) && why.contains("nowhere.invalid"), "{report}");
        assert_eq!(
            (&report["hosts"][0]["labels"]["rack"], &report["hosts"][1]["labels"]),
            (&"b1".into(), &Value::Null)
        );
        drop(machines);
        world::assert_nothing_left("of hosts that were checked");
    });
}

/// The first of them says nothing until the last two have greeted: reached one after the other, it would be waited for in vain.
#[test]
fn hosts_are_checked_side_by_side() {
    world::own(|| {
        let machines = Machines::new(3);
        let hosts = fs::read_to_string(machines.file("hosts.toml")).unwrap();
        let said = ["m2", "m3"].map(|name| machines.file(name).display().to_string());
        let wrapped = |script: &str| format!("command = [\"sh\", \"-c\", \"{script}\", ");
        let waits = format!(
            "until grep -q protocol {} && grep -q protocol {}; do sleep 0.05; done 2>/dev/null",
            said[0], said[1]
        );
        let mut parts = hosts.split_inclusive("program").map(str::to_owned).collect::<Vec<_>>();
        for (part, script) in parts.iter_mut().zip([
            format!("{waits}; exec \\\"$0\\\" \\\"$@\\\""),
            format!("\\\"$0\\\" \\\"$@\\\" | tee {}", said[0]),
            format!("\\\"$0\\\" \\\"$@\\\" | tee {}", said[1]),
        ]) {
            *part = part.replace("command = [", &wrapped(&script));
        }
        let gone = "\n[host.gone]\ncommand = [\"false\"]\nprogram = \"netrig\"\n";
        fs::write(machines.file("hosts.toml"), parts.concat() + gone).unwrap();
        let check = |nodes: &[&str]| {
            let mut check = world::netrig();
            check.args(["hosts", "check", "--json", "--hosts"]).arg(machines.file("hosts.toml")).args(nodes);
            check.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let output = check(&["a=m1", "b=gone", "c=m2", "d=m3"]).wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let told: Vec<_> =
            report["hosts"].as_array().unwrap().iter().map(|one| (&one["host"], &one["state"])).collect();
        let expected = [("m1", "reached"), ("gone", "not-reached"), ("m2", "reached"), ("m3", "reached")];
        let expected = expected.map(|(host, state)| (Value::from(host), Value::from(state)));
        assert_eq!(told, expected.each_ref().map(|(host, state)| (host, state)), "{report}");
        assert_eq!(output.status.code(), Some(3));
        let noted = String::from_utf8(output.stderr).unwrap();
        let noted: Vec<&str> = noted.lines().filter_map(|line| line.strip_prefix("Reaching ")).collect();
        assert_eq!(noted, ["a=m1", "b=gone", "c=m2", "d=m3"]);

        // Nobody says what the first waits for.
        said.iter().for_each(|file| fs::remove_file(file).unwrap());
        let mut hangs = check(&["a=m1", "b=gone"]);
        let is_waiting =
            || world::processes().iter().any(|process| process.command.starts_with("sh -c until")).then_some(());
        assert!(world::until(TIMEOUT, is_waiting).is_some(), "it is not being reached");
        kill_process(Pid::from_child(&hangs), Signal::INT).unwrap();
        let ended = world::until(TIMEOUT, || hangs.try_wait().unwrap());
        // Without it the check ends by itself, with a status.
        let ended = ended.expect("Ctrl-C does not end it");
        assert_eq!(ended.signal(), Some(Signal::INT.as_raw()), "{ended:?}");
        drop(machines);
        world::assert_nothing_left("of a check that was stopped");
    });
}

#[test]
fn a_node_without_a_host_of_its_own_is_refused() {
    world::own(|| {
        let machines = Machines::new(2);
        for (arguments, why) in [
            (&["--on", "a=m1"][..], "one node alone has a host"),
            (&["--on", "a=m1", "--on", "b=m1"], "nodes a and b are on one host"),
            (&["--on", "a=m1", "--on", "a=m2"], "node a has two hosts"),
            (&["--on", "a=m1", "--on", "x=m2", "--only", "A"], "node b"),
            (&["--on", "a=m1:eth7", "--on", "b=m2", "--only", "A"], "m1 has no interface eth7: it has eth1"),
            (&["--on", "a=m1", "--on", "b=m2", "--host", "child"], "cannot be used with"),
            (&["--on", "am1", "--on", "b=m2"], "NODE=HOST"),
        ] {
            let refusal = machines.refusal(arguments);
            assert!(refusal.contains(why), "{arguments:?}: {refusal}");
        }
        // Neither has an address there.
        for ns in &machines.machines {
            ns.run(|| Command::new("ip").args(["addr", "flush", "dev", "eth1"]).status().unwrap()).unwrap();
        }
        let refusal = machines.refusal(&["--on", "a=m1", "--on", "b=m2", "--only", "A"]);
        assert!(refusal.contains("m1 and m2 have no network in common, and a router"), "{refusal}");
    });
}

/// The way of the load tells how far the clocks of its ends are apart, and one-way delays are known as well as that.
#[test]
fn delays_between_two_clocks_are_known_to_a_bound() {
    world::own(|| {
        const AHEAD: u32 = 5_000;
        let machines = Machines::new(2);
        if !machines.with_one_ahead(AHEAD) {
            return;
        }
        let suite = machines.file("delays.toml");
        let text = "name = \"delays\"\ntitle = \"Delays\"\n\
                    [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
                    [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {}\n\
                    [[scenario]]\nid = \"there\"\nname = \"There\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
                    load = { kind = \"udp-stream\", message = \"200\", throttle = \"200KB/s\" }\n\
                    [[scenario]]\nid = \"back\"\nname = \"Back\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
                    load = { kind = \"udp-stream\", message = \"200\", throttle = \"200KB/s\", flow = \"reverse\" }\n";
        fs::write(&suite, text).unwrap();
        let on = ["--on", "a=m1", "--on", "b=ahead", "--trials", "2"];
        let report = machines.report(suite.to_str().unwrap(), &on);
        for scenario in report["data"]["scenarios"].as_array().unwrap() {
            for trial in scenario["trials"].as_array().unwrap() {
                let clocks = &trial["end_clocks"];
                assert_eq!((&clocks["from"], &clocks["to"]), (&"a".into(), &"b".into()));
                for moment in ["at_begin", "at_end", "path_at_begin", "path_at_end", "asked_at_begin", "asked_at_end"] {
                    let (found, bound) =
                        (clocks[moment]["ns"].as_i64().unwrap(), clocks[moment]["bound_ns"].as_u64().unwrap());
                    // Both clocks are the kernel's one, but for what the namespace adds.
                    let truth = i64::from(AHEAD) * 1_000_000_000;
                    assert!(found.abs_diff(truth) <= bound && bound > 0, "{moment}: {clocks}");
                }
                for moment in ["path_at_begin", "path_at_end"] {
                    // The first ones may be before the kernel stamps.
                    assert!(clocks[moment]["stamped"].as_u64().unwrap() > 0, "{clocks}");
                }
                let received = trial["workers"].as_array().unwrap().iter().find(|one| one["direction"] == "receive");
                let datagrams = &received.unwrap()["datagrams"];
                assert!(!datagrams["delay"].is_null(), "{datagrams}");
            }
            // A machine that does something else meanwhile may have lengthened all round trips; then the delay is not given, in words.
            let notes = report.to_string();
            assert!(notes.contains("the clocks of a and b are known to ±"), "{notes}");
            let delays =
                scenario["figures"].as_array().unwrap().iter().filter(|figure| figure["metric"] == "delay_p50");
            for delay in delays {
                let bounds = scenario["trials"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|trial| trial["end_clocks"]["bound_ns"].as_f64().unwrap());
                let mean = bounds.sum::<f64>() / 2.0 / 1000.0;
                assert!(delay["mean"].as_f64().unwrap() > 0.0);
                assert!((delay["resolution"]["above"].as_f64().unwrap() - mean).abs() <= 0.1 + mean * 0.1, "{delay}");
            }
        }
        drop(machines);
        world::assert_nothing_left("of a run over two clocks");
    });
}

/// A test of datagrams to a server that is started on a machine with another clock.
#[test]
fn delays_of_a_test_between_two_clocks_are_known_to_a_bound() {
    world::own(|| {
        const AHEAD: u32 = 7_000;
        let machines = Machines::new(2);
        if !machines.with_one_ahead(AHEAD) {
            return;
        }
        for (way, receives) in [(&[][..], 1), (&["--reverse"], 0)] {
            let udp = ["udp", "--on", "ahead", "--client", "192.0.2.2", "--rate", "2mbit", "--message", "200"];
            let short = ["--time", "300ms", "--warm-up", "100ms", "--interval", "100ms", "--trials", "2"];
            let arguments = [&udp[..], &short, way].concat();
            let output = machines.machines[0].run(|| machines.call(&arguments)).unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            for trial in report["data"]["trials"].as_array().unwrap() {
                let clocks = &trial["end_clocks"];
                for moment in ["at_begin", "at_end", "path_at_begin", "path_at_end", "asked_at_begin", "asked_at_end"] {
                    let (found, bound) =
                        (clocks[moment]["ns"].as_i64().unwrap(), clocks[moment]["bound_ns"].as_u64().unwrap());
                    let truth = i64::from(AHEAD) * 1_000_000_000;
                    assert!(found.abs_diff(truth) <= bound && bound > 0, "{moment}: {clocks}");
                }
                let delay = |worker: usize| &trial["workers"][worker]["datagrams"]["delay"];
                assert!(!delay(receives).is_null() && delay(1 - receives).is_null(), "{trial}");
            }
            // Shorter than the time that one clock is ahead by far, where the bound lets them be given.
            for figure in report["data"]["figures"].as_array().unwrap() {
                if figure["metric"] == "delay_p50" {
                    assert_eq!(figure["end"], if receives == 1 { "server" } else { "client" });
                    assert!((0.0..1e9).contains(&figure["mean"].as_f64().unwrap()), "{figure}");
                }
            }
            let text = report.to_string();
            assert!(text.contains("the clocks of client and server are known to ±"), "{text}");
        }
        drop(machines);
        world::assert_nothing_left("of a test between two clocks");
    });
}

/// The CPUs of two machines have the same numbers, and each has stacks of its own.
#[test]
fn what_cpus_ran_is_sampled_on_each_machine() {
    if let Err(error) = rig_sys::perf::probe() {
        return skip(Lack::Sampling, error);
    }
    world::own(|| {
        let machines = Machines::new(2);
        let on = ["--on", "a=m1", "--on", "b=m2", "--only", "A", "--layers"];
        let output = machines.run("layers", &[&on[..], &SHORT].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let layers = &trials(&report)["A"]["layers"];
        let nodes = layers["nodes"].as_array().unwrap();
        let names: Vec<&Value> = nodes.iter().map(|node| &node["node"]).collect();
        assert_eq!(names, ["a", "b"]);
        for (node, does) in nodes.iter().zip(["tcp_sendmsg", "tcp_recvmsg"]) {
            let samples = node["parts"].as_array().unwrap().iter().map(|part| part["samples"].as_u64().unwrap());
            assert!(samples.sum::<u64>() > 0, "{node}");
            // What the other machine's load runs is another program's here.
            let stacks = node["profile"]["stacks"].to_string();
            let own = stacks.split('"').filter(|stack| stack.contains(does) && !stack.contains("other programs"));
            assert!(own.count() > 0, "{does}: {stacks}");
        }
        let owners: Vec<&Value> = layers["totals"].as_array().unwrap().iter().map(|total| &total[0]).collect();
        assert!(owners.contains(&&"sender".into()) && owners.contains(&&"receiver".into()), "{owners:?}");
        drop(machines);
        world::assert_nothing_left("of stacks of two machines");
    });
}

/// A datapath under test is a machine of its own, whose CPUs run it in the kernel.
#[test]
fn what_cpus_of_a_dut_ran_is_sampled_on_its_machine() {
    if let Err(error) = rig_sys::perf::probe() {
        return skip(Lack::Sampling, error);
    }
    // Threads of the kernel receive for a DUT.
    world::own_among_processes(|| {
        let machines = Machines::new(3);
        let on = ["--on", "client=m1:eth1", "--on", "dut=m2:eth1,eth2", "--on", "server=m3:eth1"];
        let suite = machines.file("balancer.toml");
        fs::write(&suite, world::balancer_at_a_rate()).unwrap();
        let layers = ["--only", "cps-balancer-1", "--layers", "--quick", "--trials", "1", "--window", "1s"];
        let report = machines.report(suite.to_str().unwrap(), &[&on[..], &layers].concat());
        let layers = &trials(&report)["cps-balancer-1"]["layers"];
        let nodes = layers["nodes"].as_array().unwrap();
        let names: Vec<&Value> = nodes.iter().map(|node| &node["node"]).collect();
        assert_eq!(names, ["client", "balancer", "server"]);
        let balancer = layers["layers"].as_array().unwrap().iter().position(|layer| layer[0] == "balancer").unwrap();
        let samples = |node: &Value, of: &dyn Fn(&Value) -> bool| {
            let parts = node["parts"].as_array().unwrap().iter().filter(|part| of(&part["layer"]));
            parts.map(|part| part["samples"].as_u64().unwrap()).sum::<u64>()
        };
        assert!(nodes.iter().all(|node| samples(node, &|_| true) > 0), "{layers}");
        assert!(samples(&nodes[1], &|layer| *layer == balancer) > 0, "{layers}");
    });
}

/// What is said to a machine and heard of it while a load is measured is 1 kB a second at most: by so much more is said in a longer window.
/// And what is told of the machines meanwhile.
#[test]
fn little_is_said_while_a_load_is_measured_and_the_machines_are_named() {
    world::own(|| {
        let machines = Machines::new(2);
        // Both streams of the first machine go through files.
        let hosts = fs::read_to_string(machines.file("hosts.toml")).unwrap();
        let (head, rest) = hosts.split_once("command = [\"").unwrap();
        let files = [machines.file("to"), machines.file("from")];
        let through = format!("tee {} | \\\"$@\\\" | tee {}", files[0].display(), files[1].display());
        fs::write(
            machines.file("hosts.toml"),
            format!("{head}command = [\"sh\", \"-c\", \"{through}\", \"sh\", \"{rest}"),
        )
        .unwrap();
        let said_in = |window: &str| {
            let mut run = world::netrig();
            run.args(["run", "layers", "--no-aa", "--on", "a=m1", "--on", "b=m2", "--only", "A", "--trials", "1"]);
            run.args(["--window", window, "--hosts"]).arg(machines.file("hosts.toml"));
            run.arg("--store").arg(machines.file("store.sqlite")).stdin(Stdio::null());
            let output = run.output().unwrap();
            let told = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{told}");
            for part in ["Nodes: a on m1, b on m2", " % m1 ", " % m2"] {
                assert!(told.contains(part), "{part}: {told}");
            }
            files.clone().map(|file| fs::metadata(file).unwrap().len())
        };
        let (short, long) = (said_in("1s"), said_in("4s"));
        let more: u64 = short.iter().zip(long).map(|(short, long)| long.saturating_sub(*short)).sum();
        // Before and after a window a few hundred bytes more or fewer are said each time.
        assert!(more <= 3_000, "{short:?} {long:?}");
    });
}

/// The first waits for the second: one after the other, both would never be reached.
#[test]
fn hosts_of_a_run_are_reached_side_by_side() {
    world::own(|| {
        let machines = Machines::new(2);
        let pipe = machines.file("pipe");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let waits = [format!(": < {}", pipe.display()), format!(": > {}", pipe.display())];
        let hosts = fs::read_to_string(machines.file("hosts.toml")).unwrap();
        let mut waiting = hosts.clone();
        for (number, wait) in waits.iter().enumerate() {
            let path = format!("/proc/{}/fd/{}", std::process::id(), machines.machines[number].raw_fd());
            let command = format!("command = [\"nsenter\", \"--net={path}\"]");
            let script =
                format!("command = [\"sh\", \"-c\", \"{wait}; exec nsenter --net={path} \\\"$@\\\"\", \"sh\"]");
            waiting = waiting.replace(&command, &script);
        }
        fs::write(machines.file("hosts.toml"), waiting).unwrap();
        let on = ["--on", "a=m1", "--on", "b=m2"];
        let report = machines.report("layers", &[&on[..], &["--only", "A"], &SHORT].concat());
        assert_eq!(trials(&report).keys().copied().collect::<Vec<_>>(), ["A"]);

        // All that are not reached are named.
        let gone = "[host.gone]\ncommand = [\"false\"]\nprogram = \"x\"\n[host.lost]\ncommand = [\"false\"]\nprogram = \"x\"\n";
        fs::write(machines.file("hosts.toml"), hosts + gone).unwrap();
        let said = machines.refusal(&["--on", "a=m1", "--on", "b=gone", "--on", "dut=lost"]);
        let all = ["2 of 3 hosts are not reached:", "\n  host gone is not reached", "\n  host lost is not reached"];
        assert!(all.iter().all(|part| said.contains(part)), "{said}");
        drop(machines);
        world::assert_nothing_left("of a run whose hosts were reached side by side");
    });
}

/// A trial that fails, and an interface that cannot be given back after it.
#[test]
fn what_fails_and_what_cannot_be_taken_down_after_it_are_both_told() {
    world::own(|| {
        let machines = Machines::new(2);
        let on = ["--on", "a=m1:eth1", "--on", "b=m2:eth1", "--only", "A"];
        let breaks =
            ["--in", "a", "ip -o link | sed -n 's/^[0-9]*: \\(eth[^@:]*\\).*/\\1/p' | xargs -n1 ip link del; false"];
        let output = machines.run("layers", &[&on[..], &breaks, &SHORT].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(said.contains("failed: ") && said.contains("; then: take down the testbed: "), "{said}");
        drop(machines);
        world::assert_nothing_left("of a run whose interface went away");
    });
}

/// What `netrig top` shows of two machines, one of which goes away.
#[test]
fn top_shows_machines_one_below_the_other() {
    world::own(|| {
        let machines = Machines::new(2);
        let top = |arguments: &[&str]| {
            let mut top = world::netrig();
            top.args(["top", "--interval", "200ms", "--hosts"]).arg(machines.file("hosts.toml")).args(arguments);
            top.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
            top
        };
        let told = |output: &std::process::Output| {
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned())
        };
        let both = ["--on", "m1", "--on", "m2"];

        let output = top(&both).output().unwrap();
        let [shown, errors] = told(&output);
        assert!(output.status.success(), "{errors}");
        let (one, other) = (shown.find("m1: no spreader runs here").unwrap(), shown.find("m2: no spreader").unwrap());
        assert!(one < other && shown[one..other].contains("\neth1 ") && shown[other..].contains("\neth1 "), "{shown}");

        let output = top(&[&both[..], &["--json", "--count", "2"]].concat()).output().unwrap();
        let [lines, errors] = told(&output);
        assert!(output.status.success(), "{errors}");
        let samples: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |host: &str| samples.iter().filter(|sample| sample["host"] == host).count();
        assert_eq!((of("m1"), of("m2"), samples.len()), (2, 2, 4), "{lines}");
        for sample in &samples {
            assert!(
                sample["cpus"][0]["cpu"] == 0 && sample["interfaces"][0]["sent"]["dropped_per_s"] == 0.0,
                "{sample}"
            );
        }

        // One that cannot be reached is told, and the other one goes on.
        let hosts = fs::read_to_string(machines.file("hosts.toml")).unwrap();
        let gone = "[host.gone]\ncommand = [\"false\"]\nprogram = \"x\"\n";
        fs::write(machines.file("hosts.toml"), hosts + gone).unwrap();
        let output = top(&["--on", "gone", "--on", "m2", "--json"]).output().unwrap();
        let [lines, errors] = told(&output);
        assert_eq!((output.status.code(), lines.lines().count()), (Some(4), 1), "{lines}{errors}");
        assert!(errors.contains("gone: host gone is not reached"), "{errors}");

        for (arguments, part) in [
            (&["--on", "m1", "--on", "m1"][..], "m1 is named twice"),
            (&["--on", "a=m1"], "--on m1"),
            (&["--on", "m1", "eth9"], "m1: no interface eth9"),
        ] {
            let output = top(arguments).output().unwrap();
            let [_, errors] = told(&output);
            assert!(!output.status.success() && errors.contains(part), "{arguments:?}: {errors}");
        }
    });
}

/// A machine that goes away while it is looked at.
#[test]
fn top_goes_on_without_a_machine_that_is_lost() {
    world::own(|| {
        let machines = Machines::new(2);
        let hosts = fs::read_to_string(machines.file("hosts.toml")).unwrap();
        let kept = machines.file("process");
        let (head, rest) = hosts.split_once("command = [\"").unwrap();
        let keeping = format!("echo $$ >{}; exec \\\"$@\\\"", kept.display());
        fs::write(
            machines.file("hosts.toml"),
            format!("{head}command = [\"sh\", \"-c\", \"{keeping}\", \"sh\", \"{rest}"),
        )
        .unwrap();
        let mut top = world::netrig();
        top.args(["top", "--on", "m1", "--on", "m2", "--interval", "200ms", "--count", "15", "--hosts"]);
        let mut top =
            top.arg(machines.file("hosts.toml")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(top.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.by_ref().any(|line| line.starts_with("m2: no spreader")));
        let process = fs::read_to_string(&kept).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
        assert!(lines.by_ref().any(|line| line == "m1: gone"));
        let why = lines.next().unwrap();
        assert!(why.contains("host is gone"), "{why}");
        assert!(lines.any(|line| line.starts_with("m2: no spreader")));
        assert_eq!(top.wait().unwrap().code(), Some(4));
    });
}
