//! What the balancer shall do, as files and commands say it: services with their backends, policy, timeouts.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use rig_datapath::balancer::{self as datapath, ClientAddress, ExpiryPolicy, Policy, PortReuse, Scheduler, Timeouts};
use rig_sys::socket::{Dscp, DscpError};

use super::access::{Access, PrefixChange};
use super::any_port::ListenText;
use super::check;
use super::dscp;
use super::limits::LimitError;
use super::misfit::Misfit;
use super::one_packet::{self, ONE_PACKET_SCHEDULER};
use super::outlier;
use super::quic;
use super::syn_proxy::{self, SynProxy};
use super::timeouts::TimeoutOverrides;
use super::tunnel::tunnel_source;
use crate::health::check::{BackendCheck, Check, PoolRules};
use crate::health::outlier::OutlierRules;
use crate::message::{
    BackendOptions, ForwardingMethod, Protocol, RuleChange, ServiceKey, ServiceLimits, ServiceOptions,
    ServicePersistence, Tunnel,
};

/// Everything that can be changed while the balancer runs. It may be incomplete, as it is between one command and the
/// next: what of it can be in force is [`Rules::config`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    pub services: Vec<Service>,
    pub policy: Policy,
    /// Connections at which services that say nothing of it get no more; 0: no limit. See [`Rules::limit_of`].
    pub service_limit: Option<u32>,
    /// The file with the secret of the SYN proxy's cookies, where balancers share one.
    pub syn_proxy_secret: Option<PathBuf>,
    /// Who may begin connections of any service.
    pub access: Access,
    /// Of services without timeouts of their own, over DPVS's.
    pub timeouts: TimeoutOverrides,
    /// Local addresses that other balancers give out, whose connections are taken over.
    pub others_local: Vec<IpAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub key: ServiceKey,
    pub scheduler: Scheduler,
    /// `None` until its first backend decides it.
    pub forward: Option<ForwardingMethod>,
    pub local: Vec<IpAddr>,
    /// Connections, of all its backends, at which it gets no more; 0: no limit.
    pub limit: Option<u32>,
    pub timeouts: TimeoutOverrides,
    pub expire: ExpiryPolicy,
    pub sloppy_tcp: bool,
    pub reuse: PortReuse,
    /// How its backends are checked; not at all without.
    pub check: Option<Box<Check>>,
    /// How backends are found out that clients' connections fail at.
    pub outlier: Option<OutlierRules>,
    /// `None`: as by default, see [`Service::syn_proxy`].
    pub syn_proxy_said: Option<SynProxy>,
    pub client_address: ClientAddress,
    pub access: Access,
    pub limits: ServiceLimits,
    pub persistence: ServicePersistence,
    /// Each datagram is scheduled by itself.
    pub one_packet: bool,
    /// What packets to its backends have; `None`: what they come with.
    pub dscp: Option<Dscp>,
    /// Of UDP: how connection IDs of QUIC name backends.
    pub quic: Option<datapath::QuicIds>,
    /// Where outer packets of tunnels are from, in place of local addresses.
    pub tunnel_source: Option<IpNet>,
    pub backends: Vec<Backend>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    pub address: SocketAddr,
    pub weight: u32,
    /// Connections at which it gets no more.
    pub limit: Option<NonZeroU32>,
    /// Connections below which one that has reached its limit gets some again.
    pub lower_limit: Option<NonZeroU32>,
    /// It keeps its connections and its weight, and gets no new ones.
    pub drain: bool,
    /// Its time to drain is over: connection IDs of QUIC name it no more. Known while the control plane runs.
    pub drained: bool,
    /// It gets connections where too few others are healthy; needs a check of its service.
    pub sorry: bool,
    pub check: BackendCheck,
    /// What its packets are packed into where its service forwards by tunnels.
    pub tunnel: Tunnel,
    /// Its server ID in connection IDs of QUIC.
    pub quic_id: Option<u64>,
}

impl Backend {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            weight: 1,
            limit: None,
            lower_limit: None,
            drain: false,
            drained: false,
            sorry: false,
            check: BackendCheck::AsService,
            tunnel: Tunnel::Ipip,
            quic_id: None,
        }
    }

    /// The weight that is in force.
    pub fn effective_weight(&self) -> u32 {
        if self.drain { 0 } else { self.weight }
    }
}

