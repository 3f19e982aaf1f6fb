//! Frames from one port to another.

use std::net::Ipv4Addr;

use rig_packet::device::{Device, Losses, Options};
use rig_packet::plan::{Capture, Driver, PortPlan, ThreadPlan, VxlanPlan};
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::netns::NetNs;
use rig_sys::xdp::SendPath;

use super::{Frames, Wire, await_live, frames, is_root, plan, range, takes_several_pages, until};

/// A protocol that kernels do not answer (IEEE 802, local experimental EtherType 1).
fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

fn cross(from: &mut dyn Frames, to: &mut dyn Frames, count: u32) {
    let lengths = |n: u32| 60 + (n as usize * 7) % 1455;
    let (mut sent, mut seen) = (0, Vec::new());
    until(|| {
        while sent < count && sent < seen.len() as u32 + 64 && from.send(&frame(sent, lengths(sent))) {
            sent += 1;
        }
        from.flush();
        seen.extend(to.receive());
        (seen.len() as u32 == count).then_some(())
    });
    for (n, got) in (0..).zip(&seen) {
        assert!(*got == frame(n, lengths(n)), "frame {n} of {count}: {} bytes", got.len());
    }
}

#[test]
fn frames_arrive_whole_and_in_order_by_every_way() {
    if !is_root() {
        return;
    }
    let ways = [
        ("live", Driver::Xdp, SendPath::Any),
        ("xdp", Driver::Xdp, SendPath::Socket),
        ("generic", Driver::XdpGeneric, SendPath::Any),
        ("packet", Driver::Packet, SendPath::Any),
    ];
    for (name, driver, sending) in ways {
        for (peer_name, peer_driver, peer_sending) in ways {
            eprintln!("{name} and {peer_name}");
            let wire = Wire::new(1, 1500);
            let mut a = wire.device(&plan("near", driver), sending);
            let mut b = wire.device(&plan("far", peer_driver), peer_sending);
            // A peer without a program in its driver receives without NAPI.
            for (device, way, peer) in [(&mut a, name, peer_name), (&mut b, peer_name, name)] {
                assert_eq!(matches!(device, Device::Live(_)), way == "live");
                if way == "live" && ["live", "xdp"].contains(&peer) {
                    await_live(device);
                } else {
                    assert!(!device.meter().is_live());
                }
            }
            cross(frames(&mut a), frames(&mut b), 3000);
            cross(frames(&mut b), frames(&mut a), 3000);
            for device in [&a, &b] {
                assert_eq!(device.meter().losses().unwrap(), Default::default());
            }
        }
    }
}

/// Few frames go by the socket, more without socket buffers; and each receive buffer is used more than once.
#[test]
fn bursts_of_any_size_arrive_whole_and_in_order() {
    if !is_root() {
        return;
    }
    let wire = Wire::new(1, 1500);
    let mut a = wire.device(&plan("near", Driver::Xdp), SendPath::Any);
    let mut b = wire.device(&plan("far", Driver::Xdp), SendPath::Any);
    await_live(&mut a);
    let length = |n: u32| 60 + (n as usize * 7) % 1455;
    let mut sent = 0;
    for burst in (1..=40).cycle().take(400) {
        let numbers = sent..sent + burst;
        numbers.clone().for_each(|n| assert!(frames(&mut a).send(&frame(n, length(n)))));
        frames(&mut a).flush();
        let mut seen = Vec::new();
        until(|| {
            seen.extend(frames(&mut b).receive());
            (seen.len() >= burst as usize).then_some(())
        });
        assert!(seen.into_iter().eq(numbers.map(|n| frame(n, length(n)))), "a burst of {burst} after {sent} frames");
        sent += burst;
    }
    assert!(sent > 2 * 4096);
    for device in [&a, &b] {
        assert_eq!(device.meter().losses().unwrap(), Losses::default());
    }
}

#[test]
fn a_port_sends_on_when_its_peer_comes_and_goes() {
    if !is_root() {
        return;
    }
    let wire = Wire::new(1, 1500);
    let mut a = wire.device(&plan("near", Driver::Xdp), SendPath::Any);
    for _ in 0..2 {
        let mut b = wire.device(&plan("far", Driver::Xdp), SendPath::Any);
        await_live(&mut a);
        cross(frames(&mut a), frames(&mut b), 500);
        drop(b);
        // Until it is noticed, frames are lost with their receiver.
        let meter = a.meter();
        until(|| {
            frames(&mut a).send(&frame(0, 60));
            frames(&mut a).flush();
            (!meter.is_live()).then_some(())
        });
        let mut b = wire.device(&plan("far", Driver::Packet), SendPath::Any);
        cross(frames(&mut a), frames(&mut b), 500);
    }
}

