//! All that a network namespace has set of one interface: the sysctls of its protocols, and what sysfs shows of its device.

use std::collections::BTreeMap;
use std::fs;

use super::{NetNs, Sysfs};
use crate::error::{ErrorContext, Result};

/// Directories below /proc/sys/net in which each interface has one of its name.
const OF_PROTOCOLS: [&str; 4] = ["ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh"];

/// Files below /sys/class/net/INTERFACE.
const OF_DEVICE: [&str; 7] =
    ["gro_flush_timeout", "ifalias", "napi_defer_hard_irqs", "netdev_group", "proto_down", "threaded", "tx_queue_len"];

/// Files of each of its queues.
const OF_QUEUE: [&str; 4] = ["rps_cpus", "rps_flow_cnt", "xps_cpus", "xps_rxqs"];

impl NetNs {
    /// The sysctls of an interface, as `ipv4/conf/rp_filter`. An interface begins with the namespace's own when it comes into one. What
    /// cannot be read, as an address secret that was never set, is left out.
    pub fn interface_sysctls(&self, interface: &str) -> Result<BTreeMap<String, String>> {
        self.run(|| {
            let mut settings = BTreeMap::new();
            for directory in OF_PROTOCOLS {
                // A protocol that the kernel does not have, or that the interface does not speak, has none.
                let Ok(entries) = fs::read_dir(format!("/proc/sys/net/{directory}/{interface}")) else { continue };
                for entry in entries.flatten() {
                    if let Ok(value) = fs::read_to_string(entry.path()) {
                        let name = format!("{directory}/{}", entry.file_name().to_string_lossy());
                        settings.insert(name, value.trim_end().to_owned());
                    }
                }
            }
            settings
        })
    }

    /// Sets one of them.
    pub fn set_interface_sysctl(&self, interface: &str, name: &str, value: &str) -> Result<()> {
        let (directory, file) = name.rsplit_once('/').unwrap_or(("", name));
        let path = format!("/proc/sys/net/{directory}/{interface}/{file}");
        self.run(|| fs::write(path, value).during(|| format!("set {name} of {interface} to {value}")))?
    }
}

impl Sysfs {
    /// What is set of an interface's device and queues, by the names of the files that [`Self::write`] takes. It goes with the interface
    /// from namespace to namespace.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn device_settings(&self, interface: &str) -> Result<BTreeMap<String, String>> {
        let mut names: Vec<String> = OF_DEVICE.map(ToOwned::to_owned).to_vec();
        for queue in self.list(interface, "queues")? {
            names.extend(OF_QUEUE.map(|file| format!("queues/{queue}/{file}")));
        }
        let value = |name: String| self.read(interface, &name).ok().map(|value| (name, value));
        Ok(names.into_iter().filter_map(value).collect())
    }
}
