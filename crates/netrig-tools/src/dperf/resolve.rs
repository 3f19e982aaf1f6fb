//! From what a file says to what is run: defaults, and everything that one keyword alone cannot know.

use std::time::Duration;

use rig_cli::mistakes;
use rig_packet::plan::{AnswerScope, BURST, Capture, GatewayPlan, Packets, PortPlan, Range, ThreadPlan, Timeline};
use rig_packet::{
    Client, CloseMethod, Flood, Load, MessageEnd, Payload, RequestRepeat, Server, Service, TcpClient, TcpServer,
    TcpTimes, TupleOrder, UdpClient, UdpServer,
};

use super::check;
use super::language::{LineError, Warning};
use super::message::{self, Filler};
use super::settings::{Device, LogLevel, Protocol, Settings};
use super::statistics::{Layout, MessageFormat};

type Result<T> = std::result::Result<T, LineError>;

/// A server's connection that is silent for so many retransmission time-outs, and `keepalive`, is closed.
const IDLE: u32 = 4;
/// Bytes of the Ethernet, IPv4, UDP and VXLAN headers around a packet (RFC 7348).
const VXLAN: u16 = 50;
/// Largest segment that the engine makes.
const LARGEST_SEGMENT: u16 = 9660;

/// What a file asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    pub packets: Packets,
    /// The ports' interfaces as the file has them; `packets` has the same names, until they have been looked up.
    pub devices: Vec<Device>,
    pub busy_poll: Option<u16>,
    pub layout: Layout,
    pub quiet: bool,
    pub clear_screen: bool,
    pub daemon: bool,
    pub log_level: LogLevel,
}

impl LoadPlan {
    pub fn is_client(&self) -> bool {
        self.packets.service.client().is_some()
    }
}

/// Makes a plan of a file's settings, and refuses what does not go together.
pub fn resolve(settings: &Settings, warnings: &mut Vec<Warning>) -> Result<LoadPlan> {
    check::roles(settings)?;
    check::addresses(settings, warnings)?;
    let queues = check::queues(settings)?;
    let mtu = settings.jumbo.unwrap_or(1500);
    let inner = if settings.vxlans.is_empty() { mtu } else { mtu - VXLAN };
    let sizes = Sizes { settings, ip: if settings.servers[0].1.first.is_ipv4() { 20 } else { 40 }, mtu: inner };
    let responses = if settings.server { responses(settings, &sizes)? } else { Vec::new() };
    let service = match (settings.server, settings.protocol) {
        (false, Protocol::Udp) => udp_client(settings, &sizes)?,
        (true, Protocol::Udp) => udp_server(settings, &responses),
        (false, _) => tcp_client(settings, &sizes)?,
        (true, _) => tcp_server(settings, &sizes, &responses)?,
    };
    let of_each = |thread: usize| responses.get(thread).filter(|_| responses.len() > 1).cloned();
    let ports = settings.ports.iter().enumerate().map(|(number, (_, port))| {
        let ranges: Vec<Range> = settings.clients.iter().flat_map(|(_, ranges)| ranges).copied().collect();
        let servers = vec![settings.servers[number].1];
        let clients = || settings.clients[number].1.clone();
        let (local, remote) = if settings.server { (servers, ranges) } else { (clients(), servers) };
        let threads = (0..queues).map(|queue| {
            let thread = number * queues + queue;
            ThreadPlan { cpu: Some(settings.cpus[thread]), queue: queue as u32, response: of_each(thread) }
        });
        PortPlan {
            interface: port.device.to_string(),
            driver: settings.driver,
            address: port.address,
            gateway: port.mac.map_or(GatewayPlan::Address(port.gateway), GatewayPlan::Mac),
            vlan: settings.vlan,
            vxlan: settings.vxlans.get(number).map(|(_, vxlan)| vxlan.clone()),
            local,
            remote,
            threads: threads.collect(),
            mtu,
            live: true,
            burst: settings.tx_burst.unwrap_or(BURST),
            take: Capture::Own,
            answer: if settings.neigh_ignore { AnswerScope::Port } else { AnswerScope::All },
            hop_limit: 64,
            tos: settings.tos.unwrap_or(0),
        }
    });
    let (ports, devices) = (ports.collect(), settings.ports.iter().map(|(_, port)| port.device.clone()).collect());
    let duration = settings.duration.unwrap_or(Duration::from_secs(60));
    let course = if settings.server {
        Timeline { wait: Duration::ZERO, duration, drain: service.drain() }
    } else {
        let wait = settings.wait.unwrap_or(Duration::from_secs(3));
        Timeline { wait, duration: duration + ramp(settings), drain: service.drain() }
    };
    let layout = Layout {
        udp: settings.protocol == Protocol::Udp,
        messages: messages(settings),
        rtt: !settings.server && settings.keepalive.is_none(),
    };
    let packets = Packets { ports, service, capacity: None, course };
    check::combinations(settings, &packets)?;
    let Settings { quiet, clear_screen, daemon, log_level, busy_poll, .. } = *settings;
    Ok(LoadPlan { packets, devices, busy_poll, layout, quiet, clear_screen, daemon, log_level })
}

