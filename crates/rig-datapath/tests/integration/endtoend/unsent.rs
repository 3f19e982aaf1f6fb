//! What a device does not take is counted by the balancer on whose behalf it was to leave.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use rig_datapath::balancer::{Drop, GenericXdp, Mode, Protocol, QUEUE_PACKETS, Service, Spreading};
use rig_datapath::napi::{self, Urgency};
use rig_skip::{Lack, skip};
use rig_sys::cpu::{CpuSet, run_before_others};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, TokenBucket};
use rig_sys::xdp;

use super::lab::{self, HOST, Lab, Plan, server};
use super::{V4, backend, config, full_nat, sizes, tcp};

const PORT: u16 = 53;
const DATAGRAMS: u64 = 100;

/// A client and a server of datagrams, which the balancer knows the ways to.
fn talk(lab: &mut Lab) -> UdpSocket {
    let bind = |port| move || UdpSocket::bind(("0.0.0.0", port)).unwrap();
    let client = lab.wires.client.run(bind(0)).unwrap();
    let answers = lab.wires.servers[0].run(bind(PORT)).unwrap();
    answers.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    client.connect((V4, PORT)).unwrap();
    lab.tend_until("a datagram", |_| {
        client.send(b"word").unwrap();
        answers.recv(&mut [0; 16]).is_ok()
    });
    client
}

fn lab() -> Option<Lab> {
    let backends = vec![backend(server(0, false, PORT), 1)];
    let service = Service { protocol: Protocol::Udp, ..tcp(V4, PORT, full_nat(V4), backends) };
    Lab::new(Plan { servers: 1, ..Plan::default() }, sizes(1000), &config([service]))
}

#[test]
fn what_a_device_does_not_take_has_a_number() {
    let Some(mut lab) = lab() else { return };
    let cpus = CpuSet::allowed().unwrap().as_slice().to_vec();
    let queues = Spreading::Queues { workers: cpus, receiver: None, packets: QUEUE_PACKETS };
    let mut counted = 0;
    for spreading in [Spreading::AsReceived, queues] {
        lab.balancer.spread_over(&spreading).unwrap();
        lab.attachments.iter_mut().for_each(|attachment| lab.balancer.renew(attachment).unwrap());
        let client = talk(&mut lab);
        assert_eq!(lab.dropped(Drop::NotSent), counted, "{:?}", lab.drops());
        xdp::take_redirected(&lab.wires.servers[0], HOST, false).unwrap();
        (0..DATAGRAMS).for_each(|_| assert_eq!(client.send(b"word").unwrap(), 4));
        counted += DATAGRAMS;
        lab::until("the count", || lab.dropped(Drop::NotSent) >= counted);
        assert_eq!(lab.dropped(Drop::NotSent), counted, "{:?}", lab.drops());
        xdp::take_redirected(&lab.wires.servers[0], HOST, true).unwrap();
    }
    talk(&mut lab);
    assert_eq!(lab.dropped(Drop::NotSent), counted);
}

/// Of a bridge, which has no driver that runs programs. The queue of the wire to the server is stopped when its ring is
/// full, whose receiving thread comes to nothing while this one sends.
#[test]
fn what_a_stopped_queue_does_not_take_in_generic_mode_is_counted() {
    if let Err(why) = napi::may_place() {
        return skip(Lack::ReceiveThreads, why);
    }
    let Some(mut lab) = lab() else { return };
    lab.attachments.clear();
    let mut link = Netlink::here().unwrap();
    link.add_bridge("br", 1500).unwrap();
    let gone = Command::new("ip").args(["address", "flush", "dev", "clients"]).status().unwrap();
    assert!(gone.success());
    link.set_bridge("clients", "br").unwrap();
    link.add_address("br", "10.10.0.1".parse().unwrap(), 24).unwrap();
    link.set_up("br").unwrap();
    lab::until("the bridge", || link.is_operational("br").unwrap());
    let attachment = lab.balancer.attach(link.index("br").unwrap(), GenericXdp::Allowed).unwrap();
    assert_eq!(attachment.mode(), Mode::Generic);
    lab.attachments.push(attachment);
    talk(&mut lab);
    assert_eq!(lab.dropped(Drop::NotSent), 0);
    // Each may have fewer packets on their way than there is room for in the ring.
    let socket = || UdpSocket::bind("0.0.0.0:0").unwrap();
    let clients: Vec<UdpSocket> = lab.wires.client.run(|| (0..8).map(|_| socket()).collect()).unwrap();

    link.set_token_bucket("server0", TokenBucket { rate: 1 << 30, burst: 1 << 20, limit: 1 << 20 }).unwrap();
    // A veth that might be sent large segments does without its peer's ring.
    ethtool::set(&lab.wires.here, "server0", Offload::Tso, false).unwrap();
    let cpu = CpuSet::allowed().unwrap().as_slice()[0];
    napi::place(&lab.wires.servers[0], HOST, &[cpu], Urgency::Normal).unwrap();
    let packets = |lab: &Lab| {
        let services = lab.balancer.services().unwrap();
        services
            .iter()
            .flat_map(|service| &service.backends)
            .flat_map(|backend| &backend.traffic)
            .map(|cpu| cpu.in_packets)
            .sum::<u64>()
    };
    let received = |lab: &Lab| lab::counter(&lab.wires.servers[0], "IpInReceives");
    let before = (packets(&lab), received(&lab));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            CpuSet::new([cpu]).apply().unwrap();
            run_before_others(0, 1).unwrap();
            for client in clients.iter().cycle().take(1000) {
                assert_eq!(client.send_to(b"word", (V4, PORT)).unwrap(), 4);
            }
        });
    });
    let forwarded = packets(&lab) - before.0;
    lab::until("all packets", || received(&lab) - before.1 + lab.dropped(Drop::NotSent) >= forwarded);
    let arrived = received(&lab) - before.1;
    if arrived == forwarded {
        return skip(Lack::StoppedQueues, "the queue was not stopped, which Linux does from 6.16 on");
    }
    assert_eq!(lab.dropped(Drop::NotSent), forwarded - arrived);
}

#[test]
fn what_another_balancers_device_does_not_take_is_not_counted() {
    let Some(mut one) = lab() else { return };
    let client = talk(&mut one);
    // From here on this thread is where the other one is.
    let Some(mut other) = lab() else { return };
    talk(&mut other);
    xdp::take_redirected(&one.wires.servers[0], HOST, false).unwrap();
    (0..DATAGRAMS).for_each(|_| assert_eq!(client.send(b"word").unwrap(), 4));
    lab::until("the count", || one.dropped(Drop::NotSent) == DATAGRAMS);
    assert_eq!(other.dropped(Drop::NotSent), 0);
}
