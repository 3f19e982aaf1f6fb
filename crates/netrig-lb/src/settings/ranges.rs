//! Ranges of addresses and ports, as files write them.
//!
//! ```text
//! address   192.0.2.1   192.0.2.1-192.0.2.8   2001:db8::1-2001:db8::8
//! endpoint  192.0.2.1:80   192.0.2.1-192.0.2.8:80   192.0.2.1:8000-8003   [2001:db8::1-2001:db8::8]:80   192.0.2.1:any
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use super::any_port::ANY;

/// As many as a range of addresses or of ports may have.
const MOST: u128 = 65_536;

/// A range of addresses of one family, the first and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    first: IpAddr,
    last: IpAddr,
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address that comes after, of the same family.
fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => Some(Ipv4Addr::from_bits(v4.to_bits().checked_add(1)?).into()),
        IpAddr::V6(v6) => Some(Ipv6Addr::from_bits(v6.to_bits().checked_add(1)?).into()),
    }
}

impl Addresses {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let one = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| format!("'{text}' is not an IP address"));
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (one(first)?, one(last)?),
            None => (one(text)?, one(text)?),
        };
        if first.is_ipv4() != last.is_ipv4() || number(first) > number(last) {
            return Err(format!("'{text}' is not a range of addresses: {last} does not come after {first}"));
        }
        if number(last) - number(first) >= MOST {
            return Err(format!("'{text}' is a range of more than {MOST} addresses"));
        }
        Ok(Self { first, last })
    }

    fn count(self) -> u64 {
        // Parsing has seen to it that it is small.
        (number(self.last) - number(self.first)) as u64 + 1
    }

    /// Each of them, unless that is more than there is `room` for.
    pub(crate) fn each(self, room: usize) -> Result<impl Iterator<Item = IpAddr>, RangeTooLarge> {
        RangeTooLarge::unless_within(self.count(), room)?;
        Ok(self.all())
    }

    fn all(self) -> impl Iterator<Item = IpAddr> {
        std::iter::successors(Some(self.first), move |at| if *at == self.last { None } else { next(*at) })
    }
}

/// What a range has, where there is no room for that: 65,536 addresses with as many ports would take hundreds of gigabytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RangeTooLarge {
    pub(super) count: u64,
    pub(super) room: usize,
}

impl RangeTooLarge {
    pub(super) fn unless_within(count: u64, room: usize) -> Result<(), Self> {
        if count > room as u64 { Err(Self { count, room }) } else { Ok(()) }
    }
}

/// Any port is 0, as with IPVS.
fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    if [ANY, "0"].contains(&text.trim()) {
        return Ok(0..=0);
    }
    let one = |text: &str| match text.trim().parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("'{text}' is not a port: 1 to 65535, or {ANY}")),
    };
    let range = match text.split_once('-') {
        Some((first, last)) => one(first)?..=one(last)?,
        None => one(text)?..=one(text)?,
    };
    if range.is_empty() { Err(format!("'{text}' is not a range of ports")) } else { Ok(range) }
}

/// Addresses and their ports; without ports where there are none in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoints {
    pub(super) addresses: Addresses,
    pub(super) ports: Option<RangeInclusive<u16>>,
}

impl Endpoints {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (address, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']').ok_or_else(|| format!("'{text}' lacks a ']'"))?;
            match rest.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if rest.is_empty() => (address, None),
                None => return Err(format!("'{text}': a port comes after ']:'")),
            }
        } else {
            match text.rsplit_once(':') {
                // Several colons outside of brackets: IPv6 without a port.
                Some((address, port)) if !address.contains(':') => (address, Some(port)),
                _ => (text, None),
            }
        };
        Ok(Self { addresses: Addresses::parse(address)?, ports: port.map(ports).transpose()? })
    }

    /// Each address with each port, `port` where none is said, unless that is more than there is `room` for.
    pub(super) fn each(&self, port: u16, room: usize) -> Result<impl Iterator<Item = SocketAddr>, RangeTooLarge> {
        let ports = self.ports.clone().unwrap_or(port..=port);
        RangeTooLarge::unless_within(self.addresses.count() * ports.len() as u64, room)?;
        let each = move |address| ports.clone().map(move |port| SocketAddr::new(address, port));
        Ok(self.addresses.all().flat_map(each))
    }
}

/// The same addresses in the same order, runs of consecutive ones as ranges.
pub(super) fn shorten(addresses: &[IpAddr]) -> Vec<String> {
    let runs = addresses.chunk_by(|before, after| next(*before) == Some(*after));
    let runs = runs.flat_map(|run| run.chunks(MOST as usize));
    runs.filter_map(|run| {
        let (first, last) = (run.first()?, run.last()?);
        Some(if first == last { first.to_string() } else { format!("{first}-{last}") })
    })
    .collect()
}

