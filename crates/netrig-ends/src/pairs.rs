//! Tests between all pairs of several hosts: in which order, what they found, and their report.

pub mod figures;
mod pods;
pub mod report;
pub mod rounds;
