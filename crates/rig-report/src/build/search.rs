//! How a limit was found.

use rig_facts::record::{SearchRecord, SearchedRate, TrialRecord};
use rig_load::record::WorkerRecord;
use rig_packet::search::{GeneratorBound, SearchEnding, Step, StepPurpose};
use rig_sys::cpu::CpuSet;

use crate::document::{Cell, Column, Label, Row, Table};

pub(super) const METHOD: &str = "the rate is raised until something is lost (a drop, a retransmission, an error, a missed schedule), then bisected, and \
     the highest that was carried is confirmed for a whole window; a step that loses something is made once more. The \
     generator's own limit is that of the same load over a bare wire between the same CPUs";

/// The steps of a trial's search, in their order; `None` where nothing was searched.
pub(super) fn trail(trial: &TrialRecord) -> Option<Table> {
    let search = trial.search.as_ref()?;
    let mut table = Table::new(format!("Search of trial {}", trial.ordinal), "Step");
    table.columns = vec![
        Column::number(Label::new(format!("{} offered", search.of)), Some(search.of.unit())),
        Column::text(Label::new("To")),
        Column::text(Label::new("Lost")),
    ];
    table.rows = search.outcome.steps.iter().enumerate().map(|(n, step)| row(n + 1, step)).collect();
    table.notes = notes(search);
    table.notes.extend(trial.workers.iter().filter_map(workers));
    Some(table)
}

/// How many of an end's workers were at it, where there were several, and on which CPUs.
fn workers(end: &WorkerRecord) -> Option<String> {
    let workers = end.packets.as_ref().map(|packets| &packets.workers).filter(|workers| workers.len() > 1)?;
    let cpus = CpuSet::new(workers.iter().filter_map(|worker| worker.cpu));
    let on = if cpus.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") };
    Some(format!("{} had {} workers on {on}.", end.name, workers.len()))
}

fn row(number: usize, step: &Step) -> Row {
    let purpose = match step.purpose {
        StepPurpose::Raise => "raise",
        StepPurpose::Lower => "lower",
        StepPurpose::Bisect => "bisect",
        StepPurpose::Confirm => "confirm",
    };
    let purpose = if step.attempt > 1 { format!("{purpose}, again") } else { purpose.to_owned() };
    let lost: Vec<String> = step.losses.iter().map(ToString::to_string).collect();
    let lost = if lost.is_empty() { "nothing".to_owned() } else { lost.join(", ") };
    Row {
        label: number.to_string(),
        unit: None,
        cells: vec![Cell::number(step.rate, 0), Cell::text(purpose), Cell::text(lost)],
    }
}

fn notes(search: &SearchRecord) -> Vec<String> {
    let seconds = |us: u64| us as f64 / 1e6;
    let amount = |value: f64| match search.of {
        SearchedRate::Held => format!("{value:.0} {}", search.of),
        SearchedRate::Connections | SearchedRate::Requests => format!("{value:.0} {}/s", search.of),
    };
    let limit = match (search.outcome.ending, search.outcome.held) {
        (SearchEnding::Found, Some(held)) if search.bound.is_some() => {
            format!("The limit is at least {}.", amount(held))
        }
        (SearchEnding::Found, Some(held)) => format!("The limit is {}.", amount(held)),
        (SearchEnding::Ceiling, Some(held)) => {
            format!("The most allowed, {}, was carried: the limit is at least that.", amount(held))
        }
        (SearchEnding::Nothing, _) => "No rate was carried without loss.".to_owned(),
        (SearchEnding::Stopped, Some(held)) => format!("The search was stopped; {} were carried.", amount(held)),
        (SearchEnding::Stopped, None) => "The search was stopped.".to_owned(),
        (_, held) => match held {
            Some(held) => format!("The search ended after too many steps; {} were carried.", amount(held)),
            None => "The search ended after too many steps.".to_owned(),
        },
    };
    let timing = format!(
        "Each step took {} s, each confirmation {} s; the window was at {:.0} % of the limit.",
        seconds(search.step_us),
        seconds(search.confirmed_us),
        search.share * 100.0
    );
    let generator = search.generator.map(|own| format!("The generator's own limit is {}.", amount(own)));
    let bound = search.bound.map(|bound| match bound {
        GeneratorBound::Limit(share) => {
            format!("Generator-bound: the limit is {:.0} % of the generator's own.", share * 100.0)
        }
        GeneratorBound::Busy(busy) => {
            format!("Generator-bound: its busiest worker had something to do {:.0} % of the time.", busy * 100.0)
        }
        GeneratorBound::Late => "Generator-bound: at the next rate the generator was behind its own schedule, and \
                                 nothing was lost; give it CPUs of its own."
            .to_owned(),
    });
    [Some(limit), Some(timing), generator, bound].into_iter().flatten().collect()
}
