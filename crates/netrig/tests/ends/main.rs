//! Tests between two ends: real servers and clients, each a process, on loopback; and everything a client may do that it
//! should not. Nothing here needs privileges.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

mod counted;
mod endings;
mod held;
mod hostile;
mod kept;
mod keys;
mod lab;
mod words;
#[path = "../machine/world.rs"]
#[allow(dead_code, reason = "made for more tests than these")]
mod world;
mod zones;
