//! Real connections between real sockets through the attached program, offloads on.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{Balancer, Clock, Connection, Drop, QUEUE_PACKETS, Service, Spreading, TransmitMethod};
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_sys::xdp;

use super::changes::BpfFs;
use super::lab::{Lab, until};
use super::too_big::ip_route;
use super::{backend, config, full_nat, service, small, udp_service};

const TIMEOUT: Duration = Duration::from_secs(20);

/// One connection; panics when it does not come.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(_) => assert!(Instant::now() < deadline, "no client connects"),
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn services() -> [Service; 3] {
    [
        service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]),
        service("[fd00::200]:80", full_nat(&["fd00::100"]), &[backend("[fd00::11]:8080", 1)]),
        udp_service("10.0.0.200:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.12:5353", 1)]),
    ]
}

/// A lab whose link carries the traffic of sockets.
fn open(services: &[Service]) -> Option<Lab> {
    let mut lab = Lab::new(small(), &config(services))?;
    lab.balancer.set_clock(Clock::Kernel).unwrap();
    // Hosts on the link that ask for these addresses shall be told the balancer's MAC address.
    let mut netlink = Netlink::open(&NetNs::of_current_thread().unwrap()).unwrap();
    for (address, prefix) in [("10.0.0.200", 32), ("10.0.0.100", 32), ("fd00::200", 128), ("fd00::100", 128)] {
        netlink.add_address("lb0", address.parse().unwrap(), prefix).unwrap();
    }
    lab.balancer.set_back(TransmitMethod::Redirect).unwrap();
    xdp::take_redirected(&lab.far_ns, "far", true).unwrap();
    // A veth's ring has 256 places and is emptied by whichever CPU began to: what a stream has under way, with its
    // acknowledgements, finds room however late that CPU comes to it.
    lab.far_ns.sysctls(&[("net.ipv4.tcp_rmem", "4096 131072 131072")]).unwrap();
    Some(lab)
}

fn data() -> Vec<u8> {
    (0..1_000_003_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Megabytes there and back, byte for byte, and datagrams: the senders' kernels leave checksums to the device.
fn carry(lab: &Lab) {
    carry_streams(lab);
    carry_datagrams(lab);
}

fn carry_streams(lab: &Lab) {
    let (far, data) = (&lab.far_ns, data());
    for (server, at) in [("10.0.0.10:8080", "10.0.0.200:80"), ("[fd00::11]:8080", "[fd00::200]:80")] {
        let listener = far.run(|| TcpListener::bind(server).unwrap()).unwrap();
        let at: SocketAddr = at.parse().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = accept(&listener);
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                let mut received = Vec::new();
                stream.read_to_end(&mut received).unwrap();
                stream.write_all(&received).unwrap();
            });
            let connected = far.run(|| TcpStream::connect_timeout(&at, TIMEOUT)).unwrap();
            let mut stream = connected.unwrap_or_else(|error| panic!("{error}: {:?}", lab.drops()));
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream.write_all(&data).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back == data, "{} of {} bytes came back", back.len(), data.len());
        });
    }
}

fn carry_datagrams(lab: &Lab) {
    let (far, data) = (&lab.far_ns, data());
    let server = far.run(|| UdpSocket::bind("10.0.0.12:5353").unwrap()).unwrap();
    let client = far.run(|| UdpSocket::bind("10.0.0.50:0").unwrap()).unwrap();
    server.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut buffer = [0; 2000];
    for length in [0, 1, 1000, 1400] {
        client.send_to(&data[..length], "10.0.0.200:53").unwrap();
        let (received, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..received], data[..length]);
        assert_eq!(from.ip().to_string(), "10.0.0.100");
        server.send_to(&data[..length], from).unwrap();
        let (received, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..received], from.to_string().as_str()), (&data[..length], "10.0.0.200:53"));
    }
}

#[test]
fn streams_and_datagrams_arrive_whole() {
    let Some(lab) = open(&services()) else { return };
    carry(&lab);
    assert_eq!(lab.drops(), []);
}

/// Backends behind a link with a smaller MTU: clients learn of it from the balancer and send smaller packets.
#[test]
fn streams_arrive_over_a_smaller_link() {
    let Some(lab) = open(&services()) else { return };
    ip_route("route add 10.0.0.10/32 dev lb0 mtu lock 1300");
    ip_route("-6 route add fd00::11/128 dev lb0 mtu lock 1300");
    carry_streams(&lab);
    let drops = lab.drops();
    assert!(matches!(drops[..], [(Drop::TooBigTold, told)] if told >= 2), "{drops:?}");
}

/// Workers on CPUs that the interface's only queue does not reach.
fn queues(workers: &[u32], receiver: Option<u32>, packets: u32) -> Spreading {
    Spreading::Queues { workers: workers.to_vec(), receiver, packets }
}

/// Packets that each CPU has forwarded.
fn by_cpu(lab: &Lab) -> Vec<u64> {
    let services = lab.balancer.services().unwrap();
    let mut packets = vec![0; lab.cpus() as usize];
    for backend in services.iter().flat_map(|service| &service.backends) {
        packets.iter_mut().zip(&backend.traffic).for_each(|(sum, cpu)| *sum += cpu.in_packets + cpu.out_packets);
    }
    packets
}

