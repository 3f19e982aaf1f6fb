//! For backends: what balancers tell of clients of UDP is what programs are told of who has sent a datagram (bpf/balancer/datagrams.bpf.c).

use std::fmt;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use libbpf_rs::{Link, Object, ObjectBuilder, ProgramInput};
use rig_sys::tc::{Attached, Hook, Owner};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::maps::Map;
use crate::object::program;
use crate::plain::plain;
use crate::rights::check_may_trace;
use crate::test_run::all_repetitions;
use crate::{Error, libbpf_log};

use super::receiver::TrustedPrefix;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/datagrams.bpf.o"));
const TAKE_OFF: &str = "take_off";
/// Who tells last: nothing is known before that it could tell. Who leads answers is there before anybody is told.
const ON_CGROUP: [&str; 8] = [
    "lead_answer_v4",
    "lead_answer_v6",
    "lead_connected_v4",
    "lead_connected_v6",
    "tell_connected_v4",
    "tell_connected_v6",
    "tell_sender_v4",
    "tell_sender_v6",
];
/// Behind a vRouter's, and what measures.
const OWNER: Owner = Owner { name: "netrig lb receive", handle: 0x6e74_0003, preference: 4 };

plain! {
    pub(crate) struct DatagramsKey: 36 {
        from: [u32; 4],
        own: [u32; 4],
        from_port: u16,
        own_port: u16,
    }

    pub(crate) struct DatagramsClient: 48 {
        address: [u32; 4],
        own: [u32; 4],
        seen: u64,
        port: u16,
        answered: u8,
        disputed: u8,
        pad: u32,
    }

    pub(crate) struct AnswersKey: 20 {
        client: [u32; 4],
        client_port: u16,
        own_port: u16,
    }

    pub(crate) struct AnswersTo: 20 {
        address: [u32; 4],
        port: u32,
    }
}

/// How many clients are known at most, and for how long without a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramSettings {
    /// Those that were not seen for longest make room. Each takes some 400 bytes.
    pub clients: u32,
    /// No longer than a balancer keeps a connection whose backend has answered: its port is another client's then.
    pub idle: Duration,
}

impl DatagramSettings {
    pub const MOST_CLIENTS: u32 = 1 << 24;
}

impl Default for DatagramSettings {
    fn default() -> Self {
        Self { clients: 1 << 16, idle: Duration::from_secs(300) }
    }
}

/// Datagrams that have come in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// From a balancer, that has told the client.
    pub told: u64,
    /// From a balancer, that has told this client before.
    pub known: u64,
    /// From a balancer, and of whom is not known: it has told nothing, or of a client of IPv6 in a packet of IPv4.
    pub unknown: u64,
    /// From others, that tell of a client: left to the kernel, which does not know the protocol.
    pub others: u64,
    /// From a balancer, with a header that is not as it has to be: left to the kernel as well.
    pub broken: u64,
}

/// The programs, on a cgroup and interfaces for as long as this is there: what was told is forgotten with it.
pub struct DatagramReceiver {
    /// Before the object, whose programs they keep, goes.
    on: Vec<Attached>,
    links: Vec<Link>,
    counts: Map,
    object: Object,
}

impl fmt::Debug for DatagramReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramReceiver")
            .field("on", &self.on)
            .field("links", &self.links.len())
            .finish_non_exhaustive()
    }
}

/// Loads the programs alone.
pub(crate) fn load(settings: &DatagramSettings) -> Result<Object, Error> {
    check_may_trace()?;
    let failed = |source| Error::Load { program: TAKE_OFF, source };
    let mut builder = ObjectBuilder::default();
    let mut open = builder.name("datagrams").map_err(failed)?.open_memory(OBJECT).map_err(failed)?;
    for mut map in open.maps_mut() {
        let entries = match map.name().to_string_lossy().as_ref() {
            // With this machine's address, and without.
            "told" => 2 * settings.clients,
            "answers" => settings.clients,
            _ => continue,
        };
        map.set_max_entries(entries).map_err(failed)?;
    }
    libbpf_log::load(open, TAKE_OFF)
}

fn words(address: IpAddr) -> [u32; 4] {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let word = |at: usize| u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
    [word(0), word(4), word(8), word(12)]
}

