//! The report of tests between all pairs of several hosts.

use std::collections::BTreeMap;

use rig_facts::record::certainty::{RepetitionEnd, ScenarioCertainty};
use rig_facts::record::described;
use rig_facts::store::Run;
use rig_report::build;
use rig_report::document::{Block, Cell, Column, Document, Headline, Label, Row, Table};
use rig_stats::confidence::Level;
use rig_stats::units::{Span, bits_at_a_glance, counted};
use rig_suite::ends::words;
use rig_suite::options::Options;
use rig_suite::pairs::{PairLoad, PairScenario, PairedHost, PairsTest};
use rig_verdict::stored::{self, StoredError};
use rig_verdict::view::{RunView, ScenarioView, Status};
use serde_json::{Value, json};

use super::figures::{AllPairs, PairFigures, SLOW, SlowPair, decimals, three_digits};
use super::rounds::rounds;

/// A table with a column for each of so many hosts, or less, is read on a terminal.
const WIDE: usize = 12;
/// Slow directions that are named; the table of all has the rest.
const NAMED: usize = 10;

/// The report of a stored run, and the run as it is compared with others.
///
/// # Errors
/// Where the outcome is not stored as any netrig does.
pub fn of(run: &Run, options: &Options, test: &PairsTest) -> Result<(Document, RunView), StoredError> {
    let settled = stored::settled(run)?;
    let all = AllPairs::of(test, &run.trials);
    let report = Report { run, options, test, settled: &settled, all: &all };
    Ok((report.document(), report.view()))
}

/// What a terminal has room for of a report; `more` says where the rest is to be had.
pub fn brief(mut document: Document, test: &PairsTest, more: String) -> Document {
    if test.pods.is_some() {
        return document.brief(&more);
    }
    let hosts = document.blocks.swap_remove(0);
    document.blocks = vec![Block::paragraph(more)];
    document.details.clear();
    if test.paired().len() > WIDE {
        document.lead.retain(|block| !matches!(block, Block::Table(_)));
        document.blocks.insert(0, hosts);
    }
    document
}

pub(super) struct Report<'a> {
    pub(super) run: &'a Run,
    pub(super) options: &'a Options,
    pub(super) test: &'a PairsTest,
    settled: &'a [ScenarioCertainty],
    pub(super) all: &'a AllPairs,
}

