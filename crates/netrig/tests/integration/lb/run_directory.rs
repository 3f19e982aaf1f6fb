//! Balancers and testbeds that are up keep what they are found by in one directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use super::lab::{Daemon, Lab};
use super::with_lab;
use super::world::{Unprivileged, expect, netrig};

const RUN: &str = "/run/netrig";

/// netrig as root has it on a console: no environment variable names a run directory.
#[track_caller]
fn at_console(status: i32, arguments: &[&str]) -> (String, String) {
    let mut command = netrig();
    expect(&command.args(arguments).env_remove("NETRIG_RUN").env_remove("XDG_RUNTIME_DIR").output().unwrap(), status)
}

/// netrig as root has it in a session, which has a runtime directory (`XDG_RUNTIME_DIR`).
#[track_caller]
fn logged_in(lab: &Lab, status: i32, arguments: &[&str]) -> (String, String) {
    let mut command = netrig();
    command.args(arguments).env_remove("NETRIG_RUN").env("XDG_RUNTIME_DIR", lab.directory.path());
    expect(&command.output().unwrap(), status)
}

fn begin(lab: &Lab, arguments: &[&str]) -> Daemon {
    lab.run_where(arguments, |command| {
        command.env_remove("NETRIG_RUN");
    })
}

fn mode(path: &str) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// A test that has /run for itself.
fn with_run(test: impl FnOnce(&Lab)) {
    with_lab(|lab| {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0755", "run", "/run"]).status().unwrap();
        assert!(mounted.success(), "no /run of its own");
        test(lab);
    });
}

#[test]
fn balancers_and_testbeds_live_beside_each_other() {
    with_run(|lab| {
        lab.add_device("lb2", 1);
        let mut first = begin(lab, &["--device", "lb0"]);
        let mut second = begin(lab, &["--device", "lb2", "--name", "second"]);
        assert_eq!((mode(RUN), mode("/run/netrig/lb"), mode("/run/netrig/lb/lb.sock")), (0o700, 0o700, 0o600));

        at_console(0, &["up", "layers/C", "--name", "one"]);
        logged_in(lab, 0, &["up", "layers/C", "--name", "two"]);
        let (out, _) = at_console(0, &["shell", "--name", "two", "a/sender", "printenv", "NETRIG_PLACE"]);
        assert_eq!(out, "a/sender\n");
        let (out, _) = logged_in(lab, 0, &["down"]);
        assert!(out.contains("'one' is down") && out.contains("'two' is down"), "{out}");

        for name in ["lb", "second"] {
            at_console(0, &["lb", "status", "--name", name]);
        }
        // The files of a dead balancer hinder neither a testbed nor the next balancer.
        first.kill();
        at_console(0, &["up", "layers/C"]);
        at_console(0, &["lb", "status", "--name", "second"]);
        let mut again = begin(lab, &["--device", "lb0"]);
        at_console(0, &["down"]);
        for (running, name) in [(&mut again, "lb"), (&mut second, "second")] {
            at_console(0, &["lb", "stop", "--name", name]);
            assert_eq!(running.ended(), Some(0));
        }
    });
}

#[test]
fn a_directory_of_an_older_netrig_is_gone_on_with() {
    with_run(|lab| {
        fs::create_dir_all("/run/netrig/lb").unwrap();
        for path in [RUN, "/run/netrig/lb"] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        at_console(0, &["up", "layers/C"]);
        let mut running = begin(lab, &["--device", "lb0"]);
        at_console(0, &["shell", "a/sender", "true"]);
        at_console(0, &["down"]);
        at_console(0, &["lb", "stop"]);
        assert_eq!(running.ended(), Some(0));
    });
}

#[test]
fn a_directory_that_others_write_to_is_refused_and_its_socket_stays() {
    with_run(|lab| {
        let mut running = begin(lab, &["--device", "lb0"]);
        fs::set_permissions(RUN, fs::Permissions::from_mode(0o777)).unwrap();
        for arguments in
            [&["up", "layers/C"][..], &["down"], &["shell", "a", "true"], &["lb", "run", "--device", "lb0"]]
        {
            let (_, said) = at_console(3, arguments);
            assert!(said.contains("others than its owner may write to /run/netrig (mode 0777)"), "{said}");
            assert!(said.contains("chmod 0700 /run/netrig") && !said.contains("remove"), "{said}");
        }
        assert!(Path::new("/run/netrig/lb/lb.sock").exists());
        fs::set_permissions(RUN, fs::Permissions::from_mode(0o700)).unwrap();
        at_console(0, &["lb", "stop"]);
        assert_eq!(running.ended(), Some(0));
    });
}

/// Another user neither sees root's nor gets in root's way.
#[test]
fn another_user_has_a_directory_of_his_own() {
    with_run(|lab| {
        let mut running = begin(lab, &["--device", "lb0"]);
        let user = Unprivileged::new(true);
        let (_, said) = user.netrig(3, &["lb", "status"]);
        assert!(said.contains("not permitted to talk to the balancer named lb"), "{said}");
        let (_, said) = user.netrig(3, &["lb", "run", "--device", "lb0"]);
        assert!(said.contains("/run/netrig belongs to user 0, and this is user 65534"), "{said}");
        let (out, _) = user.netrig(0, &["down"]);
        assert_eq!(out, "No testbed is up.\n");
        assert!(user.path("run/netrig").is_dir());

        // Without a session the run directory is in the temporary directory, where another user may have made it first, even as
        // a link.
        let place = format!("{}/netrig-65534", std::env::temp_dir().display());
        let _absent = fs::remove_dir(&place);
        std::os::unix::fs::symlink(RUN, &place).unwrap();
        let mut command = user.command(user.path("netrig"));
        let (_, said) = expect(&command.arg("down").env_remove("XDG_RUNTIME_DIR").output().unwrap(), 3);
        fs::remove_file(&place).unwrap();
        assert!(said.contains("netrig-65534 is not a directory"), "{said}");

        at_console(0, &["lb", "stop"]);
        assert_eq!(running.ended(), Some(0));
    });
}
