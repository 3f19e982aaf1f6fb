//! What this kernel, this process and this machine can do: facts only, found by trying where trying is possible. What a
//! lack means and how to mend it is for the reader of the facts to say.

mod activity;
mod idle;
mod machine;
mod namespaces;
mod packets;
mod privileges;
mod sockets;

use std::fmt;
use std::time::Duration;

pub use activity::{BusyProcess, MachineActivity, ProcessOwner, load_average};
pub use idle::{Idle, IdleState};
pub use machine::Machine;
pub use namespaces::ipvlan;
pub use namespaces::{Access, Feature, Namespaces};
pub use packets::Packets;
pub use privileges::Privileges;
pub use sockets::{Sockets, try_congestion_control};

use crate::error::Error;
use serde::{Deserialize, Serialize};

/// Everything there is to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Facts {
    pub machine: Machine,
    pub privileges: Privileges,
    pub activity: MachineActivity,
    pub sockets: Sockets,
    pub namespaces: Namespaces,
}

impl Facts {
    /// Looks at everything; watches what else the machine does for as long as `sample`.
    ///
    /// A process that may not create network namespaces is moved into a user namespace for the purpose and stays there,
    /// so this is for a process that has one thread and little else to do. Nothing else outlives the call: namespaces
    /// and interfaces that are made here exist on file descriptors alone.
    pub fn gather(sample: Duration) -> Self {
        Self {
            machine: Machine::read(),
            privileges: Privileges::read(),
            activity: MachineActivity::watch(sample),
            sockets: Sockets::try_out(),
            // Last, because it may change what the process is.
            namespaces: Namespaces::try_out(),
        }
    }
}

/// An operation that was tried and not granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Refusal {
    /// The operation and its object.
    pub operation: String,
    pub errno: Option<i32>,
    /// The kernel's reason in words.
    pub reason: String,
}

impl Refusal {
    pub fn new(operation: impl Into<String>, error: &std::io::Error) -> Self {
        // Without the " (os error N)" of io::Error, which says nothing to the reader.
        let reason = error.to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default().to_owned();
        Self { operation: operation.into(), errno: error.raw_os_error(), reason }
    }

    /// True when the kernel does not know the thing at all, rather than refusing it to this process.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno,
            Some(
                libc::EOPNOTSUPP
                    | libc::ENOENT
                    | libc::ENOSYS
                    | libc::ENODEV
                    | libc::EAFNOSUPPORT
                    | libc::EPROTONOSUPPORT
            )
        )
    }

    /// True when this process lacks rights.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno, Some(libc::EPERM | libc::EACCES))
    }

    /// True when the place is mounted read-only.
    pub fn is_read_only(&self) -> bool {
        self.errno == Some(libc::EROFS)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::new(error.operation, &error.source)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.reason)
    }
}

/// What came of an attempt.
pub type ProbeResult = Result<(), Refusal>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_what_and_why_and_keeps_the_errno() {
        let error = Error::new("create bridge br0", std::io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        let refusal = Refusal::from(error);
        assert_eq!(refusal.to_string(), "create bridge br0: Operation not supported");
        assert!(refusal.is_unsupported());
        let denied = Refusal::new("create bridge br0", &std::io::Error::from_raw_os_error(libc::EPERM));
        assert!(!denied.is_unsupported() && denied.is_denied());
    }
}
