//! Long conversations that must not break: many connections, on each of which bytes go to an echo and come back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rig_sys::netns::NetNs;

use super::lab::{Random, TIMEOUT};

/// A thread's stack; there are hundreds of threads.
const STACK: usize = 128 << 10;
/// Bytes that are said at once.
const SAID: usize = 3000;

/// Another handle of a namespace, for another thread.
pub fn again(ns: &NetNs) -> NetNs {
    NetNs::open(format!("/proc/self/fd/{}", ns.raw_fd())).unwrap()
}

/// Sends back what it gets, on one port of a namespace, both families; until it is dropped.
pub struct Echo {
    stop: Arc<AtomicBool>,
    /// Connections that have come, and those of them that a reset or something like it has ended.
    pub accepted: Arc<AtomicU64>,
    pub broken: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || thread::panicking(), "an echo has failed");
    }
}

fn is_silence(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn answer(mut stream: TcpStream, stop: &AtomicBool) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 16 << 10];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => stream.write_all(&buffer[..length])?,
            Err(error) if is_silence(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Echo {
    pub fn start(ns: &NetNs, port: u16) -> Self {
        let any: SocketAddr = ([0_u16; 8], port).into();
        let listener = ns.run(|| TcpListener::bind(any).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (stop, accepted, broken) = (Arc::<AtomicBool>::default(), Arc::default(), Arc::default());
        let echo = (stop.clone(), Arc::<AtomicU64>::clone(&accepted), Arc::<AtomicU64>::clone(&broken));
        let thread = thread::spawn(move || {
            let (stop, accepted, broken) = echo;
            thread::scope(|scope| {
                while !stop.load(Ordering::Relaxed) {
                    let Ok((stream, _)) = listener.accept() else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    accepted.fetch_add(1, Ordering::Relaxed);
                    let (stop, broken) = (&stop, &broken);
                    let one = move || {
                        if answer(stream, stop).is_err() {
                            broken.fetch_add(1, Ordering::Relaxed);
                        }
                    };
                    thread::Builder::new().stack_size(STACK).spawn_scoped(scope, one).unwrap();
                }
            });
        });
        Self { stop, accepted, broken, thread: Some(thread) }
    }
}

/// One connection and what is said on it.
struct TestConnection {
    stream: TcpStream,
    random: Random,
    number: usize,
}

impl TestConnection {
    fn open(service: SocketAddr, number: usize) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&service, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, random: Random::new(number as u64), number })
    }

    fn say(&mut self) -> std::io::Result<Vec<u8>> {
        let said = self.random.bytes(SAID);
        self.stream.write_all(&said)?;
        Ok(said)
    }

    fn hear(&mut self, said: &[u8]) -> Result<(), String> {
        let mut heard = vec![0; said.len()];
        self.stream.read_exact(&mut heard).map_err(|error| error.to_string())?;
        if heard == said { Ok(()) } else { Err("other bytes came back".into()) }
    }

    /// The orderly end.
    fn close(&mut self) -> Result<(), String> {
        let end = |error: std::io::Error| format!("at the end: {error}");
        self.stream.shutdown(Shutdown::Write).map_err(end)?;
        match self.stream.read(&mut [0]).map_err(end)? {
            0 => Ok(()),
            _ => Err("at the end: more bytes".into()),
        }
    }
}

/// Conversations of several threads, which go on until it is finished.
pub struct Conversations {
    stop: Arc<AtomicBool>,
    /// By thread: how often each of its lines has been heard from.
    rounds: Vec<Arc<AtomicU64>>,
    errors: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Conversations {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok() || thread::panicking(), "a talker has failed");
        }
    }
}

