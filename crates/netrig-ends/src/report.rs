//! The report of a test between two machines.

use rig_facts::claim::{FigureRef, Metric, Side};
use rig_facts::figures;
use rig_facts::record::{AbRun, LOAD_AVERAGE, described};
use rig_facts::record::{Accounting, Environment, Flag, TrialRecord, TwoMachineFlag};
use rig_facts::suspicion;
use rig_load::plan::Load;
use rig_load::record::{Direction, WorkerRecord};
use rig_report::build::{self, doubts};
use rig_report::document::{Axis, Block, Cell, Chart, Column, Document, Label, Line, Lines, Row, Table};
use rig_stats::confidence::Level;
use rig_stats::units::{Span, counted};
use rig_suite::ends::{Loads, words};
use rig_sys::socket::NamedAddress;
use rig_verdict::export::{TestData, TestKind};
use rig_verdict::view::RunView;
use serde_json::json;

use super::client_session::{NAME, Test, TestRecords};
use super::partial::PartialIntervals;
use super::server_session;

/// Confidence of the intervals over several trials, percent.
const LEVEL: f64 = 95.0;

/// The ends with the sides that figures know them as: the client connects, the server listens.
const ENDS: [(&str, Side); 2] = [(NAME, Side::Local), (server_session::NAME, Side::Remote)];

/// A test that was made, for its report.
#[derive(Debug)]
pub struct TestResult<'a> {
    /// The server as the user named it.
    pub host: &'a str,
    /// Its number in the store, where it is kept.
    pub run: Option<&'a str>,
    pub test: &'a Test,
    /// What the client's sockets were bound to, in words.
    pub source: Option<&'a str>,
    pub trials: &'a [TrialRecord],
    /// What is known of one more that was stopped.
    pub partial: Option<&'a PartialIntervals>,
    /// Trials that were asked for.
    pub planned: u32,
    pub started_unix_ms: i64,
    /// Where the server was found, and what its machine is.
    pub server: Option<&'a (NamedAddress, Environment)>,
    pub client: &'a Environment,
    /// The run that it took turns with.
    pub turns: Option<&'a AbRun>,
    /// Why it failed, where it did.
    pub failure: Option<&'a str>,
}

/// One trial as those of suites are kept: each machine is a node, each end a worker. All times are the client's.
pub fn trial(ends: &TestRecords, load: &Load, ordinal: u32, started_unix_ms: i64) -> TrialRecord {
    let (begin_ns, end_ns) = (ends.client_machine.begin_ns, ends.client_machine.end_ns);
    let mut trial = TrialRecord {
        search: None,
        benchmark: None,
        agents: Vec::new(),
        phases: Vec::new(),
        series: None,
        limit: None,
        dut: None,
        host: None,
        hosts: Vec::new(),
        calibration: None,
        clocks: Some(ends.clocks),
        end_clocks: ends.end_clocks.clone(),
        uncompared: ends.uncompared.clone(),
        scenario: load.name().into(),
        ordinal,
        block: Some(ordinal),
        started_unix_ms,
        setup_us: 0,
        teardown_us: 0,
        total_us: end_ns.saturating_sub(begin_ns) / 1000,
        window_begin_ns: begin_ns,
        window_end_ns: end_ns,
        nodes: vec![
            ends.client_machine.clone().into_node(NAME),
            ends.server_machine.clone().into_node(server_session::NAME),
        ],
        workers: vec![ends.client.clone(), ends.server.clone()],
        throttled_us: None,
        layers: None,
        set: Vec::new(),
        before: Vec::new(),
        frames: None,
        tool: None,
        flags: Vec::new(),
    };
    trial.flags = suspicion::without_testbed(&trial);
    trial
}

/// The whole report.
pub fn document(outcome: &TestResult<'_>) -> Document {
    Document {
        title: format!("{} to {}", outcome.test.client.name(), outcome.host),
        summary: summary(outcome),
        blocks: blocks(outcome),
        details: details(outcome),
        headline: None,
        lead: Vec::new(),
        data: serde_json::to_value(data(outcome)).expect("strings, numbers and lists have a form in JSON"),
    }
}

/// The outcome as a run, to compare it with others.
pub fn view(outcome: &TestResult<'_>) -> RunView {
    data(outcome).view()
}

