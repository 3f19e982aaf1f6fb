//! CPU time of a machine: exactly where the kernel lets netrig count it, else by the kernel's clock of idle time. Suites,
//! two-ended tests and front ends all read it here. docs/decisions/cpu-time.md has the evidence.

use std::collections::BTreeMap;
use std::sync::Arc;

use rig_cli::exit::in_words;
use rig_datapath::cputime::{Account, CpuTime, Kind, Member, Reading as ExactReading, Times};
use rig_sys::clock::monotonic_ns;
use rig_sys::counters::{self, CpuTicks};

use crate::node::{Accounting, CpuShares, NodeShare};

/// Counts from when it is [started](Self::start) until it is [paused](Self::pause) or dropped.
#[derive(Debug)]
pub struct CpuAccounting {
    /// `None` while it is paused, and where the count is not exact.
    exact: Option<CpuTime>,
    /// Why the count is not exact.
    lack: Option<String>,
    /// Interrupts that an exact count does not see, by the names of their tracepoints.
    unseen: Vec<&'static str>,
    idle_clocked: bool,
    /// Whether hard interrupts that meet a CPU at work are counted by themselves.
    interrupts: bool,
    /// Of each [`Account`], whether it is in use.
    taken: Vec<bool>,
}

/// The CPUs at one moment. The exact count is large, and shared by copies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpuReading {
    /// CLOCK_MONOTONIC, of the ticks.
    pub at_ns: u64,
    pub ticks: BTreeMap<u32, CpuTicks>,
    pub exact: Option<Arc<ExactReading>>,
    /// Whether the kernel reads idle time from a clock.
    pub idle_clocked: bool,
    /// Whether an exact count has hard interrupts that met a CPU at work by themselves.
    pub interrupts: bool,
}

impl CpuAccounting {
    /// Counts exactly where that can be, and remembers why not where it cannot.
    pub fn start() -> Self {
        let mut new = Self::paused();
        new.resume();
        new
    }

    /// Counts nothing yet.
    pub fn paused() -> Self {
        Self {
            exact: None,
            lack: None,
            unseen: Vec::new(),
            idle_clocked: counters::idle_is_clocked(),
            interrupts: false,
            taken: vec![false; Account::MOST],
        }
    }

    /// Counts again from zero, without any account.
    pub fn resume(&mut self) {
        self.pause();
        let attached = CpuTime::attach().and_then(|mut exact| {
            exact.count_interrupts(self.interrupts)?;
            Ok(exact)
        });
        match attached {
            Ok(exact) => {
                self.unseen = exact.missing().to_vec();
                self.exact = Some(exact);
                self.lack = None;
            }
            Err(error) => self.lack = Some(in_words(&error.into())),
        }
    }

    /// The programs go; readings are not exact until it counts again.
    pub fn pause(&mut self) {
        self.exact = None;
        self.taken.fill(false);
    }

    /// Counts hard interrupts by themselves also where they interrupt a task. This costs more, and is needed to divide CPU time by
    /// what it was spent on.
    ///
    /// # Errors
    /// When the programs cannot be told any more.
    pub fn count_interrupts(&mut self) -> anyhow::Result<()> {
        self.interrupts = true;
        self.exact.as_mut().map_or(Ok(()), |exact| Ok(exact.count_interrupts(true)?))
    }

    /// Counts these CPUs alone exactly from now on: what others do is not delayed by the count, and is in no reading of it.
    ///
    /// # Errors
    /// When the programs cannot be run any more.
    pub fn count_on(&mut self, cpus: &[u32]) -> anyhow::Result<()> {
        self.exact.as_mut().map_or(Ok(()), |exact| Ok(exact.count_on(Some(cpus))?))
    }

