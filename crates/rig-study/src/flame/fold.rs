//! Stacks in the folded form of flame graphs, few enough to be kept.

use std::collections::HashMap;

use rig_sys::cpu::CpuSet;
use rig_sys::perf::{Samples, Stack};

use super::symbols::{Addresses, Names, UNKNOWN};
use crate::record::Profile;

/// Ends of names that say what a function is, as other tools write them.
pub const KERNEL: &str = "_[k]";
pub const PROGRAM: &str = "_[j]";
/// Stacks of a CPU that had nothing to do.
pub const IDLE: &str = "[idle]";
/// Stacks that were too rare to be kept.
pub const OTHER: &str = "[other]";

/// The most that a record keeps: stacks, and bytes of them.
const STACKS: usize = 2000;
const BYTES: usize = 256 * 1024;

pub(super) fn profile(samples: &Samples, addresses: Addresses, cpus: &CpuSet, hertz: u32) -> Profile {
    let names = addresses.names();
    let mut folded = HashMap::<String, u64>::new();
    for (stack, count) in &samples.stacks {
        *folded.entry(fold(stack, &names, &samples.threads)).or_default() += count;
    }
    let (stacks, merged) = most_frequent(folded, STACKS, BYTES);
    let mut notes = names.notes;
    if samples.throttled > 0 {
        notes.push(format!(
            "The kernel held samples back {} times (sysctl kernel.perf_cpu_time_max_percent).",
            samples.throttled
        ));
    }
    Profile { hertz, cpus: cpus.as_slice().to_vec(), samples: samples.count, lost: samples.lost, stacks, merged, notes }
}

/// From the outermost to the innermost: the thread, its functions, the kernel's.
fn fold(stack: &Stack, names: &Names, threads: &HashMap<u32, String>) -> String {
    let kernel = names.kernel(stack);
    if stack.process == 0 && is_idle(&kernel) {
        return IDLE.to_owned();
    }
    let thread = threads.get(&stack.thread).map_or(UNKNOWN, String::as_str).replace(';', ":");
    let user = names.user(stack);
    let frames = user.iter().rev().chain(kernel.iter().rev()).copied();
    [thread.as_str()].into_iter().chain(frames).collect::<Vec<_>>().join(";")
}

/// Whether the idle task idles: it did not when an interrupt had come, or receive processing ran in its name.
fn is_idle(kernel: &[&str]) -> bool {
    let works = |name: &&str| name.starts_with("asm_") || name.contains("softirq") || name.contains("_interrupt");
    !kernel.iter().any(works)
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
    fn an_idle_task_that_serves_interrupts_is_not_idle() {
        assert!(is_idle(&["pv_native_safe_halt_[k]", "default_idle_[k]", "do_idle_[k]"]));
        assert!(is_idle(&[]));
        let softirq = ["net_rx_action_[k]", "handle_softirqs_[k]", "sysvec_call_function_single_[k]", "do_idle_[k]"];
        assert!(!is_idle(&softirq));
        assert!(!is_idle(&["asm_common_interrupt_[k]", "default_idle_[k]"]));
    }
}
