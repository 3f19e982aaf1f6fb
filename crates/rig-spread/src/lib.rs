//! Which CPU processes which packets: the policy of the receive spreader, and its simulator. No clock, no I/O.
//!
//! Packets of an interface fall into **entries** by a hash of their flow, and each entry has a CPU that processes them.
//! [`plan()`] decides which entry moves where: spread over CPUs under load, all on one CPU when that will do, and, with no
//! load, **parked**: spread ahead, so that the next burst finds many CPUs at once. What decides is a pure function of what
//! was seen, so that a daemon, the simulator (`simulate`) and the replay of a recorded trace ([`trace`]) do the same.
//!
//! Words, as Windows has them: the **base** CPU is the one that all packets reach first. Where packets are distributed by
//! software, it spends time on **distributing** those of all other CPUs, beside **processing** its own. A **queue pair** is
//! a CPU that entries may be on.
//!
//! Times are [`Duration`](std::time::Duration)s since any fixed moment, the same for all calls. Loads and fills are
//! fractions of one CPU.
#![forbid(unsafe_code)]

mod average;
pub mod effective;
pub mod event;
pub mod history;
pub mod machine;
mod nanos;
pub mod observation;
pub mod plan;
pub mod settings;
pub mod simulate;
pub mod state;
pub mod trace;

pub use effective::{Config, Difference, EffectiveSettings, LastingDifference, carry_over, effective};
pub use event::{Event, Move, MoveReason, PollingReason, Situation};
pub use history::History;
pub use machine::{Abilities, Cpu, Machine, Order};
pub use observation::{CpuObservation, EntryObservation, Observation};
pub use plan::plan;
pub use settings::{Mode, Settings, Tuning};
pub use state::State;
