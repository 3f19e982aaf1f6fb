//! Samples of other machines: on each runs `netrig top --json`, started by the `netrig host` that a command line reaches, and its lines come here.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rig_cli::exit::in_words;
use rig_sys::piped::PipedProcess;
use rig_testbed::host::{Host, Program, Remote};

use crate::compact;
use crate::sample::Sample;

/// The longest line that is taken, and the most of standard error.
const LONGEST: u64 = 4 << 20;

/// A machine that is to be looked at.
pub struct WatchedHost {
    pub name: String,
    pub reach: Box<dyn FnOnce() -> Result<Remote> + Send>,
}

impl fmt::Debug for WatchedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedHost").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What is heard of a host.
#[derive(Debug)]
pub(crate) enum HostEvent {
    Sample(Box<Sample>),
    /// All samples that were asked for have come, or why no more come.
    Ended(Result<(), String>),
}

/// Hosts that are looked at, each by a thread of its own.
#[derive(Debug)]
pub(crate) struct Hosts {
    events: Receiver<(usize, HostEvent)>,
    names: Vec<String>,
}

impl Hosts {
    /// Reaches them all at a time, and has each run netrig with these arguments.
    ///
    /// # Errors
    /// Where a thread cannot be started.
    pub(crate) fn watch(hosts: Vec<WatchedHost>, arguments: &[String]) -> Result<Self> {
        let (to_events, events) = mpsc::channel();
        let names = hosts.iter().map(|host| host.name.clone()).collect();
        for (number, host) in hosts.into_iter().enumerate() {
            let (events, arguments) = (to_events.clone(), arguments.to_vec());
            let name = format!("host {}", host.name);
            // The connection lives as long as the thread.
            let follow = move || {
                let result = follow(host, &arguments, number, &events).map_err(|error| in_words(&error));
                // Nobody listens any more where the view has ended.
                let _ = events.send((number, HostEvent::Ended(result)));
            };
            thread::Builder::new().name(name).spawn(follow).context("start a thread")?;
        }
        Ok(Self { events, names })
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// What is heard next, of the host with this number; `None` where that is nothing for so long.
    pub(crate) fn next(&self, limit: Duration) -> Option<(usize, HostEvent)> {
        self.events.recv_timeout(limit).ok()
    }
}

fn follow(host: WatchedHost, arguments: &[String], number: usize, events: &Sender<(usize, HostEvent)>) -> Result<()> {
    let remote = (host.reach)()?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let PipedProcess { stdin, stdout, stderr, mut life } = remote.start_beside(&Program::netrig(&words))?;
    // It reads nothing.
    drop(stdin);
    let mut lines = BufReader::new(File::from(stdout));
    let mut line = Vec::new();
    while lines.by_ref().take(LONGEST).read_until(b'\n', &mut line).context("read samples")? > 0 {
        if !line.ends_with(b"\n") {
            if line.len() as u64 >= LONGEST {
                life.kill()?;
                bail!("it writes a line of more than {LONGEST} bytes");
            }
            break;
        }
        let sample = compact::read(&line).context("read a sample")?;
        if events.send((number, HostEvent::Sample(Box::new(sample)))).is_err() {
            return Ok(());
        }
        line.clear();
    }
    let mut said = String::new();
    // What it said may be cut, or be no text: its status tells then.
    let _ = File::from(stderr).take(LONGEST).read_to_string(&mut said);
    let status = life.wait()?;
    let said = said.lines().find_map(|line| line.strip_prefix("netrig: "));
    match (status.success(), said) {
        (true, _) => Ok(()),
        (false, Some(said)) => bail!("{said}"),
        (false, None) => Err(anyhow!("netrig top ended there ({status})")),
    }
}
