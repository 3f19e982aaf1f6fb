//! How CPUs idle, as cpuidle tells it (Documentation/admin-guide/pm/cpuidle.rst): C-states, as CPUs' makers call them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cpu::CpuSet;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Idle {
    /// What knows the states; `None` where there is none, as on most virtual machines.
    pub driver: Option<String>,
    /// What chooses among them.
    pub governor: Option<String>,
    /// How long a CPU may take to wake up by what processes ask for (PM QoS): `None` where none asks, or this process may not look.
    pub limit_us: Option<u64>,
    /// Those of all CPUs that are online, the shallowest first.
    pub states: Vec<IdleState>,
}

/// A state, on all CPUs that have it under this name and with this latency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IdleState {
    pub name: String,
    /// How long a CPU takes to leave it, at most.
    pub exit_latency_us: u64,
    pub cpus: CpuSet,
    /// Those of the CPUs that may not enter it: it is disabled there, or takes longer to leave than a limit allows, the CPU's own or that of all.
    pub disabled: CpuSet,
}

impl IdleState {
    /// Whether some CPU may enter it.
    pub fn is_enabled(&self) -> bool {
        self.disabled.len() < self.cpus.len()
    }
}

impl Idle {
    /// What /dev and /sys under `root` tell of the CPUs that are online.
    pub fn under(root: &Path, online: &CpuSet) -> Self {
        let cpus = &root.join("sys/devices/system/cpu");
        let limit_us = asked_limit(&root.join("dev/cpu_dma_latency"));
        let text = |path: &str| {
            let text = fs::read_to_string(cpus.join(path)).ok()?.trim().to_owned();
            (!text.is_empty() && text != "none").then_some(text)
        };
        let governor = || text("cpuidle/current_governor").or_else(|| text("cpuidle/current_governor_ro"));
        // By latency and name, the CPUs that have it and those that may not enter it.
        let mut states: BTreeMap<(u64, String), [Vec<u32>; 2]> = BTreeMap::new();
        // The kernel keeps the states of a CPU that is switched off.
        for cpu in numbers(cpus, "cpu").into_iter().filter(|cpu| online.contains(*cpu)) {
            let own_limit_us =
                text(&format!("cpu{cpu}/power/pm_qos_resume_latency_us")).and_then(|own| own_limit(&own));
            let limit_us = limit_us.into_iter().chain(own_limit_us).min();
            for state in numbers(&cpus.join(format!("cpu{cpu}/cpuidle")), "state") {
                let of = |file: &str| text(&format!("cpu{cpu}/cpuidle/state{state}/{file}"));
                let latency = of("latency").and_then(|latency| latency.parse::<u64>().ok());
                let (Some(name), Some(latency)) = (of("name"), latency) else { continue };
                let [all, disabled] = states.entry((latency, name)).or_default();
                all.push(cpu);
                // The first can always be entered: a CPU has to do something.
                let is_over = state > 0 && limit_us.is_some_and(|limit| latency > limit);
                disabled.extend((is_over || of("disable").as_deref() == Some("1")).then_some(cpu));
            }
        }
        let state = |((exit_latency_us, name), [cpus, disabled]): ((u64, String), [Vec<u32>; 2])| IdleState {
            name,
            exit_latency_us,
            cpus: CpuSet::new(cpus),
            disabled: CpuSet::new(disabled),
        };
        Self {
            driver: text("cpuidle/current_driver"),
            governor: governor(),
            limit_us,
            states: states.into_iter().map(state).collect(),
        }
    }

    /// The state that takes the longest to leave, of those that some CPU may enter.
    pub fn deepest(&self) -> Option<&IdleState> {
        self.states.iter().rfind(|state| state.is_enabled())
    }
}

/// What the kernel has where nobody asks, microseconds (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const NO_LIMIT_US: u64 = 2_000_000_000;

/// What /dev/cpu_dma_latency tells who reads it, an s32: the least that some process asks for. Asking is writing.
fn asked_limit(file: &Path) -> Option<u64> {
    let mut value = [0; 4];
    File::open(file).ok()?.read_exact(&mut value).ok()?;
    u64::try_from(i32::from_ne_bytes(value)).ok().filter(|limit| *limit < NO_LIMIT_US)
}

/// That of one CPU, as the kernel writes it (Documentation/ABI/testing/sysfs-devices-power).
fn own_limit(text: &str) -> Option<u64> {
    match text {
        "0" => None,
        "n/a" => Some(0),
        us => us.parse().ok(),
    }
}

