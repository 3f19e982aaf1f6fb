//! Whether a service's first packets are answered by the SYN proxy, as files and commands say it.

use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rig_datapath::balancer as datapath;

/// What was said of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SynProxy {
    Auto,
    Always,
    /// Where nothing is said: connections through the proxy are not as those without it.
    #[default]
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
/// Fewer are so soon reached by clients that mean it that half of what a small service may have is waited for.
const LEAST: u32 = 128;

/// A secret that balancers of a cluster share cannot be read. What it is is never told.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read {}, which has a secret", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{} may be read or written by others than its owner: chmod 600", .0.display())]
    Open(PathBuf),
    #[error("{}, which has a secret, has to be named by its whole path: a reload may run elsewhere", .0.display())]
    Relative(PathBuf),
    #[error("{}, which has a secret, is no file", .0.display())]
    NoFile(PathBuf),
    #[error("{} belongs to another user than root and who runs this", .0.display())]
    Owner(PathBuf),
    #[error("{} has to have {} hexadecimal digits, and nothing else: openssl rand -hex {bytes}", path.display(), 2 * bytes)]
    Form { path: PathBuf, bytes: usize },
}

impl SecretError {
    /// It is somebody else's, who may read it; or where nobody else may look.
    pub fn is_others(&self) -> bool {
        match self {
            Self::Read(_, error) => error.kind() == std::io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

/// Reads the secret of the SYN proxy's cookies that a file has.
pub fn read_secret(path: &Path) -> Result<datapath::CookieSecret, SecretError> {
    read_digits::<16>(path).map(Into::into)
}

/// Reads the key that a file has, by which balancers know each other's messages.
pub fn read_key(path: &Path) -> Result<[u8; 32], SecretError> {
    read_digits(path)
}

fn read_digits<const N: usize>(path: &Path) -> Result<[u8; N], SecretError> {
    let read = |error| SecretError::Read(path.to_owned(), error);
    if !path.is_absolute() {
        return Err(SecretError::Relative(path.to_owned()));
    }
    // Nobody waits for who writes into a FIFO.
    let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(read)?;
    let about = file.metadata().map_err(read)?;
    if !about.is_file() {
        return Err(SecretError::NoFile(path.to_owned()));
    }
    if about.uid() != 0 && about.uid() != rustix::process::geteuid().as_raw() {
        return Err(SecretError::Owner(path.to_owned()));
    }
    if about.permissions().mode() & 0o077 != 0 {
        return Err(SecretError::Open(path.to_owned()));
    }
    let mut text = String::new();
    // A newline more, and one byte that is too many.
    file.by_ref().take(2 * N as u64 + 2).read_to_string(&mut text).map_err(read)?;
    let digits = text.strip_suffix('\n').unwrap_or(&text);
    let mut secret = [0; N];
    let form = || SecretError::Form { path: path.to_owned(), bytes: N };
    let is_hexadecimal = digits.len() == 2 * N && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    for (byte, pair) in secret.iter_mut().zip(digits.as_bytes().chunks(2)).filter(|_| is_hexadecimal) {
        let pair = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(pair, 16).map_err(|_| form())?;
    }
    if is_hexadecimal { Ok(secret) } else { Err(form()) }
}

impl SynProxy {
    /// As the datapath shall have it, of a service that may have so many connections: long before they are all taken.
    pub fn in_force(self, most: u32) -> datapath::SynProxy {
        match self {
            Self::Off => datapath::SynProxy::Off,
            Self::Always => datapath::SynProxy::Always,
            Self::Auto => {
                let from = (most / 8).max((most / 2).min(LEAST)).min(FROM);
                let from = NonZeroU32::new(from).unwrap_or(NonZeroU32::MIN);
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
            assert!(matches!(error, SecretError::Form { .. }), "{wrong}");
            assert!(!format!("{error} {error:?}").contains("0a0B"));
        }
        assert!(matches!(read_secret(&directory.path().join("none")), Err(SecretError::Read(..))));
        assert!(matches!(read_secret(Path::new("secret")), Err(SecretError::Relative(_))));
        assert!(matches!(read_secret(directory.path()), Err(SecretError::NoFile(_))));
        let fifo = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        assert!(matches!(read_secret(&fifo), Err(SecretError::NoFile(_))));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            assert!(matches!(read_secret(&path), Err(SecretError::Owner(_))));
        }
    }

    #[test]
    fn it_begins_before_the_service_is_full() {
        let from = |most| match SynProxy::Auto.in_force(most) {
            datapath::SynProxy::Auto { from } => from.get(),
            other => panic!("{other:?}"),
        };
        assert_eq!([1 << 20, 8000, 800, 64, 4, 1].map(from), [4096, 1000, 128, 32, 2, 1]);
    }
}
