//! Microsoft's guide "Validating vRSS and VMMQ dynamic": four activities, each with what is to be seen. The checks have the
//! numbers V01 to V31 in the guide's order.
//!
//! A trial carries them out as the phases of one programme, [`PHASES`]. What the guide sees in
//! windows of Windows' performance monitor is here what the spreader and the receivers have counted over time.

mod seen;
mod simulated;

use rig_facts::figures::phases::t95_of;
use rig_facts::record::TrialRecord;
pub use seen::SpreaderTrial;
use seen::{Time, from, inner, last, seconds};
pub use simulated::Simulated;

use rig_spread::Tuning;
use rig_spread::history::unevenness;
use rig_stats::units::bits_at_a_glance as bits;
use serde_json::Value;

use super::{Check, Verdict};

/// The datapath that spreads.
pub const SPREADER: &str = "spreader";

const IDLE: &str = "idle";
const STATIC_LOW: &str = "static-low";
const STATIC_FULL: &str = "static-full";
const STATIC_BACK: &str = "static-back";
const COALESCE: &str = "coalesce";
const SECOND: &str = "second";
const STOPPED: &str = "stopped";
const BURST: &str = "burst";
const FULL: &str = "full";
const LOW_AGAIN: &str = "low-again";
const BURST_COALESCED: &str = "burst-coalesced";

/// What a scenario's programme has to have, in this order.
pub const PHASES: [&str; 11] =
    [IDLE, STATIC_LOW, STATIC_FULL, STATIC_BACK, COALESCE, SECOND, STOPPED, BURST, FULL, LOW_AGAIN, BURST_COALESCED];

const SECOND_NS: u64 = 1_000_000_000;
/// CPUs below which static and dynamic spreading have the same places to spread to, or the sender's work is on all of them.
const ENOUGH_CPUS: usize = 4;
/// Packets of a queue that are none of the load's: neighbour discovery, keep-alives.
const STRAY: f64 = 20.0;

/// What a check came to: the verdict, and what was seen.
type CheckResult = (Verdict, String);

fn decided(holds: bool, seen: String) -> CheckResult {
    (if holds { Verdict::Passed } else { Verdict::Failed }, seen)
}

fn lacking(why: impl Into<String>) -> CheckResult {
    (Verdict::Lacking, why.into())
}

fn unknown(why: impl Into<String>) -> CheckResult {
    (Verdict::Unknown, why.into())
}

/// A check, as the table below has it: name, what is to be so, what the guide's authors saw, and how it is decided.
type Row = (&'static str, &'static str, &'static str, fn(&SpreaderTrial<'_>) -> Option<CheckResult>);

const CHECKS: [Row; 31] = [
    ("V01", "Something can move the interface's receive work", "VMQ-capable NIC", capable),
    ("V02", "Packets are counted on each CPU, and the sum is the interface's to 1 %", "", counted),
    ("V03", "Each entry of the table has a receive processor", "16 entries", processors),
    ("V04", "Idle: nothing arrives, and entries are on CPUs evenly", "2 per CPU", idle),
    ("V05", "Static spreading is accepted", "", accepted),
    ("V06", "Static spreading is in force within 5 s", "", in_force),
    ("V07", "What is not as requested says why", "", reasons),
    ("V08", "Static, low load: all offered load is carried", "5.3 Gbit/s", static_low),
    ("V09", "Static, low load: several CPUs although fewer would do, each below 50 %", "8 CPUs", static_cpus),
    ("V10", "Static: no entry moves", "2 queues x 8 CPUs", static_table),
    ("V11", "Static takes 1.15 x the receive CPU time of dynamic at the same load", "", waste),
    ("V12", "CPU time is shown as distributing, processing and other, and the base is marked", "", split),
    ("V13", "Static, full load: less than dynamic at full load", "14.2 Gbit/s", static_full),
    ("V14", "Static, full load: no entry moves", "", static_full_table),
    ("V15", "Static, full load: a CPU is full while half of them are below 60 %", "", peaked),
    ("V16", "The base CPU is shown", "CPU 17", base),
    ("V17", "Static, full load: the base is full, at least half of it with distributing", "", base_full),
    ("V18", "Back to low load: within 2 s all offered load is carried, to 2 %", "5.5 Gbit/s", back),
    ("V19", "Dynamic while the load runs: no second loses 2 %, nothing is dropped", "", live),
    ("V20", "All entries are on the base CPU within 90 s", "CPU 17", coalesced),
    ("V21", "Throughput stays to 2 %, at most 1 in 10,000 segments is sent again", "5.5 Gbit/s", unaffected),
    ("V22", "Coalescing waits, after a burst at least as long as its hold", "60 s", waits),
    ("V23", "A second load: within 3 s all offered load is carried", "10.3 Gbit/s", second_load),
    ("V24", "A second load: as few CPUs as it needs, or one more", "3 queues", second_cpus),
    ("V25", "A second load: no CPU above 90 %, moves within their budget", "3 CPUs", second_spread),
    ("V26", "Stopped: nothing arrives after 2 s", "0", stopped),
    ("V27", "Stopped: entries are parked on CPUs evenly within 3 s", "2 per CPU", parked),
    ("V28", "A burst finds parked CPUs: 95 % within 250 ms, sooner than from one CPU", "21.1 Gbit/s", burst),
    ("V29", "At full load the spreader reports its counters within 1 s", "minutes", scraped),
    ("V30", "At full load the link is full, or the base with distributing", "20 Gbit/s", ceiling),
    ("V31", "At full load no moves after a while, and no more CPUs than two beyond need", "", settled),
];

