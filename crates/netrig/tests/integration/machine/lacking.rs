//! What the machine lacks is said with its remedy before anything is built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rig_facts::record::SkippedScenarios;
use rig_skip::{Lack, skip};
use rig_sys::cpu::CpuSet;
use serde_json::Value;

use super::world::{self, expect, netrig};

/// A suite of one scenario.
fn suite(path: &str, load: &str) -> String {
    format!(
        "name = \"lacking\"\ntitle = \"Lacking\"\n\
         [defaults]\nwindow = \"100ms\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\n\
         [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"128k\"\n{load}\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"A\"\nname = \"A\"\ntestbed = \"two\"\npath = \"{path}\"\n\
         from = \"a/sender\"\nto = \"b/receiver\"\n"
    )
}

/// A place for a suite, a store and kept testbeds, where two nodes fit.
fn place() -> Option<tempfile::TempDir> {
    if CpuSet::allowed().unwrap().len() < 2 {
        skip(Lack::Cpus, "two nodes need two CPUs");
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

#[test]
fn a_run_with_a_congestion_control_that_is_not_there_is_refused_and_a_testbed_is_not() {
    world::own(|| {
        let Some(directory) = place() else { return };
        let [file, store] = ["suite.toml", "runs.sqlite"].map(|name| directory.path().join(name));
        fs::write(&file, suite("bridge", "congestion_control = \"no-such\"")).unwrap();
        let output = netrig().arg("run").arg(&file).arg("--store").arg(&store).output().unwrap();
        let (out, err) = expect(&output, 3);
        assert_eq!(out, "");
        for said in ["'no-such'", "sudo modprobe tcp_no-such", "reno"] {
            assert!(err.contains(said), "'{err}' lacks '{said}'");
        }
        assert!(!store.exists(), "a store was made for a run that could not be");
        let scenario = format!("{}/A", file.display());
        for arguments in [&["up", &scenario][..], &["down"]] {
            expect(&netrig().args(arguments).env("NETRIG_RUN", directory.path()).output().unwrap(), 0);
        }
        world::assert_nothing_left("by a testbed that was taken down");
    });
}

/// Containers see their sysctls mounted read-only.
#[test]
fn a_testbed_that_cannot_be_built_here_is_refused_with_the_remedy() {
    world::own(|| {
        let Some(directory) = place() else { return };
        for options in [&["--bind", "/proc/sys", "/proc/sys"][..], &["-o", "remount,bind,ro", "/proc/sys"]] {
            let output = Command::new("mount").args(options).output().unwrap();
            if !output.status.success() {
                return skip(Lack::Mounts, world::text(&output.stderr));
            }
        }
        let file = directory.path().join("suite.toml");
        fs::write(&file, suite("etun", "")).unwrap();
        let scenario = format!("{}/A", file.display());
        let output = netrig().args(["up", &scenario]).env("NETRIG_RUN", directory.path()).output().unwrap();
        let (out, err) = expect(&output, 3);
        assert_eq!(out, "");
        for said in ["no paths etun and routed", "outside the container", "netrig doctor"] {
            assert!(err.contains(said), "'{err}' lacks '{said}'");
        }
        assert_eq!(err.matches("netrig: ").count(), 1, "{err}");
        world::assert_nothing_left("by what was refused");
    });
}

/// Two scenarios between nodes, of which the second has more than the first.
fn suite_of_two(first: &str, second: &str) -> String {
    format!(
        "name = \"lacking\"\ntitle = \"Lacking\"\n\
         [defaults]\nwindow = \"100ms\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\n\
         [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"128k\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"A\"\nname = \"A\"\ntestbed = \"two\"\n{first}\n\
         [[scenario]]\nid = \"D\"\nname = \"D\"\ntestbed = \"two\"\n{second}\n\
         [[claim]]\ntext = \"D is slower.\"\nholds = \"D.throughput <= A.throughput\"\n"
    )
}

const RAW: &str = "path = \"raw\"\nfrom = \"a\"\nto = \"b\"";

fn assert_without_d(out: &str, err: &str, json: &serde_json::Value, why: &str) {
    assert!(err.contains("Not in this run: D: ") && err.contains(why), "'{err}' lacks '{why}'");
    assert!(out.contains("1 scenario is left out") && out.contains(why), "'{out}' lacks '{why}'");
    let run = &json["data"];
    assert_eq!(run["left_out"][0]["scenarios"], serde_json::json!(["D"]), "{json}");
    assert!(run["left_out"][0]["reason"].as_str().unwrap().contains(why), "{json}");
    let scenarios = run["scenarios"].as_array().unwrap();
    let ids: Vec<&str> = scenarios.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["A"], "{json}");
    let claims = json["data"]["claims"].as_array().unwrap();
    assert!(claims.len() == 1 && claims[0]["verdict"] == "undecided", "{json}");
    assert!(json.to_string().contains("D was left out: "), "{json}");
}

/// Starts netrig by `how`, with `arguments`, and gives what it says where it ends with `status`.
fn refused(how: &[&str], arguments: &[&str], run: &Path, status: i32) -> String {
    let mut netrig = Command::new(how[0]);
    netrig.args(&how[1..]).arg(env!("CARGO_BIN_EXE_netrig")).args(arguments).env("NETRIG_RUN", run);
    expect(&netrig.output().unwrap(), status).1
}

fn has_program(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        skip(Lack::Program("util-linux"), format!("no {program}"));
    }
    there
}

