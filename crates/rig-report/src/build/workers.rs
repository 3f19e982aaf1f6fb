//! What a device under test carries with each number of workers, in the form of studies of balancers: the figures of the
//! system that the table is about with the published ones, the same figures of the other systems, and all side by side.

use rig_facts::claim::{Metric, Side};
use rig_facts::figures;
use rig_facts::record::SearchedRate;
use rig_stats::units::counted;
use rig_suite::suite::{Layout, Platform, Published, Workers, WorkersCase, WorkersColumn, WorkersEnd};
use rig_verdict::view::{RunView, ScenarioView};

use super::results::{STUDY, ratio, remarks};
use super::{gibibytes, of_each_machine};
use crate::document::{Axis, Block, Cell, Chart, Column, Interval, Label, Number, Row, Scaling, ScalingSeries, Table};

/// A scenario of the run that is a row of a case.
type CaseScenario<'a> = (Option<u32>, &'a ScenarioView);

struct Rows<'a> {
    view: &'a RunView,
    layout: &'a Layout,
    workers: &'a Workers,
    columns: Vec<WorkersColumn>,
}

pub(super) fn tables(view: &RunView, layout: &Layout, workers: &Workers) -> Vec<Block> {
    let rows = Rows { view, layout, workers, columns: workers.columns() };
    let Some(subject) = rows.subject() else { return Vec::new() };
    let mut tables = vec![rows.study(subject)];
    let others: Vec<&WorkersCase> = workers.cases.iter().filter(|case| case.head != subject.head).collect();
    if !others.is_empty() {
        tables.push(rows.beside(subject, &others));
        tables.push(rows.same_figures(&others));
    }
    tables.into_iter().filter(|table| !table.rows.is_empty()).map(Block::Table).collect()
}

