//! `netrig ntttcp` against itself, against recordings of the original, and, where it is on PATH, against the original.
//! All traffic is on loopback.

mod original;
mod own;
pub mod process;
mod recorded;