#[test]
fn a_limit_of_open_files_is_not_told_as_a_kernel_that_is_too_old() {
    world::own(|| {
        let Some(directory) = place() else { return };
        if !has_program("prlimit") {
            return;
        }
        let file = directory.path().join("suite.toml");
        fs::write(&file, suite("bridge", "")).unwrap();
        let scenario = format!("{}/A", file.display());
        let mut told = 0;
        for most in [8, 12, 16, 20, 30] {
            let limit = format!("--nofile={most}:{most}");
            let mut netrig = Command::new("prlimit");
            netrig.arg(&limit).arg(env!("CARGO_BIN_EXE_netrig")).args(["up", &scenario, "--name"]);
            let output = netrig.arg(format!("t{most}")).env("NETRIG_RUN", directory.path()).output().unwrap();
            let said = world::text(&output.stderr);
            assert!(!said.contains("all programs load on"), "with {most}: {said}");
            if !output.status.success() && said.contains("os error 24") {
                assert!(said.contains(&format!("{most} files open: raise the limit")), "with {most}: {said}");
                told += 1;
            }
        }
        assert!(told > 0, "no limit was too low");
        expect(&netrig().arg("down").env("NETRIG_RUN", directory.path()).output().unwrap(), 0);
        world::assert_nothing_left("by testbeds of few files");
    });
}

#[test]
fn root_that_lacks_a_capability_is_not_told_to_be_root() {
    world::own(|| {
        let Some(directory) = place() else { return };
        if !world::is_root() || !has_program("setpriv") {
            return;
        }
        let file = directory.path().join("suite.toml");
        fs::write(&file, suite("vrouter", "")).unwrap();
        let store = directory.path().join("runs.sqlite");
        let [file, store] = [&file, &store].map(|path| path.to_str().unwrap());
        let how = ["setpriv", "--bounding-set=-sys_admin,-bpf,-perfmon"];
        let said = refused(&how, &["run", file, "--store", store], directory.path(), 3);
        assert!(said.contains("root lacks CAP_SYS_ADMIN") && !said.contains("as root"), "{said}");
    });
}

#[test]
fn a_directory_that_is_read_only_is_named_before_anything_is_built() {
    world::own(|| {
        let Some(directory) = place() else { return };
        let [file, run] = ["suite.toml", "run"].map(|name| directory.path().join(name));
        fs::write(&file, suite("bridge", "")).unwrap();
        fs::create_dir(&run).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "ro,mode=700", "tmpfs"]).arg(&run).output().unwrap();
        if !mount.status.success() {
            return skip(Lack::Mounts, world::text(&mount.stderr));
        }
        let scenario = format!("{}/A", file.display());
        let said = refused(&["env"], &["up", &scenario], &run, 3);
        assert!(said.contains("Read-only file system") && said.contains("in NETRIG_RUN"), "{said}");
        assert!(said.contains(run.to_str().unwrap()) && !said.contains("as root"), "{said}");
        world::assert_nothing_left("by what was refused");
    });
}

/// A plain wire, and a vRouter: its programs and tables are more files than a wire and its load.
fn suite_of_a_vrouter(directory: &Path) -> PathBuf {
    let file = directory.join("suite.toml");
    fs::write(&file, suite_of_two(RAW, "path = \"vrouter\"\nfrom = \"a/sender\"\nto = \"b/receiver\"")).unwrap();
    file
}

