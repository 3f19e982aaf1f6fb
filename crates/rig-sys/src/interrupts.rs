//! Interrupts of the receive queues of a device, as /proc/irq and sysfs tell them: most drivers give netlink no numbers.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::cpu::CpuSet;
use crate::error::{ErrorContext, Result};
use crate::netns::NetNs;

/// The interrupt of each receive queue of `interface`, by the names that its driver has given them; `None` where they do not tell.
pub fn of_receive_queues(ns: &NetNs, interface: &str) -> Option<Vec<u32>> {
    in_order(named(ns, interface, Path::new(ALL)))
}

/// Of each interrupt of `interface`'s device the name that its driver has given it, and the CPUs that it may come to, as its
/// `smp_affinity_list` has them. Numbers are not the same after a driver has asked for its interrupts again.
pub fn affinities(ns: &NetNs, interface: &str) -> BTreeMap<String, String> {
    affinities_below(Path::new(ALL), named(ns, interface, Path::new(ALL)))
}

/// Has the interrupt of `interface`'s device that has this name come to these CPUs alone.
///
/// # Errors
/// When there is no such interrupt, and where the kernel places it by itself.
pub fn set_affinity(ns: &NetNs, interface: &str, name: &str, cpus: &str) -> Result<()> {
    let written = || {
        let mut all = named(ns, interface, Path::new(ALL));
        let (number, _) = all.find(|(_, own)| own == name).ok_or(io::ErrorKind::NotFound)?;
        fs::write(Path::new(ALL).join(number.to_string()).join(AFFINITY), cpus)
    };
    written().during(|| format!("have interrupt {name} come to CPUs {cpus}"))
}

const ALL: &str = "/proc/irq";
const AFFINITY: &str = "smp_affinity_list";

/// Numbers and names; none where they do not tell.
fn named(ns: &NetNs, interface: &str, below: &Path) -> impl Iterator<Item = (u32, String)> {
    // A virtio device is on a PCI device, which has them.
    let directories = ["device/msi_irqs", "device/../msi_irqs"];
    let sysfs = ns.sysfs().ok();
    let numbers = sysfs.and_then(|sysfs| directories.iter().find_map(|own| sysfs.list(interface, own).ok()));
    let mut numbers: Vec<u32> = numbers.unwrap_or_default().iter().filter_map(|number| number.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().filter_map(move |number| Some((number, action(below, number)?)))
}

fn affinities_below(below: &Path, named: impl Iterator<Item = (u32, String)>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (number, name) in named {
        if let Ok(list) = fs::read_to_string(below.join(number.to_string()).join(AFFINITY)) {
            // Of several with one name it is the first that is found again.
            all.entry(name).or_insert_with(|| list.trim().to_owned());
        }
    }
    all
}

/// What has asked for an interrupt; `None` for nothing, or for several.
fn action(interrupts: &Path, number: u32) -> Option<String> {
    let entries = fs::read_dir(interrupts.join(number.to_string())).ok()?.filter_map(Result::ok);
    let mut names = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let name = names.next()?.file_name().to_string_lossy().into_owned();
    names.next().is_none().then_some(name)
}

/// Those of receive queues by their numbers, which have to be 0 and on.
fn in_order(interrupts: impl Iterator<Item = (u32, String)>) -> Option<Vec<u32>> {
    let mut queues: Vec<(u32, u32)> =
        interrupts.filter_map(|(interrupt, name)| Some((queue_of(&name)?, interrupt))).collect();
    queues.sort_unstable();
    let complete = !queues.is_empty() && (0..).zip(&queues).all(|(number, &(queue, _))| queue == number);
    complete.then(|| queues.into_iter().map(|(_, interrupt)| interrupt).collect())
}

/// The receive queue in a name such as `virtio0-input.1`, `eth0-TxRx-1`, `ens5-Tx-Rx-1` or `mlx5_comp1@pci:0000:01:00.0`.
fn queue_of(name: &str) -> Option<u32> {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let queue = name[stem.len()..].parse().ok()?;
    let kind = stem.trim_end_matches(['-', '.', '_']).to_ascii_lowercase();
    let is_of_receive_queue = ["input", "rx", "rxtx", "comp"].iter().any(|kind_of_queue| kind.ends_with(kind_of_queue));
    is_of_receive_queue.then_some(queue)
}

/// The CPUs that an interrupt comes to (Documentation/core-api/irq/irq-affinity.rst); `None` where the kernel does not tell.
pub fn cpus_of(interrupt: u32) -> Option<CpuSet> {
    let read = |file: &str| -> Option<CpuSet> {
        fs::read_to_string(format!("{ALL}/{interrupt}/{file}")).ok()?.trim().parse().ok()
    };
    // It goes to the CPU that was asked for with the next time that it comes, and until then the kernel tells the one before.
    let asked = read(AFFINITY).filter(|cpus| cpus.len() == 1);
    asked.or_else(|| read("effective_affinity_list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_found_in_the_names_that_drivers_give() {
        for (name, queue) in [
            ("virtio3-input.0", Some(0)),
            ("virtio3-output.0", None),
            ("virtio3-config", None),
            ("eth0-TxRx-11", Some(11)),
            ("i40e-eth0-TxRx-3", Some(3)),
            ("ens5-Tx-Rx-2", Some(2)),
            ("eth0-rx-1", Some(1)),
            ("eth0-rxtx-1", Some(1)),
            ("eth0-tx-1", None),
            ("mlx5_comp4@pci:0000:01:00.0", Some(4)),
            ("mlx5_async0@pci:0000:01:00.0", None),
            ("eth0", None),
            ("99999999999", None),
        ] {
            assert_eq!(queue_of(name), queue, "{name}");
        }
    }

    #[test]
    fn interrupts_are_in_the_order_of_their_queues_or_unknown() {
        let of = |names: &[&str]| in_order((40..).zip(names.iter().map(|name| (*name).to_owned())));
        assert_eq!(of(&["a-config", "a-input.1", "a-output.0", "a-input.0"]), Some(vec![43, 41]));
        assert_eq!(of(&["a-input.1", "a-input.2"]), None, "the first is missing");
        assert_eq!(of(&["a-rx-0", "b-rx-0"]), None, "two of one number");
        assert_eq!(of(&["a-config"]), None);
    }

    #[test]
    fn a_device_without_interrupts_has_none_and_one_that_shares_its_own_neither() {
        assert_eq!(of_receive_queues(&NetNs::of_current_thread().unwrap(), "lo"), None);
        let directory = tempfile::tempdir().unwrap();
        for name in ["7/eth0-rx-0", "8/eth0-rx-0", "8/usb1"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("7/smp_affinity_list"), "0").unwrap();
        assert_eq!(action(directory.path(), 7).as_deref(), Some("eth0-rx-0"));
        let named = [(7, "eth0-rx-0".to_owned()), (8, "gone".to_owned())].into_iter();
        let affinities = affinities_below(directory.path(), named);
        assert_eq!(affinities, BTreeMap::from([("eth0-rx-0".to_owned(), "0".to_owned())]));
        let here = NetNs::of_current_thread().unwrap();
        assert!(super::affinities(&here, "lo").is_empty() && set_affinity(&here, "lo", "lo-rx-0", "0").is_err());
        assert_eq!([action(directory.path(), 8), action(directory.path(), 9)], [None, None]);
    }
}
