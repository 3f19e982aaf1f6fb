//! Routes by BGP: where the speaker is, and what names networks and security groups in routes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rig_cli::mistakes::FileError;
use rig_cli::source::Source;
use rig_stats::units::Span;
use toml::Spanned;

use super::allot::{self, NumberRequest};
use super::file::{BgpFile, File, Targets};
use super::interfaces::OF_NETWORK;
use super::networks::asked_number;
use super::read::{Reader, Result};
use super::{HAS_BGP, Router, Settings};

/// How each node's router reaches its speaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bgp {
    /// The API of GoBGP: `HOST:PORT`, or `unix:` and a path.
    pub gobgp: String,
    /// In route targets that the file does not give, and with security groups.
    pub autonomous_system: u16,
    /// How long routes stay whose speaker is gone.
    pub keep: Duration,
}

/// Where gobgpd listens unless it is told otherwise.
const GOBGP: &str = "127.0.0.1:50051";
/// The first of those for private use (RFC 6996, 5), and Contrail's.
const AUTONOMOUS_SYSTEM: u16 = 64512;
/// As long as speakers commonly wait for a neighbour that restarts (RFC 4724, 3).
const KEEP: Duration = Duration::from_secs(120);
const LONGEST_KEEP: Duration = Duration::from_secs(3600);

/// What the owner of a number has given out under it: a route target (RFC 4360, 4; RFC 5668) or a route
/// distinguisher (RFC 4364, 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Assigned {
    /// By an autonomous system with a number of two octets.
    TwoOctets(u16, u32),
    ByAddress(Ipv4Addr, u16),
    /// By one with a number of four octets.
    FourOctets(u32, u16),
}

impl fmt::Display for Assigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoOctets(by, number) => write!(f, "{by}:{number}"),
            Self::ByAddress(by, number) => write!(f, "{by}:{number}"),
            Self::FourOctets(by, number) => write!(f, "{by}:{number}"),
        }
    }
}

impl FromStr for Assigned {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let (by, number) = text.split_once(':').ok_or(())?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(number) {
            return Err(());
        }
        if let Ok(address) = by.parse() {
            return number.parse().map(|number| Self::ByAddress(address, number)).map_err(drop);
        }
        if !digits(by) {
            return Err(());
        }
        match by.parse::<u32>().map_err(drop)? {
            0 => Err(()),
            by => match u16::try_from(by) {
                Ok(by) => number.parse().map(|number| Self::TwoOctets(by, number)).map_err(drop),
                Err(_) => number.parse().map(|number| Self::FourOctets(by, number)).map_err(drop),
            },
        }
    }
}

/// Of a program without what talks to a speaker.
fn unsupported(source: Source, table: Range<usize>) -> FileError {
    let hint = "use netrig of a package, or build it by `cargo build --release --features bgp`; or remove the table";
    source.error(table, "this netrig was built without BGP", Some(hint))
}

