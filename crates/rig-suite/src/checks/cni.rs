//! What the specification of the Container Network Interface asks of plug-ins, as an agent of a node has tried it.

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
    /// By plug-in, then by command.
    pub plugins: std::collections::BTreeMap<String, std::collections::BTreeMap<String, Vec<u64>>>,
    /// Containers for which it failed, by what was tried.
    pub failed: std::collections::BTreeMap<String, u64>,
    /// The first few of them in words.
    pub why: Vec<String>,
    /// Addresses that two containers had at the same time.
    pub shared_addresses: Vec<String>,
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
        for (plugin, commands) in other.plugins {
            let own = self.plugins.entry(plugin).or_default();
            for (command, times) in commands {
                own.entry(command).or_default().extend(times);
            }
        }
        for (what, count) in other.failed {
            *self.failed.entry(what).or_default() += count;
        }
        self.why.extend(other.why);
        self.shared_addresses.extend(other.shared_addresses);
    }
}

/// What agents answered to a command.
fn commands<'t>(trial: &'t TrialRecord, name: &'t str) -> impl Iterator<Item = &'t serde_json::Value> {
    let all = trial.phases.iter().flat_map(|phase| &phase.commands);
    let own = all.filter(move |command: &&CommandRecord| command.datapath == CNI && command.command == name);
    own.flat_map(|command| command.answers.iter().map(|(_, answer)| answer))
}
