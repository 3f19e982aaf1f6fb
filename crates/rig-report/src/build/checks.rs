//! The checks of a procedure that a scenario carried out, and what its charts show over time.

use rig_facts::record::TrialRecord;
use rig_spread::simulate::guide::{Activity, Name};
use rig_stats::units::counted;
use rig_suite::checks::cni::{Strength, basis};
use rig_suite::checks::spreading::{Simulated, SpreaderTrial};
use rig_suite::checks::{Check, Procedure, Verdict};
use rig_verdict::view::{RunView, ScenarioView};

use super::phases::stretches;
use crate::document::{
    Axis, Block, Cell, Chart, Column, Label, Line, Row, StripRow, StripSpan, Strips, Table, TimelineChart,
};

/// Of all scenarios that carried one out.
pub(super) fn blocks(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    for scenario in &view.scenarios {
        let Some(procedure) = scenario.checks.filter(|_| !scenario.trials.is_empty()) else { continue };
        let checks = procedure.judge(&scenario.trials);
        blocks.push(Block::heading(2, heading(procedure)));
        blocks.push(Block::paragraph(summary(procedure, &checks, scenario.trials.len())));
        blocks.push(Block::Table(table(procedure, &checks)));
        match procedure {
            Procedure::ReceiveSpreading => {
                blocks.extend(charts(scenario));
                blocks.extend(simulated(scenario));
            }
            Procedure::Cni => {}
        }
    }
    blocks
}

/// The checks that did not pass, each with what was seen: a count says nothing of which, or why. Empty where all passed.
pub(super) fn not_passed(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    for scenario in view.scenarios.iter().filter(|scenario| !scenario.trials.is_empty()) {
        let Some(procedure) = scenario.checks else { continue };
        let checks = procedure.judge(&scenario.trials);
        let items = said_of(procedure, &checks);
        if !items.is_empty() {
            blocks.push(Block::heading(2, "Checks that did not pass"));
            blocks.push(Block::List { items });
        }
    }
    blocks
}

/// A sentence on each check that did not pass: failed checks first, then those whose result is unknown, then those that cannot be made.
fn said_of(procedure: Procedure, checks: &[Check]) -> Vec<String> {
    let of = |wanted: Verdict| checks.iter().filter(move |check| check.verdict == wanted);
    let failed = of(Verdict::Failed).map(|Check { name, what, seen, .. }| {
        format!("{name}{} failed. Expected: {what}. Seen: {seen}.", said_by(procedure, name))
    });
    let unknown =
        of(Verdict::Unknown).map(|Check { name, what, seen, .. }| format!("{name} is not known ({what}): {seen}."));
    let lacking = of(Verdict::Lacking).map(|Check { name, seen, .. }| format!("{name} cannot be made here: {seen}."));
    failed.chain(unknown).chain(lacking).collect()
}

/// How the checks went; `None` where there are none.
pub(super) fn answer(view: &RunView) -> Option<String> {
    let carried_out = |scenario: &&ScenarioView| !scenario.trials.is_empty();
    let answers = view.scenarios.iter().filter(carried_out).filter_map(|scenario| {
        let procedure = scenario.checks?;
        Some(summary(procedure, &procedure.judge(&scenario.trials), scenario.trials.len()))
    });
    let answers: Vec<String> = answers.collect();
    (!answers.is_empty()).then(|| answers.join(" "))
}

fn heading(procedure: Procedure) -> &'static str {
    match procedure {
        Procedure::ReceiveSpreading => "The guide's checks",
        Procedure::Cni => "What the specification of CNI asks",
    }
}

/// Who asks for what a check is about, in brackets, where a procedure's checks differ in that.
fn said_by(procedure: Procedure, check: &str) -> String {
    match procedure {
        Procedure::ReceiveSpreading => String::new(),
        Procedure::Cni => format!(" ({})", basis_of(check)),
    }
}

/// `MUST, section 2`
fn basis_of(check: &str) -> String {
    match basis(check) {
        (strength, Some(section)) => format!("{strength}, section {section}"),
        (strength, None) => strength.to_string(),
    }
}

