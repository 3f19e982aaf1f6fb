//! The process that writes a run, so that a reader can tell a run that goes on from one whose runner was killed.

use std::fs;
use std::io;

use rig_sys::process;

/// A process as no other will ever be: its id, when it started and in which life of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runner {
    pub pid: u32,
    /// Clock ticks after boot (field 22 of /proc/PID/stat, proc_pid_stat(5)).
    pub start: u64,
    /// /proc/sys/kernel/random/boot_id, random(4).
    pub boot: String,
}

impl Runner {
    /// This process. The id is the one that /proc shows, which is what a reader will look for.
    pub fn this_process() -> io::Result<Self> {
        let link = fs::read_link("/proc/self")?;
        let find = || {
            let pid = link.to_str()?.parse().ok()?;
            Some((pid, process::start_time(pid)?))
        };
        let (pid, start) = find().ok_or_else(|| io::Error::other("/proc does not show this process"))?;
        Ok(Self { pid, start, boot: boot_id()? })
    }

    pub fn is_alive(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot) && process::start_time(self.pid) == Some(self.start)
    }
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_start_or_another_boot_is_another_process() {
        let me = Runner::this_process().expect("/proc is mounted");
        assert_eq!(me.pid, std::process::id());
        assert!(me.is_alive());
        assert!(!Runner { start: me.start + 1, ..me.clone() }.is_alive());
        assert!(!Runner { boot: "of-yesterday".to_owned(), ..me }.is_alive());
    }
}