/// Runs it by `how`.
fn run_of(mut how: Command, file: &Path, store: &Path) -> Output {
    how.arg(env!("CARGO_BIN_EXE_netrig")).arg("run").arg(file).args(["--trials", "1", "--no-aa", "--store"]);
    how.arg(store).output().unwrap()
}

fn assert_run_without_d(output: &Output, store: &Path, why: &str) {
    let (out, err) = expect(output, 0);
    let json = netrig().args(["report", "--format", "json", "--store"]).arg(store).output().unwrap();
    let json = serde_json::from_str(&expect(&json, 0).0).unwrap();
    assert_without_d(&out, &err, &json, why);
    world::assert_nothing_left("by what was left out");
}

/// What the verifier says of a program that [`refusing`] has refused.
const REFUSED: &str = "unknown#100000";

/// A library that has a program refused where it is loaded before the C library's.
fn refusing_library(directory: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/machine/refused.c");
    let library = directory.join("refused.so");
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(source).output();
    let Ok(made) = made else {
        skip(Lack::Program("cc"), "no C compiler");
        return None;
    };
    assert!(made.status.success(), "{}", world::text(&made.stderr));
    Some(library)
}

#[test]
fn a_scenario_with_a_program_that_the_verifier_refuses_is_left_out_and_the_rest_is_measured() {
    if !world::is_root() {
        return skip(Lack::Root, "a vRouter needs it");
    }
    world::own(|| {
        let Some(directory) = place() else { return };
        let Some(library) = refusing_library(directory.path()) else { return };
        let file = suite_of_a_vrouter(directory.path());
        // The first that is loaded is as good as one in the midst of them.
        for program in ["from_container", "to_analyser"] {
            let store = directory.path().join(format!("{program}.sqlite"));
            let refusing = |command: &mut Command| {
                command.env("LD_PRELOAD", &library).env("NETRIG_TEST_REFUSED", program);
            };
            let mut how = Command::new("env");
            refusing(&mut how);
            let output = run_of(how, &file, &store);
            assert_run_without_d(&output, &store, REFUSED);
            let err = world::text(&output.stderr);
            assert!(err.contains(&format!("prog '{program}'")), "{err}");

            let mut doctor = netrig();
            refusing(&mut doctor);
            let doctor = doctor.args(["doctor", "--json"]).env("NETRIG_RUN", directory.path());
            let (out, _) = expect(&doctor.output().unwrap(), 0);
            let log = directory.path().join(format!("verifier-{program}.log"));
            let told = format!("{REFUSED} (the verifier's log is in {})", log.display());
            assert!(out.contains(&told), "{out}");
            let text = fs::read_to_string(log).unwrap();
            assert!(
                text.contains("BEGIN PROG LOAD LOG") && text.contains(REFUSED) && text.contains("processed "),
                "{text}"
            );
        }
    });
}

/// What is tried before the run passes, and the router on its node is refused.
#[test]
fn a_scenario_whose_agent_is_refused_is_left_out_and_the_rest_is_measured() {
    if !world::is_root() {
        return skip(Lack::Root, "a vRouter needs it");
    }
    world::own(|| {
        let Some(directory) = place() else { return };
        let Some(library) = refusing_library(directory.path()) else { return };
        let file = suite_of_a_vrouter(directory.path());
        let store = directory.path().join("agent.sqlite");
        let mut how = Command::new("env");
        how.env("LD_PRELOAD", &library)
            .envs([("NETRIG_TEST_REFUSED", "from_container"), ("NETRIG_TEST_REFUSED_IN", "vrouter")]);
        let output = run_of(how, &file, &store);
        assert_run_without_d(&output, &store, REFUSED);
        let err = world::text(&output.stderr);
        assert!(err.contains("Not in this run: D: start vrouter on a: "), "{err}");
    });
}

