//! The benchmarks of RFC 2544 as suite files write them, and frames of a size.

use std::fmt;
use std::time::Duration;

use rig_cli::source::Spanned;
use rig_packet::Flood;
use rig_packet::benchmark::{Benchmark, ETHERNET, Standard, Test, line_rate};
use rig_packet::mlrsearch::Goal;
use rig_stats::units::{BitRate, Percent, Span};
use rig_testbed::topology::{Family, Topology};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::load::{ErrorLocation, LoadError, LoadFile, error, value};
use super::PacketTraffic;

/// Of trials that are to find loads that are too high.
const STEP: Duration = Duration::from_secs(1);
/// RFC 2544, 26.2 and 26.4.
const LATENCY_TRIALS: u32 = 20;
const BURSTS: u32 = 50;
const BURST: Duration = Duration::from_secs(2);
const RECOVERIES: u32 = 3;
/// Starting the ends of a stream, about, and ending them.
const STREAM_OVERHEAD: Duration = Duration::from_millis(150);
/// Loads that are tried before the throughput is known, those of the generator alone included, and bursts before the longest is, about.
const LOADS: u32 = 20;
const BURSTS_OF_ONE: u32 = 8;
/// Of a first look.
const FEW: u32 = 2;
/// What FD.io's CSIT searches by: 21 trials of 1 s, of which half may lose more.
const MLR_TRIALS: u32 = 21;
const MLR_EXCEED: f64 = 0.5;
const MLR_LOSSES: [f64; 2] = [0.0, 0.005];
const WIDTH: f64 = 0.005;
const RECOMMENDED_FRAMES: &str = "RFC 2544, 9.1 has 64, 128, 256, 512, 1024, 1280 and 1518";

/// Benchmarks by a standard.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Benchmark")]
pub(in crate::suite) struct BenchmarkFile {
    /// rfc2544: throughput, latency, frame loss rate, back-to-back frames (RFC 9004) and system recovery. mlrsearch: the throughput at several
    /// loss ratios (RFC 9971).
    standard: Standard,
    /// Which of them are made, throughput always; all of rfc2544 and throughput of mlrsearch by default.
    #[schemars(with = "Option<Vec<Test>>", example = ["latency", "frame-loss"])]
    tests: Option<Spanned<Vec<Test>>>,
    /// What a load has to uphold; of rfc2544 no loss in one trial, of mlrsearch 0 and 0.5 % in at least half of 21 trials by default.
    #[schemars(example = serde_json::json!([{ "loss": "0.5%", "exceed": "50%", "trials": 21 }]))]
    goals: Option<Spanned<Vec<GoalFile>>>,
    /// How long a load is tried to find that it is too high; 1s by default. What is upheld is tried for whole windows.
    step: Option<Spanned<Span>>,
    /// What the link carries, for shares of it; the rate of the wire by default, and without one what the generator itself can send.
    line_rate: Option<BitRate>,
    /// Trials of the latency; 20 by default.
    #[schemars(range(min = 1, max = 1000))]
    latency_trials: Option<Spanned<u32>>,
    /// Searches of the longest burst without loss; 50 by default.
    #[schemars(range(min = 1, max = 1000))]
    bursts: Option<Spanned<u32>>,
    /// The longest burst; 2s by default.
    burst: Option<Spanned<Span>>,
    /// Recoveries from overload; 3 by default.
    #[schemars(range(min = 1, max = 1000))]
    recoveries: Option<Spanned<u32>>,
}

/// A search goal (RFC 9971).
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SearchGoalOfLoss")]
struct GoalFile {
    /// Share of frames that a trial may lose; 0% by default.
    loss: Option<Percent>,
    /// Share of the trials that may lose more; 0% by default.
    exceed: Option<Percent>,
    /// Windows that a load is tried for; 1 by default.
    #[schemars(range(min = 1, max = 1000))]
    trials: Option<u32>,
    /// How close the highest load that is upheld and the lowest that is not have to be; 0.5% by default.
    width: Option<Percent>,
}

/// A goal, whose trials last for windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoalPlan {
    loss: f64,
    exceed: f64,
    trials: u32,
    width: f64,
}

/// Benchmarks in place of a window, which is then the best trial at the throughput.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchmarkPlan {
    pub standard: Standard,
    pub tests: Vec<Test>,
    goals: Vec<GoalPlan>,
    step: Duration,
    /// Bits per second.
    line_rate: Option<u64>,
    latency_trials: u32,
    bursts: u32,
    burst: Duration,
    recoveries: u32,
}

impl BenchmarkPlan {
    /// What is made in windows of this length.
    pub fn in_windows(&self, window: Duration) -> Benchmark {
        let seconds = window.as_secs_f64();
        let goal = |goal: &GoalPlan| Goal {
            loss_ratio: goal.loss,
            exceed_ratio: goal.exceed,
            final_duration: seconds,
            duration_sum: seconds * f64::from(goal.trials),
            initial_duration: self.step.as_secs_f64().min(seconds),
            width: goal.width,
        };
        Benchmark {
            standard: self.standard,
            tests: self.tests.clone(),
            goals: self.goals.iter().map(goal).collect(),
            duration: window,
            latency_trials: self.latency_trials,
            bursts: self.bursts,
            burst_max: self.burst,
            recoveries: self.recoveries,
        }
    }

