use std::collections::BTreeMap;

use rig_suite::suite::Suite;
use rig_sys::advice::{NAMESPACES, XDP, rights};
use rig_sys::cpu::CpuSet;
use rig_sys::probe::{
    Access, BusyProcess, Feature, Idle, IdleState, Machine, MachineActivity, Namespaces, Privileges, ProcessOwner,
    Refusal, Sockets,
};

use super::*;

const FEATURES: [Feature; 10] = [
    Feature::Veth,
    Feature::Bridge,
    Feature::Macvlan,
    Feature::Vxlan,
    Feature::TokenBucket,
    Feature::Forwarding,
    Feature::Ipv6,
    Feature::Offloads,
    Feature::Sysfs,
    Feature::ReceiveSteering,
];

/// CPUs that may enter all of these states: name and exit latency, us.
fn idle(states: &[(&str, u64)]) -> Idle {
    let state = |(name, exit_latency_us): &(&str, u64)| IdleState {
        name: (*name).to_owned(),
        exit_latency_us: *exit_latency_us,
        cpus: CpuSet::new([0, 1, 2, 3]),
        disabled: CpuSet::default(),
    };
    Idle {
        driver: Some("intel_idle".to_owned()),
        governor: Some("menu".to_owned()),
        limit_us: None,
        states: states.iter().map(state).collect(),
    }
}

/// A quiet machine that has everything.
fn good() -> Facts {
    let cpus = CpuSet::new([0, 1, 2, 3]);
    Facts {
        machine: Machine {
            kernel: "6.12.1 x86_64".to_owned(),
            cpu_model: Some("Nimble 9000".to_owned()),
            online: cpus.clone(),
            allowed: cpus,
            shared_cores: vec![CpuSet::new([0, 1]), CpuSet::new([2, 3])],
            governors: ["performance".to_owned()].into(),
            turbo: Some(false),
            idle: idle(&[("POLL", 0), ("C1", 2), ("C1E", 10)]),
            clock_source: Some("tsc".to_owned()),
            congestion_control: Some("cubic".to_owned()),
            congestion_controls: vec!["reno".to_owned(), "cubic".to_owned()],
            receive_buffer_max: Some(4_194_304),
            send_buffer_max: Some(2_097_152),
            ..Machine::default()
        },
        privileges: Privileges::default(),
        activity: MachineActivity { load_average: 0.04, busy_percent: 0.6, ..MachineActivity::default() },
        sockets: Sockets {
            io_uring: Ok(()),
            io_uring_disabled: Some(0),
            zero_copy: Ok(()),
            udp_segments: Ok(()),
            udp_coalescing: Ok(()),
        },
        namespaces: Namespaces { access: Access::Direct, features: FEATURES.map(|feature| (feature, Ok(()))).into() },
    }
}

fn refusal(operation: &str, errno: i32) -> Refusal {
    Refusal::new(operation, &io::Error::from_raw_os_error(errno))
}

const EPERM: i32 = 1;
const EROFS: i32 = 30;
const EOPNOTSUPP: i32 = 95;

fn look(facts: &Facts) -> Vec<Finding> {
    findings(facts, &Ok("/home/me/.local/share/netrig/runs.sqlite".into()))
}

/// Without suites, which only a machine can tell of.
fn report(findings: Vec<Finding>) -> MachineReport {
    MachineReport::new(findings, Vec::new())
}

fn text(findings: &[Finding]) -> String {
    write(&report(findings.to_vec()), Format::Plain, 80)
}

/// The state of `name` after `change` was made to a good machine.
fn after(name: &str, change: impl FnOnce(&mut Facts)) -> State {
    let mut facts = good();
    change(&mut facts);
    let found = look(&facts).into_iter().find(|finding| finding.name == name);
    found.unwrap_or_else(|| panic!("nothing is said of {name}")).state
}

fn missing(state: State) -> MissingResource {
    let State::Missing(lack) = state else { panic!("not missing: {state:?}") };
    lack
}

