//! Receive queues, and the kernel's threads that poll them (Documentation/networking/napi.rst of the kernel, "Threaded NAPI").

use std::fs;
use std::io;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType, netdevice};
use rustix::process::Pid;
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::cpu::CpuSet;
use crate::error::{ErrorContext, Result};
use crate::netdev::{self, Questions};
use crate::netns::NetNs;

/// `NETDEV_CMD_NAPI_GET` and its attributes (linux/netdev.h).
const GET_NAPI: u8 = 11;
const NAPI_INTERFACE: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_IRQ: u16 = 3;
const NAPI_PID: u16 = 4;

/// How urgent the threads' work is to the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// As any thread's.
    Normal,
    /// Before every thread that is not of real time, and before those of a lower priority, 1 to 99 (SCHED_FIFO of
    /// sched(7)). What comes next would otherwise wait for a busy thread's time slice, several milliseconds, with room for
    /// 256 frames in a veth interface.
    RealTime(u8),
}

/// Why receive processing cannot be placed by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("the kernel's threads are moved by root of the machine, not by root of a user namespace")]
    UserNamespace,
    #[error("the kernel's threads are not to be seen in this container's own process namespace")]
    ProcessNamespace,
    #[error("the kernel's threads are moved by processes with CAP_SYS_NICE")]
    Capability,
    #[error("the kernel has no threads that process what an interface receives (threaded NAPI, Linux 5.12)")]
    Kernel,
}

/// Whether this process may move threads of the kernel, as [`move_thread`] does.
///
/// # Errors
/// What it lacks.
pub fn may_place() -> std::result::Result<(), PlacementError> {
    /// Bit of CAP_SYS_NICE (capabilities(7)).
    const NICE: u64 = 1 << 23;
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let map = read("/proc/self/uid_map");
    if map.split_whitespace().ne(["0", "0", "4294967295"]) {
        return Err(PlacementError::UserNamespace);
    }
    let status = read("/proc/self/status");
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    if effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & NICE == 0) {
        return Err(PlacementError::Capability);
    }
    // The parent of all of them has always this number.
    match read("/proc/2/comm").trim() {
        "kthreadd" => {}
        _ => return Err(PlacementError::ProcessNamespace),
    }
    // Of any interface; where sysfs is another network namespace's, that says nothing.
    let (interface, file) = (Path::new("/sys/class/net/lo"), "threaded");
    if interface.exists() && !interface.join(file).exists() {
        return Err(PlacementError::Kernel);
    }
    Ok(())
}

/// Whether threads process what an interface of the calling thread's network namespace receives; false where the kernel does not
/// tell.
pub(crate) fn is_threaded(interface: &str) -> bool {
    match number(interface).and_then(of_index) {
        Ok(queues) => queues.iter().any(|queue| queue.thread.is_some()),
        // Before Linux 6.8.
        Err(_) => {
            let threaded = NetNs::of_current_thread()
                .and_then(|ns| ns.sysfs())
                .and_then(|sysfs| sysfs.read(interface, "threaded"));
            threaded.is_ok_and(|threaded| threaded != "0")
        }
    }
}

/// The number of an interface of the calling thread's network namespace.
fn number(interface: &str) -> io::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(netdevice::name_to_index(socket, interface)?)
}

/// How the kernel receives from a queue of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Napi {
    /// The kernel's number of it.
    pub id: u32,
    /// The interrupt of its device.
    pub irq: Option<u32>,
    /// The thread that polls it in place of softirqs.
    pub thread: Option<u32>,
}

/// Those of `interface` of `ns`, in the order of its queues; none while it is down, or receives without queues of its own.
///
/// # Errors
/// Before Linux 6.8, which does not tell.
pub fn of(ns: &NetNs, interface: &str) -> Result<Vec<Napi>> {
    ns.run(|| of_index(number(interface)?))?.during(|| format!("ask for the receive queues of {interface}"))
}

/// Of an interface of the calling thread's network namespace.
fn of_index(index: u32) -> io::Result<Vec<Napi>> {
    let wanted = [NAPI_ID, NAPI_IRQ, NAPI_PID];
    let all = Questions::open()?.dump(GET_NAPI, NAPI_INTERFACE, &index.to_ne_bytes(), wanted)?;
    let mut queues = Vec::new();
    for attributes in &all {
        let [id, irq, thread] = attributes
            .each_ref()
            .map(|value| value.as_ref().map(|value| netdev::number(value).map(u32::from_ne_bytes)).transpose());
        if let Some(id) = id? {
            queues.push(Napi { id, irq: irq?, thread: thread? });
        }
    }
    // The newest is the first that is told; they are made in the queues' order.
    queues.sort_unstable_by_key(|queue| queue.id);
    Ok(queues)
}

/// Has a receiving thread run on `cpus` alone.
///
/// # Errors
/// When there is no such thread any more, or none of the CPUs is online.
pub fn move_thread(thread: u32, cpus: &CpuSet) -> Result<()> {
    let pid = Pid::from_raw(thread as i32);
    sched_setaffinity(pid, &cpus.kernel_set()).during(|| format!("put receiving thread {thread} onto CPU {cpus}"))
}

/// Where a receiving thread may run.
pub fn cpus_of_thread(thread: u32) -> Result<CpuSet> {
    let set = sched_getaffinity(Pid::from_raw(thread as i32));
    let set = set.during(|| format!("ask where receiving thread {thread} runs"))?;
    Ok(CpuSet::new((0..=CpuSet::MAX).filter(|&cpu| set.is_set(cpu as usize))))
}

/// How long a thread has run and how long it has waited for a CPU, nanoseconds (Documentation/scheduler/sched-stats.rst,
/// `/proc/<pid>/schedstat`); `None` when there is no such thread any more, or the kernel does not tell.
pub fn time_of_thread(thread: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some((words.next()??, words.next()??))
}
