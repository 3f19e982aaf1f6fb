//! `netrig list` and `netrig show`.

use std::fmt::Write;

use super::print;
use crate::exit::{Exit, Failure};
use crate::suite::{Repeat, Scenario, Suite};

pub fn list() -> Result<Exit, Failure> {
    let mut text = String::new();
    for suite in Suite::built_in() {
        let suite = suite?;
        let _ = writeln!(text, "{}: {}", suite.name, suite.title);
        let widest = |of: fn(&Scenario) -> &str| suite.scenarios.iter().map(|s| of(s).chars().count()).max();
        let (ids, names) = (widest(|s| &s.id).unwrap_or(0), widest(|s| &s.name).unwrap_or(0));
        for Scenario { id, name, topology, .. } in &suite.scenarios {
            let _ = writeln!(text, "  {id:<ids$}  {name:<names$}  {}", topology.path());
        }
    }
    print(&text)?;
    Ok(Exit::Done)
}

pub fn show(name: &str) -> Result<Exit, Failure> {
    let suite = Suite::load(name)?;
    let mut text = String::new();
    let phases = suite.timing.phases;
    let _ = writeln!(text, "{}\n", suite.title);
    if !suite.about.is_empty() {
        let _ = writeln!(text, "{}\n", suite.about);
    }
    let _ = writeln!(
        text,
        "Each trial: warm-up {:?}, window {:?}, cool-down {:?}; {}.",
        phases.warm_up,
        phases.window,
        phases.cool_down,
        repeat_text(suite.timing.repeat)
    );
    for scenario in &suite.scenarios {
        let _ = writeln!(text, "\n{}  {}", scenario.id, scenario.name);
        if !scenario.about.is_empty() {
            let _ = writeln!(text, "   {}", scenario.about);
        }
        let _ = writeln!(text, "   {}", load_text(scenario));
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

/// How often trials are repeated, in words.
pub fn repeat_text(repeat: Repeat) -> String {
    match repeat {
        Repeat::Times(n) => format!("{n} trials"),
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