    /// Frames of this size per second that the link carries, where it has a rate.
    pub fn line_rate(&self, topology: &Topology, frame: u32) -> Option<f64> {
        let wire = topology.wire().and_then(|wire| wire.rate);
        self.line_rate.or(wire).map(|bits| line_rate(bits, frame))
    }

    /// What finds the generator's own limit: the highest rate of few short trials, which may miss what a moment without a CPU costs.
    pub fn of_generator(&self, window: Duration) -> Goal {
        let seconds = self.step.min(window).as_secs_f64();
        Goal {
            loss_ratio: 0.02,
            exceed_ratio: 0.5,
            final_duration: seconds,
            duration_sum: 3.0 * seconds,
            initial_duration: seconds,
            width: 0.05,
        }
    }

    /// How long they take, if few loads have to be tried.
    pub fn shortest(&self, window: Duration) -> Duration {
        let has = |test: Test, streams: u32, time: Duration| {
            if self.tests.contains(&test) { streams * (STREAM_OVERHEAD + time) } else { Duration::ZERO }
        };
        let upheld = self.goals.iter().map(|goal| goal.trials * (window + STREAM_OVERHEAD)).max().unwrap_or_default();
        let search = LOADS * (self.step.min(window) + STREAM_OVERHEAD);
        let bursts = self.bursts * BURSTS_OF_ONE;
        search
            + upheld
            + has(Test::Latency, self.latency_trials, 2 * window)
            + has(Test::FrameLoss, 3, window)
            + has(Test::BackToBack, bursts, self.burst / BURSTS_OF_ONE)
            + has(Test::Recovery, self.recoveries, 2 * window)
    }

    /// These benchmarks as a quick run makes them, in windows that are short already.
    pub(in crate::suite) fn hastened(self, step: Option<Duration>) -> Self {
        let goals = self.goals.into_iter();
        Self {
            goals: goals
                .map(|goal| GoalPlan { trials: goal.trials.min(5), width: goal.width.max(0.02), ..goal })
                .collect(),
            step: step.unwrap_or(self.step),
            latency_trials: self.latency_trials.min(FEW),
            bursts: self.bursts.min(FEW),
            burst: self.burst.min(Duration::from_millis(300)),
            recoveries: self.recoveries.min(FEW),
            ..self
        }
    }
}

impl fmt::Display for BenchmarkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.standard {
            Standard::Rfc2544 => "RFC 2544: ",
            Standard::Mlrsearch => "MLRsearch: ",
        })?;
        let tests: Vec<&str> = self.tests.iter().map(|test| test.name()).collect();
        let losses: Vec<String> = self.goals.iter().map(|goal| format!("{} %", percent(goal.loss))).collect();
        write!(f, "{} at a loss of {}", tests.join(", "), losses.join(" and "))
    }
}

/// What the file asks for.
pub(super) fn plan(file: &BenchmarkFile) -> Result<BenchmarkPlan, LoadError> {
    let times = |key: &str, asked: &Option<Spanned<u32>>, standard: u32| match asked {
        None => Ok(standard),
        Some(asked) if (1..=1000).contains(asked.get_ref()) => Ok(*asked.get_ref()),
        Some(asked) => wrong(asked, format!("{key} = {}", asked.get_ref()), "choose 1 to 1000"),
    };
    let time = |key: &str, asked: &Option<Spanned<Span>>, standard: Duration| match asked {
        None => Ok(standard),
        Some(asked) if (Duration::from_millis(100)..=Duration::from_secs(600)).contains(&asked.get_ref().0) => {
            Ok(asked.get_ref().0)
        }
        Some(asked) => wrong(asked, format!("{key} = \"{}\"", asked.get_ref()), "choose 100ms to 10m"),
    };
    let mut tests = match (file.standard, value(&file.tests)) {
        (_, Some(tests)) => tests,
        (Standard::Rfc2544, None) => Test::ALL.to_vec(),
        (Standard::Mlrsearch, None) => Vec::new(),
    };
    tests.push(Test::Throughput);
    tests.sort();
    tests.dedup();
    let idle = [
        ("latency_trials", file.latency_trials.as_ref().map(Spanned::span), Test::Latency),
        ("bursts", file.bursts.as_ref().map(Spanned::span), Test::BackToBack),
        ("burst", file.burst.as_ref().map(Spanned::span), Test::BackToBack),
        ("recoveries", file.recoveries.as_ref().map(Spanned::span), Test::Recovery),
    ];
    if let Some((key, Some(span), test)) =
        idle.into_iter().find(|(_, span, test)| span.is_some() && !tests.contains(test))
    {
        let hint = format!("add it to 'tests', or remove '{key}'");
        return Err(LoadError {
            what: format!("'{key}' without the test of {}", test.name()),
            hint: Some(hint),
            at: ErrorLocation::Span(span),
        });
    }
    let goals = match (&file.goals, file.standard) {
        (Some(goals), _) => {
            if !(1..=10).contains(&goals.get_ref().len()) {
                return wrong(goals, format!("{} goals", goals.get_ref().len()), "choose 1 to 10");
            }
            goals.get_ref().iter().map(|goal| goal_plan(goal, goals)).collect::<Result<_, _>>()?
        }
        (None, Standard::Rfc2544) => vec![GoalPlan { loss: 0.0, exceed: 0.0, trials: 1, width: WIDTH }],
        (None, Standard::Mlrsearch) => {
            let goal = |loss| GoalPlan { loss, exceed: MLR_EXCEED, trials: MLR_TRIALS, width: WIDTH };
            MLR_LOSSES.map(goal).to_vec()
        }
    };
    Ok(BenchmarkPlan {
        standard: file.standard,
        tests,
        goals,
        step: time("step", &file.step, STEP)?,
        line_rate: file.line_rate.map(|rate| rate.0),
        latency_trials: times("latency_trials", &file.latency_trials, LATENCY_TRIALS)?,
        bursts: times("bursts", &file.bursts, BURSTS)?,
        burst: time("burst", &file.burst, BURST)?,
        recoveries: times("recoveries", &file.recoveries, RECOVERIES)?,
    })
}