#[test]
fn queues_of_one_number_meet() {
    if !is_root() {
        return;
    }
    for driver in [Driver::Xdp, Driver::Packet] {
        let wire = Wire::new(2, 1500);
        let threads: Vec<_> = [0, 1].map(|queue| ThreadPlan { cpu: None, queue, response: None }).into();
        let open = |interface| {
            let plan = PortPlan { threads: threads.clone(), ..plan(interface, driver) };
            wire.open(&plan, &Options::default()).unwrap()
        };
        let (mut a, mut b) = (open("near"), open("far"));
        if driver == Driver::Xdp {
            // A thread that may be on any CPU reaches any queue.
            assert!(a.notes.iter().any(|note| note.contains("socket buffer")), "{:?}", a.notes);
            for n in [1, 0] {
                cross(frames(&mut a.devices[n]), frames(&mut b.devices[n]), 200);
                cross(frames(&mut b.devices[n]), frames(&mut a.devices[n]), 200);
            }
        } else {
            // By which queue a packet socket sends is the kernel's choice; but all arrives, once.
            let mut seen = 0;
            (0..200).for_each(|n| assert!(frames(&mut a.devices[n as usize % 2]).send(&frame(n, 60))));
            until(|| {
                a.devices.iter_mut().for_each(|device| frames(device).flush());
                seen += b.devices.iter_mut().map(|device| frames(device).receive().len()).sum::<usize>();
                (seen == 200).then_some(())
            });
        }
    }
}

#[test]
fn threads_that_stay_on_their_cpus_send_live_frames_to_the_queue_of_their_number() {
    if !is_root() {
        return;
    }
    let allowed = CpuSet::allowed().unwrap();
    if !allowed.as_slice().starts_with(&[0, 1]) {
        return skip(Lack::Cpus, format_args!("CPUs 0 and 1 are needed, and {allowed} allowed"));
    }
    let wire = Wire::new(2, 1500);
    let threads = |cpus: [u32; 2]| {
        let place = |(queue, cpu)| ThreadPlan { cpu: Some(cpu), queue, response: None };
        (0..).zip(cpus).map(place).collect::<Vec<_>>()
    };
    let open = |interface, cpus| {
        let plan = PortPlan { threads: threads(cpus), ..plan(interface, Driver::Xdp) };
        wire.open(&plan, &Options::default()).unwrap()
    };
    let crossed = open("near", [1, 0]);
    assert!(crossed.notes.iter().any(|note| note.contains("stay on a CPU")), "{:?}", crossed.notes);
    assert!(crossed.devices.iter().all(|device| matches!(device, Device::Xdp(_))));
    drop(crossed);
    let (a, b) = (open("near", [0, 1]), open("far", [0, 1]));
    for (cpu, (mut a, mut b)) in (0..).zip(a.devices.into_iter().zip(b.devices)) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                CpuSet::new([cpu]).apply().unwrap();
                await_live(&mut a);
                await_live(&mut b);
                cross(frames(&mut a), frames(&mut b), 1000);
                cross(frames(&mut b), frames(&mut a), 1000);
            });
        });
    }
}

#[test]
fn busy_polling_and_jumbo_frames_work() {
    if !is_root() {
        return;
    }
    let wire = Wire::new(1, 1500);
    let options = Options { busy_poll: Some(64), sending: SendPath::Socket };
    let [mut a, mut b] = ["near", "far"].map(|name| wire.open(&plan(name, Driver::Xdp), &options).unwrap().devices);
    cross(frames(&mut a[0]), frames(&mut b[0]), 1000);

    let wire = Wire::new(1, 9000);
    let jumbo = |name| PortPlan { mtu: 9000, ..plan(name, Driver::Packet) };
    let [mut a, mut b] = ["near", "far"].map(|name| wire.device(&jumbo(name), SendPath::Any));
    assert!(frames(&mut a).send(&frame(1, 9014)));
    frames(&mut a).flush();
    let got = until(|| frames(&mut b).receive().pop());
    assert!(got == frame(1, 9014), "{} bytes", got.len());
    assert!(!frames(&mut a).send(&vec![0; 70_000]), "no buffer holds this");
}

