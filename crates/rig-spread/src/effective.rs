//! What of the settings is in force on a machine with an actuator, and why not all.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::{Abilities, Cpu, Machine};
use crate::nanos;
use crate::settings::{Mode, Settings, Tuning};

/// All that [`plan`](crate::plan()) stands on beside what is seen; made anew when CPUs or settings change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    pub effective: EffectiveSettings,
    pub tuning: Tuning,
    pub machine: Machine,
    pub abilities: Abilities,
}

impl Config {
    /// Settings and tuning have been checked.
    pub fn new(settings: &Settings, tuning: Tuning, machine: Machine, abilities: Abilities) -> Self {
        Self { effective: effective(settings, &machine, &abilities), tuning, machine, abilities }
    }
}

/// Settings in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EffectiveSettings {
    pub mode: Mode,
    /// The CPU that packets reach first, unless the policy moved the base ([`State::base`](crate::State::base)).
    pub base: u32,
    /// The base was asked for by number: the policy does not move it.
    pub base_fixed: bool,
    /// Whether the base is where packets come first, so that what is spread costs it time: not when they were seen to come
    /// first to a CPU that entries may not be on, and not when everything is to be on one CPU that was asked for.
    #[serde(default = "yes")]
    pub base_receives: bool,
    /// The CPU that a static spread begins with, where that is not the base: the base as asked for, or that suits, wherever
    /// packets come first, so that what is static does not move with them.
    #[serde(default)]
    pub static_first: Option<u32>,
    /// CPUs that entries may be on, in order of preference, the base first; never empty.
    pub cpus: Vec<u32>,
    /// At most as many as there are CPUs and entries.
    pub max_queue_pairs: u32,
    pub min_queue_pairs: u32,
    /// Entries are on the base CPU only when nothing else is allowed.
    pub exclude_primary: bool,
    pub independent_host_spreading: bool,
    /// Entries may be left to the CPUs that packets reach first, where the actuator can do so: no CPUs, base or number of
    /// queue pairs were asked for that this could break.
    #[serde(default)]
    pub in_place: bool,
    pub differences: Vec<Difference>,
}

fn yes() -> bool {
    true
}

/// Something that is not as it was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    pub setting: Setting,
    pub requested: String,
    pub effective: String,
    /// In words, for people.
    pub reason: String,
}

impl Difference {
    /// Whether the setting that is not in force is a default and not the user's: by default there may be more queue pairs than a
    /// small machine has CPUs.
    pub fn is_of_default(&self) -> bool {
        let default = Settings::default().max_queue_pairs;
        self.setting == Setting::MaxQueuePairs && self.requested == default.to_string()
    }
}

/// A [`Difference`], and since when it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastingDifference {
    pub difference: Difference,
    /// In ns, since the moment that all times count from.
    #[serde(with = "nanos")]
    #[schemars(with = "u64")]
    pub since: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    Mode,
    MaxQueuePairs,
    MinQueuePairs,
    ExcludePrimary,
    Base,
    Cpus,
}

impl Setting {
    /// As [`Settings`] has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::MaxQueuePairs => "max_queue_pairs",
            Self::MinQueuePairs => "min_queue_pairs",
            Self::ExcludePrimary => "exclude_primary",
            Self::Base => "base",
            Self::Cpus => "cpus",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, not {}: {}", self.setting, self.effective, self.requested, self.reason)
    }
}

/// Each difference of `now` with the moment since which it holds: that of `before` if it was there already, else `at`.
pub fn carry_over(before: &[LastingDifference], now: &[Difference], at: Duration) -> Vec<LastingDifference> {
    let since = |difference: &Difference| {
        before.iter().find(|standing| &standing.difference == difference).map_or(at, |standing| standing.since)
    };
    now.iter()
        .map(|difference| LastingDifference { difference: difference.clone(), since: since(difference) })
        .collect()
}