fn doubtful(state: State) -> MissingResource {
    let State::Doubtful(lack) = state else { panic!("not doubtful: {state:?}") };
    lack
}

#[test]
fn a_good_machine_is_ready_without_a_doubt() {
    let findings = look(&good());
    assert!(findings.iter().all(|finding| matches!(finding.state, State::Ok { .. })), "{}", text(&findings));
    assert_eq!(Readiness::of(&findings), Readiness::Ready);
    insta::assert_snapshot!("good", text(&findings));
}

#[test]
fn idle_states_are_deep_where_some_cpu_may_enter_them() {
    let with = |disabled: &[u32]| {
        after("idle states", |facts| {
            facts.machine.idle = idle(&[("C1", 2), ("C6", 133)]);
            facts.machine.idle.states[1].disabled = CpuSet::new(disabled.iter().copied());
        })
    };
    for some in [&[][..], &[0, 1]] {
        assert!(doubtful(with(some)).found.contains("C6 (133 us to wake up)"), "{some:?}");
    }
    let State::Ok { found } = with(&[0, 1, 2, 3]) else { panic!("deep states that are disabled") };
    assert_eq!(found, "C1 (2 us to wake up) at most, governor menu, driver intel_idle");
    let limited = after("idle states", |facts| {
        facts.machine.idle = idle(&[("C1", 2), ("C6", 133)]);
        facts.machine.idle.limit_us = Some(20);
        facts.machine.idle.states[1].disabled = CpuSet::new(0..4);
    });
    let State::Ok { found } = limited else { panic!("deep states that a limit closes") };
    assert!(found.ends_with(", limit 20 us, which a process asks for"), "{found}");
    let all = after("idle states", |facts| {
        facts.machine.idle.states.iter_mut().for_each(|state| state.disabled = state.cpus.clone());
    });
    let State::Ok { found } = all else { panic!("no state but that which the kernel has to take") };
    assert!(found.starts_with("all are disabled, POLL (0 us to wake up) is taken"), "{found}");
    let none = after("idle states", |facts| facts.machine.idle = Idle::default());
    assert!(matches!(none, State::Unknown { .. }), "{none:?}");
}

/// A small container on a busy laptop that allows next to nothing.
fn bad() -> Facts {
    let mut facts = good();
    facts.machine.allowed = CpuSet::new([0, 1]);
    facts.machine.quota = Some(1.5);
    facts.machine.governors = ["powersave".to_owned()].into();
    facts.machine.turbo = Some(true);
    facts.machine.idle = idle(&[("C1", 2), ("C3", 33), ("C6", 133)]);
    facts.machine.clock_source = Some("hpet".to_owned());
    facts.machine.congestion_controls = vec!["reno".to_owned()];
    facts.machine.receive_buffer_max = Some(212_992);
    facts.machine.hypervisor = Some("KVMKVMKVM".to_owned());
    facts.privileges = Privileges { filtered: true, ..Privileges::default() };
    let busy = BusyProcess { pid: 4711, command: "cc1plus".to_owned(), percent: 98.0, owner: ProcessOwner::User };
    facts.activity = MachineActivity { load_average: 3.5, busy_percent: 61.0, steal_percent: 2.5, busiest: vec![busy] };
    facts.sockets.io_uring = Err(refusal("create an io_uring", EPERM));
    facts.sockets.zero_copy = Err(refusal("set SO_ZEROCOPY on a TCP socket", EOPNOTSUPP));
    facts.namespaces.features = BTreeMap::from([
        (Feature::Bridge, Err(refusal("create bridge bridge0", EOPNOTSUPP))),
        (Feature::Veth, Ok(())),
        (Feature::Macvlan, Err(refusal("create macvlan macvlan0 over near0", EOPNOTSUPP))),
        (Feature::Sysfs, Err(refusal("mount sysfs for a network namespace", EPERM))),
    ]);
    facts
}

