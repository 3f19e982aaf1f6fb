//! Where a running router is found: its socket and its lock.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_service::bpf_file_system;
use rig_service::lock::Lock;
use rig_service::run_directory::RunDirectory;

/// Of all routers, in the directory of what runs.
const DIRECTORY: &str = "vrouter";
const LOCK: &str = "lock";

/// The files of the router of one node of the settings, whose name it has.
#[derive(Debug, Clone)]
pub struct Place {
    run: RunDirectory,
    node: String,
}

impl Place {
    pub fn of(node: &str) -> Self {
        Self { run: RunDirectory::of_machine(), node: node.to_owned() }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// Requests come by this one.
    pub fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// For the one process that runs the router.
    pub(crate) fn lock(&self) -> Result<Lock, Failure> {
        self.run.make_below(DIRECTORY).or_exit(Exit::Lacking)?;
        Lock::take(&self.file(LOCK), |process| {
            let error = anyhow!("the router of node '{}' is running already, as process {process}", self.node);
            Failure::new(Exit::BadInput, error).with_next("end it first, or run another --node")
        })
    }

    /// Where flows and attachments of a router that persists are pinned.
    pub(crate) fn pins(&self) -> PathBuf {
        Path::new(bpf_file_system::ROOT).join("netrig-vrouter").join(&self.node)
    }

    /// The numbers that the tables of a router that persists know things by, see [`Numbers`](crate::compile::Numbers).
    pub(crate) fn numbers(&self) -> PathBuf {
        self.file("numbers")
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.run.path().join(DIRECTORY).join(format!("{}.{extension}", self.node))
    }

    /// Nodes whose routers run here.
    pub fn running() -> Vec<String> {
        let Ok(files) = fs::read_dir(RunDirectory::of_machine().path().join(DIRECTORY)) else { return Vec::new() };
        let node = |file: fs::DirEntry| {
            let node = file.file_name().to_str()?.strip_suffix(&format!(".{LOCK}"))?.to_owned();
            Lock::is_held(&file.path()).then_some(node)
        };
        let mut nodes: Vec<String> = files.filter_map(|file| node(file.ok()?)).collect();
        nodes.sort();
        nodes
    }
}
