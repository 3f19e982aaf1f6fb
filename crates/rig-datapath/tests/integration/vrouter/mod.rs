//! The vRouter's programs, given packets and put on interfaces.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics is a test that fails")]

mod bytes;
mod captures;
mod cases;
mod changes;
mod claims;
mod copies;
mod differential;
mod flood;
mod flows;
mod lab;
mod outer;
mod packets;
mod pieces;
mod settings;
mod shares;
mod sources;
mod told;
mod traces;
mod traffic;
mod watched;

use super::balancer::frames;
