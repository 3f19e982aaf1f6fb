//! Why io_uring cannot be used.

use std::io;

use super::Operation;

/// io_uring cannot be used, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum UringError {
    #[error(
        "io_uring is disabled by kernel.io_uring_disabled={setting}: set it with `sysctl kernel.io_uring_disabled=0`, or \
         use the blocking engine"
    )]
    Disabled { setting: u32 },
    #[error(
        "io_uring is forbidden to this process, as container runtimes do with a seccomp filter: allow the calls \
         io_uring_setup, io_uring_enter and io_uring_register, or use the blocking engine"
    )]
    Forbidden,
    #[error("this kernel has no io_uring (it needs Linux 5.6 and CONFIG_IO_URING): use the blocking engine")]
    Missing,
    #[error("this kernel's io_uring cannot {}: use another mode or the blocking engine", match work {
        Operation::Send => "send (Linux 5.6)",
        Operation::SendZeroCopy => "send without copying (Linux 6.0)",
        Operation::Receive | Operation::Discard => "receive (Linux 5.6)",
    })]
    MissingOperation { work: Operation },
    #[error("io_uring may lock no more memory: raise `ulimit -l`, or use fewer outstanding operations: {0}")]
    Memory(#[source] io::Error),
    #[error("set up io_uring: {0}")]
    Setup(#[source] io::Error),
}

impl UringError {
    /// Finds out what an error of io_uring_setup(2) or io_uring_register(2) means.
    pub(super) fn from_setup(error: io::Error) -> Self {
        let setting = || std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::denied(setting()),
            Some(libc::ENOSYS) => Self::Missing,
            Some(libc::ENOMEM) => Self::Memory(error),
            _ => Self::Setup(error),
        }
    }

    /// The kernel and a seccomp filter give the same error; the setting tells them apart.
    fn denied(setting: Option<u32>) -> Self {
        match setting {
            Some(setting @ 1..) => Self::Disabled { setting },
            _ => Self::Forbidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_who_refused() {
        assert!(matches!(UringError::denied(Some(2)), UringError::Disabled { setting: 2 }));
        assert!(matches!(UringError::denied(Some(0)), UringError::Forbidden));
        assert!(matches!(UringError::denied(None), UringError::Forbidden));
        let missing = UringError::from_setup(io::Error::from_raw_os_error(libc::ENOSYS));
        assert!(missing.to_string().contains("blocking engine"), "{missing}");
    }
}
