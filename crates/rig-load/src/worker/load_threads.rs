//! The load threads of a worker: started together, watched, and always joined.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rig_sys::clock::{own_cpu_ns, thread_cpu_ns};
use rustix::net::{Shutdown, shutdown};

use super::{ErrorContext, WorkerError};
use crate::command::Command;
use crate::engine::{self, Connection, LoadProgress, Report, Snapshot, ThreadFailure, Times, transactions};
use crate::listener::Listener;
use crate::plan::{Load, WorkerPlan};
use crate::record::Direction;
use crate::wait::EventFd;

impl From<ThreadFailure> for WorkerError {
    fn from(ThreadFailure { what, why }: ThreadFailure) -> Self {
        Self::Failed { what, why }
    }
}

/// What the load threads and the control thread tell each other.
#[derive(Debug)]
struct SharedState {
    progress: LoadProgress,
    /// Rung whenever one of the values below changes.
    event_fd: EventFd,
    ready: AtomicU32,
    finished: AtomicU32,
    failure: Mutex<Option<ThreadFailure>>,
    /// Of the threads that have ended, together.
    report: Mutex<Report>,
}

impl SharedState {
    fn complain(&self, failure: ThreadFailure) {
        // The first trouble is the cause, others are its consequences.
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }
}

#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    /// CPU time of its whole life, nanoseconds, which it leaves when it ends: then its clock is gone.
    cpu_ns: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(crate) struct LoadThreads {
    shared: Arc<SharedState>,
    connections: Arc<[Connection]>,
    threads: Vec<Thread>,
    direction: Direction,
    is_udp: bool,
}

impl LoadThreads {
    /// No threads yet. `is_udp`: the sockets carry datagrams.
    pub(super) fn new(
        connections: &Arc<[Connection]>,
        direction: Direction,
        is_udp: bool,
    ) -> Result<Self, WorkerError> {
        Self::within(connections, direction, is_udp, None, 0)
    }

    /// One whose threads may each move no more than `ceiling` bytes per second, with a peer whose clock shows so much less.
    fn within(
        connections: &Arc<[Connection]>,
        direction: Direction,
        is_udp: bool,
        ceiling: Option<u64>,
        peer_clock_ns: i64,
    ) -> Result<Self, WorkerError> {
        let eventfd = || "create an eventfd".into();
        let shared = Arc::new(SharedState {
            progress: LoadProgress::new(ceiling).failing(eventfd)?.with_peer_clock(peer_clock_ns),
            event_fd: EventFd::new().failing(eventfd)?,
            ready: AtomicU32::new(0),
            finished: AtomicU32::new(0),
            failure: Mutex::new(None),
            report: Mutex::default(),
        });
        Ok(Self { shared, connections: connections.clone(), threads: Vec::new(), direction, is_udp })
    }

    /// Starts the threads, which prepare themselves and then wait. `listener` is closed unless the load goes on accepting.
    pub(super) fn assemble(
        plan: &WorkerPlan,
        connections: &Arc<[Connection]>,
        listener: Option<Listener>,
    ) -> Result<Self, WorkerError> {
        let threads = u64::from(plan.load.shape().0.max(1));
        let share = plan.ceiling.map(|ceiling| (ceiling / threads).max(1));
        let mut load_threads =
            Self::within(connections, plan.direction(), plan.load.is_udp(), share, plan.peer_clock_ns)?;
        match &plan.load {
            Load::Packets(_) | Load::Idle => {}
            Load::TcpRr(load) => {
                let seed = transactions::draw_seed();
                for thread in 0..load.threads {
                    let (load, direction) = (load.clone(), load_threads.direction);
                    let build = move |mine: &[&_]| Ok(transactions::over_tcp(&load, direction, mine, (thread, seed)));
                    load_threads.spawn(thread, build)?;
                }
            }
            Load::UdpRr(load) => {
                let seed = transactions::draw_seed();
                for thread in 0..load.threads {
                    let (load, direction) = (load.clone(), load_threads.direction);
                    load_threads
                        .spawn(thread, move |mine| transactions::over_udp(&load, direction, mine, (thread, seed)))?;
                }
            }
            Load::TcpCrr(load) => {
                let seed = transactions::draw_seed();
                let source = transactions::Source::new(load, &plan.role, listener)?;
                for thread in 0..load.threads {
                    let (load, source) = (load.clone(), source.clone());
                    let build = move |_: &[&_]| Ok(transactions::over_connections(&load, source, (thread, seed)));
                    load_threads.spawn(thread, build)?;
                }
            }
            Load::TcpStream(stream) => {
                for &way in ways(load_threads.direction) {
                    for thread in 0..stream.threads {
                        let stream = stream.clone();
                        load_threads.spawn(thread, move |mine| engine::stream(&stream, way, mine))?;
                    }
                }
            }
            Load::UdpStream(load) => {
                let duplex = load_threads.direction == Direction::Both;
                for &way in ways(load_threads.direction) {
                    for thread in 0..load.threads {
                        let load = load.clone();
                        load_threads.spawn(thread, move |mine| engine::datagrams::build(&load, way, duplex, mine))?;
                    }
                }
            }
        }
        Ok(load_threads)
    }

