//! What one configuration has that the other has not, in words.

use rig_datapath::balancer::{ExpiryPolicy, FragmentPolicy, Timeouts, UnhandledPolicy};
use rig_stats::units::{Span, counted};

use super::client_address::client_address_name;
use super::dscp::dscp_name;
use super::quic;
use super::rules::{Backend, Rules, Service, ServiceText, expire_name, forward_name, reuse_name, scheduler_name};
use super::syn_proxy::syn_proxy_name;
use super::tunnel;
use crate::message::Quic;

/// A line for each thing that differs; none when nothing does.
pub fn changes(old: &Rules, new: &Rules) -> Vec<String> {
    let mut said = Vec::new();
    for service in &old.services {
        if new.service(service.key).is_none() {
            said.push(format!("{} removed; its connections {}", ServiceText(service.key), afterwards(service.expire)));
        }
    }
    for service in &new.services {
        match old.service(service.key) {
            None => said.push(format!("{} added with {}", ServiceText(service.key), backends(service.backends.len()))),
            Some(before) => {
                let shown = ServiceText(service.key);
                let own = differences(before, service, (old.default_timeouts(), new.default_timeouts()));
                said.extend(own.into_iter().map(|what| format!("{shown}: {what}")));
            }
        }
    }
    if old.policy.fragments != new.policy.fragments {
        let fragments = match new.policy.fragments {
            FragmentPolicy::Forward => "forwarded after their first one",
            FragmentPolicy::Drop => "dropped",
            FragmentPolicy::Pass => "passed to the kernel",
        };
        said.push(format!("fragments are now {fragments}"));
    }
    if old.policy.options != new.policy.options {
        let options = match new.policy.options {
            UnhandledPolicy::Drop => "dropped",
            UnhandledPolicy::Pass => "passed to the kernel",
        };
        said.push(format!("packets with IP options are now {options}"));
    }
    if old.policy.strays != new.policy.strays {
        let most =
            new.policy.strays.map_or("without limit".to_owned(), |most| format!("up to {most} a second on each CPU"));
        said.push(format!("packets of no connection are now passed to the kernel {most}"));
    }
    if old.syn_proxy_secret != new.syn_proxy_secret {
        said.push(match &new.syn_proxy_secret {
            Some(file) => format!("the SYN proxy's secret is that of {}", file.display()),
            None => "the SYN proxy's secret stays what it was".to_owned(),
        });
    }
    if old.others_local != new.others_local {
        let count = counted(new.others_local.len(), "local address", "local addresses");
        said.push(format!("connections of {count} that other balancers give out are taken over"));
    }
    said.extend(new.access.changes_since(&old.access));
    if old.service_limit != new.service_limit {
        let limit = new.service_limit.map_or("as by default".to_owned(), |limit| limit.to_string());
        said.push(format!("limit of connections of services without their own is now {limit}"));
    }
    if old.default_timeouts() != new.default_timeouts() {
        said.push(format!("default timeouts: {}", timeouts(&old.default_timeouts(), &new.default_timeouts())));
    }
    said
}

pub(super) fn backends(count: usize) -> String {
    counted(count, "backend", "backends")
}

