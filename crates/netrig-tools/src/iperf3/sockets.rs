//! Sockets as iperf3 opens them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use rig_load::driver::Cancel;
use rig_sys::clock::monotonic_ns;
use rig_sys::socket::{self, Buffer, NamedAddress, ZonedAddress, resolve, sctp};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol as SocketProtocol, Socket, TcpKeepalive, Type};

use super::console::Console;
use super::error::{Code, TestError, WithCode};
use super::settings::{Family, NetworkSettings, Protocol, SCTP_SEGMENTS, TestSettings};
use super::wait::wait;

/// A datagram's buffer has room for this beside the datagram.
const EXTRA: u32 = 1024;

/// The addresses of a host, of the family that is asked for.
///
/// # Errors
/// When it has none.
pub fn addresses(host: &str, family: Option<Family>, code: Code) -> Result<Vec<ZonedAddress>, TestError> {
    let all = resolve(host).map_err(|error| TestError::with(code, error.to_string()))?;
    of_family(&all, host, family, code)
}

/// Those of all addresses of a host.
fn of_family(
    all: &[ZonedAddress],
    host: &str,
    family: Option<Family>,
    code: Code,
) -> Result<Vec<ZonedAddress>, TestError> {
    let is_asked = |address: &&ZonedAddress| family.is_none_or(|family| (family == Family::V6) == address.is_ipv6());
    let some: Vec<_> = all.iter().filter(is_asked).copied().collect();
    if some.is_empty() {
        return Err(TestError::with(code, format!("'{host}' has no address of that family")));
    }
    Ok(some)
}

/// As [`addresses`], but an error as soon as that is cancelled. Only a name is waited for: an address needs no thread.
fn unless_cancelled(
    host: &str,
    family: Option<Family>,
    code: Code,
    cancel: &Cancel,
) -> Result<Vec<ZonedAddress>, TestError> {
    if host.parse::<ZonedAddress>().is_ok() {
        return addresses(host, family, code);
    }
    let name = host.to_owned();
    let found = cancel.unless_cancelled(move || addresses(&name, family, code)).or_code(code)?;
    found.unwrap_or(Err(code.into()))
}

/// What a client's sockets have of the network, with the addresses that they are bound to: each name is looked up once, however many streams
/// there are.
#[derive(Debug)]
pub struct ClientNetwork<'a> {
    settings: &'a NetworkSettings,
    /// Of `-B`.
    bind: Vec<ZonedAddress>,
    /// Of each `-X`.
    sctp_binds: Vec<Vec<ZonedAddress>>,
}

impl<'a> ClientNetwork<'a> {
    /// # Errors
    /// When a name has no address, and as soon as that is cancelled.
    pub fn look_up(settings: &'a NetworkSettings, cancel: &Cancel) -> Result<Self, TestError> {
        let all = |host: &String, code| unless_cancelled(host, settings.family, code, cancel);
        let bind = settings.bind.as_ref().map(|host| all(host, Code::CONNECT)).transpose()?.unwrap_or_default();
        let sctp_binds = settings.sctp_binds.iter().map(|host| all(host, Code::SCTP_BIND)).collect::<Result<_, _>>()?;
        Ok(Self { settings, bind, sctp_binds })
    }

    /// Binds a socket to what was asked for.
    fn bind(&self, socket: &Socket, to: SocketAddr, port: Option<u16>, code: Code) -> Result<(), TestError> {
        self.bind_device(socket)?;
        if self.settings.bind.is_none() && port.is_none() {
            return Ok(());
        }
        let any = if to.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
        let source = match &self.settings.bind {
            None => any.into(),
            Some(host) => of_family(&self.bind, host, Some(family_of(to)), code)?[0],
        };
        // Ports of the run before may still wait for their last packets.
        socket.set_reuse_address(true).or_code(code)?;
        let from = source.at(port.unwrap_or(0));
        let bound = socket.bind(&from.into());
        bound.map_err(|error| with_what(code, &error, &format!("bind to {}", NamedAddress::from(from))))
    }

