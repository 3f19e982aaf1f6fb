//! Groups of addresses that virtual servers name.

use std::net::{IpAddr, SocketAddr};

use super::Imported;
use super::tree::{Block, SourceLine};
use crate::settings::Addresses;

/// Services of one group at most, and local addresses.
const MOST: usize = 65_535;

/// What a virtual server, or a group of them, listens on.
pub(super) fn addresses(words: &[String], place: &SourceLine, imported: &mut Imported) -> Vec<SocketAddr> {
    let (Some(address), Some(port)) = (words.first(), words.get(1)) else {
        imported.note(place, format_args!("'{}' has no port", words.join(" ")));
        return Vec::new();
    };
    // 0 alone is any port.
    let ports = ports(port).filter(|ports| ports[..] == [0] || !ports.contains(&0));
    match (range(address), ports) {
        (Some(range), Some(ports)) => {
            let pairs = range.iter().flat_map(|address| ports.iter().map(|port| SocketAddr::new(*address, *port)));
            let pairs: Vec<SocketAddr> = pairs.take(MOST + 1).collect();
            if pairs.len() > MOST {
                imported.note(place, format_args!("{address} {port} are more than {MOST} services"));
                return Vec::new();
            }
            pairs
        }
        _ => {
            imported
                .note(place, format_args!("'{}' is no address with a port: names are not looked up", words.join(" ")));
            Vec::new()
        }
    }
}

fn ports(text: &str) -> Option<Vec<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    Some((first..=last).collect())
}

/// `192.0.2.1-8`, as keepalived has ranges, the end being the last part; and as the balancer has them.
fn range(text: &str) -> Option<Vec<IpAddr>> {
    let text = match text.split_once('-') {
        Some((first, last)) if last.parse::<IpAddr>().is_err() => {
            let cut = first.rfind(['.', ':'])?;
            format!("{first}-{}{last}", &first[..=cut])
        }
        _ => text.to_owned(),
    };
    Some(Addresses::parse(&text).ok()?.each(MOST).ok()?.collect())
}

/// The addresses of DPVS's `local_address_group`: each with the device that it is on.
pub(super) fn local(group: &Block, imported: &mut Imported) -> Vec<IpAddr> {
    let mut local = Vec::new();
    for line in &group.within {
        match range(line.name()) {
            Some(range) => local.extend(range),
            None => imported.note(&line.place, format_args!("'{}' is no address", line.words.join(" "))),
        }
    }
    local.sort();
    local.dedup();
    if local.len() > MOST {
        imported.note(&group.place, format_args!("more than {MOST} local addresses: the others are left out"));
        local.truncate(MOST);
    }
    local
}
