//! What the policy decides and tells.

use std::fmt;
use std::time::Duration;

use rig_stats::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::effective::{Difference, list};
use crate::nanos;
use crate::settings::Mode;

/// An entry, or the base, goes to another CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Move {
    /// The entry's index; none: the base, which packets reach first.
    pub entry: Option<u32>,
    pub from: u32,
    pub to: u32,
    pub why: MoveReason,
    /// Whether packets arrive for it: such a move costs cold caches and, with some actuators, a wait.
    pub paid: bool,
    /// Load of the target when all moves are done, as predicted; a fraction of one CPU, may exceed 1 where demand does.
    pub predicted: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MoveReason {
    /// No load: spread ahead of the next burst.
    Park,
    /// Its CPU has too much to do.
    Expand,
    /// Fewer CPUs will do.
    Coalesce,
    /// CPUs in use differ too much in load.
    Rebalance,
    /// The base CPU needs its time for distributing.
    EvictBase,
    /// The base CPU has much else to do, so the base goes elsewhere, and what was on it.
    RehomeBase,
    /// Its CPU went offline or may not be used any more.
    CpuOffline,
    /// Another mode or other limits than before.
    Mode,
    /// An earlier move made things worse.
    Undo,
}

impl MoveReason {
    pub const ALL: [Self; 9] = [
        Self::Park,
        Self::Expand,
        Self::Coalesce,
        Self::Rebalance,
        Self::EvictBase,
        Self::RehomeBase,
        Self::CpuOffline,
        Self::Mode,
        Self::Undo,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Park => "park",
            Self::Expand => "expand",
            Self::Coalesce => "coalesce",
            Self::Rebalance => "rebalance",
            Self::EvictBase => "evict-base",
            Self::RehomeBase => "rehome-base",
            Self::CpuOffline => "cpu-offline",
            Self::Mode => "mode",
            Self::Undo => "undo",
        }
    }
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How entries lie on CPUs, and why so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Situation {
    /// A static mode, or nothing can be moved.
    #[default]
    Fixed,
    /// No load; entries are spread for the next burst.
    Parked,
    /// All that arrives is processed on one CPU.
    Coalesced,
    /// Several CPUs, with room.
    Spread,
    /// A CPU is full and no move can help: of an entry that is too much for one CPU, of the base that only distributes, or
    /// because there are no CPUs left.
    Saturated,
}

impl Situation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Parked => "parked",
            Self::Coalesced => "coalesced",
            Self::Spread => "spread",
            Self::Saturated => "saturated",
        }
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What happened, for people and logs; `Display` says it in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    Situation {
        from: Situation,
        to: Situation,
        /// Distinct CPUs that entries with traffic are on.
        cpus: u32,
    },
    /// Fewer CPUs were soon too few: the next attempt waits longer. In ns.
    HoldDoubled {
        #[serde(with = "nanos")]
        #[schemars(with = "u64")]
        hold: Duration,
    },
    /// Long enough without such a mistake, or idle: as at the beginning. In ns.
    HoldReset {
        #[serde(with = "nanos")]
        #[schemars(with = "u64")]
        hold: Duration,
    },
    /// So many moves wait, because as many as are allowed in a minute were made.
    BudgetUsedUp { waiting: u32 },
    /// What is in force differs from before; the differences to what was asked for, as they are now.
    Settings { mode: Mode, differences: Vec<Difference> },
    /// An entry needs more than one CPU has, and cannot be divided.
    Elephant { entry: u32, cpu: u32, load: f64 },
    /// The base CPU is full with distributing alone: more throughput needs hardware that places packets.
    DistributionLimit { cpu: u32, load: f64 },
    /// The CPUs or queue pairs that may be used are all full.
    NoCpuLeft { cpus: u32 },
    /// So many entries had to leave a CPU that is offline or not allowed any more.
    CpuGone { cpu: u32, entries: u32 },
    /// The base went to another CPU.
    BaseMoved { from: u32, to: u32, other: f64 },
    /// Moves were followed by worse results and are taken back.
    Undone { moves: u32, reason: Regression },
    /// The actuator refused a move; it stays where it was, and is not asked again for a while.
    Refused { entry: Option<u32>, at: u32, asked: u32 },
    /// Packets come first to another CPU than before, which the spreader did not choose.
    BaseSeen { from: u32, to: u32 },
    /// Threads poll the queues from now on, or the CPUs that packets reach first do, in place.
    Polling { in_place: bool, why: PollingReason },
    /// A second after the last of moves to a CPU: what its load was to be, and is. Moves of any reason, also those that are
    /// taken back later.
    Effect {
        cpu: u32,
        /// Entries that went there.
        entries: Vec<u32>,
        /// Whether the base went there.
        base: bool,
        predicted: f64,
        measured: f64,
    },
}

/// Why queues are polled in another way than before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum PollingReason {
    /// One CPU is enough.
    Coalesced,
    /// A CPU is full while others have room.
    Hot,
    /// No load: entries are spread for the next burst, which packets do not do by themselves.
    Parked,
    /// The settings in force leave nothing to the CPUs that packets reach first.
    Settings,
    /// All CPUs are full, and what the other way carries is to be seen.
    Trial,
    /// What a trial has shown; packets per second with threads and without.
    Measured { with: f64, without: f64 },
}

