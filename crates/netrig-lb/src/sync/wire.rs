//! What balancers say to each other of their connections, as datagrams. Version 1, all numbers in network byte order:
//!
//! ```text
//!  0  magic "nrlb"   version u8   kind u8   count u16
//!  8  session of the sender u64
//! 16  session of the receiver that it is for u64, 0 where it is not known
//! 24  sequence u64, from 1 in each session
//! 32  kind 1: challenge u64, echo u64, share of local ports u16, of u16
//!     kind 2: `count` records; 0 of them: the peer has been told of all connections since the last such message
//!  …  HMAC-SHA-256 of all before, its first 16 bytes (RFC 2104; truncated as in RFC 4868, 2.3)
//!
//! record: flags u8 (1: IPv6; 2: UDP; 4: has a local address; 8: backend and local address are of IPv4, of a client of IPv6;
//!         16: of a service of any port, the ports of service and backend being the one that the client asked for), forward u8, state u8, state before u8, idle u32 (ticks of 2^27 ns),
//!         client, service, backend, and the local one if there is one: address of 4 or 16 bytes, port u16
//!         Who does not know flag 8 or 16 refuses the whole message, so that records with either are in messages of their own.
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hmac::{Hmac, KeyInit, Mac};
use rig_datapath::balancer::{Protocol, SharedConnection, State};
use sha2::Sha256;

use super::tracker::is_answered;

pub(crate) const VERSION: u8 = 1;
const MAGIC: &[u8; 4] = b"nrlb";
const HEADER: usize = 32;
const HELLO: usize = 20;
const CODE: usize = 16;
/// A datagram of this many bytes is in no fragments on any link with the usual MTU, in IPv6 too.
pub(crate) const LARGEST: usize = 1400;

/// A key that balancers share. What it is is never told.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        // A key that is shorter than a block is filled up by zeros (RFC 2104, 2).
        let mut block = [0; 64];
        block[..32].copy_from_slice(&bytes);
        Self(Hmac::new(&block.into()))
    }
}

/// Why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum MessageRefusal {
    /// From an address that is no peer's.
    Stranger,
    /// No message of this protocol.
    Foreign,
    Version,
    /// Another key, or changed on its way.
    Code,
    /// What the code vouches for cannot be read.
    Form,
    /// Of this balancer itself.
    Reflected,
    Replayed,
    /// Of a session, or for one, that is over or not known.
    Session,
}

impl MessageRefusal {
    pub(crate) const ALL: [Self; 8] = [
        Self::Stranger,
        Self::Foreign,
        Self::Version,
        Self::Code,
        Self::Form,
        Self::Reflected,
        Self::Replayed,
        Self::Session,
    ];

    /// Stable, `[a-z_]`.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Stranger => "unknown_sender",
            Self::Foreign => "not_a_message",
            Self::Version => "other_version",
            Self::Code => "wrong_key",
            Self::Form => "malformed",
            Self::Reflected => "reflected",
            Self::Replayed => "replayed",
            Self::Session => "other_session",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) session: u64,
    /// 0 where it is not known.
    pub(crate) to: u64,
    pub(crate) sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// What the receiver has to say again to be believed; 0: it is believed.
    pub(crate) challenge: u64,
    /// What the receiver has challenged with; 0 where it has not.
    pub(crate) echo: u64,
    /// See `rig_datapath::balancer::PortShare`.
    pub(crate) share: u16,
    pub(crate) of: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Hello(Hello),
    Records(Vec<SharedConnection>),
}

fn tag(protocol: Protocol) -> u8 {
    if protocol == Protocol::Udp { 2 } else { 0 }
}

fn put(bytes: &mut Vec<u8>, at: SocketAddr) {
    match at.ip() {
        IpAddr::V4(v4) => bytes.extend(v4.octets()),
        IpAddr::V6(v6) => bytes.extend(v6.octets()),
    }
    bytes.extend(at.port().to_be_bytes());
}

/// Of a client of IPv6 at a backend of IPv4.
pub(crate) fn is_translated(record: &SharedConnection) -> bool {
    record.client.is_ipv6() && record.backend.is_ipv4()
}

/// Appends a record, which has to be sound: of the addresses of another one a peer could not tell the families.
pub(crate) fn put_record(bytes: &mut Vec<u8>, record: &SharedConnection) {
    let local = if record.local.is_some() { 4 } else { 0 };
    let flags = u8::from(record.client.is_ipv6())
        | tag(record.protocol)
        | local
        | u8::from(is_translated(record)) << 3
        | u8::from(record.any_port) << 4;
    bytes.extend([flags, record.forward, record.state as u8, record.before.map_or(0, |before| before as u8)]);
    bytes.extend(record.idle.to_be_bytes());
    [Some(record.client), Some(record.service), Some(record.backend), record.local]
        .into_iter()
        .flatten()
        .for_each(|at| put(bytes, at));
}

/// The highest age that is told or believed, 4.5 years: half of what ticks can be apart before the past is the future.
const OLDEST: u32 = (1 << 30) - 1;

