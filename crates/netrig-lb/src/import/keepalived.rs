//! What the blocks of keepalived.conf mean, and those of DPVS's version of it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use rig_datapath::balancer::{ClientAddress, ExpiryPolicy, MAX_WEIGHT};

use super::Imported;
use super::checks::{self, CHECKS, CheckDefaults, number};
use super::groups;
use super::lines::{ONCE_FULL_NAT, ONCE_LIMIT, ONCE_SCHEDULER, known_scheduler, leave_out_incomplete};
use super::tree::Block;
use crate::health::check::{BackendCheck, Beginning, Check, OnFailure, Probe};
use crate::ipvs::Forwarding;
use crate::ipvsadm::MAX_TIMEOUT;
use crate::message::{ForwardingMethod, Protocol, ServiceKey, ServicePersistence, Tunnel};
use crate::settings::{
    Backend, Completeness, ONE_PACKET_SCHEDULER, Rules, SCHEDULERS, Service, ServiceText, Settings, SynProxy, protocol,
    scheduler_name, tunnel,
};

/// Services in all.
const MOST: usize = 65_535;

/// What keepalived has persist where no time is said, in seconds (keepalived.conf(5)).
const USUAL_PERSISTENCE: u32 = 360;

/// Groups by their names.
#[derive(Debug, Default)]
struct Groups<'a> {
    services: HashMap<&'a str, &'a Block>,
    local: HashMap<&'a str, &'a Block>,
}

pub(super) fn read(blocks: &[Block], forwarding: &Forwarding) -> Imported {
    let mut imported = Imported::default();
    let mut groups = Groups::default();
    for block in blocks {
        match (block.name(), block.word(1)) {
            ("virtual_server_group", Some(name)) => drop(groups.services.insert(name, block)),
            ("local_address_group", Some(name)) => drop(groups.local.insert(name, block)),
            _ => {}
        }
    }
    for block in blocks {
        match block.name() {
            "virtual_server" => virtual_server(block, &groups, forwarding, &mut imported),
            "virtual_server_group" | "local_address_group" => {}
            "global_defs" => block.within.iter().for_each(|line| global(line, &mut imported)),
            name if name.starts_with('@') => {
                imported.note(&block.place, format_args!("{name}: lines for some machines alone are left out"));
            }
            name if name.starts_with("vrrp") || name.starts_with("bfd") => {
                let what = "is keepalived's still: keep it there, without its virtual servers";
                imported.note(&block.place, format_args!("{}: {what}", block.words.join(" ")));
            }
            name => imported.note(&block.place, format_args!("{name}: has no equal")),
        }
    }
    leave_out_incomplete(&mut imported);
    imported
}

/// What of the settings for all is about services: the others are keepalived's own.
fn global(line: &Block, imported: &mut Imported) {
    match line.name() {
        "lvs_timeouts" => {
            for pair in line.words[1..].chunks(2) {
                let names: &[&str] = match pair.first().map(String::as_str) {
                    Some("tcp") => &["established"],
                    Some("tcpfin") => &["fin_wait", "close_wait"],
                    Some("udp") => &["udp_one_way", "udp_normal"],
                    _ => &[],
                };
                let seconds = pair.get(1).and_then(|text| text.parse::<u32>().ok());
                match seconds.filter(|seconds| !names.is_empty() && (1..=MAX_TIMEOUT).contains(seconds)) {
                    Some(seconds) => {
                        for name in names {
                            let _known = imported.rules.timeouts.set(name, Duration::from_secs(seconds.into()));
                        }
                    }
                    None => imported.note(
                        &line.place,
                        format_args!("{}: timeouts are tcp, tcpfin and udp, 1 s to 30 days", pair.join(" ")),
                    ),
                }
            }
        }
        "lvs_sync_daemon" => {
            let instead = "[sync] of the file shares connections with other balancers, by another protocol";
            imported.note(&line.place, format_args!("{}: {instead}", line.name()));
        }
        _ => {}
    }
}

