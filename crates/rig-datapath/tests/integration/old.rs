//! Programs for old kernels (bpf/lib/old.h) do on this one what the others do: some of this executable's tests, made with them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics is a test that fails")]

use std::process::Command;

/// Where the two differ: atomic changes, sums, loops, sweeps, copies to all, the state of each CPU.
const TESTS: [&str; 8] = [
    "balancer::differential",
    "balancer::expire",
    "balancer::forwarding",
    "balancer::too_big",
    "steer::buckets",
    "vrouter::differential",
    "vrouter::flows",
    "vrouter::pieces",
];

#[test]
fn programs_for_old_kernels_do_the_same() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(TESTS)
        .env("NETRIG_TEST_OLD_PROGRAMS", "1")
        .env("PROPTEST_CASES", "8")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    print!("{said}");
}
