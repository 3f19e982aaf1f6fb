//! What comes to the control plane, by the socket and otherwise.

use rig_service::ask::{self, Answer};

use crate::message::{Reply, Request};

pub(super) type Ask = ask::Ask<Request, Reply>;

pub(super) enum Event {
    Ask(Ask),
    /// The configuration file shall be read again.
    Reload,
    Stop,
}

impl Answer for Reply {
    fn is_last(&self) -> bool {
        !matches!(self, Self::Connections { last: false, .. })
    }

    fn refused(what: String, hint: Option<String>) -> Self {
        Self::Refused { what, hint, edit: None }
    }
}