impl<'a> Rows<'a> {
    /// What the table is about: the first case that has workers.
    fn subject(&self) -> Option<&'a WorkersCase> {
        let has_workers = |case: &&WorkersCase| case.rows.iter().any(|(workers, _)| workers.is_some());
        self.workers.cases.iter().find(has_workers).or(self.workers.cases.first())
    }

    fn places(&self, case: &WorkersCase) -> Vec<CaseScenario<'a>> {
        let scenario = |id: &str| self.view.scenarios.iter().find(|s| s.id == id && !s.trials.is_empty());
        case.rows.iter().filter_map(|(workers, id)| Some((*workers, scenario(id)?))).collect()
    }

    /// The study's own table: what was measured, with what was published of as many workers below it, and of others at
    /// the end.
    fn study(&self, subject: &WorkersCase) -> Table {
        let mut table = Table::new(format!("{} – {}", self.layout.title, subject.head), "workers");
        table.columns = self.heads();
        table.reference = Some(STUDY.to_owned());
        let places = self.places(subject);
        for (workers, scenario) in &places {
            let published = self.workers.reference.iter().find(|(of, _)| Some(*of) == *workers);
            table.rows.push(self.row(name(*workers), scenario, published.map(|(_, published)| published)));
        }
        let measured = |of: u32| places.iter().any(|(workers, _)| *workers == Some(of));
        for (of, published) in self.workers.reference.iter().filter(|(of, _)| !measured(*of)) {
            let cell = |column: &WorkersColumn| match published.get(column.side, column.metric) {
                Some(value) => Cell::number(value, 0),
                None => Cell::missing("not published"),
            };
            let cells = self.columns.iter().map(cell).collect();
            table.rows.push(Row { label: format!("{of}, {STUDY}"), unit: None, cells });
        }
        table.notes.push(legend(&self.columns));
        if let Some(source) = self.layout.source.as_ref().filter(|_| !self.workers.reference.is_empty()) {
            table
                .notes
                .push(format!("{STUDY}: the published figure ({source}), from other machines and another system."));
        }
        table.notes.extend(self.layout.notes.iter().cloned());
        table.notes.extend(self.left_out(subject));
        table.notes.extend(self.remarks(&[subject]));
        table
    }

    fn heads(&self) -> Vec<Column> {
        self.columns.iter().map(|column| Column::number(Label::new(column.head), Some(column.metric.unit()))).collect()
    }

    fn row(&self, label: String, scenario: &ScenarioView, published: Option<&Published>) -> Row {
        let cell = |column: &WorkersColumn| {
            let published = published.and_then(|p| p.get(column.side, column.metric));
            match self.mean(scenario, column.side, column.metric) {
                Some(number) => number.with_reference(published).into(),
                None => Cell::missing("the device under test does not tell, or there is none"),
            }
        };
        Row { label, unit: None, cells: self.columns.iter().map(cell).collect() }
    }

    /// Mean over the trials.
    fn mean(&self, scenario: &ScenarioView, side: Side, metric: Metric) -> Option<Number> {
        let sample = figures::sample(&scenario.trials, side, metric);
        let interval = self.view.level.mean_interval(&sample).map(|i| Interval { low: i.low, high: i.high });
        Some(Number::new(sample.mean()?, 0).with_interval(interval).with_bound(sample.bound()))
    }

    /// What the others carry with as many workers, and how much more the subject does.
    fn beside(&self, subject: &WorkersCase, others: &[&WorkersCase]) -> Table {
        let first = self.columns[0];
        let caption = format!("{} – {} beside others, {}", self.layout.title, subject.head, first.head);
        let mut table = Table::new(caption, "workers");
        let unit = Some(first.metric.unit());
        table.columns.push(Column::number(Label::new(&subject.head), unit));
        for other in others {
            table.columns.push(Column::number(Label::new(&other.head), unit));
            table.columns.push(Column::number(Label::new(format!("{} / {}", subject.head, other.head)), None));
        }
        for (workers, own) in self.places(subject) {
            let mut cells = vec![self.cell(own, &first)];
            for other in others {
                let places = self.places(other);
                // Where nothing stands between the ends there are no workers to count.
                let found = places.iter().find(|(of, _)| of.is_none() || *of == workers);
                let Some((_, scenario)) = found else {
                    let why = format!("{}: not measured with as many workers", other.head);
                    cells.extend([Cell::missing(why.clone()), Cell::missing(why)]);
                    continue;
                };
                let missing = || Cell::missing("one of both has no such figure");
                let ratio = ratio(self.view.level, own, scenario, first.side, first.metric);
                cells.extend([self.cell(scenario, &first), ratio.map_or_else(missing, Cell::from)]);
            }
            table.rows.push(Row { label: name(workers), unit: None, cells });
        }
        table.notes.push(legend(&[first]));
        let of_all = others.iter().flat_map(|case| self.left_out(case));
        table.notes.extend(of_all);
        let all = [subject].into_iter().chain(others.iter().copied());
        let bound = all.flat_map(|case| self.heads_of(case)).filter(|(_, scenario)| is_bound(scenario));
        let bound: Vec<String> = bound.map(|(head, _)| head).collect();
        if !bound.is_empty() {
            table.notes.push(format!(
                "{}: the load generator's own limit was reached; this may carry more than stands here.",
                bound.join(", ")
            ));
        }
        table
    }

    fn cell(&self, scenario: &ScenarioView, column: &WorkersColumn) -> Cell {
        self.mean(scenario, column.side, column.metric)
            .map_or_else(|| Cell::missing("no trial gave this figure"), Cell::from)
    }

    fn same_figures(&self, others: &[&WorkersCase]) -> Table {
        let mut table = Table::new(format!("{} – the others", self.layout.title), "System, workers");
        table.columns = self.heads();
        for other in others {
            for (workers, scenario) in self.places(other) {
                let label = match workers {
                    Some(workers) => format!("{}, {workers}", other.head),
                    None => other.head.clone(),
                };
                table.rows.push(self.row(label, scenario, None));
            }
        }
        table.notes.push(legend(&self.columns));
        table.notes.extend(self.remarks(others));
        table
    }

    /// Rows of the run that have no figures.
    fn left_out(&self, case: &WorkersCase) -> Option<String> {
        let measured = self.places(case);
        let missing = case.rows.iter().filter(|(_, id)| !measured.iter().any(|(_, scenario)| scenario.id == *id));
        let ids: Vec<&str> = missing.map(|(_, id)| id.as_str()).collect();
        (!ids.is_empty()).then(|| format!("No trial of {} was finished.", ids.join(", ")))
    }

    /// The scenarios of a case under the names that notes give them.
    fn heads_of(&self, case: &WorkersCase) -> Vec<(String, &'a ScenarioView)> {
        let head = |workers: Option<u32>| match workers {
            Some(workers) => format!("{} {workers}", case.head),
            None => case.head.clone(),
        };
        self.places(case).into_iter().map(|(workers, scenario)| (head(workers), scenario)).collect()
    }

    fn remarks(&self, cases: &[&WorkersCase]) -> Vec<String> {
        let places = cases.iter().flat_map(|case| self.heads_of(case));
        let shared = places.clone().filter(|(_, scenario)| shares(scenario)).map(|(head, _)| head);
        let shared: Vec<String> = shared.collect();
        let mut notes = remarks(places);
        if !shared.is_empty() {
            notes.push(format!(
                "{}: the load ran on CPUs of the device under test, too, because the machine has no others: with CPUs of \
                 its own it would carry more.",
                shared.join(", ")
            ));
        }
        notes
    }
}

