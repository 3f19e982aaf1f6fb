//! A process of which there is one: a file that it holds locked, with its number in it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use rig_cli::exit::{Exit, ExitContext, Failure};

/// Held by the one process until it ends, however it does.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// One that was told to end may need this long until it has.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

impl Lock {
    /// Takes the one at `path`, in a directory that is there. `taken` says what is wrong where another process has it, whose
    /// number it is given as it stands there.
    pub fn take(path: &Path, taken: impl FnOnce(&str) -> Failure) -> Result<Self, Failure> {
        let how = || format!("open {}", path.display());
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = opened.with_context(how).or_exit(Exit::Lacking)?;
        let deadline = Instant::now() + SHUTDOWN_GRACE;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                Err(TryLockError::WouldBlock) => {
                    let mut process = String::new();
                    let _unknown = file.read_to_string(&mut process);
                    return Err(taken(process.trim()));
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

    /// Whether a process holds it now.
    pub fn is_held(path: &Path) -> bool {
        let Ok(file) = File::open(path) else { return false };
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Waits until no process holds it; says whether that has come.
    pub fn wait_until_free(path: &Path, time_limit: Duration) -> bool {
        let Ok(file) = File::open(path) else { return true };
        let deadline = Instant::now() + time_limit;
        loop {
            match file.try_lock_shared() {
                Ok(()) => return true,
                Err(_) if Instant::now() > deadline => return false,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}
