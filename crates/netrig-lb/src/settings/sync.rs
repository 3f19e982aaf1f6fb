//! How connections are shared, and addresses announced, as files say it.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use rig_cli::mistakes::FileError;
use rig_cli::source::Source;
use rig_datapath::balancer::{PortShare, Timeouts};
use rig_stats::units::Span;
use rig_sys::socket::parse_address;
use toml::Spanned;

use super::file::{BgpFile, SyncFile};
use super::ranges::{Addresses, shorten};
use super::rules::Rules;
use crate::bgp::{BgpSettings, HAS_BGP, SPEAKER};
use crate::sync::{AFTER, FULL, INTERVAL, MOST_PEERS, RATE, SyncSettings};

/// What `[sync]` says, for the parts that it is about.
#[derive(Debug, Default)]
pub(super) struct SyncSaid {
    pub(super) settings: Option<SyncSettings>,
    pub(super) ports: PortShare,
    pub(super) others_local: Vec<IpAddr>,
}

type Error<'a> = &'a dyn Fn(Range<usize>, String, &str) -> FileError;

/// `room` is for how many local addresses there is.
pub(super) fn read(source: &Source<'_>, said: Option<&Spanned<SyncFile>>, room: usize) -> Result<SyncSaid, FileError> {
    let Some(said) = said else { return Ok(SyncSaid::default()) };
    let error = |span: Range<usize>, what: String, hint: &str| source.error(span, what, Some(hint));
    let (span, said) = (said.span(), said.get_ref());
    let address = address(&said.address, &error)?;
    let mut peers = Vec::new();
    for peer in &said.peers {
        let at = self::address(peer, &error)?;
        if at.is_ipv4() != address.is_ipv4() {
            return Err(error(
                peer.span(),
                format!("{at} is of another family than {address}"),
                "give one of the same",
            ));
        }
        if at == address || peers.contains(&at) {
            let what = format!("peer {at} is this balancer itself, or listed twice");
            return Err(error(peer.span(), what, "remove it"));
        }
        peers.push(at);
    }
    if peers.is_empty() || peers.len() > MOST_PEERS {
        let what = format!("{} peers", peers.len());
        return Err(error(span, what, &format!("name 1 to {MOST_PEERS} others, as peers = [\"10.9.0.2:8849\"]")));
    }
    if !said.key.is_absolute() {
        let what = format!("the key {} is not named by its whole path", said.key.display());
        return Err(error(span, what, "write it as \"/etc/netrig/sync.key\""));
    }
    let duration = |said: &Option<Spanned<Span>>, name: &str, usual, least: Duration, most: Duration| match said {
        None => Ok(usual),
        Some(span) if (least..=most).contains(&span.get_ref().0) => Ok(span.get_ref().0),
        Some(span) => {
            let hint = format!("choose {} to {}", Span(least), Span(most));
            Err(error(span.span(), format!("'{name}' of {}", span.get_ref()), &hint))
        }
    };
    let seconds = Duration::from_secs;
    let interval = duration(&said.interval, "interval", INTERVAL, Duration::from_millis(100), seconds(60))?;
    let after = duration(&said.after, "after", AFTER, Duration::ZERO, seconds(3600))?;
    let full = duration(&said.full, "full", FULL, seconds(1), seconds(600))?;
    let rate = match &said.rate {
        Some(rate) if !(10_000..=10_000_000_000).contains(rate.get_ref()) => {
            let what = format!("a rate of {} bytes a second", rate.get_ref());
            return Err(error(rate.span(), what, "choose 10000 to 10000000000"));
        }
        rate => rate.as_ref().map_or(RATE, |rate| *rate.get_ref()),
    };
    let key = said.key.clone();
    let settings = Some(SyncSettings { address, peers, key, interval, after, full, rate });
    let mut others_local = Vec::new();
    if let Some(local) = &said.local {
        for (span, text) in local.get_ref().each(local.span()) {
            let hint = "write 198.51.100.1 or 198.51.100.1-198.51.100.50";
            let range = Addresses::parse(text).map_err(|what| error(span.clone(), what, hint))?;
            let each = range.each(room.saturating_sub(others_local.len()));
            let hint = "choose fewer, or raise [room] local_addresses, up to 65535";
            others_local.extend(each.map_err(|many| {
                error(span, format!("'{text}' has {} addresses, and there is room for {}", many.count, many.room), hint)
            })?);
        }
    }
    Ok(SyncSaid { settings, ports: ports(said.ports.as_ref(), &error)?, others_local })
}

