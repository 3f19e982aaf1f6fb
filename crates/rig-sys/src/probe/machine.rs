//! The machine and its settings, as procfs and sysfs tell them. What they do not tell is `None` or empty.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::idle::Idle;
use crate::cpu::{CpuSet, shared_cores_under};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Machine {
    /// Release of the kernel and architecture, as `uname -rm`.
    pub kernel: String,
    pub cpu_model: Option<String>,
    /// Name of the hypervisor when the machine is virtual.
    pub hypervisor: Option<String>,
    pub memory_bytes: u64,
    /// CPUs that are switched on, and those of them that this process may use.
    pub online: CpuSet,
    pub allowed: CpuSet,
    /// CPUs' worth of time that the cgroup grants (cpu.max), when it limits it.
    pub quota: Option<f64>,
    /// Hardware threads that share a core, for each core that has several.
    pub shared_cores: Vec<CpuSet>,
    /// Frequency governors in use (cpufreq).
    pub governors: BTreeSet<String>,
    /// Whether CPUs may run above their nominal frequency.
    pub turbo: Option<bool>,
    /// How CPUs idle (cpuidle).
    pub idle: Idle,
    pub clock_source: Option<String>,
    pub clock_sources: Vec<String>,
    /// The system's congestion control, and all that are there.
    pub congestion_control: Option<String>,
    pub congestion_controls: Vec<String>,
    /// Most that a socket may ask for in bytes (`net.core.rmem_max` and `net.core.wmem_max`).
    pub receive_buffer_max: Option<u64>,
    pub send_buffer_max: Option<u64>,
}

impl Machine {
    pub fn read() -> Self {
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let machine = Tree { root: PathBuf::from("/") }.machine();
        Self {
            kernel: format!("{} {}", text(uname.release()), text(uname.machine())),
            allowed: CpuSet::allowed().unwrap_or_else(|_| machine.online.clone()),
            hypervisor: machine.hypervisor.map(|dmi| hypervisor_by_cpuid().unwrap_or(dmi)),
            ..machine
        }
    }
}

/// A file tree with proc and sys in it.
struct Tree {
    root: PathBuf,
}

const SYSTEM: &str = "sys/devices/system";

impl Tree {
    fn machine(&self) -> Machine {
        let cpuinfo = self.text("proc/cpuinfo").unwrap_or_default();
        let online = self.text(&format!("{SYSTEM}/cpu/online")).and_then(|list| list.parse().ok()).unwrap_or_default();
        let clock = |file: &str| self.text(&format!("{SYSTEM}/clocksource/clocksource0/{file}"));
        let sysctl = |file: &str| self.text(&format!("proc/sys/net/{file}"));
        Machine {
            kernel: String::new(),
            cpu_model: cpuinfo_field(&cpuinfo, "model name").map(str::to_owned),
            hypervisor: self.hypervisor(&cpuinfo),
            memory_bytes: self.memory_bytes().unwrap_or(0),
            allowed: CpuSet::default(),
            quota: self.quota(),
            shared_cores: shared_cores_under(&self.root),
            governors: self.governors(),
            turbo: self.turbo(),
            idle: Idle::under(&self.root, &online),
            online,
            clock_source: clock("current_clocksource"),
            clock_sources: words(clock("available_clocksource")),
            congestion_control: sysctl("ipv4/tcp_congestion_control"),
            congestion_controls: words(sysctl("ipv4/tcp_available_congestion_control")),
            receive_buffer_max: sysctl("core/rmem_max").and_then(|n| n.parse().ok()),
            send_buffer_max: sysctl("core/wmem_max").and_then(|n| n.parse().ok()),
        }
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    fn memory_bytes(&self) -> Option<u64> {
        let meminfo = self.text("proc/meminfo")?;
        let kilobytes = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"))?;
        Some(kilobytes.parse::<u64>().ok()? * 1024)
    }

    /// The maker's name of a virtual machine (DMI), where the CPU says that it is one.
    fn hypervisor(&self, cpuinfo: &str) -> Option<String> {
        let flag = cpuinfo_field(cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor"));
        let name = || self.text("sys/class/dmi/id/sys_vendor").filter(|vendor| !vendor.is_empty());
        let kind = self.text("sys/hypervisor/type");
        (flag || kind.is_some()).then(|| kind.or_else(name).unwrap_or_else(|| "unknown".to_owned()))
    }

    /// The tightest limit on the way from the process's cgroup to the root (cgroup v2, cpu.max).
    fn quota(&self) -> Option<f64> {
        let groups = self.text("proc/self/cgroup")?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let limits = Path::new(own).ancestors().filter_map(|group| {
            let limit = self.text(Path::new("sys/fs/cgroup").join(group).join("cpu.max").to_str()?)?;
            let (quota, period) = limit.split_once(' ')?;
            Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
        });
        limits.min_by(f64::total_cmp)
    }

    fn governors(&self) -> BTreeSet<String> {
        let directory = format!("{SYSTEM}/cpu/cpufreq");
        let Ok(policies) = fs::read_dir(self.root.join(&directory)) else { return BTreeSet::new() };
        policies
            .filter_map(|policy| {
                let name = policy.ok()?.file_name();
                self.text(&format!("{directory}/{}/scaling_governor", name.to_str()?))
            })
            .collect()
    }

    fn turbo(&self) -> Option<bool> {
        let boost = self.text(&format!("{SYSTEM}/cpu/cpufreq/boost")).map(|on| on == "1");
        boost.or_else(|| self.text(&format!("{SYSTEM}/cpu/intel_pstate/no_turbo")).map(|off| off == "0"))
    }
}

/// The first CPU's value of a line in /proc/cpuinfo.
fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

fn words(text: Option<String>) -> Vec<String> {
    text.unwrap_or_default().split_ascii_whitespace().map(str::to_owned).collect()
}

/// What the signature in CPUID leaf 0x4000_0000 stands for: `KVMKVMKVM` is KVM's (Documentation/virt/kvm/x86/cpuid.rst). A
/// signature that is not known stands for itself.
#[cfg(target_arch = "x86_64")]
fn hypervisor_by_cpuid() -> Option<String> {
    use std::arch::x86_64::__cpuid;
    #[allow(unused_unsafe, reason = "safe to call from Rust 1.94 on")]
    // SAFETY: every x86-64 CPU has CPUID; a leaf that it does not know only yields meaningless numbers.
    let leaf = unsafe { __cpuid(0x4000_0000) };
    let bytes: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx].into_iter().flat_map(u32::to_le_bytes).collect();
    let name = String::from_utf8(bytes).ok()?;
    let name = match name.trim_matches(['\0', ' ']) {
        "KVMKVMKVM" => "KVM",
        "TCGTCGTCGTCG" => "QEMU",
        "Microsoft Hv" => "Hyper-V",
        "VMwareVMware" => "VMware",
        "XenVMMXenVMM" => "Xen",
        "bhyve bhyve" => "bhyve",
        other => other,
    };
    (!name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() || c == ' ')).then(|| name.to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn hypervisor_by_cpuid() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Tree { root: dir.path().to_owned() }.machine();
        (dir, machine)
    }

