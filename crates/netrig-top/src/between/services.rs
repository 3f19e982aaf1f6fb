//! The balancer and the vRouter.

use netrig_lb::message::{self as lb, Counters};
use netrig_vrouter::message as vrouter;
use netrig_vrouter::rates;

use super::rise;
use crate::sample::{Backend, Balancer, Drop, Router, RouterInterface, Service, ServiceRates};

pub(super) fn balancer(before: Option<&lb::Status>, now: &lb::Status) -> Balancer {
    // Of another process the totals begin anew.
    let before = before.filter(|before| before.process == now.process && before.up_ms < now.up_ms);
    let seconds = before.map_or(0, |before| now.up_ms - before.up_ms) as f64 / 1e3;
    let rates = |was: Option<Counters>, total: Counters| {
        // What has just come has no rate yet.
        let was = was.unwrap_or(total);
        ServiceRates {
            connections_per_s: rise(was.connections, total.connections, seconds),
            in_packets_per_s: rise(was.in_packets, total.in_packets, seconds),
            in_bits_per_s: rise(was.in_bytes, total.in_bytes, seconds) * 8.0,
            out_packets_per_s: rise(was.out_packets, total.out_packets, seconds),
            out_bits_per_s: rise(was.out_bytes, total.out_bytes, seconds) * 8.0,
        }
    };
    let service = |entry: &lb::ServiceEntry| {
        let was = before.and_then(|before| before.services.iter().find(|was| was.key == entry.key));
        let refused = |entry: &lb::ServiceEntry| entry.refused.iter().map(|refused| refused.packets).sum::<u64>();
        let backend = |backend: &lb::BackendEntry| {
            let was = was.and_then(|was| was.backends.iter().find(|was| was.address == backend.address));
            Backend {
                address: backend.address,
                weight: backend.weight,
                leaving: backend.leaving,
                active: backend.active,
                inactive: backend.inactive,
                rates: rates(was.map(|was| was.total), backend.total),
            }
        };
        Service {
            protocol: entry.key.protocol,
            address: entry.key.address,
            scheduler: entry.scheduler.clone(),
            lacks: entry.lacks.clone(),
            rates: rates(was.map(|was| was.total), entry.total),
            refused_per_s: was.map_or(0.0, |was| rise(refused(was), refused(entry), seconds)),
            backends: entry.backends.iter().map(backend).collect(),
        }
    };
    let drop = |drop: &lb::ReasonCount| {
        let was = before.and_then(|before| before.drops.iter().find(|was| was.number == drop.number));
        Drop {
            reason: drop.key.clone(),
            text: drop.text.clone(),
            remedy: drop.remedy.clone(),
            packets: drop.packets,
            packets_per_s: was.map_or(0.0, |was| rise(was.packets, drop.packets, seconds)),
        }
    };
    Balancer {
        name: now.name.clone(),
        process: now.process,
        connections: now.table.connections,
        capacity: now.table.capacity,
        workers: now.workers.clone(),
        services: now.services.iter().map(service).collect(),
        drops: now.drops.iter().filter(|drop| drop.packets > 0).map(drop).collect(),
    }
}

pub(super) fn router(before: Option<&vrouter::Status>, now: &vrouter::Status) -> Router {
    let flows = before.and_then(|before| rates::of_flows(before, now));
    let of_interfaces = before.and_then(|before| rates::of_interfaces(before, now, None));
    let seconds = of_interfaces.as_ref().map_or(0.0, |rates| rates.seconds);
    let interface = |entry: &vrouter::InterfaceEntry| {
        let rates = of_interfaces.as_ref();
        let rates = rates.and_then(|rates| rates.interfaces.iter().find(|rate| rate.number == entry.number));
        RouterInterface {
            name: entry.name.clone(),
            network: entry.network.clone(),
            device: entry.device.clone(),
            connections: entry.connections,
            in_packets_per_s: rates.map_or(0.0, |rates| rates.in_packets),
            in_bits_per_s: rates.map_or(0.0, |rates| rates.in_bits),
            out_packets_per_s: rates.map_or(0.0, |rates| rates.out_packets),
            out_bits_per_s: rates.map_or(0.0, |rates| rates.out_bits),
            dropped_per_s: rates.map_or(0.0, |rates| rates.drops),
        }
    };
    let drop = |drop: &vrouter::ReasonCount| {
        let was = before.and_then(|before| before.drops.iter().find(|was| was.number == drop.number));
        Drop {
            reason: drop.reason.clone(),
            text: drop.text.clone(),
            remedy: drop.remedy.clone(),
            packets: drop.packets,
            packets_per_s: was.map_or(0.0, |was| rise(was.packets, drop.packets, seconds)),
        }
    };
    Router {
        node: now.node.clone(),
        process: now.process,
        connections: now.flows.connections,
        room: now.flows.room.into(),
        begun_per_s: flows.as_ref().map_or(0.0, |flows| flows.begun),
        ended_per_s: flows.as_ref().map_or(0.0, |flows| flows.ended),
        refused_per_s: flows.as_ref().map_or(0.0, |flows| flows.refused),
        interfaces: now.interfaces.iter().map(interface).collect(),
        drops: now.drops.iter().filter(|drop| drop.packets > 0).map(drop).collect(),
        notes: now.notes.clone(),
    }
}
