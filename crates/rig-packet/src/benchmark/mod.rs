//! The benchmarks of RFC 2544, 26, of frames of one size through a device, with the search of RFC 9971 and the back-to-back frames of
//! RFC 9004: which frames to offer next, and what follows from those that arrived. Like a [search](crate::search), it knows no clock and
//! no network: the caller offers each stream and tells what became of it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mlrsearch::{Goal, GoalResult, LoadRange, MlrSearch, TrialInput, TrialResult};
use super::search::BOUND;

/// Preamble, start of frame and the gap after a frame, which take time on Ethernet as its bytes do (IEEE 802.3).
const BETWEEN_FRAMES: u32 = 20;
/// Ethernet's header and the frame check sequence.
pub const ETHERNET: u32 = 18;
/// The share of a stream that has to be sent in its time: a load that was not offered is not upheld (RFC 9971, 4.9.1, of measurers).
const OFFERED: f64 = 0.999;
/// RFC 2544, 26.3: from 100 % in steps of 10 %, until two in a row lose nothing.
const LOSS_STEP: u32 = 10;
/// RFC 2544, 26.5: the load that a device recovers from, as a share of its throughput, and the share of that with which it does.
const OVERLOAD: f64 = 1.1;
const RECOVERY: f64 = 0.5;
/// Bursts of one search of the back-to-back value are told from each other within this share.
const BURST_PRECISION: f64 = 0.02;

/// The most frames per second that a link of `bits` per second carries, each of `frame` bytes with its check sequence (RFC 2544,
/// appendix B).
pub fn line_rate(bits: u64, frame: u32) -> f64 {
    bits as f64 / f64::from((frame + BETWEEN_FRAMES) * 8)
}

/// Whose benchmarks they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standard {
    /// RFC 2544, with the back-to-back frames of RFC 9004.
    Rfc2544,
    /// RFC 9971.
    Mlrsearch,
}

/// A benchmark of RFC 2544, in the order in which they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// 26.1, or the goals of RFC 9971.
    Throughput,
    /// 26.2.
    Latency,
    /// 26.3.
    FrameLoss,
    /// 26.4, as RFC 9004 has it.
    BackToBack,
    /// 26.5, system recovery.
    Recovery,
}

impl Test {
    pub const ALL: [Self; 5] = [Self::Throughput, Self::Latency, Self::FrameLoss, Self::BackToBack, Self::Recovery];

    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::FrameLoss => "frame loss rate",
            Self::BackToBack => "back-to-back frames",
            Self::Recovery => "system recovery",
        }
    }
}

/// What is to be benchmarked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Benchmark {
    pub standard: Standard,
    /// Those that are made; throughput always is.
    pub tests: Vec<Test>,
    /// The first one's lower bound is the throughput that the others go by.
    pub goals: Vec<Goal>,
    /// How long frames are sent for a frame loss rate, for a recovery before and after its change, and twice as long for the latency.
    pub duration: Duration,
    /// Trials of the latency: 20 or more (RFC 2544, 26.2).
    pub latency_trials: u32,
    /// Searches of the back-to-back value: 50 or more (RFC 2544, 26.4).
    pub bursts: u32,
    /// The longest burst: 2 s or more (RFC 2544, 26.4).
    pub burst_max: Duration,
    pub recoveries: u32,
}

/// The most frames per second that can be offered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MaxRate {
    /// What the generator sends and receives with nothing between its ends.
    pub generator: f64,
    /// What the link carries, where it has a rate.
    pub line: Option<f64>,
}

impl MaxRate {
    /// The maximum frame rate that shares are of: that of the link, else the generator's own.
    pub fn nominal(self) -> f64 {
        self.line.unwrap_or(self.generator)
    }

    /// What can be offered of it.
    pub fn offered(self) -> f64 {
        self.nominal().min(self.generator)
    }
}

/// What a stream is sent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    Search,
    Latency,
    FrameLoss,
    BackToBack,
    Recovery,
}

/// Frames that are to be sent, evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stream {
    pub purpose: Purpose,
    /// Frames per second.
    pub rate: f64,
    pub duration: Duration,
    /// At which rate it goes on for as long, if it does.
    pub then: Option<f64>,
}

