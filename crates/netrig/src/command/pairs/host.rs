//! A host of the pairs: a thread of this process holds its connection, its server, and the client of each test that begins there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rig_cli::exit::StoppedByUser;
use rig_facts::record::{Environment, TrialRecord};
use rig_load::driver::Cancel;
use rig_load::plan::{Load, Phases};
use rig_stats::units::Span;
use rig_sys::piped::{PipedProcess, ProcessHandle};
use rig_testbed::host::{Host, HostInterface, Program, Remote};
use rig_verdict::export::TestData;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use super::super::hosts::NamedHost;

/// How long a server may take until it listens, and a client until it has said all after its test.
const PATIENCE: Duration = Duration::from_secs(30);

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
pub struct Errand {
    pub address: IpAddr,
    pub port: u16,
    pub load: Load,
    pub phases: Phases,
}

/// What the server says of itself, on standard output.
#[derive(Debug, Deserialize)]
struct Listening {
    port: u16,
}

/// Holds a host until no more errands come: says what it is, and the outcome of each.
pub fn hold(
    host: &NamedHost,
    program: &Path,
    key: &str,
    cancel: &Cancel,
    reached: &Sender<Result<ReachedHost>>,
    errands: Receiver<Errand>,
    outcomes: &Sender<Result<TrialRecord>>,
) {
    // It dies with the thread that reaches it.
    let begun = Remote::reach(&host.access, program).and_then(|remote| {
        let (server, port) = serve(&remote, key, cancel)?;
        let environment = Environment { cards: remote.cards()?, ..remote.environment()? };
        let interfaces = remote.interfaces()?;
        let cpus = u32::try_from(remote.facts()?.cpus.len())?;
        Ok((remote, server, ReachedHost { environment, interfaces, cpus, port }))
    });
    let (remote, _server, facts) = match begun {
        Ok((remote, server, facts)) => (remote, server, facts),
        // The receiver has gone where the run was given up.
        Err(error) => return drop(reached.send(Err(error))),
    };
    if reached.send(Ok(facts)).is_err() {
        return;
    }
    for errand in errands {
        if outcomes.send(carry_out(&remote, key, &errand, cancel)).is_err() {
            return;
        }
    }
}

/// A process that is killed when it is not needed any more.
struct Killed(Box<dyn ProcessHandle>);

impl Drop for Killed {
    fn drop(&mut self) {
        // It fails where the process has ended.
        let _ = self.0.kill();
    }
}

/// A server there for all that have the key, which ends with its standard input.
struct Server {
    _stdin: Box<dyn Write + Send>,
    _life: Killed,
    // Read no more: it says little, and what reads it here takes what comes.
    _outputs: [OwnedFd; 2],
}

fn serve(remote: &Remote, key: &str, cancel: &Cancel) -> Result<(Server, u16)> {
    let program = Program::netrig(&["serve", "--on-stdio", "--key-file", "-", "--port", "0"]);
    let PipedProcess { mut stdin, stdout, stderr, life } = remote.start_beside(&program)?;
    let life = Killed(life);
    writeln!(stdin, "{key}").context("give the server its key")?;
    let deadline = Instant::now() + PATIENCE;
    let line = read(&stdout, deadline, cancel, |text| text.contains(&b'\n'))?;
    let Ok(Listening { port }) = serde_json::from_slice(&line) else {
        let said = read(&stderr, deadline, cancel, |_| false)?;
        bail!("start a server: {}", last_line(&said).unwrap_or("it says nothing"));
    };
    Ok((Server { _stdin: stdin, _life: life, _outputs: [stdout, stderr] }, port))
}

fn carry_out(remote: &Remote, key: &str, errand: &Errand, cancel: &Cancel) -> Result<TrialRecord> {
    let Errand { address, port, load, phases } = errand;
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
    let errors = read(&stderr, deadline, cancel, |_| false)?;
    let status = life.0.wait().context("wait for the client")?;
    if !status.success() {
        let why = last_line(&errors).map_or_else(|| status.to_string(), str::to_owned);
        return Err(anyhow!(why.strip_prefix("netrig: ").unwrap_or(&why).to_owned()));
    }
    let report: BTreeMap<String, Value> = serde_json::from_slice(&said).context("read the client's report")?;
    let data = report.get("data").cloned().context("read the client's report")?;
    let data: TestData = serde_json::from_value(data).context("read the client's report")?;
    data.trials.into_iter().next().context("the client made no trial")
}

/// What comes until `is_whole`, or the end.
fn read(from: &OwnedFd, deadline: Instant, cancel: &Cancel, is_whole: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut file = File::from(from.try_clone().context("copy a descriptor")?);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("the host does not answer in time");
        }
        let mut fds = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN), PollFd::new(cancel, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::try_from(left).context("wait for a host")?)) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).context("wait for a host"),
        }
        if !fds[1].revents().is_empty() {
            return Err(StoppedByUser.into());
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        let mut piece = [0; 16 << 10];
        let count = file.read(&mut piece).context("read what a host says")?;
        text.extend_from_slice(&piece[..count]);
        if count == 0 || is_whole(&text) {
            return Ok(text);
        }
    }
}

fn last_line(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok()?.lines().map(str::trim).rfind(|line| !line.is_empty())
}
