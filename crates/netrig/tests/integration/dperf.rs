//! `netrig dperf`, client and server, each in a namespace of its own at the ends of a veth pair. Every run is bounded in
//! time and number; nothing leaves the namespaces.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::linux;

/// Longer than anything here takes, even on a machine that does much else.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Workers spin, and several pairs of them on few CPUs keep each other waiting.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Two namespaces with the ends of a veth pair, `dp0` and `dp1`.
struct Wire {
    ends: [NetNs; 2],
    home: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Wire {
    /// `None`, said aloud, where namespaces may not be made.
    fn new() -> Option<Self> {
        Self::with_mtu(1500)
    }

    fn with_mtu(mtu: u32) -> Option<Self> {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        if !netns::may_create_namespaces() {
            skip(Lack::Root, "making network namespaces needs it");
            return None;
        }
        let ends = [NetNs::create().unwrap(), NetNs::create().unwrap()];
        let pair = VethPair { name: "dp0", peer: "dp1", peer_ns: &ends[1], queues: 2, mtu };
        Netlink::open(&ends[0]).unwrap().add_veth(&pair).unwrap();
        for (end, name) in ends.iter().zip(["dp0", "dp1"]) {
            // No router solicitations and the like: packets are counted exactly.
            end.sysctls(&[("net.ipv6.conf.all.disable_ipv6", "1")]).unwrap();
            Netlink::open(end).unwrap().set_up(name).unwrap();
        }
        Some(Self { ends, home: TempDir::new().unwrap(), _alone: alone })
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// `netrig dperf` at an end.
    fn start(&self, end: usize, arguments: &[&str], file: &Path) -> RunningProcess {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.arg("dperf").args(arguments).arg("-c").arg(file).current_dir(self.home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        RunningProcess::of(self.ends[end].run(|| command.spawn()).unwrap().unwrap())
    }

    fn client(&self, arguments: &[&str], more: &str) -> RunningProcess {
        self.start(0, arguments, &self.file("client.conf", &place(&merged(CLIENT, more))))
    }

    fn server(&self, arguments: &[&str], more: &str) -> RunningProcess {
        self.start(1, arguments, &self.file("server.conf", &place(&merged(SERVER, more))))
    }

    /// Whether an XDP program hangs at an end's interface, as `ip` tells it.
    fn has_program(&self, end: usize) -> bool {
        let mut command = Command::new("ip");
        command.args(["link", "show", ["dp0", "dp1"][end]]);
        let told = self.ends[end].run(|| command.output()).unwrap().unwrap();
        String::from_utf8_lossy(&told.stdout).contains("xdp")
    }

    /// Frames that have come to the server's end or left it.
    fn frames(&self) -> u64 {
        // A line of it: the name, eight numbers of what was received, eight of what was sent.
        let all = self.ends[1].run(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
        let line = all.lines().find(|line| line.trim_start().starts_with("dp1:")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        [words[2], words[10]].iter().map(|count| count.parse::<u64>().unwrap()).sum()
    }

    #[track_caller]
    fn record(&self, name: &str) -> Value {
        let text = fs::read_to_string(self.home.path().join(name)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: '{text}'"))
    }
}

#[track_caller]
fn wait_until(mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < TIMEOUT, "it never happens");
        thread::sleep(Duration::from_millis(10));
    }
}

const CLIENT: &str = "mode client\ncpu 0\nport dp0 10.99.0.1 10.99.0.2\nclient 10.99.1.1 10\nserver 10.99.2.1 2\nwait 0\n\
                      slow_start 0\nduration 1\n";
const SERVER: &str = "mode server\ncpu 1\nport dp1 10.99.0.2 10.99.0.1\nclient 10.99.1.1 10\nserver 10.99.2.1 2\n";

/// Lines of which `more` says the keyword again are left out of `base`.
fn merged(base: &str, more: &str) -> String {
    let keyword = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let said: Vec<String> = more.lines().map(keyword).collect();
    base.lines()
        .filter(|line| !said.contains(&keyword(line)))
        .chain(more.lines())
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The file with CPU 0 replaced by one that the test may use.
fn place(text: &str) -> String {
    let allowed = CpuSet::allowed().unwrap();
    let cpus = allowed.as_slice();
    text.replace("cpu 0\n", &format!("cpu {}\n", cpus[0]))
        .replace("cpu 1\n", &format!("cpu {}\n", cpus[cpus.len() - 1]))
}

/// A process whose output is collected; killed when the test fails.
struct RunningProcess {
    child: Child,
    /// Standard output and standard error, so far.
    texts: [Arc<Mutex<Vec<u8>>>; 2],
    collectors: [thread::JoinHandle<()>; 2],
}

struct ProcessOutput {
    status: ExitStatus,
    out: String,
    said: String,
}

impl RunningProcess {
    fn of(mut child: Child) -> Self {
        fn collect(mut from: impl Read + Send + 'static, to: &Arc<Mutex<Vec<u8>>>) -> thread::JoinHandle<()> {
            let to = Arc::clone(to);
            thread::spawn(move || {
                let mut some = [0; 4096];
                while let Ok(length @ 1..) = from.read(&mut some) {
                    to.lock().unwrap().extend_from_slice(&some[..length]);
                }
            })
        }
        let texts = <[Arc<Mutex<Vec<u8>>>; 2]>::default();
        let (out, said) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let collectors = [collect(out, &texts[0]), collect(said, &texts[1])];
        Self { child, texts, collectors }
    }

    /// What it has written to standard output, so far.
    fn out(&self) -> String {
        String::from_utf8_lossy(&self.texts[0].lock().unwrap()).into_owned()
    }

    /// What it has written to standard error, so far.
    fn said(&self) -> String {
        String::from_utf8_lossy(&self.texts[1].lock().unwrap()).into_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    fn ends(mut self) -> ProcessOutput {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < TIMEOUT, "it does not end");
            thread::sleep(Duration::from_millis(10));
        };
        while !self.collectors.iter().all(thread::JoinHandle::is_finished) {
            assert!(begin.elapsed() < TIMEOUT, "its output does not end");
            thread::sleep(Duration::from_millis(1));
        }
        let [out, said] = self.texts.each_ref().map(|text| String::from_utf8(text.lock().unwrap().clone()).unwrap());
        ProcessOutput { status, out, said }
    }

    #[track_caller]
    fn ends_with(self, status: i32) -> ProcessOutput {
        let ended = self.ends();
        assert_eq!(ended.status.code(), Some(status), "{}\n{}", ended.out, ended.said);
        ended
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ProcessOutput {
    /// A field of the totals.
    #[track_caller]
    fn total(&self, field: &str) -> u64 {
        let totals = self.out.split("Total Numbers:").nth(1).unwrap_or_else(|| panic!("{}\n{}", self.out, self.said));
        let mut words = totals.split_whitespace().skip_while(|word| *word != field);
        let value = words.nth(1).unwrap_or_else(|| panic!("no {field}: {totals}"));
        value.replace(',', "").parse().unwrap()
    }
}

/// Both ends by one driver: a thousand connections, and the packets that they take.
fn a_thousand_connections(driver: &str) {
    let Some(wire) = Wire::new() else { return };
    let server = wire.server(&["--json", "server.json"], &format!("driver {driver}\nduration 1h"));
    let client = wire.client(&["--json", "client.json"], &format!("driver {driver}\ncps 1k\nwait 1")).ends_with(0);
    server.signal(Signal::INT);
    let server = server.ends_with(0);
    for (field, value) in [("skOpen", 1000), ("skClose", 1000), ("skCon", 0), ("skErr", 0), ("httpGet", 1000)] {
        assert_eq!(client.total(field), value, "{field} of the client:\n{}", client.out);
        assert_eq!(server.total(field), value, "{field} of the server:\n{}", server.out);
    }
    // What a slow machine sent again comes on top.
    let again = |ended: &ProcessOutput| {
        ["synRt", "finRt", "ackRt", "pushRt"].iter().map(|field| ended.total(field)).sum::<u64>()
    };
    if again(&client) + again(&server) == 0 {
        for (ended, rx, tx) in [(&client, "tcpRx", "tcpTx"), (&server, "tcpTx", "tcpRx")] {
            assert_eq!((ended.total(rx), ended.total(tx)), (3000, 3000), "{}", ended.out);
        }
        let bytes = (62 + 139 + 54) * 1000;
        assert!(client.total("bitsTx") >= bytes * 8, "{}", client.out);
    }
    assert!(client.out.contains("netrig dperf Test Finished") && client.out.contains("seconds 0 "), "{}", client.out);
    assert!(client.out.contains("latency(us)") && client.out.contains("handshake"), "{}", client.out);
    for (name, mode) in [("client.json", "client"), ("server.json", "server")] {
        let record = wire.record(name);
        let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/dperf.json");
        let schema: Value = serde_json::from_str(&fs::read_to_string(published).unwrap()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<_> = validator.iter_errors(&record).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{name}: {faults:#?}");
        assert_eq!((record["mode"].as_str(), record["total"]["counters"]["skOpen"].as_u64()), (Some(mode), Some(1000)));
        let opened = |second: &Value| second["counters"]["skOpen"].as_u64().unwrap_or(0);
        let seconds = record["seconds"].as_array().unwrap();
        assert!(seconds.iter().map(opened).sum::<u64>() <= 1000 && !seconds.is_empty(), "{name}: {record}");
        let served = |at: &str| record["total"]["servers"][at]["opened"].as_u64();
        assert_eq!([served("10.99.2.1:80"), served("10.99.2.2:80")], [Some(500), Some(500)], "servers take turns");
        let histogram = &record["total"]["histograms"]["handshake"];
        assert_eq!(histogram.is_string(), mode == "client", "{name}");
    }
    assert!(!wire.has_program(0) && !wire.has_program(1), "a program stays behind");
}

#[test]
fn a_thousand_connections_over_xdp() {
    a_thousand_connections("xdp");
}

#[test]
fn a_thousand_connections_over_packet_sockets() {
    a_thousand_connections("packet");
}

#[test]
fn connections_that_stay_and_datagrams_are_counted_exactly() {
    let Some(wire) = Wire::new() else { return };
    let server = wire.server(&[], "duration 1h\nkeepalive 60s");
    let client = wire.client(&[], "cps 100\nkeepalive 1ms 5").ends_with(0);
    let requests = client.total("httpGet");
    assert_eq!((client.total("skOpen"), client.total("http2XX")), (100, requests), "{}", client.out);
    // Connections that are still young when the time is over have fewer.
    assert!((100..=500).contains(&requests), "{}", client.out);
    server.signal(Signal::TERM);
    assert_eq!(server.ends_with(0).total("httpGet"), requests);

    let server = wire.server(&[], "duration 1h\nprotocol udp");
    let client = wire.client(&[], "cps 500\nprotocol udp\npayload_size 1").ends_with(0);
    assert_eq!((client.total("udpTx"), client.total("udpRx"), client.total("udpRt")), (500, 500, 0), "{}", client.out);
    server.signal(Signal::TERM);
    assert_eq!(server.ends_with(0).total("udpTx"), 500);
}

/// Keeps the CPUs of both ends busy, as a slow machine is.
struct CpuHogs(Vec<Child>);

impl CpuHogs {
    fn start() -> Self {
        let cpus = CpuSet::allowed().unwrap();
        let hog = |cpu: &u32| {
            let script = "while :; do :; done";
            Command::new("taskset").args(["-c", &cpu.to_string(), "sh", "-c", script]).spawn().unwrap()
        };
        let ends = [cpus.as_slice().first(), cpus.as_slice().last()];
        Self(ends.into_iter().flatten().flat_map(|cpu| [hog(cpu), hog(cpu), hog(cpu)]).collect())
    }
}

impl Drop for CpuHogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            // It may have been killed already.
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// However slow the machine: connections that were opened are closed or open, in each second and in all.
#[test]
fn counts_of_connections_agree_on_a_machine_that_is_behind() {
    let Some(wire) = Wire::new() else { return };
    let hogs = CpuHogs::start();
    let server = wire.server(&["--json", "server.json"], "duration 1h");
    let client = wire.client(&["--json", "client.json"], "cps 20k\nduration 3").ends();
    drop(hogs);
    server.signal(Signal::INT);
    server.ends();
    for name in ["client.json", "server.json"] {
        let record = wire.record(name);
        let of = |counted: &Value, counter: &str| counted["counters"][counter].as_u64().unwrap_or(0);
        let mut before = 0;
        for second in record["seconds"].as_array().unwrap() {
            let open = second["open"].as_u64().unwrap();
            assert_eq!(before + of(second, "skOpen"), of(second, "skClose") + open, "{name}: {second}");
            before = open;
        }
        let total = &record["total"];
        let [opened, closed, failed] = ["skOpen", "skClose", "skErr"].map(|counter| of(total, counter));
        assert_eq!(opened, closed + total["open"].as_u64().unwrap(), "{name}: {total}");
        assert!(failed <= closed && opened > 0, "{name}: {total}");
    }
    let record = wire.record("client.json");
    let [asked, offered] = ["asked", "offered"].map(|which| record["total"]["offered"][which].as_f64().unwrap());
    assert!(asked == 20_000.0 && (0.0..=asked).contains(&offered), "{record}");
    assert_eq!(client.out.contains("/s of 20,000/s: "), offered < 0.99 * asked, "{offered}: {}", client.out);
}

#[test]
fn several_workers_share_a_port() {
    let Some(wire) = Wire::new() else { return };
    let allowed = CpuSet::allowed().unwrap();
    let &[first, second, ..] = allowed.as_slice() else {
        return skip(Lack::Cpus, "there is one CPU only");
    };
    let cpus = format!("cpu {first} {second}");
    let server = wire.server(&[], &format!("{cpus}\nduration 1h"));
    let client = wire.client(&["--json", "c.json"], &format!("{cpus}\ncps 400")).ends_with(0);
    server.signal(Signal::INT);
    let server = server.ends_with(0);
    assert_eq!((client.total("skOpen"), client.total("skErr")), (400, 0), "{}", client.out);
    assert_eq!(server.total("skOpen"), 400, "{}", server.out);
    let record = wire.record("c.json");
    let workers = record["total"]["workers"].as_array().unwrap();
    let opened: Vec<_> = workers.iter().map(|worker| worker["counters"]["skOpen"].as_u64()).collect();
    assert_eq!(opened, [Some(200), Some(200)], "each its half");
}

#[test]
fn http_over_ipv6_with_a_tag_and_large_responses() {
    let Some(wire) = Wire::new() else { return };
    let v6 = |text: &str| text.replace("10.99.", "fd00:99:").replace(".1", "::1").replace(".2", "::2");
    let v6 = |text: &str| v6(text).replace("fd00:99:0", "fd00:99:f");
    let both = "protocol http\nvlan 42\ndriver auto\nkeepalive 1ms";
    let server = merged(&v6(SERVER), &format!("{both}\nduration 1h\npayload_size 20k"));
    let server = wire.start(1, &[], &wire.file("server.conf", &place(&server)));
    let client = merged(&v6(CLIENT), &format!("{both} 2\ncps 50\nhttp_host a.example\nhttp_path /x"));
    let client = wire.start(0, &["--json", "c.json"], &wire.file("client.conf", &place(&client))).ends_with(0);
    server.signal(Signal::INT);
    let server = server.ends_with(0);
    let requests = client.total("httpGet");
    assert!((50..=100).contains(&requests), "{}", client.out);
    assert_eq!((client.total("http2XX"), client.total("httpErr")), (requests, 0), "{}", client.out);
    assert_eq!(server.total("httpGet"), requests, "{}", server.out);
    assert!(client.total("bitsRx") > requests * 20_000 * 8, "{}", client.out);
}

#[test]
fn frames_of_several_pages_go_by_xdp() {
    let Some(wire) = Wire::with_mtu(9000) else { return };
    if linux() < [6, 6] {
        return skip(Lack::Kernel, "AF_XDP takes frames of several buffers since Linux 6.6");
    }
    let both = "protocol http\njumbo 9000\ndriver xdp";
    let server = wire.server(&[], &format!("{both}\nduration 1h\npayload_size 20k"));
    let client = wire.client(&[], &format!("{both}\ncps 50")).ends_with(0);
    server.signal(Signal::INT);
    let server = server.ends_with(0);
    let requests = client.total("httpGet");
    assert!((45..=55).contains(&requests), "{}", client.out);
    assert_eq!((client.total("http2XX"), client.total("httpErr")), (requests, 0), "{}", client.out);
    // 20,000 bytes and their header are three segments of at most 8960.
    let sent = server.total("bitsTx") / 8;
    assert!(sent > requests * 20_000 && server.total("pktTx") < requests * 9, "{}", server.out);
    assert_eq!((client.total("ierrors"), client.total("oerrors")), (0, 0), "{}", client.out);
}

#[test]
fn who_has_no_answer_ends_with_status_1() {
    let Some(wire) = Wire::new() else { return };
    // It listens elsewhere, and sends no resets.
    let server = wire.server(&[], "duration 1h\nlisten 81 1\ntcp_rst 0");
    let client = wire.client(&["--json", "client.json"], "cps 20").ends_with(1);
    assert_eq!((client.total("skOpen"), client.total("skCon")), (20, 20), "{}", client.out);
    assert!(client.said.contains("20 connections were without an answer"), "{}", client.said);
    let record = wire.record("client.json");
    assert_eq!(record["failures"].as_array().map(Vec::len), Some(1), "{record}");
    drop(server);

    // It refuses.
    let server = wire.server(&[], "duration 1h\nlisten 81 1");
    let client = wire.client(&[], "cps 20").ends_with(1);
    assert_eq!((client.total("skErr"), client.total("skCon")), (20, 0), "{}", client.out);
    drop(server);
}

#[test]
fn a_signal_ends_a_run_with_its_totals() {
    let Some(wire) = Wire::new() else { return };
    let server = wire.server(&["--json", "server.json"], "duration 1h");
    let client = wire.client(&["--json", "client.json"], "cps 100\nduration 1h\nquiet");
    let json = wire.home.path().join("client.json");
    let frames = wire.frames();
    // More than a second of connections, of six packets each, so that a second would be shown if the file did not say `quiet`.
    wait_until(|| wire.frames() >= frames + 900);
    client.signal(Signal::INT);
    let client = client.ends_with(0);
    assert!(client.total("skOpen") > 0 && !client.out.contains("seconds "), "{}", client.out);
    let record: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(record["interrupted"], true);
    drop(server);
}

#[test]
fn one_that_is_killed_leaves_nothing_and_two_do_not_share_an_interface() {
    let Some(wire) = Wire::new() else { return };
    let server = wire.server(&[], "duration 1h\ndriver xdp");
    let begin = Instant::now();
    while !wire.has_program(1) {
        assert!(begin.elapsed() < TIMEOUT, "no program is attached");
        thread::sleep(Duration::from_millis(10));
    }
    let second = wire.server(&[], "duration 1h\ndriver xdp").ends_with(3);
    assert!(second.said.contains("dp1") && second.said.contains("xdp"), "{}", second.said);
    server.signal(Signal::KILL);
    assert_eq!(server.ends().status.code(), None);
    let begin = Instant::now();
    while wire.has_program(1) {
        assert!(begin.elapsed() < TIMEOUT, "the program stays");
        thread::sleep(Duration::from_millis(10));
    }
    let server = wire.server(&[], "duration 1h\ndriver xdp");
    let client = wire.client(&[], "cps 10").ends();
    server.signal(Signal::INT);
    let server = server.ends_with(0);
    assert_eq!(client.status.code(), Some(0), "{}\n{}\n{}", client.out, client.said, server.out);
}

#[test]
fn a_gateway_that_is_not_there_can_be_waited_for_and_given_up() {
    let Some(wire) = Wire::new() else { return };
    for how in [&[][..], &["--search", "loss-free"]] {
        let client = wire.client(&[how, &["--json", "c.json"]].concat(), "cps 10");
        wait_until(|| client.said().contains("10.99.0.2 (dp0)"));
        client.signal(Signal::INT);
        client.ends_with(130);
        assert!(!wire.home.path().join("c.json").exists(), "an empty file is no JSON");
    }
}

/// The second signal ends the process where it is; what was there before stays.
#[test]
fn a_run_that_is_ended_at_once_leaves_no_empty_file() {
    let Some(wire) = Wire::new() else { return };
    let [new, old] = ["new.json", "old.json"].map(|name| wire.home.path().join(name));
    fs::write(&old, "of the run before").unwrap();
    for file in [&new, &old] {
        let client = wire.client(&["--json", file.to_str().unwrap()], "cps 10");
        wait_until(|| client.said().contains("10.99.0.2 (dp0)"));
        client.signal(Signal::KILL);
        client.ends();
    }
    assert!(!new.exists(), "an empty file is no JSON");
    assert_eq!(fs::read_to_string(&old).unwrap(), "of the run before");
}

/// The steps of a search that were told.
fn steps_in(out: &str) -> usize {
    out.lines().filter(|line| line.contains("connections/s  ")).count()
}

#[test]
fn the_highest_rate_without_loss_is_searched() {
    let Some(wire) = Wire::new() else { return };
    // 200 combinations of addresses and ports, each in use for 300 ms: no more than 667 connections a second can be
    // opened on any machine.
    let server = wire.server(&[], "duration 1h\nkeepalive 60s");
    let limited = format!("{CLIENT}cps 90\nkeepalive 300ms 2\nclient_port_range 1001 1010\n");
    let file = wire.file("limited.conf", &place(&limited));
    let ended = wire.start(0, &["--search", "loss-free", "--hold", "1s", "--json", "c.json"], &file).ends();
    let json = fs::read(wire.home.path().join("c.json")).unwrap();
    let record: Value = serde_json::from_slice(&json).unwrap_or_else(|e| panic!("{e}: {}\n{}", ended.out, ended.said));
    let search = &record["search"];
    let held = search["held"].as_f64();
    // On a machine without time for it every rate may be too high, which is told.
    assert_eq!(ended.status.code(), Some(if held.is_some() { 0 } else { 1 }), "{}\n{}", ended.out, ended.said);
    assert!(held.is_none_or(|held| held < 700.0 && ended.out.contains("held without loss for 1 s")), "{}", ended.out);
    let steps = search["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["losses"].as_object().is_some_and(|losses| !losses.is_empty())), "{search}");
    assert_eq!(steps_in(&ended.out), steps.len(), "{}", ended.out);
    drop(server);
}

#[test]
fn a_search_is_stopped_in_any_step_with_what_is_known() {
    let Some(wire) = Wire::new() else { return };
    let server = wire.server(&[], "duration 1h");
    let file = wire.file("endless.conf", &place(&format!("{CLIENT}cps 50\n")));
    for after in [0, 1] {
        let before = wire.frames();
        let name = format!("stopped-{after}.json");
        let search = wire.start(0, &["--search", "loss-free", "--json", &name], &file);
        // More than questions for addresses: connections.
        wait_until(|| wire.frames() >= before + 20 && steps_in(&search.out()) >= after);
        search.signal(Signal::INT);
        let ended = search.ends_with(1);
        let record = wire.record(&name);
        let steps = record["search"]["steps"].as_array().unwrap();
        assert_eq!(steps.len(), steps_in(&ended.out), "{record}");
        // A step may end between a look and the signal.
        assert!(steps.len() >= after, "{record}");
        let nothing = ended.said.contains("until then no rate had been offered to its end");
        assert_eq!(nothing, steps.is_empty(), "{}", ended.said);
        assert_eq!(
            (&record["search"]["ending"], &record["interrupted"]),
            (&"stopped".into(), &true.into()),
            "{record}"
        );
        assert!(count(&record, "skOpen") > 0, "{record}");
        assert!(ended.said.contains("the search was stopped before "), "{}", ended.said);
        assert!(!ended.said.contains("slow start"), "the file has none: {}", ended.said);
        assert_eq!(record["failures"].as_array().map(Vec::len), Some(1), "{record}");
    }
    drop(server);
}

#[test]
fn a_search_whose_server_ends_before_says_so() {
    let Some(wire) = Wire::new() else { return };
    let server = wire.server(&[], "duration 1h");
    let file = wire.file("endless.conf", &place(&format!("{CLIENT}cps 50\n")));
    let search = wire.start(0, &["--search", "loss-free", "--json", "c.json"], &file);
    wait_until(|| steps_in(&search.out()) >= 1);
    server.signal(Signal::INT);
    server.ends();
    let ended = search.ends_with(4);
    assert!(ended.said.contains("answered before and does not any more: it has ended"), "{}", ended.said);
    // On a machine without time for it, perhaps none.
    let known =
        [" carried", "the generator was behind its own schedule"].iter().any(|words| ended.said.contains(words));
    assert!(ended.said.contains("; until then ") && known, "{}", ended.said);
    assert!(!ended.said.contains("waiting for the gateway"), "{}", ended.said);
    assert!(!wire.home.path().join("c.json").exists(), "an empty file is no JSON");
}

/// Both ends with more lines, the client's for a second; they end well, and each leaves its JSON.
fn both(wire: &Wire, shape: &str, client: &str, server: &str) -> [(ProcessOutput, Value); 2] {
    let server = wire.server(&["--json", "server.json"], &format!("{server}\nduration 1h"));
    let client = wire.client(&["--json", "client.json"], client).ends();
    server.signal(Signal::INT);
    let server = server.ends();
    let statuses = [client.status.code(), server.status.code()];
    let told = format!("{shape}\n{}\n{}\n{}\n{}", client.out, client.said, server.out, server.said);
    assert_eq!(statuses, [Some(0), Some(0)], "{told}");
    [(client, wire.record("client.json")), (server, wire.record("server.json"))]
}

fn count(record: &Value, counter: &str) -> u64 {
    record["total"]["counters"][counter].as_u64().unwrap_or(0)
}

#[test]
fn every_shape_of_a_load_comes_from_the_file_to_the_wire() {
    let Some(wire) = Wire::new() else { return };
    let kept = "cc 10\ncps 100\nkeepalive 10ms\nrps 200\nlaunch_num 5\nclient_hop\nprotocol http";
    let [(told, asked), _] = both(&wire, "keepalive", kept, "keepalive 60s\nprotocol http");
    assert_eq!(count(&asked, "skOpen"), 10, "{asked}");
    // Several on each connection, and as many of the 200 that are due in a second as a busy machine has time for.
    assert!((11..=200).contains(&count(&asked, "http2XX")), "{asked}");
    for latency in ["handshake", "first_byte", "transaction"] {
        assert!(asked["total"]["latency"][latency]["max_ns"].as_u64().is_some(), "{latency}: {asked}");
    }
    assert!(told.out.contains("10.99.2.1:80") && told.out.contains("10.99.2.2:80"), "{}", told.out);

    let plain = both(&wire, "plain", "cps 300", "");
    for (shape, keywords, more) in [
        ("vlan", ["vlan 7", "vlan 7"], 4),
        ("vxlan", [tunnel("1", "2"), tunnel("2", "1")].each_ref().map(String::as_str), 50),
    ] {
        let [(_, asked), _] = both(&wire, shape, &format!("cps 300\n{}", keywords[0]), keywords[1]);
        assert_eq!(count(&asked, "skOpen"), 300, "{shape}: {asked}");
        let bytes = |record: &Value| (count(record, "bitsTx") as f64 / 8.0) / count(record, "pktTx") as f64;
        // Each of three packets is so much longer; the few questions for the gateway are not.
        let longer = bytes(&asked) - bytes(&plain[0].1);
        assert!((longer - f64::from(more)).abs() < 2.0, "{shape}: {longer} bytes, {asked}");
    }

    // The line `port` has the interface, and with it the zone.
    let hosts = "client fe80::1:1 10\nserver fe80::2:1 2";
    let client = format!("port dp0 fe80::1 fe80::2\n{hosts}\ncps 300");
    let [(_, asked), _] = both(&wire, "link-local", &client, &format!("port dp1 fe80::2 fe80::1\n{hosts}"));
    assert_eq!([count(&asked, "skOpen"), count(&asked, "tcpRsp").max(count(&asked, "http2XX"))], [300; 2], "{asked}");
    assert_eq!(asked["total"]["servers"]["[fe80::2:2]:80"]["responses"], 150, "{asked}");

    let flood = "protocol udp\nflood\npps 1k\nchange_dip 10.99.2.2 1 1\npayload_size 100";
    let [(_, sent), (_, came)] = both(&wire, "flood", flood, "protocol udp");
    // A sender that was late makes up for it at once, and a veth has room for 256 frames.
    let may_be_lost = if count(&sent, "late") == 0 { 0 } else { 999 };
    assert_eq!(count(&sent, "udpTx"), 1000, "{sent}");
    assert!((1000 - may_be_lost..=1000).contains(&count(&came, "udpRx")), "{sent}\n{came}");
    assert_eq!(came["total"]["servers"]["10.99.2.2:80"]["requests"], count(&came, "udpRx"), "{came}");

    let piped = "protocol udp\ncps 100\ncc 2\nkeepalive 1s\npipeline 4\nrps 50";
    let [(_, sent), (_, came)] = both(&wire, "pipeline", piped, "protocol udp");
    assert!(count(&sent, "udpTx") > 2 * 4 && count(&sent, "udpTx").is_multiple_of(4), "{sent}");
    assert_eq!(count(&sent, "udpTx"), count(&came, "udpTx"), "{sent}\n{came}");
    assert!(sent["total"]["latency"]["transaction"]["max_ns"].as_u64().is_some(), "{sent}");
}

#[test]
fn two_ports_share_a_load() {
    let Some(wire) = Wire::new() else { return };
    let allowed = CpuSet::allowed().unwrap();
    let &[first, second, ..] = allowed.as_slice() else {
        return skip(Lack::Cpus, "there is one CPU only");
    };
    let pair = VethPair { name: "dp2", peer: "dp3", peer_ns: &wire.ends[1], queues: 1, mtu: 1500 };
    Netlink::open(&wire.ends[0]).unwrap().add_veth(&pair).unwrap();
    for (end, name) in wire.ends.iter().zip(["dp2", "dp3"]) {
        end.sysctls(&[("net.ipv6.conf.all.disable_ipv6", "1")]).unwrap();
        Netlink::open(end).unwrap().set_up(name).unwrap();
    }
    let ports = |[one, other]: [&str; 2], [ours, theirs]: [u8; 2]| {
        format!(
            "cpu {first} {second}\nport {one} 10.99.0.{ours} 10.99.0.{theirs}\nport {other} 10.98.0.{ours} 10.98.0.{theirs}\n\
             client 10.99.1.1 10\nclient 10.98.1.1 10\nserver 10.99.2.1 1\nserver 10.98.2.1 1"
        )
    };
    let (client, server) = (ports(["dp0", "dp2"], [1, 2]), ports(["dp1", "dp3"], [2, 1]));
    let busy_poll = if has_preferred_busy_polling() { "busy_poll 64\n" } else { "" };
    let client = format!("{client}\ncps 200\n{busy_poll}fast_close");
    let [(_, asked), (_, answered)] = both(&wire, "two ports", &client, &server);
    for server in ["10.99.2.1:80", "10.98.2.1:80"] {
        assert_eq!(asked["total"]["servers"][server]["responses"], 100, "{asked}");
    }
    assert_eq!([count(&answered, "skOpen"), count(&answered, "rstRx")], [200; 2], "{answered}");
}

/// SO_PREFER_BUSY_POLL (socket(7)), without which dperf refuses `busy_poll`.
fn has_preferred_busy_polling() -> bool {
    let has = linux() >= [5, 11];
    if !has {
        skip(Lack::Kernel, "busy_poll: sockets prefer busy polling since Linux 5.11");
    }
    has
}

fn tunnel(ours: &str, theirs: &str) -> String {
    format!("vxlan 42 02:00:00:00:01:0{ours} 02:00:00:00:01:0{theirs} 172.16.0.{ours} 1 172.16.0.{theirs} 1")
}

#[test]
fn files_are_checked_without_a_network() {
    let home = TempDir::new().unwrap();
    let check = |text: &str, status: i32| {
        let path = home.path().join("a.conf");
        fs::write(&path, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command
            .args(["dperf", "-t", "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        RunningProcess::of(command.spawn().unwrap()).ends_with(status)
    };
    let good = place(&format!("{CLIENT}cps 1k\n")).replace("dp0", "lo");
    let fine = check(&good, 0);
    assert_eq!((fine.out.as_str(), fine.said.as_str()), ("Config file OK\n", ""));
    let absent = check(&place(&format!("{CLIENT}cps 1k\n")), 3);
    assert!(absent.said.contains("port dp0: there is no such interface"), "{}", absent.said);
    assert!(absent.said.contains("not be run on this machine") && absent.out.is_empty(), "{}", absent.said);
    let elsewhere = check(&format!("{CLIENT}cps 1k\n").replace("cpu 0", "cpu 1000").replace("dp0", "0000:ff:1f.7"), 3);
    assert!(elsewhere.said.contains("CPUs 1000") && elsewhere.said.contains("0000:ff:1f.7"), "{}", elsewhere.said);
    let wrong = check(&format!("{good}keepalive 1x\n"), 2);
    assert!(wrong.said.contains("a.conf: line 10: keepalive: '1x' is not a time"), "{}", wrong.said);
    let large = check(&format!("{good}duration 1\n"), 2);
    assert!(large.said.contains("line 11") || large.said.contains("line 10"), "{}", large.said);
    for (option, words) in [("-m", "keepalive Interval [N]"), ("-v", "language of dperf"), ("-h", "--search")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.args(["dperf", option]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let told = RunningProcess::of(command.spawn().unwrap()).ends_with(0);
        assert!(told.out.contains(words), "{option}: {}", told.out);
    }
}
