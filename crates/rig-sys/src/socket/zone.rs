//! Addresses with their zone: IPv6 link-local ones mean something on one link alone, and the interface says which
//! (RFC 4007, written as in fe80::1%eth0).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::str::FromStr;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use serde::{Deserialize, Serialize};

use super::interface::own_addresses;

/// Why a text is not the address of a socket here.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("'{0}' is not an IP address")]
    NotAnAddress(String),
    #[error("'{0}' is not an address with a port, as in 127.0.0.1:80 or [::1]:80")]
    NoPort(String),
    #[error("{ip} belongs to no single link, so that it has no interface beside it: leave %{zone} out")]
    NeedlessZone { ip: Ipv6Addr, zone: String },
    #[error("{ip}%{zone}: there is no interface '{zone}' here; {known}")]
    NoInterface { ip: Ipv6Addr, zone: String, known: LinkLocalInterfaces },
    #[error(
        "{ip} is a link-local address, which there may be one of on each interface: add %interface, as in {ip}%{}; {known}",
        .known.example()
    )]
    NoZone { ip: Ipv6Addr, known: LinkLocalInterfaces },
    #[error("cannot find the address of '{host}': {source}")]
    Unknown { host: String, source: io::Error },
}

/// The interfaces that have link-local addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkLocalInterfaces(Vec<String>);

impl LinkLocalInterfaces {
    fn here() -> Self {
        let mut names: Vec<String> = Vec::new();
        for (name, address) in own_addresses().unwrap_or_default() {
            if is_of_a_link(address.ip()) && !names.contains(&name) {
                names.push(name);
            }
        }
        Self(names)
    }

    fn example(&self) -> &str {
        self.0.first().map_or("eth0", String::as_str)
    }
}

impl fmt::Display for LinkLocalInterfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no interface here has a link-local address");
        }
        write!(f, "interfaces with link-local addresses: {}", self.0.join(", "))
    }
}

fn is_of_a_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// An address of a socket, without its port. Written with the interface's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ZonedAddress {
    ip: IpAddr,
    /// The interface's number; 0 of an address that needs none.
    zone: u32,
}

impl ZonedAddress {
    pub fn ip(self) -> IpAddr {
        self.ip
    }

    pub fn is_ipv6(self) -> bool {
        self.ip.is_ipv6()
    }

    /// A socket's address with this port.
    pub fn at(self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(_) => SocketAddr::new(self.ip, port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.zone).into(),
        }
    }

    /// The same host as IPv4 where it is an IPv4 address written as IPv6.
    #[must_use]
    pub fn to_canonical(self) -> Self {
        Self { ip: self.ip.to_canonical(), ..self }
    }

    /// The first address of its network of `bits` bits, on the same link.
    #[must_use]
    pub fn network(self, bits: u32) -> Self {
        match self.ip {
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
                Self { ip: Ipv6Addr::from(u128::from(ip) & mask).into(), ..self }
            }
            IpAddr::V4(_) => self,
        }
    }

    /// An address that a socket can use.
    ///
    /// # Errors
    /// When it is link-local and nothing says of which link.
    pub fn complete(self) -> Result<Self, AddressError> {
        match self.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() && self.zone == 0 => {
                Err(AddressError::NoZone { ip, known: LinkLocalInterfaces::here() })
            }
            _ => Ok(self),
        }
    }
}

impl From<SocketAddr> for ZonedAddress {
    fn from(address: SocketAddr) -> Self {
        let zone = match address {
            SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
            _ => 0,
        };
        Self { ip: address.ip(), zone }
    }
}

impl From<IpAddr> for ZonedAddress {
    fn from(ip: IpAddr) -> Self {
        Self { ip, zone: 0 }
    }
}

impl fmt::Display for ZonedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ip)?;
        if self.zone == 0 { Ok(()) } else { write!(f, "%{}", name_of(self.zone)) }
    }
}

impl FromStr for ZonedAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (ip, zone) = parts(text)?;
        match (ip, zone) {
            (IpAddr::V6(v6), Some(zone)) => {
                let number = number_of(zone);
                let unknown =
                    || AddressError::NoInterface { ip: v6, zone: zone.into(), known: LinkLocalInterfaces::here() };
                Ok(Self { ip, zone: number.ok_or_else(unknown)? })
            }
            _ => Self { ip, zone: 0 }.complete(),
        }
    }
}

