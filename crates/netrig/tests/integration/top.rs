//! `netrig top` beside a running spreader, without one, and on a terminal.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use serde_json::Value;

use self::world::{expect, is_root, own, own_among_processes, until};
use crate::world;

const TIMEOUT: Duration = Duration::from_secs(60);
const QUEUES: u32 = 4;

/// A sender and a receiver with a wire of several queues between them.
struct Lab {
    sender: NetNs,
    receiver: NetNs,
    directory: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let lab = Self {
            sender: NetNs::create().unwrap(),
            receiver: NetNs::create().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        let pair = VethPair { name: "s0", peer: "r0", peer_ns: &lab.receiver, queues: QUEUES, mtu: 1500 };
        Netlink::open(&lab.sender).unwrap().add_veth(&pair).unwrap();
        for (ns, name, address) in [(&lab.sender, "s0", "10.9.0.1"), (&lab.receiver, "r0", "10.9.0.2")] {
            let mut netlink = Netlink::open(ns).unwrap();
            netlink.add_address(name, address.parse().unwrap(), 24).unwrap();
            netlink.set_up(name).unwrap();
            netlink.set_up("lo").unwrap();
        }
        // With segmentation left to the receiver it would take packets past its queues.
        ethtool::set(&lab.sender, "s0", Offload::Tso, false).unwrap();
        lab
    }

    fn netrig(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.args(arguments).env("NETRIG_RUN", self.directory.path()).stdin(Stdio::null());
        in_namespace(&mut command, &self.receiver);
        command
    }

    fn sample(&self, arguments: &[&str]) -> Value {
        let all = [&["top", "--json", "--interval", "300ms"], arguments].concat();
        let (out, _) = expect(&self.netrig(&all).output().unwrap(), 0);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 1, "{out}");
        let sample = serde_json::from_str(lines[0]).unwrap();
        conforms(&sample);
        sample
    }

    /// Some thousand packets a second of several flows, until it is told to stop.
    fn traffic(&self) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let sockets = self.sender.run(|| {
            let socket = |_| {
                let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
                socket.connect("10.9.0.2:9").unwrap();
                socket
            };
            (0..16).map(socket).collect::<Vec<_>>()
        });
        let sockets = sockets.unwrap();
        let send = move || {
            while !told.load(Ordering::Relaxed) {
                // The ports have no listener, so sends fail with errors that do not matter here.
                sockets.iter().for_each(|socket| drop(socket.send(&[0; 100])));
                thread::sleep(Duration::from_millis(2));
            }
        };
        Traffic { stop, thread: Some(thread::spawn(send)) }
    }
}

struct Traffic {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[track_caller]
fn conforms(sample: &Value) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/top.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<String> =
        validator.iter_errors(sample).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
    assert!(faults.is_empty(), "{faults:#?}: {sample}");
}

fn sum(list: &Value, field: &str) -> f64 {
    list.as_array().unwrap().iter().map(|one| one[field].as_f64().unwrap()).sum()
}

/// Starts a spreader on r0.
fn spreader(lab: &Lab, mode: &str) -> Daemon {
    let log = lab.directory.path().join("log");
    let out = fs::File::create(&log).unwrap();
    let mut command = lab.netrig(&["spread", "run", "r0", "--mode", mode]);
    command.stdout(out.try_clone().unwrap()).stderr(out);
    let spreader = Daemon(command.spawn().unwrap());
    let ready = until(TIMEOUT, || fs::read_to_string(&log).unwrap().contains("ready").then_some(()));
    assert!(ready.is_some(), "{}", fs::read_to_string(&log).unwrap());
    spreader
}

