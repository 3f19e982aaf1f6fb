//! Load in, facts out.
//!
//! A [`plan::WorkerPlan`] says what one worker process shall send or receive; a [`record::WorkerRecord`] says what
//! happened in the window. The crate knows no scenario, no testbed and no datapath: its caller puts the
//! worker process into a namespace and speaks [`protocol`] with it.

#![forbid(unsafe_code)]

pub mod command;
pub mod driver;
mod engine;
pub mod exchange;
mod greeting;
mod listener;
pub mod plan;
pub mod protocol;
pub mod record;
mod socket_options;
mod wait;
pub mod worker;