/// What of `settings`, which have been checked, is in force. Pure: the same arguments give the same.
pub fn effective(settings: &Settings, machine: &Machine, abilities: &Abilities) -> EffectiveSettings {
    let mut differences = Vec::new();
    let mut differ = |setting, requested: String, effective: String, reason: String| {
        differences.push(Difference { setting, requested, effective, reason });
    };

    let usable = usable(settings, machine, abilities.only_cpus.as_deref(), &mut differ);
    let count = u32::try_from(usable.len()).unwrap_or(u32::MAX);
    let only = usable.first().copied().unwrap_or(0);
    let alone = || format!("CPU {only} is the only one that may be used");

    let mut mode = settings.mode;
    let refused = match (settings.mode, abilities) {
        (Mode::StaticVmq, _) => None,
        (_, Abilities { entries: 0, .. }) => {
            Some((Mode::StaticVmq, "nothing can move packets of this interface between CPUs".to_owned()))
        }
        (_, Abilities { entries: 1, .. }) => {
            Some((Mode::StaticVmq, "the interface has a single entry, so there is nothing to spread".to_owned()))
        }
        _ if count == 1 => Some((Mode::StaticVmq, alone())),
        (_, Abilities { receiver_spreads: false, .. }) if !settings.independent_host_spreading => Some((
            Mode::StaticVmq,
            "what is behind the interface has a single queue, and independent_host_spreading is off".to_owned(),
        )),
        (Mode::Dynamic, Abilities { single_moves: false, .. }) => {
            Some((Mode::StaticVrss, "single entries cannot be moved, only all at once".to_owned()))
        }
        _ => None,
    };
    if let Some((instead, reason)) = refused {
        differ(Setting::Mode, settings.mode.name().to_owned(), instead.name().to_owned(), reason);
        mode = instead;
    }

    let wanted = base(settings, machine, &usable, &mut differ);
    let is_seen = (abilities.distributes && !abilities.base_moves) || abilities.in_place;
    let receives = abilities.received_by.filter(|_| is_seen);
    // In static VMQ all entries are on one CPU, which can be another one than the CPU that receives; in other modes the CPU that
    // receives is the base.
    let base = receives.filter(|cpu| usable.contains(cpu) && mode != Mode::StaticVmq).unwrap_or(wanted);
    if let Some(asked) = settings.base.filter(|asked| *asked == wanted && *asked != base) {
        let reason = format!("packets of the interface come to CPU {base} first, which nothing here can move");
        differ(Setting::Base, asked.to_string(), base.to_string(), reason);
    }
    let base_receives = receives.is_none_or(|cpu| cpu == base);
    let cpus = in_order(machine, &usable, base);

    let mut exclude_primary = settings.exclude_primary;
    if exclude_primary && count == 1 {
        differ(Setting::ExcludePrimary, "true".to_owned(), "false".to_owned(), alone());
        exclude_primary = false;
    } else if exclude_primary && mode == Mode::StaticVmq {
        let reason = format!("in mode {mode} everything is on the base CPU");
        differ(Setting::ExcludePrimary, "true".to_owned(), "false".to_owned(), reason);
        exclude_primary = false;
    }

    let no_more = |what: &str| format!("there are no more {what}");
    let cpus_left = if exclude_primary { "CPUs beside the base" } else { "CPUs to be used" };
    let mut limits = vec![
        (count - u32::from(exclude_primary && usable.contains(&base)), no_more(cpus_left)),
        (abilities.entries.max(1), no_more("entries")),
    ];
    if let Some(only) = &abilities.only_cpus {
        limits.insert(0, (u32::try_from(only.len()).unwrap_or(u32::MAX).max(1), no_more("queues of the interface")));
    }
    if mode == Mode::StaticVmq {
        limits.insert(0, (1, format!("in mode {mode} everything is on one CPU")));
    }
    let (most, reason) = limits.into_iter().min_by_key(|(most, _)| *most).unwrap_or_default();
    let mut clamp = |setting, asked: u32| {
        if asked > most {
            differ(setting, asked.to_string(), most.to_string(), reason.clone());
        }
        asked.min(most)
    };
    let max_queue_pairs = clamp(Setting::MaxQueuePairs, settings.max_queue_pairs);
    let min_queue_pairs = clamp(Setting::MinQueuePairs, settings.min_queue_pairs);

    EffectiveSettings {
        mode,
        base,
        base_fixed: settings.base == Some(base),
        base_receives,
        static_first: (base != wanted).then_some(wanted),
        cpus,
        max_queue_pairs,
        min_queue_pairs,
        exclude_primary,
        independent_host_spreading: settings.independent_host_spreading,
        in_place: abilities.in_place
            && mode == Mode::Dynamic
            && settings.cpus.is_none()
            && settings.base.is_none()
            && !settings.exclude_primary
            && min_queue_pairs == 1
            && settings.max_queue_pairs >= count.min(Settings::default().max_queue_pairs),
        differences,
    }
}

