//! A receive path in steps of a millisecond: flows, entries, CPUs with queues, a base that distributes, other work.
//!
//! What it is for: the policy on machines that are not there, against rules of other programs and against the fewest CPUs
//! that would have done. What it is not: a model of caches, of interrupts or of a scheduler. Packets are a fluid, a
//! queue is served in the proportions of what waits in it, and a flow that adapts is told of a queue when it is there.
//!
//! Every random number comes from a seed that is part of the scenario, so that a run can be had again.

pub mod guide;
mod hash;
pub mod oracle;
pub mod report;
mod rules;
mod run;
pub mod scenario;
pub mod scenarios;
mod world;

pub use report::{Report, Row, report};
pub use rules::Rule;
pub use run::{Sample, SimulationResult, run};
pub use scenario::{Change, Costs, CostsError, Flow, Port, Scenario, Step};
pub use scenarios::all;
