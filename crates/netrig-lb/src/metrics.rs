//! The balancer as OpenMetrics 1.0 text, which Prometheus scrapes.

use rig_service::openmetrics::Exposition;

use super::listing::{forward_name, protocol, state_name};
use super::message::{
    BackendEntry, BackendHealth, BackendHealthState, BackendOutlier, Counters, ForwardingMethod, NextHopState,
    PeerState, Protocol, ReasonCount, ServiceEntry, Status, SyncStatus,
};
use super::ready::unready;

/// What is told of each service, and of each of its backends under names of their own: a sum over one family is then
/// never a sum of both.
#[derive(Clone, Copy)]
struct Family {
    connections: &'static str,
    packets: &'static str,
    bytes: &'static str,
    /// Of the help texts.
    of: &'static str,
}

const OF_SERVICE: Family = Family {
    connections: "lb_service_connections",
    packets: "lb_service_packets",
    bytes: "lb_service_bytes",
    of: "the service",
};
const OF_BACKEND: Family = Family {
    connections: "lb_backend_connections",
    packets: "lb_backend_packets",
    bytes: "lb_backend_bytes",
    of: "the backend",
};

/// All metrics, of the types that readers of Prometheus' older text format know, too: none is an `info`. Counters are since the balancer began, whatever `-Z` did.
pub fn render(status: &Status) -> String {
    let mut text = Exposition::default();
    let balancer = [("balancer", status.name.as_str())];
    let info = [("balancer", status.name.as_str()), ("version", &status.netrig_version)];
    text.add("gauge", "lb_build_info", "", "The control plane's version.", &info, 1.0);
    let mut gauge = |name, unit, help, value| text.add("gauge", name, unit, help, &balancer, value);
    gauge("lb_up", "seconds", "Since the control plane was started.", status.up_ms as f64 / 1000.0);
    gauge("lb_persists", "", "1 if packets are still balanced when the control plane ends.", f64::from(status.persist));
    gauge(
        "lb_workers",
        "",
        "CPUs that run the program; 0 for any that takes packets from a device.",
        status.workers.len() as f64,
    );
    let table = status.table;
    gauge(
        "lb_table_connections",
        "",
        "Connections in the table, as the last sweep counted them.",
        table.connections as f64,
    );
    gauge("lb_table_capacity", "", "Connections that fit into the table.", table.capacity as f64);
    gauge("lb_memory", "bytes", "Memory of all maps.", table.memory_bytes as f64);
    gauge("lb_sweep_duration", "seconds", "Time of the last round of sweeping.", table.sweep_ms as f64 / 1000.0);
    let help = "1 if packets can be sent here: not withdrawn, attached, and each service has what it needs.";
    gauge("lb_ready", "", help, f64::from(unready(status).is_empty()));
    timeouts(&mut text, status);
    devices(&mut text, status);
    if let Some(bgp) = &status.bgp {
        let mut gauge = |name, help, value| text.add("gauge", name, "", help, &balancer, value);
        gauge("lb_bgp_up", "1 while the speaker of BGP is there.", f64::from(bgp.autonomous_system.is_some()));
        gauge("lb_bgp_announced", "Addresses that it announces for the balancer.", bgp.announced.len() as f64);
    }
    if let Some(sync) = &status.sync {
        of_sync(&mut text, &status.name, sync);
    }
    status.services.iter().for_each(|service| of_service(&mut text, &status.name, service));
    reasons(&mut text, &status.name, "lb_drops", "Packets dropped, by reason.", &status.drops);
    reasons(&mut text, &status.name, "lb_passes", "Packets left to the kernel, by reason.", &status.passes);
    text.to_string()
}

fn timeouts(text: &mut Exposition, status: &Status) {
    let timeouts = status.timeouts;
    for (of, seconds) in [("tcp", timeouts.tcp), ("tcp_fin", timeouts.tcp_fin), ("udp", timeouts.udp)] {
        let labels = [("balancer", status.name.as_str()), ("of", of)];
        let help = "After which silence connections of services without their own are forgotten.";
        text.add("gauge", "lb_timeout", "seconds", help, &labels, seconds.into());
    }
}

fn devices(text: &mut Exposition, status: &Status) {
    for device in &status.devices {
        let labels = [("balancer", status.name.as_str()), ("device", &device.name), ("mode", &device.mode)];
        text.add("gauge", "lb_device_queues", "", "Receive queues of the device.", &labels, device.queues.into());
        let help = "1 if the balancer is attached to the device; 0 while there is no such device, or attaching fails.";
        text.add("gauge", "lb_device_attached", "", help, &labels[..2], f64::from(device.mode != "absent"));
    }
}

