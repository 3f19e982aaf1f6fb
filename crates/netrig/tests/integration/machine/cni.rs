//! Containers whose network CNI plug-ins make: those of the distribution, and scripts that do what plug-ins should not.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rig_facts::record::TrialRecord;
use rig_facts::store::Store;
use rig_skip::{Lack, skip};
use rig_suite::checks::{Procedure, Verdict};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use serde_json::{Value, json};

use super::world::{self, expect, netrig};

/// Where Debian and Fedora have the plug-ins.
const INSTALLED: [&str; 2] = ["/usr/lib/cni", "/usr/libexec/cni"];

pub fn installed() -> Option<&'static str> {
    let found = INSTALLED.into_iter().find(|folder| Path::new(folder).join("bridge").is_file());
    if found.is_none() {
        skip(Lack::Program("bridge"), "the plug-ins of CNI are not installed");
    }
    found
}

/// A folder with a suite of one scenario over a network, and a store.
pub struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A plug-in that is a shell script, and answers to VERSION as it should.
    fn plugin(&self, name: &str, script: &str) {
        let text = format!(
            "#!/bin/sh\nif [ $CNI_COMMAND = VERSION ]; then echo '{{ \"cniVersion\": \"1.0.0\", \"supportedVersions\": [\"1.0.0\"] }}'; \
             exit; fi\ncat > /dev/null\n{script}\n"
        );
        let mut writer = Command::new("sh");
        writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(self.path(name)).stdin(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    /// A run of one short trial.
    fn command(&self, network: &Value, settings: &str, phases: &str, folder: &Path) -> Command {
        fs::write(self.path("net.conflist"), network.to_string()).unwrap();
        let suite = format!(
            "name = \"one\"\ntitle = \"One\"\n[defaults]\nwindow = \"100ms\"\nwarm_up = \"20ms\"\ncool_down = \"10ms\"\n\
             [defaults.load]\nkind = \"tcp-rr\"\n[testbed.one]\nnodes = [\"a\"]\n\
             [[scenario]]\nid = \"C\"\nname = \"C\"\ntestbed = \"one\"\npath = \"cni\"\nfrom = \"a/x\"\nto = \"a/y\"\n{phases}\
             [[scenario.datapath]]\nname = \"cni\"\nconflist = \"net.conflist\"\nbin = [\"{}\"]\n{settings}",
            folder.display()
        );
        fs::write(self.path("suite.toml"), suite).unwrap();
        let mut command = netrig();
        command.arg("run").arg(self.path("suite.toml")).args(["--trials", "1", "--quiet", "--store"]);
        command.arg(self.path("runs.sqlite"));
        command
    }

    /// How it ended, what it said and the trial, where there is one.
    pub fn run(&self, network: &Value, settings: &str, phases: &str, folder: &Path) -> (String, Option<TrialRecord>) {
        let output = self.command(network, settings, phases, folder).output().unwrap();
        let store = self.path("runs.sqlite");
        let said = world::text(&output.stdout) + &world::text(&output.stderr);
        let trial = Store::open(&store).ok().and_then(|store| {
            let last = store.runs().unwrap().into_iter().next_back()?;
            store.run(last.id).unwrap().trials.into_iter().next_back()
        });
        (said, trial)
    }
}

fn of_plugins(plugins: &Value) -> Value {
    json!({ "cniVersion": "1.0.0", "name": "tested", "plugins": plugins })
}

/// What the machine's own are, which no plug-in may touch.
fn own_folders() -> Vec<(&'static str, Vec<String>)> {
    let listed = |folder: &'static str| {
        let mut names: Vec<String> = fs::read_dir(folder)
            .map(|all| all.flatten().map(|one| one.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        names.sort();
        (folder, names)
    };
    ["/var/lib/cni", "/etc/cni", "/run/netns", "/run/cni"].map(listed).to_vec()
}

#[test]
fn a_bridge_of_both_families_carries_and_leaves_nothing_on_the_machine() {
    let Some(folder) = installed() else { return };
    world::own(|| {
        let before = own_folders();
        let bench = Bench::new();
        let ranges = json!([[{ "subnet": "10.77.0.0/16" }], [{ "subnet": "fd00:77::/64" }]]);
        let bridge = json!({ "type": "bridge", "isGateway": true, "ipam": { "type": "host-local", "ranges": ranges } });
        let phases = "[[scenario.phase]]\nname = \"operations\"\ncommand = [{ datapath = \"cni\", name = \"at_once\", arguments = { count = 3 } }, \
                      { datapath = \"cni\", name = \"conform\" }]\n";
        let (said, trial) = bench.run(&of_plugins(&json!([bridge])), "", phases, Path::new(folder));
        let trial = trial.unwrap_or_else(|| panic!("no trial: {said}"));
        let attachments = &trial.agents[0].state.more["attachments"];
        assert_eq!(
            attachments.pointer("/0/result/ips/1/address").and_then(Value::as_str).map(|ip| &ip[..6]),
            Some("fd00:7")
        );
        assert!(trial.agents[0].state.addresses["a/y"].len() == 2);
        let times = &trial.phases[0].commands[0].answers[0].1;
        for key in ["add_us", "first_packet_us", "check_us", "del_us"] {
            assert_eq!(times[key].as_array().map(Vec::len), Some(3), "{key}: {times}");
        }
        let checks = Procedure::Cni.judge(std::slice::from_ref(&trial));
        let verdict = |name: &str| checks.iter().find(|check| check.name == name).map(|check| check.verdict);
        // It is what distributions have that is tried, not what it comes to: but these hold of every release.
        for name in ["C01", "C02", "C04", "C07", "C10", "C15"] {
            assert_eq!(verdict(name), Some(Verdict::Passed), "{name}: {checks:?}");
        }
        assert_eq!(own_folders(), before);
        world::assert_nothing_left("of a network of plug-ins");
    });
}

#[test]
fn bad_plug_ins_are_told_and_leave_nothing() {
    world::own(|| {
        let before = own_folders();
        let bench = Bench::new();
        let mut calls = Calls::new(&bench);
        let add = |what: &str| {
            format!(
                "echo $CNI_COMMAND $CNI_CONTAINERID >> {}\n[ $CNI_COMMAND = ADD ] || exit 0\n{what}",
                calls.path.display()
            )
        };
        let no_address =
            r#"{ "cniVersion": "1.0.0", "interfaces": [{ "name": "eth0", "sandbox": "/run/netns/a.x" }] }"#;
        let cases = [
            ("hangs", add("sleep 300"), "ADD of plug-in hangs took longer than 1 s, and was killed"),
            ("garbage", add("echo nothing good"), "ended with status 0, and what it wrote is no result"),
            (
                "liar",
                add(r#"echo '{ "code": 7, "msg": "no room" }'"#),
                "ended with status 0, and reports an error: error 7",
            ),
            ("empty", add(&format!("echo '{no_address}'")), "gave a/x no address"),
            (
                "messy",
                add(
                    "ip link add left type veth peer name behind; mkdir -p /var/lib/cni/networks; touch /var/lib/cni/networks/left \
                     /run/left /etc/cni/left; echo failed >&2; exit 3",
                ),
                "on standard error: failed",
            ),
        ];
        for (name, script, expected) in cases {
            bench.plugin(name, &script);
            let network = of_plugins(&json!([{ "type": name }]));
            let (said, trial) = bench.run(&network, "time_limit = \"1s\"\n", "", bench.folder.path());
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(expected), "{name}: {said}");
            assert!(trial.is_none(), "{name}: {said}");
            // Also of one that was killed, and of one whose result is of no use.
            assert_eq!(calls.taken(), "ADD a.x\nDEL a.x\n", "{name}");
            assert_eq!(own_folders(), before, "{name}");
            assert!(!Path::new("/run/left").exists() && !Path::new("/etc/cni/left").exists(), "{name}");
            world::assert_nothing_left(name);
        }
        let (said, _) = bench.run(&of_plugins(&json!([{ "type": "absent" }])), "", "", bench.folder.path());
        assert!(
            said.split_whitespace().collect::<Vec<_>>().join(" ").contains("there is no such program in"),
            "{said}"
        );
    });
}

/// What scripts write about their calls: into a FIFO, since they can write no file that is seen here.
struct Calls {
    path: PathBuf,
    fifo: File,
}

impl Calls {
    fn new(bench: &Bench) -> Self {
        let path = bench.path("calls");
        mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        let flags = OFlags::NONBLOCK.bits() as i32;
        let fifo = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).unwrap();
        Self { path, fifo }
    }

    /// All that was written since.
    fn taken(&mut self) -> String {
        let mut text = Vec::new();
        let end = self.fifo.read_to_end(&mut text).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::WouldBlock);
        String::from_utf8(text).unwrap()
    }
}

