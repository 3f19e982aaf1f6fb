//! Quantities as people write them in suite files and on command lines.
//!
//! Two rules settle what a prefix means:
//! - **bytes count in 1024s**, as in NTttcp (`-l 128k`, `-thr` in KB/s), netperf and ntttcp-for-linux: 1k = 1024 bytes;
//! - **bits count in 1000s**, as in tc(8) and IEEE 802.3: 1kbit = 1000 bits.
//!
//! Reading is exact: a text that does not denote a whole number of the base unit is refused, never rounded. `Display`
//! writes what `FromStr` reads back to the same value, and serde uses both.

mod schema;

pub(crate) use schema::percent_or_half;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// `1 trial`, `2 trials`.
pub fn counted<N: fmt::Display + Copy + PartialEq + From<u8>>(n: N, one: &str, several: &str) -> String {
    let noun = if n == N::from(1) { one } else { several };
    format!("{n} {noun}")
}

/// A rate of bits as people read it, with three significant figures: `36.7 Gbit/s`, `952 Mbit/s`.
pub fn bits_at_a_glance(bits_per_second: f64) -> String {
    let (value, unit) = match bits_per_second {
        1e9.. => (bits_per_second / 1e9, "Gbit/s"),
        bits => (bits / 1e6, "Mbit/s"),
    };
    format!("{} {unit}", three_figures(value))
}

/// Any other rate, the same way: `990/s`, `12.3 thousand/s`.
pub fn rate_at_a_glance(per_second: f64) -> String {
    match per_second {
        1e7.. => format!("{} million/s", three_figures(per_second / 1e6)),
        1e4.. => format!("{} thousand/s", three_figures(per_second / 1e3)),
        _ => format!("{}/s", three_figures(per_second)),
    }
}