/// All checks of one trial.
pub fn judge(trial: &TrialRecord) -> Vec<Check> {
    let seen = SpreaderTrial::of(trial);
    let check = |(name, what, published, decide): &Row| {
        let (verdict, seen) = match &seen {
            None => unknown("no spreader was at work, or nothing was counted over time"),
            Some(seen) => decide(seen).unwrap_or_else(|| unknown("the phases that it is about are not in the record")),
        };
        let [name, what, published] = [name, what, published].map(|text| (*text).to_owned());
        Check { name, what, published, verdict, seen }
    };
    CHECKS.iter().map(check).collect()
}

fn capable(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let history = &seen.history;
    let entries = history.table.len();
    if history.actuator == "observe" {
        let text = format!("{} has nothing that moves receive work", history.interface);
        // Then static-vmq has to be in force, with the reason.
        let mode = seen.status()?.pointer("/interfaces/0/effective/mode")?.as_str()?;
        let reason = reason_for(seen.status()?.pointer("/interfaces/0/differences")?.as_array()?, "mode");
        return Some(match reason.filter(|_| mode == "static-vmq") {
            Some(reason) => lacking(format!("{text}: {reason}")),
            None => decided(false, format!("{text}, and {mode} is in force without a reason")),
        });
    }
    // What falls into one entry can be on another CPU, but not on several.
    Some(decided(entries > 1, format!("{}, {entries} entries of {}", history.actuator, history.interface)))
}

fn counted(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let by_cpu: u64 = seen.cpus().iter().map(|cpu| seen.total(&format!("cpu{cpu}_packets"))).sum();
    let received = seen.received();
    if received == 0 {
        return Some(unknown("the interface received nothing"));
    }
    let off = by_cpu as f64 / received as f64 - 1.0;
    let text = format!("{by_cpu} on {} CPUs, {received} at the interface: {:+.2} %", seen.cpus().len(), off * 100.0);
    Some(decided(off.abs() <= 0.01, text))
}

fn processors(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let table = &seen.history.table;
    let with = table.iter().flatten().count();
    Some(decided(with == table.len() && with > 0, format!("{with} of {} entries", table.len())))
}

/// Nothing arrives in the last second, and the table is even then.
fn even_at_rest(seen: &SpreaderTrial<'_>, time: &Time) -> CheckResult {
    let packets: f64 = seen.entries(&last(&inner(time), SECOND_NS)).iter().sum();
    let table = seen.history.table_at(time.end);
    let uneven = unevenness(&table, &parking(seen, &table));
    let text = format!("{packets:.0} packets in the last second, {}", placed(&table));
    decided(packets <= STRAY && table.iter().all(Option::is_some) && uneven <= 1, text)
}

