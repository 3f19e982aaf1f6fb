//! What `netrig spread` prints, of at most 80 columns but for reasons, which are whole sentences.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rig_cli::words::{ago, percent, short};
use rig_stats::units::counted;
use rig_sys::counters::NamespaceCounters;

use crate::actuator::{PossibleActuator, ProbeReport};
use crate::message::{Interface, LogEntry, LogEvent, PastQueues, Status};
use crate::settings::Settings;

/// Writing into a string does not fail.
macro_rules! line {
    ($to:expr, $($format:tt)*) => {{ let _ = writeln!($to, $($format)*); }};
}

/// What each interface receives, by CPU and by entry.
pub(crate) fn show(status: &Status) -> String {
    let mut text = String::new();
    for interface in &status.interfaces {
        of_interface(&mut text, interface);
    }
    waiting(&mut text, status);
    let own = status.own;
    line!(text, "spreader: {} % of a CPU, longest look {} µs", percent(own.share), own.longest_look_ns / 1000);
    text
}

fn of_interface(text: &mut String, interface: &Interface) {
    let Interface { name, actuator, effective, situation, base, received, moves, .. } = interface;
    let used = interface.cpus.iter().filter(|cpu| cpu.packets_per_s > 0.0).count();
    let entries = interface.entries.len();
    line!(
        text,
        "{name}: {}, {situation}, {} by {actuator}, {} in use, base CPU {base}",
        effective.mode,
        counted(entries as u64, "entry", "entries"),
        counted(used as u64, "CPU", "CPUs")
    );
    if interface.in_place {
        line!(text, "  polled in place, by the CPUs that packets reach first, without threads");
    }
    let total: u64 = moves.total.values().sum();
    line!(
        text,
        "  {} bit/s, {} packets/s, {} dropped/s; {}, {} undone, {} refused",
        short(received.bits_per_s),
        short(received.packets_per_s),
        short(received.dropped_per_s),
        counted(total, "move", "moves"),
        moves.undone,
        moves.failed
    );
    if let Some(PastQueues { packets_per_s, why }) = &interface.past_queues {
        line!(text, "  {} packets/s come past its receive queues: {why}", short(*packets_per_s));
    }
    if let Some(hurried) = moves.hurried.filter(|hurried| *hurried > 0) {
        line!(
            text,
            "  {} did not wait for the old CPU: packets may be out of order",
            counted(hurried, "move", "moves")
        );
    }
    for standing in interface.differences.iter().filter(|standing| !standing.difference.is_of_default()) {
        line!(text, "  {}", standing.difference);
    }
    line!(text, "  CPU   entries  packets/s  distributing %  processing %  other %");
    for cpu in &interface.cpus {
        let mark = if cpu.base { "*" } else { " " };
        line!(
            text,
            "  {:>3}{mark}  {:>7}  {:>9}  {:>14}  {:>12}  {:>7}",
            cpu.cpu,
            cpu.entries,
            short(cpu.packets_per_s),
            percent(cpu.distributing),
            percent(cpu.processing),
            percent(cpu.other)
        );
    }
    line!(text, "  entry  CPU  packets/s  ns/packet  moves  last move");
    for entry in &interface.entries {
        let cost = entry.cost_ns_per_packet.map_or("-".to_owned(), |cost| format!("{cost:.0}"));
        let last = match (entry.last_move_ms, entry.last_why) {
            (Some(ms), Some(why)) => format!("{why}, {} ago", ago(ms)),
            _ => "-".to_owned(),
        };
        line!(
            text,
            "  {:>5}  {:>3}  {:>9}  {:>9}  {:>5}  {last}",
            entry.entry,
            entry.receive_processor,
            short(entry.packets_per_s),
            cost,
            entry.moves
        );
    }
}

fn waiting(text: &mut String, status: &Status) {
    for waiting in &status.waiting {
        match &waiting.why {
            Some(why) => line!(text, "{}: not taken: {why}", waiting.interface),
            None => line!(text, "{}: not taken", waiting.interface),
        }
        for lack in &waiting.lacks {
            line!(text, "  {}: {}", lack.kind, lack.why);
        }
    }
}

