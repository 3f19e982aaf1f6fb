//! `netrig list` and `netrig show`.

use std::fmt::Write;

use rig_cli::exit::{Exit, Failure};
use rig_cli::streams::print;
use rig_study::run::{impossible, minutes};
use rig_study::suite::{Repeat, Scenario, Suite, shown};
use rig_testbed::Dut;
use rig_testbed::topology::Path;

pub fn list() -> Result<Exit, Failure> {
    let mut text = String::new();
    for suite in Suite::built_in() {
        let suite = suite?;
        let _ = writeln!(text, "{}: {}", suite.name, suite.title);
        let entries: Vec<(String, &[Scenario])> = lists(&suite).map(|rows| (id_of(rows), rows)).collect();
        let ids = entries.iter().map(|(id, _)| id.chars().count()).max().unwrap_or(0);
        let names = entries.iter().map(|(_, rows)| rows[0].list_name().chars().count()).max().unwrap_or(0);
        for (id, rows) in entries {
            let (name, path) = (rows[0].list_name(), rows[0].topology.path());
            let _ = write!(text, "  {id:<ids$}  {name:<names$}  {path}");
            let _ = match rows[0].row_of {
                Some(_) => writeln!(text, ", N = {} workers", numbers(rows)),
                None => writeln!(text),
            };
        }
    }
    print(&text)?;
    Ok(Exit::Done)
}

/// The scenarios of the suite, those of one list of workers together.
fn lists(suite: &Suite) -> impl Iterator<Item = &[Scenario]> {
    suite.scenarios.chunk_by(|one, other| one.row_of.is_some() && one.row_of == other.row_of)
}

/// `cps-balancer-N` of a list, the scenario's own id where it stands alone.
fn id_of(rows: &[Scenario]) -> String {
    rows[0].row_of.as_ref().map_or_else(|| rows[0].id.clone(), |id| format!("{id}-N"))
}

/// `1, 2, 4`
fn numbers(rows: &[Scenario]) -> String {
    let workers = rows.iter().filter_map(|row| row.dut).map(|dut| dut.workers.to_string());
    workers.collect::<Vec<_>>().join(", ")
}

pub fn show(name: &str) -> Result<Exit, Failure> {
    let suite = Suite::load(name)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    let mut text = String::new();
    let phases = suite.timing.phases;
    let _ = writeln!(text, "{}\n", suite.title);
    if !suite.about.is_empty() {
        let _ = writeln!(text, "{}\n", suite.about.trim());
    }
    let _ = writeln!(
        text,
        "Each trial: warm-up {:?}, window {:?}, cool-down {:?}; {}.",
        phases.warm_up,
        phases.window,
        phases.cool_down,
        repeat_text(suite.timing.repeat)
    );
    let shortest = suite.shortest(&suite.timing).map(|time| format!("A run takes {} or more", minutes(time)));
    let quick = suite
        .quick
        .and_then(|quick| suite.shortest(&quick))
        .map(|time| format!("about {} with --quick", minutes(time)));
    let times: Vec<String> = shortest.into_iter().chain(quick).collect();
    if !times.is_empty() {
        let _ = writeln!(text, "{}.", times.join(", "));
    }
    for rows in lists(&suite) {
        let scenario = &rows[0];
        let _ = writeln!(text, "\n{}  {}", id_of(rows), scenario.list_name());
        if !scenario.about.is_empty() {
            let _ = writeln!(text, "   {}", scenario.about);
        }
        if scenario.row_of.is_some() {
            let _ = writeln!(text, "   A scenario for each number of workers, N = {}", numbers(rows));
        }
        let _ = writeln!(text, "   {}", load_text(scenario));
        if let Some(dut) = &scenario.dut {
            let _ = writeln!(text, "   {}", dut_text(scenario.topology.path(), dut));
        }
        for setup in scenario.datapaths.iter().filter(|setup| !setup.settings.is_empty()) {
            let _ = writeln!(text, "   {} on {}: {}", setup.name, setup.nodes.join(", "), shown(&setup.settings));
        }
        if let Some(why) = impossible(scenario, rig_datapaths::ALL) {
            let _ = writeln!(text, "   Every run leaves it out: {}", why.found);
        }
        for note in &scenario.notes {
            let _ = writeln!(text, "   Note: {note}");
        }
        for line in scenario.topology.draw(&[]).lines() {
            let _ = writeln!(text, "   {line}");
        }
    }
    if !suite.claims.is_empty() {
        let _ = writeln!(text, "\nClaims");
    }
    for claim in &suite.claims {
        let _ = writeln!(text, "  {}\n    {}", claim.text(), claim.expression());
    }
    print(&text)?;
    Ok(Exit::Done)
}

/// What the device under test has, in one line.
fn dut_text(path: Path, dut: &Dut) -> String {
    let addresses = |n: u32, what: &str| format!("{n} {what} address{}", if n == 1 { "" } else { "es" });
    let Dut { service_addresses, local_addresses, profile, .. } = *dut;
    let mut parts = vec![addresses(service_addresses, "service")];
    parts.extend(path.has_local_addresses().then(|| addresses(local_addresses, "local")));
    parts.extend(profile.then(|| "the stacks of its CPUs are sampled".to_owned()));
    format!("Device under test: {}", parts.join(", "))
}

/// How often trials are repeated, in words.
pub fn repeat_text(repeat: Repeat) -> String {
    match repeat {
        Repeat::Times(n) => format!("{n} trials"),
        Repeat::Within(budget) => format!(
            "within {}: blocks of one trial of each scenario, {} planned; a scenario whose claims are all decided rests",
            minutes(budget.time()),
            budget.blocks
        ),
        Repeat::Until(goal) => format!(
            "{} to {} trials, until {} % intervals are within {}",
            goal.min(),
            goal.max(),
            goal.level.percent(),
            goal.width
        ),
    }
}

/// A scenario's load in one line.
pub fn load_text(scenario: &Scenario) -> String {
    let under = scenario.under.as_ref().map(|under| format!("; meanwhile {under}"));
    format!("{}{}", scenario.traffic, under.unwrap_or_default())
}
