//! The arguments of keywords. Errors say what is wrong with an argument; its keyword adds what it takes.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use rig_packet::plan::Range;
use rig_stats::units::{PerSecond, UnitError};

type Result<T> = std::result::Result<T, String>;

/// A whole number within a range, without a suffix.
pub fn whole<T: FromStr + PartialOrd + std::fmt::Display>(text: &str, range: RangeInclusive<T>) -> Result<T> {
    let number = text.parse().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit()));
    let within = number.filter(|number| range.contains(number));
    within.ok_or_else(|| format!("'{text}' is not a number from {} to {}", range.start(), range.end()))
}

/// A number per second, as suites and options have it, too.
pub fn rate(text: &str) -> Result<f64> {
    text.parse().map(PerSecond::get).map_err(|error: UnitError| error.to_string())
}

/// A number above zero, with `k` or `m` for a thousand or a million of it, in either case.
fn amount(text: &str) -> Result<f64> {
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let number = decimal(digits).map(|number| number * scale);
    // The largest that a count of connections or bytes a second can reasonably be; finite, too.
    let number = number.filter(|&number| number > 0.0 && number <= 1e12);
    number.ok_or_else(|| format!("'{text}' is not a number above zero, as in 100, 2k or 1.5m"))
}

/// [`amount`] as a whole number within a range.
pub fn count(text: &str, range: RangeInclusive<u64>) -> Result<u64> {
    let number = amount(text)?;
    if number.fract() != 0.0 || !range.contains(&(number as u64)) {
        return Err(format!("'{text}' is not a whole number from {} to {}", range.start(), range.end()));
    }
    Ok(number as u64)
}

/// Seconds, or with `m`, `h` or `d` minutes, hours or days.
pub fn long_time(text: &str) -> Result<Duration> {
    let unit = |suffix| text.strip_suffix(suffix);
    let (digits, seconds) = if let Some(digits) = unit('s') {
        (digits, 1.0)
    } else if let Some(digits) = unit('m') {
        (digits, 60.0)
    } else if let Some(digits) = unit('h') {
        (digits, 3600.0)
    } else if let Some(digits) = unit('d') {
        (digits, 86_400.0)
    } else {
        (text, 1.0)
    };
    let time = decimal(digits).map(|number| number * seconds).filter(|&time| time > 0.0 && time <= 1e9);
    let time = time.and_then(|time| Duration::try_from_secs_f64(time).ok());
    time.ok_or_else(|| format!("'{text}' is not a time above zero, as in 1.5d, 2h, 3.5m, 100s or 100"))
}

/// Microseconds, milliseconds or seconds, with the unit.
pub fn short_time(text: &str) -> Result<Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let scale = match unit {
        "us" => Some(1),
        "ms" => Some(1000),
        "s" => Some(1_000_000),
        _ => None,
    };
    let micros = digits.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
    micros.map(Duration::from_micros).ok_or_else(|| format!("'{text}' is not a time, as in 10us, 1ms or 10s"))
}

fn decimal(text: &str) -> Option<f64> {
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|_| plain)
}

pub fn address(text: &str) -> Result<IpAddr> {
    if let Some((address, zone)) = text.split_once('%').filter(|(address, _)| address.parse::<Ipv6Addr>().is_ok()) {
        return Err(format!(
            "packets carry no zone, the line `port` has the interface: write {address} without %{zone}"
        ));
    }
    let address: Option<IpAddr> = text.parse().ok();
    let usable = address.filter(|address| !address.is_unspecified() && !address.is_multicast());
    usable.ok_or_else(|| format!("'{text}' is not the IPv4 or IPv6 address of a host"))
}

pub fn mac(text: &str) -> Result<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    let read = |byte: &mut u8| {
        let part = parts.next().filter(|part| (1..=2).contains(&part.len()));
        part.and_then(|part| u8::from_str_radix(part, 16).ok()).map(|value| *byte = value)
    };
    let all = mac.iter_mut().map(read).collect::<Option<()>>();
    match all.filter(|()| parts.next().is_none()) {
        Some(()) => Ok(mac),
        None => Err(format!("'{text}' is not a MAC address, as in 02:00:5e:10:00:01")),
    }
}

/// `count` addresses from `first`.
pub fn range(first: &str, count: &str) -> Result<Range> {
    let (first, count) = (address(first)?, whole(count, 1..=65_535)?);
    let range = Range { first, count };
    last(&range).ok_or_else(|| format!("{count} addresses from {first} go beyond the last possible one"))?;
    Ok(range)
}

/// The last address of a range, if there is one.
pub fn last(range: &Range) -> Option<IpAddr> {
    nth(range.first, u64::from(range.count) - 1)
}

/// The address `n` after `first`.
pub fn nth(first: IpAddr, n: u64) -> Option<IpAddr> {
    match first {
        IpAddr::V4(first) => u32::try_from(n)
            .ok()
            .and_then(|n| first.to_bits().checked_add(n))
            .map(|bits| std::net::Ipv4Addr::from_bits(bits).into()),
        IpAddr::V6(first) => {
            first.to_bits().checked_add(n.into()).map(|bits| std::net::Ipv6Addr::from_bits(bits).into())
        }
    }
}

/// CPU numbers and ranges, each once, in their order.
pub fn cpus(words: &[&str]) -> Result<Vec<u32>> {
    const MAX: u32 = rig_sys::cpu::CpuSet::MAX;
    let mut cpus = Vec::new();
    for word in words {
        let bad = |_| format!("'{word}' is neither a CPU number up to {MAX} nor a range of them, as in 4-7");
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (whole(first, 0..=MAX).map_err(bad)?, whole(last, 0..=MAX).map_err(bad)?);
        if first > last {
            return Err(format!("'{word}' is a range from the larger to the smaller number"));
        }
        for cpu in first..=last {
            if cpus.contains(&cpu) {
                return Err(format!("CPU {cpu} is named twice"));
            }
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// A number up to 255, decimal or with `0x`.
pub fn byte(text: &str) -> Result<u8> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let value = match hex {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => u8::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => whole(text, 0..=255).ok(),
    };
    value.ok_or_else(|| format!("'{text}' is not a number from 0 to 255 or 0x00 to 0xff"))
}
