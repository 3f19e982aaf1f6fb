//! `netrig list` and `netrig show`.

use std::ffi::OsStr;
use std::fmt::Write;

use rig_cli::exit::{Exit, Failure};
use rig_cli::look::{self, wrapped};
use rig_cli::streams::{self, print};
use rig_cli::visible::visible_line;
use rig_run::run::impossible;
use rig_stats::units::{Span, counted, minutes};
use rig_suite::suite::{Scenario, Suite, shown};
use rig_testbed::Dut;
use rig_testbed::topology::Path;

pub fn list(with_scenarios: bool) -> Result<Exit, Failure> {
    let width = streams::width();
    let suites = Suite::built_in().collect::<Result<Vec<_>, _>>()?;
    let names = suites.iter().map(|suite| suite.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for suite in &suites {
        let first = format!("{:<names$}  ", suite.name);
        text += &wrapped(&suite.title, &first, &" ".repeat(names + 4), width);
        if with_scenarios {
            text += &scenarios(suite, width).concat();
        }
    }
    print(&look::shown(&text))?;
    Ok(Exit::Done)
}

/// Each scenario, or list of them: id, name and path, in one line or more.
fn scenarios(suite: &Suite, width: usize) -> Vec<String> {
    let entries: Vec<[String; 3]> = lists(suite)
        .map(|rows| {
            let path = rows[0].topology.path();
            let workers = rows[0].row_of.as_ref().map(|_| format!(", N = {} workers", numbers(rows)));
            [id_of(rows), rows[0].list_name().to_owned(), format!("{path}{}", workers.unwrap_or_default())]
        })
        .collect();
    let widest = |i: usize| entries.iter().map(|entry| entry[i].chars().count()).max().unwrap_or(0);
    let (ids, names, paths) = (widest(0), widest(1), widest(2));
    let show = |[id, name, path]: &[String; 3]| {
        if 2 + ids + 2 + names + 2 + paths <= width {
            format!("  {id:<ids$}  {name:<names$}  {path}\n")
        } else {
            let first = format!("  {id:<ids$}  ");
            wrapped(&format!("{name} ({path})"), &first, &" ".repeat(ids + 6), width)
        }
    };
    entries.iter().map(show).collect()
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

pub fn show(name: &OsStr, all: bool) -> Result<Exit, Failure> {
    let suite = Suite::load(name)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    let width = streams::width();
    let head = head(&suite, width);
    let whole = format!("{head}{}", details(&suite, width));
    let text = if all || whole.lines().count() <= SCREEN {
        whole
    } else {
        let room = SCREEN.saturating_sub(head.lines().count() + AROUND);
        format!("{head}{}", overview(&suite, &visible_line(&name.to_string_lossy()), room, width))
    };
    print(&look::shown(&text))?;
    Ok(Exit::Done)
}

/// Lines that are read at a glance; what has more is shown in full where all is asked for.
const SCREEN: usize = 60;
/// Lines of an overview that are not of scenarios and claims: headings, how many more there are, what to do next.
const AROUND: usize = 9;

fn say(text: &mut String, indent: &str, words: &str, width: usize) {
    text.push_str(&wrapped(words, indent, &format!("{indent}{}", if indent.is_empty() { "" } else { "  " }), width));
}

/// What the suite asks, and how long that takes.
fn head(suite: &Suite, width: usize) -> String {
    let mut text = String::new();
    let phases = suite.timing.phases;
    say(&mut text, "", &suite.title, width);
    for part in [&suite.question, suite.about.trim()].into_iter().filter(|part| !part.is_empty()) {
        text.push('\n');
        say(&mut text, "", part, width);
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
            suite.timing.repeat
        ),
        width,
    );
    let shortest = suite.shortest(&suite.timing).map(|time| format!("A run takes {} or more", minutes(time)));
    let quick = suite.shortest_look().map(|time| format!("about {} with --quick", minutes(time)));
    let times: Vec<String> = shortest.into_iter().chain(quick).collect();
    if !times.is_empty() {
        say(&mut text, "", &format!("{}.", times.join(", ")), width);
    }
    text
}

/// Scenarios and claims by name, about as many lines as there is room for, and where the rest is.
fn overview(suite: &Suite, name: &str, room: usize, width: usize) -> String {
    let claims: Vec<String> = suite
        .claims
        .iter()
        .map(|claim| {
            let mut text = String::new();
            say(&mut text, "  ", claim.text(), width);
            text
        })
        .collect();
    // Claims have half of the room, scenarios what they leave.
    let of_claims = begin(claims.iter().map(String::as_str), room / 2);
    let entries = scenarios(suite, width);
    let left = room.saturating_sub(claims[..of_claims].concat().lines().count());
    let of_scenarios = begin(entries.iter().map(String::as_str), left);
    let mut text =
        format!("\n{}\n{}", counted(suite.scenarios.len(), "scenario", "scenarios"), entries[..of_scenarios].concat());
    let more = |text: &mut String, all: usize, shown: usize| {
        if shown < all {
            let _ = writeln!(text, "  and {} more", all - shown);
        }
    };
    let hidden: usize = lists(suite).skip(of_scenarios).map(<[Scenario]>::len).sum();
    more(&mut text, suite.scenarios.len(), suite.scenarios.len() - hidden);
    if !claims.is_empty() {
        let _ = write!(text, "\n{}\n{}", counted(claims.len(), "claim", "claims"), claims[..of_claims].concat());
        more(&mut text, claims.len(), of_claims);
    }
    text.push('\n');
    let next = format!(
        "Next: netrig show {name} --all, with each scenario's testbed and load and what each claim is computed from."
    );
    say(&mut text, "", &next, width);
    text
}

/// How many of the texts, from the first on, have at most so many lines together.
fn begin<'a>(texts: impl Iterator<Item = &'a str>, lines: usize) -> usize {
    let mut sum = 0;
    texts
        .take_while(|text| {
            sum += text.lines().count();
            sum <= lines
        })
        .count()
}

