//! Why an end cannot be divided.

use std::net::IpAddr;

use super::super::config::ConfigError;

/// An end that cannot be divided over its workers.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DivideError {
    #[error("{ports} ports, and the hardware of {hardware}: give at least one port, and what is known of each")]
    Ports { ports: usize, hardware: usize },
    #[error("{0} has no worker: give it a CPU, or leave it out")]
    Idle(String),
    #[error("{port}: two workers on queue {queue}: each needs a queue of its own")]
    Queue { port: String, queue: u32 },
    #[error(
        "{0} and {1} use the same client addresses with the same servers, so their connections could not be told apart: \
         give each port client addresses of its own"
    )]
    Shared(String, String),
    #[error("{port}: {side} address {first} and those after it are given twice: leave one out")]
    Twice { port: String, side: &'static str, first: IpAddr },
    #[error("{0}: an address is both ours and a peer's")]
    Itself(String),
    #[error(
        "{0}: {1} is of another family than the addresses before it; a port has one family (below a tunnel always IPv4)"
    )]
    Family(String, IpAddr),
    #[error("a response for the worker on queue {0}, and it is a client's: responses are a server's")]
    Response(u32),
    #[error("{port}: {count} {side} tunnel end points for {workers} workers: give each worker its own")]
    Vteps { port: String, side: &'static str, count: u32, workers: usize },
    #[error(
        "{port}: {what} of {bytes} bytes, and an MTU of {mtu} leaves {max} beside {headers} bytes of headers: give less, or \
         raise the MTU"
    )]
    Mtu { port: String, what: &'static str, bytes: u64, max: u64, headers: u64, mtu: u16 },
    #[error("{port}: {ports} source ports for {workers} workers: each needs one at least")]
    SourcePorts { port: String, workers: usize, ports: u64 },
    #[error(
        "{port}: {servers} server addresses for {workers} workers. How the interface spreads packets over its queues is not \
         known, so each worker talks to servers of its own: give at least {workers} addresses or use {servers} workers"
    )]
    Servers { port: String, workers: usize, servers: u64 },
    #[error(
        "{port}: its indirection table names queue {queue} nowhere, so no answer comes to the worker on it: change the \
         table (ethtool -X {port} equal QUEUES) or leave the worker out"
    )]
    Unreached { port: String, queue: u32 },
    #[error(
        "{port}: a worker is to hold {hold} connections open ({all} over {workers} workers), and has addresses and ports for \
         {available}: {local} client addresses x {ports} source ports x {remote} server addresses x {server_ports} server \
         ports, of which those count whose answers come to its queue. Give more of one of them, or hold fewer"
    )]
    Sockets {
        port: String,
        hold: u32,
        all: u32,
        workers: usize,
        available: u64,
        local: u64,
        ports: u64,
        remote: u64,
        server_ports: u64,
    },
    #[error("worker {worker} would need room for {wanted} connections, and can have {most}: use more workers")]
    Capacity { worker: usize, wanted: u64, most: u32 },
    #[error("{port}, worker {worker}: {error}")]
    Worker { port: String, worker: usize, error: ConfigError },
}
