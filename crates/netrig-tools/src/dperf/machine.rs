//! What of a file only the machine can tell: its CPUs and interfaces.

use std::fs;
use std::path::Path;

use rig_sys::cpu::CpuSet;

use super::resolve::LoadPlan;
use super::settings::Device;

/// What a machine lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingResource {
    #[error("cpu: CPUs {missing} do not exist or may not be used: choose from {allowed}")]
    Cpus { missing: String, allowed: String },
    #[error("port {name}: there is no such interface here: `ip link` lists them")]
    NoInterface { name: String },
    #[error(
        "port {address}: no PCI device of this address has a network interface: name an interface; when another driver, \
         such as DPDK's, has the device, give it back to the kernel first (driverctl or dpdk-devbind)"
    )]
    NoPci { address: String },
    #[error("port {address}: the PCI device has several interfaces ({names}): name one of them")]
    Ambiguous { address: String, names: String },
}

/// Puts the names of interfaces where a plan has PCI addresses. What is missing stays as it is. `root` is that of the file
/// tree with sysfs and procfs.
pub fn place(plan: &mut LoadPlan, root: &Path) -> Vec<MissingResource> {
    let mut lacks = Vec::new();
    // sysfs shows the namespace in which it was mounted, procfs that of the thread.
    let here = fs::read_to_string(root.join("proc/thread-self/net/dev")).unwrap_or_default();
    let is_here = |name: &str| here.lines().any(|line| line.split(':').next().map(str::trim) == Some(name));
    for (port, device) in plan.packets.ports.iter_mut().zip(&plan.devices) {
        let address = match device {
            Device::Pci(address) => address,
            Device::Interface(name) => {
                lacks.extend((!is_here(name)).then(|| MissingResource::NoInterface { name: name.clone() }));
                continue;
            }
        };
        let directory = root.join(format!("sys/bus/pci/devices/{address}/net"));
        let names = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        match &names[..] {
            [name] => port.interface.clone_from(name),
            [] => lacks.push(MissingResource::NoPci { address: address.clone() }),
            _ => lacks.push(MissingResource::Ambiguous { address: address.clone(), names: names.join(", ") }),
        }
    }
    lacks
}

/// The CPUs of a plan that cannot be used.
pub fn cpus(plan: &LoadPlan) -> rig_sys::Result<Option<MissingResource>> {
    let wanted = plan.packets.ports.iter().flat_map(|port| &port.threads).filter_map(|place| place.cpu);
    let allowed = CpuSet::allowed()?;
    let missing = CpuSet::new(wanted).without(&allowed);
    let lack = MissingResource::Cpus { missing: missing.to_string(), allowed: allowed.to_string() };
    Ok((!missing.is_empty()).then_some(lack))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dperf::{language, resolve};

    fn plan(device: &str) -> LoadPlan {
        let text = format!("cpu 0\nport {device} 10.0.0.2 10.0.0.1\nclient 10.1.0.1 1\nserver 10.2.0.1 1\ncps 1\n");
        resolve::resolve(&language::read(&text).unwrap().0, &mut Vec::new()).unwrap()
    }

    #[test]
    fn a_pci_address_is_looked_up() {
        let root = tempfile::tempdir().unwrap();
        let pci = "0000:04:00.0";
        let look = |device: &str| {
            let mut plan = plan(device);
            let lacks = place(&mut plan, root.path());
            (plan.packets.ports[0].interface.clone(), lacks)
        };
        assert_eq!(look(pci), (pci.into(), vec![MissingResource::NoPci { address: pci.into() }]));
        let net = root.path().join("sys/bus/pci/devices/0000:04:00.0/net");
        fs::create_dir_all(net.join("enp4s0")).unwrap();
        assert_eq!(look("0000:04:00.0"), ("enp4s0".into(), vec![]));
        fs::create_dir_all(net.join("enp4s1")).unwrap();
        let names = "enp4s0, enp4s1".into();
        assert_eq!(look(pci).1, [MissingResource::Ambiguous { address: pci.into(), names }]);
    }

    #[test]
    fn an_interface_that_is_not_here_is_missed() {
        let root = tempfile::tempdir().unwrap();
        let net = root.path().join("proc/thread-self/net");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("dev"), "Inter-|   Receive\n face |bytes\n    lo:  1 2\n  eth1: 3 4\n").unwrap();
        assert_eq!(place(&mut plan("eth1"), root.path()), []);
        assert_eq!(place(&mut plan("eth"), root.path()), [MissingResource::NoInterface { name: "eth".into() }]);
    }
}