fn of_sync(text: &mut Exposition, balancer: &str, sync: &SyncStatus) {
    let balancer = ("balancer", balancer);
    for (of, count) in [("own", sync.own), ("others", sync.others), ("syn_proxy", sync.left_out)] {
        let help = "Connections in the table: with packets here, told of by peers, and opened by the SYN proxy, which are not shared.";
        text.add("gauge", "lb_sync_connections", "", help, &[balancer, ("of", of)], count as f64);
    }
    if let Some(lag) = sync.lag_ms {
        let help = "How old what peers know of this balancer's connections is.";
        text.add("gauge", "lb_sync_lag", "seconds", help, &[balancer], lag as f64 / 1000.0);
    }
    for refused in &sync.refused {
        let help = "Datagrams dropped that were no messages of peers, by reason.";
        let labels = [balancer, ("reason", refused.reason.as_str())];
        text.add("counter", "lb_sync_refused_messages", "", help, &labels, refused.count as f64);
    }
    for peer in &sync.peers {
        let address = peer.address.to_string();
        let labels = [balancer, ("peer", address.as_str())];
        let help = "1 if the peer has been heard within the last 5 s.";
        text.add("gauge", "lb_sync_peer_up", "", help, &labels, f64::from(peer.state == PeerState::Up));
        let help = "Times that the peer was told of all connections.";
        text.add("counter", "lb_sync_passes", "", help, &labels, peer.passes as f64);
        for (direction, messages, bytes) in
            [("sent", peer.sent_messages, peer.sent_bytes), ("received", peer.received_messages, peer.received_bytes)]
        {
            let labels = [labels[0], labels[1], ("direction", direction)];
            let help = "Messages to the peer and from it.";
            text.add("counter", "lb_sync_messages", "", help, &labels, messages as f64);
            let help = "Bytes of messages to the peer and from it, without headers of UDP and IP.";
            text.add("counter", "lb_sync_bytes", "bytes", help, &labels, bytes as f64);
        }
        let help = "Connections that the peer was told of.";
        text.add("counter", "lb_sync_sent_records", "", help, &labels, peer.sent_records as f64);
        let results = [("created", peer.created), ("updated", peer.updated), ("kept", peer.kept)];
        let refused = peer.refused.iter().map(|of| (of.reason.as_str(), of.count));
        for (result, count) in results.into_iter().chain(refused) {
            let labels = [labels[0], labels[1], ("result", result)];
            let help = "Connections that the peer has told of, by what became of them here: created, updated, kept, or why refused.";
            text.add("counter", "lb_sync_received_records", "", help, &labels, count as f64);
        }
    }
}