/// What became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Arrivals {
    pub sent: u64,
    pub received: u64,
    pub delay: Option<Delay>,
    /// Of a stream that changed its rate: from then until the last frame that was lost was sent; zero where it was before, and `None` where
    /// nothing was lost.
    pub lost_until: Option<Duration>,
}

/// How long frames took from when they were sent until they were received, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Delay {
    pub frames: u64,
    pub mean_ns: f64,
    pub min_ns: u64,
    pub median_ns: u64,
    /// `None` where fewer than ten frames lie beyond it.
    pub p99_ns: Option<u64>,
    pub max_ns: u64,
}

/// A stream that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FrameTrial {
    pub purpose: Purpose,
    /// As intended: frames per second, and seconds.
    pub rate: f64,
    pub seconds: f64,
    pub sent: u64,
    pub received: u64,
}

impl FrameTrial {
    pub fn new(stream: Stream, arrivals: &Arrivals) -> Self {
        let Stream { purpose, rate, duration, then } = stream;
        let seconds = duration.as_secs_f64();
        // One rate that sends as much as both.
        let (rate, seconds) = then.map_or((rate, seconds), |then| ((rate + then) / 2.0, 2.0 * seconds));
        Self { purpose, rate, seconds, sent: arrivals.sent, received: arrivals.received }
    }

    fn intended(&self) -> f64 {
        self.rate * self.seconds
    }

    /// Whether the generator did not send what it should.
    pub fn is_short(&self) -> bool {
        (self.sent as f64) < self.intended() * OFFERED - 1.0
    }

    /// 0 to 1; frames that were to be sent and were not count as lost.
    pub fn loss_ratio(&self) -> f64 {
        let of = if self.is_short() { self.intended() } else { self.sent as f64 };
        if of <= 0.0 { 0.0 } else { (1.0 - self.received as f64 / of).clamp(0.0, 1.0) }
    }
}

/// The longest bursts that lost nothing, one of each search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BackToBack {
    /// Frames of each.
    pub bursts: Vec<u64>,
    /// Searches in which even the longest burst lost nothing.
    pub unbounded: u32,
}

impl BackToBack {
    /// Mean, least, most and standard deviation, frames.
    pub fn summary(&self) -> Option<(f64, u64, u64, f64)> {
        let (least, most) = (*self.bursts.iter().min()?, *self.bursts.iter().max()?);
        let count = self.bursts.len() as f64;
        let mean = self.bursts.iter().sum::<u64>() as f64 / count;
        let squares: f64 = self.bursts.iter().map(|&burst| (burst as f64 - mean).powi(2)).sum();
        let deviation = if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Some((mean, least, most, deviation))
    }

    /// How long the device's buffer holds frames, seconds, as implied by the mean burst at the maximum frame rate, and corrected for what
    /// it forwards meanwhile (RFC 9004, 6.4).
    pub fn buffer_time(&self, max_rate: f64, throughput: f64) -> Option<(f64, f64)> {
        let (mean, ..) = self.summary()?;
        let implied = mean / max_rate;
        Some((implied, implied - implied * throughput / max_rate))
    }
}

/// A recovery from overload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recovery {
    /// Frames per second before and after.
    pub overload: f64,
    pub reduced: f64,
    /// From the change until the last frame that was lost was sent, seconds; `None` where the overload lost nothing.
    pub seconds: Option<f64>,
}

/// All that was found of one frame size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Results {
    pub goals: Vec<GoalResult>,
    /// Of each trial at the throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Delay>,
    /// By falling rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frame_loss: Vec<FrameTrial>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_to_back: Option<BackToBack>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recovery: Vec<Recovery>,
    /// All streams, in their order.
    pub trials: Vec<FrameTrial>,
}

impl Results {
    /// The highest load that upholds the first goal, frames per second.
    pub fn throughput(&self) -> Option<f64> {
        self.goals.first()?.lower
    }

    /// Whether the throughput says what the generator can send, and not what the device forwards.
    pub fn is_generator_bound(&self, max: MaxRate) -> bool {
        let is_line_rate = max.line.is_some_and(|line| line <= max.generator);
        !is_line_rate && self.throughput().is_some_and(|throughput| throughput >= BOUND * max.generator)
    }

