//! What else is not the same in two runs.

use std::collections::{BTreeMap, BTreeSet};

use rig_facts::claim::{Metric, Side};
use rig_facts::record::{Environment, LOAD_AVERAGE, PreTrialCommand, ToolRun, described};
use rig_suite::ends::Peer;
use rig_suite::suite::{Scenario, Suite};

use super::{Difference, Doubt, FlagCount};
use crate::export::{PhasesData, RunData, ScenarioData};
use serde_json::Value;

/// Load averages that differ by less say nothing, hundredths.
const LOAD_APART: u32 = 50;

/// Everything that a run's figures may depend on, as far as it is recorded.
#[derive(Debug)]
pub struct Conditions {
    environment: Environment,
    phases: PhasesData,
    cpus: Vec<String>,
    /// `None` when this netrig cannot read the run's suite.
    suite: Option<Suite>,
    /// For a test between two machines: the other machine and the load.
    ends: Option<(Peer, Vec<Value>)>,
    /// For another tool's test: what it was.
    tool: Option<ToolRun>,
    /// The device under test, by scenario.
    duts: BTreeMap<String, BTreeSet<String>>,
    /// What was run in nodes before trials, by scenario.
    inside: BTreeMap<String, BTreeSet<String>>,
    /// What the calibration of its CPUs took, of all its trials: known once, since there are many.
    pub(super) work_ns: Option<f64>,
}

impl Conditions {
    pub fn of(run: &RunData) -> Self {
        let plans = || run.scenarios.iter().map(|scenario| scenario.plan.clone()).collect();
        Self {
            environment: unlabelled(&run.environment),
            ends: run.run.peer.as_ref().map(|peer| (peer.with(unlabelled), plans())),
            tool: run.run.tool.as_ref().map(ToolRun::conditions),
            phases: run.run.phases_s,
            cpus: run.run.cpus.clone(),
            suite: Suite::parse_stored(&run.run.suite_file, &run.run.suite_text).ok(),
            duts: run
                .scenarios
                .iter()
                .map(|scenario| (scenario.id.clone(), systems(scenario).into_iter().map(str::to_owned).collect()))
                .collect(),
            inside: run.scenarios.iter().map(|scenario| (scenario.id.clone(), inside(scenario))).collect(),
            work_ns: super::machine::work_ns(run),
        }
    }

    /// Whether a figure decides what is said of the run: those for which the suite repeats trials, and [`Metric::is_primary`] ones.
    pub fn gates(&self, id: &str, side: Side, metric: Metric) -> bool {
        let scenario = self.suite.as_ref().and_then(|suite| suite.scenario(id));
        if self.ends.is_some() || self.tool.is_some() {
            // As suites do: the result of the load, and its cost.
            let rates = [Metric::Throughput, Metric::Transactions, Metric::Datagrams, Metric::Connections, Metric::Cpu];
            return metric.is_primary() || rates.contains(&metric);
        }
        // When the suite cannot be read, all figures are watched.
        metric.is_primary() || scenario.is_none_or(|scenario| scenario.watched.contains(&(side, metric)))
    }

    fn scenario(&self, id: &str) -> Option<Scenario> {
        self.suite.as_ref()?.scenario(id).cloned().map(bare)
    }

    /// Whether a scenario was run under the same conditions in both, the same build of netrig among them.
    pub fn alike(&self, other: &Self, scenario: &str) -> bool {
        self.phases == other.phases
            && self.cpus == other.cpus
            && self.environment == other.environment
            && self.duts.get(scenario) == other.duts.get(scenario)
            && self.inside.get(scenario) == other.inside.get(scenario)
            && match (&self.ends, &self.tool) {
                (Some(own), _) => other.ends.as_ref() == Some(own),
                // Of machines that nobody knows nothing says that they are one.
                (None, Some(own)) => {
                    other.tool.as_ref() == Some(own) && (self.environment.is_known() || tells_machine(&own.machine))
                }
                (None, None) => self.scenario(scenario).is_some_and(|own| other.scenario(scenario) == Some(own)),
            }
    }
}

/// Whether an output says which machine it is of: the name of an operating system alone is that of many.
fn tells_machine(machine: &[(String, String)]) -> bool {
    machine.iter().any(|(name, value)| name != "System" || value.split_whitespace().nth(1).is_some())
}

