//! The sender: agrees with its receivers, connects, and fills the connections.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_load::driver::Cancel;
use rig_load::plan::{Engine, Flow, ReceiveMode, SendMode, TcpStream as Stream};
use rig_load::worker::embedded::{Counts, Protocol, Sender as Load, SenderSettings, Target};
use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::socket::{NamedAddress, ZonedAddress};
use socket2::{Domain, Socket, Type};

use super::console::{Console, Progress};
use super::sync::{Cycle, Event, Sender as Sync, State};
use super::test_plan::{Length, TestPlan};
use super::{chosen, data_ports, hosts, report, sync_ports, times};
use crate::counters::Snapshot;
use crate::test_run::{self, EndReason, Measurement, Start, TestEnd, read_some, wait_readable};

/// For an answer of the receiver, where no option says how long.
const ANSWER: Duration = Duration::from_secs(30);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);
/// A receiver ends its test about when the sender does. It is given this long before the connections are closed: the
/// original waits for ever for connections that ended too early.
const OVERTIME: Duration = Duration::from_secs(3);
/// For a receiver to confirm that the test is over.
const SILENCE: Duration = Duration::from_millis(500);
/// Between two questions whether the receiver's test is over.
const ASK: Duration = Duration::from_millis(50);
/// An end that is not more than this before its time is as good as on time: the receiver's clock started first.
const EARLY: Duration = Duration::from_secs(1);

/// Runs the sender to its end.
pub fn run(plan: &TestPlan, cancel: &Cancel, console: &Console) -> Result<Exit, Failure> {
    let hosts = hosts(plan, cancel)?;
    if !plan.sync {
        console.info("Starting sender activity (no sync) ...");
    }
    let mut lines = Vec::new();
    for at in sync_ports(plan, &hosts) {
        lines.push(SyncConnection::connect(plan, at, cancel).or_exit(Exit::Failed)?);
    }
    let cycle = agree(plan, &mut lines, cancel, console).or_exit(Exit::Failed)?;

    console.info(&format!("{} threads created", plan.threads()));
    let chosen = chosen(plan);
    let since = Instant::now();
    let load = Load::open(&sending(plan, &hosts), &|| cancel.is_cancelled()).or_exit(Exit::Failed)?;
    load.notes().iter().for_each(|note| console.remark(note));
    for (local, remote) in load.addresses() {
        console.detail(&format!("New connection: local:{local} --> {remote}"));
    }
    let connections = load.connections();
    console.info(&format!("{connections} connections created in {} microseconds", since.elapsed().as_micros()));

    begin(plan, &mut lines, cancel, console).or_exit(Exit::Failed)?;
    console.progressing();
    let begun = Some(Start { counts: load.counts(), machine: Snapshot::take(&chosen) });
    load.start();
    let mut crew = ActiveSender { cancel, load, lines, begun };
    let measured =
        test_run::run(&mut crew, &mut Progress(console), &times(plan, cycle), &chosen).or_exit(Exit::Failed)?;
    let end = measured.as_ref().map_or(EndReason::Interrupted, |measured| measured.end);
    let rtt_us = (plan.protocol == Protocol::Tcp).then(|| crew.load.mean_rtt_us()).flatten();
    let ended = crew.load.ended();
    crew.part(end)?;
    let Some(measured) = measured else { return Ok(Exit::Stopped) };
    let planned = match times(plan, cycle) {
        test_run::Times { warm_up, window: Some(window), total, .. } => {
            Some((warm_up + window).min(total.unwrap_or(Duration::MAX)))
        }
        _ => None,
    };
    let verdict = judge(plan, &measured, planned, ended, console);
    report::write(plan, &measured, &report::ConnectionFigures { connections: Some(connections), rtt_us }, console)?;
    verdict
}

/// What is to be thought of how the test ended.
fn judge(
    plan: &TestPlan,
    measured: &Measurement,
    planned: Option<Duration>,
    ended: usize,
    console: &Console,
) -> Result<Exit, Failure> {
    let early = planned.is_none_or(|planned| measured.ran + EARLY < planned);
    let counted = matches!(plan.length, Length::Messages { .. });
    match measured.end {
        EndReason::Dry | EndReason::Stopped if early && !(counted && measured.end == EndReason::Dry) => {
            console.error(&format!("the receiver ended the test after {:.2} seconds", measured.ran.as_secs_f64()));
            Ok(Exit::Failed)
        }
        EndReason::Stalled => {
            let timeout = plan.stall_timeout.unwrap_or_default();
            console.error(&format!("nothing could be sent for {timeout:?} (-to): look at the receiver"));
            Ok(Exit::Failed)
        }
        _ => {
            if ended > 0 && !counted && early {
                console.error(&format!("the receiver closed the connections of {ended} threads before the end"));
            }
            Ok(Exit::Done)
        }
    }
}

