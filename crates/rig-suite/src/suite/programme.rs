//! Phases as suite files write them.

use std::ops::Range;
use std::time::Duration;

use rig_cli::mistakes::{self, FileError};
use rig_cli::source::Spanned;
use rig_facts::claim::{Claim, Metric, is_phase_name, is_scenario_id};
use rig_facts::figures::check;
use rig_facts::programme::{
    Command, Condition, Phase, PhaseLength, Programme, Rate, ScenarioLoad, Step, WaitCondition,
};
use rig_facts::record::SearchedRate;
use rig_load::plan::{Flow, Schedule, Transactions};
use rig_load::record::{Direction, TransactionRecord, WorkerRecord};
use rig_stats::units::{ByteRate, PerSecond, Percent, Span};
use rig_testbed::datapath::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

use super::file::ScenarioFile;
use super::resolve::{Resolver, Result};
use super::{DatapathSetup, RequestedLoad, Traffic};

/// Counters are read so often unless the scenario says otherwise.
const SAMPLE: Duration = Duration::from_millis(100);
const SAMPLE_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10);
/// Shorter ones would begin before every thread knows.
const PHASE_MIN: Duration = Duration::from_millis(100);
const PROGRAMME_MAX: Duration = Duration::from_secs(3600);
/// What a share of the limit may be.
const SHARE_MAX: f64 = 10.0;

/// A part of the window, with what changes when it begins.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Phase")]
pub(super) struct PhaseFile {
    /// Its name in claims: letters, digits, '_' and '-', beginning with a letter.
    #[schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9_-]*$"))]
    pub name: Spanned<String>,
    /// Rate of the scenario's load, from the phase's begin on; without it as in the phase before, in the first as the load says.
    pub rate: Option<Spanned<RateFile>>,
    /// Rate of the load under it; without it as in the phase before, in the first as that load says.
    pub under_rate: Option<Spanned<RateFile>>,
    /// Commands to datapaths when the phase begins, in this order; without it none.
    #[serde(default)]
    pub command: Vec<Spanned<CommandFile>>,
    /// How long it lasts; as long as the window by default, with `until` until that holds.
    pub time: Option<Spanned<Span>>,
    /// What it waits for: a figure, a comparison and a number, such as throughput >= 5Gbit; without it the phase lasts for its `time`.
    #[schemars(example = "throughput >= 5Gbit")]
    pub until: Option<Spanned<String>>,
    /// How long the condition has to hold without a break; 0s by default.
    #[schemars(example = "1s")]
    pub hold: Option<Spanned<Span>>,
    /// How long to wait at most; required with `until`, and refused without.
    #[schemars(example = "90s")]
    pub deadline: Option<Spanned<Span>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a rate such as 1000, \"10000KB/s\", \"25% of limit\", or 0 to stop the load")]
pub(super) enum RateFile {
    Number(f64),
    Text(String),
}

/// What a datapath is told.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Command")]
pub(super) struct CommandFile {
    /// One of the scenario's, such as balancer.
    pub datapath: Spanned<String>,
    /// One of its nodes; all by default.
    pub node: Option<Spanned<String>>,
    /// One of the datapath's commands, such as weight.
    pub name: String,
    /// The command's arguments.
    #[serde(default)]
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub arguments: toml::Table,
}

/// What a load's rate is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Transactions, connections, requests.
    PerSecond,
    /// Payload.
    Bytes,
}

/// What a scenario has that phases can change.
struct ChangeableParts<'a> {
    own: &'a Traffic,
    under: Option<&'a Traffic>,
    datapaths: &'a [DatapathSetup],
}

