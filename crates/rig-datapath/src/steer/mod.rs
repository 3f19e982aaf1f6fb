//! What an interface receives, given to CPUs by the hash of its flows: an XDP program with a table of buckets, and queues in memory
//! (a CPU map) to the CPUs.
//!
//! A bucket moves without that its packets overtake each other: it goes on to its old CPU until that one has nothing of it
//! any more. bpf/spreader/steer.bpf.c says how that is known, [`model`] is the same in plain Rust.
//!
//! Behind such a queue a packet has lost what its driver knew of it: that its checksum is correct, its hash, and a VLAN tag that
//! the device has taken off. Segments that a device would have merged come one by one, and are merged after the queue.
//!
//! Nothing is pinned: the programs and the queues go when the [`Steer`] goes, or its process.

pub mod model;
pub(crate) mod shape;

use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::{Link, MapType, Object, ObjectBuilder, Xdp, XdpFlags};
use zerocopy::IntoBytes;

use self::model::Key;
use self::shape::{AT_ONCE, BpfCpumapVal, BucketState, Processor, Steering};
use crate::Error;
use crate::balancer::MOST_PACKETS;
use crate::balancer::sizes::possible_cpus;
use crate::maps::Map;
use crate::object::program;
use crate::objects::{Objects, objects};
use crate::rights::check_may_trace;
use crate::{libbpf_log, test_run};

static OBJECTS: Objects = objects!("steer");
const STEER: &str = "steer";
/// linux/if_link.h, `XDP_ATTACHED_SKB`.
const ATTACHED_GENERIC: u8 = 2;

/// How it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Receive queues of the interface, 1 to [`Steer::MOST_QUEUES`].
    pub queues: u32,
    /// Length of each CPU's queue, 1 to 16,384 packets. What finds it full is dropped and counted.
    pub packets: u32,
    /// A bucket waits for its old CPU as long as it takes. Else for [`Steer::TIMEOUT`], and then its packets may overtake each
    /// other.
    pub strict: bool,
    /// Packets may come with checksums that their senders have left to a device, as from a veth interface: they are
    /// completed, since behind the queue it is not known.
    pub completes: bool,
}

/// The programs, and the interface that they are on.
pub struct Steer {
    /// Before the object, whose programs they keep, goes.
    on: Option<Link>,
    counting: Vec<Link>,
    object: Object,
    key: Key,
    options: Options,
    /// CPUs that have a queue.
    queued: BTreeSet<u32>,
    wanted: Map,
    ways: Map,
    processors: Map,
    queues: Map,
}

impl fmt::Debug for Steer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steer").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A bucket, since the programs are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Received, dropped ones included.
    pub packets: u64,
    pub bytes: u64,
    /// Moves that did not wait for the old CPU, by receive queue.
    pub hurried: u64,
    /// The CPU that it is to be on.
    pub cpu: u32,
    /// Packets have come since it was moved, and go to the old CPU still.
    pub waits: bool,
}

/// A CPU that packets are given to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// CPU time of the kernel's thread that processes them, without softirqs that interrupted it.
    pub time: Duration,
    pub packets: u64,
    /// That found its queue full, or for which there was no memory.
    pub refused: u64,
}

/// All of it at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SteerReading {
    pub buckets: Vec<Bucket>,
    /// By the CPU's number.
    pub cpus: Vec<CpuCounters>,
}

impl Steer {
    pub const BUCKETS: u32 = 128;
    /// Beyond these reading what was counted takes longer than moving is worth.
    pub const MOST_QUEUES: u32 = 64;
    pub const TIMEOUT: Duration = Duration::from_millis(5);

    /// Whether this process may load the programs.
    ///
    /// # Errors
    /// [`Error::NotPermitted`].
    pub fn may_load() -> Result<(), Error> {
        check_may_trace()
    }

    /// Whether an interface of the calling thread's network namespace has an XDP program.
    pub fn is_taken(interface: u32) -> bool {
        // Which program is asked by makes no difference.
        let query = Xdp::new(std::io::stdin().as_fd()).query_id(interface as i32, XdpFlags::NONE);
        query.is_ok_and(|id| id != 0)
    }