    /// Whether the load above the throughput lost nothing, and was not sent in time: where a path's work is done on the sender's CPU, that is
    /// how its limit shows.
    pub fn is_held_back(&self) -> bool {
        let upper = self.goals.first().and_then(|goal| goal.upper);
        let mut at = self.trials.iter().filter(|at| at.purpose == Purpose::Search && Some(at.rate) == upper).peekable();
        at.peek().is_some() && at.all(|trial| trial.is_short() && trial.received >= trial.sent)
    }
}

/// Why no bursts at the maximum rate are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoBursts {
    /// RFC 9004, 5: no burst is too long for it.
    MaximumUpheld,
    /// The generator cannot send at the link's rate, or not over this path.
    MaximumNotOffered,
}

impl Results {
    /// Whether bursts at the maximum rate can tell of the device's buffers; else why not.
    pub fn no_bursts(&self, max: MaxRate) -> Option<NoBursts> {
        if self.goals.first()?.upper.is_none() {
            return Some(NoBursts::MaximumUpheld);
        }
        let offers = max.generator >= max.nominal() && !self.is_held_back();
        (!offers).then_some(NoBursts::MaximumNotOffered)
    }
}

impl Benchmark {
    /// In what they are less than the standard asks for.
    pub fn deviations(&self) -> Vec<String> {
        let has = |test| self.tests.contains(&test);
        let seconds = self.duration.as_secs_f64();
        let by_rfc2544 = self.standard == Standard::Rfc2544 || self.tests.len() > 1;
        let trials =
            (by_rfc2544 && seconds < 60.0).then(|| format!("trials of {seconds} s (RFC 2544, 24: at least 60 s)"));
        let tolerant = |goal: &&Goal| goal.loss_ratio > 0.0 || goal.exceed_ratio > 0.0;
        let loss = self.goals.first().filter(|_| self.standard == Standard::Rfc2544).filter(tolerant);
        let loss = loss.map(|_| "a throughput with loss (RFC 2544, 26.1: none)".to_owned());
        let latency = (has(Test::Latency) && self.latency_trials < 20)
            .then(|| format!("{} trials of latency (RFC 2544, 26.2: at least 20)", self.latency_trials));
        let bursts = (has(Test::BackToBack) && self.bursts < 50)
            .then(|| format!("{} back-to-back tests (RFC 2544, 26.4: at least 50)", self.bursts));
        let burst = (has(Test::BackToBack) && self.burst_max < Duration::from_secs(2))
            .then(|| format!("bursts of at most {} s (RFC 2544, 26.4: at least 2 s)", self.burst_max.as_secs_f64()));
        [trials, loss, latency, bursts, burst].into_iter().flatten().collect()
    }

    /// Makes all tests by `offer`, which sends a stream: what was found, and the error of `offer` that ended it. Of the test that it ended there
    /// are the streams alone.
    pub fn run<E>(&self, max: MaxRate, offer: impl FnMut(Stream) -> Result<Arrivals, E>) -> (Results, Result<(), E>) {
        let mut run = BenchmarkRun { offer, results: Results::default() };
        let ended = run.search(&self.goals, max).and_then(|()| {
            let throughput = run.results.throughput();
            self.tests.iter().try_for_each(|test| run.test(*test, throughput, max, self))
        });
        (run.results, ended)
    }
}

/// What was found so far, and how more is.
struct BenchmarkRun<F> {
    offer: F,
    results: Results,
}

impl<E, F: FnMut(Stream) -> Result<Arrivals, E>> BenchmarkRun<F> {
    fn trial(&mut self, stream: Stream) -> Result<(FrameTrial, Arrivals), E> {
        let arrivals = (self.offer)(stream)?;
        let trial = FrameTrial::new(stream, &arrivals);
        self.results.trials.push(trial);
        Ok((trial, arrivals))
    }

    fn search(&mut self, goals: &[Goal], max: MaxRate) -> Result<(), E> {
        let shortest = goals.iter().map(|goal| goal.initial_duration).fold(f64::MAX, f64::min);
        // At least a frame in the shortest trial.
        let range = LoadRange { min: (1.0 / shortest).ceil(), max: Some(max.offered()) };
        let mut search = MlrSearch::new(goals.to_vec(), range);
        while let Some(TrialInput { load, duration }) = search.next() {
            let stream = stream(Purpose::Search, load, Duration::from_secs_f64(duration));
            let (trial, _) = self.trial(stream)?;
            search.report(TrialResult { load, duration, loss_ratio: trial.loss_ratio() });
        }
        self.results.goals = search.results();
        Ok(())
    }

