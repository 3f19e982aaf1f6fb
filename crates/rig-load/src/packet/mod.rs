//! The packet engine: TCP and UDP clients and servers that make and take frames themselves, for rates and numbers of
//! connections that sockets cannot give.
//!
//! An [`Engine`] is one worker: it owns its connections, timers, templates and counters, shares nothing, and takes no
//! memory per packet or connection once it is made. It never reads a clock: each [`Engine::pass`] is told the time. It
//! meets the network through a [`Port`]; [`memory::pair`] joins two engines in one process.

mod config;
mod connection;
mod counters;
mod engine;
mod family;
pub mod fleet;
pub mod memory;
mod neighbor;
mod payload;
pub mod plan;
mod port;
mod run;
mod schedule;
pub mod search;
mod table;
mod tcp;
mod template;
mod udp;
mod wheel;

pub use config::{
    Client, Close, Config, ConfigError, Expect, Flood, Gateway, Link, Load, Repeat, Server, Service, Stride, TcpClient,
    TcpServer, TcpTimes, UdpClient, UdpServer, Walk,
};
pub use connection::Connection;
pub use counters::{Counters, Latencies};
pub use engine::Engine;
pub use family::{Family, V4, V6};
pub use payload::Payload;
pub use plan::Answer;
pub use port::{Port, Receive, Transmit};
pub use run::{Clock, Monotonic, Usage, drive};

/// Nanoseconds of a clock that never goes back.
pub type Nanos = u64;
