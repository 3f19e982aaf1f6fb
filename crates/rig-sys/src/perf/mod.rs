//! Where CPUs spend their time: stacks sampled on a clock (perf_event_open(2)).
//!
//! Built on perf-event2, which is kept up, covers the whole system call and keeps the ring's memory ordering and the
//! record formats out of this crate; linux-perf-event-reader only reads records, and perf-event-open wants
//! the kernel's version chosen when it is built.

mod read;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

use crate::cpu::CpuSet;
use crate::error::{During, Error, Result};

/// Of each CPU: a second's worth of the deepest stacks (127 frames) at 400 Hz.
const RING: usize = 512 * 1024;

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
    /// Samples for which there was no room.
    pub lost: u64,
    /// Times that the kernel held samples back because they took too much time.
    pub throttled: u64,
}

/// Samples all tasks on some CPUs until it is told to finish.
///
/// The clock is the kernel's high-resolution timer (PERF_COUNT_SW_CPU_CLOCK), which virtual machines have, too. It goes on
/// in interrupts and with interrupts off only as far as the timer itself is served: time with interrupts off is counted
/// where they are switched on again. User stacks are followed by frame pointers and end where a function was built
/// without them.
#[derive(Debug)]
pub struct Sampling {
    stop: Arc<AtomicBool>,
    reader: JoinHandle<Samples>,
}

impl Sampling {
    /// Begins to take `hertz` samples a second on each of `cpus`. Samples are read by a thread that runs where the caller
    /// may.
    ///
    /// # Errors
    /// When the kernel has no perf events, does not grant them (root or CAP_PERFMON is needed, or a
    /// `kernel.perf_event_paranoid` below 1), `hertz` is above `kernel.perf_event_max_sample_rate`, or a CPU is not there.
    pub fn start(cpus: &CpuSet, hertz: u32) -> Result<Self> {
        if cpus.is_empty() || hertz == 0 {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::new(format!("sample stacks on CPUs '{cpus}' at {hertz} Hz"), error));
        }
        let rings = cpus.as_slice().iter().map(|&cpu| Ok((cpu, open(cpu, hertz)?)));
        let mut rings = rings.collect::<Result<Vec<_>>>()?;
        for (cpu, ring) in &mut rings {
            ring.enable().during(|| format!("begin to sample the stacks of CPU {cpu}"))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let reader = std::thread::Builder::new().name("netrig-stacks".into());
        let reader = reader.spawn({
            let stop = Arc::clone(&stop);
            move || read::until(&stop, rings)
        });
        Ok(Self { stop, reader: reader.during(|| "start the thread that reads stacks".into())? })
    }

    /// Ends it.
    ///
    /// # Errors
    /// When the thread that reads samples has died.
    pub fn finish(self) -> Result<Samples> {
        self.stop.store(true, Ordering::Release);
        self.reader.thread().unpark();
        let died = |_| io::Error::other("the thread that reads them has died");
        self.reader.join().map_err(died).during(|| "read sampled stacks".into())
    }
}

/// Whether [`Sampling::start`] would work here, tried on one of the CPUs that the caller may use.
///
/// # Errors
/// As there.
pub fn probe() -> Result<()> {
    let cpus = CpuSet::allowed()?;
    let first = cpus.as_slice().iter().copied().take(1);
    first.map(|cpu| open(cpu, 99)).try_for_each(|ring| ring.map(drop))
}

fn open(cpu: u32, hertz: u32) -> Result<Sampler> {
    let event = Builder::new(Software::CPU_CLOCK)
        .any_pid()
        .one_cpu(cpu as usize)
        .include_kernel()
        .sample_frequency(hertz.into())
        .sample(SampleFlag::TID | SampleFlag::CALLCHAIN)
        .build();
    event.and_then(|event| event.sampled(RING)).map_err(|source| {
        let reason = reason(source.raw_os_error());
        Error::new(format!("sample the stacks of CPU {cpu} at {hertz} Hz{reason}"), source)
    })
}

/// What the errno means here, and what to do, to be read before the kernel's own words.
fn reason(errno: Option<i32>) -> String {
    let sysctl = |name: &str| {
        let value = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        format!("kernel.{name} (now {})", value.trim())
    };
    match errno {
        Some(libc::EACCES | libc::EPERM) => {
            format!(" (run as root, give CAP_PERFMON, or set {} below 1)", sysctl("perf_event_paranoid"))
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
        assert!(why.contains("kernel.perf_event_paranoid (now") && why.contains("CAP_PERFMON"), "{why}");
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
