//! `netrig run pods`, by a kubectl that is a script: here pods are network namespaces on a switch. No kubelet is asked.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rig_skip::{Lack, skip};
use rig_sys::netlink::Netlink;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::pairs::Switch;
use super::world::{self, NETRIG};

/// Until load runs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pods by role, with their nodes: the client's and those beside it first.
const PODS: [(&str, &str); 5] =
    [("client", "n1"), ("server", "n2"), ("near", "n1"), ("host-client", "n1"), ("host-server", "n2")];
const SERVICE: &str = "10.96.0.10";

struct Cluster {
    switch: Switch,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// `None`, said aloud, where a program is not there that the script needs.
    fn new() -> Option<Self> {
        for program in ["nft", "setpriv"] {
            if let Err(error) = Command::new(program).arg("--version").stdout(Stdio::null()).status() {
                skip(Lack::Program(program), error);
                return None;
            }
        }
        let cluster = Self { switch: Switch::new(PODS.len()), directory: tempfile::tempdir().unwrap() };
        for directory in ["bin", "created", "pods", "services", "process", "ns", "ip", "node"] {
            fs::create_dir(cluster.path(directory)).unwrap();
        }
        fs::write(cluster.path("bin/kubectl"), include_str!("kubectl.sh")).unwrap();
        fs::set_permissions(cluster.path("bin/kubectl"), Permissions::from_mode(0o755)).unwrap();
        for (number, ((role, node), ns)) in PODS.iter().zip(&cluster.switch.machines).enumerate() {
            let path = format!("/proc/{}/fd/{}", std::process::id(), ns.raw_fd());
            fs::write(cluster.path("ns").join(role), path).unwrap();
            fs::write(cluster.path("ip").join(role), format!("192.0.2.{}", number + 1)).unwrap();
            fs::write(cluster.path("node").join(role), node).unwrap();
        }
        cluster.serve();
        Some(cluster)
    }

    /// The Service, as kube-proxy makes it: these ports alone are another address's.
    fn serve(&self) {
        let client = &self.switch.machines[0];
        Netlink::open(client).unwrap().add_route([10, 96, 0, 0].into(), 16, [192, 0, 2, 2].into()).unwrap();
        let rules = format!(
            "table ip nat {{ chain output {{ type nat hook output priority -100; ip daddr {SERVICE} tcp dport {{ 12620, 12621 }} dnat \
             to 192.0.2.2; }}; }}"
        );
        let mut nft = Command::new("nft");
        let said = client.run(|| nft.arg(rules).output().unwrap()).unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut run = world::netrig();
        run.args(["run", "pods", "--pod-program", NETRIG, "--window", "200ms"]).args(arguments);
        run.arg("--store").arg(self.path("store.sqlite")).stdin(Stdio::null());
        let path = std::env::var("PATH").unwrap();
        run.env("PATH", format!("{}:{path}", self.path("bin").display()));
        run
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn names(&self, what: &str) -> Vec<String> {
        let files = fs::read_dir(self.path(what)).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.path("calls")).unwrap_or_default()
    }

    /// What was asked of the cluster, one list after the other.
    fn created(&self) -> Vec<Value> {
        let mut names = self.names("created");
        names.sort();
        let read = |name: &String| fs::read_to_string(self.path("created").join(name)).unwrap();
        let lists = names.iter().map(|name| serde_json::from_str::<Value>(&read(name)).unwrap());
        lists.flat_map(|list| list["items"].as_array().unwrap().clone()).collect()
    }

    #[track_caller]
    fn assert_empty(&self) {
        assert_eq!((self.names("pods"), self.names("services")), (vec![], vec![]), "{}", self.calls());
    }

    /// Removes what tests of refusals have said.
    fn mend(&self) {
        for name in ["no-context", "forbidden", "broken", "phase", "no-host-network"] {
            let _ = fs::remove_file(self.path(name));
        }
    }
}