/// A virtual server as it is read.
struct Reading {
    service: Service,
    /// Also of any port, which `service` is then made into.
    also_of_any_port: bool,
    /// Of its real servers.
    tunnel: Tunnel,
    defaults: CheckDefaults,
    check: Option<Check>,
    sorry: Option<SocketAddr>,
    inhibits: bool,
    /// Real servers that say so by themselves.
    inhibiting: usize,
    local: Vec<IpAddr>,
    quorum: u32,
    hysteresis: u32,
    begin: Beginning,
}

fn virtual_server(block: &Block, groups: &Groups<'_>, forwarding: &Forwarding, imported: &mut Imported) {
    let Some(protocol) = protocol_of(block, imported) else { return };
    let listens = listens(block, groups, imported);
    let Some(first) = listens.first() else { return };
    if imported.rules.services.len() + listens.len() > MOST {
        imported.note(&block.place, format_args!("more than {MOST} services: it is left out"));
        return;
    }
    let is_v4 = first.is_ipv4();
    let listens: Vec<SocketAddr> = listens.iter().copied().filter(|address| address.is_ipv4() == is_v4).collect();
    // Of a port where there is one, in whatever order: servers of a service of any port have lost theirs.
    let of_port = listens.iter().copied().find(|address| address.port() != 0);
    let has_any_port = listens.iter().any(|address| address.port() == 0);
    let key = ServiceKey { protocol, address: of_port.unwrap_or(*first) };
    let Some(mut reading) = service(block, key, has_any_port, groups, forwarding, imported) else { return };
    for line in block.within.iter().filter(|line| line.name() == "real_server") {
        real_server(line, &mut reading, imported);
    }
    let mut service = finished(block, reading, imported);
    if let Some((source, probed)) = service.out_of_reach()
        && let Some(check) = &mut service.check
    {
        check.source = None;
        let why =
            format_args!("bindto {source}: is left out: {probed} is of the other family, and a check has one source");
        imported.note(&block.place, why);
    }
    let is_both = has_any_port && of_port.is_some();
    let any_port = has_any_port.then(|| if is_both { of_any_port(&service, block, imported) } else { service.clone() });
    let mut fitting = |service: Option<Service>, which: &str| {
        let service = service?;
        let misfit = fits(&service).err();
        if let Some(why) = &misfit {
            imported.note(&block.place, format_args!("{}: {which}is left out: {why}", block.words.join(" ")));
        }
        misfit.is_none().then_some(service)
    };
    let any_port = fitting(any_port, if is_both { "port 0 " } else { "" });
    let of_port = fitting(of_port.map(|_| service), if is_both { "what is not of port 0 " } else { "" });
    for address in listens {
        let key = ServiceKey { protocol, address };
        let Some(service) = (if address.port() == 0 { &any_port } else { &of_port }) else { continue };
        if imported.rules.service(key).is_some() {
            imported.note(&block.place, format_args!("{} is there already: this one is left out", ServiceText(key)));
            continue;
        }
        let direct = matches!(service.forward, Some(ForwardingMethod::Route | ForwardingMethod::Tunnel));
        let mut backends = service.backends.clone();
        if direct {
            backends.iter_mut().for_each(|backend| backend.address.set_port(address.port()));
        }
        imported.rules.services.push(Service { key, backends, ..service.clone() });
    }
}

/// The same service of any port: its servers' ports are those that checks ask alone.
fn of_any_port(service: &Service, block: &Block, imported: &mut Imported) -> Service {
    let mut any = Service { backends: Vec::new(), ..service.clone() };
    any.key.address.set_port(0);
    let asks = service.check.as_ref().is_some_and(|check| check.port.is_none() && asks_port(&check.probe));
    for known in &service.backends {
        let mut backend = *known;
        backend.address.set_port(0);
        if asks && !backend.sorry {
            backend.check = at_port(backend.check, Some(known.address.port()));
        }
        match any.backends.iter().any(|there| there.address == backend.address) {
            true => imported.note(
                &block.place,
                format_args!("{} is once among the servers of port 0, whose ports say nothing", backend.address.ip()),
            ),
            false => any.backends.push(backend),
        }
    }
    any
}

