//! Some of all flows: by number, or by what Contrail's `flow --match` is asked with.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::message::{FlowEnd, FlowEntry, FlowFilter};
use crate::settings::PROTOCOLS;

impl FlowEnd {
    fn is(&self, of: SocketAddr) -> bool {
        self.address.is_none_or(|address| address == of.ip()) && self.port.is_none_or(|port| port == of.port())
    }
}

impl FlowFilter {
    pub fn takes(&self, flow: &FlowEntry) -> bool {
        let numbers = [Some(flow.index), flow.reverse_index];
        let ends = match self.ends[..] {
            [] => true,
            [one] => one.is(flow.source) || one.is(flow.destination),
            [one, other, ..] => {
                one.is(flow.source) && other.is(flow.destination) || other.is(flow.source) && one.is(flow.destination)
            }
        };
        ends && self.number.is_none_or(|number| numbers.contains(&Some(number)))
            && self.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && self.vrf.is_none_or(|vrf| vrf == flow.vrf)
    }
}

/// What says which direction of which connection it is.
type Key = (u32, u8, SocketAddr, SocketAddr);

/// Below 2^30, and not 0.
fn number_of(key: &Key) -> u32 {
    // Its keys are always the same: the number goes with the flow, not with the process.
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() as u32 >> 2).max(1)
}

/// Gives flows their numbers, which a table of the kernel has none for.
pub fn number(flows: &mut [FlowEntry]) {
    for flow in flows.iter_mut() {
        flow.index = number_of(&(flow.interface, flow.protocol, flow.source, flow.destination));
    }
    let there: HashSet<u32> = flows.iter().map(|flow| flow.index).collect();
    for flow in flows {
        let reverse = number_of(&(flow.reverse_interface, flow.protocol, flow.destination, flow.source));
        flow.reverse_index = there.contains(&reverse).then_some(reverse);
    }
}

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: write one such as '10.1.0.11:40000,10.2.0.11:80 & proto tcp & vrf 1', '[fd00::11]:80' or '*:80'")]
pub struct FilterError {
    what: String,
}

fn wrong(what: impl Into<String>) -> FilterError {
    FilterError { what: what.into() }
}

/// The expression of `flow --match`.
impl FromStr for FlowFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        for part in text.split('&').map(str::trim) {
            let twice = |is: bool| if is { Err(wrong(format!("'{part}' in addition to another one"))) } else { Ok(()) };
            match part.split_once(char::is_whitespace) {
                Some(("proto", name)) => {
                    twice(filter.protocol.is_some())?;
                    filter.protocol = Some(protocol(name.trim())?);
                }
                Some(("vrf", number)) => {
                    twice(filter.vrf.is_some())?;
                    let number = number.trim();
                    filter.vrf =
                        Some(number.parse().map_err(|_| wrong(format!("'{number}' is not a number of a VRF")))?);
                }
                _ => {
                    twice(!filter.ends.is_empty())?;
                    filter.ends = part.split(',').map(|end| end.trim().parse()).collect::<Result<_, _>>()?;
                }
            }
        }
        match &filter.ends[..] {
            [_, _, _, ..] => Err(wrong("more than two ends")),
            [FlowEnd { address: Some(one), .. }, FlowEnd { address: Some(other), .. }]
                if one.is_ipv4() != other.is_ipv4() =>
            {
                Err(wrong(format!("{one} and {other} are of different address families")))
            }
            _ => Ok(filter),
        }
    }
}

/// Contrail calls ICMP of IPv6 `icmp6`.
fn protocol(name: &str) -> Result<u8, FilterError> {
    let name = if name == "icmp6" { "icmpv6" } else { name };
    let known = PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    known.or_else(|| name.parse().ok()).ok_or_else(|| wrong(format!("'{name}' is not a protocol's name or number")))
}

/// `10.1.0.11`, `10.1.0.11:80`, `fd00::11`, `[fd00::11]:80`; `*` stands for any address or port.
impl FromStr for FlowEnd {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { address: Some(address), port: None });
        }
        let (address, port) = match text.rsplit_once(':') {
            Some((address, port)) => (address, Some(port)),
            None => (text, None),
        };
        let inside = address.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
        let no_end = || wrong(format!("'{text}' is not an end of a flow"));
        let address = match inside.unwrap_or(address) {
            "*" => None,
            address => {
                let address = address.parse::<IpAddr>().map_err(|_| no_end())?;
                // With one colon more it would be another address.
                if address.is_ipv6() && inside.is_none() {
                    return Err(no_end());
                }
                Some(address)
            }
        };
        let port = match port {
            None | Some("*") => None,
            Some(port) => Some(port.parse().map_err(|_| no_end())?),
        };
        Ok(Self { address, port })
    }
}

