//! Containers of container engines: of engines that nodes have for themselves, and of one that the machine has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rig_engine::{Engine, NetworkSpec};
use rig_facts::record::TrialRecord;
use rig_facts::store::Store;
use rig_skip::{Lack, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::world::{self, expect, netrig};

const LABEL: &str = "netrig.owner";
/// Longer than an engine takes to start, and to remove what it has.
const TIMEOUT: Duration = Duration::from_secs(60);

pub fn is_installed() -> bool {
    let is_there =
        ["/usr/sbin/dockerd", "/usr/bin/dockerd", "/usr/local/bin/dockerd"].iter().any(|path| Path::new(path).exists());
    if !is_there {
        skip(Lack::Program("dockerd"), "no container engine is installed");
    }
    is_there
}

/// A folder with a suite, and a store.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A run of scenarios, each with its path's end and what the containers are.
    fn command(&self, scenarios: &[(&str, &str, &str)]) -> Command {
        let one = |(id, to, settings): &(&str, &str, &str)| {
            let testbed = if to.starts_with('a') { "one" } else { "two" };
            format!(
                "[[scenario]]\nid = \"{id}\"\nname = \"{id}\"\ntestbed = \"{testbed}\"\npath = \"docker\"\nfrom = \"a/client\"\nto = \"{to}\"\n\
                 [[scenario.datapath]]\nname = \"docker\"\n{settings}\n"
            )
        };
        let suite = "name = \"engines\"\ntitle = \"Engines\"\n[defaults]\nwindow = \"100ms\"\nwarm_up = \"20ms\"\ncool_down = \"10ms\"\n\
                     [defaults.load]\nkind = \"tcp-rr\"\n[testbed.one]\nnodes = [\"a\"]\n[testbed.two]\nnodes = [\"a\", \"b\"]\nwire = { mtu = 1500 }\n"
            .to_owned();
        fs::write(self.path("suite.toml"), suite + &scenarios.iter().map(one).collect::<String>()).unwrap();
        let mut command = netrig();
        command
            .arg("run")
            .arg(self.path("suite.toml"))
            .args(["--trials", "1", "--store"])
            .arg(self.path("runs.sqlite"));
        command
    }

    /// What a run says, and its trials.
    fn run(&self, scenarios: &[(&str, &str, &str)]) -> (String, Vec<TrialRecord>) {
        let output = self.command(scenarios).output().unwrap();
        (one_line(&(world::text(&output.stdout) + &world::text(&output.stderr))), self.trials())
    }

    /// Of the last run.
    fn trials(&self) -> Vec<TrialRecord> {
        let store = Store::open(&self.path("runs.sqlite")).unwrap();
        let last = store.runs().unwrap().into_iter().next_back();
        last.map_or(Vec::new(), |last| store.run(last.id).unwrap().trials)
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is there of the machine's that an engine might change, but for what other programs do meanwhile.
fn things_of_the_machine() -> BTreeSet<String> {
    let folders = ["/var/lib/docker", "/var/lib/containerd", "/run", "/etc/docker", "/run/netns", "/opt"];
    let names = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string()).collect::<Vec<_>>()
    };
    let hierarchies = names("/sys/fs/cgroup").into_iter().chain(["/sys/fs/cgroup".to_owned()]);
    let cgroups = hierarchies.flat_map(|folder| names(&folder)).filter(|path| path.contains("/netrig-"));
    // The first one of netrig's services or testbeds makes it, in whichever test.
    let others = |path: &String| path == "/run/netrig";
    folders.iter().flat_map(|folder| names(folder)).filter(|path| !others(path)).chain(cgroups).collect()
}

