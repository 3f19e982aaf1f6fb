//! `netrig doctor` on this machine.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use rig_suite::suite::Suite;
use serde_json::Value;

const NOBODY: u32 = 65534;

fn is_root(own: &Path) -> bool {
    fs::metadata(own).expect("it was made just now").uid() == 0
}

fn findings(output: &Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout).expect("--json writes JSON");
    let ready = report["ready"].as_bool().expect("a truth value");
    let findings = report["findings"].as_array().expect("a list").clone();
    let [(_, schema)] = netrig::doctor::schemas();
    let schema = jsonschema::validator_for(schema.as_value()).unwrap();
    let faults: Vec<String> = schema.iter_errors(&report).map(|fault| fault.to_string()).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    let suites: Vec<&str> =
        report["suites"].as_array().unwrap().iter().map(|of| of["suite"].as_str().unwrap()).collect();
    let built_in: Vec<String> = Suite::built_in().map(|suite| suite.unwrap().name).collect();
    assert_eq!(suites, built_in);
    let missing = findings.iter().any(|finding| finding["state"] == "missing");
    assert_eq!((ready, output.status.code()), (!missing, Some(if missing { 3 } else { 0 })));
    findings
}

fn state<'a>(findings: &'a [Value], name: &str) -> &'a str {
    let finding = findings.iter().find(|finding| finding["name"] == name);
    finding.and_then(|finding| finding["state"].as_str()).unwrap_or_else(|| panic!("nothing is said of {name}"))
}

#[test]
fn the_text_and_the_status_agree_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let interfaces = || fs::read_to_string("/proc/net/dev").unwrap().lines().count();
    let before = interfaces();
    let output = Command::new(env!("CARGO_BIN_EXE_netrig"))
        .arg("doctor")
        .env("NETRIG_STORE", dir.path().join("runs.sqlite"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    match output.status.code() {
        Some(0) => assert!(text.contains("This machine can run `netrig run layers`"), "{text}"),
        Some(3) => assert!(text.contains("MISSING") && text.contains("This machine cannot run"), "{text}"),
        other => panic!("status {other:?}: {text}"),
    }
    assert!(!text.contains('\x1b'), "colour goes to terminals only");
    assert_eq!(interfaces(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "looking at the store's place makes nothing there");
}

#[test]
fn without_root_a_user_namespace_serves_where_it_may() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = dir.path().join("netrig");
    // By another program: a file that this process held open for writing could be inherited, for a moment, by what
    // another test starts, and a file that is open for writing cannot be executed (ETXTBSY).
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_netrig")).arg(&binary).status().unwrap().success());
    let as_nobody = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").env("NETRIG_STORE", "/proc/no/such/place.sqlite");
        if is_root(dir.path()) {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().unwrap()
    };
    let output = as_nobody(&binary, &["doctor", "--json"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "a library has words of its own");
    let findings = findings(&output);
    let allowed = as_nobody(Path::new("unshare"), &["-Urn", "true"]).status.success();
    assert_eq!(state(&findings, "network namespaces"), if allowed { "ok" } else { "missing" });
    assert_eq!(state(&findings, "veth"), if allowed { "ok" } else { "unknown" });
    assert_eq!(state(&findings, "runs"), "missing", "no store can be kept there");
    assert_eq!(state(&findings, "XDP programs"), "lacking", "in a user namespace none can be loaded");
}

#[test]
fn as_root_the_testbeds_pieces_are_tried_for_real() {
    let dir = tempfile::tempdir().unwrap();
    if !is_root(dir.path()) {
        return rig_skip::skip(rig_skip::Lack::Root, "not root");
    }
    let store = dir.path().join("runs.sqlite");
    let doctor = |wrapper: &[&str]| {
        let mut command = Command::new(wrapper[0]);
        command
            .args(&wrapper[1..])
            .args([env!("CARGO_BIN_EXE_netrig"), "doctor", "--json"])
            .env("NETRIG_STORE", &store);
        findings(&command.output().unwrap())
    };
    let here = doctor(&["env"]);
    assert_eq!((state(&here, "network namespaces"), state(&here, "runs")), ("ok", "ok"));
    assert_ne!(state(&here, "receive steering (RPS)"), "unknown");
    // Where packet load by XDP works, the balancer does.
    assert_eq!(state(&here, "XDP programs"), state(&here, "AF_XDP"));
    // One CPU is too few for two nodes, however many the machine has.
    let cpu = here.iter().find(|finding| finding["name"] == "number").unwrap()["found"].as_str().unwrap();
    let first: String = cpu.split("CPUs ").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    assert_eq!(state(&doctor(&["taskset", "-c", &first]), "number"), "missing");
}
