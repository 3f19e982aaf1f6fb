//! From the plan of one end to its threads at work.

use rig_sys::ethtool::{self, Flow, ReceiveHash};
use rig_wire::Toeplitz;
use rig_wire::ethernet::Mac;

use super::super::config::Service;
use super::super::device::{self, Device, Losses, Meter, PortDriver, PortError};
use super::super::divide::{DivideError, Division, Hardware, Spread, divide};
use super::super::plan::{Packets, PortPlan};
use super::super::steering::Rss;
use super::{AnyPort, Fleet, FleetError, PortVisitor, ThreadSpec};

/// An end at work.
#[derive(Debug)]
pub struct LaunchedEnd {
    pub fleet: Fleet,
    /// In the order of the plan.
    pub ports: Vec<LaunchedPort>,
    /// Memory that the threads reserve, bytes. It is taken as connections come to use it.
    pub bytes: u64,
}

#[derive(Debug, Clone)]
pub struct LaunchedPort {
    pub interface: String,
    /// By which way its frames leave and enter the kernel.
    pub driver: PortDriver,
    /// By which way its frames go, and what the user must know of it: sentences.
    pub notes: Vec<String>,
    meters: Vec<Meter>,
}

impl LaunchedPort {
    /// What the kernel did not hand over, all queues together.
    pub fn losses(&self) -> rig_sys::Result<Losses> {
        self.meters.iter().try_fold(Losses::default(), |sum, meter| {
            let Losses { missed, unfit, refused } = meter.losses()?;
            Ok(Losses { missed: sum.missed + missed, unfit: sum.unfit + unfit, refused: sum.refused + refused })
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Divide(#[from] DivideError),
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

/// Checks a plan as far as that goes without the interfaces that it names.
pub fn check(plan: &Packets) -> Result<Division, DivideError> {
    let hardware = Hardware { mac: Mac([2, 0, 0, 0, 0, 0]), spread: Spread::Mirrored };
    divide(plan, &vec![hardware; plan.ports.len()])
}

/// Opens the ports of a plan in the calling thread's network namespace, and starts a thread on each of their queues.
pub fn launch(plan: &Packets, options: &device::Options) -> Result<LaunchedEnd, LaunchError> {
    check(plan)?;
    let mut ports = Vec::new();
    let mut hardware = Vec::new();
    let mut devices = Vec::new();
    for port in &plan.ports {
        let interface = port.interface.clone();
        let opened = device::open(port, options)?;
        let meters = opened.devices.iter().map(Device::meter).collect();
        hardware.push(Hardware { mac: opened.mac, spread: spread(port, &plan.service) });
        devices.push(opened.devices.into_iter());
        ports.push(LaunchedPort { interface, driver: opened.driver, notes: opened.notes, meters });
    }
    let division = divide(plan, &hardware)?;
    let threads = division.threads.into_iter().filter_map(|thread| {
        // There is a device for each thread of the plan.
        let port = devices[thread.port].next()?;
        let interface = plan.ports[thread.port].interface.clone();
        Some(ThreadSpec { config: thread.config, port, cpu: thread.thread_plan.cpu, interface })
    });
    let fleet = Fleet::start(threads.collect())?;
    for (port, note) in division.notes {
        ports[port].notes.push(note);
    }
    Ok(LaunchedEnd { fleet, ports, bytes: division.bytes })
}

/// Frames keep their queue on the way to a veth interface's peer; network cards tell how they hash.
fn spread(port: &PortPlan, service: &Service) -> Spread {
    let interface = &port.interface;
    if ethtool::driver(interface).is_ok_and(|driver| driver == "veth") {
        return Spread::Mirrored;
    }
    let flow = match (service.is_tcp(), port.address.is_ipv4()) {
        (true, true) => Flow::TcpV4,
        (true, false) => Flow::TcpV6,
        (false, true) => Flow::UdpV4,
        (false, false) => Flow::UdpV6,
    };
    let hash = ethtool::receive_hash(interface, flow).ok().flatten();
    hash.and_then(|hash| rss(&hash)).map_or(Spread::Unknown, Spread::Rss)
}

/// Of a key only as much is used as there are bits of addresses and ports, and 32 more.
fn rss(hash: &ReceiveHash) -> Option<Rss> {
    let key = hash.key.first_chunk::<40>()?;
    Some(Rss { hash: Toeplitz::new(key), table: hash.table.as_slice().into() })
}

impl AnyPort for Device {
    fn hand_to<T: PortVisitor>(self, to: T) -> T::Output {
        match self {
            Self::Xdp(port) => to.take(port),
            Self::Live(port) => to.take(port),
            Self::Packet(port) => to.take(port),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use rig_wire::{FlowKey, MICROSOFT_KEY, protocol};

    use super::*;

    /// The first example of "Verifying the RSS Hash Calculation": 66.9.149.187:2794 to 161.142.100.80:1766 is 0x51ccc178.
    #[test]
    fn what_a_card_tells_of_its_hash_gives_its_queues() {
        let ends = |ip: [u8; 4], port| SocketAddr::from((Ipv4Addr::from(ip), port));
        let flow = FlowKey {
            protocol: protocol::TCP,
            source: ends([66, 9, 149, 187], 2794),
            destination: ends([161, 142, 100, 80], 1766),
        };
        // Intel's keys have 52 bytes, of which the last are for longer inputs.
        let key: Vec<u8> = MICROSOFT_KEY.into_iter().chain([1; 12]).collect();
        let told = rss(&ReceiveHash { key, table: (0..128).collect() }).unwrap();
        assert_eq!(told.queue(&flow), Some(0x51cc_c178 % 128));
        assert!(rss(&ReceiveHash { key: vec![1; 39], table: vec![0] }).is_none());
    }
}
