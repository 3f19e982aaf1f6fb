//! A link to a host that passes nothing for a while, and then goes on, or breaks.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use rig_skip::{Lack, skip};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;

use super::on_hosts::Machines;
use super::world::{self, NETRIG};

/// When a link stalls: before what the runner says next.
#[derive(Debug, Clone, Copy)]
struct Moment {
    phase: &'static str,
    /// What a line has that comes first in the phase, and how often that is said before; empty before all.
    line: &'static str,
    before: usize,
    /// What has to be said first, and how often; only then lines count.
    once: (&'static str, usize),
}

/// In all of a conversation.
const AT_ONCE: (&str, usize) = ("", 0);

/// What the machine costs without load is measured first, on a testbed of its own; then both trials, on one.
const MOMENTS: [Moment; 7] = [
    Moment { phase: "reaching", line: "", before: 0, once: AT_ONCE },
    Moment { phase: "checks", line: "\"request\":{\"probe\"", before: 0, once: AT_ONCE },
    Moment { phase: "building", line: "\"request\":{\"apply\"", before: 1, once: AT_ONCE },
    Moment { phase: "start of the load", line: "{\\\"go\\\":", before: 2, once: AT_ONCE },
    // At both ends of each window there is one.
    Moment { phase: "load", line: "\"request\":\"mark\"", before: 4, once: AT_ONCE },
    Moment { phase: "collecting", line: "\"request\":{\"between\"", before: 2, once: AT_ONCE },
    Moment { phase: "taking down", line: "\"request\":\"tear-down\"", before: 1, once: AT_ONCE },
];

#[derive(Debug, Default)]
struct Link {
    is_stalled: bool,
    /// The run has ended, so that nobody is there for whom it stalls.
    is_over: bool,
}

/// A host's two streams of bytes, which this test passes on.
struct Relay {
    to_host: PathBuf,
    from_host: PathBuf,
    moment: Moment,
    /// For how long nothing is passed on; `None`: for good.
    length: Option<Duration>,
    link: Mutex<Link>,
    changed: Condvar,
    /// What it stalled before, once the moment has come.
    stalled_before: Mutex<Option<String>>,
}

impl Relay {
    fn new(directory: &Path, moment: Moment, length: Option<Duration>) -> Self {
        let pipe = |name: &str| {
            let path = directory.join(name);
            mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
            path
        };
        Self {
            to_host: pipe("to"),
            from_host: pipe("from"),
            moment,
            length,
            link: Mutex::new(Link { is_stalled: moment.line.is_empty(), is_over: false }),
            changed: Condvar::new(),
            stalled_before: Mutex::default(),
        }
    }

    /// What hosts.toml has of it: whatever is to run there, both streams are those of the relay.
    fn command(&self) -> String {
        let [to, from] = [&self.to_host, &self.from_host].map(|path| path.display());
        // The reader is there before the writer, which waits for one: both ends of both pipes open in this order.
        format!(
            "command = [\"sh\", \"-c\", \"exec 3<&0; cat <&3 >{to} & exec cat <{from}\", \"sh\"]\nprogram = \"{NETRIG}\"\n"
        )
    }