fn sending(plan: &TestPlan, hosts: &[ZonedAddress]) -> SenderSettings {
    let ports = data_ports(plan, hosts).into_iter();
    let targets = ports.flat_map(|(to, cpu)| (0..plan.threads_per_port).map(move |_| Target { to, cpu })).collect();
    SenderSettings {
        stream: Stream {
            flow: Flow::Forward,
            threads: plan.threads(),
            connections: plan.connections_per_thread,
            message: plan.message,
            send_buffer: plan.send_buffer,
            receive_buffer: plan.receive_buffer,
            no_delay: plan.no_delay,
            throttle: plan.throttle,
            congestion_control: None,
            options: Default::default(),
            engine: plan.outstanding.map_or(Engine::Blocking, |outstanding| Engine::Uring { outstanding }),
            send_mode: SendMode::Copy,
            receive_mode: ReceiveMode::Copy,
        },
        protocol: plan.protocol,
        targets,
        source: plan.source,
        source_port: plan.source_port,
        pacing: plan.pacing,
        quota: match plan.length {
            Length::Messages { each, .. } => Some(each),
            _ => None,
        },
        timeout: plan.connect_timeout,
        time_limit: plan.time_limit,
    }
}

/// Settles with all receivers how long the test lasts: as long as the one that wants it longest.
fn agree(plan: &TestPlan, lines: &mut [SyncConnection], cancel: &Cancel, console: &Console) -> anyhow::Result<Cycle> {
    let own = plan.cycle();
    let mut longest = None;
    for line in lines.iter_mut() {
        line.write(line.hello)?;
        loop {
            let Event::Agreed(cycle) = line.event(cancel, plan.answer_ns())? else { continue };
            longest = Some(match longest {
                Some(Cycle::Seconds(longest)) => match cycle {
                    Cycle::Seconds(seconds) => Cycle::Seconds(seconds.max(longest)),
                    Cycle::Endless => Cycle::Endless,
                },
                Some(Cycle::Endless) => Cycle::Endless,
                None => cycle,
            });
            break;
        }
    }
    let cycle = longest.unwrap_or(own);
    // As the original: also when the test is as long as this end wants it, but not alone.
    if !lines.is_empty() && plan.seconds().map(Cycle::Seconds) != Some(cycle) {
        match cycle {
            Cycle::Endless => console.info("test is negotiated to run with continuous mode"),
            Cycle::Seconds(seconds) => console.info(&format!("Test cycle time negotiated is: {seconds} seconds")),
        }
    }
    Ok(cycle)
}

/// Asks all receivers to begin.
fn begin(plan: &TestPlan, lines: &mut [SyncConnection], cancel: &Cancel, console: &Console) -> anyhow::Result<()> {
    for line in lines {
        let message = line.sync.start(plan.last);
        line.write(message)?;
        let mut deadline_ns = plan.answer_ns();
        loop {
            match line.event(cancel, deadline_ns)? {
                Event::Wait => {
                    console.info("waiting for the last client to join the test");
                    deadline_ns = plan.stall_timeout.map_or(u64::MAX, monotonic_after);
                }
                Event::Run => break,
                _ => {}
            }
        }
    }
    Ok(())
}

impl TestPlan {
    /// When an answer that is asked for now is overdue.
    fn answer_ns(&self) -> u64 {
        monotonic_after(self.stall_timeout.unwrap_or(ANSWER))
    }
}

/// The sync connection to one receiver.
#[derive(Debug)]
struct SyncConnection {
    stream: TcpStream,
    to: NamedAddress,
    sync: Sync,
    hello: [u8; 4],
    events: std::collections::VecDeque<Event>,
    open: bool,
}

impl SyncConnection {
    fn connect(plan: &TestPlan, at: SocketAddr, cancel: &Cancel) -> anyhow::Result<Self> {
        let to = NamedAddress::from(at);
        let time_limit = Instant::now() + plan.time_limit;
        let stream = loop {
            match dial(plan, at) {
                Ok(stream) => break stream,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    if Instant::now() >= time_limit {
                        bail!(
                            "no receiver listens on {to} for synchronisation: start it first, with the same base port, \
                             or give both ends the option without synchronisation"
                        );
                    }
                    if cancel.is_cancelled() {
                        bail!("interrupted before {to} was reached");
                    }
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error).with_context(|| format!("connect to {to} for synchronisation")),
            }
        };
        let (sync, hello) = Sync::new(plan.cycle());
        Ok(Self { stream, to, sync, hello, events: std::collections::VecDeque::new(), open: true })
    }

    fn write(&mut self, message: [u8; 4]) -> anyhow::Result<()> {
        // The socket's buffer has room for four bytes, even if the peer reads nothing.
        self.stream.write_all(&message).with_context(|| format!("write to the receiver at {}", self.to))
    }

    /// The next thing that the receiver has to say.
    fn event(&mut self, cancel: &Cancel, deadline_ns: u64) -> anyhow::Result<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if !self.open {
                bail!("the receiver at {} closed the sync connection: has it ended, or is it no NTttcp?", self.to);
            }
            let ready = wait_readable(&[cancel.as_fd(), self.stream.as_fd()], deadline_ns).context("wait")?;
            match (ready[0], ready[1]) {
                (true, _) => bail!("interrupted while waiting for the receiver at {}", self.to),
                (_, true) => self.read()?,
                _ => bail!("the receiver at {} does not answer", self.to),
            }
        }
    }

    /// Takes what the receiver has said.
    fn read(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0u8; 64];
        let Some(n) = read_some(&self.stream, &mut buffer) else {
            self.open = false;
            return Ok(());
        };
        let events = self.sync.bytes(&buffer[..n]).map_err(|error| anyhow!("receiver at {}: {error}", self.to))?;
        for event in events {
            if let Event::Free { next } = event {
                self.write(next)?;
            }
            self.events.push_back(event);
        }
        Ok(())
    }

    /// What the receiver says about its state within a moment; `None` when it has gone or says nothing.
    fn state(&mut self, cancel: &Cancel, deadline_ns: u64) -> Option<State> {
        while self.open {
            if let Event::State(state) = self.event_despite(cancel, deadline_ns)? {
                return Some(state);
            }
        }
        None
    }

    /// As [`Self::event`], but also after the user has interrupted the run.
    fn event_despite(&mut self, cancel: &Cancel, deadline_ns: u64) -> Option<Event> {
        if !cancel.is_cancelled() {
            return self.event(cancel, deadline_ns).ok();
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let ready = wait_readable(&[self.stream.as_fd()], deadline_ns).ok()?;
            if !ready[0] || !self.open {
                return None;
            }
            self.read().ok()?;
        }
    }
}

