//! Interim results, `-D`.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rig_cli::streams;
use rig_sys::clock::monotonic_ns;

use super::data::Counters;
use super::options::{Layout, Options};
use super::units::Unit;

/// Between two looks at an interval that is over and has nothing.
const OFTEN_NS: u64 = 1_000_000;

/// What was moved since the last look, and when that was.
pub struct Interim<'a> {
    options: &'a Options,
    unit: Unit,
    every_ns: u64,
    begin_ns: u64,
    before: u64,
    printed: usize,
}

impl<'a> Interim<'a> {
    pub fn new(options: &'a Options, unit: Unit, every: Duration) -> Self {
        let every_ns = every.as_nanos() as u64;
        Self { options, unit, every_ns, begin_ns: monotonic_ns(), before: 0, printed: 0 }
    }

    /// When to look next: after the interval, and from then on often, until something was moved.
    pub fn due_ns(&self, now_ns: u64) -> u64 {
        (self.begin_ns + self.every_ns).max(now_ns + OFTEN_NS)
    }

    fn amount(&self, counters: &Counters) -> u64 {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        match (self.options.direction.transmits, self.options.direction.receives) {
            (true, false) => read(&counters.sent_bytes),
            (false, true) => read(&counters.received_bytes),
            _ if self.unit.counts_transactions() => read(&counters.transactions),
            _ => read(&counters.sent_bytes) + read(&counters.received_bytes),
        }
    }

    /// Says what was moved since the interval began, when it is over. An interval without anything goes on until there is something: a rate
    /// of 0, and then one of a transaction that began in it, would both be wrong.
    pub fn look(&mut self, counters: &Counters, now_ns: u64, is_over: bool) {
        if now_ns >= self.begin_ns + self.every_ns && !is_over && self.amount(counters) > self.before {
            self.say(counters, now_ns);
        }
    }

    /// Says what is left at the end of the data.
    pub fn finish(&mut self, counters: &Counters, end_ns: u64) {
        if self.amount(counters) > self.before && end_ns > self.begin_ns {
            self.say(counters, end_ns);
        }
    }

    fn say(&mut self, counters: &Counters, now_ns: u64) {
        let amount = self.amount(counters);
        let seconds = now_ns.saturating_sub(self.begin_ns) as f64 / 1e9;
        let rate = self.unit.rate(amount.saturating_sub(self.before) as f64, seconds);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ending = format!("{}.{:03}", wall.as_secs(), wall.subsec_millis());
        let unit = self.unit.name();
        let text = match self.options.layout {
            Layout::Classic | Layout::Columns => {
                format!("Interim result: {rate:7.2} {unit}/s over {seconds:.3} seconds ending at {ending}\n")
            }
            Layout::Csv => format!("{rate:7.2},{unit}/s,{seconds:.3},{ending}\n"),
            Layout::Keys => {
                let i = self.printed;
                format!(
                    "NETPERF_INTERIM_RESULT[{i}]={rate:.2}\nNETPERF_UNITS[{i}]={unit}/s\nNETPERF_INTERVAL[{i}]={seconds:.3}\n\
                     NETPERF_ENDING[{i}]={ending}\n"
                )
            }
        };
        // Whoever read it has gone; the result is still to come.
        let _ = streams::print_on(&text);
        (self.before, self.begin_ns) = (amount, now_ns);
        self.printed += 1;
    }
}
