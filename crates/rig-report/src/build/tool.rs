//! The report of another tool's test.

use rig_facts::claim::{Metric, Side};
use rig_facts::record::{ToolRun, TrialRecord, described};
use rig_stats::units::{Span, counted};
use rig_verdict::export::data;
use rig_verdict::view::{RunView, ScenarioView, Status};

use crate::document::{Block, Cell, Column, Document, Label, Row, Table};

/// More trials than this have no table of each.
const EACH: usize = 12;

/// The whole report.
pub fn document(view: &RunView, tool: &ToolRun) -> Document {
    Document {
        title: view.title.clone(),
        headline: None,
        summary: summary(view, tool),
        lead: Vec::new(),
        blocks: view.scenarios.iter().flat_map(|scenario| blocks(view, scenario)).collect(),
        details: details(view, tool),
        data: serde_json::to_value(data(view)).expect("strings, numbers and lists have a form in JSON"),
    }
}

fn summary(view: &RunView, tool: &ToolRun) -> Vec<String> {
    let done: usize = view.scenarios.iter().map(|scenario| scenario.trials.len()).sum();
    let trials = counted(done, "trial", "trials");
    let window = view.phases.window;
    let length = if window.is_zero() { "length unknown".to_owned() } else { format!("of {}", Span(window)) };
    let when = |made: Option<i64>| made.map_or_else(|| "date unknown".to_owned(), super::time);
    let origin = match tool.is_imported() {
        true => format!("Run {}, imported: {}, {trials}, {length}", view.id, when(tool.made_unix_ms)),
        false => format!("Run {}, {}, {trials}, {length}", view.id, super::time(view.started_unix_ms)),
    };
    let by = match tool.is_imported() {
        true => format!("By {}; from {}", tool.name(), files(&tool.files)),
        false => format!("By netrig with the command line of {}", tool.tool),
    };
    vec![origin, by, tool.words(), machine(view, tool)]
}

/// The first ones, and how many there are.
fn files(files: &[String]) -> String {
    const NAMED: usize = 3;
    let named = files.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if files.len() > NAMED { format!("{named} and {} more", files.len() - NAMED) } else { named }
}

fn machine(view: &RunView, tool: &ToolRun) -> String {
    if view.environment.is_known() {
        return format!("Machine: {}", super::machine(&view.environment));
    }
    let told: Vec<&str> = tool.machine.iter().map(|(_, value)| value.as_str()).collect();
    format!("Machine: {}", if told.is_empty() { "unknown".to_owned() } else { told.join(" · ") })
}

/// The sides that the figures are of.
fn sides(trials: &[TrialRecord]) -> Vec<Side> {
    let told = || trials.iter().filter_map(|trial| trial.tool.as_ref());
    Side::ALL.into_iter().filter(|side| told().any(|trial| trial.has(*side))).collect()
}

fn blocks(view: &RunView, scenario: &ScenarioView) -> Vec<Block> {
    let mut blocks = Vec::new();
    match &view.status {
        Status::Complete => {}
        Status::Failed { reason, .. } => blocks.push(Block::warning(format!("The test failed: {reason}"))),
        Status::Interrupted { .. } => blocks.push(Block::warning("The test was stopped.")),
        Status::Running { .. } => blocks.push(Block::info("The test is not finished.")),
    }
    if !scenario.trials.is_empty() {
        blocks.push(Block::Table(results(view, &scenario.trials)));
    }
    blocks.extend(notes(&scenario.trials).into_iter().map(Block::warning));
    blocks
}

fn results(view: &RunView, trials: &[TrialRecord]) -> Table {
    let sides = sides(trials);
    let mut table = Table::new("Results", "Figure");
    table.columns = sides.iter().map(|side| Column::number(Label::new(side.name()), None)).collect();
    for metric in Metric::ALL {
        let numbers: Vec<_> = sides.iter().map(|side| super::mean_of(trials, *side, metric, view.level)).collect();
        if numbers.iter().all(Option::is_none) {
            continue;
        }
        let cell = |number: Option<_>| number.map_or_else(|| Cell::missing("the output does not tell"), Cell::from);
        table.rows.push(Row {
            label: super::name(metric).to_owned(),
            unit: Some(super::unit(metric).to_owned()),
            cells: numbers.into_iter().map(cell).collect(),
        });
    }
    if sides.iter().any(|side| matches!(side, Side::Local | Side::Remote)) {
        table.notes.push("Local is the end that connects, remote the one that listens.".into());
    }
    if trials.len() > 1 {
        table.notes.push(format!("Means over the trials; ± is their {} % confidence interval.", view.level.percent()));
    }
    table
}

/// What outputs say beside figures, each once, with the trials that it is of.
fn notes(trials: &[TrialRecord]) -> Vec<String> {
    let mut all: Vec<(&str, Vec<u32>)> = Vec::new();
    for trial in trials {
        for note in trial.tool.iter().flat_map(|told| &told.notes) {
            match all.iter_mut().find(|(known, _)| known == note) {
                Some((_, of)) => of.push(trial.ordinal),
                None => all.push((note, vec![trial.ordinal])),
            }
        }
    }
    let text = |(note, of): (&str, Vec<u32>)| match of.len() {
        n if n == trials.len() => note.to_owned(),
        1 => format!("Trial {}: {note}", of[0]),
        n => format!("{n} of {} trials: {note}", trials.len()),
    };
    all.into_iter().map(text).collect()
}

fn details(view: &RunView, tool: &ToolRun) -> Vec<Block> {
    let mut blocks = Vec::new();
    for scenario in &view.scenarios {
        if (2..=EACH).contains(&scenario.trials.len()) {
            blocks.push(Block::heading(2, "Single trials"));
            blocks.push(Block::Table(each(&scenario.trials)));
        }
    }
    let table = |caption: &str, pairs: Vec<(String, String)>| {
        (!pairs.is_empty()).then(|| Block::KeyValues { caption: Some(caption.to_owned()), pairs })
    };
    blocks.push(Block::heading(2, "The test"));
    let own = [("Tool", tool.name()), ("Test", tool.test.clone())];
    let server = tool.server.clone().map(|server| ("Server", server));
    let read = tool.is_imported().then(|| ("Read from", tool.files.join(", ")));
    let own = own.into_iter().chain(server).chain(read).map(|(name, value)| (name.to_owned(), value));
    blocks.push(Block::KeyValues { caption: None, pairs: own.collect() });
    blocks.extend(table("Asked for", tool.settings.clone()));
    blocks.extend(table("Machine, by the output", tool.machine.clone()));
    blocks.extend(table("Machine", described(&view.environment)));
    blocks
}

/// A row for each figure, a column for each trial.
fn each(trials: &[TrialRecord]) -> Table {
    let mut table = Table::new("Each trial", "Figure");
    table.columns = trials.iter().map(|trial| Column::number(Label::new(trial.ordinal.to_string()), None)).collect();
    for side in sides(trials) {
        for metric in Metric::ALL {
            let values: Vec<Option<f64>> =
                trials.iter().map(|trial| rig_facts::figures::figure(trial, side, metric)).collect();
            if values.iter().all(Option::is_none) {
                continue;
            }
            let cell = |value: Option<f64>| match value {
                Some(value) => Cell::number(super::shown(metric, value), super::decimals(metric)),
                None => Cell::missing("the output does not tell"),
            };
            table.rows.push(Row {
                label: format!("{}, {}", super::name(metric), side.name()),
                unit: Some(super::unit(metric).to_owned()),
                cells: values.into_iter().map(cell).collect(),
            });
        }
    }
    table
}
