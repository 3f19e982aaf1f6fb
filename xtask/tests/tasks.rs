//! The tasks as a user meets them, on machines that lack something.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: a script that this process holds open for writing could be inherited, for a moment, by what
/// another test starts, and a file that is open for writing cannot be executed (ETXTBSY).
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the build runs, besides Rust.
const TOOLS: [&str; 4] = ["cc", "clang", "make", "pkg-config"];

/// A machine without a C compiler: PATH holds a shell, and what the test puts there.
struct Machine {
    path: PathBuf,
}

impl Machine {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        if path.exists() {
            fs::remove_dir_all(&path).expect("it is our own directory");
        }
        fs::create_dir_all(&path).expect("cargo made the directory above");
        symlink("/bin/sh", path.join("sh")).expect("the directory is empty");
        Self { path }
    }

    fn with(self, program: &str, script: &str) -> Self {
        let file = self.path.join(program);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("the directory is ours");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is our own file");
        self
    }

    fn xtask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(arguments).env("PATH", &self.path).env_remove("CC").env_remove("CLANG").current_dir(&self.path);
        command.output().expect("the binary was built with this test")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_user_is_told_the_one_line_that_installs_what_is_missing() {
    let _alone = alone();
    let debian = Machine::new("debian-user").with("id", "echo 1000").with("apt-get", "exit 0");
    for task in ["demo", "test"] {
        let output = debian.xtask(&[task]);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(said(&output).contains("sudo apt-get install -y gcc libc6-dev"), "{}", said(&output));
    }
    let fedora = Machine::new("fedora-user").with("id", "echo 1000").with("dnf", "exit 0");
    assert!(said(&fedora.xtask(&["demo"])).contains("sudo dnf install gcc glibc-devel"));
    let other = Machine::new("other-user").with("id", "echo 1000");
    assert!(said(&other.xtask(&["demo"])).contains("a C compiler"));
}

#[test]
fn root_on_debian_gets_it_installed() {
    let _alone = alone();
    // An installation that works: from then on there is all that it takes.
    let script = r#"dir=${0%/*}
echo "$@" >> "$dir/log"
case "$1" in install) for tool in TOOLS; do
    printf '#!/bin/sh\nexit 0\n' > "$dir/$tool"; /bin/chmod +x "$dir/$tool"
done;; esac"#;
    let script = &script.replace("TOOLS", &TOOLS.join(" "));
    let machine = Machine::new("debian-root").with("id", "echo 0").with("apt-get", script);
    // Nothing to build with: cargo is not there, so the task ends right after.
    let machine = machine.with("cargo", "exit 42");
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("demo")
        .env("PATH", &machine.path)
        .env("CARGO", machine.path.join("cargo"))
        .env_remove("CC")
        .env_remove("CLANG")
        .output()
        .expect("the binary was built with this test");
    assert_eq!(output.status.code(), Some(42), "the status of cargo is passed on: {}", said(&output));
    let log = fs::read_to_string(machine.path.join("log")).expect("apt-get was called");
    let packages = "gcc libc6-dev libelf-dev zlib1g-dev make pkg-config clang";
    let installed = format!("update -q\ninstall -q -y --no-install-recommends {packages}\n");
    assert!(log.ends_with(&installed), "{log}");
}

#[test]
fn an_unknown_benchmark_is_bad_input() {
    let _alone = alone();
    let output = Machine::new("bench").xtask(&["bench", "no-such-benchmark"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("no benchmark `no-such-benchmark`"), "{}", said(&output));
}

/// What cargo is asked for by `cargo xtask bench` with these arguments.
fn benches(arguments: &[&str]) -> String {
    let machine = TOOLS.iter().chain(&["nft", "haproxy"]).fold(
        Machine::new("bench-balancer").with("id", "echo 0").with("cargo", r#"echo "$@" >> "${0%/*}/asked""#),
        |machine, tool| machine.with(tool, "exit 0"),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("bench")
        .args(arguments)
        .env("PATH", &machine.path)
        .env("CARGO", machine.path.join("cargo"))
        .env_remove("CC")
        .env_remove("CLANG")
        .output()
        .expect("the binary was built with this test");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    fs::read_to_string(machine.path.join("asked")).expect("cargo was called")
}

#[test]
fn the_balancer_is_measured_in_parts() {
    let _alone = alone();
    let parts = |first: &str| {
        format!(
            "bench --package rig-datapath --bench stages -- {first}\n\
             bench --package rig-datapath --bench cases --\n\
             bench --package netrig --bench balancer --\n"
        )
    };
    assert_eq!(benches(&["balancer"]), parts("8388608"));
    assert_eq!(benches(&["balancer", "4096"]), parts("4096"));
    assert_eq!(benches(&["stages", "4096"]), "bench --package rig-datapath --bench stages -- 4096\n");
}

/// The demo with a cargo that builds a netrig whose runs end with `status`: its end, and what netrig was asked.
fn demo_with_runs_that_end(status: u8) -> (Output, String) {
    let machine = Machine::new(&format!("demo-{status}")).with("id", "echo 0");
    let machine = TOOLS.iter().fold(machine, |machine, tool| machine.with(tool, "exit 0"));
    let netrig = format!(r#"echo "$@" >> "$CARGO_TARGET_DIR/asked"; [ "$1" != run ] || exit {status}"#);
    let machine = machine.with("netrig", &netrig).with("cargo", "exit 0");
    fs::create_dir(machine.path.join("release")).expect("the directory is ours");
    fs::rename(machine.path.join("netrig"), machine.path.join("release/netrig")).expect("both are ours");
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("demo")
        .env("PATH", &machine.path)
        .env("CARGO", machine.path.join("cargo"))
        .env("CARGO_TARGET_DIR", &machine.path)
        .env_remove("CC")
        .env_remove("CLANG")
        .output()
        .expect("the binary was built with this test");
    (output, fs::read_to_string(machine.path.join("asked")).expect("netrig was called"))
}

#[test]
fn the_demo_runs_reports_and_says_where_the_report_lies() {
    let _alone = alone();
    let (output, asked) = demo_with_runs_that_end(0);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let html = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("demo-0/demo/layers.html");
    let report = format!("report latest --format html --output {}", html.display());
    assert_eq!(asked, format!("run layers --quick\n{report}\n"));
    assert!(String::from_utf8_lossy(&output.stdout).contains(&html.display().to_string()));
}

#[test]
fn a_demo_that_cannot_run_ends_as_the_run_does() {
    let _alone = alone();
    let (output, asked) = demo_with_runs_that_end(3);
    assert_eq!((output.status.code(), asked.as_str()), (Some(3), "run layers --quick\n"));
    assert!(said(&output).contains("doctor"), "{}", said(&output));
}
