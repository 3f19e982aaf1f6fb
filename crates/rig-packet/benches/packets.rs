//! What one engine can do at most: a client and a server, each on a CPU of its own, joined in memory, or by a veth pair
//! between two namespaces.
//!
//! `cargo xtask bench packets [CASE] [SECONDS]`: the rate at which each case ends its connections or has its answers,
//! after a second of warm-up; and whether anything failed. Without two free CPUs that rate means nothing. The cost beside
//! it does: CPU time of one thread that passes through client and server in turn, for one result of the two. A case is
//! also named by the beginning of its name: `veth` is all over veth pairs, which need root. `held [N]` opens N connections,
//! ten million unless told, and measures the memory that they take.

#[path = "packets/held.rs"]
mod held;
#[path = "packets/veth.rs"]
mod veth;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rig_packet::http::{self, Method};
use rig_packet::{
    AnswerScope, Client, Clock, CloseMethod, Config, Counters, Engine, Gateway, Link, Load, MessageEnd, Monotonic,
    PassAction, PassResult, Payload, Port, RequestRepeat, Server, Service, TcpClient, TcpServer, TcpTimes, TupleOrder,
    UdpClient, UdpServer, Usage, V4, drive, memory,
};
use rig_sys::clock::process_cpu_ns;
use rig_sys::cpu::CpuSet;
use rig_wire::ethernet::Mac;

const WARM_UP: u64 = 1_000_000_000;
/// As many batches as keep both ends busy and the time that a packet waits small.
const BATCHES: usize = 32;
/// Bytes of a request, and of the body of a response behind a header of 85, as dperf's.
const REQUEST: usize = 85;
const BODY: usize = 14;

/// A case, its client and its server, and what of the client's counters is the result.
struct Case {
    name: String,
    client: Service,
    server: Service,
    result: fn(&Counters) -> u64,
    /// What a comparable run of dperf reached.
    dperf: &'static str,
    over: Medium,
}

/// What joins client and server.
#[derive(Clone, Copy)]
enum Medium {
    Memory,
    Veth(veth::VethDriver),
}

fn client(hold: u32, repeat: Option<RequestRepeat>) -> Client {
    let load = Load { hold: Some(hold), ..Load::new(1e9) };
    Client { ports: 1024..=65535, server_ports: 80..=80, load, repeat, walk: TupleOrder::Ports, flood: None }
}

/// HTTP; or, `bare`, the same bytes counted and not read.
fn tcp(hold: u32, repeat: Option<RequestRepeat>, close: CloseMethod, stays: bool, bare: bool) -> (Service, Service) {
    let expect = |bytes: usize| if bare { MessageEnd::Bytes(bytes as u32) } else { MessageEnd::Http };
    let (request, response) =
        (http::request(Method::Get, "netrig", "/", REQUEST), http::response(&[b'b'; BODY], !stays));
    let client = TcpClient {
        client: client(hold, repeat),
        times: TcpTimes::default(),
        response: expect(response.len()),
        request: request.clone().into(),
        close,
        delayed_ack: Duration::from_millis(100),
        mss: 1460,
        resets: true,
    };
    let server = TcpServer {
        server: Server { ports: 80..=80 },
        times: TcpTimes::default(),
        request: expect(request.len()),
        response: response.into(),
        close: !stays,
        idle: Duration::from_secs(60),
        window: 4,
        mss: 1460,
        resets: true,
    };
    (Service::TcpClient(client), Service::TcpServer(server))
}