    /// Starts one thread, which builds its engine with `build` and runs it over its share of the connections.
    pub(super) fn spawn(
        &mut self,
        thread: u32,
        build: impl FnOnce(&[&Connection]) -> Result<Box<dyn engine::Engine>, ThreadFailure> + Send + 'static,
    ) -> Result<(), WorkerError> {
        let (shared, connections) = (self.shared.clone(), self.connections.clone());
        let cpu_ns = Arc::new(AtomicU64::new(0));
        let will = cpu_ns.clone();
        let body = move || {
            let _last_words = ThreadEndGuard { shared: &shared, cpu_ns: &will };
            let mine: Vec<&Connection> = connections.iter().filter(|c| c.thread == thread).collect();
            let result = build(&mine).and_then(|mut engine| {
                shared.ready.fetch_add(1, Ordering::Release);
                shared.event_fd.notify();
                if shared.progress.wait_for_start() {
                    engine.run(&mine, &shared.progress)?;
                    shared.report.lock().unwrap_or_else(PoisonError::into_inner).merge(engine.report());
                }
                Ok(())
            });
            if let Err(failure) = result {
                shared.complain(failure);
            }
        };
        let handle = std::thread::Builder::new()
            .name(format!("load-{}", self.threads.len()))
            .spawn(body)
            .failing(|| format!("start load thread {thread}"))?;
        self.threads.push(Thread { handle, cpu_ns });
        Ok(())
    }

    pub(super) fn event_fd(&self) -> &EventFd {
        &self.shared.event_fd
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    pub(super) fn is_udp(&self) -> bool {
        self.is_udp
    }

    pub(super) fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// All threads have built their engines.
    pub(super) fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Acquire) as usize == self.threads.len()
    }

    /// All threads have come to the end of their connections.
    pub(super) fn is_finished(&self) -> bool {
        self.finished() == self.threads.len()
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Threads that have come to the end of their connections.
    pub(super) fn finished(&self) -> usize {
        self.shared.finished.load(Ordering::Acquire) as usize
    }

    /// Fails when a thread has.
    pub(super) fn check(&self) -> Result<(), WorkerError> {
        match &*self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(failure) => Err(failure.clone().into()),
        }
    }

    /// Tells the load threads, also those that are parked or blocked.
    pub(super) fn tell(&self, command: Command) {
        self.shared.progress.tell(command);
        self.wake();
    }

    /// Latencies that the threads have measured so far.
    pub(super) fn latencies(&self) -> Snapshot {
        self.shared.progress.latencies()
    }

    pub(super) fn go(&self, times: Times) {
        self.shared.progress.start(times);
        self.wake();
    }

    /// Each thread's CPU time so far, nanoseconds.
    pub(super) fn cpu_ns(&self) -> Vec<u64> {
        let of =
            |thread: &Thread| thread_cpu_ns(&thread.handle).unwrap_or_else(|_| thread.cpu_ns.load(Ordering::Acquire));
        self.threads.iter().map(of).collect()
    }

    /// What the threads knew in the end. They have been stopped.
    pub(super) fn report(&self) -> Report {
        std::mem::take(&mut *self.shared.report.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the sending of streams, so that the peers come to their end, while receiving goes on. `sends` tells by its number of which
    /// connections: an association of SCTP ends in both directions, so that one that is received has to be left alone.
    pub(super) fn end_sending(&self, sends: impl Fn(usize) -> bool) {
        self.shared.progress.end();
        for (_, connection) in self.connections.iter().enumerate().filter(|(index, _)| sends(*index)) {
            // Wakes the thread that is blocked in sending. Fails only when the peer has ended the connection already.
            let _ = shutdown(&connection.socket, Shutdown::Write);
        }
        self.wake();
    }

    /// Ends the load and waits for the threads.
    pub(super) fn stop(&mut self) -> Result<(), WorkerError> {
        self.join();
        self.check()
    }

    fn join(&mut self) {
        self.shared.progress.stop();
        for connection in self.connections.iter() {
            // Wakes the thread that is blocked in the socket. Fails only when the peer has ended the connection already.
            let _ = shutdown(&connection.socket, Shutdown::Both);
        }
        self.wake();
        for thread in self.threads.drain(..) {
            // A panic has been reported through the bell.
            let _ = thread.handle.join();
        }
    }

    fn wake(&self) {
        for thread in &self.threads {
            thread.handle.thread().unpark();
        }
    }
}

/// What the threads of a stream do: in a two-way load there are some to send and as many to receive.
fn ways(direction: Direction) -> &'static [Direction] {
    match direction {
        Direction::Send => &[Direction::Send],
        Direction::Receive => &[Direction::Receive],
        Direction::Both => &[Direction::Send, Direction::Receive],
        Direction::Request | Direction::Respond | Direction::Idle => &[],
    }
}

impl Drop for LoadThreads {
    fn drop(&mut self) {
        self.join();
    }
}

/// Tells the control thread that a load thread ended, be it by a panic.
struct ThreadEndGuard<'a> {
    shared: &'a SharedState,
    cpu_ns: &'a AtomicU64,
}

impl Drop for ThreadEndGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = std::thread::current().name().unwrap_or("a load thread").to_owned();
            self.shared.complain(ThreadFailure { what, why: "panicked; its message is on standard error".into() });
        }
        self.cpu_ns.store(own_cpu_ns(), Ordering::Release);
        self.shared.finished.fetch_add(1, Ordering::Release);
        self.shared.event_fd.notify();
    }
}