    fn bind_device(&self, socket: &Socket) -> Result<(), TestError> {
        match &self.settings.device {
            Some(device) => socket.bind_device(Some(device.as_bytes())).or_code(Code::BIND_DEVICE),
            None => Ok(()),
        }
    }

    /// Binds a socket of SCTP to the addresses of `-X`, in the place of `-B`.
    fn bind_association(&self, socket: &Socket, to: SocketAddr, port: Option<u16>) -> Result<(), TestError> {
        self.bind_device(socket)?;
        let each = self.settings.sctp_binds.iter().zip(&self.sctp_binds);
        let each = each.map(|(host, all)| of_family(all, host, Some(family_of(to)), Code::SCTP_BIND));
        bind_association(socket, &each.collect::<Result<Vec<_>, _>>()?.concat(), port.unwrap_or(0))
    }
}

fn family_of(address: SocketAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

fn with_what(code: Code, error: &io::Error, what: &str) -> TestError {
    let trouble = TestError::system(code, error);
    let detail = trouble.detail.map(|detail| format!("{detail} ({what})"));
    TestError { detail, ..trouble }
}

/// Connects until the kernel gives up, `limit_ns` have passed, or a signal has come.
fn connect(socket: &Socket, to: SocketAddr, limit_ns: Option<u64>, cancel: &Cancel) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    if let Err(error) = socket.connect(&to.into()) {
        if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) {
            return Err(error);
        }
        let deadline_ns = limit_ns.map(|ns| monotonic_ns().saturating_add(ns));
        let mut fds = [PollFd::new(socket, PollFlags::OUT), PollFd::new(cancel, PollFlags::IN)];
        wait(&mut fds, deadline_ns)?;
        let is_over = !fds[0].revents().is_empty();
        if cancel.is_cancelled() {
            return Err(Errno::INTR.into());
        }
        if !is_over {
            return Err(Errno::TIMEDOUT.into());
        }
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
    }
    socket.set_nonblocking(false)
}

/// The control connection to a server, by the first of its addresses that answers.
///
/// # Errors
/// What the last one said.
pub fn dial(host: &str, network: &ClientNetwork<'_>, cancel: &Cancel) -> Result<(Socket, SocketAddr), TestError> {
    let mut trouble = TestError::from(Code::CONNECT);
    let settings = network.settings;
    for address in unless_cancelled(host, settings.family, Code::CONNECT, cancel)? {
        let to = address.at(settings.port);
        let connect = || -> Result<Socket, TestError> {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).or_code(Code::CONNECT)?;
            network.bind(&socket, to, None, Code::CONNECT)?;
            let limit_ns = settings.connect_timeout_ms.map(|ms| ms.max(1).saturating_mul(1_000_000));
            connect(&socket, to, limit_ns, cancel).or_code(Code::CONNECT)?;
            Ok(socket)
        };
        match connect() {
            Ok(socket) => {
                control_options(&socket, settings)?;
                return Ok((socket, to));
            }
            Err(error) if cancel.is_cancelled() => return Err(error),
            Err(error) => trouble = error,
        }
    }
    Err(trouble)
}

/// What control connections have, either end.
///
/// # Errors
/// The kernel's.
pub fn control_options(socket: &Socket, network: &NetworkSettings) -> Result<(), TestError> {
    socket.set_tcp_nodelay(true).or_code(Code::NO_DELAY)?;
    if let Some(keep_alive) = network.keep_alive {
        socket.set_keepalive(true).or_code(Code::SET_KEEPALIVE)?;
        let mut asked = TcpKeepalive::new();
        if keep_alive.idle > 0 {
            asked = asked.with_time(Duration::from_secs(keep_alive.idle.into()));
        }
        if keep_alive.interval > 0 {
            asked = asked.with_interval(Duration::from_secs(keep_alive.interval.into()));
        }
        if keep_alive.count > 0 {
            asked = asked.with_retries(keep_alive.count);
        }
        socket.set_tcp_keepalive(&asked).or_code(Code::SET_KEEPALIVE)?;
    }
    user_timeout(socket, network)
}

