//! netserver: the other end of netperf's tests, for any number of clients at once.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rig_cli::streams;
use rig_load::driver::Cancel;
use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::cpu;
use rig_sys::socket::{NamedAddress, ZonedAddress};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, acceptfrom, connect, recv, recvfrom};
use socket2::{Domain, SockAddr, Socket};

use super::LONGEST_DATAGRAM;
use super::buffers::{Ring, RingLayout, width_for};
use super::control::{ControlError, is_closed, receive_message};
use super::data::{self, Counters, EndReason, LOOK, LoopContext, Pace};
use super::options::Bursts;
use super::phase::{Watch, run_phase};
use super::sockets::{BufferSizes, SocketSettings, TransportFacts, any_of, bind};
use super::usage::{METHOD, NO_METHOD, Usage, between};
use super::values::{Direction, SendReceive, Transport};
use super::wire::{Message, OmniRequest, OmniResponse, OmniResults, UNKNOWN_REQUEST, flag, message};

/// Clients at once; one more is closed unheard.
const CLIENTS: usize = 1000;
/// Stack of a client's thread.
const STACK: usize = 256 << 10;
/// For a client to say the passphrase.
const PASSPHRASE: Duration = Duration::from_secs(20);
/// For a client to say anything at all after it has connected, or the rest of a message that has begun.
const FIRST_WORD: Duration = Duration::from_secs(30);
/// Between two tests of a client.
const BETWEEN_TESTS: Duration = Duration::from_secs(600);
/// What a test may take beyond its time for the client to end it, as in netserver.
const PADDING: Duration = Duration::from_secs(4);
/// Without a datagram or a connection for so long after its time, a test is over.
const SILENCE: Duration = Duration::from_millis(500);
/// Connections that wait for a test of connections to accept them.
const BACKLOG: i32 = 128;
/// The most memory for the buffers of a test.
const LARGEST_BUFFERS: u64 = 256 << 20;
/// What there is before a device that does not answer is given up: a client that died without a word.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// What a server shall be.
#[derive(Debug, Clone, Default)]
pub struct ServerSettings {
    pub passphrase: Option<String>,
    /// `-v` and `-d`: says what comes and goes.
    pub verbose: bool,
    /// `-f`: one client after the other.
    pub serial: bool,
}

/// Serves until it is cancelled.
///
/// # Errors
/// When no connection can be taken any more.
pub fn serve(listeners: &[TcpListener], settings: &ServerSettings, cancel: &Cancel) -> io::Result<()> {
    let clients = Arc::new(AtomicUsize::new(0));
    for listener in listeners {
        listener.set_nonblocking(true)?;
    }
    loop {
        let mut entries: Vec<PollFd<'_>> = listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)).collect();
        entries.push(PollFd::new(cancel, PollFlags::IN));
        match poll(&mut entries, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if cancel.is_cancelled() {
            return Ok(());
        }
        for listener in listeners {
            let Some((stream, from)) = accepted(listener)? else { continue };
            if clients.load(Ordering::Relaxed) >= CLIENTS {
                say(settings, from, "is one client too many");
                continue;
            }
            clients.fetch_add(1, Ordering::Relaxed);
            let (of_thread, settings, cancel) = (clients.clone(), settings.clone(), cancel.clone());
            let serial = settings.serial;
            let started = thread::Builder::new().stack_size(STACK).spawn(move || {
                say(&settings, from, "has come");
                let _place = ClientPlace(of_thread);
                let end = Client::new(stream, from, &settings, &cancel).and_then(Client::serve);
                say(&settings, from, &end.map_or_else(|error| format!("has gone: {error}"), |()| "has gone".into()));
            });
            match started {
                Ok(client) if serial => drop(client.join()),
                Ok(_) => {}
                Err(error) => {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    streams::tell(format!("netserver: {}: no thread for it: {error}", NamedAddress::from(from)));
                }
            }
        }
    }
}

/// One of the clients that there may be at once, given back however its thread ends.
struct ClientPlace(Arc<AtomicUsize>);

impl Drop for ClientPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection, if there is one. Where there is no descriptor left for it, it waits a little.
fn accepted(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match listener.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                thread::sleep(LOOK);
                Ok(None)
            }
            Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP) => Err(error),
            _ => Ok(None),
        },
    }
}