    /// Why the count is not exact; `None` when it is.
    pub fn lack(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// The way of accounting, for a reader.
    pub fn words(&self) -> String {
        match &self.lack {
            None => exact_words(&self.unseen),
            Some(why) if self.idle_clocked => format!("{} ({why})", Accounting::IdleClock.words()),
            Some(why) => format!("{} ({why})", Accounting::Ticks.words()),
        }
    }

    /// Counts the members apart; `None` where nothing is counted apart, or no account is left.
    pub fn watch(&mut self, members: impl IntoIterator<Item = Member>) -> Option<Account> {
        let exact = self.exact.as_mut()?;
        let index = self.taken.iter().position(|taken| !taken)?;
        let account = Account::new(index)?;
        self.taken[index] = true;
        let members: Vec<Member> = members.into_iter().collect();
        if members.iter().all(|member| exact.watch(*member, account).is_ok()) {
            return Some(account);
        }
        self.forget(account, members);
        None
    }

    /// The members of an account are not counted apart any more; [`Self::watch`] may give the account to others.
    pub fn forget(&mut self, account: Account, members: impl IntoIterator<Item = Member>) {
        if let Some(exact) = &mut self.exact {
            members.into_iter().for_each(|member| drop(exact.forget(member)));
            let index = (0..Account::MOST).find(|&index| Account::new(index) == Some(account));
            index.into_iter().for_each(|index| self.taken[index] = false);
        }
    }

    /// # Errors
    /// When /proc/stat cannot be read, or the programs cannot be run any more.
    pub fn read(&self) -> anyhow::Result<CpuReading> {
        let exact = self.exact.as_ref().map(CpuTime::read).transpose()?;
        let at_ns = monotonic_ns();
        let ticks = counters::cpu_ticks()?;
        let (idle_clocked, interrupts) = (self.idle_clocked, self.interrupts);
        Ok(CpuReading { at_ns, ticks, exact: exact.map(Arc::new), idle_clocked, interrupts })
    }
}

/// The exact way, and what it does not see.
pub fn exact_words(unseen: &[&str]) -> String {
    let words = Accounting::Exact.words();
    match unseen {
        [] => words.into(),
        names => format!(
            "{words}; this kernel has no tracepoints for {}: their time counts to what they interrupt",
            names.join(", ")
        ),
    }
}

impl CpuReading {
    /// What a CPU did until `end`; `None` when it was not online at both.
    pub fn cpu_until(&self, end: &Self, cpu: u32) -> Option<CpuShares> {
        let (before, after) = (*self.ticks.get(&cpu)?, *end.ticks.get(&cpu)?);
        let ticks = by_ticks(before, after);
        let elapsed = end.at_ns.saturating_sub(self.at_ns);
        Some(match self.exact_of(end, cpu) {
            Some(times) => CpuShares {
                irq_met_idle: !(self.interrupts && end.interrupts),
                ..exactly(&times, &ticks, stolen_ns(before, after))
            },
            None if self.idle_clocked => by_idle_clock(before, after, elapsed, ticks),
            None => CpuShares { busy_by_ticks: None, ..ticks },
        })
    }

    fn exact_of(&self, end: &Self, cpu: u32) -> Option<Times> {
        let of = |reading: &Self| reading.exact.as_ref()?.0.get(&cpu).copied();
        Some(of(end)?.since(&of(self)?)).filter(|times| times.at > 0)
    }

    /// CPUs online at both.
    pub fn cpus(&self, end: &Self) -> Vec<u32> {
        end.ticks.keys().copied().filter(|cpu| self.ticks.contains_key(cpu)).collect()
    }

