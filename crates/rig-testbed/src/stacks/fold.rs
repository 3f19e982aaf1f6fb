//! Stacks in the folded form of flame graphs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use rig_sys::cpu::CpuSet;
use rig_sys::perf::{Clock, Samples, Stack};
use serde::{Deserialize, Serialize};

use super::symbols::{Addresses, Names, UNKNOWN};

/// Ends of names that say what a function is, as other tools write them.
pub const KERNEL: &str = "_[k]";
pub const PROGRAM: &str = "_[j]";
/// Stacks of a CPU that had nothing to do.
pub const IDLE: &str = "[idle]";
/// In front of the stacks of processes that are not this program's.
pub const OTHER_PROGRAMS: &str = "[other programs]";
/// Stacks that were too rare to be kept or sent.
pub const OTHER: &str = "[other]";

/// Where softirqs are processed (kernel/softirq.c), by new kernels and old ones.
pub const SOFTIRQS: [&str; 2] = ["handle_softirqs", "__do_softirq"];

/// All stacks with names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "NamedStacks", into = "NamedStacks")]
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

    /// Of a machine that does not let them be sampled.
    pub fn nothing(hertz: u32, why: &impl fmt::Display) -> Self {
        let note = format!("No stacks could be sampled: {why}.");
        Self { hertz, notes: vec![note], ..Self::default() }
    }

    /// As many of the stacks as can be sent in so many bytes, most frequent first; of each CPU, the others are added up under [`OTHER`].
    #[must_use]
    pub fn within(mut self, bytes: usize) -> Self {
        let mut all: Vec<(u64, u32, String)> = Vec::new();
        for (cpu, stacks) in self.stacks.drain() {
            all.extend(stacks.into_iter().map(|(stack, count)| (count, cpu, stack)));
        }
        all.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| (one.1, &one.2).cmp(&(other.1, &other.2))));
        let mut names = HashSet::<String>::new();
        let (mut room, mut merged, mut samples) = (Some(bytes), 0_u64, 0);
        for (count, cpu, stack) in all {
            let new = |name: &&str| !names.contains(*name);
            let of_names: usize = stack.split(';').filter(new).map(size_of_name).sum();
            let size = STACK + FRAME * stack.split(';').count() + of_names;
            room = room.and_then(|room| room.checked_sub(size));
            let kept = if room.is_some() {
                names.extend(stack.split(';').map(str::to_owned));
                stack
            } else {
                merged += 1;
                samples += count;
                OTHER.to_owned()
            };
            *self.stacks.entry(cpu).or_default().entry(kept).or_default() += count;
        }
        if merged > 0 {
            self.notes.push(format!(
                "{merged} of the rarest stacks, {samples} samples, are together as {OTHER}: there were more than a host sends."
            ));
        }
        self
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
}

/// The most bytes that a stack takes as it is sent, and each of its frames.
const STACK: usize = 32;
const FRAME: usize = 11;

/// Bytes of a name as it is sent.
fn size_of_name(name: &str) -> usize {
    serde_json::to_string(name).map_or(0, |text| text.len() + 1)
}

/// As they are sent: each name once.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedStacks {
    hertz: u32,
    clock: Option<Clock>,
    names: Vec<String>,
    /// By CPU: how many samples, and the names' numbers.
    stacks: BTreeMap<u32, Vec<(u64, Vec<u32>)>>,
    awake: BTreeMap<u32, u64>,
    lost: u64,
    notes: Vec<String>,
}

impl From<FoldedStacks> for NamedStacks {
    fn from(folded: FoldedStacks) -> Self {
        let FoldedStacks { hertz, clock, stacks, awake, lost, notes } = folded;
        let (mut names, mut numbers) = (Vec::new(), HashMap::<String, u32>::new());
        let mut number = |name: &str| {
            *numbers.entry(name.to_owned()).or_insert_with(|| {
                names.push(name.to_owned());
                (names.len() - 1) as u32
            })
        };
        let mut of_cpu = |stacks: HashMap<String, u64>| {
            stacks.into_iter().map(|(stack, count)| (count, stack.split(';').map(&mut number).collect())).collect()
        };
        let stacks = stacks.into_iter().map(|(cpu, stacks)| (cpu, of_cpu(stacks))).collect();
        Self { hertz, clock, names, stacks, awake: awake.into_iter().collect(), lost, notes }
    }
}

