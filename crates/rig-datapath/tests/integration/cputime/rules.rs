//! What is counted to what, and where.

use std::time::{Duration, Instant};

use rig_datapath::cputime::{CpuTime, Kind, Times};

use super::{attach, between, stay_on_one_cpu};

/// The times of a CPU that this thread keeps busy, with other work of the machine among them.
fn at_work(counting: &CpuTime, cpu: u32) -> Times {
    let begin = counting.read().unwrap();
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {}
    between(&begin, &counting.read().unwrap(), cpu)
}

#[test]
fn interrupts_that_meet_work_count_to_it_unless_they_are_asked_for() {
    let Some((mut counting, _alone)) = attach() else { return };
    let cpu = stay_on_one_cpu();
    let _ = rustix::process::nice(-20);
    let together = at_work(&counting, cpu);
    // Other processes on this CPU may leave it idle in between.
    if together.of(Kind::Idle) == 0 {
        assert_eq!(together.of(Kind::HardInterrupt), 0);
    }
    counting.count_interrupts(true).unwrap();
    let apart = at_work(&counting, cpu);
    // The timer's, at least 100 a second; on ARM it is a device, whose interrupts have a tracepoint of their own.
    if counting.missing().is_empty() {
        assert!(apart.of(Kind::HardInterrupt) > 0, "no interrupt in 300 ms");
    }
    for times in [together, apart] {
        assert!(times.total().abs_diff(times.at) <= times.at / 1000, "{} of {} ns", times.total(), times.at);
        assert!(times.measured > 0 && times.overhead() > 0, "{} events", times.events);
    }
    counting.count_interrupts(false).unwrap();
    let again = at_work(&counting, cpu);
    assert!(again.of(Kind::Idle) > 0 || again.of(Kind::HardInterrupt) == 0);
}

#[test]
fn cpus_that_nobody_asks_for_are_not_counted_and_can_be_again() {
    let Some((mut counting, _alone)) = attach() else { return };
    let cpu = stay_on_one_cpu();
    let all = counting.read().unwrap();
    counting.count_on(Some(&[])).unwrap();
    assert!(counting.read().unwrap().0.is_empty());
    counting.count_on(Some(&[cpu])).unwrap();
    let only = counting.read().unwrap();
    assert_eq!(only.0.keys().copied().collect::<Vec<_>>(), [cpu]);
    // What it did meanwhile is nowhere.
    let times = between(&all, &only, cpu);
    assert!(times.total() <= times.at, "{} of {} ns", times.total(), times.at);
    let times = at_work(&counting, cpu);
    assert!(times.total().abs_diff(times.at) <= times.at / 1000, "{} of {} ns", times.total(), times.at);
    counting.count_on(None).unwrap();
    assert_eq!(counting.read().unwrap().0.len(), all.0.len());
}