#[test]
fn engines_of_nodes_have_containers_that_carry_load_and_leave_nothing() {
    if !is_installed() {
        return;
    }
    world::own(|| {
        let before = things_of_the_machine();
        let bench = Bench::new();
        let (said, trials) = bench.run(&[
            ("bridge", "a/server", "cpus = 0.8\nmemory = \"64MiB\""),
            ("host", "b/server", "network = \"host\""),
            ("port", "b/server", "publish = [\"b/server\"]\nuserland_proxy = false"),
            ("macvlan", "b/server", "network = \"macvlan\""),
            ("overlay", "b/server", "network = \"vrouter\""),
            ("local", "a/server", "network = \"vrouter\""),
        ]);
        assert_eq!(trials.len(), 6, "{said}");
        let trial =
            |id: &str| trials.iter().find(|trial| trial.scenario == id).unwrap_or_else(|| panic!("no {id}: {said}"));
        let state = |id: &str, agent: usize| &trial(id).agents[agent].state;
        let inspected = |id: &str, agent: usize, at: &str| {
            state(id, agent).more["containers"].pointer(at).cloned().unwrap_or_default()
        };
        let bridge = trial("bridge");
        assert!(bridge.agents[0].version.starts_with("Docker "), "{}", bridge.agents[0].version);
        assert_eq!(state("bridge", 0).addresses["a/server"][0].to_string(), "172.17.0.3");
        assert_eq!(inspected("bridge", 0, "/0/inspect/HostConfig/NanoCpus"), Value::from(800_000_000u64));
        assert_eq!(inspected("bridge", 0, "/1/inspect/HostConfig/Memory"), Value::from(64u64 << 20));
        // It was reached where its node is, and listened where it is itself.
        let port = state("port", 1);
        assert_eq!(port.addresses["b/server"][0].to_string(), "172.17.0.2");
        let node = port.reached_at["b/server"][0];
        assert_eq!(state("host", 1).addresses["b/server"], [node]);
        assert_eq!(state("macvlan", 1).addresses["b/server"][0].to_string(), "10.89.2.0");
        assert_eq!(state("overlay", 1).addresses["b/server"][0].to_string(), "10.89.2.2");
        assert_eq!(state("local", 0).addresses["a/server"][0].to_string(), "10.89.1.3");
        assert!(trial("overlay").agents[0].version.ends_with("network vrouter (netrig)"));
        for trial in &trials {
            // Interfaces are those of the containers' own namespaces, and each is counted once.
            let names: Vec<&str> =
                trial.nodes.iter().flat_map(|node| &node.interfaces).map(|own| own.name.as_str()).collect();
            assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "{names:?}");
            assert!(trial.scenario == "host" || names.contains(&"a/client:eth0"), "{names:?}");
        }
        assert_eq!(things_of_the_machine(), before);
        world::assert_nothing_left("of engines of nodes");
    });
}

#[test]
fn what_an_engine_refuses_is_told_and_leaves_nothing() {
    if !is_installed() {
        return;
    }
    world::own(|| {
        let before = things_of_the_machine();
        let bench = Bench::new();
        let (said, trials) = bench.run(&[
            ("absent", "a/server", "engine = \"/absent/docker.sock\""),
            ("unknown", "a/server", "publish = [\"a/nobody\"]"),
        ]);
        assert!(trials.is_empty(), "{said}");
        assert!(said.contains("absent: no container engine answers at /absent/docker.sock: No such file"), "{said}");
        assert!(said.contains("no container a/nobody to publish ports of: this node has a/client, a/server"), "{said}");
        assert_eq!(things_of_the_machine(), before);
        world::assert_nothing_left("of what an engine refuses");
        let refused = expect(&netrig().args(["run", "latency", "--network", "x"]).output().unwrap(), 2).1;
        assert!(one_line(&refused).contains("--network and --engine are for the built-in suite docker"), "{refused}");
        let mut elsewhere = netrig();
        elsewhere.args(["run", "docker", "--network", "x"]).env("DOCKER_HOST", "tcp://192.0.2.1:2375");
        let refused = expect(&elsewhere.output().unwrap(), 2).1;
        assert!(one_line(&refused).contains("DOCKER_HOST is 'tcp://192.0.2.1:2375'"), "{refused}");
    });
}

