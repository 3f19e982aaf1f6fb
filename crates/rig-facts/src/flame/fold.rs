//! Stacks in the folded form of flame graphs, few enough to be kept.

use std::collections::{HashMap, HashSet};

use rig_sys::cpu::CpuSet;
use rig_sys::perf::{Clock, Samples, Stack};

use super::symbols::{Addresses, Names, UNKNOWN};
use crate::record::Profile;

/// Ends of names that say what a function is, as other tools write them.
pub const KERNEL: &str = "_[k]";
pub const PROGRAM: &str = "_[j]";
/// Stacks of a CPU that had nothing to do.
pub const IDLE: &str = "[idle]";
/// In front of the stacks of processes that are not this program's.
pub const OTHER_PROGRAMS: &str = "[other programs]";
/// Stacks that were too rare to be kept.
pub const OTHER: &str = "[other]";

/// Where softirqs are processed (kernel/softirq.c), by new kernels and old ones.
pub(crate) const SOFTIRQS: [&str; 2] = ["handle_softirqs", "__do_softirq"];

/// The most that a record keeps: stacks, and bytes of them.
const STACKS: usize = 2000;
const BYTES: usize = 256 * 1024;

/// All stacks with names.
#[derive(Debug, Default)]
pub struct FoldedStacks {
    pub hertz: u32,
    /// `None` where nothing could be sampled.
    pub clock: Option<Clock>,
    /// By CPU.
    stacks: HashMap<u32, HashMap<String, u64>>,
    /// Samples of idle tasks that did not wait, by CPU: they are under [`IDLE`].
    awake: HashMap<u32, u64>,
    pub lost: u64,
    pub notes: Vec<String>,
}

impl FoldedStacks {
    pub(super) fn new(
        samples: &Samples,
        addresses: Addresses,
        others: &HashSet<u32>,
        (clock, hertz): (Clock, u32),
    ) -> Self {
        let names = addresses.names();
        let mut new = Self { hertz, clock: Some(clock), lost: samples.lost, ..Self::default() };
        for (stack, count) in &samples.stacks {
            let mut text = fold(stack, clock, &names, &samples.threads);
            if text == IDLE && !waits(&names.kernel(stack), clock) {
                *new.awake.entry(stack.cpu).or_default() += count;
            }
            // A process outside of this container has no number, and unlike the kernel's threads code of its own.
            let is_outside = stack.process == 0 && !stack.user.is_empty();
            if text != IDLE && (is_outside || others.contains(&stack.process)) {
                text = format!("{OTHER_PROGRAMS};{text}");
            }
            *new.stacks.entry(stack.cpu).or_default().entry(text).or_default() += count;
        }
        new.notes = names.notes;
        if samples.throttled > 0 {
            new.notes.push(format!(
                "The kernel held samples back {} times (sysctl kernel.perf_cpu_time_max_percent).",
                samples.throttled
            ));
        }
        new
    }

    pub(super) fn nothing(hertz: u32, why: String) -> Self {
        Self { hertz, notes: vec![why], ..Self::default() }
    }

    /// The stacks of some CPUs with their counts, in no order: a stack may come more than once.
    pub fn of<'a>(&'a self, cpus: &'a CpuSet) -> impl Iterator<Item = (&'a str, u64)> {
        let own = cpus.as_slice().iter().filter_map(|cpu| self.stacks.get(cpu));
        own.flatten().map(|(stack, count)| (stack.as_str(), *count))
    }

    /// How many of the samples under [`IDLE`] found the idle task not waiting.
    pub fn awake(&self, cpus: &CpuSet) -> u64 {
        cpus.as_slice().iter().filter_map(|cpu| self.awake.get(cpu)).sum()
    }

    /// The stacks of some CPUs, as many as a record keeps.
    pub fn profile(&self, cpus: &CpuSet) -> Profile {
        let mut folded = HashMap::<String, u64>::new();
        self.of(cpus).for_each(|(stack, count)| *folded.entry(stack.to_owned()).or_default() += count);
        let samples = folded.values().sum();
        let (stacks, merged) = most_frequent(folded, STACKS, BYTES);
        let cpus = cpus.as_slice().to_vec();
        Profile {
            hertz: self.hertz,
            clock: self.clock,
            cpus,
            samples,
            lost: self.lost,
            stacks,
            merged,
            notes: self.notes.clone(),
        }
    }
}

/// From the outermost to the innermost: the thread, its functions, the kernel's.
fn fold(stack: &Stack, clock: Clock, names: &Names, threads: &HashMap<u32, String>) -> String {
    let kernel = names.kernel(stack);
    if stack.process == 0 && stack.user.is_empty() && is_idle_task(&kernel) && is_idle(&kernel, clock) {
        return IDLE.to_owned();
    }
    let thread = threads.get(&stack.thread).map_or(UNKNOWN, String::as_str).replace(';', ":");
    let user = names.user(stack);
    let frames = user.iter().rev().chain(kernel.iter().rev()).copied();
    [thread.as_str()].into_iter().chain(frames).collect::<Vec<_>>().join(";")
}

/// Seen from inside a container, all tasks outside of it have the number of the idle task.
fn is_idle_task(kernel: &[&str]) -> bool {
    let begins = |name: &&str| ["do_idle", "cpu_startup_entry", "cpu_idle_loop"].iter().any(|at| name.starts_with(at));
    kernel.iter().any(begins) || kernel.iter().all(|name| name.starts_with(UNKNOWN))
}

