//! What a command line asks for, with everything in it checked that can be checked without the balancer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use rig_datapath::balancer::{MAX_GROUP, MAX_WEIGHT};
use rig_stats::units::Span;

use super::UsageError;
use super::options::{self, Key, Parts, Verb};
use crate::instance::Name;
use crate::listing::{Listing, ListingKind};
use crate::message::{
    BackendOptions, Filter, ForwardingMethod, Protocol, RuleChange, ServiceKey, ServiceLimits, ServiceOptions,
    ServicePersistence, Tunnel,
};
use crate::names::NameResolution;
use crate::settings::{
    DEFAULT_PERSISTENCE, DPVS, EXPIRES, Misfit, OR_KEEP, REUSES, SCHEDULERS, SYN_PROXIES, TUNNELS, dscp, dscp_name,
    quic, quic_id, tunnel, tunnel_source,
};

/// A whole command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub name: Option<Name>,
    pub command: Command,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// With the device that DPVS's `-F` names.
    Edit {
        edit: RuleChange,
        device: Option<String>,
    },
    List(Listing),
    Locals {
        service: Option<ServiceKey>,
        json: bool,
    },
    Zero(Option<ServiceKey>),
    Save {
        numeric: bool,
    },
    Restore,
    Version,
    Help,
}

/// Longest timeout, seconds: 30 days, as in [`rig_datapath::balancer::Timeouts`].
pub(crate) const MAX_TIMEOUT: u32 = 30 * 24 * 3600;

impl Line {
    /// What ipvsadm does without options.
    pub fn list() -> Self {
        let listing = Listing {
            what: ListingKind::Rules,
            service: None,
            numeric: false,
            exact: false,
            sorted: true,
            json: false,
        };
        Self { name: None, command: Command::List(listing) }
    }

    pub fn parse(arguments: &[String]) -> Result<Self, UsageError> {
        Self::parse_by(arguments, NameResolution::System)
    }

    /// The same with names looked up in `resolution`.
    pub(crate) fn parse_by(arguments: &[String], resolution: NameResolution) -> Result<Self, UsageError> {
        let parts = options::cut(arguments)?;
        let Some((verb, verb_said)) = parts.verb.clone() else {
            return Err(UsageError::new(
                "no command is given",
                "give one, e.g. -L to list or -A to add a service; `netrig lb help` lists them",
            ));
        };
        let said = ParsedArguments { parts, verb, verb_said, resolution };
        said.refuse_what_does_not_belong()?;
        let name = said.value(Key::Name).map(str::parse).transpose();
        let name = name.map_err(|error| UsageError::new("--name", format!("{error}")))?;
        Ok(Self { name, command: said.command()? })
    }
}

struct ParsedArguments {
    parts: Parts,
    verb: Verb,
    verb_said: String,
    resolution: NameResolution,
}

const SERVICE: [Key; 2] = [Key::TcpService, Key::UdpService];

