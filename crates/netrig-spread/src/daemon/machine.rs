//! The CPUs of this machine, as the policy knows them.

use std::fs;

use rig_spread::{Cpu, Machine};
use rig_sys::cpu::standings;

use crate::actuator::Device;

/// As they are now, for an interface.
///
/// # Errors
/// Where the kernel does not tell which there are.
pub(super) fn machine(device: &Device) -> rig_sys::Result<Machine> {
    let cpu = |standing: rig_sys::cpu::CpuTopology| Cpu {
        number: standing.cpu,
        numa_node: standing.node,
        core: standing.core,
        last_level_cache: standing.cache,
        isolated: standing.isolated,
        online: standing.online,
    };
    // -1 where the device is of no node.
    let node = device.sysfs.read(&device.name, "device/numa_node").ok().and_then(|text| text.parse().ok());
    Ok(Machine { cpus: standings()?.into_iter().map(cpu).collect(), interface_node: node })
}

/// The CPUs that are online: what tells whether anything has changed, and costs little to ask.
pub(super) fn online() -> String {
    fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default()
}
