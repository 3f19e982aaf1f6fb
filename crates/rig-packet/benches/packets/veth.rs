//! Client and server in two namespaces that a veth pair joins.

use std::error::Error;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use rig_packet::AnswerScope;
use rig_packet::device::{self, Device, Meter, Options};
use rig_packet::plan::{BURST, Capture, Driver, GatewayPlan, PortPlan, Range, ThreadPlan};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::xdp::SendPath;

use super::{BenchResult, Case, cost, run};

/// By which way frames leave and enter the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum VethDriver {
    /// AF_XDP, sending without socket buffers.
    Live,
    /// AF_XDP both ways.
    Xdp,
    /// AF_XDP both ways, with threads that drive the interface's receive processing.
    Busy,
    Packet,
}

pub const DRIVERS: [(&str, VethDriver); 4] =
    [("live", VethDriver::Live), ("xdp", VethDriver::Xdp), ("busy", VethDriver::Busy), ("packet", VethDriver::Packet)];

/// The pair, as long as its namespaces are there.
struct Wire {
    _namespaces: [NetNs; 2],
    devices: [Device; 2],
}

fn plan(interface: &str, ours: Ipv4Addr, theirs: Ipv4Addr, way: VethDriver) -> PortPlan {
    let range = |first: Ipv4Addr, count| vec![Range { first: first.into(), count }];
    PortPlan {
        interface: interface.to_owned(),
        driver: if way == VethDriver::Packet { Driver::Packet } else { Driver::Xdp },
        address: ours.into(),
        gateway: GatewayPlan::Mac([0; 6]),
        vlan: None,
        vxlan: None,
        local: range(ours, 16),
        remote: range(theirs, 16),
        threads: vec![ThreadPlan { cpu: None, queue: 0, response: None }],
        mtu: 1500,
        live: true,
        burst: BURST,
        take: Capture::Own,
        answer: AnswerScope::All,
        hop_limit: 64,
        tos: 0,
    }
}

impl Wire {
    fn new(way: VethDriver) -> Result<Self, Box<dyn Error>> {
        let [a, b] = [NetNs::create()?, NetNs::create()?];
        let mut links = [Netlink::open(&a)?, Netlink::open(&b)?];
        links[0].add_veth(&VethPair { name: "near", peer: "far", peer_ns: &b, queues: 1, mtu: 1500 })?;
        links[0].set_up("near")?;
        links[1].set_up("far")?;
        for (link, name) in links.iter().zip(["near", "far"]) {
            while !link.is_operational(name)? {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let (ours, theirs) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 254));
        let sending = if way == VethDriver::Live { SendPath::Any } else { SendPath::Socket };
        let options = Options { busy_poll: (way == VethDriver::Busy).then_some(64), sending };
        let open = |ns: &NetNs, name, ours, theirs| -> Result<Device, Box<dyn Error>> {
            let mut opened = ns.run(|| device::open(&plan(name, ours, theirs, way), &options))??;
            opened.devices.pop().ok_or_else(|| "a port without a queue".into())
        };
        let devices = [open(&a, "near", ours, theirs)?, open(&b, "far", theirs, ours)?];
        if way == VethDriver::Busy {
            for (ns, name) in [(&a, "near"), (&b, "far")] {
                let sysfs = ns.sysfs()?;
                sysfs.write(name, "napi_defer_hard_irqs", "1000")?;
                sysfs.write(name, "gro_flush_timeout", "200000")?;
            }
        }
        Ok(Self { _namespaces: [a, b], devices })
    }
}

/// The cost and the outcome of a case.
pub fn measure(way: VethDriver, case: &Case, cpus: &[u32], window: u64) -> Result<(f64, BenchResult), Box<dyn Error>> {
    macro_rules! each {
        ($devices:expr, $work:expr) => {
            match $devices {
                [Device::Xdp(a), Device::Xdp(b)] => $work(a, b),
                [Device::Live(a), Device::Live(b)] => $work(a, b),
                [Device::Packet(a), Device::Packet(b)] => $work(a, b),
                _ => return Err("the two ends went different ways".into()),
            }
        };
    }
    let cost = each!(Wire::new(way)?.devices, |a, b| cost(case, a, b));
    let wire = Wire::new(way)?;
    let meters: Vec<Meter> = wire.devices.iter().map(Device::meter).collect();
    let outcome = each!(wire.devices, |a, b| run(case, a, b, cpus, window));
    for (side, meter) in ["client", "server"].iter().zip(meters) {
        let losses = meter.losses()?;
        if losses != Default::default() || meter.is_live() != (way == VethDriver::Live) {
            println!("    {side}: {losses:?}, sends without socket buffers: {}", meter.is_live());
        }
    }
    Ok((cost, outcome))
}
