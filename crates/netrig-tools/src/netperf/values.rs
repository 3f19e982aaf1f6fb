//! Values of netperf's options, with its own rules for numbers and pairs.

use std::fmt;

use rig_sys::socket::Dscp;

/// What belongs to the machine of netperf, and to that of netserver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sides<T> {
    pub local: T,
    pub remote: T,
}

impl<T: Clone> Sides<T> {
    pub fn both(value: T) -> Self {
        Self { local: value.clone(), remote: value }
    }
}

/// What belongs to sending, and to receiving.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendReceive<T> {
    pub send: T,
    pub receive: T,
}

/// A number as netperf's `convert` reads it: leading digits as atoi(3) does, multiplied once for each of the letters K, M, G (powers of
/// 1024) and k, m, g (powers of 1000) that stands anywhere in the word. Beyond 64 bits it stays at the largest number.
pub fn convert(text: &str) -> i64 {
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('k', 1000), ('m', 1_000_000), ('g', 1_000_000_000)];
    let asked = units.iter().filter(|(letter, _)| text.contains(*letter));
    asked.fold(leading_number(text), |number, (_, factor)| number.saturating_mul(*factor))
}

/// atoi(3).
pub fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    let number = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(i64::MAX) };
    if text.starts_with('-') { -number } else { number }
}

/// The leading floating-point number, as atof(3) reads it; 0 where there is none.
pub fn leading_float(text: &str) -> f64 {
    let text = text.trim_start();
    let longest = (1..=text.len()).rev().filter(|&end| text.is_char_boundary(end));
    let mut numbers = longest.filter_map(|end| text[..end].parse::<f64>().ok());
    numbers.find(|number| number.is_finite()).unwrap_or(0.0)
}

/// A span as `-w` takes it, in microseconds: a number with `s`, `ms` or `us`, milliseconds where there is none of them.
pub fn microseconds(text: &str) -> i64 {
    let factor = match text {
        _ if text.contains('m') => 1000,
        _ if text.contains('u') => 1,
        _ if text.contains('s') => 1_000_000,
        _ => 1000,
    };
    leading_number(text).saturating_mul(factor)
}

/// Two values with a comma between them; one alone is both, `a,` is the first and `,b` the second.
pub fn pair(text: &str) -> (Option<&str>, Option<&str>) {
    let (first, second) = text.split_once(',').unwrap_or((text, text));
    (filled(first), filled(second))
}

/// As [`pair`], where one alone is the first.
pub fn explicit_pair(text: &str) -> (Option<&str>, Option<&str>) {
    let (first, second) = text.split_once(',').unwrap_or((text, ""));
    (filled(first), filled(second))
}

fn filled(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// The family of addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Family {
    #[default]
    Unspecified,
    Inet,
    Inet6,
}

impl Family {
    /// `None` for a word that is none of netperf's: anything with a 6 is IPv6, with a 4 or `inet` IPv4.
    pub fn of(text: &str) -> Option<Self> {
        match text {
            _ if text.contains('6') => Some(Self::Inet6),
            _ if text.contains('4') || text.contains("inet") => Some(Self::Inet),
            _ if text.contains('0') || text.contains("unspec") => Some(Self::Unspecified),
            _ => None,
        }
    }
}

/// As the banner of a test has it.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unspecified => "AF_UNSPEC",
            Self::Inet => "AF_INET",
            Self::Inet6 => "AF_INET6",
        })
    }
}

/// Which way payload goes, as one end sees it. A request/response test has both, a test of connections alone neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Direction {
    pub transmits: bool,
    pub receives: bool,
}

impl Direction {
    const TRANSMIT: u32 = 2;
    const RECEIVE: u32 = 4;

    pub fn of_number(number: u32) -> Self {
        Self { transmits: number & Self::TRANSMIT != 0, receives: number & Self::RECEIVE != 0 }
    }

    pub fn number(self) -> u32 {
        u32::from(self.transmits) * Self::TRANSMIT + u32::from(self.receives) * Self::RECEIVE
    }

    /// A word, a number, or several with `|` between them. `None` where one of them is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let mut number = 0;
        for word in text.split('|').filter(|word| !word.is_empty()) {
            number |= match word.to_ascii_lowercase().as_str() {
                "xmit" | "send" | "stream" | "transmit" => Self::TRANSMIT,
                "recv" | "receive" | "maerts" => Self::RECEIVE,
                "rr" => Self::TRANSMIT | Self::RECEIVE,
                number => integer(number).and_then(|number| u32::try_from(number).ok())?,
            };
        }
        Some(Self::of_number(number))
    }

    /// As the other end sees it.
    pub fn mirrored(self) -> Self {
        Self { transmits: self.receives, receives: self.transmits }
    }

    pub fn is_one_way(self) -> bool {
        self.transmits != self.receives
    }

    /// As the selector DIRECTION has it, of a test with a connection for each transaction or without.
    pub fn word(self, connects: bool) -> &'static str {
        match (self.transmits, self.receives) {
            (true, true) if connects => "Connect|Send|Recv",
            (true, true) => "Send|Recv",
            (true, false) => "Send",
            (false, true) => "Receive",
            (false, false) => "Connection",
        }
    }
}

