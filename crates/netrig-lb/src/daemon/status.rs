//! What the balancer tells of itself.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use rig_datapath::balancer::{
    self as datapath, BackendStatus, BalancerHandle, Connection, Drop, ForwardingMethod as DatapathForward, NextHops,
    ServiceStatus,
};
use rig_service::Replies;

use super::counts::{Figures, Snapshot, View, key_of};
use super::engine::{Engine, refusal};
use crate::message::{
    BackendEntry, ConnectionEntry, DefaultTimeouts, Filter, ForwardingMethod, Hop, NextHop, NextHopState, Protocol,
    RefusedPackets, Reply, ServiceEntry, ServiceKey, ServiceLimits, ServicePersistence, Status, TableStatus, VlanTag,
};
use crate::settings::{
    Service, client_address_name, dscp_name, expire_name, protocol, reuse_name, scheduler_name, syn_proxy_name,
};
use crate::sync::Sync;

/// Entries that are handed on at once.
const BATCH: usize = 1000;

fn forward_of(name: &str) -> ForwardingMethod {
    let local = Vec::new;
    let all = [
        (DatapathForward::FullNat { local: local() }, ForwardingMethod::FullNat),
        (DatapathForward::Nat, ForwardingMethod::Nat),
        (DatapathForward::Route, ForwardingMethod::Route),
        (DatapathForward::Tunnel { local: local() }, ForwardingMethod::Tunnel),
    ];
    all.iter().find(|(known, _)| known.name() == name).map_or(ForwardingMethod::Nat, |(_, forward)| *forward)
}

fn seconds(duration: std::time::Duration) -> u32 {
    // A connection that has half a second left is there.
    duration.as_millis().div_ceil(1000).try_into().unwrap_or(u32::MAX)
}

impl Engine {
    pub(super) fn status(&self) -> anyhow::Result<Status> {
        let now = Snapshot::take(&self.balancer)?;
        let view = self.counts.view(&now);
        let open: HashMap<ServiceKey, &ServiceStatus> =
            now.services.iter().filter(|status| status.open).map(|status| (key_of(status), status)).collect();
        let mut services: Vec<ServiceEntry> = Vec::new();
        for service in &self.rules.services {
            let alive = open.get(&service.key).filter(|status| Some(forward_of(status.forward)) == service.forward);
            let limit = self.rules.limit_of(service, self.balancer.sizes().connections);
            let mut entry = entry(service, alive.copied(), &view);
            entry.limit = limit.map(Into::into);
            if let Some((health, mut of)) = self.health.status(service) {
                entry.health = Some(health);
                let present = entry.backends.iter_mut().filter(|backend| !backend.leaving);
                present.for_each(|backend| backend.health = of.remove(&backend.address));
            }
            for backend in &mut entry.backends {
                backend.drain_ms = self.drains.left(service.key, backend.address);
            }
            entry.syn_proxy_answers = self.syn_proxies.answers(service.key);
            services.push(entry);
        }
        // Removed, or forwarded in another way before.
        for status in now.services.iter().filter(|status| !status.open) {
            let busy = |backend: &&BackendStatus| backend.active + backend.inactive > 0;
            if status.backends.iter().any(|backend| busy(&backend)) {
                services.push(leaving(status, &view));
            }
        }
        if services.iter().any(|service| service.persistence.timeout.is_some()) {
            let mut kept: HashMap<(ServiceKey, SocketAddr), u32> = HashMap::new();
            for source in self.balancer.persistent_sources()? {
                *kept.entry((key(source.protocol, source.service), source.backend)).or_default() += 1;
            }
            for service in services.iter_mut().filter(|service| service.open) {
                for backend in &mut service.backends {
                    backend.persistent = kept.get(&(service.key, backend.address)).copied().unwrap_or(0);
                }
            }
        }
        let next_hops = self.balancer.next_hops();
        for backend in services.iter_mut().flat_map(|service| &mut service.backends) {
            backend.next_hop = next_hops.get(&backend.address.ip()).map(next_hop);
        }
        let timeouts = self.rules.default_timeouts();
        Ok(Status {
            netrig_version: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.name.to_string(),
            process: std::process::id(),
            up_ms: self.begun.elapsed().as_millis() as u64,
            persist: self.pins.is_some(),
            file: self.options.file.as_ref().map(|file| file.display().to_string()),
            devices: self.devices.status(),
            workers: self.devices.plan().workers(),
            table: TableStatus {
                capacity: self.balancer.sizes().connections.into(),
                connections: self.pace.live,
                memory_bytes: self.balancer.memory().map_or(self.memory, |memory| memory.total()),
                sweep_ms: self.pace.took.as_millis() as u64,
            },
            timeouts: DefaultTimeouts {
                tcp: seconds(timeouts.established),
                tcp_fin: seconds(timeouts.fin_wait),
                udp: seconds(timeouts.udp_normal),
            },
            services,
            drops: view.drops(),
            passes: view.passes(),
            rate_span_ms: view.span().as_millis() as u64,
            sync: self.sync.as_ref().map(Sync::status),
            bgp: self.bgp_status(),
            withdrawn: self.withdrawn,
        })
    }
}

