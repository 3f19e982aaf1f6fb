//! The vRouter's programs, given packets and put on interfaces.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics is a test that fails")]

mod lab;
mod traffic;