fn differences(old: &Service, new: &Service, defaults: (Timeouts, Timeouts)) -> Vec<String> {
    let mut said = Vec::new();
    if old.scheduler != new.scheduler {
        said.push(format!("scheduler {} is now {}", scheduler_name(old.scheduler), scheduler_name(new.scheduler)));
    }
    if old.forward != new.forward {
        let name = |forward: Option<_>| forward.map_or("undecided", forward_name);
        said.push(format!(
            "forwards by {} instead of {}; connections keep their way",
            name(new.forward),
            name(old.forward)
        ));
    }
    let gone = old.local.iter().filter(|address| !new.local.contains(address)).count();
    let come = new.local.iter().filter(|address| !old.local.contains(address)).count();
    if gone + come > 0 {
        said.push(format!("{come} local addresses added, {gone} removed"));
    }
    if old.tunnel_source != new.tunnel_source {
        let now = new.tunnel_source.map_or("local addresses".to_owned(), |prefix| prefix.to_string());
        said.push(format!("tunnels are from {now} now"));
    }
    let limited =
        |limit: Option<std::num::NonZeroU32>| limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
    if old.limit != new.limit {
        let limit = match new.limit {
            None => "as by default".to_owned(),
            Some(0) => "none".to_owned(),
            Some(limit) => limit.to_string(),
        };
        said.push(format!("limit of connections is now {limit}"));
    }
    if old.expire != new.expire {
        said.push(format!("expire is now {}", expire_name(new.expire)));
    }
    if old.one_packet != new.one_packet {
        said.push(format!("one_packet is now {}; connections that there are go on", new.one_packet));
    }
    if old.dscp != new.dscp {
        said.push(format!("dscp is now {}, of connections that there are, too", dscp_name(new.dscp)));
    }
    if old.quic != new.quic {
        let ids = new.quic.map_or_else(|| quic::OFF.to_owned(), |quic| Quic::from(quic).to_string());
        said.push(format!("quic is now {ids}; connections that there are go on"));
    }
    if old.sloppy_tcp != new.sloppy_tcp {
        said.push(format!("sloppy_tcp is now {}", new.sloppy_tcp));
    }
    if old.reuse != new.reuse {
        said.push(format!("reuse is now {}", reuse_name(new.reuse)));
    }
    match (&old.check, &new.check) {
        (None, None) => {}
        (Some(before), Some(now)) if before == now => {}
        (None, Some(check)) => said.push(format!("backends are checked by {}", check.probe.name())),
        (Some(_), None) => said.push("backends are no longer checked, and all are taken to be healthy".into()),
        (Some(_), Some(_)) => said.push("the check has changed; what is known of backends stays".into()),
    }
    match (&old.outlier, &new.outlier) {
        (None, Some(_)) => said.push("backends that clients' connections fail at are taken out".into()),
        (Some(_), None) => {
            said.push("backends that clients' connections fail at are no longer taken out, and all are back".into());
        }
        (before, now) if before != now => said.push("the outlier detection has changed; who is out stays".into()),
        _ => {}
    }
    if old.syn_proxy() != new.syn_proxy() {
        said.push(format!("syn_proxy is now {}", syn_proxy_name(new.syn_proxy())));
    }
    if old.client_address != new.client_address {
        let now = client_address_name(new.client_address);
        said.push(format!("client_address is now {now}, of connections that begin from here on"));
    }
    said.extend(new.access.changes_since(&old.access));
    for (key, value) in new.limits.changes_since(&old.limits) {
        said.push(match value {
            Some(value) => format!("{key} is now {value}"),
            None => format!("{key} is no longer set"),
        });
    }
    if old.persistence != new.persistence {
        said.push(format!("persistence is now {}", new.persistence.text(new.key.address.is_ipv6())));
    }
    if old.timeouts != new.timeouts {
        let (before, now) = (old.timeouts.over(defaults.0), new.timeouts.over(defaults.1));
        said.push(format!("timeouts: {}", timeouts(&before, &now)));
    }
    for backend in &old.backends {
        if !new.backends.iter().any(|other| other.address == backend.address) {
            said.push(format!("backend {} removed; its connections {}", backend.address, afterwards(new.expire)));
        }
    }
    for backend in &new.backends {
        match old.backends.iter().find(|other| other.address == backend.address) {
            None => said.push(format!("backend {} added, {}", backend.address, weight(backend))),
            Some(before) => {
                if (before.weight, before.drain) != (backend.weight, backend.drain) {
                    said.push(format!("backend {}: {} is now {}", backend.address, weight(before), weight(backend)));
                }
                if before.sorry != backend.sorry {
                    let sorry = if backend.sorry { "now a sorry server" } else { "no longer a sorry server" };
                    said.push(format!("backend {}: {sorry}", backend.address));
                }
                if before.check != backend.check {
                    said.push(format!("backend {}: it is checked in another way", backend.address));
                }
                if before.quic_id != backend.quic_id {
                    let id = backend.quic_id.map_or_else(|| quic::OFF.to_owned(), |id| id.to_string());
                    said.push(format!("backend {}: quic_id is now {id}", backend.address));
                }
                if before.tunnel != backend.tunnel {
                    said.push(format!(
                        "backend {}: its tunnel is now {}",
                        backend.address,
                        tunnel::text(backend.tunnel)
                    ));
                }
                if before.lower_limit != backend.lower_limit {
                    let limit = limited(backend.lower_limit);
                    said.push(format!("backend {}: lower limit of connections is now {limit}", backend.address));
                }
                if before.limit != backend.limit {
                    let limit = limited(backend.limit);
                    said.push(format!("backend {}: limit of connections is now {limit}", backend.address));
                }
            }
        }
    }
    said
}

/// What becomes of connections whose backend is removed.
fn afterwards(expire: ExpiryPolicy) -> &'static str {
    if expire == ExpiryPolicy::Never { "go on" } else { "end" }
}

fn weight(backend: &Backend) -> String {
    if backend.drain { format!("weight {}, draining", backend.weight) } else { format!("weight {}", backend.weight) }
}

fn timeouts(old: &Timeouts, new: &Timeouts) -> String {
    let states = rig_datapath::balancer::State::ALL.into_iter();
    let changed = states.filter(|state| old.of(*state) != new.of(*state)).map(|state| {
        let name = match state {
            rig_datapath::balancer::State::UdpOneWay => "UDP_ONE_WAY",
            other => other.name(),
        };
        format!("{name} {} is now {}", Span(old.of(state)), Span(new.of(state)))
    });
    let changed: Vec<String> = changed.collect();
    if changed.is_empty() { "moved within the file, otherwise the same".to_owned() } else { changed.join(", ") }
}