/// A share in percent, without what binary fractions add.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

fn goal_plan(goal: &GoalFile, at: &Spanned<Vec<GoalFile>>) -> Result<GoalPlan, LoadError> {
    let share = |share: Option<Percent>| share.map_or(0.0, Percent::fraction);
    let (loss, exceed) = (share(goal.loss), share(goal.exceed));
    let (trials, width) = (goal.trials.unwrap_or(1), goal.width.map_or(WIDTH, Percent::fraction));
    for (key, share) in [("loss", loss), ("exceed", exceed)] {
        if !(0.0..1.0).contains(&share) {
            return wrong(at, format!("a goal with {key} = \"{} %\"", percent(share)), "choose 0 to less than 100 %");
        }
    }
    if !(0.000_1..=0.5).contains(&width) {
        return wrong(at, format!("a goal with width = \"{} %\"", percent(width)), "choose 0.01 to 50 %");
    }
    if !(1..=1000).contains(&trials) {
        return wrong(at, format!("a goal with trials = {trials}"), "choose 1 to 1000");
    }
    Ok(GoalPlan { loss, exceed, trials, width })
}

fn wrong<T, V>(at: &Spanned<V>, what: String, hint: &str) -> Result<T, LoadError> {
    Err(LoadError { what, hint: Some(hint.to_owned()), at: ErrorLocation::Span(at.span()) })
}

/// Bytes of the frames that the load sends one way, check sequence included; `None` where it asks and is answered.
pub(super) fn frame(load: &LoadFile) -> Result<Option<u32>, LoadError> {
    let Some(frame) = &load.frame else {
        return match load.benchmark {
            None => Ok(None),
            Some(_) => error(
                &["benchmark"],
                "a benchmark without a frame size",
                format!("write frame = 64: {RECOMMENDED_FRAMES}"),
            ),
        };
    };
    const WITHOUT: [&str; 18] = [
        "close",
        "retransmit",
        "retries",
        "send_window",
        "request",
        "response",
        "requests",
        "interval",
        "requests_per_second",
        "hold",
        "pipeline",
        "timeout",
        "flood",
        "launch",
        "ramp",
        "search",
        "hop",
        "workers",
    ];
    let others = load.given().find(|(key, _)| WITHOUT.contains(key));
    if let Some((key, span)) = others {
        let hint = "frames are sent one way, one after another, by one worker: remove it, or 'frame'";
        let what = format!("frames of a size with '{key}'");
        return Err(LoadError { what, hint: Some(hint.to_owned()), at: ErrorLocation::Span(span) });
    }
    let bytes = frame.get_ref().0;
    match u32::try_from(bytes).ok().filter(|bytes| (64..=9018).contains(bytes)) {
        Some(bytes) => Ok(Some(bytes)),
        None => wrong(frame, format!("a frame of {bytes} bytes"), &format!("choose 64 to 9018: {RECOMMENDED_FRAMES}")),
    }
}

/// Refuses frames that the path does not carry whole, or that have no room for what they need.
pub(super) fn check_frame(traffic: &PacketTraffic, topology: &Topology) -> Result<(), LoadError> {
    let Some(frame) = traffic.frame else { return Ok(()) };
    let (mtu, family) = (topology.endpoint_mtu(), topology.family());
    if frame - ETHERNET > mtu {
        let what = format!("frames of {frame} bytes where packets have at most {mtu}");
        return error(&["frame"], what, format!("choose at most {}, or give the wire a larger mtu", mtu + ETHERNET));
    }
    let least = u32::from(rig_facts::requested_load::headers(family)) + ETHERNET + Flood::STAMP as u32;
    if frame < least {
        let what = format!("frames of {frame} bytes with a UDP header and {} bytes of time and number", Flood::STAMP);
        return error(
            &["frame"],
            what,
            format!("choose at least {least} for IPv{}", if family == Family::Ipv4 { 4 } else { 6 }),
        );
    }
    Ok(())
}
