//! A world (namespaces) of a test's own, in which it is root and alone: all that it finds there afterwards it has made itself,
//! and nothing of it outlives the test.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rig_load::driver::Cancel;
use rig_run::run::Rig;
use rig_skip::{Lack, skip, this_test};
use rig_sys::cpu::CpuSet;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_testbed::Testbed;
use rig_testbed::host::Local;
use rig_testbed::plan::Plan;
use rig_testbed::topology::Topology;

/// netrig itself.
pub const NETRIG: &str = env!("CARGO_BIN_EXE_netrig");
/// Set inside a world.
const INSIDE: &str = "NETRIG_TEST_WORLD";
/// Longer than any test takes on a machine that is busy with other things, or is emulated: there a router's programs take half a minute to load.
const TIMEOUT: Duration = Duration::from_secs(360);

/// One test at a time: several look at a node's CPUs, and all want the CPUs for themselves.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two CPUs or more, and a rig over them; says why not where there are too few.
pub fn rig() -> Option<Rig> {
    let cpus = CpuSet::allowed().unwrap();
    if cpus.len() < 2 {
        skip(Lack::Cpus, "two nodes need two CPUs");
        return None;
    }
    let program = PathBuf::from(env!("CARGO_BIN_EXE_netrig"));
    Some(Rig::new(program, &cpus, 2, Cancel::new().unwrap(), rig_datapaths::ALL).unwrap())
}

/// A testbed in namespaces of this process, in whose nodes netrig can be started.
pub fn testbed(topology: &Topology, plan: Plan) -> Testbed<'static> {
    let host = Local::uncounted().unwrap().with_program(NETRIG.into());
    Testbed::build_in(host, topology, plan).unwrap()
}

pub fn is_root() -> bool {
    // /proc/self belongs to the effective user.
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Runs `body`, the whole of a test, as root of new PID, network and mount namespaces: this test binary is started again
/// there, for this test alone. Without root it needs a user namespace too; where there is none the test is skipped.
pub fn own(body: impl FnOnce()) {
    inside(&["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"], body);
}

/// [`own`], but with the machine's processes, among which are the kernel's threads.
#[allow(dead_code, reason = "not all test binaries that have this module look at them")]
pub fn own_among_processes(body: impl FnOnce()) {
    inside(&["--mount", "--net"], body);
}

fn inside(namespaces: &[&str], body: impl FnOnce()) {
    if env::var_os(INSIDE).is_some() {
        bring_up_loopback();
        return body();
    }
    let _alone = one_at_a_time();
    let test = this_test();
    let mut namespaces = namespaces.to_vec();
    if !is_root() {
        namespaces.extend(["--user", "--map-root-user"]);
    }
    let probe = Command::new("unshare").args(&namespaces).arg("true").stdin(Stdio::null()).output();
    match probe {
        Ok(probe) if probe.status.success() => {}
        Ok(probe) => return skip(Lack::Namespaces, text(&probe.stderr).trim()),
        Err(error) => return skip(Lack::Program("unshare"), error),
    }
    let mut again = Command::new("unshare");
    again.args(&namespaces).arg(env::current_exe().expect("the test binary has a path"));
    // It may be one that is run only where it is asked for.
    again
        .args(["--exact", &test, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null());
    let (status, said) = finish(&mut again, TIMEOUT);
    for line in said.lines() {
        // The test runner may have begun the line.
        match line.find(rig_skip::MARK) {
            Some(at) => drop(writeln!(io::stderr(), "{}", &line[at..])),
            None => println!("{line}"),
        }
    }
    assert!(status, "the test failed in its own world");
    assert!(said.contains("1 passed"), "there is no test {test}");
}

/// Runs a command to its end and tells whether it succeeded and what it said on both outputs.
fn finish(command: &mut Command, time_limit: Duration) -> (bool, String) {
    let (reader, writer) = io::pipe().expect("make a pipe");
    command.stdout(writer.try_clone().expect("copy a descriptor")).stderr(writer);
    let mut child = command.spawn().expect("start the test's world");
    // The command holds the pipe's other end as long as it lives.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let listener = thread::spawn(move || io::read_to_string(reader).unwrap_or_else(|error| error.to_string()));
    let ended = until(time_limit, || child.try_wait().expect("wait for the test's world"));
    if ended.is_none() {
        child.kill().expect("end the test's world");
    }
    let status = child.wait().expect("wait for the test's world");
    let mut said = listener.join().expect("hear from the test's world");
    if ended.is_none() {
        said.push_str(&format!("\nit was stopped after {time_limit:?}"));
    }
    (status.success(), said)
}

fn bring_up_loopback() {
    let here = NetNs::of_current_thread().unwrap();
    Netlink::open(&here).unwrap().set_up("lo").unwrap();
}

/// The running kernel's version.
pub fn linux() -> [u32; 2] {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap());
    [numbers.next().unwrap(), numbers.next().unwrap()]
}

/// What `look` finds, looked for until it is there or the time is over.
pub fn until<T>(time_limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + time_limit;
    loop {
        let begin = Instant::now();
        let found = look();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        // A look may start a program, and what is looked for shall have most of the CPU.
        thread::sleep((begin.elapsed() * 4).clamp(Duration::from_millis(2), Duration::from_millis(200)));
    }
}

/// A process of the world other than the test itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub command: String,
}

/// The processes that run in this world beside the test. One that has ended but was not collected is none.
pub fn processes() -> Vec<Process> {
    numbers("/proc").filter(|&pid| pid != std::process::id()).filter_map(running).collect()
}

fn running(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
    (!matches!(state, 'Z' | 'X')).then_some(Process { pid, command })
}

