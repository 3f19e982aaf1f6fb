//! The report of tests between pods of Kubernetes: what each way carries, and what it has of the nodes' own network.

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::reading;
use rig_facts::record::TrialRecord;
use rig_report::build;
use rig_report::document::{Block, Cell, Column, Document, Headline, Interval, Label, Number, Row, Table};
use rig_stats::confidence::Level;
use rig_stats::sample::Sample;
use rig_stats::units::{Span, bits_at_a_glance, counted};
use rig_suite::ends::words;
use rig_suite::pairs::{PodCase, PodsTest};
use serde_json::{Value, json};

use super::figures::PairFigures;
use super::report::Report;

/// The case that others are held against, where it was measured.
const HOST: &str = "host";
const RATE: (Side, Metric) = (Side::Receiver, Metric::Throughput);
const HALF: (Side, Metric) = (Side::Local, Metric::Latency(Statistic::P50));
const MOST: (Side, Metric) = (Side::Local, Metric::Latency(Statistic::P99));

/// A case with its trials.
struct Measured<'a> {
    case: &'a PodCase,
    figures: &'a PairFigures,
    stream: Vec<TrialRecord>,
    rr: Vec<TrialRecord>,
}

impl Measured<'_> {
    /// The mean of the trials, in this part of its unit.
    fn number(&self, (side, metric): (Side, Metric)) -> Option<Number> {
        let trials = if metric == Metric::Throughput { &self.stream } else { &self.rr };
        build::mean_of(trials, side, metric, Level::default()).map(Number::rounded)
    }

    /// What it has of another case, percent: by the trials of one round, which the machine's other work meets alike.
    fn of(&self, other: &Self) -> Option<Number> {
        let (side, metric) = RATE;
        let own = self.stream.iter().filter_map(|trial| {
            let twin = other.stream.iter().find(|twin| twin.block == trial.block)?;
            let (own, twin) = (reading(trial, side, metric)?.value, reading(twin, side, metric)?.value);
            (twin > 0.0).then_some(own / twin * 100.0)
        });
        let mut ratios = Sample::within(metric.range());
        ratios.extend(own);
        let interval = Level::default().mean_interval(&ratios);
        let interval = interval.map(|interval| Interval { low: interval.low, high: interval.high });
        Some(Number::new(ratios.mean()?, 1).with_interval(interval).rounded())
    }
}

impl Report<'_> {
    pub(super) fn document_of_pods(&self, pods: &PodsTest) -> Document {
        let cases = self.measured(pods);
        Document {
            title: self.test.title(),
            headline: self.headline_of_pods(&cases),
            summary: self.summary_of_pods(pods),
            lead: [self.missing(), vec![Block::Table(at_a_glance(&cases))]].concat(),
            blocks: vec![Block::Table(all(&cases))],
            details: self.details_of_pods(pods),
            data: self.data_of_pods(pods),
        }
    }

    fn measured<'a>(&'a self, pods: &'a PodsTest) -> Vec<Measured<'a>> {
        let trials = |id: String| self.run.trials.iter().filter(|trial| trial.scenario == id).cloned().collect();
        let of = |case: &'a PodCase| {
            let figures = self.all.between(case.from, case.to)?;
            let of_load = |load| trials(self.test.id(rig_suite::pairs::PairScenario { load, ..figures.scenario }));
            let (stream, rr) = (of_load(rig_suite::pairs::PairLoad::Stream), of_load(rig_suite::pairs::PairLoad::Rr));
            Some(Measured { case, figures, stream, rr })
        };
        pods.cases.iter().filter_map(of).collect()
    }

    fn headline_of_pods(&self, cases: &[Measured<'_>]) -> Option<Headline> {
        let find = |name: &str| cases.iter().find(|one| one.case.name == name);
        let pod = find("pod").or(cases.first())?;
        let rate = pod.figures.throughput?;
        let mut answer = format!("{}: {}", pod.case.way, bits_at_a_glance(rate).trim());
        if let Some(of) = find(HOST).filter(|host| host.case != pod.case).and_then(|host| pod.of(host)) {
            answer = format!("{answer}, {} of what the nodes' own network carries", percent(&of));
        }
        if let Some(of) = find("service").filter(|service| service.case != pod.case).and_then(|one| one.of(pod)) {
            answer = format!("{answer}; through the Service {} of it", percent(&of));
        }
        let failed = self.failed().len();
        let caution = (failed > 0).then(|| format!("{} failed", counted(failed, "test", "tests")));
        Some(Headline { question: None, answer, caution })
    }

    fn summary_of_pods(&self, pods: &PodsTest) -> Vec<String> {
        let window = Span(self.options.timing.phases.window);
        let (done, planned) = (self.run.summary.stored_trials, self.run.summary.planned_trials);
        let nodes: std::collections::BTreeSet<&str> = pods.nodes.values().map(String::as_str).collect();
        vec![
            format!(
                "{}, on {}, {} of {window}: {done} of {planned} tests are here",
                build::time(self.run.summary.started_unix_ms),
                Vec::from_iter(nodes).join(" and "),
                self.options.timing.repeat,
            ),
            format!("Throughput: {}", words(&self.test.stream)),
            format!("Round trips: {}", words(&self.test.rr)),
        ]
    }

    fn details_of_pods(&self, pods: &PodsTest) -> Vec<Block> {
        let phases = &self.options.timing.phases;
        let pairs = [
            ("Warm-up", Span(phases.warm_up).to_string()),
            ("Window", Span(phases.window).to_string()),
            ("Cool-down", Span(phases.cool_down).to_string()),
            (
                "Order",
                "in rounds of one trial of each case, one test at a time; each round begins with another case".into(),
            ),
            ("Kubernetes", pods.version.clone()),
            ("Namespace", pods.namespace.clone()),
            ("Image", pods.image.clone()),
            ("CPU time", "of the whole node, by the kernel's own counters: by layer takes a privileged pod".into()),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value)).into();
        let mut blocks = vec![Block::heading(2, "How it was measured"), Block::KeyValues { caption: None, pairs }];
        let doubts: Vec<String> = self.doubts().collect();
        if !doubts.is_empty() {
            blocks.push(Block::heading(2, "Doubts"));
            blocks.push(Block::List { items: doubts });
        }
        blocks.push(Block::heading(2, "Pods"));
        blocks.extend(self.machines(|name| pods.nodes.get(name).map(|node| ("Node".to_owned(), node.clone()))));
        blocks
    }

    fn doubts(&self) -> impl Iterator<Item = String> {
        let of = |pair: &PairFigures| {
            let between = self.test.between(pair.scenario);
            pair.doubts.iter().map(move |doubt| format!("{between}: {doubt}")).collect::<Vec<_>>()
        };
        self.all.pairs.iter().flat_map(of)
    }

    fn data_of_pods(&self, pods: &PodsTest) -> Value {
        let mut data = self.data();
        data["kind"] = json!("pods");
        data["pods"] = json!(pods);
        if let Some(pairs) = data["pairs"].as_array_mut() {
            for (pair, figures) in pairs.iter_mut().zip(&self.all.pairs) {
                pair["case"] = json!(self.test.between(figures.scenario));
            }
        }
        data
    }
}