/// Whether the idle task idles: it did not when an interrupt had come, or receive processing ran in its name.
///
/// The kernel's timer is an interrupt, too. What it missed while a halted CPU woke up to another one is made up for where
/// interrupts are first on again, which is in the beginning of softirq processing: those samples are of the time before.
fn is_idle(kernel: &[&str], clock: Clock) -> bool {
    if is_late(kernel, clock) {
        return true;
    }
    let begins = |name: &str| ["asm_", "el1_", "el1h_"].iter().any(|at| name.starts_with(at));
    let works = |name: &&str| begins(name) || name.contains("softirq") || name.contains("_interrupt");
    !kernel.iter().any(works)
}

/// A halted CPU has no cycles that could be made up for.
fn is_late(kernel: &[&str], clock: Clock) -> bool {
    let begins = |first: &str| SOFTIRQS.iter().any(|name| first.starts_with(name));
    clock == Clock::CpuClock && matches!(kernel, [first, second, ..] if begins(first) && second.contains("irq_exit"))
}

/// Whether an idle task only waits for something to do.
fn waits(kernel: &[&str], clock: Clock) -> bool {
    if is_late(kernel, clock) {
        return true;
    }
    let waiting = [
        "halt",
        "mwait",
        "poll_idle",
        "idle_enter",
        "cpu_idle",
        "cpu_do_idle",
        "intel_idle",
        "acpi_idle",
        "psci_enter",
    ];
    let halts = |name: &&str| waiting.iter().any(|at| name.contains(at));
    kernel.first().is_none_or(halts) || kernel.iter().take(2).any(|name| name.contains("safe_halt"))
}

/// The stacks with the most samples, most first, and how many there are beside; those are added up under [`OTHER`].
fn most_frequent(folded: HashMap<String, u64>, stacks: usize, mut bytes: usize) -> (Vec<(String, u64)>, u64) {
    let mut all: Vec<(String, u64)> = folded.into_iter().collect();
    all.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    let fits = |(stack, _): &&(String, u64)| {
        let room = bytes.checked_sub(stack.len());
        bytes = room.unwrap_or(bytes);
        room.is_some()
    };
    let kept = all.iter().take(stacks).take_while(fits).count();
    let rest = all.split_off(kept);
    if !rest.is_empty() {
        all.push((OTHER.to_owned(), rest.iter().map(|(_, count)| count).sum()));
    }
    (all, rest.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_stacks_are_added_up() {
        let folded = || HashMap::from([("a;b".to_owned(), 5), ("a;c".to_owned(), 2), ("a;d".to_owned(), 1)]);
        let owned = |stacks: &[(&str, u64)]| stacks.iter().map(|(s, n)| ((*s).to_owned(), *n)).collect::<Vec<_>>();
        assert_eq!(most_frequent(folded(), 1, 100), (owned(&[("a;b", 5), (OTHER, 3)]), 2));
        assert_eq!(most_frequent(folded(), 9, 6), (owned(&[("a;b", 5), ("a;c", 2), (OTHER, 1)]), 1));
        assert_eq!(most_frequent(folded(), 9, 100), (owned(&[("a;b", 5), ("a;c", 2), ("a;d", 1)]), 0));
    }

    #[test]
    fn a_task_outside_of_the_container_is_not_the_idle_task() {
        assert!(is_idle_task(&["pv_native_safe_halt_[k]", "default_idle_[k]", "do_idle_[k]"]));
        assert!(is_idle_task(&[]) && is_idle_task(&["[unknown]_[k]"]));
        assert!(!is_idle_task(&["schedule_[k]", "worker_thread_[k]", "kthread_[k]"]));
    }

    #[test]
    fn an_idle_task_that_serves_interrupts_is_not_idle() {
        assert!(is_idle(&["pv_native_safe_halt_[k]", "default_idle_[k]", "do_idle_[k]"], Clock::CpuClock));
        assert!(is_idle(&[], Clock::CpuClock));
        let softirq = ["net_rx_action_[k]", "handle_softirqs_[k]", "sysvec_call_function_single_[k]", "do_idle_[k]"];
        assert!(!is_idle(&softirq, Clock::CpuClock));
        let late = ["handle_softirqs_[k]", "__irq_exit_rcu_[k]", "sysvec_call_function_single_[k]", "do_idle_[k]"];
        assert!(is_idle(&late, Clock::CpuClock));
        assert!(!is_idle(&late, Clock::Cycles) && !waits(&late, Clock::Cycles));
        assert!(!is_idle(&["asm_common_interrupt_[k]", "default_idle_[k]"], Clock::CpuClock));
        assert!(waits(&["pv_native_safe_halt_[k]", "default_idle_[k]", "do_idle_[k]"], Clock::CpuClock));
        assert!(is_idle(&["cpu_do_idle_[k]", "arch_cpu_idle_[k]", "do_idle_[k]"], Clock::CpuClock));
        assert!(!is_idle(&["gic_handle_irq_[k]", "el1_irq_[k]", "arch_cpu_idle_[k]", "do_idle_[k]"], Clock::CpuClock));
        assert!(waits(&["cpu_do_idle_[k]", "arch_cpu_idle_[k]", "do_idle_[k]"], Clock::CpuClock));
        assert!(!waits(&["tick_nohz_idle_exit_[k]", "do_idle_[k]"], Clock::CpuClock));
    }
}
