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
    /// Or why there is none.
    sampling: Result<Sampling, String>,
}

impl Profiler {
    /// Begins to take `hertz` samples a second of whatever runs on `cpus`; [`HERTZ`] is a good number.
    ///
    /// # Errors
    /// When the machine does not let stacks be sampled; the error names the CPU, the reason and what to do.
    pub fn start(cpus: &CpuSet, hertz: u32) -> rig_sys::Result<Self> {
        Ok(Self { cpus: cpus.clone(), hertz, sampling: Ok(Sampling::start(cpus, hertz)?) })
    }

    /// [`Self::start`] for those who go on without: where the machine does not let stacks be sampled, the profile is empty
    /// and notes why.
    pub fn attempt(cpus: &CpuSet, hertz: u32) -> Self {
        Self::start(cpus, hertz).unwrap_or_else(|error| Self {
            cpus: cpus.clone(),
            hertz,
            sampling: Err(error.to_string()),
        })
    }

    /// Ends it and gives addresses their names, which needs the processes, and the BPF programs, that ran: call it before
    /// they are ended. Naming takes some tenths of a second of CPU time: call it after the window.
    ///
    /// # Errors
    /// When the samples could not be read.
    pub fn finish(self) -> rig_sys::Result<Profile> {
        match self.sampling {
            Ok(sampling) => Ok(fold::profile(&sampling.finish()?, &self.cpus, self.hertz)),
            Err(why) => Ok(Profile {
                hertz: self.hertz,
                cpus: self.cpus.as_slice().to_vec(),
                notes: vec![format!("No stacks could be sampled: {why}.")],
                ..Profile::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests;
