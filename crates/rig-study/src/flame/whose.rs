//! Which of the processes that were sampled are this program's.

use std::collections::{HashMap, HashSet};
use std::fs;

use rig_sys::perf::Stack;

/// PF_KTHREAD of the kernel's include/linux/sched.h: a thread of the kernel.
const OF_KERNEL: u64 = 0x0020_0000;

/// What /proc/PID/stat tells of a process (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    is_of_kernel: bool,
}

impl Process {
    fn read(process: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name, which is in parentheses, may have any characters.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1);
        let parent = fields.next()?.parse().ok()?;
        let flags: u64 = fields.nth(4)?.parse().ok()?;
        Some(Self { parent, is_of_kernel: flags & OF_KERNEL != 0 })
    }
}

/// The processes of some stacks that neither are this one, nor descend from it, nor are the kernel's. What has ended already is
/// among them: the testbed's processes live until their samples are named.
pub(super) fn others<'a>(stacks: impl Iterator<Item = &'a Stack>) -> HashSet<u32> {
    let mut known = HashMap::<u32, bool>::from([(std::process::id(), false), (0, false)]);
    for stack in stacks {
        known.entry(stack.process).or_insert_with_key(|process| is_other(*process));
    }
    known.into_iter().filter_map(|(process, is_other)| is_other.then_some(process)).collect()
}

fn is_other(process: u32) -> bool {
    let Some(first) = Process::read(process) else { return true };
    if first.is_of_kernel {
        return false;
    }
    let mut parent = first.parent;
    while parent > 1 {
        if parent == std::process::id() {
            return false;
        }
        match Process::read(parent) {
            Some(process) => parent = process.parent,
            None => return true,
        }
    }
    parent != std::process::id()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_a_process_is_stands_behind_its_name() {
        let process = |stat: &str| Process::parse(stat);
        let thread = "15 (kworker/0:1) I) I 2 0 0 0 -1 69238880 0 0";
        assert_eq!(process(thread), Some(Process { parent: 2, is_of_kernel: true }));
        let shell = "812 (a ) b) S 77 812 812 34816 900 4194304 1 2";
        assert_eq!(process(shell), Some(Process { parent: 77, is_of_kernel: false }));
        assert_eq!(process("812 (sh) S"), None);
    }

    #[test]
    fn what_this_program_has_started_is_its_own() {
        let mut child = Command::new("sh").args(["-c", "sleep 60; true"]).stdin(Stdio::null()).spawn().unwrap();
        let of = |process: u32| {
            let stack = Stack { cpu: 0, process, thread: process, kernel: Vec::new(), user: vec![1] };
            others([&stack].into_iter()).contains(&process)
        };
        assert!(!of(child.id()) && !of(std::process::id()) && !of(0));
        // Whoever started the tests.
        let parent = Process::read(std::process::id()).unwrap().parent;
        assert!(parent == 0 || of(parent));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(of(child.id()), "it has ended");
    }
}