#[test]
fn a_killed_run_leaves_no_engine_and_the_next_one_removes_its_cgroups() {
    if !is_installed() {
        return;
    }
    world::own(|| {
        let before = things_of_the_machine();
        let bench = Bench::new();
        let dockerd = || world::processes().into_iter().find(|process| process.command.starts_with("dockerd "));
        let kill = |process: &world::Process| {
            // It may have ended with another.
            let _ = kill_process(Pid::from_raw(process.pid as i32).unwrap(), Signal::KILL);
        };
        let agents = || world::processes().into_iter().filter(|process| process.command.contains("agent docker"));
        for is_all_at_once in [false, true] {
            let mut run = bench.command(&[("bridge", "a/server", "")]);
            let mut run = run.args(["--window", "20s"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let is_up = || world::processes().iter().any(|process| process.command.contains("netrig worker"));
            world::until(TIMEOUT, || (dockerd().is_some() && is_up()).then_some(())).expect("containers are made");
            if is_all_at_once {
                agents().for_each(|process| kill(&process));
            }
            run.kill().unwrap();
            run.wait().unwrap();
            world::assert_nothing_left("of a killed run with engines of nodes");
            if !is_all_at_once {
                // Its agent has ended by itself.
                assert_eq!(things_of_the_machine(), before);
            }
        }
        let (said, trials) = bench.run(&[("bridge", "a/server", "")]);
        assert_eq!(trials.len(), 1, "{said}");
        assert_eq!(things_of_the_machine(), before);
    });
}

/// An engine of this world's machine.
struct MachineEngine {
    process: Child,
    socket: PathBuf,
}

impl MachineEngine {
    fn start() -> Self {
        for folder in ["/run", "/var/lib/docker", "/etc/docker"] {
            fs::create_dir_all(folder).unwrap();
            assert!(
                Command::new("mount").args(["-t", "tmpfs", "tmpfs", folder]).status().unwrap().success(),
                "{folder}"
            );
        }
        let socket = PathBuf::from("/run/docker.sock");
        let mut command = Command::new("dockerd");
        command.args([
            "--exec-opt",
            "native.cgroupdriver=cgroupfs",
            "--cgroup-parent",
            &format!("/{}", Self::cgroup()),
        ]);
        command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap()));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        world::until(TIMEOUT, || Engine::at(&socket).ok()).expect("dockerd answers");
        Self { process, socket }
    }

    /// That its containers' are in, by a name that no other world's engine has.
    fn cgroup() -> String {
        let world = fs::read_link("/proc/self/ns/pid").unwrap().display().to_string();
        format!("test-{}", world.trim_matches(|c: char| !c.is_ascii_digit()))
    }

    fn engine(&self) -> Engine {
        Engine::at(&self.socket).unwrap()
    }

    /// All that it has, netrig's or not, by what it is.
    fn things(&self) -> Vec<(&'static str, String)> {
        let ask = |what: &'static str, path: &str| {
            let mut answer = Command::new("curl");
            answer.args(["--silent", "--unix-socket"]).arg(&self.socket).arg(format!("http://engine/v1.41/{path}"));
            let all: Vec<Value> = serde_json::from_slice(&answer.output().unwrap().stdout).unwrap();
            all.into_iter().map(move |one| (what, one["Id"].as_str().unwrap().to_owned())).collect::<Vec<_>>()
        };
        let mut all = [
            ask("container", "containers/json?all=true"),
            ask("network", "networks"),
            ask("image", "images/json?all=true"),
        ]
        .concat();
        all.sort();
        all
    }

    /// Waits until there is an image more than `before`, and two containers.
    fn wait_for_containers(&self, before: &[(&'static str, String)]) {
        world::until(TIMEOUT, || (self.things().len() >= before.len() + 3).then_some(())).expect("containers are made");
    }

    fn run(&self, bench: &Bench, network: &str) -> Command {
        let mut command = netrig();
        command.args([
            "run",
            "docker",
            "--quick",
            "--trials",
            "1",
            "--only",
            "network-rr",
            "--network",
            network,
            "--engine",
        ]);
        command.arg(&self.socket).arg("--store").arg(bench.path("runs.sqlite"));
        command
    }
}

impl Drop for MachineEngine {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
        self.process.wait().unwrap();
        // They outlive the engine, as they would any.
        let remove = format!("find /sys/fs/cgroup -depth -type d -path '*/{0}*' -exec rmdir {{}} \\;", Self::cgroup());
        assert!(Command::new("sh").args(["-c", &remove]).status().unwrap().success());
    }
}

#[test]
fn a_network_of_the_machines_engine_is_measured_and_all_else_of_it_stays_as_it_was() {
    if !is_installed() {
        return;
    }
    world::own(|| {
        let machine = MachineEngine::start();
        let engine = machine.engine();
        let spec = NetworkSpec { name: "mine".into(), driver: "bridge".into(), ..NetworkSpec::default() };
        engine.make_network(&spec).unwrap();
        let before = machine.things();
        let bench = Bench::new();
        let output = machine.run(&bench, "mine").output().unwrap();
        let (said, _) = expect(&output, 0);
        let trials = bench.trials();
        assert_eq!(trials.len(), 1, "{said}");
        let agent = &trials[0].agents[0];
        assert!(agent.version.ends_with(", network mine (bridge)"), "{}", agent.version);
        assert_eq!(machine.things(), before);

        let other = machine.run(&bench, "other").output().unwrap();
        let said = one_line(&(world::text(&other.stdout) + &world::text(&other.stderr)));
        assert!(said.contains("the container engine has no network 'other': choose from"), "{said}");
        assert_eq!(machine.things(), before);

        // The runner killed: the agent ends by itself, and undoes what it did.
        let mut run = machine.run(&bench, "mine").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        machine.wait_for_containers(&before);
        run.kill().unwrap();
        run.wait().unwrap();
        world::until(TIMEOUT, || (machine.things() == before).then_some(()));
        assert_eq!(machine.things(), before);

        // All of netrig killed at once: containers end by themselves, and the rest goes with the next run.
        let mut run = machine.run(&bench, "mine").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        machine.wait_for_containers(&before);
        let is_agent = |process: &world::Process| process.command.contains("agent docker");
        for process in world::processes().iter().filter(|process| is_agent(process)) {
            // One of them ends with another.
            let _ = kill_process(Pid::from_raw(process.pid as i32).unwrap(), Signal::KILL);
        }
        run.kill().unwrap();
        run.wait().unwrap();
        world::until(TIMEOUT, || engine.containers_with(LABEL).unwrap().is_empty().then_some(()))
            .expect("containers end");
        let again = machine.run(&bench, "mine").output().unwrap();
        expect(&again, 0);
        assert_eq!(machine.things(), before);
    });
}
