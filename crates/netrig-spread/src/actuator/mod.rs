//! What moves receive work from one CPU to another.
//!
//! ```text
//! choose ── which of them an interface can have, and why not the others ──> Actuator ── apply: entry to CPU
//! Before ── what was there when it was taken: put back at the end, by this process or by another one ──┘
//! ```
//!
//! An **entry** is what is moved whole: a receive queue, or the flows with the same bucket of the hash.

mod cpumap;
mod napi;
mod observe;
mod probe;
mod queues;
mod receiver;
mod rps;
mod rss;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rig_datapath::receive::{Reading, Receive};
use rig_spread::{Abilities, EntryObservation, Order};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netns::{NetNs, Sysfs};
use serde::{Deserialize, Serialize};

use self::cpumap::CpuMap;
use self::napi::Threads;
use self::observe::QueueObservation;
pub(crate) use self::receiver::spreads;
use self::rps::RpsMasks;
use self::rss::Table;

pub use self::probe::{PossibleActuator, ProbeReport, probe};

/// The kinds that there are, the most preferred first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A thread polls each receive queue (threaded NAPI), and its affinity is the move.
    Napi,
    /// The device places packets, by a table of its own that leads from their hash to a queue (receive-side scaling).
    Rss,
    /// An XDP program gives each flow to a CPU; a move waits for the old CPU.
    Cpumap,
    /// The same; a move waits for 5 ms at most.
    CpumapBounded,
    /// The kernel puts what a queue receives into another CPU's queue (receive packet steering).
    Rps,
    /// Nothing is moved, all is shown.
    Observe,
}

impl Kind {
    pub const ALL: [Self; 6] = [Self::Napi, Self::Rss, Self::Cpumap, Self::CpumapBounded, Self::Rps, Self::Observe];

    /// What is tried where nothing is said: what leaves the interface as fast for everything as it was. An XDP program costs
    /// offloads, and is only put there when it is named.
    pub const PREFERRED: [Self; 4] = [Self::Napi, Self::Rss, Self::Rps, Self::Observe];

