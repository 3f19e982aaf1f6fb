//! The values in the maps, as bpf/measure/cputime.h has them.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Account;

pub(super) const ACCOUNTS: usize = 64;
pub(super) const BACKLOG: u8 = 63;
const KINDS: usize = 16;

/// Softirqs in the kernel's order (include/linux/interrupt.h): the first one's kind, and how many there are.
const SOFTIRQ: usize = 5;
const SOFTIRQS: usize = 10;

/// What a CPU can be at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The idle task, but for what interrupts it.
    Idle = 0,
    /// Of users, in the kernel or not.
    Process = 1,
    KernelThread = 2,
    /// Threads that poll network devices in place of softirqs (`threaded`).
    NapiThread = 3,
    /// Those that meet an idle CPU, and all others where they are counted by themselves
    /// ([`CpuTime::count_interrupts`](super::CpuTime::count_interrupts)).
    HardInterrupt = 4,
    Timer = SOFTIRQ as u8 + 1,
    NetTransmit = SOFTIRQ as u8 + 2,
    NetReceive = SOFTIRQ as u8 + 3,
    HrTimer = SOFTIRQ as u8 + 8,
    /// ksoftirqd, between the softirqs that it serves.
    SoftirqThread = (SOFTIRQ + SOFTIRQS) as u8,
}

/// Nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct AccountTime {
    /// Of processes, outside of softirqs, and of hard interrupts where these are counted by themselves.
    pub processes: u64,
    /// Receive softirqs and NAPI threads, for its devices.
    pub network: u64,
}

/// What a CPU's time went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Times {
    /// CLOCK_MONOTONIC at the reading; of a difference, how long it was.
    pub at: u64,
    kinds: [u64; KINDS],
    places: [AccountTime; ACCOUNTS],
    /// Runs of the programs.
    pub events: u64,
    /// One of some, of which the time was taken, and that.
    pub measured: u64,
    pub cost: u64,
    /// Times that a task came, or left, without its switch being seen, as of those that a kernel hides from tracing. How
    /// long they ran is taken from the scheduler.
    pub unseen: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            at: 0,
            kinds: [0; KINDS],
            places: [AccountTime::default(); ACCOUNTS],
            events: 0,
            measured: 0,
            cost: 0,
            unseen: 0,
        }
    }
}

impl Times {
    pub fn of(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize]
    }

    /// Adds what a CPU was at for `ns` nanoseconds, as for a reading that no program made.
    pub fn add(&mut self, kind: Kind, ns: u64) {
        self.kinds[kind as usize] += ns;
    }

    /// All softirqs, and ksoftirqd.
    pub fn softirqs(&self) -> u64 {
        self.kinds[SOFTIRQ..].iter().sum()
    }

    /// Everything: of a difference, [`at`](Self::at) but for what was charged twice or not at all.
    pub fn total(&self) -> u64 {
        self.kinds.iter().sum()
    }

    /// Everything but idle.
    pub fn busy(&self) -> u64 {
        self.kinds[1..].iter().sum()
    }

    pub fn account(&self, account: Account) -> AccountTime {
        self.places[account.index()]
    }

    /// What the programs themselves took of this time, nanoseconds: runs by the mean of those that were measured. The kernel's
    /// way into them is not in it.
    pub fn overhead(&self) -> u64 {
        match self.measured {
            0 => 0,
            measured => (self.cost as f64 / measured as f64 * self.events as f64) as u64,
        }
    }

    /// What came since an earlier reading of the same CPU.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        let less = |value: &mut u64, earlier: u64| *value = value.saturating_sub(earlier);
        less(&mut difference.at, earlier.at);
        less(&mut difference.events, earlier.events);
        less(&mut difference.measured, earlier.measured);
        less(&mut difference.cost, earlier.cost);
        less(&mut difference.unseen, earlier.unseen);
        difference.kinds.iter_mut().zip(earlier.kinds).for_each(|(value, earlier)| less(value, earlier));
        for (value, earlier) in difference.places.iter_mut().zip(earlier.places) {
            less(&mut value.processes, earlier.processes);
            less(&mut value.network, earlier.network);
        }
        difference
    }
}

/// A key of what is watched.
#[derive(Debug, Clone, Copy, IntoBytes, FromBytes, Immutable)]
#[repr(C)]
pub(super) struct WatchKey {
    pub kind: WatchKind,
    pub id: u32,
}

#[derive(Debug, Clone, Copy, IntoBytes, FromBytes, Immutable)]
#[repr(transparent)]
pub(super) struct WatchKind(u32);

impl WatchKind {
    pub const NAMESPACE: Self = Self(0);
    pub const PROCESS: Self = Self(1);
}

/// The process that says what is watched.
#[derive(Debug, Clone, Copy, IntoBytes, FromBytes, Immutable)]
#[repr(C)]
pub(super) struct Watcher {
    /// Rises when what is watched changes.
    pub generation: u32,
    /// Its namespace of process numbers: the inode number of its file, and how many there are above it. The program
    /// `cputime_own` finds both.
    pub namespace: u32,
    pub level: u32,
    /// Whether interrupts that meet a CPU at work are counted by themselves.
    pub interrupts: u32,
    /// What two looks at the clock are apart at least, nanoseconds; found by `cputime_own` too.
    pub clock: u32,
}

/// What a test holds against the programs' types.
#[cfg(test)]
pub(crate) fn layouts() -> Vec<crate::plain::layout::Layout> {
    use crate::plain::layout::layout;
    vec![
        layout!(AccountTime { processes, network }),
        layout!(Times { at, kinds, places, events, measured, cost, unseen }),
        layout!(WatchKey { kind, id }),
        layout!(Watcher { generation, namespace, level, interrupts, clock }),
    ]
}

/// What a program that was run on a CPU says when it met another one at its work, and changed nothing.
pub(super) const AGAIN: u32 = 2;
