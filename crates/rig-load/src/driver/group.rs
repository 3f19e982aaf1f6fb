//! The workers of one trial, from spawning to their records.

use std::fmt;
use std::time::Duration;

use rig_sys::clock::monotonic_after;
use rustix::event::{PollFd, PollFlags};

use super::process::Process;
use super::{Cancel, DriverError, SampleCallback, Worker, WorkerFailure, WorkerPair};
use crate::plan::{Load, Phases, Role, Times, WorkerPlan};
use crate::protocol::{Event, Order};
use crate::record::WorkerRecord;
use crate::wait::{DeadlinePoll, is_ready};

/// How long a worker may take to send its record once the load is over, and then to end.
///
/// Longer than ssh(1) puts up with a host that is silent, so that a link that stalls no longer than that costs no trial.
const FINISH_TIMEOUT: Duration = Duration::from_secs(30);

/// After one failure, how long others are waited for: the cause may be reported after its consequence.
const AFTERMATH: Duration = Duration::from_millis(20);

/// How far a worker has come.
#[derive(Debug)]
enum WorkerStage {
    /// Its plan waits for the port of the listener before it in the list.
    Waiting(Box<WorkerPlan>),
    Opening,
    Connected,
    Done(Box<WorkerRecord>),
}

#[derive(Debug)]
pub(super) struct GroupMember {
    pub(super) process: Process,
    /// See [`super::Worker::clock_ns`].
    pub(super) clock_ns: i64,
    background: bool,
    /// Whether it carries nothing, as the other end of a flood does.
    is_idle: bool,
    stage: WorkerStage,
    failure: Option<Failure>,
}

#[derive(Debug)]
enum Failure {
    Said(String),
    Died,
}

impl GroupMember {
    fn is_connected(&self) -> bool {
        matches!(self.stage, WorkerStage::Connected | WorkerStage::Done(_))
    }

    fn is_done(&self) -> bool {
        matches!(self.stage, WorkerStage::Done(_))
    }
}

/// Listeners at even places, each followed by its connecting peer.
pub(super) struct WorkerGroup<'a> {
    pub(super) members: Vec<GroupMember>,
    waiter: DeadlinePoll,
    cancel: Cancel,
    on_sample: SampleCallback<'a>,
}

impl fmt::Debug for WorkerGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("members", &self.members).finish_non_exhaustive()
    }
}

impl<'a> WorkerGroup<'a> {
    pub(super) fn spawn(
        pairs: Vec<WorkerPair<'_>>,
        cancel: Cancel,
        on_sample: SampleCallback<'a>,
    ) -> Result<Self, DriverError> {
        let waiter = DeadlinePoll::new().map_err(|source| DriverError::System { what: "create a timer", source })?;
        let mut group = Self { members: Vec::with_capacity(2 * pairs.len()), waiter, cancel, on_sample };
        for worker in pairs.into_iter().flat_map(|pair| [pair.listen, pair.connect]) {
            let name = worker.label();
            let Worker { plan, spawn, clock_ns, background } = worker;
            let process = match spawn() {
                Ok(process) => Process::new(name, process),
                Err(source) => return Err(DriverError::Spawn { name, source }),
            };
            let is_idle = plan.load == Load::Idle;
            let stage = WorkerStage::Waiting(Box::new(plan));
            group.members.push(GroupMember { process, clock_ns, background, is_idle, stage, failure: None });
        }
        Ok(group)
    }

    /// Hands out the plans, listeners first, and waits until all connections stand.
    pub(super) fn connect(&mut self, timeout: Duration) -> Result<(), DriverError> {
        let deadline_ns = monotonic_after(timeout);
        for index in 0..self.members.len() {
            let WorkerStage::Waiting(plan) = &self.members[index].stage else { continue };
            // Only a worker that carries load has to know its peer's port, and a flood has no peer.
            let alone = index > 0 && matches!(plan.load, Load::Packets(_)) && self.members[index - 1].is_idle;
            if matches!(plan.role, Role::Listen { .. }) || plan.load == Load::Idle || alone {
                self.hand_plan(index, None)?;
            }
        }
        self.until(Some((deadline_ns, timeout, "connect")), GroupMember::is_connected)
    }

