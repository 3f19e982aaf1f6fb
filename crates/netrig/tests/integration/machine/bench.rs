//! A short suite and the store that it is run into.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rig_facts::store::{Run, Store};
use rig_sys::cpu::CpuSet;

use super::world::netrig;

/// A directory with a short suite of several testbeds, which is run into a store beside it. The suite has one node where
/// there is only one CPU.
pub struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scenarios = match CpuSet::allowed().unwrap().len() {
            1 => "[[scenario]]\nid = \"C\"\nname = \"Colocated\"\ntestbed = \"one\"\npath = \"colocated\"\n\
                  from = \"a/x\"\nto = \"a/y\"\n"
                .to_owned(),
            _ => "[[scenario]]\nid = \"R\"\nname = \"Raw\"\ntestbed = \"two\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
                  [[scenario]]\nid = \"V\"\nname = \"Overlay\"\ntestbed = \"two\"\npath = \"vxlan\"\n\
                  from = [\"a/x\", \"a/y\"]\nto = [\"b/x\", \"b/y\"]\n"
                .to_owned(),
        };
        let text = format!(
            "name = \"short\"\ntitle = \"A short suite\"\n\
             [defaults]\nwindow = \"100ms\"\nwarm_up = \"20ms\"\ncool_down = \"10ms\"\n\
             [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"128k\"\n\
             [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ }}\n[testbed.one]\nnodes = [\"a\"]\n{scenarios}"
        );
        fs::write(directory.path().join("suite.toml"), text).unwrap();
        Self { directory }
    }

    pub fn store(&self) -> PathBuf {
        self.path("runs.sqlite")
    }

    /// A run of three trials a scenario, of which each takes some 150 ms; the leader of a process group.
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = netrig();
        command.arg("run").arg(self.path("suite.toml")).args(["--trials", "3", "--store"]);
        command.arg(self.store()).args(more).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        command
    }

    pub fn start(&self, more: &[&str]) -> Child {
        self.command(more).spawn().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// All runs that are stored, read to the last trial; none when there is no store yet.
    pub fn runs(&self) -> Vec<Run> {
        if !self.store().exists() {
            return Vec::new();
        }
        let check: String = rusqlite::Connection::open(self.store())
            .and_then(|store| store.pragma_query_value(None, "integrity_check", |row| row.get(0)))
            .unwrap();
        assert_eq!(check, "ok");
        let store = match Store::open_to_read(&self.store()) {
            // Killed before the first transaction.
            Err(_) if fs::metadata(self.store()).unwrap().len() == 0 => return Vec::new(),
            store => store.unwrap(),
        };
        store.runs().unwrap().into_iter().map(|run| store.run(run.id).unwrap()).collect()
    }
}

/// Asserts that each trial of `run` is whole and that none is missing between the first and the last.
pub fn assert_whole(run: &Run) {
    for trial in &run.trials {
        assert_eq!(trial.workers.len() % 2, 0);
        assert!(!trial.workers.is_empty() && !trial.nodes.is_empty());
        let before =
            run.trials.iter().filter(|other| other.scenario == trial.scenario && other.ordinal < trial.ordinal);
        assert_eq!(
            before.count() as u32,
            trial.ordinal - 1,
            "a trial before {} #{} is lost",
            trial.scenario,
            trial.ordinal
        );
    }
}

/// How many trials netrig's progress told of.
pub fn trials_told(said: &str) -> usize {
    said.lines().filter(|line| line.contains("bit/s ")).count()
}

/// Writes a suite of one scenario on one node, and names it as `up` wants it.
pub fn one_node(directory: &Path, name: &str, from: &[&str], to: &[&str]) -> String {
    let text = format!(
        "name = \"{name}\"\ntitle = \"One node\"\n\
         [defaults]\nwindow = \"100ms\"\nwarm_up = \"0ms\"\ncool_down = \"0ms\"\n\
         [defaults.load]\nkind = \"tcp-stream\"\nmessage = \"1k\"\n[testbed.one]\nnodes = [\"a\"]\n\
         [[scenario]]\nid = \"S\"\nname = \"Colocated\"\ntestbed = \"one\"\npath = \"colocated\"\n\
         from = {from:?}\nto = {to:?}\n"
    );
    let path = directory.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    format!("{}/S", path.display())
}
