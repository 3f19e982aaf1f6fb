//! Hosts, asked as a runner asks them: the same cases for every implementation. All values that are passed to a host or
//! returned by it can be sent as JSON.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rig_facts::flame::HERTZ;
use rig_facts::store::RunState;
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::piped::PipedProcess;
use rig_testbed::Testbed;
use rig_testbed::host::protocol::PROTOCOL;
use rig_testbed::host::{ClockOffset, Host, Local, Mark, Program, Remote, Sampled, Window};
use rig_testbed::plan::Plan;
use rig_testbed::stacks::FoldedStacks;
use rig_testbed::topology::{Endpoint, Topology};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bench::{Bench, assert_whole};
use super::world::{self, NETRIG, RandomSource, expect, netrig, text};

/// Longer than a process takes to be seen on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a case with a host of each kind.
fn on_each(case: impl Fn(&mut (dyn Host + 'static))) {
    world::own(|| {
        let before = world::network_namespaces();
        case(&mut Local::new().unwrap().with_program(NETRIG.into()));
        assert_eq!(world::network_namespaces(), before, "local: a namespace is left");
        case(&mut Remote::child(Path::new(NETRIG)).unwrap());
        world::assert_nothing_left("of a child");
    });
}

/// What the other side of a wire would have of it.
fn sent<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn one_cpu() -> CpuSet {
    CpuSet::new([CpuSet::allowed().unwrap().as_slice()[0]])
}

fn plan(path: &str) -> (Topology, [Endpoint; 2], Plan) {
    let (topology, ends) = Topology::smallest(path.parse().unwrap()).unwrap();
    let plan = sent(&topology.plan(&[one_cpu(), one_cpu()]));
    (topology, ends, plan)
}

/// What a program writes on both outputs that is given `input`, and how it ends.
fn told(host: &dyn Host, space: &str, program: &Program, input: &[u8]) -> (Vec<u8>, Vec<u8>, std::process::ExitStatus) {
    let PipedProcess { mut stdin, stdout, stderr, mut life } = host.start(space, program).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            stdin.write_all(input).unwrap();
        });
        let read = |fd| {
            move || {
                let mut bytes = Vec::new();
                fs::File::from(fd).read_to_end(&mut bytes).unwrap();
                bytes
            }
        };
        let (out, err) = (scope.spawn(read(stdout)), scope.spawn(read(stderr)));
        (out.join().unwrap(), err.join().unwrap(), life.wait().unwrap())
    })
}

/// What a shell says.
fn said(host: &dyn Host, space: &str, script: &str) -> String {
    let (out, err, status) = told(host, space, &Program::at("bash", &["-c", script]), b"");
    assert!(status.success(), "{script}: {}", text(&err));
    text(&out)
}

