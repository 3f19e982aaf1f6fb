//! Where CPUs spend their time: stacks sampled by cycles or on a clock (perf_event_open(2)).
//!
//! Built on perf-event2, which is kept up, covers the whole system call and keeps the ring's memory ordering and the
//! record formats out of this crate; linux-perf-event-reader only reads records, and perf-event-open wants
//! the kernel's version chosen when it is built.

mod cycles;
mod read;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use perf_event::events::{Hardware, Software};
use perf_event::{Builder, SampleFlag, Sampler};
use serde::{Deserialize, Serialize};

use crate::advice::{self, Capability};
use crate::cpu::CpuSet;
use crate::error::{Error, ErrorContext, Result};

/// Of each CPU: a second's worth of the deepest stacks (127 frames) at 400 Hz.
const RING: usize = 512 * 1024;

/// The event that samples are taken by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// So many cycles of the CPU (PERF_COUNT_HW_CPU_CYCLES), a fixed number: each sample stands for the same number of them. A halted CPU
    /// has none. Where they interrupt by NMI, as on x86, code with interrupts off is sampled, too.
    Cycles,
    /// The kernel's high-resolution timer (PERF_COUNT_SW_CPU_CLOCK), which virtual machines have, too, and which goes on while a CPU
    /// idles. It goes on in interrupts and with interrupts off only as far as the timer itself is served: time with interrupts off
    /// is counted where they are switched on again.
    #[default]
    CpuClock,
}

impl Clock {
    /// The clock's name in a report.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cycles => "CPU cycles (PERF_COUNT_HW_CPU_CYCLES)",
            Self::CpuClock => "the kernel's timer (PERF_COUNT_SW_CPU_CLOCK)",
        }
    }
}

/// What a task was doing when a sample was taken. Addresses go from the innermost function outwards; all but the first of
/// a part are return addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stack {
    pub cpu: u32,
    /// Process and thread; 0 is a CPU's idle task.
    pub process: u32,
    pub thread: u32,
    pub kernel: Vec<u64>,
    pub user: Vec<u64>,
}

/// What was sampled.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    pub stacks: HashMap<Stack, u64>,
    /// Names of the threads that were seen, as they were when they were seen first.
    pub threads: HashMap<u32, String>,
    /// Samples in `stacks`.
    pub count: u64,
    /// Samples that were due and did not come, most of all because there was no room.
    pub lost: u64,
    /// Times that the kernel held samples back because they took too much time.
    pub throttled: u64,
}

/// Samples all tasks on some CPUs until it is told to finish.
///
/// By cycles where all the CPUs count them, by the kernel's timer otherwise ([`Clock`]). User stacks are followed by frame
/// pointers and end where a function was built without them.
#[derive(Debug)]
pub struct Sampling {
    clock: Clock,
    stop: Arc<AtomicBool>,
    /// `None` once it was waited for.
    reader: Option<JoinHandle<Samples>>,
}

