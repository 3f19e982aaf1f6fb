//! An engine and the kernel's own network stack.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rig_packet::device::{Device, Options};
use rig_packet::plan::{Capture, Driver, PortPlan};
use rig_packet::{
    AnswerScope, Config, Counters, Engine, Gateway, Link, Monotonic, PassAction, Payload, Port, Server, Service,
    UdpServer, V4, drive,
};
use rig_sys::clock::monotonic_ns;
use rig_sys::ethtool::{self, Offload};
use rig_sys::xdp::SendPath;
use rig_wire::ethernet::Mac;
use rig_wire::icmp::{self, Icmp};
use rig_wire::ipv4::Ipv4;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::{Wire, is_root, plan, range, until};

const ENGINE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);

/// A UDP server at `ENGINE`.
fn engine(mac: Mac) -> Engine<V4> {
    let link = Link {
        mac,
        address: ENGINE,
        answer: AnswerScope::All,
        announce: false,
        vlan: None,
        gateway: Gateway::Address(KERNEL),
        hop_limit: 64,
        tos: 0,
        verify: true,
        tunnel: None,
    };
    let service = UdpServer { server: Server { ports: 80..=80 }, response: Payload::Filler(700), one_way: false };
    let config = Config {
        link,
        local: vec![(ENGINE, 1)],
        remote: vec![(KERNEL, 1)],
        capacity: 100,
        service: Service::UdpServer(service),
        steering: None,
    };
    Engine::new(config, monotonic_ns()).unwrap()
}

fn serve<P: Port>(mut engine: Engine<V4>, mut port: P, done: &AtomicBool) -> Counters {
    drive(&mut engine, &mut port, &mut Monotonic, |_, _| PassAction::next_if(!done.load(Ordering::Relaxed)));
    engine.counters().clone()
}

/// Runs `talk` while an engine answers at `near`.
fn beside(wire: &Wire, plan: &PortPlan, sending: SendPath, talk: impl FnOnce()) -> Counters {
    let opened = wire.open(plan, &Options { busy_poll: None, sending }).unwrap();
    let (mac, done) = (opened.mac, AtomicBool::new(false));
    let [device] = <[Device; 1]>::try_from(opened.devices).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| match device {
            Device::Xdp(port) => serve(engine(mac), port, &done),
            Device::Live(port) => serve(engine(mac), port, &done),
            Device::Packet(port) => serve(engine(mac), port, &done),
        });
        // Ends the thread also when the talk fails.
        let talked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(talk));
        done.store(true, Ordering::Relaxed);
        let counters = serving.join().unwrap();
        talked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        counters
    })
}

fn ask(wire: &Wire, length: usize) -> usize {
    let socket = wire.far.run(|| UdpSocket::bind((KERNEL, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut answer = [0; 2000];
    until(|| {
        socket.send_to(&vec![1; length], SocketAddr::from((ENGINE, 80))).ok()?;
        socket.recv(&mut answer).ok()
    })
}

fn ping(wire: &Wire, to: Ipv4Addr) {
    let socket = wire.far.run(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut request = vec![0; icmp::HEADER + 4];
    icmp::write_echo(&mut request, icmp::kind::ECHO_REQUEST, (7, 9), b"echo").unwrap();
    let to = SockAddr::from(SocketAddr::from((to, 0)));
    until(|| {
        socket.send_to(&request, &to).ok()?;
        let mut buffer = [0; 200];
        let length = (&socket).read(&mut buffer).ok()?;
        let packet = Ipv4::parse(&buffer[..length]).ok()?;
        let echo = Icmp::parse(packet.payload()).ok()?;
        (echo.kind() == icmp::kind::ECHO_REPLY && echo.echo() == (7, 9)).then_some(())
    });
}

#[test]
fn the_kernel_and_an_engine_understand_each_other() {
    if !is_root() {
        return;
    }
    for (driver, gro) in [
        (Driver::Xdp, false),
        // With NAPI at the kernel's end frames come to it without socket buffers.
        (Driver::Xdp, true),
        (Driver::XdpGeneric, false),
        (Driver::Packet, false),
    ] {
        eprintln!("{driver:?}, generic receive offload: {gro}");
        let mut wire = Wire::new(1, 1500);
        wire.links[0].add_address("near", [10, 0, 0, 50].into(), 24).unwrap();
        wire.links[1].add_address("far", KERNEL.into(), 24).unwrap();
        ethtool::set(&wire.far, "far", Offload::Gro, gro).unwrap();
        let mut plan = plan("near", driver);
        (plan.take, plan.local) = (Capture::Own, vec![range("10.0.0.1", 1)]);
        let counters = beside(&wire, &plan, SendPath::Any, || {
            assert_eq!(ask(&wire, 1), 700);
            assert_eq!(ask(&wire, 1400), 700);
            ping(&wire, ENGINE);
            // The kernel's own address, at the same interface.
            ping(&wire, Ipv4Addr::new(10, 0, 0, 50));
        });
        assert!(counters.udp_rx >= 2 && counters.icmp_tx >= 1 && counters.arp_tx >= 1, "{counters:?}");
        assert_eq!((counters.bad_rx, counters.drop_tx), (0, 0), "{counters:?}");
        // A local kernel leaves checksums to hardware that is not there.
        assert_eq!(counters.partial_rx, counters.udp_rx, "{counters:?}");
        // What is the kernel's did not come here.
        assert_eq!(counters.other_rx, 0, "{counters:?}");
    }
}
