//! What a plan of packets may ask for.

use std::net::IpAddr;

use rig_packet::fleet::check_plan;
use rig_packet::plan::Packets;
use rig_packet::{Client, DivideError};

use super::End;
use super::value::Pace;

/// IFNAMSIZ of linux/if.h less its terminating zero.
const INTERFACE: usize = 15;
const PORTS: usize = 64;

/// A plan of packets that cannot be carried out as it is written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PacketsError {
    #[error("the end that {0} cannot run the service of the other end")]
    Service(&'static str),
    #[error("{0} ports: there have to be 1 to {PORTS}")]
    Ports(usize),
    #[error("'{0}' is not a name of an interface: it has to have 1 to {INTERFACE} bytes without '/' or space")]
    Interface(String),
    #[error("interface {0} has no thread: give it one for each of its queues that is used")]
    NoWorker(String),
    #[error("interface {interface}: {address} is not of the family of the interface's own address")]
    Family { interface: String, address: IpAddr },
    #[error(transparent)]
    Divide(#[from] DivideError),
}

/// Whether the end can carry it out.
pub(super) fn validate(packets: &Packets, end: End) -> Result<(), PacketsError> {
    match (packets.service.client().is_some(), end) {
        (false, End::Connect) => return Err(PacketsError::Service("connects")),
        (true, End::Listen) => return Err(PacketsError::Service("listens")),
        _ => {}
    }
    if !(1..=PORTS).contains(&packets.ports.len()) {
        return Err(PacketsError::Ports(packets.ports.len()));
    }
    for port in &packets.ports {
        let name = &port.interface;
        if !(1..=INTERFACE).contains(&name.len()) || name.contains(|c: char| c == '/' || c.is_whitespace()) {
            return Err(PacketsError::Interface(name.clone()));
        }
        if port.threads.is_empty() {
            return Err(PacketsError::NoWorker(name.clone()));
        }
        let ranges = port.local.iter().chain(&port.remote).map(|range| range.first);
        if let Some(address) = ranges.into_iter().find(|address| address.is_ipv4() != port.address.is_ipv4()) {
            return Err(PacketsError::Family { interface: name.clone(), address });
        }
    }
    // What the interfaces are does not matter to whether the load can be divided: a pair's ends mirror each other.
    check_plan(packets)?;
    Ok(())
}

/// The most frequent packets of a client, and the longest time between two of them in seconds; `None` where each follows the answer to the one before.
pub(super) fn every(client: &Client) -> Option<(Pace, f64)> {
    let load = &client.load;
    let opening = match load.launch {
        Some(launch) if launch > 1 => (Pace::Launch, f64::from(launch) / load.rate),
        _ => (Pace::Connection, 1.0 / load.rate),
    };
    let Some(repeat) = client.repeat else { return Some(opening) };
    if let Some(rate) = repeat.rate {
        return Some((Pace::RequestRate, 1.0 / rate));
    }
    let held = load.hold.unwrap_or(1);
    let asking = (Pace::RequestInterval, repeat.interval.as_secs_f64() / f64::from(held.max(1)));
    match (load.hold, repeat.requests) {
        (None, Some(_)) => Some(opening),
        _ if repeat.interval.is_zero() => None,
        // Each that is opened asks for ever.
        (None, None) if opening.1 < asking.1 => Some(opening),
        _ => Some(asking),
    }
}

/// An end with one port, for tests.
#[cfg(test)]
pub(crate) fn with_one_port(service: rig_packet::Service) -> Packets {
    use std::time::Duration;

    use rig_packet::plan::{AnswerScope, Capture, Driver, GatewayPlan, PortPlan, Range, ThreadPlan, Timeline};

    let range = |last| vec![Range { first: IpAddr::from([192, 0, 2, last]), count: 1 }];
    let port = PortPlan {
        interface: "eth0".into(),
        driver: Driver::Auto,
        address: [192, 0, 2, 1].into(),
        gateway: GatewayPlan::Mac([2; 6]),
        vlan: None,
        vxlan: None,
        local: range(1),
        remote: range(2),
        threads: vec![ThreadPlan { cpu: None, queue: 0, response: None }],
        mtu: 1500,
        live: true,
        burst: 64,
        take: Capture::Own,
        answer: AnswerScope::All,
        hop_limit: 64,
        tos: 0,
    };
    let course = Timeline { wait: Duration::ZERO, duration: Duration::ZERO, drain: Duration::ZERO };
    Packets { ports: vec![port], service, capacity: None, course }
}