fn of_service(text: &mut Exposition, balancer: &str, service: &ServiceEntry) {
    let address = service.key.address.to_string();
    let protocol = protocol(service.key.protocol).to_ascii_lowercase();
    let labels = [("balancer", balancer), ("protocol", protocol.as_str()), ("service", &address)];
    let [balancer, protocol, address] = labels;
    let info =
        [balancer, protocol, address, ("scheduler", &service.scheduler), ("forward", forward_name(service.forward))];
    text.add(
        "gauge",
        "lb_service_info",
        "",
        "How the service's connections are distributed and forwarded.",
        &info,
        1.0,
    );
    let help = "0 for one that was removed and still has connections.";
    text.add("gauge", "lb_service_open", "", help, &labels, f64::from(service.open));
    let help = "Local addresses of the service.";
    text.add("gauge", "lb_service_local_addresses", "", help, &labels, service.local.len() as f64);
    if let Some(limit) = service.limit {
        text.add(
            "gauge",
            "lb_service_limit",
            "",
            "Connections at which the service gets no more.",
            &labels,
            limit.into(),
        );
    }
    if service.syn_proxy != "off" && !service.syn_proxy.is_empty() {
        let mut gauge = |name, help, value| text.add("gauge", name, "", help, &labels, value);
        let help = "1 while the SYN proxy answers the service's SYNs: within the last 10 s.";
        gauge("lb_service_syn_proxy_answers", help, f64::from(service.syn_proxy_answers));
        let help = "Connections that nobody has answered, of services whose SYN proxy is automatic.";
        gauge("lb_service_unanswered", help, service.unanswered as f64);
    }
    for (key, value) in service.limits.said() {
        let labels = [balancer, protocol, address, ("limit", key)];
        let help = "Limits for who begins connections of the service, by their keys.";
        text.add("gauge", "lb_service_new_connections_limit", "", help, &labels, value.into());
    }
    if service.limits.source_limit.or(service.limits.source_rate).is_some() {
        let help = "Connections that have begun without their source's limits, as all counters of sources were in use.";
        text.add("counter", "lb_service_unlimited_connections", "", help, &labels, service.unlimited as f64);
    }
    for refused in &service.refused {
        let labels = [balancer, protocol, address, ("reason", refused.reason.as_str())];
        let help = "Packets of new connections that were refused to the service, answered by the SYN proxy, or begun without being remembered (no_template), by reason.";
        text.add("counter", "lb_service_refused_packets", "", help, &labels, refused.packets as f64);
    }
    if let Some(health) = &service.health {
        let help = "1 while the service's healthy backends have the weight of its quorum.";
        text.add("gauge", "lb_service_quorum", "", help, &labels, f64::from(health.has_quorum));
        let help = "Weight of the service's backends that are up.";
        text.add("gauge", "lb_service_healthy_weight", "", help, &labels, health.healthy_weight as f64);
    }
    counters(text, OF_SERVICE, &labels, &service.total);
    for backend in &service.backends {
        let labels = [balancer, protocol, address, ("backend", &backend.address.to_string())];
        of_backend(text, labels, backend);
        let answers_pass = matches!(service.forward, ForwardingMethod::FullNat | ForwardingMethod::Nat);
        if answers_pass && service.key.protocol == Protocol::Tcp {
            let help = "Connections whose SYN the backend has answered by a reset.";
            text.add("counter", "lb_backend_refused_connections", "", help, &labels, backend.total.refused as f64);
        }
        if service.persistence.timeout.is_some() {
            let help = "Sources that the service's persistence keeps at the backend.";
            text.add("gauge", "lb_backend_persistent_sources", "", help, &labels, backend.persistent.into());
        }
    }
}

fn of_backend(text: &mut Exposition, labels: [(&str, &str); 4], backend: &BackendEntry) {
    let mut gauge = |name, help, value| text.add("gauge", name, "", help, &labels, value);
    let help = "The backend's share of new connections, by its settings; 0 for none.";
    gauge("lb_backend_weight", help, backend.weight.into());
    gauge("lb_backend_active", "Established TCP connections to the backend.", backend.active.into());
    gauge("lb_backend_inactive", "All other connections to the backend.", backend.inactive.into());
    let help = "1 for one that was removed and still has connections.";
    gauge("lb_backend_leaving", help, f64::from(backend.leaving));
    if let Some(limit) = backend.limit {
        gauge("lb_backend_limit", "Connections at which the backend gets no more.", limit.into());
    }
    if let Some(next_hop) = &backend.next_hop {
        let help = "1 if packets to the backend can go on from here; 0 if they are dropped, or some of them.";
        gauge("lb_backend_next_hop_ok", help, f64::from(next_hop.state == NextHopState::Ok));
        let [balancer, protocol, service, backend] = labels;
        let labels = [balancer, protocol, service, backend, ("state", state_name(next_hop.state))];
        let help = "For how long the backend's next hop has been in its state.";
        let seconds = next_hop.state_ms as f64 / 1000.0;
        text.add("gauge", "lb_backend_next_hop_state", "seconds", help, &labels, seconds);
    }
    if let Some(health) = &backend.health {
        health_of(text, labels, health);
    }
    counters(text, OF_BACKEND, &labels, &backend.total);
}

