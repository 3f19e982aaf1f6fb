//! Numbers: samples, confidence intervals, comparison, units. No clock, no I/O.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod compare;
pub mod confidence;
pub mod histogram;
pub mod propagate;
mod resample;
pub mod sample;
pub mod series;
pub mod share;
pub mod units;

#[cfg(test)]
mod normal;
