//! CPU time, counted at each change of what a CPU does instead of at clock ticks.
//!
//! The kernel of most distributions and clouds looks 100 to 1000 times a second at what each CPU happens to do
//! (CONFIG_TICK_CPU_ACCOUNTING), so that what keeps step with its tick is counted much too high or not at all. Here
//! programs at the kernel's tracepoints count: switches between tasks, softirqs by their number, interrupts of devices and
//! of the interrupt controller, polls of network devices. Nested time is subtracted; each nanosecond of a CPU goes to one
//! [`Kind`]. What processes use, and what receive processing costs, is counted by [`Account`], too. Interrupts that meet a CPU at work
//! count to what they meet, unless they are asked for: told apart, they would be a fifth of what the count costs.
//!
//! Not seen: the entry of an interrupt before its tracepoint, which counts to what was interrupted (so idle time holds
//! some hundred nanoseconds of each interrupt that ends it), and interrupts without a tracepoint, as those of some
//! hypervisors. Some kernels hide tasks from tracing: the task that comes after them is noticed at the next event, and how long they
//! ran is asked of the scheduler. With PREEMPT_RT, where softirqs can be switched away from, the rest of one that was counts to its task. Time that the
//! hypervisor took counts to the task or interrupt that ran.
//!
//! Nothing is pinned: the programs go when the [`CpuTime`] goes, or its process.

pub(crate) mod shape;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::AsFd;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, Object, ObjectBuilder, Program, ProgramInput, ProgramMut};

use crate::Error;
use crate::kernel;
use crate::libbpf_log;
use crate::maps::Map;
use crate::object::program;
use crate::rights::check_may_trace;

use shape::{AGAIN, WatchKey, WatchKind, Watcher};
pub use shape::{AccountTime, Kind, Times};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cputime.bpf.o"));
const READ: &str = "cputime_read";
/// The same for kernels whose programs cannot compare and exchange.
const READ_PLAIN: &str = "cputime_read_plain";
const REST: &str = "cputime_rest";
const OWN: &str = "cputime_own";
/// How often a program is run again on a CPU that is in the middle of a change, which takes well below a microsecond.
const TRIES: u32 = 1000;
/// Where the kernel tells its types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Interrupts begin here: those of devices, and those between CPUs and of CPUs' own timers, which bypass that: on x86 those of
/// the interrupt controller (arch/x86/include/asm/trace/irq_vectors.h), on ARM `ipi` (include/trace/events/ipi.h; its timers
/// are devices there). What these kernels always handle is missed where it has no tracepoint.
const HARD: &[&str] = if cfg!(target_arch = "x86_64") {
    &["irq_handler", "local_timer", "reschedule", "call_function", "call_function_single", "irq_work"]
} else if cfg!(any(target_arch = "aarch64", target_arch = "arm")) {
    &["irq_handler", "ipi"]
} else {
    &["irq_handler"]
};
/// What kernels handle only with some options, x86.
const RARE: [&str; 6] =
    ["x86_platform_ipi", "error_apic", "spurious_apic", "thermal_apic", "threshold_apic", "deferred_error_apic"];
/// `BPF_F_TEST_RUN_ON_CPU` (linux/bpf.h).
const ON_CPU: u32 = 1;

/// Whose time is counted apart: one of [`Account::MOST`] numbers. What is not watched has the number 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(u8);

impl Account {
    /// Places that can be watched.
    pub const MOST: usize = shape::ACCOUNTS - 2;
    /// All tasks that are not watched.
    pub const ELSEWHERE: Self = Self(0);
    /// The CPUs' own queues of packets (`netif_rx`, RPS), in which those of several devices may be: of no account.
    pub const BACKLOG: Self = Self(shape::BACKLOG);