fn say(settings: &ServerSettings, from: SocketAddr, text: &str) {
    if settings.verbose {
        streams::tell(format!("netserver: {} {text}", NamedAddress::from(from)));
    }
}

/// A control connection.
struct Client<'a> {
    stream: TcpStream,
    from: SocketAddr,
    settings: &'a ServerSettings,
    cancel: &'a Cancel,
}

/// An errno for the client, where something of its test cannot be had.
struct Refusal(i32);

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        let of_kind = match error.kind() {
            io::ErrorKind::Unsupported => Errno::PROTONOSUPPORT,
            io::ErrorKind::InvalidInput => Errno::INVAL,
            io::ErrorKind::PermissionDenied => Errno::PERM,
            io::ErrorKind::NotFound => Errno::NOENT,
            io::ErrorKind::AddrInUse => Errno::ADDRINUSE,
            io::ErrorKind::AddrNotAvailable => Errno::ADDRNOTAVAIL,
            _ => Errno::IO,
        };
        // What a library has put into words has its number behind it.
        let behind = error.get_ref().and_then(std::error::Error::source);
        let behind = behind.and_then(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error);
        Self(error.raw_os_error().or(behind).unwrap_or_else(|| of_kind.raw_os_error()))
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl<'a> Client<'a> {
    fn new(stream: TcpStream, from: SocketAddr, settings: &'a ServerSettings, cancel: &'a Cancel) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(FIRST_WORD))?;
        let keep_alive = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE).with_retries(3);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keep_alive)?;
        Ok(Self { stream, from, settings, cancel })
    }

    fn serve(mut self) -> io::Result<()> {
        if let Some(passphrase) = &self.settings.passphrase {
            let first = self.receive(PASSPHRASE)?;
            // netserver says nothing either way.
            match first {
                Some(first) if first.kind() == message::PASSPHRASE && first.text() == *passphrase => {}
                _ => return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not the passphrase")),
            }
        }
        let mut patience = FIRST_WORD;
        while let Some(request) = self.receive(patience)? {
            patience = BETWEEN_TESTS;
            match request.kind() {
                message::DO_OMNI => self.test(&OmniRequest::decode(&request))?,
                message::DEBUG_ON => self.send(&Message::new(message::DEBUG_OK, 0))?,
                // A passphrase that nobody asked for, and the end of debugging, have no answer.
                message::DEBUG_OFF | message::PASSPHRASE => {}
                message::CPU_CALIBRATE => self.send(&Message::new(message::CPU_CALIBRATE, 0))?,
                message::DO_SYSINFO => {
                    let said = ",Deprecated,Deprecated,Deprecated,Deprecated";
                    self.send(&Message::new(message::SYSINFO_RESPONSE, 0).with_text(said))?;
                }
                kind => {
                    say(self.settings, self.from, &format!("asks for a test of type {kind}, which is none of OMNI"));
                    self.send(&Message::new(kind, UNKNOWN_REQUEST))?;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, message: &Message) -> io::Result<()> {
        self.stream.write_all(message.as_bytes())
    }

    /// The next message; `None` at the connection's end, and when the server ends. `patience` is for its first byte.
    fn receive(&mut self, patience: Duration) -> io::Result<Option<Message>> {
        match receive_message(&mut self.stream, patience, Some(FIRST_WORD), &|| self.cancel.is_cancelled()) {
            Ok(message) => Ok(Some(message)),
            Err(ControlError::Closed | ControlError::Cancelled) => Ok(None),
            Err(error @ ControlError::Silent(_)) => Err(io::Error::new(io::ErrorKind::TimedOut, error)),
            Err(ControlError::Io(error)) => Err(error),
        }
    }

    fn test(&mut self, request: &OmniRequest) -> io::Result<()> {
        let refused = |kind: u32, errno: i32| Message::new(kind, errno);
        let prepared = match End::prepare(request, self.stream.local_addr()?.into(), self.from.into()) {
            Ok(prepared) => prepared,
            Err(Refusal(errno)) => {
                let why = io::Error::from_raw_os_error(errno);
                say(self.settings, self.from, &format!("asks for a test that cannot be had: {why}"));
                return self.send(&refused(message::OMNI_RESPONSE, errno));
            }
        };
        let usage = (request.flags & flag::MEASURE_CPU != 0).then(Usage::start);
        self.send(&prepared.response.encode())?;
        match prepared.run(usage.as_ref(), &|| is_closed(&self.stream) || self.cancel.is_cancelled()) {
            Ok(results) => self.send(&results.encode()),
            Err(error) => {
                let errno = Refusal::from(error).0;
                self.send(&refused(message::OMNI_RESULTS, errno))
            }
        }
    }
}

/// The server's end of a test, ready.
struct End {
    request: OmniRequest,
    transport: Transport,
    direction: Direction,
    socket: Socket,
    response: OmniResponse,
    buffers: BufferSizes,
    send: RingLayout,
    receive: RingLayout,
    /// The client's end of the control connection, from where data may come and to where it may go.
    client: ZonedAddress,
}

impl End {
    fn prepare(request: &OmniRequest, at: ZonedAddress, client: ZonedAddress) -> Result<Self, Refusal> {
        let transport = Transport::of_number(request.protocol).ok_or(Errno::PROTONOSUPPORT)?;
        let direction = Direction::of_number(request.direction);
        let connects = request.flags & flag::CONNECT_TEST != 0;
        let moves_nothing = direction == Direction::default() && !connects;
        let connects_without = connects && transport.is_datagram();
        if moves_nothing || connects_without || (connects && direction.is_one_way()) {
            return Err(Errno::INVAL.into());
        }
        // A file of the server's is not a client's to choose.
        if !request.fill_file.is_empty() {
            return Err(Errno::PERM.into());
        }
        let asked = |value: i32| u32::try_from(value).ok();
        let ipv6 = match request.family {
            4 => false,
            6 => true,
            _ => at.is_ipv6(),
        };
        let settings = SocketSettings {
            buffer: SendReceive { send: asked(request.send_buffer), receive: asked(request.receive_buffer) },
            no_delay: request.flags & flag::NO_DELAY != 0,
            keep_alive: request.flags & flag::KEEPALIVE != 0,
            routed: request.flags & flag::ROUTING_ALLOWED != 0,
            priority: asked(request.priority),
            type_of_service: u8::try_from(request.type_of_service).ok(),
            congestion_control: Some(request.congestion_control.clone()).filter(|name| !name.is_empty()),
            keep_whole: request.flags & flag::MTU_DISCOVER != 0,
            ..SocketSettings::default()
        };
        if let Ok(cpu) = u32::try_from(request.cpu)
            && !cpu::CpuSet::online().is_ok_and(|online| online.contains(cpu))
        {
            return Err(Errno::INVAL.into());
        }
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = settings.open(domain, transport)?;
        let any = ZonedAddress::from(SocketAddr::new(any_of(if ipv6 { [0; 16].into() } else { [0; 4].into() }), 0));
        let port = u16::try_from(request.data_port).map_err(|_| Errno::INVAL)?;
        let address = match request.server_address {
            // The address that the client has reached already, where its data comes to the same; with its link, where it has one.
            None if at.is_ipv6() == ipv6 => at,
            Some(address) if address == at.ip() => at,
            // Another link would be needed, too.
            Some(IpAddr::V6(address)) if address.is_unicast_link_local() => any,
            Some(address) => SocketAddr::new(address, 0).into(),
            None => any,
        };
        bind_or(&socket, address.at(port), transport)?;
        if !transport.is_datagram() {
            if request.flags & flag::FASTOPEN != 0 {
                rig_sys::socket::set_fast_open(&socket, BACKLOG as u16)?;
            }
            if request.flags & flag::DEFER_ACCEPT != 0 {
                rig_sys::socket::set_defer_accept(&socket, 5)?;
            }
            socket.listen(BACKLOG)?;
        }
        let buffers = BufferSizes::of(&socket)?;
        let (send, receive) = layouts(request, transport, buffers)?;
        let data_port = socket.local_addr()?.as_socket().map_or(0, |address| address.port());
        let response = OmniResponse {
            errno: 0,
            receive_buffer: buffers.receive as i32,
            receive_size: if direction.receives { receive.size as i32 } else { request.receive_size },
            receive_width: if direction.receives { receive.width } else { request.receive_width },
            send_buffer: buffers.send as i32,
            send_size: if direction.transmits { send.size as i32 } else { request.send_size },
            send_width: if direction.transmits { send.width } else { request.send_width },
            flags: request.flags & (flag::NO_DELAY | flag::MEASURE_CPU),
            cpu_rate: 0.0,
            data_port: data_port.into(),
            burst_sends: request.burst_sends,
            burst_us: request.burst_us,
            priority: request.priority,
            type_of_service: request.type_of_service,
        };
        let request = request.clone();
        Ok(Self { request, transport, direction, socket, response, buffers, send, receive, client })
    }

    /// Whether data may come from there: from where the client is, or said that it would be. Where it comes to another address than the
    /// control connection it may leave by another, too, and comes from anywhere; then nothing may go back that is more than what came.
    fn is_clients(&self, from: Option<IpAddr>) -> bool {
        let Some(from) = from.map(|from| from.to_canonical()) else { return false };
        if from == self.client.ip().to_canonical() {
            return true;
        }
        let elsewhere = self.request.server_address.is_some() || self.client.is_ipv6() != (self.request.family == 6);
        let said = self.request.client_address.is_some_and(|address| address.to_canonical() == from);
        let amplifies = self.transport.is_datagram() && self.direction.transmits && self.send.size > self.receive.size;
        (elsewhere || said) && !amplifies
    }

    fn run(self, usage: Option<&Usage>, is_abandoned: &dyn Fn() -> bool) -> io::Result<OmniResults> {
        let (counters, stop) = (Counters::default(), AtomicBool::new(false));
        let readings = usage.map(Usage::read).transpose().map_err(io::Error::other)?;
        let begin_ns = monotonic_ns();
        let length = u64::try_from(self.request.length).ok().map(Duration::from_secs);
        let timed = length.filter(|length| !length.is_zero());
        let sends_only = self.direction == Direction { transmits: true, receives: false };
        let over_ns = timed.map(monotonic_after);
        let padding = if sends_only { Duration::ZERO } else { PADDING };
        let deadline_ns = timed.map(|length| monotonic_after(length + padding));
        let connects = self.request.flags & flag::CONNECT_TEST != 0;
        let hears = connects || self.transport.is_datagram();
        let mut silent = false;
        let mut timed_out = false;
        let mut abandoned = false;
        let watch = || {
            let now_ns = monotonic_ns();
            let last_arrival_ns = counters.last_arrival_ns.load(Ordering::Relaxed);
            // A client may wait before its first datagram or connection.
            let has_begun = hears && last_arrival_ns > 0;
            let over = over_ns.is_some_and(|over_ns| now_ns >= over_ns);
            silent = has_begun && over && now_ns.saturating_sub(last_arrival_ns) >= SILENCE.as_nanos() as u64;
            timed_out = deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
            abandoned = is_abandoned();
            if silent || timed_out || abandoned { Watch::Stops } else { Watch::GoesOn(deadline_ns) }
        };
        let work = || {
            if let Ok(cpu) = u32::try_from(self.request.cpu) {
                cpu::set_affinity(&[cpu]).map_err(io::Error::other)?;
            }
            self.move_data(&counters, &stop, connects)
        };
        let ended = run_phase(&stop, work, watch);
        let end_ns = monotonic_ns();
        let cpu = match (usage, readings) {
            (Some(usage), Some(begin)) => Some(between(&begin, &usage.read().map_err(io::Error::other)?)),
            _ => None,
        };
        if abandoned {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client has gone"));
        }
        let (facts, buffers) = ended?;
        let last_arrival_ns = counters.last_arrival_ns.load(Ordering::Relaxed);
        let last_ns = match (silent, timed_out) {
            (true, _) if last_arrival_ns > begin_ns => last_arrival_ns,
            (_, true) => end_ns.saturating_sub(padding.as_nanos() as u64),
            _ => end_ns,
        };
        let elapsed = last_ns.saturating_sub(begin_ns) as f32 / 1e9;
        Ok(self.results(&counters, elapsed, cpu, &facts, buffers))
    }

    fn results(
        &self,
        counters: &Counters,
        elapsed: f32,
        cpu: Option<super::wire::CpuShares>,
        facts: &TransportFacts,
        buffers: BufferSizes,
    ) -> OmniResults {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let word = |counter: &std::sync::atomic::AtomicU64| u32::try_from(read(counter)).unwrap_or(u32::MAX);
        let bytes = (read(&counters.received_bytes), read(&counters.sent_bytes));
        let service_demand = cpu.as_ref().map_or(-1.0, |cpu| {
            let amount = (bytes.0 + bytes.1) as f64;
            let unit = super::units::Unit::Bits(6);
            super::figures::service_demand(unit, cpu, amount, f64::from(elapsed)) as f32
        });
        OmniResults {
            errno: 0,
            bytes_received: bytes.0,
            receive_calls: word(&counters.receive_calls),
            receive_buffer: buffers.receive as i32,
            bytes_sent: bytes.1,
            send_calls: word(&counters.send_calls),
            send_buffer: buffers.send as i32,
            failed_sends: word(&counters.failed_sends),
            transactions: word(&counters.transactions),
            elapsed,
            cpu: cpu.unwrap_or_default(),
            service_demand,
            cpu_method: if cpu.is_some() { METHOD } else { NO_METHOD },
            retransmissions: facts.retransmissions.unwrap_or(u32::MAX),
            congestion_control: facts.congestion_control.clone(),
        }
    }

    fn move_data(
        &self,
        counters: &Counters,
        stop: &AtomicBool,
        connects: bool,
    ) -> io::Result<(TransportFacts, BufferSizes)> {
        let units = u64::try_from(-i64::from(self.request.length)).ok().filter(|&units| units > 0);
        let bursts = Bursts {
            sends: self.request.burst_sends,
            interval: Duration::from_micros(self.request.burst_us.max(1).into()),
        };
        // What a receiver waits for is its sender's to pace.
        let pace = self.direction.transmits.then(|| Pace::new(bursts)).flatten();
        let by_units = self.direction == Direction { transmits: true, receives: false } || connects;
        let units = units.filter(|_| by_units);
        let mut context = LoopContext { counters, stop, units, pace, latencies: None };
        let mut send = Ring::new(self.send, None)?;
        let mut receive = Ring::new(self.receive, None)?;
        if connects {
            return self.serve_connections(&mut receive, &mut send, &mut context);
        }
        if self.transport.is_datagram() {
            self.serve_datagrams(&mut receive, &mut send, &mut context)?;
            return Ok((TransportFacts::default(), BufferSizes::of(&self.socket)?));
        }
        let Some(connection) = self.accept(&context)? else {
            return Ok((TransportFacts::default(), self.buffers));
        };
        let end = match (self.direction.transmits, self.direction.receives) {
            (true, true) => data::answer(&connection, &mut receive, &mut send, false, &mut context),
            (true, false) => data::send_stream(&connection, &mut send, &mut context),
            _ => data::receive_stream(&connection, &mut receive, &mut context),
        };
        // A client that is satisfied early may reset the connection.
        match end {
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {}
            end => drop(end?),
        }
        let facts = (TransportFacts::of(&connection), BufferSizes::of(&connection)?);
        Ok(facts)
    }

    /// The client's connection; `None` where the test ends before.
    fn accept(&self, context: &LoopContext<'_>) -> io::Result<Option<OwnedFd>> {
        loop {
            match self.accept_one() {
                Ok(connection) => return Ok(Some(connection)),
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {
                    if context.stop.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// EAGAIN where nobody came for a while, or somebody else did.
    fn accept_one(&self) -> Result<OwnedFd, Errno> {
        let (connection, from) = acceptfrom(&self.socket)?;
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        if !self.is_clients(from.map(|from| from.ip())) {
            return Err(Errno::AGAIN);
        }
        // Of the listening socket's options a connection has all but its times.
        let reference = socket2::SockRef::from(&connection);
        let timed = reference.set_read_timeout(Some(LOOK)).and_then(|()| reference.set_write_timeout(Some(LOOK)));
        timed.map_err(|_| Errno::INVAL)?;
        Ok(connection)
    }

    fn serve_connections(
        &self,
        requests: &mut Ring,
        responses: &mut Ring,
        context: &mut LoopContext<'_>,
    ) -> io::Result<(TransportFacts, BufferSizes)> {
        let mut seen = None;
        let look = |connection: &OwnedFd| {
            if seen.is_none() {
                seen = BufferSizes::of(connection).ok().map(|sizes| (TransportFacts::of(connection), sizes));
            }
        };
        let exchanges = self.direction.receives;
        data::accept_and_answer(|| self.accept_one(), exchanges, requests, responses, look, context)?;
        Ok(seen.unwrap_or((TransportFacts::default(), self.buffers)))
    }

    fn serve_datagrams(
        &self,
        receive: &mut Ring,
        send: &mut Ring,
        context: &mut LoopContext<'_>,
    ) -> io::Result<EndReason> {
        let socket = self.socket.as_fd().try_clone_to_owned()?;
        if !self.direction.receives {
            // Nowhere else: whoever is there has shown that it listens to this machine.
            if self.request.client_address.is_some_and(|address| address != self.client.ip()) {
                return Err(Errno::PERM.into());
            }
            let port = u16::try_from(self.request.client_port).map_err(|_| Errno::INVAL)?;
            self.socket.connect(&SockAddr::from(self.client.at(port)))?;
            let datagram = send.current().to_vec();
            let end = data::send_datagrams(&socket, &datagram, context)?;
            for _ in 0..3 {
                let _ = rustix::net::send(&socket, &[], SendFlags::NOSIGNAL);
            }
            return Ok(end);
        }
        if !self.await_client(&socket, context)? {
            return Ok(EndReason::Stopped);
        }
        if self.direction.transmits {
            data::answer(&socket, receive, send, true, context)
        } else {
            data::receive_datagrams(&socket, self.receive.size, context)
        }
    }

    /// Waits for the first datagram that comes from the client, and takes none of others from then on. False where the test ends before.
    fn await_client(&self, socket: &OwnedFd, context: &LoopContext<'_>) -> io::Result<bool> {
        loop {
            match recvfrom(socket, &mut [0_u8][..], RecvFlags::PEEK) {
                Ok((_, _, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    match from.filter(|from| self.is_clients(Some(from.ip()))) {
                        Some(from) => {
                            connect(socket, &from)?;
                            context.counters.last_arrival_ns.store(monotonic_ns(), Ordering::Relaxed);
                            return Ok(true);
                        }
                        None => drop(recv(socket, &mut [0_u8][..], RecvFlags::empty())),
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if context.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
    }
}

/// An address that is none of this machine's any more, or never was one as behind a translator, is no reason to refuse.
fn bind_or(socket: &Socket, at: SocketAddr, transport: Transport) -> Result<(), Refusal> {
    match bind(socket, at, transport) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            Ok(socket.bind(&SockAddr::from(SocketAddr::new(any_of(at.ip()), at.port())))?)
        }
        result => Ok(result?),
    }
}

/// The rings for sending and receiving; of one byte where a way is not used.
fn layouts(
    request: &OmniRequest,
    transport: Transport,
    buffers: BufferSizes,
) -> Result<(RingLayout, RingLayout), Refusal> {
    let direction = Direction::of_number(request.direction);
    let chosen = |used: bool, exchanged: i32, asked: i32, own: u32, width: u32, alignment: u32, offset: u32| {
        if !used {
            return Ok(RingLayout::UNUSED);
        }
        let size = [exchanged, asked].into_iter().find(|&size| size > 0).map_or(own.max(1), |size| size as u32);
        let width = match width {
            0 if exchanged > 0 => 1,
            0 => width_for(own, size),
            width => width,
        };
        let layout = RingLayout { width, size, alignment, offset };
        let too_long = transport.is_datagram() && size > LONGEST_DATAGRAM && exchanged > 0;
        if too_long || layout.check(LARGEST_BUFFERS / 2).is_err() {
            return Err(Refusal::from(Errno::MSGSIZE));
        }
        Ok(layout)
    };
    let send_own = if transport.is_datagram() { buffers.send.min(LONGEST_DATAGRAM) } else { buffers.send };
    let send = chosen(
        direction.transmits,
        if direction.receives { request.response_size } else { -1 },
        request.send_size,
        send_own,
        request.send_width,
        request.send_alignment,
        request.send_offset,
    )?;
    let receive = chosen(
        direction.receives,
        if direction.transmits { request.request_size } else { -1 },
        request.receive_size,
        buffers.receive,
        request.receive_width,
        request.receive_alignment,
        request.receive_offset,
    )?;
    Ok((send, receive))
}

/// Rings of whatever a client asks for have a bound.
pub fn fuzz(request: &OmniRequest) {
    let Some(transport) = Transport::of_number(request.protocol) else { return };
    if let Ok((send, receive)) = layouts(request, transport, BufferSizes { send: 16_384, receive: 131_072 }) {
        assert!(send.memory() + receive.memory() <= LARGEST_BUFFERS);
        assert!(send.width.max(receive.width) <= RingLayout::WIDEST);
    }
}

#[cfg(test)]
mod tests;
