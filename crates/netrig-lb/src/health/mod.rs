//! Health checks: which backends answer, and what weights follow from it.
//!
//! ```text
//! check (what settings say) ──> checker (one thread: schedule, probe) ──> board (state of each backend)
//! counters of clients' connections ──> outlier (suspects) ── own_connection (to a suspect) ──> outlier (ejections)
//! board + outlier + rules ──> pool (quorum, sorry servers, slow start) ──> weights in force
//! ```

pub mod board;
pub mod check;
pub mod checker;
pub mod direct;
pub mod outlier;
pub mod own_connection;
pub mod pool;
mod probe;
mod schedule;
pub mod state;
