//! Workers: the CPUs that run the program.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::{Link, Object};
use zerocopy::IntoBytes;

use crate::Error;
use crate::maps::Map;
use crate::object::program;
use crate::objects::{Objects, objects};

use super::control::Balancer;
use super::load::load_object;
use super::shape::{AT_ONCE, MAX_WORKERS, WorkerQueue};
use super::sizes::possible_cpus;

static OBJECTS: Objects = objects!("spread");
pub(super) const SPREAD: &str = "spread";
const QUEUED: &str = "balance_queued";
const COUNTING: &str = "count_refused";
/// What the attachment of `count_refused` is called where it is kept.
const KEPT_COUNTING: &str = "count_refused";
const SPREADING: &str = ".rodata.spreading";

/// How packets come to the CPUs that handle them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Spreading {
    /// A packet is handled on the CPU that takes it from the interface. So the workers are the CPUs which the interface's
    /// queues are placed on.
    #[default]
    AsReceived,
    /// Where there are fewer queues than workers: the CPU that takes packets from the interface gives each flow to a
    /// worker, by its hash, over a queue in memory (a CPU map). What is not for the balancer stays where it came in. In
    /// place of `XDP_TX`, which there is not behind such a queue, packets are redirected; see [`TransmitMethod`](super::TransmitMethod) for
    /// what veth wants then.
    Queues {
        /// 1 to 128, each once.
        workers: Vec<u32>,
        /// The worker that takes packets from the interface as well, if one of them does: its share is handled at once.
        receiver: Option<u32>,
        /// Length of each queue in packets, 1 to [`MOST_PACKETS`]; see [`QUEUE_PACKETS`]. Packets that find it full are
        /// dropped and counted ([`Drop::WorkerBusy`](super::Drop::WorkerBusy)).
        packets: u32,
    },
}

/// A good length of a worker's queue: some milliseconds of its work.
pub const QUEUE_PACKETS: u32 = 2048;
/// The longest queue that the kernel makes (kernel/bpf/cpumap.c).
pub const MOST_PACKETS: u32 = 16_384;

/// The programs that spread, upon the balancer's tables.
pub(crate) struct Spreader {
    pub(super) object: Object,
    counting: Link,
}

/// The constants of `spread`: how many workers, and the CPU of each.
fn table(workers: &[u32], receiver: Option<u32>, possible: u32) -> Result<[u32; 1 + MAX_WORKERS], Error> {
    if workers.is_empty() || workers.len() > MAX_WORKERS {
        let wanted = workers.len() as u32;
        return Err(Error::Size { what: "workers", wanted, least: 1, most: MAX_WORKERS as u32 });
    }
    let mut seen = BTreeSet::new();
    for cpu in workers.iter().copied().chain(receiver) {
        let refused = |reason| Err(Error::Worker { cpu, reason });
        if cpu >= possible {
            return refused("there is no such CPU");
        }
        if !seen.insert(cpu) && Some(cpu) != receiver {
            return refused("it is one already");
        }
    }
    if let Some(cpu) = receiver.filter(|cpu| !workers.contains(cpu)) {
        return Err(Error::Worker { cpu, reason: "it is named as the one that receives, and not among the workers" });
    }
    let mut table = [0; 1 + MAX_WORKERS];
    table[0] = workers.len() as u32;
    for (place, cpu) in table[1..].iter_mut().zip(workers) {
        *place = if Some(*cpu) == receiver { AT_ONCE } else { *cpu };
    }
    Ok(table)
}

impl Balancer {
    /// Says how packets come to the CPUs that handle them. Holds for attachments that are made, taken over or
    /// [renewed](Self::renew) from now on.
    pub fn spread_over(&mut self, spreading: &Spreading) -> Result<(), Error> {
        self.spreader = match spreading {
            Spreading::AsReceived => None,
            Spreading::Queues { workers, receiver, packets } => Some(self.spreader(workers, *receiver, *packets)?),
        };
        self.known.spreading = spreading.clone();
        self.handle.publish(&self.known);
        Ok(())
    }

