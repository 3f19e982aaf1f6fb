//! Child processes that live in a namespace and die with their parent.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::netns::NetNs;

/// Makes `command` start its process inside `ns`. The namespace must stay open until the process was spawned.
pub fn in_namespace<'a>(command: &'a mut Command, ns: &NetNs) -> &'a mut Command {
    let fd = ns.raw_fd();
    // SAFETY: between fork and exec the closure makes one system call on a number it owns a copy of; it allocates
    // nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            if libc::setns(fd, libc::CLONE_NEWNET) == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })
    }
}

/// Makes the kernel kill `command`'s process when the *thread* that spawned it ends (PR_SET_PDEATHSIG): spawn from a
/// thread that outlives the child.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id() as libc::pid_t;
    // SAFETY: between fork and exec the closure makes system calls only; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the request was made; then no signal will come.
            if libc::getppid() != parent {
                libc::_exit(1);
            }
            Ok(())
        })
    }
}

/// Gives the children that this process starts from now on a process namespace: the first of them, which has to be started by this
/// function, is its first process, with whose end all that it left running is killed (pid_namespaces(7)). The calling process
/// must have one thread, and cannot start another one afterwards. Needs CAP_SYS_ADMIN in its user namespace.
///
/// # Errors
/// The kernel's.
pub fn start_alone(command: &mut Command) -> io::Result<std::process::Child> {
    // SAFETY: the flag changes nothing of this process, only where its next children are.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWPID) }?;
    // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| {
            // A parent that died before has number 0 here, as one that lives.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })
    }
    .spawn()
}

/// Undoes for the calling process what [`die_with_parent`] has its parent do.
///
/// # Errors
/// The kernel's.
pub fn outlive_parent() -> io::Result<()> {
    // SAFETY: the call changes one setting of this process and touches no memory.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes `command`'s process the leader of a session of its own, so that no terminal's signals reach it.
pub fn in_own_session(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(|| if libc::setsid() >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }) }
}

/// Makes `command`'s process the leader of a process group of its own, so that the terminal's Ctrl-C reaches the
/// parent alone and the parent decides.
pub fn in_own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// When a process started, in clock ticks since boot (field 22 of /proc/PID/stat): with its number it names a process
/// uniquely between two boots. `None` for a process that has ended, also while its parent has not collected it: a
/// parent that died leaves that to process 1, which may take seconds or never do it.
pub fn start_time(pid: u32) -> Option<u64> {
    start_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn start_of(stat: &str) -> Option<u64> {
    let mut fields = behind_name(stat)?;
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The fields of /proc/PID/stat from the third on: the second is the command in parentheses and may itself contain spaces and
/// parentheses.
fn behind_name(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

/// Whose a process is, as /proc/PID/stat tells (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessOrigin {
    pub parent: u32,
    /// A thread of the kernel.
    pub is_of_kernel: bool,
}

/// PF_KTHREAD of the kernel's include/linux/sched.h.
const OF_KERNEL: u64 = 0x0020_0000;

/// `None` for a process that is gone.
pub fn kin(pid: u32) -> Option<ProcessOrigin> {
    kin_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn kin_of(stat: &str) -> Option<ProcessOrigin> {
    let mut fields = behind_name(stat)?.skip(1);
    let parent = fields.next()?.parse().ok()?;
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    Some(ProcessOrigin { parent, is_of_kernel: flags & OF_KERNEL != 0 })
}

/// Kills a process at once. Succeeds when it is gone already.
pub fn kill(pid: u32) -> io::Result<()> {
    signal(pid, rustix::process::Signal::KILL)
}

/// Whether a child has ended. It is not waited for: its number stays its own.
///
/// # Errors
/// When there is no such child.
pub fn has_ended(pid: u32) -> io::Result<bool> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), options)?.is_some())
}