    /// The `index`th that can be watched, from 0; `None` beyond [`Self::MOST`].
    pub fn new(index: usize) -> Option<Self> {
        (index < Self::MOST).then_some(Self(index as u8 + 1))
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A process or namespace that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Member {
    /// A network namespace, by the inode number of its file: processes in it, and its interfaces.
    Namespace(u32),
    /// A process with all its threads, wherever it is, by its number in the namespace of the process that watches
    /// (pid_namespaces(7)). It goes before its network namespace.
    Process(u32),
}

impl From<Member> for WatchKey {
    fn from(member: Member) -> Self {
        match member {
            Member::Namespace(id) => Self { kind: WatchKind::NAMESPACE, id },
            Member::Process(id) => Self { kind: WatchKind::PROCESS, id },
        }
    }
}

/// Programs that count, at the tracepoints.
pub struct CpuTime {
    object: Object,
    /// The program that reads a CPU.
    reader: &'static str,
    /// Before the object, whose programs they keep, goes.
    links: Vec<Link>,
    readings: Map,
    places: Map,
    watcher: Map,
    missing: Vec<&'static str>,
    /// CPUs that are counted; all without.
    cpus: Option<BTreeSet<u32>>,
}

impl fmt::Debug for CpuTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuTime").field("links", &self.links.len()).field("missing", &self.missing).finish()
    }
}

/// All CPUs at a moment of each, by number: nanoseconds since the programs were attached.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading(pub BTreeMap<u32, Times>);

impl CpuTime {
    /// Attaches the programs. They count from then on, on all CPUs.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without CAP_BPF and CAP_PERFMON, [`Error::NoTypes`] where the kernel has no BTF, [`Error::Load`]
    /// where it lacks a tracepoint that it takes.
    pub fn attach() -> Result<Self, Error> {
        check_may_trace()?;
        // Else libbpf would look for the types in other places, and say of each that it is not there.
        std::fs::metadata(TYPES).map_err(Error::NoTypes)?;
        let failed = |source| Error::Load { program: "cputime_switch", source };
        let mut builder = ObjectBuilder::default();
        let mut open = builder.name("cputime").map_err(failed)?.open_memory(OBJECT).map_err(failed)?;
        let types = Btf::from_vmlinux().map_err(failed)?;
        let (reader, other) = if kernel::exchanges(&types) { (READ, READ_PLAIN) } else { (READ_PLAIN, READ) };
        if let Some(mut other) = open.progs_mut().find(|program| program.name() == other) {
            other.set_autoload(false);
        }
        let object = libbpf_log::load(open, "cputime_switch")?;
        let mut new = Self {
            readings: Map::of(&object, "readings", size_of::<Times>())?,
            places: Map::of(&object, "places", size_of::<u32>())?,
            watcher: Map::of(&object, "watchers", size_of::<Watcher>())?,
            object,
            reader,
            links: Vec::new(),
            missing: Vec::new(),
            cpus: None,
        };
        let outcome = new.program(OWN)?.test_run(ProgramInput::default());
        outcome.map_err(|source| Error::TestRun { program: OWN, source })?;
        new.attach_all(&types)?;
        // From its first reading on a CPU counts.
        new.read()?;
        Ok(new)
    }