fn summary(outcome: &TestResult<'_>) -> Vec<String> {
    let window = Span(outcome.test.phases.window);
    let done = counted(outcome.trials.len(), "trial", "trials");
    let load = words(&outcome.test.client);
    let load = outcome.source.map_or_else(|| load.clone(), |source| format!("{load}, {source}"));
    let mut lines = vec![format!("{}, {done} of {window}", build::time(outcome.started_unix_ms)), load];
    let client = build::machine(outcome.client);
    match outcome.server {
        Some((address, _)) if is_one_machine(outcome) => lines.push(format!("Client and server {address}: {client}")),
        server => {
            lines.push(format!("Client: {client}"));
            lines.extend(server.map(|(address, machine)| format!("Server {address}: {}", build::machine(machine))));
        }
    }
    lines
}

/// Whether both ends are one machine: by the clocks, or where no trial compared them by the address.
fn is_one_machine(outcome: &TestResult<'_>) -> bool {
    match outcome.trials.iter().any(|trial| trial.clocks.is_some()) {
        true => outcome.trials.iter().all(TrialRecord::is_on_one_machine),
        false => outcome.server.is_some_and(|(address, _)| address.ip().is_loopback()),
    }
}

fn blocks(outcome: &TestResult<'_>) -> Vec<Block> {
    let trials = outcome.trials;
    let mut blocks = Vec::new();
    let done = trials.len();
    let is_whole = done >= outcome.planned as usize;
    if let Some(why) = outcome.failure {
        let what = if is_whole { "All was measured, and then this failed" } else { "The test failed" };
        blocks.push(Block::warning(format!("{what}: {why}")));
    }
    if !is_whole {
        blocks.push(Block::warning(format!("Only {done} of {} trials were made.", outcome.planned)));
    }
    if !trials.is_empty() {
        blocks.push(Block::Table(results(&outcome.test.client, trials)));
    }
    if let Some(partial) = outcome.partial {
        blocks.push(Block::warning(format!(
            "Trial {} was stopped: of its window of {} the first {} are known, from the interim figures. CPU time and \
             latency of a trial that was stopped are lost.",
            done + 1,
            Span(outcome.test.phases.window),
            Span(partial.covered()),
        )));
        blocks.push(Block::Table(interim(&outcome.test.client, partial, done + 1)));
    }
    blocks.extend(notices(trials));
    if is_one_machine(outcome) {
        blocks.push(Block::info("Both ends are this machine: the CPU figures of each contain the other's work."));
    }
    blocks.extend(skew(outcome.trials).map(Block::info));
    if matches!(outcome.test.client, Load::UdpStream(_)) {
        blocks.extend(delays(outcome.trials).into_iter().map(Block::info));
    }
    blocks
}

/// What makes the reader doubt trials.
fn notices(trials: &[TrialRecord]) -> Vec<Block> {
    let notice = |(flag, text): (&Flag, String)| {
        // It says how other tools count, and takes nothing from the figures.
        if matches!(flag, Flag::TicksDiffer { .. }) { Block::info(text) } else { Block::warning(text) }
    };
    doubts::of(trials, |flag| TwoMachineFlag(flag).to_string()).into_iter().map(notice).collect()
}

fn role(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "sends",
        Direction::Receive => "receives",
        Direction::Both => "sends and receives",
        Direction::Request => "asks",
        Direction::Respond => "answers",
        Direction::Idle => "idle",
    }
}

/// Whether a load has the figure; what else its trials may count is of other programs' traffic.
fn has(load: &Load, side: Side, metric: Metric) -> bool {
    let figure = FigureRef { scenario: load.name().into(), phase: None, side, metric };
    // Between two machines there are no loads of packets.
    load.try_map(|_| Err(())).is_ok_and(|load| figures::check(&load, &figure).is_ok())
}

/// Every figure that either end has.
fn results(load: &Load, trials: &[TrialRecord]) -> Table {
    let mut table = Table::new("Results", "Figure");
    for (name, _) in ENDS {
        let worker = trials.first().and_then(|trial| trial.workers.iter().find(|worker| worker.name == name));
        let label = worker.map_or_else(|| Label::new(name), |w| Label::with_subhead(name, role(w.direction)));
        table.columns.push(Column::number(label, None));
    }
    let Ok(level) = Level::new(LEVEL) else { return table };
    // What was asked for first, then what it cost.
    let (rates, others): (Vec<_>, Vec<_>) =
        Metric::ALL.into_iter().partition(|metric| matches!(metric, Metric::Throughput | Metric::Transactions));
    for metric in rates.into_iter().chain(others) {
        let number = |side| has(load, side, metric).then(|| build::mean_of(trials, side, metric, level)).flatten();
        let numbers = ENDS.map(|(_, side)| number(side));
        if numbers.iter().all(Option::is_none) {
            continue;
        }
        let cell = |number: Option<_>| number.map_or_else(|| Cell::missing("not measured at this end"), Cell::from);
        table.rows.push(Row {
            label: build::name(metric).to_owned(),
            unit: Some(build::unit(metric).to_owned()),
            cells: numbers.map(cell).into(),
        });
    }
    if trials.len() > 1 {
        table.notes.push(format!("Means over the trials; ± is their {LEVEL} % confidence interval."));
    }
    table.notes.push("CPU is that of the whole machine, and so is the CPU time in the service demand.".into());
    table.notes.extend(build::accounting::shares(trials));
    table.notes.extend(build::accounting::way_of_sums(trials));
    table
}

