//! Sources whose connections stay together, as files and commands say it.

use std::num::NonZeroU32;
use std::time::Duration;

use rig_datapath::balancer::{self as datapath, MAX_GROUP};

use super::limits::LimitError;
use crate::message::ServicePersistence;

/// ipvsadm's default, seconds.
pub const DEFAULT_PERSISTENCE: u32 = 300;
/// 30 days, as in [`datapath::Persistence`].
const LONGEST: u32 = 30 * 24 * 3600;

impl ServicePersistence {
    /// With what is said of some of it; a time of 0 takes all of it away.
    pub fn changed(&self, said: &Self) -> Result<Self, LimitError> {
        let now = Self {
            timeout: said.timeout.or(self.timeout).filter(|seconds| *seconds != 0),
            prefix4: said.prefix4.or(self.prefix4),
            prefix6: said.prefix6.or(self.prefix6),
            group: said.group.or(self.group).filter(|group| *group != 0),
        };
        if now.timeout.is_some_and(|seconds| seconds > LONGEST) {
            return Err(LimitError::new("persistence", "is too long", "choose 1 s to 30 days"));
        }
        if now.group.is_some_and(|group| group > MAX_GROUP) {
            return Err(LimitError::new("persistence_group", "is too high", "choose 1 to 2147483647"));
        }
        for (key, said, most, hint) in [
            ("persistence_prefix4", now.prefix4, 32, "choose 1 to 32"),
            ("persistence_prefix6", now.prefix6, 128, "choose 1 to 128"),
        ] {
            if said.is_some_and(|bits| !(1..=most).contains(&bits)) {
                return Err(LimitError::new(key, "is no length of a prefix", hint));
            }
        }
        if now.timeout.is_some() {
            // All bits are what is not said.
            let prefix4 = now.prefix4.filter(|bits| *bits != 32);
            return Ok(Self { prefix4, prefix6: now.prefix6.filter(|bits| *bits != 128), ..now });
        }
        let hint = "say for how long, persistence = \"300s\", or -p 300";
        let all = [
            ("persistence_prefix4", said.prefix4),
            ("persistence_prefix6", said.prefix6),
            ("persistence_group", said.group.filter(|group| *group != 0)),
        ];
        for (key, said) in all {
            if said.is_some() {
                return Err(LimitError::new(key, "without persistence", hint));
            }
        }
        Ok(Self::default())
    }

    /// What is said that a service of this family has no use for.
    pub fn misfit(&self, is_ipv6: bool) -> Option<LimitError> {
        let (key, said, what, hint) = match is_ipv6 {
            true => ("persistence_prefix4", self.prefix4, "of an IPv6 service", "say persistence_prefix6"),
            false => ("persistence_prefix6", self.prefix6, "of an IPv4 service", "say persistence_prefix4"),
        };
        said.map(|_| LimitError::new(key, what, hint))
    }

    /// Of a service of this family.
    pub(super) fn of_family(self, is_ipv6: bool) -> Self {
        match is_ipv6 {
            true => Self { prefix4: None, ..self },
            false => Self { prefix6: None, ..self },
        }
    }

    /// How many bits of an address are the source.
    pub fn prefix(&self, is_ipv6: bool) -> u8 {
        let (said, whole) = if is_ipv6 { (self.prefix6, 128) } else { (self.prefix4, 32) };
        said.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(whole)
    }

    pub(super) fn in_force(&self, is_ipv6: bool) -> Option<datapath::Persistence> {
        let timeout = Duration::from_secs(self.timeout?.into());
        let group = self.group.and_then(NonZeroU32::new);
        Some(datapath::Persistence { timeout, prefix: self.prefix(is_ipv6), group })
    }

    /// What is said, as in words for people.
    pub fn text(&self, is_ipv6: bool) -> String {
        let group = self.group.map(|group| format!(", group {group}")).unwrap_or_default();
        let own = match (self.timeout, self.prefix(is_ipv6)) {
            (None, _) => "off".to_owned(),
            (Some(seconds), 32) if !is_ipv6 => format!("{seconds} s"),
            (Some(seconds), 128) => format!("{seconds} s"),
            (Some(seconds), bits) => format!("{seconds} s by prefixes of {bits} bits"),
        };
        own + &group
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn said(timeout: Option<u32>, prefix4: Option<u32>) -> ServicePersistence {
        ServicePersistence { timeout, prefix4, ..ServicePersistence::default() }
    }

    #[test]
    fn what_is_not_said_stays_and_a_time_of_0_takes_all_away() {
        let off = ServicePersistence::default();
        let first = off.changed(&said(Some(60), Some(24))).unwrap();
        assert_eq!(first.changed(&said(Some(90), None)).unwrap(), said(Some(90), Some(24)));
        assert_eq!(first.changed(&said(None, Some(16))).unwrap(), said(Some(60), Some(16)));
        assert_eq!(first.changed(&said(Some(0), None)).unwrap(), off);
        assert_eq!(first.changed(&said(None, Some(32))).unwrap(), said(Some(60), None));
        let refused = |wanted: ServicePersistence| off.changed(&wanted).unwrap_err().to_string();
        assert_eq!(refused(said(None, Some(24))), "persistence_prefix4 without persistence");
        assert_eq!(refused(said(Some(5), Some(33))), "persistence_prefix4 is no length of a prefix");
        assert_eq!(refused(said(Some(LONGEST + 1), None)), "persistence is too long");
        let group = ServicePersistence { group: Some(7), ..ServicePersistence::default() };
        assert_eq!(refused(group), "persistence_group without persistence");
        let both = first.changed(&group).unwrap();
        assert_eq!(
            (both.timeout, both.group, both.text(false)),
            (Some(60), Some(7), "60 s by prefixes of 24 bits, group 7".to_owned())
        );
        let out = ServicePersistence { group: Some(0), ..ServicePersistence::default() };
        assert_eq!(both.changed(&out).unwrap(), first);
        assert_eq!(first.misfit(true).unwrap().to_string(), "persistence_prefix4 of an IPv6 service");
    }
}