/// The CPUs that entries are parked on: all that may be, up to as many as the policy parks on and there are entries.
fn parking(seen: &SpreaderTrial<'_>, table: &[Option<u32>]) -> Vec<u32> {
    let most = seen.cpus().len().min(table.len());
    let used = distinct(table);
    if used.len() >= most.min(seen.tuning.park_cpus as usize) { used } else { seen.cpus().to_vec() }
}

fn distinct(table: &[Option<u32>]) -> Vec<u32> {
    let mut cpus: Vec<u32> = table.iter().copied().flatten().collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// `4 entries on CPU 0, 4 on CPU 1`; by their number where they are many.
fn placed(table: &[Option<u32>]) -> String {
    let cpus = distinct(table);
    let of = |cpu: u32| table.iter().flatten().filter(|on| **on == cpu).count();
    match cpus.as_slice() {
        [] => "entries on no CPU".to_owned(),
        [first, rest @ ..] if rest.len() < 4 => {
            let rest: String = rest.iter().map(|&cpu| format!(", {} on CPU {cpu}", of(cpu))).collect();
            format!("{} entries on CPU {first}{rest}", of(*first))
        }
        all => {
            let counts = || all.iter().map(|&cpu| of(cpu));
            let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
            format!("{least} to {most} entries on each of {} CPUs", all.len())
        }
    }
}

fn idle(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    Some(even_at_rest(seen, &seen.time(IDLE)?))
}

fn accepted(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let told = seen.told(IDLE, "set")?;
    let asked = told.arguments.get("mode").and_then(Value::as_str).unwrap_or("static-vrss");
    let (interface, _) = told_status(seen)?;
    let requested = interface.pointer("/requested/mode")?.as_str()?;
    let ms = told.answered_ns.saturating_sub(told.told_ns) as f64 / 1e6;
    let plain = |mode: &str| mode.replace(['-', '_'], "").to_ascii_lowercase();
    let holds = !told.answers.is_empty() && plain(requested) == plain(asked);
    Some(decided(holds, format!("{asked} answered in {ms:.1} ms, {requested} is requested then")))
}

/// The interface in the answer to `status` with which the static phase at low load begins.
fn told_status<'a>(seen: &SpreaderTrial<'a>) -> Option<(&'a Value, u64)> {
    let (set, told) = (seen.told(IDLE, "set")?, seen.told(STATIC_LOW, "status")?);
    let (_, status) = told.answers.first()?;
    Some((status.get("interfaces")?.get(0)?, told.answered_ns.saturating_sub(set.answered_ns)))
}

fn in_force(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let (interface, after_ns) = told_status(seen)?;
    let mode = interface.get("effective")?.get("mode")?.as_str()?;
    let after = after_ns as f64 / 1e9;
    Some(decided(mode == "static-vrss" && after <= 5.0, format!("{mode} after {after:.1} s")))
}

fn reasons(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let (interface, _) = told_status(seen)?;
    let differences = interface.get("differences")?.as_array()?;
    let (requested, effective) = (interface.get("requested")?, interface.get("effective")?);
    let differs = |setting: &&&str| match (requested.get(**setting), effective.get(**setting)) {
        // What was not asked for can be anything.
        (None | Some(Value::Null), _) => false,
        // The order is the spreader's.
        (Some(Value::Array(asked)), Some(Value::Array(used))) => {
            asked.len() != used.len() || asked.iter().any(|one| !used.contains(one))
        }
        (asked, used) => asked != used,
    };
    let mut all = Vec::new();
    let mut silent = Vec::new();
    for setting in SETTINGS.iter().filter(differs) {
        match reason_for(differences, setting) {
            Some(reason) => all.push(format!("{setting}: {reason}")),
            None => silent.push(*setting),
        }
    }
    if !silent.is_empty() {
        return Some(decided(false, format!("without a reason: {}", silent.join(", "))));
    }
    let text = if all.is_empty() { "all is as requested".to_owned() } else { all.join("; ") };
    Some(decided(true, text))
}