impl TryFrom<NamedStacks> for FoldedStacks {
    type Error = String;

    fn try_from(named: NamedStacks) -> Result<Self, String> {
        let NamedStacks { hertz, clock, names, stacks, awake, lost, notes } = named;
        let name =
            |number: &u32| names.get(*number as usize).map(String::as_str).ok_or_else(|| format!("no name {number}"));
        let mut folded = HashMap::<u32, HashMap<String, u64>>::new();
        for (cpu, stacks) in stacks {
            let of_cpu = folded.entry(cpu).or_default();
            for (count, frames) in stacks {
                let frames = frames.iter().map(name).collect::<Result<Vec<&str>, String>>()?;
                *of_cpu.entry(frames.join(";")).or_default() += count;
            }
        }
        Ok(Self { hertz, clock, stacks: folded, awake: awake.into_iter().collect(), lost, notes })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_sent_with_each_name_once() {
        let stacks = HashMap::from([("t;main;send_[k]".to_owned(), 5), ("t;main".to_owned(), 2), (IDLE.to_owned(), 1)]);
        let folded = FoldedStacks {
            hertz: 499,
            clock: Some(Clock::Cycles),
            stacks: HashMap::from([(3, stacks)]),
            awake: HashMap::from([(3, 1)]),
            lost: 7,
            notes: vec!["a note".to_owned()],
        };
        let text = serde_json::to_string(&folded).unwrap();
        assert_eq!(text.matches("main").count(), 1, "{text}");
        assert_eq!(serde_json::from_str::<FoldedStacks>(&text).unwrap(), folded);
        let other = text.replace(r#""names":["#, r#""names":[],"more":["#);
        assert!(serde_json::from_str::<FoldedStacks>(&other).is_err());
        let nameless = r#"{"hertz":1,"clock":null,"names":[],"stacks":{"0":[[1,[0]]]},"awake":{},"lost":0,"notes":[]}"#;
        let error = serde_json::from_str::<FoldedStacks>(nameless).unwrap_err();
        assert!(error.to_string().contains("no name 0"), "{error}");
    }

    #[test]
    fn what_is_sent_of_stacks_has_a_limit() {
        let stack = |number: u64| (format!("thread;main;\"f\\{number}\u{1}_[k]"), 10_000 + number);
        let stacks = HashMap::from([(0, (0..2000).map(stack).collect()), (7, (2000..3000).map(stack).collect())]);
        let all = FoldedStacks { hertz: 499, clock: Some(Clock::CpuClock), stacks, ..FoldedStacks::default() };
        let samples = |folded: &FoldedStacks, cpu| folded.of(&CpuSet::new([cpu])).map(|(_, count)| count).sum::<u64>();
        let sizes = [10_000, 100_000].map(|bytes| {
            let some = all.clone().within(bytes);
            let text = serde_json::to_string(&some).unwrap();
            assert!(text.len() < bytes + 500, "{} of {bytes}", text.len());
            assert!(text.len() > bytes / 4, "{} of {bytes}", text.len());
            assert!([0, 7].iter().all(|cpu| samples(&some, *cpu) == samples(&all, *cpu)));
            // The most frequent ones are there.
            assert!(some.of(&CpuSet::new([7])).any(|(_, count)| count == 12_999));
            assert!(some.of(&CpuSet::new([0])).any(|(stack, _)| stack == OTHER));
            assert!(some.notes[0].contains("of the rarest stacks, "), "{:?}", some.notes);
            some.of(&CpuSet::new([0, 7])).count()
        });
        assert!(sizes[0] < sizes[1], "{sizes:?}");
        assert_eq!(all.clone().within(1 << 20), all);
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