fn user_timeout(socket: &Socket, network: &NetworkSettings) -> Result<(), TestError> {
    if network.send_timeout_ms == 0 {
        return Ok(());
    }
    let timeout = Duration::from_millis(network.send_timeout_ms.into());
    socket.set_tcp_user_timeout(Some(timeout)).or_code(Code::USER_TIMEOUT)
}

/// Both buffers of a socket, if they were asked for.
fn window(socket: &Socket, test: &TestSettings) -> Result<(), TestError> {
    if test.window == 0 {
        return Ok(());
    }
    for which in [Buffer::Send, Buffer::Receive] {
        // Within the limits that the machine has for everybody: as root more could be had, of a server's for any client.
        let size = test.window as usize;
        let set = match which {
            Buffer::Send => socket.set_send_buffer_size(size),
            Buffer::Receive => socket.set_recv_buffer_size(size),
        };
        set.or_code(Code::SET_BUFFER)?;
        let granted = socket::buffer(socket, which).or_code(Code::SET_BUFFER)? / 2;
        // The kernel's number has twice what was asked for, and the original compares with that.
        if u64::from(granted) * 2 < u64::from(test.window) {
            let limit = which.limit();
            let why = format!("{granted} of {} bytes were granted; {limit} limits it", test.window);
            return Err(TestError::with(Code::BUFFER_NOT_SET, why));
        }
    }
    Ok(())
}

/// Type of service of a socket, whose peer may be an IPv4 one of an IPv6 socket.
fn service(socket: &Socket, peer: SocketAddr, tos: u32) -> Result<(), TestError> {
    if tos == 0 {
        return Ok(());
    }
    if peer.is_ipv4() {
        return socket.set_tos_v4(tos).or_code(Code::SET_TOS);
    }
    if peer.ip().to_canonical().is_ipv4() {
        // Some kernels take it for IPv6 sockets, and then it counts.
        let _ = socket.set_tos_v4(tos);
    }
    socket.set_tclass_v6(tos).or_code(Code::SET_TOS)
}

fn pacing(socket: &Socket, test: &TestSettings) {
    if test.fq_rate >= 8 && socket::set_pacing_rate(socket, test.fq_rate / 8).is_err() {
        Console::warning("Unable to set socket pacing");
    }
}

/// What a stream over a connection has that an end which has accepted it sets, too.
///
/// # Errors
/// The kernel's; a congestion control that this end lacks is a warning where it has accepted the stream.
pub fn stream_options(
    socket: &Socket,
    peer: SocketAddr,
    test: &TestSettings,
    network: &NetworkSettings,
    accepted: bool,
) -> Result<(), TestError> {
    window(socket, test)?;
    if test.protocol == Protocol::Sctp {
        if test.no_delay {
            sctp::set_no_delay(socket).or_code(Code::NO_DELAY)?;
        }
        return service(socket, peer, test.tos);
    }
    if test.no_delay {
        socket.set_tcp_nodelay(true).or_code(Code::NO_DELAY)?;
    }
    if let Some(name) = &test.congestion {
        match socket::set_congestion_control(socket, name) {
            Err(_) if accepted => Console::warning("TCP congestion control algorithm not supported"),
            Err(error) => {
                return Err(TestError { code: Code::CONGESTION, detail: Some(error.to_string()), errno: 2 });
            }
            Ok(()) => {}
        }
    }
    pacing(socket, test);
    user_timeout(socket, network)?;
    service(socket, peer, test.tos)
}

/// The address to connect to, with the flow label that was asked for.
fn labelled(socket: &Socket, to: SocketAddr, label: u32) -> Result<SocketAddr, TestError> {
    match to {
        SocketAddr::V6(v6) if label != 0 => {
            socket::lease_flow_label(socket, *v6.ip(), label).or_code(Code::SET_FLOW_LABEL)?;
            Ok(SocketAddrV6::new(*v6.ip(), v6.port(), label.to_be(), v6.scope_id()).into())
        }
        _ if label != 0 => Err(TestError::with(Code::SET_FLOW_LABEL, "IPv4 has none")),
        _ => Ok(to),
    }
}

