//! Where a running router is found: its socket and its lock.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rig_cli::bpf_file_system;
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::run_directory::RunDirectory;

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

    /// Locked by whoever runs the router, whose process it names.
    fn lock(&self) -> PathBuf {
        self.file(LOCK)
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
            let lock = File::open(file.path()).ok()?;
            matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(node)
        };
        let mut nodes: Vec<String> = files.filter_map(|file| node(file.ok()?)).collect();
        nodes.sort();
        nodes
    }
}

/// Held by the one process that runs the router of a node.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// One that was told to end may need this long until it has.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Lock {
    pub(crate) fn take(place: &Place) -> Result<Self, Failure> {
        place.run.make_below(DIRECTORY).or_exit(Exit::Lacking)?;
        let path = place.lock();
        let how = || format!("open {}", path.display());
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.with_context(how).or_exit(Exit::Lacking)?;
        let deadline = Instant::now() + LAST_WORDS;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => {
                    let mut process = String::new();
                    let _unknown = file.read_to_string(&mut process);
                    let (node, process) = (&place.node, process.trim());
                    let error = anyhow!("the router of node '{node}' is running already, as process {process}");
                    return Err(Failure::new(Exit::BadInput, error).with_next("end it first, or run another --node"));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(Failure::new(Exit::Failed, anyhow!("lock {}: {error}", path.display())));
                }
            }
        }
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.with_context(|| format!("write to {}", path.display())).or_exit(Exit::Failed)?;
        Ok(Self { _file: file })
    }
}
