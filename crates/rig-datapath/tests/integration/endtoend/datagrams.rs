//! Servers of UDP that nobody has changed see the client's address, and what they answer reaches it.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};

use ipnet::IpNet;
use rig_datapath::balancer::{
    ClientAddress, DatagramCounts, DatagramReceiver, DatagramSettings, ForwardingMethod, Protocol, Service,
    TransmitMethod,
};
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_sys::process;

use super::client_address::{Cgroup, balancers};
use super::lab::{HOST, Lab, Plan, TIMEOUT, client, counter, server, until};
use super::programs::has;
use super::talk::again;
use super::{V4, V6, backend, config, full_nat, sizes};

const PORT: u16 = 8053;
const SERVICE: u16 = 53;

/// Answers each datagram with who has sent it and what it says. To `connect` another socket of the same port is connected to the sender, which
/// answers the next one too, with whom it is connected to.
const SERVER: &str = r#"
use strict; use Socket qw(:all);
$| = 1;
my ($address, $port) = @ARGV;
my $six = $address =~ /:/;
my $family = $six ? AF_INET6 : AF_INET;
sub here { my $is = inet_pton($family, $address); return $six ? pack_sockaddr_in6($port, $is) : pack_sockaddr_in($port, $is); }
sub name { my ($p, $is) = $six ? unpack_sockaddr_in6($_[0]) : unpack_sockaddr_in($_[0]); return inet_ntop($family, $is) . " $p"; }
sub bound {
    socket(my $s, $family, SOCK_DGRAM, 0) or die $!;
    setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1) or die $!;
    bind($s, here()) or die $!;
    return $s;
}
my $all = bound();
print "ready\n";
while (1) {
    my $from = recv($all, my $said, 2000, 0) or next;
    if ($said ne "connect") { send($all, name($from) . " $said", 0, $from); next; }
    my $one = bound();
    connect($one, $from) or die $!;
    send($one, name(getpeername($one)) . " connected", 0);
    my $again = recv($one, $said, 2000, 0);
    send($one, name($again) . " $said", 0);
}
"#;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(ns: &NetNs, cgroup: &Cgroup, address: &str) -> Self {
        let procs = cgroup.0.join("cgroup.procs").display().to_string();
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\"; exec \"$@\"", &procs, "perl", "-e", SERVER, address, &PORT.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        process::in_namespace(&mut command, ns);
        let mut child = process::die_with_parent(&mut command).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

fn lab(services: &[(&str, &str)]) -> Option<Lab> {
    let of = |(service, behind): &(&str, &str)| Service {
        client_address: ClientAddress::Uoa,
        ..udp(service, full_nat(behind), server(0, *behind == V6, PORT))
    };
    let services: Vec<Service> = services.iter().map(of).collect();
    let mut lab = Lab::new(Plan { servers: 1, ..Plan::default() }, sizes(4096), &config(services))?;
    lab.balancer.set_back(TransmitMethod::Redirect).unwrap();
    Some(lab)
}

fn udp(address: &str, forward: ForwardingMethod, to: SocketAddr) -> Service {
    Service::new(Protocol::Udp, SocketAddr::new(address.parse().unwrap(), SERVICE), forward, vec![backend(to, 1)])
}

fn receiver(ns: &NetNs, cgroup: &Cgroup, from: &[IpNet]) -> DatagramReceiver {
    let mut receiver = DatagramReceiver::load(from, &DatagramSettings::default()).unwrap();
    receiver.serve(&cgroup.0).unwrap();
    let interface = Netlink::open(ns).unwrap().index(HOST).unwrap();
    ns.run(|| receiver.attach(interface).unwrap()).unwrap();
    receiver
}