fn ramp(settings: &Settings) -> Duration {
    settings.slow_start.unwrap_or(Duration::from_secs(30))
}

pub(super) fn times(settings: &Settings) -> TcpTimes {
    let retransmit = settings.retransmit_timeout.unwrap_or(TcpTimes::default().retransmit);
    TcpTimes { retransmit, ..TcpTimes::default() }
}

/// Whether messages are HTTP, because that is asked for or by their size.
fn messages(settings: &Settings) -> MessageFormat {
    let large = |size: u64| size >= message::SMALLEST;
    let sized = settings.payload_file.is_none()
        && settings.packet_size.is_none_or(|size| large(size.saturating_sub(54)))
        && settings.payload_sizes.iter().copied().all(large);
    match settings.protocol {
        Protocol::Http => MessageFormat::Http,
        Protocol::Tcp if sized => MessageFormat::Unread,
        Protocol::Tcp | Protocol::Udp => MessageFormat::Filler,
    }
}

/// Sizes of headers, to check whether payloads and packets fit.
#[derive(Debug, Clone, Copy)]
struct Sizes<'a> {
    settings: &'a Settings,
    /// Bytes of the IP header.
    ip: u16,
    /// Bytes of the largest packet inside of a tunnel.
    mtu: u16,
}

impl Sizes<'_> {
    fn udp(&self) -> bool {
        self.settings.protocol == Protocol::Udp
    }

    /// Bytes of a message in the largest packet.
    fn largest(&self) -> u16 {
        if self.udp() { self.mtu - self.ip - 8 } else { (self.mtu - self.ip - 20).min(LARGEST_SEGMENT) }
    }

    fn mss(&self) -> Result<u16> {
        let largest = self.largest();
        match self.settings.mss {
            Some(mss) if mss > largest => Err(self.refuse(
                "mss",
                format!("{mss} bytes do not fit a packet of {} bytes: give at most {largest}", self.mtu),
            )),
            mss => Ok(mss.unwrap_or(largest)),
        }
    }

    fn refuse(&self, keyword: &str, message: impl std::fmt::Display) -> LineError {
        LineError::at(self.settings.line(keyword), format!("{keyword}: {message}"))
    }

    /// Sizes of messages that are asked for: none, one, or one for each thread.
    fn asked(&self) -> Result<Vec<u64>> {
        let settings = self.settings;
        match settings.packet_size {
            None => Ok(settings.payload_sizes.clone()),
            Some(_) if !settings.payload_sizes.is_empty() => {
                Err(self.refuse("packet_size", "payload_size says it too: remove one of them"))
            }
            Some(size) => {
                let vxlan = if settings.vxlans.is_empty() { 0 } else { VXLAN };
                let headers = u64::from(14 + vxlan + self.ip + if self.udp() { 8 } else { 20 });
                match size.checked_sub(headers).filter(|&payload| payload > 0) {
                    Some(payload) => Ok(vec![payload]),
                    None => Err(self.refuse("packet_size", format!("{size} bytes: the headers alone take {headers}"))),
                }
            }
        }
    }

    /// A payload from a file, if there is one.
    fn file(&self) -> Result<Option<Payload>> {
        let Some(path) = &self.settings.payload_file else { return Ok(None) };
        if !self.settings.payload_sizes.is_empty() || self.settings.packet_size.is_some() {
            return Err(self.refuse("payload_file", "a size is asked for too, and the file's is its own: remove one"));
        }
        let refuse = |why: &dyn std::fmt::Display| self.refuse("payload_file", format!("{}: {why}", path.display()));
        let bytes = mistakes::read_bytes(path).map_err(|error| refuse(&error))?;
        if bytes.is_empty() {
            return Err(refuse(&"it is empty"));
        }
        Ok(Some(bytes.into()))
    }

    fn fits(&self, keyword: &str, payload: Payload, most: u64) -> Result<Payload> {
        let bytes = payload.len();
        if bytes > most {
            let what = format!("{bytes} bytes are more than the {most} that a packet has room for");
            return Err(self.refuse(keyword, format!("{what}: give less, or more room with `jumbo`")));
        }
        Ok(payload)
    }

    fn filler(&self) -> Filler {
        if self.settings.payload_random { Filler::Random } else { Filler::Plain }
    }

    fn keyword(&self) -> &'static str {
        let settings = self.settings;
        let said = [
            (settings.payload_file.is_some(), "payload_file"),
            (settings.packet_size.is_some(), "packet_size"),
            (!settings.payload_sizes.is_empty(), "payload_size"),
            (settings.http_path.is_some(), "http_path"),
        ];
        said.iter().find(|(said, _)| *said).map_or("payload_size", |(_, keyword)| keyword)
    }

    /// A client's request.
    fn request(&self) -> Result<Payload> {
        let settings = self.settings;
        let size = match self.asked()?[..] {
            [] => None,
            [size] => Some(size),
            ref sizes => {
                let count = sizes.len();
                return Err(
                    self.refuse("payload_size", format!("{count} sizes, and a client has one: remove the others"))
                );
            }
        };
        let most = if self.udp() { self.largest() } else { self.mss()? };
        let payload = match self.file()? {
            Some(payload) => payload,
            None if self.udp() => self.filler().payload(size.unwrap_or(UDP_BYTES)),
            None => match size {
                Some(size) if size < message::SMALLEST && settings.protocol == Protocol::Http => {
                    let smallest = message::SMALLEST;
                    return Err(self.refuse(self.keyword(), format!("{size} bytes: HTTP takes at least {smallest}")));
                }
                Some(size) if size < message::SMALLEST => self.filler().payload(size),
                size => {
                    let host = settings.http_host.as_deref().unwrap_or("dperf");
                    let path = settings.http_path.as_deref().unwrap_or("/");
                    message::request(host, path, settings.post, size, self.filler())
                }
            },
        };
        self.fits(self.keyword(), payload, most.into())
    }
}