#[test]
fn nodes_are_built_entered_counted_and_removed() {
    on_each(|host| {
        let namespaces = world::network_namespaces();
        let facts = sent(&host.facts().unwrap());
        assert!(!facts.kernel.is_empty() && !facts.cpus.is_empty(), "{facts:?}");
        let environment = host.environment().unwrap();
        assert!(environment.cpu_time.as_ref().is_some_and(|words| !words.is_empty()), "{environment:?}");
        for path in ["etun", "raw"] {
            let (topology, [from, to], plan) = plan(path);
            host.apply(&plan).unwrap();
            host.apply(&sent(&topology.plan_of_pools())).unwrap();
            assert!(world::network_namespaces().len() > namespaces.len(), "{path}: nothing was built");
            let address = topology.address(&to).unwrap().to_string();
            let begin: Mark = sent(&host.mark().unwrap());
            host.start_sampling().unwrap();
            // The port has no listener: each attempt is answered by a reset.
            let knock = format!("for i in 1 2 3; do (exec 3<>/dev/tcp/{address}/5001) 2> /dev/null; done; true");
            said(host, &from.to_string(), &knock);
            let sample = sent(&host.sample().unwrap());
            assert!(sample.len() == 2 && sample.iter().all(|node| node.cpus.len() == 1), "{sample:?}");
            let sampled: Sampled = sent(&host.end_sampling().unwrap());
            assert_eq!(sampled.tracks.len(), 2);
            assert!(host.sample().is_err(), "it samples, though it was not asked to");
            let end = sent(&host.mark().unwrap());
            assert!(begin.at_ns < end.at_ns);
            let window: Window = sent(&host.between(begin, end).unwrap());
            let names: Vec<&str> = window.nodes.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(names, ["a", "b"]);
            for node in &window.nodes {
                let uplink = node.interfaces.iter().find(|own| own.name == format!("{}:eth0", node.name)).unwrap();
                assert!(uplink.rx_packets >= 3 && uplink.tx_packets >= 3, "{path}: {uplink:?}");
                assert_eq!(node.cpus.len(), 1, "{path}");
            }
            host.forget(begin).unwrap();
            assert!(host.between(begin, end).is_err(), "counters that were forgotten are kept");
            let elsewhere = host.start("a/nobody", &Program::at("true", &[]));
            assert!(format!("{:#}", elsewhere.unwrap_err()).contains("a/nobody"));
            host.tear_down().unwrap();
            assert_eq!(world::network_namespaces(), namespaces, "{path}: a namespace is left");
            assert!(host.mark().is_ok_and(|mark| host.between(mark, mark).unwrap().nodes.is_empty()));
        }
    });
}

/// A plan that names an interface or node that it does not have is refused, and the host goes on after that.
#[test]
fn a_plan_that_does_not_hold_together_is_refused_by_name() {
    on_each(|host| {
        let (_, _, whole) = plan("etun");
        let mut refused = |change: fn(&mut Plan), named: &str| {
            let mut plan = whole.clone();
            change(&mut plan);
            let error = format!("{:#}", host.apply(&plan).unwrap_err());
            assert!(error.contains(named), "'{error}' lacks '{named}'");
            host.tear_down().unwrap();
            host.apply(&whole).unwrap();
            host.tear_down().unwrap();
        };
        refused(|plan| plan.wires[0].ends[1].space = "c".into(), "find c in the plan");
        refused(|plan| plan.wires[0].ends[1] = plan.wires[0].ends[0].clone(), "a wire from a to a");
        refused(|plan| drop(plan.nodes[0].spaces.pop()), "a/sender");
        refused(|plan| plan.nodes[0].spaces[0].routes[0].via = Some([192, 0, 2, 1].into()), "192.0.2.1");
    });
}

/// On one machine both clocks are the same one.
#[test]
fn the_clock_of_this_machine_is_off_by_no_more_than_its_bound() {
    on_each(|host| {
        let offset = host.clock().unwrap();
        assert!(offset.ns.unsigned_abs() <= offset.bound_ns, "{offset:?}");
        assert_eq!(offset == ClockOffset::NONE, host.name() == "local", "{offset:?}");
    });
}

#[test]
fn a_testbed_on_a_host_leaves_it_without_nodes() {
    on_each(|host| {
        let namespaces = world::network_namespaces();
        let (topology, [from, _], _) = plan("raw");
        for _ in 0..2 {
            let testbed = Testbed::build_on(host, &topology, &[one_cpu(), one_cpu()]).unwrap();
            let names = said(testbed.host(), &from.to_string(), "cat /proc/net/dev");
            assert!(names.contains("eth0:"), "{names}");
            drop(testbed);
            assert_eq!(world::network_namespaces(), namespaces);
        }
    });
}

