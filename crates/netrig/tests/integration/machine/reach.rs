//! Hosts that a command line reaches: by OpenSSH's client, and by any other.

use std::fs::{self, Permissions};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rig_skip::{Lack, skip};
use rig_testbed::host::{Host, HostAccess, Remote};
use rustix::process::{Pid, Signal, kill_process};

use super::world::{self, NETRIG};

const PORT: &str = "2222";
const TIMEOUT: Duration = Duration::from_secs(30);

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Why a host is not reached.
fn refusal(access: &HostAccess, program: &Path) -> String {
    format!("{:#}", Remote::reach(access, program).unwrap_err())
}

/// The copies that a home directory has.
fn copies(home: &Path) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(home.join(".cache/netrig/programs")) else { return Vec::new() };
    files.map(|file| file.unwrap().path()).collect()
}

/// A server of SSH on this test's loopback, whose users' files are its own.
struct SshServer {
    server: Child,
    directory: tempfile::TempDir,
}

impl SshServer {
    /// `None`, said aloud, where there is no server, or no client.
    fn start() -> Option<Self> {
        for program in ["dropbear", "ssh"] {
            let known = Command::new(program).arg("-V").stdin(Stdio::null()).output();
            if let Err(error) = known {
                skip(Lack::Program(program), error);
                return None;
            }
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        // A mount namespace of its own: what the user finds at home is this.
        let home = directory.path().join("home");
        fs::create_dir_all(home.join(".ssh")).unwrap();
        run("mount", &["--bind", &path("home"), "/root"]);
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path("key")]);
        fs::copy(path("key.pub"), home.join(".ssh/authorized_keys")).unwrap();
        for (file, mode) in [("home", 0o700), ("home/.ssh", 0o700), ("home/.ssh/authorized_keys", 0o600)] {
            fs::set_permissions(path(file), Permissions::from_mode(mode)).unwrap();
        }
        run("dropbearkey", &["-t", "ed25519", "-f", &path("host")]);
        let mut server = Command::new("dropbear");
        server.args(["-F", "-E", "-s", "-r", &path("host"), "-P", &path("pid"), "-p", &format!("127.0.0.1:{PORT}")]);
        let server = server.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while TcpStream::connect(("127.0.0.1", 2222)).is_err() {
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { server, directory })
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// As a client reaches it that knows the hosts of this file.
    fn access(&self, known_hosts: &str, checking: &str) -> HostAccess {
        let file = |name: &str| self.directory.path().join(name).display().to_string();
        let known = format!("UserKnownHostsFile={}", file(known_hosts));
        let checking = format!("StrictHostKeyChecking={checking}");
        let options = ["-F", "none", "-i", &file("key"), "-o", &known, "-o", &checking, "-p", PORT, "root@127.0.0.1"];
        HostAccess::ssh("far", &words(&options))
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn ssh_reaches_a_host_that_gets_netrig_once() {
    world::own(|| {
        let Some(server) = SshServer::start() else { return };
        let unknown = refusal(&server.access("known", "yes"), Path::new(NETRIG));
        for part in ["host far", "Host key verification failed", "by hand: ssh -F none"] {
            assert!(unknown.contains(part), "{unknown}");
        }
        let access = server.access("known", "accept-new");
        let host = Remote::reach(&access, Path::new(NETRIG)).unwrap();
        assert_eq!(
            (host.name(), host.facts().unwrap().kernel),
            ("far", rustix::system::uname().release().to_string_lossy().into_owned())
        );
        assert!(host.environment().unwrap().netrig_build.is_some());
        drop(host);
        let first = copies(&server.home());
        assert_eq!(first.len(), 1, "{first:?}");
        let written = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!(written(&first[0]), written(Path::new(NETRIG)));
        // What is there is not copied again: this one says by itself that it was started.
        fs::write(&first[0], format!("#!/bin/sh\ntouch {}/started\nexec {NETRIG} \"$@\"\n", server.home().display()))
            .unwrap();
        Remote::reach(&access, Path::new(NETRIG)).unwrap().facts().unwrap();
        assert!(server.home().join("started").exists());
        drop(server);
        assert!(refusal(&access, Path::new(NETRIG)).contains("Connection refused"));
        world::assert_nothing_left("of hosts by ssh");
    });
}

#[test]
fn a_connection_that_breaks_ends_the_host() {
    world::own(|| {
        let Some(mut server) = SshServer::start() else { return };
        let access = HostAccess { program: Some(NETRIG.to_owned()), ..server.access("known", "accept-new") };
        let host = Remote::reach(&access, Path::new(NETRIG)).unwrap();
        host.facts().unwrap();
        // The server's process of this connection, too.
        run("pkill", &["-9", "dropbear"]);
        server.server.wait().unwrap();
        let error = format!("{:#}", host.facts().unwrap_err());
        assert!(error.contains("host far died"), "{error}");
        // Whoever asks next is told why, too.
        assert_eq!(format!("{:#}", host.facts().unwrap_err()), error);
        drop(host);
        world::assert_nothing_left("of a connection that broke");
    });
}

#[test]
fn any_command_line_reaches_a_host() {
    world::own(|| {
        let directory = tempfile::tempdir().unwrap();
        let home = format!("HOME={}", directory.path().display());
        let shell = |script: &str| HostAccess::command("far", words(&["sh", "-c", script, "sh", "env", &home]));
        // Login shells print this and that, with and without an end of the line.
        let noisy = shell("echo Welcome; printf 'Last login: yesterday'; exec \"$@\"");
        Remote::reach(&noisy, Path::new(NETRIG)).unwrap().facts().unwrap();
        assert_eq!(copies(directory.path()).len(), 1);
        let loud = shell("head -c 200000 /dev/zero | tr '\\0' x; exec \"$@\"");
        assert!(refusal(&loud, Path::new(NETRIG)).contains("no greeting of netrig's: 'xxx"));
        let broken = refusal(&shell("echo hello; echo no such thing >&2; exit 3"), Path::new(NETRIG));
        assert!(broken.contains("'hello'") && broken.contains("no such thing"), "{broken}");
        let nowhere = HostAccess::command("far", words(&["/nowhere/at-all"]));
        assert!(refusal(&nowhere, Path::new(NETRIG)).contains("/nowhere/at-all"));
        let full = HostAccess::command("far", words(&["env", "HOME=/dev/full"]));
        let full = refusal(&full, Path::new(NETRIG));
        assert!(full.contains("cannot keep the program there: mkdir"), "{full}");
        let mut other = vec![0; 64];
        other[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xf7\0");
        let of_other = directory.path().join("of-bpf");
        fs::write(&of_other, &other).unwrap();
        // A machine that nobody names.
        let unnamed = refusal(&shell("exec \"$@\""), &of_other);
        assert!(unnamed.contains("host far"), "{unnamed}");
        other[18] = 183;
        fs::write(&of_other, &other).unwrap();
        let named = refusal(&shell("exec \"$@\""), &of_other);
        assert!(named.contains("is for aarch64") || cfg!(target_arch = "aarch64"), "{named}");
        world::assert_nothing_left("of hosts by command lines");
    });
}

#[test]
fn who_stops_while_hosts_are_reached_does_not_wait_for_them() {
    world::own(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let silent = |name: &str| {
            let script = format!("touch {}; exec sleep 1000.4711", path(name));
            format!("[host.{name}]\ncommand = [\"sh\", \"-c\", \"{script}\"]\n")
        };
        let file = path("hosts.toml");
        fs::write(&file, silent("one") + &silent("other")).unwrap();
        let stream = ["stream", "--on", "one", "--hosts", &file, "--no-store"];
        let store = path("store.sqlite");
        let pairs = ["run", "pairs", "--hosts", &file, "--store", &store];
        let check = ["hosts", "check", "a=one", "b=other", "--hosts", &file];
        let run = ["run", "layers", "--on", "a=one", "--on", "b=other", "--hosts", &file, "--store", &store];
        for (arguments, reached) in
            [(&stream[..], &["one"][..]), (&pairs, &["one", "other"]), (&check, &["one"]), (&run, &["one"])]
        {
            let mut command = world::netrig();
            let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let deadline = Instant::now() + TIMEOUT;
            while !reached.iter().all(|name| directory.path().join(name).exists()) {
                assert!(Instant::now() < deadline, "{arguments:?} reaches nobody");
                std::thread::sleep(Duration::from_millis(5));
            }
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            let status = child.wait().unwrap();
            // Who waits for the host says at last that it is silent.
            assert!(status.code() == Some(130) || status.signal() == Some(2), "{arguments:?}: {status}: {said}");
            assert!(!said.contains("does not answer"), "{arguments:?}: {said}");
            let left = || world::processes().into_iter().any(|process| process.command.contains("1000.4711"));
            while left() {
                assert!(Instant::now() < deadline, "{arguments:?} leaves what reached a host");
                std::thread::sleep(Duration::from_millis(5));
            }
            reached.iter().for_each(|name| fs::remove_file(path(name)).unwrap());
        }
        world::assert_nothing_left("of hosts that were not reached");
    });
}

#[test]
fn a_user_who_is_not_root_becomes_it_there_by_sudo() {
    if !world::is_root() {
        return skip(Lack::Root, "a user namespace of one user has no other who could become root");
    }
    world::own(|| {
        if let Err(error) = Command::new("sudo").arg("-V").stdout(Stdio::null()).status() {
            return skip(Lack::Program("sudo"), error);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        // For nobody, too, who has a home here.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(path("home")).unwrap();
        run("chown", &["nobody", &path("home")]);
        let allow = |rule: &str| {
            fs::write(path("sudoers"), format!("Defaults !lecture\n{rule}\n")).unwrap();
            fs::set_permissions(path("sudoers"), Permissions::from_mode(0o440)).unwrap();
        };
        allow("");
        // A mount namespace of its own: sudo reads this file here alone.
        run("mount", &["--bind", &path("sudoers"), "/etc/sudoers"]);
        let home = format!("HOME={}", path("home"));
        let nobody = words(&[
            "setpriv",
            "--reuid=nobody",
            "--regid=nogroup",
            "--clear-groups",
            "env",
            "PATH=/usr/bin:/bin",
            &home,
        ]);
        let by = |words_of_sudo: &[&str]| HostAccess {
            run_as: words(words_of_sudo),
            ..HostAccess::command("far", nobody.clone())
        };
        let refused = refusal(&by(&["sudo", "-n"]), Path::new(NETRIG));
        assert!(refused.contains("sudo: a password is required") && !refused.contains("greeting"), "{refused}");
        let none = refusal(&by(&["no-such-sudo", "-n"]), Path::new(NETRIG));
        assert!(none.contains("no-such-sudo: not found"), "{none}");
        allow("nobody ALL=(root) NOPASSWD: ALL");
        let host = Remote::reach(&by(&["sudo", "-n"]), Path::new(NETRIG)).unwrap();
        host.facts().unwrap();
        // The user's cache has the copy, and root runs it.
        assert_eq!(copies(Path::new(&path("home"))).len(), 1);
        let processes = world::processes();
        let served = processes.iter().find(|process| process.command.starts_with(&path("home"))).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", served.pid)).unwrap();
        assert!(status.contains("Uid:\t0\t0\t0\t0"), "{status}");
        drop(host);
        world::assert_nothing_left("of a host where sudo makes root");
    });
}

#[test]
fn a_suite_runs_on_a_host_of_the_hosts_file() {
    world::own(|| {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts.toml");
        let text = format!("[host.box]\ncommand = [\"env\", \"HOME={}\"]\n", directory.path().display());
        fs::write(&file, text).unwrap();
        let store = directory.path().join("store.sqlite");
        let mut run = world::netrig();
        run.args([
            "run", "layers", "--quick", "--only", "A,B", "--trials", "1", "--window", "200ms", "--format", "json",
            "--quiet",
        ]);
        run.args(["--host", "box", "--hosts"]).arg(&file).arg("--store").arg(&store);
        let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let options = report["data"]["run"]["options"].as_str().unwrap();
        assert!(options.contains("nodes on host box"), "{options}");
        world::assert_nothing_left("of a run on a host");
    });
}