impl Conversations {
    /// Opens `lines` connections to each service, from a client's namespace, and begins.
    pub fn start(client: &NetNs, services: &[SocketAddr], lines: usize) -> Self {
        let (stop, errors) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<String>>>::default());
        let mut talk = Self { stop, rounds: Vec::new(), errors, threads: Vec::new() };
        for (of, service) in services.iter().copied().enumerate() {
            let rounds = Arc::<AtomicU64>::default();
            let (client, stop, errors) = (again(client), talk.stop.clone(), talk.errors.clone());
            talk.rounds.push(rounds.clone());
            talk.threads.push(thread::spawn(move || {
                client.enter().unwrap();
                let mut open = Vec::new();
                for number in of * lines..(of + 1) * lines {
                    match TestConnection::open(service, number) {
                        Ok(line) => open.push(line),
                        Err(error) => errors.lock().unwrap().push(format!("line {number} to {service}: {error}")),
                    }
                }
                converse(&mut open, service, &stop, &rounds, &errors);
            }));
        }
        talk
    }

    pub fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap().clone()
    }

    /// How often all lines have been heard from.
    pub fn rounds(&self) -> u64 {
        self.rounds.iter().map(|rounds| rounds.load(Ordering::Relaxed)).min().unwrap_or(0)
    }

    /// All lines are heard from again, `rounds` times, while `meanwhile` is done again and again.
    #[track_caller]
    pub fn goes_on(&self, rounds: u64, mut meanwhile: impl FnMut()) {
        // The round under way may have begun before.
        let goal = self.rounds() + rounds + 1;
        let deadline = Instant::now() + TIMEOUT;
        while self.rounds() < goal {
            assert_eq!(self.errors(), [""; 0], "conversations broke");
            assert!(Instant::now() < deadline, "conversations have stopped");
            meanwhile();
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.errors(), [""; 0], "conversations broke");
    }

    /// Ends all conversations in order.
    #[track_caller]
    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        assert_eq!(self.errors(), [""; 0], "conversations broke");
    }
}

fn converse(
    lines: &mut Vec<TestConnection>,
    service: SocketAddr,
    stop: &AtomicBool,
    rounds: &AtomicU64,
    errors: &Mutex<Vec<String>>,
) {
    let note = |line: &TestConnection, error: String| {
        errors.lock().unwrap().push(format!(
            "line {} to {service}, {:?}: {error}",
            line.number,
            line.stream.local_addr()
        ));
    };
    while !stop.load(Ordering::Relaxed) {
        let said: Vec<_> = lines.iter_mut().map(TestConnection::say).collect();
        let mut heard = said.into_iter();
        lines.retain_mut(|line| {
            let result = heard.next().unwrap().map_err(|error| error.to_string()).and_then(|said| line.hear(&said));
            result.map_err(|error| note(line, error)).is_ok()
        });
        rounds.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(5));
    }
    for line in lines {
        if let Err(error) = line.close() {
            note(line, error);
        }
    }
}

/// New connections that keep arriving: one after the other is opened, used once and closed.
pub struct NewConnections {
    stop: Arc<AtomicBool>,
    pub served: Arc<AtomicU64>,
    errors: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for NewConnections {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || thread::panicking(), "who arrives has failed");
    }
}

impl NewConnections {
    pub fn start(client: &NetNs, services: &[SocketAddr]) -> Self {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let errors = Arc::<Mutex<Vec<String>>>::default();
        let (client, services) = (again(client), services.to_vec());
        let its = (stop.clone(), served.clone(), errors.clone());
        let thread = thread::spawn(move || {
            let (stop, served, errors) = its;
            client.enter().unwrap();
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let service = services[number % services.len()];
                match visit(service, number) {
                    Ok(()) => drop(served.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => errors.lock().unwrap().push(format!("arrival {number} at {service}: {error}")),
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        Self { stop, served, errors, thread: Some(thread) }
    }

    /// Some more are served, while `meanwhile` is done again and again.
    #[track_caller]
    pub fn go_on(&self, mut meanwhile: impl FnMut()) {
        let goal = self.served.load(Ordering::Relaxed) + 10;
        let deadline = Instant::now() + TIMEOUT;
        while self.served.load(Ordering::Relaxed) < goal {
            assert_eq!(*self.errors.lock().unwrap(), [""; 0], "arrivals failed");
            assert!(Instant::now() < deadline, "no request arrives any more");
            meanwhile();
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// No more arrive; all that did were served.
    #[track_caller]
    pub fn finish(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        assert_eq!(*self.errors.lock().unwrap(), [""; 0], "arrivals failed");
        self.served.load(Ordering::Relaxed)
    }
}

/// One short conversation.
pub fn visit(service: SocketAddr, number: usize) -> Result<(), String> {
    let mut line = TestConnection::open(service, number).map_err(|error| error.to_string())?;
    let said = line.say().map_err(|error| error.to_string())?;
    line.hear(&said)?;
    line.close()
}
