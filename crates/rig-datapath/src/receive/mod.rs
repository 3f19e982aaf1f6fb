//! What receive processing costs, by queue and by CPU.
//!
//! Programs at the kernel's tracepoints take the time that polls of queues took, in softirqs or in threads: from one poll's end to the
//! next one's, from the softirq's begin or from when its thread came to the first. One at the scheduler's switches takes how
//! long each CPU had nothing to do. That is a reading of the clock for each poll of up to 64 packets, some tenths of a
//! percent of what it takes. Interrupts of devices and timers that come while a CPU is idle count as idle time, those that come
//! during a poll to the poll.
//!
//! Nothing is pinned: the programs go when the [`Receive`] goes, or its process.

pub(crate) mod shape;

use std::fmt;
use std::time::Duration;

use libbpf_rs::{Link, Object, ObjectBuilder, ProgramInput};

use self::shape::{CpuTime, QueueTime};
use crate::Error;
use crate::libbpf_log;
use crate::maps::Map;
use crate::object::program;
use crate::rights::check_may_trace;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/receive.bpf.o"));
const BEGIN: &str = "receive_begin";
const POLLED: &str = "receive_polled";
/// `BPF_F_TEST_RUN_ON_CPU` (linux/bpf.h).
const ON_CPU: u32 = 1;

/// Programs that count.
pub struct Receive {
    /// Before the object, whose programs they keep, goes.
    links: Vec<Link>,
    object: Object,
    watched: Map,
    queues: Map,
    cpus: Map,
}

impl fmt::Debug for Receive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receive").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

/// A watched queue, since it is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// Time that its polls took.
    pub time: Duration,
    /// As its driver's poll function tells them: before segments are merged (GRO).
    pub packets: u64,
    pub polls: u64,
    /// The CPU that polled it last.
    pub cpu: u32,
}

/// A CPU, since the programs are attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Without anything to do, polls aside that interrupted it.
    pub idle: Duration,
    /// Polls of watched queues.
    pub watched: Duration,
    /// Polls of other devices' queues.
    pub foreign: Duration,
    /// Polls of the CPU's own queue, into which RPS and virtual devices put packets.
    pub backlog: Duration,
    pub backlog_packets: u64,
}

/// All of it at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at: u64,
    /// By the places that [`Receive::watch`] was given.
    pub queues: Vec<Queue>,
    /// By number; those that are offline have not counted.
    pub cpus: Vec<Cpu>,
}

impl Receive {
    /// Queues that can be watched at a time.
    pub const MOST: u32 = 4096;

    /// Attaches the programs.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without CAP_BPF and CAP_PERFMON, [`Error::Load`] where the kernel has no BTF.
    pub fn attach() -> Result<Self, Error> {
        check_may_trace()?;
        let failed = |source| Error::Load { program: POLLED, source };
        let mut builder = ObjectBuilder::default();
        let open = builder.name("receive").map_err(failed)?.open_memory(OBJECT).map_err(failed)?;
        let object = libbpf_log::load(open, POLLED)?;
        let mut new = Self {
            watched: Map::of(&object, "watched", size_of::<u32>())?,
            queues: Map::of(&object, "queues", size_of::<QueueTime>())?,
            cpus: Map::of(&object, "cpus", size_of::<CpuTime>())?,
            object,
            links: Vec::new(),
        };
        for name in ["receive_switch", POLLED] {
            let link = program(&new.object, name)?.attach_trace();
            new.links.push(link.map_err(|source| Error::Load { program: name, source })?);
        }
        for (name, tracepoint) in [("receive_soft_out", "softirq_exit"), ("receive_soft_in", "softirq_entry")] {
            let link = program(&new.object, name)?.attach_raw_tracepoint(tracepoint);
            new.links.push(link.map_err(|source| Error::Load { program: name, source })?);
        }
        let possible = libbpf_rs::num_possible_cpus();
        let possible =
            possible.map_err(|source| Error::Map { map: "cpus", operation: "count the CPUs of", source })? as u32;
        for cpu in 0..possible {
            // Of those that are offline the kernel says so; they begin with their first switch.
            let input = ProgramInput { cpu, flags: ON_CPU, ..ProgramInput::default() };
            let _offline = program(&new.object, BEGIN)?.test_run(input);
        }
        Ok(new)
    }

    /// Counts the queue of this NAPI at `place`, which begins anew.
    pub fn watch(&self, napi: u32, place: u32) -> Result<(), Error> {
        if place >= Self::MOST {
            return Err(Error::NoRoom { what: "queues", room: Self::MOST, wanted: place as usize + 1 });
        }
        self.queues.set(&place, &QueueTime::default())?;
        self.watched.set(&napi, &place)
    }

    /// Counts it as one of another device.
    pub fn forget(&self, napi: u32) -> Result<(), Error> {
        self.watched.remove(&napi)
    }

    /// What has been counted, of the first `queues` places.
    pub fn read(&self, queues: u32) -> Result<Reading, Error> {
        let at = rig_sys::clock::monotonic_ns();
        let mut found = Vec::with_capacity(queues as usize);
        self.queues.first(queues, |queue: QueueTime| {
            found.push(Queue {
                time: Duration::from_nanos(queue.time),
                packets: queue.packets,
                polls: queue.polls,
                cpu: queue.cpu,
            });
        })?;
        let cpu = |cpu: CpuTime| {
            let since = if cpu.idle_since == 0 { 0 } else { at.saturating_sub(cpu.idle_since) };
            Cpu {
                idle: Duration::from_nanos((cpu.idle + since).saturating_sub(cpu.polls_of_idle)),
                watched: Duration::from_nanos(cpu.watched),
                foreign: Duration::from_nanos(cpu.foreign),
                backlog: Duration::from_nanos(cpu.backlog),
                backlog_packets: cpu.backlog_packets,
            }
        };
        let cpus = self.cpus.per_cpu(0)?.into_iter().map(cpu).collect();
        Ok(Reading { at, queues: found, cpus })
    }
}