fn next_hop(NextHops { state, since, hops }: &NextHops) -> NextHop {
    let hop = |hop: &datapath::NextHopStatus| Hop {
        address: hop.address,
        device: hop.device.to_string(),
        vlan: hop.tagged_by.as_ref().map(|by| VlanTag { parent: by.parent.to_string(), id: by.id }),
        state: state_of(hop.state),
    };
    NextHop {
        state: state_of(*state),
        state_ms: since.elapsed().as_millis() as u64,
        hops: hops.iter().map(hop).collect(),
    }
}

fn state_of(state: datapath::NextHopState) -> NextHopState {
    match state {
        datapath::NextHopState::Ok => NextHopState::Ok,
        datapath::NextHopState::NoNeighbor => NextHopState::NoNeighbor,
        datapath::NextHopState::DeviceDown => NextHopState::DeviceDown,
        datapath::NextHopState::NotCarried => NextHopState::NotCarried,
        datapath::NextHopState::Local => NextHopState::Local,
        datapath::NextHopState::NoRoute => NextHopState::NoRoute,
    }
}

/// Sends the connections that the filter lets through, a batch at a time, on a thread of its own: it takes seconds when
/// there are millions, and as long as the client takes to read them.
pub(super) fn list(balancer: BalancerHandle, filter: Filter, to: Replies<Reply>) {
    let work = move || {
        let mut left = filter.most.unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        let listed = balancer.connections_while(|connection| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            if passes(&filter, &connection) {
                left -= 1;
                entries.push(connection_entry(&connection));
            }
            if entries.len() < BATCH {
                return ControlFlow::Continue(());
            }
            let batch = Reply::Connections(std::mem::take(&mut entries));
            to.part(batch).map_or_else(|_gone| ControlFlow::Break(()), ControlFlow::Continue)
        });
        to.finish(listed.map(|()| Reply::Connections(entries)).map_err(|error| refusal(error.into())));
    };
    in_background("list", work);
}

/// How many connections have had a packet within this time. On a thread of its own, as [`list`].
pub(super) fn count_busy(balancer: BalancerHandle, within: Duration, to: Replies<Reply>) {
    let work = move || {
        let mut busy = 0;
        let counted = balancer.records(|_, record| {
            busy += u64::from(record.is_some_and(|record| record.connection.idle_time() <= within));
            ControlFlow::Continue(())
        });
        to.finish(counted.map(|()| Reply::Count(busy)).map_err(|error| refusal(error.into())));
    };
    in_background("count", work);
}

/// What takes long, on a thread of its own. Where there is none to be had the client is told that it is not answered.
pub(super) fn in_background(name: &str, work: impl FnOnce() + Send + 'static) {
    let _unanswered = std::thread::Builder::new().name(name.to_owned()).spawn(work);
}

pub(super) fn key(protocol: datapath::Protocol, address: SocketAddr) -> ServiceKey {
    let protocol = match protocol {
        datapath::Protocol::Tcp => Protocol::Tcp,
        datapath::Protocol::Udp => Protocol::Udp,
    };
    ServiceKey { protocol, address }
}

fn passes(filter: &Filter, connection: &Connection) -> bool {
    let [service, backend] = connection.configured();
    filter.service.is_none_or(|asked| asked == key(connection.protocol, service))
        && filter.client.is_none_or(|client| client == connection.client.ip())
        && filter.backend.is_none_or(|asked| [connection.backend, backend].contains(&asked))
}

fn connection_entry(connection: &Connection) -> ConnectionEntry {
    ConnectionEntry {
        protocol: key(connection.protocol, connection.service).protocol,
        state: connection.state.name().to_owned(),
        expires: seconds(connection.expires),
        client: connection.client,
        service: connection.service,
        local: connection.local,
        backend: connection.backend,
    }
}