    #[test]
    fn a_laptop_tells_everything() {
        let siblings = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let (_dir, machine) = tree(&[
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Nimble 9000\nflags\t\t: fpu sse2\n\nprocessor\t: 1\n"),
            ("proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            (&siblings(0), "0,2\n"),
            (&siblings(1), "1,3\n"),
            (&siblings(2), "0,2\n"),
            (&siblings(3), "1,3\n"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet \n"),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic\n"),
            ("proc/sys/net/core/rmem_max", "212992\n"),
            ("proc/self/cgroup", "0::/user.slice/shell.scope\n"),
            ("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/user.slice/shell.scope/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(machine.cpu_model.as_deref(), Some("Nimble 9000"));
        assert_eq!(machine.hypervisor, None);
        assert_eq!(machine.memory_bytes, 16_384_000 * 1024);
        assert_eq!(machine.shared_cores, [CpuSet::new([0, 2]), CpuSet::new([1, 3])]);
        assert_eq!(machine.governors.into_iter().collect::<Vec<_>>(), ["performance", "powersave"]);
        assert_eq!(machine.turbo, Some(false));
        assert_eq!(machine.idle.driver.as_deref(), Some("intel_idle"));
        assert_eq!(machine.clock_sources, ["tsc", "hpet"]);
        assert_eq!(machine.congestion_controls, ["reno", "cubic"]);
        assert_eq!((machine.receive_buffer_max, machine.send_buffer_max), (Some(212_992), None));
        assert_eq!(machine.quota, Some(1.5));
    }

    #[test]
    fn a_machine_that_tells_nothing_is_no_error() {
        let (_dir, machine) = tree(&[]);
        assert_eq!(machine, Machine::default());
    }

    #[test]
    fn a_virtual_machine_is_recognised() {
        let cpuinfo = ("proc/cpuinfo", "flags\t\t: fpu hypervisor sse2\n");
        assert_eq!(tree(&[cpuinfo]).1.hypervisor.as_deref(), Some("unknown"));
        let vendor = ("sys/class/dmi/id/sys_vendor", "QEMU\n");
        assert_eq!(tree(&[cpuinfo, vendor]).1.hypervisor.as_deref(), Some("QEMU"));
        assert_eq!(tree(&[vendor]).1.hypervisor, None);
        assert_eq!(tree(&[("sys/hypervisor/type", "xen\n")]).1.hypervisor.as_deref(), Some("xen"));
    }

    #[test]
    fn this_machine_is_read() {
        let machine = Machine::read();
        assert!(!machine.online.is_empty() && !machine.allowed.is_empty(), "{machine:?}");
        assert!(machine.memory_bytes > 0, "{machine:?}");
    }
}