/// The environment without the load average, which is noise and no setting, and without the commit: the build tells whether the
/// sources are the same.
fn still(environment: &Environment) -> Environment {
    environment.changed(|one| {
        one.load_average_hundredths = 0;
        one.netrig_commit = None;
    })
}

/// The same without labels, which are words about machines.
fn unlabelled(environment: &Environment) -> Environment {
    still(environment).changed(|one| one.labels.clear())
}

/// The scenario without the words about it, and without what ends its repetition.
fn bare(scenario: Scenario) -> Scenario {
    // Its trials say what was run before them, also what the suite does not know of.
    let (notes, watched, before) = Default::default();
    Scenario { name: String::new(), about: String::new(), notes, watched, before, ..scenario }
}

/// All differences, those that decide most first.
pub(super) fn between(
    old: &RunData,
    new: &RunData,
    conditions: &(Conditions, Conditions),
    scenarios: &[(&ScenarioData, &ScenarioData)],
) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut note = |what: &str, old: String, new: String| {
        if old != new {
            found.push(Difference { what: what.to_owned(), old, new });
        }
    };
    let (one, other) = (&old.run, &new.run);
    let seconds = |s: f64| format!("{s} s");
    note("Warm-up", seconds(one.phases_s.warm_up), seconds(other.phases_s.warm_up));
    note("Window", seconds(one.phases_s.window), seconds(other.phases_s.window));
    note("Cool-down", seconds(one.phases_s.cool_down), seconds(other.phases_s.cool_down));
    note("Server", peer(old), peer(new));
    note("The client's connections", source(old), source(new));
    note("CPUs of the nodes", one.cpus.join(" and "), other.cpus.join(" and "));
    note("Host of the nodes", host(old), host(new));
    note("Command before each trial", command(old), command(new));
    note(
        "Commands in nodes before each trial",
        all_inside(scenarios.iter().map(|(old, _)| *old)),
        all_inside(scenarios.iter().map(|(_, new)| *new)),
    );
    note("Repetition", one.repetition.clone(), other.repetition.clone());
    note(
        "Costs by layer",
        sampled(scenarios.iter().map(|(old, _)| *old)),
        sampled(scenarios.iter().map(|(_, new)| *new)),
    );
    let chosen = |run: &RunData| run.scenarios.iter().map(|s| s.id.as_str()).collect::<Vec<_>>().join(", ");
    note("Scenarios of the run, which take turns", chosen(old), chosen(new));
    note("Scenarios left out", left_out(old), left_out(new));
    found.extend(super::machine::difference(&conditions.0, &conditions.1));
    found.extend(of_tools(one.tool.as_ref(), other.tool.as_ref()));
    found.extend(machines(&old.environment, &new.environment));
    if let (Some(one), Some(other)) = (&one.peer, &other.peer) {
        let of_server = settings(&still(&one.machine), &still(&other.machine)).into_iter();
        found.extend(of_server.map(|one| Difference { what: format!("Server: {}", one.what), ..one }));
    }
    found.extend(counting(scenarios.iter().map(|(old, _)| *old), scenarios.iter().map(|(_, new)| *new)));
    if old.environment.is_known() && new.environment.is_known() {
        found.extend(load(&old.environment, &new.environment));
    }
    if one.tool.is_none() || other.tool.is_none() {
        found.extend(scenarios.iter().filter_map(|(one, other)| definition(one, other, conditions)));
    }
    found.extend(scenarios.iter().filter_map(|(one, other)| dut(one, other)));
    found.extend(scenarios.iter().filter_map(|(one, other)| layers_per(one, other)));
    found.extend(scenarios.iter().flat_map(|(one, other)| doubts(one, other)));
    found
}

/// The server of a test between two machines, as the user named it and where it was found.
/// What the client's sockets were bound to.
fn source(run: &RunData) -> String {
    let source = run.run.peer.as_ref().and_then(|peer| peer.source.clone());
    source.unwrap_or_else(|| "as the routing table has it".to_owned())
}

fn peer(run: &RunData) -> String {
    run.run.peer.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
}