/// What samples tell of.
const INTERIM: [Metric; 4] = [Metric::Throughput, Metric::Transactions, Metric::Datagrams, Metric::Retransmits];

/// The figures of a trial that was stopped.
fn interim(load: &Load, partial: &PartialIntervals, ordinal: usize) -> Table {
    let mut table = Table::new(format!("Trial {ordinal}, until it was stopped"), "Figure");
    table.columns = ENDS.map(|(name, _)| Column::number(Label::new(name), None)).into();
    table.rows = INTERIM
        .into_iter()
        .filter_map(|metric| {
            let cell = |value| Cell::number(build::shown(metric, value), build::decimals(metric));
            let cells = partial.figure(load, metric)?.map(cell).into();
            Some(Row { label: build::name(metric).to_owned(), unit: Some(build::unit(metric).to_owned()), cells })
        })
        .collect();
    table
}

/// How far the ends' windows were apart, at worst.
fn skew(trials: &[TrialRecord]) -> Option<String> {
    let apart = |trial: &TrialRecord| {
        let [client, server] = trial.workers.as_slice() else { return None };
        let begin = client.window_begin_ns.abs_diff(server.window_begin_ns);
        Some((begin.max(client.window_end_ns.abs_diff(server.window_end_ns)), trial.clocks?))
    };
    let all = trials.iter().filter_map(apart);
    let (worst, clocks) = all.max_by_key(|(apart, clocks)| apart.saturating_add(clocks.bound_ns))?;
    let us = |ns: u64| ns as f64 / 1e3;
    Some(format!(
        "Client and server began and ended measuring at most {:.0} µs apart, by clocks compared to ±{:.0} µs (shortest of {} \
         round trips: {:.0} µs).",
        us(worst),
        us(clocks.bound_ns),
        clocks.round_trips,
        us(clocks.shortest_ns),
    ))
}

/// How well one-way delays are known, and of which trials there are none.
fn delays(trials: &[TrialRecord]) -> Vec<String> {
    let known = build::clocks::of_delays(trials).map(|known| format!("{}.", build::capitalised(&known)));
    let (uncompared, all) = (trials.iter().filter(|trial| trial.end_clocks.is_none()).count(), trials.len());
    let of = if uncompared == all { String::new() } else { format!(" of {uncompared} of {all} trials") };
    let unknown = (uncompared > 0).then(|| {
        // Of a run that an older version stored nobody knows which.
        let why =
            |trial: &TrialRecord| trial.uncompared.clone().unwrap_or_else(|| "the record does not say why".to_owned());
        let why: Vec<String> = trials.iter().filter(|trial| trial.end_clocks.is_none()).map(why).collect();
        let why = build::clocks::counted_reasons(&why);
        format!("One-way delay is not given{of}: the clocks were not compared before and after the load ({why}).")
    });
    known.into_iter().chain(unknown).collect()
}

fn details(outcome: &TestResult<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let charts: Vec<Block> = outcome.trials.iter().filter_map(over_time).map(Block::Figure).collect();
    if !charts.is_empty() {
        blocks.push(Block::heading(2, "Over time"));
        blocks.extend(charts);
    }
    blocks.push(Block::heading(2, "How it was measured"));
    let phases = &outcome.test.phases;
    let pairs = [
        ("Warm-up", Span(phases.warm_up).to_string()),
        ("Window", Span(phases.window).to_string()),
        ("Cool-down", Span(phases.cool_down).to_string()),
        ("CPU", "share of time that was neither idle nor stolen, mean over all CPUs of the machine".into()),
    ];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value)).into();
    blocks.push(Block::KeyValues { caption: None, pairs });
    blocks.extend(machines(outcome));
    blocks
}