    fn test(&mut self, test: Test, throughput: Option<f64>, max: MaxRate, plan: &Benchmark) -> Result<(), E> {
        match (test, throughput) {
            (Test::FrameLoss, _) => self.frame_loss(max, plan.duration),
            (Test::Latency, Some(rate)) => self.latency(rate, plan),
            (Test::BackToBack, Some(_)) if self.results.no_bursts(max).is_none() => self.back_to_back(max, plan),
            (Test::Recovery, Some(rate)) => self.recovery(rate, max, plan),
            (Test::Throughput | Test::Latency | Test::BackToBack | Test::Recovery, _) => Ok(()),
        }
    }

    fn latency(&mut self, rate: f64, plan: &Benchmark) -> Result<(), E> {
        let mut found = Vec::new();
        for _ in 0..plan.latency_trials {
            let (_, arrivals) = self.trial(stream(Purpose::Latency, rate, 2 * plan.duration))?;
            found.extend(arrivals.delay);
        }
        self.results.latency = found;
        Ok(())
    }

    fn frame_loss(&mut self, max: MaxRate, duration: Duration) -> Result<(), E> {
        let (mut found, mut without) = (Vec::new(), 0);
        for percent in (1..=100 / LOSS_STEP).rev().map(|step| step * LOSS_STEP) {
            let rate = (max.nominal() * f64::from(percent) / 100.0).floor().max(1.0);
            if rate > max.generator {
                continue;
            }
            let (trial, _) = self.trial(stream(Purpose::FrameLoss, rate, duration))?;
            found.push(trial);
            without = if trial.loss_ratio() > 0.0 { 0 } else { without + 1 };
            if without == 2 {
                break;
            }
        }
        self.results.frame_loss = found;
        Ok(())
    }

    /// Bisects the length of bursts at the maximum rate, again and again.
    fn back_to_back(&mut self, max: MaxRate, plan: &Benchmark) -> Result<(), E> {
        let rate = max.offered();
        let longest = (rate * plan.burst_max.as_secs_f64()).floor().max(1.0);
        let mut found = BackToBack { bursts: Vec::new(), unbounded: 0 };
        for _ in 0..plan.bursts {
            let (mut held, mut lost) = (0.0, None);
            let mut frames = longest;
            loop {
                let (trial, _) =
                    self.trial(stream(Purpose::BackToBack, rate, Duration::from_secs_f64(frames / rate)))?;
                match trial.loss_ratio() > 0.0 {
                    true => lost = Some(frames),
                    false => held = frames,
                }
                let Some(lost) = lost else { break };
                if lost - held <= (lost * BURST_PRECISION).max(1.0) {
                    break;
                }
                frames = ((held + lost) / 2.0).floor().max(1.0);
            }
            found.unbounded += u32::from(lost.is_none());
            found.bursts.push(held as u64);
        }
        self.results.back_to_back = Some(found);
        Ok(())
    }

    fn recovery(&mut self, throughput: f64, max: MaxRate, plan: &Benchmark) -> Result<(), E> {
        // RFC 2544, 26.5: 110 % of the throughput or the maximum rate, whichever is lower.
        let overload = (throughput * OVERLOAD).min(max.offered()).floor().max(1.0);
        let reduced = (overload * RECOVERY).round().max(1.0);
        let mut found = Vec::new();
        for _ in 0..plan.recoveries {
            let stream = Stream { then: Some(reduced), ..stream(Purpose::Recovery, overload, plan.duration) };
            let (_, arrivals) = self.trial(stream)?;
            let seconds = arrivals.lost_until.map(|until| until.as_secs_f64());
            found.push(Recovery { overload, reduced, seconds });
        }
        self.results.recovery = found;
        Ok(())
    }
}

fn stream(purpose: Purpose, rate: f64, duration: Duration) -> Stream {
    Stream { purpose, rate, duration, then: None }
}

#[cfg(test)]
mod tests;