fn asks_port(probe: &Probe) -> bool {
    !matches!(probe, Probe::Icmp | Probe::Command(_))
}

/// A check that asks at this port where it says none.
fn at_port(said: BackendCheck, port: Option<u16>) -> BackendCheck {
    match said {
        BackendCheck::AsService if port.is_some() => BackendCheck::At { address: None, port },
        BackendCheck::At { address, port: None } => BackendCheck::At { address, port },
        said => said,
    }
}

/// Whether a file may say so: names and paths are checked where files are read.
fn fits(service: &Service) -> Result<(), String> {
    let rules = Rules { services: vec![service.clone()], ..Rules::default() };
    let text = Settings { rules, ..Settings::default() }.to_toml();
    // One without local addresses is told apart later.
    Settings::parse("it", &text, Completeness::Optional).map(drop).map_err(|error| error.to_string().replace('\n', " "))
}

fn protocol_of(block: &Block, imported: &mut Imported) -> Option<Protocol> {
    let Some(said) = block.value("protocol") else {
        // Whose packets of a mark a service is, is said by the mark's rule; it is left out with its own reason.
        if block.word(1) != Some("fwmark") {
            let name = block.words.join(" ");
            imported.note(&block.place, format_args!("{name}: has no `protocol`, which keepalived takes for UDP"));
        }
        return Some(Protocol::Udp);
    };
    match said.to_ascii_uppercase().as_str() {
        "TCP" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        other => {
            imported.note(&block.place, format_args!("{}: protocol {other} is not balanced", block.words.join(" ")));
            None
        }
    }
}

fn listens(block: &Block, groups: &Groups<'_>, imported: &mut Imported) -> Vec<SocketAddr> {
    let mark = "no services by firewall marks: name addresses and ports, in one persistence_group if it persists";
    match (block.word(1), block.word(2)) {
        (Some("fwmark"), _) => {
            imported.note(&block.place, format_args!("{}: {mark}", block.words.join(" ")));
            Vec::new()
        }
        (Some("group"), Some(name)) => {
            let Some(group) = groups.services.get(name) else {
                imported.note(&block.place, format_args!("there is no virtual_server_group {name}"));
                return Vec::new();
            };
            let mut all = Vec::new();
            for line in &group.within {
                if line.name() == "fwmark" {
                    imported.note(&line.place, format_args!("{}: {mark}", line.words.join(" ")));
                } else {
                    all.extend(groups::addresses(&with_port(&line.words, 0), &line.place, imported));
                }
                if all.len() > MOST {
                    imported
                        .note(&line.place, format_args!("more than {MOST} services in group {name}: it is left out"));
                    return Vec::new();
                }
            }
            let v4 = all.first().is_some_and(SocketAddr::is_ipv4);
            if all.iter().any(|address| address.is_ipv4() != v4) {
                imported
                    .note(&block.place, format_args!("group {name} has both families: those of the first are taken"));
            }
            all
        }
        // Of any port where none is said, as keepalived has it.
        _ => groups::addresses(&with_port(&block.words[1..], 0), &block.place, imported),
    }
}

fn method(
    words: &[String],
    forwarding: &Forwarding,
    line: &Block,
    imported: &mut Imported,
) -> Option<(ForwardingMethod, Tunnel)> {
    let forward = match words.first().map(|word| word.to_ascii_uppercase()).as_deref() {
        Some("NAT") => Some(forwarding.masquerade),
        Some("FNAT") => Some(ForwardingMethod::FullNat),
        Some("DR") => Some(ForwardingMethod::Route),
        Some("TUN") => {
            return match tunnel_of(words) {
                Ok(tunnel) => Some((ForwardingMethod::Tunnel, tunnel)),
                Err(why) => {
                    imported.note(
                        &line.place,
                        format_args!("{}: its virtual server is left out: {why}", line.words.join(" ")),
                    );
                    None
                }
            };
        }
        other => {
            let what = "its virtual server is left out: there is no such way to forward";
            imported.note(&line.place, format_args!("{}: {what}", other.unwrap_or("nothing")));
            None
        }
    };
    Some((forward?, Tunnel::Ipip))
}

