use rig_sys::cpu::CpuSet;
use rig_testbed::datapath::Machine;
use rig_testbed::host::Local;

use super::*;
use crate::run::impossible;

/// What a run of the built-in suite goes without, when netrig has so many CPUs.
fn left_out(cpus: u32, rootless: bool) -> Vec<SkippedScenarios> {
    left_out_of(Suite::load("balancer").unwrap(), cpus, rootless)
}

fn left_out_of(mut suite: Suite, cpus: u32, rootless: bool) -> Vec<SkippedScenarios> {
    let placement = Placement::new(&CpuSet::new(0..cpus), &[], 0).unwrap();
    let before = suite.scenarios.len();
    let host = Local::uncounted().unwrap().with_datapaths(rig_datapaths::ALL.on(Machine { rootless }));
    let left_out = leave_out(&mut suite, &mut |scenario| why_not_here(scenario, &placement, rig_datapaths::ALL, &host));
    let taken: usize = left_out.iter().map(|one| one.scenarios.len()).sum();
    assert_eq!(suite.scenarios.len(), before - taken);
    assert!(left_out.iter().flat_map(|one| &one.scenarios).all(|id| suite.scenario(id).is_none()));
    left_out
}

#[test]
fn rows_that_need_more_cpus_than_there_are_go_together() {
    let why = |cpus, id: &str| {
        let all = left_out(cpus, false);
        all.into_iter().find(|one| one.scenarios.iter().any(|other| other == id)).map(|one| one.to_string())
    };
    let rows = why(2, "cps-balancer-4").unwrap();
    assert!(rows.starts_with("cps-balancer-4/8/10/16, "), "{rows}");
    assert!(
        rows.ends_with(": more workers than netrig has CPUs here: use a machine with more, or name more with --cpus")
    );
    for (cpus, id) in [(1, "cps-balancer-1"), (2, "cps-balancer-2"), (16, "cps-balancer-16"), (1, "pps-direct")] {
        assert_eq!(why(cpus, id), None);
    }
}

#[test]
fn what_no_machine_can_do_is_not_told_by_its_cpus_and_no_built_in_suite_offers_it() {
    for suite in Suite::built_in().map(Result::unwrap) {
        assert!(
            suite.scenarios.iter().all(|scenario| impossible(scenario, rig_datapaths::ALL).is_none()),
            "{}",
            suite.name
        );
    }
    let text = Suite::load("balancer").unwrap().text;
    let (before, udp) = text.split_once("id = \"pps-nftables\"").unwrap();
    let text = format!("{before}id = \"pps-nftables\"{}", udp.replacen("path = \"nftables\"", "path = \"haproxy\"", 1));
    let suite = Suite::parse("balancer.toml", &text).unwrap();
    for cpus in [1, 16] {
        let all = left_out_of(suite.clone(), cpus, false);
        let rows = all.iter().find(|one| one.reason.contains("TCP only")).unwrap().to_string();
        assert!(rows.starts_with("pps-nftables-1/2/4/8: "), "{rows}");
    }
}

#[test]
fn without_root_there_is_no_balancer() {
    let all = left_out(16, true);
    let one = all.iter().find(|one| one.reason.contains("root")).unwrap().to_string();
    assert!(
        one.starts_with("cps-balancer-1/2/4/8/10/16, pps-balancer-1/2/4/8, throughput-balancer-1/2/4/8: "),
        "{one}"
    );
}

#[test]
fn of_what_was_left_out_only_that_which_was_asked_for_is_told() {
    let one = SkippedScenarios { scenarios: vec!["A".into(), "B".into()], reason: "why".into() };
    assert_eq!(one.of(&|id| id == "B").unwrap().to_string(), "B: why");
    assert_eq!(one.of(&|_| false), None);
}
