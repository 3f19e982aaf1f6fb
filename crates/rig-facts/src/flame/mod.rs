//! Flame graphs: where CPUs spent their time, sampled, named and drawn.

mod draw;
mod fold;
mod symbols;
mod whose;

use std::collections::HashSet;

use rig_sys::cpu::CpuSet;
use rig_sys::perf::{self, Clock, Samples, Sampling};

use self::symbols::Addresses;
use crate::record::Profile;

pub use draw::{FlameError, ProfilePair, height, svg, svg_of_change};
pub(crate) use fold::SOFTIRQS;
pub use fold::{FoldedStacks, IDLE, KERNEL, OTHER, OTHER_PROGRAMS, PROGRAM};

/// Samples a second on each CPU: odd, so that they do not keep step with the kernel's ticks.
pub const HERTZ: u32 = 499;

/// Samples some CPUs until it is told to stop.
#[derive(Debug)]
pub struct Profiler {
    cpus: CpuSet,
    hertz: u32,
    /// Or why there is none.
    sampling: Result<Sampling, String>,
}

impl Profiler {
    /// Begins to take `hertz` samples a second of all processes on `cpus`; [`HERTZ`] is a good number.
    ///
    /// # Errors
    /// When the machine does not let stacks be sampled; the error names the CPU, the reason and what to do.
    pub fn start(cpus: &CpuSet, hertz: u32) -> rig_sys::Result<Self> {
        Ok(Self { cpus: cpus.clone(), hertz, sampling: Ok(Sampling::start(cpus, hertz)?) })
    }

    /// [`Self::start`] for callers that go on without samples: where the machine does not let stacks be sampled, the profile is
    /// empty and notes why.
    pub fn attempt(cpus: &CpuSet, hertz: u32) -> Self {
        Self::start(cpus, hertz).unwrap_or_else(|error| Self {
            cpus: cpus.clone(),
            hertz,
            sampling: Err(error.to_string()),
        })
    }

    /// Finds out whether `cpus` can be sampled by cycles. The first time this takes some milliseconds of each CPU, so call it before
    /// a measurement.
    pub fn prepare(cpus: &CpuSet) {
        // Without cycles it is sampled by the kernel's timer.
        let _ = perf::cycles(cpus);
    }

    /// Stops sampling, finds the files that hold the processes' code, and which processes are this program's. Call it before these
    /// processes end.
    ///
    /// # Errors
    /// When the samples could not be read.
    pub fn stop(self) -> rig_sys::Result<ProfileRecording> {
        let taken = match self.sampling {
            Ok(sampling) => {
                let clock = sampling.clock();
                let samples = sampling.finish()?;
                let addresses = Addresses::of(samples.stacks.keys());
                let others = whose::others(samples.stacks.keys());
                Ok(ProfileSamples { clock, samples, addresses, others })
            }
            Err(why) => Err(why),
        };
        Ok(ProfileRecording { cpus: self.cpus, hertz: self.hertz, taken })
    }
}

/// What was sampled, without names yet.
#[derive(Debug)]
pub struct ProfileRecording {
    cpus: CpuSet,
    hertz: u32,
    taken: Result<ProfileSamples, String>,
}

#[derive(Debug)]
struct ProfileSamples {
    clock: Clock,
    samples: Samples,
    addresses: Addresses,
    /// Processes of other programs.
    others: HashSet<u32>,
}

impl ProfileRecording {
    /// Gives addresses their names. That takes some tenths of a second of CPU time, which a load that still runs may have
    /// to go without: call it when there is none, but before the BPF programs go whose names matter.
    pub fn profile(self) -> Profile {
        let cpus = self.cpus.clone();
        self.folded().profile(&cpus)
    }

    /// [`Self::profile`] of each CPU, with all its stacks.
    pub fn folded(self) -> FoldedStacks {
        match self.taken {
            Ok(taken) => FoldedStacks::new(&taken.samples, taken.addresses, &taken.others, (taken.clock, self.hertz)),
            Err(why) => FoldedStacks::nothing(self.hertz, format!("No stacks could be sampled: {why}.")),
        }
    }
}

#[cfg(test)]
mod tests;