/// What may be said about a command, beside --name.
fn keys_of(verb: Verb) -> &'static [Key] {
    use Key::*;
    match verb {
        Verb::AddService | Verb::EditService => &[
            TcpService,
            UdpService,
            Scheduler,
            ConnTimeout,
            Limit,
            Expire,
            SloppyTcp,
            Reuse,
            SynProxy,
            Limits(0),
            Limits(1),
            Limits(2),
            Limits(3),
            Limits(4),
            Limits(5),
            Limits(6),
            Persistent,
            Netmask,
            PersistenceGroup,
            OnePacket,
            OnePacketSaid,
            Dscp,
            Quic,
            TunnelSource,
        ],
        Verb::DeleteService | Verb::Zero => &SERVICE,
        Verb::AddServer => &[
            TcpService,
            UdpService,
            Server,
            Gateway,
            Tunnel,
            Masquerade,
            FullNat,
            Weight,
            UpperThreshold,
            LowerThreshold,
            TunnelType,
            TunnelPort,
            TunnelSum,
            TunnelNoSum,
            QuicId,
        ],
        Verb::EditServer => &[
            TcpService,
            UdpService,
            Server,
            Gateway,
            Tunnel,
            Masquerade,
            FullNat,
            Weight,
            UpperThreshold,
            LowerThreshold,
            TunnelType,
            TunnelPort,
            TunnelSum,
            TunnelNoSum,
            QuicId,
            Drain,
        ],
        Verb::DeleteServer => &[TcpService, UdpService, Server],
        Verb::AddLocal | Verb::DeleteLocal => &[TcpService, UdpService, Local, Device],
        Verb::ListLocal => &[TcpService, UdpService, Json],
        Verb::List => &[
            TcpService,
            UdpService,
            Numeric,
            Connection,
            Stats,
            Rate,
            Thresholds,
            NextHops,
            Health,
            PersistentConn,
            TunnelInfo,
            Timeout,
            Exact,
            Sort,
            NoSort,
            Json,
            Client,
            Backend,
            Most,
        ],
        Verb::Save => &[Numeric],
        Verb::Clear | Verb::Set | Verb::Restore | Verb::Version | Verb::Help => &[],
    }
}

/// Refuses what services of this protocol do not have.
fn of_service(service: ServiceKey, options: &ServiceOptions) -> Result<(), UsageError> {
    options.check(service.protocol).map_err(|error| UsageError::new(error.to_string(), error.hint()))
}

impl ParsedArguments {
    fn command(&self) -> Result<Command, UsageError> {
        let edit = |edit| Ok(Command::Edit { edit, device: None });
        match self.verb {
            Verb::AddService => {
                let (service, options) = (self.service()?, self.service_options()?);
                of_service(service, &options)?;
                edit(RuleChange::AddService { service, options })
            }
            Verb::EditService => {
                let options = self.service_options()?;
                if options == ServiceOptions::default() {
                    return Err(self.changes_nothing("-s SCHEDULER, --conn-timeout SECONDS, --limit CONNECTIONS, --expire WHEN, --sloppy-tcp on|off, --reuse HOW, -j WHEN, --source-limit CONNECTIONS, --source-rate N, --new-rate N, -p SECONDS, -M MASK, --one-packet on|off, --dscp DSCP, --quic CONFIGURATION/BYTES or --tunnel-source PREFIX"));
                }
                let service = self.service()?;
                of_service(service, &options)?;
                edit(RuleChange::EditService { service, options })
            }
            Verb::DeleteService => edit(RuleChange::DeleteService { service: self.service()? }),
            Verb::AddServer => {
                let (service, backend, options) = self.server()?;
                edit(RuleChange::AddBackend { service, backend, options })
            }
            Verb::EditServer => {
                let (service, backend, options) = self.server()?;
                if options == BackendOptions::default() {
                    return Err(self.changes_nothing(
                        "-w WEIGHT, -x CONNECTIONS, -y CONNECTIONS, --tun-type TYPE or --drain SPAN",
                    ));
                }
                if options.drain_ms.is_some() && options.weight.is_some() {
                    let next = "leave one out: -w ends a drain, and the weight is kept while it drains";
                    return Err(UsageError::new("--drain and -w are opposites", next));
                }
                edit(RuleChange::EditBackend { service, backend, options })
            }
            Verb::DeleteServer => {
                let (service, backend, _) = self.server()?;
                edit(RuleChange::DeleteBackend { service, backend })
            }
            Verb::AddLocal => {
                let (service, address) = (self.service()?, self.local()?);
                Ok(Command::Edit { edit: RuleChange::AddLocal { service, address }, device: self.device() })
            }
            Verb::DeleteLocal => {
                let (service, address) = (self.service()?, self.local()?);
                Ok(Command::Edit { edit: RuleChange::DeleteLocal { service, address }, device: self.device() })
            }
            Verb::Clear => edit(RuleChange::Clear),
            Verb::Set => edit(self.timeouts()?),
            Verb::ListLocal => Ok(Command::Locals { service: self.maybe_service()?, json: self.has(Key::Json) }),
            Verb::Zero => Ok(Command::Zero(self.maybe_service()?)),
            Verb::Save => Ok(Command::Save { numeric: self.has(Key::Numeric) }),
            Verb::Restore => Ok(Command::Restore),
            Verb::Version => Ok(Command::Version),
            Verb::Help => Ok(Command::Help),
            Verb::List => self.listing().map(Command::List),
        }
    }