    fn hand_plan(&mut self, index: usize, port: Option<u16>) -> Result<(), DriverError> {
        let member = &mut self.members[index];
        let WorkerStage::Waiting(mut plan) = std::mem::replace(&mut member.stage, WorkerStage::Opening) else {
            return Ok(());
        };
        if let (Some(port), Role::Connect { to, .. }) = (port, &mut plan.role)
            && to.port() == 0
        {
            to.set_port(port);
        }
        send(&mut member.process, &Order::Plan(plan))
    }

    pub(super) fn go(
        mut self,
        lead: Duration,
        phases: Option<Phases>,
        drain: Duration,
    ) -> Result<RunningLoad<'a>, DriverError> {
        let start_ns = monotonic_after(lead);
        for member in &mut self.members {
            let start_ns = start_ns.saturating_add_signed(member.clock_ns);
            send(&mut member.process, &Order::Go { start_ns })?;
        }
        let Times { begin_ns, end_ns, stop_ns, .. } = match phases {
            Some(phases) => phases.starting_at(start_ns),
            None => Times { start_ns, begin_ns: start_ns, end_ns: start_ns, stop_ns: start_ns },
        };
        Ok(RunningLoad { group: self, begin_ns, end_ns, stop_ns, drain })
    }

    /// Lets events come until `done` holds for every worker. `limit` is the deadline, what it was made of, and what
    /// the workers are waited for.
    fn until(
        &mut self,
        limit: Option<(u64, Duration, &'static str)>,
        done: impl Fn(&GroupMember) -> bool,
    ) -> Result<(), DriverError> {
        while let Some(laggard) = self.members.iter().position(|member| !done(member)) {
            if !self.pump(limit.map(|(deadline_ns, ..)| deadline_ns))?
                && let Some((_, timeout, step)) = limit
            {
                let process = &mut self.members[laggard].process;
                let (name, stderr) = (process.name.clone(), process.stderr_tail());
                return Err(DriverError::Timeout { name, step, timeout, stderr });
            }
        }
        Ok(())
    }

    /// Waits for something to come from any worker and deals with it. False when `deadline_ns` came instead.
    fn pump(&mut self, deadline_ns: Option<u64>) -> Result<bool, DriverError> {
        let came = self.turn(deadline_ns)?;
        if self.members.iter().any(|member| member.failure.is_some()) {
            let aftermath_ns = monotonic_after(AFTERMATH);
            while self.turn(Some(aftermath_ns))? {}
            return Err(DriverError::Worker(self.blame()));
        }
        Ok(came)
    }

    fn turn(&mut self, deadline_ns: Option<u64>) -> Result<bool, DriverError> {
        let system = |source| DriverError::System { what: "wait for the workers", source };
        let mut fds = vec![self.cancel.event_fd().entry()];
        let mut whose = Vec::new();
        for (index, GroupMember { process, .. }) in self.members.iter().enumerate() {
            if let Some(stdout) = &process.stdout {
                fds.push(PollFd::new(stdout, PollFlags::IN));
                whose.push((index, true));
            }
            if let Some(stderr) = &process.stderr {
                fds.push(PollFd::new(stderr, PollFlags::IN));
                whose.push((index, false));
            }
        }
        self.waiter.wait(&mut fds, deadline_ns).map_err(system)?;
        let cancelled = is_ready(&fds[0]);
        let ready: Vec<_> = fds[1..].iter().zip(whose).filter(|(fd, _)| is_ready(fd)).map(|(_, whose)| whose).collect();
        if cancelled {
            return Err(DriverError::Cancelled);
        }
        for &(index, is_stdout) in &ready {
            if is_stdout { self.listen_to(index)? } else { self.members[index].process.read_stderr() }
        }
        Ok(!ready.is_empty())
    }

    /// Reads one worker's events.
    fn listen_to(&mut self, index: usize) -> Result<(), DriverError> {
        let member = &mut self.members[index];
        match member.process.events() {
            Ok(Some(events)) => events.into_iter().try_for_each(|event| self.take(index, event)),
            Ok(None) => {
                if !member.is_done() {
                    member.failure.get_or_insert(Failure::Died);
                }
                Ok(())
            }
            Err(error) => {
                member.process.stdout = None;
                member.failure.get_or_insert(Failure::Said(error.to_string()));
                Ok(())
            }
        }
    }

    fn take(&mut self, index: usize, event: Event) -> Result<(), DriverError> {
        let member = &mut self.members[index];
        match (event, &member.stage) {
            (Event::Listening { port }, WorkerStage::Opening) if index.is_multiple_of(2) => {
                return self.hand_plan(index + 1, Some(port));
            }
            (Event::Connected, WorkerStage::Opening) => member.stage = WorkerStage::Connected,
            (Event::Sample(sample), WorkerStage::Connected) => (self.on_sample)(&member.process.name, &sample),
            (Event::Done(mut record), WorkerStage::Connected) => {
                record.background = member.background;
                record.add_to_clock(member.clock_ns.saturating_neg());
                let is_packets = record.packets.is_some();
                member.stage = WorkerStage::Done(record);
                // The listening end serves until the other one is done.
                if is_packets && !index.is_multiple_of(2) && !self.members[index - 1].is_idle {
                    return send(&mut self.members[index - 1].process, &Order::Done);
                }
            }
            (Event::Failed { what, why }, _) => {
                member.failure.get_or_insert(Failure::Said(format!("{what}: {why}")));
            }
            (event, stage) => {
                let said = format!("it does not speak the protocol: {event:?} while {stage:?}");
                member.failure.get_or_insert(Failure::Said(said));
            }
        }
        Ok(())
    }

    /// The failure to report: a worker that died is the cause of what its peer complains about.
    fn blame(&mut self) -> WorkerFailure {
        let died = |member: &GroupMember| matches!(member.failure, Some(Failure::Died));
        let failed = |member: &GroupMember| member.failure.is_some();
        let index = self.members.iter().position(died).or_else(|| self.members.iter().position(failed));
        let GroupMember { process, failure, .. } = &mut self.members[index.unwrap_or_default()];
        let reason = match failure.take() {
            Some(Failure::Said(words)) => words,
            Some(Failure::Died) | None => match process.end() {
                Ok(status) => format!("the worker process died ({status})"),
                Err(error) => format!("the worker process died ({error})"),
            },
        };
        WorkerFailure { name: process.name.clone(), reason, stderr: process.stderr_tail() }
    }
}

