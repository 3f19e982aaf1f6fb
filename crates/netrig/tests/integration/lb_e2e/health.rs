//! Checks of a service's own address at each backend, by direct routing and through tunnels: what answers them is what answers clients.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use netrig_lb::message::{BackendEntry, BackendHealthState, Status};
use rig_sys::netlink::Netlink;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};

use super::lab::{self, Plan, Wires, until};
use super::unpack::Decapsulator;
use super::{BalancerDirectory, Daemon, again};

const SERVICES: [&str; 2] = ["10.9.0.1", "fd09::1"];
const PAGE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n";

/// What a server shows to who speaks TLS to it, made for this run.
fn tls() -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["www.example.com".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    // Larger than a segment, as chains are.
    let chain = vec![made.cert.der().clone(); 8];
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

/// Answers a request, over TLS where that is spoken.
fn serve(mut stream: TcpStream, tls: &Arc<ServerConfig>) {
    let page = [PAGE, &vec![b'.'; 5996], b"well"].concat();
    let answer = |stream: &mut dyn ReadWrite| {
        // A check that wants no page has gone by now. One that does gets what it looks for after several segments.
        if stream.read(&mut [0; 1024]).is_ok_and(|length| length > 0) {
            let _ = stream.write_all(&page);
            let _ = stream.read(&mut [0; 16]);
        }
    };
    let mut first = [0];
    if stream.peek(&mut first).is_ok() && first[0] == TLS_HANDSHAKE {
        let mut connection = ServerConnection::new(Arc::clone(tls)).unwrap();
        return answer(&mut rustls::Stream::new(&mut connection, &mut stream));
    }
    answer(&mut stream);
}

/// RFC 8446, 5.1.
const TLS_HANDSHAKE: u8 = 22;

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// A server of pages and an echo of datagrams, both on port 80 of these addresses alone.
struct Servers {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    fn start(ns: &rig_sys::netns::NetNs, addresses: &[IpAddr]) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (mut threads, tls) = (Vec::new(), tls());
        for address in addresses {
            let (listener, socket) = ns
                .run(|| (TcpListener::bind((*address, 80)).unwrap(), UdpSocket::bind((*address, 80)).unwrap()))
                .unwrap();
            listener.set_nonblocking(true).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let told = [(); 2].map(|()| Arc::clone(&ends));
            let [pages, datagrams] = told;
            let tls = Arc::clone(&tls);
            threads.push(thread::spawn(move || {
                while !pages.load(Ordering::Relaxed) {
                    let Ok((stream, _)) = listener.accept() else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    stream.set_nonblocking(false).unwrap();
                    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                    serve(stream, &tls);
                }
            }));
            threads.push(thread::spawn(move || {
                let mut datagram = [0; 1024];
                while !datagrams.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut datagram) {
                        socket.send_to(&datagram[..length], from).unwrap();
                    }
                }
            }));
        }
        Self { ends, threads }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| assert!(thread.join().is_ok() || thread::panicking()));
    }
}

fn write(home: &BalancerDirectory, forward: &str, check: &str) {
    let mut text = "devices = ['clients', 'server0', 'server1']\nconnections = 16384\n".to_owned();
    for (address, ipv6) in SERVICES.iter().zip([false, true]) {
        let listen = if ipv6 { format!("[{address}]:80") } else { format!("{address}:80") };
        let local = match (forward, ipv6) {
            ("tunnel", false) => "local = '10.8.0.1'\n",
            ("tunnel", true) => "local = 'fd08::1'\n",
            _ => "",
        };
        let backends = [0, 1].map(|number| {
            let server = lab::server(number, ipv6, 80);
            let tunnel = match (number, ipv6) {
                _ if forward != "tunnel" => return format!("'{server}'"),
                (0, false) => "'gue'",
                (0, true) => "'gre'",
                (_, false) => "'ipip'",
                (_, true) => "{ type = 'gue', checksum = true }",
            };
            format!("{{ address = '{server}', tunnel = {tunnel} }}")
        });
        text += &format!(
            "[[service]]\nlisten = 'tcp {listen}'\nforward = '{forward}'\n{local}backend = [{}]\n[service.check]\n\
             interval = '100ms'\ntimeout = '2s'\nrise = 1\nfall = 1\n{check}\n",
            backends.join(", ")
        );
    }
    std::fs::write(home.file(), text).unwrap();
}

fn backends(home: &BalancerDirectory) -> Vec<BackendEntry> {
    let status: Status = serde_json::from_str(&home.does(&["status", "--json"])).unwrap();
    status.services.into_iter().flat_map(|service| service.backends).collect()
}