#[test]
fn each_lack_comes_with_its_effect_and_its_remedy() {
    let findings = findings(&bad(), &Err("may not use the store /x (read-only)".to_owned()));
    assert_eq!(Readiness::of(&findings), Readiness::NotReady);
    for finding in &findings {
        if let State::Doubtful(lack) | State::Lacking(lack) | State::Missing(lack) = &finding.state {
            assert!(!lack.found.is_empty() && !lack.effect.is_empty() && !lack.remedy.is_empty(), "{finding:?}");
        }
    }
    insta::assert_snapshot!("bad", text(&findings));
}

#[test]
fn without_namespaces_the_switch_in_the_way_is_named() {
    let refused = |privileges: Privileges| {
        missing(after("network namespaces", |facts| {
            facts.privileges = privileges;
            facts.namespaces.access = Access::Refused(refusal("create a user namespace", EPERM));
            facts.namespaces.features = BTreeMap::new();
        }))
        .remedy
    };
    let none = Privileges::default();
    assert!(refused(Privileges { user_namespaces_max: Some(0), ..none.clone() }).contains("max_user_namespaces=10000"));
    assert!(refused(Privileges { user_namespaces_for_all: Some(0), ..none.clone() }).contains("userns_clone=1"));
    assert!(refused(Privileges { restricted_by_apparmor: Some(1), ..none.clone() }).contains("restrict_unprivileged"));
    assert!(refused(Privileges { filtered: true, ..none.clone() }).contains("docker"));
    assert_eq!(refused(none), rights(NAMESPACES));
}

#[test]
fn without_namespaces_nothing_is_said_of_what_was_not_tried() {
    let state = after("vxlan", |facts| facts.namespaces.features = BTreeMap::new());
    assert!(matches!(state, State::Unknown { .. }), "{state:?}");
}

#[test]
fn a_lacking_module_and_a_lacking_right_have_different_remedies() {
    let vxlan = |errno| {
        missing(after("vxlan", |facts| {
            let tried = Err(refusal("create vxlan vxlan0", errno));
            facts.namespaces.features.insert(Feature::Vxlan, tried);
        }))
    };
    assert!(vxlan(EOPNOTSUPP).remedy.contains("modprobe vxlan"));
    assert_eq!(vxlan(EPERM).remedy, rights(NAMESPACES));
    assert_eq!(vxlan(EPERM).effect, "no path vxlan");
    assert!(vxlan(EROFS).remedy.contains("docker"));
}

#[test]
fn what_the_suite_layers_spares_does_not_stop_it() {
    let mut facts = good();
    for feature in [Feature::Macvlan, Feature::Forwarding, Feature::TokenBucket] {
        facts.namespaces.features.insert(feature, Err(refusal("try it", EOPNOTSUPP)));
    }
    facts.sockets.zero_copy = Err(refusal("try it", EOPNOTSUPP));
    assert_eq!(Readiness::of(&look(&facts)), Readiness::Ready);
}

#[test]
fn two_nodes_need_two_cpus() {
    let number = |allowed: &[u32], online: &[u32]| {
        missing(after("number", |facts| {
            facts.machine.allowed = CpuSet::new(allowed.iter().copied());
            facts.machine.online = CpuSet::new(online.iter().copied());
        }))
    };
    assert!(number(&[0], &[0]).remedy.contains("two CPUs or more"));
    let limited = number(&[2], &[0, 1, 2, 3]);
    assert!(limited.remedy.contains("taskset"), "{limited:?}");
    assert_eq!(limited.found, "1 (CPUs 2) of the machine's 4");
}