/// Bytes of a datagram when none are asked for: the smallest Ethernet frame is full with them.
const UDP_BYTES: u64 = 18;

/// A server's responses: one, or one for each thread.
fn responses(settings: &Settings, sizes: &Sizes<'_>) -> Result<Vec<Payload>> {
    let asked = sizes.asked()?;
    let threads = settings.cpus.len();
    if asked.len() > 1 && asked.len() != threads {
        let what = format!("{} sizes for {threads} threads: give one, or one for each CPU", asked.len());
        return Err(sizes.refuse("payload_size", what));
    }
    let one = |size: Option<u64>| match size {
        _ if sizes.udp() => sizes.filler().payload(size.unwrap_or(UDP_BYTES)),
        Some(size) if size < message::SMALLEST && settings.protocol != Protocol::Http => sizes.filler().payload(size),
        size => message::response(size, settings.keepalive.is_none(), sizes.filler()),
    };
    let payloads = match sizes.file()? {
        Some(payload) => vec![payload],
        None if asked.is_empty() => vec![one(None)],
        None => asked.iter().map(|&size| one(Some(size))).collect(),
    };
    let most = if sizes.udp() { sizes.largest().into() } else { 1 << 30 };
    payloads.into_iter().map(|payload| sizes.fits(sizes.keyword(), payload, most)).collect()
}