/// Gives a record, the first of these bytes, the age that a packet of this tick has now; a packet may have been later than that.
pub(crate) fn set_age(record: &mut [u8], tick: u32, now: u32) {
    let idle = now.wrapping_sub(tick);
    let idle = if idle >> 31 == 1 { 0 } else { idle.min(OLDEST) };
    record[4..8].copy_from_slice(&idle.to_be_bytes());
}

/// Bytes that records may take in one datagram.
pub(crate) const ROOM: usize = LARGEST - HEADER - CODE;

/// A datagram that says this. `records` are those of [`put_record`], `count` of them; none for a hello.
fn seal(key: &Key, header: Header, kind: u8, count: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len() + CODE);
    bytes.extend(MAGIC);
    bytes.extend([VERSION, kind]);
    bytes.extend(count.to_be_bytes());
    [header.session, header.to, header.sequence].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.extend(body);
    let code = key.0.clone().chain_update(&bytes).finalize().into_bytes();
    bytes.extend(&code[..CODE]);
    bytes
}

pub(crate) fn hello(key: &Key, header: Header, hello: Hello) -> Vec<u8> {
    let mut body = Vec::with_capacity(HELLO);
    [hello.challenge, hello.echo].iter().for_each(|word| body.extend(word.to_be_bytes()));
    [hello.share, hello.of].iter().for_each(|half| body.extend(half.to_be_bytes()));
    seal(key, header, 1, 0, &body)
}

