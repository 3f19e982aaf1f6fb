//! The receiver: listens, agrees with the senders that synchronise, and counts what comes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_load::driver::Cancel;
use rig_load::worker::embedded::{Counts, Port, Protocol, Receiver as Load, ReceiverSettings};
use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::socket::NamedAddress;

use super::console::{Console, Progress};
use super::sync::{Action, Client, Cycle, LengthPolicy, Receiver as Sync};
use super::test_plan::{Length, TestPlan};
use super::{chosen, data_ports, hosts, report, sync_ports, times};
use crate::counters::{CounterSelection, Snapshot};
use crate::test_run::{self, EndReason, Start, TestEnd, read_some, wait_readable};

/// Sync connections at a time. A new one beyond that takes the place of the one that has been undecided for longest.
const PEERS: usize = 64;
/// For a client to say how long the test shall be.
const DECIDE: Duration = Duration::from_secs(30);
/// For a client to open its connections after that, as in the original.
const CONNECT: Duration = Duration::from_secs(1200);
/// Senders that leave end the test this much later: their clock may have run out just before the receiver's.
const GRACE: Duration = Duration::from_secs(1);
/// After the test the senders may want to know that it is over.
const LINGER: Duration = Duration::from_secs(2);
/// Nonsensical clients that are reported; others are reported in verbose output only.
const NONSENSE: u32 = 10;
/// When no descriptor is left for a new connection.
const PAUSE: Duration = Duration::from_millis(200);

/// Runs the receiver to its end.
pub fn run(plan: &TestPlan, cancel: &Cancel, console: &Console) -> Result<Exit, Failure> {
    let hosts = hosts(plan, cancel)?;
    let ports = data_ports(plan, &hosts).into_iter().map(|(at, cpu)| Port { at, cpu }).collect();
    let receiving = ReceiverSettings {
        protocol: plan.protocol,
        ports,
        message: plan.message,
        receive_buffer: plan.receive_buffer,
        no_delay: plan.no_delay,
        outstanding: plan.outstanding,
    };
    let load = Load::open(&receiving).or_exit(Exit::Failed)?;
    load.notes().iter().for_each(|note| console.remark(note));
    let doors = sync_ports(plan, &hosts).into_iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    console.info(&format!("{} threads created", plan.threads() as usize + usize::from(plan.sync)));
    for at in load.addresses().iter().copied().map(NamedAddress::from) {
        console.detail(&format!("ntttcp server is listening on {at}"));
    }
    // Before the sender comes: it takes longer than a test without synchronisation can wait.
    let counted = chosen(plan);
    let mut host = Host::new(plan, cancel, console, load, doors, &counted);
    let exit = loop {
        let Some(cycle) = host.wait_for_start()? else { break Exit::Stopped };
        console.progressing();
        let measured =
            test_run::run(&mut host, &mut Progress(console), &times(plan, cycle), &counted).or_exit(Exit::Failed)?;
        host.finish();
        let mut end = None;
        if let Some(measured) = measured {
            end = Some(measured.end);
            report::write(plan, &measured, &report::ConnectionFigures::default(), console)?;
        }
        if end == Some(EndReason::Stalled) {
            let error =
                anyhow!("nothing came for {:?} (-to): look at the sender", plan.stall_timeout.unwrap_or_default());
            return Err(Failure::new(Exit::Failed, error));
        }
        if cancel.is_cancelled() {
            break Exit::Done;
        }
        if !plan.hold {
            host.linger()?;
            break Exit::Done;
        }
        host.renew();
    };
    host.load.stop().or_exit(Exit::Failed)?;
    Ok(exit)
}

fn listen(at: SocketAddr) -> Result<TcpListener, Failure> {
    let door = TcpListener::bind(at).and_then(|door| door.set_nonblocking(true).map(|()| door));
    let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    door.map_err(|error| match in_use(&error) {
        true => anyhow!(
            "the sync port {0} is in use: stop the program that has it (`ss -lntp 'sport = :{0}'` names it), choose \
             another base port with -p at both ends, or do without synchronisation",
            at.port()
        ),
        false => anyhow!("listen on {} for synchronisation: {error}", NamedAddress::from(at)),
    })
    .or_exit(Exit::Failed)
}

/// A sync connection.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    name: String,
    since_ns: u64,
    decided: bool,
}

/// The receiver at work.
struct Host<'a> {
    plan: &'a TestPlan,
    cancel: &'a Cancel,
    console: &'a Console,
    load: Load,
    doors: Vec<TcpListener>,
    counted: &'a CounterSelection,
    sync: Sync,
    peers: BTreeMap<Client, Peer>,
    next: Client,
    /// Clients that sent nonsense so far.
    refused: u32,
    /// The doors are not looked at before this.
    deaf_until_ns: u64,
    begin: Option<Cycle>,
    /// The counts at that moment.
    begun: Option<Start>,
    over: Option<EndReason>,
    deserted_ns: Option<u64>,
    /// Connections and counts before this test, for those that begin with the first of them.
    seen: (usize, Vec<Counts>),
}