fn three_figures(value: f64) -> String {
    // What rounds up to a thousand has one digit more, and is none the less exact.
    let digits = if value > 0.0 { (2.0 - value.log10().floor()).clamp(0.0, 3.0) as usize } else { 0 };
    format!("{value:.digits$}")
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// A number of bytes. Reads `1390`, `128k`, `64KiB`, `2M`, `1.5G`; k, M, G and T are binary, with or without `B`, `iB`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Bits per second. Reads `100mbit`, `658.291Mbit`, `10Gbit/s`; decimal prefixes, any case, `/s` may be left out.
///
/// `{:.1}` rounds to that many digits after the point; plain `{}` is exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

/// Bytes per second. Reads `10000KB/s`, `2.5MiB/s`; KB is 1024 bytes, because NTttcp multiplies `-thr` by 1024.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRate(pub u64);

/// A length of time. Reads `15s`, `1.5s`, `500ms`, `20us`, `2m`, `1h`, whole nanoseconds up to 584 years.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// How many per second: of transactions, connections, packets; more than zero and at most 10^12. Reads `10000`, `0.5`,
/// `1e6`, `10k`, `1.5M/s`; k, M and G are decimal, in either case, and `/s` may be left out.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct PerSecond(f64);

/// A share in percent, finite and not negative; may exceed 100. Reads `5%`, `2.5 %`, `2.5`.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Percent(f64);

impl BitRate {
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl ByteRate {
    /// The same rate in bits, at most `u64::MAX`.
    pub fn bits(self) -> BitRate {
        BitRate(self.0.saturating_mul(8))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl PerSecond {
    const MOST: f64 = 1e12;

    /// # Errors
    /// When `value` is not more than zero, or above 10^12.
    pub fn new(value: f64) -> Result<Self, UnitError> {
        Self::checked(value).map_err(|why| PER_SECOND.refuse(value.to_string(), why))
    }

    fn checked(value: f64) -> Result<Self, UnitErrorKind> {
        match value {
            value if value.is_nan() => Err(UnitErrorKind::NotFinite),
            value if value < 0.0 => Err(UnitErrorKind::Negative),
            0.0 => Err(UnitErrorKind::Zero),
            value if value > Self::MOST => Err(UnitErrorKind::TooLarge { most: PER_SECOND.most }),
            value => Ok(Self(value)),
        }
    }

    pub fn get(self) -> f64 {
        self.0
    }
}

impl Percent {
    /// # Errors
    /// When `value` is negative, infinite or not a number.
    pub fn new(value: f64) -> Result<Self, UnitError> {
        let why = if !value.is_finite() {
            UnitErrorKind::NotFinite
        } else if value < 0.0 {
            UnitErrorKind::Negative
        } else {
            return Ok(Self(value + 0.0)); // -0 becomes 0
        };
        Err(PERCENT.refuse(value.to_string(), why))
    }

    /// 2.5 for 2.5 %.
    pub fn get(self) -> f64 {
        self.0
    }

    /// 0.025 for 2.5 %.
    pub fn fraction(self) -> f64 {
        self.0 / 100.0
    }
}

/// Why a text is not the quantity that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{read}` is not {expected}: {why}; write {}", self.instead())]
pub struct UnitError {
    /// The text as it was read.
    pub read: String,
    /// What should have been there, e.g. "a bit rate".
    pub expected: &'static str,
    pub why: UnitErrorKind,
    /// A text that would do.
    pub example: &'static str,
    /// What a number without a unit may have meant: units, and what they are called.
    meant: &'static [(&'static str, &'static str)],
}

impl UnitError {
    /// `5s` and `5m` of a bare 5, where either may have been meant.
    fn instead(&self) -> String {
        // iperf3's `1g`.
        if let UnitErrorKind::UnknownUnit { unit, .. } = &self.why
            && self.expected == BIT_RATE.expected
            && BIT_RATE.units.iter().any(|(name, _)| *name == format!("{}bit", unit.to_ascii_lowercase()))
        {
            return format!("`{}bit`", self.read.trim());
        }
        if self.meant.is_empty() || !matches!(self.why, UnitErrorKind::NoUnit { .. }) {
            return format!("for example `{}`", self.example);
        }
        let number = self.read.trim();
        let each = self.meant.iter().map(|(unit, words)| format!("`{number}{unit}` for {words}"));
        each.collect::<Vec<_>>().join(" or ")
    }
}

/// What is wrong with the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitErrorKind {
    #[error("it is empty")]
    Empty,
    #[error("it does not begin with a number")]
    NoNumber,
    #[error("it is negative")]
    Negative,
    #[error("it has to be more than zero")]
    Zero,
    #[error("it is not a finite number")]
    NotFinite,
    #[error("the unit is missing (one of {known})")]
    NoUnit { known: &'static str },
    #[error("the unit `{unit}` is unknown (known: {known})")]
    UnknownUnit { unit: String, known: &'static str },
    #[error("`{unit}` means bytes to tc(8) and bits to others")]
    AmbiguousUnit { unit: String },
    #[error("it is too large, the most is {most}")]
    TooLarge { most: &'static str },
    #[error("it is not a whole number of {base}")]
    Fraction { base: &'static str },
}

/// How one kind of quantity is written.
struct Notation {
    expected: &'static str,
    example: &'static str,
    base: &'static str,
    most: &'static str,
    known: &'static str,
    units: &'static [(&'static str, u64)],
    /// [`UnitError::meant`]
    meant: &'static [(&'static str, &'static str)],
}

const BYTES: Notation = Notation {
    expected: "a number of bytes",
    example: "128k",
    base: "bytes",
    most: "16777215T",
    known: "B, k, M, G, T, also as kB or KiB; 1k = 1024 bytes",
    units: &[
        ("", 1),
        ("B", 1),
        ("k", KIB),
        ("K", KIB),
        ("kB", KIB),
        ("KB", KIB),
        ("KiB", KIB),
        ("M", MIB),
        ("MB", MIB),
        ("MiB", MIB),
        ("G", GIB),
        ("GB", GIB),
        ("GiB", GIB),
        ("T", TIB),
        ("TB", TIB),
        ("TiB", TIB),
    ],
    meant: &[],
};

const BIT_RATE: Notation = Notation {
    expected: "a bit rate",
    example: "10Gbit",
    base: "bits per second",
    most: "18446744Tbit",
    known: "bit, kbit, Mbit, Gbit, Tbit; 1kbit = 1000 bits a second",
    units: &[("bit", 1), ("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000), ("tbit", 1_000_000_000_000)],
    meant: &[],
};

const BYTE_RATE: Notation = Notation {
    expected: "a rate in bytes",
    example: "10000KB/s",
    base: "bytes per second",
    most: "16777215TB/s",
    known: "B/s, KB/s, MB/s, GB/s, TB/s, also as KiB/s; 1KB = 1024 bytes",
    units: &[
        ("B/s", 1),
        ("kB/s", KIB),
        ("KB/s", KIB),
        ("KiB/s", KIB),
        ("MB/s", MIB),
        ("MiB/s", MIB),
        ("GB/s", GIB),
        ("GiB/s", GIB),
        ("TB/s", TIB),
        ("TiB/s", TIB),
    ],
    meant: &[],
};

const SPAN: Notation = Notation {
    expected: "a length of time",
    example: "15s",
    base: "nanoseconds",
    most: "5124095h",
    known: "ns, us, ms, s, m, h",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    meant: &[("s", "seconds"), ("m", "minutes")],
};

const PER_SECOND: Notation = Notation {
    expected: "a number per second",
    example: "10k",
    base: "",
    most: "1000G",
    known: "k, M, G; 1k = 1000 a second",
    units: &[("", 1), ("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000)],
    meant: &[],
};

const PERCENT: Notation = Notation {
    expected: "a percentage",
    example: "2.5%",
    base: "percent",
    most: "",
    known: "%",
    units: &[("", 1), ("%", 1)],
    meant: &[],
};

impl Notation {
    fn refuse(&self, read: impl Into<String>, why: UnitErrorKind) -> UnitError {
        UnitError { read: read.into(), expected: self.expected, why, example: self.example, meant: self.meant }
    }

    /// Splits `text` into its number and its unit, white space removed, and finds the unit's size.
    fn split<'t>(&self, text: &'t str, canonical: impl Fn(&str) -> String) -> Result<(&'t str, u64), UnitErrorKind> {
        let text = text.trim();
        if text.is_empty() {
            return Err(UnitErrorKind::Empty);
        }
        if text.strip_prefix(['-', '\u{2212}']).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            return Err(UnitErrorKind::Negative);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim_start());
        if !number.contains(|c: char| c.is_ascii_digit()) || number.matches('.').count() > 1 {
            return Err(UnitErrorKind::NoNumber);
        }
        let canonical = canonical(unit);
        match self.units.iter().find(|(name, _)| *name == canonical) {
            Some((_, size)) => Ok((number, *size)),
            None if unit.is_empty() => Err(UnitErrorKind::NoUnit { known: self.known }),
            None if unit.to_ascii_lowercase().ends_with("bps") => {
                Err(UnitErrorKind::AmbiguousUnit { unit: unit.into() })
            }
            None => Err(UnitErrorKind::UnknownUnit { unit: unit.into(), known: self.known }),
        }
    }

    /// Reads `text` as a whole number of the base unit.
    fn read(&self, text: &str, canonical: impl Fn(&str) -> String) -> Result<u64, UnitError> {
        self.split(text, canonical)
            .and_then(|(number, size)| self.whole(number, size))
            .map_err(|e| self.refuse(text, e))
    }

    fn whole(&self, number: &str, size: u64) -> Result<u64, UnitErrorKind> {
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        let fraction = fraction.trim_end_matches('0');
        // Beyond 18 digits only binary fractions of a terabyte could still be whole bytes; no user writes those.
        let divisor =
            u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 18).map(|digits| 10u128.pow(digits));
        let divisor = divisor.ok_or(UnitErrorKind::Fraction { base: self.base })?;
        let too_large = UnitErrorKind::TooLarge { most: self.most };
        let digits = format!("{integer}{fraction}");
        let Ok(mantissa) = digits.parse::<u128>() else { return Err(too_large) };
        let Some(scaled) = mantissa.checked_mul(u128::from(size)) else { return Err(too_large) };
        if scaled % divisor != 0 {
            return Err(UnitErrorKind::Fraction { base: self.base });
        }
        u64::try_from(scaled / divisor).map_err(|_| too_large)
    }
}

/// `value` in units of `size`, all digits, without trailing zeros.
fn exact(value: u128, size: u128) -> String {
    if value.is_multiple_of(size) {
        return (value / size).to_string();
    }
    let digits = size.ilog10() as usize;
    let fraction = format!("{:0digits$}", value % size);
    format!("{}.{}", value / size, fraction.trim_end_matches('0'))
}

/// The largest of the binary units that divides `bytes`, so that nothing is lost.
fn binary(bytes: u64) -> (u64, &'static str) {
    [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")]
        .into_iter()
        .find(|(size, _)| bytes != 0 && bytes.is_multiple_of(*size))
        .map_or((bytes, ""), |(size, unit)| (bytes / size, unit))
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        BYTES.read(text, str::to_owned).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = binary(self.0);
        f.pad(&format!("{number}{unit}"))
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let canonical = |unit: &str| {
            let unit = unit.to_ascii_lowercase();
            unit.strip_suffix("/s").unwrap_or(&unit).to_owned()
        };
        BIT_RATE.read(text, canonical).map(Self)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
        let (size, prefix) = prefixes.into_iter().find(|(size, _)| self.0 >= *size).unwrap_or((1, ""));
        match f.precision() {
            None => f.pad(&format!("{}{prefix}bit", exact(self.0.into(), size.into()))),
            Some(digits) => {
                let text = format!("{:.digits$}{prefix}bit", self.0 as f64 / size as f64);
                // `pad` would take the precision for a limit of the text's length.
                write!(f, "{text:>width$}", width = f.width().unwrap_or(0))
            }
        }
    }
}

impl FromStr for PerSecond {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let canonical = |unit: &str| {
            let unit = unit.to_ascii_lowercase();
            unit.strip_suffix("/s").unwrap_or(&unit).trim_end().to_owned()
        };
        let read = || {
            // Only that form has an exponent.
            if let Ok(number) = text.trim().parse::<f64>() {
                return Self::checked(number);
            }
            let (number, size) = PER_SECOND.split(text, canonical)?;
            let number: f64 = number.parse().map_err(|_| UnitErrorKind::NoNumber)?;
            Self::checked(number * size as f64)
        };
        read().map_err(|why| PER_SECOND.refuse(text, why))
    }
}

impl fmt::Display for PerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

impl FromStr for ByteRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        BYTE_RATE.read(text, str::to_owned).map(Self)
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = binary(self.0);
        f.pad(&format!("{number}{}/s", if unit.is_empty() { "B" } else { unit }))
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        SPAN.read(text, |unit| unit.replace(['\u{b5}', '\u{3bc}'], "u")).map(|ns| Self(Duration::from_nanos(ns)))
    }
}

impl fmt::Display for Span {
    /// In seconds or the largest part of a second that leaves at least 1 before the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        let (size, unit) = match ns {
            0 | 1_000_000_000.. => (1_000_000_000, "s"),
            1_000_000.. => (1_000_000, "ms"),
            1_000.. => (1_000, "us"),
            _ => (1, "ns"),
        };
        f.pad(&format!("{}{unit}", exact(ns, size)))
    }
}

impl FromStr for Percent {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, _) = PERCENT.split(text, str::to_owned).map_err(|why| PERCENT.refuse(text, why))?;
        let value = number.parse().map_err(|_| PERCENT.refuse(text, UnitErrorKind::NoNumber))?;
        Self::new(value)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", self.0))
    }
}