impl Resolver<'_> {
    /// What happens when in a scenario.
    pub(super) fn programme(
        &self,
        scenario: &ScenarioFile,
        own: &Traffic,
        under: Option<&Traffic>,
        datapaths: &[DatapathSetup],
    ) -> Result<Programme> {
        let sample = scenario.sample.as_ref().map(|sample| self.sample(sample)).transpose()?;
        if scenario.phase.is_empty() {
            return Ok(Programme { sample, ..Programme::default() });
        }
        let has = ChangeableParts { own, under, datapaths };
        let mut phases: Vec<Phase> = Vec::with_capacity(scenario.phase.len());
        for phase in &scenario.phase {
            let phase = self.phase(scenario, phase.get_ref(), &has, &phases)?;
            phases.push(phase);
        }
        if own.packets.as_ref().is_some_and(|packets| packets.benchmark.is_some()) {
            let at = scenario.phase.first().map_or_else(|| scenario.id.span(), Spanned::span);
            return Err(self.error(
                at,
                "phases of a benchmark, which has its own",
                Some("remove the phases, or 'benchmark'"),
            ));
        }
        let programme = Programme { sample: Some(sample.unwrap_or(SAMPLE)), phases };
        let at = || scenario.phase.first().map_or_else(|| scenario.id.span(), Spanned::span);
        if programme.longest(Duration::ZERO) > PROGRAMME_MAX {
            let what = format!("phases of {} together", Span(programme.longest(Duration::ZERO)));
            return Err(self.error(at(), what, Some("an hour is the most")));
        }
        if own.packets.as_ref().is_some_and(|packets| packets.search.is_some()) && !programme.needs_limit() {
            let hint = "give the phases rates that are shares of it, for instance rate = \"50% of limit\", or remove the search";
            return Err(self.error(at(), "a search for a limit that no phase uses", Some(hint)));
        }
        Ok(programme)
    }

    fn sample(&self, sample: &Spanned<Span>) -> Result<Duration> {
        let Span(interval) = *sample.get_ref();
        if SAMPLE_RANGE.contains(&interval) {
            return Ok(interval);
        }
        let what = format!("a sample each {}", Span(interval));
        Err(self.error(sample.span(), what, Some("choose from 10ms to 10s")))
    }

    fn phase(
        &self,
        scenario: &ScenarioFile,
        file: &PhaseFile,
        has: &ChangeableParts<'_>,
        before: &[Phase],
    ) -> Result<Phase> {
        let name = file.name.get_ref();
        let refuse = |what: String, hint: &str| Err(self.error(file.name.span(), what, Some(hint)));
        if !is_scenario_id(name) {
            let hint = "use letters, digits, '_' and '-', beginning with a letter: claims refer to it";
            return refuse(format!("'{name}' is not a name of a phase"), hint);
        }
        if !is_phase_name(name) {
            let hint = format!("'{}.{name}' would be ambiguous in a claim: choose another name", scenario.id.get_ref());
            return refuse(format!("a phase is called '{name}', as a side or a figure is"), &hint);
        }
        if before.iter().any(|phase| phase.name == *name) {
            return refuse(format!("phase '{name}' is described twice"), "give each phase a name of its own");
        }
        let mut steps = Vec::new();
        if let Some(rate) = &file.rate {
            steps.push(Step::Rate { load: ScenarioLoad::Own, rate: self.rate(rate, has.own)? });
        }
        if let Some(rate) = &file.under_rate {
            let Some(under) = has.under else {
                let what = format!("'under_rate' where nothing runs under scenario '{}'", scenario.id.get_ref());
                return Err(self.error(rate.span(), what, Some("give it an `under` load, or write `rate`")));
            };
            steps.push(Step::Rate { load: ScenarioLoad::Under, rate: self.under_rate(rate, has.own, under)? });
        }
        for command in &file.command {
            steps.push(Step::Command(self.command(scenario, command, has.datapaths)?));
        }
        Ok(Phase { name: name.clone(), steps, lasts: self.lasts(scenario, file, has)? })
    }

    /// Whether the datapath knows the command is asked by [`Suite::check_datapaths`](super::Suite::check_datapaths).
    fn command(
        &self,
        scenario: &ScenarioFile,
        command: &Spanned<CommandFile>,
        datapaths: &[DatapathSetup],
    ) -> Result<Command> {
        let CommandFile { datapath, node, name, arguments } = command.get_ref();
        let Some(setup) = datapaths.iter().find(|setup| setup.name == *datapath.get_ref()) else {
            let what = format!("scenario '{}' has no datapath '{}'", scenario.id.get_ref(), datapath.get_ref());
            let names: Vec<&str> = datapaths.iter().map(|setup| setup.name.as_str()).collect();
            let hint = match names.as_slice() {
                [] => "it has none: choose a path with one, or give it [[scenario.datapath]]".to_owned(),
                names => format!("it has {}", names.join(", ")),
            };
            return Err(self.error(datapath.span(), what, Some(&hint)));
        };
        if let Some(node) = node.as_ref().filter(|node| !setup.nodes.contains(node.get_ref())) {
            let what = format!("{} is not on node '{}'", setup.name, node.get_ref());
            return Err(self.error(node.span(), what, Some(&format!("it is on {}", setup.nodes.join(", ")))));
        }
        let arguments = arguments.iter().map(|(key, value)| Ok((key.clone(), serde_json::to_value(value)?)));
        let arguments: Result<Settings, serde_json::Error> = arguments.collect();
        let arguments = arguments.map_err(|error| {
            self.error(command.span(), format!("the arguments of '{name}' cannot be read: {error}"), None)
        })?;
        let node = node.as_ref().map(|node| node.get_ref().clone());
        Ok(Command { datapath: setup.name.clone(), node, name: name.clone(), arguments })
    }

    /// The limit is that of the scenario's own load, which a share of it for the load under it has to be of the same kind as.
    fn under_rate(&self, file: &Spanned<RateFile>, own: &Traffic, under: &Traffic) -> Result<Rate> {
        let rate = self.rate(file, under)?;
        let kind = |traffic: &Traffic| std::mem::discriminant(&traffic.connect);
        if matches!(rate, Rate::OfLimit(_)) && (kind(own) != kind(under) || own.packets.is_some()) {
            let what = "a share of a limit that is another load's".to_owned();
            let hint = "the limit is that of the scenario's own load, of another kind: write a rate";
            return Err(self.error(file.span(), what, Some(hint)));
        }
        Ok(rate)
    }

    fn rate(&self, file: &Spanned<RateFile>, traffic: &Traffic) -> Result<Rate> {
        let refuse = |what: String, hint: &str| -> FileError { self.error(file.span(), what, Some(hint)) };
        let unit = unit(&traffic.connect, &traffic.listen).map_err(|(what, hint)| refuse(what, hint))?;
        let rate = match (file.get_ref(), unit) {
            (RateFile::Number(0.0), _) => Rate::At(0.0),
            (RateFile::Number(number), Unit::PerSecond) if number.is_finite() && *number > 0.0 => Rate::At(*number),
            (RateFile::Number(number), Unit::PerSecond) => {
                return Err(refuse(format!("a rate of {number}"), "choose more than zero, or 0 to stop the load"));
            }
            (RateFile::Number(number), Unit::Bytes) => {
                let hint =
                    "write for instance \"10000KB/s\": it is the payload of each sending thread, as `throttle` is";
                return Err(refuse(format!("a rate of {number} for a stream"), hint));
            }
            (RateFile::Text(text), unit) => self.rate_of_text(file.span(), text, unit)?,
        };
        if let (Rate::At(rate), RequestedLoad::TcpRr(_) | RequestedLoad::TcpCrr(_) | RequestedLoad::UdpRr(_)) =
            (rate, &traffic.connect)
            && rate > 0.0
            && !Transactions::RATE.contains(&rate)
        {
            let (least, most) = (Transactions::RATE.start(), Transactions::RATE.end());
            return Err(refuse(
                format!("a rate of {rate} transactions per second"),
                &format!("choose from {least} to {most}"),
            ));
        }
        if let Rate::OfLimit(share) = rate {
            if !(share > 0.0 && share <= SHARE_MAX) {
                return Err(refuse(
                    format!("{} % of the limit", share * 100.0),
                    "choose more than 0 and at most 1000 %",
                ));
            }
            let search = traffic.packets.as_ref().map(|packets| packets.search);
            if let Some(None) = search {
                let hint = "give the load search = \"loss-free\"";
                return Err(refuse("a share of a limit that nothing searches".into(), hint));
            }
            if let Some(Some(search)) = search
                && search.of == SearchedRate::Held
            {
                let what = "a share of the connections held, which is not a rate".to_owned();
                return Err(refuse(what, "search for connections or requests per second"));
            }
        }
        Ok(rate)
    }

    fn rate_of_text(&self, span: Range<usize>, text: &str, unit: Unit) -> Result<Rate> {
        if let Some(share) = text.trim().strip_suffix("of limit") {
            let percent = share.trim();
            let share: Result<Percent, _> = percent.parse();
            return match (percent.ends_with('%'), share) {
                (true, Ok(share)) => Ok(Rate::OfLimit(share.fraction())),
                _ => Err(self.error(
                    span,
                    format!("'{text}' is not a share of the limit"),
                    Some("write for instance \"25% of limit\""),
                )),
            };
        }
        let rate = match unit {
            Unit::PerSecond => text.parse().map(PerSecond::get).map_err(|error| error.to_string()),
            Unit::Bytes => text.parse().map(|ByteRate(rate)| rate as f64).map_err(|error| error.to_string()),
        };
        rate.map(Rate::At).map_err(|error| {
            let last = text.split_whitespace().last().unwrap_or_default();
            let meant = mistakes::closest(last, ["limit"]).map(|_| "did you mean \"25% of limit\"?");
            let hint = meant.unwrap_or("or write a share such as \"25% of limit\", or 0 to stop the load");
            self.error(span, error, Some(hint))
        })
    }

    fn lasts(&self, scenario: &ScenarioFile, file: &PhaseFile, has: &ChangeableParts<'_>) -> Result<PhaseLength> {
        let refuse = |span: Range<usize>, what: String, hint: &str| Err(self.error(span, what, Some(hint)));
        let checked = |time: &Spanned<Span>| {
            let Span(length) = *time.get_ref();
            if length < PHASE_MIN {
                let what = format!("a phase of {}", Span(length));
                return Err(self.error(time.span(), what, Some("choose at least 100ms")));
            }
            Ok(length)
        };
        let Some(until) = &file.until else {
            if let Some(key) =
                file.hold.as_ref().map(|key| ("hold", key)).or(file.deadline.as_ref().map(|key| ("deadline", key)))
            {
                let (name, key) = key;
                return refuse(
                    key.span(),
                    format!("'{name}' in a phase that waits for nothing"),
                    "remove it, or add `until`",
                );
            }
            return Ok(match &file.time {
                None => PhaseLength::Window,
                Some(time) => PhaseLength::Time(checked(time)?),
            });
        };
        if let Some(time) = &file.time {
            return refuse(
                time.span(),
                "both 'time' and 'until'".into(),
                "a phase lasts for a time, or until something holds: remove one",
            );
        }
        let Some(deadline) = &file.deadline else {
            return refuse(
                until.span(),
                "'until' without a deadline".into(),
                "give the longest wait, for instance deadline = \"90s\"",
            );
        };
        let condition = self.condition(scenario, until, has)?;
        let hold = file.hold.as_ref().map_or(Duration::ZERO, |hold| hold.get_ref().0);
        let longest = checked(deadline)?;
        if hold >= longest {
            let what = format!("a hold of {} with a deadline of {}", Span(hold), Span(longest));
            return refuse(deadline.span(), what, "the deadline has to be later");
        }
        Ok(PhaseLength::Until(WaitCondition { condition, hold, deadline: longest }))
    }

    /// A claim about the phase, without the name of the scenario, that compares one figure with a number.
    fn condition(
        &self,
        scenario: &ScenarioFile,
        until: &Spanned<String>,
        has: &ChangeableParts<'_>,
    ) -> Result<Condition> {
        const SAMPLED: [Metric; 7] = [
            Metric::Throughput,
            Metric::Transactions,
            Metric::Datagrams,
            Metric::Connections,
            Metric::BackgroundThroughput,
            Metric::Cpu,
            Metric::CpusUsed,
        ];
        let text = until.get_ref().trim();
        let refuse = |what: String, hint: Option<&str>| self.error(until.span(), what, hint);
        let own = format!("{}.", scenario.id.get_ref());
        let claim = Claim::parse(text, &format!("{own}{text}")).map_err(|error| {
            let column = error.column.saturating_sub(own.chars().count()).max(1);
            refuse(format!("column {column}: {}", error.what.replace(&own, "")), Some(&error.hint.replace(&own, "")))
        })?;
        let Some((figure, threshold)) = claim.condition().filter(|(figure, _)| figure.phase.is_none()) else {
            let hint = "write a figure, a comparison and a number, for instance until = \"throughput >= 5Gbit\"";
            return Err(refuse(format!("`{text}` is not a condition"), Some(hint)));
        };
        if !SAMPLED.contains(&figure.metric) {
            let names: Vec<&str> = SAMPLED.iter().map(|metric| metric.name()).collect();
            let hint = format!("a phase can wait for {}", names.join(", "));
            return Err(refuse(format!("{} is not known while the load runs", figure.metric), Some(&hint)));
        }
        if figure.metric == Metric::BackgroundThroughput && has.under.is_none() {
            let what = format!("nothing runs under scenario '{}'", figure.scenario);
            return Err(refuse(what, Some("give it an `under` load, or wait for another figure")));
        }
        check(&has.own.connect, &figure).map_err(|error| refuse(error.what, Some(&error.hint)))?;
        Ok(Condition { text: text.to_owned(), side: figure.side, metric: figure.metric, threshold })
    }
}