/// Binds a socket of SCTP to addresses of this machine.
fn bind_association(socket: &Socket, addresses: &[ZonedAddress], port: u16) -> Result<(), TestError> {
    let all: Vec<SocketAddr> = addresses.iter().map(|address| address.at(port)).collect();
    let (first, others) = all.split_first().ok_or(Code::SCTP_BIND)?;
    let bound = |result: io::Result<()>, at: SocketAddr| {
        result.map_err(|error| with_what(Code::SCTP_BIND, &error, &format!("bind to {}", NamedAddress::from(at))))
    };
    bound(socket.bind(&(*first).into()), *first)?;
    let port = socket.local_addr().or_code(Code::SCTP_BIND)?.as_socket().map_or(port, |at| at.port());
    for at in others {
        let at = SocketAddr::new(at.ip(), port);
        bound(sctp::bind_more(socket, &[at]), at)?;
    }
    Ok(())
}

/// A client's association of SCTP, connected.
fn connect_association(
    to: SocketAddr,
    test: &TestSettings,
    network: &ClientNetwork<'_>,
    port: Option<u16>,
    cancel: &Cancel,
) -> Result<Socket, TestError> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(SocketProtocol::SCTP));
    let socket = socket.map_err(|error| no_sctp(Code::STREAM_CONNECT, &error))?;
    if network.sctp_binds.is_empty() {
        network.bind(&socket, to, port, Code::STREAM_CONNECT)?;
    } else {
        network.bind_association(&socket, to, port)?;
    }
    if SCTP_SEGMENTS.contains(&test.mss) {
        sctp::set_max_segment(&socket, test.mss).or_code(Code::SET_MSS)?;
    }
    if test.sctp_streams > 0 {
        sctp::set_streams(&socket, test.sctp_streams).or_code(Code::SCTP_STREAMS)?;
    }
    stream_options(&socket, to, test, network.settings, false)?;
    connect(&socket, to, None, cancel).or_code(Code::STREAM_CONNECT)?;
    Ok(socket)
}

/// A socket of SCTP that there is none of: the kernel may lack it.
fn no_sctp(code: Code, error: &io::Error) -> TestError {
    match Errno::from_io_error(error) {
        Some(Errno::PROTONOSUPPORT) => TestError::with(Code::NO_SCTP, "this kernel has none (`modprobe sctp`)"),
        _ => TestError::system(code, error),
    }
}

/// A client's stream over TCP or SCTP, connected.
///
/// # Errors
/// The kernel's.
pub fn connect_stream(
    to: SocketAddr,
    test: &TestSettings,
    network: &ClientNetwork<'_>,
    port: Option<u16>,
    cancel: &Cancel,
) -> Result<Socket, TestError> {
    if test.protocol == Protocol::Sctp {
        return connect_association(to, test, network, port, cancel);
    }
    let protocol = test.mptcp.then_some(SocketProtocol::MPTCP);
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, protocol).or_code(Code::STREAM_CONNECT)?;
    network.bind(&socket, to, port, Code::STREAM_CONNECT)?;
    if test.mss > 0 {
        socket.set_tcp_mss(test.mss).or_code(Code::SET_MSS)?;
    }
    stream_options(&socket, to, test, network.settings, false)?;
    let to = labelled(&socket, to, test.flow_label)?;
    connect(&socket, to, None, cancel).or_code(Code::STREAM_CONNECT)?;
    Ok(socket)
}

/// What sockets of datagrams have, either end.
///
/// # Errors
/// The kernel's.
pub fn datagram_options(socket: &Socket, peer: SocketAddr, test: &TestSettings) -> Result<(), TestError> {
    window(socket, test)?;
    if test.window == 0 {
        for which in [Buffer::Send, Buffer::Receive] {
            let has = socket::buffer(socket, which).or_code(Code::SET_BUFFER)?;
            if has < test.length {
                let size = test.length + EXTRA;
                Console::warning(&format!("Increasing socket buffer size to {size}"));
                let _ = socket::set_buffer(socket, which, size);
            }
        }
    }
    pacing(socket, test);
    if test.dont_fragment && peer.ip().to_canonical().is_ipv4() {
        socket::forbid_fragments(socket).or_code(Code::DONT_FRAGMENT)?;
    }
    service(socket, peer, test.tos)
}

