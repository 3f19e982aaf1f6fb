//! Which route of a table something takes.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::message::{RouteDestination, Table};

/// Neither a prefix nor an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an address, prefix or MAC address: write 10.1.0.11, 10.1.0.0/24, fd00::11 or 02:00:00:00:00:01")]
pub struct InvalidDestination(String);

impl FromStr for RouteDestination {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, InvalidDestination> {
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let prefix = address().or_else(|| text.parse::<IpNet>().ok()).map(|prefix| Self::Prefix(prefix.trunc()));
        let mac = || text.parse().ok().map(Self::Mac);
        prefix.or_else(mac).ok_or_else(|| InvalidDestination(text.to_owned()))
    }
}

impl TryFrom<String> for RouteDestination {
    type Error = InvalidDestination;

    fn try_from(text: String) -> Result<Self, InvalidDestination> {
        text.parse()
    }
}

impl From<RouteDestination> for String {
    fn from(wanted: RouteDestination) -> Self {
        wanted.to_string()
    }
}

impl fmt::Display for RouteDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Mac(mac) => mac.fmt(f),
        }
    }
}

/// The table with the one route that `to` takes: the longest prefix that has all of it, or the MAC address itself.
pub fn narrowed(table: Table, to: RouteDestination) -> Option<Table> {
    let (routes, macs) = match to {
        RouteDestination::Prefix(wanted) => {
            let takes = table.routes.into_iter().filter(|route| route.prefix.contains(&wanted));
            (vec![takes.max_by_key(|route| route.prefix.prefix_len())?], Vec::new())
        }
        RouteDestination::Mac(wanted) => {
            let wanted = wanted.to_string();
            (Vec::new(), vec![table.macs.into_iter().find(|entry| entry.mac == wanted)?])
        }
    };
    Some(Table { routes, macs, ..table })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::message::{LabeledNextHop, MacEntry, RouteEntry};

    fn table() -> Table {
        let route = |prefix: &str, next_hop| RouteEntry {
            prefix: prefix.parse().unwrap(),
            via: LabeledNextHop { next_hop, label: 0 },
            mac: None,
        };
        Table {
            vrf: 1,
            network: "red".to_owned(),
            routes: vec![
                route("0.0.0.0/0", 1),
                route("10.1.0.0/16", 2),
                route("10.1.0.0/24", 3),
                route("10.1.0.11/32", 4),
                route("fd00::/64", 5),
            ],
            macs: vec![MacEntry {
                mac: "02:00:00:00:00:0b".to_owned(),
                via: LabeledNextHop { next_hop: 6, label: 4242 },
            }],
        }
    }

    #[test]
    fn the_longest_prefix_that_has_all_of_it_is_taken() {
        for (wanted, next_hop) in [
            ("10.1.0.11", Some(4)),
            ("10.1.0.12", Some(3)),
            ("10.1.0.0/24", Some(3)),
            ("10.1.0.9/23", Some(2)),
            ("192.0.2.1", Some(1)),
            ("fd00::11", Some(5)),
            ("fd00:1::11", None),
            ("02:00:00:00:00:0B", Some(6)),
            ("02:00:00:00:00:0c", None),
        ] {
            let found = narrowed(table(), wanted.parse().unwrap());
            let ways = found.iter().flat_map(|table| {
                let routes = table.routes.iter().map(|route| route.via.next_hop);
                routes.chain(table.macs.iter().map(|entry| entry.via.next_hop))
            });
            assert_eq!(ways.collect::<Vec<_>>(), next_hop.into_iter().collect::<Vec<_>>(), "{wanted}");
        }
    }

    #[test]
    fn what_is_wanted_is_read_as_it_is_written() {
        for (text, written) in [
            ("10.1.0.11", "10.1.0.11/32"),
            ("10.1.0.11/24", "10.1.0.0/24"),
            ("fd00::1", "fd00::1/128"),
            ("02:00:00:00:00:0B", "02:00:00:00:00:0b"),
        ] {
            let wanted: RouteDestination = text.parse().unwrap();
            assert_eq!(wanted.to_string(), written);
            let told = serde_json::to_string(&wanted).unwrap();
            assert_eq!(serde_json::from_str::<RouteDestination>(&told).unwrap(), wanted);
        }
        for text in ["", "10.1.0", "10.1.0.11/33", "02:00:00:00:00", "02:00:00:00:00:0b:01", "2:0:0:0:0:b"] {
            let error = text.parse::<RouteDestination>().unwrap_err();
            assert!(error.to_string().contains("write 10.1.0.11"), "{error}");
        }
    }
}
