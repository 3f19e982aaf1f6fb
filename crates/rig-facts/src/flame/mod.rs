//! Flame graphs: where CPUs spent their time, kept and drawn.

mod draw;
mod profile;

pub use draw::{FlameError, ProfilePair, height, svg, svg_of_change};
pub use rig_testbed::stacks::{FoldedStacks, IDLE, KERNEL, OTHER, OTHER_PROGRAMS, PROGRAM};

/// Samples a second on each CPU: odd, so that they do not keep step with the kernel's ticks.
pub const HERTZ: u32 = 499;

#[cfg(test)]
mod tests;