/// Waits until checks have found this of the first and the second server, in both families, after `good` and `bad` ones.
#[track_caller]
fn found(home: &BalancerDirectory, what: &str, second: (BackendHealthState, Option<&str>)) {
    let before: Vec<u64> = checks(home);
    let is_as_wanted = || {
        backends(home).iter().zip(&before).enumerate().all(|(n, (backend, before))| {
            let health = backend.health.as_ref().unwrap();
            let wanted = if n % 2 == 0 { (BackendHealthState::Up, None) } else { second };
            health.good + health.bad >= before + 3 && (health.state, health.reason.as_deref()) == wanted
        })
    };
    let deadline = std::time::Instant::now() + lab::TIMEOUT;
    while !is_as_wanted() {
        let health: Vec<_> = backends(home).into_iter().map(|backend| backend.health).collect();
        assert!(std::time::Instant::now() < deadline, "{what}: {health:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn checks(home: &BalancerDirectory) -> Vec<u64> {
    backends(home).iter().map(|backend| backend.health.as_ref().map_or(0, |health| health.good + health.bad)).collect()
}

#[test]
fn what_answers_checks_of_direct_routing_is_the_services_own_address() {
    checked("route");
}

#[test]
fn what_answers_checks_through_tunnels_is_the_services_own_address() {
    checked("tunnel");
}

fn checked(forward: &str) {
    use BackendHealthState::{Down, Up};
    let Some(wires) = Wires::new(Plan::default()) else { return };
    let home = BalancerDirectory::new(&wires);
    wires.give_services(&SERVICES);
    let services = SERVICES.map(|address| address.parse().unwrap());
    // The second server serves on its own addresses alone: clients of the service are refused there.
    let _first = Servers::start(&wires.servers[0], &services);
    let own = [false, true].map(|ipv6| lab::server(1, ipv6, 80).ip());
    let _second = Servers::start(&wires.servers[1], &own);
    let _unpackers: Vec<Decapsulator> = match forward {
        "tunnel" => wires.servers.iter().map(Decapsulator::start).collect(),
        _ => Vec::new(),
    };
    let refused = (Down, Some("connection refused"));
    write(&home, forward, "kind = 'tcp'");
    let file = home.file().display().to_string();
    let Some(running) = Daemon::start(&home, &[&file]) else { return };
    found(&home, "tcp", refused);
    let again_by = |check: &str| {
        write(&home, forward, check);
        home.does(&["reload"]);
    };
    // To the backend's own address both are good.
    again_by("kind = 'tcp'\nto = 'backend'");
    let all_up =
        || backends(&home).iter().skip(1).step_by(2).all(|backend| backend.health.as_ref().unwrap().state == Up);
    until("the own addresses", all_up);
    again_by("kind = 'http'\nbody = 'well'");
    found(&home, "http", refused);
    again_by("kind = 'https'\nhost = 'www.example.com'\nbody = 'well'");
    found(&home, "https", refused);
    let shown: Vec<bool> =
        backends(&home).iter().map(|backend| backend.health.as_ref().unwrap().certificate_end.is_some()).collect();
    assert_eq!(shown, [true, false, true, false]);
    again_by("kind = 'https'\nverify = true\nca = '/dev/null'");
    until("issuers that cannot be read", || {
        backends(&home).iter().all(|backend| {
            let health = backend.health.as_ref().unwrap();
            health.unable > 0 && health.reason.as_deref().is_some_and(|reason| reason.contains("/dev/null"))
        })
    });
    again_by("kind = 'udp'\nsend = 'ping'\nexpect = 'ping'");
    found(&home, "udp", (Down, Some("port unreachable")));
    again_by("kind = 'icmp'");
    found(&home, "icmp", (Up, None));
    // As where the machine answers ARP for the service: its kernel takes packets from there for forged ones.
    let mut link = Netlink::open(&again(&wires.here)).unwrap();
    for address in services {
        link.add_address("lo", address, if address.is_ipv4() { 32 } else { 128 }).unwrap();
    }
    again_by("kind = 'http'\nbody = 'well'");
    found(&home, "with the service's address on the balancer", refused);
    home.does(&["stop", "--detach"]);
    running.end();
}

#[test]
fn a_removed_backend_that_has_lost_its_neighbour_comes_back() {
    use BackendHealthState::{Down, Up};
    let Some(wires) = Wires::new(Plan::default()) else { return };
    let home = BalancerDirectory::new(&wires);
    wires.give_services(&SERVICES);
    let services = SERVICES.map(|address| address.parse().unwrap());
    let _first = Servers::start(&wires.servers[0], &services);
    let second = Servers::start(&wires.servers[1], &services);
    write(&home, "route", "kind = 'tcp'\nfailed = 'remove'");
    let file = home.file().display().to_string();
    let Some(running) = Daemon::start(&home, &[&file]) else { return };
    // The first probe asks for the neighbour itself, and none fails for want of it.
    found(&home, "from the beginning", (Up, None));
    assert!(backends(&home).iter().all(|backend| backend.health.as_ref().unwrap().bad == 0));
    drop(second);
    found(&home, "the server has ended", (Down, Some("connection refused")));
    let netlink = Netlink::open(&again(&wires.here)).unwrap();
    for ipv6 in [false, true] {
        let hop = netlink.next_hops(lab::server(1, ipv6, 80).ip()).unwrap()[0];
        netlink.release_neighbor(hop).unwrap();
    }
    let _second = Servers::start(&wires.servers[1], &services);
    found(&home, "the server is there again", (Up, None));
    home.does(&["stop", "--detach"]);
    running.end();
}