    fn has(&self, key: Key) -> bool {
        self.parts.keys.iter().any(|(said, ..)| *said == key)
    }

    fn value(&self, key: Key) -> Option<&str> {
        self.parts.keys.iter().find(|(said, ..)| *said == key).and_then(|(_, value, _)| value.as_deref())
    }

    fn refuse_what_does_not_belong(&self) -> Result<(), UsageError> {
        let allowed = keys_of(self.verb);
        for (key, _, said) in &self.parts.keys {
            if *key != Key::Name && !allowed.contains(key) {
                let verb = &self.verb_said;
                return Err(UsageError::new(
                    format!("{said} does not belong to {verb}"),
                    "leave it out, or choose another command; `netrig lb help` lists them",
                ));
            }
        }
        match self.parts.words.first() {
            Some(word) if self.verb != Verb::Set => Err(UsageError::new(
                format!("'{word}' belongs to no option"),
                "leave it out, or put its option before it",
            )),
            _ => Ok(()),
        }
    }

    fn changes_nothing(&self, what: &str) -> UsageError {
        UsageError::new(format!("{} changes nothing", self.verb_said), format!("add {what}"))
    }

    fn service(&self) -> Result<ServiceKey, UsageError> {
        self.maybe_service()?.ok_or_else(|| {
            UsageError::new(
                format!("{} needs a service", self.verb_said),
                "add -t ADDRESS:PORT for TCP or -u ADDRESS:PORT for UDP",
            )
        })
    }

    fn maybe_service(&self) -> Result<Option<ServiceKey>, UsageError> {
        let (protocol, said, text) = match (self.value(Key::TcpService), self.value(Key::UdpService)) {
            (None, None) => return Ok(None),
            (Some(tcp), None) => (Protocol::Tcp, "-t", tcp),
            (None, Some(udp)) => (Protocol::Udp, "-u", udp),
            (Some(_), Some(_)) => {
                return Err(UsageError::new(
                    "-t and -u are two services",
                    "choose one, and put the other in a line of its own",
                ));
            }
        };
        let (address, port) = self.host_and_port(said, text, protocol)?;
        let port = port.ok_or_else(|| {
            UsageError::new(
                format!("{said} {text} has no port"),
                "write ADDRESS:PORT, or ADDRESS:0 for each port that no other service has",
            )
        })?;
        Ok(Some(ServiceKey { protocol, address: SocketAddr::new(address, port) }))
    }

