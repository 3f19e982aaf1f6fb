//! Limits of a service for those who begin connections, as files and commands say them.

use std::num::NonZeroU32;

use rig_datapath::balancer::{self as datapath, MAX_RATE, Rate};

use crate::message::ServiceLimits;

/// What is wrong with limits, and of which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{key} {what}")]
pub struct LimitError {
    pub key: &'static str,
    what: &'static str,
    pub hint: &'static str,
}

impl LimitError {
    pub(super) fn new(key: &'static str, what: &'static str, hint: &'static str) -> Self {
        Self { key, what, hint }
    }
}

/// All keys, the same in files and, with `-` in place of `_`, in commands; and the most that each takes.
pub const LIMITS: [(&str, u32); 7] = [
    ("source_limit", u32::MAX),
    ("source_rate", MAX_RATE),
    ("source_burst", u32::MAX),
    ("source_prefix4", 32),
    ("source_prefix6", 128),
    ("new_rate", MAX_RATE),
    ("new_burst", u32::MAX),
];

impl ServiceLimits {
    fn fields(&self) -> [Option<u32>; 7] {
        let Self { source_limit, source_rate, source_burst, source_prefix4, source_prefix6, new_rate, new_burst } =
            *self;
        [source_limit, source_rate, source_burst, source_prefix4, source_prefix6, new_rate, new_burst]
    }

    fn of(fields: [Option<u32>; 7]) -> Self {
        let [source_limit, source_rate, source_burst, source_prefix4, source_prefix6, new_rate, new_burst] = fields;
        Self { source_limit, source_rate, source_burst, source_prefix4, source_prefix6, new_rate, new_burst }
    }