/// As one process tells it another of the same namespace: by the interface's number.
impl From<ZonedAddress> for String {
    fn from(ZonedAddress { ip, zone }: ZonedAddress) -> Self {
        if zone == 0 { ip.to_string() } else { format!("{ip}%{zone}") }
    }
}

impl TryFrom<String> for ZonedAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        let (ip, zone) = parts(&text)?;
        let not_an_address = || AddressError::NotAnAddress(text.clone());
        Ok(Self { ip, zone: zone.map_or(Some(0), |zone| zone.parse().ok()).ok_or_else(not_an_address)? })
    }
}

/// A socket's address in words, with its port and the interface's name. Kept, it says the same wherever it is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamedAddress {
    ip: IpAddr,
    zone: Option<String>,
    port: u16,
}

impl NamedAddress {
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Without the port and the brackets that set it off.
    pub fn host(&self) -> String {
        match &self.zone {
            Some(zone) => format!("{}%{zone}", self.ip),
            None => self.ip.to_string(),
        }
    }
}

impl From<SocketAddr> for NamedAddress {
    fn from(address: SocketAddr) -> Self {
        let ZonedAddress { ip, zone } = address.into();
        Self { ip, zone: (zone != 0).then(|| name_of(zone)), port: address.port() }
    }
}

impl fmt::Display for NamedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ip.is_ipv6() {
            write!(f, "[{}]:{}", self.host(), self.port)
        } else {
            write!(f, "{}:{}", self.ip, self.port)
        }
    }
}

impl FromStr for NamedAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let split = match text.strip_prefix('[') {
            Some(rest) => rest.split_once("]:"),
            None => text.split_once(':'),
        };
        let (host, port) = split.ok_or_else(|| AddressError::NoPort(text.into()))?;
        let port = port.parse().map_err(|_| AddressError::NoPort(text.into()))?;
        let (ip, zone) = parts(host)?;
        if ip.is_ipv6() != text.starts_with('[') {
            return Err(AddressError::NoPort(text.into()));
        }
        Ok(Self { ip, zone: zone.map(str::to_owned), port })
    }
}

impl From<NamedAddress> for String {
    fn from(address: NamedAddress) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for NamedAddress {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

/// A socket's address as a user writes it: `127.0.0.1:80`, `[::1]:80` or `[fe80::1%eth0]:80`.
///
/// # Errors
/// When it is none, or an interface is missing or unknown.
pub fn parse_address(text: &str) -> Result<SocketAddr, AddressError> {
    let named: NamedAddress = text.parse()?;
    Ok(named.host().parse::<ZonedAddress>()?.at(named.port))
}

/// The addresses of a host as a user writes it: an address, with its zone where it needs one, or a name.
///
/// # Errors
/// When there is none that a socket can use.
pub fn resolve(host: &str) -> Result<Vec<ZonedAddress>, AddressError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse() {
        Ok(address) => return Ok(vec![address]),
        Err(AddressError::NotAnAddress(_)) => {}
        Err(error) => return Err(error),
    }
    let unknown = |source| AddressError::Unknown { host: host.into(), source };
    let (mut usable, mut incomplete) = (Vec::new(), None);
    for found in (bare, 0).to_socket_addrs().map_err(unknown)? {
        match ZonedAddress::from(found).complete() {
            Ok(address) => usable.push(address),
            Err(error) => incomplete = Some(error),
        }
    }
    match incomplete {
        Some(error) if usable.is_empty() => Err(error),
        _ => Ok(usable),
    }
}

/// An address and the text of its zone, which only addresses of one link have.
fn parts(text: &str) -> Result<(IpAddr, Option<&str>), AddressError> {
    let not_an_address = || AddressError::NotAnAddress(text.into());
    let Some((ip, zone)) = text.split_once('%') else {
        return Ok((text.parse().map_err(|_| not_an_address())?, None));
    };
    let ip: Ipv6Addr = ip.parse().map_err(|_| not_an_address())?;
    if !ip.is_unicast_link_local() {
        return Err(AddressError::NeedlessZone { ip, zone: zone.into() });
    }
    Ok((ip.into(), Some(zone)))
}

/// The number of an interface by its name, else by its number itself.
fn number_of(zone: &str) -> Option<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    if let Ok(number) = netdevice::name_to_index(&any, zone) {
        return Some(number);
    }
    let number = zone.parse().ok()?;
    netdevice::index_to_name(&any, number).ok().map(|_| number)
}