/// As Contrail's `flow` tells what it looks for.
impl fmt::Display for FlowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.ends.iter().map(ToString::to_string).collect();
        parts.extend(self.number.map(|number| format!("Index {number}")));
        parts.extend(self.protocol.map(|protocol| format!("Protocol {}", protocol_name(protocol))));
        parts.extend(self.vrf.map(|vrf| format!("VRF {vrf}")));
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for FlowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "[{address}]:")?,
            None => f.write_str("[*]:")?,
        }
        match self.port {
            Some(port) => write!(f, "{port}"),
            None => f.write_str("*"),
        }
    }
}

/// Its name in capitals, or its number.
pub(crate) fn protocol_name(protocol: u8) -> String {
    let known = PROTOCOLS.iter().find(|(_, number)| *number == protocol);
    known.map_or_else(|| protocol.to_string(), |(name, _)| name.to_uppercase())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::message::LabeledNextHop;

    fn flow(source: &str, destination: &str) -> FlowEntry {
        FlowEntry {
            index: 0,
            reverse_index: None,
            interface: 1,
            reverse_interface: 1,
            vrf: 1,
            protocol: 6,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            packets: 1,
            bytes: 60,
            via: LabeledNextHop { next_hop: 1, label: 0 },
            forward: true,
            denied: false,
            fat: false,
            tcp: Vec::new(),
            mirror: None,
            tunnel_port: 0,
            idle_seconds: 0.0,
        }
    }

    #[test]
    fn flows_are_taken_by_their_ends_protocol_and_vrf() {
        let forward = flow("10.1.0.11:40000", "10.2.0.11:80");
        let back = flow("10.2.0.11:80", "10.1.0.11:40000");
        for (text, of_both) in [
            ("10.1.0.11", true),
            ("10.1.0.11:40000", true),
            ("10.1.0.11:*", true),
            ("10.1.0.11:80", false),
            ("*:80", true),
            ("*", true),
            ("10.1.0.11:40000,10.2.0.11:80", true),
            ("10.2.0.11:80 , 10.1.0.11", true),
            ("10.1.0.11,10.1.0.11", false),
            ("*:80,*:81", false),
            ("10.2.0.11:80 & vrf 1 & proto tcp", true),
            ("proto 6", true),
            ("proto udp", false),
            ("vrf 2", false),
            ("[fd00::11]:80", false),
        ] {
            let filter: FlowFilter = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!([filter.takes(&forward), filter.takes(&back)], [of_both; 2], "{text}");
        }
    }

    #[test]
    fn what_is_looked_for_is_told_as_it_was_understood() {
        for (text, told) in [
            ("10.1.0.11:40000,10.2.0.11 & proto icmp6", "[10.1.0.11]:40000, [10.2.0.11]:*, Protocol ICMPV6"),
            ("fd00::11,[*]:80", "[fd00::11]:*, [*]:80"),
            ("vrf 7 & proto 200", "Protocol 200, VRF 7"),
        ] {
            let filter: FlowFilter = text.parse().unwrap();
            assert_eq!(filter.to_string(), told);
        }
    }

    #[test]
    fn mistakes_are_told_with_what_may_be_written() {
        for (text, what) in [
            ("", "'' is not an end of a flow"),
            ("10.1.0.11 &", "'' in addition to another one"),
            ("10.1.0.11:80000", "'10.1.0.11:80000' is not an end"),
            ("fd00::11:x", "'fd00::11:x' is not an end"),
            ("[fd00::11", "'[fd00::11' is not an end"),
            ("1.1.1.1,2.2.2.2,3.3.3.3", "more than two ends"),
            ("1.1.1.1,fd00::1", "1.1.1.1 and fd00::1 are of different address families"),
            ("proto tpc", "'tpc' is not a protocol's name or number"),
            ("vrf red", "'red' is not a number of a VRF"),
            ("vrf 1 & vrf 2", "'vrf 2' in addition to another one"),
        ] {
            let error = text.parse::<FlowFilter>().unwrap_err().to_string();
            assert!(error.starts_with(what) && error.contains("write one such as"), "{text}: {error}");
        }
    }

    #[test]
    fn a_flow_keeps_its_number_whatever_else_is_there() {
        let ends = ["10.1.0.11:40000", "10.2.0.11:80", "10.1.0.12:1"];
        let mut flows = [flow(ends[0], ends[1]), flow(ends[2], ends[1]), flow(ends[1], ends[0])];
        number(&mut flows);
        let mut other = [flow(ends[0], ends[1])];
        number(&mut other);
        assert_eq!(other[0].index, flows[0].index);
        assert_eq!(other[0].reverse_index, None);
        let [forward, alone, back] = &flows;
        assert_eq!((forward.reverse_index, back.reverse_index), (Some(back.index), Some(forward.index)));
        assert_eq!(alone.reverse_index, None);
        assert!(flows.iter().all(|flow| (1..1 << 30).contains(&flow.index)));
        let filter = FlowFilter { number: Some(back.index), ..FlowFilter::default() };
        assert_eq!(flows.each_ref().map(|flow| filter.takes(flow)), [true, false, true]);
    }
}
