//! Kernel counters: CPU time, receive processing, interfaces, protocols. All are totals since boot; a window's figure is
//! the difference of two readings.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Error, ErrorContext, Result};
use crate::netns::{NetNs, NsFile};

/// CPU time of one CPU in clock ticks (proc_stat(5)). Guest time is inside user and nice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTicks {
    pub user: u64,
    pub nice: u64,
    pub system: u64,
    pub idle: u64,
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
    pub steal: u64,
}

impl CpuTicks {
    pub fn total(&self) -> u64 {
        self.user + self.nice + self.system + self.idle + self.iowait + self.irq + self.softirq + self.steal
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            nice: self.nice + other.nice,
            system: self.system + other.system,
            idle: self.idle + other.idle,
            iowait: self.iowait + other.iowait,
            irq: self.irq + other.irq,
            softirq: self.softirq + other.softirq,
            steal: self.steal + other.steal,
        }
    }
}

/// Receive processing of one CPU (/proc/net/softnet_stat).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Packets that passed the receive path on this CPU; one that passes several virtual devices counts several times.
    pub processed: u64,
    /// Packets dropped because the CPU's backlog queue was full.
    pub dropped: u64,
    /// Times that the work was cut off with packets left.
    pub time_squeeze: u64,
}

/// Units of [`CpuTicks`] in a second (`USER_HZ`, sysconf(3)), which need not be the kernel's own ticks.
pub fn units_per_second() -> u64 {
    // SAFETY: the call takes no pointer.
    let units = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(units).ok().filter(|units| *units > 0).unwrap_or(100)
}

/// Whether the kernel reads the time that a CPU was idle from a clock, because it stops the tick there
/// (kernel/time/tick-sched.c): else /proc/stat's idle time is counted at ticks as all the rest.
pub fn idle_is_clocked() -> bool {
    let read = |path| fs::read_to_string(path);
    match read("/proc/timer_list") {
        Ok(timers) => stops_ticks(&timers),
        // Only root may read that. This is there with CONFIG_NO_HZ_COMMON (kernel/time/timer.c) on more than one CPU.
        Err(_) => {
            Path::new("/proc/sys/kernel/timer_migration").exists()
                && !is_kept_from_it(&read("/proc/cmdline").unwrap_or_default())
        }
    }
}

/// Whether any CPU's line in /proc/timer_list says that its tick may stop: `.nohz`, formerly `.nohz_mode`.
fn stops_ticks(timers: &str) -> bool {
    timers.lines().any(|line| match line.split_once(':') {
        Some((name, value)) => matches!(name.trim(), ".nohz" | ".nohz_mode") && value.trim() != "0",
        None => false,
    })
}

/// What `nohz=` takes for off (kstrtobool of Linux).
fn is_kept_from_it(cmdline: &str) -> bool {
    let mut values = cmdline.split_whitespace().filter_map(|word| word.strip_prefix("nohz="));
    values.next_back().is_some_and(|value| value.starts_with(['0', 'n', 'N', 'f', 'F']) || value.starts_with("of"))
}

/// CPU time of every CPU that is online, by CPU number.
pub fn cpu_ticks() -> Result<BTreeMap<u32, CpuTicks>> {
    let text = fs::read_to_string("/proc/stat").during(|| "read /proc/stat".into())?;
    parse_cpu_ticks(&text).ok_or_else(|| malformed("/proc/stat"))
}

/// Receive processing of every CPU that is online, by CPU number.
pub fn softnet() -> Result<BTreeMap<u32, Softnet>> {
    let path = "/proc/net/softnet_stat";
    let text = fs::read_to_string(path).during(|| format!("read {path}"))?;
    parse_softnet(&text).ok_or_else(|| malformed(path))
}

/// Time in microseconds, summed over CPUs, for which the kernel halted this process's control groups because they had
/// used up their CPU limit (Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst). A limit may
/// be set at the process's own group or at any above. `None` when no group tells.
pub fn throttled_us() -> Option<u64> {
    throttled_us_under(Path::new("/"))
}

fn throttled_us_under(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let (hierarchy, own) = cpu_group(&groups)?;
    let hierarchy = root.join("sys/fs/cgroup").join(hierarchy);
    let groups = Path::new(own.trim_start_matches('/')).ancestors();
    let times = groups
        .filter_map(|group| parse_throttled_us(&fs::read_to_string(hierarchy.join(group).join("cpu.stat")).ok()?));
    times.reduce(|one, other| one + other)
}