impl<'a> Host<'a> {
    fn new(
        plan: &'a TestPlan,
        cancel: &'a Cancel,
        console: &'a Console,
        load: Load,
        doors: Vec<TcpListener>,
        counted: &'a CounterSelection,
    ) -> Self {
        let terms = match plan.length {
            Length::AsSender | Length::Messages { .. } => LengthPolicy::AsProposed,
            // The original leaves its own warm-up and cool-down out, and then cuts its window short.
            Length::Seconds(_) | Length::Endless => LengthPolicy::AtLeast(plan.cycle()),
        };
        let seen = (0, vec![Counts::default(); load.counts().len()]);
        Self {
            plan,
            cancel,
            console,
            load,
            doors,
            counted,
            sync: Sync::new(terms, plan.many),
            peers: BTreeMap::new(),
            next: 0,
            refused: 0,
            deaf_until_ns: 0,
            begin: None,
            begun: None,
            over: None,
            deserted_ns: None,
            seen,
        }
    }

    /// Waits for a test. `None` when the user has had enough.
    fn wait_for_start(&mut self) -> Result<Option<Cycle>, Failure> {
        let deadline_ns = self.plan.stall_timeout.map_or(u64::MAX, monotonic_after);
        loop {
            if self.cancel.is_cancelled() {
                return Ok(None);
            }
            if let Some(cycle) = self.begin.take() {
                return Ok(Some(cycle));
            }
            if !self.plan.sync && self.has_news_of_data() {
                // What came with the news belongs to the test.
                self.begun = Some(self.start(self.seen.1.clone()));
                return Ok(Some(self.plan.cycle()));
            }
            if monotonic_ns() >= deadline_ns {
                let error = anyhow!("no sender came within {:?} (-to)", self.plan.stall_timeout.unwrap_or_default());
                return Err(Failure::new(Exit::Failed, error));
            }
            self.round(deadline_ns.min(monotonic_after(Duration::from_secs(1)))).or_exit(Exit::Failed)?;
        }
    }

    fn has_news_of_data(&self) -> bool {
        self.load.accepted() > self.seen.0 || (self.plan.protocol == Protocol::Udp && self.load.counts() != self.seen.1)
    }

    /// The begin of a test, now, from `counts` on.
    fn start(&self, counts: Vec<Counts>) -> Start {
        Start { counts, machine: Snapshot::take(self.counted) }
    }

    fn finish(&mut self) {
        self.sync.finished();
    }

    /// Ready for the next test.
    fn renew(&mut self) {
        self.sync.renew();
        (self.begin, self.begun, self.over, self.deserted_ns) = (None, None, None, None);
        self.seen = (self.load.accepted(), self.load.counts());
    }

    /// Answers the senders that are still there, for a while.
    fn linger(&mut self) -> Result<(), Failure> {
        let deadline_ns = monotonic_after(LINGER);
        while self.peers.keys().any(|&client| self.sync.is_seated(client)) && monotonic_ns() < deadline_ns {
            self.round(deadline_ns).or_exit(Exit::Failed)?;
        }
        Ok(())
    }

    /// Waits for something to happen until `until_ns`, and sees to it.
    fn round(&mut self, until_ns: u64) -> anyhow::Result<()> {
        self.load.check()?;
        let hearing = monotonic_ns() >= self.deaf_until_ns;
        let doors = if hearing { self.doors.as_slice() } else { &[] };
        let until_ns = if hearing { until_ns } else { until_ns.min(self.deaf_until_ns) };
        let until_ns = self.peers.values().map(Peer::deadline_ns).fold(until_ns, u64::min);
        let until_ns = until_ns.max(monotonic_ns());
        let clients: Vec<Client> = self.peers.keys().copied().collect();
        let mut fds = vec![self.cancel.as_fd(), self.load.news()];
        fds.extend(doors.iter().map(AsFd::as_fd));
        fds.extend(self.peers.values().map(|peer| peer.stream.as_fd()));
        let knocking = doors.len();
        let ready = wait_readable(&fds, until_ns).context("wait")?;
        drop(fds);
        if ready[1] {
            self.load.clear();
        }
        for door in 0..knocking {
            if ready[2 + door] {
                self.admit(door);
            }
        }
        for (at, client) in clients.into_iter().enumerate() {
            if ready[2 + knocking + at] {
                self.hear(client);
            }
        }
        self.send_away_the_undecided();
        Ok(())
    }

