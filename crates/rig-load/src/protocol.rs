//! What a worker and its driver say to each other: one JSON value a line, orders on the worker's standard input,
//! events on its standard output.
//!
//! ```text
//! driver                      listening worker         connecting worker
//!   Order::Plan  ------------------->
//!                <--- Event::Listening
//!   Order::Plan  ------------------------------------------->
//!                <----------------------------- Event::Connected
//!                <--- Event::Connected
//!   Order::Go    ------------------->------------------------>
//!                <--- Event::Sample (each interval) ----------
//!                <--- Event::Done ----------------------------
//! ```
//! Closing the worker's standard input makes it stop at once, at any point.

use serde::{Deserialize, Serialize};

use crate::plan::WorkerPlan;
use crate::record::{Sample, WorkerRecord};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Plan(WorkerPlan),
    /// Start of the warm-up, in nanoseconds of CLOCK_MONOTONIC; the phases follow from it.
    Go {
        start_ns: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    Listening {
        port: u16,
    },
    /// All connections stand.
    Connected,
    Sample(Sample),
    Done(Box<WorkerRecord>),
    /// The worker gives up. `what` names the operation and the object, `why` the kernel's or the peer's reason.
    Failed {
        what: String,
        why: String,
    },
}