impl Sampling {
    /// Begins to take `hertz` samples a second on each of `cpus`; by cycles so many of a second in which a CPU is busy, as fast as it
    /// was when it was first tried. Samples are read by a thread that runs where the caller may. [`cycles`] beforehand saves
    /// the CPUs the trial, some milliseconds of each.
    ///
    /// # Errors
    /// When the kernel has no perf events, does not grant them (root or CAP_PERFMON is needed, or a
    /// `kernel.perf_event_paranoid` below 1), `hertz` is above `kernel.perf_event_max_sample_rate`, or a CPU is not there.
    pub fn start(cpus: &CpuSet, hertz: u32) -> Result<Self> {
        if cpus.is_empty() || hertz == 0 {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::new(format!("sample stacks on CPUs '{cpus}' at {hertz} Hz"), error));
        }
        let by_cycles = || {
            let every = cycles::per_second(cpus)?.into_iter().map(|rate| (rate / u64::from(hertz)).max(1));
            let rings = cpus.as_slice().iter().zip(every).map(|(&cpu, period)| open(cpu, SamplingRate::Cycles(period)));
            rings.collect::<Result<Vec<_>>>()
        };
        let (clock, mut rings) = match by_cycles() {
            Ok(rings) => (Clock::Cycles, rings),
            Err(_) => {
                let rings = cpus.as_slice().iter().map(|&cpu| open(cpu, SamplingRate::Second(hertz)));
                (Clock::CpuClock, rings.collect::<Result<Vec<_>>>()?)
            }
        };
        for Ring { cpu, sampler, .. } in &mut rings {
            sampler.enable().during(|| format!("begin to sample the stacks of CPU {cpu}"))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::Builder::new().name("netrig-stacks".into());
        let reader = reader.spawn({
            let stop = Arc::clone(&stop);
            move || read::until(&stop, rings)
        });
        Ok(Self { clock, stop, reader: Some(reader.during(|| "start the thread that reads stacks".into())?) })
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Ends it.
    ///
    /// # Errors
    /// When the thread that reads samples has died.
    pub fn finish(mut self) -> Result<Samples> {
        self.stop();
        let samples = self.reader.take().and_then(|reader| reader.join().ok());
        let died = || io::Error::other("the thread that reads them has died");
        samples.ok_or_else(died).during(|| "read sampled stacks".into())
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(reader) = &self.reader {
            reader.thread().unpark();
        }
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether [`Sampling::start`] would work here, tried on one of the CPUs that the caller may use.
///
/// # Errors
/// Those of [`Sampling::start`].
pub fn probe() -> Result<()> {
    let cpus = CpuSet::allowed()?;
    let first = cpus.as_slice().iter().copied().take(1);
    first.map(|cpu| open(cpu, SamplingRate::Second(99))).try_for_each(|ring| ring.map(drop))
}

/// Whether `cpus` count cycles, by which [`Sampling`] then samples. Each CPU is tried once, by some milliseconds of work on it.
///
/// # Errors
/// Why not, by the first CPU that does not.
pub fn cycles(cpus: &CpuSet) -> Result<()> {
    cycles::per_second(cpus).map(drop)
}

/// How many samples there are.
#[derive(Debug, Clone, Copy)]
enum SamplingRate {
    /// One sample in so many cycles.
    Cycles(u64),
    /// So many samples in a second.
    Second(u32),
}

/// The samples of a CPU.
struct Ring {
    cpu: u32,
    sampler: Sampler,
    every: SamplingRate,
}

fn open(cpu: u32, every: SamplingRate) -> Result<Ring> {
    let mut event = match every {
        SamplingRate::Cycles(_) => Builder::new(Hardware::CPU_CYCLES),
        SamplingRate::Second(_) => Builder::new(Software::CPU_CLOCK),
    };
    match every {
        SamplingRate::Cycles(period) => event.sample_period(period),
        SamplingRate::Second(hertz) => event.sample_frequency(hertz.into()),
    };
    event.any_pid().one_cpu(cpu as usize).include_kernel().sample(SampleFlag::TID | SampleFlag::CALLCHAIN);
    let sampler = event.build().and_then(|event| event.sampled(RING)).map_err(|source| {
        let reason = reason(source.raw_os_error());
        let often = match every {
            SamplingRate::Cycles(period) => format!("each {period} cycles"),
            SamplingRate::Second(hertz) => format!("at {hertz} Hz"),
        };
        Error::new(format!("sample the stacks of CPU {cpu} {often}{reason}"), source)
    })?;
    Ok(Ring { cpu, sampler, every })
}

/// What the errno means here, and what to do, to be read before the kernel's own words.
fn reason(errno: Option<i32>) -> String {
    let sysctl = |name: &str| {
        let value = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        format!("kernel.{name} (now {})", value.trim())
    };
    match errno {
        Some(libc::EACCES | libc::EPERM) => {
            let rights = advice::rights(&[Capability::Perfmon]);
            format!(" ({rights}, or set {} below 1)", sysctl("perf_event_paranoid"))
        }
        Some(libc::ENODEV | libc::ENXIO) => " (there is no such CPU, or it is switched off)".into(),
        Some(libc::EINVAL) => {
            format!(" (no such CPU, or more than {} allows)", sysctl("perf_event_max_sample_rate"))
        }
        Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP) => " (a kernel with CONFIG_PERF_EVENTS is needed)".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_cannot_be_sampled_is_named() {
        let nothing = Sampling::start(&CpuSet::default(), 99).unwrap_err();
        assert!(nothing.to_string().contains("CPUs ''"), "{nothing}");
        let no_such = Sampling::start(&CpuSet::new([CpuSet::MAX]), 99).unwrap_err();
        assert!(no_such.to_string().contains("CPU 1023"), "{no_such}");
        let why = reason(Some(libc::EACCES));
        assert!(why.contains("kernel.perf_event_paranoid (now"), "{why}");
        assert!(why.contains(&advice::rights(&[Capability::Perfmon])), "{why}");
    }

    #[test]
    fn a_busy_thread_is_seen() {
        if let Err(error) = probe() {
            return rig_skip::skip(rig_skip::Lack::Sampling, error);
        }
        let cpus = CpuSet::allowed().unwrap();
        let sampling = Sampling::start(&cpus, 499).unwrap();
        // Of this thread's own CPU time, however loaded the machine is.
        let spent = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let (begin, limit) = (spent(), Instant::now() + Duration::from_secs(60));
        let far = |now: rustix::time::Timespec| {
            (now.tv_sec - begin.tv_sec) * 1_000_000_000 + (now.tv_nsec - begin.tv_nsec) > 400_000_000
        };
        while !far(spent()) && Instant::now() < limit {
            std::hint::spin_loop();
        }
        let clock = sampling.clock();
        assert_eq!(clock == Clock::Cycles, cycles(&cpus).is_ok());
        println!("sampled by {}: {:?}", clock.title(), cycles(&cpus));
        let samples = sampling.finish().unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let of_this: u64 = samples.stacks.iter().filter(|(stack, _)| stack.thread == own).map(|(_, count)| count).sum();
        assert!(of_this > 20, "{of_this} samples of {}", samples.count);
        assert_eq!(samples.count, samples.stacks.values().sum::<u64>());
        assert!(samples.threads.contains_key(&own), "{:?}", samples.threads);
        let user = samples.stacks.keys().any(|stack| stack.thread == own && !stack.user.is_empty());
        assert!(user, "no address of the busy loop");
    }
}
