//! Testbeds that stay up: `netrig up`, `shell` and `down`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::bench::one_node;
use super::world::{self, RandomSource, expect, netrig};

/// A user with a runtime directory, and so testbeds, of its own.
struct User {
    runtime: tempfile::TempDir,
    /// A scenario of one node with two containers: three namespaces.
    scenario: String,
}

impl User {
    fn new() -> Self {
        let runtime = tempfile::tempdir().unwrap();
        let scenario = one_node(runtime.path(), "one", &["a/sender"], &["a/receiver"]);
        Self { runtime, scenario }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = netrig();
        command.args(arguments).env("NETRIG_RUN", self.registry());
        command
    }

    /// Asserts the exit status, and hands on both outputs.
    #[track_caller]
    fn netrig(&self, status: i32, arguments: &[&str]) -> (String, String) {
        expect(&self.command(arguments).output().unwrap(), status)
    }

    /// What a command says that is run in `place` of the only testbed.
    #[track_caller]
    fn shell(&self, place: &str, command: &[&str]) -> String {
        self.netrig(0, &[&["shell", place], command].concat()).0
    }

    fn registry(&self) -> PathBuf {
        self.runtime.path().join("netrig")
    }

    fn registered(&self) -> BTreeSet<String> {
        names(&self.registry())
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The CPU list in /proc/self/status.
fn cpus_in(status: &str) -> CpuSet {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().parse().unwrap()
}

/// The scenarios of `layers` between two nodes need two CPUs; says why not where there is only one.
fn two_nodes_fit() -> bool {
    let fit = CpuSet::allowed().unwrap().len() >= 2;
    if !fit {
        skip(Lack::Cpus, "two nodes need two CPUs");
    }
    fit
}

#[test]
fn a_testbed_is_up_until_it_is_taken_down() {
    world::own(|| {
        if !two_nodes_fit() {
            return;
        }
        let user = User::new();
        let (out, _) = user.netrig(0, &["up", "layers/D-vxlan"]);
        for said in ["layers/D-vxlan", "a/sender", "10.0.1.3", "b/receiver", "10.0.2.3", "netrig down testbed"] {
            assert!(out.contains(said), "{out} lacks {said}");
        }
        // Its four namespaces and the test's own.
        assert_eq!(world::network_namespaces().len(), 1 + 4);
        assert_eq!(world::interfaces(), BTreeSet::from(["lo".to_owned()]));

        let allowed = CpuSet::allowed().unwrap();
        let status = ["cat", "/proc/self/status"];
        let (sender, receiver) =
            (cpus_in(&user.shell("a/sender", &status)), cpus_in(&user.shell("b/receiver", &status)));
        assert_eq!(sender.as_slice()[0], allowed.as_slice()[0]);
        assert!(!receiver.is_empty() && receiver.without(&allowed).is_empty());
        assert_eq!(sender.without(&receiver), sender, "the nodes share CPUs");
        assert_eq!(cpus_in(&user.shell("a", &status)), sender, "a container and its node differ");

        let interfaces = |place| -> BTreeSet<String> {
            user.shell(place, &["ls", "/sys/class/net"]).split_whitespace().map(str::to_owned).collect()
        };
        let set = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|&name| name.to_owned()).collect() };
        for (place, expected) in [
            ("a/sender", set(&["lo", "eth0"])),
            ("b/receiver", set(&["lo", "eth0"])),
            ("a", set(&["lo", "eth0", "br0", "port0", "vxlan0"])),
        ] {
            assert!(interfaces(place).is_superset(&expected), "{place}: {:?}", interfaces(place));
        }
        assert!(!interfaces("a/sender").contains("br0"));
        assert_eq!(user.shell("a/sender", &["printenv", "NETRIG_PLACE"]).trim(), "a/sender");

        let (out, _) = user.netrig(0, &["down"]);
        assert!(out.contains("'testbed' is down"), "{out}");
        world::assert_nothing_left("after down");
        assert_eq!(user.registered(), BTreeSet::new());
    });
}