/// Settings that are requested and in force under the same name.
const SETTINGS: [&str; 7] =
    ["mode", "max_queue_pairs", "min_queue_pairs", "exclude_primary", "independent_host_spreading", "base", "cpus"];

/// Why a setting is not as requested, where that is said.
fn reason_for(differences: &[Value], setting: &str) -> Option<String> {
    let of = |one: &&Value| one.pointer("/difference/setting").and_then(Value::as_str) == Some(setting);
    let reason = differences.iter().find(of)?.pointer("/difference/reason")?.as_str()?;
    (!reason.is_empty()).then(|| reason.to_owned())
}

/// What is carried from some time after a phase's begin on, to what is offered.
fn carries(seen: &SpreaderTrial<'_>, phase: &str, after_ns: u64, least: f64, most: f64) -> Option<CheckResult> {
    let time = from(&seen.time(phase)?, after_ns);
    let (carried, offered) = (seen.carried(&time), seen.offered(phase)?);
    let share = carried / offered;
    Some(decided(share >= least && share <= most, format!("{} of {} offered", bits(carried), bits(offered))))
}

fn static_low(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    carries(seen, STATIC_LOW, SECOND_NS, 0.98, f64::INFINITY)
}

fn static_cpus(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = from(&seen.time(STATIC_LOW)?, SECOND_NS);
    let (engaged, highest) = (seen.engaged(&time), highest(seen, &time));
    let expected = 8.min(seen.cpus().len()).min(seen.history.table.len());
    let text = format!("CPUs {}, at most {:.0} % busy with receiving", list(&engaged), highest * 100.0);
    Some(decided(engaged.len() >= expected && highest < 0.5, text))
}

fn highest(seen: &SpreaderTrial<'_>, time: &Time) -> f64 {
    seen.receiving(time).iter().map(|(_, distributing, processing)| distributing + processing).fold(0.0, f64::max)
}

/// The table is the same at both ends of a stretch of time, and no entry has moved.
fn unmoved(seen: &SpreaderTrial<'_>, time: &Time) -> CheckResult {
    let moves = seen.history.moves_in(time.start, time.end).count();
    let same = seen.history.table_at(time.start) == seen.history.table_at(time.end);
    decided(moves == 0 && same, format!("{moves} moves, {}", placed(&seen.history.table_at(time.end))))
}

fn static_table(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    Some(unmoved(seen, &from(&seen.time(STATIC_LOW)?, SECOND_NS)))
}

/// From when on all entries are on the base CPU, within a phase.
fn coalesced_at(seen: &SpreaderTrial<'_>, phase: &str) -> Option<u64> {
    let time = seen.time(phase)?;
    let on_one = |table: &[Option<u32>]| distinct(table).len() == 1;
    seen.history.since(time.start, time.end, on_one)
}

fn waste(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let fixed = from(&seen.time(STATIC_LOW)?, SECOND_NS);
    let Some(at) = coalesced_at(seen, COALESCE) else { return Some(unknown("dynamic spreading did not coalesce")) };
    let dynamic = at..seen.time(COALESCE)?.end;
    let per_gb = |time: &Time| seen.cores(time) / (seen.carried(time) / 8e9).max(1e-9);
    let (fixed, dynamic) = (per_gb(&fixed), per_gb(&dynamic));
    let ratio = fixed / dynamic.max(1e-9);
    Some(decided(ratio >= 1.15, format!("{ratio:.2} x: {fixed:.3} to {dynamic:.3} CPU seconds per GB")))
}

