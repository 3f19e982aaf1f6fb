//! One error type: which operation on which object failed, and the kernel's reason.

use std::io;

/// A kernel operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {source}")]
pub struct Error {
    /// The operation and its object, e.g. `create veth pair a:eth0 - b:eth0`.
    pub operation: String,
    pub source: io::Error,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(operation: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { operation: operation.into(), source: source.into() }
    }

    /// The errno, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// True when the kernel refused for lack of privilege.
    pub fn is_permission(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Names the operation of a failed system call.
pub(crate) trait ErrorContext<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> ErrorContext<T> for std::result::Result<T, E> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::new(operation(), source))
    }
}
