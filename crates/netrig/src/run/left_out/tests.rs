use super::*;
use crate::record::MiddleRecord;

const ALL: Middles =
    Middles { cpus: 16, rootless: false, has_nft: true, has_haproxy: true, has_ipvs: true, has_ipvsadm: true };

/// What a run of the built-in suite goes without.
fn left_out(middles: &Middles) -> Vec<String> {
    let mut suite = Suite::load("balancer").unwrap();
    let before = suite.scenarios.len();
    let left_out = leave_out(&mut suite, middles);
    let taken: usize = left_out.iter().map(|one| one.scenarios.len()).sum();
    assert_eq!(suite.scenarios.len(), before - taken);
    assert!(left_out.iter().flat_map(|one| &one.scenarios).all(|id| suite.scenario(id).is_none()));
    left_out.iter().map(ToString::to_string).collect()
}

#[test]
fn a_machine_that_has_all_makes_all_but_what_cannot_be() {
    assert_eq!(left_out(&ALL), ["pps-haproxy-1/2/4/8: HAProxy balances TCP and no UDP"]);
}

#[test]
fn rows_that_need_more_cpus_than_there_are_go_together() {
    let two = left_out(&Middles { cpus: 2, ..ALL });
    let rows = two.iter().find(|words| words.contains("more workers than the 2 CPUs")).unwrap();
    assert!(rows.starts_with("cps-balancer-4/8/10/16, cps-nftables-4/8/10/16, "), "{rows}");
    assert!(rows.contains("throughput-haproxy-4/8,") && !rows.contains("pps-haproxy"), "{rows}");
    assert_eq!(two.len(), 2, "{two:?}");
    assert!(left_out(&Middles { cpus: 1, ..ALL })[0].contains("more workers than the 1 CPU that"));
}

#[test]
fn what_is_not_installed_is_named_with_the_way_to_get_it() {
    for (middles, id, words) in [
        (Middles { has_nft: false, ..ALL }, "cps-nftables-1", "apt-get install nftables"),
        (Middles { has_haproxy: false, ..ALL }, "cps-haproxy-1/2/4/8/10/16,", "apt-get install haproxy"),
        (Middles { has_ipvs: false, ..ALL }, "pps-ipvs-1", "modprobe ip_vs"),
        (Middles { has_ipvsadm: false, ..ALL }, "pps-ipvs-1", "apt-get install ipvsadm"),
        (Middles { rootless: true, ..ALL }, "throughput-balancer-1", "as root"),
    ] {
        let found = left_out(&middles);
        assert!(found.iter().any(|one| one.contains(id) && one.contains(words)), "{id} {words}: {found:?}");
    }
}

#[test]
fn a_program_is_looked_for_in_the_folders_of_path() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("haproxy"), "").unwrap();
    let path = std::env::join_paths([FilePath::new("/nowhere"), folder.path()]).unwrap();
    assert!(is_on(Some(&path), "haproxy") && !is_on(Some(&path), "nft") && !is_on(None, "haproxy"));
}

#[test]
fn of_what_was_left_out_only_that_which_was_asked_for_is_told() {
    let one = LeftOut { scenarios: vec!["A".into(), "B".into()], reason: "why".into() };
    assert_eq!(one.of(&|id| id == "B").unwrap().to_string(), "B: why");
    assert_eq!(one.of(&|_| false), None);
}

#[test]
fn claims_about_what_is_not_there_have_no_verdict() {
    let text = include_str!("../../../tests/records/trial-packets-0.1.0.json");
    let record: TrialRecord = serde_json::from_str(text).unwrap();
    let middle = |workers: &[u32], shared: &[u32]| MiddleRecord {
        workers: workers.to_vec(),
        shared: shared.to_vec(),
        ..crate::figures::middle::tests::middle()
    };
    let trial = |id: &str, middle| TrialRecord { scenario: id.to_owned(), middle: Some(middle), ..record.clone() };
    let trials =
        [trial("A-1", middle(&[0], &[0])), trial("A-2", middle(&[0, 1], &[1])), trial("B-2", middle(&[0, 1], &[]))];
    let suite = Suite::load("balancer").unwrap();
    let options = Options {
        quick: false,
        only: Vec::new(),
        cpus: Vec::new(),
        timing: suite.timing,
        left_out: vec![LeftOut { scenarios: vec!["A-4".into()], reason: "more workers than CPUs".into() }],
    };
    let why = |holds: &str| no_verdict(&Claim::parse("c", holds).unwrap(), &options, &trials);
    assert_eq!(why("A-4.limit >= A-1.limit").unwrap(), "A-4 was left out: more workers than CPUs");
    assert!(why("A-1.limit <= A-2.limit").unwrap().starts_with("workers of A-2 shared CPUs with the load"));
    // One worker on a machine of one CPU has the same as all its peers.
    assert_eq!(why("A-1.limit >= 3 * B-2.limit"), None);
    // What is stored is read by later versions.
    let stored = serde_json::to_string(&options).unwrap();
    assert!(stored.contains(r#""left_out":[{"scenarios":["A-4"],"reason":"more workers than CPUs"}]"#), "{stored}");
    assert_eq!(serde_json::from_str::<Options>(&stored).unwrap(), options);
}