/// Schedulers by ipvsadm's names.
pub const SCHEDULERS: [(&str, Scheduler); 8] = [
    ("rr", Scheduler::RoundRobin),
    ("wrr", Scheduler::WeightedRoundRobin),
    ("lc", Scheduler::LeastConnections),
    ("wlc", Scheduler::WeightedLeastConnections),
    ("sed", Scheduler::ShortestExpectedDelay),
    ("nq", Scheduler::NeverQueue),
    ("sh", Scheduler::SourceHash),
    ("mh", Scheduler::Maglev),
];

/// ipvsadm's default.
pub const DEFAULT_SCHEDULER: Scheduler = Scheduler::WeightedLeastConnections;

pub fn scheduler(name: &str) -> Option<Scheduler> {
    SCHEDULERS.iter().find(|(known, _)| *known == name).map(|(_, scheduler)| *scheduler)
}

pub fn scheduler_name(scheduler: Scheduler) -> &'static str {
    SCHEDULERS.iter().find(|(_, known)| *known == scheduler).map_or("?", |(name, _)| name)
}

/// Forwarding methods by the names that files have for them.
pub const FORWARDS: [(&str, ForwardingMethod); 4] = [
    ("full-nat", ForwardingMethod::FullNat),
    ("nat", ForwardingMethod::Nat),
    ("route", ForwardingMethod::Route),
    ("tunnel", ForwardingMethod::Tunnel),
];

pub fn forward_name(forward: ForwardingMethod) -> &'static str {
    FORWARDS.iter().find(|(_, known)| *known == forward).map_or("?", |(name, _)| name)
}

/// When connections end with their backend, by the names that files have for it.
pub const EXPIRES: [(&str, ExpiryPolicy); 3] =
    [("never", ExpiryPolicy::Never), ("removed", ExpiryPolicy::Removed), ("quiescent", ExpiryPolicy::Quiescent)];

pub fn expire(name: &str) -> Option<ExpiryPolicy> {
    EXPIRES.iter().find(|(known, _)| *known == name).map(|(_, expire)| *expire)
}

pub fn expire_name(expire: ExpiryPolicy) -> &'static str {
    EXPIRES.iter().find(|(_, known)| *known == expire).map_or("?", |(name, _)| name)
}

/// Where a connection goes that begins on the ports of one that is over, by the names that files have for it.
pub const REUSES: [(&str, PortReuse); 2] = [("reschedule", PortReuse::Reschedule), ("keep", PortReuse::Keep)];

pub fn reuse(name: &str) -> Option<PortReuse> {
    REUSES.iter().find(|(known, _)| *known == name).map(|(_, reuse)| *reuse)
}

pub fn reuse_name(reuse: PortReuse) -> &'static str {
    REUSES.iter().find(|(_, known)| *known == reuse).map_or("?", |(name, _)| name)
}

pub fn protocol(protocol: Protocol) -> datapath::Protocol {
    match protocol {
        Protocol::Tcp => datapath::Protocol::Tcp,
        Protocol::Udp => datapath::Protocol::Udp,
    }
}

/// As in files: `tcp 192.0.2.1:80`.
#[derive(Debug, Clone, Copy)]
pub struct ServiceText(pub ServiceKey);

impl fmt::Display for ServiceText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.0.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        write!(f, "{protocol} {}", ListenText(self.0.address))
    }
}

impl Service {
    pub fn new(key: ServiceKey) -> Self {
        Self {
            key,
            scheduler: DEFAULT_SCHEDULER,
            forward: None,
            local: Vec::new(),
            limit: None,
            timeouts: TimeoutOverrides::default(),
            expire: ExpiryPolicy::Never,
            sloppy_tcp: false,
            reuse: PortReuse::default(),
            check: None,
            outlier: None,
            syn_proxy_said: None,
            client_address: ClientAddress::Off,
            access: Access::default(),
            limits: ServiceLimits::default(),
            persistence: ServicePersistence::default(),
            one_packet: false,
            dscp: None,
            quic: None,
            tunnel_source: None,
            backends: Vec::new(),
        }
    }

