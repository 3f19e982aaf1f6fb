//! Driving a group of workers: hand out the plans, start all at one moment, gather the records.
//!
//! [`Driver::start`] hands out the plans and returns a [`RunningLoad`], whose [`window`](RunningLoad::window) is the time that is measured. The
//! caller [waits](RunningLoad::wait_until) for its begin and its end and reads its own counters at each;
//! [`finish`](RunningLoad::finish) gathers the workers' records. [`Driver::on_sample`] sees what workers tell meanwhile.
//!
//! The caller spawns the processes, because where a worker lives (a namespace, a container, another user) is the
//! caller's matter. One thread does it all, waiting for every pipe and the next deadline at once.

mod group;
mod live;
mod process;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_sys::piped::PipedProcess;

pub use self::group::RunningLoad;
use self::group::WorkerGroup;
pub use self::live::LEAD_OF_COMMANDS;
pub use self::process::Process;
use crate::plan::{Load, PlanError, WorkerPlan};
use crate::record::{Sample, label};
use crate::wait::{DeadlinePoll, EventFd, is_ready};

/// Between the order to go and the start of the load: every worker has to have read it by then.
const LEAD: Duration = Duration::from_millis(5);

/// How long the workers may take, by default, to be started and connected. What cannot connect says so itself, after ten seconds: this is for
/// machines on which a program takes long to begin.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a worker process: one whose main function ends in [`crate::worker::run`]. Called on the thread that calls
/// [`Driver::start`].
pub type Spawn<'a> = Box<dyn FnOnce() -> io::Result<PipedProcess> + 'a>;

/// A worker to be started.
#[expect(missing_debug_implementations, reason = "a closure has nothing to show")]
pub struct Worker<'a> {
    pub plan: WorkerPlan,
    pub spawn: Spawn<'a>,
    /// What is to be added to a time of the driver's CLOCK_MONOTONIC to have that of the machine on which it runs, ns. The
    /// driver's callers and what they get know the driver's clock alone.
    pub clock_ns: i64,
    /// Whether it carries a load beside the one that is measured: its record says so, and samples and messages do.
    pub background: bool,
}

impl<'a> Worker<'a> {
    /// One on this machine. `spawn` starts it with standard input, output and error piped.
    pub fn here(plan: WorkerPlan, spawn: impl FnOnce() -> io::Result<Child> + 'a) -> Self {
        Self { plan, spawn: Box::new(move || spawn()?.try_into()), clock_ns: 0, background: false }
    }

    /// Its name in samples and messages.
    pub fn label(&self) -> String {
        label(&self.plan.name, self.background)
    }
}

/// The two ends of some connections. The connecting end's port may be 0: it is replaced by the listener's.
#[expect(missing_debug_implementations, reason = "a closure has nothing to show")]
pub struct WorkerPair<'a> {
    pub listen: Worker<'a>,
    pub connect: Worker<'a>,
}

/// Why a group of workers gave no records. All workers have been killed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error("the plan of {name}: {source}")]
    Plan { name: String, source: PlanError },
    #[error("the plans of {listen} and {connect} differ in {what}")]
    Mismatch { listen: String, connect: String, what: &'static str },
    #[error("start the worker of {name}: {source}")]
    Spawn { name: String, source: io::Error },
    /// A worker failed or died.
    #[error("{0}")]
    Worker(WorkerFailure),
    #[error("{name} did not {step} within {timeout:?}{}", on_stderr(stderr))]
    Timeout { name: String, step: &'static str, timeout: Duration, stderr: String },
    #[error("cancelled")]
    Cancelled,
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
}

/// What became of a worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {reason}{}", on_stderr(stderr))]
pub struct WorkerFailure {
    pub name: String,
    /// The worker's own words, or how it died.
    pub reason: String,
    /// The last that it wrote to standard error.
    pub stderr: String,
}

fn on_stderr(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!("\nits standard error ends with:\n{text}") }
}