    pub fn name(self) -> &'static str {
        match self {
            Self::Napi => "napi",
            Self::Rss => "rss",
            Self::Cpumap => "cpumap",
            Self::CpumapBounded => "cpumap-bounded",
            Self::Rps => "rps",
            Self::Observe => "observe",
        }
    }

    /// What becomes of the order of an entry's packets when it moves.
    pub fn order(self) -> Order {
        match self {
            Self::Napi | Self::Observe => Order::Exact,
            Self::Cpumap => Order::Drained,
            Self::Rss | Self::CpumapBounded | Self::Rps => Order::Bounded,
        }
    }

    /// What an entry is, whether packets of a flow may overtake each other over a move, and who pays.
    pub fn told(self) -> &'static str {
        match self {
            Self::Napi => {
                "an entry is a receive queue, polled by a thread of the kernel that a move puts onto another CPU; a queue is polled \
                 by one CPU at a time, so that packets stay in order; each wake-up of a thread costs some microseconds, so that \
                 in mode dynamic there are no threads while one CPU is enough"
            }
            Self::Rss => {
                "an entry is one of the device's table, and leads to the queue whose interrupt is on the CPU that the entry is on; \
                 packets that wait in the old queue when it moves can be overtaken; it costs nothing, as the device places packets"
            }
            Self::Cpumap => {
                "an entry is the flows of one of 128 values of a hash, which an XDP program puts into the queue of the CPU that the \
                 entry is on; a moved entry goes on to its old CPU until that one has none of its packets, so that they stay in order, \
                 and stays there as long as that CPU has no rest; both CPUs pay, and packets come without the device's checksums, \
                 hash and merging"
            }
            Self::CpumapBounded => {
                "as cpumap, but a moved entry waits for its old CPU for 5 ms at most, and then its packets can be overtaken, which \
                 is told"
            }
            Self::Rps => {
                "an entry is a receive queue; its CPU receives, and puts the packets into the queue of the CPU that the entry is on; \
                 packets that wait there when it moves can be overtaken; both CPUs pay"
            }
            Self::Observe => "nothing is moved",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found
            .ok_or_else(|| format!("'{text}' is not an actuator: choose from {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The interface that something is done with.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) ns: Arc<NetNs>,
    pub(crate) sysfs: Arc<Sysfs>,
    pub(crate) name: String,
}

impl Device {
    /// veth has receive queues of its own with receive offload alone, or an XDP program.
    fn is_veth(&self) -> bool {
        let driver = self.ns.run(|| ethtool::driver(&self.name));
        driver.is_ok_and(|driver| driver.is_ok_and(|driver| driver == "veth"))
    }

    /// Whether receive offload has to be switched on for it to have queues.
    fn needs_gro(&self) -> anyhow::Result<bool> {
        Ok(self.is_veth() && !ethtool::get(&self.ns, &self.name, Offload::Gro)?)
    }

    /// Receive queues in use, as sysfs has them.
    fn receive_queues(&self) -> usize {
        let is_there = |queue: &usize| self.sysfs.read(&self.name, &format!("queues/rx-{queue}/rps_cpus")).is_ok();
        (0..).take_while(is_there).count()
    }

    /// Whether its link is up; a link that is switched off does not tell.
    fn has_carrier(&self) -> bool {
        self.sysfs.read(&self.name, "carrier").is_ok_and(|carrier| carrier == "1")
    }

    /// How packets come past its receive queues (veth_xmit of drivers/net/veth.c), for who finds that they do.
    pub(crate) fn past_queues(&self) -> String {
        match self.segments_late() {
            Some(why) => why,
            None => "which way they come the kernel does not tell".to_owned(),
        }
    }

    /// Where its kind of interface lets packets pass its queues that are still to be segmented.
    pub(crate) fn segments_late(&self) -> Option<String> {
        let name = &self.name;
        self.is_veth().then(|| {
            format!(
                "a veth handles what its peer has not segmented where that was sent: `ethtool -K PEER tso off` on its peer \
                 has it use its queues, and so does `--actuator cpumap` for {name}"
            )
        })
    }

    /// Why there is nothing to move or to look at.
    fn without_queues(&self) -> String {
        let name = &self.name;
        if !self.has_carrier() {
            return format!("{name} has no receive queues while its link is down");
        }
        if self.is_veth() {
            return match self.needs_gro() {
                Ok(false) => format!(
                    "{name} has no receive queues: a veth has some without an XDP program since Linux 5.13, and with one by \
                     `--actuator cpumap`"
                ),
                _ => format!("{name} has no receive queues without receive offload: ethtool -K {name} gro on"),
            };
        }
        format!("{name} has no receive queues of its own, as virtual interfaces over others have none")
    }
}

/// One entry's way to another CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryMove {
    pub entry: usize,
    pub cpu: u32,
}

/// What has been taken of an interface, and moves its entries.
pub(crate) trait Actuator: fmt::Debug + Send {
    fn kind(&self) -> Kind;

    /// What it can do. Who is behind the interface, and which CPU receives for others, is not its knowledge.
    fn abilities(&self) -> Abilities;

    /// Queues that it watches, whether or not they are entries that move.
    fn queues(&self) -> usize;

    /// The CPU that each entry is on, as the kernel has it; `None` of one that may be on several.
    fn placed(&self) -> anyhow::Result<Vec<Option<u32>>>;

    /// Puts entries onto CPUs: what came of each.
    fn apply(&mut self, placings: &[EntryMove]) -> Vec<anyhow::Result<()>>;

    /// What entries did between two readings.
    fn seen(&mut self, before: &Reading, after: &Reading) -> Vec<EntryObservation>;

    /// What receiving for others cost the CPUs that receive, where it is another one than that of the entry.
    fn distributing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration;

    /// The CPU that receives what it gives to others, and for how many packets since the last reading, where there is one.
    fn received_by(&self, _before: &Reading, _after: &Reading) -> BTreeMap<u32, u64> {
        BTreeMap::new()
    }

    /// Has the CPUs that packets reach first process them, or puts entries onto CPUs again; where they are then is for
    /// [`apply`](Self::apply).
    fn poll_in_place(&mut self, _in_place: bool) -> anyhow::Result<()> {
        anyhow::bail!("{} has no other way to process entries", self.kind())
    }

    /// The CPU that processed each entry last, while entries are left in place.
    fn polled_by(&self, _reading: &Reading) -> Vec<Option<u32>> {
        Vec::new()
    }

    /// What entries cost the CPU that they are on.
    fn processing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration;

    /// Packets on their way to a CPU for which there was no room, between the last two times that it has [`seen`](Self::seen);
    /// those that neither the interface nor the CPU counts.
    fn lost(&self, _cpu: u32) -> u64 {
        0
    }

    /// Moves that did not wait for the old CPU, so that packets may have overtaken each other; none: it does not know.
    fn hurried(&self) -> Option<u64> {
        None
    }

    /// What else there is to say of what it has [`seen`](Self::seen), for the log.
    fn said(&mut self) -> Option<String> {
        None
    }

    /// Whether what it has taken is still there: an interface goes down, or its queues become others.
    fn is_intact(&self) -> bool;

    /// As it was before, for the process that puts it back.
    fn before(&self) -> SavedState;
}

/// What an interface had before it was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(crate) enum SavedState {
    Napi(napi::SavedState),
    Rps(rps::SavedState),
    Rss(rss::SavedState),
    Nothing { interface: String },
}

