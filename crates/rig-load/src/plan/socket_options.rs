//! Options of a load's sockets that change its packets.

use rig_sys::socket::Dscp;
use serde::{Deserialize, Serialize};

use super::PlanError;
use super::limits::range;
use super::value::PlanValue;

/// Options of every socket of a load, at both ends. `None` leaves each to the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketOptions {
    /// The DSCP of what is sent, 0 to 63: the upper six bits of IP_TOS (ip(7)) and IPV6_TCLASS (ipv6(7)). From IP_TOS the
    /// kernel derives a priority, which accepted connections do not inherit, unless [`Self::priority`] is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Largest payload of a TCP segment in bytes, 88 to 32767: what the end announces, and at most sends (TCP_MAXSEG, tcp(7)). The kernel
    /// takes less where the path's MTU, or TCP's own options in each segment, leave less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// Routers that a packet may pass, 1 to 255 (IP_TTL, ip(7); IPV6_UNICAST_HOPS, ipv6(7)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_limit: Option<u32>,
    /// Priority of packets in this machine's queueing disciplines (SO_PRIORITY, socket(7)); above 6 it takes CAP_NET_ADMIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// A sender may write again only while fewer bytes than this, 1 to 2147483647, wait unsent in its socket (TCP_NOTSENT_LOWAT, tcp(7)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_sent_low_water: Option<u32>,
    /// Microseconds, 1 to 100000, that a call that waits for data looks at the device's receive queue itself (SO_BUSY_POLL, socket(7)); more than
    /// net.core.busy_read takes CAP_NET_ADMIN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_poll_us: Option<u32>,
    /// Connections of Multipath TCP (RFC 8684), which fall back to plain TCP where the way or the peer has none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mptcp: bool,
}

impl SocketOptions {
    /// The highest priority that takes no privilege (socket(7)).
    pub const PRIORITY_OF_ALL: u32 = 6;
    /// TCP_MIN_MSS of net/tcp.h to MAX_TCP_WINDOW.
    const MSS: (u64, u64) = (88, 32_767);
    const HOP_LIMIT: (u64, u64) = (1, 255);
    const NOT_SENT_LOW_WATER: (u64, u64) = (1, i32::MAX as u64);
    const BUSY_POLL_US: (u64, u64) = (1, 100_000);

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Of sockets of TCP.
    pub(super) fn validate(&self) -> Result<(), PlanError> {
        let limits = [
            (PlanValue::Mss, self.mss, Self::MSS),
            (PlanValue::HopLimit, self.hop_limit, Self::HOP_LIMIT),
            (PlanValue::NotSentLowWater, self.not_sent_low_water, Self::NOT_SENT_LOW_WATER),
            (PlanValue::BusyPoll, self.busy_poll_us, Self::BUSY_POLL_US),
        ];
        limits
            .into_iter()
            .try_for_each(|(what, value, (least, most))| value.map_or(Ok(()), |value| range(what, value, least, most)))
    }

    /// Of sockets of UDP, which have neither segments nor a queue of unsent bytes.
    pub(super) fn validate_for_datagrams(&self) -> Result<(), PlanError> {
        if self.mss.is_some() {
            return Err(PlanError::OptionOfTcp(PlanValue::Mss));
        }
        if self.not_sent_low_water.is_some() {
            return Err(PlanError::OptionOfTcp(PlanValue::NotSentLowWater));
        }
        if self.mptcp {
            return Err(PlanError::OptionOfTcp(PlanValue::Mptcp));
        }
        self.validate()
    }

    /// Each that is set, in words.
    pub fn words(&self) -> Vec<String> {
        let words = [
            self.dscp.map(|dscp| format!("DSCP {dscp}")),
            self.mss.map(|mss| format!("MSS {mss}")),
            self.hop_limit.map(|hops| format!("TTL {hops}")),
            self.priority.map(|priority| format!("socket priority {priority}")),
            self.not_sent_low_water.map(|bytes| format!("TCP_NOTSENT_LOWAT {bytes}")),
            self.busy_poll_us.map(|us| format!("busy polling for {us} µs")),
            self.mptcp.then(|| "MPTCP".to_owned()),
        ];
        words.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets one of the options.
    type Change = fn(&mut SocketOptions, u32);

    #[test]
    fn values_have_ranges() {
        let with = |change: Change, value| {
            let mut options = SocketOptions::default();
            change(&mut options, value);
            options
        };
        let limits: [(Change, u32, u32, &str); 4] = [
            (|o, v| o.mss = Some(v), 88, 32_767, "the MSS"),
            (|o, v| o.hop_limit = Some(v), 1, 255, "the hop limit"),
            (|o, v| o.not_sent_low_water = Some(v), 1, i32::MAX as u32, "the low-water mark"),
            (|o, v| o.busy_poll_us = Some(v), 1, 100_000, "busy polling"),
        ];
        for (change, least, most, words) in limits {
            for value in [least, most] {
                with(change, value).validate().unwrap();
            }
            for value in [least - 1, most + 1] {
                let error = with(change, value).validate().unwrap_err().to_string();
                assert!(error.contains(words) && error.contains(&format!("from {least} to {most}")), "{error}");
            }
        }
        with(|o, v| o.priority = Some(v), u32::MAX).validate().unwrap();
    }

    #[test]
    fn datagrams_have_no_options_of_tcp() {
        let mss = SocketOptions { mss: Some(1000), ..Default::default() };
        let low_water = SocketOptions { not_sent_low_water: Some(1000), ..Default::default() };
        let mptcp = SocketOptions { mptcp: true, ..Default::default() };
        for (options, words) in [(mss, "the MSS"), (low_water, "the low-water mark"), (mptcp, "MPTCP")] {
            options.validate().unwrap();
            let error = options.validate_for_datagrams().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("UDP"), "{error}");
        }
    }

    #[test]
    fn what_is_not_set_is_not_written() {
        assert_eq!(serde_json::to_string(&SocketOptions::default()).unwrap(), "{}");
        let options = SocketOptions { dscp: "ef".parse().ok(), hop_limit: Some(7), ..Default::default() };
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(text, r#"{"dscp":46,"hop_limit":7}"#);
        assert_eq!(serde_json::from_str::<SocketOptions>(&text).unwrap(), options);
        assert!(serde_json::from_str::<SocketOptions>(r#"{"dscp":64}"#).is_err());
        assert_eq!(options.words(), ["DSCP ef", "TTL 7"]);
    }
}