/// `Of 31 checks 24 passed, 2 failed, 5 are not for this machine.` What a specification only recommends is counted for itself.
fn summary(procedure: Procedure, checks: &[Check], trials: usize) -> String {
    let all: Vec<&Check> = checks.iter().collect();
    let mut said = match procedure {
        Procedure::ReceiveSpreading => {
            format!("Of {} {}.", counted(all.len(), "check", "checks"), came_to(&all))
        }
        Procedure::Cni => {
            let kinds = [
                (Strength::Must, "what the specification demands (MUST)"),
                (Strength::Should, "what it recommends (SHOULD)"),
                (Strength::Own, "what netrig tries besides"),
            ];
            let of = |(strength, what): (Strength, &str)| {
                let own: Vec<&Check> = checks.iter().filter(|check| basis(&check.name).0 == strength).collect();
                (!own.is_empty())
                    .then(|| format!("{} of {what}: {}", counted(own.len(), "check", "checks"), came_to(&own)))
            };
            format!("{}.", kinds.into_iter().filter_map(of).collect::<Vec<_>>().join("; "))
        }
    };
    if trials > 1 {
        said.push_str(&format!(" A check fails where it fails in one of {trials} trials."));
    }
    said
}

fn came_to(checks: &[&Check]) -> String {
    let of = |verdict: Verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let mut parts = vec![format!("{} passed", of(Verdict::Passed)), format!("{} failed", of(Verdict::Failed))];
    if of(Verdict::Lacking) > 0 {
        parts.push(format!("{} cannot be made here", of(Verdict::Lacking)));
    }
    if of(Verdict::Unknown) > 0 {
        parts.push(counted(of(Verdict::Unknown), "is not known", "are not known"));
    }
    parts.join(", ")
}

fn table(procedure: Procedure, checks: &[Check]) -> Table {
    let (title, published, note) = match procedure {
        Procedure::ReceiveSpreading => (
            "Checks of Microsoft's validation guide for dynamic vRSS and VMMQ",
            Some("The guide"),
            "The guide's machine: 40 CPUs, a card of 40 Gbit/s, 16 entries. Its figures are a reference, not a target.",
        ),
        Procedure::Cni => (
            "Checks of CNI plug-ins",
            Some("Asked for by"),
            "Each check has containers of its own, in the node whose network was measured. Sections are of SPEC.md of \
             CNI 1.0.0 and later. A check that cannot be made is of a command that the network's version does not have, or that its configuration \
             disables. One that is not known depends on something that failed, or there was no time for it.",
        ),
    };
    let mut table = Table::new(title, "Check");
    let heads = ["Verdict", "Expected", "Seen"].into_iter().chain(published);
    table.columns = heads.map(|head| Column::text(Label::new(head))).collect();
    let row = |check: &Check| {
        let mut cells = [&check.verdict.to_string(), &check.what, &check.seen].map(Cell::text).to_vec();
        if published.is_some() {
            cells.push(match procedure {
                Procedure::Cni => Cell::text(basis_of(&check.name)),
                Procedure::ReceiveSpreading if check.published.is_empty() => Cell::text("-"),
                Procedure::ReceiveSpreading => Cell::text(&check.published),
            });
        }
        Row { label: check.name.clone(), unit: None, cells }
    };
    table.rows = checks.iter().map(row).collect();
    table.notes = vec![note.to_owned()];
    table
}

/// The charts of the first trial that has what they show.
fn charts(scenario: &ScenarioView) -> Vec<Block> {
    let Some((trial, seen)) = scenario.trials.iter().find_map(|trial| Some((trial, SpreaderTrial::of(trial)?))) else {
        return Vec::new();
    };
    let name = |what: &str| format!("{what} of {} over time, trial {}", scenario.id, trial.ordinal);
    let course = |title: String, y: Axis, lines: Vec<Line>| {
        let course =
            TimelineChart { title, x: time(), y, is_logarithmic: false, lines, phases: stretches(Some(trial)) };
        Block::Figure(Chart::Course(course))
    };
    let line = |label: &str, points: Vec<(f64, f64)>| Line { label: label.to_owned(), points };
    let carried = seen.carried_over_time().into_iter().map(|(at, rate)| (at, rate / 1e6)).collect();
    vec![
        course(name("Throughput"), Axis::new("Throughput", "Mbit/s"), vec![line("received", carried)]),
        course(
            name("CPUs"),
            Axis::new("CPUs", ""),
            vec![line("engaged", seen.engaged_over_time()), line("receive work", seen.cores_over_time())],
        ),
        Block::Figure(Chart::Strips(strips(name("CPU of each entry"), trial, &seen))),
    ]
}