#[test]
fn pods_are_made_measured_and_deleted() {
    world::own(|| {
        let Some(cluster) = Cluster::new() else { return };
        let output = cluster.run(&["--trials", "2", "--format", "json", "--node-selector", "pool=a", "--quiet"]);
        let (out, _) = world::expect(&output, 0);
        let report: Value = serde_json::from_str(&out).unwrap();
        let data = &report["data"];
        assert_eq!((data["kind"].as_str(), data["failed"].as_array().map(Vec::len)), (Some("pods"), Some(0)), "{data}");
        let pairs = data["pairs"].as_array().unwrap();
        let cases: Vec<&str> = pairs.iter().map(|pair| pair["case"].as_str().unwrap()).collect();
        assert_eq!(cases, ["pod", "same-node", "host", "service"]);
        for pair in pairs {
            assert!(pair["bits_per_second"].as_f64().unwrap() > 1e6, "{pair}");
            assert!(pair["round_trip_us"].as_f64().unwrap() > 0.0, "{pair}");
        }
        // Four ways, two loads, two rounds; the second round begins with another way.
        let trials = data["trials"].as_array().unwrap();
        let order: Vec<&str> = trials.iter().map(|trial| trial["scenario"].as_str().unwrap()).collect();
        assert_eq!((order.len(), order[0], order[8]), (16, "pod stream", "same-node stream"));
        let pods = &data["pods"];
        assert_eq!((pods["context"].as_str(), pods["namespace"].as_str()), (Some("here"), Some("lab")));
        let nodes: serde_json::Map<String, Value> =
            PODS.iter().map(|(role, node)| ((*role).to_owned(), json!(node))).collect();
        assert_eq!(pods["nodes"], Value::Object(nodes));
        let addresses = |name: &str| {
            let hosts = data["hosts"].as_array().unwrap();
            hosts.iter().find(|host| host["name"] == name).unwrap()["addresses"].clone()
        };
        assert_eq!((addresses("service"), addresses("server")), (json!([SERVICE]), json!(["192.0.2.2"])));
        assert!(report["headline"]["answer"].as_str().unwrap().starts_with("Pod to pod: "), "{}", report["headline"]);

        cluster.assert_empty();
        let created = cluster.created();
        let kinds: Vec<&str> = created.iter().map(|one| one["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["Pod", "Pod", "Pod", "Service", "Pod", "Pod"]);
        for pod in created.iter().filter(|one| one["kind"] == "Pod") {
            let spec = &pod["spec"];
            assert_eq!(spec["nodeSelector"], json!({ "pool": "a" }));
            assert!(spec["activeDeadlineSeconds"].as_u64().is_some_and(|seconds| seconds > 600), "{spec}");
            assert_eq!(spec["containers"][0]["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
        }
        let calls = cluster.calls();
        assert!(
            calls.contains("--namespace=lab --request-timeout=30s delete pods,services --selector=netrig/run="),
            "{calls}"
        );

        let stored = world::netrig()
            .args(["report", "1", "--format", "json", "--store"])
            .arg(cluster.path("store.sqlite"))
            .output()
            .unwrap();
        assert_eq!(serde_json::from_str::<Value>(&world::expect(&stored, 0).0).unwrap(), report);
        let screen = world::netrig().args(["report", "1", "--store"]).arg(cluster.path("store.sqlite")).output();
        let (text, _) = world::expect(&screen.unwrap(), 0);
        for part in ["Pods of here", "on n1 and n2, 2 trials", "What each way carries", "Pod to ClusterIP"] {
            assert!(text.contains(part), "{text}");
        }
        drop(cluster);
        world::assert_nothing_left("of pods");
    });
}

#[test]
fn some_of_it_is_chosen_and_one_node_is_enough() {
    world::own(|| {
        let Some(cluster) = Cluster::new() else { return };
        let of = |arguments: &[&str]| {
            let more = ["--trials", "1", "--format", "json", "--quiet"];
            let report: Value =
                serde_json::from_str(&world::expect(&cluster.run(&[arguments, &more].concat()), 0).0).unwrap();
            let pairs = report["data"]["pairs"].as_array().unwrap().clone();
            pairs.iter().map(|pair| pair["case"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["--one-node"]), ["pod", "service"]);
        assert_eq!(of(&["--only", "host", "--context", "there"]), ["host"]);
        let last: Vec<String> =
            cluster.created().iter().rev().take(4).map(|pod| pod["metadata"]["name"].to_string()).collect();
        assert!(last.iter().all(|name| !name.contains("near")), "{last:?}");
        assert!(cluster.calls().contains("--context=there --namespace=lab"), "{}", cluster.calls());
        // A namespace that forbids pods in the nodes' network costs their case alone.
        fs::write(cluster.path("no-host-network"), "").unwrap();
        let output = cluster.run(&["--only", "pod,host", "--trials", "1"]);
        let (out, said) = world::expect(&output, 0);
        assert!(said.contains("host-client is not tested: kubectl create: Error from server (Forbidden)"), "{said}");
        assert!(out.contains("violates PodSecurity"), "{out}");
        let (_, said) = world::expect(&cluster.run(&["--strict"]), 3);
        assert!(said.contains("--no-host-network"), "{said}");
        cluster.assert_empty();
    });
}

#[test]
fn what_a_cluster_does_not_do_is_said_and_nothing_is_left() {
    world::own(|| {
        let Some(cluster) = Cluster::new() else { return };
        let refused = |status: i32, arguments: &[&str], expected: &[&str]| {
            let (_, said) = world::expect(&cluster.run(arguments), status);
            for part in expected {
                assert!(said.contains(part), "{arguments:?}: {said}");
            }
            cluster.assert_empty();
            cluster.mend();
        };
        let say = |name: &str, text: &str| fs::write(cluster.path(name), text).unwrap();
        refused(2, &["--on", "a=b"], &["--on is not for pods: --nodes"]);
        refused(2, &["--only", "host", "--one-node"], &["--only host: here it takes pod, service"]);
        refused(2, &["--toleration", "a:Never"], &["'Never' is no effect of a taint"]);
        refused(2, &["--nodes", "a,b,c"], &["--nodes takes the client's node and the server's"]);
        say("no-context", "");
        refused(3, &["--context", "nowhere"], &["context \"nowhere\" does not exist"]);
        say("forbidden", "create pods --subresource=exec\ncreate services\n");
        let both = "may not create pods/exec, create services in namespace lab";
        refused(3, &[], &[both, "netrig k8s manifest --rights"]);
        assert!(cluster.created().is_empty());
        say("phase", "Pending");
        say("broken", r#""state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}"#);
        refused(3, &[], &["does not start: ImagePullBackOff: no such image"]);
        say("broken", r#""state":{"terminated":{"reason":"StartError","message":"exec /bin/sh: exec format error"}}"#);
        refused(3, &[], &["exec format error: the image is for another architecture than the node"]);
        say("phase", "Pending");
        refused(3, &["--ready-within", "1s"], &["pods are not ready after 1s (--ready-within)", "it is Pending"]);

        let mut without = cluster.command(&[]);
        let (_, said) = world::expect(&without.env("PATH", cluster.path("ns")).output().unwrap(), 3);
        assert!(said.contains("there is no kubectl here"), "{said}");
        // A program that is not in the image.
        let nowhere = ["--pod-program", "/nowhere", "--quiet"];
        refused(
            3,
            &nowhere,
            &["no pod can be tested with another:", "client: host client is not reached:", "by hand: kubectl"],
        );
        drop(cluster);
        world::assert_nothing_left("of refusals");
    });
}

#[test]
fn a_pod_that_goes_in_the_middle_ends_the_run() {
    world::own(|| {
        let Some(cluster) = Cluster::new() else { return };
        let mut run = cluster.command(&["--only", "pod", "--trials", "1000", "--quiet"]);
        let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_load();
        let pod = cluster.names("pods").into_iter().find(|name| name.ends_with("-server")).unwrap();
        fs::remove_file(cluster.path("pods").join(&pod)).unwrap();
        let process = fs::read_to_string(cluster.path("process/server")).unwrap();
        kill_process(Pid::from_raw(process.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        let (_, said) = world::expect(&run.wait_with_output().unwrap(), 4);
        assert!(said.contains(&format!("pod {pod} has gone")) && said.contains("finished tests are kept"), "{said}");
        cluster.assert_empty();
        drop(cluster);
        world::assert_nothing_left("of a pod that went");
    });
}

#[test]
fn a_run_that_is_stopped_deletes_its_pods_and_the_next_those_of_one_that_was_killed() {
    world::own(|| {
        let Some(cluster) = Cluster::new() else { return };
        let start = || {
            let mut run = cluster.command(&["--only", "pod", "--trials", "1000", "--quiet"]);
            let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            wait_for_load();
            run
        };
        let stopped = start();
        kill_process(Pid::from_child(&stopped), Signal::INT).unwrap();
        world::expect(&stopped.wait_with_output().unwrap(), 130);
        cluster.assert_empty();

        let mut killed = start();
        kill_process(Pid::from_child(&killed), Signal::KILL).unwrap();
        killed.wait().unwrap();
        let left = cluster.names("pods");
        let name = left[0].split('-').nth(1).unwrap();
        // Processes in pods end with the connection.
        assert!(world::until(PATIENCE, || world::processes().is_empty().then_some(())).is_some());
        // One of another machine, which may still run.
        let other = fs::read_to_string(cluster.path("pods").join(&left[0])).unwrap();
        let other = other.replace(name, "0123abcd").replace("\"netrig/runner\":\"", "\"netrig/runner\":\"elsewhere ");
        fs::write(cluster.path("pods/netrig-0123abcd-client"), &other).unwrap();
        let again = cluster.run(&["--only", "pod", "--trials", "1", "--format", "json"]);
        let (_, said) = world::expect(&again, 0);
        assert!(said.contains(&format!("deleted what run {name} had left in namespace lab")), "{said}");
        assert_eq!(cluster.names("pods"), ["netrig-0123abcd-client"]);
        // It has ended by itself.
        let ended = other.replace("Running", "Failed");
        fs::write(cluster.path("pods/netrig-0123abcd-client"), ended).unwrap();
        let (_, said) = world::expect(&cluster.run(&["--only", "pod", "--trials", "1", "--format", "json"]), 0);
        assert!(said.contains("deleted what run 0123abcd had left"), "{said}");
        cluster.assert_empty();
        drop(cluster);
        world::assert_nothing_left("of pods of a run that was killed");
    });
}

fn wait_for_load() {
    let carries = |process: &world::Process| process.command.ends_with(" worker");
    assert!(world::until(PATIENCE, || world::processes().iter().any(carries).then_some(())).is_some());
}
