//! A configuration file from [`Settings`]: services that differ only in where they listen are one table, runs of
//! addresses are ranges, and what is as by default is not said.

use std::fmt::Write;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use rig_datapath::balancer::{
    ClientAddress, ExpiryPolicy, FragmentPolicy, Policy, PortReuse, QuicIds, Sizes, UnhandledPolicy,
};
use rig_stats::units::Span;
use rig_sys::socket::NamedAddress;

use super::access::Access;
use super::any_port::ANY;
use super::check;
use super::client_address::client_address_name;
use super::outlier;
use super::ranges::{shorten, shorten_endpoints};
use super::rules::{Backend, Service, expire_name, forward_name, reuse_name, scheduler_name};
use super::syn_proxy::syn_proxy_name;
use super::tunnel;
use super::{HandOver, Settings, TimeoutOverrides, Workers};
use crate::message::{ForwardingMethod, Protocol, Tunnel};

pub(super) fn settings(settings: &Settings) -> String {
    // Writing into a string does not fail.
    let mut out = String::new();
    let _ = write_start(&mut out, settings);
    let services = &settings.rules.services;
    for alike in services.chunk_by(|before, after| Service { key: before.key, ..after.clone() } == *before) {
        let _ = write_service(&mut out, alike);
    }
    out
}

fn write_start(out: &mut String, settings: &Settings) -> std::fmt::Result {
    let start = &settings.start;
    let devices: Vec<String> = start
        .devices
        .iter()
        .map(|device| match device.generic {
            false => quoted(&device.name),
            true => format!("{{ name = {}, generic = true }}", quoted(&device.name)),
        })
        .collect();
    if !devices.is_empty() {
        writeln!(out, "devices = [{}]", devices.join(", "))?;
    }
    match &start.workers {
        Workers::Unplaced => {}
        Workers::Count(count) => writeln!(out, "workers = {count}")?,
        Workers::Cpus(cpus) => writeln!(out, "cpus = \"{cpus}\"")?,
    }
    if let Some(HandOver { queue, priority }) = start.hand_over {
        writeln!(out, "hand_over = {{ queue = {queue}, priority = {} }}", priority.unwrap_or(0))?;
    }
    writeln!(out, "connections = {}", start.sizes.connections)?;
    if let Some(metrics) = start.metrics {
        writeln!(out, "metrics = \"{}\"", NamedAddress::from(metrics))?;
    }
    if let Some(secret) = &settings.rules.syn_proxy_secret {
        writeln!(out, "syn_proxy_secret = {}", quoted(&secret.display().to_string()))?;
    }
    if let Some(limit) = settings.rules.service_limit {
        writeln!(out, "service_limit = {limit}")?;
    }
    write_access(out, &settings.rules.access)?;
    let usual = Sizes::default();
    let room = [
        ("services", start.sizes.services, usual.services),
        ("backends", start.sizes.backends, usual.backends),
        ("local_addresses", start.sizes.local_addresses, usual.local_addresses),
        ("schedule_entries", start.sizes.list_entries, usual.list_entries),
        ("prefixes", start.sizes.prefixes, usual.prefixes),
        ("sources", start.sizes.sources, usual.sources),
        ("templates", start.sizes.templates, usual.templates),
        ("fragments", start.sizes.fragments, usual.fragments),
    ];
    table(out, "room", room.iter().filter(|(_, is, usual)| is != usual).map(|(name, is, _)| (*name, is.to_string())))?;
    if let Some(sync) = &start.sync {
        let entries = super::sync::entries(sync, start.sizes.ports, &settings.rules.others_local);
        table(out, "sync", entries.into_iter())?;
    }
    if let Some(bgp) = &start.bgp {
        table(out, "bgp", super::sync::bgp_entries(bgp).into_iter())?;
    }
    let Policy { fragments, options, strays } = settings.rules.policy;
    let fragments = match fragments {
        FragmentPolicy::Forward => None,
        FragmentPolicy::Drop => Some("drop"),
        FragmentPolicy::Pass => Some("pass"),
    };
    let options = (options == UnhandledPolicy::Pass).then_some("pass");
    let said = [("fragments", fragments), ("options", options)];
    let said = said.into_iter().filter_map(|(name, policy)| Some((name, quoted(policy?))));
    let strays =
        (strays != Policy::default().strays).then(|| ("strays", strays.map_or(0, NonZeroU32::get).to_string()));
    table(out, "policy", said.chain(strays))?;
    table(out, "timeouts", spans(&settings.rules.timeouts))
}

fn table<'a>(out: &mut String, name: &str, entries: impl Iterator<Item = (&'a str, String)>) -> std::fmt::Result {
    for (n, (key, value)) in entries.enumerate() {
        if n == 0 {
            writeln!(out, "\n[{name}]")?;
        }
        writeln!(out, "{key} = {value}")?;
    }
    Ok(())
}

fn spans(said: &TimeoutOverrides) -> impl Iterator<Item = (&'static str, String)> {
    said.said().map(|(name, timeout)| (name, format!("\"{}\"", Span(timeout))))
}