/// A client that hears its service alone.
fn speaker(ns: &NetNs, service: &str) -> UdpSocket {
    let service: IpAddr = service.parse().unwrap();
    let socket = ns.run(|| UdpSocket::bind((client(service.is_ipv6()), 0)).unwrap()).unwrap();
    socket.connect((service, SERVICE)).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// What the service answers: who the server sees, and what it was told.
fn ask(socket: &UdpSocket, what: &str) -> String {
    let mut answer = [0; 2000];
    socket.send(what.as_bytes()).unwrap();
    let length = socket.recv(&mut answer).unwrap();
    String::from_utf8(answer[..length].to_vec()).unwrap()
}

/// Has all on the way know each other.
fn meet(lab: &mut Lab, socket: &UdpSocket) {
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    let mut answer = [0; 2000];
    lab.during(|| {
        until("an answer", || socket.send(b"hello").is_ok() && socket.recv(&mut answer).is_ok());
        // And to those that were sent before.
        while socket.recv(&mut answer).is_ok() {}
    });
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
}

#[test]
fn a_server_sees_the_client_and_answers_it() {
    if !has("perl", "-v", "perl-base") {
        return;
    }
    let (v4, v6) = (server(0, false, PORT).ip().to_string(), server(0, true, PORT).ip().to_string());
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        v6 => v6,
    };
    for (at, service, as_v6) in
        [("0.0.0.0", V4, false), (&*v4, V4, false), ("::", V6, true), (&*v6, V6, true), ("::", V4, true)]
    {
        let Some(mut lab) = lab(&[(V4, V4), (V6, V6)]) else { return };
        let Some(cgroup) = Cgroup::create() else { return };
        let ns = again(&lab.wires.servers[0]);
        let _server = Server::start(&ns, &cgroup, at);
        let receiver = receiver(&ns, &cgroup, &balancers());
        let near = again(&lab.wires.client);
        meet(&mut lab, &speaker(&near, service));
        let before = receiver.counts().unwrap();
        lab.during(|| {
            for _ in 0..3 {
                let socket = speaker(&near, service);
                let here = socket.local_addr().unwrap();
                let seen = if as_v6 { mapped(here.ip()) } else { here.ip() };
                for said in ["one", "two", "three"] {
                    assert_eq!(ask(&socket, said), format!("{seen} {} {said}", here.port()), "{at}");
                }
                // A socket that is connected to it is so to the balancer.
                assert_eq!(ask(&socket, "connect"), format!("{seen} {} connected", here.port()), "{at}");
                assert_eq!(ask(&socket, "four"), format!("{seen} {} four", here.port()), "{at}");
            }
        });
        let DatagramCounts { told, known, unknown, others, broken } = receiver.counts().unwrap();
        // The first one of each, and then no more.
        assert_eq!((told - before.told, known - before.known), (3, 12), "{at}");
        assert_eq!((unknown, others, broken), (0, 0, 0), "{at}");
        drop(receiver);
        assert_eq!(lab.wires.damage(), []);
    }
}

/// Unlike with TCP: the kernel of such a backend knows nothing of the protocol that its datagrams come with.
#[test]
fn without_a_receiver_nothing_arrives() {
    if !has("perl", "-v", "perl-base") {
        return;
    }
    let Some(mut lab) = lab(&[(V4, V4)]) else { return };
    let Some(cgroup) = Cgroup::create() else { return };
    let ns = again(&lab.wires.servers[0]);
    let _server = Server::start(&ns, &cgroup, "0.0.0.0");
    let socket = speaker(&again(&lab.wires.client), V4);
    let refused = || counter(&ns, "IpInUnknownProtos");
    lab.during(|| until("a datagram", || socket.send(b"hello").is_ok() && refused() > 0));
    // Nor is who is no balancer believed.
    let other: IpNet = "10.7.0.0/16".parse().unwrap();
    let deaf = receiver(&ns, &cgroup, &[other]);
    let before = refused();
    lab.during(|| until("a datagram", || socket.send(b"hello").is_ok() && refused() > before));
    let counts = deaf.counts().unwrap();
    assert!(counts.others > 0 && (counts.told, counts.known, counts.unknown) == (0, 0, 0), "{counts:?}");
    assert_eq!(deaf.known().unwrap(), 0);
    drop(deaf);
    // It is as if it began when there is one.
    let _receiver = receiver(&ns, &cgroup, &balancers());
    let here = socket.local_addr().unwrap();
    lab.during(|| assert_eq!(ask(&socket, "now"), format!("{} {} now", here.ip(), here.port())));
}

/// A program could not answer such a client: it sees the balancer, which brings it the answer.
#[test]
fn a_client_of_ipv6_of_a_server_of_ipv4_is_served() {
    if !has("perl", "-v", "perl-base") {
        return;
    }
    for at in ["0.0.0.0", "::"] {
        let Some(mut lab) = lab(&[(V6, V4)]) else { return };
        let Some(cgroup) = Cgroup::create() else { return };
        let ns = again(&lab.wires.servers[0]);
        let _server = Server::start(&ns, &cgroup, at);
        let receiver = receiver(&ns, &cgroup, &balancers());
        let near = again(&lab.wires.client);
        meet(&mut lab, &speaker(&near, V6));
        let answer = lab.during(|| ask(&speaker(&near, V6), "hello"));
        assert!(answer.contains("10.8.0.") && answer.ends_with(" hello"), "{answer}");
        let counts = receiver.counts().unwrap();
        assert!(counts.unknown > 0 && (counts.told, counts.known) == (0, 0), "{counts:?}");
        assert_eq!(receiver.known().unwrap(), 0);
    }
}