/// Each scenario with its load and its testbed, each claim with its expression.
fn details(suite: &Suite, width: usize) -> String {
    let mut text = String::new();
    for rows in lists(suite) {
        let scenario = &rows[0];
        text.push('\n');
        say(&mut text, "", &format!("{}: {}", id_of(rows), scenario.list_name()), width);
        let mut facts = vec![scenario.about.clone()];
        if scenario.row_of.is_some() {
            facts.push(format!("A scenario for each number of workers, N = {}", numbers(rows)));
        }
        facts.push(scenario.load_words());
        facts.extend(scenario.dut.as_ref().map(|dut| dut_text(scenario.topology.path(), dut)));
        let setups = scenario.datapaths.iter().filter(|setup| !setup.settings.is_empty());
        facts.extend(
            setups.map(|setup| format!("{} on {}: {}", setup.name, setup.nodes.join(", "), shown(&setup.settings))),
        );
        facts.extend(
            impossible(scenario, rig_datapaths::ALL).map(|why| format!("Every run leaves it out: {}", why.found)),
        );
        facts.extend(scenario.notes.iter().map(|note| format!("Note: {note}")));
        facts.iter().filter(|fact| !fact.is_empty()).for_each(|fact| say(&mut text, "   ", fact, width));
        for line in scenario.describe(&[]).lines() {
            let _ = writeln!(text, "   {line}");
        }
    }
    if !suite.claims.is_empty() {
        text.push_str("\nClaims\n");
    }
    for claim in &suite.claims {
        say(&mut text, "  ", claim.text(), width);
        say(&mut text, "    ", claim.expression(), width);
    }
    text
}

/// What the device under test has, in one line.
fn dut_text(path: Path, dut: &Dut) -> String {
    let Dut { service_addresses, local_addresses, profile, .. } = *dut;
    let mut parts = vec![counted(service_addresses, "service address", "service addresses")];
    parts.extend(path.has_local_addresses().then(|| counted(local_addresses, "local address", "local addresses")));
    parts.extend(profile.then(|| "the stacks of its CPUs are sampled".to_owned()));
    format!("Device under test: {}", parts.join(", "))
}