    fn spreader(&self, workers: &[u32], receiver: Option<u32>, packets: u32) -> Result<Spreader, Error> {
        if !(1..=MOST_PACKETS).contains(&packets) {
            return Err(Error::Size { what: "packets of a queue", wanted: packets, least: 1, most: MOST_PACKETS });
        }
        let possible = possible_cpus()? as u32;
        let table = table(workers, receiver, possible)?;
        let object =
            load_object(OBJECTS.for_running(SPREAD)?, &[SPREAD, QUEUED, COUNTING], &self.tuning, |name, map| {
                if name == SPREADING {
                    let refused = |source| Error::Map { map: "spreading", operation: "write to", source };
                    return map.set_initial_value(table.as_bytes()).map_err(refused);
                }
                if name == "queues" {
                    let refused = |source| Error::Map { map: "queues", operation: "size", source };
                    return map.set_max_entries(possible).map_err(refused);
                }
                self.tables.share(name, map)
            })?;
        let queues = Map::of(&object, "queues", size_of::<WorkerQueue>())?;
        let queued = program(&object, QUEUED)?.as_fd().as_raw_fd();
        for cpu in workers.iter().filter(|cpu| Some(**cpu) != receiver) {
            queues.set(cpu, &WorkerQueue { packets, program: queued })?;
        }
        Map::of(&object, "queues_id", size_of::<u32>())?.set(&0_u32, &queues.id()?)?;
        self.unsent.set_entry(1, &program(&object, SPREAD)?)?;
        let counting = program(&object, COUNTING)?.attach_trace();
        let counting = counting.map_err(|source| Error::Load { program: COUNTING, source })?;
        Ok(Spreader { object, counting })
    }

    /// The kernel's threads that handle what is in the workers' queues, one for each queue; none without queues.
    ///
    /// # Errors
    /// When they are not to be seen, as in a process number namespace of our own.
    pub fn queue_threads(&self) -> Result<Vec<u32>, Error> {
        let Some(spreader) = &self.spreader else { return Ok(Vec::new()) };
        let map = Map::of(&spreader.object, "queues", size_of::<WorkerQueue>())?.id()?;
        let Spreading::Queues { workers, receiver, .. } = &self.known.spreading else { return Ok(Vec::new()) };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let named = |process: std::fs::DirEntry| {
            let number = process.file_name().to_str()?.parse().ok()?;
            Some((std::fs::read_to_string(process.path().join("comm")).ok()?, number))
        };
        let threads: HashMap<String, u32> = processes.filter_map(named).collect();
        let thread = |cpu: &u32| {
            let name = format!("cpumap/{cpu}/map:{map}\n");
            let unseen = Error::Worker { cpu: *cpu, reason: "the kernel's thread for its queue is not to be seen" };
            threads.get(&name).copied().ok_or(unseen)
        };
        workers.iter().filter(|cpu| Some(**cpu) != *receiver).map(thread).collect()
    }

    /// What was last said to [`spread_over`](Self::spread_over).
    pub fn spreading(&self) -> Spreading {
        self.known.spreading.clone()
    }

    /// Where the tables are kept, the counting at tracepoints is, too: it lives by itself.
    pub(super) fn keep_counting(&mut self) -> Result<(), Error> {
        let Some(directory) = &self.kept else { return Ok(()) };
        let workers = self.spreader.as_mut().map(|spreader| &mut spreader.counting);
        pin_anew(&directory.join(KEPT_COUNTING), workers)?;
        self.unsent.links.iter_mut().try_for_each(|(name, link)| pin_anew(&directory.join(name), Some(link)))
    }
}

/// Puts the link in the place of the one that is kept at `path`, or nothing.
fn pin_anew(path: &Path, link: Option<&mut Link>) -> Result<(), Error> {
    if link.as_ref().is_some_and(|link| link.pin_path().as_deref() == Some(path)) {
        return Ok(());
    }
    let failed = |operation| {
        let path = path.display().to_string();
        move |source| Error::Pin { operation, path, source }
    };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("replace")(error.into())),
        _ => {}
    }
    link.map_or(Ok(()), |link| link.pin(path).map_err(failed("pin")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn workers_are_cpus_and_each_is_one_once() {
        assert_eq!(table(&[3, 1], Some(3), 4).unwrap()[..3], [2, AT_ONCE, 1]);
        let refused = |workers: &[u32], receiver| table(workers, receiver, 4).unwrap_err().to_string();
        assert_eq!(refused(&[1, 1], None), "CPU 1 cannot be a worker: it is one already");
        assert_eq!(refused(&[4], None), "CPU 4 cannot be a worker: there is no such CPU");
        assert!(refused(&[1], Some(2)).contains("not among the workers"));
        assert_eq!(refused(&[], None), "a balancer cannot be made for 0 workers: 1 to 128");
    }
}