#[test]
fn what_runs_in_a_shell_is_the_users_own_business() {
    world::own(|| {
        let user = User::new();
        user.netrig(0, &["up", &user.scenario]);
        // Exit status and arguments pass unchanged.
        let (out, _) = user.netrig(7, &["shell", "a/sender", "sh", "-c", "echo \"$1\"; exit 7", "sh", "--name x"]);
        assert_eq!(out, "--name x\n");
        // Without a command it is the user's shell.
        let output = user.command(&["shell", "a/sender"]).env("SHELL", "/bin/pwd").output().unwrap();
        assert_eq!(expect(&output, 0).0.trim(), std::env::current_dir().unwrap().to_str().unwrap());
        let (_, err) = user.netrig(2, &["shell", "a/sender", "/no/such/program"]);
        assert!(err.contains("'/no/such/program'") && err.contains("No such file"), "{err}");
        let (_, err) = user.netrig(2, &["shell", "a/nobody", "true"]);
        assert!(err.contains("'a/nobody'") && err.contains("a/sender, a/receiver"), "{err}");
        user.netrig(0, &["down"]);
        world::assert_nothing_left("after down");
    });
}

#[test]
fn a_name_is_given_once_and_several_testbeds_stand_beside_each_other() {
    world::own(|| {
        let user = User::new();
        user.netrig(0, &["up", &user.scenario]);
        let (_, err) = user.netrig(2, &["up", &user.scenario]);
        assert!(err.contains("'testbed' is up already"), "{err}");
        assert!(err.contains("netrig down testbed") && err.contains("--name"), "{err}");
        assert_eq!(world::processes().len(), 1, "the one refused left a holder");

        user.netrig(0, &["up", &user.scenario, "--name", "second"]);
        assert_eq!(world::network_namespaces().len(), 1 + 2 * 3);
        let (_, err) = user.netrig(2, &["shell", "a/sender", "true"]);
        assert!(err.contains("--name") && err.contains("second, testbed"), "{err}");
        let namespace = |name| {
            user.netrig(0, &["shell", "--name", name, "a/sender", "readlink", "/proc/self/ns/net"]).0.trim().to_owned()
        };
        assert_ne!(namespace("testbed"), namespace("second"));

        let (_, err) = user.netrig(2, &["down", "third"]);
        assert!(err.contains("no testbed 'third'") && err.contains("second, testbed"), "{err}");
        user.netrig(0, &["down", "testbed"]);
        assert_eq!(user.registered(), BTreeSet::from(["second.json".to_owned()]));
        user.netrig(0, &["shell", "a/sender", "true"]);
        user.netrig(0, &["up", &user.scenario]);
        let (out, _) = user.netrig(0, &["down"]);
        assert!(out.contains("'second' is down") && out.contains("'testbed' is down"), "{out}");
        world::assert_nothing_left("after down");
    });
}

#[test]
fn a_low_limit_of_open_files_does_not_limit_a_testbed() {
    world::own(|| {
        let user = User::new();
        let names: Vec<String> = (0..60).map(|number| format!("a/c{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let many = one_node(user.runtime.path(), "many", &names[..30], &names[30..]);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -S -n 64 && exec \"$@\"", "sh"]).arg(netrig().get_program()).arg("up");
        command.arg(many).env("NETRIG_RUN", user.registry());
        expect(&command.output().unwrap(), 0);
        assert_eq!(world::network_namespaces().len(), 1 + 1 + 60);
        user.netrig(0, &["down"]);
        world::assert_nothing_left("after down");
    });
}

