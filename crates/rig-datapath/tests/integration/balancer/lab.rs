//! A balancer in a network namespace with one interface, and neighbours behind it that answer.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{Attachment, Balancer, Clock, Config, Drop, GenericXdp, Mode, Pass, Sizes};
use rig_datapath::test_run::{TestRunResult, Verdict};
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};
use rig_wire::ethernet::Mac;

use super::frames::NEAR_MAC;
use crate::pool::Pooled;

/// What must come may take this long.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The interface's MTU.
pub const MTU: u32 = 1500;
/// Hosts behind the interface that have neighbour entries: 10.0.0.N and fd00::N for these N.
pub const NEIGHBORS: [u8; 5] = [10, 11, 12, 13, 50];
/// One more host, which has no neighbour entry yet.
pub const STRANGER: u8 = 14;

pub struct Lab {
    pub attachment: Attachment,
    /// After its attachment, which is to go first.
    pub balancer: Pooled<Balancer>,
    pub interface: u32,
    /// The interface's MAC address, and that of all hosts behind it.
    pub near: Mac,
    pub far: Mac,
    pub tick: u32,
    /// Holds the far end.
    pub far_ns: NetNs,
}

/// The first CPU that this thread may use, which it stays on from now on: ports and cursors are per CPU.
pub fn stay_on_one_cpu() -> u32 {
    let cpu = CpuSet::allowed().unwrap().as_slice()[0];
    CpuSet::new([cpu]).apply().unwrap();
    cpu
}

fn mac(text: &str) -> Mac {
    let mut mac = Mac::default();
    text.split(':').zip(&mut mac.0).for_each(|(hex, byte)| *byte = u8::from_str_radix(hex, 16).unwrap());
    mac
}

pub fn until(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !look() {
        assert!(Instant::now() < deadline, "{what}: it does not come");
        thread::sleep(Duration::from_millis(5));
    }
}

impl Lab {
    /// `None`, said aloud, where eBPF programs cannot be loaded.
    pub fn new(sizes: Sizes, config: &Config) -> Option<Self> {
        Self::with(config, || Pooled::load(sizes))
    }

    pub fn with(config: &Config, load: impl FnOnce() -> Result<Pooled<Balancer>, rig_datapath::Error>) -> Option<Self> {
        if !netns::may_create_namespaces() {
            skip(Lack::Root, "network namespaces and eBPF programs need it");
            return None;
        }
        let mut balancer = match load() {
            Ok(balancer) => balancer,
            Err(error @ rig_datapath::Error::NotPermitted(_)) => {
                skip(Lack::Root, error);
                return None;
            }
            Err(error @ rig_datapath::Error::Helper { .. }) => {
                skip(Lack::Kernel, error);
                return None;
            }
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        };
        stay_on_one_cpu();
        let (here, far) = (NetNs::create().unwrap(), NetNs::create().unwrap());
        here.enter().unwrap();
        here.sysctls(&[("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")]).unwrap();
        let mut netlink = Netlink::open(&here).unwrap();
        netlink.add_veth(&VethPair { name: "lb0", peer: "far", peer_ns: &far, queues: 1, mtu: MTU }).unwrap();
        let mac_is = |name: &str, mac: Mac| {
            let set = Command::new("ip").args(["link", "set", name, "address", &mac.to_string()]).status().unwrap();
            assert!(set.success());
        };
        // The destination of the tests' frames.
        mac_is("lb0", NEAR_MAC);
        let mut behind = Netlink::open(&far).unwrap();
        for (netlink, name, hosts) in
            [(&mut netlink, "lb0", &[1][..]), (&mut behind, "far", &[&NEIGHBORS[..], &[STRANGER]].concat())]
        {
            for host in hosts {
                netlink.add_address(name, IpAddr::from([10, 0, 0, *host]), 24).unwrap();
                netlink.add_address(name, format!("fd00::{host}").parse().unwrap(), 64).unwrap();
            }
            netlink.set_up(name).unwrap();
        }
        until("the link", || netlink.is_operational("lb0").unwrap() && behind.is_operational("far").unwrap());
        let interface = netlink.index("lb0").unwrap();
        let near = mac(&here.sysfs().unwrap().read("lb0", "address").unwrap());
        let far_mac = mac(&far.sysfs().unwrap().read("far", "address").unwrap());
        balancer.apply(config).unwrap();
        let attachment = balancer.attach(interface, GenericXdp::Refused).unwrap();
        assert_eq!(attachment.mode(), Mode::Native);
        // Of no frame the kernel says so before a program has seen it.
        if let Err(error @ rig_datapath::Error::TestRunInterface { .. }) = balancer.test_run(&[0], Some(interface)) {
            skip(Lack::Kernel, error);
            return None;
        }
        let tick = 1_000_000;
        balancer.set_clock(Clock::Fixed(tick)).unwrap();
        let lab = Self { balancer, attachment, interface, near, far: far_mac, tick, far_ns: far };
        lab.meet(&lab.far_ns);
        Some(lab)
    }