fn split(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let cpus = seen.status()?.pointer("/interfaces/0/cpus")?.as_array()?;
    let up_ns = seen.status()?.get("uptime_ms")?.as_u64()? as f64 * 1e6;
    let time = |cpu: &Value, kind: &str| cpu.get(format!("{kind}_ns")).and_then(Value::as_u64);
    let all = |cpu: &Value| Some(time(cpu, "distributing")? + time(cpu, "processing")? + time(cpu, "other")?);
    let sum = |kind: &str| cpus.iter().filter_map(|cpu| time(cpu, kind)).sum::<u64>();
    let (distributing, processing) = (sum("distributing"), sum("processing"));
    let marked: Vec<u64> = cpus
        .iter()
        .filter(|cpu| cpu.get("base") == Some(&Value::Bool(true)))
        .filter_map(|cpu| cpu.get("cpu")?.as_u64())
        .collect();
    let text = format!(
        "{} CPUs told, {} marked as base; {:.2} s distributing, {:.2} s processing",
        cpus.len(),
        marked.len(),
        distributing as f64 / 1e9,
        processing as f64 / 1e9
    );
    // No CPU has more time than there was, what arrived took some, and distributing is where there is any.
    let possible = cpus.iter().all(|cpu| all(cpu).is_some_and(|ns| ns as f64 <= up_ns * 1.02));
    let holds = cpus.len() == seen.cpus().len()
        && marked == [u64::from(seen.history.base)]
        && possible
        && (processing > 0 || seen.received() == 0)
        && (distributing > 0) == (seen.history.distributes && seen.received() > 0);
    Some(decided(holds, text))
}

/// Why the receiver has too few CPUs for what is asked, if so.
fn few(seen: &SpreaderTrial<'_>) -> Option<String> {
    let cpus = seen.cpus().len();
    (cpus < ENOUGH_CPUS).then(|| format!("the receiver has {cpus} CPUs, {ENOUGH_CPUS} are needed"))
}

/// Decided where the receiver has enough CPUs; what was seen is told anyway.
fn with_enough_cpus(seen: &SpreaderTrial<'_>, holds: bool, text: String) -> CheckResult {
    match few(seen) {
        Some(why) => lacking(format!("{text}; {why}")),
        None => decided(holds, text),
    }
}

fn static_full(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let fixed = seen.carried(&from(&seen.time(STATIC_FULL)?, SECOND_NS));
    let dynamic = seen.carried(&seen.time(FULL)?);
    Some(with_enough_cpus(seen, fixed < dynamic, format!("{} static, {} dynamic", bits(fixed), bits(dynamic))))
}

fn static_full_table(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    Some(unmoved(seen, &seen.time(STATIC_FULL)?))
}

fn peaked(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = from(&seen.time(STATIC_FULL)?, SECOND_NS);
    let mut shares: Vec<f64> = seen.receiving(&time).iter().map(|(_, one, other)| one + other).collect();
    shares.sort_by(f64::total_cmp);
    let (median, most) = (*shares.get(shares.len() / 2)?, *shares.last()?);
    let text = format!("the busiest {:.0} %, the median {:.0} % with receiving", most * 100.0, median * 100.0);
    Some(with_enough_cpus(seen, most >= 0.98 && median <= 0.6, text))
}

fn base(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let base = seen.history.base;
    if !seen.history.distributes {
        return Some(decided(seen.cpus().contains(&base), format!("CPU {base}; each CPU receives what is on it")));
    }
    // The CPU that distributed most packets to others, by the counters.
    let worked = |cpu: u32| seen.total(&format!("cpu{cpu}_distributing_ns"));
    let most = seen.cpus().iter().copied().max_by_key(|cpu| worked(*cpu)).filter(|cpu| worked(*cpu) > 0);
    let Some(most) = most else { return Some(unknown("no CPU was seen to receive for others")) };
    Some(decided(most == base, format!("CPU {base}; CPU {most} received most for others")))
}

fn base_full(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    if !seen.history.distributes {
        return Some(lacking(format!("with actuator {} no CPU distributes for others", seen.history.actuator)));
    }
    let time = from(&seen.time(STATIC_FULL)?, SECOND_NS);
    let all = seen.receiving(&time);
    let (_, distributing, processing) = all.iter().find(|(cpu, _, _)| *cpu == seen.history.base)?;
    let busy = distributing + processing;
    let share = distributing / busy.max(1e-9);
    let text = format!("{:.0} % busy with receiving, {:.0} % of that distributing", busy * 100.0, share * 100.0);
    Some(decided(busy >= 0.98 && share >= 0.5, text))
}

fn back(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    carries(seen, STATIC_BACK, 2 * SECOND_NS, 0.98, 1.02)
}

