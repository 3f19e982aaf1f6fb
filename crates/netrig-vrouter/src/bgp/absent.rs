//! In the place of a speaker, where netrig was built without BGP: settings that name one are refused, so there is none.

use std::io;
use std::iter::Empty;
use std::time::Duration;

use super::{Order, SpeakerEvent};

#[derive(Debug)]
pub enum Speaker {}

impl Speaker {
    /// # Errors
    /// Always.
    pub fn start(_order: Order, _wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn order(&self, _order: Order) {
        match *self {}
    }

    pub fn heard(&self) -> Empty<SpeakerEvent> {
        match *self {}
    }

    pub fn wait(&self, _time_limit: Duration) -> Option<SpeakerEvent> {
        match *self {}
    }

    pub fn withdraw(self) {
        match self {}
    }
}

/// # Errors
/// Always.
pub fn probe(_address: &str) -> Result<(u32, String), String> {
    Err("this netrig was built without BGP".to_owned())
}