/// Where the nodes were, in the words of the trials: one of a single node tells of its host alone.
fn host(run: &RunData) -> String {
    let trials = || run.scenarios.iter().flat_map(|scenario| &scenario.trials);
    let each: BTreeSet<String> = trials()
        .flat_map(|trial| trial["hosts"].as_array().into_iter().flatten())
        .filter_map(|of| Some(format!("{}={}", of[0].as_str()?, of[1]["name"].as_str()?)))
        .collect();
    if !each.is_empty() {
        return each.into_iter().collect::<Vec<_>>().join(" ");
    }
    let elsewhere = trials().next().and_then(|trial| trial["host"]["name"].as_str());
    elsewhere.unwrap_or("the runner's own").to_owned()
}

/// The command before each trial of a run that took turns.
fn command(run: &RunData) -> String {
    let command = run.run.turns.as_ref().map_or("", |turns| turns.command.as_str());
    if command.is_empty() { "none".to_owned() } else { command.to_owned() }
}

/// What could not be made, with the reasons.
fn left_out(run: &RunData) -> String {
    let all: Vec<String> = run.left_out.iter().map(ToString::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join("; ") }
}

/// What was run in nodes before the trials of a scenario.
fn inside(scenario: &ScenarioData) -> BTreeSet<String> {
    let commands = scenario.trials.iter().filter_map(|trial| trial["before"].as_array()).flatten();
    let one =
        |command: &Value| serde_json::from_value::<PreTrialCommand>(command.clone()).ok().map(|one| one.to_string());
    commands.filter_map(one).collect()
}

/// What was run in nodes before the trials of all these scenarios, in one text.
fn all_inside<'a>(scenarios: impl Iterator<Item = &'a ScenarioData>) -> String {
    let all: BTreeSet<String> = scenarios.flat_map(inside).collect();
    if all.is_empty() { "none".to_owned() } else { all.into_iter().collect::<Vec<_>>().join("; ") }
}

/// Whether any stacks were sampled: a comparison names layers only where both runs did.
fn sampled<'a>(mut scenarios: impl Iterator<Item = &'a ScenarioData>) -> String {
    if scenarios.any(|scenario| !scenario.layers.is_empty()) { "sampled" } else { "not sampled" }.to_owned()
}

/// What stood between the ends, with its version, in the words of the trials: each kind once.
fn systems(scenario: &ScenarioData) -> BTreeSet<&str> {
    scenario.trials.iter().filter_map(|trial| trial["middle"]["system"].as_str()).collect()
}

/// A difference in what CPU time by layer is divided by: times per different things are not compared.
fn layers_per(old: &ScenarioData, new: &ScenarioData) -> Option<Difference> {
    let units =
        |scenario: &ScenarioData| -> BTreeSet<String> { scenario.layers.iter().map(|l| l.unit.clone()).collect() };
    let (one, other) = (units(old), units(new));
    let words = |units: BTreeSet<String>| units.into_iter().collect::<Vec<_>>().join(", ");
    (!one.is_empty() && !other.is_empty() && one != other).then(|| Difference {
        what: format!("Unit of the cost by layer of scenario {}", old.id),
        old: words(one),
        new: words(other),
    })
}

fn dut(old: &ScenarioData, new: &ScenarioData) -> Option<Difference> {
    let (one, other) = (systems(old), systems(new));
    let words = |systems: &BTreeSet<&str>| systems.iter().copied().collect::<Vec<_>>().join("; ");
    let what = || format!("Device under test of scenario {}", old.id);
    (one != other).then(|| Difference { what: what(), old: words(&one), new: words(&other) })
}

/// What was asked of another tool in one run and not in the other, and where the figures come from.
fn of_tools(old: Option<&ToolRun>, new: Option<&ToolRun>) -> Vec<Difference> {
    let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
    let origin = |tool: &ToolRun| if tool.is_imported() { "the tool's output" } else { "netrig" }.to_owned();
    let server = |tool: &ToolRun| tool.server.clone().unwrap_or_else(not_recorded);
    let whole =
        [("Tool", old.name(), new.name()), ("Told by", origin(old), origin(new)), ("Server", server(old), server(new))];
    let whole = whole.into_iter().map(|(what, old, new)| Difference { what: what.to_owned(), old, new });
    let named = |what: &str, pairs: fn(&ToolRun) -> &[(String, String)]| -> Vec<Difference> {
        let value = |tool: &ToolRun, name: &str| {
            let own = pairs(tool).iter().find(|(own, _)| own == name);
            own.map_or_else(not_recorded, |(_, value)| value.clone())
        };
        let names: BTreeSet<&str> = pairs(old).iter().chain(pairs(new)).map(|(name, _)| name.as_str()).collect();
        let of =
            |name: &str| Difference { what: format!("{what}, {name}"), old: value(old, name), new: value(new, name) };
        names.into_iter().map(of).collect()
    };
    let asked = named("Asked for", |tool| &tool.settings);
    let machine = named("Machine by the output", |tool| &tool.machine);
    whole.chain(asked).chain(machine).filter(|difference| difference.old != difference.new).collect()
}