fn cases() -> Vec<Case> {
    let endless = Some(RequestRepeat::every(Duration::ZERO));
    let short = tcp(2000, None, CloseMethod::Fin, false, false);
    let bare = tcp(2000, None, CloseMethod::Fin, false, true);
    let many = tcp(60_000, None, CloseMethod::Fin, false, false);
    let fast = tcp(2000, None, CloseMethod::Reset, false, false);
    let alive = tcp(1000, endless, CloseMethod::Fin, true, false);
    let ask = UdpClient { client: client(500, endless), request: Payload::Filler(18), timeout: Duration::from_secs(2) };
    let answer = UdpServer { server: Server { ports: 80..=80 }, response: Payload::Filler(18), one_way: false };
    let closed: fn(&Counters) -> u64 = |counters| counters.sk_close;
    let responses: fn(&Counters) -> u64 = |counters| counters.tcp_rsp;
    let datagrams: fn(&Counters) -> u64 = |counters| counters.udp_rx;
    let udp = (Service::UdpClient(ask), Service::UdpServer(answer));
    let held = tcp(800, endless, CloseMethod::Fin, true, false);
    let case = |name: &str, ends: (Service, Service), result, dperf, over| {
        let (client, server) = ends;
        Case { name: name.to_owned(), client, server, result, dperf, over }
    };
    let memory = |name, ends, result, dperf| case(name, ends, result, dperf, Medium::Memory);
    let mut cases = vec![
        memory("http-short", short.clone(), closed, "1.6 M, at most 2.0 M"),
        memory("tcp-short", bare, closed, ""),
        memory("http-short-60k", many, closed, ""),
        memory("http-fast-close", fast, closed, ""),
        memory("http-keepalive", alive, responses, ""),
        memory("udp", udp.clone(), datagrams, "9.5 M"),
    ];
    for (name, way) in veth::DRIVERS {
        let over = Medium::Veth(way);
        let dperf = |xdp, packet| if way == veth::VethDriver::Packet { packet } else { xdp };
        cases.extend([
            case(&format!("veth-{name}-http-short"), short.clone(), closed, dperf("240 k", "158 k"), over),
            case(&format!("veth-{name}-http-keepalive"), held.clone(), responses, dperf("785 k", ""), over),
            case(&format!("veth-{name}-udp"), udp.clone(), datagrams, dperf("0.75 M", ""), over),
        ]);
    }
    cases
}

fn config(mac: u8, ours: Ipv4Addr, theirs: Ipv4Addr, service: Service) -> Config<V4> {
    let link = Link {
        mac: Mac([2, 0, 0, 0, 0, mac]),
        address: ours,
        answer: AnswerScope::All,
        announce: false,
        vlan: None,
        gateway: Gateway::Known(Mac([2, 0, 0, 0, 0, 3 - mac])),
        hop_limit: 64,
        tos: 0,
        verify: true,
        tunnel: None,
    };
    // Sixteen clients, one server.
    let count = |address: Ipv4Addr| if address.octets()[3] == 1 { 16 } else { 1 };
    let (local, remote) = (vec![(ours, count(ours))], vec![(theirs, count(theirs))]);
    Config { link, local, remote, capacity: 100_000, service, steering: None }
}

struct BenchResult {
    /// Of the client: results per second of the window.
    rate: f64,
    client: Counters,
    server: Counters,
    usage: [Usage; 2],
    transaction: [u64; 2],
}

fn engines(case: &Case) -> (Engine<V4>, Engine<V4>) {
    let begin = Monotonic.now();
    let (ours, theirs) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 254));
    let client = Engine::new(config(1, ours, theirs, case.client.clone()), begin).expect("the case is right");
    let server = Engine::new(config(2, theirs, ours, case.server.clone()), begin).expect("the case is right");
    (client, server)
}

/// Nanoseconds of CPU time for a result, both ends together.
fn cost<P: Port>(case: &Case, mut a: P, mut b: P) -> f64 {
    const SPENT: u64 = 1_000_000_000;
    let (mut client, mut server) = engines(case);
    let mut pass = || {
        for _ in 0..100 {
            client.pass(Monotonic.now(), &mut a);
            server.pass(Monotonic.now(), &mut b);
        }
        let (user, system) = process_cpu_ns();
        (user + system, (case.result)(client.counters()))
    };
    let mut begin = pass();
    let warm = begin.0 + SPENT / 4;
    while begin.0 < warm {
        begin = pass();
    }
    let mut end = begin;
    while end.0 < begin.0 + SPENT {
        end = pass();
    }
    (end.0 - begin.0) as f64 / (end.1 - begin.1) as f64
}