/// `93.1 % (91.0 to 95.2)`
fn percent(of: &Number) -> String {
    let show = |value| Number::new(value, of.decimals);
    let interval = of.interval.map(|Interval { low, high }| format!(" ({} to {})", show(low), show(high)));
    format!("{} %{}", show(of.value), interval.unwrap_or_default())
}

fn cell(number: Option<Number>) -> Cell {
    number.map_or_else(|| Cell::missing("it was not measured"), Cell::from)
}

fn row(of: &Measured<'_>, cells: Vec<Cell>) -> Row {
    Row { label: of.case.way.clone(), unit: None, cells }
}

/// What each case carries, and its round trips.
fn at_a_glance(cases: &[Measured<'_>]) -> Table {
    let mut table = Table::new("What each way carries", "way");
    table.columns = [
        ("throughput", build::unit(Metric::Throughput)),
        ("of the host's", "%"),
        ("round trip", build::unit(HALF.1)),
        ("99 %", build::unit(MOST.1)),
    ]
    .map(|(name, unit)| Column::number(Label::new(name), Some(unit)))
    .into();
    let host = cases.iter().find(|one| one.case.name == HOST);
    let of = |one: &Measured<'_>| {
        let kept = match host {
            None => Cell::missing("the host network was not measured"),
            Some(host) => cell(one.of(host)),
        };
        row(one, vec![cell(one.number(RATE)), kept, cell(one.number(HALF)), cell(one.number(MOST))])
    };
    table.rows = cases.iter().map(of).collect();
    table
}

/// The rest of what was measured of each.
fn all(cases: &[Measured<'_>]) -> Table {
    let mut table = Table::new("What it takes", "way");
    table.columns = [("sent again", "%"), ("sender's CPU", "%"), ("receiver's CPU", "%")]
        .map(|(name, unit)| Column::number(Label::new(name), Some(unit)))
        .into();
    let number = |value: Option<f64>, decimals| match value {
        Some(value) => Cell::number(value, decimals),
        None => Cell::missing("it was not measured"),
    };
    let of = |one: &Measured<'_>| {
        let PairFigures { resent, cpu, .. } = one.figures;
        row(one, vec![number(resent.map(|share| share * 100.0), 3), number(cpu[0], 1), number(cpu[1], 1)])
    };
    table.rows = cases.iter().map(of).collect();
    table.notes.push("CPU is that of the whole node.".into());
    table
}
