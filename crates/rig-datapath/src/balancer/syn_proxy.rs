//! What the SYN proxy has from the control plane: keys of its cookies, and room for what it translates.

use std::fmt;
use std::io::Read as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{SystemTime, UNIX_EPOCH};

use libbpf_rs::{MapHandle, MapType};

use crate::Error;

use super::config::{ClientAddress, Config, Service, SynProxy};
use super::control::Balancer;
use super::cookie;
use super::handle::BalancerHandle;
use super::shape::{self, CookieKeys, Splice, forward, syn_proxy};

/// What cookies are made with: 16 bytes that nobody else may know. Balancers of one cluster with the same one take each other's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CookieSecret(pub(super) [u64; 2]);

/// It is never shown.
impl fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieSecret")
    }
}

impl From<[u8; 16]> for CookieSecret {
    fn from(bytes: [u8; 16]) -> Self {
        let word = |at: usize| (0..8).fold(0, |word, byte| word | u64::from(bytes[at + byte]) << (8 * byte));
        Self([word(0), word(8)])
    }
}

/// Drawn from the kernel's random numbers.
pub(super) fn random_secret() -> Result<CookieSecret, Error> {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| bytes.into()).map_err(|source| Error::Secret { source })
}

/// Of the wall clock, which balancers of a cluster have in common: so long cookies are made with one key, and taken for as long again.
const EPOCH_SECONDS: u64 = 64;

impl BalancerHandle {
    /// Cookies are made with this secret from here on; those that were made with another one are void. It is kept with the tables.
    /// Returns the one before.
    pub fn set_cookie_secret(&self, CookieSecret(secret): CookieSecret) -> Result<CookieSecret, Error> {
        let keys: CookieKeys = self.tables.cookie_keys.at(0)?;
        if keys.secret != secret {
            self.make_cookie_keys(secret, keys.epoch)?;
        }
        Ok(CookieSecret(keys.secret))
    }

    /// Makes the keys of the time that it is. To be called about once a second.
    pub fn turn_cookie_keys(&self) -> Result<(), Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.set_cookie_epoch(now / EPOCH_SECONDS)
    }

    /// As in this epoch. For tests.
    #[doc(hidden)]
    pub fn set_cookie_epoch(&self, epoch: u64) -> Result<(), Error> {
        let keys: CookieKeys = self.tables.cookie_keys.at(0)?;
        if keys.epoch == epoch { Ok(()) } else { self.make_cookie_keys(keys.secret, epoch) }
    }

    fn make_cookie_keys(&self, secret: [u64; 2], epoch: u64) -> Result<(), Error> {
        let keys = CookieKeys { key: cookie::keys(secret, epoch), secret, epoch };
        self.tables.cookie_keys.set(&0_u32, &keys)
    }

    /// Whether the SYN proxy has room for its connections.
    fn has_splices(&self) -> Result<bool, Error> {
        Ok(self.tables.splices.get::<u32, u32>(&0)?.is_some())
    }

    /// Bytes of that room.
    pub(super) fn memory_of_splices(&self) -> Result<u64, Error> {
        Ok(if self.has_splices()? { u64::from(self.slots.end) * size_of::<Splice>() as u64 } else { 0 })
    }

    /// Makes room for the SYN proxy's connections, as many as there can be: 16 bytes for each place of the table.
    fn make_splices(&self) -> Result<(), Error> {
        if self.has_splices()? {
            return Ok(());
        }
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_INNER_MAP,
            ..libbpf_sys::bpf_map_create_opts::default()
        };
        let (key, value) = (size_of::<u32>() as u32, size_of::<Splice>() as u32);
        let made = MapHandle::create(MapType::Array, Some("splices_of"), key, value, self.slots.end, &options);
        let made =
            made.map_err(|source| Error::Map { map: "splices", operation: "make room for connections in", source })?;
        self.tables.splices.set(&0_u32, &(made.as_fd().as_raw_fd() as u32))
    }

    /// Makes room for connections of the SYN proxy once a service has half as many connections without an answer as it begins at. Says
    /// whether it has. To be called about once a second, while packets come.
    pub fn expect_syn_proxy(&self) -> Result<bool, Error> {
        let known = self.known();
        let mut near = false;
        for service in known.services.values() {
            let is: shape::Service = self.tables.services.at(service.number)?;
            let waiting: u64 = self.tables.unanswered.at(service.number)?;
            let opens = [forward::FULL_NAT, forward::NAT].contains(&is.forward);
            near = near || (opens && is.syn_proxy == syn_proxy::AUTO && waiting * 2 >= u64::from(is.proxy_from));
        }
        if !near || self.has_splices()? {
            return Ok(false);
        }
        self.make_splices().map(|()| true)
    }
}

impl Balancer {
    /// Before services come into force that have it always, and translate what backends answer, or whose connections have the PROXY
    /// protocol's header.
    pub(super) fn prepare_syn_proxy(&self, config: &Config) -> Result<(), Error> {
        let opens = |of: &Service| of.syn_proxy == SynProxy::Always && of.forward.translates();
        let needs = |of: &Service| opens(of) || of.client_address == ClientAddress::ProxyV2;
        if config.services.iter().any(needs) { self.handle.make_splices() } else { Ok(()) }
    }
}
