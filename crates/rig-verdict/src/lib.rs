//! What stored runs say: claims judged ([`judge`]), a run put together for readers and for programs ([`stored`], [`view`], [`export`]), two
//! runs compared ([`compare`]).
#![forbid(unsafe_code)]

pub mod answer;
pub mod calibrate;
pub mod compare;
pub mod export;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod judge;
mod no_verdict;
pub mod stored;
pub mod tool;
pub mod view;
