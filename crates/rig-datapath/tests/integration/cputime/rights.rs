//! Which users may count, and what others are told.

use std::env;
use std::process::Command;

use rig_datapath::Error;
use rig_datapath::cputime::CpuTime;

use super::attach;

const ATTACH: &str = "RIG_TEST_ATTACH_AND_TELL";

/// Not a test by itself: what the one below runs with fewer rights.
#[test]
fn attaches_and_tells() {
    if env::var_os(ATTACH).is_some() {
        match CpuTime::attach() {
            Ok(_) => println!("\ncounts"),
            Err(Error::NotPermitted(_)) => println!("\nnot permitted"),
            Err(error) => println!("\n{error}"),
        }
    }
}

/// What comes of it with these capabilities alone, as another user.
fn with(capabilities: &str) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", "--bounding-set"])
        .arg(format!("-all{capabilities}"))
        .arg("--inh-caps")
        .arg(format!("-all{capabilities}"))
        .arg("--ambient-caps")
        .arg(format!("-all{capabilities}"))
        .arg(env::current_exe().unwrap())
        .args(["--exact", "cputime::rights::attaches_and_tells", "--nocapture"])
        .env(ATTACH, "1")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "libbpf speaks: {}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn both_capabilities_are_needed_and_enough() {
    if attach().is_none() {
        return;
    }
    for (capabilities, expected) in [("", "not permitted"), (",+bpf", "not permitted"), (",+perfmon", "not permitted")]
    {
        let said = with(capabilities);
        assert!(said.contains(&format!("\n{expected}\n")), "{capabilities}: {said}");
    }
    let said = with(",+bpf,+perfmon");
    assert!(said.contains("\ncounts\n"), "{said}");
}