    /// As `value` says of each key and the most that it takes.
    pub fn read<E>(mut value: impl FnMut(&'static str, u32) -> Result<Option<u32>, E>) -> Result<Self, E> {
        let mut fields = [None; 7];
        for (field, (key, most)) in fields.iter_mut().zip(LIMITS) {
            *field = value(key, most)?;
        }
        Ok(Self::of(fields))
    }

    /// What is said, by its key.
    pub fn said(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let named = LIMITS.into_iter().zip(self.fields());
        named.filter_map(|((key, _), value)| Some((key, value?)))
    }

    /// By key, what differs: before and now.
    pub fn changes_since(&self, before: &Self) -> Vec<(&'static str, Option<u32>)> {
        let both = LIMITS.into_iter().zip(before.fields().into_iter().zip(self.fields()));
        both.filter(|(_, (before, now))| before != now).map(|((key, _), (_, now))| (key, now)).collect()
    }

    /// With what is said of some: 0 takes a limit or rate away, and with a rate goes its burst, with the last of sources what these are.
    pub fn changed(&self, said: &Self) -> Result<Self, LimitError> {
        for ((key, most), value) in LIMITS.into_iter().zip(said.fields()) {
            let can_be_off = matches!(key, "source_limit" | "source_rate" | "new_rate");
            match value {
                Some(0) if !can_be_off => {
                    return Err(LimitError { key, what: "of 0", hint: "choose 1 or more, or leave it out" });
                }
                Some(value) if value > most => {
                    let hint = match most {
                        32 => "choose 1 to 32",
                        128 => "choose 1 to 128",
                        _ => "choose up to 10000000",
                    };
                    return Err(LimitError { key, what: "is too much", hint });
                }
                _ => {}
            }
        }
        let both = self.fields().into_iter().zip(said.fields());
        let mut fields = [None; 7];
        fields
            .iter_mut()
            .zip(both)
            .for_each(|(field, (before, said))| *field = said.or(before).filter(|value| *value != 0));
        let mut now = Self::of(fields);
        let unused = |key, what, hint| Err(LimitError { key, what, hint });
        if now.source_rate.is_none() && said.source_burst.is_some() {
            return unused("source_burst", "without a rate", "add source_rate, new connections a second");
        }
        if now.new_rate.is_none() && said.new_burst.is_some() {
            return unused("new_burst", "without a rate", "add new_rate, new connections a second");
        }
        let of_sources = now.source_limit.is_some() || now.source_rate.is_some();
        for (key, said) in [("source_prefix4", said.source_prefix4), ("source_prefix6", said.source_prefix6)] {
            if said.is_some() && !of_sources {
                return unused(key, "without a limit for sources", "add source_limit or source_rate");
            }
        }
        now.source_burst = now.source_burst.filter(|_| now.source_rate.is_some());
        now.new_burst = now.new_burst.filter(|_| now.new_rate.is_some());
        now.source_prefix4 = now.source_prefix4.filter(|_| of_sources);
        now.source_prefix6 = now.source_prefix6.filter(|_| of_sources);
        Ok(now)
    }

    /// What is said that a service of this family has no use for.
    pub fn misfit(&self, is_ipv6: bool) -> Option<LimitError> {
        let (key, said, what, hint) = match is_ipv6 {
            true => ("source_prefix4", self.source_prefix4, "of an IPv6 service", "say source_prefix6"),
            false => ("source_prefix6", self.source_prefix6, "of an IPv4 service", "say source_prefix4"),
        };
        said.map(|_| LimitError { key, what, hint })
    }

    /// Of a service of this family.
    pub(super) fn of_family(self, is_ipv6: bool) -> Self {
        match is_ipv6 {
            true => Self { source_prefix4: None, ..self },
            false => Self { source_prefix6: None, ..self },
        }
    }

    /// As the datapath shall have them. A burst of which nothing is said is what comes in a second.
    pub fn in_force(&self, is_ipv6: bool) -> datapath::Limits {
        let rate = |per_second: Option<u32>, burst: Option<u32>| {
            let per_second = NonZeroU32::new(per_second?)?;
            Some(Rate { per_second, burst: burst.and_then(NonZeroU32::new).unwrap_or(per_second) })
        };
        datapath::Limits {
            source_limit: self.source_limit.and_then(NonZeroU32::new),
            source_rate: rate(self.source_rate, self.source_burst),
            source_prefix: if is_ipv6 { self.source_prefix6 } else { self.source_prefix4 }
                .and_then(|bits| u8::try_from(bits).ok()),
            new_rate: rate(self.new_rate, self.new_burst),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn said(values: &[(&str, u32)]) -> ServiceLimits {
        let of = |key| values.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        ServiceLimits::read(|key, _| Ok::<_, ()>(of(key))).unwrap()
    }

    #[test]
    fn limits_change_one_by_one_and_take_along_what_is_about_them() {
        let none = ServiceLimits::default();
        let all: Vec<_> = LIMITS.iter().map(|(key, _)| *key).zip([5, 10, 20, 24, 56, 1000, 2000]).collect();
        let first = none.changed(&said(&all)).unwrap();
        assert_eq!(first.said().collect::<Vec<_>>(), all);
        assert_eq!(none.changed(&first).unwrap(), first);
        let fewer = first.changed(&said(&[("source_limit", 0), ("new_rate", 0)])).unwrap();
        assert_eq!(fewer, said(&all[1..5]));
        assert_eq!(fewer.changed(&said(&[("source_rate", 0)])).unwrap(), none);
        let faster = first.changed(&said(&[("source_rate", 30)])).unwrap();
        assert_eq!(faster.changes_since(&first), [("source_rate", Some(30))]);
        assert_eq!(none.changes_since(&first).len(), 7);
    }

    #[test]
    fn a_prefix_is_of_a_family() {
        let both = said(&[("source_limit", 5), ("source_prefix4", 24), ("source_prefix6", 56)]);
        for is_ipv6 in [false, true] {
            assert!(both.misfit(is_ipv6).is_some());
            let own = both.of_family(is_ipv6);
            assert!(own.misfit(is_ipv6).is_none() && own.misfit(!is_ipv6).is_some());
        }
        assert_eq!(both.misfit(false).unwrap().to_string(), "source_prefix6 of an IPv4 service");
    }

    #[test]
    fn what_would_say_nothing_is_refused() {
        let refused = |values: &[(&str, u32)]| ServiceLimits::default().changed(&said(values)).unwrap_err().to_string();
        assert_eq!(refused(&[("source_burst", 5)]), "source_burst without a rate");
        assert_eq!(refused(&[("source_rate", 0), ("source_burst", 5)]), "source_burst without a rate");
        assert_eq!(refused(&[("new_burst", 5), ("source_rate", 1)]), "new_burst without a rate");
        assert_eq!(refused(&[("new_rate", 1), ("new_burst", 0)]), "new_burst of 0");
        assert_eq!(refused(&[("source_prefix4", 24), ("new_rate", 5)]), "source_prefix4 without a limit for sources");
        assert_eq!(refused(&[("source_limit", 5), ("source_prefix6", 129)]), "source_prefix6 is too much");
        assert_eq!(refused(&[("new_rate", MAX_RATE + 1)]), "new_rate is too much");
    }

    #[test]
    fn a_burst_is_a_second_unless_it_is_said() {
        let limits = said(&[("source_rate", 7), ("new_rate", 100), ("new_burst", 3), ("source_prefix6", 48)]);
        let rate = |per_second, burst| {
            Some(Rate { per_second: NonZeroU32::new(per_second).unwrap(), burst: NonZeroU32::new(burst).unwrap() })
        };
        let v6 = limits.in_force(true);
        assert_eq!((v6.source_rate, v6.new_rate, v6.source_prefix), (rate(7, 7), rate(100, 3), Some(48)));
        assert_eq!((limits.in_force(false).source_bits(false), limits.in_force(false).source_limit), (32, None));
    }
}