fn dial(plan: &TestPlan, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = plan.source {
        socket.bind(&source.at(0).into())?;
    }
    socket.connect_timeout(&to.into(), plan.connect_timeout)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The sender at work.
struct ActiveSender<'a> {
    cancel: &'a Cancel,
    load: Load,
    lines: Vec<SyncConnection>,
    begun: Option<Start>,
}

impl TestEnd for ActiveSender<'_> {
    fn counts(&self) -> Vec<Counts> {
        self.load.counts()
    }

    fn begun(&mut self) -> Option<Start> {
        self.begun.take()
    }

    fn serve(&mut self, until_ns: u64) -> anyhow::Result<Option<EndReason>> {
        loop {
            if self.cancel.is_cancelled() {
                return Ok(Some(EndReason::Interrupted));
            }
            if self.load.is_ended() {
                return Ok(Some(EndReason::Dry));
            }
            if !self.lines.is_empty() && self.lines.iter().all(|line| !line.open) {
                return Ok(Some(EndReason::Stopped));
            }
            if monotonic_ns() >= until_ns {
                return Ok(None);
            }
            let open: Vec<usize> = (0..self.lines.len()).filter(|&at| self.lines[at].open).collect();
            let mut fds = vec![self.cancel.as_fd(), self.load.news()];
            fds.extend(open.iter().map(|&at| self.lines[at].stream.as_fd()));
            let ready = wait_readable(&fds, until_ns).context("wait")?;
            drop(fds);
            if ready[1] {
                self.load.clear();
            }
            for (slot, at) in open.into_iter().enumerate() {
                if ready[2 + slot] {
                    self.lines[at].read()?;
                }
            }
        }
    }
}

impl ActiveSender<'_> {
    /// Ends the test with the receivers. The load goes on meanwhile: connections that end before the receiver's clock
    /// would leave the original waiting for ever.
    fn part(mut self, end: EndReason) -> Result<(), Failure> {
        let deadline_ns = monotonic_after(OVERTIME);
        let mut over = vec![end != EndReason::Due; self.lines.len()];
        let mut asked = vec![false; self.lines.len()];
        // With datagrams and no sync connection the receiver cannot say that it wants no more of them.
        let can_tell = !self.lines.is_empty() || self.load.mean_rtt_us().is_some();
        while end == EndReason::Due && can_tell && monotonic_ns() < deadline_ns && !self.cancel.is_cancelled() {
            for (at, line) in self.lines.iter_mut().enumerate().filter(|(_, line)| line.open) {
                if !over[at] && !asked[at] {
                    let message = line.sync.ask();
                    asked[at] = line.write(message).is_ok();
                }
                while let Some(event) = line.events.pop_front() {
                    if let Event::State(state) = event {
                        (over[at], asked[at]) = (state != State::Running, false);
                    }
                }
            }
            let agreed = self.lines.iter().zip(&over).all(|(line, over)| *over || !line.open);
            // A receiver that has ended closes its connections, whether or not it answers before.
            if self.load.is_ended() || (agreed && !self.lines.is_empty()) {
                break;
            }
            if self.serve(monotonic_after(ASK)).is_err() {
                break;
            }
        }
        if end == EndReason::Dry {
            // The message to the receiver must not overtake the data that was sent before.
            self.load.finish(monotonic_after(OVERTIME), &|| self.cancel.is_cancelled()).or_exit(Exit::Failed)?;
        }
        for (at, line) in self.lines.iter_mut().enumerate() {
            let told = end == EndReason::Due && (over[at] || self.load.is_ended());
            let message = line.sync.exit();
            if !told && line.open && line.write(message).is_ok() {
                // The receiver confirms. One that does not has ended.
                line.state(self.cancel, monotonic_after(SILENCE));
            }
        }
        self.load.stop().or_exit(Exit::Failed)
    }
}