#[test]
fn nodes_that_share_a_core_are_doubtful() {
    let cores = |allowed: &[u32], shared: [[u32; 2]; 2]| {
        after("cores", |facts| {
            facts.machine.allowed = CpuSet::new(allowed.iter().copied());
            facts.machine.shared_cores = shared.into_iter().map(CpuSet::new).collect();
        })
    };
    let all = [0, 1, 2, 3];
    assert!(matches!(cores(&all, [[0, 1], [2, 3]]), State::Ok { .. }));
    assert!(matches!(cores(&all, [[0, 2], [1, 3]]), State::Ok { .. }));
    // Both nodes find nothing but the threads of one core.
    assert!(doubtful(cores(&[0, 2], [[0, 2], [1, 3]])).found.starts_with("CPUs 0,2 are threads of one core"));
}

#[test]
fn limits_and_clocks_are_weighed() {
    let quota = |quota| after("time", |facts| facts.machine.quota = Some(quota));
    assert!(matches!(quota(4.0), State::Ok { .. }));
    assert_eq!(doubtful(quota(1.5)).found, "the cgroup grants 1.50 CPUs' worth");

    let clock = |source: &str, others: &[&str]| {
        after("clock source", |facts| {
            facts.machine.clock_source = Some(source.to_owned());
            facts.machine.clock_sources = others.iter().map(|&other| other.to_owned()).collect();
        })
    };
    assert!(matches!(clock("kvm-clock", &[]), State::Ok { .. }));
    assert!(doubtful(clock("hpet", &["hpet", "tsc"])).remedy.starts_with("`echo tsc"));
    assert!(doubtful(clock("hpet", &["hpet"])).remedy.contains("dmesg"));

    let small = doubtful(after("receive buffer", |facts| facts.machine.receive_buffer_max = Some(212_992)));
    assert_eq!(small.remedy, "`sudo sysctl -w net.core.rmem_max=2097152`");
}

#[test]
fn a_forbidden_io_uring_has_the_remedy_of_its_cause() {
    let io_uring = |disabled, filtered| {
        missing(after("io_uring", |facts| {
            facts.sockets.io_uring = Err(refusal("create an io_uring", EPERM));
            facts.sockets.io_uring_disabled = disabled;
            facts.privileges.filtered = filtered;
        }))
        .remedy
    };
    assert!(io_uring(Some(2), true).contains("io_uring_disabled=0"));
    assert!(io_uring(Some(0), true).contains("container"));
    assert!(io_uring(None, false).contains("CONFIG_IO_URING"));
}

#[test]
fn json_says_the_same() {
    let report: serde_json::Value = serde_json::from_str(&write(&report(look(&bad())), Format::Json, 80)).unwrap();
    assert_eq!(report["ready"], false);
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), look(&bad()).len());
    let bridge = findings.iter().find(|finding| finding["name"] == "bridge").unwrap();
    assert_eq!((&bridge["area"], &bridge["state"]), (&"testbed".into(), &"missing".into()));
    assert!(bridge["remedy"].as_str().unwrap().contains("modprobe bridge"));
}

#[test]
fn what_a_run_of_each_suite_would_leave_out_is_told_with_the_reason() {
    let skipped = |ids: &[&str], reason: &str| SkippedScenarios {
        scenarios: ids.iter().map(|id| (*id).to_owned()).collect(),
        reason: reason.to_owned(),
    };
    let suite = |name: &str, scenarios: &[&str], left_out: &[SkippedScenarios]| SuiteSupport {
        suite: name.to_owned(),
        scenarios: scenarios.iter().map(|id| (*id).to_owned()).collect(),
        left_out: left_out.to_vec(),
    };
    let why = "load the vRouter's programs: the kernel refuses the program 'from_container'";
    let suites = vec![
        suite("layers", &["A", "B"], &[skipped(&["D", "F"], why), skipped(&["E"], "no link type vxlan")]),
        suite("namespaces", &["etun"], &[]),
        suite("overlay", &[], &[skipped(&["crr-1", "crr-2"], why)]),
    ];
    let report = MachineReport::new(look(&good()), suites);
    let said = write(&report, Format::Plain, 80);
    let (_, said) = said.split_once("Suites\n").unwrap();
    let expected = [
        "  in part   layers      2 of 5 scenarios, all but",
        "                        D, F: load the vRouter's programs: the kernel refuses",
        "                          the program 'from_container'",
        "                        E: no link type vxlan",
        "  ok        namespaces  all of 1 scenario",
        "  none      overlay     none of 2 scenarios",
        "                        crr-1/2: load the vRouter's programs: the kernel refuses",
        "                          the program 'from_container'",
        "",
        "This machine can run `netrig run layers`.",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{said}");
    let json: serde_json::Value = serde_json::from_str(&write(&report, Format::Json, 80)).unwrap();
    assert_eq!(json["suites"][0]["left_out"][1]["scenarios"], serde_json::json!(["E"]));
}

#[test]
fn the_place_of_the_store_is_looked_at_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("not/yet/there/runs.sqlite");
    look_at_store(&deep).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    std::fs::write(dir.path().join("notes.txt"), "no store ".repeat(200)).unwrap();
    let error = look_at_store(&dir.path().join("notes.txt")).unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    let error = look_at_store(Path::new("/proc/netrig/runs.sqlite")).unwrap_err();
    assert!(matches!(error, StoreError::NoPermission { .. }), "{error}");
}

