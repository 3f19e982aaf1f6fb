//! Shows a run as it goes: what runs, what is left and the interim figure. On a terminal one line that changes; elsewhere
//! a line for each trial. Two runs that take turns have one line for both.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rig_cli::look;
use rig_cli::visible::{visible, visible_line};
use rig_facts::claim::{Metric, Side};
use rig_facts::figures::{Kind, figure};
use rig_facts::record::certainty::{RepetitionEnd, ScenarioCertainty};
use rig_facts::record::{CpuUse, Flag, SkippedScenarios, TrialRecord};
use rig_load::plan::Flow;
use rig_load::record::Sample;
use rig_stats::units::{bits_at_a_glance, counted, minutes, rate_at_a_glance};
use rig_suite::suite::{Repeat, Scenario, Suite, Timing};

use super::Observer;

/// How often two runs that take turns tell the time left where no line changes.
const NEWS: Duration = Duration::from_secs(15);

/// The longest scenario id beside which the sides have room.
const WIDTH_WITH_SIDES: usize = 14;

/// The line on standard error that changes, and those above it.
#[derive(Debug)]
struct Lines {
    bar: ProgressBar,
    quiet: bool,
    /// Whether there is a line that changes.
    redraws: bool,
}

impl Lines {
    /// With a bar of `length` in `template`, as indicatif has it.
    fn new(length: u64, template: &str, quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(length) };
        let redraws = !quiet && look::redraws();
        bar.set_draw_target(if redraws { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars(if look::is_ascii() { "=> " } else { "━╸ " }));
        }
        Self { bar, quiet, redraws }
    }

    fn say(&self, text: &str) {
        let text = visible(text);
        let text = look::shown(&text);
        if self.quiet {
        } else if self.redraws {
            self.bar.println(text);
        } else {
            // A reader that went away (`netrig run ... 2>&1 | head`) must not end the run, as eprintln! would.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// The progress of two runs that take turns.
#[derive(Debug)]
pub struct TurnsProgress {
    lines: Lines,
    begun: Instant,
    most: TurnLimit,
    told: Instant,
    /// Of each run.
    trials: u32,
}

/// How long two runs take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnLimit {
    For(Duration),
    /// So many trials of each.
    Trials(u32),
}

impl TurnsProgress {
    pub fn new(most: TurnLimit, quiet: bool) -> Self {
        let length = match most {
            TurnLimit::For(time) => time.as_secs(),
            TurnLimit::Trials(trials) => trials.into(),
        };
        let lines = Lines::new(length, "{bar:16} {wide_msg}", quiet);
        Self { lines, begun: Instant::now(), most, told: Instant::now(), trials: 0 }
    }

    /// Says what happens before the first trial.
    pub fn note(&self, text: &str) {
        self.lines.say(text);
    }

    /// Each run has made one trial more.
    pub fn turn_done(&mut self) {
        self.trials += 1;
        let made = self.begun.elapsed();
        let trials = counted(self.trials, "trial", "trials");
        let (done, left) = match self.most {
            TurnLimit::For(time) => (made.as_secs(), time.saturating_sub(made)),
            TurnLimit::Trials(most) => (self.trials.into(), made / self.trials * most.saturating_sub(self.trials)),
        };
        let left = minutes(left);
        if self.lines.redraws {
            self.lines.bar.set_position(done);
            self.lines.bar.set_message(format!("{left} left  {trials} of each"));
        } else if self.told.elapsed() >= NEWS {
            self.told = Instant::now();
            self.lines.say(&format!("{trials} of each after {}, {left} left", minutes(made)));
        }
    }

    pub fn finish(&self) {
        self.lines.bar.finish_and_clear();
    }
}

/// The progress of a run.
#[derive(Debug)]
pub struct Progress {
    lines: Lines,
    trial: String,
    /// What is looked at in a trial, and the workers that it is looked for at, with the rate of their last interval.
    shown: ProgressFigure,
    sides: [Side; 2],
    rates: BTreeMap<String, f64>,
    watched: Vec<String>,
    started: Instant,
    /// How long the trials take at least, where that is known before.
    expected: Option<Duration>,
    trials_done: u32,
    /// Each node's machine, where they are on several, and the share of its CPUs' time that the last trial took there, percent.
    machines: Vec<(String, Option<f64>)>,
    /// Kinds of doubts that were named already.
    named: Vec<Discriminant<Flag>>,
    repeat: Repeat,
    /// The width of the longest scenario id.
    width: usize,
}

impl Progress {
    pub fn new(suite: &Suite, timing: &Timing, quiet: bool) -> Self {
        let most = suite.most_trials(timing.repeat);
        Self {
            lines: Lines::new(most.into(), "{bar:16} {pos}/{len}  {prefix}{wide_msg}", quiet),
            trial: String::new(),
            shown: ProgressFigure::Bytes,
            sides: [Side::Sender, Side::Receiver],
            rates: BTreeMap::new(),
            watched: Vec::new(),
            started: Instant::now(),
            expected: suite.shortest(timing),
            trials_done: 0,
            machines: Vec::new(),
            named: Vec::new(),
            repeat: timing.repeat,
            width: suite.scenarios.iter().map(|scenario| scenario.id.len()).max().unwrap_or(0).max(4),
        }
    }

    /// Says what happens before the first trial.
    pub fn note(&self, text: &str) {
        self.lines.say(text);
    }

    /// Names the machines at work, each with its node, where these are on several.
    pub fn note_machines(&mut self, machines: &[(String, String)]) {
        if machines.is_empty() {
            return;
        }
        let each: Vec<String> = machines.iter().map(|(node, machine)| format!("{node} on {machine}")).collect();
        self.note(&format!("Nodes: {}", each.join(", ")));
        self.machines = machines.iter().map(|(_, machine)| (machine.clone(), None)).collect();
    }

    pub fn finish(&self) {
        self.lines.bar.finish_and_clear();
    }

    /// What runs, behind the machines that it runs on.
    fn at_work(&self) -> String {
        let machine = |(name, cpu): &(String, Option<f64>)| match cpu {
            Some(cpu) => format!("{name} {cpu:.0} %"),
            None => name.clone(),
        };
        let mut text = self.machines.iter().map(machine).collect::<Vec<_>>().join(", ");
        if self.machines.iter().any(|(_, cpu)| cpu.is_some()) {
            text.push_str(" CPU");
        }
        if text.is_empty() { self.trial.clone() } else { format!("{text}  {}", self.trial) }
    }

    /// What is left in time stands before what runs, so that a narrow terminal cuts the latter.
    fn show(&self, what: &str) {
        self.lines.bar.set_prefix(self.left().map_or(String::new(), |left| format!("{left}  ")));
        self.lines.bar.set_message(visible_line(what).into_owned());
    }

    fn left(&self) -> Option<String> {
        if self.trials_done == 0 {
            let left = self.expected?.saturating_sub(self.started.elapsed());
            let or_more = if matches!(self.repeat, Repeat::Until(_)) { " or more" } else { "" };
            return Some(format!("about {}{or_more} left", minutes(left)));
        }
        let each = self.started.elapsed() / self.trials_done;
        let left = self.lines.bar.length()?.saturating_sub(self.lines.bar.position());
        let left = each * u32::try_from(left).unwrap_or(u32::MAX);
        let at_most = if matches!(self.repeat, Repeat::Until(_)) { "at most " } else { "" };
        Some(format!("{at_most}{} left", minutes(left)))
    }
}

/// The figure of a trial that is not over.
#[derive(Debug, Clone, Copy)]
enum ProgressFigure {
    Bytes,
    BytesIn,
    Transactions,
    Connections,
    /// One way.
    Frames,
}

impl ProgressFigure {
    /// Bits or transactions per second.
    fn rate(self, sample: &Sample) -> f64 {
        let count = match self {
            Self::Bytes => sample.bytes * 8,
            Self::BytesIn => sample.bytes_in * 8,
            Self::Transactions | Self::Connections | Self::Frames => sample.units,
        };
        count as f64 * 1e9 / sample.span_ns as f64
    }

    fn show(self, rate: f64) -> String {
        match self {
            Self::Bytes | Self::BytesIn => bits_at_a_glance(rate),
            Self::Transactions | Self::Connections | Self::Frames => rate_at_a_glance(rate),
        }
    }
}

/// Where nodes are on several machines: the share of the node's CPUs' time that a trial took on each, percent.
fn cpu_by_machine(record: &TrialRecord) -> Vec<(String, Option<f64>)> {
    let of_node = |name: &str| {
        let node = record.nodes.iter().find(|node| node.name == name).filter(|node| !node.cpus.is_empty())?;
        Some(node.cpus.iter().map(CpuUse::busy).sum::<f64>() / node.cpus.len() as f64)
    };
    record.hosts.iter().map(|(node, host)| (host.name.clone(), of_node(node))).collect()
}

/// A doubt where it first appears: what it is and what to do about it. Later trials only count theirs.
fn first_of_their_kind(named: &mut Vec<Discriminant<Flag>>, flags: &[Flag]) -> Vec<String> {
    let mut texts = Vec::new();
    for flag in flags {
        let kind = discriminant(flag);
        if !named.contains(&kind) {
            named.push(kind);
            texts.push(format!("  doubt: {flag}\n    next: {}", flag.next_step()));
        }
    }
    texts
}

impl Observer for Progress {
    fn trial_started(&mut self, scenario: &Scenario, ordinal: u32) {
        self.trial = format!("{} {} (trial {ordinal})", scenario.id, scenario.name);
        let pairs = || scenario.traffic.pairs.iter();
        let connecting = || pairs().map(|(from, _)| from.to_string());
        let listening = || pairs().map(|(_, to)| to.to_string());
        self.sides = scenario.traffic.sides();
        let kind = Kind::of(&scenario.traffic.connect);
        (self.shown, self.watched) = match scenario.traffic.flow() {
            _ if kind == Some(Kind::Connections) => (ProgressFigure::Connections, connecting().collect()),
            _ if kind == Some(Kind::Flood) => (ProgressFigure::Frames, connecting().collect()),
            Some(Flow::Forward) => (ProgressFigure::Bytes, listening().collect()),
            Some(Flow::Reverse) => (ProgressFigure::Bytes, connecting().collect()),
            Some(Flow::Both) => (ProgressFigure::BytesIn, connecting().chain(listening()).collect()),
            None => (ProgressFigure::Transactions, connecting().collect()),
        };
        self.rates.clear();
        self.show(&self.at_work());
    }

    fn interim(&mut self, worker: &str, sample: &Sample) {
        if sample.span_ns == 0 || !self.watched.iter().any(|watched| watched == worker) {
            return;
        }
        self.rates.insert(worker.to_owned(), self.shown.rate(sample));
        let rate = self.shown.show(self.rates.values().sum::<f64>());
        self.show(&format!("{rate}  {}", self.at_work()));
    }

    fn trial_done(&mut self, record: &TrialRecord) {
        self.trials_done += 1;
        self.lines.bar.inc(1);
        let value = |side, metric| figure(record, side, metric).unwrap_or(f64::NAN);
        // Beside long ids a line of 80 columns has no room for the names of the sides.
        let named = |side: Side| if self.width > WIDTH_WITH_SIDES { String::new() } else { format!(" {side}") };
        let by_machine = cpu_by_machine(record);
        let cpu: String = match by_machine.is_empty() {
            true => self.sides.map(|side| format!(" {:5.1} %{}", value(side, Metric::Cpu), named(side))).concat(),
            false => {
                let known = by_machine.iter().filter_map(|(name, cpu)| Some((name, (*cpu)?)));
                known.map(|(name, cpu)| format!(" {cpu:5.1} % {name}")).collect()
            }
        };
        if !by_machine.is_empty() {
            self.machines = by_machine;
        }
        let result = match self.shown {
            ProgressFigure::Bytes => value(Side::Receiver, Metric::Throughput),
            ProgressFigure::BytesIn => value(Side::Local, Metric::Throughput) + value(Side::Remote, Metric::Throughput),
            ProgressFigure::Transactions => value(Side::Local, Metric::Transactions),
            ProgressFigure::Connections => value(Side::Local, Metric::Connections),
            ProgressFigure::Frames if record.benchmark.is_some() => value(Side::Local, Metric::Limit),
            ProgressFigure::Frames => value(Side::Remote, Metric::PacketsIn),
        };
        self.lines.say(&format!(
            "{:>width$} #{:<2} {:>15}  CPU{cpu}{}{}",
            record.scenario,
            record.ordinal,
            self.shown.show(result),
            match record.flags.len() {
                0 => String::new(),
                n => format!("  {}", counted(n, "doubt", "doubts")),
            },
            match self.left().filter(|_| !self.lines.redraws) {
                Some(left) => format!("  {left}"),
                None => String::new(),
            },
            width = self.width,
        ));
        for text in first_of_their_kind(&mut self.named, &record.flags) {
            self.lines.say(&text);
        }
    }

    fn left_out(&mut self, left_out: &SkippedScenarios) {
        let spared = left_out.scenarios.len() as u64 * u64::from(self.repeat.most());
        self.lines.bar.set_length(self.lines.bar.length().unwrap_or(0).saturating_sub(spared));
        self.lines.say(&format!("Not in this run: {left_out}"));
    }

    fn settled(&mut self, settled: &ScenarioCertainty) {
        if settled.outcome != RepetitionEnd::Fixed {
            // Trials that this scenario will not need are no longer ahead.
            let spared = self.repeat.most().saturating_sub(settled.trials);
            self.lines.bar.set_length(self.lines.bar.length().unwrap_or(0).saturating_sub(u64::from(spared)));
            let ScenarioCertainty { scenario, outcome, trials } = settled;
            let trials = counted(*trials, "trial", "trials");
            self.lines.say(&format!("{scenario:>width$}     {outcome} after {trials}", width = self.width));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_is_named_where_it_first_appears() {
        let busy = |percent| Flag::OtherLoad { node: "a".into(), percent };
        let stolen = Flag::Stolen { node: "b".into(), percent: 9.0 };
        let mut named = Vec::new();
        let said = first_of_their_kind(&mut named, &[busy(23.0), busy(12.0)]);
        let [only] = said.as_slice() else { panic!("{said:?}") };
        assert!(
            only.contains("other programs used 23.0 % of node a's CPU time") && only.contains("netrig doctor"),
            "{only}"
        );
        let said = first_of_their_kind(&mut named, &[busy(50.0), stolen]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("the hypervisor took 9.0 %"), "{said:?}");
    }
}
