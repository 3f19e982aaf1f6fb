//! `netrig list` and `netrig show`.

use std::fmt::Write;

use rig_cli::exit::{Exit, Failure};
use rig_cli::look::{self, wrapped};
use rig_cli::streams::{self, print};
use rig_stats::units::{Span, counted};
use rig_study::run::{impossible, minutes};
use rig_study::suite::{Repeat, Scenario, Suite, shown};
use rig_testbed::Dut;
use rig_testbed::topology::Path;

pub fn list() -> Result<Exit, Failure> {
    let width = streams::width();
    let mut text = String::new();
    for suite in Suite::built_in() {
        let suite = suite?;
        text += &wrapped(&format!("{}: {}", suite.name, suite.title), "", "  ", width);
        let entries: Vec<[String; 3]> = lists(&suite)
            .map(|rows| {
                let path = rows[0].topology.path();
                let workers = rows[0].row_of.as_ref().map(|_| format!(", N = {} workers", numbers(rows)));
                [id_of(rows), rows[0].list_name().to_owned(), format!("{path}{}", workers.unwrap_or_default())]
            })
            .collect();
        let widest = |i: usize| entries.iter().map(|entry| entry[i].chars().count()).max().unwrap_or(0);
        let (ids, names, paths) = (widest(0), widest(1), widest(2));
        for [id, name, path] in &entries {
            if 2 + ids + 2 + names + 2 + paths <= width {
                let _ = writeln!(text, "  {id:<ids$}  {name:<names$}  {path}");
            } else {
                let first = format!("  {id:<ids$}  ");
                text += &wrapped(&format!("{name} ({path})"), &first, &" ".repeat(ids + 6), width);
            }
        }
    }
    print(&look::shown(&text))?;
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
    let width = streams::width();
    let mut text = String::new();
    let say = |text: &mut String, indent: &str, words: &str| {
        text.push_str(&wrapped(
            words,
            indent,
            &format!("{indent}{}", if indent.is_empty() { "" } else { "  " }),
            width,
        ));
    };
    let phases = suite.timing.phases;
    say(&mut text, "", &suite.title);
    for part in [&suite.question, suite.about.trim()].into_iter().filter(|part| !part.is_empty()) {
        text.push('\n');
        say(&mut text, "", part);
    }
    text.push('\n');
    say(
        &mut text,
        "",
        &format!(
            "Each trial: warm-up {}, window {}, cool-down {}; {}.",
            Span(phases.warm_up),
            Span(phases.window),
            Span(phases.cool_down),
            repeat_text(suite.timing.repeat)
        ),
    );
    let shortest = suite.shortest(&suite.timing).map(|time| format!("A run takes {} or more", minutes(time)));
    let quick = suite.shortest_look().map(|time| format!("about {} with --quick", minutes(time)));
    let times: Vec<String> = shortest.into_iter().chain(quick).collect();
    if !times.is_empty() {
        say(&mut text, "", &format!("{}.", times.join(", ")));
    }
    for rows in lists(&suite) {
        let scenario = &rows[0];
        text.push('\n');
        say(&mut text, "", &format!("{}: {}", id_of(rows), scenario.list_name()));
        let mut facts = vec![scenario.about.clone()];
        if scenario.row_of.is_some() {
            facts.push(format!("A scenario for each number of workers, N = {}", numbers(rows)));
        }
        facts.push(load_text(scenario));
        facts.extend(scenario.dut.as_ref().map(|dut| dut_text(scenario.topology.path(), dut)));
        let setups = scenario.datapaths.iter().filter(|setup| !setup.settings.is_empty());
        facts.extend(
            setups.map(|setup| format!("{} on {}: {}", setup.name, setup.nodes.join(", "), shown(&setup.settings))),
        );
        facts.extend(
            impossible(scenario, rig_datapaths::ALL).map(|why| format!("Every run leaves it out: {}", why.found)),
        );
        facts.extend(scenario.notes.iter().map(|note| format!("Note: {note}")));
        facts.iter().filter(|fact| !fact.is_empty()).for_each(|fact| say(&mut text, "   ", fact));
        for line in scenario.topology.draw(&[]).lines() {
            let _ = writeln!(text, "   {line}");
        }
    }
    if !suite.claims.is_empty() {
        text.push_str("\nClaims\n");
    }
    for claim in &suite.claims {
        say(&mut text, "  ", claim.text());
        say(&mut text, "    ", claim.expression());
    }
    print(&look::shown(&text))?;
    Ok(Exit::Done)
}

/// What the device under test has, in one line.
fn dut_text(path: Path, dut: &Dut) -> String {
    let Dut { service_addresses, local_addresses, profile, .. } = *dut;
    let mut parts = vec![counted(service_addresses, "service address", "service addresses")];
    parts.extend(path.has_local_addresses().then(|| counted(local_addresses, "local address", "local addresses")));
    parts.extend(profile.then(|| "the stacks of its CPUs are sampled".to_owned()));
    format!("Device under test: {}", parts.join(", "))
}

/// How often trials are repeated, in words.
pub fn repeat_text(repeat: Repeat) -> String {
    match repeat {
        Repeat::Times(n) => counted(n as usize, "trial", "trials"),
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
            goal.width.to_string().replace("+-", "±").replace('%', " %")
        ),
    }
}

/// A scenario's load in one line.
pub fn load_text(scenario: &Scenario) -> String {
    let under = scenario.under.as_ref().map(|under| format!("; meanwhile {under}"));
    format!("{}{}", scenario.traffic, under.unwrap_or_default())
}