/// The directory of the hierarchy that limits CPU time, and the process's group in it (cgroups(7)). Where both versions
/// are mounted, the controller is in the first.
fn cpu_group(groups: &str) -> Option<(&'static str, &str)> {
    let lines = || groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let first = lines().find(|(controllers, _)| controllers.split(',').any(|name| name == "cpu"));
    let second = || lines().find(|(controllers, _)| controllers.is_empty());
    first.map(|(_, group)| ("cpu", group)).or_else(|| second().map(|(_, group)| ("", group)))
}

/// Microseconds in version 2, nanoseconds in version 1.
fn parse_throttled_us(stat: &str) -> Option<u64> {
    let field = |name| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    field("throttled_usec ").or_else(|| Some(field("throttled_time ")? / 1000))
}

/// Counters of one interface (/proc/net/dev).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interface {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
}

/// Protocol counters by `PROTOCOL.NAME`, e.g. `Tcp.RetransSegs` (/proc/net/snmp, RFC 4022 and others).
pub type Protocols = BTreeMap<String, u64>;

/// The counters of one network namespace, readable at any time from any thread without entering it.
#[derive(Debug)]
pub struct NamespaceCounters {
    dev: NsFile,
    snmp: NsFile,
    netstat: NsFile,
    /// Of a kernel with IPv6.
    snmp6: Option<NsFile>,
}

impl NamespaceCounters {
    /// Those of `ns`. Needs the privilege to enter it.
    pub fn open(ns: &NetNs) -> Result<Self> {
        ns.run(Self::here)?
    }

    /// Those of the namespace that the calling thread is in. Needs no privileges.
    pub fn here() -> Result<Self> {
        let snmp6 = match NsFile::here("snmp6") {
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => None,
            file => Some(file?),
        };
        Ok(Self { dev: NsFile::here("dev")?, snmp: NsFile::here("snmp")?, netstat: NsFile::here("netstat")?, snmp6 })
    }

    /// Every interface's counters by name, `lo` left out.
    pub fn interfaces(&self) -> Result<BTreeMap<String, Interface>> {
        let mut text = String::new();
        self.dev.read(&mut text)?;
        parse_interfaces(&text).ok_or_else(|| malformed("/proc/net/dev"))
    }

    pub fn protocols(&self) -> Result<Protocols> {
        let mut text = String::new();
        self.snmp.read(&mut text)?;
        parse_protocols(&text).ok_or_else(|| malformed("/proc/net/snmp"))
    }

    /// What the kernel counts beyond the standards, e.g. `IpExt.InNoRoutes` (/proc/net/netstat).
    pub fn extended_protocols(&self) -> Result<Protocols> {
        let mut text = String::new();
        self.netstat.read(&mut text)?;
        parse_protocols(&text).ok_or_else(|| malformed("/proc/net/netstat"))
    }

    /// What IPv6 and UDP over it count for themselves, by the kernel's names, e.g. `Udp6RcvbufErrors` (/proc/net/snmp6);
    /// TCP counts both families in [`Self::protocols`]. Nothing where the kernel has no IPv6.
    pub fn protocols_of_ipv6(&self) -> Result<Protocols> {
        let Some(file) = &self.snmp6 else { return Ok(Protocols::new()) };
        let mut text = String::new();
        file.read(&mut text)?;
        parse_ipv6(&text).ok_or_else(|| malformed("/proc/net/snmp6"))
    }
}

/// A name and a number in each line.
fn parse_ipv6(text: &str) -> Option<Protocols> {
    let counter = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    text.lines().map(counter).collect()
}

fn malformed(path: &str) -> Error {
    Error::new(format!("read {path}"), io::Error::new(io::ErrorKind::InvalidData, "not in the known format"))
}

fn parse_cpu_ticks(text: &str) -> Option<BTreeMap<u32, CpuTicks>> {
    let mut cpus = BTreeMap::new();
    for line in text.lines() {
        let Some((cpu, fields)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' ')) else { continue };
        let Ok(cpu) = cpu.parse::<u32>() else { continue };
        let mut fields = fields.split_whitespace().map(str::parse::<u64>);
        let mut next = || fields.next()?.ok();
        let ticks = CpuTicks {
            user: next()?,
            nice: next()?,
            system: next()?,
            idle: next()?,
            iowait: next()?,
            irq: next()?,
            softirq: next()?,
            steal: next()?,
        };
        cpus.insert(cpu, ticks);
    }
    (!cpus.is_empty()).then_some(cpus)
}

