//! From the letter of a configuration file to [`Settings`]: every name looked up, every range checked, once.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::PathBuf;

use ipnet::IpNet;
use rig_cli::forms::{OneOrMany, TextOrTable};
use rig_cli::mistakes::FileError;
use rig_cli::source::Source;
use rig_datapath::balancer::{
    self as datapath, ClientAddress, ExpiryPolicy, MOST_PACKETS, Policy, PortReuse, QUEUE_PACKETS, Sizes,
};
use rig_datapath::{ConfigError, balancer};
use rig_stats::units::Span;
use rig_sys::cpu::CpuSet;
use rig_sys::packet_socket::PacketTap;
use rig_sys::socket::{AddressError, DscpError, parse_address};
use toml::Spanned;
use tracing::warn;

use super::access::{Access, PrefixFile, PrefixList, parse_prefix};
use super::check::{self, CheckedService};
use super::client_address::{CLIENT_ADDRESSES, client_address, client_address_hint};
use super::dscp::OR_KEEP;
use super::file::{BackendFile, File, Fragments, ServiceFile, TimeoutsFile, TunnelFile, Unhandled};
use super::misfit::Misfit;
use super::one_packet::{self, ONE_PACKET_SCHEDULER};
use super::outlier;
use super::quic;
use super::ranges::{Addresses, Endpoints, RangeTooLarge};
use super::rules::{self, Backend, DEFAULT_SCHEDULER, EXPIRES, FORWARDS, REUSES, Rules, SCHEDULERS, Service};
use super::tunnel::{self, tunnel_source};
use super::{Completeness, Device, HandOver, SYN_PROXIES, Settings, Start, TimeoutOverrides, Workers};
use crate::health::check::Check;
use crate::message::{ForwardingMethod, Protocol, ServiceKey, ServiceLimits, ServicePersistence, Tunnel};

type Result<T, E = FileError> = std::result::Result<T, E>;

pub(super) fn settings(file: &str, text: &str, completeness: Completeness) -> Result<Settings> {
    Reader { source: Source { file, text }, completeness, lines: Lines::default(), left: Sizes::default() }.settings()
}

struct Reader<'a> {
    source: Source<'a>,
    completeness: Completeness,
    lines: Lines,
    /// Room that nothing has taken yet, so that no range is made into more than the tables could hold.
    left: Sizes,
}

/// What there may be too many of.
#[derive(Debug, Clone, Copy)]
enum Room {
    Services,
    Backends,
    BackendsOfOne,
    Locals,
    LocalsOfAll,
}

/// Where things of services were said, for errors that are found when all is read.
#[derive(Default)]
struct Lines {
    services: HashMap<ServiceKey, Range<usize>>,
    backends: HashMap<(SocketAddr, SocketAddr), Range<usize>>,
}