pub(crate) fn records(key: &Key, header: Header, count: u16, body: &[u8]) -> Vec<u8> {
    seal(key, header, 2, count, body)
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes().map(|[byte]| byte)
    }

    fn long(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    fn half(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    fn address(&mut self, is_ipv6: bool) -> Option<SocketAddr> {
        let ip: IpAddr = match is_ipv6 {
            false => Ipv4Addr::from(self.bytes::<4>()?).into(),
            true => Ipv6Addr::from(self.bytes::<16>()?).into(),
        };
        Some(SocketAddr::new(ip, self.half()?))
    }

    fn record(&mut self) -> Option<SharedConnection> {
        let (flags, forward, state, before) = (self.byte()?, self.byte()?, self.byte()?, self.byte()?);
        let idle = self.bytes().map(u32::from_be_bytes)?;
        let named = |number| State::ALL.into_iter().find(|state| *state as u8 == number);
        let is_ipv6 = flags & 1 != 0;
        let behind_is_ipv6 = is_ipv6 && flags & 8 == 0;
        let (client, service) = (self.address(is_ipv6)?, self.address(is_ipv6)?);
        let backend = self.address(behind_is_ipv6)?;
        let local = if flags & 4 != 0 { Some(self.address(behind_is_ipv6)?) } else { None };
        let before = if before == 0 { None } else { Some(named(before)?) };
        let protocol = if flags & 2 != 0 { Protocol::Udp } else { Protocol::Tcp };
        let record = SharedConnection {
            protocol,
            forward,
            state: named(state)?,
            before,
            idle,
            client,
            service,
            backend,
            any_port: flags & 16 != 0,
            local,
        };
        // What nobody says: it would be taken for one of the future, or for a flood's.
        let is_said = idle <= OLDEST && is_answered(&record);
        (flags < 32 && flags & 9 != 8 && is_said && record.is_sound()).then_some(record)
    }
}

/// What a datagram says, if it is of someone who has the key.
pub(crate) fn open(key: &Key, bytes: &[u8]) -> Result<(Header, Body), MessageRefusal> {
    if bytes.len() < HEADER + CODE || !bytes.starts_with(MAGIC) {
        return Err(MessageRefusal::Foreign);
    }
    if bytes[4] != VERSION {
        return Err(MessageRefusal::Version);
    }
    let (said, code) = bytes.split_at(bytes.len() - CODE);
    key.0.clone().chain_update(said).verify_truncated_left(code).map_err(|_| MessageRefusal::Code)?;
    let mut rest = Rest(&said[5..]);
    let mut read = || {
        let (kind, count) = (rest.byte()?, rest.half()?);
        let header = Header { session: rest.long()?, to: rest.long()?, sequence: rest.long()? };
        let body = match kind {
            1 if count == 0 => Body::Hello(Hello {
                challenge: rest.long()?,
                echo: rest.long()?,
                share: rest.half()?,
                of: rest.half()?,
            }),
            2 => Body::Records((0..count).map(|_| rest.record()).collect::<Option<_>>()?),
            _ => return None,
        };
        (rest.0.is_empty() && header.session != 0).then_some((header, body))
    };
    read().ok_or(MessageRefusal::Form)
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn resealed(key: &Key, said: &[u8]) -> Vec<u8> {
    let code = key.0.clone().chain_update(said).finalize().into_bytes();
    [said, &code[..CODE]].concat()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> Key {
        Key::new([byte; 32])
    }

    const HEADER_SAID: Header = Header { session: 7, to: 9, sequence: 3 };

    fn all() -> Vec<SharedConnection> {
        let record = |forward, protocol, state, client: &str, service: &str, backend: &str, local: Option<&str>| {
            let at = |text: &str| text.parse().unwrap();
            let (client, service, backend, local) = (at(client), at(service), at(backend), local.map(at));
            SharedConnection {
                protocol,
                forward,
                state,
                before: None,
                idle: 77,
                client,
                service,
                backend,
                any_port: false,
                local,
            }
        };
        let (v4, v6) = ("192.0.2.1:80", "[2001:db8::1]:80");
        vec![
            record(
                1,
                Protocol::Tcp,
                State::Established,
                "198.51.100.9:4000",
                v4,
                "10.0.0.1:8080",
                Some("10.0.0.200:1024"),
            ),
            record(2, Protocol::Udp, State::UdpNormal, "[2001:db8::9]:4000", v6, "[fd00::1]:53", None),
            SharedConnection {
                before: Some(State::CloseWait),
                ..record(3, Protocol::Tcp, State::Close, "198.51.100.9:4001", v4, "10.0.0.1:80", None)
            },
            record(1, Protocol::Tcp, State::TimeWait, "[2001:db8::9]:1", v6, "[fd00::1]:8", Some("[fd00::2]:65535")),
            record(1, Protocol::Tcp, State::Established, "[2001:db8::9]:2", v6, "10.0.0.1:8", Some("10.0.0.200:1025")),
            SharedConnection {
                any_port: true,
                ..record(2, Protocol::Tcp, State::Established, "198.51.100.9:4002", v4, "10.0.0.1:80", None)
            },
        ]
    }

    fn sealed() -> Vec<u8> {
        let mut body = Vec::new();
        all().iter().for_each(|record| put_record(&mut body, record));
        records(&key(1), HEADER_SAID, all().len() as u16, &body)
    }

    #[test]
    fn what_was_said_is_read() {
        assert_eq!(open(&key(1), &sealed()), Ok((HEADER_SAID, Body::Records(all()))));
        let said = Hello { challenge: 1, echo: u64::MAX, share: 2, of: 3 };
        let bytes = hello(&key(1), HEADER_SAID, said);
        assert_eq!(open(&key(1), &bytes), Ok((HEADER_SAID, Body::Hello(said))));
        let mut one = Vec::new();
        put_record(&mut one, &all()[2]);
        // What docs/BALANCER.md says of its size.
        assert_eq!((one.len(), ROOM / one.len()), (26, 52));
    }

    #[test]
    fn what_is_no_message_of_a_peer_is_refused() {
        let bytes = sealed();
        let with = |at: usize, byte: u8| {
            let mut changed = bytes.clone();
            changed[at] = byte;
            changed
        };
        let refused = |bytes: &[u8]| open(&key(1), bytes).unwrap_err();
        assert_eq!(open(&key(2), &bytes).unwrap_err(), MessageRefusal::Code);
        assert_eq!(refused(&with(0, b'x')), MessageRefusal::Foreign);
        assert_eq!(refused(&with(4, 2)), MessageRefusal::Version);
        (5..bytes.len()).for_each(|at| assert_eq!(refused(&with(at, bytes[at] ^ 1)), MessageRefusal::Code, "{at}"));
        for length in 0..bytes.len() {
            let expected = if length < HEADER + CODE { MessageRefusal::Foreign } else { MessageRefusal::Code };
            assert_eq!(refused(&bytes[..length]), expected, "{length}");
        }
        assert_eq!(refused(&[&bytes[..], &[0]].concat()), MessageRefusal::Code);
        // By someone who has the key, but no sense.
        let said = &bytes[..bytes.len() - CODE];
        for (at, byte) in [
            (5, 3),
            (7, 200),
            (7, 0),
            (32, 9),
            (33, 9),
            (34, 99),
            (34, State::SynReceived as u8),
            (35, 50),
            (36, 0x40),
            (36, 0xff),
            (32, 5),
            // Of FullNAT there is no service of any port.
            (32, 4 | 16),
            (32, 32),
            (33, 2),
            (15, 0),
        ] {
            let mut changed = said.to_vec();
            changed[at] = byte;
            assert_eq!(refused(&resealed(&key(1), &changed)), MessageRefusal::Form, "{at}: {byte}");
        }
        assert_eq!(refused(&resealed(&key(1), &[said, &[0]].concat())), MessageRefusal::Form);
    }

    proptest! {
        #[test]
        fn no_bytes_are_read_as_what_is_not_said(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let framed = [&MAGIC[..], &[VERSION], &bytes].concat();
            prop_assert!(open(&key(1), &framed).is_err());
            if let Ok((header, Body::Records(read))) = open(&key(1), &resealed(&key(1), &framed)) {
                let mut body = Vec::new();
                read.iter().for_each(|record| put_record(&mut body, record));
                prop_assert_eq!(records(&key(1), header, read.len() as u16, &body), resealed(&key(1), &framed));
            }
        }
    }
}
