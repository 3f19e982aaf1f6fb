//! The machine and its settings, as they are stored with a run.

use std::fs;

use rig_sys::probe::{Machine, load_average};

use crate::record::Environment;

/// Settings that decide results and differ between machines.
const SYSCTLS: [&str; 12] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.default_qdisc",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_limit_output_bytes",
    "net.bridge.bridge-nf-call-iptables",
    "kernel.io_uring_disabled",
    "kernel.sched_autogroup_enabled",
];

/// What this machine is, as far as it can be read; what cannot be read stays empty.
pub fn environment(rootless: bool) -> Environment {
    let sysctls: Vec<(String, String)> = SYSCTLS
        .iter()
        .filter_map(|key| {
            let value = fs::read_to_string(format!("/proc/sys/{}", key.replace('.', "/"))).ok()?;
            Some(((*key).to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        })
        .collect();
    let machine = Machine::read();
    Environment {
        netrig_version: env!("CARGO_PKG_VERSION").into(),
        kernel: machine.kernel,
        cpu_model: machine.cpu_model.unwrap_or_default(),
        cpus_online: machine.online.len() as u32,
        memory_bytes: machine.memory_bytes,
        clock_source: machine.clock_source.unwrap_or_default(),
        congestion_control: machine.congestion_control.unwrap_or_default(),
        hypervisor: machine.hypervisor,
        rootless,
        load_average_hundredths: load_average().map_or(0, |load| (load * 100.0) as u32),
        sysctls,
    }
}