impl Reader<'_> {
    fn settings(mut self) -> Result<Settings> {
        let file: File = self.source.read()?;
        let mut start = self.start(&file)?;
        let sync = super::sync::read(&self.source, file.sync.as_ref(), start.sizes.local_addresses as usize)?;
        self.left = match self.completeness {
            Completeness::Required => start.sizes,
            // What commands have begun takes no room of tables; what is in force found its room when it came to that.
            Completeness::Optional => Sizes {
                services: rules::MOST,
                backends: u32::MAX,
                local_addresses: rules::MOST,
                list_entries: u32::MAX,
                prefixes: u32::MAX,
                ..start.sizes
            },
        };
        let mut services = Vec::new();
        for service in &file.service {
            services.extend(self.services(service)?);
            self.unless_heard(service.get_ref(), &services)?;
            self.unless_out_of_reach(service.get_ref(), &services)?;
        }
        let policy = Policy {
            fragments: match file.policy.fragments {
                Fragments::Forward => datapath::FragmentPolicy::Forward,
                Fragments::Drop => datapath::FragmentPolicy::Drop,
                Fragments::Pass => datapath::FragmentPolicy::Pass,
            },
            options: match file.policy.options {
                Unhandled::Drop => datapath::UnhandledPolicy::Drop,
                Unhandled::Pass => datapath::UnhandledPolicy::Pass,
            },
            strays: file.policy.strays.map_or(Policy::default().strays, NonZeroU32::new),
        };
        let (service_limit, timeouts) = (file.service_limit, self.timeouts(&file.timeouts)?);
        let access = self.access([&file.allow, &file.deny], [&file.allow_file, &file.deny_file])?;
        self.room_for(&access, &(0..0))?;
        let rules = Rules {
            services,
            policy,
            service_limit,
            syn_proxy_secret: file.syn_proxy_secret.clone(),
            access,
            timeouts,
            others_local: sync.others_local,
        };
        rules.config(start.sizes.connections).validate().map_err(|error| self.not_valid(&error))?;
        if let (Some(settings), Some(said), Completeness::Required) = (&sync.settings, &file.sync, self.completeness) {
            super::sync::passes_in_time(settings, &rules)
                .map_err(|what| self.error(said.span(), what, Some("make 'full' less, or the timeout more")))?;
        }
        (start.sync, start.sizes.ports) = (sync.settings, sync.ports);
        start.bgp = super::sync::read_bgp(&self.source, file.bgp.as_ref())?;
        Ok(Settings { start, rules })
    }

    fn start(&self, file: &File) -> Result<Start> {
        let mut devices: Vec<Device> = Vec::new();
        for entry in &file.devices {
            let device = match entry.get_ref() {
                TextOrTable::Text(name) => Device { name: name.clone(), generic: false },
                TextOrTable::Table(table) => Device { name: table.name.clone(), generic: table.generic },
            };
            // IFNAMSIZ of linux/if.h, and dev_valid_name() of the kernel.
            let name = &device.name;
            let valid =
                (1..16).contains(&name.len()) && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
            if !valid || name == "." || name == ".." {
                let hint = "write its name as `ip link` shows it";
                return Err(self.error(entry.span(), format!("'{name}' is not a network device"), Some(hint)));
            }
            if devices.iter().any(|known| known.name == *name) {
                return Err(self.error(entry.span(), format!("device '{name}' is listed twice"), Some("remove one")));
            }
            devices.push(device);
        }
        let (workers, hand_over) = (self.workers(file)?, self.hand_over(file)?);
        Ok(Start {
            devices,
            workers,
            hand_over,
            sizes: self.sizes(file)?,
            metrics: self.metrics(file)?,
            sync: None,
            bgp: None,
        })
    }

    fn hand_over(&self, file: &File) -> Result<Option<HandOver>> {
        let Some(said) = &file.hand_over else { return Ok(None) };
        let error = |what: String, hint: &str| Err(self.error(said.span(), what, Some(hint)));
        if file.workers.is_none() && file.cpus.is_none() {
            return error("'hand_over' without workers to hand packets over to".into(), "add 'workers' or 'cpus'");
        }
        let queue = said.get_ref().queue.unwrap_or(QUEUE_PACKETS);
        if !(1..=MOST_PACKETS).contains(&queue) {
            return error(format!("a queue for {queue} packets"), &format!("choose 1 to {MOST_PACKETS}"));
        }
        match u8::try_from(said.get_ref().priority.unwrap_or(0)) {
            Ok(priority) if priority < 100 => {
                Ok(Some(HandOver { queue, priority: (priority > 0).then_some(priority) }))
            }
            _ => error("'priority' of a thread".into(), "choose 1 to 99, or 0 for none"),
        }
    }

    fn workers(&self, file: &File) -> Result<Workers> {
        match (&file.workers, &file.cpus) {
            (None, None) => Ok(Workers::Unplaced),
            (Some(workers), None) => match NonZeroU32::new(*workers.get_ref()) {
                Some(count) if count.get() <= CpuSet::MAX + 1 => Ok(Workers::Count(count)),
                _ => {
                    let what = format!("{} workers", workers.get_ref());
                    Err(self.error(workers.span(), what, Some("choose 1 to as many CPUs as there are")))
                }
            },
            (None, Some(cpus)) => match cpus.get_ref().parse::<CpuSet>() {
                Ok(set) if !set.is_empty() => Ok(Workers::Cpus(set)),
                _ => {
                    let what = format!("'{}' is not a list of CPUs", cpus.get_ref());
                    Err(self.error(cpus.span(), what, Some("write it as 2-3 or 0,2")))
                }
            },
            (Some(_), Some(cpus)) => {
                let hint = "give either the number or the list";
                Err(self.error(cpus.span(), "both 'workers' and 'cpus'", Some(hint)))
            }
        }
    }

    fn sizes(&self, file: &File) -> Result<Sizes> {
        let mut sizes = Sizes::default();
        let mut span = 0..0;
        if let Some(connections) = &file.connections {
            (sizes.connections, span) = (*connections.get_ref(), connections.span());
            sizes.validate().map_err(|error| self.error(span.clone(), error.to_string(), None))?;
        }
        if let Some(room) = &file.room {
            let said = room.get_ref();
            span = room.span();
            sizes.services = said.services.unwrap_or(sizes.services);
            sizes.backends = said.backends.unwrap_or(sizes.backends);
            sizes.local_addresses = said.local_addresses.unwrap_or(sizes.local_addresses);
            sizes.list_entries = said.schedule_entries.unwrap_or(sizes.list_entries);
            sizes.prefixes = said.prefixes.unwrap_or(sizes.prefixes);
            sizes.templates = said.templates.unwrap_or(sizes.templates);
            sizes.fragments = said.fragments.unwrap_or(sizes.fragments);
            // As the tables have them.
            sizes.sources = said.sources.map_or(sizes.sources, |sources| sources.saturating_add(sources % 2));
        }
        sizes.validate().map_err(|error| self.error(span, error.to_string(), None))?;
        Ok(sizes)
    }

    fn metrics(&self, file: &File) -> Result<Option<SocketAddr>> {
        let Some(metrics) = &file.metrics else { return Ok(None) };
        let wrong = |error| match error {
            AddressError::NotAnAddress(_) | AddressError::NoPort(_) => {
                let what = format!("'{}' is not an address with a port", metrics.get_ref());
                self.error(metrics.span(), what, Some("write it as 127.0.0.1:9180 or [::1]:9180"))
            }
            error => self.error(metrics.span(), error.to_string(), None),
        };
        parse_address(metrics.get_ref()).map(Some).map_err(wrong)
    }

    fn timeouts(&self, said: &TimeoutsFile) -> Result<TimeoutOverrides> {
        let mut timeouts = TimeoutOverrides::default();
        let month = std::time::Duration::from_secs(30 * 24 * 3600);
        for (name, timeout) in said {
            let duration = timeout.get_ref().0;
            if !timeouts.set(name, duration) {
                let names: Vec<&str> = TimeoutOverrides::names().collect();
                let hint = format!("choose one of {}", names.join(", "));
                return Err(self.error(timeout.span(), format!("there is no timeout '{name}'"), Some(&hint)));
            }
            if duration < std::time::Duration::from_secs(1) || duration > month {
                let what = format!("timeout '{name}' of {}", timeout.get_ref());
                return Err(self.error(timeout.span(), what, Some("choose 1 s to 30 days")));
            }
        }
        Ok(timeouts)
    }

    fn services(&mut self, entry: &Spanned<ServiceFile>) -> Result<Vec<Service>> {
        let service = entry.get_ref();
        let scheduler = match &service.scheduler {
            None => DEFAULT_SCHEDULER,
            Some(name) => rules::scheduler(name.get_ref())
                .ok_or_else(|| self.unknown("scheduler", name, &SCHEDULERS.map(|(name, _)| name)))?,
        };
        let forward = match &service.forward {
            None => None,
            Some(name) => {
                let known = FORWARDS.iter().find(|(known, _)| known == name.get_ref());
                let names = FORWARDS.map(|(name, _)| name);
                Some(known.ok_or_else(|| self.unknown("way to forward", name, &names))?.1)
            }
        };
        // Without backends there is nothing to forward to, and nothing to decide.
        let forward = forward.or_else(|| (!service.backend.is_empty()).then_some(ForwardingMethod::FullNat));
        let mut local = Vec::new();
        if let Some(said) = &service.local {
            for (span, text) in said.get_ref().each(said.span()) {
                let hint = "write 198.51.100.1 or 198.51.100.1-198.51.100.50";
                let range = Addresses::parse(text).map_err(|what| self.error(span.clone(), what, Some(hint)))?;
                let room = (self.left.local_addresses as usize).saturating_sub(local.len());
                local.extend(range.each(room).map_err(|many| self.too_many(span, text, many, Room::Locals))?);
            }
            if !local.is_empty() && matches!(forward, Some(ForwardingMethod::Nat | ForwardingMethod::Route)) {
                let what = "a service that does not translate clients' addresses needs no local addresses";
                return Err(self.error(said.span(), what, Some("remove them, or forward = \"full-nat\"")));
            }
        }
        let expire = match &service.expire {
            None => ExpiryPolicy::Never,
            Some(name) => rules::expire(name.get_ref())
                .ok_or_else(|| self.unknown("way to expire", name, &EXPIRES.map(|(name, _)| name)))?,
        };
        let reuse = match &service.reuse {
            None => PortReuse::default(),
            Some(name) => rules::reuse(name.get_ref())
                .ok_or_else(|| self.unknown("way to reuse ports", name, &REUSES.map(|(name, _)| name)))?,
        };
        let syn_proxy = match &service.syn_proxy {
            None => None,
            Some(name) => Some(
                SYN_PROXIES
                    .iter()
                    .find(|(known, _)| known == name.get_ref())
                    .ok_or_else(|| self.unknown("SYN proxy", name, &SYN_PROXIES.map(|(name, _)| name)))?
                    .1,
            ),
        };
        let client_address = match &service.client_address {
            None => ClientAddress::Off,
            Some(name) => client_address(name.get_ref()).ok_or_else(|| {
                self.unknown("way to tell clients' addresses", name, &CLIENT_ADDRESSES.map(|(name, _)| name))
            })?,
        };
        if let (Some(said), Some(forward)) = (&service.client_address, forward)
            && client_address != ClientAddress::Off
            && forward != ForwardingMethod::FullNat
        {
            let what = format!("'client_address' with forward = \"{}\"", rules::forward_name(forward));
            let hint = "remove it: it is for full-nat, where backends see local addresses";
            return Err(self.error(said.span(), what, Some(hint)));
        }
        if let Some(said) = &service.sloppy_tcp
            && *said.get_ref()
            && client_address != ClientAddress::Off
            && client_address.fits(datapath::Protocol::Tcp)
        {
            let hint = "remove one: backends of connections that are picked up in their middle cannot be told of their clients";
            return Err(self.error(said.span(), "'sloppy_tcp' with 'client_address'".to_owned(), Some(hint)));
        }
        let dscp = match &service.dscp {
            None => None,
            Some(said) => {
                let wrong = |error: DscpError| self.error(said.span(), error.to_string(), Some(OR_KEEP));
                said.get_ref().read().map_err(wrong)?
            }
        };
        let quic = match &service.quic {
            None => None,
            Some(said) => {
                let wrong = |misfit: Misfit| self.error(said.span(), misfit.to_string(), Some(misfit.hint));
                Some(quic::of_file(*said.get_ref()).map_err(wrong)?)
            }
        };
        let access = self.access([&service.allow, &service.deny], [&service.allow_file, &service.deny_file])?;
        let limits = self.limits(service)?;
        let persistence = self.persistence(service)?;
        let timeouts = self.timeouts(&service.timeouts)?;
        let check = self.check(service, (scheduler, forward))?;
        let complete = self.completeness == Completeness::Required;
        let outlier = service.outlier.as_ref();
        let outlier =
            outlier.map(|said| outlier::read(&self.source, said, (scheduler, forward), complete)).transpose()?;
        let mut listens = Vec::new();
        for (span, text) in service.listen.get_ref().each(service.listen.span()) {
            let keys = self.keys(text, &span)?;
            listens.push((span, text, keys));
        }
        let is_tcp = |key: &ServiceKey| key.protocol == Protocol::Tcp;
        let of_tcp = [
            ("reuse", service.reuse.as_ref().map(Spanned::span)),
            ("sloppy_tcp", service.sloppy_tcp.as_ref().map(Spanned::span)),
            ("syn_proxy", service.syn_proxy.as_ref().map(Spanned::span)),
            ("outlier", service.outlier.as_ref().map(Spanned::span)),
        ];
        if !listens.iter().flat_map(|(.., keys)| keys).any(is_tcp)
            && complete
            && let Some((key, span)) = of_tcp.into_iter().find_map(|(key, span)| Some((key, span?)))
        {
            let hint = "remove it: it is about TCP connections, and no `listen` of the service is tcp";
            return Err(self.error(span, format!("'{key}' of a UDP service"), Some(hint)));
        }
        if let Some(said) = &service.client_address
            && !listens.is_empty()
            && !listens.iter().flat_map(|(.., keys)| keys).any(|key| client_address.fits(rules::protocol(key.protocol)))
        {
            let what = format!("client_address = \"{}\" without a `listen` of its protocol", said.get_ref());
            return Err(self.error(said.span(), what, Some(client_address_hint(client_address))));
        }
        let one_packet = service.one_packet.as_ref().filter(|said| *said.get_ref());
        if let Some(said) = &service.one_packet
            && !listens.is_empty()
            && listens.iter().flat_map(|(.., keys)| keys).all(is_tcp)
        {
            let misfit = one_packet::TCP;
            return Err(self.error(said.span(), misfit.to_string(), Some(misfit.hint)));
        }
        for is_ipv6 in [false, true] {
            let is_other = |key: &ServiceKey| key.address.is_ipv6() != is_ipv6;
            if !listens.iter().flat_map(|(.., keys)| keys).any(is_other)
                && let Some(error) =
                    limits.misfit(is_ipv6).or(persistence.misfit(is_ipv6)).filter(|_| !listens.is_empty())
            {
                let span = service.limit(error.key).map_or(0..0, Spanned::span);
                return Err(self.error(span, error.to_string(), Some(error.hint)));
            }
        }
        let (usual_tunnel, tunnel_source) = self.tunnels(service, forward)?;
        let source_span = service.tunnel_source.as_ref().map(Spanned::span);
        let quic_span = quic::span_of(service);
        let has_udp = listens.iter().flat_map(|(.., keys)| keys).any(|key| !is_tcp(key));
        let mut services = Vec::new();
        for (span, text, keys) in listens {
            for key in keys {
                // Each service has a list of its own.
                let room = self.left.list_entries as usize;
                RangeTooLarge::unless_within(local.len() as u64, room)
                    .map_err(|many| self.too_many(span.clone(), text, many, Room::LocalsOfAll))?;
                self.left.list_entries -= local.len() as u32;
                if self.lines.services.insert(key, span.clone()).is_some() {
                    let what = format!("{} is listed twice", rules::ServiceText(key));
                    return Err(self.error(span, what, Some("remove one")));
                }
                let mut backends = self.backends(key, &service.backend, (forward, usual_tunnel))?;
                // Of a list of both, as of HTTP, QUIC is UDP's.
                let quic = quic.filter(|_| !(is_tcp(&key) && has_udp));
                if is_tcp(&key) && has_udp {
                    backends.iter_mut().for_each(|backend| backend.quic_id = None);
                }
                if let (Some(said), Some(check)) = (&service.check, &check)
                    && let Some((what, hint)) = check::misfit(check, (key.address, forward), &backends)
                        .or_else(|| check::quorum_never_met(check, &backends).filter(|_| complete))
                {
                    return Err(self.error(said.span(), what, Some(hint)));
                }
                let (local, timeouts, check) = (local.clone(), timeouts.clone(), check.clone());
                let access = self.room_for(&access, &span)?.clone();
                let limit = service.limit;
                // Of a list of both, what is TCP's holds for TCP.
                let sloppy_tcp = is_tcp(&key) && service.sloppy_tcp.as_ref().is_some_and(|said| *said.get_ref());
                let reuse = if is_tcp(&key) { reuse } else { PortReuse::default() };
                let syn_proxy_said = syn_proxy.filter(|_| is_tcp(&key));
                let outlier = outlier.clone().filter(|_| is_tcp(&key));
                let told = if client_address.fits(rules::protocol(key.protocol)) {
                    client_address
                } else {
                    ClientAddress::Off
                };
                let said = one_packet.filter(|_| !is_tcp(&key));
                let unsaid = said.is_some() && service.scheduler.is_none();
                let service = Service {
                    key,
                    scheduler: if unsaid { ONE_PACKET_SCHEDULER } else { scheduler },
                    forward,
                    local,
                    limit,
                    timeouts,
                    expire,
                    sloppy_tcp,
                    reuse,
                    check,
                    outlier,
                    syn_proxy_said,
                    client_address: told,
                    access,
                    limits: limits.of_family(key.address.is_ipv6()),
                    persistence: persistence.of_family(key.address.is_ipv6()),
                    one_packet: said.is_some(),
                    dscp,
                    quic,
                    tunnel_source,
                    backends,
                };
                if let (Some(misfit), Some(span)) = (service.quic_misfit(), quic_span.clone()) {
                    return Err(self.error(span, misfit.to_string(), Some(misfit.hint)));
                }
                if let (Some(span), Some(misfit)) = (&source_span, service.tunnel_misfit()) {
                    return Err(self.error(span.clone(), misfit.to_string(), Some(misfit.hint)));
                }
                if let (Some(said), Some(misfit)) = (said, service.one_packet_misfit()) {
                    return Err(self.error(said.span(), misfit.to_string(), Some(misfit.hint)));
                }
                if let Some(misfit) = service.any_port_misfit() {
                    return Err(self.error(span, misfit.to_string(), Some(misfit.hint)));
                }
                if let (Some(lacks), Completeness::Required) = (service.lacks(), self.completeness)
                    && !service.backends.is_empty()
                {
                    let how = service.forward.map_or("", rules::forward_name);
                    let what = format!("{} forwards by {how} and lacks {lacks}", rules::ServiceText(key));
                    let hint = match service.local.is_empty() {
                        true => "add local = [\"ADDRESS-ADDRESS\"], or choose another way to forward: nat, route",
                        false => "add one to local: each backend is reached from a local address of its own family",
                    };
                    return Err(self.error(span, what, Some(hint)));
                }
                services.push(service);
            }
        }
        Ok(services)
    }

    /// What backends are packed for that do not say it themselves, and where from.
    fn tunnels(&self, service: &ServiceFile, forward: Option<ForwardingMethod>) -> Result<(Tunnel, Option<IpNet>)> {
        let tunnel = match &service.tunnel {
            Some(said) => self.tunnel(said.span(), said.get_ref(), forward)?,
            None => Tunnel::default(),
        };
        let Some(said) = &service.tunnel_source else { return Ok((tunnel, None)) };
        let source = tunnel_source(said.get_ref());
        let source = source.map_err(|misfit| self.error(said.span(), misfit.to_string(), Some(misfit.hint)))?;
        Ok((tunnel, Some(source)))
    }

    fn tunnel(
        &self,
        span: Range<usize>,
        said: &TextOrTable<TunnelFile>,
        forward: Option<ForwardingMethod>,
    ) -> Result<Tunnel> {
        if forward != Some(ForwardingMethod::Tunnel) {
            let hint = "remove it, or forward = \"tunnel\"";
            return Err(self.error(span, "'tunnel' of a service that forwards in another way", Some(hint)));
        }
        tunnel::read(said).map_err(|misfit| self.error(span, misfit.to_string(), Some(misfit.hint)))
    }

    fn limits(&self, service: &ServiceFile) -> Result<ServiceLimits> {
        let said = ServiceLimits::read(|key, _| Ok(service.limit(key).map(|said| *said.get_ref())))?;
        ServiceLimits::default().changed(&said).map_err(|error| {
            let span = service.limit(error.key).map_or(0..0, Spanned::span);
            self.error(span, error.to_string(), Some(error.hint))
        })
    }

    fn persistence(&self, service: &ServiceFile) -> Result<ServicePersistence> {
        let bits = |said: &Option<Spanned<u32>>| said.as_ref().map(|said| *said.get_ref());
        let timeout = service.persistence.as_ref().map(|said| {
            let Span(time) = *said.get_ref();
            let hint = "choose whole seconds, 1 s to 30 days";
            let whole = time.subsec_nanos() == 0 && !time.is_zero();
            let seconds = u32::try_from(time.as_secs()).ok().filter(|_| whole);
            seconds.ok_or_else(|| self.error(said.span(), format!("persistence of {}", Span(time)), Some(hint)))
        });
        let said = ServicePersistence {
            timeout: timeout.transpose()?,
            prefix4: bits(&service.persistence_prefix4),
            prefix6: bits(&service.persistence_prefix6),
            group: bits(&service.persistence_group),
        };
        ServicePersistence::default().changed(&said).map_err(|error| {
            let span = service.limit(error.key).map(Spanned::span);
            let span = span.or(service.persistence.as_ref().map(Spanned::span)).unwrap_or(0..0);
            self.error(span, error.to_string(), Some(error.hint))
        })
    }

    /// Who may begin connections: prefixes and files of them, those that are allowed first.
    fn access(
        &self,
        said: [&Option<Spanned<OneOrMany<String>>>; 2],
        files: [&Option<Spanned<PathBuf>>; 2],
    ) -> Result<Access> {
        let mut lists = [PrefixList::default(), PrefixList::default()];
        for ((list, said), file) in lists.iter_mut().zip(said).zip(files) {
            if let Some(said) = said {
                for (span, text) in said.get_ref().each(said.span()) {
                    list.said.insert(parse_prefix(text).map_err(|what| self.error(span, what, None))?);
                }
            }
            let read = |file: &Spanned<PathBuf>| match self.completeness {
                Completeness::Required => PrefixFile::read(file.get_ref()).map(|file| (file, None)),
                Completeness::Optional => PrefixFile::read_what_is_right(file.get_ref()),
            };
            if let Some(file) = file {
                let read = read(file).map_err(|error| self.error(file.span(), error.to_string(), None));
                let (file, wrong) = read?;
                wrong.into_iter().for_each(|wrong| warn!("{wrong}: lines that are wrong are left out"));
                list.file = Some(file);
            }
        }
        let [allow, deny] = lists;
        let mut access = Access { allow, deny };
        // Without a control plane nobody could mend it.
        if self.completeness == Completeness::Optional {
            for prefix in access.settle() {
                warn!("{prefix} is in a file of the other list by now: that is left out until the next reload");
            }
        }
        Ok(access)
    }

    /// Each service has its own.
    fn room_for<'b>(&mut self, access: &'b Access, span: &Range<usize>) -> Result<&'b Access> {
        let lists = access.in_force();
        let wanted = (lists.allow.len() + lists.deny.len()) as u64;
        if wanted > u64::from(self.left.prefixes) {
            let what =
                format!("{wanted} more prefixes of allow and deny, and there is room for {}", self.left.prefixes);
            return Err(self.error(span.clone(), what, Some("choose fewer, or raise [room] prefixes, up to 1048576")));
        }
        self.left.prefixes -= wanted as u32;
        Ok(access)
    }

    /// Answers of so many services' own addresses are heard.
    fn unless_heard(&self, said: &ServiceFile, services: &[Service]) -> Result<()> {
        let Some(said) = &said.check else { return Ok(()) };
        let is_direct =
            |service: &&Service| service.check.as_ref().is_some_and(|check| check::is_direct(check, service.forward));
        let heard: BTreeSet<IpAddr> =
            services.iter().filter(is_direct).map(|service| service.key.address.ip()).collect();
        for of_family in [IpAddr::is_ipv4, IpAddr::is_ipv6] {
            let (count, most) = (heard.iter().filter(|address| of_family(address)).count(), PacketTap::MOST_SENDERS);
            if count > most {
                let what = format!("checks of more than {most} services' own addresses");
                return Err(self.error(said.span(), what, Some("write to = \"backend\" where that will do")));
            }
        }
        Ok(())
    }

    /// Probes are sent from an address of their own family. Commands may have changed what the file once had.
    fn unless_out_of_reach(&self, said: &ServiceFile, services: &[Service]) -> Result<()> {
        let Some(said) = said.check.as_ref().filter(|_| self.completeness == Completeness::Required) else {
            return Ok(());
        };
        match services.iter().find_map(Service::out_of_reach) {
            Some((source, probed)) => {
                let what = format!("checks from {source} of a backend that is probed at {probed}, of the other family");
                let hint = "leave 'source' out, or divide the backends between two services";
                Err(self.error(said.span(), what, Some(hint)))
            }
            None => Ok(()),
        }
    }

    fn check(
        &self,
        service: &ServiceFile,
        (scheduler, forward): (datapath::Scheduler, Option<ForwardingMethod>),
    ) -> Result<Option<Box<Check>>> {
        let complete = self.completeness == Completeness::Required;
        let of = |backend: &&Spanned<TextOrTable<BackendFile>>, says: fn(&BackendFile) -> bool| match backend.get_ref()
        {
            TextOrTable::Table(table) => says(table),
            TextOrTable::Text(_) => false,
        };
        let has_sorry = service.backend.iter().any(|backend| of(&backend, |table| table.sorry));
        let Some(said) = &service.check else {
            let says = |table: &BackendFile| table.sorry || table.check.is_some();
            return match service.backend.iter().find(|backend| of(backend, says)) {
                Some(backend) if complete => {
                    let what = "'sorry' or 'check' of a backend whose service has no check";
                    Err(self.error(backend.span(), what, Some("add [service.check] with a kind, e.g. kind = \"tcp\"")))
                }
                _ => Ok(None),
            };
        };
        let both = |table: &BackendFile| table.sorry && table.check.is_some();
        if let Some(backend) = service.backend.iter().find(|backend| of(backend, both)).filter(|_| complete) {
            let hint = "remove 'check': a sorry server is not checked";
            return Err(self.error(backend.span(), "'check' of a sorry server", Some(hint)));
        }
        let facts = CheckedService { forward, scheduler, has_sorry, complete };
        Ok(Some(Box::new(check::read(&self.source, said, facts)?)))
    }

    /// `tcp 192.0.2.1:80`, `udp 192.0.2.1:53`, `192.0.2.1-192.0.2.8:80`.
    fn keys(&mut self, text: &str, span: &Range<usize>) -> Result<Vec<ServiceKey>> {
        let hint = "write \"tcp 192.0.2.1:80\", \"udp [2001:db8::1]:53\", \"192.0.2.1-192.0.2.8:80\", \"192.0.2.1:8000-8003\" or \"192.0.2.1:any\"";
        let error = |what: String| self.error(span.clone(), what, Some(hint));
        let (protocol, endpoints) = match text.trim().split_once(char::is_whitespace) {
            None => (Protocol::Tcp, text),
            Some((name, rest)) => match name.to_ascii_lowercase().as_str() {
                "tcp" => (Protocol::Tcp, rest),
                "udp" => (Protocol::Udp, rest),
                _ => return Err(error(format!("'{name}' is not a protocol"))),
            },
        };
        let endpoints = Endpoints::parse(endpoints).map_err(error)?;
        if endpoints.ports.is_none() {
            return Err(error(format!("'{text}' has no port")));
        }
        let each = endpoints.each(0, self.left.services as usize);
        let each = each.map_err(|many| self.too_many(span.clone(), text, many, Room::Services))?;
        let keys: Vec<ServiceKey> = each.map(|address| ServiceKey { protocol, address }).collect();
        self.left.services -= keys.len() as u32;
        Ok(keys)
    }

    fn backends(
        &mut self,
        key: ServiceKey,
        said: &[Spanned<TextOrTable<BackendFile>>],
        (forward, usual_tunnel): (Option<ForwardingMethod>, Tunnel),
    ) -> Result<Vec<Backend>> {
        let mut backends = Vec::new();
        for entry in said {
            let (text, template) = match entry.get_ref() {
                TextOrTable::Text(text) => (text, Backend { tunnel: usual_tunnel, ..Backend::new(key.address) }),
                TextOrTable::Table(table) => {
                    let weight = table.weight.unwrap_or(1);
                    let limit = table.limit.and_then(NonZeroU32::new);
                    let lower_limit = table.lower_limit.and_then(NonZeroU32::new);
                    if lower_limit.is_some_and(|lower| limit.is_none_or(|limit| lower > limit)) {
                        let what = "'lower_limit' without a 'limit' that is at least as high";
                        return Err(self.error(entry.span(), what, Some("add limit, or lower it")));
                    }
                    let said = table.check.as_ref().map(check::backend_check).transpose();
                    let hint = "write false, \"10.1.0.1:9000\", \"10.1.0.1\" or \":9000\"";
                    let check = said.map_err(|what| self.error(entry.span(), what, Some(hint)))?.unwrap_or_default();
                    let (drain, sorry) = (table.drain, table.sorry);
                    let tunnel = match &table.tunnel {
                        Some(said) => self.tunnel(entry.span(), said, forward)?,
                        None => usual_tunnel,
                    };
                    let address = key.address;
                    let quic_id = table.quic_id;
                    let usual = Backend::new(address);
                    let backend = Backend { weight, limit, lower_limit, drain, sorry, check, tunnel, quic_id, ..usual };
                    (&table.address, backend)
                }
            };
            if template.weight > balancer::MAX_WEIGHT {
                let hint = format!("choose 0 to {}", balancer::MAX_WEIGHT);
                return Err(self.error(entry.span(), format!("weight {}", template.weight), Some(&hint)));
            }
            let hint = "write 10.0.0.1:80, 10.0.0.1-10.0.0.8:80, [fd00::1]:80, or no port for the service's";
            let endpoints = Endpoints::parse(text).map_err(|what| self.error(entry.span(), what, Some(hint)))?;
            let own = balancer::MAX_BACKENDS.saturating_sub(backends.len());
            let (room, of) = match self.left.backends as usize {
                all if all < own => (all, Room::Backends),
                _ => (own, Room::BackendsOfOne),
            };
            let each = endpoints.each(key.address.port(), room);
            for address in each.map_err(|many| self.too_many(entry.span(), text, many, of))? {
                if address.port() == 0 && key.address.port() != 0 {
                    let what = format!("backend '{text}' names no port");
                    return Err(self.error(entry.span(), what, Some("leave it out: the port is the service's then")));
                }
                if self.lines.backends.insert((key.address, address), entry.span()).is_some()
                    && backends.iter().any(|known: &Backend| known.address == address)
                {
                    let what = format!("{}: backend {address} is listed twice", rules::ServiceText(key));
                    return Err(self.error(entry.span(), what, Some("remove one")));
                }
                backends.push(Backend { address, ..template });
                self.left.backends -= 1;
            }
        }
        Ok(backends)
    }

    fn too_many(&self, span: Range<usize>, text: &str, many: RangeTooLarge, of: Room) -> FileError {
        let RangeTooLarge { count, room } = many;
        let (what, hint) = match of {
            Room::Services => ("services", "choose fewer, or raise [room] services, up to 65535"),
            Room::Backends => ("backends", "choose fewer, or raise [room] backends, up to 65535"),
            Room::BackendsOfOne => ("backends of one service", "a service can have 1024"),
            Room::Locals => ("local addresses", "choose fewer, or raise [room] local_addresses, up to 65535"),
            Room::LocalsOfAll => {
                ("local addresses in the lists of services", "choose fewer, or raise [room] schedule_entries")
            }
        };
        self.error(span, format!("'{text}' wants {count} more {what}, and there is room for {room}"), Some(hint))
    }

    /// What the datapath cannot do, and where it was said.
    fn not_valid(&self, error: &ConfigError) -> FileError {
        use ConfigError as E;
        let line = |service: &SocketAddr| {
            let mut services = self.lines.services.iter();
            services.find(|(key, _)| key.address == *service).map(|(_, span)| span.clone())
        };
        let span = match error {
            E::DuplicateBackend { service, backend }
            | E::BackendPort { service, backend, .. }
            | E::AnyPortBackend { service, backend }
            | E::NoBackendPort { service, backend }
            | E::Weight { service, backend, .. } => {
                self.lines.backends.get(&(*service, *backend)).cloned().or_else(|| line(service))
            }
            E::DuplicateService { service }
            | E::AnyPortFullNat { service }
            | E::ServiceAddress { service, .. }
            | E::Family { service, .. }
            | E::NoLocalAddress { service, .. }
            | E::NoLocalOfFamily { service, .. }
            | E::DuplicateLocal { service, .. }
            | E::LocalIsService { service, .. }
            | E::LocalIsBackend { service, .. }
            | E::SourceInUse { service, .. }
            | E::Backends { service, .. }
            | E::SynProxy { service }
            | E::ClientAddress { service }
            | E::Limits { service, .. }
            | E::SharedOnePacket { service, .. }
            | E::Timeout { service, .. } => line(service),
            _ => None,
        };
        match span {
            Some(span) => self.error(span, error.to_string(), None),
            None => self.source.whole(error.to_string(), None),
        }
    }

    fn unknown(&self, what: &str, name: &Spanned<String>, known: &[&str]) -> FileError {
        let hint = format!("choose one of {}", known.join(", "));
        self.error(name.span(), format!("there is no {what} '{}'", name.get_ref()), Some(&hint))
    }

    fn error(&self, span: Range<usize>, what: impl Into<String>, hint: Option<&str>) -> FileError {
        self.source.error(span, what, hint)
    }
}