fn health_of(text: &mut Exposition, labels: [(&str, &str); 4], health: &BackendHealth) {
    let help = "The backend's share of new connections in force: 0 while it is down or taken out, or a sorry server that waits.";
    text.add("gauge", "lb_backend_weight_in_force", "", help, &labels, health.weight_in_force.into());
    if let Some(outlier) = &health.outlier {
        outlier_of(text, labels, outlier);
    }
    if health.state == BackendHealthState::NotChecked {
        return;
    }
    let help = "1 if the backend is up by its checks, 0 if it is down; nothing before the first check.";
    if health.state != BackendHealthState::Unknown {
        let is_up = f64::from(health.state == BackendHealthState::Up);
        text.add("gauge", "lb_backend_healthy", "", help, &labels, is_up);
    }
    let [balancer, protocol, service, backend] = labels;
    for (result, count) in [("good", health.good), ("bad", health.bad), ("unable", health.unable)] {
        let labels = [balancer, protocol, service, backend, ("result", result)];
        let help = "Health checks of the backend, by result; unable: not made, for a reason of this machine.";
        text.add("counter", "lb_backend_checks", "", help, &labels, count as f64);
    }
    let help = "Time that health checks of the backend took, of those that were good or bad.";
    text.add("counter", "lb_backend_checks", "seconds", help, &labels, health.took_us as f64 / 1e6);
    if let Some(end) = health.certificate_end {
        let help = "When the first of the certificates ends that the backend showed to its last check by https, seconds since 1970.";
        text.add("gauge", "lb_backend_earliest_cert_expiry", "seconds", help, &labels, end as f64);
    }
    let help = "Changes of the backend between up and down.";
    text.add("counter", "lb_backend_health_transitions", "", help, &labels, health.transitions as f64);
}

fn outlier_of(text: &mut Exposition, labels: [(&str, &str); 4], outlier: &BackendOutlier) {
    let help = "1 while the backend is taken out because its clients' connections have failed.";
    text.add("gauge", "lb_backend_ejected", "", help, &labels, f64::from(outlier.left_ms.is_some()));
    let BackendOutlier { ejected, answered, unable, spared, .. } = *outlier;
    let [balancer, protocol, service, backend] = labels;
    for (result, count) in [("ejected", ejected), ("answered", answered), ("unable", unable), ("spared", spared)] {
        let labels = [balancer, protocol, service, backend, ("result", result)];
        let help = "Suspicions against the backend by its clients' connections, by what has become of them.";
        text.add("counter", "lb_backend_suspicions", "", help, &labels, count as f64);
    }
}

fn counters(text: &mut Exposition, family: Family, labels: &[(&str, &str)], counters: &Counters) {
    let Family { connections, packets, bytes, of } = family;
    let help = format!("Connections begun with {of}.");
    text.add("counter", connections, "", &help, labels, counters.connections as f64);
    for (direction, packets_so_far, bytes_so_far) in
        [("in", counters.in_packets, counters.in_bytes), ("out", counters.out_packets, counters.out_bytes)]
    {
        let labels = [labels, &[("direction", direction)]].concat();
        let help = format!("Packets of {of}: in from clients, out from backends.");
        text.add("counter", packets, "", &help, &labels, packets_so_far as f64);
        let help = format!("Bytes of IP packets of {of}: in from clients, out from backends.");
        text.add("counter", bytes, "bytes", &help, &labels, bytes_so_far as f64);
    }
}

fn reasons(text: &mut Exposition, balancer: &str, name: &str, help: &str, reasons: &[ReasonCount]) {
    for reason in reasons {
        let number = reason.number.to_string();
        let labels = [("balancer", balancer), ("reason", &reason.key), ("number", &number)];
        text.add("counter", name, "", help, &labels, reason.packets as f64);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use openmetrics_parser::openmetrics::parse_openmetrics;

    use super::*;
    use crate::fixture;

    #[test]
    fn it_is_openmetrics() {
        let text = render(&fixture::status());
        let exposition = parse_openmetrics(&text).unwrap();
        for family in ["netrig_lb_service_bytes", "netrig_lb_backend_active", "netrig_lb_drops", "netrig_lb_up_seconds"]
        {
            assert!(exposition.families.contains_key(family), "{family} in {text}");
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_becomes_of_suspicions_is_counted() {
        let text = render(&fixture::status_with_an_outlier());
        parse_openmetrics(&text).unwrap();
        let of = "{balancer=\"lb\",protocol=\"tcp\",service=\"192.0.2.1:80\",backend=\"10.0.0.12:8080\"";
        for sample in [format!("ejected{of}}} 1"), format!("suspicions_total{of},result=\"spared\"}} 3")] {
            assert!(text.contains(&format!("netrig_lb_backend_{sample}\n")), "{text}");
        }
    }

    #[test]
    fn counters_go_on_when_listings_begin_again() {
        let mut status = fixture::status();
        let before = render(&status);
        status.services[0].counters = Counters::default();
        assert_eq!(render(&status), before);
    }

    #[test]
    fn a_balancer_without_anything_is_openmetrics_too() {
        let mut status = fixture::status();
        (status.services, status.devices, status.drops, status.passes) = Default::default();
        parse_openmetrics(&render(&status)).unwrap();
    }
}
