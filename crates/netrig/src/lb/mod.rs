//! `netrig lb`: the layer-4 balancer of rig-datapath as a service on this machine.
//!
//! ```text
//! netrig lb run FILE ── control plane: owns the tables, attaches, sweeps, serves ──┐
//! netrig lb -A/-a/-L ..., drops, trace ── one Request, one Reply, over a socket ───┘
//! ```
//!
//! All changes go through the control plane, which alone writes the tables; [`message`] is what is said over the socket.

pub mod client;
pub mod command;
pub mod control;
mod daemon;
mod ipvsadm;
pub mod message;
pub mod place;
pub mod settings;
mod views;