/// `TUN type gue port 6080 nocsum`, as keepalived.conf(5) has it.
fn tunnel_of(words: &[String]) -> Result<Tunnel, String> {
    let (mut name, mut port, mut checksum) = ("ipip", None, None);
    let mut left = words.iter().skip(1).map(String::as_str);
    while let Some(word) = left.next() {
        match word {
            "type" => name = left.next().ok_or("a type is missing")?,
            "port" => port = Some(left.next().and_then(|port| port.parse().ok()).ok_or("a port is 1 to 65535")?),
            "csum" => checksum = Some(true),
            "nocsum" => checksum = Some(false),
            "remcsum" => return Err("there is no remote checksum offload; write nocsum, or csum".to_owned()),
            other => return Err(format!("there is no '{other}' of a tunnel")),
        }
    }
    if name == "gue" && port.is_none() {
        return Err("gue without a port, which keepalived refuses, too".to_owned());
    }
    tunnel(name, port, checksum).map_err(|misfit| misfit.to_string())
}

/// As it can be here, or not at all.
fn fit_one_packet(service: &mut Service, block: &Block, imported: &mut Imported) {
    if service.one_packet && service.forward == Some(ForwardingMethod::FullNat) {
        imported.note(&block.place, format_args!("ops: {ONCE_FULL_NAT}"));
        service.one_packet = false;
    }
    if service.one_packet && service.scheduler.counts_connections() {
        let name = scheduler_name(service.scheduler);
        imported.note(&block.place, format_args!("lvs_sched {name}: {ONCE_SCHEDULER}"));
        service.scheduler = ONE_PACKET_SCHEDULER;
    }
}