    fn service_options(&self) -> Result<ServiceOptions, UsageError> {
        let scheduler = self.value(Key::Scheduler).map(str::to_owned);
        if let Some(unknown) = scheduler.as_ref().filter(|name| !SCHEDULERS.iter().any(|(known, _)| known == name)) {
            let near = match unknown.as_str() {
                "conhash" => " (mh and sh hash consistently, both)",
                "dh" | "lblc" | "lblcr" => {
                    " (by its destination all of a service would go to one server: it has one address)"
                }
                _ => "",
            };
            let error = format!("there is no scheduler '{unknown}'");
            let known = SCHEDULERS.map(|(name, _)| name).join(", ");
            return Err(UsageError::new(error, format!("choose one of {known}{near}")));
        }
        let expire = self.one_of(Key::Expire, "--expire", &EXPIRES.map(|(name, _)| name))?.map(str::to_owned);
        let reuse = self.one_of(Key::Reuse, "--reuse", &REUSES.map(|(name, _)| name))?.map(str::to_owned);
        let known: Vec<&str> = SYN_PROXIES.iter().chain(&DPVS).map(|(name, _)| *name).collect();
        let syn_proxy = self.one_of(Key::SynProxy, "--synproxy", &known)?.map(str::to_owned);
        let mut places = 0..;
        let limits = ServiceLimits::read(|key, most| {
            let place = places.next().unwrap_or_default();
            self.number(Key::Limits(place), &format!("--{}", key.replace('_', "-")), 0, most)
        })?;
        Ok(ServiceOptions {
            scheduler,
            timeout: self.number(Key::ConnTimeout, "--conn-timeout", 1, MAX_TIMEOUT)?,
            limit: self.number(Key::Limit, "--limit", 0, u32::MAX)?,
            expire,
            sloppy_tcp: self.one_of(Key::SloppyTcp, "--sloppy-tcp", &["on", "off"])?.map(|said| said == "on"),
            reuse,
            syn_proxy,
            limits,
            persistence: self.persistence()?,
            one_packet: self.one_packet()?,
            dscp: self.dscp()?,
            quic: self.fitting(Key::Quic, quic)?,
            tunnel_source: self.tunnel_source()?,
        })
    }

    fn fitting<T>(&self, key: Key, read: impl FnOnce(&str) -> Result<T, Misfit>) -> Result<Option<T>, UsageError> {
        let read = self.value(key).map(read).transpose();
        read.map_err(|misfit| UsageError::new(misfit.to_string(), misfit.hint))
    }

    fn tunnel_source(&self) -> Result<Option<String>, UsageError> {
        let Some(said) = self.value(Key::TunnelSource).filter(|said| *said != "off") else {
            return Ok(self.value(Key::TunnelSource).map(str::to_owned));
        };
        let prefix = tunnel_source(said).map_err(|misfit| UsageError::new(misfit.to_string(), misfit.hint))?;
        Ok(Some(prefix.to_string()))
    }

    /// ipvsadm's options of tunnels, of which a port and checksums are of one type alone.
    fn tunnel(&self) -> Result<Option<Tunnel>, UsageError> {
        let port = self.number(Key::TunnelPort, "--tun-port", 1, u16::MAX)?;
        let checksum = match (self.has(Key::TunnelSum), self.has(Key::TunnelNoSum)) {
            (true, true) => {
                return Err(UsageError::new("--tun-csum and --tun-nocsum are opposites", "give one of them"));
            }
            (false, false) => None,
            (has, _) => Some(has),
        };
        let Some(name) = self.one_of(Key::TunnelType, "--tun-type", &TUNNELS)? else {
            return match (port, checksum) {
                (None, None) => Ok(None),
                _ => Err(UsageError::new("a tunnel's port or checksum without --tun-type", "add --tun-type gue")),
            };
        };
        if name == "gue" && port.is_none() {
            return Err(UsageError::new("--tun-type gue without --tun-port", "add --tun-port 6080, or another one"));
        }
        if name == "ipip" && checksum.is_some() {
            return Err(UsageError::new("checksums of --tun-type ipip", "leave them out: IP in IP has none"));
        }
        tunnel(name, port, checksum).map(Some).map_err(|misfit| UsageError::new(misfit.to_string(), misfit.hint))
    }

    /// ipvsadm's `-o`; and by its name what takes it away as well.
    fn one_packet(&self) -> Result<Option<bool>, UsageError> {
        let said = self.one_of(Key::OnePacketSaid, "--one-packet", &["on", "off"])?.map(|said| said == "on");
        match (self.has(Key::OnePacket), said) {
            (true, Some(_)) => Err(UsageError::new("-o and --one-packet say the same", "give one of them")),
            (true, None) => Ok(Some(true)),
            (false, said) => Ok(said),
        }
    }

    fn dscp(&self) -> Result<Option<String>, UsageError> {
        let Some(said) = self.value(Key::Dscp) else { return Ok(None) };
        match dscp(said) {
            Ok(dscp) => Ok(Some(dscp_name(dscp))),
            Err(error) => Err(UsageError::new(error.to_string(), OR_KEEP)),
        }
    }