#[test]
fn programs_speak_through_three_pipes_and_end_as_they_end() {
    on_each(|host| {
        let (_, _, plan) = plan("raw");
        host.apply(&plan).unwrap();
        // More than any pipe holds, of every byte there is.
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251 + n / 65_536) as u8).collect();
        let (out, err, status) = told(host, "a", &Program::at("cat", &[]), &bytes);
        assert!(out == bytes && err.is_empty() && status.success(), "{} bytes, {status}", out.len());
        let both = "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2; exit 7";
        let (out, err, status) = told(host, "b", &Program::at("sh", &["-c", both]), b"");
        assert_eq!((out.len(), err.len(), status.code()), (300_000, 200_000, Some(7)));
        let (_, _, status) = told(host, "b", &Program::at("sh", &["-c", "kill -TERM $$"]), b"");
        assert_eq!(status.signal(), Some(15), "{status}");
        let (out, ..) = told(host, "a", &Program::netrig(&["--version"]), b"");
        assert!(text(&out).starts_with("netrig "), "{}", text(&out));
        let error = host.start("a", &Program::at("/nowhere/at-all", &[])).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/at-all"), "{error:#}");
        // The output of `yes` is not read, and its input and errors are never used.
        let PipedProcess { stdin, stdout, stderr, mut life } = host.start("a", &Program::at("yes", &[])).unwrap();
        host.mark().unwrap();
        assert!(life.try_wait().unwrap().is_none());
        drop((stdin, stdout, stderr));
        life.kill().unwrap();
        assert!(!life.wait().unwrap().success());
        host.tear_down().unwrap();
    });
}

#[test]
fn nodes_of_another_process_are_not_entered() {
    world::own(|| {
        let mut child = Remote::child(Path::new(NETRIG)).unwrap();
        let topology = plan("raw").0;
        let testbed = Testbed::build_on(&mut child, &topology, &[one_cpu(), one_cpu()]).unwrap();
        let error = testbed.namespace("a").unwrap_err();
        assert!(error.to_string().contains("enter a: host 'child' has it in another process"), "{error}");
    });
}

#[test]
fn stacks_are_sampled_on_each_host() {
    if let Err(error) = rig_sys::perf::probe() {
        return skip(Lack::Sampling, error);
    }
    on_each(|host| {
        let cpus = CpuSet::allowed().unwrap();
        host.apply(&plan("raw").2).unwrap();
        host.count_interrupts().unwrap();
        host.prepare_stacks(&cpus).unwrap();
        let busy = Program::at("bash", &["-c", "while :; do :; done"]);
        let mut started = host.start("a", &busy).unwrap();
        let is_busy = |stacks: &FoldedStacks| stacks.of(&cpus).any(|(stack, _)| stack.starts_with("bash;"));
        let found = world::until(TIMEOUT, || {
            let sampling = sent(&host.start_stacks(&cpus, HERTZ).unwrap());
            assert!(host.folded_stacks(sampling).is_err(), "they are still sampled");
            thread::sleep(Duration::from_millis(50));
            host.stop_stacks(sampling).unwrap();
            let stacks = sent(&host.folded_stacks(sampling).unwrap());
            assert!(
                host.folded_stacks(sampling).is_err() && host.stop_stacks(sampling).is_err(),
                "they are given once"
            );
            is_busy(&stacks).then_some(stacks)
        });
        started.life.kill().unwrap();
        started.life.wait().unwrap();
        assert_eq!(found.expect("a busy process is not seen").hertz, HERTZ);
        let error = host.start_stacks(&CpuSet::new([CpuSet::MAX]), HERTZ).unwrap_err();
        assert!(format!("{error:#}").contains(&CpuSet::MAX.to_string()), "{error:#}");
        host.tear_down().unwrap();
    });
}

/// Something else than a host, or one of another time.
fn stranger(script: &str) -> String {
    let error = Remote::start("stranger", Command::new("bash").args(["-c", script])).unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("host stranger"), "{error}");
    error
}