#[test]
fn a_running_spreader_is_shown_by_cpu_and_by_entry() {
    if !is_root() {
        return skip(Lack::Root, "the spreader needs root of the machine");
    }
    own_among_processes(|| {
        let lab = Lab::new();
        let mut spreader = spreader(&lab, "static-vrss");

        let traffic = lab.traffic();
        let seen = until(TIMEOUT, || {
            let sample = lab.sample(&[]);
            (sum(&sample["interfaces"][0]["entries"], "packets_per_s") > 0.0).then_some(sample)
        });
        let sample = seen.expect("entries have no packets");
        let online = CpuSet::online().unwrap().len();
        let eth = &sample["interfaces"][0];
        assert_eq!((eth["name"].as_str(), eth["counted_by"].as_str()), (Some("r0"), Some("spreader")));
        assert_eq!(eth["entries"].as_array().unwrap().len(), QUEUES as usize);
        assert_eq!(eth["cpus"].as_array().unwrap().len(), online);
        assert_eq!(sample["cpus"].as_array().unwrap().len(), online);
        let bases = eth["cpus"].as_array().unwrap().iter().filter(|cpu| cpu["base"] == true).count();
        assert_eq!(bases, 1, "{eth}");
        assert_eq!(sum(&eth["cpus"], "entries"), f64::from(QUEUES));
        assert!(sum(&eth["cpus"], "packets_per_s") > 0.0 && eth["received"]["packets_per_s"].as_f64() > Some(0.0));
        assert_eq!(eth["spread"]["mode_requested"], "static-vrss");
        assert_eq!(sample["spreader"]["process"].as_u64(), Some(spreader.0.id().into()));

        // An idle interface is one within two seconds, as far as the view goes: the next sample.
        drop(traffic);
        let idle = until(TIMEOUT, || {
            let sample = lab.sample(&["r0"]);
            (sum(&sample["interfaces"][0]["entries"], "packets_per_s") == 0.0).then_some(())
        });
        assert!(idle.is_some(), "entries go on");

        // After its end the interface is still there, and is counted otherwise.
        expect(&lab.netrig(&["spread", "stop"]).output().unwrap(), 0);
        spreader.0.wait().unwrap();
        ethtool::set(&lab.receiver, "r0", Offload::Gro, true).unwrap();
        let _traffic = lab.traffic();
        let seen = until(TIMEOUT, || {
            let sample = lab.sample(&["r0"]);
            let eth = &sample["interfaces"][0];
            assert_eq!((&sample["spreader"], eth["counted_by"].as_str()), (&Value::Null, Some("programs")));
            let all = sum(&eth["entries"], "packets_per_s") > 0.0 && sum(&eth["cpus"], "processing") > 0.0;
            all.then_some(())
        });
        assert!(seen.is_some(), "queues have no packets");
    });
}

#[test]
fn keys_freeze_explain_and_switch_the_mode_of_a_running_spreader() {
    if !is_root() {
        return skip(Lack::Root, "the spreader needs root of the machine");
    }
    own_among_processes(|| {
        let lab = Lab::new();
        let _spreader = spreader(&lab, "static-vmq");
        let mode = || lab.sample(&["r0"])["interfaces"][0]["spread"]["mode_requested"].clone();
        assert_eq!(mode(), "static-vmq");

        let typescript = lab.directory.path().join("typescript");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--flush", "--command"]);
        script.arg("stty rows 40 cols 100; $NETRIG top r0 -i 100ms").arg(&typescript);
        script.env("NETRIG", env!("CARGO_BIN_EXE_netrig")).env("NETRIG_RUN", lab.directory.path()).envs(XTERM);
        in_namespace(&mut script, &lab.receiver);
        let script = script.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut script = match script {
            Err(error) => return skip(Lack::Program("script"), error),
            Ok(script) => Daemon(script),
        };
        let mut keys = script.0.stdin.take().unwrap();
        let mut press = |key: &str| keys.write_all(key.as_bytes()).unwrap();
        let shown = || String::from_utf8_lossy(&fs::read(&typescript).unwrap_or_default()).into_owned();
        let shows = |from: usize, what: &str| {
            let seen = until(TIMEOUT, || shown().get(from..).is_some_and(|text| text.contains(what)).then_some(()));
            assert!(seen.is_some(), "no '{what}' in {:?}", shown());
        };
        shows(0, ENTER);
        shows(0, "r0");
        // Until its first sample is there it knows of no spreader, and says so.
        let other = until(TIMEOUT, || {
            press("m");
            until(Duration::from_secs(2), || (mode() == "static-vrss").then_some(()))
        });
        assert!(other.is_some(), "{}: {:?}", mode(), shown());
        let so_far = shown().len();
        press("f");
        shows(so_far, "FROZEN");
        press("f");
        let so_far = shown().len();
        press("?");
        shows(so_far, "Ctrl-Z");
        press("?");
        press("q");
        let ended = until(TIMEOUT, || script.0.try_wait().unwrap());
        assert_eq!(ended.and_then(|status| status.code()), Some(0), "{:?}", shown());
        assert!(shown().contains(LEAVE));
    });
}

