//! Numbers: samples, confidence intervals, comparison, units. No clock, no I/O.
#![forbid(unsafe_code)]

pub mod units;