fn parse_softnet(text: &str) -> Option<BTreeMap<u32, Softnet>> {
    let mut cpus = BTreeMap::new();
    for (row, line) in text.lines().enumerate() {
        let fields: Option<Vec<u64>> = line.split_whitespace().map(|f| u64::from_str_radix(f, 16).ok()).collect();
        let fields = fields?;
        // Column 13 is the CPU number (Linux 5.10); before, rows were the online CPUs in order.
        let cpu = fields.get(12).copied().unwrap_or(row as u64) as u32;
        let [processed, dropped, time_squeeze] = *fields.first_chunk::<3>()?;
        cpus.insert(cpu, Softnet { processed, dropped, time_squeeze });
    }
    (!cpus.is_empty()).then_some(cpus)
}

fn parse_interfaces(text: &str) -> Option<BTreeMap<String, Interface>> {
    let mut interfaces = BTreeMap::new();
    for line in text.lines().skip(2) {
        let (name, fields) = line.split_once(':')?;
        let fields: Option<Vec<u64>> = fields.split_whitespace().map(|f| f.parse().ok()).collect();
        let f = fields?;
        let f = f.first_chunk::<12>()?;
        let counters = Interface {
            rx_bytes: f[0],
            rx_packets: f[1],
            rx_errors: f[2],
            rx_dropped: f[3],
            tx_bytes: f[8],
            tx_packets: f[9],
            tx_errors: f[10],
            tx_dropped: f[11],
        };
        interfaces.insert(name.trim().to_owned(), counters);
    }
    interfaces.remove("lo");
    Some(interfaces)
}

