//! Benchmarks by a standard: each stream is a load of its own through the testbed.

use std::time::Duration;

use anyhow::{Context, Result};
use rig_facts::figures::Statistic;
use rig_facts::programme::{Phase, PhaseLength, Programme, Rate, ScenarioLoad, Step};
use rig_facts::record::BenchmarkRecord;
use rig_facts::requested_load::RequestedLoad;
use rig_load::plan::Phases;
use rig_load::record::{End, Sample, WorkerRecord};
use rig_packet::benchmark::{Arrivals, Delay, FrameTrial, MaxRate, Purpose, Stream};
use rig_packet::mlrsearch::{LoadRange, MlrSearch, TrialResult};
use rig_stats::histogram::Histogram;
use rig_suite::suite::{BenchmarkPlan, Scenario};

use super::clocks::Clocks;
use super::course::ProgrammeWindow;
use super::rig::{Observation, Stage, Trials};

/// The shortest window that workers measure in.
const WINDOW_MIN: Duration = Duration::from_millis(10);
/// Where the generator's own limit is looked for first, frames per second.
const GENERATOR_MIN: f64 = 1000.0;

/// What is called for each sample of a worker.
type Interim<'a> = &'a mut dyn FnMut(&str, &Sample);

impl Trials {
    /// Makes the benchmarks; the window is a trial at the throughput. `generator` is its own limit where something is between its ends. What
    /// fails once the throughput is known takes nothing of what was found until then: it is the last of what is returned.
    pub(super) fn benchmark(
        &self,
        stage: Stage<'_>,
        scenario: &Scenario,
        plan: &BenchmarkPlan,
        generator: Option<f64>,
        phases: Phases,
        interim: Interim<'_>,
    ) -> Result<(Observation, BenchmarkRecord, Result<()>)> {
        let frame = scenario.traffic.packets.as_ref().and_then(|packets| packets.frame);
        let frame = frame.context("find the size of the frames")?;
        let generator = match generator {
            Some(generator) => generator,
            None => self.generator_rate(stage, scenario, plan, phases)?,
        };
        let max = MaxRate { generator, line: plan.line_rate(&scenario.topology, frame) };
        let benchmark = plan.in_windows(phases.window);
        let mut best: Option<(f64, Observation)> = None;
        let mut clock_bound_ns = 0;
        let (results, ended) = benchmark.run(max, |stream| -> Result<Arrivals> {
            // Clocks go apart while loads are searched for, and these streams are timed from one end to the other.
            let is_timed = matches!(stream.purpose, Purpose::Latency | Purpose::Recovery);
            let renewed = is_timed.then(|| Clocks::of(stage.testbed)).transpose()?;
            let clocks = renewed.map(|clocks| clocks.over_path(stage.testbed, scenario.traffic.pairs.first()));
            let stage = Stage { clocks: clocks.as_ref().unwrap_or(stage.clocks), ..stage };
            let observed = self.stream(stage, scenario, stream, phases, interim)?;
            let arrivals = arrivals(&observed);
            if let Some(ends) = clocks.as_ref().map(|clocks| clocks.of_ends(stage.testbed)).transpose()?.flatten() {
                clock_bound_ns = clock_bound_ns.max(ends.bound_ns);
            }
            let is_window = stream.purpose == Purpose::Search && stream.duration >= phases.window;
            let lost = FrameTrial::new(stream, &arrivals).loss_ratio();
            if is_window && benchmark.goals.first().is_some_and(|goal| lost <= goal.loss_ratio) {
                best = Some((stream.rate, observed));
            }
            Ok(arrivals)
        });
        let throughput = results.throughput();
        let at_throughput = best.filter(|(rate, _)| Some(*rate) == throughput);
        let (observed, ended) = match (at_throughput, ended) {
            (Some((_, observed)), ended) => (observed, ended),
            (None, Err(error)) => return Err(error),
            (None, Ok(())) => {
                // Where nothing was upheld, a slow stream shows what happens.
                let rate = throughput.unwrap_or(max.offered() / 100.0);
                let stream = Stream { purpose: Purpose::Search, rate, duration: phases.window, then: None };
                (self.stream(stage, scenario, stream, phases, interim)?, Ok(()))
            }
        };
        Ok((observed, BenchmarkRecord { frame, plan: benchmark, max, clock_bound_ns, results }, ended))
    }

