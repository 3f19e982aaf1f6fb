//! Resources of connections, and which of them run short: then connections end early that can be spared.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::Error;

use super::config::Protocol;
use super::handle::BalancerHandle;
use super::shape::{self, Load, PORT_BLOCK};

/// Which connections end early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum EarlyExpiry {
    #[default]
    None,
    /// Unanswered ones, which is all that a flood comes to.
    Unanswered,
    /// Those that are closing, too.
    Closing,
}

impl EarlyExpiry {
    /// `enum early` of shape.h.
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Unanswered => 1,
            Self::Closing => 3,
        }
    }

    /// `self` while more than three quarters of the room are taken, else `None`.
    fn once_short(self, taken: u64, of: u64) -> Self {
        if taken * 4 > of * 3 { self } else { Self::None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shortage {
    /// Of all connections.
    pub(super) table: EarlyExpiry,
    /// Of those to a backend, by its number; the others have what they need.
    backends: BTreeMap<u32, EarlyExpiry>,
}

impl Shortage {
    /// Whether it is of room that no setting limits: the table, or the local ports of a backend.
    pub(super) fn is_of_all(&self) -> bool {
        self.backends.values().chain([&self.table]).any(|early| *early == EarlyExpiry::Closing)
    }

    fn of(&self, backend: u32) -> EarlyExpiry {
        self.backends.get(&backend).copied().unwrap_or_default()
    }
}

/// Connections to one backend from one pool of local addresses.
#[derive(Debug, Default)]
struct PortUse {
    connections: u64,
    /// The backend's numbers: it has one for each service.
    numbers: Vec<u32>,
}

impl BalancerHandle {
    /// How short each resource is that connections take. A limit that is reached is meant to be, and perhaps always reached:
    /// then connections that are closing have their time.
    fn shortage(&self) -> Result<Shortage, Error> {
        let known = self.known();
        let last = |numbers: &mut dyn Iterator<Item = u32>| numbers.max().map_or(0, |last| last + 1);
        let services = last(&mut known.services.values().map(|service| service.number));
        let backends = last(&mut known.backends.values().map(|backend| backend.number));
        let (mut loads, mut held) = (Vec::new(), Vec::new());
        let (mut service_limits, mut backend_limits) = (Vec::new(), Vec::new());
        self.tables.loads.first(backends, |load: Load| loads.push(u64::from(load.connections as u32)))?;
        self.tables.backends.first(backends, |backend: shape::Backend| backend_limits.push(backend.limit))?;
        self.tables.held.first(services, |count: u64| held.push(count))?;
        self.tables.services.first(services, |service: shape::Service| service_limits.push(service.limit))?;
        let of = |all: &[u64], number: u32| all.get(number as usize).copied().unwrap_or(0);
        let limit = |all: &[u32], number: u32| match all.get(number as usize).copied().unwrap_or(0) {
            0 => u64::MAX / 4,
            limit => limit.into(),
        };

        let mut shortage = Shortage::default();
        let mut ports: BTreeMap<(Protocol, SocketAddr), BTreeMap<&BTreeSet<u32>, PortUse>> = BTreeMap::new();
        for (identity, service) in &known.services {
            let number = service.number;
            let of_service = EarlyExpiry::Unanswered.once_short(of(&held, number), limit(&service_limits, number));
            for (address, backend) in known.backends_of(number) {
                let load = of(&loads, backend.number);
                let of_backend = EarlyExpiry::Unanswered.once_short(load, limit(&backend_limits, backend.number));
                shortage.backends.insert(backend.number, of_service.max(of_backend));
                if identity.forward == shape::forward::FULL_NAT {
                    let pools = ports.entry((identity.protocol, *address)).or_default();
                    let is_other = address.is_ipv4() != identity.address.is_ipv4();
                    let taken = pools.entry(&service.pools[usize::from(is_other)]).or_default();
                    taken.connections += load;
                    taken.numbers.push(backend.number);
                }
            }
        }
        for pools in ports.values() {
            self.note_ports(pools, &mut shortage);
        }
        shortage.backends.retain(|_, early| *early != EarlyExpiry::None);
        shortage.table = EarlyExpiry::Closing.once_short(self.occupancy()?, self.sizes.connections.into());
        Ok(shortage)
    }

    /// Local ports towards one backend. A pool's addresses are taken in turn, so that pools which have some in common have their
    /// parts of each other's.
    fn note_ports(&self, pools: &BTreeMap<&BTreeSet<u32>, PortUse>, shortage: &mut Shortage) {
        let ports = u64::from(self.tuning.port_blocks) * u64::from(PORT_BLOCK);
        let all: u64 = pools.values().map(|taken| taken.connections).sum();
        for (pool, PortUse { numbers, .. }) in pools {
            let room = pool.len() as u64 * ports;
            // Most often; and then none of the pools has to be compared.
            if EarlyExpiry::Closing.once_short(all, room) == EarlyExpiry::None {
                continue;
            }
            let part = |(other, taken): (&&BTreeSet<u32>, &PortUse)| {
                taken.connections * pool.intersection(other).count() as u64 / (other.len() as u64).max(1)
            };
            let early = EarlyExpiry::Closing.once_short(pools.iter().map(part).sum(), room);
            for number in numbers {
                let of = shortage.backends.entry(*number).or_default();
                *of = early.max(*of);
            }
        }
    }
}

/// The shortage that sweeps know of.
#[derive(Debug, Default)]
pub(super) struct ShortageMonitor {
    last: Option<(Instant, Shortage)>,
}

/// A look takes some system calls, and a slice of a sweep less than a millisecond.
const LOOK: Duration = Duration::from_millis(100);

impl ShortageMonitor {
    /// As it is, or was a moment ago, unless it is to be looked at now.
    pub(super) fn look(&mut self, handle: &BalancerHandle, now: bool) -> Result<Shortage, Error> {
        if let Some((at, shortage)) = &self.last
            && !now
            && at.elapsed() < LOOK
        {
            return Ok(shortage.clone());
        }
        let (table, shortage) = (&handle.tables.shortages, handle.shortage()?);
        match &self.last {
            // An earlier control plane of these tables may have left something.
            None => table.set_range(0, &vec![0_u32; table.entries() as usize])?,
            Some((_, before)) => {
                for number in before.backends.keys().filter(|number| !shortage.backends.contains_key(number)) {
                    table.set(number, &0_u32)?;
                }
            }
        }
        let before = self.last.take().map(|(_, before)| before).unwrap_or_default();
        for (number, early) in shortage.backends.iter().filter(|(number, early)| before.of(**number) != **early) {
            table.set(number, &early.bits())?;
        }
        self.last = Some((Instant::now(), shortage.clone()));
        Ok(shortage)
    }
}
