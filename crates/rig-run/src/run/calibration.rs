//! A look at the machine itself before and after each trial: a fixed piece of work on each CPU of the nodes, alone and with all of
//! them at it, a copy in memory, and how long a sleeping thread takes to wake. What a hypervisor does to a virtual machine shows in it.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use rig_facts::record::{CalibrationTimes, Flag, TrialRecord};
use rig_stats::sample::Sample;
use rig_sys::cpu::{CpuSet, set_affinity};

/// Steps of the work: about a quarter of a millisecond.
const STEPS: u64 = 200_000;
/// The fastest of so many counts: what interrupts one seldom interrupts all.
const TRIES: u32 = 3;
/// How long threads wait for each other.
const ALL_AWAKE: Duration = Duration::from_millis(5);
const COPIED: usize = 2 << 20;
/// Times that two threads wake each other.
const WAKES: u32 = 24;
/// Trials before which nothing is known of what is usual.
const USUAL: usize = 4;
/// How far from what is usual in a run a machine is another one: its CPUs' speed, its memory's.
const CPU_APART: f64 = 0.10;
const MEMORY_APART: f64 = 0.30;
/// How much longer the work takes with all CPUs at it: by so much more or less, they share a core that they did not, or the other way
/// round. Two threads of one core take from about 1.3 to 2 times as long for arithmetic.
const SHARING_APART: f64 = 0.25;
/// A wake-up takes twice as long, or half: single ones scatter widely, their middle does not by so much.
const WAKE_APART: f64 = 1.0;

/// Gauges the machine on these CPUs. Where a thread cannot run on one, that one is left out.
pub fn gauge(cpus: &CpuSet) -> CalibrationTimes {
    let on = |cpu: u32, what: fn() -> u64| {
        let measured = thread::spawn(move || set_affinity(&[cpu]).ok().map(|()| what())).join();
        measured.ok().flatten()
    };
    let cpus = cpus.as_slice();
    let work = cpus.iter().filter_map(|&cpu| Some((cpu, on(cpu, work)?))).collect();
    let together_ns = together(cpus);
    let memory_ns = cpus.first().and_then(|&cpu| on(cpu, copy));
    let wake_ns = cpus.first().zip(cpus.last()).and_then(|(&one, &other)| wake(one, other));
    CalibrationTimes { work_ns: work, together_ns, memory_ns, wake_ns }
}

fn fastest(mut what: impl FnMut()) -> u64 {
    let time = |_| {
        let begin = Instant::now();
        what();
        begin.elapsed().as_nanos() as u64
    };
    (0..TRIES).map(time).min().unwrap_or(0)
}

/// Steps that depend on each other, so that no two go at once.
fn work() -> u64 {
    fastest(|| {
        let mut word = black_box(0x9E37_79B9_7F4A_7C15_u64);
        for _ in 0..STEPS {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
        }
        black_box(word);
    })
}

/// The work with all CPUs at it: virtual CPUs that are threads of one core are slower then. Empty where there are not two, or where
/// threads cannot run on all of them at once.
fn together(cpus: &[u32]) -> Vec<(u32, u64)> {
    if cpus.len() < 2 {
        return Vec::new();
    }
    (0..TRIES).find_map(|_| all_at_once(cpus)).unwrap_or_default()
}

/// `None` where one comes so late that the others would have had its time for themselves.
fn all_at_once(cpus: &[u32]) -> Option<Vec<(u32, u64)>> {
    let arrived = AtomicUsize::new(0);
    let on = |cpu: u32| {
        let is_there = set_affinity(&[cpu]).is_ok();
        arrived.fetch_add(1, Ordering::AcqRel);
        let begin = Instant::now();
        while arrived.load(Ordering::Acquire) < cpus.len() && begin.elapsed() < ALL_AWAKE {
            spin_loop();
        }
        let are_all = is_there && arrived.load(Ordering::Acquire) == cpus.len();
        are_all.then(|| (cpu, work()))
    };
    let on = &on;
    thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || on(cpu))).collect();
        threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
    })
}

fn copy() -> u64 {
    let from = vec![1u8; COPIED];
    let mut to = vec![0u8; COPIED];
    fastest(|| black_box(&mut to).copy_from_slice(black_box(&from)))
}

