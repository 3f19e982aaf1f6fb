//! Whether a CPU counts cycles and interrupts for them, which few virtual machines' CPUs do.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use perf_event::events::Hardware;
use perf_event::{Builder, SampleFlag};
use rustix::time::{ClockId, clock_gettime};

use crate::cpu::{CpuSet, set_affinity};
use crate::error::{Error, Result};

/// CPU time that a trial takes, and how long it is waited for.
const SPENT: Duration = Duration::from_millis(5);
const WAITED: Duration = Duration::from_secs(2);
/// Between two interrupts of a trial: some fifty of any CPU.
const PERIOD: u64 = 200_000;
const RING: usize = 64 * 1024;

/// What was found of each CPU: cycles a second of a busy one, or why there are none.
static FOUND: Mutex<BTreeMap<u32, Result<u64, String>>> = Mutex::new(BTreeMap::new());

/// The cycles that each of `cpus` counts in a second while it is busy, tried once in the life of the process.
///
/// # Errors
/// Why one of them gives none: no counter, or one that stands still or does not interrupt.
pub(super) fn per_second(cpus: &CpuSet) -> Result<Vec<u64>> {
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let mut of = |&cpu: &u32| {
        let rate = found.entry(cpu).or_insert_with(|| on(cpu)).clone();
        rate.map_err(|why| Error::new(format!("count the cycles of CPU {cpu}"), io::Error::other(why)))
    };
    cpus.as_slice().iter().map(&mut of).collect()
}

/// [`measure`] on a CPU by a thread that goes away, for its place would stay.
fn on(cpu: u32) -> Result<u64, String> {
    let thread = std::thread::Builder::new().name("netrig-cycles".into()).spawn(move || {
        set_affinity(&[cpu]).map_err(|error| error.to_string())?;
        measure(cpu).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
                "the CPU, or the hypervisor, gives no counter".to_owned()
            }
            _ => error.to_string(),
        })
    });
    let thread = thread.map_err(|error| error.to_string())?;
    thread.join().unwrap_or_else(|_| Err("the thread that does has died".to_owned()))
}

/// What the calling thread counts of itself.
fn measure(cpu: u32) -> io::Result<u64> {
    let event = Builder::new(Hardware::CPU_CYCLES)
        .one_cpu(cpu as usize)
        .include_kernel()
        .sample_period(PERIOD)
        .sample(SampleFlag::TID)
        .build()?;
    let mut event = event.sampled(RING)?;
    event.enable()?;
    let (begin, limit) = (spent(), Instant::now() + WAITED);
    while spent().saturating_sub(begin) < SPENT && Instant::now() < limit {
        std::hint::spin_loop();
    }
    event.disable()?;
    let counted = event.read_count_and_time()?;
    let came = event.next_record().is_some();
    rate(counted.count, counted.time_running, came).map_err(io::Error::other)
}

/// Cycles a second, of `count` in so many nanoseconds of counting.
fn rate(count: u64, running_ns: u64, interrupted: bool) -> Result<u64, &'static str> {
    match u128::from(count) * 1_000_000_000 / u128::from(running_ns.max(1)) {
        _ if running_ns == 0 => Err("its counter is not free"),
        0 => Err("its counter stands still"),
        _ if !interrupted => Err("its counter does not interrupt"),
        rate => Ok(u64::try_from(rate).unwrap_or(u64::MAX)),
    }
}

/// CPU time of the calling thread.
fn spent() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_does_not_count_is_none() {
        assert_eq!(rate(10_000_000, 5_000_000, true), Ok(2_000_000_000));
        assert_eq!(rate(0, 0, false), Err("its counter is not free"));
        assert_eq!(rate(0, 5_000_000, false), Err("its counter stands still"));
        assert_eq!(rate(10_000_000, 5_000_000, false), Err("its counter does not interrupt"));
    }

    /// On a machine with or without a cycle counter: it is found once, and a CPU that is not there has none.
    #[test]
    fn cycles_are_plausible_or_it_is_said_why_there_are_none() {
        let cpus = CpuSet::allowed().unwrap();
        match (per_second(&cpus), per_second(&cpus)) {
            (Ok(first), Ok(again)) => {
                assert_eq!(first, again);
                assert!(first.iter().all(|rate| (50_000_000..10_000_000_000).contains(rate)), "{first:?}");
            }
            (Err(first), Err(again)) => {
                assert_eq!(first.to_string(), again.to_string());
                assert!(first.to_string().starts_with("count the cycles of CPU "), "{first}");
            }
            other => panic!("{other:?}"),
        }
        assert!(per_second(&CpuSet::new([CpuSet::MAX])).is_err());
    }
}
