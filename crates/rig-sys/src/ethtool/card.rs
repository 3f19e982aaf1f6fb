//! What a card is, and how it is set: all that its driver and sysfs tell of what decides how fast it is.

use std::collections::BTreeMap;

use super::{
    Flow, HashSettings, driver_info, hash_fields, hash_settings, ioctl, queues, receive_rules, wanted_features,
};
use crate::cpu::CpuSet;
use crate::error::Result;
use crate::interrupts;
use crate::netns::NetNs;

/// `struct ethtool_ringparam`.
#[repr(C)]
#[derive(Default)]
struct EthtoolRings {
    command: u32,
    most: [u32; 4],
    receive: u32,
    rest: [u32; 2],
    transmit: u32,
}

/// `struct ethtool_coalesce`.
#[repr(C)]
#[derive(Default)]
struct EthtoolCoalescing {
    command: u32,
    receive_us: u32,
    receive_frames: u32,
    receive_irq: [u32; 2],
    transmit_us: u32,
    transmit_frames: u32,
    transmit_irq: [u32; 2],
    statistics_us: u32,
    adaptive_receive: u32,
    adaptive_transmit: u32,
    rest: [u32; 11],
}

/// `struct ethtool_pauseparam`.
#[repr(C)]
#[derive(Default)]
struct EthtoolPause {
    command: u32,
    negotiated: u32,
    receive: u32,
    transmit: u32,
}

/// `struct ethtool_ts_info`.
#[repr(C)]
#[derive(Default)]
struct EthtoolTimestamps {
    command: u32,
    stamps: u32,
    clock: i32,
    rest: [u32; 8],
}

impl EthtoolTimestamps {
    /// Who can stamp what, as `software receive transmit, hardware receive transmit by PHC 0`.
    fn words(&self) -> String {
        const DONE: [(&str, u32, u32, u32); 2] = [
            (
                "software",
                libc::SOF_TIMESTAMPING_SOFTWARE,
                libc::SOF_TIMESTAMPING_RX_SOFTWARE,
                libc::SOF_TIMESTAMPING_TX_SOFTWARE,
            ),
            (
                "hardware",
                libc::SOF_TIMESTAMPING_RAW_HARDWARE,
                libc::SOF_TIMESTAMPING_RX_HARDWARE,
                libc::SOF_TIMESTAMPING_TX_HARDWARE,
            ),
        ];
        let by = |(who, all, receive, transmit): (&str, u32, u32, u32)| {
            let ways = [(receive, " receive"), (transmit, " transmit")];
            let ways: String = ways.iter().filter(|(flag, _)| self.stamps & flag != 0).map(|(_, way)| *way).collect();
            (self.stamps & all != 0 && !ways.is_empty()).then(|| format!("{who}{ways}"))
        };
        let words = DONE.into_iter().filter_map(by).collect::<Vec<_>>().join(", ");
        if self.clock < 0 { words } else { format!("{words} by PHC {}", self.clock) }
    }
}

/// Names of facts that others read, too: what receive-side scaling hashes, how, by which key, and where that leads.
pub mod fact {
    pub const FIELDS: &str = "RSS fields";
    pub const FUNCTION: &str = "RSS function";
    pub const KEY: &str = "RSS key";
    pub const TABLE: &str = "RSS table";
    pub const TABLE_QUEUES: &str = "RSS queues";
    /// How many, where there are some.
    pub const RULES: &str = "receive rules";
    pub const INTERRUPTS: &str = "CPUs of receive interrupts";
}

/// Names and values for a reader, as `speed` and `25000 Mbit/s`; what is not told is not there.
///
/// # Errors
/// When the namespace cannot be entered.
pub fn card(ns: &NetNs, interface: &str) -> Result<BTreeMap<String, String>> {
    let sysfs = ns.sysfs()?;
    let text = |file: &str| sysfs.read(interface, file).ok().map(|text| text.trim().to_owned());
    let features = wanted_features(ns, interface).unwrap_or_default();
    let mut facts = ns.run(|| [by_driver(interface), spreading(interface)].concat())?;
    let mut tell = |name: &'static str, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    // -1 where the driver does not know, or the link is down.
    let speed = text("speed").filter(|speed| speed.parse().is_ok_and(|speed: i64| speed > 0));
    tell("speed", speed.map(|speed| format!("{speed} Mbit/s")));
    tell("duplex", text("duplex").filter(|duplex| duplex != "unknown"));
    tell("MTU", text("mtu").map(|mtu| format!("{mtu} bytes")));
    tell("NUMA node", text("device/numa_node").filter(|node| node != "-1"));
    let on: Vec<String> = features.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    tell("offloads on", Some(on.join(" ")));
    let cpus = interrupts::of_receive_queues(ns, interface).map(|interrupts| {
        let of = |interrupt: u32| interrupts::cpus_of(interrupt).as_ref().map_or("?".to_owned(), CpuSet::to_string);
        interrupts.into_iter().map(of).collect::<Vec<_>>().join(" ")
    });
    tell(fact::INTERRUPTS, cpus);
    let polling = [("gro_flush_timeout", " ns"), ("napi_defer_hard_irqs", ""), ("threaded", "")];
    for (file, unit) in polling {
        tell(file, text(file).map(|value| format!("{value}{unit}")));
    }
    let told = facts.into_iter().filter(|(_, value)| !value.is_empty());
    Ok(told.map(|(name, value)| (name.to_owned(), value)).collect())
}