    /// Loads the programs, with all buckets on `cpu`.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without CAP_BPF and CAP_PERFMON, [`Error::Load`] without BTF.
    pub fn load(options: Options, cpu: u32) -> Result<Self, Error> {
        let within = |what, wanted, most| match (1..=most).contains(&wanted) {
            true => Ok(()),
            false => Err(Error::NoRoom { what, room: most, wanted: wanted as usize }),
        };
        within("receive queues", options.queues, Self::MOST_QUEUES)?;
        within("packets in a queue", options.packets, MOST_PACKETS)?;
        check_may_trace()?;
        let possible = possible_cpus()? as u32;
        let key = Key::random();
        let failed = |source| Error::Load { program: STEER, source };
        let mut builder = ObjectBuilder::default();
        let mut open =
            builder.name("steer").map_err(failed)?.open_memory(OBJECTS.for_running(STEER)?).map_err(failed)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let refused = |source| Error::Map { map: "steering", operation: "size", source };
            match name.as_str() {
                ".rodata.steering" => {
                    let steering = Steering {
                        key: key.words(),
                        queues: options.queues,
                        strict: options.strict.into(),
                        completes: options.completes.into(),
                        cpus: possible,
                    };
                    map.set_initial_value(steering.as_bytes()).map_err(refused)?;
                }
                // On old kernels it is one array for all CPUs.
                "links" if map.map_type() == MapType::Array => {
                    map.set_max_entries(possible * possible).map_err(refused)?;
                }
                "queues" | "processors" | "links" => map.set_max_entries(possible).map_err(refused)?,
                "ways" => map.set_max_entries(options.queues * Self::BUCKETS).map_err(refused)?,
                _ => {}
            }
        }
        let object = libbpf_log::load(open, STEER)?;
        let mut new = Self {
            wanted: Map::of(&object, "wanted", size_of::<u32>())?,
            ways: Map::of(&object, "ways", size_of::<BucketState>())?,
            processors: Map::of(&object, "processors", size_of::<Processor>())?,
            queues: Map::of(&object, "queues", size_of::<BpfCpumapVal>())?,
            on: None,
            counting: Vec::new(),
            object,
            key,
            options,
            queued: BTreeSet::new(),
        };
        Map::of(&new.object, "queues_id", size_of::<u32>())?.set(&0_u32, &new.queues.id()?)?;
        for bucket in 0..Self::BUCKETS {
            new.place(bucket, cpu)?;
        }
        Ok(new)
    }

    /// Puts the program onto an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::Attach`] where the driver has no XDP: what the kernel would do in its place, on a buffer made for its stack, is
    /// slower than no spreading at all.
    pub fn attach(&mut self, interface: u32) -> Result<(), Error> {
        for name in ["steer_put", "steer_taken", "steer_switch"] {
            let link = program(&self.object, name)?.attach_trace();
            self.counting.push(link.map_err(|source| Error::Load { program: name, source })?);
        }
        for (name, tracepoint) in [("steer_soft_out", "softirq_exit"), ("steer_soft_in", "softirq_entry")] {
            let link = program(&self.object, name)?.attach_raw_tracepoint(tracepoint);
            self.counting.push(link.map_err(|source| Error::Load { program: name, source })?);
        }
        let refused = |reason: &str| {
            let reason = reason.to_owned();
            move |source| Error::Attach { interface, reason, source }
        };
        let program = program(&self.object, STEER)?;
        let link = program.attach_xdp(interface as i32);
        let link = link.map_err(refused(
            "has it another XDP program, an MTU that its driver has no XDP for, or too few queues to send by?",
        ))?;
        let query = Xdp::new(program.as_fd()).query(interface as i32, XdpFlags::NONE);
        if query.map_err(refused("cannot ask how it is attached"))?.attach_mode == ATTACHED_GENERIC {
            let source = libbpf_rs::Error::from_raw_os_error(95);
            return Err(refused("its driver has no XDP")(source));
        }
        self.on = Some(link);
        Ok(())
    }

    /// Moves a bucket, which waits for its old CPU.
    pub fn place(&mut self, bucket: u32, cpu: u32) -> Result<(), Error> {
        self.write(bucket, cpu, cpu)
    }

    /// Moves a bucket whose old CPU is gone: what is still there may be overtaken.
    pub fn place_at_once(&mut self, bucket: u32, cpu: u32) -> Result<(), Error> {
        self.write(bucket, cpu, cpu | AT_ONCE)
    }

    fn write(&mut self, bucket: u32, cpu: u32, word: u32) -> Result<(), Error> {
        if bucket >= Self::BUCKETS {
            return Err(Error::NoRoom { what: "buckets", room: Self::BUCKETS, wanted: bucket as usize + 1 });
        }
        if !self.queued.contains(&cpu) {
            self.queues.set(&cpu, &BpfCpumapVal { qsize: self.options.packets, bpf_prog: 0 })?;
            self.queued.insert(cpu);
        }
        self.wanted.set(&bucket, &word)
    }

    /// What has been counted.
    pub fn read(&self) -> Result<SteerReading, Error> {
        let now = rig_sys::clock::monotonic_ns();
        let mut buckets = Vec::with_capacity(Self::BUCKETS as usize);
        self.wanted
            .first(Self::BUCKETS, |word: u32| buckets.push(Bucket { cpu: word & !AT_ONCE, ..Bucket::default() }))?;
        let mut at = 0;
        self.ways.first(self.ways.entries(), |state: BucketState| {
            if let Some(bucket) = buckets.get_mut(at % Self::BUCKETS as usize) {
                bucket.packets += state.packets;
                bucket.bytes += state.bytes;
                bucket.hurried += state.forced;
                bucket.waits |= state.waits_since > 0;
            }
            at += 1;
        })?;
        let mut cpus = Vec::new();
        self.processors.first(self.processors.entries(), |processor: Processor| {
            let until = if processor.softirq > 0 { processor.softirq } else { now };
            let running = if processor.since > 0 { until.saturating_sub(processor.since) } else { 0 };
            cpus.push(CpuCounters {
                time: Duration::from_nanos(processor.time + running),
                packets: processor.packets,
                refused: processor.refused,
            });
        })?;
        Ok(SteerReading { buckets, cpus })
    }

    /// The key of its hash.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Runs the program on one frame, as if it came in by loopback, without a network.
    ///
    /// # Errors
    /// When the kernel refuses the frame.
    pub fn try_on(&self, frame: &[u8]) -> Result<test_run::TestRunResult, Error> {
        test_run::run(&self.object, STEER, frame, None, 1)
    }
}