impl Reader<'_> {
    pub(super) fn bgp(&self, file: &Spanned<BgpFile>) -> Result<Bgp> {
        if !HAS_BGP {
            return Err(unsupported(self.source, file.span()));
        }
        let file = file.get_ref();
        let mut bgp = Bgp { gobgp: GOBGP.to_owned(), autonomous_system: AUTONOMOUS_SYSTEM, keep: KEEP };
        if let Some(said) = &file.gobgp {
            if !is_address(said.get_ref()) {
                let what = format!("'{}' is not an address of a speaker's API", said.get_ref());
                return Err(self.error(said.span(), what, "write 127.0.0.1:50051 or unix:/run/gobgpd.sock"));
            }
            bgp.gobgp.clone_from(said.get_ref());
        }
        if let Some(said) = &file.autonomous_system {
            self.range(said, "number of an autonomous system with two octets", 1, u16::MAX.into())?;
            bgp.autonomous_system = *said.get_ref() as u16;
        }
        if let Some(said) = &file.keep {
            let &Span(keep) = said.get_ref();
            if keep > LONGEST_KEEP {
                let what = format!("routes that are kept for {}", said.get_ref());
                return Err(self.error(said.span(), what, "choose 0 s to 1 h"));
            }
            bgp.keep = keep;
        }
        Ok(bgp)
    }

    pub(super) fn needs_bgp<T>(&self, said: Option<&Spanned<T>>, key: &str, router: &Router) -> Result<()> {
        match said.filter(|_| router.bgp.is_none()) {
            None => Ok(()),
            Some(said) => {
                Err(self.error(said.span(), format!("'{key}' is for routes by BGP"), "add [router.bgp], or remove it"))
            }
        }
    }

    /// To be called when networks have their VNIs.
    pub(super) fn targets(&self, file: &File, settings: &mut Settings) -> Result<()> {
        for entry in &file.network {
            let said = entry.get_ref();
            let lists = [
                ("route_targets", &said.route_targets),
                ("import_targets", &said.import_targets),
                ("export_targets", &said.export_targets),
            ];
            for (key, list) in lists {
                self.needs_bgp(list.as_ref(), key, &settings.router)?;
            }
            let (Some(bgp), Some(network)) = (&settings.router.bgp, settings.networks.get_mut(said.name.get_ref()))
            else {
                continue;
            };
            let both = match &said.route_targets {
                None => BTreeSet::from([Assigned::TwoOctets(bgp.autonomous_system, network.vni)]),
                Some(list) => self.assigned(list)?,
            };
            let read = |list: &Option<Targets>| list.as_ref().map_or(Ok(BTreeSet::new()), |list| self.assigned(list));
            network.import = &both | &read(&said.import_targets)?;
            network.export = &both | &read(&said.export_targets)?;
        }
        Ok(())
    }

    fn assigned(&self, list: &Targets) -> Result<BTreeSet<Assigned>> {
        let read = |text: &Spanned<String>| {
            text.get_ref().parse::<Assigned>().map_err(|()| {
                let hint = "write AS:NUMBER or ADDRESS:NUMBER, such as 64512:100 or 192.0.2.1:100";
                self.error(text.span(), format!("'{}' is not a route target", text.get_ref()), hint)
            })
        };
        list.get_ref().iter().map(read).collect()
    }

    /// Numbers by which security groups are known to nodes with other files.
    pub(super) fn group_ids(&self, file: &File, router: &Router) -> Result<BTreeMap<String, u32>> {
        let mut asked = Vec::new();
        for group in file.security_group.iter().map(Spanned::get_ref) {
            self.needs_bgp(group.id.as_ref(), "id", router)?;
            if let Some(id) = &group.id {
                self.range(id, "number of a security group", 1, u32::MAX)?;
            }
            asked.push(NumberRequest { name: group.name.get_ref().clone(), number: asked_number(group.id.as_ref()) });
        }
        if router.bgp.is_none() {
            return Ok(BTreeMap::new());
        }
        let ids = allot::agreed(&asked, 1..=u32::MAX, &allot::by_name).map_err(|twice| {
            let (one, other, id) = (twice.first, &twice.second, twice.number);
            let what = format!("security groups '{one}' and '{other}' have one id, {id}");
            let drawn = twice.span.is_empty().then(|| self.names.groups.get(other).cloned()).flatten();
            self.error(drawn.unwrap_or(twice.span), what, "set 'id' of one of them")
        })?;
        Ok(ids.into_iter().collect())
    }

    /// Numbers by which route distinguishers tell a node's interfaces and networks apart.
    pub(super) fn distinguish(
        &self,
        node: &str,
        of_node: &[NumberRequest<u32>],
        settings: &mut Settings,
    ) -> Result<()> {
        if settings.router.bgp.is_none() {
            return Ok(());
        }
        let most = u32::from(u16::MAX);
        if of_node.len() > most as usize {
            let what = format!("node '{node}' has {} interfaces and networks", of_node.len());
            let span = self.names.nodes.get(node).cloned().unwrap_or_default();
            return Err(self.error(span, what, format!("with BGP {most} are the most")));
        }
        let all: Vec<NumberRequest<u32>> =
            of_node.iter().map(|one| NumberRequest { name: one.name.clone(), number: None }).collect();
        // No network asks for one, so no two do.
        for (name, number) in allot::numbers(&all, 1..=most, &allot::by_name).unwrap_or_default() {
            if let Some(network) = name.strip_prefix(OF_NETWORK) {
                settings.on_node(node, network).distinguisher = number as u16;
            } else if let Some(interface) = settings.interfaces.get_mut(&name) {
                interface.distinguisher = number as u16;
            }
        }
        Ok(())
    }
}

fn is_address(text: &str) -> bool {
    if let Some(path) = text.strip_prefix("unix:") {
        return Path::new(path).is_absolute() && !path.contains(|c: char| c.is_whitespace() || c.is_control());
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match in_brackets {
        Some(inside) => inside.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn route_targets_are_of_three_kinds() {
        for (text, assigned) in [
            ("64512:100", Assigned::TwoOctets(64512, 100)),
            ("65535:4294967295", Assigned::TwoOctets(65535, u32::MAX)),
            ("65536:65535", Assigned::FourOctets(65536, 65535)),
            ("192.0.2.1:7", Assigned::ByAddress(Ipv4Addr::new(192, 0, 2, 1), 7)),
        ] {
            assert_eq!(text.parse(), Ok(assigned));
            assert_eq!(assigned.to_string(), text);
        }
        for odd in ["", ":", "1", "0:1", "1:", ":1", "1:-1", "+1:1", "65536:65536", "192.0.2.1:65536", "1:1:1", "a:1"] {
            assert_eq!(odd.parse::<Assigned>(), Err(()), "{odd}");
        }
    }

    #[test]
    fn a_speaker_is_at_an_address_or_a_socket() {
        for good in ["127.0.0.1:50051", "[::1]:50051", "gobgp.example:1", "unix:/run/gobgpd.sock"] {
            assert!(is_address(good), "{good}");
        }
        for odd in ["", "127.0.0.1", ":50051", "a b:1", "127.0.0.1:0", "::1:", "http://a:1", "unix:run", "[a]:1"] {
            assert!(!is_address(odd), "{odd}");
        }
    }

    #[test]
    fn a_speaker_is_refused_where_netrig_was_built_without_bgp() {
        let text = "[[node]]\nname = 'a'\naddress = '192.0.2.1'\n[router.bgp]\n";
        let table = text.find("[router.bgp]").unwrap()..text.len();
        let error = unsupported(Source { file: "vrouter.toml", text }, table);
        assert_eq!((error.line, error.what.as_str()), (Some(4), "this netrig was built without BGP"));
        assert!(error.to_string().contains("cargo build --release --features bgp"), "{error}");
    }
}