    /// What those at `account` used until `end`, on whichever CPU, and the queues of `cpus`.
    pub fn share_until(&self, end: &Self, account: Account, cpus: &[u32]) -> Option<NodeShare> {
        let mut share = NodeShare::default();
        let mut any = false;
        for cpu in self.cpus(end) {
            let Some(times) = self.exact_of(end, cpu) else { continue };
            any = true;
            let percent = |ns: u64| ns as f64 * 100.0 / times.at as f64;
            let of_account = times.account(account);
            share.processes += percent(of_account.processes);
            share.network += percent(of_account.network);
            if cpus.contains(&cpu) {
                share.queues += percent(times.account(Account::BACKLOG).network);
            }
        }
        any.then_some(share)
    }
}

/// Nanoseconds of a unit of /proc/stat.
fn unit_ns() -> u64 {
    1_000_000_000 / counters::units_per_second()
}

fn stolen_ns(before: CpuTicks, after: CpuTicks) -> u64 {
    after.steal.saturating_sub(before.steal) * unit_ns()
}

/// Shares of all that was accounted to the CPU, percent: what other tools show.
fn by_ticks(before: CpuTicks, after: CpuTicks) -> CpuShares {
    let total = after.total().saturating_sub(before.total());
    let percent = |field: fn(&CpuTicks) -> u64| {
        // The kernel's idle and iowait counters may step back by a tick (proc_stat(5)).
        let ticks = field(&after).saturating_sub(field(&before));
        if total == 0 { 0.0 } else { ticks as f64 * 100.0 / total as f64 }
    };
    let mut shares = CpuShares {
        user: percent(|t| t.user + t.nice),
        system: percent(|t| t.system),
        softirq: percent(|t| t.softirq),
        irq: percent(|t| t.irq),
        steal: percent(|t| t.steal),
        idle: percent(|t| t.idle + t.iowait),
        ..CpuShares::default()
    };
    shares.busy_by_ticks = Some(shares.busy());
    shares
}

/// Where the kernel stops its tick on idle CPUs (CONFIG_NO_HZ_COMMON), it does not count their idle time by ticks but reads a
/// clock (kernel/time/tick-sched.c, `get_cpu_idle_time_us`), so that the sum of the rest is as exact as /proc/stat is written:
/// to 10 ms. Only the parts of that rest are known by ticks. Elsewhere it is what the ticks say.
fn by_idle_clock(before: CpuTicks, after: CpuTicks, elapsed: u64, ticks: CpuShares) -> CpuShares {
    if elapsed == 0 {
        return CpuShares { busy_by_ticks: None, ..ticks };
    }
    let percent = |units: u64| (units * unit_ns()) as f64 * 100.0 / elapsed as f64;
    let idle = after.idle.saturating_sub(before.idle) + after.iowait.saturating_sub(before.iowait);
    let idle = percent(idle).min(100.0);
    let steal = percent(after.steal.saturating_sub(before.steal)).min(100.0);
    let (idle, busy) = (left_of(idle, steal), left_of(100.0 - idle, steal));
    let parts = ticks.busy();
    // Where no tick met any work, all is counted as the kernel's, which does most of the work that netrig causes.
    let part = |part: f64| if parts > 0.0 { busy * part / parts } else { 0.0 };
    CpuShares {
        user: part(ticks.user),
        system: if parts > 0.0 { part(ticks.system) } else { busy },
        softirq: part(ticks.softirq),
        irq: part(ticks.irq),
        steal,
        idle,
        accounting: Accounting::IdleClock,
        ..ticks
    }
}

/// What is left of a share when the hypervisor took `steal` percent of the CPU's time. It takes it from a CPU that is at work
/// and from one that is to wake up, whose time is counted as idle; nothing says how much from which, so it comes out of both
/// in proportion. Out of busy time alone it would leave nothing of a load that is small and wakes often.
fn left_of(percent: f64, steal: f64) -> f64 {
    percent * (100.0 - steal) / 100.0
}

fn exactly(times: &Times, ticks: &CpuShares, stolen: u64) -> CpuShares {
    let whole = times.total().max(1);
    let steal = stolen.min(whole) as f64 * 100.0 / whole as f64;
    let percent = |ns: u64| left_of(ns as f64 * 100.0 / whole as f64, steal);
    let tasks = [Kind::Process, Kind::KernelThread, Kind::NapiThread].map(|kind| times.of(kind));
    let tasks_by_ticks = ticks.user + ticks.system;
    let share_of_user = if tasks_by_ticks > 0.0 { ticks.user / tasks_by_ticks } else { 0.0 };
    let all = tasks.iter().sum::<u64>();
    // Threads of the kernel are never at users' work.
    let user = ((all as f64 * share_of_user) as u64).min(tasks[0]);
    CpuShares {
        user: percent(user),
        system: percent(all - user),
        softirq: percent(times.softirqs()),
        irq: percent(times.of(Kind::HardInterrupt)),
        steal,
        idle: percent(times.of(Kind::Idle)),
        accounting: Accounting::Exact,
        busy_by_ticks: ticks.busy_by_ticks,
        counting: Some(times.overhead() as f64 * 100.0 / whole as f64),
        irq_met_idle: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_S: u64 = 1_000_000_000;

    fn reading(at_ns: u64, cpu: CpuTicks) -> CpuReading {
        CpuReading { at_ns, ticks: BTreeMap::from([(0, cpu)]), exact: None, idle_clocked: true, interrupts: false }
    }

    #[test]
    fn work_that_no_tick_met_is_known_by_the_idle_clock() {
        let before = CpuTicks { idle: 1000, ..CpuTicks::default() };
        // 3 s, of which the CPU was idle for 2.17 s, and no tick found it at work: seen with 1 ms of work in each 4 ms.
        let after = CpuTicks { idle: 1217, ..before };
        let shares = reading(0, before).cpu_until(&reading(3 * ONE_S, after), 0).unwrap();
        assert_eq!(shares.accounting, Accounting::IdleClock);
        assert!((shares.busy() - 27.67).abs() < 0.01 && (shares.idle - 72.33).abs() < 0.01, "{shares:?}");
        assert_eq!(shares.busy_by_ticks, Some(0.0));
    }

    #[test]
    fn parts_of_the_busy_time_follow_the_ticks() {
        let before = CpuTicks::default();
        let after = CpuTicks { user: 30, system: 10, softirq: 40, irq: 0, steal: 5, idle: 40, iowait: 10, nice: 0 };
        let shares = reading(0, before).cpu_until(&reading(ONE_S, after), 0).unwrap();
        assert!((shares.steal - 5.0).abs() < 1e-9 && (shares.idle - 47.5).abs() < 1e-9);
        assert!((shares.busy() - 47.5).abs() < 1e-9, "{shares:?}");
        assert!((shares.user - 3.0 * shares.system).abs() < 1e-9 && (shares.softirq - 23.75).abs() < 1e-9);
        let sum = shares.busy() + shares.steal + shares.idle;
        assert!((sum - 100.0).abs() < 1e-9);
    }

    #[test]
    fn an_idle_time_that_ticks_counted_is_not_called_a_clock() {
        let begin = CpuReading { idle_clocked: false, ..reading(0, CpuTicks::default()) };
        let end = reading(ONE_S, CpuTicks { user: 20, idle: 60, ..CpuTicks::default() });
        let shares = begin.cpu_until(&end, 0).unwrap();
        assert_eq!(shares.accounting, Accounting::Ticks);
        assert!((shares.user - 25.0).abs() < 1e-9 && (shares.idle - 75.0).abs() < 1e-9, "{shares:?}");
        assert_eq!(shares.busy_by_ticks, None, "ticks are not compared with themselves");
    }

    /// A reading as the programs leave it.
    fn exact(at: u64, kinds: &[(Kind, u64)], events: u64, cost: u64) -> Option<Arc<ExactReading>> {
        let mut times = Times::default();
        (times.at, times.events, times.measured, times.cost) = (at, events, events / 100, cost);
        kinds.iter().for_each(|&(kind, ns)| times.add(kind, ns));
        Some(Arc::new(ExactReading(BTreeMap::from([(0, times)]))))
    }

    #[test]
    fn a_cpu_that_was_never_idle_was_busy_for_all_of_its_time_and_no_more() {
        let before = CpuReading { exact: exact(0, &[], 0, 0), ..reading(0, CpuTicks::default()) };
        let ticks = CpuTicks { user: 3, system: 7, ..CpuTicks::default() };
        for part in 1..1000 {
            let (process, softirq) = (100_000_007 + 123_457 * part, 54_321 * part);
            let kinds = [(Kind::Process, process), (Kind::NetReceive, softirq), (Kind::HardInterrupt, 7 * part)];
            let at = process + softirq + 7 * part;
            let after = CpuReading { exact: exact(at, &kinds, 0, 0), ..reading(at, ticks) };
            let shares = before.cpu_until(&after, 0).unwrap();
            assert!(shares.busy() <= 100.0 && shares.busy() > 100.0 - 1e-9, "{shares:?}");
        }
    }

    #[test]
    fn an_exact_count_goes_before_ticks_and_loses_what_was_stolen() {
        let before = CpuReading { exact: exact(0, &[], 0, 0), ..reading(0, CpuTicks::default()) };
        // Of 1 s a task ran for 300 ms, receive softirqs for 60, interrupts for 40; 40 ms of the second were stolen. Ticks
        // found the task alone, at three times as much of the kernel's work as of its own.
        let ticks = CpuTicks { user: 10, system: 30, steal: 4, idle: 56, ..CpuTicks::default() };
        let kinds = [
            (Kind::Idle, 600_000_000),
            (Kind::Process, 300_000_000),
            (Kind::NetReceive, 60_000_000),
            (Kind::HardInterrupt, 40_000_000),
        ];
        let after = CpuReading { exact: exact(ONE_S, &kinds, 1000, 500), ..reading(ONE_S, ticks) };
        let shares = before.cpu_until(&after, 0).unwrap();
        let is =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found}, {expected}: {shares:?}");
        assert_eq!(shares.accounting, Accounting::Exact);
        is(shares.idle, 57.6);
        is(shares.steal, 4.0);
        is(shares.busy(), 38.4);
        is(shares.user, 28.8 / 4.0);
        is(shares.system, 28.8 * 3.0 / 4.0);
        is(shares.softirq, 5.76);
        is(shares.irq, 3.84);
        assert_eq!(shares.busy_by_ticks, Some(40.0));
        // 1000 runs of 50 ns.
        is(shares.counting.unwrap(), 0.005);
        assert!(shares.irq_met_idle);
        let by_themselves = |reading: CpuReading| CpuReading { interrupts: true, ..reading };
        let shares = by_themselves(before).cpu_until(&by_themselves(after), 0).unwrap();
        assert!(!shares.irq_met_idle && (shares.irq - 3.84).abs() < 1e-6, "{shares:?}");
    }

    #[test]
    fn a_small_load_is_seen_where_more_was_stolen_than_it_took() {
        let stolen = CpuTicks { steal: 4, idle: 96, ..CpuTicks::default() };
        let before = CpuReading { exact: exact(0, &[], 0, 0), ..reading(0, CpuTicks::default()) };
        let kinds = [(Kind::Process, 20_000_000), (Kind::Idle, 980_000_000)];
        let after = CpuReading { exact: exact(ONE_S, &kinds, 0, 0), ..reading(ONE_S, stolen) };
        let shares = before.cpu_until(&after, 0).unwrap();
        assert!((shares.busy() - 1.92).abs() < 1e-6 && (shares.steal - 4.0).abs() < 1e-6, "{shares:?}");
    }

    #[test]
    fn threads_of_the_kernel_are_never_at_users_work() {
        let before = CpuReading { exact: exact(0, &[], 0, 0), ..reading(0, CpuTicks::default()) };
        let kinds = [(Kind::Process, 10_000_000), (Kind::KernelThread, 90_000_000), (Kind::Idle, 900_000_000)];
        let ticks = CpuTicks { user: 10, idle: 90, ..CpuTicks::default() };
        let after = CpuReading { exact: exact(ONE_S, &kinds, 0, 0), ..reading(ONE_S, ticks) };
        let shares = before.cpu_until(&after, 0).unwrap();
        assert!((shares.user - 1.0).abs() < 1e-6 && (shares.system - 9.0).abs() < 1e-6, "{shares:?}");
    }

    #[test]
    fn what_an_exact_count_does_not_see_is_named() {
        assert_eq!(exact_words(&[]), Accounting::Exact.words());
        assert!(
            exact_words(&["local_timer", "ipi"])
                .ends_with("no tracepoints for local_timer, ipi: their time counts to what they interrupt")
        );
    }

    #[test]
    fn a_cpu_that_came_or_went_is_left_out() {
        let here = reading(0, CpuTicks::default());
        assert_eq!(here.cpu_until(&CpuReading::default(), 0), None);
        assert!(here.cpus(&CpuReading::default()).is_empty());
    }

    #[test]
    fn an_idle_clock_that_is_ahead_makes_nothing_negative() {
        let after = CpuTicks { idle: 101, iowait: 1, steal: 3, ..CpuTicks::default() };
        let shares = reading(0, CpuTicks::default()).cpu_until(&reading(ONE_S, after), 0).unwrap();
        assert!(shares.busy() == 0.0 && shares.steal == 3.0 && shares.idle == 97.0, "{shares:?}");
    }
}