fn machines(outcome: &TestResult<'_>) -> Vec<Block> {
    let table = |caption: &str, pairs| Block::KeyValues { caption: Some(caption.to_owned()), pairs };
    // The exact way of counting CPU time stands by the figures; what keeps a machine from it stands here alone.
    let is_new = |pair: &(String, String)| pair.1 != Accounting::Exact.words();
    let described = |machine: &Environment| -> Vec<_> { described(machine).into_iter().filter(is_new).collect() };
    let client = described(outcome.client);
    let server = outcome.server.map(|(_, environment)| described(environment));
    if !is_one_machine(outcome) {
        let server = server.map(|pairs| table("Server", pairs));
        return [Block::heading(2, "Machines"), table("Client", client)].into_iter().chain(server).collect();
    }
    // Namespaces of one machine have settings of their own, and its load is that of another moment.
    let differs = |pair: &(String, String)| pair.0 != LOAD_AVERAGE && !client.contains(pair);
    let differing: Vec<_> = server.into_iter().flatten().filter(differs).collect();
    let server = (!differing.is_empty()).then(|| table("Server, where it differs", differing));
    [Block::heading(2, "Machine"), table("Client and server", client)].into_iter().chain(server).collect()
}

fn over_time(trial: &TrialRecord) -> Option<Chart> {
    let asks = |worker: &WorkerRecord| worker.transactions.is_some();
    let (metric, quantity, unit, scale) = if trial.workers.iter().any(asks) {
        (Metric::Transactions, "Transactions", "1/s", 1.0)
    } else {
        (Metric::Throughput, "Throughput", "Mbit/s", 1e-6)
    };
    let lines = ENDS.map(|(name, side)| {
        let points = figures::over_time(trial, side, metric);
        Line { label: name.into(), points: points.into_iter().map(|(at, value)| (at, value * scale)).collect() }
    });
    lines.iter().any(|line| line.points.len() > 1).then(|| {
        Chart::Lines(Lines {
            title: format!("{quantity} of trial {}", trial.ordinal),
            x: Axis::new("Time", "s"),
            y: Axis::new(quantity, unit),
            lines: lines.into(),
        })
    })
}

/// Everything, for programs.
fn data(outcome: &TestResult<'_>) -> TestData {
    let Test { client, server, .. } = outcome.test;
    TestData {
        kind: TestKind::Test,
        test: client.name().to_owned(),
        run: outcome.run.map(str::to_owned),
        started_unix_ms: Some(outcome.started_unix_ms),
        planned: Some(outcome.planned),
        host: outcome.host.to_owned(),
        address: outcome.server.map(|(address, _)| address.clone()),
        source: outcome.source.map(str::to_owned),
        client: outcome.client.clone(),
        server: outcome.server.map(|(_, environment)| environment.clone()),
        load: Loads { client: client.clone(), server: server.clone() },
        phases: outcome.test.phases,
        turns: outcome.turns.cloned(),
        figures: figures_of(outcome.trials),
        clocks: outcome.trials.iter().filter_map(|trial| trial.clocks).collect(),
        trials: outcome.trials.to_vec(),
        partial: outcome.partial.map(|partial| partial_of(partial, client)),
        error: outcome.failure.map(str::to_owned),
    }
}

/// What is known of a trial that was stopped: each figure of each end over the first `seconds` of the window.
fn partial_of(partial: &PartialIntervals, load: &Load) -> serde_json::Value {
    let figures = INTERIM.into_iter().filter_map(|metric| Some((metric, partial.figure(load, metric)?)));
    let figures = figures.flat_map(|(metric, values)| {
        ENDS.into_iter().zip(values).map(move |((end, _), value)| {
            json!({ "end": end, "metric": metric.name(), "unit": metric.unit(), "value": value })
        })
    });
    json!({ "seconds": partial.covered().as_secs_f64(), "figures": figures.collect::<Vec<_>>() })
}

