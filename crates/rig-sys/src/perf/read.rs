//! Reading what the kernel wrote into the rings.

use std::collections::hash_map::Entry;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use perf_event::data::{Record, Sample};

use super::{Ring, Samples, SamplingRate, Stack};

/// Often enough that a full ring is rare even when this thread has to wait for its CPU.
const PAUSE: Duration = Duration::from_millis(50);

/// Not addresses, but marks of what the addresses behind them belong to (PERF_CONTEXT_* of linux/perf_event.h).
const MARKS: u64 = 4095_u64.wrapping_neg();
const USER: u64 = 512_u64.wrapping_neg();

/// Reads samples until `stop`, and then those that had come by then.
pub(super) fn until(stop: &AtomicBool, mut rings: Vec<Ring>) -> Samples {
    let mut samples = Samples::default();
    let mut came = vec![0; rings.len()];
    let mut drain = |rings: &mut [Ring], samples: &mut Samples| {
        rings.iter_mut().zip(&mut came).for_each(|(ring, came)| *came += drain(ring, samples));
    };
    while !stop.load(Ordering::Acquire) {
        drain(&mut rings, &mut samples);
        thread::park_timeout(PAUSE);
    }
    for ring in &mut rings {
        // One that cannot be stopped ends when it is closed.
        let _ = ring.sampler.disable();
    }
    drain(&mut rings, &mut samples);
    for (ring, came) in rings.iter_mut().zip(came) {
        if let (SamplingRate::Cycles(period), Ok(cycles)) = (ring.every, ring.sampler.read()) {
            samples.lost += missing(cycles, period, came);
        }
    }
    samples
}

/// Samples that so many cycles made due, and that neither came nor are known to be lost. The counter goes on a little behind the last one.
fn missing(cycles: u64, period: u64, came: u64) -> u64 {
    (cycles / period).saturating_sub(came + 1)
}

/// How many came or were lost.
fn drain(Ring { cpu, sampler, .. }: &mut Ring, samples: &mut Samples) -> u64 {
    let before = samples.count + samples.lost;
    while let Some(record) = sampler.next_record() {
        match record.parse_record() {
            Ok(Record::Sample(sample)) => samples.add(*cpu, &sample),
            Ok(Record::Lost(lost)) => samples.lost += lost.lost,
            Ok(Record::LostSamples(lost)) => samples.lost += lost.lost,
            Ok(Record::Throttle(_)) => samples.throttled += 1,
            Ok(_) => {}
            Err(_) => samples.lost += 1,
        }
    }
    samples.count + samples.lost - before
}

impl Samples {
    fn add(&mut self, cpu: u32, sample: &Sample<'_>) {
        let (Some(process), Some(thread)) = (sample.pid(), sample.tid()) else {
            self.lost += 1;
            return;
        };
        let (kernel, user) = parts(sample.callchain().unwrap_or_default());
        if let Entry::Vacant(new) = self.threads.entry(thread) {
            new.insert(name(process, thread));
        }
        *self.stacks.entry(Stack { cpu, process, thread, kernel, user }).or_default() += 1;
        self.count += 1;
    }
}

/// The addresses of the kernel and those of the process.
fn parts(chain: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut kernel, mut user) = (Vec::new(), Vec::new());
    let mut in_user = false;
    for &address in chain {
        match address {
            mark if mark >= MARKS => in_user = mark == USER,
            address if in_user => user.push(address),
            address => kernel.push(address),
        }
    }
    (kernel, user)
}

/// A thread that has already ended is called by its process's number.
fn name(process: u32, thread: u32) -> String {
    if process == 0 {
        return "swapper".to_owned();
    }
    let name = fs::read_to_string(format!("/proc/{process}/task/{thread}/comm"));
    name.map_or_else(|_| format!("[{process}]"), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_parted_at_its_marks() {
        let kernel = 128_u64.wrapping_neg();
        assert_eq!(parts(&[kernel, 9, 8, USER, 3, 2]), (vec![9, 8], vec![3, 2]));
        assert_eq!(parts(&[USER, 3]), (vec![], vec![3]));
        assert_eq!(parts(&[]), (vec![], vec![]));
    }

    #[test]
    fn cycles_without_their_samples_are_missing() {
        assert_eq!(missing(10_500, 1000, 10), 0);
        assert_eq!(missing(10_500, 1000, 9), 0);
        assert_eq!(missing(10_500, 1000, 4), 5);
        assert_eq!(missing(0, 1000, 1), 0);
    }

    #[test]
    fn a_thread_that_is_gone_is_called_by_its_number() {
        assert_eq!(name(0, 0), "swapper");
        assert_eq!(name(u32::MAX, u32::MAX), format!("[{}]", u32::MAX));
    }
}