/// What doctor says that a run of the suite leaves out, and that it runs.
fn foretold(doctor: &mut Command, suite: &str) -> (Vec<String>, Value) {
    // Where something is missing, its status is 3.
    let output = doctor.args(["doctor", "--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let of = report["suites"].as_array().unwrap().iter().find(|of| of["suite"] == suite).unwrap();
    let runs = of["scenarios"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
    (runs.collect(), of["left_out"].clone())
}

/// What doctor says of a suite is what a run of it does, whatever the machine lacks.
#[test]
fn doctor_says_what_a_run_leaves_out() {
    if !world::is_root() {
        return skip(Lack::Root, "a vRouter needs it");
    }
    world::own(|| {
        let Some(directory) = place() else { return };
        let Some(library) = refusing_library(directory.path()) else { return };
        let first = CpuSet::allowed().unwrap().as_slice()[0].to_string();
        let preloaded = format!("LD_PRELOAD={}", library.display());
        let refused = ["env", &preloaded, "NETRIG_TEST_REFUSED=from_container"];
        let of_few_rights = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin"];
        for how in [&["env"][..], &refused, &["taskset", "-c", &first], &of_few_rights] {
            if !has_program(how[0]) {
                continue;
            }
            let by = |arguments: &[&str]| {
                let mut command = Command::new(how[0]);
                command.args(&how[1..]).arg(env!("CARGO_BIN_EXE_netrig")).args(arguments);
                command
            };
            let (runs, left_out) = foretold(&mut by(&[]), "layers");
            assert!(how[0] != "env" || !runs.is_empty(), "{how:?}: {left_out}");
            assert!(how.len() == 1 || left_out[0]["reason"].is_string(), "{how:?}: {runs:?}");
            let store = directory.path().join(format!("{}.sqlite", how.len() + how[0].len()));
            let path = store.to_str().unwrap();
            let options = ["--quick", "--window", "200ms", "--trials", "1", "--no-aa", "--store", path];
            let output = by(&[&["run", "layers"][..], &options].concat()).output().unwrap();
            let told: Vec<SkippedScenarios> = serde_json::from_value(left_out.clone()).unwrap();
            let (_, said) = expect(&output, if runs.is_empty() { 3 } else { 0 });
            let header: Vec<&str> = match runs.is_empty() {
                true => said.lines().filter_map(|line| line.strip_prefix("  ")).collect(),
                false => said.lines().filter_map(|line| line.strip_prefix("Not in this run: ")).collect(),
            };
            assert_eq!(header, told.iter().map(ToString::to_string).collect::<Vec<_>>(), "{how:?}: {said}");
            if runs.is_empty() {
                continue;
            }
            let json = netrig().args(["report", "--format", "json", "--store", path]).output().unwrap();
            let json: Value = serde_json::from_str(&expect(&json, 0).0).unwrap();
            let made = json["data"]["scenarios"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap());
            assert_eq!(
                (made.collect::<Vec<_>>(), json["data"]["left_out"].as_array().cloned().unwrap_or_default()),
                (runs.iter().map(String::as_str).collect(), left_out.as_array().unwrap().clone())
            );
        }
    });
}

/// How far a run of a wire and a vRouter comes.
#[derive(Debug)]
enum RunExtent {
    /// Not to the wire, or not to the end.
    Nothing,
    /// Not to the vRouter, whose programs and tables are too many files.
    Wire,
    Whole,
}

impl RunExtent {
    fn of(output: &Output) -> Self {
        let err = world::text(&output.stderr);
        let without = |scenario: &str, what: &str| err.contains(&format!("Not in this run: {scenario}: {what}"));
        match output.status.success() && !without("A", "") {
            true if without("D", "load the vRouter's programs") => Self::Wire,
            true if !without("D", "") => Self::Whole,
            _ => Self::Nothing,
        }
    }
}

/// Looks for a number of open files that is enough for the wire alone: how many that is differs from build to build.
#[test]
fn a_scenario_whose_programs_are_refused_is_left_out_and_the_rest_is_measured() {
    if !world::is_root() {
        return skip(Lack::Root, "a vRouter needs it");
    }
    world::own(|| {
        if !has_program("prlimit") {
            return;
        }
        let Some(directory) = place() else { return };
        let file = suite_of_a_vrouter(directory.path());
        let (mut less, mut more) = (8_u32, 2048);
        let mut said = String::new();
        while more - less > 1 {
            let most = (f64::from(less) * f64::from(more)).sqrt() as u32;
            let most = most.clamp(less + 1, more - 1);
            let store = directory.path().join(format!("{most}.sqlite"));
            let mut how = Command::new("prlimit");
            how.arg(format!("--nofile={most}:{most}"));
            let output = run_of(how, &file, &store);
            let reached = RunExtent::of(&output);
            said += &format!("with {most}, {reached:?}: {}\n", world::text(&output.stderr));
            match reached {
                RunExtent::Nothing => less = most,
                RunExtent::Whole => more = most,
                RunExtent::Wire => {
                    return assert_run_without_d(&output, &store, &format!("{most} files open: raise the limit"));
                }
            }
        }
        panic!("no limit ends it there:\n{said}");
    });
}
