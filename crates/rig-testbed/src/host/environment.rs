//! The machine and its settings, as they are stored with a run.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use rig_sys::netns;
use rig_sys::probe::{self, Machine, Privileges, load_average};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings that decide results and differ between machines.
const SYSCTLS: [&str; 36] = [
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.rmem_default",
    "net.core.wmem_default",
    "net.core.optmem_max",
    "net.core.netdev_max_backlog",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.dev_weight",
    "net.core.gro_normal_batch",
    "net.core.default_qdisc",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.bpf_jit_enable",
    "net.core.bpf_jit_harden",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.ip_local_port_range",
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "kernel.io_uring_disabled",
    "kernel.sched_autogroup_enabled",
    "kernel.numa_balancing",
    "kernel.nmi_watchdog",
];

/// The machine and the settings that a run was made with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    pub netrig_version: String,
    /// What netrig was built from and how: a hash of its sources, the profile, the compiler, flags beyond those.
    #[serde(default)]
    pub netrig_build: Option<String>,
    /// What git calls those sources, e.g. `v0.1.0-12-gbb260ef-dirty`, where a release was built inside a repository.
    #[serde(default)]
    pub netrig_commit: Option<String>,
    /// A hash of the eBPF programs that it carries.
    #[serde(default)]
    pub ebpf_objects: Option<String>,
    pub kernel: String,
    pub cpu_model: String,
    pub cpus_online: u32,
    pub memory_bytes: u64,
    pub clock_source: String,
    pub congestion_control: String,
    pub hypervisor: Option<String>,
    /// True when the run was made without the machine's root: inside a user namespace, or, where it makes no nodes, by any other user.
    pub rootless: bool,
    /// Load average over one minute when the run began, in hundredths.
    pub load_average_hundredths: u32,
    /// Settings that matter to the result, e.g. `net.core.rmem_max`.
    pub sysctls: Vec<(String, String)>,
    /// The kernel's build (`uname -v`): kernels of one release may be built differently.
    #[serde(default)]
    pub kernel_build: Option<String>,
    /// The CPUs that netrig could use, as a CPU list.
    #[serde(default)]
    pub cpus_usable: Option<String>,
    /// CPUs' worth of time that control groups granted, e.g. `1.5`; `unlimited` without a limit.
    #[serde(default)]
    pub cpu_quota: Option<String>,
    /// Frequency governors in use; none where the machine does not show them, as most virtual ones do not.
    #[serde(default)]
    pub governor: Option<String>,
    /// Whether CPUs may run above their nominal frequency.
    #[serde(default)]
    pub turbo: Option<bool>,
    /// What knows the CPUs' idle states (cpuidle); `none` where nothing does, as on most virtual machines.
    #[serde(default)]
    pub idle_driver: Option<String>,
    /// What chooses among them.
    #[serde(default)]
    pub idle_governor: Option<String>,
    /// How long a CPU may take to wake up by what processes ask for (/dev/cpu_dma_latency); none where none asked, or netrig was not root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_limit_us: Option<u64>,
    /// Idle states, as C-states, the shallowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_states: Vec<IdleState>,
    /// Simultaneous multithreading: `on`, `off`, `forceoff`, `notsupported`, `notimplemented`.
    #[serde(default)]
    pub smt: Option<String>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    #[serde(default)]
    pub huge_pages: Option<String>,
    /// CPU vulnerabilities that this CPU has, each with the kernel's mitigation, which may cost more than what is measured.
    #[serde(default)]
    pub mitigations: Vec<(String, String)>,
    /// How CPU time was counted, and why not exactly where it was not.
    #[serde(default)]
    pub cpu_time: Option<String>,
    /// Of a machine of several its cards, by their names: what they are and how they are set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cards: BTreeMap<String, BTreeMap<String, String>>,
    /// What users tell the machine apart by: the host's in hosts.toml.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Of a run over several machines that of each, by its node; what stands beside it is of the first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, Environment>,
}

/// A state of idle CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleState {
    pub name: String,
    /// How long a CPU takes to leave it, at most.
    pub exit_latency_us: u64,
    /// The CPUs that may not enter it, as a CPU list, or `all`, because it is disabled there or over a limit (PM QoS); none where all may.
    pub disabled: Option<String>,
}

impl From<&probe::IdleState> for IdleState {
    fn from(state: &probe::IdleState) -> Self {
        let probe::IdleState { name, exit_latency_us, cpus, disabled } = state;
        let disabled = match disabled {
            none if none.is_empty() => None,
            all if all == cpus => Some("all".to_owned()),
            some => Some(some.to_string()),
        };
        Self { name: name.clone(), exit_latency_us: *exit_latency_us, disabled }
    }
}

impl fmt::Display for IdleState {
    /// `C6 133 us (disabled)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} us", self.name, self.exit_latency_us)?;
        match self.disabled.as_deref() {
            None => Ok(()),
            Some("all") => f.write_str(" (disabled)"),
            Some(cpus) => write!(f, " (disabled on CPUs {cpus})"),
        }
    }
}

impl Environment {
    /// That of several machines, each of a node.
    pub fn of_several(machines: Vec<(String, Self)>) -> Self {
        let first = machines.first().map(|(_, first)| first.clone()).unwrap_or_default();
        let machines = machines.into_iter().collect();
        Self { machines, cards: BTreeMap::new(), labels: BTreeMap::new(), ..first }
    }

    /// Whether it was recorded: of runs that another tool's output alone tells of it was not.
    pub fn is_known(&self) -> bool {
        !self.kernel.is_empty()
    }

