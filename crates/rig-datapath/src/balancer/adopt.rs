//! Connections that balancers tell each other of: read from one's table, put into another's.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use crate::Error;
use crate::test_run;

use super::config::Protocol;
use super::control::{ADOPT, duration};
use super::handle::BalancerHandle;
use super::registry::{Identity, ServiceRegistry};
use super::shape::{self, Adoption, PREFIXED, SPLICED, State, forward, port_of};
use super::status::{Names, configured};

/// All that another balancer needs to go on with a connection. Numbers of services, backends and local addresses are of one balancer,
/// so these are named; times are how long ago something was, since each machine counts from a moment of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedConnection {
    pub protocol: Protocol,
    /// A number of `enum forward` (bpf/balancer/shape.h).
    pub forward: u8,
    pub state: State,
    /// With [`State::Close`]: what a later packet leads back to.
    pub before: Option<State>,
    /// Ticks of 2^27 ns (134 ms) since its last packet. Of a record that was read: when the reading began; the time since is to be added
    /// before it is told.
    pub idle: u32,
    pub client: SocketAddr,
    pub service: SocketAddr,
    pub backend: SocketAddr,
    /// Of a service of any port: `service` and `backend` have the one that the client asked for.
    pub any_port: bool,
    /// With FullNAT: what the backend sees in the client's place.
    pub local: Option<SocketAddr>,
}

/// A connection of the table.
#[derive(Debug, Clone, Copy)]
pub struct TableRecord {
    /// Where it lies, below [`BalancerHandle::record_slots`].
    pub slot: u32,
    /// Of its last packet.
    pub tick: u32,
    /// The SYN proxy has opened it: its sequence numbers are translated, by what stands beside the table.
    pub is_spliced: bool,
    pub connection: SharedConnection,
}

/// What became of a connection that was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    /// It is there now. Where it lies, and the tick of its last packet.
    Created {
        slot: u32,
        tick: u32,
    },
    /// It was there, and its state and time are those told.
    Updated {
        slot: u32,
        tick: u32,
    },
    /// It was there, or another one of the client's, and no earlier.
    Kept,
    Refused(AdoptionRefusal),
}

/// Why a connection that was told of was not put into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AdoptionRefusal {
    /// There is no such service here, or it forwards in another way, or keeps no connections.
    NoService,
    NoBackend,
    /// The local address is none of this balancer's.
    NoLocal,
    ServiceFull,
    BackendFull,
    TableFull,
    IndexFull,
    /// A packet, or another balancer's connection, was at the same place.
    Contended,
    /// Another connection to the backend has the local port, or with NAT the client's.
    PortTaken,
    /// The service ends connections of this backend.
    BackendEnds,
    /// The program that puts them in could not be run.
    Failed,
}

impl AdoptionRefusal {
    pub const ALL: [Self; 11] = [
        Self::NoService,
        Self::NoBackend,
        Self::NoLocal,
        Self::ServiceFull,
        Self::BackendFull,
        Self::TableFull,
        Self::IndexFull,
        Self::Contended,
        Self::PortTaken,
        Self::BackendEnds,
        Self::Failed,
    ];

    /// Stable, `[a-z_]`.
    pub fn key(self) -> &'static str {
        match self {
            Self::NoService => "no_service",
            Self::NoBackend => "no_backend",
            Self::NoLocal => "no_local_address",
            Self::ServiceFull => "service_full",
            Self::BackendFull => "backend_full",
            Self::TableFull => "table_full",
            Self::IndexFull => "index_full",
            Self::Contended => "contended",
            Self::PortTaken => "port_taken",
            Self::BackendEnds => "backend_ends",
            Self::Failed => "failed",
        }
    }
}

/// Puts connections into the table, by services and backends as they were when it was made.
#[derive(Debug)]
pub struct Adopter {
    handle: BalancerHandle,
    known: Arc<ServiceRegistry>,
}

impl BalancerHandle {
    /// A number that no record's slot reaches.
    pub fn record_slots(&self) -> u32 {
        self.slots.end
    }

    /// The time in ticks, as records have it.
    pub fn now_tick(&self) -> Result<u32, Error> {
        self.tick()
    }

    pub fn adopter(&self) -> Adopter {
        Adopter { handle: self.clone(), known: self.known() }
    }

    /// Gives each slot of the table to `with`, in their order, until it breaks off, and the connection in it as others are told of it.
    /// Those that begin or end meanwhile may be among them or not.
    pub fn records(&self, mut with: impl FnMut(u32, Option<TableRecord>) -> ControlFlow<()>) -> Result<(), Error> {
        let names = Names::of(self)?;
        self.each_set(|set, records| {
            for (way, record) in records.iter().enumerate() {
                let slot = set * shape::WAYS as u32 + way as u32;
                with(slot, names.shared(slot, record))?;
            }
            ControlFlow::Continue(())
        })
    }
}