    /// ipvsadm's `-p [SECONDS]` and `-M MASK`, the mask of IPv6 being a length.
    fn persistence(&self) -> Result<ServicePersistence, UsageError> {
        let timeout = match self.value(Key::Persistent) {
            Some(text) => Some(in_range("-p", text, 0, MAX_TIMEOUT)?),
            None => self.has(Key::Persistent).then_some(DEFAULT_PERSISTENCE),
        };
        let group = self.number(Key::PersistenceGroup, "--persistence-group", 0, MAX_GROUP)?;
        let mut persistence = ServicePersistence { timeout, group, ..ServicePersistence::default() };
        if self.verb == Verb::AddService && timeout.is_none() && group.is_some_and(|group| group != 0) {
            return Err(UsageError::new(
                "--persistence-group without -p",
                "add -p SECONDS: the group is of who persists",
            ));
        }
        let Some(mask) = self.value(Key::Netmask) else { return Ok(persistence) };
        if self.verb == Verb::AddService && timeout.is_none() {
            return Err(UsageError::new(
                "-M without -p",
                "add -p SECONDS: the mask says which addresses are one source",
            ));
        }
        if self.service()?.address.is_ipv6() {
            persistence.prefix6 = Some(in_range("-M", mask, 1, 128)?);
            return Ok(persistence);
        }
        let bits = match mask.parse::<Ipv4Addr>() {
            Ok(mask) => ipnet::ipv4_mask_to_prefix(mask).ok().filter(|bits| *bits > 0).map(u32::from),
            Err(_) => mask.parse().ok().filter(|bits| (1..=32).contains(bits)),
        };
        let next = "write a mask of ones, then zeros, 255.255.255.0, or its length, 1 to 32";
        persistence.prefix4 = Some(bits.ok_or_else(|| UsageError::new(format!("-M does not take '{mask}'"), next))?);
        Ok(persistence)
    }

    fn one_of(&self, key: Key, said: &str, known: &[&str]) -> Result<Option<&str>, UsageError> {
        match self.value(key) {
            Some(unknown) if !known.contains(&unknown) => Err(UsageError::new(
                format!("{said} does not take '{unknown}'"),
                format!("choose one of {}", known.join(", ")),
            )),
            value => Ok(value),
        }
    }

    /// -r with all about it, the port left out or 0 being the service's, as in ipvsadm.
    fn server(&self) -> Result<(ServiceKey, SocketAddr, BackendOptions), UsageError> {
        let service = self.service()?;
        let text = self
            .value(Key::Server)
            .ok_or_else(|| UsageError::new(format!("{} needs a server", self.verb_said), "add -r ADDRESS[:PORT]"))?;
        let (address, port) = self.host_and_port("-r", text, service.protocol)?;
        let port = port.filter(|port| *port != 0).unwrap_or(service.address.port());
        let ways = [
            (Key::FullNat, "-b", ForwardingMethod::FullNat),
            (Key::Masquerade, "-m", ForwardingMethod::Nat),
            (Key::Gateway, "-g", ForwardingMethod::Route),
            (Key::Tunnel, "-i", ForwardingMethod::Tunnel),
        ];
        let mut ways = ways.into_iter().filter(|(key, ..)| self.has(*key));
        let way = ways.next();
        if let (Some((_, first, _)), Some((_, second, _))) = (way, ways.next()) {
            let error = format!("{first} and {second} are two ways to forward");
            return Err(UsageError::new(error, "choose one: a service forwards to all its servers in the same way"));
        }
        if let Some((_, said, ForwardingMethod::Route | ForwardingMethod::Tunnel)) = way
            && service.address.port() != 0
            && port != service.address.port()
        {
            let error = format!("{said} keeps the port, but -r has {port} for a service at {}", service.address);
            return Err(UsageError::new(error, "leave the port of -r out, or forward with -b or -m"));
        }
        let tunnel = self.tunnel()?;
        if let (Some((_, said, forward)), Some(_)) = (way, tunnel)
            && forward != ForwardingMethod::Tunnel
        {
            return Err(UsageError::new(format!("--tun-type with {said}"), "forward by -i, or leave it out"));
        }
        let options = BackendOptions {
            forward: way.map(|(.., forward)| forward),
            weight: self.number(Key::Weight, "-w", 0, MAX_WEIGHT)?,
            limit: self.number(Key::UpperThreshold, "-x", 0, u32::MAX)?,
            lower_limit: self.number(Key::LowerThreshold, "-y", 0, u32::MAX)?,
            tunnel,
            quic_id: self.fitting(Key::QuicId, |said| quic_id(said).map(|_| said.to_owned()))?,
            drain_ms: self.value(Key::Drain).map(drain_ms).transpose()?,
            local: Vec::new(),
        };
        Ok((service, SocketAddr::new(address, port), options))
    }

