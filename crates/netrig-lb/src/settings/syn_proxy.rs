//! Whether a service's first packets are answered by the SYN proxy, as files and commands say it.

use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rig_datapath::balancer as datapath;

use crate::message::{ForwardingMethod, Protocol};

/// What was said of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SynProxy {
    Auto,
    Always,
    Off,
}

/// By the names that files have for it.
pub const SYN_PROXIES: [(&str, SynProxy); 3] =
    [("auto", SynProxy::Auto), ("always", SynProxy::Always), ("off", SynProxy::Off)];

/// What DPVS says for it.
pub const DPVS: [(&str, SynProxy); 2] = [("enable", SynProxy::Always), ("disable", SynProxy::Off)];

pub fn syn_proxy(name: &str) -> Option<SynProxy> {
    SYN_PROXIES.iter().chain(&DPVS).find(|(known, _)| *known == name).map(|(_, proxy)| *proxy)
}

pub fn syn_proxy_name(proxy: SynProxy) -> &'static str {
    SYN_PROXIES.iter().find(|(_, known)| *known == proxy).map_or("?", |(name, _)| name)
}

/// Unanswered connections from which on SYNs are answered: what one listening socket of a backend holds, by Linux's
/// `net.core.somaxconn`.
const FROM: u32 = 4096;

/// A secret that balancers of a cluster share cannot be read. What it is is never told.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read {}, which has the SYN proxy's secret", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{} may be read or written by others than its owner: chmod 600", .0.display())]
    Open(PathBuf),
    #[error("{} has to have 32 hexadecimal digits, and nothing else: openssl rand -hex 16", .0.display())]
    Form(PathBuf),
}

/// Reads the secret that a file has.
pub fn read_secret(path: &Path) -> Result<datapath::CookieSecret, SecretError> {
    let read = |error| SecretError::Read(path.to_owned(), error);
    let mut file = File::open(path).map_err(read)?;
    if file.metadata().map_err(read)?.permissions().mode() & 0o077 != 0 {
        return Err(SecretError::Open(path.to_owned()));
    }
    let mut text = String::new();
    // A newline more, and one byte that is too many.
    file.by_ref().take(34).read_to_string(&mut text).map_err(read)?;
    let digits = text.strip_suffix('\n').unwrap_or(&text);
    let mut secret = [0; 16];
    let is_hexadecimal = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    for (byte, pair) in secret.iter_mut().zip(digits.as_bytes().chunks(2)).filter(|_| is_hexadecimal) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).map_err(|_| SecretError::Form(path.to_owned()))?;
    }
    if is_hexadecimal { Ok(secret.into()) } else { Err(SecretError::Form(path.to_owned())) }
}

/// What a service has where nothing is said of it: `auto`, if its packets can be translated.
pub fn by_default(protocol: Protocol, forward: Option<ForwardingMethod>) -> SynProxy {
    let translates = matches!(forward, Some(ForwardingMethod::FullNat | ForwardingMethod::Nat));
    if protocol == Protocol::Tcp && translates { SynProxy::Auto } else { SynProxy::Off }
}

impl SynProxy {
    /// As the datapath shall have it, of a service that may have so many connections: long before they are all taken.
    pub fn in_force(self, most: u32) -> datapath::SynProxy {
        match self {
            Self::Off => datapath::SynProxy::Off,
            Self::Always => datapath::SynProxy::Always,
            Self::Auto => {
                let from = NonZeroU32::new((most / 8).min(FROM)).unwrap_or(NonZeroU32::MIN);
                datapath::SynProxy::Auto { from }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_owners_and_has_32_digits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let written = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read_secret(&path)
        };
        let good = "000102030405060708090a0B0c0d0e0F";
        let expected = datapath::CookieSecret::from(std::array::from_fn(|byte| byte as u8));
        assert_eq!(written(&format!("{good}\n"), 0o600).unwrap(), expected);
        assert_eq!(written(good, 0o400).unwrap(), expected);
        assert!(matches!(written(good, 0o640), Err(SecretError::Open(_))));
        for wrong in ["", &good[1..], &format!("{good}0"), &format!("{good}\n\n\n00"), &good.replace('7', "x")] {
            let error = written(wrong, 0o600).unwrap_err();
            assert!(matches!(error, SecretError::Form(_)), "{wrong}");
            assert!(!format!("{error} {error:?}").contains("0a0B"));
        }
        assert!(matches!(read_secret(&directory.path().join("none")), Err(SecretError::Read(..))));
    }

    #[test]
    fn it_begins_before_the_service_is_full() {
        let from = |most| match SynProxy::Auto.in_force(most) {
            datapath::SynProxy::Auto { from } => from.get(),
            other => panic!("{other:?}"),
        };
        assert_eq!([1 << 20, 8000, 64, 4].map(from), [4096, 1000, 8, 1]);
    }

    #[test]
    fn what_cannot_be_translated_has_none_by_default() {
        let of = |protocol, forward| by_default(protocol, Some(forward));
        assert_eq!(of(Protocol::Tcp, ForwardingMethod::FullNat), SynProxy::Auto);
        assert_eq!(of(Protocol::Tcp, ForwardingMethod::Nat), SynProxy::Auto);
        assert_eq!(of(Protocol::Tcp, ForwardingMethod::Route), SynProxy::Off);
        assert_eq!(of(Protocol::Udp, ForwardingMethod::FullNat), SynProxy::Off);
    }
}
