//! System calls past the C library. musl's sendmmsg and recvmmsg make a system call for each message, and its
//! sched_setscheduler fails always (ENOSYS); a netrig that is linked with it must measure as any other.

use std::os::fd::RawFd;

/// sendmmsg(2).
///
/// # Safety
/// As for sendmmsg(2): `headers` are `count` headers, whose pointers are good for the lengths beside them.
pub(crate) unsafe fn sendmmsg(fd: RawFd, headers: *mut libc::mmsghdr, count: usize, flags: i32) -> i64 {
    // SAFETY: the caller's word. The kernel's layout is the C library's, whose padding is zero as the headers began as zeroes.
    unsafe { libc::syscall(libc::SYS_sendmmsg, fd, headers, count as libc::c_uint, flags) as i64 }
}

/// recvmmsg(2) without a time-out.
///
/// # Safety
/// As for recvmmsg(2): `headers` are `count` headers, whose pointers are good for the lengths beside them.
pub(crate) unsafe fn recvmmsg(fd: RawFd, headers: *mut libc::mmsghdr, count: usize, flags: i32) -> i64 {
    let no_time_out = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: as for `sendmmsg`.
    unsafe { libc::syscall(libc::SYS_recvmmsg, fd, headers, count as libc::c_uint, flags, no_time_out) as i64 }
}

/// Puts a thread, 0 for the calling one, into the real-time class SCHED_FIFO with this priority, 1 to 99; `flags` such as
/// SCHED_RESET_ON_FORK. False, with errno, when the kernel refuses.
pub(crate) fn set_fifo(thread: u32, flags: i32, priority: u8) -> bool {
    // What the kernel reads of a sched_param is its first field; in musl's there are more.
    let parameter = libc::c_int::from(priority);
    // SAFETY: the pointer is to an int that lives through the call, which only reads it.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, libc::SCHED_FIFO | flags, &raw const parameter) == 0 }
}
