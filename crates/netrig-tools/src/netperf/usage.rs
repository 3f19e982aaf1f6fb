//! CPU time of the machine over a test: exact where the kernel lets it be counted, by clock ticks where it does not.

use rig_testbed::accounting::{CpuAccounting, CpuReading};

use super::wire::CpuShares;

/// How CPU time was found, in netperf's letter for Linux.
pub const METHOD: char = 'S';
/// It was not.
pub const NO_METHOD: char = 'U';

/// Counts from when it is made.
#[derive(Debug)]
pub struct Usage(CpuAccounting);

impl Usage {
    pub fn start() -> Self {
        Self(CpuAccounting::start())
    }

    /// The CPUs now.
    ///
    /// # Errors
    /// When /proc/stat cannot be read.
    pub fn read(&self) -> anyhow::Result<CpuReading> {
        self.0.read()
    }
}

/// What all CPUs did between two readings.
pub fn between(begin: &CpuReading, end: &CpuReading) -> CpuShares {
    let mut sum = CpuShares { peak_cpu: -1, ..CpuShares::default() };
    for cpu in begin.cpus(end) {
        let Some(shares) = begin.cpu_until(end, cpu) else { continue };
        let busy = shares.busy() as f32;
        // Idle time that waits for a disk, as ticks divide it.
        let waiting = |reading: &CpuReading| reading.ticks.get(&cpu).map_or((0, 0), |ticks| (ticks.idle, ticks.iowait));
        let ((idle0, wait0), (idle1, wait1)) = (waiting(begin), waiting(end));
        let (idle, wait) = (idle1.saturating_sub(idle0) as f64, wait1.saturating_sub(wait0) as f64);
        let part = if idle + wait > 0.0 { wait / (idle + wait) } else { 0.0 };
        sum.cpus += 1;
        sum.busy += busy;
        sum.user += shares.user as f32;
        sum.system += shares.system as f32;
        sum.iowait += (shares.idle * part) as f32;
        sum.irq += shares.irq as f32;
        sum.softirq += shares.softirq as f32;
        if busy >= sum.peak {
            (sum.peak, sum.peak_cpu) = (busy, cpu as i32);
        }
    }
    let cpus = sum.cpus.max(1) as f32;
    for value in [&mut sum.busy, &mut sum.user, &mut sum.system, &mut sum.iowait, &mut sum.irq, &mut sum.softirq] {
        *value /= cpus;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_means_of_all_cpus() {
        let usage = Usage::start();
        let begin = usage.read().unwrap();
        let until = rig_sys::clock::monotonic_ns() + 50_000_000;
        while rig_sys::clock::monotonic_ns() < until {}
        let shares = between(&begin, &usage.read().unwrap());
        assert!(shares.cpus >= 1 && shares.peak_cpu >= 0, "{shares:?}");
        assert!(shares.busy > 0.0 && shares.busy <= 100.0 && shares.peak >= shares.busy - 0.01, "{shares:?}");
    }
}