/// Serializes as text; deserializes from text or, where a bare number has one meaning only, from a number.
macro_rules! as_text {
    ($type:ty, $expected:expr, $example:expr $(, $method:ident($number:ty) => $convert:expr)*) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "{} such as \"{}\"", $expected, $example)
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }

                    $(fn $method<E: serde::de::Error>(self, number: $number) -> Result<$type, E> {
                        ($convert)(number).map_err(E::custom)
                    })*
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}
pub(crate) use as_text;

as_text!(Bytes, BYTES.expected, BYTES.example,
    visit_u64(u64) => |n| Ok::<_, UnitError>(Bytes(n)),
    visit_i64(i64) => |n: i64| n.try_into().map(Bytes).map_err(|_| BYTES.refuse(n.to_string(), UnitErrorKind::Negative)));
as_text!(BitRate, BIT_RATE.expected, BIT_RATE.example);
as_text!(ByteRate, BYTE_RATE.expected, BYTE_RATE.example);
// A bare number is refused in the words of a text without a unit.
as_text!(Span, SPAN.expected, SPAN.example,
    visit_u64(u64) => |n: u64| n.to_string().parse::<Span>(),
    visit_i64(i64) => |n: i64| n.to_string().parse::<Span>(),
    visit_f64(f64) => |n: f64| n.to_string().parse::<Span>());
as_text!(PerSecond, PER_SECOND.expected, PER_SECOND.example,
    visit_u64(u64) => |n| PerSecond::new(n as f64),
    visit_i64(i64) => |n| PerSecond::new(n as f64),
    visit_f64(f64) => PerSecond::new);
as_text!(Percent, PERCENT.expected, PERCENT.example,
    visit_u64(u64) => |n| Percent::new(n as f64),
    visit_i64(i64) => |n| Percent::new(n as f64),
    visit_f64(f64) => Percent::new);

/// `45 s`, `2:05 min`.
pub fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{}:{:02} min", seconds / 60, seconds % 60) }
}

#[cfg(test)]
mod tests;