/// The CPUs that may be used, sorted; at least one, where the machine has any online.
fn usable(
    settings: &Settings,
    machine: &Machine,
    only: Option<&[u32]>,
    differ: &mut impl FnMut(Setting, String, String, String),
) -> BTreeSet<u32> {
    let is_online = |number: u32| machine.cpu(number).is_some_and(|cpu| cpu.online);
    // An interrupt of a CPU that went offline goes to another one, as will be seen.
    let only = only.filter(|only| only.iter().any(|number| is_online(*number)));
    let is_reached = |number: u32| only.is_none_or(|only| only.contains(&number));
    let online: Vec<&Cpu> = machine.cpus.iter().filter(|cpu| cpu.online && is_reached(cpu.number)).collect();
    let all = || -> BTreeSet<u32> {
        let free: BTreeSet<u32> = online.iter().filter(|cpu| !cpu.isolated).map(|cpu| cpu.number).collect();
        let free = if free.is_empty() { online.iter().map(|cpu| cpu.number).collect() } else { free };
        // A sibling adds little to a core that is busy already: the first thread of each core stands for it.
        let mut cores = BTreeSet::new();
        free.into_iter().filter(|number| machine.cpu(*number).is_none_or(|cpu| cores.insert(cpu.core))).collect()
    };
    let Some(asked) = &settings.cpus else { return all() };
    let asked: BTreeSet<u32> = asked.iter().copied().collect();
    let there: BTreeSet<u32> = asked.iter().copied().filter(|n| online.iter().any(|cpu| cpu.number == *n)).collect();
    if there == asked {
        return there;
    }
    let missing = asked.difference(&there).copied();
    let (unreached, missing): (Vec<u32>, Vec<u32>) = missing.partition(|number| is_online(*number));
    let (gone, unknown): (Vec<u32>, Vec<u32>) = missing.into_iter().partition(|n| machine.cpu(*n).is_some());
    let mut reasons = Vec::new();
    if !unreached.is_empty() {
        reasons.push(format!("without a queue of the interface: {}", list(&unreached)));
    }
    if !gone.is_empty() {
        reasons.push(format!("offline: {}", list(&gone)));
    }
    if !unknown.is_empty() {
        reasons.push(format!("not on this machine: {}", list(&unknown)));
    }
    let used = if there.is_empty() { all() } else { there };
    differ(Setting::Cpus, list(&asked), list(&used), format!("CPUs {}", reasons.join(", ")));
    used
}

fn base(
    settings: &Settings,
    machine: &Machine,
    usable: &BTreeSet<u32>,
    differ: &mut impl FnMut(Setting, String, String, String),
) -> u32 {
    // CPU 0 has interrupts and housekeeping that cannot go elsewhere.
    let near = |number: &u32| {
        let node = machine.cpu(*number).map(|cpu| cpu.numa_node);
        (machine.interface_node.is_some_and(|near| node != Some(near)), *number == 0 && usable.len() >= 4, *number)
    };
    let suited = usable.iter().copied().min_by_key(near).unwrap_or(0);
    match settings.base {
        None => suited,
        Some(asked) if usable.contains(&asked) => asked,
        Some(asked) => {
            let reason = match machine.cpu(asked) {
                None => "this machine has no such CPU",
                Some(cpu) if !cpu.online => "it is offline",
                Some(_) if settings.cpus.is_some() => "it is not among cpus",
                Some(cpu) if cpu.isolated => "it is isolated; name it in cpus to use it all the same",
                Some(_) => "it is the second thread of its core; name it in cpus to use it all the same",
            };
            differ(Setting::Base, asked.to_string(), suited.to_string(), reason.to_owned());
            suited
        }
    }
}

/// The base, then cores of its own node, those that share its cache first, then other nodes', and siblings last.
pub(crate) fn in_order(machine: &Machine, usable: &BTreeSet<u32>, base: u32) -> Vec<u32> {
    let at = |number: u32| machine.cpu(number).copied().unwrap_or(Cpu::plain(number));
    let here = at(base);
    let mut taken = BTreeSet::from([here.core]);
    let mut keyed = Vec::new();
    for number in usable.iter().copied().filter(|number| *number != base) {
        let cpu = at(number);
        let sibling = !taken.insert(cpu.core);
        let far = cpu.numa_node != here.numa_node;
        // From the base on upwards: interfaces with different bases do not all go to the same CPUs first.
        keyed.push((sibling, far, cpu.last_level_cache != here.last_level_cache, number == 0, number < base, number));
    }
    keyed.sort_unstable();
    std::iter::once(base).chain(keyed.into_iter().map(|(.., number)| number)).collect()
}

