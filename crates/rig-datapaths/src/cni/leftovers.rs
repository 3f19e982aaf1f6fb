//! What plug-ins have left on a node: interfaces, addresses, routes, rules of its firewall, and files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rig_sys::netlink::Netlink;

use crate::node;

/// A node as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    lines: Lines,
    /// What could not be read, in words.
    unread: Vec<String>,
}

/// A line for each thing that there is, and how often: two rules may be the same.
type Lines = BTreeMap<String, usize>;

fn note(lines: &mut Lines, line: String) {
    *lines.entry(line).or_default() += 1;
}

/// What tells rules, each with arguments after which nothing of it changes with the packets that have passed.
const RULES: [(&str, &[&str]); 4] = [
    (SAVE_V4, &[]),
    (SAVE_V6, &[]),
    // After those that tell tables of iptables, which it lists too.
    ("nft", &["--stateless", "list", "ruleset"]),
    ("ipset", &["list", "-terse"]),
];
const SAVE_V4: &str = "iptables-save";
const SAVE_V6: &str = "ip6tables-save";

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
        let (mut lines, mut unread) = (Lines::new(), Vec::new());
        let netlink = Netlink::here()?;
        for link in netlink.links()? {
            note(&mut lines, format!("interface {}", link.name));
        }
        for address in netlink.addresses()? {
            if let (Some(own), Ok(link)) = (address.address(), netlink.link_at(address.interface())) {
                note(&mut lines, format!("address {own}/{} of {}", address.prefix(), link.name));
            }
        }
        for route in netlink.routes()? {
            let (to, prefix) = route.destination();
            let to = to.map_or_else(|| "default".to_owned(), |to| format!("{to}/{prefix}"));
            let via = route.gateway().map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            note(&mut lines, format!("route {to}{via}, table {}", route.table()));
        }
        let mut told = Vec::new();
        for (program, arguments) in RULES {
            match node::output(program, arguments, "") {
                Ok(text) => {
                    for rule in rules(program, &text).filter(|rule| !is_told_twice(rule, &told)) {
                        note(&mut lines, rule.line());
                    }
                    told.extend(tables_of_iptables(program, &text));
                }
                // One that is not there has made no rules.
                Err(error) if is_absent(&error) => {}
                Err(error) => unread.push(format!("{error:#}")),
            }
        }
        for folder in FOLDERS {
            files(Path::new(folder), &mut lines);
        }
        Ok(Self { lines, unread })
    }

    /// What could not be read, so that nothing is known of what is left there.
    pub(super) fn unread(&self) -> &[String] {
        &self.unread
    }

    /// The node as it is now, what has come since, and what has gone, in words; nothing where all is as it was. What is on its way out is waited for.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(super) fn changes(&self) -> Result<(Self, Vec<String>)> {
        let begun = Instant::now();
        loop {
            let now = Self::take()?;
            let differences = now.differences(self);
            if differences.is_empty() || begun.elapsed() > SETTLING {
                return Ok((now, differences));
            }
            thread::sleep(STEP);
        }
    }

    /// What has come since `earlier`, and what has gone, in words; nothing where all is as it was.
    fn differences(&self, earlier: &Self) -> Vec<String> {
        more("left", &self.lines, &earlier.lines).chain(more("gone", &earlier.lines, &self.lines)).collect()
    }
}

/// What there is more often in one than in the other, in words.
fn more<'l>(what: &'l str, one: &'l Lines, other: &'l Lines) -> impl Iterator<Item = String> + 'l {
    one.iter().filter_map(move |(line, count)| match count - count.min(other.get(line).unwrap_or(&0)) {
        0 => None,
        1 => Some(format!("{what}: {line}")),
        times => Some(format!("{what}, {times} times: {line}")),
    })
}

/// Whether a program could not be run since there is none.
fn is_absent(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A line of a listing.
#[derive(Debug)]
struct Rule<'t> {
    program: &'t str,
    table: &'t str,
    /// The chain, set or map that it is in, where the listing nests them.
    within: &'t str,
    text: &'t str,
}

impl Rule<'_> {
    fn line(&self) -> String {
        let Rule { program, table, within, text } = self;
        match within.is_empty() {
            true => format!("{program}, {table}: {text}"),
            false => format!("{program}, {table}, {within}: {text}"),
        }
    }
}

/// Tables that iptables-save has told, as nft names them: where nft's have rules that iptables does not understand, it tells none of them.
fn tables_of_iptables(program: &str, text: &str) -> Vec<String> {
    let family = match program {
        SAVE_V4 => "ip",
        SAVE_V6 => "ip6",
        _ => return Vec::new(),
    };
    text.lines().filter_map(|line| Some(format!("table {family} {}", line.strip_prefix('*')?.trim()))).collect()
}