/// Each figure of each end, in the unit of the metric: one value a trial, their mean and its confidence interval.
fn figures_of(trials: &[TrialRecord]) -> Vec<serde_json::Value> {
    let both = Metric::ALL.into_iter().flat_map(|metric| ENDS.map(|(end, side)| (metric, end, side)));
    both.filter_map(|(metric, end, side)| {
        let values = figures::sample(trials, side, metric);
        let interval = Level::new(LEVEL).ok().and_then(|level| level.mean_interval(&values));
        let figure = json!({
            "end": end,
            "metric": metric.name(),
            "unit": metric.unit(),
            "mean": values.mean(),
            "low": interval.map(|interval| interval.low),
            "high": interval.map(|interval| interval.high),
            "values": values.values(),
        });
        (!values.is_empty()).then_some(figure)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use rig_facts::record::{ClockOffset, Clocks, EndClocks, OffsetReading};
    use rig_load::record::{DatagramRecord, End};
    use rig_stats::histogram::Histogram;
    use rig_testbed::accounting::CpuReading;

    use super::*;
    use crate::fuzz;
    use crate::machine::Reading;

    fn worker(name: &str, direction: &str, end: End, datagrams: DatagramRecord) -> WorkerRecord {
        let text = format!(
            r#"{{"name":"{name}","direction":"{direction}","engine":"blocking","send_mode":"copy","receive_mode":"copy",
            "window_begin_ns":0,"window_end_ns":1000000000,"process_cpu":{{"user_ns":0,"system_ns":0}},"threads":[],
            "connections":[],"samples":[],"zerocopy_copied":0,"notes":[]}}"#
        );
        let worker = serde_json::from_str(&text).unwrap();
        WorkerRecord { end: Some(end), datagrams: Some(datagrams), ..worker }
    }

    /// A trial with 1000 datagrams that took 100 µs each, by clocks that are known to this, if they were compared.
    fn delayed(bound_ns: Option<u64>) -> TrialRecord {
        let mut delay = Histogram::new();
        (0..1000).for_each(|_| delay.record(100_000));
        let reading =
            |at_ns| Reading { machine: CpuReading { at_ns, ..CpuReading::default() }.into(), ..Reading::default() };
        let machine = reading(0).until(&reading(1_000_000_000));
        let compared = |bound_ns| {
            let found = OffsetReading { at_ns: 0, path: None, asked: ClockOffset { ns: 7, bound_ns } };
            EndClocks::between(NAME, server_session::NAME, &found, &found)
        };
        let sent = DatagramRecord { sent: 1000, ..DatagramRecord::default() };
        let delay = bound_ns.map(|_| delay);
        let received = DatagramRecord { received: 1000, delay, ..DatagramRecord::default() };
        let ends = TestRecords {
            client: worker(NAME, "send", End::Connect, sent),
            client_machine: machine.clone(),
            server: worker(server_session::NAME, "receive", End::Listen, received),
            server_machine: machine,
            clocks: Clocks { offset_ns: 7, bound_ns: 9, round_trips: 1, shortest_ns: 18, longest_ns: 18 },
            end_clocks: bound_ns.map(compared),
            uncompared: bound_ns.is_none().then(|| "the server is closing".to_owned()),
        };
        trial(&ends, &fuzz::datagrams().client, 1, 0)
    }

    #[test]
    fn delays_above_the_bound_of_the_clocks_are_figures_and_others_are_not() {
        let given = |bounds: &[Option<u64>]| {
            let trials: Vec<_> = bounds.iter().map(|bound| delayed(*bound)).collect();
            let figures = figures_of(&trials).into_iter().filter(|figure| figure["metric"] == "delay_p50");
            let given = figures.map(|figure| {
                let median = figure["mean"].as_f64().unwrap();
                assert!((99.0..101.0).contains(&median) && figure["unit"] == "us", "{figure}");
                (figure["end"].as_str().unwrap().to_owned(), figure["values"].as_array().unwrap().len())
            });
            (given.collect::<Vec<_>>(), delays(&trials).join(" "))
        };
        let of_server = |trials| vec![("server".to_owned(), trials)];
        let (figures, said) = given(&[Some(90_000), Some(1_000)]);
        assert_eq!(figures, of_server(2));
        assert!(said.starts_with("One-way delay: the clocks of client and server are known to ±90 µs"), "{said}");
        let (figures, said) = given(&[Some(110_000)]);
        assert_eq!(figures, []);
        assert!(said.contains("the median is below that"), "{said}");
        // Clocks that were not compared take nothing from the other trials.
        let (figures, said) = given(&[Some(1_000), None, None]);
        assert_eq!(figures, of_server(1));
        assert!(said.contains("±1.0 µs") && said.contains("not given of 2 of 3 trials: the clocks were not"), "{said}");
        let (figures, said) = given(&[None]);
        assert_eq!(figures, []);
        assert!(said.starts_with("One-way delay is not given: the clocks were not compared"), "{said}");
        assert!(said.ends_with("(the server is closing)."), "{said}");
    }
}