/// `0-3,6`, as the kernel writes CPU lists.
pub(crate) fn list<'a>(cpus: impl IntoIterator<Item = &'a u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let range = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Order;

    const ABLE: Abilities = Abilities {
        entries: 16,
        single_moves: true,
        order: Order::Exact,
        distributes: true,
        base_moves: true,
        receiver_spreads: true,
        received_by: None,
        in_place: false,
        only_cpus: None,
    };

    fn told(effective: &EffectiveSettings) -> Vec<String> {
        effective.differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_as_requested_where_everything_is_there() {
        let effective = effective(&Settings::default(), &Machine::uniform(32), &ABLE);
        assert_eq!(told(&effective), [""; 0]);
        assert_eq!((effective.mode, effective.base, effective.max_queue_pairs), (Mode::Dynamic, 1, 16));
        assert_eq!(effective.cpus.len(), 32);
        assert_eq!(effective.cpus[..3], [1, 2, 3]);
        assert_eq!(effective.cpus.last(), Some(&0));
    }

    #[test]
    fn each_reason_against_a_mode_has_its_words() {
        let of = |settings: &Settings, cpus, abilities| {
            let effective = effective(settings, &Machine::uniform(cpus), &abilities);
            (effective.mode, told(&effective).join("; "))
        };
        let dynamic = Settings::default();
        let cases = [
            (Abilities { entries: 0, ..ABLE }, 8, Mode::StaticVmq, "nothing can move"),
            (Abilities { entries: 1, ..ABLE }, 8, Mode::StaticVmq, "single entry"),
            (ABLE, 1, Mode::StaticVmq, "only one"),
            (Abilities { receiver_spreads: false, ..ABLE }, 8, Mode::StaticVmq, "independent_host_spreading is off"),
            (Abilities { single_moves: false, ..ABLE }, 8, Mode::StaticVrss, "all at once"),
        ];
        for (abilities, cpus, mode, words) in cases {
            let (found, said) = of(&dynamic, cpus, abilities);
            assert_eq!(found, mode, "{said}");
            assert!(said.contains(words), "{said}");
        }
        let independent = Settings { independent_host_spreading: true, ..Settings::default() };
        assert_eq!(of(&independent, 16, Abilities { receiver_spreads: false, ..ABLE }), (Mode::Dynamic, String::new()));
        let vmq = Settings { mode: Mode::StaticVmq, max_queue_pairs: 1, ..Settings::default() };
        assert_eq!(of(&vmq, 8, Abilities { entries: 0, ..ABLE }), (Mode::StaticVmq, String::new()));
    }

    #[test]
    fn the_base_is_where_packets_were_seen_to_come_first() {
        let seen = |cpu| Abilities { received_by: Some(cpu), base_moves: false, ..ABLE };
        let of = |settings: &Settings, abilities: &Abilities| effective(settings, &Machine::uniform(16), abilities);
        let there = of(&Settings::default(), &seen(5));
        assert_eq!((there.base, there.base_receives, there.cpus[0]), (5, true, 5));
        let asked = Settings { base: Some(3), ..Settings::default() };
        let other = of(&asked, &seen(5));
        assert_eq!((other.base, other.base_fixed), (5, false));
        assert_eq!(
            told(&other),
            ["base is 5, not 3: packets of the interface come to CPU 5 first, which nothing here can move"]
        );
        assert_eq!(told(&of(&asked, &seen(3))), [""; 0]);
        assert_eq!((other.static_first, there.static_first), (Some(3), Some(1)));
        // Outside of the CPUs that may be used, distributing costs none of them anything.
        let outside = of(&Settings { cpus: Some(vec![2, 3]), ..asked.clone() }, &seen(5));
        assert_eq!((outside.base, outside.base_receives), (3, false));
        assert_eq!(told(&outside), ["max_queue_pairs is 2, not 16: there are no more CPUs to be used"]);
        // All on the CPU that was asked for, wherever it was received.
        let vmq = of(&Settings { mode: Mode::StaticVmq, ..asked.clone() }, &seen(5));
        assert_eq!((vmq.base, vmq.base_receives), (3, false));
        // Where the base can be moved, or nothing is distributed, it is as asked.
        for abilities in [Abilities { base_moves: true, ..seen(5) }, Abilities { distributes: false, ..seen(5) }] {
            assert_eq!((of(&asked, &abilities).base, of(&asked, &abilities).base_receives), (3, true));
        }
    }

    #[test]
    fn numbers_are_clamped_and_the_reason_is_the_tightest_limit() {
        let asked = Settings { max_queue_pairs: 32, min_queue_pairs: 12, ..Settings::default() };
        let effective =
            effective(&asked, &Machine::uniform(64), &Abilities { only_cpus: Some((0..8).collect()), ..ABLE });
        assert_eq!((effective.max_queue_pairs, effective.min_queue_pairs), (8, 8));
        assert_eq!(
            told(&effective),
            [
                "max_queue_pairs is 8, not 32: there are no more queues of the interface",
                "min_queue_pairs is 8, not 12: there are no more queues of the interface"
            ]
        );
        assert!(!effective.differences.iter().any(Difference::is_of_default));
    }

    #[test]
    fn entries_go_only_where_queues_are() {
        let able = Abilities { only_cpus: Some(vec![0, 5, 9]), ..ABLE };
        let all = effective(&Settings::default(), &Machine::uniform(16), &able);
        assert_eq!((all.base, all.max_queue_pairs), (0, 3));
        assert_eq!(all.cpus.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([0, 5, 9]));
        let asked = Settings { cpus: Some(vec![4, 5, 9]), ..Settings::default() };
        let named = effective(&asked, &Machine::uniform(16), &able);
        assert_eq!(named.cpus, [5, 9]);
        assert_eq!(told(&named)[0], "cpus is 5,9, not 4-5,9: CPUs without a queue of the interface: 4");
    }

    #[test]
    fn cpus_that_are_not_there_are_told_by_kind() {
        let mut machine = Machine::uniform(4);
        machine.cpus[3].online = false;
        machine.cpus[1].isolated = true;
        let asked = Settings { cpus: Some(vec![1, 3, 2, 9]), base: Some(3), ..Settings::default() };
        let named = effective(&asked, &machine, &ABLE);
        assert_eq!(named.cpus, [1, 2]);
        assert_eq!(
            told(&named),
            [
                "cpus is 1-2, not 1-3,9: CPUs offline: 3, not on this machine: 9",
                "base is 1, not 3: it is offline",
                "max_queue_pairs is 2, not 16: there are no more CPUs to be used",
            ]
        );
        let of_default: Vec<bool> = named.differences.iter().map(Difference::is_of_default).collect();
        assert_eq!(of_default, [false, false, true]);
        let all = effective(&Settings { base: Some(1), ..Settings::default() }, &machine, &ABLE);
        assert_eq!(all.cpus, [0, 2], "isolated CPUs only when they are named");
        assert!(told(&all)[0].contains("isolated"));
    }

    #[test]
    fn siblings_other_caches_and_other_nodes_come_later() {
        let cpu =
            |number, core, numa_node, last_level_cache| Cpu { core, numa_node, last_level_cache, ..Cpu::plain(number) };
        let cpus =
            vec![cpu(0, 0, 0, 0), cpu(1, 1, 0, 0), cpu(2, 2, 0, 1), cpu(3, 3, 1, 2), cpu(4, 0, 0, 0), cpu(5, 1, 0, 0)];
        let machine = Machine { cpus, interface_node: Some(1) };
        assert_eq!(effective(&Settings::default(), &machine, &ABLE).base, 3, "the interface's node");
        let named = Settings { cpus: Some(vec![0, 1, 2, 3, 4, 5]), base: Some(1), ..Settings::default() };
        assert_eq!(effective(&named, &machine, &ABLE).cpus, [1, 0, 2, 3, 4, 5]);
        let unnamed = Settings { base: Some(1), ..Settings::default() };
        assert_eq!(effective(&unnamed, &machine, &ABLE).cpus, [1, 0, 2, 3], "no siblings unless named");
    }

    #[test]
    fn the_base_leaves_the_table_only_where_something_remains() {
        let asked = Settings { exclude_primary: true, ..Settings::default() };
        let two = effective(&asked, &Machine::uniform(2), &ABLE);
        assert!(two.exclude_primary);
        assert_eq!(two.max_queue_pairs, 1);
        let one = effective(&asked, &Machine::uniform(1), &ABLE);
        assert!(!one.exclude_primary);
        assert_eq!(one.differences.len(), 3, "{:?}", told(&one));
    }

    #[test]
    fn a_difference_keeps_the_moment_it_began() {
        let difference = |reason: &str| Difference {
            setting: Setting::Mode,
            requested: "dynamic".to_owned(),
            effective: "static-vrss".to_owned(),
            reason: reason.to_owned(),
        };
        let at = Duration::from_secs;
        let first = carry_over(&[], &[difference("a")], at(1));
        let second = carry_over(&first, &[difference("a"), difference("b")], at(2));
        assert_eq!(second.iter().map(|standing| standing.since).collect::<Vec<_>>(), [at(1), at(2)]);
        assert_eq!(carry_over(&second, &[], at(3)), []);
    }
}
