//! The signals that ask a program to stop, and calls that none may cut short.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Has the process begin as one that a login shell started: its children's ends are told to it, and no signal is blocked. What a parent
/// ignores or blocks goes on to its children through execve(2), and with SIGCHLD ignored there is nothing to wait for (wait(2)).
/// To be called while the process has one thread.
///
/// # Errors
/// The kernel's.
pub fn forget_inherited() -> io::Result<()> {
    // SAFETY: no handler is installed, and none was.
    if unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    let mut none = MaybeUninit::uninit();
    // SAFETY: sigemptyset writes the set, and pthread_sigmask reads it.
    let result = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut())
    };
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Whether the process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no action is given, and the present one is written where it has space; it is read when it was.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Calls `stop` at the first SIGINT, SIGTERM or SIGHUP, on a thread of its own; the second ends the process at once, as
/// the signal would have done without this. SIGHUP stays ignored where it is, as nohup(1) has it.
pub fn on_stop_signal(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up))?;
    let watch = move || {
        let mut stop = Some(stop);
        for signal in signals.forever() {
            match stop.take() {
                Some(stop) => stop(),
                None => {
                    let _ = emulate_default_handler(signal);
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map(|_| ())
}

/// Calls `stop` at SIGINT and SIGTERM and `hang_up` at each SIGHUP, on a thread of its own, as daemons take them; a second
/// SIGINT or SIGTERM ends the process at once.
pub fn on_stop_or_hangup(
    stop: impl FnOnce() + Send + 'static,
    mut hang_up: impl FnMut() + Send + 'static,
) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let watch = move || {
        let mut stop = Some(stop);
        for signal in signals.forever() {
            match (signal, stop.take()) {
                (SIGHUP, not_yet) => {
                    stop = not_yet;
                    hang_up();
                }
                (_, Some(stop)) => stop(),
                (_, None) => {
                    let _ = emulate_default_handler(signal);
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map(|_| ())
}

/// The signals by which a program is told something by others, and that it does with as it likes.
const FOR_A_COMMAND: [i32; 7] = [SIGHUP, SIGINT, libc::SIGQUIT, SIGTERM, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM];

/// Signals for a command that this process runs in its own place.
pub struct CommandSignals {
    held: libc::sigset_t,
    /// What was blocked before.
    before: libc::sigset_t,
}

impl std::fmt::Debug for CommandSignals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CommandSignals").field(&FOR_A_COMMAND).finish()
    }
}

impl CommandSignals {
    /// Keeps them from this thread and those that it starts from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hold() -> io::Result<Self> {
        let (mut held, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigemptyset writes the first set, the others change and read it; pthread_sigmask writes the second.
        unsafe {
            libc::sigemptyset(held.as_mut_ptr());
            for signal in FOR_A_COMMAND {
                libc::sigaddset(held.as_mut_ptr(), signal);
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, held.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self { held: held.assume_init(), before: before.assume_init() }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Has the command begin with what was blocked before: execve(2) leaves that as it is.
    pub fn leave_to(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: between fork and exec the closure makes one system call on a value of its own; it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(move || {
                match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) {
                    0 => Ok(()),
                    error => Err(io::Error::from_raw_os_error(error)),
                }
            });
        }
    }

    /// Waits for the next one that a process has sent. What the terminal sends, all of its foreground processes get.
    pub fn next(&self) -> i32 {
        loop {
            let mut told = MaybeUninit::<libc::siginfo_t>::uninit();
            // SAFETY: the set is read, and what is told is written where it has space and read when it was.
            let (signal, code) = unsafe {
                let signal = libc::sigwaitinfo(&raw const self.held, told.as_mut_ptr());
                (signal, if signal > 0 { told.assume_init().si_code } else { libc::SI_KERNEL })
            };
            if signal > 0 && code != libc::SI_KERNEL {
                return signal;
            }
        }
    }
}

/// Ends this process as a signal ends one that does nothing about it. Returns where it does not.
pub fn die_of(signal: i32) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset writes the set, the others change and read it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    }
    let _ = emulate_default_handler(signal);
}

/// Runs `body` while no signal comes to the calling thread; one that came meanwhile does afterwards. For calls that the kernel gives up as
/// soon as a signal is there, however far they are, and that cannot be made again.
///
/// # Errors
/// The kernel's.
pub fn deferred<T>(body: impl FnOnce() -> T) -> io::Result<T> {
    struct Restored(libc::sigset_t);
    impl Drop for Restored {
        fn drop(&mut self) {
            // SAFETY: the set is the one that the kernel gave for this thread.
            let _always_valid = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
        }
    }
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset writes the first set, and pthread_sigmask reads it and writes the second.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        match libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) {
            0 => before.assume_init(),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    };
    let _restored = Restored(before);
    Ok(body())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_signal_comes_when_the_call_is_over() {
        let came = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&came)).unwrap();
        let during = deferred(|| {
            // SAFETY: the signal has a handler, and the thread is this one.
            assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) }, 0);
            came.load(Ordering::SeqCst)
        });
        assert_eq!((during.unwrap(), came.load(Ordering::SeqCst)), (false, true));
    }
}