    /// With this change of it and of each of its machines.
    #[must_use]
    pub fn changed(&self, change: fn(&mut Self)) -> Self {
        let mut all = self.clone();
        all.machines.values_mut().for_each(change);
        change(&mut all);
        all
    }
}

/// What a program was built from, so that runs of different builds can be told apart.
#[derive(Debug, Clone, Copy, Default)]
pub struct Build {
    /// A hash of the sources, the profile and the compiler.
    pub id: &'static str,
    /// The name of the sources in git; empty without git.
    pub commit: &'static str,
}

/// Whether this process is not the machine's root: it may make no namespaces, or is root of a user namespace alone, its own or a container's.
pub fn is_rootless() -> bool {
    !netns::may_create_namespaces() || Privileges::read().in_user_namespace
}

/// What this machine is, as far as it can be read; what cannot be read stays empty.
pub fn environment(build: Build) -> Environment {
    let sysctl = |key: &str| text(&format!("/proc/sys/{}", key.replace('.', "/")));
    let machine = Machine::read();
    let governors: Vec<String> = machine.governors.into_iter().collect();
    Environment {
        netrig_version: env!("CARGO_PKG_VERSION").into(),
        netrig_build: Some(build.id.to_owned()).filter(|id| !id.is_empty()),
        netrig_commit: Some(build.commit.to_owned()).filter(|commit| !commit.is_empty()),
        ebpf_objects: Some(rig_datapath::OBJECTS.into()),
        kernel: machine.kernel,
        cpu_model: machine.cpu_model.unwrap_or_default(),
        cpus_online: machine.online.len() as u32,
        memory_bytes: machine.memory_bytes,
        clock_source: machine.clock_source.unwrap_or_default(),
        congestion_control: machine.congestion_control.unwrap_or_default(),
        hypervisor: machine.hypervisor,
        rootless: is_rootless(),
        load_average_hundredths: load_average().map_or(0, |load| (load * 100.0) as u32),
        sysctls: SYSCTLS.iter().filter_map(|key| Some(((*key).to_owned(), sysctl(key)?))).collect(),
        kernel_build: sysctl("kernel.version"),
        cpus_usable: Some(machine.allowed.to_string()),
        cpu_quota: Some(machine.quota.map_or("unlimited".to_owned(), |quota| quota.to_string())),
        governor: (!governors.is_empty()).then(|| governors.join(" ")),
        turbo: machine.turbo,
        idle_driver: Some(machine.idle.driver.unwrap_or_else(|| "none".to_owned())),
        idle_governor: machine.idle.governor,
        idle_limit_us: machine.idle.limit_us,
        idle_states: machine.idle.states.iter().map(IdleState::from).collect(),
        smt: text("/sys/devices/system/cpu/smt/control"),
        huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|modes| chosen(&modes)),
        mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
        // The caller fills it in: only the accountant of its host knows how CPU time is counted.
        cpu_time: None,
        cards: BTreeMap::new(),
        labels: BTreeMap::new(),
        machines: BTreeMap::new(),
    }
}

/// A file's text in one line; words are separated by one blank.
fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The choice in brackets: `madvise` of `always [madvise] never`.
fn chosen(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// What the kernel does about each vulnerability that this CPU has (Documentation/ABI/testing/sysfs-devices-system-cpu).
fn mitigations(directory: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let state = fs::read_to_string(entry.path()).ok()?.trim().to_owned();
            Some((entry.file_name().into_string().ok()?, state))
        })
        .filter(|(_, state)| state != "Not affected")
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn vulnerabilities_that_the_cpu_lacks_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for (name, state) in [("mds", "Not affected\n"), ("spectre_v2", "Mitigation: IBRS\n"), ("gds", "Vulnerable\n")]
        {
            fs::write(dir.path().join(name), state).unwrap();
        }
        let expected = [("gds", "Vulnerable"), ("spectre_v2", "Mitigation: IBRS")];
        assert_eq!(mitigations(dir.path()), expected.map(|(name, state)| (name.to_owned(), state.to_owned())));
        assert_eq!(mitigations(Path::new("/no/such/place")), []);
    }

    #[test]
    fn an_idle_state_says_where_it_is_disabled() {
        let of = |disabled: &str| {
            let [cpus, disabled] = ["0-3", disabled].map(|list| list.parse().unwrap_or_default());
            IdleState::from(&probe::IdleState { name: "C6".to_owned(), exit_latency_us: 133, cpus, disabled })
        };
        assert_eq!(
            ["", "0-3", "1,3"].map(|disabled| of(disabled).to_string()),
            ["C6 133 us", "C6 133 us (disabled)", "C6 133 us (disabled on CPUs 1,3)"]
        );
    }

    const BUILD: Build = Build { id: "0123, debug", commit: "" };

    #[test]
    fn this_machine_is_described_and_reads_back() {
        let here = environment(BUILD);
        assert_eq!((here.netrig_build.as_deref(), here.netrig_commit.as_deref()), (Some("0123, debug"), None));
        assert_eq!(here.ebpf_objects.as_deref().map(str::len), Some(16), "{here:?}");
        assert!(here.cpus_online > 0 && here.kernel_build.is_some());
        assert!(here.idle_driver.is_some());
        assert!(here.sysctls.iter().any(|(key, _)| key == "kernel.io_uring_disabled" || key == "net.core.somaxconn"));
        let json = serde_json::to_string(&here).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&json).unwrap(), here);
    }
}
