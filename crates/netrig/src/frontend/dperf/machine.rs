//! What of a file only the machine can tell: its CPUs and interfaces.

use std::fs;
use std::path::Path;

use rig_sys::cpu::CpuSet;

use super::resolve::Job;
use super::settings::Device;

/// What a machine lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    #[error("cpu: CPUs {missing} do not exist or may not be used: choose from {allowed}")]
    Cpus { missing: String, allowed: String },
    #[error(
        "port {address}: no PCI device of this address has a network interface: name an interface; when another driver, \
         such as DPDK's, has the device, give it back to the kernel first (driverctl or dpdk-devbind)"
    )]
    NoPci { address: String },
    #[error("port {address}: the PCI device has several interfaces ({names}): name one of them")]
    Ambiguous { address: String, names: String },
}

/// Puts the names of interfaces where a job has PCI addresses. What is missing stays as it is.
pub fn place(job: &mut Job, root: &Path) -> Vec<Lack> {
    let mut lacks = Vec::new();
    for (port, device) in job.packets.ports.iter_mut().zip(&job.devices) {
        let Device::Pci(address) = device else { continue };
        let directory = root.join(format!("sys/bus/pci/devices/{address}/net"));
        let names = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        match &names[..] {
            [name] => port.interface.clone_from(name),
            [] => lacks.push(Lack::NoPci { address: address.clone() }),
            _ => lacks.push(Lack::Ambiguous { address: address.clone(), names: names.join(", ") }),
        }
    }
    lacks
}

/// The CPUs of a job that cannot be used.
pub fn cpus(job: &Job) -> rig_sys::Result<Option<Lack>> {
    let wanted = job.packets.ports.iter().flat_map(|port| &port.workers).filter_map(|place| place.cpu);
    let allowed = CpuSet::allowed()?;
    let missing = CpuSet::new(wanted).without(&allowed);
    let lack = Lack::Cpus { missing: missing.to_string(), allowed: allowed.to_string() };
    Ok((!missing.is_empty()).then_some(lack))
}
