//! Lines of ipvsadm, as `ipvsadm-save` writes them.

use std::collections::HashSet;

use rig_datapath::balancer::Scheduler;

use super::{Imported, LineNumber};
use crate::ipvs::Forwarding;
use crate::ipvsadm::rules;
use crate::message::{ForwardingMethod, RuleChange};
use crate::names::NameResolution;
use crate::settings::{ONE_PACKET_SCHEDULER, SCHEDULERS, ServiceText, scheduler, scheduler_name};

/// Options of ipvsadm that the balancer does not have: how many words each takes at most, and what to say.
const OTHERS: [(&str, &[&str], bool, &str); 2] = [
    ("--pe", &[], true, "no persistence engines"),
    ("--tun-remcsum", &[], false, "no remote checksum offload: the tunnel is without a checksum"),
];

/// What stands for a scheduler that the balancer does not have.
pub(super) fn instead_of(scheduler: &str) -> (&'static str, &'static str) {
    match scheduler {
        "dh" | "lblc" | "lblcr" => ("mh", "there is no choice by destination; mh is consistent by client and port"),
        "fo" => {
            ("wrr", "there is no fail-over by weight: keep one backend, and add the others as sorry servers of a check")
        }
        "ovf" => ("wlc", "there is no overflow by weight; give backends a limit"),
        "conhash" => ("sh", "sh is consistent by the client's address"),
        _ => ("wlc", "wlc is the default"),
    }
}

/// What of a service with one-packet scheduling is another one here.
pub(super) const ONCE_SCHEDULER: &str = "wrr stands here: with one-packet scheduling there are no connections to count";
pub(super) const ONCE_FULL_NAT: &str = "one-packet scheduling is left out: full-nat needs a connection to know whom an answer is for; nat, route and tunnel do not";
pub(super) const ONCE_LIMIT: &str =
    "left out: with one-packet scheduling there are no connections that a limit could be of";

pub(super) fn read(text: &str, forwarding: &Forwarding, resolution: NameResolution) -> Imported {
    let mut imported = Imported::default();
    for (at, line) in text.lines().enumerate() {
        let place = LineNumber(at + 1);
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        if let Some(mark) = words.iter().find(|word| *word == "-f" || word.starts_with("--fwmark-service")) {
            imported.note(place, format_args!("{mark}: no services by firewall marks; name addresses and ports, in one persistence_group if it persists"));
            continue;
        }
        leave_out_others(&mut words, place, &mut imported);
        let said = match rules::parse(&words.join(" "), resolution) {
            Ok(said) => said,
            Err(error) => {
                imported.note(place, format_args!("'{}' is left out: {}", line.trim(), error.reason()));
                continue;
            }
        };
        for edit in said.edits {
            let edit = once(forwarded(edit, forwarding), place, &mut imported);
            if let Err(error) = imported.rules.edit(&edit) {
                imported.note(place, format_args!("'{}' is left out: {error}", line.trim()));
            }
        }
    }
    leave_out_incomplete(&mut imported);
    imported
}

fn leave_out_others(words: &mut Vec<String>, place: LineNumber, imported: &mut Imported) {
    let of_service = words.iter().any(|word| matches!(word.as_str(), "-A" | "-E" | "--add-service" | "--edit-service"));
    let of_tcp = words.iter().any(|word| word.starts_with("-t") || word.starts_with("--tcp-service"));
    let mut kept = Vec::new();
    let mut left = std::mem::take(words).into_iter().peekable();
    while let Some(word) = left.next() {
        let name = word.split('=').next().unwrap_or_default().to_owned();
        let known = OTHERS.iter().find(|(short, long, ..)| *short == name || long.contains(&name.as_str()));
        if let Some((_, _, takes, what)) = known {
            let value = left.next_if(|next| *takes && !next.starts_with('-') && !word.contains('='));
            let said = value.map_or(word.clone(), |value| format!("{word} {value}"));
            imported.note(place, format_args!("{said}: {what}"));
        } else if of_service && (name == "-b" || name == "--sched-flags") {
            let value = if word.contains('=') { None } else { left.next() };
            let flags = value.unwrap_or_else(|| word.clone());
            // What mh does here; and a backend without weight or at its limit is passed over anyway.
            let others = flags
                .split([',', '='])
                .filter(|flag| !matches!(*flag, "mh-port" | "mh-fallback" | "sh-fallback" | "--sched-flags"));
            for flag in others {
                imported.note(
                    place,
                    format_args!("{flag}: not there; mh is by the client's address and port, sh by its address"),
                );
            }
        } else if of_tcp && matches!(name.as_str(), "-o" | "--ops") {
            imported.note(place, format_args!("{word}: one-packet scheduling is for UDP"));
        } else if name == "-s" || name == "--scheduler" {
            let value =
                word.split_once('=').map(|(_, value)| value.to_owned()).or_else(|| left.next()).unwrap_or_default();
            kept.push("-s".to_owned());
            kept.push(known_scheduler(&value, place, imported));
        } else {
            kept.push(word);
        }
    }
    *words = kept;
}

