//! What the benches do when a trial fails.

#[path = "../../benches/support/rounds.rs"]
mod rounds;

use anyhow::{Context, Result, anyhow};

use self::rounds::Failures;

#[test]
fn a_trial_that_fails_is_named_and_the_others_count() {
    let mut failures = Failures::default();
    assert_eq!(failures.report(), "");
    let mut rates = Vec::new();
    for round in 1..=3 {
        for name in ["netrig", "peer"] {
            let result: Result<u32> = match (round, name) {
                (2, "peer") => Err(anyhow!("connection refused")).context("it ended at once"),
                _ => Ok(round as u32),
            };
            rates.extend(failures.heed(round, name, result));
        }
    }
    assert_eq!(rates, [1, 1, 2, 3, 3]);
    let report = failures.report();
    assert_eq!(report.lines().filter(|line| line.starts_with("  ")).count(), 1, "{report}");
    assert!(report.contains("round 2, peer: it ended at once: connection refused"), "{report}");
}
