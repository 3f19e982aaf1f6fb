//! The layer-4 balancer: XDP programs in bpf/balancer/balancer.bpf.c and what configures, watches and sweeps them.
//!
//! ```text
//! Config --validate--> Balancer::apply --maps--> program `balance` on each packet
//! program `sweep`, run by Balancer::sweep, ends connections that have been silent for too long
//! ```
//!
//! A connection is a record in an array and an index entry for each direction; its layout and memory are described in
//! bpf/balancer/shape.h. Numbers of services, backends and local addresses stay what they are while a connection refers to
//! them, so that no change of the configuration breaks one: what is removed gets no new connections and goes with its
//! last.

mod access;
mod adopt;
mod attach;
mod capture;
mod config;
mod control;
mod cookie;
pub(crate) mod datagrams;
mod encapsulation;
mod handle;
pub(crate) mod hash;
mod load;
pub mod model;
mod neighbors;
mod next_hops;
mod one_packet;
mod persistence;
mod quic;
mod reason;
pub(crate) mod receiver;
mod registry;
mod removed;
pub mod replay;
mod room;
mod schedule;
pub(crate) mod shape;
mod shortage;
pub(crate) mod sizes;
mod sources;
pub mod stages;
mod status;
mod syn_proxy;
mod trace;
mod unsent;
mod vlans;
mod watch;
mod workers;

pub use access::AccessHits;
pub use adopt::{Adopted, Adopter, AdoptionRefusal, SharedConnection, TableRecord};
pub use attach::{Attachment, GenericXdp, Mode, TransmitMethod, release};
pub use capture::{
    Capture, CaptureReason, CaptureRequest, CapturedPacket, LEASE as CAPTURE_LEASE, MOST_SNAPPED, PacketEnd,
    UncapturedPackets,
};
pub use config::{
    AccessLists, Backend, ClientAddress, Config, ExpiryPolicy, ForwardingMethod, FragmentPolicy, Limits, MAX_BACKENDS,
    MAX_GROUP, MAX_RATE, MAX_WEIGHT, Persistence, Policy, PortReuse, Protocol, Rate, Scheduler, Service, SynProxy,
    Timeouts, UnhandledPolicy, is_usable,
};
pub use control::{Balancer, Clock};
pub use datagrams::{DatagramCounts, DatagramReceiver, DatagramSettings};
pub use encapsulation::{Encapsulation, GUE_PORT, MAX_SOURCE_BITS, TunnelHeader};
pub use handle::{BalancerHandle, SweepReport};
pub use neighbors::release_kept_neighbors;
pub use next_hops::{NextHopState, NextHopStatus, NextHops, TaggedBy};
pub use persistence::PersistentSource;
pub use quic::QuicIds;
pub use reason::{Drop, Pass};
pub use receiver::{AddressReceiver, MOST_TRUSTED, Receptions};
pub use shape::State;
pub use sizes::{LOCAL_PORTS, Memory, PortShare, Sizes};
pub use sources::SourceTable;
pub use status::{BackendStatus, Connection, CpuStatus, ServiceStatus, Traffic};
pub use syn_proxy::CookieSecret;
pub use trace::{Direction, Kind, NewConnection, Trace, TracedConnection, TracedTunnel};
pub use vlans::VlanDevice;
pub use workers::{MOST_PACKETS, QUEUE_PACKETS, Spreading};