    /// Ends before begins, so that nothing begins that is not seen to end.
    fn attach_all(&mut self, types: &Btf<'_>) -> Result<(), Error> {
        self.attach_raw("cputime_soft_out", "softirq_exit")?;
        self.attach_raw("cputime_soft_in", "softirq_entry")?;
        for name in HARD.iter().copied().chain(RARE) {
            if types.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}_entry")).is_none() {
                if HARD.contains(&name) {
                    self.missing.push(name);
                }
                continue;
            }
            self.attach_raw("cputime_hard_out", &format!("{name}_exit"))?;
            self.attach_raw("cputime_hard_in", &format!("{name}_entry"))?;
        }
        self.attach_typed("cputime_poll")?;
        self.attach_typed("cputime_switch")
    }

    fn attach_raw(&mut self, name: &'static str, tracepoint: &str) -> Result<(), Error> {
        let link = self.program(name)?.attach_raw_tracepoint(tracepoint);
        self.links.push(link.map_err(|source| Error::Load { program: name, source })?);
        Ok(())
    }

    fn attach_typed(&mut self, name: &'static str) -> Result<(), Error> {
        let link = self.program(name)?.attach_trace();
        self.links.push(link.map_err(|source| Error::Load { program: name, source })?);
        Ok(())
    }

    fn program(&self, name: &'static str) -> Result<ProgramMut<'_>, Error> {
        program(&self.object, name)
    }

    /// The kernel's numbers of the programs (bpf(2), `BPF_PROG_GET_FD_BY_ID`), which tell what each took when statistics are on.
    pub fn programs(&self) -> Result<Vec<u32>, Error> {
        let number = |program: ProgramMut<'_>| {
            let failed = |source| Error::Map { map: "programs", operation: "find the number of", source };
            Program::id_from_fd(program.as_fd()).map_err(failed)
        };
        self.object.progs_mut().filter(|program| program.autoload()).map(number).collect()
    }

    /// What the kernel says that the programs took so far, nanoseconds: only while it counts that for all programs of the
    /// machine (sysctl kernel.bpf_stats_enabled, or bpf(2)'s `BPF_ENABLE_STATS`), which takes time itself.
    pub fn run_time_ns(&self) -> Result<u64, Error> {
        let numbers = self.programs()?;
        let own = ProgInfoIter::default().filter(|program| numbers.contains(&program.id));
        Ok(own.map(|program| program.run_time_ns).sum())
    }

    /// Interrupts that this kernel has no tracepoint for, by the tracepoints' names. Their time counts to what they
    /// interrupt.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// Counts `member` to `place` from now on.
    pub fn watch(&mut self, member: Member, place: Account) -> Result<(), Error> {
        self.places.set(&WatchKey::from(member), &u32::from(place.0))?;
        self.changed()
    }

    /// Counts `member` to no place of its own any more.
    pub fn forget(&mut self, member: Member) -> Result<(), Error> {
        self.places.remove(&WatchKey::from(member))?;
        self.changed()
    }

    /// What the programs know of processes is looked up anew.
    fn changed(&self) -> Result<(), Error> {
        let watcher: Watcher = self.watcher.at(0)?;
        self.watcher.set(&0_u32, &Watcher { generation: watcher.generation.wrapping_add(1), ..watcher })
    }

    /// Whether interrupts that meet a CPU at work are counted by themselves from now on ([`Kind::HardInterrupt`]), which costs
    /// more, or to what they meet.
    pub fn count_interrupts(&mut self, by_themselves: bool) -> Result<(), Error> {
        let watcher: Watcher = self.watcher.at(0)?;
        self.watcher.set(&0_u32, &Watcher { interrupts: by_themselves.into(), ..watcher })
    }

    /// Counts these CPUs alone from now on, or all. What others do costs no more than the look whether they are counted, and
    /// readings are without them.
    pub fn count_on(&mut self, cpus: Option<&[u32]>) -> Result<(), Error> {
        self.cpus = cpus.map(|cpus| cpus.iter().copied().collect());
        for cpu in (0..possible()?).filter(|cpu| !self.counts(*cpu)) {
            self.run_on(REST, cpu)?;
        }
        // From its first reading on a CPU counts.
        self.read().map(drop)
    }

    fn counts(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// Reads every CPU that is counted and online, with what it has been doing until then.
    pub fn read(&self) -> Result<Reading, Error> {
        let mut online = Vec::new();
        for cpu in (0..possible()?).filter(|cpu| self.counts(*cpu)) {
            if self.run_on(self.reader, cpu)? {
                online.push(cpu);
            }
        }
        let all: Vec<Times> = self.readings.per_cpu(0)?;
        Ok(Reading(online.into_iter().filter_map(|cpu| Some((cpu, *all.get(cpu as usize)?))).collect()))
    }

    /// Runs a program on a CPU; `false` where that is offline.
    fn run_on(&self, name: &'static str, cpu: u32) -> Result<bool, Error> {
        let program = self.program(name)?;
        for _ in 0..TRIES {
            let input = ProgramInput { cpu, flags: ON_CPU, ..ProgramInput::default() };
            match program.test_run(input) {
                Ok(output) if output.return_value == AGAIN => {}
                Ok(_) => return Ok(true),
                // Of those that are offline the kernel says that there is no such device or address.
                Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound || is_offline(&error) => return Ok(false),
                Err(source) => return Err(Error::TestRun { program: name, source }),
            }
        }
        Err(Error::TestRun { program: name, source: std::io::Error::from(std::io::ErrorKind::ResourceBusy).into() })
    }
}

/// How many CPUs there may be.
fn possible() -> Result<u32, Error> {
    let count = libbpf_rs::num_possible_cpus();
    let failed = |source| Error::Map { map: "readings", operation: "count the CPUs of", source };
    count.map(|count| count as u32).map_err(failed)
}

/// ENXIO.
fn is_offline(error: &libbpf_rs::Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.raw_os_error() == Some(6);
        }
        source = error.source();
    }
    false
}