#[test]
fn workers_that_no_queue_reaches_share_the_work() {
    let Some(mut lab) = open(&services()) else { return };
    let cpus = CpuSet::online().unwrap().as_slice().to_vec();
    if cpus.len() < 2 {
        return skip(Lack::Cpus, "two workers need two CPUs");
    }
    for receiver in [None, Some(cpus[0])] {
        lab.balancer.spread_over(&queues(&cpus[..2], receiver, QUEUE_PACKETS)).unwrap();
        lab.balancer.renew(&mut lab.attachment).unwrap();
        let before = by_cpu(&lab);
        // Flows are spread by chance; 20 streams and 20 answers are not all on one side.
        for _ in 0..10 {
            carry(&lab);
            assert_eq!(lab.drops(), []);
        }
        let after = by_cpu(&lab);
        for cpu in &cpus[..2] {
            let at = *cpu as usize;
            assert!(after[at] > before[at], "CPU {cpu} of {receiver:?} has had nothing: {before:?} {after:?}");
        }
    }
    // CPUs have taken ports from one order, and no two the same.
    let (mut places, mut connections) = (HashSet::new(), 0);
    let mut note = |connection: Connection| {
        places.insert((connection.backend, connection.local));
        connections += 1;
    };
    lab.balancer.connections(&mut note).unwrap();
    let begun: u64 = lab.balancer.cpus().unwrap().iter().map(|cpu| cpu.traffic.connections).sum();
    assert_eq!((places.len() as u64, connections), (begun, begun));
    // The host itself is reached as ever.
    let server = TcpListener::bind("10.0.0.1:7000").unwrap();
    let client = lab.far_ns.run(|| TcpStream::connect_timeout(&"10.0.0.1:7000".parse().unwrap(), TIMEOUT)).unwrap();
    let mut served = accept(&server);
    client.unwrap().write_all(b"for the host").unwrap();
    let mut text = String::new();
    served.read_to_string(&mut text).unwrap();
    assert_eq!(text, "for the host");
    // And one worker without a queue between.
    lab.balancer.spread_over(&Spreading::AsReceived).unwrap();
    lab.balancer.renew(&mut lab.attachment).unwrap();
    carry(&lab);
}

#[test]
fn what_finds_a_workers_queue_full_is_counted() {
    let Some(mut lab) = open(&services()) else { return };
    // This thread sends from the worker's CPU, so that the worker cannot run meanwhile.
    let here = CpuSet::allowed().unwrap().as_slice()[0];
    lab.balancer.spread_over(&queues(&[here], None, 1)).unwrap();
    lab.balancer.renew(&mut lab.attachment).unwrap();
    let _server = lab.far_ns.run(|| UdpSocket::bind("10.0.0.12:5353").unwrap()).unwrap();
    let client = lab.far_ns.run(|| UdpSocket::bind("10.0.0.50:0").unwrap()).unwrap();
    let (mut sent, mut busy, mut arrived) = (0, 0, 0);
    until("a full queue", || {
        for _ in 0..200 {
            client.send_to(b"burst", "10.0.0.200:53").unwrap();
            sent += 1;
        }
        busy = lab.drops().iter().find(|(reason, _)| *reason == Drop::WorkerBusy).map_or(0, |(_, count)| *count);
        busy > 0
    });
    until("the others", || {
        arrived = by_cpu(&lab).iter().sum();
        arrived + busy == sent
    });
    assert!(arrived > 0);
}

/// Neither a restart of the control plane nor one with other workers loses a stream.
#[test]
fn workers_outlive_the_control_plane() {
    let Some(mut lab) = open(&services()) else { return };
    let cpus = CpuSet::online().unwrap().as_slice().to_vec();
    let Some(directory) = BpfFs::mount() else { return };
    let tables = directory.0.path().join("tables");
    let link = directory.0.path().join("link");
    std::fs::create_dir(&tables).unwrap();
    lab.balancer.spread_over(&queues(&cpus, None, QUEUE_PACKETS)).unwrap();
    lab.balancer.renew(&mut lab.attachment).unwrap();
    lab.balancer.keep(&tables).unwrap();
    lab.attachment.keep(&link).unwrap();

    let listener = lab.far_ns.run(|| TcpListener::bind("10.0.0.10:8080").unwrap()).unwrap();
    let connected = lab.far_ns.run(|| TcpStream::connect_timeout(&"10.0.0.200:80".parse().unwrap(), TIMEOUT));
    let mut client = connected.unwrap().unwrap();
    let mut server = accept(&listener);
    let mut talk = |word: &[u8]| {
        client.write_all(word).unwrap();
        let mut heard = vec![0; word.len()];
        server.set_read_timeout(Some(TIMEOUT)).unwrap();
        server.read_exact(&mut heard).unwrap();
        assert_eq!(heard, word);
    };
    talk(b"before");
    let Lab { balancer, attachment, interface, far_ns: _far, .. } = lab;
    drop((balancer, attachment));
    talk(b"without an agent");
    for workers in [&cpus[..1], &cpus[..]] {
        let mut next = Balancer::resume(&tables).unwrap();
        next.spread_over(&queues(workers, None, QUEUE_PACKETS)).unwrap();
        let attachment = next.take_over(&link, interface).unwrap();
        talk(b"with another");
        drop((next, attachment));
        talk(b"without one again");
    }
    // Without queues from here on, and nothing of them left behind.
    let mut last = Balancer::resume(&tables).unwrap();
    assert!(tables.join("count_refused").exists());
    let attachment = last.take_over(&link, interface).unwrap();
    assert!(!tables.join("count_refused").exists());
    assert!(tables.join("count_unsent").exists());
    talk(b"at last");
    drop(attachment);
}
