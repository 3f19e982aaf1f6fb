//! The thread that checks: one for all backends, with sockets that never wait.
//!
//! ```text
//! timers: a probe is due, or out of time ─┐
//! epoll: a socket or a program is ready ──┼──> flight ── verdict ──> board ── news ──> the balancer's thread
//! new targets, the end ───────────────────┘
//! ```

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::Timespec;
use tracing::error;

use super::board::{Board, LastProbe, Outcome, Record, TargetKey};
use super::check::{Check, Probe};
use super::direct::{DirectPort, DirectProbe, ForwardingPath, LaunchError};
use super::probe::{
    CommandProbe, DatagramJudge, DatagramProbe, EchoSocket, StreamJudge, StreamProbe, TlsTrust, Verdict, no_answer,
    of_error,
};
use super::schedule::{self, Timers};
use super::state::HealthState;

/// Sockets of probes that are open at a time; what is due beyond them waits for its turn.
const MOST_SOCKETS: usize = 8192;
/// Files that the rest of the process may need.
const OTHER_FILES: u64 = 512;
/// Programs that run at a time.
const MOST_PROGRAMS: usize = 32;
/// Events that are taken at once.
const BATCH: usize = 256;

/// A backend to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub key: TargetKey,
    pub check: Arc<Check>,
    /// Where probes go.
    pub to: SocketAddr,
    /// Where that is a service's own address: the way to the backend.
    pub path: Option<ForwardingPath>,
}