fn live(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = seen.time(COALESCE)?;
    let offered = seen.offered(COALESCE)?;
    let each = (0..(time.end - time.start) / SECOND_NS).map(|at| time.start + at * SECOND_NS);
    let least = each.map(|at| seen.carried(&(at..at + SECOND_NS))).fold(f64::INFINITY, f64::min);
    let interfaces = seen.phase(COALESCE)?.nodes.iter().flat_map(|node| &node.interfaces);
    let dropped: u64 = interfaces.map(|interface| interface.rx_dropped + interface.tx_dropped).sum();
    let text = format!("at least {:.1} % in each second, {dropped} dropped", least / offered * 100.0);
    Some(decided(least >= 0.98 * offered && dropped == 0, text))
}

fn coalesced(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = seen.time(COALESCE)?;
    let Some(at) = coalesced_at(seen, COALESCE) else {
        let table = seen.history.table_at(time.end);
        return Some(decided(false, format!("after {:.0} s {}", seconds(&time), placed(&table))));
    };
    let cpu = distinct(&seen.history.table_at(at)).first().copied()?;
    let after = (at - time.start) as f64 / 1e9;
    let is_base = cpu == seen.history.base;
    let text = format!("all on CPU {cpu}{} after {after:.1} s", if is_base { ", the base," } else { "" });
    // Where no CPU distributes, packets reach each CPU directly.
    Some(decided((is_base || !seen.history.distributes) && after <= 90.0, text))
}

fn unaffected(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let Some(at) = coalesced_at(seen, COALESCE) else { return Some(unknown("dynamic spreading did not coalesce")) };
    let before = seen.carried(&from(&seen.time(STATIC_BACK)?, 2 * SECOND_NS));
    let after = seen.carried(&(at..seen.time(COALESCE)?.end));
    let protocols = || seen.phase(COALESCE).into_iter().flat_map(|phase| &phase.nodes).map(|node| node.protocol);
    let again: u64 = protocols().map(|protocol| protocol.tcp_retransmitted_segments).sum();
    let sent: u64 = protocols().map(|protocol| protocol.tcp_segments_out).sum();
    let change = after / before.max(1.0) - 1.0;
    let text = format!("{} to {}, {again} of {sent} segments sent again", bits(before), bits(after));
    Some(decided(change.abs() < 0.02 && again <= sent / 10_000, text))
}

fn waits(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let (first, again) = (coalesced_at(seen, COALESCE), coalesced_at(seen, LOW_AGAIN));
    let (Some(first), Some(again)) = (first, again) else {
        return Some(unknown("dynamic spreading did not coalesce in both phases"));
    };
    if seen.time(LOW_AGAIN)?.start == again {
        return Some(unknown("all entries were on one CPU before the load fell: the burst had spread them no longer"));
    }
    let after = |at: u64, phase: &str| Some((at - seen.time(phase)?.start) as f64 / 1e9);
    let (first, again) = (after(first, COALESCE)?, after(again, LOW_AGAIN)?);
    let Tuning { hold, .. } = seen.tuning;
    let hold = hold.0.as_secs_f64();
    let text = format!("{first:.1} s, after a burst {again:.1} s, hold {hold:.1} s");
    // The policy waits until what the burst needed has room on one CPU, which it may have had all the time.
    let burst = seen.cores(&last(&seen.time(FULL)?, 2 * SECOND_NS));
    if again < hold && burst <= seen.tuning.lo {
        return Some(lacking(format!("{text}; the burst took {burst:.2} CPUs to receive, which one has room for")));
    }
    Some(decided(first <= 90.0 && again <= 90.0 && again >= hold, text))
}

fn second_load(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    carries(seen, SECOND, 3 * SECOND_NS, 0.98, f64::INFINITY)
}

/// The fewest CPUs whose time below the policy's upper mark is enough for what receiving took.
fn needed(seen: &SpreaderTrial<'_>, time: &Time) -> usize {
    (seen.cores(time) / seen.tuning.hi).ceil().max(1.0) as usize
}

