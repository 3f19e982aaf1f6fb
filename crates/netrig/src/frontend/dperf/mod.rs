//! dperf: its configuration language and its statistics, over netrig's packet engine.

mod check;
mod keywords;
pub mod language;
mod message;
mod resolve;
mod settings;
mod statistics;
#[cfg(test)]
mod tests;
mod values;