/// What the rate of a load is counted in; of one that has none, why, and what to do.
fn unit(connect: &RequestedLoad, listen: &RequestedLoad) -> std::result::Result<Unit, (String, &'static str)> {
    let none =
        |hint| Err((format!("a rate in a phase, and the load, {}, has none to begin with", connect.name()), hint));
    match (connect, listen) {
        (RequestedLoad::TcpRr(load) | RequestedLoad::TcpCrr(load) | RequestedLoad::UdpRr(load), _) => {
            match load.schedule {
                Schedule::Open { .. } => Ok(Unit::PerSecond),
                Schedule::Closed => none("the speed of its peer sets it: give the load a `rate`"),
            }
        }
        (RequestedLoad::TcpStream(one), RequestedLoad::TcpStream(other)) => match one.throttle.or(other.throttle) {
            Some(_) => Ok(Unit::Bytes),
            None => none("give the load a `throttle`, for instance throttle = \"1GB/s\""),
        },
        (RequestedLoad::UdpStream(load), _) => match load.throttle {
            Some(_) => Ok(Unit::Bytes),
            None => none("give the load a `throttle`, for instance throttle = \"1GB/s\""),
        },
        (RequestedLoad::Packets(_), _) => Ok(Unit::PerSecond),
        _ => none("loads with a rate are tcp-rr, tcp-crr, udp-rr, streams with a throttle, and packets"),
    }
}

