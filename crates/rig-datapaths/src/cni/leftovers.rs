//! What plug-ins have left on a node: interfaces, addresses, routes, rules of its firewall, and files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rig_sys::netlink::Netlink;

use crate::node;

/// A node as it is now, a line for each thing that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inventory(BTreeSet<String>);

/// What tells rules, each with arguments after which nothing of it changes with the packets that have passed.
const RULES: [(&str, &[&str]); 4] = [
    ("nft", &["--stateless", "list", "ruleset"]),
    ("iptables-save", &[]),
    ("ip6tables-save", &[]),
    ("ipset", &["list", "-terse"]),
];

/// Folders with what plug-ins keep.
const FOLDERS: [&str; 3] = ["/var/lib/cni", "/etc/cni", "/run"];
/// Where the agent has namespaces, which are not the plug-ins'.
const NAMESPACES: &str = "/run/netns";
/// How long what has no namespace any more may take to go: the kernel takes it down in the background.
const SETTLING: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(20);

impl Inventory {
    /// # Errors
    /// When the kernel does not tell.
    pub(super) fn take() -> Result<Self> {
        let mut lines = BTreeSet::new();
        let netlink = Netlink::here()?;
        for link in netlink.links()? {
            lines.insert(format!("interface {}", link.name));
        }
        for address in netlink.addresses()? {
            if let (Some(own), Ok(link)) = (address.address(), netlink.link_at(address.interface())) {
                lines.insert(format!("address {own}/{} of {}", address.prefix(), link.name));
            }
        }
        for route in netlink.routes()? {
            let (to, prefix) = route.destination();
            let to = to.map_or_else(|| "default".to_owned(), |to| format!("{to}/{prefix}"));
            let via = route.gateway().map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            lines.insert(format!("route {to}{via}, table {}", route.table()));
        }
        for (program, arguments) in RULES {
            // One that is not there has made no rules.
            let Ok(text) = node::output(program, arguments, "") else { continue };
            lines.extend(rules(program, &text).filter(|line| !is_told_twice(line)));
        }
        for folder in FOLDERS {
            files(Path::new(folder), &mut lines);
        }
        Ok(Self(lines))
    }

    /// What has come since, and what has gone, in words; nothing where all is as it was. What is on its way out is waited for.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(super) fn changes(&self) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let differences = Self::take()?.differences(self);
            if differences.is_empty() || begun.elapsed() > SETTLING {
                return Ok(differences);
            }
            thread::sleep(STEP);
        }
    }

    /// What has come since `earlier`, and what has gone, in words; nothing where all is as it was.
    fn differences(&self, earlier: &Self) -> Vec<String> {
        let come = self.0.difference(&earlier.0).map(|line| format!("left: {line}"));
        let gone = earlier.0.difference(&self.0).map(|line| format!("gone: {line}"));
        come.chain(gone).collect()
    }
}

/// Tables of iptables that nftables has, which nft lists beside iptables-save.
fn is_told_twice(line: &str) -> bool {
    let table = line.strip_prefix("nft, table ").and_then(|rest| rest.split(':').next()).unwrap_or_default();
    let (family, name) = table.split_once(' ').unwrap_or_default();
    matches!(family, "ip" | "ip6") && matches!(name, "filter" | "nat" | "mangle" | "raw" | "security")
}

/// The rules of a listing, without what counts packets and without the time of the listing.
fn rules<'t>(program: &'t str, text: &'t str) -> impl Iterator<Item = String> + 't {
    let mut table = "";
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with('*') || line.starts_with("table ") {
            table = line.trim_end_matches(" {");
        }
        let without_counters = line.split(" [").next().unwrap_or(line).trim();
        let is_rule = !line.is_empty() && !line.starts_with('#') && !matches!(line, "{" | "}" | "COMMIT");
        is_rule.then(|| format!("{program}, {table}: {without_counters}"))
    })
}

/// Files, but for those that stay open for all containers: locks, and what host-local remembers to give the next address.
fn files(folder: &Path, lines: &mut BTreeSet<String>) {
    let Ok(listed) = fs::read_dir(folder) else { return };
    for entry in listed.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_shared = name == "lock" || name.ends_with(".lock") || name.starts_with("last_reserved_ip");
        match entry.file_type() {
            Ok(_) if path == Path::new(NAMESPACES) => {}
            Ok(kind) if kind.is_dir() => files(&path, lines),
            Ok(_) if !is_shared => {
                lines.insert(format!("file {}", path.display()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_known_by_their_table_and_not_by_what_they_counted() {
        let text =
            "# Generated by iptables-save on Mon\n*nat\n:PREROUTING ACCEPT [12:720]\n-A PREROUTING -j CNI\nCOMMIT\n";
        let later = text.replace("12:720", "13:780").replace("Mon", "Tue");
        let of = |text: &str| rules("iptables-save", text).collect::<Vec<_>>();
        assert_eq!(of(text), of(&later));
        assert_eq!(
            of(text)[1..],
            ["iptables-save, *nat: :PREROUTING ACCEPT", "iptables-save, *nat: -A PREROUTING -j CNI"]
        );
    }

    #[test]
    fn tables_of_iptables_are_told_once() {
        let text = "table ip nat {\n\tchain CNI {\n\t\tcounter packets 3 accept\n\t}\n}\ntable inet own {\n\tchain in {\n\t}\n}\n";
        let told: Vec<String> = rules("nft", text).filter(|line| !is_told_twice(line)).collect();
        assert_eq!(told, ["nft, table inet own: table inet own {", "nft, table inet own: chain in {"]);
    }

    #[test]
    fn what_came_and_what_went_is_told() {
        let of = |lines: &[&str]| Inventory(lines.iter().map(ToString::to_string).collect());
        let differences = of(&["interface a", "interface b"]).differences(&of(&["interface a", "route x"]));
        assert_eq!(differences, ["left: interface b", "gone: route x"]);
    }
}
