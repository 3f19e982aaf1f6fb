//! A test that cannot be made on a machine says so by [`skip`], and by nothing else: with `NETRIG_TEST_REQUIRE_ALL=1`
//! that is a failure, save for what [`EXCUSED`] lists.
#![forbid(unsafe_code)]

mod excused;

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::{env, thread};

pub use excused::EXCUSED;

/// What a test does not find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lack {
    /// Root of the machine, or a capability that only root has.
    Root,
    /// Namespaces of one's own: root, or a kernel that grants user namespaces.
    Namespaces,
    /// More CPUs.
    Cpus,
    /// A program on PATH, by its name.
    Program(&'static str),
    /// The address ::1.
    Ipv6,
    IoUring,
    /// perf_event_open(2).
    Sampling,
    /// Threads for the receive processing of an interface, which may be put onto CPUs.
    ReceiveThreads,
    /// A file system of type bpf.
    BpfFs,
    /// A kernel that takes the program.
    Kernel,
    /// The kernel's own balancer.
    Ipvs,
    /// Bonded interfaces.
    Bonds,
    /// VLAN devices.
    Vlans,
    /// Sockets of SCTP.
    Sctp,
    /// A veth whose queue stops when its ring is full (Linux 6.16).
    StoppedQueues,
    /// /sys/devices/system/node.
    NumaNodes,
    /// A mount that has to be changed for the test.
    Mounts,
    /// User namespaces that can be limited for the test.
    Hardening,
    /// Two network cards with a cable between them, one of several queues.
    Card,
    /// The project's history beside its files.
    Repository,
}

impl Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a line begins with that tells of a test that was not made.
pub const MARK: &str = "SKIPPED ";
/// Set to 1, it makes each skip a failure.
pub const REQUIRE_ALL: &str = "NETRIG_TEST_REQUIRE_ALL";

/// Says, past the test runner, which swallows what passing tests print, that the calling test or the named part of it is
/// not made, and why.
///
/// # Panics
/// When all tests are required and [`EXCUSED`] has no entry for `lack`.
#[track_caller]
pub fn skip(lack: Lack, why: impl Display) {
    let line = format!("{}: {why}", this_test());
    let excuse = EXCUSED.iter().find(|excuse| excuse.lack == lack);
    assert!(
        excuse.is_some() || !env::var(REQUIRE_ALL).is_ok_and(|value| value == "1"),
        "{line}: {REQUIRE_ALL} is set, and {lack} is not excused in crates/rig-skip/src/excused.rs"
    );
    // A reader of the line that has gone is no reason to fail.
    let _ = writeln!(io::stderr(), "{MARK}{line}");
}

/// The calling test's name: the test runner gives it to the test's thread, or, without threads, was itself told it.
pub fn this_test() -> String {
    let told = || {
        let mut arguments = env::args().skip_while(|argument| argument != "--exact");
        arguments.nth(1)
    };
    match thread::current().name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => told().unwrap_or_else(|| "a test".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    const PART: &str = "NETRIG_TEST_PART";

    /// Not made at all: the test below starts it as another process.
    #[test]
    fn one_that_lacks_something() {
        match env::var(PART).as_deref() {
            Ok("root") => skip(Lack::Root, "a reason"),
            Ok("excused") => skip(EXCUSED[0].lack, "a reason"),
            _ => {}
        }
    }

    fn run(part: &str, require: Option<&str>) -> Output {
        let mut command = Command::new(env::current_exe().expect("the test binary has a path"));
        command.args(["--exact", "tests::one_that_lacks_something"]).env(PART, part).env_remove(REQUIRE_ALL);
        command.envs(require.map(|value| (REQUIRE_ALL, value)));
        command.output().expect("the test binary runs")
    }

    #[test]
    fn a_skip_is_heard_and_where_all_tests_are_required_it_fails() {
        const LINE: &str = "SKIPPED tests::one_that_lacks_something: a reason";
        for (part, require, passes) in [
            ("root", None, true),
            ("root", Some("0"), true),
            ("root", Some("1"), false),
            ("excused", None, true),
            ("excused", Some("1"), true),
        ] {
            let output = run(part, require);
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.success(), passes, "{part} {require:?}: {out}{err}");
            assert_eq!(err.lines().any(|line| line.ends_with(LINE)), passes, "{part} {require:?}: {err}");
            assert_eq!(out.contains("Root is not excused"), !passes, "{part} {require:?}: {out}");
        }
    }

    #[test]
    fn each_excuse_has_its_reason_and_stands_once() {
        for (at, excuse) in EXCUSED.iter().enumerate() {
            assert!(excuse.why.len() > 30, "{}: why?", excuse.lack);
            assert!(EXCUSED[at + 1..].iter().all(|other| other.lack != excuse.lack), "{} stands twice", excuse.lack);
        }
    }
}
