//! All rules as lines of ipvsadm, and back: what `-S` writes and `-R` reads.

use std::collections::BTreeSet;

use super::{Command, Line, UsageError};
use crate::listing::{self, order};
use crate::message::{ForwardingMethod, Protocol, RuleChange, ServiceEntry, Status, Tunnel};
use crate::names::{NameResolution, Names};

/// The services, their local addresses and backends; without those that were removed.
pub fn save(status: &Status, mut names: Names) -> String {
    let mut services: Vec<&ServiceEntry> = status.services.iter().filter(|service| service.open).collect();
    services.sort_by_key(|service| order(service.key));
    services.into_iter().map(|service| lines_of(service, &mut names)).collect()
}

fn lines_of(service: &ServiceEntry, names: &mut Names) -> String {
    let backends = service.backends.iter().filter(|backend| !backend.leaving);
    names.learn(backends.clone().map(|backend| backend.address.ip()).chain([service.key.address.ip()]));
    let protocol = service.key.protocol;
    let option = match protocol {
        Protocol::Tcp => "-t",
        Protocol::Udp => "-u",
    };
    let key = format!("{option} {}", names.write(protocol, service.key.address));
    let mut lines = format!("-A {key} -s {}", service.scheduler);
    if let Some(timeout) = service.timeout {
        lines += &format!(" --conn-timeout {timeout}");
    }
    if let Some(limit) = service.limit_said {
        lines += &format!(" --limit {limit}");
    }
    if !matches!(service.expire.as_str(), "" | "never") {
        lines += &format!(" --expire {}", service.expire);
    }
    if service.sloppy_tcp {
        lines += " --sloppy-tcp on";
    }
    if service.one_packet {
        lines += " -o";
    }
    if !matches!(service.dscp.as_str(), "" | "keep") {
        lines += &format!(" --dscp {}", service.dscp);
    }
    if let Some(ids) = &service.quic {
        lines += &format!(" --quic {ids}");
    }
    if !matches!(service.reuse.as_str(), "" | "reschedule") {
        lines += &format!(" --reuse {}", service.reuse);
    }
    if let Some(said) = &service.syn_proxy_said {
        lines += &format!(" --synproxy {said}");
    }
    for (key, value) in service.limits.said() {
        lines += &format!(" --{} {value}", key.replace('_', "-"));
    }
    if let Some(seconds) = service.persistence.timeout {
        lines +=
            &format!(" -p {seconds}{}", listing::mask(service).map(|mask| format!(" -M {mask}")).unwrap_or_default());
    }
    if let Some(prefix) = &service.tunnel_source {
        lines += &format!(" --tunnel-source {prefix}");
    }
    if let Some(group) = service.persistence.group {
        lines += &format!(" --persistence-group {group}");
    }
    lines.push('\n');
    for local in &service.local {
        lines += &format!("-P {key} -z {local}\n");
    }
    let forward = match service.forward {
        ForwardingMethod::FullNat => "-b",
        ForwardingMethod::Nat => "-m",
        ForwardingMethod::Route => "-g",
        ForwardingMethod::Tunnel => "-i",
    };
    for backend in backends {
        let server = names.write(protocol, backend.address);
        lines += &format!("-a {key} -r {server} {forward} -w {}", backend.weight);
        if let Some(limit) = backend.limit {
            lines += &format!(" -x {limit}");
        }
        if let Some(lower) = backend.lower_limit {
            lines += &format!(" -y {lower}");
        }
        match backend.tunnel {
            None | Some(Tunnel::Ipip) => {}
            Some(Tunnel::Gue { port, checksum }) => {
                let sum = if checksum { "--tun-csum" } else { "--tun-nocsum" };
                lines += &format!(" --tun-type gue --tun-port {port} {sum}");
            }
            Some(Tunnel::Gre) => lines += " --tun-type gre --tun-nocsum",
        }
        if let Some(id) = backend.quic_id {
            lines += &format!(" --quic-id {id}");
        }
        lines.push('\n');
    }
    lines
}

/// What `-R` reads.
#[derive(Debug, Default, PartialEq)]
pub struct Rules {
    pub edits: Vec<RuleChange>,
    /// Where each of them was read, counted from 1.
    pub lines: Vec<usize>,
    /// Those that lines name by `-F`.
    pub devices: BTreeSet<String>,
}

/// Why a line is no rule.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("standard input, line {line}: {error}")]
pub struct RuleError {
    line: usize,
    error: NotARule,
}

impl RuleError {
    /// Without the line.
    pub fn reason(&self) -> impl std::fmt::Display {
        &self.error
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NotARule {
    #[error(transparent)]
    Usage(UsageError),
    #[error("'{0}' changes no rule: a line is one of -A -E -D -a -e -d -P -Q -C --set, without --name")]
    Other(String),
}

/// A rule on each line, which may begin with the program's name; empty lines and those that begin with `#` are none. Names are looked
/// up in `resolution`.
pub fn parse(text: &str, resolution: NameResolution) -> Result<Rules, RuleError> {
    let mut rules = Rules::default();
    for (at, line) in text.lines().enumerate() {
        let error = |error| RuleError { line: at + 1, error };
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let words = without_program(&words);
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        match Line::parse_by(words, resolution).map_err(NotARule::Usage).map_err(error)? {
            Line { name: None, command: Command::Edit { edit, device } } => {
                rules.edits.push(edit);
                rules.lines.push(at + 1);
                rules.devices.extend(device);
            }
            _ => return Err(error(NotARule::Other(line.trim().to_owned()))),
        }
    }
    Ok(rules)
}

fn without_program(words: &[String]) -> &[String] {
    let name = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
    match words {
        [first, rest @ ..] if name(first) == "ipvsadm" => rest,
        [first, second, rest @ ..] if name(first) == "netrig" && second == "lb" => rest,
        words => words,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