/// The same endpoints in the same order, runs of consecutive addresses with one port as ranges. What is behind addresses with port 0 is `zero_port_suffix`.
pub(super) fn shorten_endpoints(endpoints: &[SocketAddr], zero_port_suffix: &str) -> Vec<String> {
    let one_port = endpoints.chunk_by(|before, after| before.port() == after.port());
    let mut short = Vec::new();
    for endpoints in one_port {
        let Some(port) = endpoints.first().map(SocketAddr::port) else { continue };
        let addresses: Vec<IpAddr> = endpoints.iter().map(SocketAddr::ip).collect();
        let port = if port == 0 { zero_port_suffix.to_owned() } else { format!(":{port}") };
        let bracket = |text: &str| if text.contains(':') { format!("[{text}]{port}") } else { format!("{text}{port}") };
        short.extend(shorten(&addresses).iter().map(|text| bracket(text)));
    }
    short
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[track_caller]
    fn each(text: &str) -> Vec<String> {
        Endpoints::parse(text).unwrap().each(7, 3).unwrap().map(|endpoint| endpoint.to_string()).collect()
    }

    #[test]
    fn ranges_are_what_they_say() {
        assert_eq!(each("192.0.2.1:80"), ["192.0.2.1:80"]);
        assert_eq!(each("192.0.2.255-192.0.3.1:80"), ["192.0.2.255:80", "192.0.3.0:80", "192.0.3.1:80"]);
        assert_eq!(each("192.0.2.1:80-81"), ["192.0.2.1:80", "192.0.2.1:81"]);
        assert_eq!(each("192.0.2.1"), ["192.0.2.1:7"]);
        assert_eq!(each("[2001:db8::1-2001:db8::2]:80"), ["[2001:db8::1]:80", "[2001:db8::2]:80"]);
        assert_eq!(each("192.0.2.1-192.0.2.2:any"), ["192.0.2.1:0", "192.0.2.2:0"]);
        assert_eq!(each("[2001:db8::1]:0"), ["[2001:db8::1]:0"]);
        assert_eq!(each("[2001:db8::1]"), ["[2001:db8::1]:7"]);
        assert_eq!(each("2001:db8::1-2001:db8::2"), ["[2001:db8::1]:7", "[2001:db8::2]:7"]);
        assert_eq!(each("255.255.255.255:65535"), ["255.255.255.255:65535"]);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "eth0:80",
            "192.0.2.1:0-80",
            "192.0.2.1:all",
            "192.0.2.1:65536",
            "192.0.2.1:",
            "192.0.2.2-192.0.2.1:80",
            "192.0.2.1-2001:db8::1",
            "10.0.0.0-10.1.0.0:80",
            "192.0.2.1:81-80",
            "[2001:db8::1:80",
            "[2001:db8::1]80",
        ] {
            assert!(Endpoints::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_more_is_made_of_a_range_than_there_is_room_for() {
        let refused = |text: &str, room| Endpoints::parse(text).unwrap().each(7, room).map(Iterator::count);
        let count = 65_536 * 65_535;
        assert_eq!(refused("192.0.0.0-192.0.255.255:1-65535", 65_535), Err(RangeTooLarge { count, room: 65_535 }));
        assert_eq!(refused("[fd00::-fd00::ffff]:80", 65_535), Err(RangeTooLarge { count: 65_536, room: 65_535 }));
        assert_eq!(refused("192.0.2.0-192.0.2.3:80-81", 8), Ok(8));
        assert_eq!(refused("192.0.2.0-192.0.2.3:80-81", 7), Err(RangeTooLarge { count: 8, room: 7 }));
        let locals = Addresses::parse("192.0.2.0-192.0.2.255").unwrap();
        assert_eq!(locals.each(256).map(Iterator::count), Ok(256));
        assert_eq!(locals.each(255).map(Iterator::count), Err(RangeTooLarge { count: 256, room: 255 }));
    }

    #[test]
    fn runs_are_shortened() {
        let addresses: Vec<IpAddr> =
            ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.3"].iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(shorten(&addresses), ["10.0.0.1-10.0.0.2", "10.0.0.4", "10.0.0.3"]);
        let endpoints: Vec<SocketAddr> =
            ["[fd00::1]:80", "[fd00::2]:80", "[fd00::3]:81"].iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(shorten_endpoints(&endpoints, ""), ["[fd00::1-fd00::2]:80", "[fd00::3]:81"]);
        let any: Vec<SocketAddr> = ["10.0.0.1:0", "[fd00::1]:0"].iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(shorten_endpoints(&any, ":any"), ["10.0.0.1:any", "[fd00::1]:any"]);
        assert_eq!(shorten_endpoints(&any, ""), ["10.0.0.1", "[fd00::1]"]);
    }
}