/// Tables of iptables that nftables has, which nft lists beside iptables-save.
fn is_told_twice(rule: &Rule<'_>, told: &[String]) -> bool {
    rule.program == "nft" && told.iter().any(|table| table == rule.table)
}

/// The rules of a listing, without what counts packets and without the time of the listing.
fn rules<'t>(program: &'t str, text: &'t str) -> impl Iterator<Item = Rule<'t>> {
    let (mut table, mut within) = ("", "");
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with('*') || line.starts_with("table ") {
            (table, within) = (line.trim_end_matches(" {"), "");
        } else if ["chain ", "set ", "map ", "flowtable "].iter().any(|kind| line.starts_with(kind))
            && line.ends_with('{')
        {
            within = line.trim_end_matches(" {");
        } else if line == "}" {
            within = "";
        }
        let text = line.split(" [").next().unwrap_or(line).trim();
        let is_rule = !line.is_empty() && !line.starts_with('#') && !matches!(line, "{" | "}" | "COMMIT");
        is_rule.then_some(Rule { program, table, within, text })
    })
}

/// Files, but for those that stay open for all containers: locks, and what host-local remembers to give the next address.
fn files(folder: &Path, lines: &mut Lines) {
    let Ok(listed) = fs::read_dir(folder) else { return };
    for entry in listed.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_shared = name == "lock" || name.ends_with(".lock") || name.starts_with("last_reserved_ip");
        match entry.file_type() {
            Ok(_) if path == Path::new(NAMESPACES) => {}
            Ok(kind) if kind.is_dir() => files(&path, lines),
            Ok(_) if !is_shared => {
                note(lines, format!("file {}", path.display()));
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
        let of = |text: &str| rules(SAVE_V4, text).map(|rule| rule.line()).collect::<Vec<_>>();
        assert_eq!(of(text), of(&later));
        assert_eq!(
            of(text)[1..],
            ["iptables-save, *nat: :PREROUTING ACCEPT", "iptables-save, *nat: -A PREROUTING -j CNI"]
        );
    }

    const NFT: &str = "table ip nat {\n\tchain CNI {\n\t\tcounter packets 3 accept\n\t}\n}\ntable inet own {\n\tchain in {\n\t\taccept\n\t}\n\tchain out {\n\t\taccept\n\t}\n}\n";

    #[test]
    fn tables_of_iptables_are_told_once() {
        let told = tables_of_iptables(SAVE_V4, "# Generated\n*nat\n:PREROUTING ACCEPT [12:720]\nCOMMIT\n");
        let lines: Vec<String> =
            rules("nft", NFT).filter(|rule| !is_told_twice(rule, &told)).map(|rule| rule.line()).collect();
        assert_eq!(
            lines,
            [
                "nft, table inet own: table inet own {",
                "nft, table inet own, chain in: chain in {",
                "nft, table inet own, chain in: accept",
                "nft, table inet own, chain out: chain out {",
                "nft, table inet own, chain out: accept",
            ]
        );
    }

    #[test]
    fn tables_that_iptables_has_not_told_are_told_by_nft() {
        let told = tables_of_iptables(SAVE_V6, "*nat\nCOMMIT\n");
        let lines: Vec<String> =
            rules("nft", NFT).filter(|rule| !is_told_twice(rule, &told)).map(|rule| rule.line()).collect();
        assert!(lines.contains(&"nft, table ip nat, chain CNI: counter packets 3 accept".to_owned()), "{lines:?}");
    }

    fn inventory(lines: &[&str]) -> Inventory {
        let mut all = Lines::new();
        lines.iter().for_each(|line| note(&mut all, (*line).to_owned()));
        Inventory { lines: all, ..Inventory::default() }
    }

    #[test]
    fn what_came_and_what_went_is_told() {
        let of = inventory;
        let differences = of(&["interface a", "interface b"]).differences(&of(&["interface a", "route x"]));
        assert_eq!(differences, ["left: interface b", "gone: route x"]);
    }

    #[test]
    fn a_rule_that_is_there_once_more_is_left() {
        let of = inventory;
        assert_eq!(of(&["accept", "accept"]).differences(&of(&["accept"])), ["left: accept"]);
        assert_eq!(of(&["accept"; 3]).differences(&of(&["accept"])), ["left, 2 times: accept"]);
        assert_eq!(of(&["accept"]).differences(&of(&["accept"])), [""; 0]);
    }

    #[test]
    fn a_program_that_is_not_there_is_known_from_one_that_fails() {
        assert!(is_absent(&node::output("no-such-lister", &[], "").unwrap_err()));
        assert!(!is_absent(&node::output("false", &[], "").unwrap_err()));
    }
}