    /// Frames per second that the generator sends and receives with what is between its ends here.
    pub(super) fn generator_rate(
        &self,
        stage: Stage<'_>,
        scenario: &Scenario,
        plan: &BenchmarkPlan,
        phases: Phases,
    ) -> Result<f64> {
        let range = LoadRange { min: GENERATOR_MIN, max: None };
        let mut search = MlrSearch::new(vec![plan.of_generator(phases.window)], range);
        while let Some(input) = search.next() {
            let duration = Duration::from_secs_f64(input.duration);
            let stream = Stream { purpose: Purpose::Search, rate: input.load, duration, then: None };
            let observed = self.stream(stage, scenario, stream, phases, &mut |_, _| ());
            let arrivals = arrivals(&observed.context("search for the generator's own limit")?);
            let loss_ratio = FrameTrial::new(stream, &arrivals).loss_ratio();
            search.report(TrialResult { load: input.load, duration: input.duration, loss_ratio });
        }
        let held = search.results().first().and_then(|result| result.lower);
        held.with_context(|| {
            format!(
                "the packet generator itself does not send and receive 98 % of {GENERATOR_MIN} frames a second here: is the \
                 machine busy?"
            )
        })
    }

    /// Sends one stream.
    fn stream(
        &self,
        stage: Stage<'_>,
        scenario: &Scenario,
        stream: Stream,
        phases: Phases,
        interim: Interim<'_>,
    ) -> Result<Observation> {
        let Stream { purpose, rate, duration, then } = stream;
        let window = duration.max(WINDOW_MIN);
        let interval = phases.interval.min(window).max(WINDOW_MIN);
        let phases = Phases { warm_up: Duration::ZERO, window, cool_down: Duration::ZERO, interval };
        let frames = ((rate + then.unwrap_or(0.0)) * duration.as_secs_f64()).round().max(1.0) as u64;
        let mut scenario = scenario.clone();
        for load in [&mut scenario.traffic.connect, &mut scenario.traffic.listen] {
            let RequestedLoad::Packets(packets) = load else { continue };
            packets.client.load.rate = rate;
            if let Some(flood) = &mut packets.client.flood {
                flood.most = Some(frames);
            }
        }
        let programme = then.map_or_else(Programme::default, |then| two_rates([rate, then], duration));
        let stage = Stage { samples: purpose == Purpose::Search, ..stage };
        let course = ProgrammeWindow { programme: &programme, limit: 0.0, phases, loaded: true };
        self.perform(stage, &scenario, course, interim)
    }
}

/// One rate, and then another for as long.
fn two_rates(rates: [f64; 2], lasts: Duration) -> Programme {
    let phase = |(name, rate): (&str, f64)| Phase {
        name: name.to_owned(),
        steps: vec![Step::Rate { load: ScenarioLoad::Own, rate: Rate::At(rate) }],
        lasts: PhaseLength::Time(lasts),
    };
    Programme { sample: None, phases: ["overload", "recovery"].into_iter().zip(rates).map(phase).collect() }
}

/// What the ends counted, from the first frame to the last.
fn arrivals(observed: &Observation) -> Arrivals {
    let end = |end: End| observed.workers.iter().find(move |worker| !worker.background && worker.end() == end);
    let count = |worker: Option<&WorkerRecord>, name: &str| {
        let packets = worker.and_then(|worker| worker.packets.as_ref());
        packets.and_then(|packets| packets.total.get(name)).copied().unwrap_or(0)
    };
    let receiver = end(End::Listen);
    let lost_before = receiver.and_then(|worker| worker.packets.as_ref()?.lost_before_ns);
    let changed = observed.phases.get(1).map(|phase| phase.begin_ns);
    let lost_until = changed.zip(lost_before).map(|(changed, lost)| Duration::from_nanos(lost.saturating_sub(changed)));
    Arrivals {
        sent: count(end(End::Connect), "udpTx"),
        received: count(receiver, "udpRx").saturating_sub(count(receiver, "udpDrop")),
        delay: receiver.and_then(|worker| worker.transactions.as_ref()?.latency.as_ref()).and_then(delay),
        lost_until,
    }
}

fn delay(times: &Histogram) -> Option<Delay> {
    Some(Delay {
        frames: times.count(),
        mean_ns: times.mean()?,
        min_ns: times.percentile(0.0)?,
        median_ns: times.percentile(50.0)?,
        p99_ns: times.percentile(99.0).filter(|_| times.count() >= Statistic::P99.least_values()),
        max_ns: times.percentile(100.0)?,
    })
}
