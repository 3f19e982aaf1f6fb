//! Flame graphs: where CPUs spent their time, sampled, named and drawn.

mod draw;
mod fold;
mod symbols;

use rig_sys::cpu::CpuSet;
use rig_sys::perf::Sampling;

use crate::record::Profile;

pub use draw::{Unusable, height, svg};
pub use fold::{IDLE, KERNEL, OTHER, PROGRAM};

/// Samples a second on each CPU: odd, so that they do not keep step with the kernel's ticks.
pub const HERTZ: u32 = 499;

/// Samples some CPUs from its start to its finish.
#[derive(Debug)]
pub struct Profiler {
    cpus: CpuSet,
    hertz: u32,
    sampling: Sampling,
}

impl Profiler {
    /// Begins to take `hertz` samples a second of whatever runs on `cpus`; [`HERTZ`] is a good number.
    ///
    /// # Errors
    /// When the machine does not let stacks be sampled; the error names the CPU, the reason and what to do.
    pub fn start(cpus: &CpuSet, hertz: u32) -> rig_sys::Result<Self> {
        Ok(Self { cpus: cpus.clone(), hertz, sampling: Sampling::start(cpus, hertz)? })
    }

    /// Ends it and gives addresses their names, which needs the processes, and the BPF programs, that ran: call it before
    /// they are ended. Naming takes some tenths of a second of CPU time: call it after the window.
    ///
    /// # Errors
    /// When the samples could not be read.
    pub fn finish(self) -> rig_sys::Result<Profile> {
        let samples = self.sampling.finish()?;
        Ok(fold::profile(&samples, &self.cpus, self.hertz))
    }
}

#[cfg(test)]
mod tests;
