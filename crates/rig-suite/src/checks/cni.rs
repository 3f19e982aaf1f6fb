//! What the specification of the Container Network Interface asks of plug-ins, as an agent of a node has tried it.

use std::collections::BTreeMap;
use std::fmt;

use rig_facts::record::{CommandRecord, TrialRecord};
use serde::Deserialize;

use super::{Check, Verdict};

/// The datapath that tries it.
pub const CNI: &str = "cni";
/// What it is told.
pub const CONFORM: &str = "conform";
pub const AT_ONCE: &str = "at_once";
/// What a scenario's programme has to have.
pub const PHASES: [&str; 1] = ["operations"];

/// One thing that was tried, as the agent tells it.
#[derive(Debug, Deserialize)]
struct CheckOutcome {
    name: String,
    what: String,
    verdict: OutcomeVerdict,
    seen: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OutcomeVerdict {
    Passed,
    Failed,
    Lacking,
    /// What has to go before it failed, or there was no time.
    NotTried,
}

/// How long it took to add and to delete containers, so many at once; microseconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OperationTimes {
    pub at_once: u32,
    pub rounds: u32,
    pub add_us: Vec<u64>,
    /// From the begin of an ADD to the first answer to another container.
    pub first_packet_us: Vec<u64>,
    pub check_us: Vec<u64>,
    pub del_us: Vec<u64>,
    /// Of each round, from the first begin to the last end.
    pub all_added_us: Vec<u64>,
    pub all_deleted_us: Vec<u64>,
    /// Each plug-in, in the order of the chain; of operations that succeeded.
    pub chain: Vec<PluginTimes>,
    /// Containers for which it failed, by what was tried.
    pub failed: BTreeMap<String, u64>,
    /// The first few of them in words.
    pub why: Vec<String>,
    /// Addresses that two containers had at the same time.
    pub shared_addresses: Vec<String>,
    /// Why there are fewer rounds than were asked for, in words.
    pub stopped: Option<String>,
}

/// How long calls of one plug-in took, by command; microseconds.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct PluginTimes {
    pub plugin: String,
    pub commands: BTreeMap<String, Vec<u64>>,
}

/// How strongly plug-ins are asked for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    Must,
    Should,
    /// The specification does not say it; without it a network is of little use.
    Own,
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::Own => "netrig's own",
        })
    }
}

/// How strongly the specification (SPEC.md, 1.0.0 and later) asks for what a check is about, and in which of its sections.
pub fn basis(check: &str) -> (Strength, Option<u8>) {
    match check {
        // What a result has to have.
        "C01" => (Strength::Must, Some(5)),
        // CHECK right after an ADD; an interface that is there already; a DEL again; STATUS.
        "C03" | "C04" | "C08" | "C18" => (Strength::Must, Some(2)),
        // What CHECK finds, what DEL and GC remove, a DEL where something is missing, an error in JSON.
        "C06" | "C07" | "C09" | "C10" | "C11" | "C12" | "C13" | "C14" | "C16" => (Strength::Should, Some(2)),
        _ => (Strength::Own, None),
    }
}

/// All checks of one trial.
pub fn judge(trial: &TrialRecord) -> Vec<Check> {
    let tried = commands(trial, CONFORM).next().and_then(|answer| serde_json::from_value(answer.clone()).ok());
    let Some(tried): Option<Vec<CheckOutcome>> = tried else {
        return vec![Check {
            name: "CNI".to_owned(),
            what: "What the specification asks is tried".to_owned(),
            published: String::new(),
            verdict: Verdict::Unknown,
            seen: "the trial was not told to".to_owned(),
        }];
    };
    let check = |tried: CheckOutcome| Check {
        name: tried.name,
        what: tried.what,
        published: String::new(),
        verdict: match tried.verdict {
            OutcomeVerdict::Passed => Verdict::Passed,
            OutcomeVerdict::Failed => Verdict::Failed,
            OutcomeVerdict::Lacking => Verdict::Lacking,
            OutcomeVerdict::NotTried => Verdict::Unknown,
        },
        seen: tried.seen,
    };
    tried.into_iter().map(check).collect()
}

/// What trials have measured, those with as many containers at once together, the fewest first.
pub fn times(trials: &[TrialRecord]) -> Vec<OperationTimes> {
    let mut all: Vec<OperationTimes> = Vec::new();
    for answer in trials.iter().flat_map(|trial| commands(trial, AT_ONCE)) {
        let Ok(one) = serde_json::from_value::<OperationTimes>(answer.clone()) else { continue };
        match all.iter_mut().find(|other| other.at_once == one.at_once) {
            Some(other) => other.add(one),
            None => all.push(one),
        }
    }
    all.sort_by_key(|one| one.at_once);
    all
}

impl OperationTimes {
    fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.add_us.extend(other.add_us);
        self.first_packet_us.extend(other.first_packet_us);
        self.check_us.extend(other.check_us);
        self.del_us.extend(other.del_us);
        self.all_added_us.extend(other.all_added_us);
        self.all_deleted_us.extend(other.all_deleted_us);
        for (place, PluginTimes { plugin, commands }) in other.chain.into_iter().enumerate() {
            // Of one network, so that places are the same: two plug-ins of a chain may have one type.
            if self.chain.get(place).is_none_or(|own| own.plugin != plugin) {
                self.chain.push(PluginTimes { plugin, commands });
                continue;
            }
            for (command, times) in commands {
                self.chain[place].commands.entry(command).or_default().extend(times);
            }
        }
        for (what, count) in other.failed {
            *self.failed.entry(what).or_default() += count;
        }
        self.why.extend(other.why);
        self.shared_addresses.extend(other.shared_addresses);
        self.stopped = self.stopped.take().or(other.stopped);
    }
}

/// What agents answered to a command.
fn commands<'t>(trial: &'t TrialRecord, name: &'t str) -> impl Iterator<Item = &'t serde_json::Value> {
    let all = trial.phases.iter().flat_map(|phase| &phase.commands);
    let own = all.filter(move |command: &&CommandRecord| command.datapath == CNI && command.command == name);
    own.flat_map(|command| command.answers.iter().map(|(_, answer)| answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(plugins: &[&str]) -> OperationTimes {
        let one = |plugin: &&str| PluginTimes {
            plugin: (*plugin).to_owned(),
            commands: [("add".to_owned(), vec![1])].into(),
        };
        OperationTimes { chain: plugins.iter().map(one).collect(), ..OperationTimes::default() }
    }

    #[test]
    fn two_plug_ins_of_one_type_stay_two_over_trials() {
        let mut all = times(&["tuning", "bridge", "tuning"]);
        all.add(times(&["tuning", "bridge", "tuning"]));
        let told: Vec<_> = all.chain.iter().map(|own| (&*own.plugin, own.commands["add"].len())).collect();
        assert_eq!(told, [("tuning", 2), ("bridge", 2), ("tuning", 2)]);
    }

    #[test]
    fn what_the_specification_does_not_say_is_netrigs_own() {
        assert_eq!(basis("C04"), (Strength::Must, Some(2)));
        assert_eq!(basis("C06"), (Strength::Should, Some(2)));
        assert_eq!(basis("C02"), (Strength::Own, None));
    }
}