fn client(settings: &Settings) -> Result<Client> {
    let (first, last) = settings.client_ports.unwrap_or((1, 65_535));
    let udp = settings.protocol == Protocol::Udp;
    let at = |keyword: &str, message: String| LineError::at(settings.line(keyword), format!("{keyword}: {message}"));
    let pipeline = settings.pipeline.filter(|&pipeline| pipeline > 0);
    let (mut rps, mut cps) = (settings.rps, settings.cps);
    if let Some(pps) = settings.pps {
        for (keyword, said) in [("rps", rps.is_some()), ("cps", cps.is_some() && settings.keepalive.is_none())] {
            if said {
                return Err(at("pps", format!("{keyword} says how many packets there are, too: remove one of them")));
            }
        }
        match (settings.keepalive, udp || settings.flood) {
            (_, false) => {
                let why = "how many packets a TCP connection takes is not up to the client: give cps or rps".to_owned();
                return Err(at("pps", why));
            }
            (None, _) => cps = Some(pps),
            (Some(_), _) => rps = Some(pps / f64::from(pipeline.unwrap_or(1))),
        }
    }
    if rps.is_some() && settings.keepalive.is_none() {
        return Err(at("rps", "requests on open connections need `keepalive`; without it give cps".into()));
    }
    let rate = match (cps, settings.cc) {
        (Some(rate), _) => rate,
        (None, Some(_)) => 1000.0,
        (None, None) => return Err(LineError::at(None, "no rate: give `cps`, new connections per second, or `cc`")),
    };
    if let Some(cc) = settings.cc.filter(|_| settings.keepalive.is_none()) {
        return Err(at(
            "cc",
            format!("{cc} connections stay open with `keepalive` only: add it, as in `keepalive 1s`"),
        ));
    }
    let hold = match settings.cc.map(u32::try_from) {
        None => None,
        Some(Ok(cc)) => Some(cc),
        Some(Err(_)) => return Err(at("cc", format!("give at most {}", u32::MAX))),
    };
    if let Some(pipeline) = pipeline {
        let wrong = match settings.keepalive {
            _ if !udp => Some("datagrams are sent back to back, TCP has none: give `protocol udp`"),
            None => Some("it needs `keepalive`"),
            Some((interval, _)) if !settings.flood && interval > Duration::ZERO && rps.is_none() => {
                Some("it needs `keepalive 0s` or `flood`")
            }
            Some(_) => None,
        };
        if let Some(why) = wrong {
            return Err(at("pipeline", format!("{pipeline}: {why}")));
        }
    }
    if settings.flood
        && let Some((Duration::ZERO, _)) = settings.keepalive
        && rps.is_none()
    {
        return Err(at(
            "flood",
            "with `keepalive` it needs an interval above zero: no answer says when to go on".into(),
        ));
    }
    let (listen, count) = settings.listen.unwrap_or((80, 1));
    Ok(Client {
        ports: first..=last,
        server_ports: listen..=listen + (count - 1),
        load: Load { ramp: ramp(settings), hold, launch: settings.launch, ..Load::new(rate) },
        repeat: settings.keepalive.map(|(interval, requests)| RequestRepeat {
            interval: if rps.is_some() { Duration::ZERO } else { interval },
            requests,
            rate: rps,
            pipeline: pipeline.unwrap_or(1),
        }),
        walk: if settings.client_hop { TupleOrder::Hop } else { TupleOrder::Ports },
        flood: settings.flood.then(|| Flood {
            destinations: settings.destinations.iter().map(|(_, d)| *d).collect(),
            ..Flood::default()
        }),
    })
}

fn tcp_client(settings: &Settings, sizes: &Sizes<'_>) -> Result<Service> {
    let times = times(settings);
    let interval = settings.keepalive.map_or(Duration::ZERO, |(interval, _)| interval);
    Ok(Service::TcpClient(TcpClient {
        client: client(settings)?,
        times,
        request: sizes.request()?,
        response: if settings.protocol == Protocol::Http { MessageEnd::Http } else { MessageEnd::Segment },
        close: if settings.fast_close { CloseMethod::Reset } else { CloseMethod::Fin },
        // The server sends its response again when it is not acknowledged in time.
        delayed_ack: if settings.disable_ack { interval } else { times.retransmit.saturating_sub(MARGIN) },
        mss: sizes.mss()?,
        resets: !settings.no_resets,
    }))
}

/// An acknowledgment that travels with the next request must come before the server loses time_limit.
const MARGIN: Duration = Duration::from_millis(100);

fn tcp_server(settings: &Settings, sizes: &Sizes<'_>, responses: &[Payload]) -> Result<Service> {
    let times = times(settings);
    let silence = settings.keepalive.map_or(Duration::ZERO, |(silence, _)| silence);
    let (listen, count) = settings.listen.unwrap_or((80, 1));
    Ok(Service::TcpServer(TcpServer {
        server: Server { ports: listen..=listen + (count - 1) },
        times,
        request: if settings.protocol == Protocol::Http { MessageEnd::Http } else { MessageEnd::Segment },
        response: responses[0].clone(),
        close: settings.keepalive.is_none(),
        idle: times.retransmit * IDLE + silence,
        window: settings.send_window.unwrap_or(4),
        mss: sizes.mss()?,
        resets: !settings.no_resets,
    }))
}

fn udp_client(settings: &Settings, sizes: &Sizes<'_>) -> Result<Service> {
    let timeout = times(settings).retransmit;
    Ok(Service::UdpClient(UdpClient { client: client(settings)?, request: sizes.request()?, timeout }))
}

fn udp_server(settings: &Settings, responses: &[Payload]) -> Service {
    let (listen, count) = settings.listen.unwrap_or((80, 1));
    let server = Server { ports: listen..=listen + (count - 1) };
    Service::UdpServer(UdpServer { server, response: responses[0].clone(), one_way: false })
}
