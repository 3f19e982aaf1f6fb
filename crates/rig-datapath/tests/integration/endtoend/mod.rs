//! Real programs and the kernel's own TCP through the attached balancer: client - balancer - servers, each in a network
//! namespace, each joined by a wire of its own.

mod bond;
mod client_address;
mod datagrams;
mod expire;
mod families;
mod fragments;
mod hostile;
mod lab;
mod mtu;
mod next_hops;
mod pins;
mod programs;
mod restart;
mod steady;
mod syn_proxy;
mod talk;
mod unpack;
mod unsent;
mod vlan;
mod web;

use std::net::{IpAddr, SocketAddr};

use rig_datapath::balancer::{Backend, Config, ForwardingMethod, Protocol, Service, Sizes};

use super::balancer::frames;

/// Addresses of services. No host has them but backends that are to answer clients directly.
pub const V4: &str = "10.9.0.1";
pub const V6: &str = "fd09::1";
/// Local addresses, which the servers' default route leads to.
const LOCAL: [&str; 4] = ["10.8.0.1", "10.8.0.2", "fd08::1", "fd08::2"];

pub fn sizes(connections: u32) -> Sizes {
    Sizes {
        connections,
        services: 16,
        backends: 64,
        local_addresses: 16,
        list_entries: 1 << 16,
        prefixes: 64,
        ..Sizes::default()
    }
}

pub fn backend(address: SocketAddr, weight: u32) -> Backend {
    Backend::new(address, weight)
}

pub fn tcp(address: &str, port: u16, forward: ForwardingMethod, backends: Vec<Backend>) -> Service {
    Service::new(Protocol::Tcp, SocketAddr::new(address.parse().unwrap(), port), forward, backends)
}

fn local(address: &str) -> Vec<IpAddr> {
    let of: IpAddr = address.parse().unwrap();
    let all = LOCAL.iter().map(|local| local.parse::<IpAddr>().unwrap());
    all.filter(|local| local.is_ipv4() == of.is_ipv4()).collect()
}

/// With local addresses of a service's family.
pub fn full_nat(service: &str) -> ForwardingMethod {
    ForwardingMethod::FullNat { local: local(service) }
}

pub fn tunnel(service: &str) -> ForwardingMethod {
    ForwardingMethod::Tunnel { local: local(service) }
}

pub fn config(services: impl Into<Vec<Service>>) -> Config {
    Config { services: services.into(), ..Config::default() }
}
