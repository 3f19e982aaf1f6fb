//! All tests of this crate that stand outside of it: one executable, which is linked once.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

mod balancer;
mod cputime;
mod endtoend;
mod napi;
mod old;
mod pool;
mod steer;
mod vrouter;
