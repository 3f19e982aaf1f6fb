//! What could move an interface's receive work, found out without taking anything.

use std::sync::Arc;

use anyhow::{Context, bail};
use rig_datapath::napi;
use rig_spread::Order;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Device, Kind, UnsupportedKind, cpumap, rss};

/// A kind that an interface could have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PossibleActuator {
    pub kind: Kind,
    /// What can be moved by itself; 0 where nothing is moved.
    pub entries: u32,
    /// What becomes of the order of an entry's packets when it moves.
    pub order: Order,
    /// Whether it is tried where no kind is named.
    pub preferred: bool,
    /// What an entry is, what a move does to the order, and who pays.
    pub told: String,
}

/// What could move an interface's receive work, and what could not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProbeReport {
    pub interface: String,
    /// The most preferred first.
    pub prospects: Vec<PossibleActuator>,
    pub lacks: Vec<UnsupportedKind>,
    /// Why some packets may not come by its receive queues, so that most kinds do not see them.
    pub past_queues: Option<String>,
}

impl ProbeReport {
    /// Whether anything could be moved.
    pub fn can_move(&self) -> bool {
        self.prospects.iter().any(|prospect| prospect.entries > 0)
    }
}

/// Looks at an interface of the calling thread's network namespace.
///
/// # Errors
/// When there is none of this name.
pub fn probe(interface: &str) -> anyhow::Result<ProbeReport> {
    let ns = NetNs::of_current_thread()?;
    Netlink::open(&ns)?
        .index(interface)
        .with_context(|| format!("there is no interface {interface} in this network namespace: see `ip link`"))?;
    let device = Device { sysfs: Arc::new(ns.sysfs()?), ns: Arc::new(ns), name: interface.to_owned() };
    let mut probed = ProbeReport {
        interface: interface.to_owned(),
        prospects: Vec::new(),
        lacks: Vec::new(),
        past_queues: device.segments_late(),
    };
    for kind in Kind::ALL {
        match entries(kind, &device) {
            Ok(entries) => probed.prospects.push(PossibleActuator {
                kind,
                entries: entries as u32,
                order: kind.order(),
                preferred: Kind::PREFERRED.contains(&kind),
                told: kind.told().to_owned(),
            }),
            Err(error) => probed.lacks.push(UnsupportedKind { kind, why: rig_cli::exit::in_words(&error) }),
        }
    }
    Ok(probed)
}

/// How many entries there would be, or why it cannot be.
fn entries(kind: Kind, device: &Device) -> anyhow::Result<usize> {
    match kind {
        Kind::Rss => rss::probe(device).map(|(table, _)| table.len()),
        Kind::Cpumap | Kind::CpumapBounded => {
            has_queues(device, true)?;
            cpumap::probe(device)?;
            Ok(rig_datapath::steer::Steer::BUCKETS as usize)
        }
        Kind::Napi => {
            napi::may_place()?;
            has_queues(device, false)
        }
        Kind::Rps => has_queues(device, false),
        Kind::Observe => {
            if napi::of(&device.ns, &device.name)?.is_empty() {
                bail!("{}", device.without_queues());
            }
            Ok(0)
        }
    }
}

/// Receive queues that it has, or would have when it is taken, `with_program` for XDP.
fn has_queues(device: &Device, with_program: bool) -> anyhow::Result<usize> {
    let napis = napi::of(&device.ns, &device.name)?;
    let gets_some = || device.has_carrier() && device.is_veth() && (with_program || device.needs_gro().unwrap_or(true));
    match napis.len() {
        0 if gets_some() => Ok(device.receive_queues()),
        0 => bail!("{}", device.without_queues()),
        queues => Ok(queues),
    }
}
