//! From the plan of one end to its workers at work.

use rig_sys::ethtool;
use rig_wire::ethernet::Mac;

use super::super::device::{self, Device, Losses, Meter, PortError};
use super::super::divide::{DivideError, Division, Hardware, Spread, divide};
use super::super::plan::Packets;
use super::{Berth, Fleet, FleetError, Take, Worker};

/// An end at work.
#[derive(Debug)]
pub struct Launched {
    pub fleet: Fleet,
    /// In the order of the plan.
    pub ports: Vec<LaunchedPort>,
    /// Memory that the workers reserve, bytes. It is taken as connections come to use it.
    pub bytes: u64,
}

#[derive(Debug, Clone)]
pub struct LaunchedPort {
    pub interface: String,
    /// By which way its frames leave and enter the kernel.
    pub way: &'static str,
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
    let hardware = Hardware { mac: Mac([2, 0, 0, 0, 0, 0]), verify: true, spread: Spread::Mirrored };
    divide(plan, &vec![hardware; plan.ports.len()])
}

/// Opens the ports of a plan in the calling thread's network namespace, and starts a worker on each of their queues.
pub fn launch(plan: &Packets, options: &device::Options) -> Result<Launched, LaunchError> {
    check(plan)?;
    let mut ports = Vec::new();
    let mut hardware = Vec::new();
    let mut devices = Vec::new();
    for port in &plan.ports {
        let interface = port.interface.clone();
        let opened = device::open(port, options)?;
        let way = opened.devices.first().map_or("", way);
        let meters = opened.devices.iter().map(Device::meter).collect();
        hardware.push(facts(&interface, opened.mac));
        devices.push(opened.devices.into_iter());
        ports.push(LaunchedPort { interface, way, notes: opened.notes, meters });
    }
    let division = divide(plan, &hardware)?;
    let workers = division.workers.into_iter().filter_map(|worker| {
        // There is a device for each place of the plan.
        let port = devices[worker.port].next()?;
        let interface = plan.ports[worker.port].interface.clone();
        Some(Worker { config: worker.config, port, cpu: worker.place.cpu, interface })
    });
    let fleet = Fleet::start(workers.collect())?;
    for note in division.notes {
        let about = |port: &&mut LaunchedPort| note.starts_with(&format!("{}: ", port.interface));
        if let Some(port) = ports.iter_mut().find(about) {
            port.notes.push(note);
        }
    }
    Ok(Launched { fleet, ports, bytes: division.bytes })
}

/// What a veth interface does is known: frames keep their queue on the way to the peer.
fn facts(interface: &str, mac: Mac) -> Hardware {
    let veth = ethtool::driver(interface).is_ok_and(|driver| driver == "veth");
    Hardware { mac, verify: true, spread: if veth { Spread::Mirrored } else { Spread::Unknown } }
}

fn way(device: &Device) -> &'static str {
    match device {
        Device::Xdp(_) => "AF_XDP",
        Device::Live(_) => "AF_XDP, live frames",
        Device::Packet(_) => "AF_PACKET",
    }
}

impl Berth for Device {
    fn hand_to<T: Take>(self, to: T) -> T::Output {
        match self {
            Self::Xdp(port) => to.take(port),
            Self::Live(port) => to.take(port),
            Self::Packet(port) => to.take(port),
        }
    }
}
