//! setsockopt(2) for options that std and rustix lack.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option whose value the kernel takes as `T` is laid out.
pub(crate) fn set_option<T>(socket: impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length are those of a value that lives through the call. What it may point to in turn, as a
    // filter's instructions or the memory of AF_XDP's frames, the kernel checks itself, as it does for any process.
    let result = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value, size_of::<T>() as libc::socklen_t)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
