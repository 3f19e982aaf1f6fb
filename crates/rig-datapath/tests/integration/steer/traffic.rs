//! On a veth pair: thousands of moves while numbered datagrams come.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rig_datapath::steer::{Options, Steer, SteerReading};
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;

use super::load;

const FLOWS: usize = 24;
const MOVES: u32 = 2_000;
/// Datagrams that are received at least, which on a busy machine takes more moves.
const DATAGRAMS: u64 = 50_000;
const MOST_MOVES: u32 = 40_000;
/// Datagrams on their way at a time.
const WINDOW: u64 = 1_000;

#[test]
fn datagrams_stay_in_order_over_thousands_of_moves() {
    let cpus = CpuSet::allowed().unwrap();
    let &[one, two, ..] = cpus.as_slice() else {
        return skip(Lack::Cpus, "moves are between two");
    };
    let Some(mut steer) = load(Options { queues: 2, packets: 2048, strict: true, completes: true }) else { return };
    let (near, far) = (NetNs::create().unwrap(), NetNs::create().unwrap());
    let [from, to] = [1, 2].map(|end| IpAddr::from(Ipv4Addr::new(10, 98, 0, end)));
    let mut link = Netlink::open(&near).unwrap();
    link.add_veth(&VethPair { name: "out", peer: "in", peer_ns: &far, queues: 2, mtu: 1500 }).unwrap();
    link.add_address("out", from, 24).unwrap();
    link.set_up("out").unwrap();
    let mut link = Netlink::open(&far).unwrap();
    link.add_address("in", to, 24).unwrap();
    link.set_up("in").unwrap();
    // As a sender on this machine leaves checksums to its device, which the program completes.
    assert!(ethtool::get(&near, "out", Offload::Checksum).unwrap());
    let index = link.index("in").unwrap();
    far.run(|| steer.attach(index)).unwrap().unwrap();

    let address = SocketAddr::new(to, 9);
    let receiver = far.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let over = AtomicBool::new(false);
    let arrived = AtomicU64::new(0);
    let (received, reordered, sent) = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut last, mut received, mut reordered) = (BTreeMap::new(), 0_u64, 0_u64);
            let mut bytes = [0; 2048];
            loop {
                let Ok((length, source)) = receiver.recv_from(&mut bytes) else {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    continue;
                };
                let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                assert_eq!(length, 200);
                let last = last.entry(source.port()).or_insert(0);
                reordered += u64::from(number <= *last);
                *last = number.max(*last);
                received += 1;
                arrived.store(received, Ordering::Relaxed);
            }
            (received, reordered)
        });
        let sending = scope.spawn(|| {
            let open = || UdpSocket::bind(SocketAddr::new(from, 0));
            let sockets: Vec<UdpSocket> = near.run(|| (0..FLOWS).map(|_| open().unwrap()).collect()).unwrap();
            let (mut number, mut lost) = (0_u64, 0);
            let mut datagram = [0; 200];
            while !over.load(Ordering::Relaxed) {
                let under_way = || (number * FLOWS as u64).saturating_sub(lost + arrived.load(Ordering::Relaxed));
                if under_way() > WINDOW {
                    let before = arrived.load(Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(2));
                    if arrived.load(Ordering::Relaxed) == before {
                        lost += under_way();
                    }
                    continue;
                }
                number += 1;
                datagram[..8].copy_from_slice(&number.to_ne_bytes());
                for socket in &sockets {
                    socket.send_to(&datagram, address).unwrap();
                }
            }
            number * FLOWS as u64
        });
        for number in 0..MOST_MOVES {
            if number >= MOVES && arrived.load(Ordering::Relaxed) >= DATAGRAMS {
                break;
            }
            let cpu = if number % 2 == 0 { two } else { one };
            for bucket in 0..Steer::BUCKETS {
                steer.place(bucket, cpu).unwrap();
            }
            thread::sleep(Duration::from_micros(500));
        }
        over.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap();
        let (received, reordered) = reading.join().unwrap();
        (received, reordered, sent)
    });
    let mut steered = steer.read().unwrap();
    let sums = |steered: &SteerReading| {
        let came: u64 = steered.buckets.iter().map(|bucket| bucket.packets).sum();
        let refused: u64 = steered.cpus.iter().map(|cpu| cpu.refused).sum();
        (came, refused, steered.cpus.iter().map(|cpu| cpu.packets).sum::<u64>())
    };
    // A thread may still wait for a CPU.
    for _ in 0..500 {
        let (came, refused, processed) = sums(&steered);
        if processed + refused == came {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        steered = steer.read().unwrap();
    }
    let (came, refused, processed) = sums(&steered);
    let by_cpu = [one, two].map(|cpu| steered.cpus[cpu as usize]);
    println!("{sent} sent, {came} came, {refused} refused, {received} received, {reordered} reordered, {by_cpu:?}");
    assert_eq!(reordered, 0);
    assert!(received >= DATAGRAMS, "{received} of {sent} datagrams were received");
    // Some more are the kernel's own.
    assert!((sent..sent + 100).contains(&came), "{came} of {sent} datagrams came");
    assert_eq!(processed + refused, came, "each is processed or refused");
    for cpu in by_cpu {
        assert!(cpu.packets > 1_000 && cpu.time > Duration::ZERO, "{by_cpu:?}");
    }
    assert!(steered.buckets.iter().all(|bucket| bucket.hurried == 0));
}