/// The network namespaces that any process of this world lives in or holds open, by inode.
pub fn network_namespaces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for pid in numbers("/proc") {
        let links = numbers(&format!("/proc/{pid}/task")).map(|task| format!("/proc/{pid}/task/{task}/ns/net"));
        let held = numbers(&format!("/proc/{pid}/fd")).map(|fd| format!("/proc/{pid}/fd/{fd}"));
        let names = links.chain(held).filter_map(|link| fs::read_link(link).ok());
        found.extend(names.map(|name| name.display().to_string()).filter(|name| name.starts_with("net:")));
    }
    found
}

/// Whether a process of this world has attached an eBPF program to something, by a link (bpf(2), `BPF_LINK_CREATE`).
pub fn has_attached_program() -> bool {
    let held = |pid| numbers(&format!("/proc/{pid}/fd")).map(move |fd| format!("/proc/{pid}/fd/{fd}"));
    let is_link = |target: PathBuf| target.to_str() == Some("anon_inode:bpf_link");
    numbers("/proc").flat_map(held).any(|fd| fs::read_link(fd).is_ok_and(is_link))
}

/// Entries of a directory that are numbers; none when it is gone.
fn numbers(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).ok().into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The interfaces that the test itself sees.
pub fn interfaces() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    text.lines().skip(2).map(|line| line.split(':').next().unwrap_or_default().trim().to_owned()).collect()
}

/// Asserts that nothing but the test is left: no process, no network namespace, no interface. The kernel is given time
/// to take down what it does in its own time.
pub fn assert_nothing_left(after: &str) {
    let lo = BTreeSet::from(["lo".to_owned()]);
    let clean = || processes().is_empty() && network_namespaces().len() == 1 && interfaces() == lo;
    until(Duration::from_secs(20), || clean().then_some(()));
    assert_eq!(processes(), [], "processes are left {after}");
    assert_eq!(network_namespaces().len(), 1, "network namespaces are left {after}");
    assert_eq!(interfaces(), lo, "interfaces are left {after}");
}

/// A source of numbers for choosing moments. The seed is printed, and can be given again in NETRIG_TEST_SEED.
#[derive(Debug)]
pub struct RandomSource(u64);

impl RandomSource {
    pub fn new() -> Self {
        let given = env::var("NETRIG_TEST_SEED").ok().map(|seed| seed.parse().expect("NETRIG_TEST_SEED is a number"));
        let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64);
        let seed = given.unwrap_or_else(clock);
        println!("NETRIG_TEST_SEED={seed}");
        Self(seed)
    }

    /// A time up to `most`: splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
    pub fn up_to(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        most.mul_f64(z as f64 / u64::MAX as f64)
    }
}

/// A user without privileges: the user `nobody` where the tests run as root, otherwise the user that runs them.
#[derive(Debug)]
pub struct Unprivileged {
    directory: tempfile::TempDir,
    switch: bool,
}

/// Runs `body`, the whole of a test, with a user without privileges. As root this happens in a world of its own.
pub fn unprivileged(body: impl FnOnce(&Unprivileged)) {
    if is_root() {
        own(|| body(&Unprivileged::new(true)));
    } else {
        let _alone = one_at_a_time();
        body(&Unprivileged::new(false));
    }
}

impl Unprivileged {
    const NOBODY: u32 = 65_534;

    pub fn new(switch: bool) -> Self {
        let user = Self { directory: tempfile::tempdir().unwrap(), switch };
        // The place of the build may be closed to other users.
        fs::copy(env!("CARGO_BIN_EXE_netrig"), user.path("netrig")).unwrap();
        fs::create_dir(user.path("run")).unwrap();
        if switch {
            for path in [user.directory.path(), &user.path("run")] {
                chown(path, Some(Self::NOBODY), Some(Self::NOBODY)).unwrap();
            }
        }
        user
    }

    /// A path in a directory that is the user's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command that this user gives.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).current_dir("/").env("HOME", self.directory.path());
        command.env("XDG_RUNTIME_DIR", self.path("run"));
        if self.switch {
            // The standard library gives up root's other groups too.
            command.uid(Self::NOBODY).gid(Self::NOBODY);
        }
        command
    }

    /// Whether this user may make a user namespace here; says why a test is skipped when not.
    pub fn may_make_namespaces(&self) -> bool {
        let probe = self.command("unshare").args(["--user", "--map-root-user", "--net", "true"]).output();
        match probe {
            Ok(probe) if probe.status.success() => true,
            Ok(probe) => {
                skip(Lack::Namespaces, text(&probe.stderr).trim());
                false
            }
            Err(error) => {
                skip(Lack::Program("unshare"), error);
                false
            }
        }
    }

    /// Runs netrig and asserts its exit status.
    #[track_caller]
    pub fn netrig(&self, status: i32, arguments: &[&str]) -> (String, String) {
        expect(&self.command(self.path("netrig")).args(arguments).output().unwrap(), status)
    }
}

/// The scenarios of the suite `balancer`, the first load at a rate that every machine carries: to look for the highest takes a minute.
pub fn balancer_at_a_rate() -> String {
    // Its tables and claims are of the highest rate.
    let (text, _) = include_str!("../../../../suites/balancer.toml").split_once("\n[[table]]").unwrap();
    let search = "search = { goal = \"loss-free\", start = 10000, precision = \"3%\", step = \"1s\" }";
    assert!(text.contains(search));
    text.replacen(search, "connections_per_second = 2000", 1)
}

/// netrig itself.
pub fn netrig() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.stdin(Stdio::null());
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts how a command ended, and hands on both its outputs.
#[track_caller]
pub fn expect(output: &Output, status: i32) -> (String, String) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(status),
        "{}\nstandard output:\n{out}\nstandard error:\n{err}",
        output.status
    );
    (out, err)
}
