//! The frame that all of netrig's line protocols have in common: a message is a JSON value on a line of its own.
//!
//! ```text
//! asking side                                   answering side
//!   Greeting { protocol, version, build } ------>
//!   <------ Greeting { protocol, version, build }
//!   Request { number: 0, request } ------------->
//!   <---------- Reply::Part { number: 0, value }      (any number, where an answer comes in parts)
//!   <-------- Reply::Answer { number: 0, value }      (or Reply::Refused { number: 0, why })
//!   Request { number: 1, request } ------------->
//!   <---------------------- Reply::Broken { why }     (the answering side does not understand, and ends)
//! ```
//! What requests and answers are is each protocol's. So is the longest line: who reads keeps no more than that. [`Lines`] takes
//! bytes as they come, for loops that must not wait; [`Reader`], [`Writer`] and [`Client`] wait, by anything that reads and
//! writes. How long they wait is decided by what they read from (a socket's timeout): this crate has no clock.

#![forbid(unsafe_code)]

mod client;
mod error;
mod greeting;
mod lines;
mod message;
mod refusal;
mod stream;

pub use client::Client;
pub use error::{Error, LostPeer};
pub use greeting::{Greeting, Protocol};
pub use lines::{LineTooLong, Lines};
pub use message::{Reply, Request, decode, encode, unknown_field};
pub use refusal::Refusal;
pub use stream::{Reader, Writer};
