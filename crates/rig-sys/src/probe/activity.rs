//! What else the machine does.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

use crate::counters::{CpuTicks, cpu_ticks};
use serde::{Deserialize, Serialize};

/// The machine's occupation while nothing was asked of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MachineActivity {
    /// Processes that ran or wanted to, mean over the last minute (/proc/loadavg).
    pub load_average: f64,
    /// Time of all CPUs that was neither idle nor stolen, percent.
    pub busy_percent: f64,
    /// Time that the hypervisor gave to others, percent.
    pub steal_percent: f64,
    /// Processes that used at least a tenth of a CPU, the busiest first.
    pub busiest: Vec<BusyProcess>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BusyProcess {
    pub pid: u32,
    pub command: String,
    /// Percent of one CPU.
    pub percent: f64,
    pub owner: ProcessOwner,
}

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProcessOwner {
    User,
    /// A kernel thread, which no user can end.
    Kernel,
    /// Of the program that asks: another of its processes.
    Own,
}

const WORTH_NAMING: f64 = 10.0;

impl MachineActivity {
    /// Watches for as long as `sample`; shorter than ten clock ticks (100 ms) is too short to tell much.
    pub fn watch(sample: Duration) -> Self {
        let (cpus, processes) = (sum(), process_ticks());
        thread::sleep(sample);
        let used = CpuUsage { begin: cpus, end: sum() };
        Self {
            load_average: load_average().unwrap_or(0.0),
            busy_percent: used.percent(|t| t.total() - t.idle - t.iowait - t.steal),
            steal_percent: used.percent(|t| t.steal),
            busiest: busiest(&processes, &process_ticks(), used.ticks_per_cpu()),
        }
    }
}

/// Processes that ran or wanted to, mean over the last minute (proc_loadavg(5)).
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// All CPUs together, and how many there are.
type TotalTicks = (CpuTicks, usize);

fn sum() -> TotalTicks {
    let cpus = cpu_ticks().unwrap_or_default();
    let total = cpus.values().fold(CpuTicks::default(), |sum, cpu| sum.plus(*cpu));
    (total, cpus.len())
}

struct CpuUsage {
    begin: TotalTicks,
    end: TotalTicks,
}

impl CpuUsage {
    fn difference(&self, part: impl Fn(&CpuTicks) -> u64) -> u64 {
        // iowait may run backwards (proc_stat(5)).
        part(&self.end.0).saturating_sub(part(&self.begin.0))
    }

    fn percent(&self, part: impl Fn(&CpuTicks) -> u64) -> f64 {
        match self.difference(CpuTicks::total) {
            0 => 0.0,
            all => (self.difference(part) as f64 * 100.0 / all as f64).min(100.0),
        }
    }

    fn ticks_per_cpu(&self) -> f64 {
        self.difference(CpuTicks::total) as f64 / self.end.1.max(1) as f64
    }
}

/// User and system time of each process in clock ticks, with its command, by (id, start): a number may be used again.
type Processes = BTreeMap<(u32, u64), Process>;

#[derive(Debug, PartialEq)]
struct Process {
    ticks: u64,
    command: String,
    is_kernels: bool,
}

fn process_ticks() -> Processes {
    let Ok(entries) = fs::read_dir("/proc") else { return Processes::new() };
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (start, process) = parse_stat(&stat)?;
            Some(((pid, start), process))
        })
        .collect()
}

/// PF_KTHREAD of linux/sched.h among the flags of proc_pid_stat(5).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Start and the rest of proc_pid_stat(5); the command may hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<(u64, Process)> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let fields: Vec<&str> = stat.get(close + 1..)?.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let command = stat.get(open + 1..close)?.to_owned();
    let is_kernels = number(9)? & KERNEL_THREAD != 0;
    Some((number(22)?, Process { ticks: number(14)? + number(15)?, command, is_kernels }))
}