    /// What it lacks to be in force.
    pub fn lacks(&self) -> Option<&'static str> {
        match self.forward {
            None => Some("a backend"),
            Some(ForwardingMethod::Tunnel) if self.tunnel_source.is_some() => None,
            Some(ForwardingMethod::FullNat | ForwardingMethod::Tunnel) if self.local.is_empty() => {
                Some("a local address")
            }
            // Another one cannot have backends of another family at all, which is told where that is refused.
            Some(ForwardingMethod::FullNat) if self.key.address.is_ipv6() => self.lacks_local_of_family(),
            Some(_) => None,
        }
    }

    /// As the datapath shall have it; `None` when it lacks something.
    fn config(&self, limit: Option<NonZeroU32>, room: u32, defaults: Timeouts) -> Option<datapath::Service> {
        if self.lacks().is_some() {
            return None;
        }
        let forward = match self.forward? {
            ForwardingMethod::FullNat => datapath::ForwardingMethod::FullNat { local: self.local.clone() },
            ForwardingMethod::Nat => datapath::ForwardingMethod::Nat,
            ForwardingMethod::Route => datapath::ForwardingMethod::Route,
            ForwardingMethod::Tunnel => datapath::ForwardingMethod::Tunnel { local: self.tunnel_locals() },
        };
        let backends = self.backends.iter().map(|backend| datapath::Backend {
            address: backend.address,
            weight: backend.effective_weight(),
            quic_id: backend.quic_id.filter(|_| !backend.drained),
            limit: backend.limit,
            lower_limit: backend.lower_limit,
            encapsulation: self.encapsulation(backend),
        });
        Some(datapath::Service {
            protocol: protocol(self.key.protocol),
            address: self.key.address,
            scheduler: self.scheduler,
            forward,
            backends: backends.collect(),
            limit,
            timeouts: self.timeouts.over(defaults),
            expire: self.expire,
            sloppy_tcp: self.sloppy_tcp,
            reuse: self.reuse,
            syn_proxy: self.syn_proxy().in_force(limit.map_or(room, |limit| limit.get().min(room))),
            client_address: self.client_address,
            access: self.access.in_force(),
            limits: self.limits.in_force(self.key.address.is_ipv6()),
            persistence: self.persistence.in_force(self.key.address.is_ipv6()),
            one_packet: self.one_packet,
            dscp: self.dscp,
            quic: self.quic,
        })
    }

    /// What decides which backends get connections by their health; `None` where nothing is known of that.
    pub fn pool(&self) -> Option<PoolRules> {
        match &self.check {
            Some(check) => Some(check.pool.clone()),
            None => self.outlier.as_ref().map(|_| PoolRules::default()),
        }
    }

    pub fn syn_proxy(&self) -> SynProxy {
        self.syn_proxy_said.unwrap_or_default()
    }

    fn backend(&mut self, address: SocketAddr) -> Option<&mut Backend> {
        self.backends.iter_mut().find(|backend| backend.address == address)
    }
}

