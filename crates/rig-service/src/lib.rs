//! The frame of netrig's services: where they are found, that there is one of each, what comes to them, how they are asked, and
//! their metrics.
//!
//! ```text
//! Client ── lines ──> Unix socket, or standard streams ──> serve ──> Service
//!                     signals, metrics, the kernel ───────┘
//! ```
#![forbid(unsafe_code)]

pub mod bpf_file_system;
pub mod calls;
pub mod client;
mod connections;
mod deadline;
pub mod files;
pub mod http;
pub mod lock;
pub mod log;
pub mod manager;
pub mod openmetrics;
pub mod protocol;
pub mod run_directory;
mod serve;
mod server;
pub mod service;

pub use client::{AskError, Client};
pub use protocol::{Counters, refusal};
pub use rig_lines::{LostPeer, Refusal};
pub use serve::{Started, serve, serve_on_stdio};
pub use service::{ClientGone, End, KernelEventFilter, Replies, Service, Waker};