    fn admit(&mut self, door: usize) {
        let (stream, address) = match self.doors[door].accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {
                self.deaf_until_ns = monotonic_after(PAUSE);
                return;
            }
        };
        if self.peers.len() >= PEERS {
            let undecided = self.peers.iter().filter(|(client, _)| !self.sync.is_seated(**client));
            match undecided.min_by_key(|(_, peer)| peer.since_ns).map(|(&client, _)| client) {
                Some(oldest) => self.send_away(oldest, "others want its place"),
                None => return,
            }
        }
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        // Answers are small and awaited.
        let _ = stream.set_nodelay(true);
        let address = NamedAddress::from(address);
        self.console.detail(&format!("Sync connection: {address} --> local:{}", self.plan.port - 1));
        let peer = Peer { stream, name: address.to_string(), since_ns: monotonic_ns(), decided: false };
        self.sync.connected(self.next);
        self.peers.insert(self.next, peer);
        self.next = self.next.wrapping_add(1);
    }

    fn hear(&mut self, client: Client) {
        let mut buffer = [0u8; 256];
        let Some(peer) = self.peers.get(&client) else { return };
        match read_some(&peer.stream, &mut buffer) {
            Some(0) => {}
            Some(n) => {
                let actions = self.sync.bytes(client, &buffer[..n]);
                self.obey(actions);
            }
            None => {
                self.peers.remove(&client);
                let actions = self.sync.closed(client);
                self.obey(actions);
            }
        }
    }

    fn obey(&mut self, actions: Vec<Action>) {
        if actions.iter().any(|action| matches!(action, Action::Begin(_))) {
            // Before the answer: a sender that has it may be done with all it has to send in no time.
            self.begun = Some(self.start(self.load.counts()));
        }
        for action in actions {
            match action {
                Action::Reply(client, message) => {
                    let Some(peer) = self.peers.get_mut(&client) else { continue };
                    if !peer.decided {
                        (peer.decided, peer.since_ns) = (true, monotonic_ns());
                    }
                    // Four bytes always fit, save for a peer that reads none of its answers.
                    if peer.stream.write(&message).is_ok_and(|n| n == message.len()) {
                        continue;
                    }
                    self.send_away(client, "it does not take its answers");
                }
                Action::Begin(cycle) => self.begin = Some(cycle),
                Action::Stop(_) => {
                    self.console.remark("test exited because sender side was interrupted");
                    self.over = Some(EndReason::Stopped);
                }
                Action::Deserted => self.deserted_ns = Some(monotonic_after(GRACE)),
                Action::Joined { waiting } => self.console.detail(&format!("{waiting} clients wait for the last one")),
                Action::Refuse(client, refusal) => {
                    let Some(peer) = self.peers.remove(&client) else { continue };
                    let text = format!("sync connection of {} closed: {refusal}", peer.name);
                    self.refused = self.refused.saturating_add(1);
                    if self.refused <= NONSENSE { self.console.error(&text) } else { self.console.detail(&text) }
                }
            }
        }
    }

    fn send_away(&mut self, client: Client, why: &str) {
        if let Some(peer) = self.peers.remove(&client) {
            self.console.detail(&format!("sync connection of {} closed: {why}", peer.name));
            let actions = self.sync.closed(client);
            // `closed` gives no other action.
            if actions.contains(&Action::Deserted) {
                self.deserted_ns = Some(monotonic_after(GRACE));
            }
        }
    }

    fn send_away_the_undecided(&mut self) {
        let now_ns = monotonic_ns();
        let late = |(client, peer): (&Client, &Peer)| {
            (peer.deadline_ns() <= now_ns && !self.sync.is_seated(*client)).then_some(*client)
        };
        let late: Vec<Client> = self.peers.iter().filter_map(late).collect();
        late.into_iter().for_each(|client| self.send_away(client, "it took too long"));
        for (client, peer) in &mut self.peers {
            if self.sync.is_seated(*client) {
                // Seated clients may take as long as the test does.
                peer.since_ns = now_ns;
            }
        }
    }
}

impl Peer {
    fn deadline_ns(&self) -> u64 {
        self.since_ns.saturating_add((if self.decided { CONNECT } else { DECIDE }).as_nanos() as u64)
    }
}

impl TestEnd for Host<'_> {
    fn counts(&self) -> Vec<Counts> {
        self.load.counts()
    }

    fn begun(&mut self) -> Option<Start> {
        self.begun.take()
    }

    fn serve(&mut self, until_ns: u64) -> anyhow::Result<Option<EndReason>> {
        loop {
            let now_ns = monotonic_ns();
            if self.cancel.is_cancelled() {
                return Ok(Some(EndReason::Interrupted));
            }
            if let Some(end) = self.over {
                return Ok(Some(end));
            }
            if self.deserted_ns.is_some_and(|at_ns| now_ns >= at_ns) {
                return Ok(Some(EndReason::Stopped));
            }
            let tcp = self.plan.protocol == Protocol::Tcp;
            if !self.plan.sync && self.plan.length == Length::AsSender && tcp && self.load.is_idle()? {
                return Ok(Some(EndReason::Dry));
            }
            if now_ns >= until_ns {
                return Ok(None);
            }
            self.round(until_ns.min(self.deserted_ns.unwrap_or(u64::MAX)))?;
        }
    }
}
