//! The load threads of a worker: started together, watched, and always joined.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rig_sys::clock::thread_cpu_ns;
use rustix::net::{Shutdown, shutdown};

use super::{Failing, WorkerError};
use crate::engine::{self, Connection, Course, Trouble};
use crate::plan::{Load, WorkerPlan};
use crate::record::Direction;
use crate::wait::Bell;

/// What the load threads and the control thread tell each other.
#[derive(Debug)]
struct Shared {
    course: Course,
    /// Rung whenever one of the values below changes.
    bell: Bell,
    ready: AtomicU32,
    finished: AtomicU32,
    trouble: Mutex<Option<Trouble>>,
}

impl Shared {
    fn complain(&self, trouble: Trouble) {
        // The first trouble is the cause, others are its consequences.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
    }
}

#[derive(Debug)]
pub(crate) struct Team {
    shared: Arc<Shared>,
    connections: Arc<[Connection]>,
    threads: Vec<JoinHandle<()>>,
    direction: Direction,
}

impl Team {
    /// Starts the threads, which prepare themselves and then wait.
    pub(super) fn assemble(plan: &WorkerPlan, connections: &Arc<[Connection]>) -> Result<Self, WorkerError> {
        let eventfd = || "create an eventfd".into();
        let shared = Arc::new(Shared {
            course: Course::new().failing(eventfd)?,
            bell: Bell::new().failing(eventfd)?,
            ready: AtomicU32::new(0),
            finished: AtomicU32::new(0),
            trouble: Mutex::new(None),
        });
        let mut team =
            Self { shared, connections: connections.clone(), threads: Vec::new(), direction: plan.direction() };
        match &plan.load {
            Load::Idle | Load::TcpRr(_) | Load::TcpCrr(_) | Load::UdpStream(_) | Load::UdpRr(_) => {}
            Load::TcpStream(stream) => {
                for thread in 0..stream.threads {
                    let (stream, direction) = (stream.clone(), team.direction);
                    team.spawn(thread, move |mine| engine::stream(&stream, direction, mine))?;
                }
            }
        }
        Ok(team)
    }

    /// Starts one thread, which builds its engine with `build` and runs it over its share of the connections.
    fn spawn(
        &mut self,
        thread: u32,
        build: impl FnOnce(&[&Connection]) -> Result<Box<dyn engine::Engine>, Trouble> + Send + 'static,
    ) -> Result<(), WorkerError> {
        let (shared, connections) = (self.shared.clone(), self.connections.clone());
        let body = move || {
            let _last_words = LastWords(&shared);
            let mine: Vec<&Connection> = connections.iter().filter(|c| c.thread == thread).collect();
            let result = build(&mine).and_then(|engine| {
                shared.ready.fetch_add(1, Ordering::Release);
                shared.bell.ring();
                if shared.course.wait_for_start() { engine.run(&mine, &shared.course) } else { Ok(()) }
            });
            if let Err(trouble) = result {
                shared.complain(trouble);
            }
        };
        let handle = std::thread::Builder::new()
            .name(format!("load-{thread}"))
            .spawn(body)
            .failing(|| format!("start load thread {thread}"))?;
        self.threads.push(handle);
        Ok(())
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.shared.bell
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
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
        self.shared.finished.load(Ordering::Acquire) as usize == self.threads.len()
    }

    /// Fails when a thread has.
    pub(super) fn check(&self) -> Result<(), WorkerError> {
        match &*self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(Trouble { what, why }) => Err(WorkerError::Failed { what: what.clone(), why: why.clone() }),
        }
    }

    pub(super) fn go(&self, window_end_ns: u64) {
        self.shared.course.start(window_end_ns);
        self.wake();
    }

    /// Each thread's CPU time so far, nanoseconds. A thread that has ended counts as 0.
    pub(super) fn cpu_ns(&self) -> Vec<u64> {
        self.threads.iter().map(|thread| thread_cpu_ns(thread).unwrap_or(0)).collect()
    }

    /// Ends the load and waits for the threads.
    pub(super) fn stop(&mut self) -> Result<(), WorkerError> {
        self.join();
        self.check()
    }

    fn join(&mut self) {
        self.shared.course.stop();
        for connection in self.connections.iter() {
            // Wakes whoever is blocked in it. Fails only when the peer has ended the connection already.
            let _ = shutdown(&connection.socket, Shutdown::Both);
        }
        self.wake();
        for thread in self.threads.drain(..) {
            // A panic has been reported through the bell.
            let _ = thread.join();
        }
    }

    fn wake(&self) {
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.join();
    }
}

/// Tells the control thread that a load thread ended, be it by a panic.
struct LastWords<'a>(&'a Shared);

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = std::thread::current().name().unwrap_or("a load thread").to_owned();
            self.0.complain(Trouble { what, why: "panicked; its message is on standard error".into() });
        }
        self.0.finished.fetch_add(1, Ordering::Release);
        self.0.bell.ring();
    }
}
