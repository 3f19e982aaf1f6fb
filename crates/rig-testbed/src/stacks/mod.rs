//! Where CPUs spend their time: their stacks, sampled, named and folded.

mod fold;
mod symbols;
mod whose;

use std::collections::HashSet;

use rig_sys::cpu::CpuSet;
use rig_sys::perf::{self, Clock, Samples, Sampling};

use self::symbols::Addresses;

pub use fold::{FoldedStacks, IDLE, KERNEL, OTHER, OTHER_PROGRAMS, PROGRAM, SOFTIRQS};

/// Samples some CPUs until it is told to stop.
#[derive(Debug)]
pub struct Profiler {
    hertz: u32,
    sampling: Sampling,
}

impl Profiler {
    /// Finds out whether `cpus` can be sampled by cycles. The first time this takes some milliseconds of each CPU, so call it before
    /// a measurement.
    ///
    /// # Errors
    /// When the machine does not let stacks be sampled at all.
    pub fn prepare(cpus: &CpuSet) -> rig_sys::Result<()> {
        perf::probe()?;
        // Without cycles it is sampled by the kernel's timer.
        let _ = perf::cycles(cpus);
        Ok(())
    }

    /// Begins to take `hertz` samples a second of all processes on `cpus`.
    ///
    /// # Errors
    /// When the machine does not let stacks be sampled; the error names the CPU, the reason and what to do.
    pub fn start(cpus: &CpuSet, hertz: u32) -> rig_sys::Result<Self> {
        Ok(Self { hertz, sampling: Sampling::start(cpus, hertz)? })
    }

    /// Stops sampling, finds the files that hold the processes' code, and which processes are this program's. Call it before these
    /// processes end.
    ///
    /// # Errors
    /// When the samples could not be read.
    pub fn stop(self) -> rig_sys::Result<ProfileRecording> {
        let Self { hertz, sampling } = self;
        let clock = sampling.clock();
        let samples = sampling.finish()?;
        let addresses = Addresses::of(samples.stacks.keys());
        let others = whose::others(samples.stacks.keys());
        Ok(ProfileRecording { hertz, clock, samples, addresses, others })
    }
}

/// What was sampled, without names yet.
#[derive(Debug)]
pub struct ProfileRecording {
    hertz: u32,
    clock: Clock,
    samples: Samples,
    addresses: Addresses,
    /// Processes of other programs.
    others: HashSet<u32>,
}

impl ProfileRecording {
    /// Gives addresses their names. That takes some tenths of a second of CPU time, which a load that still runs may have
    /// to go without: call it when there is none, but before the BPF programs go whose names matter.
    pub fn folded(self) -> FoldedStacks {
        FoldedStacks::new(&self.samples, self.addresses, &self.others, (self.clock, self.hertz))
    }
}
