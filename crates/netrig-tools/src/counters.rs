//! The machine's counters at a moment, and what came to them between two.

use std::fs;
use std::rc::Rc;
use std::time::Duration;

use rig_sys::clock::{monotonic_ns, process_cpu_ns};
use rig_sys::counters::{self, CpuTicks, NamespaceCounters, Protocols};
use rig_testbed::accounting::{CpuAccounting, CpuReading};
use rig_testbed::node::Accounting;

/// Counters to read beside those that are always read.
#[derive(Debug, Clone, Default)]
pub struct CounterSelection {
    /// An interface whose packets are counted.
    pub interface: Option<String>,
    /// A text: the interrupts of the lines of /proc/interrupts that contain it.
    pub interrupts: Option<String>,
    /// Counts CPU time; without it, the kernel's counters are read.
    pub cpu_accounting: Option<Rc<CpuAccounting>>,
}

/// Totals since boot, at a moment. What the kernel does not tell counts as zero.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub at_ns: u64,
    /// All CPUs together, in clock ticks.
    pub cpu: CpuTicks,
    pub cpus: usize,
    /// Each CPU by itself, with the time of this look at it.
    pub reading: CpuReading,
    /// CPU time of this process.
    pub process_ns: u64,
    /// /proc/net/snmp, e.g. `Tcp.RetransSegs`.
    pub protocols: Protocols,
    /// /proc/net/netstat, e.g. `TcpExt.TCPLostRetransmit`.
    pub extensions: Protocols,
    /// /proc/net/snmp6, e.g. `Udp6InDatagrams`.
    pub version6: Protocols,
    /// Packets sent and received by the chosen interface.
    pub packets: (u64, u64),
    /// Interrupts of the chosen devices.
    pub chosen_interrupts: u64,
    /// All device interrupts (/proc/stat).
    pub interrupts: u64,
    /// Softirqs of receive processing (NET_RX of /proc/softirqs).
    pub receive_softirqs: u64,
}

impl Snapshot {
    pub fn take(chosen: &CounterSelection) -> Self {
        let at_ns = monotonic_ns();
        let (user, system) = process_cpu_ns();
        let counted = chosen.cpu_accounting.as_ref().and_then(|cpu_accounting| cpu_accounting.read().ok());
        let reading = counted.or_else(|| CpuAccounting::paused().read().ok()).unwrap_or_default();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let here = NamespaceCounters::here().ok();
        let counted = |read: fn(&NamespaceCounters) -> rig_sys::Result<Protocols>| {
            here.as_ref().and_then(|here| read(here).ok()).unwrap_or_default()
        };
        Self {
            at_ns,
            cpu: reading.ticks.values().fold(CpuTicks::default(), |sum, cpu| sum.plus(*cpu)),
            cpus: reading.ticks.len(),
            reading,
            process_ns: user + system,
            protocols: counted(NamespaceCounters::protocols),
            extensions: counters::parse_protocols(&read("/proc/thread-self/net/netstat")).unwrap_or_default(),
            version6: counted(NamespaceCounters::protocols_of_ipv6),
            packets: chosen.interface.as_deref().map(packets).unwrap_or_default(),
            chosen_interrupts: chosen.interrupts.as_deref().map_or(0, |t| matching(&read("/proc/interrupts"), t)),
            interrupts: all_interrupts(&read("/proc/stat")).unwrap_or(0),
            receive_softirqs: matching(&read("/proc/softirqs"), "NET_RX:"),
        }
    }
}

/// What happened between two snapshots.
#[derive(Debug, Clone)]
pub struct Difference {
    pub begin: Snapshot,
    pub end: Snapshot,
}

impl Difference {
    pub fn seconds(&self) -> f64 {
        Duration::from_nanos(self.end.at_ns.saturating_sub(self.begin.at_ns)).as_secs_f64()
    }

    /// By how much a value grew.
    pub fn of(&self, value: impl Fn(&Snapshot) -> u64) -> u64 {
        value(&self.end).saturating_sub(value(&self.begin))
    }

    /// What came to a counter of /proc/net/snmp.
    pub fn protocol(&self, name: &str) -> u64 {
        self.of(|s| s.protocols.get(name).copied().unwrap_or(0))
    }

    /// What came to a counter of /proc/net/netstat.
    pub fn extension(&self, name: &str) -> u64 {
        self.of(|s| s.extensions.get(name).copied().unwrap_or(0))
    }

    /// What came to a counter of /proc/net/snmp6.
    pub fn version6(&self, name: &str) -> u64 {
        self.of(|s| s.version6.get(name).copied().unwrap_or(0))
    }

