//! The vRouter's programs, given packets and put on interfaces.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics is a test that fails")]

mod bytes;
mod captures;
mod cases;
mod claims;
mod copies;
mod differential;
mod flood;
mod flows;
#[path = "../balancer/frames.rs"]
#[allow(dead_code, reason = "the balancer's tests need more of them")]
mod frames;
mod lab;
mod outer;
mod packets;
mod pieces;
mod settings;
mod shares;
mod sources;
mod told;
mod traffic;
mod watched;