    fn local(&self) -> Result<IpAddr, UsageError> {
        let text = self
            .value(Key::Local)
            .ok_or_else(|| UsageError::new(format!("{} needs a local address", self.verb_said), "add -z ADDRESS"))?;
        self.address("-z", text)
    }

    fn device(&self) -> Option<String> {
        self.value(Key::Device).map(str::to_owned)
    }

    fn timeouts(&self) -> Result<RuleChange, UsageError> {
        let [tcp, tcp_fin, udp] = self.parts.words.as_slice() else {
            return Err(UsageError::new(
                format!("--set needs three timeouts, and is given {}", self.parts.words.len()),
                "write --set TCP TCPFIN UDP in seconds, 0 to keep one",
            ));
        };
        let seconds = |text: &String| in_range("--set", text, 0, MAX_TIMEOUT);
        Ok(RuleChange::Timeouts { tcp: seconds(tcp)?, tcp_fin: seconds(tcp_fin)?, udp: seconds(udp)? })
    }

    fn number<N: FromStr + PartialOrd + Copy + std::fmt::Display>(
        &self,
        key: Key,
        said: &str,
        least: N,
        most: N,
    ) -> Result<Option<N>, UsageError> {
        self.value(key).map(|text| in_range(said, text, least, most)).transpose()
    }

    fn listing(&self) -> Result<Listing, UsageError> {
        let service = self.maybe_service()?;
        let what = self.what(service)?;
        let is_of_connections = matches!(what, ListingKind::Connections(_));
        for (key, said) in [(Key::Client, "--client"), (Key::Backend, "--backend"), (Key::Most, "--most")] {
            if self.has(key) && !is_of_connections {
                return Err(UsageError::new(format!("{said} selects connections"), "add -c, or leave it out"));
            }
        }
        if self.has(Key::Sort) && (is_of_connections || self.has(Key::NoSort)) {
            let reason = "connections are never sorted, and --nosort is the opposite: leave it out";
            return Err(UsageError::refused("--sort", reason));
        }
        if matches!(what, ListingKind::Timeout) && service.is_some() {
            let next = "leave the service out, or give `-L` alone, which shows a service's conn-timeout";
            return Err(UsageError::new("--timeout lists the timeouts of services without their own", next));
        }
        Ok(Listing {
            what,
            service,
            numeric: self.has(Key::Numeric),
            exact: self.has(Key::Exact),
            sorted: !self.has(Key::NoSort),
            json: self.has(Key::Json),
        })
    }

