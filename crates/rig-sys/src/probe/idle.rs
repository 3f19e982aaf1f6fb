//! How CPUs idle, as cpuidle tells it (Documentation/admin-guide/pm/cpuidle.rst): C-states, as CPUs' makers call them.

use std::collections::BTreeMap;
use std::fs;
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
    /// Those of all CPUs, the shallowest first.
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
    /// Those of the CPUs that may not enter it.
    pub disabled: CpuSet,
}

impl IdleState {
    /// Whether some CPU may enter it.
    pub fn is_enabled(&self) -> bool {
        self.disabled.len() < self.cpus.len()
    }
}

impl Idle {
    /// What a directory as /sys/devices/system/cpu tells.
    pub fn under(cpus: &Path) -> Self {
        let text = |path: &str| {
            let text = fs::read_to_string(cpus.join(path)).ok()?.trim().to_owned();
            (!text.is_empty() && text != "none").then_some(text)
        };
        let governor = || text("cpuidle/current_governor").or_else(|| text("cpuidle/current_governor_ro"));
        // By latency and name, the CPUs that have it and those that may not enter it.
        let mut states: BTreeMap<(u64, String), [Vec<u32>; 2]> = BTreeMap::new();
        for cpu in numbers(cpus, "cpu") {
            for state in numbers(&cpus.join(format!("cpu{cpu}/cpuidle")), "state") {
                let of = |file: &str| text(&format!("cpu{cpu}/cpuidle/state{state}/{file}"));
                let latency = of("latency").and_then(|latency| latency.parse().ok());
                let (Some(name), Some(latency)) = (of("name"), latency) else { continue };
                let [all, disabled] = states.entry((latency, name)).or_default();
                all.push(cpu);
                disabled.extend((of("disable").as_deref() == Some("1")).then_some(cpu));
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
            states: states.into_iter().map(state).collect(),
        }
    }

    /// The state that takes the longest to leave, of those that some CPU may enter.
    pub fn deepest(&self) -> Option<&IdleState> {
        self.states.iter().rfind(|state| state.is_enabled())
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

    /// What the files of a tree tell.
    fn of(files: &[(String, &str)]) -> Idle {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        Idle::under(dir.path())
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
