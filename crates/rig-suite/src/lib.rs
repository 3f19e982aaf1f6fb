//! What is asked: suites ([`suite`]), checks of procedures ([`checks`]), and what a run was asked to do ([`options`]), also where
//! it is a test between two machines ([`ends`]).
#![forbid(unsafe_code)]

pub mod checks;
pub mod ends;
pub mod options;
pub mod pairs;
pub mod suite;