    /// How CPU time was counted.
    pub fn accounting(&self) -> Accounting {
        let (begin, end) = (&self.begin.reading, &self.end.reading);
        let first = begin.cpus(end).into_iter().find_map(|cpu| begin.cpu_until(end, cpu));
        first.map_or(Accounting::Ticks, |shares| shares.accounting)
    }

    /// The part of all CPUs' time that went to something, from 0 to 1, counted as [`accounting`](Self::accounting) says.
    pub fn cpu_share(&self, part: impl Fn(&CpuTicks) -> u64) -> f64 {
        let cpu = self.cpu();
        let all = cpu.total();
        if all == 0 { 0.0 } else { part(&cpu) as f64 / all as f64 }
    }

    /// What all CPUs did, in parts of their time.
    fn cpu(&self) -> CpuTicks {
        const WHOLE: f64 = 1e9;
        let (begin, end) = (&self.begin.reading, &self.end.reading);
        let idle = self.of(|s| s.cpu.idle) as f64;
        let idle_and_waiting = idle + self.of(|s| s.cpu.iowait) as f64;
        let waiting = if idle_and_waiting > 0.0 { 1.0 - idle / idle_and_waiting } else { 0.0 };
        let shares = begin.cpus(end).into_iter().filter_map(|cpu| begin.cpu_until(end, cpu));
        shares.fold(CpuTicks::default(), |sum, shares| {
            let of = |percent: f64| (percent / 100.0 * WHOLE) as u64;
            sum.plus(CpuTicks {
                user: of(shares.user),
                nice: 0,
                system: of(shares.system),
                idle: of(shares.idle * (1.0 - waiting)),
                iowait: of(shares.idle * waiting),
                irq: of(shares.irq),
                softirq: of(shares.softirq),
                steal: of(shares.steal),
            })
        })
    }

    /// CPU time of this process for each second; 1 is one CPU.
    pub fn process_share(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.of(|s| s.process_ns) as f64 / 1e9 / seconds } else { 0.0 }
    }
}

/// Clock frequency of the first CPU in MHz (/proc/cpuinfo); `None` where the kernel does not tell, as on ARM.
pub fn cpu_mhz() -> Option<f64> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.split_once(':')?.1.trim().parse().ok()
}

fn packets(interface: &str) -> (u64, u64) {
    let read = |name: &str| {
        let path = format!("/sys/class/net/{interface}/statistics/{name}_packets");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    (read("tx").unwrap_or(0), read("rx").unwrap_or(0))
}

/// The first number of /proc/stat's line `intr`, which is their sum.
fn all_interrupts(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("intr "))?.split_whitespace().next()?.parse().ok()
}

/// The sum over the CPUs' columns of the lines that contain `text`: the numbers between a line's name and its words.
fn matching(table: &str, text: &str) -> u64 {
    let cpus = table.lines().next().map_or(0, |head| head.split_whitespace().count());
    let of_line = |line: &str| -> u64 {
        line.split_whitespace().skip(1).take(cpus).map_while(|word| word.parse::<u64>().ok()).sum()
    };
    table.lines().skip(1).filter(|line| line.contains(text)).map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_summed_over_cpus_and_lines_and_not_over_names() {
        let table = "           CPU0       CPU1\n  0:         33          0   IO-APIC   2-edge      timer\n 25:  100 200 PCI-MSI 512 edge mlx4-1\n 26:  1 2 PCI-MSI 513 edge mlx4-2\nERR:          0\n";
        assert_eq!(matching(table, "mlx4"), 303);
        assert_eq!(matching(table, "timer"), 33);
        assert_eq!(matching(table, "nothing"), 0);
        assert_eq!(matching("", "x"), 0);
        let softirqs = "                    CPU0       CPU1       \n          HI:          1          2\n      NET_RX:        500        600\n";
        assert_eq!(matching(softirqs, "NET_RX:"), 1100);
    }

    #[test]
    fn the_machine_tells() {
        let chosen = CounterSelection { interface: Some("lo".into()), ..CounterSelection::default() };
        let begin = Snapshot::take(&chosen);
        assert!(begin.cpus > 0 && begin.cpu.total() > 0 && begin.interrupts > 0);
        assert!(
            begin.protocols.contains_key("Tcp.RetransSegs") && begin.extensions.contains_key("TcpExt.TCPSynRetrans")
        );
        let difference = Difference { begin, end: Snapshot::take(&chosen) };
        let shares = [
            difference.cpu_share(|c| c.idle),
            difference.cpu_share(|c| c.user + c.nice + c.system + c.iowait + c.irq + c.softirq + c.steal),
        ];
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    }
}
