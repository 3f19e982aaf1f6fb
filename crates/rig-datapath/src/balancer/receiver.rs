//! For backends: what balancers tell of clients' addresses is what programs are told of their peers (bpf/balancer/receiver.bpf.c).

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use ipnet::IpNet;
use libbpf_rs::{Link, Object, ObjectBuilder};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::maps::Map;
use crate::object::program;
use crate::plain::plain;
use crate::rights::check_may_trace;
use crate::{Error, libbpf_log};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/receiver.bpf.o"));
const PROGRAMS: [&str; 3] = ["note_client", "tell_peer_v4", "tell_peer_v6"];

/// Prefixes of balancers that can be named.
pub const MOST_TRUSTED: usize = 4096;

plain! {
    pub(crate) struct TrustedPrefix: 20 {
        bits: u32,
        address: [u32; 4],
    }
}

impl From<IpNet> for TrustedPrefix {
    fn from(prefix: IpNet) -> Self {
        let (octets, more) = match prefix {
            IpNet::V4(v4) => (v4.network().to_ipv6_mapped().octets(), 96),
            IpNet::V6(v6) => (v6.network().octets(), 0),
        };
        let word = |at: usize| u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        Self { bits: u32::from(prefix.prefix_len()) + more, address: [word(0), word(4), word(8), word(12)] }
    }
}

/// Connections that were accepted in the cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Receptions {
    /// Whose client a balancer has told.
    pub told: u64,
    /// From a balancer, that has told nothing: the option had no room, or it is not set.
    pub without: u64,
    /// From others, who are not believed.
    pub others: u64,
    /// For which the kernel had no memory.
    pub no_memory: u64,
}

/// The programs, on a cgroup for as long as this is there: what was told is forgotten with it.
pub struct AddressReceiver {
    /// Before the object, whose programs they keep, goes.
    links: Vec<Link>,
    receptions: Map,
}

impl fmt::Debug for AddressReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressReceiver").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

/// Loads the programs alone.
pub(crate) fn load() -> Result<Object, Error> {
    check_may_trace()?;
    let failed = |source| Error::Load { program: PROGRAMS[0], source };
    let mut builder = ObjectBuilder::default();
    let open = builder.name("receiver").map_err(failed)?.open_memory(OBJECT).map_err(failed)?;
    libbpf_log::load(open, PROGRAMS[0])
}

impl AddressReceiver {
    /// On a cgroup of version 2 and all below it, for TCP. Only what comes `from` these prefixes is believed, at most [`MOST_TRUSTED`].
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without CAP_BPF and CAP_PERFMON, [`Error::Load`] where the kernel refuses the programs, as before Linux
    /// 5.10, [`Error::Cgroup`] where they cannot be put there.
    pub fn attach(cgroup: &Path, from: &[IpNet]) -> Result<Self, Error> {
        let at = |source| Error::Cgroup { path: cgroup.to_owned(), source };
        let object = load()?;
        let directory = File::open(cgroup).map_err(|error| at(error.into()))?;
        let trusted = Map::of(&object, "trusted", size_of::<u32>())?;
        for prefix in from {
            trusted.set(&TrustedPrefix::from(*prefix), &1_u32)?;
        }
        let receptions = Map::of(&object, "receptions", size_of::<u64>())?;
        let attach = |name| program(&object, name)?.attach_cgroup(directory.as_raw_fd()).map_err(at);
        // Who answers first: nothing is kept yet that they could answer with.
        let links = PROGRAMS.into_iter().rev().map(attach).collect::<Result<_, Error>>()?;
        Ok(Self { links, receptions })
    }

    /// So far.
    pub fn receptions(&self) -> Result<Receptions, Error> {
        let of = |key: u32| Ok::<u64, Error>(self.receptions.per_cpu::<u64>(key)?.into_iter().sum());
        Ok(Receptions { told: of(0)?, without: of(1)?, others: of(2)?, no_memory: of(3)? })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_ipv4_are_mapped() {
        let of = |text: &str| TrustedPrefix::from(text.parse::<IpNet>().unwrap());
        let v4 = of("10.0.0.200/29");
        assert_eq!((v4.bits, v4.address[2].to_be(), v4.address[3].to_be()), (96 + 29, 0xffff, 0x0a00_00c8));
        let v6 = of("2001:db8::1/32");
        assert_eq!((v6.bits, v6.address.map(u32::to_be)), (32, [0x2001_0db8, 0, 0, 0]));
    }
}