/// What ethtool's ioctl tells of an interface of the calling thread's namespace.
fn by_driver(interface: &str) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Ok(info) = driver_info(interface) {
        let [driver, version, firmware, bus] = info.texts();
        facts.extend([("driver", driver), ("driver's version", version), ("firmware", firmware), ("bus", bus)]);
    }
    let mut timestamps = EthtoolTimestamps { command: 0x41, ..EthtoolTimestamps::default() };
    if ioctl(interface, &mut timestamps).is_ok() {
        facts.push(("timestamps", timestamps.words()));
    }
    if let Ok((receive, transmit)) = queues(interface) {
        facts.push(("queues", format!("{receive} receive, {transmit} transmit")));
    }
    let mut rings = EthtoolRings { command: 0x10, ..EthtoolRings::default() };
    if ioctl(interface, &mut rings).is_ok() {
        facts.push(("rings", format!("{} receive, {} transmit", rings.receive, rings.transmit)));
    }
    let mut coalescing = EthtoolCoalescing { command: 0x0e, ..EthtoolCoalescing::default() };
    if ioctl(interface, &mut coalescing).is_ok() {
        let one = |us: u32, frames: u32, adaptive: u32| {
            format!("{us} us or {frames} frames{}", if adaptive == 0 { "" } else { ", adaptive" })
        };
        let EthtoolCoalescing { receive_us, receive_frames, adaptive_receive, .. } = coalescing;
        let EthtoolCoalescing { transmit_us, transmit_frames, adaptive_transmit, .. } = coalescing;
        let receive = one(receive_us, receive_frames, adaptive_receive);
        let transmit = one(transmit_us, transmit_frames, adaptive_transmit);
        facts.push(("coalescing", format!("receive {receive}; transmit {transmit}")));
    }
    let mut pause = EthtoolPause { command: 0x12, ..EthtoolPause::default() };
    if ioctl(interface, &mut pause).is_ok() {
        let word = |on: u32| if on == 0 { "off" } else { "on" };
        facts.push(("pause frames", format!("receive {}, transmit {}", word(pause.receive), word(pause.transmit))));
    }
    facts
}

/// How an interface of the calling thread's namespace spreads what it receives over its queues.
fn spreading(interface: &str) -> Vec<(&'static str, String)> {
    let fields = |flow: &Flow| Some(format!("{} {}", flow.name(), hash_fields(interface, *flow).ok()?));
    let fields: Vec<String> = Flow::ALL.iter().filter_map(fields).collect();
    let mut facts = vec![(fact::FIELDS, fields.join(", "))];
    if let Ok(settings) = hash_settings(interface) {
        let HashSettings { table, key, .. } = &settings;
        if !table.is_empty() {
            let mut queues = table.clone();
            queues.sort_unstable();
            queues.dedup();
            facts.push((fact::FUNCTION, settings.function()));
            facts.push((fact::TABLE, format!("{} entries over {} queues", table.len(), queues.len())));
            let repeated: Vec<String> = repeated(table).iter().map(u32::to_string).collect();
            facts.push((fact::TABLE_QUEUES, repeated.join(" ")));
        }
        if let Ok(rules @ 1..) = receive_rules(interface) {
            facts.push((fact::RULES, rules.to_string()));
        }
        facts.push((fact::KEY, key.iter().map(|byte| format!("{byte:02x}")).collect()));
    }
    facts
}

/// The shortest beginning of a table that, again and again, is all of it.
fn repeated(table: &[u32]) -> &[u32] {
    let is_all = |length: &usize| table.iter().skip(*length).zip(table).all(|(own, before)| own == before);
    let length = (1..table.len()).find(is_all).unwrap_or(table.len());
    &table[..length]
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        assert_eq!(
            (size_of::<EthtoolRings>(), size_of::<EthtoolCoalescing>(), size_of::<EthtoolPause>()),
            (36, 92, 16),
            "linux/ethtool.h"
        );
        assert_eq!(size_of::<EthtoolTimestamps>(), 44, "linux/ethtool.h");
    }

    #[test]
    fn a_table_is_told_by_what_it_repeats() {
        assert_eq!(repeated(&[0, 1, 2, 0, 1, 2, 0, 1]), [0, 1, 2]);
        assert_eq!(repeated(&[0, 1, 2, 0, 1, 1]), [0, 1, 2, 0, 1, 1]);
        assert_eq!((repeated(&[3, 3, 3]), repeated(&[])), (&[3][..], &[][..]));
    }

    #[test]
    fn the_loopback_interface_has_a_driverless_card() {
        let told = card(&NetNs::of_current_thread().unwrap(), "lo").unwrap();
        assert_eq!(told.get("MTU").map(String::as_str), Some("65536 bytes"), "{told:?}");
        assert!(told["timestamps"].starts_with("software receive"), "{told:?}");
        assert!(!told.contains_key("speed") && told["offloads on"].contains("tx-tcp-segmentation"), "{told:?}");
    }
}
