use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};

use super::*;

const QUEUES: u32 = 4;

struct Lab {
    sender: NetNs,
    device: Device,
    receive: Arc<Receive>,
}

/// A veth pair, where this machine lets us have one and move its threads.
fn lab() -> Option<Lab> {
    let receive = match Receive::attach() {
        Ok(receive) if napi::may_place().is_ok() => Arc::new(receive),
        _ => {
            skip(Lack::Root, "threads of the kernel are moved by root of the machine");
            return None;
        }
    };
    if CpuSet::allowed().unwrap().len() < 2 {
        skip(Lack::Cpus, "what is moved needs two CPUs");
        return None;
    }
    let (sender, ns) = (NetNs::create().unwrap(), Arc::new(NetNs::create().unwrap()));
    let mut link = Netlink::open(&sender).unwrap();
    link.add_veth(&VethPair { name: "out", peer: "in", peer_ns: &ns, queues: QUEUES, mtu: 1500 }).unwrap();
    for (ns, name, end) in [(&sender, "out", 1), (&*ns, "in", 2)] {
        let mut link = Netlink::open(ns).unwrap();
        link.add_address(name, IpAddr::from(Ipv4Addr::new(10, 98, 0, end)), 24).unwrap();
        link.set_up(name).unwrap();
    }
    for offload in [Offload::Tso, Offload::Gso] {
        ethtool::set(&sender, "out", offload, false).unwrap();
    }
    let sysfs = Arc::new(ns.sysfs().unwrap());
    Some(Lab { sender, device: Device { ns, sysfs, name: "in".to_owned() }, receive })
}

fn threaded(device: &Device) -> String {
    device.sysfs.read(&device.name, THREADED).unwrap()
}

fn socket(ns: &NetNs, end: u8) -> UdpSocket {
    ns.run(|| UdpSocket::bind((Ipv4Addr::new(10, 98, 0, end), 0)).unwrap()).unwrap()
}

/// Threads come and go, and entries move between, while 16 flows number what they send.
#[test]
fn packets_stay_in_order_while_threads_come_go_and_move() {
    let Some(lab) = lab() else { return };
    let mut threads = Threads::take(&lab.device, &lab.receive, 0).unwrap();
    assert!(threads.abilities().in_place);
    let to = socket(&lab.device.ns, 2);
    to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let flows: Vec<UdpSocket> = (0..16).map(|_| socket(&lab.sender, 1)).collect();
    flows.iter().for_each(|flow| flow.connect(to.local_addr().unwrap()).unwrap());
    let done = AtomicBool::new(false);
    let (received, switches) = thread::scope(|scope| {
        scope.spawn(|| {
            for sequence in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                // What finds no room is lost, and lost is not reordered.
                flows.iter().for_each(|flow| drop(flow.send(&sequence.to_be_bytes())));
                if sequence % 8 == 0 {
                    thread::sleep(Duration::from_micros(300));
                }
            }
        });
        let receive = scope.spawn(|| {
            let mut last: BTreeMap<SocketAddr, u64> = BTreeMap::new();
            let mut count = 0_u64;
            let mut datagram = [0; 8];
            loop {
                match to.recv_from(&mut datagram) {
                    Ok((8, from)) => {
                        let sequence = u64::from_be_bytes(datagram);
                        let before = last.insert(from, sequence);
                        assert!(before.is_none_or(|before| before < sequence), "{from}: {sequence} after {before:?}");
                        count += 1;
                    }
                    Ok(_) => unreachable!("no other socket sends"),
                    Err(_) if done.load(Ordering::Relaxed) => return count,
                    Err(_) => {}
                }
            }
        });
        let mut before = lab.receive.read(QUEUES).unwrap();
        let mut switches = 0;
        for turn in 0..120 {
            thread::sleep(Duration::from_millis(10));
            let after = lab.receive.read(QUEUES).unwrap();
            threads.seen(&before, &after);
            before = after;
            // Every fourth time there are no threads.
            let in_place = turn % 4 == 3;
            let was = threads.in_place;
            // On a machine that is busy with other work a queue may not get empty, which is refused.
            if threads.poll_in_place(in_place).is_ok() && was != in_place {
                switches += 1;
                assert_eq!(threaded(&lab.device), if in_place { "0" } else { "1" });
                assert!(threads.is_intact());
            }
            let placings: Vec<EntryMove> =
                (0..QUEUES as usize).map(|entry| EntryMove { entry, cpu: (turn + entry as u32) % 2 }).collect();
            assert!(threads.apply(&placings).iter().all(Result::is_ok));
            if !threads.in_place {
                let on: Vec<Option<u32>> = placings.iter().map(|placing| Some(placing.cpu)).collect();
                assert_eq!(threads.placed().unwrap(), on);
            }
        }
        done.store(true, Ordering::Relaxed);
        (receive.join().unwrap(), switches)
    });
    assert!(received > 0 && switches > 0, "{received} received, {switches} switches");
    // What polled in place was counted, by the CPU that did it.
    threads.poll_in_place(true).unwrap();
    let before = lab.receive.read(QUEUES).unwrap();
    flows[0].send(&[0; 8]).unwrap();
    let after = lab.receive.read(QUEUES).unwrap();
    assert_eq!(threads.received_by(&before, &after).values().sum::<u64>(), 1);
    let kept = threads.before();
    drop(threads);
    kept.restore(&lab.device.ns).unwrap();
    assert_eq!(threaded(&lab.device), "0");
    assert!(!ethtool::get(&lab.device.ns, "in", Offload::Gro).unwrap());
}

#[test]
fn a_queue_that_is_never_empty_keeps_its_thread() {
    let Some(lab) = lab() else { return };
    let mut threads = Threads::take(&lab.device, &lab.receive, 0).unwrap();
    threads.done = vec![(0, 0), (6400, 100), (0, 0), (10, 10)];
    let said = threads.poll_in_place(true).unwrap_err().to_string();
    assert!(said.contains("queue 1 is never empty"), "{said}");
    assert_eq!(threaded(&lab.device), "1");
    threads.done[1] = (6400, 200);
    threads.poll_in_place(true).unwrap();
    assert_eq!(threads.placed().unwrap(), [None; QUEUES as usize]);
    assert!(threads.is_intact());
}

#[test]
fn who_had_threads_keeps_them() {
    let Some(lab) = lab() else { return };
    ethtool::set(&lab.device.ns, "in", Offload::Gro, true).unwrap();
    lab.device.sysfs.write("in", THREADED, "1").unwrap();
    let threads = Threads::take(&lab.device, &lab.receive, 0).unwrap();
    assert!(!threads.abilities().in_place);
}
