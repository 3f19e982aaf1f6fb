//! The module's parts together.

mod controls;
mod layouts;
mod lines;
