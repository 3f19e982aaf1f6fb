//! The balancer's programs on packets, without traffic: each branch, packet in, verdict and every byte out.

mod access;
mod adopt;
mod again;
mod any_port;
mod capture;
mod cases;
mod changes;
mod client_address;
mod datagrams_told;
mod differential;
mod dscp;
mod errors;
mod expire;
mod families;
mod features;
mod forwarding;
mod fragments;
pub(super) mod frames;
mod handles;
mod lab;
mod neighbors;
mod once;
mod persistence;
mod quic;
mod reuse;
mod services;
mod short;
mod sources;
mod strangers;
pub(super) mod syn_proxy;
mod taken_off;
mod timed;
mod too_big;
mod trace;
mod traffic;
mod tunnel;
mod vlan;
mod ways;

use std::net::SocketAddr;
use std::num::NonZeroU32;

use rig_datapath::balancer::{Backend, Config, ForwardingMethod, Protocol, Service, Sizes};

pub fn small() -> Sizes {
    Sizes {
        connections: 64,
        services: 16,
        backends: 64,
        local_addresses: 16,
        list_entries: 1 << 16,
        prefixes: 64,
        sources: 1024,
        templates: 1024,
        fragments: 1024,
        ..Sizes::default()
    }
}

pub fn backend(address: &str, weight: u32) -> Backend {
    Backend::new(address.parse().unwrap(), weight)
}

pub fn limited(address: &str, limit: u32) -> Backend {
    Backend { limit: NonZeroU32::new(limit), ..backend(address, 1) }
}

/// A round robin of TCP.
pub fn service(address: &str, forward: ForwardingMethod, backends: &[Backend]) -> Service {
    let address: SocketAddr = address.parse().unwrap();
    Service::new(Protocol::Tcp, address, forward, backends.to_vec())
}

pub fn udp_service(address: &str, forward: ForwardingMethod, backends: &[Backend]) -> Service {
    Service { protocol: Protocol::Udp, ..service(address, forward, backends) }
}

pub fn full_nat(local: &[&str]) -> ForwardingMethod {
    ForwardingMethod::FullNat { local: local.iter().map(|address| address.parse().unwrap()).collect() }
}

pub fn config(services: &[Service]) -> Config {
    Config { services: services.to_vec(), ..Config::default() }
}