/// A plug-in that joins the testbed's own containers by a bridge, and does with all others what is said.
fn selective(calls: &Path, others: &str) -> String {
    format!(
        r#"echo $CNI_COMMAND $CNI_CONTAINERID >> {}
case $CNI_CONTAINERID in a.x) n=1;; a.y) n=2;; *) {others};; esac
[ $CNI_COMMAND = ADD ] || exit 0
ip link add own0 type bridge 2> /dev/null
ip link set own0 up
ip link add own-$n type veth peer name $CNI_IFNAME netns ${{CNI_NETNS##*/}} || exit 4
ip link set own-$n master own0 up
ip -n ${{CNI_NETNS##*/}} addr add 10.99.0.$n/24 dev $CNI_IFNAME
ip -n ${{CNI_NETNS##*/}} link set $CNI_IFNAME up
echo '{{ "cniVersion": "1.0.0", "interfaces": [{{ "name": "'$CNI_IFNAME'", "sandbox": "'$CNI_NETNS'" }}], "ips": [{{ "address": "10.99.0.'$n'/24", "interface": 0 }}] }}'"#,
        calls.display()
    )
}

const CONFORM: &str = "[[scenario.phase]]\nname = \"operations\"\ncommand = [{ datapath = \"cni\", name = \"conform\" }, \
                       { datapath = \"cni\", name = \"at_once\", arguments = { count = 2, rounds = 2 } }]\n";

#[test]
fn nothing_passes_that_an_add_has_to_go_before() {
    world::own(|| {
        let bench = Bench::new();
        let mut calls = Calls::new(&bench);
        let cases = [
            ("picky", "[ $CNI_COMMAND = ADD ] || exit 0; echo '{ \"code\": 11, \"msg\": \"full\" }'; exit 1"),
            ("slow", "[ $CNI_COMMAND = ADD ] || exit 0; sleep 300"),
        ];
        for (name, others) in cases {
            bench.plugin(name, &selective(&calls.path, others));
            let network = of_plugins(&json!([{ "type": name }]));
            let (said, trial) = bench.run(&network, "time_limit = \"1s\"\n", CONFORM, bench.folder.path());
            let trial = trial.unwrap_or_else(|| panic!("{name}: no trial: {said}"));
            let checks = Procedure::Cni.judge(std::slice::from_ref(&trial));
            let verdict = |check: &str| checks.iter().find(|one| one.name == check).map(|one| one.verdict);
            assert_eq!(verdict("C01"), Some(Verdict::Failed), "{name}: {checks:?}");
            for check in ["C02", "C03", "C04", "C05", "C06", "C07", "C08", "C09", "C10", "C11", "C15", "C19"] {
                assert_eq!(verdict(check), Some(Verdict::Unknown), "{name}, {check}: {checks:?}");
            }
            assert_eq!(verdict("C12"), Some(Verdict::Passed), "{name}: {checks:?}");
            let is_refused = if name == "picky" { Verdict::Passed } else { Verdict::Failed };
            assert_eq!(verdict("C13"), Some(is_refused), "{name}: {checks:?}");
            let times = &trial.phases[0].commands[1].answers[0].1;
            assert_eq!(times["chain"][0]["commands"], json!({}), "{name}: {times}");
            // A plug-in that hangs is not waited for again in each round.
            let rounds = if name == "picky" { 2 } else { 1 };
            assert_eq!(times["rounds"], json!(rounds), "{name}: {times}");
            assert_eq!(times["stopped"].is_string(), name == "slow", "{name}: {times}");
            let calls = calls.taken();
            let added: Vec<&str> = calls
                .lines()
                .filter_map(|line| line.strip_prefix("ADD "))
                .filter(|id| id.contains("netrig.test"))
                .collect();
            for (place, id) in added.iter().enumerate() {
                assert!(!added[..place].contains(id), "{name}: {id} was added twice: {calls}");
                let deleted = calls.lines().filter(|line| line.strip_prefix("DEL ") == Some(id)).count();
                assert_eq!(deleted, 1, "{name}, {id}: {calls}");
            }
            world::assert_nothing_left(name);
        }
    });
}

#[test]
fn containers_before_one_that_cannot_be_added_are_deleted() {
    world::own(|| {
        let bench = Bench::new();
        let mut calls = Calls::new(&bench);
        let script = selective(&calls.path, "exit 0").replace("a.y) n=2", "a.y) [ $CNI_COMMAND = ADD ] && exit 9; n=2");
        bench.plugin("second", &script);
        let (said, trial) = bench.run(&of_plugins(&json!([{ "type": "second" }])), "", "", bench.folder.path());
        assert!(trial.is_none(), "{said}");
        let calls = calls.taken();
        assert_eq!(calls, "ADD a.x\nADD a.y\nDEL a.y\nDEL a.x\n", "{said}");
        world::assert_nothing_left("of a network whose second container was refused");
    });
}

#[test]
fn a_network_that_is_none_is_refused_with_its_file_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.conflist");
    let refused = |text: &str, arguments: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut command = netrig();
        command
            .args(["run", "cni", "--quick", "--no-store"].iter().take(3))
            .arg("--conflist")
            .arg(&file)
            .args(arguments);
        expect(&command.output().unwrap(), 2).1.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let named = file.display().to_string();
    let said = refused("{ \"cniVersion\": \"1.0.0\",\n \"name\": }", &[]);
    assert!(said.contains(&named) && said.contains("no JSON") && said.contains("line 2"), "{said}");
    let said = refused(r#"{ "cniVersion": "1.0.0", "name": "n", "plugins": [{ "type": "bridge" }, {}] }"#, &[]);
    assert!(said.contains(&named) && said.contains("'plugins[1].type'"), "{said}");
    let said = expect(&netrig().args(["run", "cni", "--bin", "/x"]).output().unwrap(), 2).1;
    assert!(said.contains("--conflist"), "{said}");
    let other = refused(r#"{ "cniVersion": "1.0.0", "name": "n", "type": "bridge" }"#, &["--only", "nothing"]);
    assert!(other.contains("no scenario 'nothing'"), "{other}");
}

#[test]
fn a_killed_run_leaves_nothing_of_what_a_plug_in_started() {
    world::own(|| {
        let bench = Bench::new();
        let mut calls = Calls::new(&bench);
        // One child of it has a session of its own, and neither ends by itself.
        let script = format!("setsid sleep 4321 &\necho $CNI_COMMAND >> {}\nsleep 4321", calls.path.display());
        bench.plugin("sleepy", &script);
        let network = of_plugins(&json!([{ "type": "sleepy" }]));
        let mut run = bench.command(&network, "", "", bench.folder.path());
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let sleepers = || {
            let is_one =
                |process: &world::Process| process.command.contains("sleep") && process.command.contains("4321");
            world::processes().iter().filter(|process| is_one(process)).count()
        };
        let soon = Duration::from_secs(20);
        let mut is_called = false;
        let begun = world::until(soon, || {
            is_called |= calls.taken().contains("ADD");
            (is_called && sleepers() >= 2).then_some(())
        });
        assert!(begun.is_some(), "{:?}", world::processes());
        run.kill().unwrap();
        run.wait().unwrap();
        assert!(world::until(soon, || (sleepers() == 0).then_some(())).is_some(), "{:?}", world::processes());
        world::assert_nothing_left("of a killed run");
    });
}
