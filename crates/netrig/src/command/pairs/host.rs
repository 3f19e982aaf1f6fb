//! A host of the pairs: a thread of this process holds its connection, its server, and the client of each test that begins there.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rig_cli::exit::in_words;
use rig_cli::streams::note;
use rig_facts::record::{Environment, TrialRecord};
use rig_load::driver::Cancel;
use rig_load::plan::{Load, Phases};
use rig_stats::units::Span;
use rig_sys::piped::PipedProcess;
use rig_testbed::host::{Host, HostInterface, Program, Remote};
use rig_verdict::export::TestData;
use serde_json::Value;

use super::super::hosts::NamedHost;
use super::super::remote_server::{Killed, PATIENCE, RemoteServer, last_line, reach, read};

/// What all hosts' servers have, and which ports one has.
#[derive(Debug)]
pub struct ServerSettings<'a> {
    pub key: &'a str,
    pub ports: ServerPorts,
}

/// Ports of a server; the kernel chooses where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerPorts {
    pub control: u16,
    pub data: Option<u16>,
}

/// What a host is, once it is reached and its server listens.
#[derive(Debug)]
pub struct ReachedHost {
    pub environment: Environment,
    pub interfaces: Vec<HostInterface>,
    /// CPUs that netrig may use there.
    pub cpus: u32,
    /// Of its server.
    pub port: u16,
}

/// A test from this host to another one.
#[derive(Debug, Clone)]
pub struct ClientTest {
    pub address: IpAddr,
    pub port: u16,
    pub load: Load,
    pub phases: Phases,
}

/// Reaches a host and makes the tests that begin there, until no more come: says what it is, and the outcome of each.
pub fn run(
    host: &NamedHost,
    program: &Path,
    server: &ServerSettings<'_>,
    cancel: &Cancel,
    reached: &Sender<Result<ReachedHost>>,
    tests: Receiver<ClientTest>,
    outcomes: &Sender<Result<TrialRecord>>,
) {
    let ServerSettings { key, ports } = server;
    // It dies with the thread that reaches it.
    let begun = reach(host, program, cancel).and_then(|remote| {
        let server = RemoteServer::start(&remote, *ports, key, cancel)?;
        // They tell why a pair is slow, where this user may ask for them: a test needs no rights.
        let cards = remote.cards().unwrap_or_default();
        let environment = Environment { cards, ..remote.environment()? };
        let interfaces = remote.interfaces()?;
        let cpus = u32::try_from(remote.facts()?.cpus.len())?;
        let facts = ReachedHost { environment, interfaces, cpus, port: server.port };
        Ok((remote, server, facts))
    });
    let (remote, _server, facts) = match begun {
        Ok((remote, server, facts)) => (remote, server, facts),
        // The receiver has gone where the run was given up.
        Err(error) => return drop(reached.send(Err(error))),
    };
    if reached.send(Ok(facts)).is_err() {
        return;
    }
    for test in tests {
        if outcomes.send(carry_out(&remote, &host.name, key, &test, cancel)).is_err() {
            return;
        }
    }
}

fn carry_out(remote: &Remote, name: &str, key: &str, test: &ClientTest, cancel: &Cancel) -> Result<TrialRecord> {
    let ClientTest { address, port, load, phases } = test;
    let span = |span: Duration| Span(span).to_string();
    let mut arguments: Vec<String> = match load {
        Load::TcpStream(stream) => {
            vec!["stream".into(), "--message".into(), stream.message.to_string()]
        }
        Load::TcpRr(rr) => ["rr", "--request", &rr.request.to_string(), "--response", &rr.response.to_string()]
            .map(str::to_owned)
            .into(),
        other => bail!("{} is no load of pairs", other.name()),
    };
    let (threads, connections) = load.shape();
    let (threads, connections) = (threads.to_string(), connections.to_string());
    let (address, port) = (address.to_string(), port.to_string());
    let (window, warm_up) = (span(phases.window), span(phases.warm_up));
    let options = [
        ("--client", &address),
        ("--port", &port),
        ("--threads", &threads),
        ("--connections", &connections),
        ("--time", &window),
        ("--interval", &window),
        ("--warm-up", &warm_up),
    ];
    arguments.extend(options.into_iter().flat_map(|(option, value)| [option.to_owned(), value.clone()]));
    arguments.extend(["--key-file", "-", "--quiet", "--no-store", "--format", "json"].map(str::to_owned));
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let PipedProcess { mut stdin, stdout, stderr, life } = remote.start_beside(&Program::netrig(&words))?;
    let mut life = Killed(life);
    // A client that ended at once says why.
    let _ = writeln!(stdin, "{key}");
    let deadline = Instant::now() + phases.warm_up + phases.window + phases.cool_down + PATIENCE;
    let said = read(&stdout, deadline, cancel, |_| false)?;
    let told = trial_of(&said);
    let ended = read(&stderr, deadline, cancel, |_| false).and_then(|errors| {
        let status = life.0.wait().context("wait for the client")?;
        let why = || anyhow!(last_line(&errors).map_or_else(|| status.to_string(), str::to_owned));
        if status.success() { Ok(()) } else { Err(why()) }
    });
    match (told, ended) {
        // However the client ended, this was measured.
        (Ok(record), Ok(())) => Ok(record),
        (Ok(record), Err(why)) => {
            note(format_args!("The client at {name} ended badly after its report: {}", in_words(&why)));
            Ok(record)
        }
        (Err(_), Err(why)) => Err(why),
        (Err(unread), Ok(())) => Err(unread),
    }
}

/// The trial of a client's report.
fn trial_of(said: &[u8]) -> Result<TrialRecord> {
    let report: BTreeMap<String, Value> = serde_json::from_slice(said).context("read the client's report")?;
    let data = report.get("data").cloned().context("read the client's report")?;
    let data: TestData = serde_json::from_value(data).context("read the client's report")?;
    data.trials.into_iter().next().context("the client made no trial")
}
