//! Programs that count go with their process, however it ends.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libbpf_rs::query::ProgInfoIter;

use super::attach;

const COUNT: &str = "RIG_TEST_COUNT_AND_WAIT";

/// Not a test by itself: the process that is killed by the one below.
#[test]
fn counts_and_waits() {
    if env::var_os(COUNT).is_some() {
        let (counting, _alone) = attach().unwrap();
        let numbers: Vec<String> = counting.programs().unwrap().iter().map(u32::to_string).collect();
        // With a line of its own: the harness writes the test's name without ending the line.
        println!("\nprograms {}", numbers.join(" "));
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn nothing_is_left_of_a_process_that_is_killed() {
    if attach().is_none() {
        return;
    }
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "cputime::gone::counts_and_waits", "--nocapture"])
        .env(COUNT, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.filter_map(|line| line.strip_prefix("programs ").map(str::to_owned)).next();
    child.kill().unwrap();
    child.wait().unwrap();
    let numbers: Vec<u32> = said.unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 9);
    let deadline = Instant::now() + Duration::from_secs(20);
    while ProgInfoIter::default().any(|program| numbers.contains(&program.id)) {
        assert!(Instant::now() < deadline, "programs {numbers:?} are still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}