fn busiest(begin: &Processes, end: &Processes, ticks_per_cpu: f64) -> Vec<BusyProcess> {
    if ticks_per_cpu <= 0.0 {
        return Vec::new();
    }
    let own = end.iter().find(|((pid, _), _)| *pid == std::process::id()).map(|(_, own)| &*own.command);
    let mut busy: Vec<BusyProcess> = end
        .iter()
        .map(|(id, process)| {
            let before = begin.get(id).map_or(0, |before| before.ticks);
            let percent = process.ticks.saturating_sub(before) as f64 * 100.0 / ticks_per_cpu;
            let owner = match process {
                Process { is_kernels: true, .. } => ProcessOwner::Kernel,
                // What another user's process executes is not told; its name is.
                process if own == Some(&process.command) => ProcessOwner::Own,
                _ => ProcessOwner::User,
            };
            BusyProcess { pid: id.0, command: process.command.clone(), percent, owner }
        })
        .filter(|busy| busy.percent >= WORTH_NAMING && busy.pid != std::process::id())
        .collect();
    busy.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_window() {
        let ticks = |user, idle, steal| (CpuTicks { user, idle, steal, ..CpuTicks::default() }, 2);
        let used = CpuUsage { begin: ticks(100, 1000, 5), end: ticks(110, 1025, 10) };
        assert_eq!(used.percent(|t| t.user), 25.0);
        assert_eq!(used.percent(|t| t.steal), 12.5);
        assert_eq!(used.ticks_per_cpu(), 20.0);
        let nothing = CpuUsage { begin: ticks(1, 1, 1), end: ticks(1, 1, 1) };
        assert_eq!(nothing.percent(|t| t.user), 0.0);
    }

    fn process(ticks: u64, command: &str, is_kernels: bool) -> Process {
        Process { ticks, command: command.to_owned(), is_kernels }
    }

    #[test]
    fn the_busiest_are_named_in_order() {
        let processes = |ticks: [u64; 3]| -> Processes {
            (1..).zip(ticks).map(|(pid, ticks)| ((pid, 0), process(ticks, &format!("p{pid}"), pid == 2))).collect()
        };
        let mut end = processes([101, 110, 120]);
        // The number of a process that ended, used again by one that worked since.
        end.remove(&(1, 0));
        end.insert((1, 7), process(4, "new", false));
        // This process is left out, and another of the same program is known as such.
        end.insert((std::process::id(), 1), process(20, "this", false));
        end.insert((4, 1), process(8, "this", false));
        let names: Vec<_> = busiest(&processes([100, 100, 100]), &end, 20.0)
            .into_iter()
            .map(|busy| (busy.command, busy.percent, busy.owner))
            .collect();
        let expected = [
            ("p3", 100.0, ProcessOwner::User),
            ("p2", 50.0, ProcessOwner::Kernel),
            ("this", 40.0, ProcessOwner::Own),
            ("new", 20.0, ProcessOwner::User),
        ];
        assert_eq!(names, expected.map(|(name, percent, owner)| (name.to_owned(), percent, owner)));
    }

    #[test]
    fn a_command_may_hold_anything() {
        let stat = "9 (a) (b c) S 1 9 9 0 -1 64 1 0 0 0 30 12 0 0 20 0 1 0 777 5 6";
        let (start, parsed) = parse_stat(stat).unwrap();
        assert_eq!((start, parsed), (777, process(42, "a) (b c", false)));
        let kernels = stat.replace(" -1 64 ", " -1 69238880 ");
        assert!(parse_stat(&kernels).unwrap().1.is_kernels);
        assert!(parse_stat("9 (cut) S 1").is_none());
    }

    #[test]
    fn a_busy_thread_is_seen() {
        let worker = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        let mut worker = worker.expect("sh is everywhere");
        // Where much else runs, it may be left with less than is worth naming for a while.
        let mut windows = (0..25).map(|_| MachineActivity::watch(Duration::from_millis(400)));
        let is_seen =
            |seen: &MachineActivity| seen.busiest.iter().any(|busy| (busy.pid, &*busy.command) == (worker.id(), "sh"));
        let seen = windows.find(is_seen);
        worker.kill().unwrap();
        worker.wait().unwrap();
        let seen = seen.expect("a busy loop has a tenth of a CPU now and then");
        assert!(seen.busy_percent > 0.0 && seen.busy_percent <= 100.0, "{seen:?}");
    }
}