impl Report<'_> {
    fn document(&self) -> Document {
        if let Some(pods) = &self.test.pods {
            return self.document_of_pods(pods);
        }
        Document {
            title: self.test.title(),
            headline: self.headline(),
            summary: self.summary(),
            lead: self.lead(),
            blocks: vec![Block::Table(self.hosts()), Block::Table(self.directions())],
            details: self.details(),
            data: self.data(),
        }
    }

    fn summary(&self) -> Vec<String> {
        let hosts = self.test.paired().len();
        let window = Span(self.options.timing.phases.window);
        let (done, planned) = (self.run.summary.stored_trials, self.run.summary.planned_trials);
        vec![
            format!(
                "{}, {} in {}, {} of {window}: {done} of {planned} tests are here",
                build::time(self.run.summary.started_unix_ms),
                counted(hosts * hosts.saturating_sub(1) / 2, "pair", "pairs"),
                counted(rounds(hosts).len(), "round", "rounds"),
                self.options.timing.repeat,
            ),
            format!("From each host to each other one: {}", words(&self.test.stream)),
            format!("Between the two of each pair: {}", words(&self.test.rr)),
        ]
    }

    fn headline(&self) -> Option<Headline> {
        let slowest = self.all.slowest(self.test, &self.run.environment.machines)?;
        let failed = self.failed().len();
        let caution = (failed > 0).then(|| format!("{} failed", counted(failed, "test", "tests")));
        // The other reasons stand in the list.
        let slowest = SlowPair { reasons: slowest.reasons.into_iter().take(1).collect(), ..slowest };
        Some(Headline { question: None, answer: format!("The slowest is {}", self.in_words(&slowest)), caution })
    }

    /// `web1>web3: 1.20 Gbit/s, 0.412 of the median, 2.91 Gbit/s: ...`
    fn in_words(&self, slow: &SlowPair<'_>) -> String {
        let throughput = bits_at_a_glance(slow.figures.throughput.unwrap_or_default());
        let median = bits_at_a_glance(self.all.throughput.unwrap_or_default());
        let why = match slow.reasons.is_empty() {
            true if slow.share < SLOW => "nothing that was counted tells why".to_owned(),
            true => "about as fast as the others".to_owned(),
            false => slow.reasons.join("; "),
        };
        let between = self.test.between(slow.figures.scenario);
        format!("{between}: {throughput}, {} of the median of all, {median}: {why}", three_digits(slow.share))
    }

    pub(super) fn failed(&self) -> Vec<(&str, &RepetitionEnd)> {
        let failed = self.settled.iter().filter(|one| matches!(one.outcome, RepetitionEnd::Failed { .. }));
        failed.map(|one| (one.scenario.as_str(), &one.outcome)).collect()
    }

    /// What is not there, and why.
    pub(super) fn missing(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let (what, none) = match self.test.pods {
            Some(_) => ("trials", "not tested"),
            None => ("pairs", "in no pair"),
        };
        match stored::status(self.run) {
            Status::Complete => {}
            Status::Running { .. } => blocks.push(Block::info(format!("The run is not finished: {what} are missing."))),
            Status::Interrupted { .. } => {
                blocks.push(Block::warning(format!("The run was interrupted: {what} are missing.")));
            }
            Status::Failed { reason, .. } => {
                blocks.push(Block::warning(format!("The run failed, and {what} are missing: {reason}")));
            }
        }
        let hosts = self.test.hosts.iter();
        let left_out = hosts.filter_map(|host| Some((&host.name, host.left_out.as_ref()?)));
        blocks.extend(left_out.map(|(name, why)| Block::warning(format!("{name} is {none}: {why}"))));
        let failed = self.failed();
        blocks.extend(failed.iter().take(NAMED).map(|(id, how)| Block::warning(format!("{id} {how}"))));
        if failed.len() > NAMED {
            let more = counted(failed.len() - NAMED, "more test", "more tests");
            blocks.push(Block::warning(format!("{more} failed")));
        }
        blocks
    }

    fn lead(&self) -> Vec<Block> {
        let mut blocks = self.missing();
        blocks.push(Block::Table(self.throughputs()));
        blocks.push(Block::Table(self.latencies()));
        let slow = self.all.all_slow(self.test, &self.run.environment.machines);
        if !slow.is_empty() {
            blocks.push(Block::heading(2, "Slower than the others"));
            let items = slow.iter().take(NAMED).map(|slow| self.in_words(slow)).collect();
            blocks.push(Block::List { items });
            if slow.len() > NAMED {
                let more = counted(slow.len() - NAMED, "more direction carries", "more directions carry");
                blocks.push(Block::paragraph(format!("{more} less than {SLOW} of the median.")));
            }
        }
        blocks
    }

    /// A row for each host, with a cell for each other one.
    fn matrix(&self, caption: &str, stub: &str, cell: impl Fn(&PairFigures) -> Option<Cell>) -> Table {
        let mut table = Table::new(caption, stub);
        let hosts = self.test.paired();
        let name = |host: usize| self.test.hosts[host].name.clone();
        table.columns = hosts.iter().map(|host| Column::number(Label::new(name(*host)), None)).collect();
        let of = |from: usize, to: usize| match self.all.between(from, to) {
            None => Cell::text(""),
            Some(pair) => cell(pair).unwrap_or_else(|| Cell::missing("it was not measured")),
        };
        let row = |from: &usize| Row {
            label: name(*from),
            unit: None,
            cells: hosts.iter().map(|to| of(*from, *to)).collect(),
        };
        table.rows = hosts.iter().map(row).collect();
        table
    }

    fn throughputs(&self) -> Table {
        // One unit for all, by the median.
        let (unit, scale) =
            if self.all.throughput.is_some_and(|median| median >= 1e9) { ("Gbit/s", 1e9) } else { ("Mbit/s", 1e6) };
        let cell = |pair: &PairFigures| pair.throughput.map(|rate| Cell::number(rate / scale, decimals(rate / scale)));
        let mut table =
            self.matrix(&format!("Throughput, {unit}: from the host of the row to that of the column"), "sends", cell);
        table.notes.extend(
            self.all
                .throughput
                .map(|median| format!("Half of all directions carry more than {}.", bits_at_a_glance(median))),
        );
        table.notes.extend(self.labels());
        table
    }

    /// For each key of labels which hosts have which value: `rack: b1 (web1, web2), b2 (web3)`.
    fn labels(&self) -> Vec<String> {
        let mut keys: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
        for host in &self.test.hosts {
            for (key, value) in &host.labels {
                keys.entry(key).or_default().entry(value).or_default().push(&host.name);
            }
        }
        let of_value = |(value, hosts): (&str, Vec<&str>)| format!("{value} ({})", hosts.join(", "));
        keys.into_iter()
            .map(|(key, values)| {
                format!("Label {key}: {}.", values.into_iter().map(of_value).collect::<Vec<_>>().join(", "))
            })
            .collect()
    }

    fn latencies(&self) -> Table {
        let cell = |pair: &PairFigures| pair.latency.map(|[half, _]| Cell::number(half, decimals(half)));
        self.matrix("Round trip, us: the median of transactions between the two", "host", cell)
    }

    /// Whether a host is slow as a whole.
    fn hosts(&self) -> Table {
        let mut table =
            Table::new("Each host: the median of what it sends to the others, and receives from them", "host");
        table.columns = ["sends", "receives"].map(|way| Column::number(Label::new(way), Some("Mbit/s"))).into();
        let cell = |rate: Option<f64>| match rate.map(|rate| rate / 1e6) {
            Some(rate) => Cell::number(rate, decimals(rate)),
            None => Cell::missing("it was not measured"),
        };
        let row = |host: usize| Row {
            label: self.test.hosts[host].name.clone(),
            unit: None,
            cells: self.all.hosts[host].map(cell).into(),
        };
        table.rows = self.test.paired().into_iter().map(row).collect();
        table
    }

    /// All that was measured of each direction.
    fn directions(&self) -> Table {
        let mut table = Table::new("Each direction", "from>to");
        table.columns = [
            ("throughput", "Mbit/s"),
            ("of the median", ""),
            ("sent again", "%"),
            ("sender's CPU", "%"),
            ("receiver's CPU", "%"),
            ("round trip", "us"),
            ("99 %", "us"),
        ]
        .map(|(name, unit)| Column::number(Label::new(name), Some(unit)))
        .into();
        let number = |value: Option<f64>, decimals: u8| match value {
            Some(value) => Cell::number(value, decimals),
            None => Cell::missing("it was not measured"),
        };
        table.rows = self
            .all
            .pairs
            .iter()
            .map(|pair| Row {
                label: self.test.between(pair.scenario),
                unit: None,
                cells: vec![
                    number(pair.throughput.map(|rate| rate / 1e6), 1),
                    number(pair.throughput.zip(self.all.throughput).map(|(rate, median)| rate / median), 3),
                    number(pair.resent.map(|share| share * 100.0), 3),
                    number(pair.cpu[0], 1),
                    number(pair.cpu[1], 1),
                    number(pair.latency.map(|[half, _]| half), 1),
                    number(pair.latency.map(|[_, most]| most), 1),
                ],
            })
            .collect();
        table.notes.push(
            "CPU is that of the whole machine. Segments sent again are of all that the sending host sent.".into(),
        );
        table
    }

    fn details(&self) -> Vec<Block> {
        let phases = &self.options.timing.phases;
        let pairs = [
            ("Warm-up", Span(phases.warm_up).to_string()),
            ("Window", Span(phases.window).to_string()),
            ("Cool-down", Span(phases.cool_down).to_string()),
            ("Order", "in rounds; in each, every host is in one pair at most, and all pairs of it are tested at the same time".into()),
        ];
        let mut blocks = vec![Block::heading(2, "How it was measured")];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value)).into();
        blocks.push(Block::KeyValues { caption: None, pairs });
        blocks.push(Block::heading(2, "Hosts"));
        blocks.extend(self.machines(|_| None));
        blocks
    }

    /// Each host, with what else is known of it.
    pub(super) fn machines(&self, more: impl Fn(&str) -> Option<(String, String)>) -> Vec<Block> {
        let of = |host: &PairedHost| {
            let machine = self.run.environment.machines.get(&host.name)?;
            let addresses = host.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let mut pairs = vec![("Reached by the others at".to_owned(), addresses)];
            pairs.extend(more(&host.name));
            pairs.extend(described(machine));
            Some(Block::KeyValues { caption: Some(host.name.clone()), pairs })
        };
        self.test.hosts.iter().filter_map(of).collect()
    }

    /// The same for programs, in the units that the names have.
    pub(super) fn data(&self) -> Value {
        let slow = self.all.all_slow(self.test, &self.run.environment.machines);
        let pairs = self.all.pairs.iter().map(|pair| {
            let PairScenario { from, to, .. } = pair.scenario;
            let reasons = slow.iter().find(|slow| slow.figures.scenario == pair.scenario).map(|slow| &slow.reasons);
            json!({
                "from": self.test.hosts[from].name,
                "to": self.test.hosts[to].name,
                "bits_per_second": pair.throughput,
                "of_median": pair.throughput.zip(self.all.throughput).map(|(rate, median)| rate / median),
                "resent_share": pair.resent,
                "sender_cpu_percent": pair.cpu[0],
                "receiver_cpu_percent": pair.cpu[1],
                "round_trip_us": pair.latency.map(|[half, _]| half),
                "round_trip_p99_us": pair.latency.map(|[_, most]| most),
                "doubts": pair.doubts,
                "slow_because": reasons,
            })
        });
        let hosts = self.test.hosts.iter().map(|host| {
            let PairedHost { name, addresses, labels, left_out, .. } = host;
            let mut told = json!({ "name": name, "addresses": addresses, "left_out": left_out });
            if !labels.is_empty() {
                told["labels"] = json!(labels);
            }
            told
        });
        let failed = self.failed().into_iter().map(|(id, how)| json!({ "test": id, "why": how.to_string() }));
        json!({
            "kind": "pairs",
            "run": self.run.summary.id.to_string(),
            "started_unix_ms": self.run.summary.started_unix_ms,
            "tests": self.run.summary.stored_trials,
            "planned": self.run.summary.planned_trials,
            "hosts": hosts.collect::<Vec<_>>(),
            "environment": self.run.environment,
            "phases": self.options.timing.phases,
            "loads": { "stream": self.test.stream, "rr": self.test.rr },
            "median_bits_per_second": self.all.throughput,
            "median_round_trip_us": self.all.latency,
            "pairs": pairs.collect::<Vec<_>>(),
            "failed": failed.collect::<Vec<_>>(),
            "trials": self.run.trials,
        })
    }

    fn view(&self) -> RunView {
        let scenarios = self.test.scenarios().into_iter().map(|scenario| {
            let (id, load) = (self.test.id(scenario), self.test.load(scenario.load));
            ScenarioView {
                name: match scenario.load {
                    PairLoad::Stream => format!("{}, a stream", self.test.between(scenario)),
                    PairLoad::Rr => format!("{}, transactions", self.test.between(scenario)),
                },
                about: String::new(),
                notes: Vec::new(),
                topology: String::new(),
                load: words(load),
                plan: rig_verdict::export::requested(load),
                checks: None,
                trials: self.run.trials.iter().filter(|trial| trial.scenario == id).cloned().collect(),
                certainty: stored::certainty(self.settled.iter().find(|settled| settled.scenario == id)),
                id,
            }
        });
        RunView {
            id: self.run.summary.id.to_string(),
            suite: self.run.summary.suite.clone(),
            suite_file: String::new(),
            suite_text: String::new(),
            title: self.test.title(),
            question: String::new(),
            answer: None,
            about: String::new(),
            started_unix_ms: self.run.summary.started_unix_ms,
            status: stored::status(self.run),
            options: self.options.words(),
            cpus: Vec::new(),
            phases: self.options.timing.phases,
            repetition: self.options.timing.repeat.to_string(),
            level: Level::default(),
            goal: None,
            environment: self.run.environment.clone(),
            rig_cost: None,
            scenarios: scenarios.collect(),
            left_out: Vec::new(),
            tables: Vec::new(),
            baseline: None,
            claims: Vec::new(),
            judged: Vec::new(),
            aa: None,
            set_apart: None,
            turns: None,
            peer: None,
            tool: None,
        }
    }
}