fn not_recorded() -> String {
    "not recorded".to_owned()
}

/// Machine and settings; in a line where one run has none recorded.
fn machines(old: &Environment, new: &Environment) -> Vec<Difference> {
    if old.is_known() == new.is_known() {
        return settings(old, new);
    }
    let words = |one: &Environment| match one.is_known() {
        true => format!("{}, Linux {}", one.cpu_model, one.kernel),
        false => not_recorded(),
    };
    vec![Difference { what: "Machine and settings".to_owned(), old: words(old), new: words(new) }]
}

/// Machine and settings, in the words of the report.
fn settings(old: &Environment, new: &Environment) -> Vec<Difference> {
    // Compared elsewhere, with a tolerance.
    let still = |environment: &Environment| environment.changed(|one| one.load_average_hundredths = 0);
    let (one, other) = (described(&still(old)), described(&still(new)));
    // Labels, and a limit of idle CPUs, are there or not: what lacks them was not left out of a record.
    let lacking = |key: &str| match key {
        label if label.starts_with("Label ") => "none".to_owned(),
        // Root alone sees it.
        limit if limit.starts_with("Idle limit") => "none seen".to_owned(),
        _ => not_recorded(),
    };
    let values: BTreeMap<&str, &str> = other.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let known: BTreeSet<&str> = one.iter().map(|(key, _)| key.as_str()).collect();
    let changed = one.iter().filter_map(|(key, value)| {
        let after = values.get(key.as_str()).map_or_else(|| lacking(key), |value| (*value).to_owned());
        (after != *value).then(|| Difference { what: key.clone(), old: value.clone(), new: after })
    });
    let gained = other.iter().filter(|(key, _)| !known.contains(key.as_str()));
    let gained = gained.map(|(key, value)| Difference { what: key.clone(), old: lacking(key), new: value.clone() });
    changed.chain(gained).collect()
}

/// Costs of counting that differ by less of a CPU say nothing, percent.
const COSTS_APART: f64 = 0.5;

/// What the exact count of CPU time took of a CPU at most, percent; `None` where nothing was counted so.
fn counting_of<'a>(scenarios: impl Iterator<Item = &'a ScenarioData>) -> Option<f64> {
    let nodes = |trial: &'a Value| trial["nodes"].as_array().into_iter().flatten();
    let cpus = |node: &'a Value| node["cpus"].as_array().into_iter().flatten();
    let all = scenarios.flat_map(|scenario| &scenario.trials).flat_map(nodes).flat_map(cpus);
    all.filter_map(|cpu| cpu["counting"].as_f64()).reduce(f64::max)
}

/// One run paid for an exact count of CPU time and the other did not, or less.
fn counting<'a>(
    old: impl Iterator<Item = &'a ScenarioData>,
    new: impl Iterator<Item = &'a ScenarioData>,
) -> Option<Difference> {
    let (one, other) = (counting_of(old), counting_of(new));
    let differs = match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() > COSTS_APART,
        (one, other) => one.is_some() != other.is_some(),
    };
    let words = |cost: Option<f64>| {
        cost.map_or_else(|| "none, not counted exactly".to_owned(), |percent| format!("up to {percent:.2} % of a CPU"))
    };
    differs.then(|| Difference {
        what: "Cost of counting CPU time exactly, which lowers rates of full CPUs and raises CPU figures".to_owned(),
        old: words(one),
        new: words(other),
    })
}

fn load(old: &Environment, new: &Environment) -> Option<Difference> {
    let (one, other) = (old.load_average_hundredths, new.load_average_hundredths);
    let show = |load: u32| format!("{:.2}", f64::from(load) / 100.0);
    (one.abs_diff(other) > LOAD_APART).then(|| Difference {
        what: LOAD_AVERAGE.to_owned(),
        old: show(one),
        new: show(other),
    })
}

