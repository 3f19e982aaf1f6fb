//! How the packet that is traced is said: `tcp 198.51.100.9:40000 > 192.0.2.1:80 [syn] length 60`.
//!
//! ```text
//! FLOW  = ("tcp" | "udp") SOURCE [">" | "->" | "to"] DESTINATION [FLAGS] ["length" BYTES]
//! SOURCE, DESTINATION = ADDRESS:PORT, IPv6 in brackets
//! FLAGS = names between "|", "," or "+", in brackets or not: fin syn rst psh ack urg; or tcpdump's letters in
//!         brackets, e.g. [S.]; a SYN by default
//! BYTES = of the whole IP packet; its headers by default
//! ```

use std::fmt;
use std::net::SocketAddr;

use rig_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN, URG};

use super::{Flow, Protocol};

/// Name, tcpdump's letter, bit (RFC 9293, 3.1).
const FLAGS: [(&str, char, u8); 6] =
    [("fin", 'F', FIN), ("syn", 'S', SYN), ("rst", 'R', RST), ("psh", 'P', PSH), ("ack", '.', ACK), ("urg", 'U', URG)];

/// Why something is no flow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write a flow like 'tcp 198.51.100.9:40000 > 192.0.2.1:80 [syn] length 60', in quotes because of the >")]
pub struct FlowError(String);

/// The flow that these words, or the words in them, say.
pub fn parse(words: &[String]) -> Result<Flow, FlowError> {
    let words = words.join(" ");
    let mut words = words.split_whitespace().peekable();
    let error = |what: String| FlowError(what);
    let protocol = match words.next() {
        Some(tcp) if tcp.eq_ignore_ascii_case("tcp") => Protocol::Tcp,
        Some(udp) if udp.eq_ignore_ascii_case("udp") => Protocol::Udp,
        Some(other) => return Err(error(format!("'{other}' is neither tcp nor udp"))),
        None => return Err(error("there is no flow".to_owned())),
    };
    let mut end = |what: &str| {
        let word = words.next_if(|word| !matches!(*word, ">" | "->" | "to")).or_else(|| {
            words.next();
            words.next()
        });
        let word = word.ok_or_else(|| error(format!("there is no {what}")))?;
        let address = word.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        address.ok_or_else(|| error(format!("the {what} '{word}' is not ADDRESS:PORT")))
    };
    let (source, destination) = (end("source")?, end("destination")?);
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(error(format!("{source} and {destination} are of two families")));
    }
    let (mut tcp_flags, mut length) = (None, None);
    while let Some(word) = words.next() {
        match word {
            "length" => {
                let number = words.next().unwrap_or_default();
                let bytes = number.parse::<u16>().map_err(|_| error(format!("'{number}' is not a length in bytes")))?;
                length = Some(bytes);
            }
            _ if protocol == Protocol::Udp => return Err(error(format!("'{word}' after a UDP flow is not length"))),
            _ if tcp_flags.is_some() => {
                return Err(error(format!("'{word}' comes after the flags, and is not length")));
            }
            word => tcp_flags = Some(flags(word).ok_or_else(|| error(format!("'{word}' are not TCP flags")))?),
        }
    }
    let least = headers(protocol, destination);
    let length = length.unwrap_or(least);
    if length < least {
        return Err(error(format!("{length} bytes are too few: the headers take {least}")));
    }
    let tcp_flags = if protocol == Protocol::Tcp { tcp_flags.unwrap_or(SYN) } else { 0 };
    Ok(Flow { protocol, source, destination, tcp_flags, length })
}

fn flags(word: &str) -> Option<u8> {
    let inner = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    let by_name = |name: &str| FLAGS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name)).map(|(.., bit)| *bit);
    let by_letter = |letter| FLAGS.iter().find(|(_, known, _)| *known == letter).map(|(.., bit)| *bit);
    let names: Option<Vec<u8>> = inner.unwrap_or(word).split(['|', ',', '+']).map(by_name).collect();
    let letters = || inner.filter(|inner| !inner.is_empty())?.chars().map(by_letter).collect();
    Some(names.or_else(letters)?.into_iter().fold(0, |all, bit| all | bit))
}

/// Flags by their names, for people.
pub fn flag_names(flags: u8) -> String {
    let names: Vec<&str> = FLAGS.iter().filter(|(.., bit)| flags & bit != 0).map(|(name, ..)| *name).collect();
    format!("[{}]", names.join("|"))
}

