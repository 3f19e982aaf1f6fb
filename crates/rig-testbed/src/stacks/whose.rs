//! Which of the processes that were sampled are this program's.

use std::collections::{HashMap, HashSet};

use rig_sys::perf::Stack;
use rig_sys::process::kin;

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
    let Some(first) = kin(process) else { return true };
    if first.is_of_kernel {
        return false;
    }
    let mut parent = first.parent;
    while parent > 1 {
        if parent == std::process::id() {
            return false;
        }
        match kin(parent) {
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
    fn what_this_program_has_started_is_its_own() {
        let mut child = Command::new("sh").args(["-c", "sleep 60; true"]).stdin(Stdio::null()).spawn().unwrap();
        let of = |process: u32| {
            let stack = Stack { cpu: 0, process, thread: process, kernel: Vec::new(), user: vec![1] };
            others([&stack].into_iter()).contains(&process)
        };
        assert!(!of(child.id()) && !of(std::process::id()) && !of(0));
        // The process that started the tests.
        let parent = kin(std::process::id()).unwrap().parent;
        assert!(parent == 0 || of(parent));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(of(child.id()), "it has ended");
    }
}
