//! The monotonic clock, which all processes of one machine share, and the CPU time of processes and threads.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// How much CLOCK_REALTIME shows more than CLOCK_MONOTONIC. It stays the same until somebody sets the former: both run at one
/// rate, also where that is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RealtimeAhead {
    pub ns: i64,
    /// The true difference is not further from `ns` than this.
    pub bound_ns: u64,
}

impl RealtimeAhead {
    /// The best of a few readings.
    pub fn read() -> Self {
        const READINGS: usize = 4;
        let read = || {
            let before = monotonic_ns();
            let now = clock_gettime(ClockId::Realtime);
            let took = monotonic_ns().saturating_sub(before);
            let now = now.tv_sec as i64 * 1_000_000_000 + now.tv_nsec as i64;
            Self { ns: now - (before + took / 2) as i64, bound_ns: took.div_ceil(2) }
        };
        (1..READINGS).fold(read(), |best, _| Some(read()).filter(|next| next.bound_ns < best.bound_ns).unwrap_or(best))
    }

    /// A time of CLOCK_REALTIME by CLOCK_MONOTONIC.
    pub fn monotonic(self, realtime_ns: u64) -> u64 {
        realtime_ns.saturating_add_signed(self.ns.saturating_neg())
    }

    /// Whether nobody set CLOCK_REALTIME between this reading and `other`.
    pub fn agrees(self, other: Self) -> bool {
        self.ns.abs_diff(other.ns) <= self.bound_ns + other.bound_ns
    }
}

/// Sleeps until `deadline_ns` of CLOCK_MONOTONIC; returns at once when it has passed.
pub fn sleep_until(deadline_ns: u64) {
    let deadline = Timespec { tv_sec: (deadline_ns / 1_000_000_000) as _, tv_nsec: (deadline_ns % 1_000_000_000) as _ };
    // An absolute sleep that a signal cut short is simply started again.
    while clock_nanosleep_absolute(ClockId::Monotonic, &deadline).is_err() && monotonic_ns() < deadline_ns {}
}

/// [`monotonic_ns`] plus `delay`.
pub fn monotonic_after(delay: Duration) -> u64 {
    monotonic_ns() + delay.as_nanos() as u64
}

/// CPU time of the calling process since it began, all threads together (getrusage(2), RUSAGE_SELF), in nanoseconds:
/// user, then system. The sum is exact to the kernel's scheduler clock, its split follows the timer tick.
pub fn process_cpu_ns() -> (u64, u64) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a writable rusage, and the call fills it; it cannot fail for RUSAGE_SELF, and if it
    // did, all zeroes is a valid value of this struct of integers.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// CPU time of the calling thread in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of another thread of this process in nanoseconds. Fails when the thread has ended.
pub fn thread_cpu_ns<T>(thread: &JoinHandle<T>) -> io::Result<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: a JoinHandle that can be borrowed is neither joined nor detached, so its pthread_t is valid even when
    // the thread has ended, which the call then reports.
    let error = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t() as libc::pthread_t, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a writable timespec.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Makes the calling thread run as soon as the time comes that it waits for, even on a busy CPU: in the real-time class
/// where that is allowed (SCHED_FIFO, sched(7)), else with the shortest time slice (Linux 6.12). Meant for a thread that
/// hardly ever runs. Neither threads nor processes that it starts inherit it. False when the kernel refused both.
pub fn be_punctual() -> bool {
    /// The shortest slice that the kernel takes.
    const SLICE_NS: u64 = 100_000;

    if crate::direct::set_fifo(0, libc::SCHED_RESET_ON_FORK, 1) {
        return true;
    }
    // SAFETY: all zeroes is a valid sched_attr: nice 0 in the class SCHED_OTHER.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the pointer is to a sched_attr that lives through the call, and its size is in it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ended_has_no_clock() {
        let thread = std::thread::spawn(|| ());
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        // The kernel's part of the thread ends shortly after its closure.
        let deadline = monotonic_after(Duration::from_secs(5));
        while thread_cpu_ns(&thread).is_ok() {
            assert!(monotonic_ns() < deadline, "the clock of an ended thread still runs");
            std::thread::yield_now();
        }
        thread.join().unwrap();
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                std::hint::spin_loop();
            }
            own_cpu_ns()
        });
        let begin = thread_cpu_ns(&worker).unwrap();
        let (user, system) = process_cpu_ns();
        while thread_cpu_ns(&worker).unwrap() < begin + 20_000_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (user_after, system_after) = process_cpu_ns();
        drop(stop);
        assert!(worker.join().unwrap() >= begin + 20_000_000);
        assert!(user_after + system_after >= user + system + 19_000_000);
    }
}