/// Kills at once all processes of the group that this one leads. Succeeds when there is none any more.
pub fn kill_group(pid: u32) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return Ok(()) };
    match rustix::process::kill_process_group(pid, rustix::process::Signal::KILL) {
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Asks a process to end (SIGTERM). Succeeds when it is gone already.
pub fn terminate(pid: u32) -> io::Result<()> {
    signal(pid, rustix::process::Signal::TERM)
}

/// A process by a descriptor, which no other process ever has. Needs Linux 5.3.
#[derive(Debug)]
pub struct RunningProcess(std::os::fd::OwnedFd);

impl RunningProcess {
    /// A child that was not waited for.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(child: u32) -> io::Result<Self> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let number = i32::try_from(child).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(number, PidfdFlags::empty())?))
    }

    /// Sends it a signal by its number.
    ///
    /// # Errors
    /// The kernel's, also when it is gone.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        let signal = rustix::process::Signal::from_named_raw(number).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(rustix::process::pidfd_send_signal(&self.0, signal)?)
    }
}

fn signal(pid: u32, signal: rustix::process::Signal) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return Ok(()) };
    match rustix::process::kill_process(pid, signal) {
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Kills at once the process that started at `start_time` (see [`start_time`]), and no other that got its number since.
/// Succeeds when it is gone already. Needs Linux 5.3.
pub fn kill_started(pid: u32, start_time: u64) -> io::Result<()> {
    let Some(number) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return Ok(()) };
    let killed = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()).and_then(|process| {
        // What the descriptor means cannot change any more.
        match self::start_time(pid) == Some(start_time) {
            true => rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL),
            false => Ok(()),
        }
    });
    match killed {
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The real user that the process runs for, as seen from its own user namespace.
pub fn user_id() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Whether the process may make files in this directory.
pub fn may_write(directory: &Path) -> io::Result<()> {
    use rustix::fs::{Access, access};
    Ok(access(directory, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Connects standard input, output and error to /dev/null, for a process that stays on after its starter has gone.
pub fn close_standard_streams() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Columns of the terminal on standard output, if it is one.
pub fn terminal_width() -> Option<u16> {
    columns(rustix::stdio::stdout())
}

/// Columns of the terminal on standard error, if it is one.
pub fn error_terminal_width() -> Option<u16> {
    columns(rustix::stdio::stderr())
}

fn columns(stream: BorrowedFd<'_>) -> Option<u16> {
    rustix::termios::tcgetwinsize(stream).ok().map(|size| size.ws_col).filter(|&columns| columns > 0)
}

/// Of before [`raise_file_limit`].
static FILE_LIMIT: OnceLock<u64> = OnceLock::new();

/// Starts `command`'s process with the soft limit of open files of before [`raise_file_limit`]: programs that use select(2), or close all
/// files that they may have, count on a low one.
pub fn with_first_file_limit(command: &mut Command) -> &mut Command {
    let Some(first) = FILE_LIMIT.get().copied() else { return command };
    // SAFETY: between fork and exec the closure makes system calls only, on a value of its own; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
                return Err(io::Error::last_os_error());
            }
            limit.rlim_cur = first.min(limit.rlim_max);
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })
    }
}

/// Raises the soft limit of open files to the hard one: the customary 1024 are too few for hundreds of namespaces or
/// thousands of connections. Opening the file that is one too many will tell if it did not suffice.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let _known = FILE_LIMIT.set(current.unwrap_or(u64::MAX));
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_meant_is_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let start = start_time(child.id()).unwrap();
        kill_started(child.id(), start + 1).unwrap();
        assert!(child.try_wait().unwrap().is_none());
        kill_started(child.id(), start).unwrap();
        assert!(!child.wait().unwrap().success());
        kill_started(child.id(), start).unwrap();
    }

    #[test]
    fn a_command_with_parentheses_does_not_shift_the_fields() {
        let tail = "1 2 2 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 8775 2 3";
        let of = |head: &str| start_of(&format!("{head} {tail}"));
        assert_eq!(of("17 (a) b (c) S"), Some(8775));
        assert_eq!(of("17 (gone) Z"), None);
        assert_eq!(start_of("17 (cut) S 1 2"), None);
    }

    #[test]
    fn what_a_process_is_stands_behind_its_name() {
        let thread = "15 (kworker/0:1) I) I 2 0 0 0 -1 69238880 0 0";
        assert_eq!(kin_of(thread), Some(ProcessOrigin { parent: 2, is_of_kernel: true }));
        let shell = "812 (a ) b) S 77 812 812 34816 900 4194304 1 2";
        assert_eq!(kin_of(shell), Some(ProcessOrigin { parent: 77, is_of_kernel: false }));
        assert_eq!(kin_of("812 (sh) S"), None);
    }
}
