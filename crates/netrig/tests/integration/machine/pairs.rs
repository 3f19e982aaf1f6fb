//! `netrig run pairs`: here hosts are network namespaces on a switch.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rig_sys::netlink::{Netlink, TokenBucket, VethPair};
use rig_sys::netns::NetNs;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::world::{self, NETRIG};

/// Until load runs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Machines on a switch, each with an `eth0`.
pub struct Switch {
    pub machines: Vec<NetNs>,
    switch: NetNs,
    directory: tempfile::TempDir,
}

/// The port of the switch that leads to a machine.
fn port(machine: usize) -> String {
    format!("port{machine}")
}

impl Switch {
    pub fn new(count: usize) -> Self {
        let switch = NetNs::create().unwrap();
        let machines: Vec<NetNs> = (0..count).map(|_| NetNs::create().unwrap()).collect();
        let mut of_switch = Netlink::open(&switch).unwrap();
        of_switch.add_bridge("br0", 1500).unwrap();
        of_switch.set_up("br0").unwrap();
        for (number, ns) in machines.iter().enumerate() {
            let mut netlink = Netlink::open(ns).unwrap();
            let peer = port(number);
            netlink.add_veth(&VethPair { name: "eth0", peer: &peer, peer_ns: &switch, queues: 1, mtu: 1500 }).unwrap();
            of_switch.set_bridge(&peer, "br0").unwrap();
            of_switch.set_up(&peer).unwrap();
            ["lo", "eth0"].iter().for_each(|name| netlink.set_up(name).unwrap());
            netlink.add_address("eth0", [192, 0, 2, 1 + number as u8].into(), 24).unwrap();
        }
        Self { machines, switch, directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Has hosts.toml name all machines, and what else is to be in it.
    fn name_all(&self, more: &str) {
        let mut text = String::new();
        for (number, ns) in self.machines.iter().enumerate() {
            let path = format!("/proc/{}/fd/{}", std::process::id(), ns.raw_fd());
            let command = format!("command = [\"nsenter\", \"--net={path}\"]\nprogram = \"{NETRIG}\"");
            writeln!(text, "[host.m{}]\n{command}", number + 1).unwrap();
        }
        fs::write(self.file("hosts.toml"), text + more).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut run = world::netrig();
        run.args(["run", "pairs", "--hosts"]).arg(self.file("hosts.toml"));
        run.arg("--store").arg(self.file("store.sqlite")).args(arguments).stdin(Stdio::null());
        run
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_host_is_tested_with_each_other_one_and_the_slow_one_is_found() {
    world::own(|| {
        let switch = Switch::new(3);
        switch.name_all("[host.gone]\ncommand = [\"false\"]\nprogram = \"netrig\"\n");
        // 20 Mbit/s to m2. A burst is as large as the largest packet that segmentation offload makes.
        let bucket = TokenBucket { rate: 2_500_000, burst: 128 << 10, limit: 256 << 10 };
        Netlink::open(&switch.switch).unwrap().set_token_bucket(&port(1), bucket).unwrap();
        let report = json(&switch.run(&["--window", "500ms", "--format", "json", "--quiet"]));
        let data = &report["data"];
        assert_eq!(data["kind"], "pairs");
        let pairs = data["pairs"].as_array().unwrap();
        let names: Vec<String> = pairs
            .iter()
            .map(|pair| format!("{}>{}", pair["from"].as_str().unwrap(), pair["to"].as_str().unwrap()))
            .collect();
        assert_eq!(names, ["m1>m2", "m1>m3", "m2>m1", "m2>m3", "m3>m1", "m3>m2"]);
        for pair in pairs {
            let rate = pair["bits_per_second"].as_f64().unwrap();
            let is_slow = pair["to"] == "m2";
            assert!(rate > 1e6 && (rate < 25e6) == is_slow, "{pair}");
            assert!(pair["round_trip_us"].as_f64().unwrap() > 0.0, "{pair}");
            let because = pair["slow_because"].to_string();
            assert_eq!(because.contains("all that m2 receives is slow"), is_slow, "{pair}");
        }
        let left_out = data["hosts"].as_array().unwrap().iter().find(|host| host["name"] == "gone").unwrap();
        assert!(left_out["left_out"].as_str().unwrap().contains("by hand: false"), "{left_out}");
        let addresses: Vec<&Value> = data["hosts"].as_array().unwrap().iter().map(|host| &host["addresses"]).collect();
        let of = |last: u8| serde_json::json!([format!("192.0.2.{last}")]);
        assert_eq!(addresses, [&serde_json::json!([]), &of(1), &of(2), &of(3)]);
        assert!(report["headline"]["answer"].as_str().unwrap().contains(">m2: "), "{}", report["headline"]);
        // Nine tests: six streams, and transactions of three pairs.
        assert_eq!(data["trials"].as_array().unwrap().len(), 9);

        let stored = world::netrig()
            .args(["report", "1", "--format", "json", "--store"])
            .arg(switch.file("store.sqlite"))
            .output()
            .unwrap();
        assert_eq!(json(&stored), report);
        let strict = switch.run(&["--strict", "--quiet"]);
        let said = String::from_utf8_lossy(&strict.stderr).into_owned();
        assert!(strict.status.code() == Some(3) && said.contains("--strict asks for all:\n  gone: "), "{said}");
        drop(switch);
        world::assert_nothing_left("of pairs");
    });
}

#[test]
fn hosts_are_chosen_by_labels_which_reports_and_comparisons_tell() {
    world::own(|| {
        let switch = Switch::new(3);
        switch.name_all("");
        let unlabelled = fs::read_to_string(switch.file("hosts.toml")).unwrap();
        let label = |racks: [&str; 3]| {
            let with = racks.iter().zip(1..).fold(unlabelled.clone(), |text, (rack, number)| {
                let host = format!("[host.m{number}]\n");
                text.replace(&host, &format!("{host}labels = {{ rack = \"{rack}\", role = \"edge\" }}\n"))
            });
            fs::write(switch.file("hosts.toml"), with).unwrap();
        };
        label(["b1", "b2", "b1"]);
        let short = ["--window", "200ms", "--quiet", "--host-label", "role=edge"];
        let report = json(&switch.run(&[&short[..], &["--host-label", "rack=b1", "--format", "json"]].concat()));
        let hosts = report["data"]["hosts"].as_array().unwrap();
        let told: Vec<(&Value, &Value)> = hosts.iter().map(|host| (&host["name"], &host["labels"]["rack"])).collect();
        let expected = [("m1".into(), "b1".into()), ("m3".into(), "b1".into())];
        assert_eq!(told, expected.iter().map(|(host, rack): &(Value, Value)| (host, rack)).collect::<Vec<_>>());
        label(["b1", "b1", "b2"]);
        let second = switch.run(&[&short[..], &["--only", "m1,m3"]].concat());
        let said = String::from_utf8_lossy(&second.stdout).into_owned();
        assert!(second.status.success() && said.contains("Label rack: b1 (m1), b2 (m3)."), "{said}");
        let mut compare = world::netrig();
        compare.args(["compare", "1", "2", "--format", "json", "--store"]).arg(switch.file("store.sqlite"));
        let compared: Value = serde_json::from_slice(&compare.output().unwrap().stdout).unwrap();
        let compared = compared.to_string();
        assert!(compared.contains("Label rack"), "{compared}");
        // Of a host that nobody reaches, too.
        let hosts = fs::read_to_string(switch.file("hosts.toml")).unwrap();
        let (before, host) = hosts.split_once("[host.m3]").unwrap();
        let (_, rest) = host.split_once("command").unwrap();
        let (_, rest) = rest.split_once('\n').unwrap();
        let labels = "labels = { rack = \"b2\", role = \"edge\" }";
        let gone = format!("{before}[host.m3]\n{labels}\ncommand = [\"false\"]\n{rest}");
        fs::write(switch.file("hosts.toml"), gone).unwrap();
        let report = json(&switch.run(&[&short[..], &["--format", "json"]].concat()));
        let lost = &report["data"]["hosts"][2];
        assert!(lost["left_out"].is_string() && lost["labels"]["rack"] == "b2", "{lost}");
        let refused = switch.run(&["--host-label", "rack=b2"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains("one has rack=b2: m3"), "{said}");
    });
}

#[test]
fn a_host_that_nobody_reaches_costs_its_pairs_alone() {
    world::own(|| {
        let switch = Switch::new(3);
        switch.name_all("");
        // Its address is nobody's.
        let hosts = fs::read_to_string(switch.file("hosts.toml")).unwrap();
        let wrong = hosts.replace("[host.m3]\n", "[host.m3]\naddress = \"127.0.0.9\"\n");
        fs::write(switch.file("hosts.toml"), wrong).unwrap();
        let report = json(&switch.run(&["--window", "200ms", "--format", "json", "--quiet"]));
        let failed: Vec<&str> =
            report["data"]["failed"].as_array().unwrap().iter().map(|one| one["test"].as_str().unwrap()).collect();
        assert_eq!(failed, ["m1>m3 stream", "m1>m3 rr", "m2>m3 stream", "m2>m3 rr"]);
        let why = report["data"]["failed"][0]["why"].as_str().unwrap();
        assert!(why.contains("127.0.0.9") && why.contains("failed in trial 1"), "{why}");
        let measured = |pair: &&Value| !pair["bits_per_second"].is_null();
        assert_eq!(report["data"]["pairs"].as_array().unwrap().iter().filter(measured).count(), 4);
    });
}

/// Clients that end badly behind their reports have measured: their tests are kept, that is said, and no host is given up for it, which is in
/// more tests than so many that fail in a row.
#[test]
fn tests_are_kept_whose_clients_end_badly_after_their_reports() {
    world::own(|| {
        let switch = Switch::new(4);
        // All machines have a netrig of their own by its path: from there programs are started in the place of what runs.
        let (own, badly) = (switch.file("netrig"), switch.file("badly"));
        let script = format!(
            "#!/bin/sh\ncase $1 in stream|rr) ;; *) exec {NETRIG} \"$@\" ;; esac\n{NETRIG} \"$@\"\n\
             echo netrig: no room for the log >&2\nexit 4\n"
        );
        fs::write(&badly, script).unwrap();
        fs::set_permissions(&badly, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(NETRIG, &own).unwrap();
        let [own, badly] = [own, badly].map(|path| path.display().to_string());
        let mut hosts = String::new();
        for (number, ns) in switch.machines.iter().enumerate() {
            let path = format!("/proc/{}/fd/{}", std::process::id(), ns.raw_fd());
            let script =
                format!("exec 9< {own}; mount --bind {badly} {own}; exec nsenter --net={path} /proc/self/fd/9 host");
            let command = ["unshare", "--mount", "sh", "-c", &script];
            writeln!(hosts, "[host.m{}]\ncommand = {command:?}\nprogram = \"netrig\"", number + 1).unwrap();
        }
        fs::write(switch.file("hosts.toml"), hosts).unwrap();
        let output = switch.run(&["--window", "200ms", "--format", "json"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = json(&output);
        // Of each two hosts streams both ways, and transactions.
        assert_eq!(said.matches(" ended badly after its report: no room for the log").count(), 18, "{said}");
        let (data, none) = (&report["data"], Vec::new());
        let failed = data["failed"].as_array().unwrap_or(&none);
        assert_eq!((data["trials"].as_array().unwrap().len(), failed), (18, &none), "{said}");
        drop(switch);
        world::assert_nothing_left("of pairs whose clients ended badly");
    });
}

#[test]
fn a_test_starts_its_server_on_a_host() {
    world::own(|| {
        let switch = Switch::new(2);
        switch.name_all("");
        for test in ["stream", "rr"] {
            let mut client = world::netrig();
            client.args([
                test,
                "--on",
                "m2",
                "--time",
                "200ms",
                "--warm-up",
                "100ms",
                "--quiet",
                "--no-store",
                "--format",
                "json",
            ]);
            client.arg("--hosts").arg(switch.file("hosts.toml")).stdin(Stdio::null());
            let report = json(&switch.machines[0].run(|| client.output().unwrap()).unwrap());
            let data = &report["data"];
            assert_eq!((data["host"].as_str(), data["run"].as_str()), (Some("192.0.2.2"), None), "{data}");
            assert_eq!(data["trials"].as_array().unwrap().len(), 1);
        }
        drop(switch);
        world::assert_nothing_left("of a server of one test");
    });
}

#[test]
fn labels_of_a_server_that_a_test_starts_are_in_its_record_and_compared() {
    world::own(|| {
        let switch = Switch::new(2);
        switch.name_all("");
        let unlabelled = fs::read_to_string(switch.file("hosts.toml")).unwrap();
        let netrig = |arguments: &[&str]| {
            let mut netrig = world::netrig();
            netrig.args(arguments).args(["--format", "json", "--store"]).arg(switch.file("store.sqlite"));
            json(&switch.machines[0].run(|| netrig.stdin(Stdio::null()).output().unwrap()).unwrap())
        };
        let hosts = switch.file("hosts.toml");
        for rack in ["b1", "b2"] {
            let labelled = unlabelled.replace("[host.m2]\n", &format!("[host.m2]\nlabels = {{ rack = \"{rack}\" }}\n"));
            fs::write(&hosts, labelled).unwrap();
            let of_host = ["rr", "--on", "m2", "--time", "200ms", "--warm-up", "100ms", "--quiet", "--hosts"];
            let report = netrig(&[&of_host[..], &[hosts.to_str().unwrap()]].concat());
            assert_eq!(report["data"]["server"]["labels"]["rack"], rack, "{report}");
        }
        let stored = netrig(&["report", "1"]);
        assert_eq!(stored["data"]["server"]["labels"]["rack"], "b1", "{stored}");
        let compared = netrig(&["compare", "1", "2"]);
        let differences = compared["data"]["differences"].as_array().unwrap();
        let rack = differences.iter().find(|one| one["what"] == "Server: Label rack").unwrap();
        assert_eq!((&rack["old"], &rack["new"]), (&"b1".into(), &"b2".into()));
    });
}

#[test]
fn nothing_is_left_of_pairs_whose_runner_is_killed() {
    world::own(|| {
        let switch = Switch::new(2);
        switch.name_all("");
        let mut run = switch.command(&["--window", "30s", "--quiet"]).stdout(Stdio::null()).spawn().unwrap();
        let carries = |process: &world::Process| process.command.ends_with(" worker");
        assert!(world::until(PATIENCE, || world::processes().iter().any(carries).then_some(())).is_some());
        kill_process(Pid::from_child(&run), Signal::KILL).unwrap();
        run.wait().unwrap();
        drop(switch);
        world::assert_nothing_left("of pairs whose runner was killed");
    });
}

#[test]
fn what_is_no_matter_of_pairs_is_refused() {
    world::own(|| {
        let switch = Switch::new(2);
        switch.name_all("");
        for (arguments, why) in [
            (&["--on", "a=m1"][..], "--on is not for pairs"),
            (&["--layers"], "--layers is not for pairs"),
            (&["--gate"], "--gate is not for pairs"),
            (&["--only", "m1"], "two hosts or more are needed, and one is named"),
            (&["--only", "m1,m1"], "m1 is named twice"),
            (&["--metrics", "cpu"], "add --against RUN"),
        ] {
            let refused = switch.run(arguments);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(refused.status.code() == Some(2) && said.contains(why), "{arguments:?}: {said}");
        }
    });
}