#[test]
fn without_privilege_the_kernel_alone_counts_and_that_is_said() {
    world::unprivileged(|user| {
        let (out, _) = user.netrig(0, &["top", "--json", "--interval", "100ms", "--count", "2"]);
        let samples: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(samples.len(), 2, "{out}");
        samples.iter().for_each(conforms);
        assert_eq!(samples[1]["cpus"].as_array().unwrap().len(), CpuSet::online().unwrap().len());
        for interface in samples[1]["interfaces"].as_array().unwrap() {
            assert_eq!(interface["counted_by"], "kernel");
            assert!(samples[1]["lacks"].to_string().contains("no counts by queue"), "{out}");
        }
    });
}

#[test]
fn what_cannot_be_shown_is_refused_with_the_next_step() {
    own(|| {
        let refused = |status: i32, arguments: &[&str], words: &[&str]| {
            let mut command = world::netrig();
            command.env("NETRIG_RUN", "/nonexistent/netrig").arg("top").args(arguments);
            let (_, said) = expect(&command.output().unwrap(), status);
            for word in words {
                assert!(said.contains(word), "{arguments:?}: {said}");
            }
        };
        refused(2, &["eth9", "--json"], &["no interface eth9", "there are: none but lo"]);
        refused(3, &["--lb", "--json"], &["no balancer named lb is running"]);
        refused(3, &["--vrouter", "--json"], &["no router runs here"]);
        refused(2, &["--interval", "5ms", "--json"], &["between 100 ms and 1 min"]);
        refused(2, &["--count", "0", "--json"], &["--count"]);
        refused(2, &["--lb", "--vrouter", "--json"], &["cannot be used with"]);
        refused(2, &["--testbed", "x", "--json"], &["--node"]);
    });
}

/// Its output on a terminal of its own, which script(1) makes.
fn on_terminal(command: &str, environment: &[(&str, &str)]) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let typescript = directory.path().join("typescript");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", command]).arg(&typescript).stdin(Stdio::null());
    script.env("NETRIG", env!("CARGO_BIN_EXE_netrig")).env("NETRIG_RUN", directory.path()).env_remove("NO_COLOR");
    script.envs(environment.iter().copied()).stdout(Stdio::null());
    match script.status() {
        Err(error) => {
            skip(Lack::Program("script"), error);
            return None;
        }
        Ok(status) => assert!(status.success(), "{command}: {status}"),
    }
    let mut file = fs::File::open(typescript).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    Some(text)
}

const XTERM: [(&str, &str); 2] = [("TERM", "xterm-256color"), ("LC_ALL", "C.UTF-8")];
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn the_terminal_is_as_it_was_however_it_ends() {
    own(|| {
        for how in ["$NETRIG top -i 100ms -n 2", "timeout --foreground -s TERM 2 $NETRIG top -i 100ms || test $? = 124"]
        {
            let command = format!(
                "stty rows 24 cols 80; stty -a >$NETRIG_RUN/a; {how}; stty -a >$NETRIG_RUN/b; cmp $NETRIG_RUN/a $NETRIG_RUN/b"
            );
            let Some(text) = on_terminal(&command, &XTERM) else { return };
            let (enter, leave) = (text.find(ENTER), text.rfind(LEAVE));
            assert!(enter.is_some() && leave > enter, "{text:?}");
            assert!(text.contains("no spreader runs here"), "{text:?}");
        }
    });
}

#[test]
fn a_terminal_that_cannot_do_much_gets_plain_lines() {
    own(|| {
        let command = "$NETRIG top -i 100ms -n 2";
        let Some(text) = on_terminal(command, &[("TERM", "dumb"), ("LC_ALL", "C")]) else { return };
        assert_eq!(text.matches("netrig top: no spreader runs here").count(), 2, "{text:?}");
        assert!(text.is_ascii() && !text.contains('\x1b'), "{text:?}");
        let coloured = |text: &str| text.contains("\x1b[38;") || text.contains("\x1b[31m");
        let command = "stty rows 24 cols 80; $NETRIG top -i 100ms -n 2";
        assert!(coloured(&on_terminal(command, &XTERM).unwrap()));
        let plain = on_terminal(command, &[XTERM[0], XTERM[1], ("NO_COLOR", "1")]).unwrap();
        assert!(!coloured(&plain), "{plain:?}");
    });
}