fn second_cpus(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = last(&seen.time(SECOND)?, 2 * SECOND_NS);
    let (engaged, needed) = (seen.engaged(&time), needed(seen, &time));
    let text = format!("CPUs {}, {:.2} CPUs' worth of work: {needed} needed", list(&engaged), seen.cores(&time));
    Some(decided((needed..=needed + 1).contains(&engaged.len()), text))
}

fn second_spread(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = last(&seen.time(SECOND)?, 2 * SECOND_NS);
    let highest = highest(seen, &time);
    let moves = seen.history.moves_in(time.start, time.end).count() as f64 / seconds(&time) * 60.0;
    let budget = f64::from(seen.tuning.moves_per_minute).max(seen.history.table.len() as f64);
    let text = format!("at most {:.0} % busy with receiving, {moves:.0} moves a minute", highest * 100.0);
    Some(decided(highest <= 0.9 && moves <= budget, text))
}

fn stopped(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = from(&inner(&seen.time(STOPPED)?), 2 * SECOND_NS);
    let packets: f64 = seen.entries(&time).iter().sum();
    Some(decided(packets <= STRAY, format!("{packets:.0} packets in {:.1} s", seconds(&time))))
}

fn parked(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = seen.time(STOPPED)?;
    let even =
        |table: &[Option<u32>]| table.iter().all(Option::is_some) && unevenness(table, &parking(seen, table)) <= 1;
    let at_end = placed(&seen.history.table_at(time.end));
    Some(match seen.history.since(time.start, time.end, even) {
        None => decided(false, at_end),
        Some(at) => {
            let after = (at - time.start) as f64 / 1e9;
            decided(after <= 3.0, format!("{at_end}, {after:.1} s after the load ended"))
        }
    })
}

fn burst(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let t95 = |phase: &str| t95_of(seen.trial(), phase).map(|us| us / 1e3);
    let (Some(parked), Some(coalesced)) = (t95(BURST), t95(BURST_COALESCED)) else {
        return Some(unknown("the rates of the bursts did not settle"));
    };
    let ratio = seen.carried(&seen.time(FULL)?) / seen.carried(&from(&seen.time(STATIC_FULL)?, SECOND_NS)).max(1.0);
    let text =
        format!("95 % after {parked:.0} ms, from one CPU after {coalesced:.0} ms; {ratio:.2} x static at full load");
    // What both are is known to an interval.
    let interval = seen.trial().series.as_ref().map_or(0.0, |series| series.interval_us as f64 / 1e3);
    let is_soon = parked <= 250.0 && parked <= coalesced + interval;
    Some(match few(seen) {
        Some(why) => decided(is_soon, format!("{text} (1.4 x is not asked: {why})")),
        None => decided(is_soon && ratio >= 1.4, text),
    })
}

fn scraped(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let told = seen.told(FULL, "status")?;
    let ms = told.answered_ns.saturating_sub(told.told_ns) as f64 / 1e6;
    Some(decided(ms <= 1000.0, format!("{ms:.1} ms")))
}

fn ceiling(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let carried = bits(seen.carried(&seen.time(FULL)?));
    if !seen.history.distributes {
        return Some(lacking(format!("{carried}: a wire between namespaces has no rate to be filled")));
    }
    let all = seen.receiving(&seen.time(FULL)?);
    let (_, distributing, processing) = all.iter().find(|(cpu, _, _)| *cpu == seen.history.base)?;
    let text = format!("{carried}, the base {:.0} % busy with receiving", (distributing + processing) * 100.0);
    Some(with_enough_cpus(seen, distributing + processing >= 0.9, text))
}

fn settled(seen: &SpreaderTrial<'_>) -> Option<CheckResult> {
    let time = seen.time(FULL)?;
    let late = last(&time, (time.end - time.start) / 2);
    let moves = seen.history.moves_in(late.start, late.end).count();
    let (engaged, needed) = (seen.engaged(&late).len(), needed(seen, &late));
    let text = format!("{moves} moves in the last {:.1} s, {engaged} CPUs, {needed} needed", seconds(&late));
    Some(decided(moves == 0 && engaged <= needed + 2, text))
}

fn list(cpus: &[u32]) -> String {
    rig_sys::cpu::CpuSet::new(cpus.iter().copied()).to_string()
}

#[cfg(test)]
mod tests;
