//! A key that labels and network identifiers are drawn from, which is in a file of its own: who does not have it cannot tell them
//! from the names.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes without the blanks and line's end behind them.
const LENGTH: std::ops::RangeInclusive<usize> = 16..=4096;
/// Of a file's mode: that others than owner and group may read or write it.
const OTHERS: u32 = 0o006;

/// What numbers are drawn from.
pub(super) enum Source {
    Name,
    Key(Key),
}

pub(super) struct Key(Hmac<Sha256>);

impl Key {
    /// What is wrong with these bytes as a key is said without them.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, String> {
        let bytes = bytes.trim_ascii_end();
        if !LENGTH.contains(&bytes.len()) {
            return Err(format!("it has {} bytes, and not {} to {}", bytes.len(), LENGTH.start(), LENGTH.end()));
        }
        Hmac::new_from_slice(bytes).map(Self).map_err(|error| error.to_string())
    }

    /// 64 bits for the name of a thing of a kind.
    pub(super) fn draw(&self, kind: &str, name: &str) -> u64 {
        let code = self.0.clone().chain_update(kind).chain_update([0]).chain_update(name);
        code.finalize().into_bytes().iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
    }
}

/// The bytes of a key's file, which others must not be able to read.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if found.permissions().mode() & OTHERS != 0 {
        return Err(io::Error::other("all users may read or write it: take that away with `chmod o= FILE`"));
    }
    let mut bytes = Vec::new();
    // One byte more than a key may have, blanks behind it included, is too many.
    file.take(2 * *LENGTH.end() as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::super::Settings;
    use super::*;

    const KEY: &str = "0123456789abcdef\n";

    /// Nodes of different versions have to agree: these are for ever. By `printf 'label\0web-1' | openssl dgst -sha256 -hmac KEY`.
    #[test]
    fn what_is_drawn_from_a_key_stays() {
        let draw = |key: &str, kind, name| Key::of(key.as_bytes()).map(|key| key.draw(kind, name)).unwrap();
        assert_eq!(draw(KEY, "label", "web-1"), EXPECTED);
        assert_eq!(draw("0123456789abcdef", "label", "web-1"), EXPECTED, "a line's end is not of the key");
        assert_ne!(draw(KEY, "vni", "web-1"), EXPECTED);
        assert_ne!(draw("0123456789abcdeF", "label", "web-1"), EXPECTED);
        assert_ne!(draw(KEY, "label", "web-2"), EXPECTED);
    }

    const EXPECTED: u64 = 0x9435594e077234e7;

    const FILE: &str = "
        [router]
        key_file = 'k'
        [[node]]
        name = 'a'
        address = '192.0.2.1'
        [[network]]
        name = 'red'
        subnets = ['10.1.0.0/24']
        [[network]]
        name = 'said'
        subnets = ['10.2.0.0/24']
        vni = 7
        [[interface]]
        name = 'web-1'
        node = 'a'
        network = 'red'
        device = 'x'
        addresses = ['10.1.0.11']
    ";

    #[test]
    fn labels_and_identifiers_follow_from_the_key_and_nothing_else_does() {
        let with = |key: &str| {
            let beside = |name: &str| Ok([key, name].concat().into_bytes());
            super::super::read::settings("vrouter.toml", FILE, &beside).unwrap()
        };
        let without = Settings::parse("vrouter.toml", &FILE.replace("key_file = 'k'", "")).unwrap();
        let (one, other) = (with("0123456789abcdef"), with("0123456789abcdeF"));
        assert_eq!(one, with("0123456789abcdef"));
        let numbers = |settings: &Settings| {
            let network = settings.network_on("a", "red").unwrap().label;
            [settings.interfaces["web-1"].label, settings.networks["red"].vni, network]
        };
        for (a, b) in [(&one, &other), (&one, &without), (&other, &without)] {
            assert!(numbers(a).iter().zip(numbers(b)).all(|(a, b)| *a != b), "{:?} {:?}", numbers(a), numbers(b));
        }
        assert_eq!(one.networks["said"].vni, 7);
        assert_eq!(one.interfaces["web-1"].mac, without.interfaces["web-1"].mac);
        assert!(one.router.has_key && !format!("{one:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        let refused = |bytes: &[u8]| Key::of(bytes).err().unwrap();
        assert_eq!(refused(b"my secret word\n"), "it has 14 bytes, and not 16 to 4096");
        assert!(refused(&[b'x'; 4097]).contains("4097 bytes"));
    }
}
