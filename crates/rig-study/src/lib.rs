//! Suites and their runs: what is asked ([`suite`], [`claim`]), how it is measured ([`run`]), what is kept ([`record`],
//! [`store`]), and what it says ([`figures`], [`compare`]; [`view`] and [`export`] put a run together for readers and for
//! programs).
#![forbid(unsafe_code)]

pub mod answer;
mod asked_load;
pub mod calibrate;
pub mod checks;
pub mod claim;
pub mod compare;
pub mod ends;
pub mod export;
pub mod figures;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod flame;
pub mod judge;
pub mod layers;
pub mod programme;
pub mod record;
pub mod run;
pub mod store;
pub mod suite;
pub mod view;