/// All of a virtual server but its real servers; `None` where it cannot be here.
fn service(
    block: &Block,
    key: ServiceKey,
    has_any_port: bool,
    groups: &Groups<'_>,
    forwarding: &Forwarding,
    imported: &mut Imported,
) -> Option<Reading> {
    let mut reading = Reading {
        service: Service { forward: Some(forwarding.masquerade), ..Service::new(key) },
        also_of_any_port: has_any_port && key.address.port() != 0,
        tunnel: Tunnel::Ipip,
        defaults: CheckDefaults::default(),
        check: None,
        sorry: None,
        inhibits: false,
        inhibiting: 0,
        local: forwarding.local.clone(),
        quorum: 1,
        hysteresis: 0,
        begin: Beginning::Up,
    };
    let mut reads_header = false;
    for line in &block.within {
        let place = &line.place;
        let value = line.word(1).unwrap_or_default();
        match line.name() {
            // A sorry server has weight 0 while it waits, anyway.
            "protocol" | "real_server" | "ip_family" | "sorry_server_inhibit" => {}
            "lvs_sched" | "lb_algo" => {
                let name = known_scheduler(value, place, imported);
                let known = SCHEDULERS.iter().find(|(known, _)| *known == name);
                reading.service.scheduler = known.map_or(reading.service.scheduler, |(_, scheduler)| *scheduler);
            }
            "lvs_method" | "lb_kind" => {
                let (forward, tunnel) = method(&line.words[1..], forwarding, line, imported)?;
                (reading.service.forward, reading.tunnel) = (Some(forward), tunnel);
            }
            "laddr_group_name" => match groups.local.get(value) {
                Some(group) => reading.local = groups::local(group, imported),
                None => imported.note(place, format_args!("there is no local_address_group {value}")),
            },
            "quorum" => reading.quorum = number(line, imported).unwrap_or(1),
            "hysteresis" => reading.hysteresis = number(line, imported).unwrap_or(0),
            "sorry_server" => {
                let sorry = groups::addresses(&with_port(&line.words[1..], key.address.port()), place, imported);
                reading.sorry = sorry.first().map(|at| own_port(*at, &reading).0);
            }
            "inhibit_on_failure" => reading.inhibits = true,
            "alpha" => reading.begin = Beginning::Down,
            "syn_proxy" if key.protocol == Protocol::Tcp => reading.service.syn_proxy_said = Some(SynProxy::Always),
            "proxy_protocol" if key.protocol == Protocol::Tcp => match value {
                "v2" => reading.service.client_address = ClientAddress::ProxyV2,
                "disable" => {}
                other => {
                    // Backends that wait for a header refuse connections without.
                    reads_header = true;
                    let instead = "not there, so client_address is left out, and backends that expect a header refuse connections; \
                                   where they take version 2 say client_address = \"proxy_v2\"";
                    imported.note(place, format_args!("proxy_protocol {other}: {instead}"));
                }
            },
            "ops" if key.protocol == Protocol::Udp => reading.service.one_packet = true,
            "expire_quiescent_conn" => reading.service.expire = ExpiryPolicy::Quiescent,
            "establish_timeout" => match value.parse::<u32>() {
                Ok(seconds @ 1..=MAX_TIMEOUT) => {
                    reading.service.timeouts.set_main(protocol(key.protocol), Duration::from_secs(seconds.into()));
                }
                _ => imported.note(place, format_args!("establish_timeout {value}: timeouts are 1 s to 30 days")),
            },
            "persistence_timeout" | "persistence_granularity" => {
                if let Err(why) = persistence(line, key.address.is_ipv6(), &mut reading.service.persistence) {
                    imported.note(place, format_args!("{}: {why}", line.words.join(" ")));
                }
            }
            "persistence_engine" => {
                imported.note(place, format_args!("{}: persistence is by the client's address", line.words.join(" ")));
            }
            "quorum_up" | "quorum_down" | "omega" | "smtp_alert" | "ha_suspend" => {
                imported.note(place, format_args!("{}: not there; watch the log or metrics", line.name()));
            }
            _ if reading.defaults.take(line, imported) => {}
            other => imported.note(place, format_args!("{other}: has no equal")),
        }
    }
    fit_one_packet(&mut reading.service, block, imported);
    if has_any_port && reading.service.persistence.timeout.is_none() {
        reading.service.persistence.timeout = Some(USUAL_PERSISTENCE);
        let why = "as keepalived has it of port 0 without persistence_timeout";
        imported
            .note(&block.place, format_args!("{}: persists for {USUAL_PERSISTENCE} s, {why}", block.words.join(" ")));
    }
    // A mask alone says nothing.
    if reading.service.persistence.timeout.is_none() {
        reading.service.persistence = ServicePersistence::default();
    }
    // DPVS tells backends by its options always.
    let kind = block.value("lb_kind").or_else(|| block.value("lvs_method"));
    let dpvs = kind.is_some_and(|kind| kind.eq_ignore_ascii_case("FNAT"));
    match (reading.service.forward, reading.service.client_address) {
        (Some(ForwardingMethod::FullNat), ClientAddress::Off)
            if dpvs && key.protocol == Protocol::Tcp && !reads_header =>
        {
            reading.service.client_address = ClientAddress::Toa;
        }
        // Without somebody there who takes it a backend gets nothing, with DPVS no more than the first three datagrams.
        (Some(ForwardingMethod::FullNat), ClientAddress::Off) if dpvs && key.protocol == Protocol::Udp => {
            let instead = "lb_kind FNAT of UDP: DPVS tells backends their clients by UOA; say client_address = \"uoa\" where each of them has \
                           uoa.ko or `netrig lb receive --device`, which get no datagram otherwise";
            imported.note(&block.place, instead);
        }
        (Some(ForwardingMethod::FullNat), _) | (_, ClientAddress::Off) => {}
        _ => {
            imported.note(&block.place, "proxy_protocol: needs full-nat");
            reading.service.client_address = ClientAddress::Off;
        }
    }
    Some(reading)
}