/// What each of the columns counts, and where: their heads are those of studies.
fn legend(columns: &[WorkersColumn]) -> String {
    let at = |end: WorkersEnd| {
        let own = columns.iter().filter(|column| column.end == end);
        let words: Vec<String> = own.map(|column| format!("{} – {}", column.head, column.counts)).collect();
        (!words.is_empty()).then(|| format!("At {end}: {}.", words.join(", ")))
    };
    [WorkersEnd::Client, WorkersEnd::Dut].into_iter().filter_map(at).collect::<Vec<_>>().join(" ")
}

/// Whether the device under test had to share CPUs with the load.
fn shares(scenario: &ScenarioView) -> bool {
    scenario.trials.iter().filter_map(|trial| trial.dut.as_ref()).any(|dut| !dut.shared.is_empty())
}

/// Whether a search ended at the load generator's own limit.
fn is_bound(scenario: &ScenarioView) -> bool {
    scenario.trials.iter().filter_map(|trial| trial.search.as_ref()).any(|search| search.bound.is_some())
}

fn name(workers: Option<u32>) -> String {
    workers.map_or_else(|| "none".to_owned(), |workers| workers.to_string())
}

/// What is drawn of a table by the workers: the quantity, its unit and the figure.
fn drawn(raised: SearchedRate) -> [(&'static str, &'static str, Metric); 2] {
    match raised {
        SearchedRate::Connections | SearchedRate::Requests => [
            ("Rate without loss", "1/s", Metric::Limit),
            ("Connections known at once", "connections", Metric::DutConnections),
        ],
        SearchedRate::Held => [
            ("Packets that the client receives", "1/s", Metric::PacketsIn),
            ("Bits that the client receives", "bit/s", Metric::BitsIn),
        ],
    }
}