fn send(process: &mut Process, order: &Order) -> Result<(), DriverError> {
    process.order(order).map_err(|source| DriverError::System { what: "write to a worker", source })
}

/// Workers under load. Dropping it kills them.
#[derive(Debug)]
pub struct RunningLoad<'a> {
    pub(super) group: WorkerGroup<'a>,
    begin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) stop_ns: u64,
    /// How long the load may take to come to its end.
    drain: Duration,
}

impl RunningLoad<'_> {
    /// The window's edges as planned or as told since, nanoseconds of CLOCK_MONOTONIC.
    pub fn window(&self) -> (u64, u64) {
        (self.begin_ns, self.end_ns)
    }

    /// Waits until `time_ns` of CLOCK_MONOTONIC, handing on samples meanwhile.
    ///
    /// # Errors
    /// At once when a worker fails or dies, or the run is cancelled.
    pub fn wait_until(&mut self, time_ns: u64) -> Result<(), DriverError> {
        while self.group.pump(Some(time_ns))? {}
        Ok(())
    }

    /// Waits for the end of the load and returns the records in the order of the pairs: listener, connector, listener...
    ///
    /// # Errors
    /// When a worker fails, dies or does not end, or the run is cancelled.
    pub fn finish(mut self) -> Result<Vec<WorkerRecord>, DriverError> {
        let timeout = FINISH_TIMEOUT + self.drain;
        let deadline_ns = self.stop_ns.saturating_add(timeout.as_nanos() as u64);
        self.group.until(Some((deadline_ns, timeout, "report its record")), GroupMember::is_done)?;
        let ended = |member: &GroupMember| member.process.stdout.is_none();
        self.group.until(Some((deadline_ns, timeout, "end")), ended)?;
        let mut records = Vec::with_capacity(self.group.members.len());
        for GroupMember { process, stage, .. } in &mut self.group.members {
            let status =
                process.wait().map_err(|source| DriverError::System { what: "wait for a worker to end", source })?;
            if !status.success() {
                let reason = format!("the worker process ended badly after its work was done ({status})");
                let (name, stderr) = (process.name.clone(), process.stderr_tail());
                return Err(DriverError::Worker(WorkerFailure { name, reason, stderr }));
            }
            if let WorkerStage::Done(record) = std::mem::replace(stage, WorkerStage::Opening) {
                records.push(*record);
            }
        }
        Ok(records)
    }
}
