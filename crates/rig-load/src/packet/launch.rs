//! From the plan of one end to its fleet: ports opened, the load divided, workers started.

use std::thread;
use std::time::Duration;

use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::xdp::OpenError;

use super::device::{self, Device, Opened, Options, PortError};
use super::divide::{self, DivideError, Hardware, Spread, divide};
use super::fleet::{self, Fleet, FleetError};
use super::plan::{Packets, PortPlan};

/// How long a queue that is in use is waited for.
const RELEASE: Duration = Duration::from_secs(2);

/// One end at work.
#[derive(Debug)]
pub struct Launched {
    pub fleet: Fleet,
    /// In the plan's order.
    pub ports: Vec<OpenPort>,
    /// What the user must know of ports and division: sentences.
    pub notes: Vec<String>,
    /// Memory that the workers reserve.
    pub bytes: u64,
}

/// A port that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPort {
    pub interface: String,
    /// By which way its frames leave and enter the kernel.
    pub driver: &'static str,
}

/// Why an end cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Divide(#[from] DivideError),
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

/// Opens the ports of `plan` in the calling thread's network namespace and starts all workers there. Clients open
/// nothing before they are told when: see [`Fleet::open_from`].
///
/// # Errors
/// When a port cannot be opened, the load not be divided, or a worker not be started; nothing is left open.
pub fn launch(plan: &Packets, options: &Options) -> Result<Launched, LaunchError> {
    let (mut devices, mut hardware, mut notes, mut ports) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for port in &plan.ports {
        let opened = open(port, options)?;
        // What the two ends of a veth pair do with their queues mirrors each other, and both make whole checksums.
        hardware.push(Hardware { mac: opened.mac, verify: true, spread: Spread::Mirrored });
        notes.extend(opened.notes);
        let driver = opened.devices.first().map_or("", name);
        ports.push(OpenPort { interface: port.interface.clone(), driver });
        devices.extend(opened.devices);
    }
    let division = divide(plan, &hardware)?;
    notes.extend(division.notes);
    let workers = division.workers.into_iter().zip(devices).map(|(worker, device)| {
        let config = match worker.config {
            divide::AnyConfig::V4(config) => fleet::AnyConfig::V4(config),
            divide::AnyConfig::V6(config) => fleet::AnyConfig::V6(config),
        };
        let interface = plan.ports[worker.port].interface.clone();
        let Device::Xdp(port) = device;
        fleet::Worker { config, port, cpu: worker.place.cpu, interface }
    });
    let fleet = Fleet::start(workers.collect())?;
    Ok(Launched { fleet, ports, notes, bytes: division.bytes })
}

/// A queue whose socket went with its process becomes free a moment later: the kernel gives its memory back from a work
/// queue (net/xdp/xsk_buff_pool.c, xp_put_pool).
fn open(port: &PortPlan, options: &Options) -> Result<Opened, PortError> {
    let deadline = monotonic_after(RELEASE);
    loop {
        match device::open(port, options) {
            Err(PortError::Xdp(OpenError::QueueInUse { .. })) if monotonic_ns() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

fn name(device: &Device) -> &'static str {
    match device {
        Device::Xdp(_) => "AF_XDP",
    }
}