/// A chart for each, of those that have figures.
pub(super) fn charts(view: &RunView, layout: &Layout, workers: &Workers) -> Vec<Block> {
    let rows = Rows { view, layout, workers, columns: workers.columns() };
    let chart = |(quantity, unit, metric): (&str, &str, Metric)| {
        let value =
            |scenario: &ScenarioView| rows.mean(scenario, Side::Local, metric).filter(|number| number.value > 0.0);
        let counted: Vec<u32> = rows.subject()?.rows.iter().filter_map(|(workers, _)| *workers).collect();
        let measured = workers.cases.iter().map(|case| {
            let places = rows.places(case);
            let points = places.into_iter().flat_map(|(of, scenario)| {
                // What has no workers is the same beside any number of them.
                let at = of.map_or_else(|| counted.clone(), |of| vec![of]);
                at.into_iter().filter_map(move |at| Some((f64::from(at), value(scenario)?)))
            });
            ScalingSeries { label: case.head.clone(), published: false, points: sorted(points) }
        });
        let published = workers.reference.iter().filter_map(|(of, published)| {
            let value = published.get(Side::Local, metric).filter(|value| *value > 0.0)?;
            Some((f64::from(*of), Number::new(value, 0)))
        });
        let published = ScalingSeries { label: STUDY.to_owned(), published: true, points: sorted(published) };
        // One without points keeps its place, so that a system has the same colour in each chart.
        let mut series: Vec<ScalingSeries> = measured.collect();
        if series.iter().all(|series| series.points.is_empty()) {
            return None;
        }
        series.push(published);
        Some(Block::Figure(Chart::Scaling(Scaling {
            title: format!("{} – {}, by workers", layout.title, lower(quantity)),
            x: Axis::new("Workers", ""),
            y: Axis::new(quantity, unit),
            series,
        })))
    };
    drawn(workers.raised).into_iter().filter_map(chart).collect()
}

fn sorted(points: impl Iterator<Item = (f64, Number)>) -> Vec<(f64, Number)> {
    let mut points: Vec<(f64, Number)> = points.collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points.dedup_by_key(|point| point.0);
    points
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

/// This run's machine beside those of what was published.
pub(super) fn platform(view: &RunView, layout: &Layout, machines: &[Platform]) -> Block {
    let environment = &view.environment;
    let mut table = Table::new(layout.title.clone(), "");
    let heads = ["This run"].into_iter().chain(machines.iter().map(|machine| machine.head.as_str()));
    table.columns = heads.map(|head| Column::text(Label::new(head))).collect();
    let mut software = Vec::new();
    let duts = view.scenarios.iter().flat_map(|s| &s.trials).filter_map(|trial| trial.dut.as_ref());
    for dut in duts {
        if !software.contains(&dut.system) {
            software.push(dut.system.clone());
        }
    }
    let own_version = format!("netrig {}", environment.netrig_version);
    if !software.iter().any(|system: &String| system.starts_with(&own_version)) {
        software.insert(0, own_version);
    }
    let network = match environment.machines.is_empty() {
        true => "veth pairs between namespaces of one kernel",
        false => "what is between the machines' interfaces",
    };
    let own = [
        (
            "CPU",
            of_each_machine(environment, |one| {
                format!("{}, {}", one.cpu_model, counted(one.cpus_online as usize, "CPU", "CPUs"))
            }),
        ),
        ("Memory", of_each_machine(environment, |one| gibibytes(one.memory_bytes))),
        ("Network", network.to_owned()),
        ("System", of_each_machine(environment, |one| format!("Linux {}", one.kernel))),
        ("Software", software.join("; ")),
    ];
    let theirs: [fn(&Platform) -> &String; 5] =
        [|m| &m.cpu, |m| &m.memory, |m| &m.network, |m| &m.system, |m| &m.software];
    table.rows = own
        .into_iter()
        .zip(theirs)
        .map(|((label, own), theirs)| {
            let theirs = machines.iter().map(|machine| theirs(machine).clone());
            let cells = [own].into_iter().chain(theirs).map(Cell::Text).collect();
            Row { label: label.to_owned(), unit: None, cells }
        })
        .collect();
    table.notes.extend(layout.source.iter().map(|source| format!("Of the study: {source}.")));
    table.notes.extend(layout.notes.iter().cloned());
    Block::Table(table)
}
