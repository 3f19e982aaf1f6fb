//! Ports over the kernel's queues, in namespaces that the tests make.

mod frames;
mod life;
mod stack;

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use rig_packet::device::{self, Device, OpenPort, Options, PortError};
use rig_packet::plan::{Capture, Driver, GatewayPlan, PortPlan, Range, ThreadPlan};
use rig_packet::{AnswerScope, Port, Receive, Transmit};
use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};
use rig_sys::probe::Privileges;
use rig_sys::xdp::SendPath;

/// What must come may take this long.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Whether this test can be made here; otherwise it says why not.
fn is_root() -> bool {
    let root = netns::may_create_namespaces() && !Privileges::read().in_user_namespace;
    if !root {
        skip(Lack::Root, "XDP needs root outside of user namespaces");
    }
    root
}

/// What `look` finds, looked for until it is there; panics when it does not come.
#[track_caller]
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Two namespaces joined by a veth pair.
struct Wire {
    near: NetNs,
    far: NetNs,
    links: [Netlink; 2],
}

impl Wire {
    fn new(queues: u32, mtu: u32) -> Self {
        let [near, far] = [(); 2].map(|()| NetNs::create().unwrap());
        for ns in [&near, &far] {
            // Nothing of the kernel's own is on the wire.
            ns.sysctls(&[("net.ipv6.conf.all.disable_ipv6", "1"), ("net.ipv6.conf.default.disable_ipv6", "1")])
                .unwrap();
        }
        let mut links = [&near, &far].map(|ns| Netlink::open(ns).unwrap());
        let pair = VethPair { name: "near", peer: "far", peer_ns: &far, queues, mtu };
        links[0].add_veth(&pair).unwrap();
        links[0].set_up("near").unwrap();
        links[1].set_up("far").unwrap();
        for (link, name) in links.iter().zip(["near", "far"]) {
            until(|| link.is_operational(name).unwrap().then_some(()));
        }
        Self { near, far, links }
    }

    fn open(&self, plan: &PortPlan, options: &Options) -> Result<OpenPort, PortError> {
        let ns = if plan.interface == "near" { &self.near } else { &self.far };
        ns.run(|| device::open(plan, options)).unwrap()
    }

    /// The one device of a port.
    fn device(&self, plan: &PortPlan, sending: SendPath) -> Device {
        let opened = self.open(plan, &Options { busy_poll: None, sending }).unwrap();
        let [device] = <[Device; 1]>::try_from(opened.devices).unwrap();
        device
    }
}

fn range(first: &str, count: u32) -> Range {
    Range { first: first.parse().unwrap(), count }
}

fn plan(interface: &str, driver: Driver) -> PortPlan {
    let (ours, theirs) = if interface == "near" { ("10.0.0.1", "10.0.1.1") } else { ("10.0.1.1", "10.0.0.1") };
    PortPlan {
        interface: interface.to_owned(),
        driver,
        address: ours.parse::<IpAddr>().unwrap(),
        gateway: GatewayPlan::Mac([2; 6]),
        vlan: None,
        vxlan: None,
        local: vec![range(ours, 4)],
        remote: vec![range(theirs, 4)],
        threads: vec![ThreadPlan { cpu: None, queue: 0, response: None }],
        mtu: 1500,
        live: true,
        burst: 64,
        take: Capture::All,
        answer: AnswerScope::All,
        hop_limit: 64,
        tos: 0,
    }
}

/// Whether AF_XDP takes frames of several buffers.
fn takes_several_pages() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(6))
}

/// Frames in and out of any device.
trait Frames {
    /// False when there is no room.
    fn send(&mut self, frame: &[u8]) -> bool;
    fn flush(&mut self);
    fn receive(&mut self) -> Vec<Vec<u8>>;
}

impl<P: Port> Frames for P {
    fn send(&mut self, frame: &[u8]) -> bool {
        self.halves().1.claim(frame.len()).map(|bytes| bytes.copy_from_slice(frame)).is_some()
    }

    fn flush(&mut self) {
        self.halves().1.flush();
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        let (receive, _) = self.halves();
        let count = receive.poll();
        (0..count).map(|n| receive.frame(n).to_vec()).collect()
    }
}

fn frames(device: &mut Device) -> &mut dyn Frames {
    match device {
        Device::Xdp(port) => port,
        Device::Live(port) => port,
        Device::Packet(port) => port,
    }
}

/// Waits until a device sends without socket buffers.
fn await_live(device: &mut Device) {
    let meter = device.meter();
    until(|| {
        // An idle thread looks from time to time.
        (0..2000).for_each(|_| frames(device).flush());
        meter.is_live().then_some(())
    });
}