#[test]
fn the_suite_layers_needs_the_congestion_control_that_it_names() {
    let lack = missing(after("congestion control", |facts| {
        facts.machine.congestion_control = Some("bbr".to_owned());
        facts.machine.congestion_controls = vec!["reno".to_owned(), "bbr".to_owned()];
    }));
    assert_eq!(lack.found, "reno, bbr (default bbr)");
    assert!(lack.remedy.contains("modprobe tcp_cubic"));
}

#[test]
fn a_congestion_control_that_a_scenario_names_has_to_be_there() {
    let layers = Suite::load("layers").unwrap();
    let mut facts = good();
    facts.machine.congestion_controls = vec!["reno".to_owned(), "bbr".to_owned()];
    let found = findings::in_the_way_of(&layers.scenarios, SuitePurpose::Run, &facts);
    let [lack] = &found[..] else { panic!("named once, however many scenarios name it: {found:?}") };
    assert!(lack.found.contains("'cubic'"), "{lack:?}");
    assert!(lack.remedy.contains("modprobe tcp_cubic") && lack.remedy.contains("reno, bbr"), "{lack:?}");
    assert_eq!(findings::in_the_way_of(&layers.scenarios, SuitePurpose::Build, &facts), []);
    // Where the kernel does not tell, the attempt will.
    facts.machine.congestion_controls.clear();
    assert_eq!(findings::in_the_way_of(&layers.scenarios, SuitePurpose::Run, &facts), []);
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let coloured = write(&report(look(&bad())), Format::Coloured, 80);
    let without = coloured.split('\x1b').map(|part| part.split_once('m').map_or(part, |(_, rest)| rest));
    assert_eq!(without.collect::<String>(), text(&look(&bad())));
    assert!(coloured.contains("\x1b[31mMISSING"));
}

#[test]
fn who_keeps_the_machine_busy_decides_what_to_do_about_it() {
    let mut facts = good();
    let mut remedy = |busiest: &[(&str, ProcessOwner)]| {
        let busy = busiest.iter().zip(1..).map(|((command, owner), pid)| BusyProcess {
            pid,
            command: (*command).to_owned(),
            percent: 98.0,
            owner: *owner,
        });
        facts.activity =
            MachineActivity { load_average: 3.5, busy_percent: 61.0, steal_percent: 0.0, busiest: busy.collect() };
        let found = findings(&facts, &Ok("/x".into())).into_iter().find(|finding| finding.name == "programs").unwrap();
        let State::Doubtful(lack) = found.state else { panic!("{found:?}") };
        lack.remedy
    };
    assert_eq!(remedy(&[]), "see with `top` what runs, and end it");
    let said =
        remedy(&[("netrig", ProcessOwner::Own), ("cc1", ProcessOwner::User), ("kworker/0:1", ProcessOwner::Kernel)]);
    let expected = "stop: cc1 (process 2, 98 % of a CPU); wait until netrig's other work is done: \
                    netrig (process 1, 98 % of a CPU); find what keeps the kernel busy: kworker/0:1 (process 3, 98 % of \
                    a CPU)";
    assert_eq!(said, expected);
}