/// Services that are alike but for their addresses.
fn write_service(out: &mut String, alike: &[Service]) -> std::fmt::Result {
    let Some(service) = alike.first() else { return Ok(()) };
    writeln!(out, "\n[[service]]")?;
    let mut listen = Vec::new();
    for of_one in alike.chunk_by(|before, after| before.key.protocol == after.key.protocol) {
        let protocol = match of_one.first().map(|service| service.key.protocol) {
            Some(Protocol::Udp) => "udp",
            _ => "tcp",
        };
        let addresses: Vec<SocketAddr> = of_one.iter().map(|service| service.key.address).collect();
        listen.extend(
            shorten_endpoints(&addresses, &format!(":{ANY}")).iter().map(|text| format!("\"{protocol} {text}\"")),
        );
    }
    list(out, "listen", &listen)?;
    writeln!(out, "scheduler = \"{}\"", scheduler_name(service.scheduler))?;
    if let Some(forward) = service.forward {
        writeln!(out, "forward = \"{}\"", forward_name(forward))?;
    }
    // One that was made by commands may have some that it does not use.
    if !service.local.is_empty() && !matches!(service.forward, Some(ForwardingMethod::Nat | ForwardingMethod::Route)) {
        let local: Vec<String> = shorten(&service.local).iter().map(|text| quoted(text)).collect();
        list(out, "local", &local)?;
    }
    if let Some(prefix) = service.tunnel_source {
        writeln!(out, "tunnel_source = \"{prefix}\"")?;
    }
    if let Some(limit) = service.limit {
        writeln!(out, "limit = {limit}")?;
    }
    if service.expire != ExpiryPolicy::Never {
        writeln!(out, "expire = \"{}\"", expire_name(service.expire))?;
    }
    if service.one_packet {
        writeln!(out, "one_packet = true")?;
    }
    if let Some(dscp) = service.dscp {
        writeln!(out, "dscp = {}", quoted(&dscp.to_string()))?;
    }
    if let Some(QuicIds { configuration, length }) = service.quic {
        writeln!(out, "quic = {{ configuration = {configuration}, id_length = {length} }}")?;
    }
    if service.sloppy_tcp {
        writeln!(out, "sloppy_tcp = true")?;
    }
    if service.reuse != PortReuse::default() {
        writeln!(out, "reuse = {}", quoted(reuse_name(service.reuse)))?;
    }
    if let Some(said) = service.syn_proxy_said {
        writeln!(out, "syn_proxy = {}", quoted(syn_proxy_name(said)))?;
    }
    if service.client_address != ClientAddress::Off {
        writeln!(out, "client_address = {}", quoted(client_address_name(service.client_address)))?;
    }
    write_access(out, &service.access)?;
    for (key, value) in service.limits.said() {
        writeln!(out, "{key} = {value}")?;
    }
    if let Some(seconds) = service.persistence.timeout {
        writeln!(out, "persistence = \"{}\"", Span(Duration::from_secs(seconds.into())))?;
    }
    let bits = [
        ("prefix4", service.persistence.prefix4),
        ("prefix6", service.persistence.prefix6),
        ("group", service.persistence.group),
    ];
    for (name, bits) in bits.into_iter().filter_map(|(name, bits)| Some((name, bits?))) {
        writeln!(out, "persistence_{name} = {bits}")?;
    }
    if !service.timeouts.is_empty() {
        let timeouts: Vec<String> = spans(&service.timeouts).map(|(name, span)| format!("{name} = {span}")).collect();
        writeln!(out, "timeouts = {{ {} }}", timeouts.join(", "))?;
    }
    if let Some(said) = &service.check {
        let entries = check::entries(said, service.forward);
        let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
        writeln!(out, "check = {{ {} }}", entries.join(", "))?;
    }
    if let Some(said) = &service.outlier {
        let entries: Vec<String> =
            outlier::entries(said).into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
        match entries.is_empty() {
            true => writeln!(out, "outlier = {{}}")?,
            false => writeln!(out, "outlier = {{ {} }}", entries.join(", "))?,
        }
    }
    let alike = |before: &Backend, after: &Backend| Backend { address: after.address, ..*before } == *after;
    let mut backends = Vec::new();
    for run in service.backends.chunk_by(alike) {
        let addresses: Vec<SocketAddr> = run.iter().map(|backend| backend.address).collect();
        backends.extend(shorten_endpoints(&addresses, "").iter().map(|text| entry(text, &run[0], service.is_tunnel())));
    }
    if backends.is_empty() { Ok(()) } else { list(out, "backend", &backends) }
}

fn write_access(out: &mut String, access: &Access) -> std::fmt::Result {
    for (name, said) in access.lists() {
        let prefixes: Vec<String> = said.said.iter().map(|prefix| quoted(&prefix.to_string())).collect();
        if !prefixes.is_empty() {
            list(out, name, &prefixes)?;
        }
        if let Some(file) = &said.file {
            writeln!(out, "{name}_file = {}", quoted(&file.path.display().to_string()))?;
        }
    }
    Ok(())
}

/// A list on one line where there is one element, on a line each where there are more.
fn list(out: &mut String, name: &str, elements: &[String]) -> std::fmt::Result {
    match elements {
        [one] => writeln!(out, "{name} = [{one}]"),
        many => writeln!(out, "{name} = [\n    {},\n]", many.join(",\n    ")),
    }
}

fn entry(text: &str, backend: &Backend, is_tunnel: bool) -> String {
    let weight = (backend.weight != 1).then(|| format!("weight = {}", backend.weight));
    let limit = backend.limit.map(|limit| format!("limit = {limit}"));
    let lower = backend.lower_limit.map(|limit| format!("lower_limit = {limit}"));
    let drain = backend.drain.then(|| "drain = true".to_owned());
    let sorry = backend.sorry.then(|| "sorry = true".to_owned());
    let check = check::backend_check_text(backend.check).map(|check| format!("check = {check}"));
    let tunnel =
        (is_tunnel && backend.tunnel != Tunnel::Ipip).then(|| format!("tunnel = {}", tunnel::text(backend.tunnel)));
    let quic_id = backend.quic_id.map(|id| format!("quic_id = {id}"));
    let more: Vec<String> =
        [weight, limit, lower, drain, sorry, check, tunnel, quic_id].into_iter().flatten().collect();
    match more.is_empty() {
        true => quoted(text),
        false => format!("{{ address = {}, {} }}", quoted(text), more.join(", ")),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