/// Of one buffer and of several, in turns, so that each is used for pieces of any place in a frame.
#[test]
fn frames_of_several_pages_arrive_whole_and_in_order_by_every_way() {
    if !is_root() {
        return;
    }
    if !takes_several_pages() {
        return skip(Lack::Kernel, "AF_XDP takes frames of several buffers since Linux 6.6");
    }
    let ways = [
        ("live", Driver::Xdp, SendPath::Any),
        ("xdp", Driver::Xdp, SendPath::Socket),
        ("generic", Driver::XdpGeneric, SendPath::Any),
        ("packet", Driver::Packet, SendPath::Any),
    ];
    let length = |n: u32| [60, 9014, 3840, 3841, 4096, 4097, 7936, 7937, 8192, 8193, 1514][n as usize % 11];
    for (name, driver, sending) in ways {
        for (peer_name, peer_driver, peer_sending) in ways {
            eprintln!("{name} and {peer_name}");
            let wire = Wire::new(1, 9000);
            let jumbo = |name, driver| PortPlan { mtu: 9000, ..plan(name, driver) };
            let mut a = wire.device(&jumbo("near", driver), sending);
            let mut b = wire.device(&jumbo("far", peer_driver), peer_sending);
            for swapped in [false, true] {
                let (from, to) = if swapped { (&mut b, &mut a) } else { (&mut a, &mut b) };
                let (mut sent, mut seen) = (0, Vec::new());
                until(|| {
                    while sent < 3000 && sent < seen.len() as u32 + 32 && frames(from).send(&frame(sent, length(sent)))
                    {
                        sent += 1;
                    }
                    frames(from).flush();
                    seen.extend(frames(to).receive());
                    (seen.len() == 3000).then_some(())
                });
                for (n, got) in (0..).zip(&seen) {
                    assert!(*got == frame(n, length(n)), "frame {n}: {} bytes", got.len());
                }
            }
            assert!(!frames(&mut a).send(&vec![0; 70_000]), "no buffer holds this");
            for device in [&a, &b] {
                assert_eq!(device.meter().losses().unwrap(), Default::default());
            }
        }
    }
}

#[test]
fn frames_that_are_too_long_or_too_many_are_counted() {
    if !is_root() {
        return;
    }
    let wire = Wire::new(1, 3000);
    let mut a = wire.device(&plan("near", Driver::Xdp), SendPath::Socket);
    let mut b = wire.device(&PortPlan { mtu: 3000, ..plan("far", Driver::Packet) }, SendPath::Socket);
    let meter = a.meter();
    assert!(frames(&mut b).send(&frame(1, 2900)));
    frames(&mut b).flush();
    until(|| (meter.losses().unwrap() == Losses { missed: 0, unfit: 1, refused: 0 }).then_some(()));
    // The receiver reads nothing until there is no room left.
    until(|| {
        (0..64).take_while(|&n| frames(&mut b).send(&frame(n, 60))).for_each(drop);
        frames(&mut b).flush();
        (meter.losses().unwrap().missed > 0).then_some(())
    });
    assert_eq!(meter.losses().unwrap().unfit, 1);
    let held: usize = (0..100).map(|_| frames(&mut a).receive().len()).sum();
    assert!(held >= 4096, "{held}");
}

fn packet(vlan: bool, ethertype: u16, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame(0, 120);
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    frame[14..].fill(0);
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    if vlan {
        frame.splice(12..12, [0x81, 0, 0, 7]);
    }
    frame
}

fn solicitation(mut frame: Vec<u8>, ip: usize) -> Vec<u8> {
    (frame[ip + 6], frame[ip + 40]) = (58, 135);
    frame
}

#[test]
fn own_frames_are_taken_and_no_others() {
    if !is_root() {
        return;
    }
    let v6 = |last: u8| {
        let mut octets = [0; 16];
        (octets[0], octets[15]) = (0xfd, last);
        octets
    };
    let mut own = Vec::new();
    let mut foreign = vec![frame(0, 60), packet(false, 0x0800, 30, &[10, 0, 0, 0])];
    for vlan in [false, true] {
        for last in [1, 4] {
            own.push(packet(vlan, 0x0800, 30, &[10, 0, 0, last]));
            own.push(packet(vlan, 0x0806, 38, &[10, 0, 0, last]));
            own.push(packet(vlan, 0x86dd, 38, &v6(last)));
            let ip = if vlan { 18 } else { 14 };
            own.push(solicitation(packet(vlan, 0x86dd, 62, &v6(last)), ip));
        }
        foreign.push(packet(vlan, 0x0800, 30, &[10, 0, 0, 5]));
        foreign.push(packet(vlan, 0x0806, 38, &[10, 0, 0, 5]));
        foreign.push(packet(vlan, 0x86dd, 38, &v6(5)));
        foreign.push(packet(vlan, 0x86dd, 62, &v6(1)));
    }
    for (driver, sender) in
        [(Driver::Xdp, Driver::Packet), (Driver::XdpGeneric, Driver::Packet), (Driver::Packet, Driver::Xdp)]
    {
        eprintln!("{driver:?}");
        let wire = Wire::new(1, 1500);
        let mut near = plan("near", driver);
        near.take = Capture::Own;
        near.local.push(range("fd00::1", 4));
        let mut a = wire.device(&near, SendPath::Any);
        let mut b = wire.device(&plan("far", sender), SendPath::Any);
        check(&mut a, &mut b, &own, &foreign);
    }
}

