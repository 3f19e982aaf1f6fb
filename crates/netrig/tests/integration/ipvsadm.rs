//! The command line of `netrig lb` against a control plane that only answers what a test has it answer: what is asked,
//! what is printed, and how the program ends. Nothing here needs privileges.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Output;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use assert_cmd::Command;
use netrig_lb::message::{ConnectionEntry, Flow, Protocol, Reply, Request, RuleChange, Trace, TraceRequest};
use serde_json::{Value, json};
use tempfile::TempDir;

fn command(program: &Path, home: &Path, arguments: &str) -> Command {
    let mut command = Command::new(program);
    command.timeout(Duration::from_secs(60)).env("NETRIG_RUN", home).env_remove("NETRIG_LB");
    command.args(arguments.split_whitespace());
    command
}

fn netrig(home: &Path, arguments: &str) -> Command {
    command(Path::new(env!("CARGO_BIN_EXE_netrig")), home, arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An answer as it is sent.
fn answer(reply: &Reply) -> Value {
    json!({ "answer": { "number": 0, "value": { "answer": reply } } })
}

fn part(reply: &Reply) -> Value {
    json!({ "part": { "number": 0, "value": { "answer": reply } } })
}

/// A control plane of this name that answers one request, with these lines.
struct Fake {
    home: TempDir,
    asked: Option<JoinHandle<Request>>,
}

impl Fake {
    fn new(name: &str, replies: impl IntoIterator<Item = Value> + Send + 'static) -> Self {
        let home = TempDir::new().unwrap();
        fs::create_dir(home.path().join("lb")).unwrap();
        let listener = UnixListener::bind(home.path().join(format!("lb/{name}.sock"))).unwrap();
        let asked = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let greeting: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
            let mut out = std::io::BufWriter::new(&stream);
            writeln!(out, "{greeting}").unwrap();
            out.flush().unwrap();
            let mut request: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
            for reply in replies {
                // The client may have taken enough.
                if writeln!(out, "{reply}").is_err() {
                    break;
                }
            }
            let _ = out.flush();
            serde_json::from_value(request["request"]["ask"].take()).unwrap()
        });
        Self { home, asked: Some(asked) }
    }

    /// What `netrig lb` with these arguments prints, and what it asked for.
    fn run(mut self, arguments: &str, input: &str) -> (Output, Request) {
        let output = netrig(self.home.path(), arguments).write_stdin(input).output().unwrap();
        (output, self.asked.take().unwrap().join().unwrap())
    }
}

fn entry(number: u32) -> ConnectionEntry {
    ConnectionEntry {
        protocol: Protocol::Tcp,
        state: "ESTABLISHED".to_owned(),
        expires: 90,
        client: format!("198.51.{}.{}:40000", number / 256 % 256, number % 256).parse().unwrap(),
        service: "192.0.2.1:80".parse().unwrap(),
        local: Some("10.0.0.200:1025".parse().unwrap()),
        backend: "10.0.0.11:8080".parse().unwrap(),
    }
}

#[test]
fn edits_are_silent_when_all_is_well() {
    let (output, asked) = Fake::new("lb", [answer(&Reply::Done(Vec::new()))]).run("lb -D -t 192.0.2.1:80", "");
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(0), String::new(), String::new())
    );
    assert!(matches!(asked, Request::Edit(RuleChange::DeleteService { .. })), "{asked:?}");
}

#[test]
fn what_there_is_to_say_is_not_for_programs() {
    let note = "tcp 192.0.2.1:80 is not in force: it lacks a backend";
    let (output, _) = Fake::new("lb", [answer(&Reply::Done(vec![note.to_owned()]))]).run("lb -A -t 192.0.2.1:80", "");
    assert_eq!((text(&output.stdout), text(&output.stderr)), (String::new(), format!("{note}\n")));
}

#[test]
fn a_refusal_tells_the_next_step() {
    let refused = json!({ "refused": { "number": 0, "why": { "what": "No such service", "hint": "add it with -A" } } });
    let (output, _) = Fake::new("lb", [refused]).run("lb -D -t 192.0.2.1:80", "");
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(2), "netrig: No such service: add it with -A\n".into())
    );
}

#[test]
fn rules_are_restored_in_one_request() {
    let rules = "# kept\nipvsadm -C\n-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r 10.0.0.11 -m\n";
    let (output, asked) = Fake::new("edge", [answer(&Reply::Done(Vec::new()))]).run("lb -R --name edge", rules);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let Request::Edits(edits) = asked else { panic!("{asked:?}") };
    assert!(
        matches!(edits[..], [RuleChange::Clear, RuleChange::AddService { .. }, RuleChange::AddBackend { .. }]),
        "{edits:?}"
    );
    // A mistake is found before anything is asked: there is no balancer here at all.
    let home = TempDir::new().unwrap();
    let output = netrig(home.path(), "lb -R").write_stdin("-C\n-A -t 192.0.2.1:80 --pe sip\n").output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("standard input, line 2: --pe is refused"), "{said}");
}

