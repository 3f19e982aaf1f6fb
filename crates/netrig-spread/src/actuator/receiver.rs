//! Whether what is behind an interface spreads what it receives over CPUs of its own.
//!
//! A host that receives for itself does: a socket's packets are processed where they arrive. A virtual machine whose
//! interface has one queue does not: whatever CPUs of the host receive for it, all goes into that queue.

use rig_sys::ethtool;

use super::Device;

/// The driver of interfaces whose packets go to a process, in practice a virtual machine (drivers/net/tun.c).
const OF_MACHINES: &str = "tun";

/// No, where all that is received goes into the single queue of one virtual machine: the interface is a port of a bridge whose
/// one other port is a tap with one queue. What cannot be found out counts as yes.
pub(crate) fn spreads(device: &Device) -> bool {
    // A bridge has its ports under brif; another master, such as a bond, has none.
    let Ok(mut ports) = device.sysfs.list(&device.name, "master/brif") else { return true };
    ports.retain(|port| *port != device.name);
    let [other] = ports.as_slice() else { return true };
    let queues = device.sysfs.list(other, "queues").unwrap_or_default();
    let towards_it = queues.iter().filter(|queue| queue.starts_with("tx-")).count();
    let driver = device.ns.run(|| ethtool::driver(other));
    towards_it != 1 || !driver.is_ok_and(|driver| driver.is_ok_and(|driver| driver == OF_MACHINES))
}
