//! A machine and its settings, for readers.

use super::Environment;

/// What [`described`] calls what differs from minute to minute.
pub const LOAD_AVERAGE: &str = "Load average at the start";

/// What of a machine and its settings a reader is told: name and value. Of several machines, what differs is told of each.
pub fn described(environment: &Environment) -> Vec<(String, String)> {
    let each: Vec<(&String, Vec<(String, String)>)> =
        environment.machines.iter().map(|(node, own)| (node, of_machine(own))).collect();
    if each.is_empty() {
        return if environment.is_known() { of_machine(environment) } else { Vec::new() };
    }
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in each.iter().flat_map(|(_, described)| described) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let of_name = |name: &String| {
        let value = |described: &[(String, String)]| {
            described.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
        };
        let values: Vec<_> = each.iter().map(|(node, described)| (node, value(described))).collect();
        match values.iter().all(|(_, value)| *value == values[0].1) {
            true => vec![(name.clone(), values[0].1.clone().unwrap_or_default())],
            false => values.into_iter().filter_map(|(node, value)| Some((format!("{name}, {node}"), value?))).collect(),
        }
    };
    names.into_iter().flat_map(of_name).collect()
}

fn of_machine(environment: &Environment) -> Vec<(String, String)> {
    let privileges = if environment.rootless { "not the machine's root" } else { "root" };
    let load = f64::from(environment.load_average_hundredths) / 100.0;
    let pairs = [
        ("netrig", environment.netrig_version.clone()),
        ("Kernel", environment.kernel.clone()),
        ("CPU", environment.cpu_model.clone()),
        ("CPUs online", environment.cpus_online.to_string()),
        ("Memory", gibibytes(environment.memory_bytes)),
        ("Hypervisor", environment.hypervisor.clone().unwrap_or_else(|| "none found".to_owned())),
        ("Clock source", environment.clock_source.clone()),
        ("Congestion control, default", environment.congestion_control.clone()),
        ("Privileges", privileges.to_owned()),
        (LOAD_AVERAGE, format!("{load:.2} over one minute")),
    ];
    let fixed = pairs.into_iter().map(|(key, value)| (key.to_owned(), value));
    // Runs of older versions did not record these.
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let idle_states: Vec<String> = environment.idle_states.iter().map(ToString::to_string).collect();
    let recorded = [
        ("netrig's build", environment.netrig_build.clone()),
        ("netrig's commit", environment.netrig_commit.clone()),
        ("netrig's eBPF objects", environment.ebpf_objects.clone()),
        ("Kernel build", environment.kernel_build.clone()),
        ("CPUs usable", environment.cpus_usable.clone()),
        ("CPU limit", environment.cpu_quota.clone()),
        ("Frequency governor", environment.governor.clone()),
        ("CPU time", environment.cpu_time.clone()),
        ("Turbo", environment.turbo.map(switch)),
        ("Idle driver", environment.idle_driver.clone()),
        ("Idle governor", environment.idle_governor.clone()),
        ("Idle limit, of all CPUs", environment.idle_limit_us.map(|limit| format!("{limit} us"))),
        ("Idle states (C-states)", (!idle_states.is_empty()).then(|| idle_states.join(", "))),
        ("Simultaneous multithreading", environment.smt.clone()),
        ("Transparent huge pages", environment.huge_pages.clone()),
    ];
    let recorded = recorded.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let labels = environment.labels.iter().map(|(key, value)| (format!("Label {key}"), value.clone()));
    let mitigations =
        environment.mitigations.iter().map(|(name, state)| (format!("Vulnerability {name}"), state.clone()));
    let cards = environment
        .cards
        .iter()
        .flat_map(|(card, told)| told.iter().map(move |(name, value)| (format!("{card}: {name}"), value.clone())));
    fixed
        .chain(labels)
        .chain(recorded)
        .chain(cards)
        .chain(mitigations)
        .chain(environment.sysctls.iter().cloned())
        .collect()
}

/// For a reader.
pub fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
