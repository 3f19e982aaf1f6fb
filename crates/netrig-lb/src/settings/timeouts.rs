//! Timeouts of which some are said and the others are the defaults.

use std::time::Duration;

use rig_datapath::balancer::{Protocol, Timeouts};

/// By name, as files and messages say them.
type Field = (&'static str, fn(&mut Timeouts) -> &mut Duration);

const FIELDS: [Field; 9] = [
    ("none", |timeouts| &mut timeouts.none),
    ("syn_received", |timeouts| &mut timeouts.syn_received),
    ("established", |timeouts| &mut timeouts.established),
    ("fin_wait", |timeouts| &mut timeouts.fin_wait),
    ("close_wait", |timeouts| &mut timeouts.close_wait),
    ("time_wait", |timeouts| &mut timeouts.time_wait),
    ("close", |timeouts| &mut timeouts.close),
    ("udp_one_way", |timeouts| &mut timeouts.udp_one_way),
    ("udp_normal", |timeouts| &mut timeouts.udp_normal),
];

/// The timeouts that are said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TimeoutOverrides([Option<Duration>; FIELDS.len()]);

impl TimeoutOverrides {
    pub fn names() -> impl Iterator<Item = &'static str> {
        FIELDS.iter().map(|(name, _)| *name)
    }

    /// False when there is no timeout of this name.
    #[must_use]
    pub fn set(&mut self, name: &str, timeout: Duration) -> bool {
        let field = FIELDS.iter().position(|(known, _)| *known == name);
        if let Some(field) = field {
            self.0[field] = Some(timeout);
        }
        field.is_some()
    }

    /// What ipvsadm calls a service's timeout, or that of a protocol: see `TimeoutOverrides::main_name`.
    pub fn set_main(&mut self, protocol: Protocol, timeout: Duration) {
        let _known = self.set(Self::main_name(protocol), timeout);
    }

    pub fn main(&self, protocol: Protocol) -> Option<Duration> {
        self.said().find(|(name, _)| *name == Self::main_name(protocol)).map(|(_, timeout)| timeout)
    }

    /// The state in which connections of a protocol spend their time.
    fn main_name(protocol: Protocol) -> &'static str {
        match protocol {
            Protocol::Tcp => "established",
            Protocol::Udp => "udp_normal",
        }
    }

    pub fn is_empty(&self) -> bool {
        self.said().next().is_none()
    }

    pub fn said(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        FIELDS.iter().zip(self.0).filter_map(|((name, _), timeout)| Some((*name, timeout?)))
    }

    /// `defaults` with what is said in their place.
    pub fn over(&self, mut defaults: Timeouts) -> Timeouts {
        for ((_, field), timeout) in FIELDS.iter().zip(self.0) {
            if let Some(timeout) = timeout {
                *field(&mut defaults) = timeout;
            }
        }
        defaults
    }
}
