//! The packet engine: TCP and UDP clients and servers that make and take frames themselves, for rates and numbers of
//! connections that sockets cannot give.
//!
//! An [`Engine`] is what one thread drives: it owns its connections, timers, templates and counters, shares nothing, and
//! takes no memory per packet or connection once it is made. It never reads a clock: each [`Engine::pass`] is told the time. It
//! meets the network through a [`Port`]; [`memory::pair`] joins two engines in one process.
#![forbid(unsafe_code)]

pub mod benchmark;
mod config;
mod connection;
mod counters;
pub mod device;
mod divide;
mod drain;
mod engine;
mod engine_core;
mod exercise;
mod family;
pub mod fleet;
mod flood;
pub mod http;
pub mod memory;
pub mod mlrsearch;
mod numbers;
mod opener;
mod payload;
pub mod plan;
mod port;
mod rows;
mod run;
mod schedule;
pub mod search;
mod steering;
mod table;
mod tcp;
mod template;
mod udp;
mod underlay;
mod wheel;

pub use config::{
    AddressStride, AnyConfig, Client, CloseMethod, Config, ConfigError, ConfigValue, Flood, FloodPackets, Load,
    MessageEnd, RequestRepeat, Server, Service, TcpClient, TcpServer, TcpTimes, TupleOrder, UdpClient, UdpServer,
};
pub use connection::Connection;
pub use counters::{Counters, Latencies};
pub use divide::{DivideError, Division, Hardware, Spread, ThreadAssignment, divide};
pub use engine::Engine;
pub use exercise::exercise;
pub use family::link::{Gateway, Link, Tunnel};
pub use family::unreachable::Unreachable;
pub use family::{Family, V4, V6};
pub use payload::Payload;
pub use plan::AnswerScope;
pub use port::{Port, Receive, Transmit};
pub use rows::ServerCounters;
pub use run::{Clock, Monotonic, PassAction, PassResult, Usage, drive};
pub use steering::{Rss, Steering};

/// Nanoseconds of a clock that never goes back.
pub type Nanos = u64;