#[test]
fn of_several_that_want_a_name_at_once_one_gets_it() {
    world::own(|| {
        let user = User::new();
        for _ in 0..5 {
            let start = |_| user.command(&["up", &user.scenario]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let starting: Vec<_> = (0..4).map(start).collect::<Result<_, _>>().unwrap();
            let ended: Vec<Output> = starting.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
            let (up, refused): (Vec<_>, Vec<_>) = ended.iter().partition(|output| output.status.success());
            assert_eq!(up.len(), 1, "{ended:?}");
            for output in refused {
                let (_, err) = expect(output, 2);
                assert!(err.contains("'testbed' is up already"), "{err}");
            }
            // The one that is known is the one that stands.
            assert_eq!(world::processes().len(), 1, "{:?}", world::processes());
            user.netrig(0, &["shell", "a/sender", "true"]);
            // Its file is in the way of the next ones, as it is after a crash.
            kill_holder();
        }
        user.netrig(0, &["down"]);
        assert_eq!(user.registered(), BTreeSet::new());
    });
}

/// Kills the only process that is there.
fn kill_holder() {
    let holders = world::processes();
    assert_eq!(holders.len(), 1, "{holders:?}");
    kill_process(Pid::from_raw(holders[0].pid as i32).unwrap(), Signal::KILL).unwrap();
    world::assert_nothing_left("by the holder");
}

#[test]
fn where_nothing_is_up_that_is_said() {
    world::own(|| {
        let user = User::new();
        let (_, err) = user.netrig(2, &["shell", "a/sender"]);
        assert!(err.contains("no testbed is up") && err.contains("netrig up"), "{err}");
        let (_, err) = user.netrig(2, &["shell", "--name", "x", "a/sender"]);
        assert!(err.contains("no testbed 'x'"), "{err}");
        let (_, err) = user.netrig(2, &["down", "x"]);
        assert!(err.contains("no testbed 'x'"), "{err}");
        let (out, _) = user.netrig(0, &["down"]);
        assert_eq!(out, "No testbed is up.\n");
    });
}

#[test]
fn bad_names_are_refused_before_anything_is_built() {
    world::own(|| {
        let user = User::new();
        for (arguments, expected) in [
            (&["up", "layers"][..], "SUITE/SCENARIO"),
            (&["up", "layers/Z"], "C4"),
            (&["up", "nowhere/A"], "built-in suite (layers, "),
            (&["up", "layers/C", "--name", "../x"], "'../x' is not a name"),
            (&["up", "layers/C", "--name", ""], "is not a name"),
            (&["up", "layers/C", "--cpus", "1000"], "1000 do not exist"),
            (&["down", "../x"], "'../x' is not a name"),
            (&["shell", "--name", "../x", "a"], "'../x' is not a name"),
        ] {
            let (out, err) = user.netrig(2, arguments);
            assert!(err.contains(expected), "{arguments:?}: {err} lacks {expected}");
            assert_eq!(out, "");
        }
        world::assert_nothing_left("by refused names");
        assert!(!user.registry().exists() || user.registered().is_empty());
    });
}

#[test]
fn the_terminal_that_a_testbed_was_started_from_has_no_hold_on_it() {
    world::own(|| {
        let user = User::new();
        let mut up = user.command(&["up", &user.scenario]).process_group(0).stdout(Stdio::null()).spawn().unwrap();
        let group = Pid::from_child(&up);
        assert!(up.wait().unwrap().success());
        // Ctrl-C would go to the group, if anything were left in it.
        assert_eq!(kill_process_group(group, Signal::INT), Err(rustix::io::Errno::SRCH));
        let holder = world::processes()[0].pid;
        let streams = [0, 1, 2].map(|fd| fs::read_link(format!("/proc/{holder}/fd/{fd}")).unwrap());
        assert_eq!(streams, [(); 3].map(|()| PathBuf::from("/dev/null")));
        user.netrig(0, &["down"]);
    });
}

#[test]
fn a_holder_that_is_killed_takes_its_testbed_with_it() {
    world::own(|| {
        let user = User::new();
        for again in [&["down"][..], &["up", &user.scenario], &["shell", "a/sender", "true"]] {
            user.netrig(0, &["up", &user.scenario]);
            kill_holder();
            // Its file is no obstacle to anything.
            let status = if again[0] == "shell" { 2 } else { 0 };
            let (_, err) = user.netrig(status, again);
            assert!(status == 0 || err.contains("no testbed is up"), "{err}");
            user.netrig(0, &["down"]);
            assert_eq!(user.registered(), BTreeSet::new());
        }
    });
}

/// Both outputs are read, and all there is of it is gone.
#[track_caller]
fn assert_undone(user: &User, when: &str) {
    world::assert_nothing_left(when);
    assert_eq!(user.registered(), BTreeSet::new(), "{when}");
}

#[test]
fn an_up_that_ends_while_it_builds_leaves_nothing() {
    world::own(|| {
        let user = User::new();
        // As many as take a while to build.
        let names: Vec<String> = (0..60).map(|number| format!("a/c{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let many = one_node(user.runtime.path(), "many", &names[..30], &names[30..]);
        for signal in [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP] {
            let mut command = user.command(&["up", &many]);
            let up = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let begun = || (world::network_namespaces().len() > 3).then_some(());
            world::until(Duration::from_secs(30), begun).expect("it builds");
            kill_process(Pid::from_child(&up), signal).unwrap();
            let output = up.wait_with_output().unwrap();
            let when = format!("by {signal:?}");
            if signal != Signal::KILL {
                let (_, err) = expect(&output, 130);
                assert!(err.contains("nothing of it is left"), "{err}");
                assert_eq!(world::processes(), [], "{when}: the holder outlives `up`");
                assert_eq!(user.registered(), BTreeSet::new(), "{when}");
            }
            assert_undone(&user, &when);
        }
        // The name is free.
        user.netrig(0, &["up", &user.scenario]);
        user.netrig(0, &["down"]);
    });
}

#[test]
fn a_testbed_that_nobody_takes_over_or_whose_holder_is_told_to_end_is_undone() {
    world::own(|| {
        let user = User::new();
        // `up` is gone before it has taken the testbed over.
        let mut command = user.command(&["hold", &user.scenario, "testbed"]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        holder.stdout.take().unwrap().read_to_string(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        assert_eq!(user.registered(), BTreeSet::from(["testbed.json".to_owned()]));
        drop(holder.stdin.take());
        assert_eq!(holder.wait().unwrap().code(), Some(130));
        assert_undone(&user, "by a testbed without a holder");
        // It stands.
        for signal in [Signal::TERM, Signal::INT] {
            user.netrig(0, &["up", &user.scenario]);
            kill_process(Pid::from_raw(world::processes()[0].pid as i32).unwrap(), signal).unwrap();
            assert_undone(&user, &format!("by {signal:?} to the holder"));
        }
    });
}

#[test]
fn an_up_that_is_killed_at_any_moment_leaves_a_testbed_or_nothing() {
    world::own(|| {
        let user = User::new();
        let mut dice = RandomSource::new();
        for life in 0..12 {
            let after = dice.up_to(Duration::from_millis(60));
            let mut up =
                user.command(&["up", &user.scenario]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            thread::sleep(after);
            up.kill().unwrap();
            up.wait().unwrap();
            let when = format!("in life {life}, killed after {after:?}");
            println!("{when}");
            // The holder may be on its way; it comes to stand or it ends.
            let settled = || {
                let holders = world::processes();
                let known = user.registry().exists() && user.registered().contains("testbed.json");
                (holders.is_empty() != known).then_some(holders.len())
            };
            let holders = world::until(Duration::from_secs(10), settled).unwrap_or_else(|| {
                panic!(
                    "a holder that the registry does not have, or the file of none, stays {when}: {:?}",
                    world::processes()
                )
            });
            assert!(holders <= 1, "{when}");
            user.netrig(0, &["down"]);
            world::assert_nothing_left(&when);
            assert_eq!(user.registered(), BTreeSet::new(), "{when}");
        }
    });
}

#[test]
fn a_registry_that_cannot_be_trusted_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    world::own(|| {
        let user = User::new();
        fs::create_dir(user.registry()).unwrap();
        fs::set_permissions(user.registry(), fs::Permissions::from_mode(0o777)).unwrap();
        let (_, err) = user.netrig(3, &["up", &user.scenario]);
        let said = format!("others than its owner may write to {} (mode 0777)", user.registry().display());
        assert!(err.contains(&said), "{err}");
        fs::set_permissions(user.registry(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(user.registry().join("testbed.json"), "{}").unwrap();
        let (_, err) = user.netrig(4, &["down"]);
        assert!(err.contains("testbed.json is not netrig's"), "{err}");
        world::assert_nothing_left("by a registry");
    });
}