impl DatagramReceiver {
    /// Loads them; what comes `from` these prefixes is believed, at most [`MOST_TRUSTED`](super::MOST_TRUSTED).
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without CAP_BPF and CAP_PERFMON, [`Error::Load`] where the kernel refuses the programs.
    pub fn load(from: &[IpNet], settings: &DatagramSettings) -> Result<Self, Error> {
        let object = load(settings)?;
        let trusted = Map::of(&object, "trusted", size_of::<u32>())?;
        for prefix in from {
            trusted.set(&TrustedPrefix::from(*prefix), &1_u32)?;
        }
        let idle = u64::try_from(settings.idle.as_nanos()).unwrap_or(u64::MAX);
        Map::of(&object, "idle", size_of::<u64>())?.set(&0_u32, &idle)?;
        let counts = Map::of(&object, "datagrams", size_of::<u64>())?;
        Ok(Self { on: Vec::new(), links: Vec::new(), counts, object })
    }

    /// For programs of a cgroup of version 2 and all below it.
    ///
    /// # Errors
    /// [`Error::Cgroup`] where they cannot be put there.
    pub fn serve(&mut self, cgroup: &Path) -> Result<(), Error> {
        let at = |source| Error::Cgroup { path: cgroup.to_owned(), source };
        let directory = File::open(cgroup).map_err(|error| at(error.into()))?;
        for name in ON_CGROUP {
            self.links.push(program(&self.object, name)?.attach_cgroup(directory.as_raw_fd()).map_err(at)?);
        }
        Ok(())
    }

    /// For what comes in by an interface of the calling thread's network namespace, one of Ethernet.
    ///
    /// # Errors
    /// [`Error::Attach`]: no such interface.
    pub fn attach(&mut self, interface: u32) -> Result<(), Error> {
        let attached = Attached::attach(program(&self.object, TAKE_OFF)?.as_fd(), interface, Hook::Ingress, &OWNER);
        self.on.push(attached.map_err(|source| Error::Attach {
            interface,
            reason: "is there such an interface?".to_owned(),
            source: source.into(),
        })?);
        Ok(())
    }

    /// So far.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn counts(&self) -> Result<DatagramCounts, Error> {
        let of = |key: u32| Ok::<u64, Error>(self.counts.per_cpu::<u64>(key)?.into_iter().sum());
        Ok(DatagramCounts { told: of(0)?, known: of(1)?, unknown: of(2)?, others: of(3)?, broken: of(4)? })
    }

    /// What becomes of a frame that comes in: what the kernel goes on with, `None` where it is dropped. For tests.
    ///
    /// # Errors
    /// [`Error::TestRun`].
    pub fn test_run(&self, frame: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        const DROP: u32 = 2;
        let mut out = vec![0; frame.len()];
        let input = ProgramInput { data_in: Some(frame), data_out: Some(&mut out), ..ProgramInput::default() };
        let output = all_repetitions(&self.object, TAKE_OFF, input)?;
        let kept = output.return_value != DROP;
        Ok(output.data.filter(|_| kept).map(|data| data.to_vec()))
    }

    /// Whose datagrams come from there to this address of the machine, if that is known. For tests.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn client(&self, from: SocketAddr, own: SocketAddr) -> Result<Option<SocketAddr>, Error> {
        let told = Map::of(&self.object, "told", size_of::<DatagramsClient>())?;
        let key = DatagramsKey {
            from: words(from.ip()),
            own: if own.ip().is_unspecified() { [0; 4] } else { words(own.ip()) },
            from_port: from.port().to_be(),
            own_port: own.port().to_be(),
        };
        let found = told.get::<DatagramsKey, DatagramsClient>(&key)?.filter(|client| client.disputed == 0);
        Ok(found.map(|client| {
            let mut octets = [0; 16];
            for (word, bytes) in client.address.iter().zip(octets.chunks_mut(4)) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
            SocketAddr::new(IpAddr::from(octets).to_canonical(), u16::from_be(client.port))
        }))
    }

    /// How many are known, each with this machine's address and without. For tests.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn known(&self) -> Result<usize, Error> {
        Ok(Map::of(&self.object, "told", size_of::<DatagramsClient>())?.keys::<DatagramsKey>().len())
    }
}