/// Of IP and of the protocol, without options, bytes.
fn headers(protocol: Protocol, address: SocketAddr) -> u16 {
    let ip = if address.is_ipv4() { 20 } else { 40 };
    ip + match protocol {
        Protocol::Tcp => 20,
        Protocol::Udp => 8,
    }
}

/// As it is said.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, length, .. } = self;
        match self.protocol {
            Protocol::Tcp => {
                write!(f, "tcp {source} > {destination} {} length {length}", flag_names(self.tcp_flags))
            }
            Protocol::Udp => write!(f, "udp {source} > {destination} length {length}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Flow, FlowError> {
        parse(&[text.to_owned()])
    }

    #[test]
    fn a_flow_may_be_said_in_several_ways() {
        let flow = Flow {
            protocol: Protocol::Tcp,
            source: "198.51.100.9:40000".parse().unwrap(),
            destination: "192.0.2.1:80".parse().unwrap(),
            tcp_flags: SYN,
            length: 40,
        };
        for text in [
            "tcp 198.51.100.9:40000 > 192.0.2.1:80",
            "TCP 198.51.100.9:40000 192.0.2.1:80",
            "tcp 198.51.100.9:40000 -> 192.0.2.1:80 syn",
            "tcp 198.51.100.9:40000 to 192.0.2.1:80 [SYN] length 40",
            "tcp 198.51.100.9:40000 > 192.0.2.1:80 length 40 [S]",
        ] {
            assert_eq!(parsed(text), Ok(flow), "{text}");
        }
        let words = ["tcp", "198.51.100.9:40000", "192.0.2.1:80"].map(str::to_owned);
        assert_eq!(parse(&words), Ok(flow));
        let other = parsed("tcp [2001:db8::9]:1 > [2001:db8::1]:80 syn|ack length 1280").unwrap();
        assert_eq!((other.tcp_flags, other.length, other.source.is_ipv6()), (SYN | ACK, 1280, true));
        assert_eq!(parsed("tcp 1.1.1.1:1 2.2.2.2:2 [P.]").unwrap().tcp_flags, PSH | ACK);
        assert_eq!(parsed("udp [::1]:1 > [::2]:2").unwrap().length, 48);
    }

    #[test]
    fn what_is_no_flow_is_refused_with_what_is_wrong() {
        for (text, why) in [
            ("", "there is no flow"),
            ("icmp 1.1.1.1:1 2.2.2.2:2", "neither tcp nor udp"),
            ("tcp 1.1.1.1 > 2.2.2.2:2", "the source '1.1.1.1' is not ADDRESS:PORT"),
            ("tcp 1.1.1.1:1 >", "no destination"),
            ("tcp 1.1.1.1:1 > 2.2.2.2:0", "'2.2.2.2:0'"),
            ("tcp 1.1.1.1:1 > [::1]:2", "two families"),
            ("tcp 1.1.1.1:1 > 2.2.2.2:2 synn", "'synn' are not TCP flags"),
            ("tcp 1.1.1.1:1 > 2.2.2.2:2 syn ack", "'ack' comes after the flags"),
            ("udp 1.1.1.1:1 > 2.2.2.2:2 syn", "'syn' after a UDP flow"),
            ("udp 1.1.1.1:1 > 2.2.2.2:2 length 27", "the headers take 28"),
            ("udp 1.1.1.1:1 > 2.2.2.2:2 length", "not a length"),
            ("tcp 1.1.1.1:1 > 2.2.2.2:2 []", "not TCP flags"),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            tcp: bool, source: std::net::Ipv6Addr, port in 1..=u16::MAX, tcp_flags in 1_u8..64, length in 60_u16..,
        ) {
            let protocol = if tcp { Protocol::Tcp } else { Protocol::Udp };
            let tcp_flags = if tcp { tcp_flags } else { 0 };
            let destination = SocketAddr::new("2001:db8::1".parse().unwrap(), port);
            let flow = Flow { protocol, source: SocketAddr::new(source.into(), port), destination, tcp_flags, length };
            prop_assert_eq!(parsed(&flow.to_string()), Ok(flow));
        }

        #[test]
        fn nothing_panics(text in ".{0,60}") {
            let _ = parsed(&text);
        }
    }
}