/// A number with an optional `0x` or a leading 0 for octal, as strtol(3) reads it with base 0.
pub fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // The parser takes a sign of its own.
    let number = if digits.starts_with(['+', '-']) { None } else { i64::from_str_radix(digits, radix).ok() }?;
    Some(if negative { -number } else { number })
}

/// The protocol of the data connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Tcp,
    Udp,
    Sctp,
    UdpLite,
}

impl Transport {
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "tcp" => Some(Self::Tcp),
            "udp" => Some(Self::Udp),
            "sctp" => Some(Self::Sctp),
            "udplite" => Some(Self::UdpLite),
            _ => None,
        }
    }

    /// IANA's protocol number.
    pub fn number(self) -> u32 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
            Self::UdpLite => 136,
        }
    }

    pub fn of_number(number: u32) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Sctp, Self::UdpLite].into_iter().find(|known| known.number() == number)
    }

    pub fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::UdpLite)
    }

    /// Of the selector PROTOCOL.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
            Self::UdpLite => "UDPLite",
        }
    }

    /// Of the selector SOCKET_TYPE, and its number in the protocol.
    pub fn socket_type(self) -> (&'static str, u32) {
        if self.is_datagram() { ("Datagram", 2) } else { ("Stream", 1) }
    }
}

/// A type of service: a name of RFC 2474, RFC 2597, RFC 3246 or RFC 1349, or a number below 256. `None` for anything else.
pub fn type_of_service(text: &str) -> Option<u8> {
    if let Some(dscp) = Dscp::of_name(text) {
        return Some(dscp.type_of_service());
    }
    let name = text.to_ascii_lowercase();
    match name.as_str() {
        "lowdelay" => Some(0x10),
        "throughput" => Some(0x08),
        "reliability" => Some(0x04),
        number => integer(number).and_then(|number| u8::try_from(number).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_netperf_reads_them() {
        for (text, number) in [
            ("10", 10),
            ("-5", -5),
            ("16K", 16384),
            ("1M", 1 << 20),
            ("2g", 2_000_000_000),
            ("10s", 10),
            ("1m0s", 1_000_000),
            ("1Kk", 1_024_000),
            ("", 0),
            ("x", 0),
            (" 7", 7),
            ("+3", 3),
            ("99999999999999999999", i64::MAX),
            ("9999999999G", i64::MAX),
        ] {
            assert_eq!(convert(text), number, "{text}");
        }
        for (text, number) in
            [("0.2", 0.2), ("-0.20", -0.2), ("5x", 5.0), ("", 0.0), ("nan", 0.0), ("1e3", 1000.0), ("é", 0.0)]
        {
            assert!((leading_float(text) - number).abs() < 1e-12, "{text}");
        }
        for (text, us) in [("10", 10_000), ("10ms", 10_000), ("10us", 10), ("2s", 2_000_000)] {
            assert_eq!(microseconds(text), us, "{text}");
        }
    }

    #[test]
    fn one_value_is_both_or_the_first() {
        assert_eq!(pair("1,2"), (Some("1"), Some("2")));
        assert_eq!(pair("1"), (Some("1"), Some("1")));
        assert_eq!(pair("1,"), (Some("1"), None));
        assert_eq!(pair(",2"), (None, Some("2")));
        assert_eq!(explicit_pair("1"), (Some("1"), None));
        assert_eq!(explicit_pair(",2"), (None, Some("2")));
        assert_eq!(explicit_pair(""), (None, None));
    }

    #[test]
    fn integers_have_one_sign() {
        for (text, number) in [
            ("0x1f", Some(31)),
            ("017", Some(15)),
            ("-5", Some(-5)),
            ("0", Some(0)),
            ("--5", None),
            ("-+5", None),
            ("--9223372036854775808", None),
            ("-0x-8000000000000000", None),
            ("", None),
            ("9x", None),
        ] {
            assert_eq!(integer(text), number, "{text}");
        }
    }

    #[test]
    fn types_of_service_have_names_and_numbers() {
        for (text, value) in [
            ("CS0", Some(0)),
            ("cs5", Some(0xa0)),
            ("EF", Some(0xb8)),
            ("AF41", Some(0x88)),
            ("af13", Some(0x38)),
            ("0xb8", Some(0xb8)),
            ("16", Some(16)),
            ("lowdelay", Some(16)),
            ("cs8", None),
            ("af51", None),
            ("256", None),
            ("-1", None),
            ("", None),
            ("af4é", None),
        ] {
            assert_eq!(type_of_service(text), value, "{text}");
        }
    }

    #[test]
    fn directions_are_words_numbers_and_both() {
        let both = Direction { transmits: true, receives: true };
        assert_eq!(Direction::parse("rr"), Some(both));
        assert_eq!(Direction::parse("xmit|recv"), Some(both));
        assert_eq!(Direction::parse("6"), Some(both));
        assert_eq!(Direction::parse("0x4").map(|direction| direction.word(false)), Some("Receive"));
        assert_eq!(Direction::parse("up"), None);
        assert_eq!(Direction::parse("send").unwrap().mirrored().number(), 4);
    }
}