#[test]
fn connections_are_printed_as_they_come() {
    let batches = |batches: u32| {
        (0..batches).map(move |batch| {
            let entries = (0..100).map(|number| entry(batch * 100 + number)).collect();
            let reply = Reply::Connections(entries);
            if batch + 1 == batches { answer(&reply) } else { part(&reply) }
        })
    };
    let (output, asked) = Fake::new("lb", batches(500)).run("lb -L -n -c", "");
    let printed = text(&output.stdout);
    assert_eq!(printed.lines().count(), 2 + 50_000);
    let row = "TCP 01:30  ESTABLISHED 198.51.0.0:40000   192.0.2.1:80       10.0.0.11:8080     10.0.0.200:1025";
    assert_eq!(printed.lines().nth(2), Some(row));
    assert!(matches!(asked, Request::Connections(filter) if filter == Default::default()));
    let (output, _) = Fake::new("lb", batches(3)).run("lb -Lnc --json", "");
    let lines: Vec<ConnectionEntry> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[299]), (300, &entry(299)));
    // An end in the middle is told; what has come is printed.
    let (output, _) = Fake::new("lb", batches(3).take(2)).run("lb -L -n -c", "");
    assert_eq!((output.status.code(), text(&output.stdout).lines().count()), (Some(4), 202));
}

#[test]
fn no_connection_is_a_table_without_rows() {
    let none = || [answer(&Reply::Connections(Vec::new()))];
    let (output, _) = Fake::new("lb", none()).run("lb -L -c", "");
    assert_eq!(text(&output.stdout).lines().count(), 2);
    let (output, _) = Fake::new("lb", none()).run("lb -L -c --json", "");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_flow_is_traced() {
    let trace = Trace {
        device: "eth0".to_owned(),
        steps: vec!["no service".to_owned()],
        verdict: "pass".to_owned(),
        reason: None,
        packet_out: None,
    };
    let reply = || [answer(&Reply::Trace(Box::new(trace.clone())))];
    let line = "lb trace tcp 198.51.100.9:40000 > 192.0.2.1:80 [syn|ack]";
    let (output, asked) = Fake::new("lb", reply()).run(line, "");
    let Request::Trace(TraceRequest { flow: Flow { tcp_flags, length, .. }, device: None, .. }) = asked else {
        panic!("{asked:?}")
    };
    assert_eq!((tcp_flags, length), (0x12, 40));
    assert!(text(&output.stdout).ends_with("  1. no service\nverdict: pass\n"), "{}", text(&output.stdout));
    let (output, _) = Fake::new("lb", reply()).run("lb trace --json tcp 198.51.100.9:40000 192.0.2.1:80", "");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["verdict"], "pass");
    // In by a device that is said; an answer for another one is that of an older version.
    let (output, asked) =
        Fake::new("lb", reply()).run("lb trace --device eth0 tcp 198.51.100.9:40000 192.0.2.1:80", "");
    assert!(
        output.status.success()
            && matches!(asked, Request::Trace(TraceRequest { device: Some(name), .. }) if name == "eth0")
    );
    let (output, _) = Fake::new("lb", reply()).run("lb trace --device eth1 tcp 198.51.100.9:40000 192.0.2.1:80", "");
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(4) && said.contains("restart it with this version"), "{said}");
}

#[test]
fn mistakes_are_told_without_a_balancer() {
    let home = TempDir::new().unwrap();
    for (line, words) in [
        ("lb -A -t 192.0.2.1:80 -f 1", "-f, --fwmark-service is refused"),
        ("lb -L --name a/b", "'a/b' is not a name"),
        ("lb trace icmp 1.1.1.1:1 2.2.2.2:2", "'icmp' is neither tcp nor udp"),
        ("lb trace udp 1.1.1.1:1", "there is no destination"),
    ] {
        let output = netrig(home.path(), line).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(words), "{line}: {said}");
    }
}

#[test]
fn a_balancer_that_does_not_run_is_told_with_the_command_that_starts_it() {
    let home = TempDir::new().unwrap();
    for (line, name) in [
        ("lb -L -n", "lb"),
        ("lb -A -t 192.0.2.1:80 --name edge", "edge"),
        ("lb status", "lb"),
        ("lb drops --name edge", "edge"),
        ("lb metrics", "lb"),
        ("lb trace tcp 1.1.1.1:1 2.2.2.2:2", "lb"),
    ] {
        let output = netrig(home.path(), line).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains(&format!("`netrig lb run --name {name}`")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(output.stdout.is_empty());
    }
    let output = netrig(home.path(), "lb -L").env("NETRIG_LB", "scripts").output().unwrap();
    assert!(text(&output.stderr).contains("named scripts"), "{}", text(&output.stderr));
}

#[test]
fn a_link_named_ipvsadm_is_the_balancers_command_line() {
    let home = TempDir::new().unwrap();
    let link = home.path().join("ipvsadm");
    symlink(env!("CARGO_BIN_EXE_netrig"), &link).unwrap();
    for (line, status, words) in [
        ("", 3, "`netrig lb run --name lb`"),
        ("-Ln", 3, "`netrig lb run --name lb`"),
        ("drops", 3, "`netrig lb run --name lb`"),
        ("-A", 2, "-A needs a service"),
        ("--help", 0, ""),
    ] {
        let output = command(&link, home.path(), line).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(status) && said.contains(words), "'{line}': {said}");
    }
    let help = text(&command(&link, home.path(), "-h").output().unwrap().stdout);
    assert!(help.contains("-A|-E SERVICE") && help.contains("drops"), "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 110), "{help}");
    assert!(text(&command(&link, home.path(), "-v").output().unwrap().stdout).starts_with("netrig lb "));
}
