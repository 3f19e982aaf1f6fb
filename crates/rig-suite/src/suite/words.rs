//! Loads, and how often trials are repeated, in a line each.

use std::fmt;

use rig_facts::record::SearchedRate;
use rig_load::plan::{ArrivalSpacing, Datagrams, Engine, Flow, Pacing, Schedule, TcpStream, Transactions};
use rig_packet::plan::Driver;
use rig_packet::{CloseMethod, MessageEnd, TupleOrder};
use rig_stats::units::{ByteRate, Bytes, Span, counted, minutes};

use super::{Exchange, PacketLoad, PacketThreads, PacketTraffic, Repeat, RequestedLoad, Scenario, Traffic};

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(n) => f.write_str(&counted(*n as usize, "trial", "trials")),
            Self::Within(budget) => write!(
                f,
                "within {}: blocks of one trial of each scenario, {} planned; a scenario whose claims are all decided rests",
                minutes(budget.time()),
                budget.blocks
            ),
            Self::Until(goal) if goal.max() == 1 => Self::Times(1).fmt(f),
            Self::Until(goal) => write!(
                f,
                "{} to {} trials, until {} % intervals are within {}",
                goal.min(),
                goal.max(),
                goal.level.percent(),
                goal.width.to_string().replace("+-", "±").replace('%', " %")
            ),
        }
    }
}

impl Scenario {
    /// Its load in one line.
    pub fn load_words(&self) -> String {
        let under = self.under.as_ref().map(|under| format!("; meanwhile {under}"));
        format!("{}{}", self.traffic, under.unwrap_or_default())
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = match (&self.connect, &self.listen) {
            (RequestedLoad::TcpStream(connect), RequestedLoad::TcpStream(listen)) => match connect.flow {
                Flow::Reverse => stream("TCP stream towards the connecting end (maerts)", listen, connect),
                Flow::Both => stream("TCP streams both ways", connect, listen),
                Flow::Forward => stream("TCP stream", connect, listen),
            },
            (RequestedLoad::TcpRr(load), _) => transactions("TCP request/response", load),
            (RequestedLoad::TcpCrr(load), _) => transactions("TCP connect/request/response", load),
            (RequestedLoad::UdpRr(load), _) => {
                let mut parts = transactions("UDP request/response", load);
                parts.push(format!("timeout {}", Span(load.timeout)));
                parts
            }
            (RequestedLoad::UdpStream(load), _) => datagrams(load),
            (RequestedLoad::Packets(load), _) => packets(load, self.packets.as_ref()),
            (load, _) => vec![load.name().to_owned()],
        };
        if self.pairs.len() > 1 {
            parts.insert(1, format!("{} pairs", self.pairs.len()));
        }
        f.write_str(&parts.join(", "))
    }
}

/// A size, which must not be taken for a number of messages.
pub fn bytes(size: u32) -> String {
    let text = Bytes(size.into()).to_string();
    match size {
        1 => "1 byte".into(),
        _ if text.ends_with('B') => text,
        _ => format!("{text} bytes"),
    }
}

fn stream(name: &str, sender: &TcpStream, receiver: &TcpStream) -> Vec<String> {
    let mut parts = vec![name.to_owned(), format!("messages of {}", bytes(sender.message))];
    if receiver.message != sender.message {
        parts.push(format!("received by up to {}", bytes(receiver.message)));
    }
    parts.extend(shape(sender.threads, sender.connections));
    parts.extend(buffers(sender.send_buffer, sender.receive_buffer));
    parts.extend(sender.no_delay.then(|| "nodelay".into()));
    parts.extend(throttle(sender.throttle));
    parts.extend(sender.congestion_control.clone());
    parts.extend(sender.options.words());
    parts.push(format!("send {}, receive {}", engine(sender), engine(receiver)));
    if sender.send_mode != Default::default() {
        parts.push(format!("copy-free send ({})", sender.send_mode));
    }
    if receiver.receive_mode != Default::default() {
        parts.push(format!("copy-free receive ({})", receiver.receive_mode));
    }
    parts
}

fn transactions(name: &str, load: &Transactions) -> Vec<String> {
    let mut parts =
        vec![name.to_owned(), format!("requests of {}, responses of {}", bytes(load.request), bytes(load.response))];
    parts.extend(shape(load.threads, load.connections));
    parts.extend((load.in_flight > 1).then(|| format!("{} in flight on each connection", load.in_flight)));
    if let Schedule::Open { rate, arrivals } = load.schedule {
        let arrivals = match arrivals {
            ArrivalSpacing::Uniform => "evenly spaced",
            ArrivalSpacing::Poisson => "Poisson arrivals",
        };
        parts.push(format!("{rate} transactions/s, {arrivals}"));
    }
    parts.extend(buffers(load.send_buffer, load.receive_buffer));
    parts.extend(load.no_delay.then(|| "nodelay".into()));
    parts.extend(load.congestion_control.clone());
    parts.extend(load.options.words());
    parts
}

