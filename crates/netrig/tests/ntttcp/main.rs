//! `netrig ntttcp` against itself, against recordings of the original, and, where it is on PATH, against the original.
//! All traffic is on loopback.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

mod original;
mod own;
mod process;
mod recorded;