/// What the suites say about a scenario.
fn definition(old: &ScenarioData, new: &ScenarioData, suites: &(Conditions, Conditions)) -> Option<Difference> {
    let differ = |what: &str, one: String, other: String| {
        Some(Difference { what: format!("{} of scenario {}", what, old.id), old: one, new: other })
    };
    if old.load != new.load {
        return differ("Load", old.load.clone(), new.load.clone());
    }
    let (one, other) = (suites.0.scenario(&old.id), suites.1.scenario(&old.id));
    let readable = |scenario: &Option<Scenario>| if scenario.is_some() { "readable" } else { "not readable" };
    match (one, other) {
        (Some(one), Some(other)) if one == other => None,
        (Some(one), Some(other)) => {
            let switch = |scenario: &Scenario| if scenario.topology.segmentation_offload() { "on" } else { "off" };
            if switch(&one) != switch(&other) {
                return differ("Segmentation offload", switch(&one).to_owned(), switch(&other).to_owned());
            }
            let set = |scenario: &Scenario| match scenario.topology.chosen() {
                [] => "nothing beside the path's".to_owned(),
                all => all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            };
            if set(&one) != set(&other) {
                return differ("What is set on the testbed", set(&one), set(&other));
            }
            let words = |scenario: &Scenario| scenario.topology.path().to_string();
            if words(&one) != words(&other) {
                return differ("Path", words(&one), words(&other));
            }
            differ("Testbed or load", "see the old run's suite".to_owned(), "see the new run's suite".to_owned())
        }
        (None, None) => None,
        (one, other) => differ("Suite's text", readable(&one).to_owned(), readable(&other).to_owned()),
    }
}

/// In how many trials of a scenario there was which flag.
fn flags(scenario: &ScenarioData) -> BTreeMap<&str, FlagCount> {
    let mut counts: BTreeMap<&str, FlagCount> = BTreeMap::new();
    for trial in &scenario.trials {
        let flags = trial["flags"].as_array().into_iter().flatten();
        let kinds: BTreeSet<&str> = flags.filter_map(|flag| flag["flag"].as_str()).collect();
        for kind in kinds {
            counts.entry(kind).or_insert(FlagCount { trials: 0, of: scenario.trials.len() }).trials += 1;
        }
    }
    counts
}

/// Each flag of either run, with how often it was in both.
fn flagged<'a>(old: &'a ScenarioData, new: &'a ScenarioData) -> impl Iterator<Item = (&'a str, FlagCount, FlagCount)> {
    let (one, other) = (flags(old), flags(new));
    let kinds: BTreeSet<&str> = one.keys().chain(other.keys()).copied().collect();
    let none = |of: &ScenarioData| FlagCount { trials: 0, of: of.trials.len() };
    let (in_old, in_new) = (none(old), none(new));
    kinds
        .into_iter()
        .map(move |kind| (kind, one.get(kind).copied().unwrap_or(in_old), other.get(kind).copied().unwrap_or(in_new)))
}

/// Something disturbed one run more than the other.
fn doubts(old: &ScenarioData, new: &ScenarioData) -> Vec<Difference> {
    // An equal share of flagged trials in both runs is no difference.
    let differs = |before: FlagCount, after: FlagCount| before.trials * after.of != after.trials * before.of;
    let difference = |(kind, before, after): (&str, FlagCount, FlagCount)| Difference {
        what: format!("Trials of {} flagged {kind}", old.id),
        old: before.to_string(),
        new: after.to_string(),
    };
    flagged(old, new).filter(|(_, before, after)| differs(*before, *after)).map(difference).collect()
}

/// Something disturbed both runs.
pub(super) fn of_both(old: &ScenarioData, new: &ScenarioData) -> Vec<Doubt> {
    let both = flagged(old, new).filter(|(_, before, after)| before.trials > 0 && after.trials > 0);
    both.map(|(flag, before, after)| Doubt { scenario: old.id.clone(), flag: flag.to_owned(), old: before, new: after })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_operating_system_is_no_machine() {
        let of = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert!(!tells_machine(&[]));
        assert!(!tells_machine(&of("System", "Linux")));
        assert!(tells_machine(&of("System", "Linux box 6.1.0 #1 SMP x86_64")));
        assert!(tells_machine(&of("CPU", "EPYC")));
    }
}
