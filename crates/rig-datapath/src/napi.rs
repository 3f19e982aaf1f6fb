//! The receive queues of interfaces, and the kernel's threads that poll them: as netlink tells (Linux 6.8, threads from 6.9), or by a
//! program that walks the kernel's list of them. Interrupts that netlink does not tell are found by their names.
//!
//! What a veth interface receives is processed where its peer sent it, in a softirq of the sender's CPU: two nodes on one machine would do
//! each other's work. A thread for each queue can be put onto the node's own CPUs.

use std::fs;
use std::io;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};
use rig_sys::cpu::{CpuSet, run_before_others};
use rig_sys::ethtool::{self, Offload};
use rig_sys::interrupts;
use rig_sys::netns::NetNs;
use rig_sys::{Error, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use rig_sys::napi::{Napi, PlacementError, Urgency, cpus_of_thread, may_place, move_thread, time_of_thread};

use crate::libbpf_log;
use crate::maps::Map;
use crate::object::program;
use crate::plain::plain;
use crate::rights::check_may_trace;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/napis.bpf.o"));
const NAPIS: &str = "napis";
/// Characters of a task's name (TASK_COMM_LEN of include/linux/sched.h).
const NAME_LENGTH: usize = 15;

plain! {
    /// As bpf/measure/napis.h has it.
    struct NapiEntry: 8 {
        id: u32,
        thread: u32,
    }
}

/// Those of `interface` of `ns`, in the order of its queues; none while it is down, or receives without queues of its own.
///
/// # Errors
/// When there is no such interface, and before Linux 6.8 without the right to load programs.
pub fn of(ns: &NetNs, interface: &str) -> Result<Vec<Napi>> {
    let told = rig_sys::napi::of(ns, interface);
    let mut napis = match &told {
        Ok(napis) if napis.iter().all(|napi| napi.thread.is_none()) && is_threaded(ns, interface) => {
            walked(ns, interface).map(|walked| with_interrupts(walked, napis))
        }
        Err(error) if matches!(error.errno(), Some(ENOENT | EOPNOTSUPP)) => walked(ns, interface),
        _ => told,
    }?;
    // Drivers keep those that are switched off (`ethtool -L`).
    if let Ok((receive, _)) = ns.run(|| ethtool::queues(interface))? {
        napis.truncate(receive as usize);
    }
    // Of most drivers netlink does not tell them either.
    if napis.iter().any(|napi| napi.irq.is_none())
        && let Some(named) = interrupts::of_receive_queues(ns, interface)
        && named.len() >= napis.len()
    {
        for (napi, interrupt) in napis.iter_mut().zip(named) {
            napi.irq = Some(interrupt);
        }
    }
    Ok(napis)
}

/// The kernel has no family `netdev` (Linux 6.3), or not this question (Linux 6.8).
const ENOENT: i32 = 2;
const EOPNOTSUPP: i32 = 95;

fn is_threaded(ns: &NetNs, interface: &str) -> bool {
    ns.sysfs().and_then(|sysfs| sysfs.read(interface, "threaded")).is_ok_and(|threaded| threaded != "0")
}

fn with_interrupts(mut walked: Vec<Napi>, told: &[Napi]) -> Vec<Napi> {
    for napi in &mut walked {
        napi.irq = told.iter().find(|told| told.id == napi.id).and_then(|told| told.irq);
    }
    walked
}

/// By the program, which is loaded once.
fn walked(ns: &NetNs, interface: &str) -> Result<Vec<Napi>> {
    static WALKER: Mutex<Option<Walker>> = Mutex::new(None);
    let operation = || format!("look for the receive queues of {interface}");
    let failed = |error: crate::Error| Error::new(operation(), io::Error::other(error));
    let index: u64 = ns.sysfs()?.read(interface, "ifindex")?.parse().unwrap_or_default();
    let mut walker = WALKER.lock().unwrap_or_else(PoisonError::into_inner);
    if walker.is_none() {
        *walker = Some(Walker::load().map_err(failed)?);
    }
    let Some(walker) = &*walker else { return Ok(Vec::new()) };
    let mut napis =
        ns.run(|| walker.walk(index)).map_err(|error| Error::new(operation(), error.source))?.map_err(failed)?;
    // The newest is the first in the list; they are made in the queues' order.
    napis.sort_unstable_by_key(|napi| napi.id);
    Ok(napis)
}

struct Walker {
    object: Object,
    found: Map,
}

impl Walker {
    fn load() -> std::result::Result<Self, crate::Error> {
        check_may_trace()?;
        let failed = |source| crate::Error::Load { program: NAPIS, source };
        let mut builder = ObjectBuilder::default();
        let open = builder.name(NAPIS).map_err(failed)?.open_memory(OBJECT).map_err(failed)?;
        let object = libbpf_log::load(open, NAPIS)?;
        let found = Map::of(&object, "found", size_of::<NapiEntry>())?;
        Ok(Self { object, found })
    }

    /// Those of an interface of the calling thread's network namespace.
    fn walk(&self, index: u64) -> std::result::Result<Vec<Napi>, crate::Error> {
        let mut arguments = [index];
        let input = ProgramInput { context_in: Some(arguments.as_mut_bytes()), ..ProgramInput::default() };
        let run = program(&self.object, NAPIS)?.test_run(input);
        let run = run.map_err(|source| crate::Error::TestRun { program: NAPIS, source })?;
        let count = run.return_value.cast_signed().max(0).cast_unsigned();
        let mut napis = Vec::new();
        self.found.first(count, |entry: NapiEntry| {
            // Those of senders' queues have no number.
            if entry.id != 0 {
                napis.push(Napi { id: entry.id, irq: None, thread: (entry.thread != 0).then_some(entry.thread) });
            }
        })?;
        Ok(napis)
    }
}

/// Has the kernel process what `interface` of `ns` receives in threads, a thread of each queue, which take `cpus` in turn.
/// The interface must be up. Of veth interfaces this switches generic receive offload on: without it they have no queue that
/// a thread could serve.
///
/// # Errors
/// See [`may_place`]. Before Linux 5.12, which has no such threads.
pub fn place(ns: &NetNs, interface: &str, cpus: &[u32], urgency: Urgency) -> Result<()> {
    let operation = || format!("place the receiving threads of {interface}");
    may_place().map_err(|why| Error::new(operation(), io::Error::other(why)))?;
    ethtool::set(ns, interface, Offload::Gro, true)?;
    ns.sysfs()?.write(interface, "threaded", "1")?;
    let threads = threads(ns, interface)?;
    if threads.is_empty() {
        let why = "there are none: is the interface down?";
        return Err(Error::new(format!("find the receiving threads of {interface}"), io::Error::other(why)));
    }
    for (thread, cpu) in threads.iter().zip(cpus.iter().cycle()) {
        move_thread(*thread, &CpuSet::new([*cpu]))?;
        if let Urgency::RealTime(priority) = urgency {
            run_before_others(*thread, priority)?;
        }
    }
    Ok(())
}

/// Whether the receiving threads of `interface` of `ns` are where [`place`] puts them; `None` while there are none. The
/// kernel makes them anew when the link goes down and up again, and then they run anywhere.
///
/// # Errors
/// Also when they went away meanwhile.
pub fn is_placed(ns: &NetNs, interface: &str, cpus: &[u32]) -> Result<Option<bool>> {
    let threads = threads(ns, interface)?;
    let mut placed = (!threads.is_empty()).then_some(true);
    for (thread, cpu) in threads.iter().zip(cpus.iter().cycle()) {
        if cpus_of_thread(*thread)? != CpuSet::new([*cpu]) {
            placed = Some(false);
        }
    }
    Ok(placed)
}

/// The threads that process what `interface` of `ns` receives, by the order of their queues; none unless it is up and its
/// processing is threaded.
///
/// # Errors
/// As [`of`], and in a process namespace of its own, where the kernel's threads are not to be seen.
pub fn threads(ns: &NetNs, interface: &str) -> Result<Vec<u32>> {
    let mut threads: Vec<u32> = of(ns, interface)?.iter().filter_map(|napi| napi.thread).collect();
    threads.sort_unstable();
    for thread in &threads {
        // In a process number namespace of our own the numbers would be others'.
        let name = fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
        let expected: String = format!("napi/{interface}-").chars().take(NAME_LENGTH).collect();
        if !name.starts_with(&expected) {
            let why = format!("process {thread} is '{}', not a receiving thread", name.trim());
            return Err(Error::new(format!("find the receiving threads of {interface}"), io::Error::other(why)));
        }
    }
    Ok(threads)
}

/// Loads the program, for tests of all programs.
#[cfg(test)]
pub(crate) fn load() -> std::result::Result<(), crate::Error> {
    Walker::load().map(drop)
}

#[cfg(test)]
mod tests {
    use rig_skip::{Lack, skip};
    use rig_sys::netlink::{Netlink, VethPair};
    use rig_sys::netns;

    use super::*;

    #[test]
    fn the_program_finds_what_the_kernel_tells() {
        if let Err(error) = check_may_trace() {
            return skip(Lack::Root, error);
        }
        if !netns::may_create_namespaces() {
            return skip(Lack::Namespaces, "no network namespaces");
        }
        let (near, far) = (NetNs::create().unwrap(), NetNs::create().unwrap());
        let (mut here, mut there) = (Netlink::open(&near).unwrap(), Netlink::open(&far).unwrap());
        here.add_veth(&VethPair { name: "eth0", peer: "eth0", peer_ns: &far, queues: 3, mtu: 1500 }).unwrap();
        assert_eq!(walked(&near, "eth0").unwrap(), [], "an interface that is down");
        here.set_up("eth0").unwrap();
        there.set_up("eth0").unwrap();
        ethtool::set(&near, "eth0", Offload::Gro, true).unwrap();
        let threaded = |value| near.sysfs().unwrap().write("eth0", "threaded", value);
        let found = walked(&near, "eth0").unwrap();
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|napi| napi.thread.is_none()), "{found:?}");
        let before = found.clone();
        if threaded("1").is_ok() {
            let found = walked(&near, "eth0").unwrap();
            let ids = |napis: &[Napi]| napis.iter().map(|napi| napi.id).collect::<Vec<_>>();
            assert_eq!(ids(&found), ids(&before));
            for thread in found.iter().map(|napi| napi.thread.unwrap()) {
                let name = fs::read_to_string(format!("/proc/{thread}/comm")).unwrap();
                assert!(name.starts_with("napi/eth0-"), "{name}");
            }
            assert_eq!(threads(&near, "eth0").unwrap().len(), 3);
        }
        // Where the kernel tells, too, both say the same.
        if let Ok(told) = rig_sys::napi::of(&near, "eth0") {
            assert_eq!(walked(&near, "eth0").unwrap(), told);
        }
        assert_eq!(walked(&far, "eth0").unwrap(), [], "veth has no queues without receive offload");
        assert!(walked(&near, "eth1").is_err());
    }
}