/// The numbers N of the entries of a directory that are called `prefix`N, in order.
fn numbers(directory: &Path, prefix: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let number = |name: &str| name.strip_prefix(prefix)?.parse().ok();
    let mut all: Vec<u32> = entries.filter_map(|entry| number(entry.ok()?.file_name().to_str()?)).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUS: &str = "sys/devices/system/cpu";

    fn write(path: &Path, bytes: &(impl AsRef<[u8]> + ?Sized)) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// What the files of a tree tell, where CPUs 0, 1 and 10 are online.
    fn of(files: &[(String, &str)]) -> Idle {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            write(&dir.path().join(CPUS).join(path), &format!("{text}\n"));
        }
        Idle::under(dir.path(), &CpuSet::new([0, 1, 10]))
    }

    fn state(
        cpu: u32,
        number: u32,
        name: &'static str,
        latency: &'static str,
        disable: &'static str,
    ) -> Vec<(String, &'static str)> {
        let file = |file: &str| format!("cpu{cpu}/cpuidle/state{number}/{file}");
        vec![(file("name"), name), (file("latency"), latency), (file("disable"), disable)]
    }

    fn both() -> [(String, &'static str); 2] {
        [("driver", "intel_idle"), ("governor", "menu")].map(|(what, text)| (format!("cpuidle/current_{what}"), text))
    }

    #[test]
    fn states_are_those_of_all_cpus_with_where_they_are_disabled() {
        let mut files: Vec<(String, &str)> = both().into();
        for cpu in [0, 1, 10] {
            files.extend(state(cpu, 0, "POLL", "0", "0"));
            files.extend(state(cpu, 1, "C1", "2", "0"));
            files.extend(state(cpu, 2, "C1E", "10", if cpu == 1 { "1" } else { "0" }));
            files.extend(state(cpu, 3, "C6", "133", "1"));
        }
        let idle = of(&files);
        assert_eq!((idle.driver.as_deref(), idle.governor.as_deref()), (Some("intel_idle"), Some("menu")));
        let told: Vec<(&str, u64, String)> = idle
            .states
            .iter()
            .map(|state| (state.name.as_str(), state.exit_latency_us, state.disabled.to_string()))
            .collect();
        let expected = [("POLL", 0, ""), ("C1", 2, ""), ("C1E", 10, "1"), ("C6", 133, "0-1,10")];
        assert_eq!(told, expected.map(|(name, latency, disabled)| (name, latency, disabled.to_owned())));
        assert_eq!(idle.deepest().unwrap().name, "C1E");
    }

    #[test]
    fn cpus_of_two_kinds_have_states_of_their_own() {
        let files = [both().into(), state(0, 1, "C1", "1", "0"), state(1, 1, "C1", "4", "0")].concat();
        let idle = of(&files);
        let told: Vec<(u64, String)> =
            idle.states.iter().map(|state| (state.exit_latency_us, state.cpus.to_string())).collect();
        assert_eq!(told, [(1, "0".to_owned()), (4, "1".to_owned())]);
    }

    #[test]
    fn cpus_that_are_switched_off_do_not_count() {
        let disabled = |cpu: u32| state(cpu, 0, "C6", "133", "1");
        let idle = of(&[disabled(0), disabled(1), state(2, 0, "C6", "133", "0")].concat());
        assert!(!idle.states[0].is_enabled(), "{idle:?}");
    }

    #[test]
    fn a_limit_closes_states_that_take_longer_to_leave() {
        let disabled = |asked: i32, own: [&str; 2]| {
            let dir = tempfile::tempdir().unwrap();
            write(&dir.path().join("dev/cpu_dma_latency"), &asked.to_ne_bytes());
            for (cpu, own) in (0..).zip(own) {
                write(&dir.path().join(CPUS).join(format!("cpu{cpu}/power/pm_qos_resume_latency_us")), own);
                let states = [(0, "C1", "2"), (1, "C1E", "10"), (2, "C6", "133")];
                for (path, text) in states.into_iter().flat_map(|(number, name, us)| state(cpu, number, name, us, "0"))
                {
                    write(&dir.path().join(CPUS).join(path), text);
                }
            }
            let idle = Idle::under(dir.path(), &CpuSet::new([0, 1]));
            (idle.limit_us, idle.states.iter().map(|state| state.disabled.to_string()).collect::<Vec<_>>())
        };
        let of = |limit: Option<u64>, disabled: [&str; 3]| (limit, disabled.map(str::to_owned).to_vec());
        assert_eq!(disabled(2_000_000_000, ["0\n", "0\n"]), of(None, ["", "", ""]));
        assert_eq!(disabled(10, ["0\n", "0\n"]), of(Some(10), ["", "", "0-1"]));
        assert_eq!(disabled(0, ["0\n", "0\n"]), of(Some(0), ["", "0-1", "0-1"]));
        assert_eq!(disabled(2_000_000_000, ["n/a\n", "50\n"]), of(None, ["", "0", "0-1"]));
        assert_eq!(disabled(20, ["5\n", "200\n"]), of(Some(20), ["", "0", "0-1"]));
    }

    #[test]
    fn a_machine_without_any_says_so_in_either_way() {
        assert_eq!(of(&[]), Idle::default());
        let none = of(&[
            ("cpuidle/current_driver".to_owned(), "none"),
            ("cpuidle/current_governor_ro".to_owned(), "haltpoll"),
        ]);
        assert_eq!(none, Idle { governor: Some("haltpoll".to_owned()), ..Idle::default() });
    }

    /// A state without its latency is none that can be compared, and one without a switch is enabled.
    #[test]
    fn what_is_incomplete_is_left_out() {
        let mut files = state(0, 0, "C1", "2", "0");
        files.pop();
        files.extend(state(0, 1, "C6", "long", "0"));
        let idle = of(&files);
        assert_eq!(idle.states.len(), 1, "{idle:?}");
        assert!(idle.states[0].is_enabled());
    }
}
