//! The units of systemd that packages have, and what a service tells its manager.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// All messages until one begins with `last`.
#[track_caller]
fn until(socket: &UnixDatagram, last: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("no {last} after {all:?}: {error}"));
        let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
        let is_last = text.starts_with(last);
        all.push(text);
        if is_last {
            return all;
        }
    }
}

#[test]
fn commands_of_units_are_understood() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let home = tempfile::tempdir().unwrap();
    let mut commands = 0;
    for unit in fs::read_dir(units).unwrap() {
        let path = unit.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| line.starts_with("ExecStart=") || line.starts_with("ExecReload=")) {
            let words = line.split_once("=/usr/bin/netrig ").unwrap_or_else(|| panic!("{}: {line}", path.display())).1;
            let words = words.replace("$NETRIG_LB_RECEIVE", "--from 10.0.0.200/29").replace("%i", "one");
            // Without a file, a balancer or a cgroup it goes as far as it can without doing anything.
            let words = words.replace("${NODE}", "one").replace("/etc/netrig/", "/nonexistent/");
            let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
            command.args(words.split(' ')).env("NETRIG_RUN", home.path());
            if words.starts_with("lb receive ") {
                command.args(["--cgroup", "/nonexistent"]);
            }
            let said = command.output().unwrap();
            let why = String::from_utf8(said.stderr).unwrap();
            assert!(!said.status.success() && !why.contains("Usage: ") && !why.contains("--help"), "{line}: {why}");
            commands += 1;
        }
        assert!(text.contains("\nType=notify\n") && text.contains("\nRestart=on-failure\n"), "{}", path.display());
        // All call the kernel from threads that enter a network namespace, if only their own.
        let may_enter = !text.contains("RestrictNamespaces=yes") || path.ends_with("netrig-lb-receive.service");
        assert!(may_enter, "{}", path.display());
    }
    assert!(commands >= 9, "{commands} commands");
}

/// A service without interfaces and without privileges does what each does.
#[test]
fn a_service_manager_is_told_of_the_beginning_of_reloads_and_of_the_end() {
    let home = tempfile::tempdir().unwrap();
    let (address, file) = (home.path().join("notify"), home.path().join("spread.toml"));
    fs::write(&file, "[[interface]]\nname = \"no-such*\"\n").unwrap();
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(["spread", "run", "--file"]).arg(&file).env("NETRIG_RUN", home.path());
    command.env("NOTIFY_SOCKET", &address).env("WATCHDOG_USEC", "200000").env_remove("WATCHDOG_PID");
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let said = until(&manager, "READY=1");
    assert_eq!(said.len(), 1, "{said:?}");
    until(&manager, "WATCHDOG=1");
    until(&manager, "WATCHDOG=1");
    kill_process(pid, Signal::HUP).unwrap();
    let said = until(&manager, "RELOADING=1");
    assert!(said.last().unwrap().contains("\nMONOTONIC_USEC="), "{said:?}");
    until(&manager, "READY=1");
    kill_process(pid, Signal::TERM).unwrap();
    until(&manager, "STOPPING=1");
    assert!(child.wait().unwrap().success());
}