/// keepalived's time in seconds, and its mask, which is a length with IPv6.
fn persistence(line: &Block, is_ipv6: bool, said: &mut ServicePersistence) -> Result<(), &'static str> {
    let value = line.word(1);
    if line.name() == "persistence_timeout" {
        let seconds = value.map_or(Some(USUAL_PERSISTENCE), |value| value.parse().ok());
        let seconds = seconds.filter(|seconds| (1..=MAX_TIMEOUT).contains(seconds));
        said.timeout = Some(seconds.ok_or("persistence is for 1 s to 30 days")?);
        return Ok(());
    }
    let value = value.unwrap_or_default();
    let bits = match is_ipv6 {
        true => value.parse().ok().filter(|bits| (1..=128).contains(bits)),
        false => {
            let mask = value.parse().ok().and_then(|mask| ipnet::ipv4_mask_to_prefix(mask).ok());
            mask.filter(|bits| *bits > 0).map(u32::from)
        }
    };
    let bits = Some(bits.ok_or("not a mask of ones, then zeros: sources are prefixes")?);
    *(if is_ipv6 { &mut said.prefix6 } else { &mut said.prefix4 }) = bits;
    Ok(())
}

/// A server of a service of any port has none, as in IPVS, which goes by what clients ask for; and the port that was said.
fn own_port(mut at: SocketAddr, reading: &Reading) -> (SocketAddr, Option<u16>) {
    let service = reading.service.key.address;
    if service.port() != 0 {
        if reading.also_of_any_port && at.port() == 0 {
            at.set_port(service.port());
        }
        return (at, None);
    }
    let said = Some(at.port()).filter(|port| *port != 0);
    at.set_port(0);
    (at, said)
}

fn with_port(words: &[String], port: u16) -> Vec<String> {
    match words {
        [address] => vec![address.clone(), port.to_string()],
        words => words.to_vec(),
    }
}

fn real_server(block: &Block, reading: &mut Reading, imported: &mut Imported) {
    let service = reading.service.key.address;
    let at = groups::addresses(&with_port(&block.words[1..], service.port()), &block.place, imported);
    let [address] = at[..] else { return };
    let (address, asked_by_checks) = own_port(address, reading);
    let said = block.words[1..].join(" ");
    if address.port() == 0 && service.port() != 0 {
        imported.note(&block.place, format_args!("{said} has no port: it is left out"));
        return;
    }
    if address.is_ipv4() != service.is_ipv4() && !reading.service.may_translate_families() {
        imported.note(&block.place, format_args!("{said} is of another family than its service: it is left out"));
        return;
    }
    if reading.service.backends.iter().any(|backend| backend.address == address) {
        imported.note(&block.place, format_args!("{said} is there already: this one is left out"));
        return;
    }
    let mut backend = Backend { tunnel: reading.tunnel, ..Backend::new(address) };
    let mut defaults = reading.defaults.clone();
    let mut inhibits = false;
    // Whatever the order of lines.
    for line in block.within.iter().filter(|line| line.within.is_empty()) {
        let value = line.word(1).unwrap_or_default();
        match line.name() {
            "weight" => match value.parse::<u32>() {
                Ok(weight) if weight <= MAX_WEIGHT => backend.weight = weight,
                _ => imported.note(&line.place, format_args!("weight {value}: weights are 0 to {MAX_WEIGHT}")),
            },
            "uthreshold" => backend.limit = number(line, imported).and_then(NonZeroU32::new),
            "lthreshold" => backend.lower_limit = number(line, imported).and_then(NonZeroU32::new),
            "inhibit_on_failure" => inhibits = true,
            "lvs_method" => match (reading.service.forward, tunnel_of(&line.words[1..])) {
                (Some(ForwardingMethod::Tunnel), Ok(tunnel)) if value.eq_ignore_ascii_case("TUN") => {
                    backend.tunnel = tunnel;
                }
                (Some(ForwardingMethod::Tunnel), Err(why)) if value.eq_ignore_ascii_case("TUN") => {
                    let what = "its real server is left out";
                    imported.note(&line.place, format_args!("{}: {what}: {why}", line.words.join(" ")));
                    return;
                }
                _ => imported.note(&line.place, "lvs_method of a real server: a service forwards in one way"),
            },
            "notify_up" | "notify_down" => {
                imported.note(&line.place, format_args!("{}: not there; watch the log or metrics", line.name()));
            }
            name if CHECKS.contains(&name) => {}
            _ if defaults.take(line, imported) => {}
            other => imported.note(&line.place, format_args!("{other} of a real server: has no equal")),
        }
    }
    let mut said = block.within.iter().filter(|line| CHECKS.contains(&line.name()));
    let first = said.next();
    if let Some(second) = said.next() {
        imported.note(&second.place, format_args!("{}: a backend has one check, the first", second.name()));
    }
    for line in block.within.iter().filter(|line| !line.within.is_empty() && !CHECKS.contains(&line.name())) {
        imported.note(&line.place, format_args!("{} of a real server: has no equal", line.name()));
    }
    if backend.lower_limit.is_some_and(|lower| backend.limit.is_none_or(|limit| lower > limit)) {
        imported.note(&block.place, "lthreshold: is above uthreshold, and left out");
        backend.lower_limit = None;
    }
    if reading.service.one_packet && (backend.limit.is_some() || backend.lower_limit.is_some()) {
        imported.note(&block.place, format_args!("uthreshold, lthreshold: {ONCE_LIMIT}"));
        (backend.limit, backend.lower_limit) = (None, None);
    }
    backend.check = match first.and_then(|said| checks::read(said, &defaults, imported)) {
        None => BackendCheck::Off,
        Some((check, at)) => {
            let has = reading.check.get_or_insert_with(|| check.clone());
            if *has != check {
                checks::differs(&block.place, imported);
            }
            if asks_port(&check.probe) { at_port(at, asked_by_checks) } else { at }
        }
    };
    reading.service.backends.push(backend);
    reading.inhibiting += usize::from(inhibits);
}