/// The name of an interface; its number once it is gone.
fn name_of(zone: u32) -> String {
    let name =
        socket(AddressFamily::INET, SocketType::DGRAM, None).and_then(|any| netdevice::index_to_name(&any, zone));
    name.unwrap_or_else(|_| zone.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    /// The number of `lo` in the namespace that the test runs in.
    fn loopback() -> u32 {
        number_of("lo").unwrap()
    }

    #[test]
    fn a_zone_is_a_name_or_a_number_and_written_as_its_name() {
        let zone = loopback();
        for text in ["fe80::1%lo".to_owned(), format!("fe80::1%{zone}")] {
            let address: ZonedAddress = text.parse().unwrap();
            assert_eq!(address.at(80), SocketAddrV6::new(LINK, 80, 0, zone).into());
            assert_eq!(address.to_string(), "fe80::1%lo");
            assert_eq!(NamedAddress::from(address.at(80)).to_string(), "[fe80::1%lo]:80");
            assert_eq!(ZonedAddress::try_from(String::from(address)).unwrap(), address);
        }
        assert_eq!(parse_address("[fe80::1%lo]:80").unwrap(), SocketAddrV6::new(LINK, 80, 0, zone).into());
        for plain in ["127.0.0.1:80", "[::1]:80", "[::]:0"] {
            let address = parse_address(plain).unwrap();
            assert_eq!((address.to_string(), NamedAddress::from(address).to_string()), (plain.into(), plain.into()));
        }
        // What was kept elsewhere is read without that interface.
        let kept = NamedAddress::try_from("[fe80::1%elsewhere0]:80".to_owned()).unwrap();
        assert_eq!((kept.host(), kept.to_string()), ("fe80::1%elsewhere0".into(), "[fe80::1%elsewhere0]:80".into()));
        assert_eq!(NamedAddress::from(SocketAddr::from(SocketAddrV6::new(LINK, 1, 0, u32::MAX >> 1))).host(), {
            format!("fe80::1%{}", u32::MAX >> 1)
        });
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, words) in [
            ("fe80::1", "add %interface"),
            ("fe80::1%nosuch0", "there is no interface 'nosuch0'"),
            ("fe80::1%4000000000", "there is no interface"),
            ("fe80::1%", "there is no interface ''"),
            ("2001:db8::1%lo", "leave %lo out"),
            ("::1%lo", "leave %lo out"),
            ("10.0.0.1%lo", "not an IP address"),
            ("host", "not an IP address"),
            ("", "not an IP address"),
        ] {
            let error = text.parse::<ZonedAddress>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        for text in ["127.0.0.1", "::1:80", "[::1]", "[127.0.0.1]:80", "127.0.0.1:", "127.0.0.1:65536", "[::1]:80:"] {
            let error = parse_address(text).unwrap_err();
            assert!(matches!(error, AddressError::NoPort(_)), "{text}: {error}");
        }
        assert!(matches!(resolve("fe80::1"), Err(AddressError::NoZone { .. })));
        assert_eq!(resolve("[::1]").unwrap(), [IpAddr::from(Ipv6Addr::LOCALHOST).into()]);
    }

    #[test]
    fn hosts_of_two_links_are_two() {
        let [one, other] = [1, 2].map(|zone| ZonedAddress { ip: LINK.into(), zone });
        assert_ne!(one, other);
        assert_ne!(one.network(64), other.network(64));
        assert_eq!(one.network(64), ZonedAddress { ip: "fe80::2".parse().unwrap(), zone: 1 }.network(64));
        assert_eq!(one.network(128), one);
        let four: ZonedAddress = "10.0.0.1".parse().unwrap();
        assert_eq!(four.network(64), four);
        assert_eq!("::ffff:10.0.0.1".parse::<ZonedAddress>().unwrap().to_canonical(), four);
    }
}
