//! Runs: trials in shuffled blocks on a testbed, until the figures are certain or the claims decided.
#![forbid(unsafe_code)]

pub mod run;