fn address(said: &Spanned<String>, error: Error<'_>) -> Result<SocketAddr, FileError> {
    let hint = "write the balancer's own address with a port, as 10.9.0.1:8849 or [fd00::1]:8849";
    let wrong = || error(said.span(), format!("'{}' is not a balancer's address with a port", said.get_ref()), hint);
    let at = parse_address(said.get_ref()).map_err(|_| wrong())?;
    if at.port() == 0 || at.ip().is_unspecified() || at.ip().is_multicast() { Err(wrong()) } else { Ok(at) }
}

fn ports(said: Option<&Spanned<String>>, error: Error<'_>) -> Result<PortShare, FileError> {
    let Some(said) = said else { return Ok(PortShare::default()) };
    let share = said.get_ref().split_once('/').and_then(|(share, of)| {
        let (share, of) = (share.trim().parse().ok()?, of.trim().parse().ok()?);
        (1 <= share && share <= of && of <= PortShare::MOST).then_some(PortShare { share, of })
    });
    let what = format!("'{}' is not a share of local ports", said.get_ref());
    let hint =
        format!("write \"1/2\" at the first of two balancers and \"2/2\" at the second; up to {}", PortShare::MOST);
    share.ok_or_else(|| error(said.span(), what, &hint))
}

/// Passes have to be so frequent that peers hear of a connection three times before it would end there for want of packets.
///
/// # Errors
/// Which timeout is too short for them.
pub fn passes_in_time(settings: &SyncSettings, rules: &Rules) -> Result<(), String> {
    let defaults = rules.default_timeouts();
    let of_services = rules.services.iter().map(|service| service.timeouts.over(defaults));
    let each = |timeouts: Timeouts| [("established", timeouts.established), ("udp_normal", timeouts.udp_normal)];
    let mut all = std::iter::once(defaults).chain(of_services).flat_map(each);
    let Some((name, timeout)) = all.find(|(_, timeout)| settings.full * 3 > *timeout) else { return Ok(()) };
    Err(format!(
        "'full' of {} in [sync] is more than a third of the timeout '{name}', {}: connections could end at a peer while they go on here",
        Span(settings.full),
        Span(timeout)
    ))
}

/// `[bgp]`.
pub(super) fn read_bgp(source: &Source<'_>, said: Option<&Spanned<BgpFile>>) -> Result<Option<BgpSettings>, FileError> {
    let Some(said) = said else { return Ok(None) };
    if !HAS_BGP {
        let hint = "use a package, or build it with `cargo build --release --features bgp`";
        return Err(source.error(said.span(), "this netrig was built without BGP", Some(hint)));
    }
    let BgpFile { gobgp, local } = said.get_ref();
    let speaker = gobgp.clone().unwrap_or_else(|| SPEAKER.to_owned());
    let is_socket = speaker.strip_prefix("unix:").is_some_and(|path| path.starts_with('/'));
    if !is_socket && parse_address(&speaker).is_err() {
        let what = format!("'{speaker}' is not an address of a speaker's API");
        return Err(source.error(said.span(), what, Some("write 127.0.0.1:50051 or unix:/run/gobgpd.sock")));
    }
    Ok(Some(BgpSettings { speaker, local: *local }))
}

pub(super) fn bgp_entries(settings: &BgpSettings) -> Vec<(&'static str, String)> {
    let speaker = toml::Value::from(settings.speaker.as_str()).to_string();
    vec![("gobgp", speaker), ("local", settings.local.to_string())]
}

/// The table's entries in a file.
pub(super) fn entries(
    settings: &SyncSettings,
    ports: PortShare,
    others_local: &[IpAddr],
) -> Vec<(&'static str, String)> {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let list = |all: Vec<String>| format!("[{}]", all.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "));
    let span = |duration| quoted(&Span(duration).to_string());
    let mut entries = vec![
        ("address", quoted(&settings.address.to_string())),
        ("peers", list(settings.peers.iter().map(ToString::to_string).collect())),
        ("key", quoted(&settings.key.display().to_string())),
        ("interval", span(settings.interval)),
        ("after", span(settings.after)),
        ("full", span(settings.full)),
        ("rate", settings.rate.to_string()),
    ];
    if ports != PortShare::default() {
        entries.push(("ports", quoted(&format!("{}/{}", ports.share, ports.of))));
    }
    if !others_local.is_empty() {
        entries.push(("local", list(shorten(others_local))));
    }
    entries
}