/// A machine that can run a suite, and is too busy to measure anything.
#[test]
fn a_busy_machine_is_not_told_that_all_is_well() {
    let mut facts = good();
    let verdict = |facts: &Facts| {
        let said = write(&report(findings(facts, &Ok("/x".into()))), Format::Plain, 400);
        said.lines().last().unwrap().to_owned()
    };
    assert_eq!(verdict(&facts), "This machine can run `netrig run layers`.");
    facts.activity.busy_percent = 98.0;
    facts.activity.steal_percent = 3.0;
    let said = verdict(&facts);
    let expected = "This machine can run `netrig run layers`, but what it measures now is to be doubted: programs (98 % busy, load \
                    average 0.04); stolen time (3.0 %).";
    assert_eq!(said, expected);
}

#[test]
fn only_what_a_suite_is_made_of_is_in_its_way() {
    let layers = Suite::load("layers").unwrap();
    let mut facts = good();
    let lacking = |feature, facts: &mut Facts| {
        facts.namespaces.features.insert(feature, Err(refusal("create it", EOPNOTSUPP)));
    };
    // Neither is in any scenario of `layers`.
    lacking(Feature::Macvlan, &mut facts);
    lacking(Feature::TokenBucket, &mut facts);
    assert_eq!(findings::in_the_way_of(&layers.scenarios, SuitePurpose::Run, &facts), []);

    lacking(Feature::Vxlan, &mut facts);
    facts.sockets.io_uring = Err(refusal("create an io_uring", EPERM));
    let found = findings::in_the_way_of(&layers.scenarios, SuitePurpose::Run, &facts);
    let effects: Vec<&str> = found.iter().map(|lack| lack.effect.as_str()).collect();
    assert_eq!(effects, ["no path vxlan", "no load with several operations outstanding"]);
    assert!(found[0].remedy.contains("modprobe vxlan"), "{found:?}");
    // A testbed alone does without its loads.
    assert_eq!(findings::in_the_way_of(&layers.scenarios, SuitePurpose::Build, &facts), found[..1]);

    // Scenario A is neither an overlay nor asynchronous.
    let raw = layers.only(&["A".into()]).unwrap();
    assert_eq!(findings::in_the_way_of(&raw.scenarios, SuitePurpose::Run, &facts), []);
}

#[test]
fn each_way_of_packets_that_is_not_there_says_what_it_costs_and_what_helps() {
    let not = |operation| Err(refusal(operation, EPERM));
    let without_root = Packets {
        xdp: not("load a program"),
        xdp_generic: not("load a program"),
        live_frames: not("load a program"),
        packet_sockets: Ok(()),
    };
    let found = packets::findings("6.18.44-cloud x86_64", &without_root);
    assert_eq!(Readiness::of(&found), Readiness::Ready);
    let said = write(&report(found), Format::Plain, 400);
    assert_eq!(said.matches("  lacking ").count(), 3, "{said}");
    // A kernel that is new enough is no way out.
    assert_eq!(said.matches(&rights(&[XDP, NAMESPACES].concat())).count(), 3, "{said}");
    assert!(!said.contains("newer"), "{said}");
    let old = write(&report(packets::findings("6.6.0", &without_root)), Format::Plain, 400);
    assert!(old.contains("use Linux 6.7 or newer; ") && !old.contains("5.9"), "{old}");
    assert!(
        write(&report(packets::findings("5.4.0-150-generic", &without_root)), Format::Plain, 400)
            .contains("Linux 5.9 or newer")
    );
    assert!(said.starts_with("Packet load\n") && said.contains("packet sockets       works"), "{said}");
}