    fn what(&self, service: Option<ServiceKey>) -> Result<ListingKind, UsageError> {
        let kinds = [
            (Key::Stats, "--stats"),
            (Key::Rate, "--rate"),
            (Key::Thresholds, "--thresholds"),
            (Key::NextHops, "--next-hops"),
            (Key::Health, "--health"),
            (Key::PersistentConn, "--persistent-conn"),
            (Key::TunnelInfo, "--tun-info"),
            (Key::Timeout, "--timeout"),
            (Key::Connection, "-c"),
        ];
        let mut kinds = kinds.into_iter().filter(|(key, _)| self.has(*key));
        let first = kinds.next();
        if let (Some((_, first)), Some((_, second))) = (first, kinds.next()) {
            return Err(UsageError::new(
                format!("{first} and {second} are two listings"),
                "ask for one after the other",
            ));
        }
        Ok(match first.map(|(key, _)| key) {
            Some(Key::Stats) => ListingKind::Stats,
            Some(Key::Rate) => ListingKind::Rate,
            Some(Key::Thresholds) => ListingKind::Thresholds,
            Some(Key::NextHops) => ListingKind::NextHops,
            Some(Key::Health) => ListingKind::Health,
            Some(Key::PersistentConn) => ListingKind::PersistentConnections,
            Some(Key::TunnelInfo) => ListingKind::Tunnels,
            Some(Key::Timeout) => ListingKind::Timeout,
            Some(_) => ListingKind::Connections(self.filter(service)?),
            None => ListingKind::Rules,
        })
    }

    fn filter(&self, service: Option<ServiceKey>) -> Result<Filter, UsageError> {
        let backend = |text: &str| {
            let protocol = service.map_or(Protocol::Tcp, |service| service.protocol);
            let (address, port) = self.host_and_port("--backend", text, protocol)?;
            let port = port.or(service.map(|service| service.address.port()));
            let port =
                port.ok_or_else(|| UsageError::new(format!("--backend {text} has no port"), "write ADDRESS:PORT"))?;
            Ok(SocketAddr::new(address, port))
        };
        Ok(Filter {
            service,
            client: self.value(Key::Client).map(|text| self.address("--client", text)).transpose()?,
            backend: self.value(Key::Backend).map(backend).transpose()?,
            most: self.number(Key::Most, "--most", 1, u64::MAX)?,
        })
    }

    fn address(&self, said: &str, text: &str) -> Result<IpAddr, UsageError> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        self.resolution.host(bare).ok_or_else(|| {
            UsageError::new(format!("{said} {text} is neither an address nor the name of a host"), "give an address")
        })
    }

    /// `HOST[:PORT]`, `[IPV6]:PORT`, `IPV6`.
    fn host_and_port(&self, said: &str, text: &str, protocol: Protocol) -> Result<(IpAddr, Option<u16>), UsageError> {
        let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            Some((host, "")) => (host, None),
            // What stands between the bracket and a port is a colon: without it, there is no port that could be meant.
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or_default())),
            None if text.parse::<IpAddr>().is_ok() => (text, None),
            None => text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port
            .map(|port| {
                self.resolution.port(protocol, port).ok_or_else(|| {
                    UsageError::new(
                        format!("{said} {text}: '{port}' is neither a port nor the name of a service"),
                        "write ADDRESS:PORT, an IPv6 address in brackets",
                    )
                })
            })
            .transpose()?;
        let host = self.resolution.host(host).ok_or_else(|| {
            UsageError::new(
                format!("{said} {text}: '{host}' is neither an address nor the name of a host"),
                "write ADDRESS:PORT, an IPv6 address in brackets",
            )
        })?;
        Ok((host, port))
    }
}

/// `60s`.
fn drain_ms(text: &str) -> Result<u64, UsageError> {
    let span = text.parse::<Span>().ok().filter(|span| span.0 <= Duration::from_secs(24 * 3600));
    let wrong = || UsageError::new(format!("--drain {text} is no time to drain"), "give up to 24 hours, as 60s or 5m");
    span.map(|span| span.0.as_millis() as u64).ok_or_else(wrong)
}

fn in_range<N: FromStr + PartialOrd + Copy + std::fmt::Display>(
    said: &str,
    text: &str,
    least: N,
    most: N,
) -> Result<N, UsageError> {
    text.parse()
        .ok()
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| UsageError::new(format!("{said} {text} is out of range"), format!("give {least} to {most}")))
}