    /// Has the kernel ask for the neighbours, by sending each a datagram until it comes.
    fn meet(&self, far: &NetNs) {
        let listener = far.run(|| UdpSocket::bind("[::]:9")).unwrap().unwrap();
        listener.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let hosts = NEIGHBORS
            .iter()
            .flat_map(|host| [IpAddr::from([10, 0, 0, *host]), format!("fd00::{host}").parse::<IpAddr>().unwrap()]);
        for host in hosts {
            let here: IpAddr = if host.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
            let socket = UdpSocket::bind((here, 0)).unwrap();
            let name = host.to_string();
            until("a neighbour", || {
                let _ = socket.send_to(name.as_bytes(), (host, 9));
                let mut buffer = [0; 64];
                matches!(listener.recv(&mut buffer), Ok(length) if buffer[..length] == *name.as_bytes())
            });
        }
    }

    pub fn send(&self, frame: &[u8]) -> TestRunResult {
        self.balancer.test_run(frame, Some(self.interface)).unwrap()
    }

    /// What comes out by the same interface.
    #[track_caller]
    pub fn sent(&self, frame: &[u8]) -> Vec<u8> {
        let before = self.balancer.drops().unwrap();
        let outcome = self.send(frame);
        assert_eq!(outcome.verdict, Verdict::Transmit, "dropped for {:?}", self.dropped_since(&before));
        outcome.frame
    }

    fn dropped_since(&self, before: &[(Drop, u64)]) -> Vec<Drop> {
        let now = self.balancer.drops().unwrap();
        now.iter().zip(before).filter(|(now, before)| now.1 != before.1).map(|(now, _)| now.0).collect()
    }

    /// The one reason for which it is dropped; the frame is as it was.
    #[track_caller]
    pub fn dropped(&self, frame: &[u8]) -> Drop {
        let before = self.balancer.drops().unwrap();
        let outcome = self.send(frame);
        assert_eq!((outcome.verdict, &outcome.frame[..]), (Verdict::Drop, frame));
        let reasons = self.dropped_since(&before);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        reasons[0]
    }

    /// It is left to the kernel, for this reason. The lab's own ARP and neighbour discovery pass meanwhile for theirs.
    #[track_caller]
    pub fn passes(&self, frame: &[u8], reason: Pass) {
        let count = || self.balancer.passes().unwrap().into_iter().find(|(of, _)| *of == reason).unwrap().1;
        let before = count();
        let outcome = self.send(frame);
        assert_eq!((outcome.verdict, &outcome.frame[..]), (Verdict::Pass, frame));
        assert!(count() > before, "not for {reason:?}");
    }

    /// CPUs that there can be.
    pub fn cpus(&self) -> u32 {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        let last = possible.trim().rsplit([',', '-']).next().unwrap();
        last.parse::<u32>().unwrap() + 1
    }

    /// Drops that there have been.
    pub fn drops(&self) -> Vec<(Drop, u64)> {
        let mut drops = self.balancer.drops().unwrap();
        drops.retain(|(_, count)| *count > 0);
        drops
    }

    pub fn later(&mut self, ticks: u32) {
        self.tick += ticks;
        self.balancer.set_clock(Clock::Fixed(self.tick)).unwrap();
    }

    /// Connections as `client > service > local > backend STATE`.
    pub fn connections(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let line = |c: rig_datapath::balancer::Connection| {
            let local = c.local.map_or("-".to_owned(), |local| local.to_string());
            lines.push(format!("{} > {} > {local} > {} {}", c.client, c.service, c.backend, c.state.name()));
        };
        self.balancer.connections(line).unwrap();
        lines.sort();
        lines
    }
}