fn datagrams(load: &Datagrams) -> Vec<String> {
    let name = match load.flow {
        Flow::Forward => "UDP stream",
        Flow::Reverse => "UDP stream towards the connecting end",
        Flow::Both => "UDP streams both ways",
    };
    let mut parts = vec![name.to_owned(), format!("datagrams of {}", bytes(load.message))];
    parts.extend(shape(load.threads, load.connections));
    parts.extend((load.batch > 1).then(|| format!("{} messages a system call", load.batch)));
    parts.extend((load.segments > 1).then(|| format!("segmentation offload, {} datagrams a message", load.segments)));
    parts.extend(load.coalesce.then(|| "coalesced receive (UDP_GRO)".into()));
    parts.extend(throttle(load.throttle));
    parts.extend((load.pacing == Pacing::Kernel).then(|| "paced by the kernel".into()));
    parts.extend(load.options.words());
    parts.extend(buffers(load.send_buffer, load.receive_buffer));
    parts
}

fn shape(threads: u32, connections: u32) -> impl Iterator<Item = String> {
    let threads = (threads > 1).then(|| format!("{threads} threads"));
    threads.into_iter().chain((connections > 1).then(|| format!("{connections} connections per thread")))
}

fn buffers(send: Option<u32>, receive: Option<u32>) -> impl Iterator<Item = String> {
    let send = send.map(|size| format!("send buffer {}", bytes(size)));
    send.into_iter().chain(receive.map(|size| format!("receive buffer {}", bytes(size))))
}

fn throttle(rate: Option<u64>) -> Option<String> {
    rate.map(|rate| format!("at most {} per thread", ByteRate(rate)))
}

fn engine(end: &TcpStream) -> String {
    match end.engine {
        Engine::Blocking => "blocking".into(),
        Engine::Uring { outstanding } => format!("io_uring with {outstanding} outstanding"),
    }
}

fn packets(load: &PacketLoad, traffic: Option<&PacketTraffic>) -> Vec<String> {
    let client = &load.client;
    let name = match &load.exchange {
        Exchange::Tcp(tcp) if tcp.response.complete == MessageEnd::Http => "HTTP",
        Exchange::Tcp(_) => "TCP",
        Exchange::Udp { .. } | Exchange::Frames { .. } => "UDP",
    };
    let [request, response] = load.sizes();
    let search = traffic.and_then(|traffic| traffic.search.as_ref());
    let benchmark = traffic.and_then(|traffic| traffic.benchmark.as_ref());
    let mut parts = vec![if let Exchange::Frames { bytes } = load.exchange {
        format!("frames of {bytes} bytes one way, over {name}")
    } else if client.flood.is_some() {
        format!("{name} flood, first packets only")
    } else {
        format!("{name} packets, requests of {}, responses of {}", bytes(request as u32), bytes(response as u32))
    }];
    match search {
        Some(search) => {
            let per = if search.of == SearchedRate::Held { "" } else { " per second" };
            parts.push(format!("{}{per} searched from {}", search.of, search.options.start));
            parts.push(format!("loss-free within {} %", search.options.precision * 100.0));
            if search.measure_at < 1.0 {
                parts.push(format!("window at {} % of the limit", search.measure_at * 100.0));
            }
        }
        None if let Some(benchmark) = benchmark => parts.push(benchmark.to_string()),
        None if matches!(load.exchange, Exchange::Frames { .. }) => {
            parts.push(format!("{} frames/s", client.load.rate));
        }
        None => parts.push(format!("{} connections/s", client.load.rate)),
    }
    match search {
        Some(search) if search.of == SearchedRate::Held => parts.push(format!("opened at {}/s", client.load.rate)),
        _ => parts.extend(client.load.hold.map(|hold| format!("{hold} held open"))),
    }
    if let Some(repeat) = client.repeat {
        parts.extend(repeat.requests.map(|requests| format!("{requests} requests each")));
        match repeat.rate {
            Some(rate) if search.is_none() => parts.push(format!("{rate} requests/s")),
            None if !repeat.interval.is_zero() => parts.push(format!("a request every {}", Span(repeat.interval))),
            _ => {}
        }
        parts.extend((repeat.pipeline > 1).then(|| format!("{} back to back", repeat.pipeline)));
    }
    if let Exchange::Tcp(tcp) = &load.exchange {
        parts.extend((tcp.close == CloseMethod::Reset).then(|| "closed by reset".into()));
    }
    parts.extend((!client.load.ramp.is_zero()).then(|| format!("ramp of {}", Span(client.load.ramp))));
    parts.extend(client.load.launch.map(|launch| format!("{launch} opened together")));
    parts.extend((client.walk == TupleOrder::Hop).then(|| "another address each".into()));
    if let Some(traffic) = traffic {
        let (clients, servers) = (traffic.client_addresses, traffic.server_addresses);
        parts.extend((clients > 1 || servers > 1).then(|| format!("{clients} client and {servers} server addresses")));
        parts.extend(match traffic.workers {
            PacketThreads::ONE => None,
            PacketThreads::Number(workers) => Some(format!("{workers} workers at each end")),
            PacketThreads::All => Some("all workers that each end has CPUs for".into()),
        });
        parts.extend(match traffic.driver {
            Driver::Auto => None,
            Driver::Xdp => Some("AF_XDP".into()),
            Driver::XdpGeneric => Some("AF_XDP, generic".into()),
            Driver::Packet => Some("AF_PACKET".into()),
        });
    }
    parts
}