/// Cancels a run from any thread, at once. Clones are one and the same; once cancelled it stays so.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<(AtomicBool, EventFd)>);

impl Cancel {
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> Result<Self, DriverError> {
        let event_fd = EventFd::new().map_err(|source| DriverError::System { what: "create an eventfd", source })?;
        Ok(Self(Arc::new((AtomicBool::new(false), event_fd))))
    }

    /// Cancelled by the first Ctrl-C, SIGTERM or SIGHUP from now on; the second ends the process. Once in a process.
    ///
    /// # Errors
    /// When the process has no file descriptor left, or the signals are caught already.
    pub fn on_stop_signal() -> Result<Self, DriverError> {
        let cancel = Self::new()?;
        let on_signal = cancel.clone();
        let caught = rig_sys::signal::on_stop_signal(move || on_signal.cancel());
        caught.map_err(|source| DriverError::System { what: "catch Ctrl-C", source })?;
        Ok(cancel)
    }

    /// A thread that waits on a driver with this value gets [`DriverError::Cancelled`].
    pub fn cancel(&self) {
        self.0.0.store(true, Ordering::Release);
        self.0.1.notify();
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    /// What `work` returns, or nothing if cancelled before that: for calls that nothing else cuts short, a look-up of a name among them.
    /// Once begun `work` goes on to its end, on a thread of its own, in either case.
    ///
    /// # Errors
    /// When there is no room for a thread, or no file descriptor left.
    pub fn unless_cancelled<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        /// Rings when it goes, a panic included.
        struct Ringing(Arc<EventFd>);
        impl Drop for Ringing {
            fn drop(&mut self) {
                self.0.notify();
            }
        }
        if self.is_cancelled() {
            return Ok(None);
        }
        let done = Arc::new(EventFd::new()?);
        let ringing = Ringing(Arc::clone(&done));
        let worker = move || {
            let _ringing = ringing;
            work()
        };
        let thread = thread::Builder::new().name("may-be-left".into()).spawn(worker)?;
        let waiter = DeadlinePoll::new()?;
        let mut fds = vec![done.entry(), self.event_fd().entry()];
        waiter.wait(&mut fds, None)?;
        match is_ready(&fds[0]) {
            true => thread.join().map_or_else(|panic| resume_unwind(panic), |result| Ok(Some(result))),
            false => Ok(None),
        }
    }

    fn event_fd(&self) -> &EventFd {
        &self.0.1
    }
}

/// Readable, for poll(2) and its like, from the moment of cancelling on.
impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.1.as_fd()
    }
}

/// Takes each worker's interim samples: the worker's name and what it saw.
type SampleCallback<'a> = Box<dyn FnMut(&str, &Sample) + 'a>;

/// Settings of a run.
#[expect(missing_debug_implementations, reason = "a closure has nothing to show")]
pub struct Driver<'a> {
    cancel: Cancel,
    on_sample: SampleCallback<'a>,
    open_timeout: Duration,
    lead: Duration,
}

