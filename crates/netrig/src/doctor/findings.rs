//! From facts to findings. Pure: the same facts always give the same findings.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rig_datapath::napi::{self, PlacementError};
use rig_load::plan::{Datagrams, Engine, Load, SendMode, TcpStream};
use rig_stats::units::Bytes;
use rig_suite::suite::Scenario;
use rig_sys::advice::{Capability, NAMESPACES, rights};
use rig_sys::cpu::CpuSet;
use rig_sys::probe::{
    Access, Facts, Feature, Idle, IdleState, Machine, MachineActivity, Namespaces, Privileges, ProbeResult,
    ProcessOwner, Refusal, Sockets,
};
use rig_testbed::topology::{Path, Topology};
use rig_testbed::{partition_cpus, split_cores};

use super::{Finding, FindingArea, MissingResource, State, SuitePurpose, congestion_controls_of};

/// What `facts` mean to a user of netrig. `store` is where runs are kept, or why they cannot be.
pub fn findings(facts: &Facts, store: &Result<PathBuf, String>) -> Vec<Finding> {
    let Facts { machine, privileges, activity, sockets, namespaces } = facts;
    let in_area = |area, states: Vec<(&'static str, State)>| {
        states.into_iter().map(move |(name, state)| Finding { area, name, state })
    };
    let pieces = PIECES.iter().map(|piece| (piece.name, piece.state(namespaces, privileges)));
    [
        in_area(FindingArea::Privileges, vec![("network namespaces", access(&namespaces.access, privileges))]),
        in_area(FindingArea::Testbed, std::iter::once(("kernel", ok(&machine.kernel))).chain(pieces).collect()),
        in_area(FindingArea::Cpus, cpus(machine)),
        in_area(FindingArea::Clock, vec![("clock source", clock(machine))]),
        in_area(FindingArea::LoadGenerator, load_generator(machine, sockets, privileges)),
        in_area(FindingArea::Store, vec![("runs", self::store(store))]),
        in_area(FindingArea::OtherLoad, other_load(activity)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What scenarios are made of and these facts say is not to be had: the lacks of [`findings`] that are in their way.
pub fn in_the_way_of(scenarios: &[Scenario], purpose: SuitePurpose, facts: &Facts) -> Vec<MissingResource> {
    let Facts { privileges, namespaces, .. } = facts;
    let mut states: Vec<State> = pieces_of(scenarios)
        .into_iter()
        .flat_map(|feature| PIECES.iter().filter(move |piece| piece.feature == feature))
        .map(|piece| piece.state(namespaces, privileges))
        .collect();
    if scenarios.iter().any(|scenario| scenario.topology.path().is_of_three()) {
        states.push(placing());
    }
    match purpose {
        SuitePurpose::Build => {}
        SuitePurpose::Run => states.extend(loads_of(scenarios, facts)),
    }
    let lack = |state| match state {
        State::Lacking(lack) | State::Missing(lack) => Some(lack),
        State::Ok { .. } | State::Doubtful(_) | State::Unknown { .. } => None,
    };
    states.into_iter().filter_map(lack).collect()
}

/// How it stands with what the loads of scenarios ask for.
fn loads_of(scenarios: &[Scenario], facts: &Facts) -> Vec<State> {
    let Facts { machine, privileges, sockets, .. } = facts;
    let load = load_generator(machine, sockets, privileges);
    let of_load = |name| load.iter().filter(move |(of, _)| *of == name).map(|(_, state)| state.clone());
    let mut states: Vec<State> =
        congestion_controls_of(scenarios).into_iter().map(|name| named_congestion_control(name, machine)).collect();
    let loads = || scenarios.iter().flat_map(Scenario::loads);
    let streams = |asks: fn(&TcpStream) -> bool| loads().any(|load| matches!(load, Load::TcpStream(s) if asks(s)));
    let datagrams = |asks: fn(&Datagrams) -> bool| loads().any(|load| matches!(load, Load::UdpStream(d) if asks(d)));
    if streams(|stream| matches!(stream.engine, Engine::Uring { .. })) {
        states.extend(of_load(IO_URING));
    }
    if streams(|stream| stream.send_mode == SendMode::ZeroCopy) {
        states.extend(of_load(ZERO_COPY));
    }
    if datagrams(|datagrams| datagrams.segments > 1) {
        states.extend(of_load(UDP_SEGMENTS));
    }
    if datagrams(|datagrams| datagrams.coalesce) {
        states.extend(of_load(UDP_COALESCING));
    }
    states
}

/// The parts that the testbeds of scenarios are made of.
fn pieces_of(scenarios: &[Scenario]) -> BTreeSet<Feature> {
    scenarios.iter().flat_map(|scenario| scenario.topology.plan(&[]).features()).collect()
}

/// Whether the receiving threads of client, DUT and server can be placed.
pub(super) fn placing() -> State {
    let remedy = match napi::may_place() {
        Ok(()) => return ok("receiving threads can be put onto CPUs"),
        Err(PlacementError::UserNamespace) => "run as root of the machine, outside of user namespaces".to_owned(),
        Err(PlacementError::Capability) => rights(&[Capability::SysNice]),
        Err(PlacementError::Kernel) => "use Linux 5.12 or newer".to_owned(),
        Err(PlacementError::ProcessNamespace) => {
            "start the container with the machine's processes: `docker run --pid=host`".to_owned()
        }
    };
    let why = napi::may_place().map_or_else(|why| why.to_string(), |()| String::new());
    let effect = "no testbed of client, DUT and server: their nodes would do each other's work";
    State::Lacking(lack(why, effect, remedy))
}

fn ok(found: impl Into<String>) -> State {
    State::Ok { found: found.into() }
}

fn lack(found: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> MissingResource {
    MissingResource { found: found.into(), effect: effect.into(), remedy: remedy.into() }
}

fn unknown(why: impl Into<String>) -> State {
    State::Unknown { why: why.into() }
}

fn access(access: &Access, privileges: &Privileges) -> State {
    match access {
        Access::Direct if privileges.in_user_namespace => ok("as root of the user namespace that this is"),
        Access::Direct if privileges.user == 0 => ok("as root"),
        Access::Direct => ok("with the capabilities of this process"),
        Access::UserNamespace => ok("without root, in a user namespace"),
        Access::Refused(refusal) => {
            let remedy = access_remedy(refusal, privileges);
            State::Missing(lack(refusal.to_string(), "no testbed can be built", remedy))
        }
    }
}

/// The one switch that is known to stand in the way, or else root.
fn access_remedy(refusal: &Refusal, privileges: &Privileges) -> String {
    let or_allow =
        |switch: &str| format!("{}, or allow user namespaces: `sudo sysctl -w {switch}`", rights(NAMESPACES));
    if privileges.filtered {
        CONTAINER.to_owned()
    } else if refusal.is_unsupported() {
        "use a kernel with CONFIG_NET_NS".to_owned()
    } else if privileges.user_namespaces_max == Some(0) {
        or_allow("user.max_user_namespaces=10000")
    } else if privileges.user_namespaces_for_all == Some(0) {
        or_allow("kernel.unprivileged_userns_clone=1")
    } else if privileges.restricted_by_apparmor == Some(1) {
        or_allow("kernel.apparmor_restrict_unprivileged_userns=0")
    } else {
        rights(NAMESPACES)
    }
}

const CONTAINER: &str = "run netrig outside the container, or give the container the right \
                         (`docker run --privileged`, or podman's `--privileged`)";

/// A part that testbeds are made of.
struct TestbedFeature {
    feature: Feature,
    name: &'static str,
    /// What does not work without it.
    effect: Effect,
    /// Whether the suite `layers` does without it.
    spare: bool,
    /// The kernel's module, if it may be one, and its build option.
    module: Option<&'static str>,
    option: &'static str,
}

enum Effect {
    Words(&'static str),
    /// The paths that are made of it, and the built-in suite that has one of them.
    Paths {
        of: Option<&'static str>,
    },
}

#[rustfmt::skip]
const PIECES: &[TestbedFeature] = &[
    TestbedFeature { feature: Feature::Veth, name: "veth", spare: false, module: Some("veth"), option: "CONFIG_VETH",
            effect: Effect::Words("nodes and containers cannot be joined") },
    TestbedFeature { feature: Feature::Bridge, name: "bridge", spare: false, module: Some("bridge"), option: "CONFIG_BRIDGE",
            effect: Effect::Paths { of: None } },
    TestbedFeature { feature: Feature::Macvlan, name: "macvlan", spare: true, module: Some("macvlan"), option: "CONFIG_MACVLAN",
            effect: Effect::Paths { of: Some("namespaces") } },
    TestbedFeature { feature: Feature::Vxlan, name: "vxlan", spare: false, module: Some("vxlan"), option: "CONFIG_VXLAN",
            effect: Effect::Paths { of: None } },
    TestbedFeature { feature: Feature::TokenBucket, name: "rate limit (tbf)", spare: true, module: Some("sch_tbf"),
            option: "CONFIG_NET_SCH_TBF", effect: Effect::Words("no wires with a rate, such as that of the suite namespaces") },
    TestbedFeature { feature: Feature::Forwarding, name: "forwarding", spare: true, module: None, option: "CONFIG_INET",
            effect: Effect::Paths { of: Some("namespaces") } },
    TestbedFeature { feature: Feature::Ipv6, name: "IPv6", spare: true, module: None, option: "CONFIG_IPV6",
            effect: Effect::Words("no testbeds of family ipv6") },
    TestbedFeature { feature: Feature::Offloads, name: "offload switches", spare: false, module: None, option: "CONFIG_NET",
            effect: Effect::Words("no wires without segmentation offload") },
    TestbedFeature { feature: Feature::Sysfs, name: "sysfs of a namespace", spare: false, module: None, option: "CONFIG_SYSFS",
            effect: Effect::Words("a node's receive processing cannot be kept on its CPUs: no wires") },
    TestbedFeature { feature: Feature::ReceiveSteering, name: "receive steering (RPS)", spare: false, module: None,
            option: "CONFIG_RPS", effect: Effect::Words("a node's receive processing cannot be kept on its CPUs: no wires") },
];

impl TestbedFeature {
    fn state(&self, namespaces: &Namespaces, privileges: &Privileges) -> State {
        let refusal = match namespaces.features.get(&self.feature) {
            Some(Ok(())) => return ok("works"),
            None => return unknown("not tested: something it needs is missing"),
            Some(Err(refusal)) => refusal,
        };
        let lack = lack(refusal.to_string(), self.effect(), self.remedy(refusal, privileges));
        if self.spare { State::Lacking(lack) } else { State::Missing(lack) }
    }

    fn effect(&self) -> String {
        let suite = match self.effect {
            Effect::Words(words) => return words.to_owned(),
            Effect::Paths { of } => of,
        };
        // Client, DUT and server are told of by themselves.
        let needs = |path: &Path| {
            Topology::smallest(*path).is_ok_and(|(topology, _)| topology.plan(&[]).features().contains(&self.feature))
        };
        let names: Vec<&str> = Path::plain().filter(needs).map(Path::name).collect();
        let has = |which: &str| suite.map_or_else(String::new, |suite| format!(", {which} the suite {suite} has"));
        match names.as_slice() {
            [one] => format!("no path {one}{}", has("which")),
            [first @ .., last] => format!("no paths {} and {last}{}", first.join(", "), has("of which")),
            [] => String::new(),
        }
    }

    fn remedy(&self, refusal: &Refusal, privileges: &Privileges) -> String {
        match (refusal.is_unsupported(), self.module) {
            (true, Some(module)) => format!(
                "`sudo modprobe {module}` (on Ubuntu the package linux-modules-extra-$(uname -r) may be needed), \
                 or a kernel with {}",
                self.option
            ),
            (true, None) => format!("use a kernel with {}", self.option),
            // Containers see their sysctls mounted read-only.
            (false, _) if privileges.filtered || privileges.in_user_namespace || refusal.is_read_only() => {
                CONTAINER.to_owned()
            }
            (false, _) if self.feature == Feature::ReceiveSteering => {
                format!("use Linux 6.4 or newer; {}", rights(NAMESPACES))
            }
            (false, _) => rights(NAMESPACES),
        }
    }
}

fn cpus(machine: &Machine) -> Vec<(&'static str, State)> {
    let mut states = vec![
        ("model", machine.cpu_model.as_ref().map_or_else(|| unknown("the kernel does not say"), ok)),
        ("number", cpu_number(&machine.allowed, &machine.online)),
        ("cores", cores(machine)),
        ("frequency", frequency(machine)),
        ("idle states", idle_states(&machine.idle)),
    ];
    if let Some(quota) = machine.quota {
        states.push(("time", time_quota(quota, machine.allowed.len())));
    }
    let hypervisor = machine.hypervisor.as_deref().map_or_else(|| "none".to_owned(), str::to_owned);
    states.push(("hypervisor", ok(hypervisor)));
    states
}

fn cpu_number(allowed: &CpuSet, online: &CpuSet) -> State {
    let found = match allowed == online {
        true => format!("{} (CPUs {online})", online.len()),
        false => format!("{} (CPUs {allowed}) of the machine's {}", allowed.len(), online.len()),
    };
    match partition_cpus(allowed, &[], 2) {
        Ok(_) => ok(found),
        Err(_) if online.len() > 1 => State::Missing(lack(
            found,
            "no testbed of two nodes: each needs a CPU of its own",
            "let netrig use more of the machine's CPUs (taskset, cpuset of the cgroup, `docker run --cpuset-cpus`)",
        )),
        Err(_) => State::Missing(lack(
            found,
            "no testbed of two nodes: each needs a CPU of its own",
            "use a machine with two CPUs or more",
        )),
    }
}

/// Two nodes that share a core slow each other down, in a way that no counter shows.
fn cores(machine: &Machine) -> State {
    let cores = &machine.shared_cores;
    let Ok(nodes) = partition_cpus(&machine.allowed, cores, 2) else {
        return unknown("two nodes do not find CPUs here");
    };
    match split_cores(&nodes, cores).next() {
        Some(core) => State::Doubtful(lack(
            format!("CPUs {core} are threads of one core and belong to different nodes"),
            "the nodes slow each other down: throughput and CPU figures are too bad for both",
            "switch threads off (`echo off | sudo tee /sys/devices/system/cpu/smt/control`), \
             or run under `taskset -c` with one thread of each core",
        )),
        None if cores.is_empty() => ok("one thread each"),
        None => ok("several threads each, none in two nodes"),
    }
}

fn frequency(machine: &Machine) -> State {
    if machine.governors.is_empty() {
        return unknown("the kernel does not set it or does not show it (usual in virtual machines)");
    }
    let turbo = match machine.turbo {
        Some(true) => ", turbo on",
        Some(false) => ", turbo off",
        None => "",
    };
    let governors: Vec<&str> = machine.governors.iter().map(String::as_str).collect();
    let found = format!("governor {}{turbo}", governors.join(" and "));
    if governors == ["performance"] {
        return ok(found);
    }
    State::Doubtful(lack(
        found,
        "CPUs change their speed with the load: CPU percentages of light and heavy scenarios do not compare",
        "`echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor`",
    ))
}

/// The longest time to leave an idle state that is not deep, us: that of C1E of many CPUs. A round trip between two machines takes few times that.
const SHALLOW_US: u64 = 10;

fn idle_states(idle: &Idle) -> State {
    let Some(shallowest) = idle.states.first() else {
        return unknown("the kernel does not choose any or does not show them (usual in virtual machines)");
    };
    let by = |what: &str, name: Option<&String>| name.map_or_else(String::new, |name| format!(", {what} {name}"));
    let limit = idle.limit_us.map(|limit| format!("{limit} us, which a process asks for"));
    let by =
        by("governor", idle.governor.as_ref()) + &by("driver", idle.driver.as_ref()) + &by("limit", limit.as_ref());
    let deep = |state: &&IdleState| state.is_enabled() && state.exit_latency_us > SHALLOW_US;
    let words = |state: &IdleState| format!("{} ({} us to wake up)", state.name, state.exit_latency_us);
    let deep: Vec<String> = idle.states.iter().filter(deep).map(words).collect();
    if deep.is_empty() {
        return ok(match idle.deepest() {
            Some(deepest) => format!("{} at most{by}", words(deepest)),
            // The kernel has to take one.
            None => format!("all are disabled, {} is taken{by}", words(shallowest)),
        });
    }
    State::Doubtful(lack(
        format!("deep C-states enabled: {}{by}", deep.join(", ")),
        "CPUs that were idle wake up late: round trips of light loads are longer, and vary",
        format!("`sudo cpupower idle-set -D {}`, until `cpupower idle-set -E` enables all", SHALLOW_US + 1),
    ))
}

fn time_quota(quota: f64, cpus: usize) -> State {
    let found = format!("the cgroup grants {quota:.2} CPUs' worth");
    if quota >= cpus as f64 {
        return ok(found);
    }
    State::Doubtful(lack(
        found,
        format!("the kernel halts netrig when {cpus} CPUs use more: throughput is cut in bursts"),
        "lift the limit (cpu.max of the cgroup, `docker run` without --cpus)",
    ))
}

fn clock(machine: &Machine) -> State {
    let Some(source) = machine.clock_source.as_deref() else { return unknown("the kernel does not say") };
    // Clock sources that need no system call to read: arch/*/include/asm/vdso/clocksource.h.
    let fast = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase", "riscv_clocksource"];
    if fast.contains(&source) {
        return ok(source);
    }
    let better = machine.clock_sources.iter().find(|other| fast.contains(&other.as_str()));
    let remedy = match better {
        Some(better) => {
            let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            format!("`echo {better} | sudo tee {file}`")
        }
        None => "see in `dmesg | grep -i clocksource` why the kernel gave up the CPU's own counter".to_owned(),
    };
    let effect = "each look at the clock is a system call, which costs the load generator time";
    State::Doubtful(lack(source, effect, remedy))
}

const IO_URING: &str = "io_uring";
const ZERO_COPY: &str = "MSG_ZEROCOPY";
const UDP_SEGMENTS: &str = "UDP segmentation (GSO)";
const UDP_COALESCING: &str = "UDP coalescing (GRO)";

/// The receive buffer that the suite `layers` asks for, and as much for sending, bytes.
const BUFFER: u64 = 2 * 1024 * 1024;

fn load_generator(machine: &Machine, sockets: &Sockets, privileges: &Privileges) -> Vec<(&'static str, State)> {
    let io_uring = match &sockets.io_uring {
        Ok(()) => ok("works"),
        Err(refusal) => State::Missing(lack(
            refusal.to_string(),
            "no load with several operations outstanding",
            match (sockets.io_uring_disabled, privileges.filtered) {
                (Some(1 | 2), _) => "`sudo sysctl -w kernel.io_uring_disabled=0`",
                (_, true) => CONTAINER,
                _ => "use Linux 5.6 or newer with CONFIG_IO_URING",
            },
        )),
    };
    let zero_copy = match &sockets.zero_copy {
        Ok(()) => ok("works"),
        Err(refusal) => {
            let remedy = "use Linux 4.14 or newer, or another copy mode";
            State::Lacking(lack(refusal.to_string(), "no copy mode zero-copy", remedy))
        }
    };
    let udp = |outcome: &ProbeResult, effect, release| match outcome {
        Ok(()) => ok("works"),
        Err(refusal) => State::Lacking(lack(refusal.to_string(), effect, format!("use Linux {release} or newer"))),
    };
    vec![
        (IO_URING, io_uring),
        (ZERO_COPY, zero_copy),
        (UDP_SEGMENTS, udp(&sockets.udp_segments, "no udp-stream with `segments`", "4.18")),
        (UDP_COALESCING, udp(&sockets.udp_coalescing, "no udp-stream with `coalesce`", "5.0")),
        ("congestion control", congestion_control(machine)),
        ("receive buffer", buffer("net.core.rmem_max", machine.receive_buffer_max)),
        ("send buffer", buffer("net.core.wmem_max", machine.send_buffer_max)),
    ]
}

fn congestion_control(machine: &Machine) -> State {
    let found = match &machine.congestion_control {
        Some(default) => format!("{} (default {default})", machine.congestion_controls.join(", ")),
        None => machine.congestion_controls.join(", "),
    };
    if machine.congestion_controls.is_empty() {
        return unknown("the kernel does not say");
    }
    if machine.congestion_controls.iter().any(|name| name == "cubic") {
        return ok(found);
    }
    State::Missing(lack(
        found,
        "no load that names cubic, as the suite layers does",
        "`sudo modprobe tcp_cubic`, or a kernel with CONFIG_TCP_CONG_CUBIC",
    ))
}

/// Whether there is the congestion control that a scenario names.
fn named_congestion_control(name: &str, machine: &Machine) -> State {
    let known = &machine.congestion_controls;
    if known.is_empty() {
        return unknown("the kernel does not say");
    }
    if known.iter().any(|known| known == name) {
        return ok(name);
    }
    State::Missing(lack(
        format!("the kernel has no congestion control '{name}'"),
        "no load that names it",
        format!("`sudo modprobe tcp_{name}`, or name one that is there: {}", known.join(", ")),
    ))
}

fn buffer(sysctl: &str, max: Option<u64>) -> State {
    match max {
        None => unknown(format!("{sysctl} cannot be read")),
        Some(max) if max >= BUFFER => ok(format!("up to {}", Bytes(max))),
        Some(max) => State::Doubtful(lack(
            format!("{sysctl} is {}", Bytes(max)),
            format!("sockets that ask for more, such as {} in the suite layers, get this much", Bytes(BUFFER)),
            format!("`sudo sysctl -w {sysctl}={BUFFER}`"),
        )),
    }
}

fn store(place: &Result<PathBuf, String>) -> State {
    match place {
        Ok(path) => ok(path.display().to_string()),
        Err(error) => {
            State::Missing(lack(error, "runs cannot be kept", "fix that, or set NETRIG_STORE=FILE to another place"))
        }
    }
}

/// Percent of the machine's CPU time above which other programs, or other machines, show in the figures.
const BUSY: f64 = 5.0;
const STOLEN: f64 = 0.5;

/// What to do about a busy machine, by what keeps it busy: the user's programs, netrig's own work, or the kernel's.
fn quieten(activity: &MachineActivity) -> String {
    let of = |owner| {
        let named = activity.busiest.iter().filter(|busy| busy.owner == owner).take(3);
        let named =
            named.map(|busy| format!("{} (process {}, {:.0} % of a CPU)", busy.command, busy.pid, busy.percent));
        named.collect::<Vec<_>>().join(", ")
    };
    let ways = [
        (ProcessOwner::User, "stop: "),
        (ProcessOwner::Own, "wait until netrig's other work is done: "),
        (ProcessOwner::Kernel, "find what keeps the kernel busy: "),
    ];
    let ways = ways.map(|(owner, way)| (way, of(owner)));
    let said: Vec<_> = ways.iter().filter(|(_, who)| !who.is_empty()).map(|(way, who)| format!("{way}{who}")).collect();
    match said.is_empty() {
        true => "see with `top` what runs, and end it".to_owned(),
        false => said.join("; "),
    }
}

fn other_load(activity: &MachineActivity) -> Vec<(&'static str, State)> {
    let found = format!("{:.0} % busy, load average {:.2}", activity.busy_percent, activity.load_average);
    let programs = if activity.busy_percent < BUSY {
        ok(found)
    } else {
        State::Doubtful(lack(found, "other programs take CPU time from the nodes", quieten(activity)))
    };
    let stolen = format!("{:.1} %", activity.steal_percent);
    let steal = if activity.steal_percent < STOLEN {
        ok(stolen)
    } else {
        let effect = "the hypervisor takes CPU time from the nodes: figures vary with what other machines do";
        State::Doubtful(lack(stolen, effect, "use a host with CPUs of your own"))
    };
    vec![("programs", programs), ("stolen time", steal)]
}