fn time() -> Axis {
    Axis::new("Time in the window", "s")
}

/// Where each entry was, with its moves marked.
fn strips(title: String, trial: &TrialRecord, seen: &SpreaderTrial<'_>) -> Strips {
    let (from, to) = (trial.window_begin_ns, trial.window_end_ns);
    let cpus = seen.cpus();
    let row = |entry: u32| {
        let spans = seen.history.stays(entry, from, to).into_iter().filter_map(|stay| {
            let value = cpus.iter().position(|cpu| *cpu == stay.cpu)?;
            Some(StripSpan { from: seen.second(stay.from_ns), to: seen.second(stay.to_ns), value })
        });
        let moves = seen.history.moves_in(from, to).filter(|moved| moved.entry == entry);
        StripRow {
            label: format!("entry {entry}"),
            spans: spans.collect(),
            marks: moves.map(|moved| seen.second(moved.at_ns)).collect(),
        }
    };
    Strips {
        title,
        x: time(),
        of: "CPU".to_owned(),
        values: cpus.iter().map(ToString::to_string).collect(),
        rows: (0..seen.history.table.len() as u32).map(row).collect(),
        phases: stretches(Some(trial)),
    }
}

/// The activities of the trial in the simulator: beside the trial, and on larger machines.
fn simulated(scenario: &ScenarioView) -> Vec<Block> {
    let Some(simulated) = scenario.trials.iter().find_map(|trial| Simulated::of(&SpreaderTrial::of(trial)?)) else {
        return Vec::new();
    };
    let Simulated { costs, entries, same, measured, errors, larger } = simulated;
    let mbits = |packets: f64| costs.bits(packets) / 1e6;
    let mut beside = Table::new("Measured and simulated, with the costs and the other work of this trial", "Activity");
    let heads = [
        ("Carried", Some("Mbit/s")),
        ("simulated", Some("Mbit/s")),
        ("error", Some("%")),
        ("CPU time of receiving", Some("CPUs")),
        ("simulated", Some("CPUs")),
        ("error", Some("%")),
        ("CPUs engaged", None),
        ("simulated", None),
    ];
    beside.columns = heads.map(|(head, unit)| Column::number(Label::new(head), unit)).to_vec();
    let percent = |error: Option<f64>| match error {
        Some(error) => Cell::number(error * 100.0, 1),
        None => Cell::missing("nothing was measured"),
    };
    for ((one, error), own) in measured
        .iter()
        .zip(&errors)
        .zip(measured.iter().filter_map(|one| same.iter().find(|activity| activity.name == one.name)))
    {
        let cells = vec![
            Cell::number(mbits(one.carried_pps), 0),
            Cell::number(mbits(own.carried_pps), 0),
            percent(error.carried),
            Cell::number(one.cpu_time, 2),
            Cell::number(own.cpu_time, 2),
            percent(error.cpu_time),
            Cell::number(one.cpus, 1),
            Cell::number(own.cpus, 1),
        ];
        beside.rows.push(Row { label: one.name.to_string(), unit: None, cells });
    }
    beside.notes = vec![format!(
        "Costs measured: processing a packet takes {:.0} ns, distributing one {:.0} ns, packets of {:.0} bytes. At full load the \
         simulator is offered what arrived: it does not model senders that share CPUs.",
        costs.process, costs.distribute, costs.packet_bytes,
    )];
    let sizes: Vec<String> = larger.iter().map(|(cpus, _)| format!("{cpus} CPUs")).collect();
    let table = |title: &str, unit: Option<&str>, decimals: u8, value: &dyn Fn(&Activity) -> Option<f64>| {
        let mut table = Table::new(title, "Activity");
        table.columns = sizes.iter().map(|size| Column::number(Label::new(size.clone()), unit)).collect();
        let names: Vec<Name> = larger.first().map_or(&[][..], |(_, all)| all).iter().map(|one| one.name).collect();
        for name in names {
            let of = |all: &[Activity]| all.iter().find(|one| one.name == name).and_then(value);
            let cell = |all: &[Activity]| {
                of(all).map_or_else(|| Cell::missing("the load does not grow"), |value| Cell::number(value, decimals))
            };
            let cells = larger.iter().map(|(_, all)| cell(all)).collect();
            table.rows.push(Row { label: name.to_string(), unit: None, cells });
        }
        Block::Table(table)
    };
    vec![
        Block::heading(3, "Simulated"),
        Block::paragraph(format!(
            "Nothing in these tables but the columns beside `simulated` was measured. The simulator runs the spreader's own policy \
             with {entries} entries on machines whose packets cost what this trial's did, with the guide's loads for that cost.",
        )),
        Block::Table(beside),
        table("Simulated: carried", Some("Gbit/s"), 2, &|one| Some(mbits(one.carried_pps) / 1e3)),
        table("Simulated: CPUs with receive work", None, 2, &|one| Some(one.cpus)),
        table("Simulated: to 95 % of the new rate", Some("ms"), 0, &|one| one.t95_ms.map(|ms| ms as f64)),
    ]
}

