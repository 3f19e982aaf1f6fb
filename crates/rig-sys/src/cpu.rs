//! CPU sets and affinity.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rustix::thread::{CpuSet as KernelSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::direct;
use crate::error::{ErrorContext, Result};

/// Sorted CPU numbers without repetition. Written as the kernel's CPU lists are: `0-3,6`; as a value in a file, an empty
/// text stands for none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(Vec<u32>);

impl CpuSet {
    /// Largest CPU number that a set can hold (the size of the C library's `cpu_set_t`).
    pub const MAX: u32 = 1023;

    pub fn new(cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().filter(|&cpu| cpu <= Self::MAX).collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }

    /// CPUs that the calling thread may run on: cgroups and an inherited affinity are respected.
    pub fn allowed() -> Result<Self> {
        let set = sched_getaffinity(None).during(|| "read the CPU affinity".into())?;
        Ok(Self::new((0..=Self::MAX).filter(|&cpu| set.is_set(cpu as usize))))
    }

    /// CPUs that are switched on.
    pub fn online() -> Result<Self> {
        let path = "/sys/devices/system/cpu/online";
        let text = fs::read_to_string(path).during(|| format!("read {path}"))?;
        text.trim().parse().map_err(|e: ParseCpuSetError| std::io::Error::other(e)).during(|| format!("read {path}"))
    }

    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The CPUs of this set that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.iter().copied().filter(|&cpu| !other.contains(cpu)).collect())
    }

    /// The hexadecimal mask that sysfs and procfs take, in groups of 32 bits: `ff`, `1,00000000`.
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |w: u32| self.0.iter().filter(|&&cpu| cpu / 32 == w).fold(0u32, |bits, cpu| bits | 1 << (cpu % 32));
        let mut mask = format!("{:x}", word(words - 1));
        for w in (0..words - 1).rev() {
            mask.push_str(&format!(",{:08x}", word(w)));
        }
        mask
    }

    /// Restricts the calling thread, and what it starts from now on, to this set. An empty set changes nothing.
    pub fn apply(&self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        sched_setaffinity(None, &self.kernel_set()).during(|| format!("run on CPUs {self}"))
    }

    pub(crate) fn kernel_set(&self) -> KernelSet {
        let mut set = KernelSet::new();
        for &cpu in &self.0 {
            set.set(cpu as usize);
        }
        set
    }
}

/// The CPUs that are threads of one core, for each core that has several; empty where the kernel does not tell.
pub fn shared_cores() -> Vec<CpuSet> {
    shared_cores_under(Path::new("/"))
}

/// [`shared_cores`] of the file tree at `root` (Documentation/admin-guide/cputopology.rst).
pub(crate) fn shared_cores_under(root: &Path) -> Vec<CpuSet> {
    let cpus = root.join("sys/devices/system/cpu");
    let set = |path: &str| fs::read_to_string(cpus.join(path)).ok()?.trim().parse::<CpuSet>().ok();
    let online = set("online").unwrap_or_default();
    let core = |cpu: &u32| set(&format!("cpu{cpu}/topology/thread_siblings_list"));
    let mut cores: Vec<CpuSet> = online.as_slice().iter().filter_map(core).filter(|core| core.len() > 1).collect();
    cores.sort_by(|one, other| one.0.cmp(&other.0));
    cores.dedup();
    cores
}

/// A CPU that there is, and where it stands (Documentation/admin-guide/cputopology.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTopology {
    pub cpu: u32,
    pub online: bool,
    /// The NUMA node; 0 where the kernel does not tell.
    pub node: u32,
    /// The lowest CPU of its core, and of those that share its last cache.
    pub core: u32,
    pub cache: u32,
    /// Kept from the scheduler's work, or from its ticks, by the kernel's command line (`isolcpus`, `nohz_full`).
    pub isolated: bool,
}

/// All CPUs that are present.
///
/// # Errors
/// Where the kernel does not tell which there are.
pub fn standings() -> Result<Vec<CpuTopology>> {
    standings_under(Path::new("/"))
}