/// A client's socket for datagrams, connected.
///
/// # Errors
/// The kernel's.
pub fn connect_datagrams(
    to: SocketAddr,
    test: &TestSettings,
    network: &ClientNetwork<'_>,
    port: Option<u16>,
) -> Result<Socket, TestError> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, None).or_code(Code::STREAM_CONNECT)?;
    network.bind(&socket, to, port, Code::STREAM_CONNECT)?;
    datagram_options(&socket, to, test)?;
    let to = labelled(&socket, to, test.flow_label)?;
    socket.connect(&to.into()).or_code(Code::STREAM_CONNECT)?;
    Ok(socket)
}

/// A server's socket at its port, for connections, datagrams or associations.
///
/// # Errors
/// The kernel's.
pub fn listen(network: &NetworkSettings, protocol: Protocol) -> Result<Socket, TestError> {
    let code = if protocol == Protocol::Tcp { Code::LISTEN } else { Code::STREAM_LISTEN };
    let at = match (&network.bind, network.family) {
        (Some(host), family) => addresses(host, family, code)?.first().ok_or(code)?.at(network.port),
        (None, Some(Family::V4)) => (Ipv4Addr::UNSPECIFIED, network.port).into(),
        (None, _) => (Ipv6Addr::UNSPECIFIED, network.port).into(),
    };
    let has_addresses = protocol == Protocol::Sctp && !network.sctp_binds.is_empty();
    let at = match network.sctp_binds.first().filter(|_| has_addresses) {
        Some(host) => {
            addresses(host, network.family, Code::SCTP_BIND)?.first().ok_or(Code::SCTP_BIND)?.at(network.port)
        }
        None => at,
    };
    let open = |at: SocketAddr, over: Option<SocketProtocol>| -> io::Result<Socket> {
        let kind = if protocol.connects() { Type::STREAM } else { Type::DGRAM };
        let socket = Socket::new(Domain::for_address(at), kind, over)?;
        socket.set_reuse_address(true)?;
        if let Some(device) = &network.device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        if at.is_ipv6() {
            socket.set_only_v6(network.family == Some(Family::V6) || network.bind.is_some())?;
        }
        if !has_addresses {
            socket.bind(&at.into())?;
        }
        Ok(socket)
    };
    // A listener of MPTCP takes clients of plain TCP, too, and hands their connections over as such. Not every kernel has it.
    let attempt = |at: SocketAddr| match protocol {
        Protocol::Tcp => open(at, Some(SocketProtocol::MPTCP)).or_else(|_| open(at, None)),
        Protocol::Udp => open(at, None),
        Protocol::Sctp => open(at, Some(SocketProtocol::SCTP)),
    };
    let no_ipv6 = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::AFNOSUPPORT);
    let opened = match attempt(at) {
        Err(error) if network.family.is_none() && no_ipv6(&error) => {
            attempt((Ipv4Addr::UNSPECIFIED, network.port).into())
        }
        other => other,
    };
    let socket = opened.map_err(|error| match protocol {
        Protocol::Sctp => no_sctp(code, &error),
        Protocol::Tcp | Protocol::Udp => TestError::system(code, &error),
    })?;
    if has_addresses {
        let each = network.sctp_binds.iter().map(|host| addresses(host, Some(family_of(at)), Code::SCTP_BIND));
        bind_association(&socket, &each.collect::<Result<Vec<_>, _>>()?.concat(), network.port)?;
    }
    if protocol.connects() {
        socket.listen(1024).or_code(code)?;
    }
    Ok(socket)
}

/// An address as it is printed: IPv4 in IPv6 as IPv4, without brackets.
pub fn host_text(address: SocketAddr) -> String {
    address.ip().to_canonical().to_string()
}

/// Both addresses of a socket.
///
/// # Errors
/// The kernel's.
pub fn ends(socket: &Socket) -> io::Result<(SocketAddr, SocketAddr)> {
    let none = || io::Error::other("the socket has no Internet address");
    let local = socket.local_addr()?.as_socket().ok_or_else(none)?;
    let remote = socket.peer_addr()?.as_socket().ok_or_else(none)?;
    Ok((local, remote))
}