pub(super) fn known_scheduler(name: &str, place: impl std::fmt::Display, imported: &mut Imported) -> String {
    if SCHEDULERS.iter().any(|(known, _)| *known == name) {
        return name.to_owned();
    }
    let (instead, why) = instead_of(name);
    imported.note(place, format_args!("scheduler {name}: {instead} stands here; {why}"));
    instead.to_owned()
}

/// With -m as it is forwarded here, and local addresses where they are needed.
fn forwarded(edit: RuleChange, forwarding: &Forwarding) -> RuleChange {
    match edit {
        RuleChange::AddBackend { service, backend, mut options } => {
            if options.forward == Some(ForwardingMethod::Nat) {
                options.forward = Some(forwarding.masquerade);
            }
            options.local = forwarding.local_for(backend.ip());
            RuleChange::AddBackend { service, backend, options }
        }
        other => other,
    }
}

/// One-packet scheduling as it can be here: with another scheduler in place of one that counts connections, and without limits; or not at all.
fn once(mut edit: RuleChange, place: LineNumber, imported: &mut Imported) -> RuleChange {
    match &mut edit {
        RuleChange::AddService { options, .. } if options.one_packet == Some(true) => {
            // ipvsadm's own default is wlc.
            let name = options.scheduler.get_or_insert_with(|| "wlc".to_owned());
            if scheduler(name).is_some_and(Scheduler::counts_connections) {
                imported.note(place, format_args!("scheduler {name}: {ONCE_SCHEDULER}"));
                *name = scheduler_name(ONE_PACKET_SCHEDULER).to_owned();
            }
        }
        RuleChange::AddBackend { service, options, .. } => {
            let service = imported.rules.services.iter_mut().find(|known| known.key == *service);
            let Some(service) = service.filter(|service| service.one_packet) else { return edit };
            if options.forward == Some(ForwardingMethod::FullNat) {
                service.one_packet = false;
                imported.note(place, format_args!("-o: {ONCE_FULL_NAT}"));
            } else if options.limit.is_some() || options.lower_limit.is_some() {
                (options.limit, options.lower_limit) = (None, None);
                imported.note(place, format_args!("-x, -y: {ONCE_LIMIT}"));
            }
        }
        _ => {}
    }
    edit
}

/// A backend's answers are of one service that has no connections for them.
fn unshare(imported: &mut Imported) {
    let mut known = HashSet::new();
    for service in &mut imported.rules.services {
        let comes_back = service.one_packet && service.forward == Some(ForwardingMethod::Nat);
        let backends = || service.backends.iter().map(|backend| backend.address);
        match comes_back && backends().any(|backend| known.contains(&backend)) {
            true => {
                service.one_packet = false;
                imported.notes.push(format!("{}: {ONCE_SHARED}", ServiceText(service.key)));
            }
            false => known.extend(backends().filter(|_| comes_back)),
        }
    }
}

const ONCE_SHARED: &str = "one-packet scheduling is left out: another service has it with nat and one of its backends, \
     whose answers would be either one's";

/// A file has no services that are not in force.
pub(super) fn leave_out_incomplete(imported: &mut Imported) {
    unshare(imported);
    let services = std::mem::take(&mut imported.rules.services);
    for service in services {
        let lacks = match service.lacks() {
            Some(lacks) if lacks.starts_with("a local address") => {
                Some("FullNAT and tunnels need local addresses: add --local ADDRESS-ADDRESS")
            }
            Some(_) if service.forward.is_none() => None,
            other => other,
        };
        match lacks {
            Some(lacks) => {
                imported.note(crate::settings::ServiceText(service.key), format_args!("is left out: {lacks}"));
            }
            None => imported.rules.services.push(service),
        }
    }
}