fn standings_under(root: &Path) -> Result<Vec<CpuTopology>> {
    let cpus = root.join("sys/devices/system/cpu");
    let set = |path: &str| fs::read_to_string(cpus.join(path)).ok()?.trim().parse::<CpuSet>().ok();
    let present = || format!("read {}", cpus.join("present").display());
    let present = set("present").ok_or_else(|| io::Error::other("no list of CPUs")).during(present)?;
    let online = set("online").unwrap_or_else(|| present.clone());
    let isolated = [set("isolated"), set("nohz_full")];
    let lowest = |path: String| set(&path)?.as_slice().first().copied();
    let node_of = |cpu: u32| {
        let entries = fs::read_dir(cpus.join(format!("cpu{cpu}"))).ok()?;
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.find_map(|name| name.strip_prefix("node")?.parse().ok())
    };
    let cache_of = |cpu: u32| {
        let level = |index: u32| fs::read_to_string(cpus.join(format!("cpu{cpu}/cache/index{index}/level"))).ok();
        let last = (0..16).filter_map(|index| Some((level(index)?.trim().parse::<u32>().ok()?, index))).max()?;
        lowest(format!("cpu{cpu}/cache/index{}/shared_cpu_list", last.1))
    };
    let standing = |&cpu: &u32| CpuTopology {
        cpu,
        online: online.contains(cpu),
        node: node_of(cpu).unwrap_or_default(),
        core: lowest(format!("cpu{cpu}/topology/thread_siblings_list")).unwrap_or(cpu),
        cache: cache_of(cpu).unwrap_or_default(),
        isolated: isolated.iter().flatten().any(|set| set.contains(cpu)),
    };
    Ok(present.as_slice().iter().map(standing).collect())
}

/// Restricts the calling thread to `cpus`. An empty list changes nothing.
pub fn set_affinity(cpus: &[u32]) -> Result<()> {
    CpuSet::new(cpus.iter().copied()).apply()
}

/// Asks the scheduler for turns of `slice` for the calling thread, 0.1 to 100 ms: threads that share a CPU and give it up
/// when they have nothing to do then wait for each other that long at most, instead of some milliseconds. The thread's
/// nice value stays. Before Linux 6.12 nothing comes of it (sched_attr(2), `sched_runtime`).
///
/// # Errors
/// When the kernel refuses, as it does to a thread of real time, which has no such turns.
pub fn set_slice(slice: Duration) -> Result<()> {
    let operation = || format!("ask for turns of {slice:?}");
    let nice = rustix::process::getpriority_process(None).during(operation)?;
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the pointer is to a whole `sched_attr` of the size that it tells, which lives through the call.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).during(operation),
    }
}

/// Lets a thread run before all that are not of real time, and before those of real time with a lower `priority`, 1 to 99
/// (SCHED_FIFO of sched(7)).
///
/// # Errors
/// Without CAP_SYS_NICE, and when there is no such thread.
pub fn run_before_others(thread: u32, priority: u8) -> Result<()> {
    if direct::set_fifo(thread, 0, priority) {
        return Ok(());
    }
    Err(io::Error::last_os_error()).during(|| format!("let thread {thread} run before others"))
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(cpu, expected)| *cpu == expected).count();
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", rest[run - 1])?,
            }
            rest = &rest[run..];
            separator = ",";
        }
        Ok(())
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = ParseCpuSetError;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        if text.is_empty() { Ok(Self::default()) } else { text.parse() }
    }
}

/// A text that is not a CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a CPU list: write numbers and ranges up to {max}, as in 0-3,6", max = CpuSet::MAX)]
pub struct ParseCpuSetError {
    text: String,
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let fail = || ParseCpuSetError { text: text.to_owned() };
        let number = |part: &str| part.trim().parse::<u32>().ok().filter(|&cpu| cpu <= Self::MAX).ok_or_else(fail);
        let mut cpus = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                None => cpus.push(number(part)?),
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(fail());
                    }
                    cpus.extend(first..=last);
                }
            }
        }
        Ok(Self::new(cpus))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn masks_have_groups_of_32_bits() {
        assert_eq!(CpuSet::new([0]).mask(), "1");
        assert_eq!(CpuSet::new([0, 1, 5]).mask(), "23");
        assert_eq!(CpuSet::new([32]).mask(), "1,00000000");
        assert_eq!(CpuSet::new([3, 35, 64]).mask(), "1,00000008,00000008");
        assert_eq!(CpuSet::default().mask(), "0");
    }

    #[test]
    fn bad_lists_are_refused() {
        for text in ["", "a", "3-1", "0,", "-1", "1024", "0-99999999999"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text:?} was taken");
        }
    }

    proptest! {
        #[test]
        fn lists_read_back_as_written(cpus in proptest::collection::vec(0..=CpuSet::MAX, 1..40)) {
            let set = CpuSet::new(cpus);
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }
    }
}