/// The middle time from one thread's word to another's hearing it, with the answer's way halved.
fn wake(one: u32, other: u32) -> Option<u64> {
    let ((there, heard), (back, answered)) = (sync_channel::<()>(0), sync_channel::<()>(0));
    let answering = thread::spawn(move || {
        let _ = set_affinity(&[other]);
        while heard.recv().is_ok() && back.send(()).is_ok() {}
    });
    let asking = thread::spawn(move || {
        set_affinity(&[one]).ok()?;
        let turn = |_| {
            let begin = Instant::now();
            there.send(()).ok()?;
            answered.recv().ok()?;
            Some(begin.elapsed().as_nanos() as f64 / 2.0)
        };
        (0..WAKES).map(turn).collect::<Option<Vec<f64>>>()
    });
    let times = asking.join().ok().flatten()?;
    answering.join().ok()?;
    Some(Sample::from(times).median()? as u64)
}

/// What is usual for the machine in a run, as far as it has gone.
#[derive(Debug, Default)]
pub(super) struct UsualTimes {
    work: Vec<f64>,
    memory: Vec<f64>,
    sharing: Vec<f64>,
    wake: Vec<f64>,
}

impl UsualTimes {
    /// Flags a trial whose machine was another one than that of most trials before it.
    pub fn flag(&mut self, trial: &mut TrialRecord) {
        let Some(calibration) = &trial.calibration else { return };
        let figures = [
            ("CPUs", calibration.work_ns(), &mut self.work, CPU_APART),
            ("memory", calibration.memory_ns(), &mut self.memory, MEMORY_APART),
            ("CPUs together", calibration.sharing(), &mut self.sharing, SHARING_APART),
            ("wake-up times", calibration.wake_ns(), &mut self.wake, WAKE_APART),
        ];
        let mut flags = Vec::new();
        for (what, value, before, apart) in figures {
            let Some(value) = value else { continue };
            let usual = Sample::from(before.clone()).median().filter(|_| before.len() >= USUAL);
            let change = usual.map_or(0.0, |usual| value / usual - 1.0);
            // As far by a factor either way: twice as long, or half.
            if change > apart || 1.0 / (1.0 + change) - 1.0 > apart {
                flags.push(Flag::OtherMachine { what: what.to_owned(), percent: change * 100.0 });
            }
            before.push(value);
        }
        trial.flags.extend(flags);
    }
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::{TrialOptions, trial};
    use rig_facts::record::Calibration;

    use super::*;

    #[test]
    fn this_machine_can_be_gauged() {
        let cpus = CpuSet::allowed().unwrap();
        let gauge = gauge(&cpus);
        assert_eq!(gauge.work_ns.len(), cpus.len());
        assert!(gauge.work_ns.iter().all(|(cpu, ns)| cpus.contains(*cpu) && *ns > 0));
        // All or none: other programs may keep one from coming in time.
        assert!([0, cpus.len()].contains(&gauge.together_ns.len()), "{gauge:?}");
        assert!(gauge.memory_ns.is_some_and(|ns| ns > 0) && gauge.wake_ns.is_some_and(|ns| ns > 0));
    }

    #[test]
    fn a_trial_on_another_machine_is_named() {
        let mut usual = UsualTimes::default();
        let mut flagged = |work: u64, together: u64, wake: u64| {
            let each = |ns| vec![(0, ns), (1, ns)];
            let (work_ns, together_ns) = (each(work), each(together));
            let gauge = CalibrationTimes { work_ns, together_ns, memory_ns: Some(1000), wake_ns: Some(wake) };
            let mut record = trial(&TrialOptions::default());
            record.calibration = Some(Calibration { before: gauge.clone(), after: gauge });
            usual.flag(&mut record);
            record.flags
        };
        let words = |what: &str| Flag::OtherMachine { what: what.into(), percent: 50.0 }.to_string();
        assert!(words("CPUs together").contains("its CPUs, all at work at once, were 50 % slower than"));
        assert!(words("wake-up times").contains("its waking of threads was 50 % slower than"));
        assert!(words("CPUs").contains("its CPUs were 50 % slower") && words("memory").contains("its memory was 50 %"));
        let other = |what: &str, percent| vec![Flag::OtherMachine { what: what.into(), percent }];
        for work in [200, 600, 201, 199, 200] {
            assert_eq!(flagged(work, work, 5000), [], "nothing is usual yet, or it is");
        }
        assert_eq!(flagged(250, 250, 5000), other("CPUs", 25.0));
        assert_eq!(flagged(208, 208, 9000), []);
        assert_eq!(flagged(200, 300, 5000), other("CPUs together", 50.0));
        assert_eq!(flagged(200, 200, 2000), other("wake-up times", -60.0));
    }
}