/// What both threads know.
#[derive(Debug)]
struct Shared {
    board: Mutex<Board>,
    /// New ones.
    targets: Mutex<Option<Vec<Target>>>,
    ends: std::sync::atomic::AtomicBool,
    wake: OwnedFd,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wake(&self) {
        // Full is awake.
        let _awake = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// The checks of a balancer. They end with this.
#[derive(Debug)]
pub struct Checker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Checker {
    /// Starts the thread; `news` is called by it when there are events on the board.
    ///
    /// # Errors
    /// When there is no thread or no epoll to be had.
    pub fn start(news: impl Fn() + Send + 'static) -> io::Result<Self> {
        rig_sys::process::raise_file_limit();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let shared = Arc::new(Shared { board: Mutex::default(), targets: Mutex::default(), ends: false.into(), wake });
        let own = Loop {
            shared: Arc::clone(&shared),
            epoll,
            news: Box::new(news),
            timers: Timers::default(),
            targets: HashMap::new(),
            flights: HashMap::new(),
            waiting: [VecDeque::new(), VecDeque::new()],
            open: [0; 2],
            most: [most_sockets(), MOST_PROGRAMS],
            echoes: HashMap::new(),
            direct: None,
            trust: TlsTrust::new()?,
            dying: Vec::new(),
            numbers: FIRST_NUMBER,
            looked: Instant::now(),
        };
        let thread = thread::Builder::new().name("check".into()).spawn(move || own.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Checks these from now on, and no others. What is known of one that was checked before stays; of another it is what `kept` has.
    pub fn watch(&self, targets: Vec<Target>, kept: impl Fn(&TargetKey) -> Option<HealthState>) {
        let now = SystemTime::now();
        {
            let mut board = lock(&self.shared.board);
            let mut before = std::mem::take(&mut board.records);
            let record = |target: &Target| {
                let known = before.remove(&target.key);
                let new = || Record::new(kept(&target.key).unwrap_or_else(|| HealthState::new(now)));
                (target.key, known.unwrap_or_else(new))
            };
            board.records = targets.iter().map(record).collect();
        }
        *lock(&self.shared.targets) = Some(targets);
        self.shared.wake();
    }

    /// Whether the thread is gone, by an error that nobody expected.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.shared.board)
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.shared.ends.store(true, std::sync::atomic::Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn most_sockets() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    MOST_SOCKETS.min(usize::try_from(limit.saturating_sub(OTHER_FILES)).unwrap_or(MOST_SOCKETS)).max(16)
}

/// What events of epoll stand for: below the first number of a flight, the eventfd and the shared sockets of echoes.
const WAKE: u64 = 0;
const TAPS: [u64; 2] = [1, 2];
const FIRST_NUMBER: u64 = 1 << 32;

/// What is due; both numbers are never used twice, so that what has been overtaken is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Probe(u64),
    OutOfTime(u64),
    /// What was not answered, and after which time it was sent.
    Resend(u64, Duration),
    /// Whose next hop is not known yet, and after which time it was looked for.
    Resolve(u64, Duration),
}

#[derive(Debug)]
struct Watched {
    target: Target,
    /// The flight under way, or 0.
    flight: u64,
}

/// A probe under way.
#[derive(Debug)]
struct Flight {
    /// The number of whom it probes.
    of: u64,
    began: Instant,
    /// For how long this thread did not look at sockets meanwhile.
    held_up: Duration,
    /// Whether it has been given that time in addition.
    is_prolonged: bool,
    what: Underway,
}

#[derive(Debug)]
enum Underway {
    Stream(StreamProbe),
    Datagram(DatagramProbe),
    Echo { socket: EchoKey, nonce: u64 },
    Command(CommandProbe),
    Direct(DirectProbe),
}

/// A probe that has ended.
#[derive(Debug)]
struct EndedProbe {
    of: u64,
    began: Instant,
    certificate_end: Option<SystemTime>,
}

/// RFC 6298, 2.1: before a round trip is known. A probe with less than three times that waits for a third of it.
const RESEND: Duration = Duration::from_secs(1);
/// Between two looks for a next hop, first and at most.
const RESOLVE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(160));

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// Of the times in which sockets are not looked at, those that are noted. A probe that goes to and fro, and had to wait for this thread for
/// a quarter of its time or longer, is given that time in addition, once.
const SHORTEST_DELAY: Duration = Duration::from_millis(10);

/// The two kinds of things that are bounded, each by a number of its own.
const SOCKETS: usize = 0;
const PROGRAMS: usize = 1;

fn class(probe: &Probe) -> usize {
    if matches!(probe, Probe::Command(_)) { PROGRAMS } else { SOCKETS }
}

type EchoKey = (bool, Option<IpAddr>);

struct Loop {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    news: Box<dyn Fn() + Send>,
    timers: Timers<Due>,
    targets: HashMap<u64, Watched>,
    flights: HashMap<u64, Flight>,
    /// Those whose turn has not come, by class.
    waiting: [VecDeque<u64>; 2],
    open: [usize; 2],
    most: [usize; 2],
    /// With the numbers that epoll knows them by.
    echoes: HashMap<EchoKey, (u64, EchoSocket)>,
    /// Once a check goes to a service's own address.
    direct: Option<DirectPort>,
    trust: TlsTrust,
    /// Programs that were killed, until they have ended.
    dying: Vec<CommandProbe>,
    numbers: u64,
    /// When sockets were last looked at.
    looked: Instant,
}

impl Loop {
    fn run(mut self) {
        let mut events = Vec::with_capacity(BATCH);
        loop {
            if self.shared.ends.load(std::sync::atomic::Ordering::Acquire) {
                return;
            }
            let new = lock(&self.shared.targets).take();
            if let Some(targets) = new {
                self.retarget(targets);
            }
            let now = Instant::now();
            let is_due = self.timers.next().is_some_and(|at| at <= now);
            let taken = if is_due { self.take_all(&mut events) } else { Ok(()) };
            self.note_delay();
            while let Some(due) = self.timers.due(now) {
                self.attend(due);
            }
            self.reap();
            self.begin_waiting();
            self.forget_overtaken();
            self.note_delay();
            let next = self.timers.next();
            let wait = next.map(|at| timespec(at.saturating_duration_since(self.looked)));
            if let Err(errno) = taken.and_then(|()| self.wait(&mut events, wait.as_ref())) {
                error!("health checks have ended, all backends stay as they are: {errno}");
                return;
            }
            // Who wakes too late has not looked since then.
            let now = Instant::now();
            self.looked = next.map_or(now, |next| next.max(self.looked).min(now));
            events.iter().for_each(|event| self.ready(event));
        }
    }

    fn wait(&self, events: &mut Vec<Event>, wait: Option<&Timespec>) -> rustix::io::Result<()> {
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), wait) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Takes what sockets have by now: an answer that is there is not late because this thread was. Each that is ready has its turn, and
    /// those that are ready again and again do not keep it here.
    fn take_all(&mut self, events: &mut Vec<Event>) -> rustix::io::Result<()> {
        let others = 1 + TAPS.len() + self.echoes.len() + self.dying.len();
        for _ in 0..(self.flights.len() + others).div_ceil(BATCH) {
            self.wait(events, Some(&AT_ONCE))?;
            events.iter().for_each(|event| self.ready(event));
            if events.len() < BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Notes for probes under way how long sockets have not been looked at.
    fn note_delay(&mut self) {
        let now = Instant::now();
        let delay = now.duration_since(std::mem::replace(&mut self.looked, now));
        if delay >= SHORTEST_DELAY {
            for flight in self.flights.values_mut() {
                flight.held_up += delay.min(now.duration_since(flight.began));
            }
        }
    }

    /// Timers of what has ended before. What is left of them is less than half of the bound, so that this is rare.
    fn forget_overtaken(&mut self) {
        let Self { timers, targets, flights, .. } = self;
        if timers.len() > 2 * targets.len() + 6 * flights.len() + 1024 {
            timers.retain(|due| match due {
                Due::Probe(number) => targets.contains_key(number),
                Due::OutOfTime(flight) | Due::Resend(flight, _) | Due::Resolve(flight, _) => {
                    flights.contains_key(flight)
                }
            });
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Takes other targets. One that is as it was goes on as it was.
    fn retarget(&mut self, targets: Vec<Target>) {
        let mut before: HashMap<TargetKey, u64> =
            self.targets.iter().map(|(number, watched)| (watched.target.key, *number)).collect();
        for target in targets {
            match before.remove(&target.key) {
                Some(number) if self.targets.get(&number).is_some_and(|watched| watched.target == target) => {}
                old => {
                    old.into_iter().for_each(|number| self.forget(number));
                    let number = self.number();
                    let at = Instant::now() + schedule::first(target.check.interval, random());
                    self.timers.add(at, Due::Probe(number));
                    self.targets.insert(number, Watched { target, flight: 0 });
                }
            }
        }
        before.into_values().for_each(|number| self.forget(number));
        self.hear();
        // Sockets that nobody sends by any more.
        let used: Vec<EchoKey> = self.targets.values().map(|watched| echo_key(&watched.target)).collect();
        self.echoes.retain(|key, _| used.contains(key));
    }

    /// The services whose own addresses are checked.
    fn hear(&mut self) {
        let Some(direct) = &mut self.direct else { return };
        let with_path = self.targets.values().filter(|watched| watched.target.path.is_some());
        let mut services: Vec<IpAddr> = with_path.map(|watched| watched.target.to.ip()).collect();
        services.sort_unstable();
        services.dedup();
        direct.hear(&services);
    }

    fn forget(&mut self, number: u64) {
        if let Some(watched) = self.targets.remove(&number)
            && watched.flight != 0
        {
            self.land(watched.flight);
        }
    }

    fn attend(&mut self, due: Due) {
        match due {
            Due::Probe(number) => {
                if let Some(watched) = self.targets.get(&number) {
                    self.waiting[class(&watched.target.check.probe)].push_back(number);
                }
            }
            Due::Resend(number, after) => {
                let flight = self.flights.get(&number).map(|flight| &flight.what);
                if let (Some(Underway::Direct(probe)), Some(port)) = (flight, &self.direct)
                    && port.resend(probe)
                {
                    self.timers.add(Instant::now() + 2 * after, Due::Resend(number, 2 * after));
                }
            }
            Due::Resolve(number, after) => self.resolve(number, after),
            Due::OutOfTime(flight) => {
                let Some(of) = self.flights.get(&flight).map(|flight| flight.of) else { return };
                if let (Some(Flight { what: Underway::Direct(probe), .. }), Some(port)) =
                    (self.flights.get(&flight), &mut self.direct)
                    && let Some(why) = port.may_have_missed(probe)
                {
                    return self.end(flight, Outcome::Unable(why));
                }
                let timeout = self.targets.get(&of).map_or(Duration::ZERO, |watched| watched.target.check.timeout);
                if let Some(Flight { what: Underway::Stream(_) | Underway::Direct(_), held_up, is_prolonged, .. }) =
                    self.flights.get_mut(&flight)
                    && !*is_prolonged
                    && *held_up >= timeout / 4
                    && !held_up.is_zero()
                {
                    *is_prolonged = true;
                    self.timers.add(Instant::now() + (*held_up).min(timeout), Due::OutOfTime(flight));
                    return;
                }
                let why = match self.flights.get(&flight).map(|flight| &flight.what) {
                    Some(Underway::Stream(probe)) => probe.late(timeout),
                    Some(Underway::Direct(probe)) => probe.late(timeout),
                    Some(Underway::Command(_)) => {
                        format!("the command has not ended within {}", rig_stats::units::Span(timeout))
                    }
                    _ => no_answer(timeout),
                };
                self.conclude(flight, Err(why));
            }
        }
    }

    fn resolve(&mut self, number: u64, after: Duration) {
        let (flight, port) = (self.flights.get_mut(&number), &self.direct);
        let (Some(Flight { what: Underway::Direct(probe), of, .. }), Some(port)) = (flight, port) else { return };
        let timeout = self.targets.get(of).map_or(RESEND, |watched| watched.target.check.timeout);
        match port.resolve(probe) {
            Ok(()) if probe.is_unresolved() => {
                let next = (2 * after).min(RESOLVE.1);
                self.timers.add(Instant::now() + next, Due::Resolve(number, next));
            }
            Ok(()) => self.resend_later(number, timeout),
            Err(error) => self.end(number, outcome_of(error)),
        }
    }

    fn resend_later(&mut self, flight: u64, timeout: Duration) {
        let after = RESEND.min(timeout / 3);
        self.timers.add(Instant::now() + after, Due::Resend(flight, after));
    }

    /// Programs that were killed take room until they have ended, and nobody waits for them.
    fn reap(&mut self) {
        let before = self.dying.len();
        self.dying.retain_mut(|probe| probe.go_on().is_none());
        self.open[PROGRAMS] -= before - self.dying.len();
    }

    fn begin_waiting(&mut self) {
        for class in 0..self.waiting.len() {
            while self.open[class] < self.most[class]
                && let Some(number) = self.waiting[class].pop_front()
            {
                self.begin(number);
            }
        }
    }

    /// Begins a probe.
    fn begin(&mut self, number: u64) {
        let Some(watched) = self.targets.get(&number) else { return };
        let (target, began, flight) = (watched.target.clone(), Instant::now(), self.number());
        let begun = self.launch(&target, flight);
        match begun {
            Ok(what) => {
                self.open[class(&target.check.probe)] += 1;
                self.timers.add(began + target.check.timeout, Due::OutOfTime(flight));
                self.flights
                    .insert(flight, Flight { of: number, began, held_up: Duration::ZERO, is_prolonged: false, what });
                if let Some(watched) = self.targets.get_mut(&number) {
                    watched.flight = flight;
                }
            }
            Err(error) => {
                self.note(&EndedProbe { of: number, began, certificate_end: None }, outcome_of(error));
            }
        }
    }

    fn launch(&mut self, target: &Target, flight: u64) -> Result<Underway, LaunchError> {
        let Target { check, to, path, .. } = target;
        let (to, probe, source) = (*to, &check.probe, check.source);
        if let Some(path) = *path {
            if self.direct.is_none() {
                let direct = DirectPort::open()?;
                for (number, socket) in TAPS.into_iter().zip(direct.sockets()) {
                    watch(&self.epoll, socket, number, EventFlags::IN)?;
                }
                self.direct = Some(direct);
                self.hear();
            }
            let Some(direct) = &mut self.direct else { return Err(io::Error::from(io::ErrorKind::NotFound).into()) };
            let probe = direct.start(probe, (to, path), source, (random(), flight), &mut self.trust)?;
            if probe.is_unresolved() {
                self.timers.add(Instant::now() + RESOLVE.0, Due::Resolve(flight, RESOLVE.0));
            } else {
                self.resend_later(flight, check.timeout);
            }
            return Ok(Underway::Direct(probe));
        }
        let both = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        if let Some((request, judge)) = StreamJudge::of(probe, to, &mut self.trust)? {
            let probe = StreamProbe::start(to, source, request, judge)?;
            watch(&self.epoll, probe.socket(), flight, both)?;
            return Ok(Underway::Stream(probe));
        }
        if let Some((message, judge)) = DatagramJudge::of(probe, random()) {
            let probe = DatagramProbe::start(to, source, &message, judge)?;
            watch(&self.epoll, probe.socket(), flight, EventFlags::IN)?;
            return Ok(Underway::Datagram(probe));
        }
        if let Probe::Command(call) = probe {
            let probe = CommandProbe::start(call, target.key.0, target.key.1, to)?;
            watch(&self.epoll, probe.socket(), flight, EventFlags::IN)?;
            return Ok(Underway::Command(probe));
        }
        let (key, nonce) = (echo_key(target), random());
        if !self.echoes.contains_key(&key) {
            let number = 1 + self.echoes.values().map(|(number, _)| *number).max().unwrap_or(TAPS[1]);
            let socket = EchoSocket::open(key.0, key.1)?;
            watch(&self.epoll, socket.socket(), number, EventFlags::IN)?;
            self.echoes.insert(key, (number, socket));
        }
        if let Some((_, socket)) = self.echoes.get_mut(&key) {
            socket.send(to.ip(), nonce, flight)?;
        }
        Ok(Underway::Echo { socket: key, nonce })
    }

    fn ready(&mut self, event: &Event) {
        let number = event.data.u64();
        if number == WAKE {
            let _empty = rustix::io::read(&self.shared.wake, &mut [0; 8]);
            return;
        }
        if TAPS.contains(&number) {
            return self.taken_from_tap(number == TAPS[1]);
        }
        if number < FIRST_NUMBER {
            let socket = self.echoes.values_mut().find(|(known, _)| *known == number);
            let answered = socket.map(|(_, socket)| socket.answered()).unwrap_or_default();
            answered.into_iter().for_each(|flight| self.conclude(flight, Ok(())));
            return;
        }
        let verdict = match self.flights.get_mut(&number).map(|flight| &mut flight.what) {
            Some(Underway::Stream(probe)) => probe.go_on(),
            Some(Underway::Datagram(probe)) => probe.go_on(),
            Some(Underway::Command(probe)) => probe.go_on(),
            Some(Underway::Echo { .. } | Underway::Direct(_)) | None => None,
        };
        if let Some(verdict) = verdict {
            self.conclude(number, verdict);
        }
    }

    fn taken_from_tap(&mut self, ipv6: bool) {
        let arrived = self.direct.as_mut().map(|direct| direct.arrived(ipv6)).unwrap_or_default();
        for (number, packet) in arrived {
            let flight = self.flights.get_mut(&number).map(|flight| &mut flight.what);
            let verdict = match (flight, &self.direct) {
                (Some(Underway::Direct(probe)), Some(direct)) => direct.go_on(probe, &packet),
                _ => None,
            };
            if let Some(verdict) = verdict {
                self.conclude(number, verdict);
            }
        }
    }

    /// Ends a flight without a word.
    fn land(&mut self, flight: u64) -> Option<EndedProbe> {
        let landed = self.flights.remove(&flight)?;
        let judge = match &landed.what {
            Underway::Stream(probe) => Some(probe.judge()),
            Underway::Direct(probe) => probe.judge(),
            Underway::Datagram(_) | Underway::Echo { .. } | Underway::Command(_) => None,
        };
        let certificate_end = judge.and_then(StreamJudge::certificate_end);
        let of = EndedProbe { of: landed.of, began: landed.began, certificate_end };
        if let Underway::Command(probe) = landed.what {
            // The event of its end wakes this thread, where it has not ended yet.
            probe.kill();
            self.dying.push(probe);
            return Some(of);
        }
        self.open[SOCKETS] -= 1;
        if let Underway::Echo { socket, nonce } = &landed.what
            && let Some((_, socket)) = self.echoes.get_mut(socket)
        {
            socket.forget(*nonce);
        }
        if let (Underway::Direct(probe), Some(direct)) = (&landed.what, &mut self.direct) {
            direct.end(probe);
        }
        Some(of)
    }

    fn conclude(&mut self, flight: u64, verdict: Verdict) {
        self.end(flight, verdict.map_or_else(Outcome::Bad, |()| Outcome::Good));
    }

    fn end(&mut self, flight: u64, outcome: Outcome) {
        let Some(landed) = self.land(flight) else { return };
        self.note(&landed, outcome);
    }

    /// Notes what a probe came to, and when the next one is due.
    fn note(&mut self, landed: &EndedProbe, outcome: Outcome) {
        let (number, began, ended) = (landed.of, landed.began, Instant::now());
        let Some(watched) = self.targets.get_mut(&number) else { return };
        watched.flight = 0;
        let (key, check) = (watched.target.key, Arc::clone(&watched.target.check));
        let took = ended.duration_since(began);
        let last = LastProbe { outcome, at: SystemTime::now(), took, certificate_end: landed.certificate_end };
        let (is_news, is_down) = {
            let mut board = lock(&self.shared.board);
            let is_news = board.note(key, (check.rise, check.fall), last);
            (is_news, board.records.get(&key).is_some_and(|record| !record.state.health.is_up(check.begin)))
        };
        if is_news {
            (self.news)();
        }
        let interval = if is_down { check.interval_down } else { check.interval };
        self.timers.add(schedule::next(began, ended, (interval, check.jitter), random()), Due::Probe(number));
    }
}

fn watch(epoll: &OwnedFd, socket: BorrowedFd<'_>, number: u64, flags: EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, socket, EventData::new_u64(number), flags)?)
}

fn echo_key(target: &Target) -> EchoKey {
    (target.to.is_ipv6(), target.check.source)
}

/// Errors of a beginning that are the peer's or the way's to it; all others are this machine's. Where there is no route, clients' packets
/// do not get there either.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionRefused | K::HostUnreachable | K::NetworkUnreachable | K::TimedOut)
}

fn outcome_of(error: LaunchError) -> Outcome {
    match error {
        LaunchError::Peer(why) => Outcome::Bad(why),
        LaunchError::Here(error) => outcome_of_error(&error),
    }
}

/// What an error of a beginning says of the peer.
pub(super) fn outcome_of_error(error: &io::Error) -> Outcome {
    let why = of_error(error);
    if is_of_peer(error) { Outcome::Bad(why) } else { Outcome::Unable(why) }
}

/// What nobody can guess: numbers of questions, and times that are apart.
fn random() -> u64 {
    // It fails where the kernel has no randomness yet; the time will do.
    getrandom::u64().unwrap_or_else(|_| {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |at| at.as_nanos() as u64)
    })
}

fn timespec(span: Duration) -> Timespec {
    // Rounded up: what is awaited is due then.
    let span = span + Duration::from_micros(999);
    Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
