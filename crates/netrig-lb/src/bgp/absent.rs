//! In the place of a speaker, where netrig was built without BGP: settings that have `[bgp]` are refused, so there is none.

use std::io;

use super::{Announcements, BgpSettings, SpeakerState};

#[derive(Debug)]
pub(crate) enum Announcer {}

impl Announcer {
    /// # Errors
    /// Always.
    pub(crate) fn start(_settings: &BgpSettings, _first: Announcements) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn announce(&self, _wanted: Announcements) {
        match *self {}
    }

    pub(crate) fn state(&self) -> SpeakerState {
        match *self {}
    }

    pub(crate) fn withdraw(self) {
        match self {}
    }
}
