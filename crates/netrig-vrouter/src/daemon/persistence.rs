//! What a router leaves behind that persists, and finds again: flows, counters and programs on interfaces, which are pinned,
//! and the numbers that they know things by.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::{fs, io};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_datapath::Error;
use rig_datapath::vrouter::{Router, Sizes, keep, open_all};
use rig_service::bpf_file_system;
use rig_service::files::ServiceFiles;
use rig_service::run_directory;
use tracing::{info, warn};

use super::refused;
use crate::compile::Numbers;
use crate::instance::NUMBERS;

/// What a router begins with.
pub(super) struct RestoredRouter {
    pub(super) router: Router,
    pub(super) numbers: Numbers,
    /// Where the numbers are kept.
    pub(super) kept: Option<PathBuf>,
}

/// One that ends with its process.
pub(super) fn begin_without(files: &ServiceFiles, sizes: Sizes) -> Result<RestoredRouter, Failure> {
    if keep::is_kept(&files.pins()) {
        let node = files.instance();
        let error = anyhow!(
            "the router of node '{node}' persists here, without a process, by what is pinned in {}",
            files.pins().display()
        );
        let next = format!("go on with it by --persist, or end it by `netrig vrouter release --node {node}`");
        return Err(Failure::new(Exit::BadInput, error).with_next(next));
    }
    RestoredRouter::new(sizes)
}

impl RestoredRouter {
    /// Of which nothing is kept.
    pub(super) fn new(sizes: Sizes) -> Result<Self, Failure> {
        Ok(Self { router: Router::load(sizes).map_err(refused)?, numbers: Numbers::default(), kept: None })
    }
}

/// One that goes on with what was kept, where there is something that it can go on with, and is kept itself.
pub(super) fn begin(files: &ServiceFiles, sizes: Sizes) -> Result<RestoredRouter, Failure> {
    bpf_file_system::have("netrig vrouter run --persist")?.into_iter().for_each(|line| info!("{line}"));
    let pins = files.pins();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&pins);
    made.with_context(|| format!("make {}", pins.display())).or_exit(Exit::Lacking)?;
    let kept = Some(files.file(NUMBERS));
    if keep::is_kept(&pins) {
        match resume(files, sizes) {
            Ok((router, numbers)) => return Ok(RestoredRouter { router, numbers, kept }),
            Err(why) => warn!("flows of the router before are forgotten: {why}"),
        }
    }
    let mut router = Router::load(sizes).map_err(refused)?;
    router.keep(&pins).map_err(refused)?;
    Ok(RestoredRouter { router, numbers: Numbers::default(), kept })
}

fn resume(files: &ServiceFiles, sizes: Sizes) -> Result<(Router, Numbers), String> {
    let path = files.file(NUMBERS);
    let unreadable = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = fs::read(&path).map_err(|error| unreadable(&error))?;
    let numbers = serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
    match Router::resume(sizes, &files.pins()) {
        Ok(router) => Ok((router, numbers)),
        Err(Error::PinnedOtherwise { .. }) => Err("its tables are of other sizes, or of another version".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// To be called before the tables are told: flows are known by these numbers from then on.
pub(super) fn keep_numbers(path: &std::path::Path, numbers: &Numbers) -> anyhow::Result<()> {
    let text = serde_json::to_vec(numbers)?;
    run_directory::replace(path, &text).with_context(|| format!("write to {}", path.display()))
}

/// Takes all of it away; says whether there was something.
pub(super) fn release(files: &ServiceFiles) -> Result<bool, Failure> {
    let was_there = keep::is_kept(&files.pins());
    keep::release(&files.pins()).map_err(refused)?;
    bpf_file_system::leave(&files.pins());
    match fs::remove_file(files.file(NUMBERS)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", files.file(NUMBERS).display())).or_exit(Exit::Failed)
        }
        _ => Ok(was_there),
    }
}

/// Opens the interfaces that a router of this node has closed; says which ones.
pub(super) fn open(node: &str) -> Result<Option<String>, Failure> {
    let opened = open_all(node).map_err(refused)?;
    Ok((!opened.is_empty()).then(|| format!("open again without a router: {}", opened.join(", "))))
}