impl SavedState {
    pub(crate) fn interface(&self) -> &str {
        match self {
            Self::Napi(before) => &before.interface,
            Self::Rps(before) => &before.interface,
            Self::Rss(before) => &before.interface,
            Self::Nothing { interface } => interface,
        }
    }

    /// Puts it back, as far as the interface is still there.
    ///
    /// # Errors
    /// The first of those that came; the rest is put back all the same.
    pub(crate) fn restore(&self, ns: &NetNs) -> anyhow::Result<()> {
        match self {
            Self::Napi(before) => before.restore(ns),
            Self::Rps(before) => before.restore(ns),
            Self::Rss(before) => before.restore(ns),
            Self::Nothing { .. } => Ok(()),
        }
    }
}

/// Why an interface cannot have a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UnsupportedKind {
    pub kind: Kind,
    pub why: String,
}

/// Takes an interface by a kind.
///
/// # Errors
/// Why it cannot have it; it is left as it was.
pub(crate) fn take(
    kind: Kind,
    device: &Device,
    receive: &Arc<Receive>,
    first: u32,
) -> Result<Box<dyn Actuator>, UnsupportedKind> {
    // Switching offloads of a link that is down and back again would be two changes of it, each a reason to try once more.
    if !device.has_carrier() {
        return Err(UnsupportedKind { kind, why: device.without_queues() });
    }
    let taken = match kind {
        Kind::Napi => Threads::take(device, receive, first).map(|taken| Box::new(taken) as Box<dyn Actuator>),
        Kind::Rss => Table::take(device, receive, first).map(|taken| Box::new(taken) as Box<dyn Actuator>),
        Kind::Cpumap | Kind::CpumapBounded => {
            CpuMap::take(device, receive, first, kind == Kind::Cpumap).map(|taken| Box::new(taken) as Box<dyn Actuator>)
        }
        Kind::Rps => RpsMasks::take(device, receive, first).map(|taken| Box::new(taken) as Box<dyn Actuator>),
        Kind::Observe => QueueObservation::of(device, receive, first).map(|taken| Box::new(taken) as Box<dyn Actuator>),
    };
    taken.map_err(|error| UnsupportedKind { kind, why: rig_cli::exit::in_words(&error) })
}

/// What an interface was taken by, and why not by the kinds before.
pub(crate) type ActuatorChoice = (Box<dyn Actuator>, Vec<UnsupportedKind>);

/// Takes an interface by the first of these kinds that it can have, and says why not by those before.
///
/// # Errors
/// When it can have none.
pub(crate) fn choose(
    kinds: &[Kind],
    device: &Device,
    receive: &Arc<Receive>,
    first: u32,
) -> Result<ActuatorChoice, Vec<UnsupportedKind>> {
    let mut lacks = Vec::new();
    for &kind in kinds {
        match take(kind, device, receive, first) {
            Ok(taken) => return Ok((taken, lacks)),
            Err(lack) => lacks.push(lack),
        }
    }
    Err(lacks)
}