impl<'a> Driver<'a> {
    pub fn new(cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), on_sample: Box::new(|_, _| ()), open_timeout: OPEN_TIMEOUT, lead: LEAD }
    }

    /// Calls `on_sample` for every sample, from inside [`RunningLoad::wait_until`] and [`RunningLoad::finish`].
    #[must_use]
    pub fn on_sample(mut self, on_sample: impl FnMut(&str, &Sample) + 'a) -> Self {
        self.on_sample = Box::new(on_sample);
        self
    }

    /// How long starting the workers and opening all connections may take together; 15 s unless told.
    #[must_use]
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout = timeout;
        self
    }

    /// How much longer than for workers of this machine it may take until each has heard that it is to go.
    #[must_use]
    pub fn longer_lead(mut self, by: Duration) -> Self {
        self.lead += by;
        self
    }

    /// Checks all plans, starts all workers, brings up their connections, and orders the load to begin a few
    /// milliseconds from now.
    ///
    /// # Errors
    /// Nothing has been started when a plan is at fault. Otherwise all that was started has been killed.
    pub fn start(self, pairs: Vec<WorkerPair<'_>>) -> Result<RunningLoad<'a>, DriverError> {
        let phases = pairs.first().map(|pair| pair.listen.plan.phases);
        for WorkerPair { listen, connect } in &pairs {
            for plan in [&listen.plan, &connect.plan] {
                plan.validate().map_err(|source| DriverError::Plan { name: plan.name.clone(), source })?;
            }
            if let Some(what) = difference(&listen.plan, &connect.plan) {
                let (listen, connect) = (listen.plan.name.clone(), connect.plan.name.clone());
                return Err(DriverError::Mismatch { listen, connect, what });
            }
            if let Some(first) = pairs.first()
                && Some(listen.plan.phases) != phases
            {
                let (listen, connect) = (first.listen.plan.name.clone(), listen.plan.name.clone());
                return Err(DriverError::Mismatch { listen, connect, what: "the phases" });
            }
        }
        let drain = pairs.iter().map(|pair| drain(&pair.connect.plan.load)).max().unwrap_or_default();
        let mut group = WorkerGroup::spawn(pairs, self.cancel, self.on_sample)?;
        group.connect(self.open_timeout)?;
        group.go(self.lead, phases, drain)
    }
}

/// How long a load says that it may take to come to its end.
fn drain(load: &Load) -> Duration {
    match load {
        Load::Packets(packets) => packets.course.drain,
        _ => Duration::ZERO,
    }
}

/// What the two ends of a connection have to have in common.
fn difference(listen: &WorkerPlan, connect: &WorkerPlan) -> Option<&'static str> {
    use crate::plan::Role;
    if !matches!(listen.role, Role::Listen { .. }) || !matches!(connect.role, Role::Connect { .. }) {
        return Some("nothing: one has to listen and the other to connect");
    }
    if listen.phases != connect.phases {
        return Some("the phases");
    }
    // A flood is answered by nobody, and its other end may have nothing to do.
    let alone = matches!(&connect.load, Load::Packets(packets) if packets.service.flood().is_some());
    if alone && listen.load == Load::Idle {
        return None;
    }
    if listen.load.name() != connect.load.name() {
        return Some("the kind of load");
    }
    if listen.load.shape() != connect.load.shape() {
        return Some("the threads and connections");
    }
    let sizes = |load: &Load| match load {
        Load::TcpRr(l) | Load::TcpCrr(l) | Load::UdpRr(l) => Some((l.request, l.response, l.in_flight)),
        _ => None,
    };
    if sizes(&listen.load) != sizes(&connect.load) {
        return Some("the sizes or the number of transactions in flight");
    }
    let flow = |load: &Load| match load {
        Load::TcpStream(stream) => Some(stream.flow),
        Load::UdpStream(stream) => Some(stream.flow),
        _ => None,
    };
    (flow(&listen.load) != flow(&connect.load)).then_some("the way that payload goes")
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_is_waited_for_unless_cancelled() {
        let cancel = Cancel::new().unwrap();
        assert_eq!(cancel.unless_cancelled(|| 7).unwrap(), Some(7));
        let panics = catch_unwind(AssertUnwindSafe(|| cancel.unless_cancelled(|| panic!("it fails"))));
        assert_eq!(panics.unwrap_err().downcast_ref(), Some(&"it fails"));
        let (begun, has_begun) = mpsc::channel();
        let (_end, ends) = mpsc::channel::<()>();
        let from_elsewhere = cancel.clone();
        let stops = thread::spawn(move || {
            has_begun.recv().unwrap();
            from_elsewhere.cancel();
        });
        let waits = move || {
            begun.send(()).unwrap();
            let _ended = ends.recv();
        };
        assert_eq!(cancel.unless_cancelled(waits).unwrap(), None);
        stops.join().unwrap();
        assert_eq!(cancel.unless_cancelled(|| panic!("begun after it was cancelled")).unwrap(), None::<()>);
    }
}