/// What the lines come to together.
fn finished(block: &Block, reading: Reading, imported: &mut Imported) -> Service {
    let Reading { mut service, check, sorry, inhibits, inhibiting, local, quorum, hysteresis, begin, .. } = reading;
    if matches!(service.forward, Some(ForwardingMethod::FullNat | ForwardingMethod::Tunnel)) {
        // Those of IPv4 where a server of a service of IPv6 needs them.
        let has_v4 = service.translates_families() || sorry.is_some_and(|sorry| sorry.is_ipv4());
        let is_v4 = service.key.address.is_ipv4();
        let needed = |local: &IpAddr| local.is_ipv4() == is_v4 || has_v4 && service.may_translate_families();
        service.local = local.into_iter().filter(needed).collect();
    }
    if service.backends.is_empty() {
        service.forward = None;
    }
    let weight: u64 = service.backends.iter().map(|backend| u64::from(backend.weight)).sum();
    let Some(mut check) = check else {
        for backend in &mut service.backends {
            backend.check = BackendCheck::AsService;
        }
        if sorry.is_some() || quorum > 1 {
            imported.note(&block.place, "quorum and sorry server: without a check all servers are taken to be healthy");
        }
        return service;
    };
    check.begin = begin;
    if !inhibits && inhibiting != 0 && inhibiting != service.backends.len() {
        imported.note(&block.place, "inhibit_on_failure of some servers: it is of all here");
    }
    check.failed = if inhibits || inhibiting != 0 { OnFailure::Drain } else { OnFailure::Remove };
    (check.pool.quorum, check.pool.hysteresis) = (quorum.max(1), hysteresis);
    if hysteresis >= check.pool.quorum || u64::from(quorum) + u64::from(hysteresis) > weight {
        imported.note(&block.place, format_args!("quorum {quorum} and hysteresis {hysteresis} cannot be met by a weight of {weight}: quorum 1 stands here"));
        (check.pool.quorum, check.pool.hysteresis) = (1, 0);
    }
    service.check = Some(Box::new(check));
    if let Some(address) = sorry {
        if service.backends.iter().any(|backend| backend.address == address)
            || address.is_ipv4() != service.key.address.is_ipv4() && !service.may_translate_families()
        {
            imported.note(
                &block.place,
                format_args!("sorry server {} is left out: it is a server already, or of another family", address.ip()),
            );
        } else {
            service.backends.push(Backend { sorry: true, ..Backend::new(address) });
        }
    }
    service
}