/// An edit that means nothing here; nothing was changed. The first words are ipvsadm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("Service already exists: {}", ServiceText(*.0))]
    ServiceExists(ServiceKey),
    #[error("No such service: {}", ServiceText(*.0))]
    NoService(ServiceKey),
    #[error(
        "{0} is no address that packets of clients have: it is unspecified, multicast, loopback or of IPv4 in IPv6"
    )]
    Address(IpAddr),
    #[error("{0} is no address of a backend or a balancer: it is unspecified, multicast, loopback or of IPv4 in IPv6")]
    Unusable(IpAddr),
    #[error("Destination already exists: {} of service {}", .1, ServiceText(*.0))]
    BackendExists(ServiceKey, SocketAddr),
    #[error("No such destination: {} of service {}", .1, ServiceText(*.0))]
    NoBackend(ServiceKey, SocketAddr),
    #[error("Local address already exists: {} of service {}", .1, ServiceText(*.0))]
    LocalExists(ServiceKey, IpAddr),
    #[error("No such local address: {} of service {}", .1, ServiceText(*.0))]
    NoLocal(ServiceKey, IpAddr),
    #[error("there is no scheduler '{0}'")]
    Scheduler(String),
    #[error("the scheduler '{0}' ignores weights, and the service has a slow_start")]
    SlowStart(String),
    #[error("connections do not expire '{0}'")]
    Expire(String),
    #[error("there is no way '{0}' to reuse ports")]
    Reuse(String),
    #[error(transparent)]
    Dscp(#[from] DscpError),
    #[error("the service has a client_address, which a connection that is picked up in its middle cannot be told by")]
    PickedUpClient,
    #[error("the service has an outlier detection, and with '{0}' backends' answers do not pass here")]
    Unseen(&'static str),
    #[error("the SYN proxy is not '{0}'")]
    SynProxy(String),
    #[error("{0} does not belong to a UDP service")]
    OfTcp(&'static str),
    #[error("service {} forwards by {}, and one service forwards in one way: {backend} cannot have {}", ServiceText(*service),
        forward_name(*has), forward_name(*wanted))]
    Forward { service: ServiceKey, backend: SocketAddr, has: ForwardingMethod, wanted: ForwardingMethod },
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Misfit(#[from] Misfit),
    #[error("{0} is in the list '{1}' already")]
    PrefixExists(IpNet, &'static str),
    #[error("{0} is in no list")]
    NoPrefix(IpNet),
    #[error("{} is in {}, which a command does not change", .0, .1.display())]
    PrefixOfFile(IpNet, PathBuf),
    #[error("destination {0} has a lower threshold without an upper one that is at least as high")]
    LowerLimit(SocketAddr),
    #[error("{0} is not a port of a destination")]
    Port(SocketAddr),
    #[error("service {} would lack {} and be out of force, with all of its destinations", ServiceText(*.0), .1)]
    LocalOfFamily(ServiceKey, &'static str),
    #[error("service {} is checked from {from}, which is of the other family than {probed}", ServiceText(*service))]
    OutOfReach { service: ServiceKey, from: IpAddr, probed: IpAddr },
    #[error("there are {most} {what} already, and there can be no more")]
    TooMany { what: &'static str, most: usize },
}

impl EditError {
    /// The next step.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::ServiceExists(_) => "change it with -E, or delete it first with -D",
            Self::Address(_) => {
                "give the address that clients connect to; a service of all addresses is not there, one of all ports has port 0"
            }
            Self::Unusable(_) => "give one that packets on a network have",
            Self::NoService(_) => "list services with -L -n; add it with -A",
            Self::BackendExists(..) => "change it with -e, or delete it first with -d",
            Self::NoBackend(..) => "list the service's destinations with -L -n; add it with -a",
            Self::LocalExists(..) => "nothing has to be done",
            Self::NoLocal(..) => "see the service's local addresses in `netrig lb save`",
            Self::Expire(_) => "choose one of never, removed, quiescent",
            Self::Reuse(_) => "choose one of reschedule, keep",
            Self::Dscp(_) => dscp::OR_KEEP,
            Self::SynProxy(_) => "choose one of auto, always, off; DPVS's enable and disable are always and off",
            Self::LocalOfFamily(..) => {
                "each destination is reached from a local address of its own family: add one first with -P -z"
            }
            Self::OutOfReach { .. } => "remove source from the service's check in the file, or use another service",
            Self::Limit(error) => error.hint,
            Self::Misfit(misfit) => misfit.hint,
            Self::PickedUpClient => "leave out --sloppy-tcp, or remove client_address from the file",
            Self::Unseen(_) => "choose full-nat or nat (-b, -m), or remove outlier from the file",
            Self::OfTcp(_) => "remove it: it is about TCP connections",
            Self::Scheduler(_) => "choose one of rr, wrr, lc, wlc, sed, nq, sh, mh",
            Self::SlowStart(_) => "choose one of wrr, wlc, sed, nq, sh, mh, or remove slow_start from the file",
            Self::Forward { .. } => "delete the service's other destinations first, or add a second service",
            Self::PrefixExists(..) => "nothing has to be done, or take it out first: netrig lb access remove",
            Self::NoPrefix(_) => "see the lists by `netrig lb access`",
            Self::PrefixOfFile(..) => "take it out of the file, then `netrig lb reload`",
            Self::LowerLimit(_) => "give -x, too, or a lower -y; -y 0 for none",
            Self::Port(_) => "give the destination's port",
            Self::TooMany { .. } => "delete some first",
        }
    }
}

/// What tables can be made for at most, see [`datapath::Sizes`]; how large they are is known when it comes into force.
pub(super) const MOST: u32 = 65_535;

pub(super) fn room_for_one_more(what: &'static str, there: usize, most: usize) -> Result<(), EditError> {
    if there < most { Ok(()) } else { Err(EditError::TooMany { what, most }) }
}

impl Rules {
    /// The timeouts of services that have none of their own.
    pub fn default_timeouts(&self) -> Timeouts {
        self.timeouts.over(Timeouts::default())
    }

    /// Connections at which a service gets no more, in a table that has room for `room`. Where nothing is said of it and
    /// there are others, three quarters of the table: a flood of one of them leaves room for the others.
    pub fn limit_of(&self, service: &Service, room: u32) -> Option<NonZeroU32> {
        if service.one_packet {
            return None;
        }
        let quota = if self.services.len() > 1 { room - room / 4 } else { 0 };
        NonZeroU32::new(service.limit.or(self.service_limit).unwrap_or(quota))
    }

    /// What can be in force with a table for `room` connections.
    pub fn config(&self, room: u32) -> datapath::Config {
        let defaults = self.default_timeouts();
        let services = self.services.iter();
        let services =
            services.filter_map(|service| service.config(self.limit_of(service, room), room, defaults)).collect();
        datapath::Config {
            services,
            access: self.access.in_force(),
            policy: self.policy,
            others_local: self.others_local.clone(),
        }
    }

    pub fn service(&self, key: ServiceKey) -> Option<&Service> {
        self.services.iter().find(|service| service.key == key)
    }

    pub(super) fn service_mut(&mut self, key: ServiceKey) -> Result<&mut Service, EditError> {
        self.services.iter_mut().find(|service| service.key == key).ok_or(EditError::NoService(key))
    }

    /// Does what one command says, with ipvsadm's meaning.
    pub fn edit(&mut self, edit: &RuleChange) -> Result<(), EditError> {
        match edit {
            RuleChange::AddService { service: key, options } => {
                if self.service(*key).is_some() {
                    return Err(EditError::ServiceExists(*key));
                }
                if !datapath::is_usable(key.address.ip()) {
                    return Err(EditError::Address(key.address.ip()));
                }
                room_for_one_more("services", self.services.len(), MOST as usize)?;
                let mut service = Service::new(*key);
                if options.one_packet == Some(true) {
                    service.scheduler = ONE_PACKET_SCHEDULER;
                }
                service.set(options)?;
                self.services.push(service);
            }
            RuleChange::EditService { service, options } => {
                let service = self.service_mut(*service)?;
                let mut changed = service.clone();
                changed.set(options)?;
                *service = changed;
            }
            RuleChange::DeleteService { service } => {
                self.service_mut(*service)?;
                self.services.retain(|known| known.key != *service);
            }
            RuleChange::AddBackend { service, backend, options } => {
                let service = self.service_mut(*service)?;
                let mut changed = service.clone();
                changed.add(*backend, options)?;
                *service = changed;
            }
            RuleChange::EditBackend { service, backend, options } => {
                let service = self.service_mut(*service)?;
                let mut changed = service.clone();
                changed.change(*backend, options)?;
                *service = changed;
            }
            RuleChange::DeleteBackend { service: key, backend } => {
                let service = self.service_mut(*key)?;
                service.backend(*backend).ok_or(EditError::NoBackend(*key, *backend))?;
                service.backends.retain(|known| known.address != *backend);
            }
            RuleChange::AddLocal { service: key, address } => {
                let service = self.service_mut(*key)?;
                if service.local.contains(address) {
                    return Err(EditError::LocalExists(*key, *address));
                }
                if !datapath::is_usable(*address) {
                    return Err(EditError::Unusable(*address));
                }
                room_for_one_more("local addresses of the service", service.local.len(), MOST as usize)?;
                service.local.push(*address);
                if let Some(misfit) = service.tunnel_misfit() {
                    service.local.pop();
                    return Err(misfit.into());
                }
            }
            RuleChange::DeleteLocal { service: key, address } => {
                let service = self.service_mut(*key)?;
                if !service.local.contains(address) {
                    return Err(EditError::NoLocal(*key, *address));
                }
                let mut changed = service.clone();
                changed.local.retain(|known| known != address);
                changed.keeps_local_of_family()?;
                *service = changed;
            }
            RuleChange::Timeouts { tcp, tcp_fin, udp } => {
                let said = [
                    ("established", tcp),
                    ("fin_wait", tcp_fin),
                    ("close_wait", tcp_fin),
                    ("udp_one_way", udp),
                    ("udp_normal", udp),
                ];
                for (name, seconds) in said.into_iter().filter(|(_, seconds)| **seconds != 0) {
                    let _known = self.timeouts.set(name, Duration::from_secs((*seconds).into()));
                }
            }
            RuleChange::Allow { service, prefix } => self.change_prefix(*service, *prefix, PrefixChange::Allow)?,
            RuleChange::Deny { service, prefix } => self.change_prefix(*service, *prefix, PrefixChange::Deny)?,
            RuleChange::RemovePrefix { service, prefix } => {
                self.change_prefix(*service, *prefix, PrefixChange::Remove)?;
            }
            RuleChange::Clear => self.services.clear(),
        }
        Ok(())
    }
}

impl ServiceOptions {
    /// What cannot be said of a service of this protocol.
    pub fn check(&self, protocol: Protocol) -> Result<(), EditError> {
        let of_tcp = [
            ("--sloppy-tcp", self.sloppy_tcp.is_some()),
            ("--reuse", self.reuse.is_some()),
            ("--synproxy", self.syn_proxy.is_some()),
        ];
        match of_tcp.into_iter().find(|(_, said)| *said) {
            Some((option, _)) if protocol == Protocol::Udp => Err(EditError::OfTcp(option)),
            _ if protocol == Protocol::Tcp && self.one_packet.is_some() => Err(one_packet::TCP.into()),
            _ if protocol == Protocol::Tcp && self.quic.is_some() => Err(quic::TCP.into()),
            _ => Ok(()),
        }
    }
}

impl Service {
    fn set(&mut self, options: &ServiceOptions) -> Result<(), EditError> {
        options.check(self.key.protocol)?;
        if let Some(name) = &options.scheduler {
            self.scheduler = scheduler(name).ok_or_else(|| EditError::Scheduler(name.clone()))?;
            let outlier = self.outlier.as_ref().map(|outlier| outlier.slow_start);
            let starts = self.check.as_ref().map(|check| check.pool.slow_start).into_iter().chain(outlier);
            let starts_slowly = starts.into_iter().any(|slow_start| !slow_start.is_zero());
            if starts_slowly && check::ignores_weights(self.scheduler) {
                return Err(EditError::SlowStart(name.clone()));
            }
        }
        if let Some(name) = &options.expire {
            self.expire = expire(name).ok_or_else(|| EditError::Expire(name.clone()))?;
        }
        if let Some(name) = &options.reuse {
            self.reuse = reuse(name).ok_or_else(|| EditError::Reuse(name.clone()))?;
        }
        if let Some(name) = &options.syn_proxy {
            let said = syn_proxy::syn_proxy(name).ok_or_else(|| EditError::SynProxy(name.clone()))?;
            self.syn_proxy_said = Some(said);
        }
        if let Some(text) = &options.dscp {
            self.dscp = dscp::dscp(text)?;
        }
        if let Some(said) = options.quic {
            self.quic = quic::ids(said)?;
        }
        self.fits_quic()?;
        self.limits = self.limits.changed(&options.limits)?;
        if let Some(error) = self.limits.misfit(self.key.address.is_ipv6()) {
            return Err(error.into());
        }
        self.persistence = self.persistence.changed(&options.persistence)?;
        if let Some(error) = self.persistence.misfit(self.key.address.is_ipv6()) {
            return Err(error.into());
        }
        self.limit = options.limit.or(self.limit);
        self.sloppy_tcp = options.sloppy_tcp.unwrap_or(self.sloppy_tcp);
        if self.sloppy_tcp && self.client_address != ClientAddress::Off {
            return Err(EditError::PickedUpClient);
        }
        self.one_packet = options.one_packet.unwrap_or(self.one_packet);
        if let Some(misfit) = self.one_packet_misfit() {
            return Err(misfit.into());
        }
        self.fits_any_port()?;
        match options.tunnel_source.as_deref() {
            None => {}
            Some("off") => self.tunnel_source = None,
            Some(prefix) => self.tunnel_source = Some(tunnel_source(prefix)?),
        }
        if let Some(misfit) = self.tunnel_misfit() {
            return Err(misfit.into());
        }
        if let Some(seconds) = options.timeout {
            self.timeouts.set_main(protocol(self.key.protocol), Duration::from_secs(seconds.into()));
        }
        Ok(())
    }

    /// The first backend decides how the service forwards; ipvsadm's default is by routing.
    fn add(&mut self, address: SocketAddr, options: &BackendOptions) -> Result<(), EditError> {
        if self.backend(address).is_some() {
            return Err(EditError::BackendExists(self.key, address));
        }
        if address.port() == 0 && !self.is_of_any_port() {
            return Err(EditError::Port(address));
        }
        if !datapath::is_usable(address.ip()) {
            return Err(EditError::Unusable(address.ip()));
        }
        room_for_one_more("destinations of the service", self.backends.len(), datapath::MAX_BACKENDS)?;
        let forward = if self.backends.is_empty() {
            options.forward.or(self.forward).unwrap_or(ForwardingMethod::Route)
        } else {
            self.may_forward(address, options.forward)?
        };
        self.fits_one_packet(forward, options)?;
        let mut backend = Backend::new(address);
        backend.set(options)?;
        self.fits_tunnel(forward, options)?;
        self.unless_unseen(forward)?;
        self.forward = Some(forward);
        self.unless_out_of_reach(&backend)?;
        self.backends.push(backend);
        self.fits_any_port()?;
        self.fits_quic()?;
        self.complete(address, options)
    }

    fn change(&mut self, address: SocketAddr, options: &BackendOptions) -> Result<(), EditError> {
        let key = self.key;
        let forward = match &self.backends[..] {
            [only] if only.address == address => options.forward.or(self.forward).unwrap_or(ForwardingMethod::Route),
            _ => self.may_forward(address, options.forward)?,
        };
        self.unless_unseen(forward)?;
        self.fits_one_packet(forward, options)?;
        self.fits_tunnel(forward, options)?;
        let backend = self.backend(address).ok_or(EditError::NoBackend(key, address))?;
        backend.set(options)?;
        if forward != ForwardingMethod::Tunnel {
            backend.tunnel = Tunnel::Ipip;
        }
        self.forward = Some(forward);
        self.fits_any_port()?;
        self.fits_quic()?;
        self.complete(address, options)
    }

    fn fits_quic(&self) -> Result<(), EditError> {
        self.quic_misfit().map_or(Ok(()), |misfit| Err(misfit.into()))
    }

    fn fits_any_port(&self) -> Result<(), EditError> {
        self.any_port_misfit().map_or(Ok(()), |misfit| Err(misfit.into()))
    }

    /// Outlier detection needs to see what backends answer.
    fn unless_unseen(&self, forward: ForwardingMethod) -> Result<(), EditError> {
        if self.outlier.is_some() && outlier::is_unseen(forward) {
            return Err(EditError::Unseen(forward_name(forward)));
        }
        Ok(())
    }

    fn fits_one_packet(&self, forward: ForwardingMethod, options: &BackendOptions) -> Result<(), EditError> {
        match self.one_packet {
            true if forward == ForwardingMethod::FullNat => Err(one_packet::FULL_NAT.into()),
            true if options.limit.is_some_and(|limit| limit > 0) => Err(one_packet::LIMIT.into()),
            _ => Ok(()),
        }
    }

    fn fits_tunnel(&self, forward: ForwardingMethod, options: &BackendOptions) -> Result<(), EditError> {
        let is_tunnel = forward == ForwardingMethod::Tunnel;
        if !is_tunnel && options.tunnel.is_some() {
            let hint = "forward by tunnel (-i), or leave the kind of tunnel out";
            return Err(Misfit::of(format!("{} is no tunnel", forward_name(forward)), hint).into());
        }
        match (Service { forward: Some(forward), backends: Vec::new(), ..self.clone() }).tunnel_misfit() {
            Some(misfit) => Err(misfit.into()),
            None => Ok(()),
        }
    }

    fn may_forward(
        &self,
        backend: SocketAddr,
        wanted: Option<ForwardingMethod>,
    ) -> Result<ForwardingMethod, EditError> {
        let has = self.forward.unwrap_or(ForwardingMethod::Route);
        match wanted {
            Some(wanted) if wanted != has => Err(EditError::Forward { service: self.key, backend, has, wanted }),
            _ => Ok(has),
        }
    }
}

impl Backend {
    fn set(&mut self, options: &BackendOptions) -> Result<(), EditError> {
        let limit = options.limit.map_or(self.limit, NonZeroU32::new);
        let lower_limit = options.lower_limit.map_or(self.lower_limit, NonZeroU32::new);
        if lower_limit.is_some_and(|lower| limit.is_none_or(|limit| lower > limit)) {
            return Err(EditError::LowerLimit(self.address));
        }
        (self.limit, self.lower_limit) = (limit, lower_limit);
        if let Some(text) = &options.quic_id {
            self.quic_id = quic::quic_id(text)?;
        }
        if let Some(weight) = options.weight {
            self.weight = weight;
            self.drain = false;
        }
        self.drain |= options.drain_ms.is_some();
        // Which begins anew where it is told again.
        self.drained &= self.drain && options.drain_ms.is_none();
        self.tunnel = options.tunnel.unwrap_or(self.tunnel);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