impl Names {
    fn shared(&self, slot: u32, record: &shape::Connection) -> Option<TableRecord> {
        let connection = self.connection(record)?;
        let service = self.services.get(&record.service.into())?;
        let tick = record.live as u32;
        let idle = self.now().wrapping_sub(tick);
        let before = (record.live >> 40) as u8;
        Some(TableRecord {
            slot,
            tick,
            is_spliced: record.counter & (SPLICED | PREFIXED) != 0,
            connection: SharedConnection {
                protocol: connection.protocol,
                forward: service.forward,
                state: connection.state,
                before: State::ALL.into_iter().find(|state| *state as u8 == before),
                // A packet may have been later than the look at the clock.
                idle: if idle >> 31 == 1 { 0 } else { idle },
                client: connection.client,
                service: connection.service,
                backend: connection.backend,
                any_port: connection.any_port,
                local: connection.local,
            },
        })
    }
}

impl Adopter {
    /// # Errors
    /// When the program cannot be run.
    pub fn adopt(&self, told: &SharedConnection) -> Result<Adopted, Error> {
        let refused = |why| Ok(Adopted::Refused(why));
        let [address, backend] = [told.service, told.backend].map(|at| configured(at, told.any_port));
        let identity = Identity { protocol: told.protocol, address, forward: told.forward };
        let Some(service) = self.known.services.get(&identity) else { return refused(AdoptionRefusal::NoService) };
        let Some(backend) = self.known.backends.get(&(service.number, backend)) else {
            return refused(AdoptionRefusal::NoBackend);
        };
        let (mut local, mut local_port) = (0, 0);
        if told.forward == forward::FULL_NAT {
            let known = told.local.and_then(|at| Some((at, self.known.locals.get(&at.ip())?)));
            // What is not given out is not taken over either: a tunnel's end may have any port.
            let Some((at, known)) = known.filter(|(at, _)| at.port() != 0) else {
                return refused(AdoptionRefusal::NoLocal);
            };
            (local, local_port) = (known.number as u16, port_of(at.port()));
        } else if told.any_port {
            local_port = port_of(told.service.port());
        }
        let before = told.before.filter(|_| told.state == State::Close).map_or(0, |state| state as u32);
        let adoption = Adoption {
            client: told.client.ip().into(),
            client_port: port_of(told.client.port()),
            local_port,
            service: service.number as u16,
            backend: backend.number as u16,
            local,
            state: told.state as u32 | before << 8,
            idle: told.idle,
            ..Adoption::default()
        };
        let result = test_run::run(&self.handle.object, ADOPT, adoption.as_bytes(), None, 1)?;
        let result = Adoption::read_from_bytes(&result.frame)
            .map_err(|_| Error::Missing { kind: "result of", name: ADOPT.to_owned() })?;
        let Adoption { slot, tick, .. } = result;
        Ok(match result.result {
            1 => Adopted::Created { slot, tick },
            2 => Adopted::Updated { slot, tick },
            3 => Adopted::Kept,
            5 => Adopted::Refused(AdoptionRefusal::ServiceFull),
            6 => Adopted::Refused(AdoptionRefusal::BackendFull),
            7 => Adopted::Refused(AdoptionRefusal::TableFull),
            8 => Adopted::Refused(AdoptionRefusal::IndexFull),
            9 => Adopted::Refused(AdoptionRefusal::Contended),
            10 => Adopted::Refused(AdoptionRefusal::PortTaken),
            11 => Adopted::Refused(AdoptionRefusal::NoLocal),
            12 => Adopted::Refused(AdoptionRefusal::BackendEnds),
            // Its service or backend has gone meanwhile.
            _ => Adopted::Refused(AdoptionRefusal::NoService),
        })
    }
}

impl SharedConnection {
    /// Since its last packet.
    pub fn idle_time(&self) -> Duration {
        duration(self.idle)
    }

    /// Whether the forwarding method is one that there is, and the addresses fit it and each other.
    pub fn is_sound(&self) -> bool {
        let family = self.client.is_ipv4();
        let others = [Some(self.service), Some(self.backend), self.local];
        let has_local = self.local.is_some();
        let is_translated = !family && self.backend.is_ipv4();
        others.iter().flatten().all(|other| other.port() != 0)
            && self.service.is_ipv4() == family
            && (is_translated || self.backend.is_ipv4() == family)
            && self.local.is_none_or(|local| local.is_ipv4() == self.backend.is_ipv4())
            && match self.forward {
                forward::FULL_NAT => has_local,
                forward::NAT | forward::ROUTE | forward::TUNNEL => !has_local && !is_translated,
                _ => false,
            }
            && (!self.any_port || (self.forward != forward::FULL_NAT && self.service.port() == self.backend.port()))
    }
}