#[test]
fn a_host_that_is_none_is_given_up_with_the_reason() {
    world::own(|| {
        let other = PROTOCOL.version + 1;
        let error = stranger(&format!(r#"echo '{{"protocol":"netrig-host","version":{other}}}'; cat"#));
        assert!(error.contains(&format!("version {other}")) && error.contains("use the same netrig"), "{error}");
        assert!(stranger("echo Welcome to this machine").contains("Welcome to this machine"));
        assert!(stranger("exit 127").contains("127"));
        assert!(stranger("head -c 20000000 /dev/zero; cat").contains("no greeting"));
        assert!(Remote::start("nowhere", &mut Command::new("/nowhere/at-all")).is_err());
        // Hosts that greet, and then break the protocol.
        let answers = [
            ("read; read; echo hello", "does not speak the protocol"),
            (
                r#"read; read; echo '{"answer":{"number":7,"value":"done"}}'; cat"#,
                "answers request 7 where 0 was asked",
            ),
            (
                r#"read; read; echo '{"answer":{"number":0,"value":{"now":{"ns":1}}}}'; cat"#,
                "does not speak the protocol",
            ),
            (r#"read; read; echo '{"broken":{"why":"no idea"}}'; cat"#, "no idea"),
            ("read; read", "died (exit status: 0)"),
            ("kill -9 $$", "signal: 9"),
        ];
        for (script, why) in answers {
            let script = format!(r#"echo '{{"protocol":"netrig-host","version":{}}}'; {script}"#, PROTOCOL.version);
            let host = Remote::start("stranger", Command::new("bash").args(["-c", &script])).unwrap();
            let error = format!("{:#}", host.facts().unwrap_err());
            assert!(error.contains("host stranger") && error.contains(why), "{script}: {error}");
        }
        world::assert_nothing_left("of strangers");
    });
}

/// `netrig host`, with what it greets with taken.
fn served() -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = netrig();
    let mut host =
        command.arg("host").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(host.stdout.take().unwrap());
    let mut greeting = String::new();
    out.read_line(&mut greeting).unwrap();
    PROTOCOL.check(greeting.trim_end().as_bytes()).unwrap();
    (host, out)
}

#[test]
fn a_host_ends_with_the_reason_when_it_is_told_nonsense_and_at_once_when_nobody_asks() {
    world::own(|| {
        let greeting = format!("{{\"protocol\":\"netrig-host\",\"version\":{}}}\n", PROTOCOL.version);
        let apply = serde_json::json!({"number": 0, "request": {"apply": {"plan": plan("etun").2}}});
        let started = r#"{"number":1,"request":{"start":{"process":1,"space":"a","program":{"path":"sleep","arguments":["60"]}}}}"#;
        let begin = format!("{greeting}{apply}\n{started}\n");
        let long = format!("{greeting}{}", "x".repeat(17 << 20));
        let cases = [
            (format!("{{\"protocol\":\"netrig-host\",\"version\":{}}}\n", PROTOCOL.version + 1), Some("version ")),
            ("hello\n".to_owned(), Some("no greeting")),
            (long, Some("longer than")),
            (format!("{begin}hello\n"), Some("does not speak the protocol")),
            (format!("{begin}{{\"number\":2,\"request\":\"fly\"}}\n"), Some("does not speak the protocol")),
            (format!("{begin}{{\"kill\":{{\"process\":99}}}}\n"), None),
            (String::new(), None),
        ];
        for (said, why) in cases {
            let (mut host, out) = served();
            let mut stdin = host.stdin.take().unwrap();
            // It may have ended before it has read all of it.
            let _ = stdin.write_all(said.as_bytes());
            if why.is_none() {
                drop(stdin);
            }
            let lines: Vec<String> = out.lines().map(Result::unwrap).collect();
            let heard = text(&host.wait_with_output().unwrap().stderr);
            let what = format!("{}: {lines:?}, {heard}", &said[..said.len().min(80)]);
            match why {
                Some(why) => {
                    let last = lines.last().unwrap_or_else(|| panic!("{what}"));
                    assert!(last.starts_with("{\"broken\"") && last.contains(why) && heard.contains(why), "{what}");
                }
                None => assert!(heard.is_empty() && !lines.iter().any(|line| line.contains("broken")), "{what}"),
            }
            world::assert_nothing_left(&what);
        }
    });
}

/// The process that is the host of a run.
fn host_of_a_run() -> Option<u32> {
    world::processes().into_iter().find(|process| process.command.ends_with(" host")).map(|process| process.pid)
}

#[test]
fn a_run_on_another_host_is_a_run_like_any_other() {
    world::own(|| {
        let bench = Bench::new();
        expect(&bench.command(&["--host", "child"]).output().unwrap(), 0);
        world::assert_nothing_left("of a run");
        let run = bench.runs().pop().unwrap();
        assert_whole(&run);
        assert_eq!(run.summary.state, RunState::Complete);
        for trial in &run.trials {
            let host = trial.host.as_ref().unwrap();
            assert_eq!(host.name, "child");
            for offset in [host.clock_at_begin, host.clock_at_end.unwrap()] {
                assert!(offset.bound_ns > 0 && offset.ns.unsigned_abs() <= offset.bound_ns, "{offset:?}");
            }
            assert!(trial.seconds() > 0.09 && trial.workers.iter().all(|worker| worker.bytes() > 0), "{trial:?}");
            let moved: BTreeSet<&str> = trial.nodes.iter().map(|node| node.name.as_str()).collect();
            assert_eq!(moved.len(), trial.nodes.len());
        }
        let args = ["run", "layers", "--quick", "--only", "B", "--trials", "1", "--window", "200ms", "--host", "child"];
        let store = bench.path("layers.sqlite");
        let output = netrig().args(args).arg("--store").arg(&store).output().unwrap();
        if CpuSet::allowed().unwrap().len() > 1 {
            expect(&output, 0);
            let (out, _) = expect(&netrig().args(["report", "--all", "--store"]).arg(&store).output().unwrap(), 0);
            assert!(out.contains("nodes on host child"), "{out}");
        }
    });
}

#[test]
fn a_run_whose_host_is_killed_fails_by_name_and_leaves_nothing() {
    world::own(|| {
        let bench = Bench::new();
        let mut dice = RandomSource::new();
        for life in 0..5 {
            let mut run = bench.start(&["--host", "child", "--window", "5s"]);
            let host = world::until(TIMEOUT, host_of_a_run).expect("a host is started");
            let after = dice.up_to(Duration::from_millis(1300));
            thread::sleep(after);
            kill_process(Pid::from_raw(host as i32).unwrap(), Signal::KILL).unwrap();
            let said = std::io::read_to_string(run.stderr.take().unwrap()).unwrap();
            let status = run.wait().unwrap();
            let when = format!("of life {life}, whose host was killed after {after:?}: {status}\n{said}");
            println!("{when}");
            assert_eq!(status.code(), Some(4), "{when}");
            assert!(said.contains("host"), "{when}");
            world::assert_nothing_left(&when);
        }
    });
}

#[test]
fn a_run_on_another_host_that_is_killed_leaves_nothing() {
    world::own(|| {
        let bench = Bench::new();
        let mut dice = RandomSource::new();
        let mut in_a_testbed = 0;
        for life in 0..8 {
            let after = dice.up_to(Duration::from_millis(1300));
            let mut run = bench.start(&["--host", "child"]);
            thread::sleep(after);
            in_a_testbed += u32::from(world::network_namespaces().len() > 1);
            run.kill().unwrap();
            run.wait().unwrap();
            let when = format!("of life {life}, killed after {after:?}");
            println!("{when}");
            world::assert_nothing_left(&when);
            bench.runs().iter().for_each(assert_whole);
        }
        assert!(in_a_testbed > 0, "no moment fell into a trial");
    });
}
