//! From the letter of `vrouter.toml` to [`Settings`]: every name looked up, every unit and range checked, once.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;

use ipnet::IpNet;
use rig_cli::mistakes::{self, FileError};
use rig_cli::source::Source;
use rig_datapath::vrouter::Encapsulation;
use rig_stats::units::Span;
use rig_wire::ethernet::Mac;
use toml::Spanned;

use super::file::{File, InterfaceFile, NodeFile, NotBuilt, RouterFile};
use super::{Node, Router, Settings, allot, check, is_mapped, key};

pub(super) type Result<T, E = FileError> = std::result::Result<T, E>;

/// The smallest underlay that IPv4 allows and that has room for more than headers (RFC 791, 3.1: 576 bytes).
const SMALLEST_MTU: u16 = 576;
/// Each takes 336 bytes, both directions counted: 2^24 of them are 5.64 GB.
const FLOWS: std::ops::RangeInclusive<u32> = 1024..=1 << 24;
/// Each takes the room of an interface, about 1.7 KB and more on each CPU.
const PLUGGED: std::ops::RangeInclusive<u32> = 0..=1 << 16;

/// The bytes of a file that is named, from the directory of the one that names it.
pub(super) type FileReader<'a> = &'a dyn Fn(&str) -> io::Result<Vec<u8>>;

pub(super) fn settings(file: &str, text: &str, beside: FileReader) -> Result<Settings> {
    settings_with(Source { file, text }, beside, Vec::new())
}

/// Those of a file that has these interfaces, too, behind its own: so that they take no number from one of these.
pub(super) fn settings_with(
    source: Source,
    beside: FileReader,
    interfaces: Vec<Spanned<InterfaceFile>>,
) -> Result<Settings> {
    let mut letter: File = source.read()?;
    letter.interface.extend(interfaces);
    let names = Names::of(source, &letter)?;
    let drawn_from = drawn_from(source, &letter.router, beside)?;
    let mut reader = Reader { source, names, spans: Spans::default(), drawn_from };
    let mut settings = Settings { router: reader.router(&letter.router)?, ..Settings::default() };
    for node in &letter.node {
        let (name, node) = reader.node(node.get_ref(), &settings)?;
        settings.nodes.insert(name, node);
    }
    reader.analysers(&letter, &mut settings)?;
    settings.policies = reader.policies(&letter)?;
    settings.security_groups = reader.security_groups(&letter, &settings.router)?;
    reader.networks(&letter, &mut settings)?;
    reader.interfaces(&letter, &mut settings)?;
    reader.routes(&letter, &mut settings)?;
    check::connect(&mut settings, &reader)?;
    check::together(&settings, &reader)?;
    Ok(settings)
}

fn drawn_from(source: Source, router: &RouterFile, beside: FileReader) -> Result<key::Source> {
    let Some(said) = &router.key_file else { return Ok(key::Source::Name) };
    let read = beside(said.get_ref()).map_err(|error| error.to_string());
    read.and_then(|bytes| key::Key::of(&bytes)).map(key::Source::Key).map_err(|why| {
        let hint = "make one with `(umask 077; head -c 32 /dev/urandom | base64 > FILE)`, and give it to all nodes";
        source.error(said.span(), format!("the key file '{}' is of no use: {why}", said.get_ref()), Some(hint))
    })
}

/// Names of one kind, and where they are given.
pub(super) type Named = BTreeMap<String, Range<usize>>;

/// The names that there are, before anything is read: things name each other in circles.
pub(super) struct Names {
    pub(super) nodes: Named,
    pub(super) networks: Named,
    pub(super) interfaces: Named,
    pub(super) groups: Named,
    pub(super) policies: Named,
    pub(super) analysers: Named,
}

impl Names {
    fn of(source: Source, file: &File) -> Result<Self> {
        fn collect<'f, T: 'f>(
            source: Source,
            kind: &str,
            list: &'f [Spanned<T>],
            name: impl Fn(&'f T) -> &'f Spanned<String>,
        ) -> Result<Named> {
            let mut names = Named::new();
            for entry in list {
                let name = name(entry.get_ref());
                let text = name.get_ref();
                let odd = |c: char| c.is_whitespace() || c.is_control() || "/:,<>'\"".contains(c);
                if text.is_empty() || text.len() > 64 || text.contains(odd) {
                    let hint = "choose letters, digits, '-', '_' and '.', 64 at most";
                    return Err(source.error(name.span(), format!("'{text}' is not a name for {kind}"), Some(hint)));
                }
                if names.insert(text.clone(), name.span()).is_some() {
                    return Err(source.error(
                        name.span(),
                        format!("{kind} '{text}' is listed twice"),
                        Some("rename or remove one"),
                    ));
                }
            }
            Ok(names)
        }
        let names = Self {
            nodes: collect(source, "node", &file.node, |node| &node.name)?,
            networks: collect(source, "network", &file.network, |network| &network.name)?,
            interfaces: collect(source, "interface", &file.interface, |interface| &interface.name)?,
            groups: collect(source, "security group", &file.security_group, |group| &group.name)?,
            policies: collect(source, "policy", &file.policy, |policy| &policy.name)?,
            analysers: collect(source, "analyser", &file.analyser, |analyser| &analyser.name)?,
        };
        // An end of a policy's rule is a network, a prefix or `any`.
        match names.networks.get("any") {
            Some(span) => {
                Err(source.error(span.clone(), "'any' is not a name for a network", Some("choose another one")))
            }
            None => Ok(names),
        }
    }
}

/// Where things were said, for errors that are found when all is read.
#[derive(Default)]
pub(super) struct Spans {
    pub(super) interfaces: BTreeMap<String, Range<usize>>,
    /// Where a network names a policy.
    pub(super) policies: BTreeMap<(String, String), Range<usize>>,
    pub(super) subnets: BTreeMap<(String, IpNet), Range<usize>>,
    pub(super) routes: BTreeMap<(String, IpNet), Range<usize>>,
}

pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    pub(super) names: Names,
    pub(super) spans: Spans,
    drawn_from: key::Source,
}