#[test]
fn tunnels_are_taken_and_what_is_beside_them_is_not() {
    if !is_root() {
        return;
    }
    let datagram = |ip: [u8; 4], port: u16| {
        let mut frame = packet(false, 0x0800, 30, &ip);
        (frame[14], frame[23]) = (0x45, 17);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    };
    let own = [
        datagram([10, 9, 0, 1], 4789),
        datagram([10, 9, 0, 2], 4789),
        packet(false, 0x0806, 38, &[10, 9, 0, 2]),
        packet(false, 0x0806, 38, &[10, 0, 0, 1]),
    ];
    let foreign =
        [datagram([10, 9, 0, 1], 4790), datagram([10, 9, 0, 3], 4789), packet(false, 0x0800, 30, &[10, 0, 0, 2])];
    for driver in [Driver::Xdp, Driver::Packet] {
        let wire = Wire::new(1, 1500);
        let mut near = plan("near", driver);
        near.take = Capture::Own;
        near.vxlan = Some(VxlanPlan {
            vni: 1,
            inner_source: [2; 6],
            inner_destination: [3; 6],
            local: Ipv4Addr::new(10, 9, 0, 1),
            local_count: 2,
            remote: Ipv4Addr::new(10, 9, 1, 1),
            remote_count: 1,
        });
        let mut a = wire.device(&near, SendPath::Any);
        let mut b = wire.device(&plan("far", Driver::Packet), SendPath::Any);
        check(&mut a, &mut b, &own, &foreign);
    }
}

/// Foreign frames between own ones do not arrive, and the own ones do.
fn check(to: &mut Device, from: &mut Device, own: &[Vec<u8>], foreign: &[Vec<u8>]) {
    let from = frames(from);
    let all = foreign.iter().chain(own).chain(foreign).chain(own);
    all.for_each(|frame| assert!(from.send(frame)));
    let mut seen = Vec::new();
    until(|| {
        from.flush();
        seen.extend(frames(to).receive());
        (seen.len() >= 2 * own.len()).then_some(())
    });
    assert_eq!(seen, [own, own].concat());
}

/// Switches an interface off and on again.
fn switch(ns: &NetNs, interface: &str, on: bool) {
    ns.sysfs().unwrap().write(interface, "flags", if on { "0x1003" } else { "0x1002" }).unwrap();
}

#[test]
fn a_full_queue_refuses_and_recovers() {
    if !is_root() {
        return;
    }
    for (driver, sending) in [(Driver::Xdp, SendPath::Socket), (Driver::Xdp, SendPath::Any)] {
        let wire = Wire::new(1, 1500);
        let mut a = wire.device(&plan("near", driver), sending);
        switch(&wire.near, "near", false);
        // An interface that is down takes nothing.
        let refused = until(|| (!frames(&mut a).send(&frame(1, 60))).then_some(true));
        assert!(refused);
        switch(&wire.near, "near", true);
        until(|| wire.links[0].is_operational("near").unwrap().then_some(()));
        let mut b = wire.device(&plan("far", Driver::Packet), SendPath::Any);
        // What was refused is gone, what was claimed is sent, and there is room again.
        until(|| {
            frames(&mut a).flush();
            frames(&mut a).send(&frame(2, 60)).then_some(())
        });
        let mut last = Vec::new();
        until(|| {
            frames(&mut a).flush();
            last.extend(frames(&mut b).receive().pop());
            last.contains(&frame(2, 60)).then_some(())
        });
    }
}

#[test]
fn a_million_frames_take_no_more_memory_than_the_first() {
    const FRAMES: u32 = 1_000_000;
    if !is_root() {
        return;
    }
    let read = |path: &str, name: &str| -> u64 {
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
    };
    let wire = Wire::new(1, 1500);
    let mut a = wire.device(&plan("near", Driver::Xdp), SendPath::Any);
    let mut b = wire.device(&plan("far", Driver::Xdp), SendPath::Any);
    await_live(&mut a);
    cross(frames(&mut a), frames(&mut b), 3000);
    let resident = || read("/proc/self/status", "VmRSS:");
    let slab = || read("/proc/meminfo", "SUnreclaim:");
    let (before, slab_before) = (resident(), slab());
    let (mut sent, mut seen) = (0, 0);
    until(|| {
        let to = frames(&mut b);
        let from = frames(&mut a);
        for _ in 0..2000 {
            while sent < FRAMES && sent < seen + 200 && from.send(&frame(sent, 60)) {
                sent += 1;
            }
            from.flush();
            seen += to.receive().len() as u32;
        }
        (seen == FRAMES).then_some(())
    });
    // Kilobytes. A page, or a socket buffer, for each frame would be more; other tests' ports in this process are less.
    assert!(resident() < before + 200_000, "{before} kB before, {} kB after", resident());
    assert!(slab() < slab_before + 200_000, "{slab_before} kB before, {} kB after", slab());
}