/// What got worse in the second after moves; packets per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Regression {
    /// More packets were dropped, of no more that arrived.
    Losses { before: f64, after: f64 },
    /// Fewer packets were processed, while packets waited.
    Throughput { before: f64, after: f64 },
    /// What moved to a CPU got slower there, all else did not.
    MovedEntries { cpu: u32, before: f64, after: f64 },
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Losses { before, after } => write!(f, "losses rose from {before:.0}/s to {after:.0}/s"),
            Self::Throughput { before, after } => {
                write!(f, "throughput fell from {before:.0}/s to {after:.0}/s although packets waited")
            }
            Self::MovedEntries { cpu, before, after } => {
                write!(f, "what went to CPU {cpu} fell from {before:.0}/s to {after:.0}/s, the rest did not")
            }
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |load: &f64| load * 100.0;
        match self {
            Self::Situation { to, cpus, .. } => match to {
                Situation::Fixed => write!(f, "entries stay where they are"),
                Situation::Parked => write!(f, "parked: no load, entries are spread for the next burst"),
                Situation::Coalesced => write!(f, "coalesced: one CPU processes all"),
                Situation::Spread => write!(f, "spread over {}", counted(*cpus, "CPU", "CPUs")),
                Situation::Saturated => {
                    write!(f, "saturated on {}: no move can help", counted(*cpus, "CPU", "CPUs"))
                }
            },
            Self::HoldDoubled { hold } => {
                write!(f, "fewer CPUs were too few: the next attempt waits {} s", hold.as_secs_f64())
            }
            Self::HoldReset { hold } => write!(f, "fewer CPUs are tried after {} s again", hold.as_secs_f64()),
            Self::BudgetUsedUp { waiting } => {
                write!(f, "{} put off: the moves of this minute are used up", counted(*waiting, "move", "moves"))
            }
            Self::Settings { mode, differences } => {
                write!(f, "settings in force changed: mode {mode}")?;
                if differences.is_empty() {
                    write!(f, ", all as requested")?;
                }
                differences.iter().try_for_each(|difference| write!(f, "; {difference}"))
            }
            Self::Elephant { entry, cpu, load } => write!(
                f,
                "entry {entry} needs {:.0} % of a CPU and fills CPU {cpu}: an entry cannot be divided",
                percent(load)
            ),
            Self::DistributionLimit { cpu, load } => write!(
                f,
                "base CPU {cpu} is full, {:.0} % of it with distributing: only hardware that places packets can do more",
                percent(load)
            ),
            Self::NoCpuLeft { cpus } => {
                write!(f, "all {} that may be used are full", counted(*cpus, "CPU", "CPUs"))
            }
            Self::CpuGone { cpu, entries } => {
                write!(f, "CPU {cpu} cannot be used any more: {} moved", counted(*entries, "entry", "entries"))
            }
            Self::BaseMoved { from, to, other } => {
                write!(
                    f,
                    "base moved from CPU {from} to {to}: {:.0} % of CPU {from} is busy with other work",
                    percent(other)
                )
            }
            Self::Undone { moves, reason } => {
                write!(f, "{} taken back: {reason}", counted(*moves, "move", "moves"))
            }
            Self::Refused { entry: Some(entry), at, asked } => {
                write!(f, "entry {entry} stays on CPU {at}: its move to CPU {asked} was refused")
            }
            Self::Refused { entry: None, at, asked } => {
                write!(f, "the base stays on CPU {at}: its move to CPU {asked} was refused")
            }
            Self::Polling { in_place, why } => {
                let how = if *in_place {
                    "queues are polled in place, by the CPUs that packets reach first, without threads"
                } else {
                    "threads poll the queues"
                };
                match why {
                    PollingReason::Coalesced => write!(f, "{how}: one CPU is enough"),
                    PollingReason::Hot => write!(f, "{how}: a CPU is full, and others have room"),
                    PollingReason::Parked => write!(f, "{how}: they are spread for the next burst"),
                    PollingReason::Settings => write!(f, "{how}, as the settings in force ask for"),
                    PollingReason::Trial => write!(f, "{how}, to see what that carries: all CPUs are full"),
                    PollingReason::Measured { with, without } => {
                        write!(f, "{how}: {with:.0} packets/s with threads, {without:.0} without")
                    }
                }
            }
            Self::BaseSeen { from, to } => {
                write!(f, "packets come to CPU {to} first, no longer to CPU {from}: it is the base now")
            }
            Self::Effect { cpu, entries, base, predicted, measured } => {
                let what = match (*base, entries.as_slice()) {
                    (true, []) => "the base".to_owned(),
                    (true, entries) => format!("the base and entries {}", list(entries)),
                    (false, [entry]) => format!("entry {entry}"),
                    (false, entries) => format!("entries {}", list(entries)),
                };
                write!(
                    f,
                    "CPU {cpu} is {:.0} % busy after {what} went there, {:.0} % predicted",
                    percent(measured),
                    percent(predicted)
                )
            }
        }
    }
}