impl Reader<'_> {
    /// 64 bits for the name of a thing of a kind.
    pub(super) fn draw(&self, kind: &str, name: &str) -> u64 {
        match &self.drawn_from {
            key::Source::Name => allot::by_name(name),
            key::Source::Key(key) => key.draw(kind, name),
        }
    }

    pub(super) fn error(&self, span: Range<usize>, what: impl Into<String>, hint: impl Into<String>) -> FileError {
        self.source.error(span, what, Some(&hint.into()))
    }

    /// A name that has to be there.
    pub(super) fn known(&self, kind: &str, name: &Spanned<String>, names: &Named) -> Result<String> {
        let text = name.get_ref();
        if names.contains_key(text) {
            return Ok(text.clone());
        }
        let hint = match mistakes::closest(text, names.keys().map(String::as_str)) {
            Some(meant) => format!("did you mean '{meant}'?"),
            None => format!("add a [[{}]] with this name, or choose one that exists", kind.replace(' ', "_")),
        };
        Err(self.error(name.span(), format!("there is no {kind} '{text}'"), hint))
    }

    pub(super) fn not_built(&self, asked: &NotBuilt, what: &str) -> Result<()> {
        match asked {
            None => Ok(()),
            Some(said) => Err(self.error(said.span(), format!("{what} is not supported"), "remove this key")),
        }
    }

    fn router(&self, file: &RouterFile) -> Result<Router> {
        self.not_built(&file.dhcp, "answering DHCP")?;
        self.not_built(&file.dns, "answering DNS")?;
        let mut router = Router::default();
        if let Some(mac) = &file.mac {
            router.mac = self.mac(mac)?;
        }
        if let Some(encapsulation) = &file.encapsulation {
            router.encapsulation = self.encapsulations(encapsulation)?;
        }
        router.most_flows = file.most_flows;
        router.has_key = file.key_file.is_some();
        router.strict_underlay = file.strict_underlay.unwrap_or(router.strict_underlay);
        router.bgp = file.bgp.as_ref().map(|bgp| self.bgp(bgp)).transpose()?;
        if let Some(flows) = &file.flows {
            if !FLOWS.contains(flows.get_ref()) {
                let hint = format!("choose {} to {}", FLOWS.start(), FLOWS.end());
                return Err(self.error(flows.span(), format!("a table for {} flows", flows.get_ref()), hint));
            }
            router.flows = *flows.get_ref();
        }
        if let Some(plugged) = &file.plugged {
            if !PLUGGED.contains(plugged.get_ref()) {
                let hint = format!("choose {} to {}", PLUGGED.start(), PLUGGED.end());
                let what = format!("room for {} interfaces of plug-ins", plugged.get_ref());
                return Err(self.error(plugged.span(), what, hint));
            }
            router.plugged = *plugged.get_ref();
        }
        let (said, to) = (&file.timeouts, &mut router.timeouts);
        for (name, said, to) in [
            ("established", &said.established, &mut to.established),
            ("opening", &said.opening, &mut to.opening),
            ("closed", &said.closed, &mut to.closed),
            ("other", &said.other, &mut to.other),
            ("unanswered", &said.unanswered, &mut to.unanswered),
        ] {
            let Some(said) = said else { continue };
            let &Span(duration) = said.get_ref();
            if !(Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600)).contains(&duration) {
                let what = format!("timeout '{name}' of {}", said.get_ref());
                return Err(self.error(said.span(), what, "choose 1 s to 30 days"));
            }
            *to = duration;
        }
        Ok(router)
    }

    fn node(&self, file: &NodeFile, others: &Settings) -> Result<(String, Node)> {
        let name = file.name.get_ref();
        let text = file.address.get_ref();
        let said = |what: String, hint: &str| Err(self.error(file.address.span(), what, hint));
        let Ok(address) = text.parse::<Ipv4Addr>() else {
            return said(format!("'{text}' is not an IPv4 address"), "tunnels go over IPv4: write 192.0.2.1");
        };
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_loopback() {
            return said(
                format!("{address} cannot be a machine's address"),
                "give the address at which other nodes reach this one",
            );
        }
        if let Some((other, _)) = others.nodes.iter().find(|(_, node)| node.address == address) {
            return said(format!("nodes '{other}' and '{name}' have one address, {address}"), "give each its own");
        }
        let encapsulations = match &file.encapsulations {
            None => Encapsulation::ALL.into(),
            Some(said) => self.encapsulations(said)?.into_iter().collect(),
        };
        let mtu = match &file.mtu {
            Some(mtu) if *mtu.get_ref() < SMALLEST_MTU => {
                let hint = format!("choose {SMALLEST_MTU} to 65535");
                return Err(self.error(mtu.span(), format!("an MTU of {} bytes", mtu.get_ref()), hint));
            }
            said => said.as_ref().map(|mtu| *mtu.get_ref()),
        };
        let interface = file.interface.as_ref().map(|device| self.device(device)).transpose()?;
        self.needs_bgp(file.bgp.as_ref(), "bgp", &others.router)?;
        let bgp = others.router.bgp.is_some() && file.bgp.as_ref().is_none_or(|said| *said.get_ref());
        Ok((name.clone(), Node { address, interface, encapsulations, mtu, bgp }))
    }

    pub(super) fn prefix(&self, text: &str, span: Range<usize>) -> Result<IpNet> {
        let Ok(prefix) = text.parse::<IpNet>() else {
            let hint = "write 10.1.0.0/24 or fd00:1::/64";
            return Err(self.error(span, format!("'{text}' is not a prefix"), hint));
        };
        if is_mapped(prefix) {
            let what = format!("'{text}' is IPv4, mapped into IPv6 (RFC 4291, 2.5.5.2)");
            return Err(self.error(span, what, "write it as IPv4"));
        }
        if prefix != prefix.trunc() {
            let hint = format!("write {}", prefix.trunc());
            return Err(self.error(span, format!("{prefix} has bits behind its prefix"), hint));
        }
        Ok(prefix)
    }

    pub(super) fn mac(&self, text: &Spanned<String>) -> Result<Mac> {
        let mac = text.get_ref().parse::<Mac>().ok();
        mac.filter(|mac| !mac.is_multicast() && *mac != Mac::default()).ok_or_else(|| {
            let what = format!("'{}' is not a MAC address of an interface", text.get_ref());
            self.error(text.span(), what, "write one such as 02:00:00:00:00:01")
        })
    }

    pub(super) fn encapsulations(&self, said: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Encapsulation>> {
        let names = Encapsulation::ALL.map(Encapsulation::name).join(", ");
        let mut all = Vec::new();
        for text in said.get_ref() {
            let Some(one) = Encapsulation::ALL.into_iter().find(|one| one.name() == text.get_ref()) else {
                let what = format!("there is no encapsulation '{}'", text.get_ref());
                return Err(self.error(text.span(), what, format!("choose from {names}")));
            };
            if all.contains(&one) {
                return Err(self.error(text.span(), format!("'{}' is listed twice", one.name()), "remove one"));
            }
            all.push(one);
        }
        if all.is_empty() {
            return Err(self.error(said.span(), "no encapsulation", format!("choose from {names}")));
        }
        Ok(all)
    }

    /// IFNAMSIZ of linux/if.h, and dev_valid_name() of the kernel.
    pub(super) fn device(&self, name: &Spanned<String>) -> Result<String> {
        let text = name.get_ref();
        let odd = |c: char| c == '/' || c == ':' || c.is_whitespace();
        if !(1..16).contains(&text.len()) || text.contains(odd) || text == "." || text == ".." {
            let hint = "write its name as `ip link` shows it";
            return Err(self.error(name.span(), format!("'{text}' is not a network device"), hint));
        }
        Ok(text.clone())
    }

    /// The name of a namespace or a container.
    pub(super) fn place(&self, name: &Spanned<String>) -> Result<String> {
        let text = name.get_ref();
        if text.is_empty() || text.starts_with(['-', '.']) || text.contains(|c: char| c == '/' || c.is_whitespace()) {
            let hint = "write its name as `ip netns` or `docker ps` shows it";
            return Err(self.error(name.span(), format!("'{text}' is not a name of a namespace or container"), hint));
        }
        Ok(text.clone())
    }

    pub(super) fn range(&self, said: &Spanned<u32>, what: &str, first: u32, last: u32) -> Result<()> {
        if (first..=last).contains(said.get_ref()) {
            return Ok(());
        }
        let hint = format!("choose {first} to {last}, or leave it out");
        Err(self.error(said.span(), format!("{} is not a {what}", said.get_ref()), hint))
    }
}