#[cfg(test)]
mod tests {
    use rig_verdict::fixture::run_view;

    use super::*;

    #[test]
    fn checks_that_did_not_pass_say_which_and_why_in_the_brief_report() {
        let check = |name: &str, verdict| Check {
            name: name.to_owned(),
            what: "all on one CPU".to_owned(),
            published: String::new(),
            verdict,
            seen: format!("seen by {name}"),
        };
        let checks = [
            check("V01", Verdict::Passed),
            check("V02", Verdict::Lacking),
            check("V03", Verdict::Failed),
            check("V04", Verdict::Unknown),
        ];
        let expected = [
            "V03 failed. Expected: all on one CPU. Seen: seen by V03.",
            "V04 is not known (all on one CPU): seen by V04.",
            "V02 cannot be made here: seen by V02.",
        ];
        assert_eq!(said_of(Procedure::ReceiveSpreading, &checks), expected);

        let mut view = run_view();
        assert_eq!(not_passed(&view), []);
        view.scenarios[0].checks = Some(Procedure::ReceiveSpreading);
        let brief = super::super::document(&view).brief("");
        let listed = |block: &Block| matches!(block, Block::List { items } if items[0].starts_with("V01 "));
        assert!(brief.lead.iter().any(listed), "{:?}", brief.lead);
    }

    #[test]
    fn what_is_recommended_is_counted_for_itself() {
        let check = |name: &str, verdict| Check {
            name: name.to_owned(),
            what: "it holds".to_owned(),
            published: String::new(),
            verdict,
            seen: "it does not".to_owned(),
        };
        let checks = [
            check("C01", Verdict::Passed),
            check("C02", Verdict::Passed),
            check("C06", Verdict::Failed),
            check("C08", Verdict::Unknown),
        ];
        assert_eq!(
            summary(Procedure::Cni, &checks, 1),
            "2 checks of what the specification demands (MUST): 1 passed, 0 failed, 1 is not known; 1 check of what it recommends \
             (SHOULD): 0 passed, 1 failed; 1 check of what netrig tries besides: 1 passed, 0 failed."
        );
        let said = said_of(Procedure::Cni, &checks);
        assert_eq!(said[0], "C06 (SHOULD, section 2) failed. Expected: it holds. Seen: it does not.");
        assert_eq!(table(Procedure::Cni, &checks).rows[1].cells.last(), Some(&Cell::text("netrig's own")));
    }
}
