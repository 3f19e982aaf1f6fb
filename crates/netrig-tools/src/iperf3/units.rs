//! Numbers with suffixes, read and written as iperf3 does.

use super::error::{Code, TestError};

/// A size: K, M, G and T are powers of 1024, in either case, and there may be a fraction.
pub fn size(text: &str) -> Result<u64, TestError> {
    scaled(text, 1024.0)
}

/// A rate: K, M, G and T are powers of 1000.
pub fn rate(text: &str) -> Result<u64, TestError> {
    scaled(text, 1000.0)
}

/// As `sscanf("%lf%c")` reads it: a number, and the letter behind it. What follows is not looked at.
fn scaled(text: &str, step: f64) -> Result<u64, TestError> {
    let bad = || TestError::with(Code::UNIT, format!("'{text}'"));
    let ends = (1..=text.len()).rev().filter(|&end| text.is_char_boundary(end));
    let mut numbers = ends.filter_map(|end| Some((end, text[..end].parse::<f64>().ok()?)));
    let (end, number) = numbers.find(|(_, number)| number.is_finite()).ok_or_else(bad)?;
    let power = match text[end..].chars().next() {
        Some('k' | 'K') => 1,
        Some('m' | 'M') => 2,
        Some('g' | 'G') => 3,
        Some('t' | 'T') => 4,
        None => 0,
        Some(_) => return Err(bad()),
    };
    if number < 0.0 {
        return Err(bad());
    }
    // As the cast saturates, so does what is too large.
    Ok((number * step.powi(power)) as u64)
}

/// The leading number, as atoi(3) reads it; `None` without one.
pub fn leading_integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let number: i64 = if length == 0 { None } else { Some(digits[..length].parse().unwrap_or(i64::MAX)) }?;
    Some(if text.starts_with('-') { -number } else { number })
}

/// What `-f` chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The unit that fits, in bits.
    Adaptive,
    /// Bits, in steps of 1000 to this power.
    Bits(usize),
    /// Bytes, in steps of 1024 to this power.
    Bytes(usize),
}

impl Format {
    pub fn of(text: &str) -> Result<Self, TestError> {
        let letter = text.chars().next().ok_or(Code::FORMAT)?;
        let power = "kmgt".find(letter.to_ascii_lowercase()).ok_or(Code::FORMAT)? + 1;
        Ok(if letter.is_ascii_lowercase() { Self::Bits(power) } else { Self::Bytes(power) })
    }
}

/// Bytes, in the binary unit that fits: `1.25 GBytes` without the s.
pub fn transfer(bytes: f64) -> String {
    number(bytes, 1024.0, fitting(bytes, 1024.0), ["Byte", "KByte", "MByte", "GByte", "TByte"])
}

/// Bytes per second, as `format` says, without the s and without `/sec`.
pub fn bitrate(bytes_per_second: f64, format: Format) -> String {
    let bits = bytes_per_second * 8.0;
    const BITS: [&str; 5] = ["bit", "Kbit", "Mbit", "Gbit", "Tbit"];
    match format {
        Format::Adaptive => number(bits, 1000.0, fitting(bits, 1000.0), BITS),
        Format::Bits(power) => number(bits, 1000.0, power, BITS),
        Format::Bytes(power) => number(bytes_per_second, 1024.0, power, ["Byte", "KByte", "MByte", "GByte", "TByte"]),
    }
}

fn fitting(value: f64, step: f64) -> usize {
    let (mut value, mut power) = (value, 0);
    while value >= step && power < 4 {
        value /= step;
        power += 1;
    }
    power
}

/// Three digits that count, in four places.
fn number(value: f64, step: f64, power: usize, units: [&str; 5]) -> String {
    let value = value / step.powi(power as i32);
    let unit = units[power.min(4)];
    if value < 9.995 {
        format!("{value:4.2} {unit}")
    } else if value < 99.95 {
        format!("{value:4.1} {unit}")
    } else {
        format!("{value:4.0} {unit}")
    }
}

/// C's `%.2g`.
pub fn two_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let scientific = format!("{value:.1e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..2).contains(&exponent) {
        trimmed(&format!("{value:.*}", (1 - exponent).max(0) as usize))
    } else {
        format!("{}e{}{:02}", trimmed(mantissa), if exponent < 0 { '-' } else { '+' }, exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_rates_decimal() {
        for (text, as_size, as_rate) in [
            ("0", 0, 0),
            ("128K", 131_072, 128_000),
            ("1.5m", 1_572_864, 1_500_000),
            ("2G", 2 << 30, 2_000_000_000),
            ("1t", 1 << 40, 1_000_000_000_000),
            ("1000", 1000, 1000),
            ("4MB", 4 << 20, 4_000_000),
            ("100Mbps", 100 << 20, 100_000_000),
            ("1e3", 1000, 1000),
        ] {
            assert_eq!((size(text), rate(text)), (Ok(as_size), Ok(as_rate)), "{text}");
        }
        for text in ["", "K", "-1", "1x", "1.2.3", "inf", "é"] {
            let error = size(text).unwrap_err();
            assert_eq!(
                (error.code, error.to_string()),
                (Code::UNIT, format!("invalid unit value or suffix: '{text}'"))
            );
        }
    }

    #[test]
    fn integers_are_read_as_far_as_they_go() {
        for (text, number) in
            [("10", Some(10)), ("10s", Some(10)), ("30.5", Some(30)), ("-1", Some(-1)), ("s", None), ("", None)]
        {
            assert_eq!(leading_integer(text), number, "{text}");
        }
        assert_eq!(leading_integer("99999999999999999999"), Some(i64::MAX));
    }

    #[test]
    fn figures_have_four_places() {
        for (bytes, text) in [
            (0.0, "0.00 Byte"),
            (1023.0, "1023 Byte"),
            (1024.0, "1.00 KByte"),
            (131_072.0, " 128 KByte"),
            (1.5 * 1024.0 * 1024.0, "1.50 MByte"),
            (9.996 * 1024.0 * 1024.0, "10.0 MByte"),
            (1e16, "9095 TByte"),
        ] {
            assert_eq!(transfer(bytes), text);
        }
        let rates = [Format::Adaptive, Format::Bits(1), Format::Bits(2), Format::Bytes(2), Format::Bits(4)];
        assert_eq!(
            rates.map(|format| bitrate(131_072_000.0, format)),
            ["1.05 Gbit", "1048576 Kbit", "1049 Mbit", " 125 MByte", "0.00 Tbit"]
        );
        assert_eq!((Format::of("m"), Format::of("Mbits")), (Ok(Format::Bits(2)), Ok(Format::Bytes(2))));
        assert_eq!(Format::of("x"), Err(Code::FORMAT.into()));
    }

    #[test]
    fn percentages_are_printed_as_c_does() {
        for (value, text) in [
            (0.0, "0"),
            (100.0, "1e+02"),
            (99.4, "99"),
            (99.6, "1e+02"),
            (12.0, "12"),
            (1.0, "1"),
            (0.123, "0.12"),
            (0.0012, "0.0012"),
            (0.00001, "1e-05"),
            (0.000_012_6, "1.3e-05"),
            (5.55, "5.5"),
        ] {
            assert_eq!(two_digits(value), text, "{value}");
        }
    }
}
