//! Features of an interface by the kernel's names (`ETH_SS_FEATURES` and `ETHTOOL_GFEATURES` of linux/ethtool.h), and by those that
//! ethtool(8) has for several together.

use std::collections::BTreeMap;
use std::io;

use super::ioctl;
use crate::error::{Error, Result};
use crate::netns::NetNs;

/// Groups of features: their heading in `ethtool -k`, their name for `ethtool -K`, and the kernel's names of their members.
const GROUPS: [(&str, &str, &[&str]); 9] = [
    ("rx-checksumming", "rx", &["rx-checksum"]),
    (
        "tx-checksumming",
        "tx",
        &["tx-checksum-ipv4", "tx-checksum-ip-generic", "tx-checksum-ipv6", "tx-checksum-fcoe-crc", "tx-checksum-sctp"],
    ),
    ("scatter-gather", "sg", &["tx-scatter-gather", "tx-scatter-gather-fraglist"]),
    (
        "tcp-segmentation-offload",
        "tso",
        &["tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation"],
    ),
    ("generic-segmentation-offload", "gso", &["tx-generic-segmentation"]),
    ("generic-receive-offload", "gro", &["rx-gro"]),
    ("large-receive-offload", "lro", &["rx-lro"]),
    ("rx-vlan-offload", "rxvlan", &["rx-vlan-hw-parse"]),
    ("tx-vlan-offload", "txvlan", &["tx-vlan-hw-insert"]),
];

/// Room for the names of all features that a kernel may have.
const MOST: usize = 512;
/// `ETH_GSTRING_LEN`.
const NAME: usize = 32;

/// `struct ethtool_sset_info`, of one set.
#[repr(C)]
struct EthtoolSets {
    command: u32,
    reserved: u32,
    sets: u64,
    length: u32,
    padding: u32,
}

/// `struct ethtool_gstrings`.
#[repr(C)]
struct EthtoolStrings {
    command: u32,
    set: u32,
    length: u32,
    data: [u8; MOST * NAME],
}

/// `struct ethtool_get_features_block`: 32 features, a bit each.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct GetBlock {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

/// `struct ethtool_gfeatures`.
#[repr(C)]
struct EthtoolGetFeatures {
    command: u32,
    size: u32,
    blocks: [GetBlock; MOST / 32],
}

/// `struct ethtool_set_features_block`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct SetBlock {
    valid: u32,
    requested: u32,
}

/// `struct ethtool_sfeatures`.
#[repr(C)]
struct EthtoolSetFeatures {
    command: u32,
    size: u32,
    blocks: [SetBlock; MOST / 32],
}

impl EthtoolSetFeatures {
    fn of(features: usize) -> Self {
        Self { command: 0x3b, size: features.div_ceil(32) as u32, blocks: [SetBlock::default(); MOST / 32] }
    }

    fn ask(&mut self, bit: usize, on: bool) {
        self.blocks[bit / 32].valid |= 1 << (bit % 32);
        self.blocks[bit / 32].requested |= u32::from(on) << (bit % 32);
    }
}

/// Switches features of `interface` inside `ns`. They are called as the kernel does (`rx-gro`, `tx-tcp-segmentation`), or as
/// ethtool(8) calls those or several of them (`gro`, `tcp-segmentation-offload`).
///
/// # Errors
/// Names the first feature that the kernel does not have, or that is not as wanted afterwards.
pub fn set_features(ns: &NetNs, interface: &str, wanted: &BTreeMap<String, bool>) -> Result<()> {
    ns.run(|| set_here(interface, wanted))?
}

/// What is wanted of the features of `interface` inside `ns` that can be switched, by the kernel's names, whether it has come true
/// or waits for another feature.
///
/// # Errors
/// When the device does not tell.
pub fn wanted_features(ns: &NetNs, interface: &str) -> Result<BTreeMap<String, bool>> {
    let read = || {
        let names = names(interface)?;
        let state = state(interface, names.len())?;
        let switchable = names.iter().enumerate().filter(|(bit, name)| !name.is_empty() && state.may_switch(*bit));
        Ok(switchable.map(|(bit, name)| (name.clone(), state.is_wanted(bit))).collect())
    };
    ns.run(read)?.map_err(|error: io::Error| Error::new(format!("read the features of {interface}"), error))
}

/// Wants that again. Features that cannot be switched any more are left as they are.
///
/// # Errors
/// When the kernel refuses.
pub fn want_features(ns: &NetNs, interface: &str, wanted: &BTreeMap<String, bool>) -> Result<()> {
    let want = || {
        let names = names(interface)?;
        let now = state(interface, names.len())?;
        let mut set = EthtoolSetFeatures::of(names.len());
        for (bit, name) in names.iter().enumerate().filter(|(bit, _)| now.may_switch(*bit)) {
            if let Some(on) = wanted.get(name).filter(|on| now.is_wanted(bit) != **on) {
                set.ask(bit, *on);
            }
        }
        if set.blocks.iter().all(|block| block.valid == 0) { Ok(()) } else { ioctl(interface, &mut set) }
    };
    ns.run(want)?.map_err(|error: io::Error| Error::new(format!("switch the features of {interface} back"), error))
}