    /// Until the runner has closed its end, and the host has ended.
    fn pass_on<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        mut host: Child,
    ) -> [ScopedJoinHandle<'scope, ()>; 2] {
        let (mut stdin, mut stdout) = (host.stdin.take().unwrap(), host.stdout.take().unwrap());
        let there = scope.spawn(move || {
            let mut from_runner = BufReader::new(File::open(&self.to_host).unwrap());
            let (mut line, mut said, (first, mut to_come)) = (Vec::new(), 0, self.moment.once);
            if self.moment.line.is_empty() {
                self.stall("all");
            }
            while from_runner.read_until(b'\n', &mut line).unwrap() > 0 {
                let text = String::from_utf8_lossy(&line);
                if to_come > 0 {
                    to_come -= usize::from(text.contains(first));
                } else if !self.moment.line.is_empty() && text.contains(self.moment.line) {
                    if said == self.moment.before {
                        self.stall(&text);
                        if self.length.is_none() {
                            break;
                        }
                    }
                    said += 1;
                }
                // A host that has ended reads no more.
                if stdin.write_all(&line).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let back = scope.spawn(move || {
            let mut to_runner = OpenOptions::new().write(true).open(&self.from_host).unwrap();
            let mut chunk = vec![0; 64 << 10];
            loop {
                let count = stdout.read(&mut chunk).unwrap();
                drop(self.changed.wait_while(self.link.lock().unwrap(), |link| link.is_stalled).unwrap());
                if count == 0 || to_runner.write_all(&chunk[..count]).is_err() {
                    break;
                }
            }
            drop(to_runner);
            host.wait().unwrap();
        });
        [there, back]
    }

    /// Once the run has ended: what waits for its end of a pipe, or for the stall to end, waits for nobody.
    fn end(&self, threads: &[ScopedJoinHandle<'_, ()>]) {
        self.link.lock().unwrap().is_over = true;
        self.changed.notify_all();
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            // Opened for both ways it waits for nobody, and is both other ends for a moment.
            for pipe in [&self.to_host, &self.from_host] {
                drop(OpenOptions::new().read(true).write(true).open(pipe).unwrap());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn stall(&self, before: &str) {
        *self.stalled_before.lock().unwrap() = Some(before.chars().take(200).collect());
        let mut link = self.link.lock().unwrap();
        link.is_stalled = true;
        let length = self.length.unwrap_or_default();
        link = self.changed.wait_timeout_while(link, length, |link| !link.is_over).unwrap().0;
        link.is_stalled = false;
        self.changed.notify_all();
    }
}

/// What came of a run.
struct RunEnd {
    phase: &'static str,
    status: Option<i32>,
    said: String,
    /// Trials that the run said had ended, and those that the store has.
    told: usize,
    stored: usize,
}

/// A run of transactions over two machines, the link to one of which stalls.
fn run_with(machines: &Machines, relay: &Relay) -> RunEnd {
    run_of("kind = \"tcp-rr\"", &[], machines, relay)
}

/// A run of some load.
fn run_of(load: &str, options: &[&str], machines: &Machines, relay: &Relay) -> RunEnd {
    let suite = machines.file("stalled.toml");
    let text = "name = \"stalled\"\ntitle = \"Stalled\"\n\
                [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
                [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {}\n\
                [[scenario]]\nid = \"rr\"\nname = \"RR\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
                load = { LOAD }\n";
    fs::write(&suite, text.replace("LOAD", load)).unwrap();
    let hosts = fs::read_to_string(machines.file("hosts.toml")).unwrap();
    let (head, _) = hosts.split_once("[host.m2]").unwrap();
    fs::write(machines.file("hosts.toml"), format!("{head}[host.m2]\n{}", relay.command())).unwrap();
    let mut host = Command::new("nsenter");
    host.arg(format!("--net=/proc/{}/fd/{}", std::process::id(), machines.machines[1].raw_fd())).args([NETRIG, "host"]);
    let host = host.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut run = world::netrig();
    run.arg("run").arg(&suite).args(["--no-aa", "--on", "a=m1", "--on", "b=m2", "--trials", "2", "--hosts"]);
    run.arg(machines.file("hosts.toml")).arg("--store").arg(machines.file("store.sqlite")).args(options);
    let output = thread::scope(|scope| {
        let threads = relay.pass_on(scope, host);
        let output = run.output();
        relay.end(&threads);
        output.unwrap()
    });
    let said = String::from_utf8(output.stderr).unwrap();
    let told = said.lines().filter(|line| line.contains("rr #")).count();
    let report = world::netrig()
        .args(["report", "1", "--format", "json", "--store"])
        .arg(machines.file("store.sqlite"))
        .output()
        .unwrap();
    let stored = serde_json::from_slice(&report.stdout)
        .map_or(0, |report: Value| report["data"]["scenarios"][0]["trials"].as_array().unwrap().len());
    RunEnd { phase: relay.moment.phase, status: output.status.code(), said, told, stored }
}

/// Runs side by side, each with a stall in another phase; until a host has greeted it is waited for less.
fn stalls_of(length: Duration, of_reaching: Duration) -> Vec<RunEnd> {
    let all: Vec<(Machines, Moment)> = MOMENTS.map(|moment| (Machines::new(2), moment)).into();
    let ends = thread::scope(|scope| {
        let runs: Vec<_> = all
            .iter()
            .map(|(machines, moment)| {
                scope.spawn(|| {
                    let length = if moment.line.is_empty() { of_reaching } else { length };
                    let relay = Relay::new(machines.file("").as_path(), *moment, Some(length));
                    let end = run_with(machines, &relay);
                    let before = relay.stalled_before.lock().unwrap();
                    assert!(before.is_some(), "{}: the moment did not come: {}", end.phase, end.said);
                    println!("{}: stalled before {}", end.phase, before.as_deref().unwrap_or_default());
                    end
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    drop(all);
    ends
}

/// Each run goes on after its stall: a trial whose ends did not measure at the same time is none, and fails, for it is of the only scenario.
fn assert_all_go_on(ends: Vec<RunEnd>) {
    for RunEnd { phase, status, said, told, stored } in ends {
        println!("{phase}: {status:?}, {told} told, {stored} stored\n{said}");
        let is_lost = ["start of the load", "load"].contains(&phase);
        let expected = if is_lost { (Some(4), 1, 1) } else { (Some(0), 2, 2) };
        assert_eq!((status, told, stored), expected, "{phase}: {said}");
        assert_eq!(said.contains("the link to a host stalled"), is_lost, "{phase}: {said}");
    }
    world::assert_nothing_left("of runs over links that stalled");
}

#[test]
fn a_run_goes_on_where_the_link_to_a_host_stalls_for_seconds() {
    world::own(|| assert_all_go_on(stalls_of(Duration::from_secs(10), Duration::from_secs(5))));
}

#[test]
#[ignore = "takes a minute: .ci/nightly"]
fn a_run_goes_on_where_the_link_to_a_host_stalls_for_half_of_what_it_waits() {
    world::own(|| assert_all_go_on(stalls_of(Duration::from_secs(30), Duration::from_secs(8))));
}

/// The first trial is stored, which is measured when the link breaks: its report.
fn kept_as_the_link_breaks(moment: Moment, load: &str, options: &[&str]) -> Value {
    let machines = Machines::new(2);
    let relay = Relay::new(machines.file("").as_path(), moment, None);
    let RunEnd { phase, status, said, told, stored } = run_of(load, options, &machines, &relay);
    let before = relay.stalled_before.lock().unwrap();
    assert!(before.is_some(), "{phase}: the moment did not come: {said}");
    assert_eq!((status, told, stored), (Some(4), 1, 1), "{phase}: {said}");
    let why = said.lines().find(|line| line.starts_with("netrig: ")).unwrap_or_default();
    assert!(why.contains("m2"), "{phase}: {said}");
    let mut report = world::netrig();
    report.args(["report", "1", "--format", "json", "--store"]).arg(machines.file("store.sqlite"));
    let report: Value = serde_json::from_slice(&report.output().unwrap().stdout).unwrap();
    drop(machines);
    world::assert_nothing_left("of a run that lost a host");
    report["data"]["scenarios"][0]["trials"][0].clone()
}

/// The window of what the machine costs, and that of a trial.
const MEASURED: (&str, usize) = ("\"request\":{\"between\"", 2);
const RR: &str = "kind = \"tcp-rr\"";

#[test]
fn a_trial_is_kept_after_which_the_link_to_a_host_breaks() {
    world::own(|| {
        let [.., taking_down] = MOMENTS;
        kept_as_the_link_breaks(taking_down, RR, &[]);
        // Its clock is asked at the end, too.
        let last = Moment { phase: "last question", line: "\"request\":\"now\"", before: 0, once: MEASURED };
        let trial = kept_as_the_link_breaks(last, RR, &[]);
        let hosts = trial["hosts"].as_array().unwrap();
        assert_eq!(hosts.iter().map(|of| &of[0]).collect::<Vec<_>>(), ["a", "b"]);
        let ends = hosts.iter().map(|of| of[1]["clock_at_end"].is_object());
        assert_eq!(ends.collect::<Vec<_>>(), [true, false], "{hosts:?}");
        assert!(trial["end_clocks"].is_null() && hosts[1][1]["clock_at_begin"].is_object(), "{trial}");
    });
}

#[test]
fn a_trial_is_kept_whose_window_of_samples_fails() {
    if let Err(error) = rig_sys::perf::probe() {
        return skip(Lack::Sampling, error);
    }
    world::own(|| {
        let sampling = Moment { phase: "samples", line: "\"start-stacks\"", before: 0, once: MEASURED };
        let trial = kept_as_the_link_breaks(sampling, RR, &["--layers"]);
        assert!(
            trial["layers"].is_null() && trial["workers"][0]["transactions"]["completed"].as_u64() > Some(0),
            "{trial}"
        );
    });
}

/// Clocks are asked again before delays are measured, which is when the throughput is known.
#[test]
fn a_benchmark_is_kept_as_far_as_it_came_where_a_host_is_lost_behind_its_throughput() {
    world::own(|| {
        let load = "kind = \"packets\", protocol = \"udp\", frame = 64, benchmark = { standard = \"rfc2544\", step = \"100ms\", \
                    latency_trials = 1, bursts = 1, burst = \"100ms\", recoveries = 1, goals = [{ loss = \"50%\", width = \"20%\" }] }";
        let delays = Moment { phase: "delays", line: "\"request\":\"now\"", before: 0, once: MEASURED };
        let trial = kept_as_the_link_breaks(delays, load, &[]);
        let found = &trial["benchmark"]["results"];
        assert!(found["trials"].as_array().is_some_and(|trials| !trials.is_empty()), "{found}");
        assert!(found["latency"].as_array().is_none_or(Vec::is_empty), "{found}");
    });
}

/// Longer than answers are waited for, and than hosts are until they greet.
#[test]
#[ignore = "takes minutes: .ci/nightly"]
fn a_run_ends_with_the_name_of_a_host_to_which_the_link_stalls_for_longer_than_it_waits() {
    world::own(|| {
        for RunEnd { phase, status, said, told, stored } in stalls_of(Duration::from_secs(90), Duration::from_secs(30))
        {
            println!("{phase}: {status:?}, {told} told, {stored} stored\n{said}");
            let why = said.lines().find(|line| line.starts_with("netrig: ")).unwrap_or_default();
            assert!(matches!(status, Some(3 | 4)) && why.contains("m2"), "{phase}: {status:?}: {said}");
            assert_eq!(told, stored, "{phase}: {said}");
        }
        world::assert_nothing_left("of runs over links that stalled for longer than is waited");
    });
}