fn run<P: Port + Send>(case: &Case, mut a: P, mut b: P, cpus: &[u32], window: u64) -> BenchResult {
    let begin = Monotonic.now();
    let (mut client, mut server) = engines(case);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            CpuSet::new(cpus.get(1).copied()).apply().expect("the CPU is allowed");
            let usage =
                drive(&mut server, &mut b, &mut Monotonic, |_, _| PassAction::next_if(!done.load(Ordering::Relaxed)));
            (usage, server.counters().clone())
        });
        CpuSet::new(cpus.first().copied()).apply().expect("the CPU is allowed");
        let mut edge = None;
        let mut last = (0, 0);
        let usage = drive(&mut client, &mut a, &mut Monotonic, |engine, PassResult { end: now, .. }| {
            let result = (case.result)(engine.counters());
            if now >= begin + WARM_UP {
                edge.get_or_insert((now, result));
                last = (now, result);
            }
            PassAction::next_if(now < begin + WARM_UP + window)
        });
        done.store(true, Ordering::Relaxed);
        let (served, server) = serving.join().expect("the server does not panic");
        let (from, before) = edge.unwrap_or_default();
        let transaction = &client.latencies().transaction;
        BenchResult {
            rate: (last.1 - before) as f64 * 1e9 / (last.0 - from) as f64,
            client: client.counters().clone(),
            server,
            usage: [usage, served],
            transaction: [50.0, 99.9].map(|percent| transaction.percentile(percent).unwrap_or(0)),
        }
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let seconds = arguments.iter().find_map(|argument| argument.parse::<f64>().ok()).unwrap_or(3.0);
    let wanted = arguments.iter().find(|argument| argument.parse::<f64>().is_err());
    if wanted.is_some_and(|name| name == held::NAME) {
        let connections = arguments.iter().find_map(|argument| argument.parse().ok());
        return held::measure(connections).map_or_else(
            |error| {
                eprintln!("{}: {error}", held::NAME);
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    let all = cases();
    let exact = wanted.is_some_and(|name| all.iter().any(|case| case.name == *name));
    let is_wanted = |case: &&Case| match wanted {
        Some(name) => {
            if exact {
                case.name == *name
            } else {
                case.name.starts_with(name)
            }
        }
        None => true,
    };
    if let Some(name) = wanted.filter(|_| !all.iter().any(|case| is_wanted(&case))) {
        let names: Vec<_> = all.iter().map(|case| case.name.as_str()).chain([held::NAME]).collect();
        eprintln!("no case `{name}`: there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let cpus = CpuSet::allowed().expect("the CPU affinity can be read");
    if cpus.len() < 2 {
        eprintln!("client and server need a CPU each, and this process may use only {cpus}");
        return ExitCode::from(3);
    }
    let mut failed = false;
    let window = (seconds * 1e9) as u64;
    for case in all.iter().filter(is_wanted) {
        let measured = match case.over {
            Medium::Memory => {
                let pair = || memory::pair(BATCHES);
                let (a, b) = pair();
                let cost = cost(case, a, b);
                let (a, b) = pair();
                Ok((cost, run(case, a, b, cpus.as_slice(), window)))
            }
            Medium::Veth(way) => veth::measure(way, case, cpus.as_slice(), window),
        };
        let (cost, outcome) = match measured {
            Ok(measured) => measured,
            Err(error) => {
                eprintln!("{}: {error}", case.name);
                failed = true;
                continue;
            }
        };
        let busy = outcome.usage.map(|usage| 100.0 * usage.busy as f64 / usage.total as f64);
        print!("{:24} {:>6.3} M/s  {cost:>5.0} ns", case.name, outcome.rate / 1e6);
        print!("  busy {:.0} % {:.0} %", busy[0], busy[1]);
        let [median, tail] = outcome.transaction;
        println!("  transaction {:.1} us, 99.9 %: {:.1} us  {}", median as f64 / 1e3, tail as f64 / 1e3, dperf(case));
        for (side, counters) in [("client", &outcome.client), ("server", &outcome.server)] {
            let wrong =
                ["dropTx", "badRx", "synRt", "finRt", "ackRt", "pushRt", "tcpDrop", "udpRt", "udpDrop", "skErr"];
            let wrong: Vec<_> = counters.fields().filter(|(name, value)| *value > 0 && wrong.contains(name)).collect();
            if !wrong.is_empty() {
                println!("    {side}: {wrong:?}");
            }
        }
        failed |= outcome.client.sk_err + outcome.server.sk_err > 0;
    }
    ExitCode::from(u8::from(failed))
}

fn dperf(case: &Case) -> String {
    if case.dperf.is_empty() { String::new() } else { format!("(dperf: {})", case.dperf) }
}
