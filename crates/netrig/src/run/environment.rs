//! The machine and its settings, as they are stored with a run.

use std::fs;

use rig_sys::cpu::CpuSet;

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
            let value = read(&format!("/proc/sys/{}", key.replace('.', "/")))?;
            Some(((*key).to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        })
        .collect();
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    Environment {
        netrig_version: env!("CARGO_PKG_VERSION").into(),
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        cpu_model: field(&cpuinfo, "model name").unwrap_or_default(),
        cpus_online: CpuSet::online().map_or(0, |cpus| cpus.len() as u32),
        memory_bytes: field(&read("/proc/meminfo").unwrap_or_default(), "MemTotal")
            .and_then(|kib| kib.trim_end_matches(" kB").parse::<u64>().ok())
            .map_or(0, |kib| kib * 1024),
        clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default(),
        congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default(),
        hypervisor: hypervisor(&cpuinfo),
        rootless,
        load_average_hundredths: read("/proc/loadavg")
            .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
            .map_or(0, |load| (load * 100.0) as u32),
        sysctls,
    }
}

/// The name of the virtual machine's maker, or that there is one.
fn hypervisor(cpuinfo: &str) -> Option<String> {
    let flagged = field(cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let product = read("/sys/class/dmi/id/sys_vendor");
    flagged.then(|| product.unwrap_or_else(|| "unknown hypervisor".into()))
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