/// Settings as requested and in force.
pub(crate) fn settings(status: &Status) -> String {
    let mut text = String::new();
    for interface in &status.interfaces {
        let (requested, effective) = (&interface.requested, &interface.effective);
        let list = |cpus: &[u32]| rig_sys::cpu::CpuSet::new(cpus.iter().copied()).to_string();
        let rows = [
            ("mode", "VrssQueueSchedulingMode", requested.mode.to_string(), effective.mode.to_string()),
            (
                "max_queue_pairs",
                "VrssMaxQueuePairs",
                requested.max_queue_pairs.to_string(),
                effective.max_queue_pairs.to_string(),
            ),
            (
                "min_queue_pairs",
                "VrssMinQueuePairs",
                requested.min_queue_pairs.to_string(),
                effective.min_queue_pairs.to_string(),
            ),
            (
                "exclude_primary",
                "VrssExcludePrimaryProcessor",
                requested.exclude_primary.to_string(),
                effective.exclude_primary.to_string(),
            ),
            (
                "independent_host_spreading",
                "VrssIndependentHostSpreading",
                requested.independent_host_spreading.to_string(),
                effective.independent_host_spreading.to_string(),
            ),
            (
                "base",
                "BaseProcessorNumber",
                requested.base.map_or("any".to_owned(), |base| base.to_string()),
                effective.base.to_string(),
            ),
            ("cpus", "", requested.cpus.as_ref().map_or("any".to_owned(), |cpus| list(cpus)), list(&effective.cpus)),
        ];
        line!(text, "{} by {}: {}", interface.name, interface.actuator, interface.actuator.told());
        line!(text, "  {:<27}{:<30}{:<13}in force", "setting", "Windows' name", "requested");
        for (ours, windows, requested, effective) in rows {
            line!(text, "  {ours:<27}{windows:<30}{requested:<13}{effective}");
        }
        for standing in &interface.differences {
            let since = Duration::from_millis(status.uptime_ms).saturating_sub(standing.since);
            line!(text, "  {} (for {})", standing.difference, ago(since.as_millis() as u64));
        }
        for lack in &interface.lacks {
            line!(text, "  not by {}: {}", lack.kind, lack.why);
        }
    }
    waiting(&mut text, status);
    text
}

/// What could move an interface's receive work, and why the rest could not.
pub(crate) fn probed(probed: &ProbeReport) -> String {
    let mut text = String::new();
    line!(text, "{}:", probed.interface);
    for prospect in &probed.prospects {
        let PossibleActuator { kind, entries, told, preferred, .. } = prospect;
        let entries = match entries {
            0 => String::new(),
            1 => "1 entry, all to one CPU at a time; ".to_owned(),
            more => format!("{more} entries; "),
        };
        let named = if *preferred { "" } else { " (when it is named)" };
        line!(text, "  {kind}{named}: {entries}{told}");
    }
    for lack in &probed.lacks {
        line!(text, "  not {}: {}", lack.kind, lack.why);
    }
    if let Some(why) = &probed.past_queues {
        line!(text, "  packets with segmentation may come past its receive queues: {why}");
    }
    text
}

/// A line for each interface.
pub(crate) fn bases(status: &Status) -> String {
    let mut text = String::new();
    for interface in &status.interfaces {
        let first = match interface.received_by {
            Some(first) if first != interface.base => format!(", packets come to CPU {first} first"),
            Some(_) => ", where packets come first".to_owned(),
            None => String::new(),
        };
        line!(text, "{}: CPU {}{first}", interface.name, interface.base);
    }
    text
}

/// A line of the log: UTC.
pub(crate) fn event(logged: &LogEntry) -> String {
    let seconds = logged.unix_ms / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let at = format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, logged.unix_ms % 1000);
    let words = match &logged.what {
        LogEvent::Moved(moved) => {
            let what = moved.entry.map_or("base".to_owned(), |entry| format!("entry {entry}"));
            let paid = if moved.paid { "" } else { ", idle" };
            format!(
                "{what} from CPU {} to {}: {}{paid}; {:.0} % of CPU {} predicted",
                moved.from,
                moved.to,
                moved.why,
                moved.predicted * 100.0,
                moved.to
            )
        }
        LogEvent::Event(event) => event.to_string(),
        LogEvent::Failed { entry, to, why } => {
            let what = entry.map_or("base".to_owned(), |entry| format!("entry {entry}"));
            format!("{what} could not be moved to CPU {to}: {why}")
        }
        LogEvent::Said(words) => words.clone(),
    };
    format!("{at} {} {words}\n", logged.interface)
}

/// What a file is for here, and whether all that it names is.
pub(crate) fn check(file: &Path, settings: &Settings) -> Result<(String, bool)> {
    let counted = NamespaceCounters::here().and_then(|net| net.interfaces()).context("list the interfaces")?;
    let mut text = String::new();
    let mut complete = true;
    for (at, rule) in settings.rules.iter().enumerate() {
        let is_first = |name: &&String| {
            rule.name.matches(name) && !settings.rules[..at].iter().any(|before| before.name.matches(name))
        };
        let here: Vec<&str> = counted.keys().filter(is_first).map(String::as_str).collect();
        let actuators: Vec<&str> = rule.actuators.iter().map(|kind| kind.name()).collect();
        let here = match (here.is_empty(), rule.name.is_name()) {
            (true, true) => {
                complete = false;
                "there is none in this network namespace, see `ip link`".to_owned()
            }
            (true, false) => "none now; taken when they come".to_owned(),
            (false, _) => here.join(", "),
        };
        line!(text, "  {}: {} by {}; here: {here}", rule.name, rule.settings.mode, actuators.join(" or "));
    }
    let verdict = if complete { "correct" } else { "correct, but an interface is missing here" };
    Ok((format!("{}: {verdict}\n{text}", file.display()), complete))
}