/// As the rules have it, with what the datapath counts for it.
fn entry(service: &Service, alive: Option<&ServiceStatus>, view: &View<'_>) -> ServiceEntry {
    let name = alive.map_or("", |status| status.forward);
    let Figures { counters, total, rates } = view.of((service.key, name, None));
    let known = |address| alive.and_then(|status| status.backends.iter().find(|backend| backend.address == address));
    let mut backends: Vec<BackendEntry> = Vec::new();
    for backend in &service.backends {
        let status = known(backend.address);
        let Figures { counters, total, rates } = view.of((service.key, name, Some(backend.address)));
        backends.push(BackendEntry {
            address: backend.address,
            weight: backend.effective_weight(),
            limit: backend.limit.map(Into::into),
            lower_limit: backend.lower_limit.map(Into::into),
            tunnel: service.is_tunnel().then_some(backend.tunnel),
            quic_id: backend.quic_id,
            leaving: false,
            drain_ms: None,
            active: status.map_or(0, |status| status.active),
            inactive: status.map_or(0, |status| status.inactive),
            persistent: 0,
            counters,
            total,
            rates,
            next_hop: None,
            health: None,
        });
    }
    let gone = alive
        .iter()
        .flat_map(|status| &status.backends)
        .filter(|backend| backend.leaving && backend.active + backend.inactive > 0)
        // One that is removed while it is down is in the rules, and has its line.
        .filter(|backend| service.backends.iter().all(|known| known.address != backend.address));
    backends.extend(gone.map(|backend| leaving_backend(service.key, name, backend, view)));
    ServiceEntry {
        key: service.key,
        scheduler: scheduler_name(service.scheduler).to_owned(),
        forward: service.forward.unwrap_or(ForwardingMethod::Route),
        local: service.local.clone(),
        timeout: service.timeouts.main(protocol(service.key.protocol)).map(seconds),
        limit: service.limit.filter(|limit| *limit != 0),
        limit_said: service.limit,
        expire: expire_name(service.expire).to_owned(),
        sloppy_tcp: service.sloppy_tcp,
        reuse: reuse_name(service.reuse).to_owned(),
        syn_proxy: syn_proxy_name(service.syn_proxy()).to_owned(),
        syn_proxy_said: service.syn_proxy_said.map(|said| syn_proxy_name(said).to_owned()),
        syn_proxy_answers: false,
        client_address: client_address_name(service.client_address).to_owned(),
        unanswered: alive.map_or(0, |alive| alive.unanswered),
        limits: service.limits,
        unlimited: alive.map_or(0, |alive| alive.unlimited),
        persistence: service.persistence,
        one_packet: service.one_packet,
        dscp: dscp_name(service.dscp),
        quic: service.quic.map(Into::into),
        tunnel_source: service.tunnel_source.map(|prefix| prefix.to_string()),
        open: true,
        lacks: service.lacks().map(str::to_owned),
        counters,
        total,
        rates,
        refused: alive.map(refused).unwrap_or_default(),
        health: None,
        backends,
    }
}

fn refused(status: &ServiceStatus) -> Vec<RefusedPackets> {
    let of = |(reason, packets): &(Drop, u64)| RefusedPackets { reason: reason.key().to_owned(), packets: *packets };
    status.refused.iter().map(of).collect()
}

fn leaving(status: &ServiceStatus, view: &View<'_>) -> ServiceEntry {
    let key = key_of(status);
    let Figures { counters, total, rates } = view.of((key, status.forward, None));
    let backends = status.backends.iter().filter(|backend| backend.active + backend.inactive > 0);
    ServiceEntry {
        key,
        // What chose the backends is forgotten with the service.
        scheduler: String::new(),
        forward: forward_of(status.forward),
        local: Vec::new(),
        timeout: None,
        limit: None,
        limit_said: None,
        expire: String::new(),
        sloppy_tcp: false,
        reuse: String::new(),
        syn_proxy: String::new(),
        syn_proxy_said: None,
        syn_proxy_answers: false,
        client_address: String::new(),
        unanswered: status.unanswered,
        limits: ServiceLimits::default(),
        unlimited: status.unlimited,
        persistence: ServicePersistence::default(),
        one_packet: false,
        dscp: String::new(),
        quic: None,
        tunnel_source: None,
        open: false,
        lacks: None,
        counters,
        total,
        rates,
        refused: refused(status),
        health: None,
        backends: backends.map(|backend| leaving_backend(key, status.forward, backend, view)).collect(),
    }
}

fn leaving_backend(
    service: ServiceKey,
    forward: &'static str,
    backend: &BackendStatus,
    view: &View<'_>,
) -> BackendEntry {
    let Figures { counters, total, rates } = view.of((service, forward, Some(backend.address)));
    BackendEntry {
        address: backend.address,
        weight: 0,
        limit: backend.limit.map(Into::into),
        lower_limit: None,
        tunnel: None,
        quic_id: None,
        leaving: true,
        drain_ms: None,
        active: backend.active,
        inactive: backend.inactive,
        persistent: 0,
        counters,
        total,
        rates,
        next_hop: None,
        health: None,
    }
}
