//! Why an end cannot be divided.

use std::net::IpAddr;

use super::super::config::{ConfigError, ConfigValue};

/// An end that cannot be divided over its threads.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DivideError {
    #[error("{ports} ports, and the hardware of {hardware}: give at least one port, and what is known of each")]
    Ports { ports: usize, hardware: usize },
    #[error("{0} has no thread: give it a CPU, or leave it out")]
    Idle(String),
    #[error("{port}: two threads on queue {queue}: each needs a queue of its own")]
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
    #[error("a response for the thread on queue {0}, and it is a client's: responses are a server's")]
    Response(u32),
    #[error("{port}: {count} {side} tunnel end points for {threads} threads: give each thread its own")]
    Vteps { port: String, side: &'static str, count: u32, threads: usize },
    #[error(
        "{port}: a {what} of {bytes} bytes, and an MTU of {mtu} leaves {max} beside {headers} bytes of headers: give less, or \
         raise the MTU"
    )]
    Mtu { port: String, what: ConfigValue, bytes: u64, max: u64, headers: u64, mtu: u16 },
    #[error("{port}: {ports} source ports for {threads} threads: each needs one at least")]
    SourcePorts { port: String, threads: usize, ports: u64 },
    #[error(
        "{port}: {servers} server addresses for {threads} threads. How the interface spreads packets over its queues is not \
         known, so each thread talks to servers of its own: give at least {threads} addresses or use {servers} threads"
    )]
    Servers { port: String, threads: usize, servers: u64 },
    #[error(
        "{port}: its indirection table names queue {queue} nowhere, so no answer comes to the thread on it: change the \
         table (ethtool -X {port} equal QUEUES) or leave the thread out"
    )]
    Unreached { port: String, queue: u32 },
    #[error(
        "{port}: a thread is to hold {hold} connections open ({all} over {threads} threads), and has addresses and ports for \
         {available}: {local} client addresses x {ports} source ports x {remote} server addresses x {server_ports} server \
         ports, of which those count whose answers come to its queue. Give more of one of them, or hold fewer"
    )]
    Sockets {
        port: String,
        hold: u32,
        all: u32,
        threads: usize,
        available: u64,
        local: u64,
        ports: u64,
        remote: u64,
        server_ports: u64,
    },
    #[error("thread {thread} would need room for {wanted} connections, and can have {most}: use more threads")]
    Capacity { thread: usize, wanted: u64, most: u32 },
    #[error("{port}, thread {thread}: {error}")]
    Thread { port: String, thread: usize, error: ConfigError },
}