fn set_here(interface: &str, wanted: &BTreeMap<String, bool>) -> Result<()> {
    let names = names(interface).map_err(|e| Error::new(format!("read the features of {interface}"), e))?;
    let read = || state(interface, names.len()).map_err(|e| Error::new(format!("read the features of {interface}"), e));
    let before = read()?;
    let mut all: Vec<(&str, bool, Vec<usize>)> = Vec::new();
    for (name, on) in wanted {
        let failed = |why: &str| {
            let operation = format!("switch {name} of {interface} {}", if *on { "on" } else { "off" });
            Error::new(operation, io::Error::other(why.to_owned()))
        };
        let mut members = members(name, &names);
        if members.is_empty() {
            return Err(failed("the kernel has no feature of this name (`ethtool -k` lists them)"));
        }
        // One that cannot be switched may be as wanted.
        let is_alone = members.len() == 1;
        members.retain(|bit| before.may_switch(*bit) || is_alone && before.is_on(*bit) == *on);
        if members.is_empty() {
            return Err(failed("the interface does not let it be switched"));
        }
        all.push((name, *on, members));
    }
    let mut set = EthtoolSetFeatures::of(names.len());
    for (_, on, members) in &all {
        for bit in members.iter().filter(|bit| before.may_switch(**bit)) {
            set.ask(*bit, *on);
        }
    }
    let operation = |name: &str, on: bool| format!("switch {name} of {interface} {}", if on { "on" } else { "off" });
    let together = || all.iter().map(|(name, on, _)| operation(name, *on)).collect::<Vec<_>>().join(", ");
    ioctl(interface, &mut set).map_err(|error| Error::new(together(), error))?;
    let after = read()?;
    let stayed = all.iter().find(|(_, on, members)| members.iter().any(|bit| after.is_on(*bit) != *on));
    stayed.map_or(Ok(()), |(name, on, _)| {
        let why = "the kernel keeps it as it is, because of another feature or of the interface below";
        Err(Error::new(operation(name, *on), io::Error::other(why)))
    })
}

/// Places of the features that a name means; none where the kernel has no such.
fn members(name: &str, names: &[String]) -> Vec<usize> {
    let place = |name: &str| names.iter().position(|own| own == name);
    match GROUPS.iter().find(|(long, short, _)| name == *long || name == *short) {
        Some((.., own)) => own.iter().filter_map(|name| place(name)).collect(),
        None => place(name).into_iter().collect(),
    }
}

/// All features by their places.
fn names(interface: &str) -> io::Result<Vec<String>> {
    const ETH_SS_FEATURES: u32 = 4;
    let mut sets = EthtoolSets { command: 0x37, reserved: 0, sets: 1 << ETH_SS_FEATURES, length: 0, padding: 0 };
    ioctl(interface, &mut sets)?;
    let length = sets.length as usize;
    if length > MOST {
        return Err(io::Error::other("more features than netrig has room for"));
    }
    let mut strings =
        Box::new(EthtoolStrings { command: 0x1b, set: ETH_SS_FEATURES, length: length as u32, data: [0; MOST * NAME] });
    ioctl(interface, &mut *strings)?;
    let name = |bytes: &[u8]| {
        let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    Ok(strings.data.chunks(NAME).take(length).map(name).collect())
}

struct State {
    blocks: [GetBlock; MOST / 32],
}

impl State {
    fn may_switch(&self, bit: usize) -> bool {
        let block = self.blocks[bit / 32];
        (block.available & !block.never_changed) & 1 << (bit % 32) != 0
    }

    fn is_wanted(&self, bit: usize) -> bool {
        self.blocks[bit / 32].requested & 1 << (bit % 32) != 0
    }

    fn is_on(&self, bit: usize) -> bool {
        self.blocks[bit / 32].active & 1 << (bit % 32) != 0
    }
}

fn state(interface: &str, features: usize) -> io::Result<State> {
    let size = features.div_ceil(32) as u32;
    let mut get = EthtoolGetFeatures { command: 0x3a, size, blocks: [GetBlock::default(); MOST / 32] };
    ioctl(interface, &mut get)?;
    Ok(State { blocks: get.blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_feature_or_several() {
        let names: Vec<String> =
            ["tx-tcp-segmentation", "rx-gro", "tx-tcp6-segmentation"].map(ToOwned::to_owned).to_vec();
        assert_eq!(members("rx-gro", &names), [1]);
        assert_eq!(members("gro", &names), [1]);
        assert_eq!(members("tcp-segmentation-offload", &names), [0, 2]);
        assert_eq!(members("rx-groo", &names), [0; 0]);
    }

    #[test]
    fn this_kernel_names_its_features() {
        let names = names("lo").unwrap();
        for name in GROUPS[3..6].iter().flat_map(|(.., members)| *members) {
            assert!(names.iter().any(|own| own == name), "{name} {names:?}");
        }
        let state = state("lo", names.len()).unwrap();
        let of = |name: &str| members(name, &names)[0];
        assert!(!state.may_switch(of("loopback")), "a loopback interface is one");
        assert!(state.is_on(of("loopback")));
    }
}
