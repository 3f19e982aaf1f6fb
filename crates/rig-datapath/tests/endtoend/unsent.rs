//! What a device does not take is counted by the balancer on whose behalf it was to leave.

use std::net::UdpSocket;
use std::time::Duration;

use rig_datapath::balancer::{Drop, Protocol, QUEUE_PACKETS, Service, Spreading};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};

use crate::lab::{self, HOST, Lab, Plan, server};
use crate::{V4, backend, config, full_nat, sizes, tcp};

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
        // Without it a veth takes no frames of XDP programs.
        ethtool::set(&lab.wires.servers[0], HOST, Offload::Gro, false).unwrap();
        (0..DATAGRAMS).for_each(|_| assert_eq!(client.send(b"word").unwrap(), 4));
        counted += DATAGRAMS;
        lab::until("the count", || lab.dropped(Drop::NotSent) >= counted);
        assert_eq!(lab.dropped(Drop::NotSent), counted, "{:?}", lab.drops());
        ethtool::set(&lab.wires.servers[0], HOST, Offload::Gro, true).unwrap();
    }
    talk(&mut lab);
    assert_eq!(lab.dropped(Drop::NotSent), counted);
}

#[test]
fn what_another_balancers_device_does_not_take_is_not_counted() {
    let Some(mut one) = lab() else { return };
    let client = talk(&mut one);
    // From here on this thread is where the other one is.
    let Some(mut other) = lab() else { return };
    talk(&mut other);
    ethtool::set(&one.wires.servers[0], HOST, Offload::Gro, false).unwrap();
    (0..DATAGRAMS).for_each(|_| assert_eq!(client.send(b"word").unwrap(), 4));
    lab::until("the count", || one.dropped(Drop::NotSent) == DATAGRAMS);
    assert_eq!(other.dropped(Drop::NotSent), 0);
}