/// The load at another rate, in the unit that its own has; one without a rate is the same.
pub(super) fn at_rate(load: &RequestedLoad, rate: f64) -> RequestedLoad {
    let mut load = load.clone();
    let bytes = |throttle: &mut Option<u64>| *throttle = throttle.map(|_| (rate.round() as u64).max(1));
    match &mut load {
        RequestedLoad::TcpRr(l) | RequestedLoad::TcpCrr(l) | RequestedLoad::UdpRr(l) => {
            if let Schedule::Open { rate: own, .. } = &mut l.schedule {
                *own = rate.clamp(*Transactions::RATE.start(), *Transactions::RATE.end());
            }
        }
        RequestedLoad::TcpStream(l) => bytes(&mut l.throttle),
        RequestedLoad::UdpStream(l) => bytes(&mut l.throttle),
        RequestedLoad::Packets(packets) => {
            let requests = packets.client.repeat.is_some_and(|repeat| repeat.rate.is_some());
            let of = if requests { SearchedRate::Requests } else { SearchedRate::Connections };
            return super::at_rate(&load, of, rate);
        }
        RequestedLoad::Idle => {}
    }
    load
}

/// The load with nothing that holds it back: a schedule as a closed loop, a stream without its throttle.
pub(super) fn unpaced(load: &RequestedLoad) -> RequestedLoad {
    let mut load = load.clone();
    match &mut load {
        RequestedLoad::TcpRr(l) | RequestedLoad::TcpCrr(l) | RequestedLoad::UdpRr(l) => l.schedule = Schedule::Closed,
        RequestedLoad::TcpStream(l) => l.throttle = None,
        RequestedLoad::UdpStream(l) => l.throttle = None,
        RequestedLoad::Packets(_) | RequestedLoad::Idle => {}
    }
    load
}

/// What a load's workers carried a second, in the unit that its rate has: transactions of a pair, payload that arrived for
/// each thread that sends.
pub(super) fn carried(traffic: &Traffic, workers: &[&WorkerRecord]) -> f64 {
    let pairs = traffic.pairs.len().max(1) as f64;
    let sum = |of: &dyn Fn(&WorkerRecord) -> f64| workers.iter().map(|worker| of(worker)).sum::<f64>();
    if traffic.flow().is_none() {
        let asked = |worker: &WorkerRecord| {
            let asks = worker.direction == Direction::Request;
            worker.transactions.as_ref().filter(|_| asks).map_or(0.0, TransactionRecord::per_second)
        };
        return sum(&asked) / pairs;
    }
    let arrived = |worker: &WorkerRecord| match worker.direction {
        Direction::Receive => worker.bits_per_second() / 8.0,
        Direction::Both => worker.bytes_in() as f64 / worker.seconds().max(1e-9),
        _ => 0.0,
    };
    // A load both ways has as many threads that send at either end.
    let ends = if traffic.flow() == Some(Flow::Both) { 2.0 } else { 1.0 };
    sum(&arrived) / pairs / ends / f64::from(traffic.connect.shape().0.max(1))
}

#[cfg(test)]
mod tests;