/// Counters in the format of /proc/net/snmp and /proc/net/netstat: for each protocol a line of names and a line of values.
/// `None` for anything else.
pub fn parse_protocols(text: &str) -> Option<Protocols> {
    let mut counters = BTreeMap::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (protocol, names) = names.split_once(':')?;
        let (same, values) = values.split_once(':')?;
        if protocol != same {
            return None;
        }
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            // Some entries are settings and may be negative (Tcp.MaxConn is -1).
            if let Ok(value) = value.parse() {
                counters.insert(format!("{protocol}.{name}"), value);
            }
        }
    }
    (!counters.is_empty()).then_some(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ipv6_counts_is_a_name_and_a_number_in_each_line() {
        let text = "Ip6InDiscards                   \t3\nUdp6RcvbufErrors                \t12\n";
        let expected = [("Ip6InDiscards".to_owned(), 3), ("Udp6RcvbufErrors".to_owned(), 12)];
        assert_eq!(parse_ipv6(text), Some(Protocols::from(expected)));
        for bad in ["Ip6InDiscards", "Ip6InDiscards many", "\n"] {
            assert_eq!(parse_ipv6(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_own_namespace_is_counted_without_any_privilege() {
        let read = || {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            NamespaceCounters::here().and_then(|counters| counters.protocols())
        };
        // Capabilities are those of a thread (capabilities(7)): only this one loses them.
        let protocols = std::thread::spawn(read).join().unwrap().unwrap();
        assert!(protocols.contains_key("Tcp.RetransSegs"), "{protocols:?}");
    }

    #[test]
    fn a_kernel_that_keeps_its_tick_has_no_idle_clock() {
        assert!(stops_ticks("cpu: 0\n  .nohz           : 1\n  .tick_stopped   : 0\n"));
        assert!(stops_ticks("  .nohz_mode      : 2\n"));
        assert!(!stops_ticks("  .nohz           : 0\n  .nohz           : 0\n") && !stops_ticks(""));
        assert!(is_kept_from_it("quiet nohz=off") && is_kept_from_it("nohz=on nohz=0"));
        assert!(!is_kept_from_it("nohz=off nohz=on") && !is_kept_from_it("nohz_full=1") && !is_kept_from_it(""));
    }

    #[test]
    fn proc_stat_lines_become_ticks() {
        let text = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 10 20 30 40 50 60 70 80 0 0\ncpu12 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        let cpus = parse_cpu_ticks(text).unwrap();
        assert_eq!(cpus.keys().copied().collect::<Vec<_>>(), [0, 12]);
        assert_eq!(cpus[&0].softirq, 70);
        assert_eq!(cpus[&0].total(), 360);
        assert!(parse_cpu_ticks("cpu0 1 2 x\n").is_none());
        assert!(parse_cpu_ticks("").is_none());
    }

    #[test]
    fn throttled_time_is_in_microseconds_whichever_version_tells_it() {
        let second = "usage_usec 9\nnr_periods 3\nnr_throttled 2\nthrottled_usec 12345\nnr_bursts 0\n";
        assert_eq!(parse_throttled_us(second), Some(12_345));
        assert_eq!(parse_throttled_us("nr_periods 3\nnr_throttled 2\nthrottled_time 7000999\n"), Some(7000));
        // The root group has no limit.
        assert_eq!(parse_throttled_us("usage_usec 9\nuser_usec 5\n"), None);
        assert_eq!(parse_throttled_us(""), None);
    }

    #[test]
    fn the_group_that_limits_cpu_time_is_found() {
        assert_eq!(cpu_group("0::/user.slice/a:b\n"), Some(("", "/user.slice/a:b")));
        assert_eq!(cpu_group("4:memory:/m\n3:cpu,cpuacct:/c\n0::/u\n"), Some(("cpu", "/c")));
        assert_eq!(cpu_group("3:cpuset:/c\n2:cpuacct:/d\n"), None);
        assert_eq!(cpu_group(""), None);
    }

    #[test]
    fn limits_above_the_own_group_count_and_missing_files_do_not() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(throttled_us_under(root.path()), None);
        write("proc/self/cgroup", "0::/pod/netrig\n");
        assert_eq!(throttled_us_under(root.path()), None);
        write("sys/fs/cgroup/cpu.stat", "usage_usec 1\n");
        write("sys/fs/cgroup/pod/cpu.stat", "throttled_usec 30\n");
        assert_eq!(throttled_us_under(root.path()), Some(30));
        write("sys/fs/cgroup/pod/netrig/cpu.stat", "throttled_usec 12\n");
        assert_eq!(throttled_us_under(root.path()), Some(42));
        write("proc/self/cgroup", "1:cpu:/pod\n0::/pod/netrig\n");
        write("sys/fs/cgroup/cpu/pod/cpu.stat", "throttled_time 5000\n");
        assert_eq!(throttled_us_under(root.path()), Some(5));
    }

    #[test]
    fn softnet_rows_name_their_cpu() {
        let with_index = "0000000a 00000001 00000002 0 0 0 0 0 0 0 0 00000000 00000003\n";
        assert_eq!(parse_softnet(with_index).unwrap()[&3], Softnet { processed: 10, dropped: 1, time_squeeze: 2 });
        let without = "0000000a 0 0 0 0 0 0 0 0 0 0\n0000000b 0 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(parse_softnet(without).unwrap()[&1].processed, 11);
        assert!(parse_softnet("xyz\n").is_none());
    }

    #[test]
    fn interface_counters_read_without_a_space_after_the_colon() {
        let text = "Inter-| Receive | Transmit\n face |bytes ...\n  lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
                    eth0:100 2 3 4 0 0 0 0 500 6 7 8 0 0 0 0\n";
        let all = parse_interfaces(text).unwrap();
        assert_eq!(all.len(), 1);
        let eth0 = all["eth0"];
        assert_eq!((eth0.rx_bytes, eth0.rx_packets, eth0.rx_errors, eth0.rx_dropped), (100, 2, 3, 4));
        assert_eq!((eth0.tx_bytes, eth0.tx_packets, eth0.tx_errors, eth0.tx_dropped), (500, 6, 7, 8));
    }

    #[test]
    fn protocol_counters_pair_names_with_values() {
        let text = "Tcp: MaxConn RetransSegs\nTcp: -1 42\nUdp: InErrors\nUdp: 3\n";
        let counters = parse_protocols(text).unwrap();
        assert_eq!(counters["Tcp.RetransSegs"], 42);
        assert_eq!(counters["Udp.InErrors"], 3);
        assert!(!counters.contains_key("Tcp.MaxConn"));
        assert!(parse_protocols("Tcp: A\nUdp: 1\n").is_none());
    }
}
