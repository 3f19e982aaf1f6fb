//! How a run spends the time that it is given: how long windows are and how many blocks are made, and which claims these will be
//! able to decide.
//!
//! The scatter is known from trials made before, where there are any; otherwise it is assumed, and the forecast says so.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use rig_facts::claim::{BlockSpread, Claim, Metric, Side};
use rig_facts::figures::reading;
use rig_facts::record::TrialRecord;
use rig_load::record::WorkerRecord;
use rig_stats::blocks::plan::{Spread, half_width};
use rig_stats::blocks::sequential::LEAST;
use rig_stats::confidence::Level;
use rig_stats::sample::Sample;
use rig_stats::units::{Span, minutes};
use rig_suite::suite::{Budget, PacketTraffic, PhaseError, Repeat, Scenario, Suite, Timing};
use rig_verdict::judge::outlook;

/// The scatter that is assumed as long as there are no trials: 5 % from one to the next, and 5 % from second to second.
const ASSUMED: Spread = Spread { between: 0.0025, within: 0.0025 };
/// The time that a trial is assumed to take besides its phases, as long as there are no trials.
const OVERHEAD: Duration = Duration::from_millis(400);
/// The time that a search is assumed to take, as long as there are no trials.
const SEARCH: Duration = Duration::from_secs(10);
/// Windows to choose from, unless the user says another.
const WINDOWS_MS: [u64; 15] = [100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000, 3000, 5000, 8000, 12_000, 20_000];
/// The fewest blocks of a run, and of the first ones: fewer show hardly a scatter.
const BLOCKS_LEAST: u32 = 3;
/// With so many blocks there is a test that assumes nothing of their distribution: windows are shortened to have them.
const BLOCKS_WANTED: u32 = 6;

/// The weight of the likely variance beside that of a few blocks, in degrees of freedom.
const LIKELY: f64 = 4.0;
/// z(80 %): how far, in standard errors, an effect has to lie beyond the bound of a test for four of five runs to decide it.
const NORMAL_80: f64 = 0.8416;

/// First blocks may take at most this fraction (one in so many) of the time.
const FIRST_SHARE: u32 = 8;

/// How a time will be spent.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    pub timing: Timing,
    scenarios: usize,
    learnt: ForecastBasis,
    claims: Vec<ClaimForecast>,
}

/// What a forecast was learnt from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForecastBasis {
    /// Nothing: a scatter was assumed.
    Nothing,
    /// This many trials of a run made before.
    Before(usize),
    /// This many trials of first blocks, made for the forecast.
    FirstBlocks(usize),
}

/// Blocks that are made for a forecast that knows nothing else, of one trial of each scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstBlocks {
    pub blocks: u32,
    pub timing: Timing,
    /// How long they will take, about.
    takes: Duration,
    /// How long they may take.
    pub most: Duration,
}

impl FirstBlocks {
    /// `None` where an eighth of the time has no room for them.
    pub fn of(suite: &Suite, timing: &Timing, time: Duration) -> Option<Self> {
        let short = suite.quick.unwrap_or(*timing);
        let around = short.phases.warm_up + short.phases.cool_down;
        let of_one =
            |scenario: &Scenario| scenario.programme.longest(short.phases.window) + around + overhead(scenario, &[]);
        let takes = suite.scenarios.iter().map(of_one).sum::<Duration>() * BLOCKS_LEAST;
        let most = time / FIRST_SHARE;
        (takes <= most).then_some(Self { blocks: BLOCKS_LEAST, timing: short, takes, most })
    }
}

impl fmt::Display for FirstBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} short blocks, about {}, beside the run's time,", self.blocks, minutes(self.takes))
    }
}

/// What is expected of a claim.
#[derive(Debug, Clone, PartialEq)]
struct ClaimForecast {
    text: String,
    /// Half the width of its effect's interval, as a logarithm; `None` for a difference, whose width is no share.
    half_width: Option<f64>,
    /// How far the effect was from what is claimed, on the same scale; `None` where no block tells.
    distance: Option<f64>,
    /// Whether four of five runs like this decide it; `None` where no block tells.
    is_decided: Option<bool>,
}

/// Why a time cannot be spent on a suite.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    #[error(
        "{} are too short: a block of one trial of each scenario takes about {}, and fewer than {BLOCKS_LEAST} show no \
         scatter: give at least {}, fewer scenarios with --only, or a shorter --window", Span(*.given), minutes(*.block), minutes(*.block * (BLOCKS_LEAST + 1))
    )]
    TooShort { given: Duration, block: Duration },
    #[error(transparent)]
    Phase(#[from] PhaseError),
}

impl Forecast {
    /// Spends `time` on `suite`, whose timing is `timing` where the time does not say otherwise; `window` is that of the user.
    /// `past` are trials of the suite made before on this machine, of the kind that `learnt` says.
    ///
    /// # Errors
    /// When the time is too short.
    pub fn of(
        suite: &Suite,
        timing: &Timing,
        time: Duration,
        window: Option<Duration>,
        past: &[TrialRecord],
        learnt: ForecastBasis,
    ) -> Result<Self, BudgetError> {
        let of =
            |scenario: &Scenario| -> Vec<&TrialRecord> { past.iter().filter(|t| t.scenario == scenario.id).collect() };
        // Around short windows as a first look has it.
        let short = suite.quick.unwrap_or(*timing);
        let around = short.phases.warm_up + short.phases.cool_down;
        let spreads: Vec<Spread> = suite.scenarios.iter().map(|s| spread(s, &of(s)).unwrap_or(ASSUMED)).collect();
        let overheads: Vec<Duration> = suite.scenarios.iter().map(|s| around + overhead(s, &of(s))).collect();
        let block = |window: Duration| -> Duration {
            let windows = suite.scenarios.iter().map(|scenario| scenario.programme.longest(window));
            windows.chain(overheads.iter().copied()).sum()
        };
        let shortest = short.phases.window.min(timing.phases.window);
        let chosen = window.unwrap_or_else(|| {
            let mut best: Vec<f64> = spreads
                .iter()
                .zip(&overheads)
                .map(|(spread, overhead)| spread.best_window(overhead.as_secs_f64()))
                .collect();
            best.sort_unstable_by(f64::total_cmp);
            let middle = best.get(best.len() / 2).copied().unwrap_or(0.0);
            let longest = timing.phases.window.max(shortest);
            let mut window = if middle.is_finite() { Duration::from_secs_f64(middle.min(3600.0)) } else { longest }
                .clamp(shortest, longest);
            while window > shortest && time < block(window) * BLOCKS_WANTED {
                window = (window * 4 / 5).max(shortest);
            }
            // On a coarse scale: runs are alike only where their windows are.
            let scale = WINDOWS_MS.iter().rev().map(|ms| Duration::from_millis(*ms));
            scale.into_iter().find(|step| *step <= window).unwrap_or(window).max(shortest)
        });
        let one = block(chosen);
        let blocks =
            (time.as_secs_f64() / one.as_secs_f64().max(1e-3)).floor().min(f64::from(Budget::BLOCKS_MAX)) as u32;
        if blocks < BLOCKS_LEAST {
            return Err(BudgetError::TooShort { given: time, block: one });
        }
        let repeat = Repeat::Within(Budget { time_ms: time.as_millis() as u64, blocks });
        let timing = Timing { repeat, ..short.with_window(chosen)? };
        let spread_of = |id: &str| {
            let place = suite.scenarios.iter().position(|scenario| scenario.id == id)?;
            Some((spreads[place], of(&suite.scenarios[place]).first().map(|trial| trial.seconds())))
        };
        let known = |claim: &&Claim| {
            !claim.is_fact() && claim.figures().iter().all(|figure| suite.scenario(&figure.scenario).is_some())
        };
        let claims: Vec<&Claim> = suite.claims.iter().filter(known).collect();
        let outlooks = moderated(outlook(&claims, past)).into_iter().zip(&claims).map(|(outlook, claim)| {
            let scenarios: BTreeSet<&str> = claim.figures().iter().map(|figure| figure.scenario.as_str()).collect();
            let trials = || scenarios.iter().filter_map(|id| spread_of(id));
            let now: f64 = trials().map(|(spread, _)| spread.of_trial(chosen.as_secs_f64())).sum();
            // What blocks scattered by in the past has other windows in it.
            let then: Option<f64> = trials().map(|(spread, seconds)| Some(spread.of_trial(seconds?))).sum();
            let shorter = then.map_or(1.0, |then| (now / then).sqrt());
            outlook.map_or(BlockSpread { deviation: now.sqrt(), blocks: 0, distance: None, is_ratio: true }, |known| {
                BlockSpread { deviation: known.deviation * shorter, ..known }
            })
        });
        let expected = expect(&outlooks.collect::<Vec<_>>(), blocks, suite.level());
        let expected =
            claims.iter().zip(expected).map(|(claim, of)| ClaimForecast { text: claim.text().to_owned(), ..of });
        Ok(Self { timing, scenarios: suite.scenarios.len(), learnt, claims: expected.collect() })
    }
}

/// A few blocks may agree by chance, so their variance is shrunk towards a likely one with the weight of [`LIKELY`] degrees of freedom
/// (moderated variance: G. K. Smyth, Statistical Applications in Genetics and Molecular Biology 3(1), 2004). The likely variance is the
/// middle between the mean of all claims and the variance that is assumed without blocks.
fn moderated(outlooks: Vec<Option<BlockSpread>>) -> Vec<Option<BlockSpread>> {
    let variances: Sample = outlooks.iter().flatten().filter(|of| of.is_ratio).map(|of| of.deviation.powi(2)).collect();
    let Some(mean) = variances.mean() else { return outlooks };
    let likely = f64::midpoint(mean, ASSUMED.between);
    let moderate = |of: BlockSpread| {
        if !of.is_ratio || of.blocks >= LEAST as usize {
            return of;
        }
        let degrees = of.blocks as f64 - 1.0;
        let variance = (degrees * of.deviation.powi(2) + LIKELY * likely) / (degrees + LIKELY);
        BlockSpread { deviation: variance.sqrt(), ..of }
    };
    outlooks.into_iter().map(|of| of.map(moderate)).collect()
}

/// What so many blocks can be expected to say of claims that are judged together. The width of each follows from the scatter of its own
/// blocks. A claim counts as decided when four of five runs would decide it under Holm's correction: the surest claim is tested at the
/// level for all claims, the next at that for the others, and so on until one is not decided.
fn expect(outlooks: &[BlockSpread], blocks: u32, level: Level) -> Vec<ClaimForecast> {
    let n = f64::from(blocks);
    // In standard errors.
    let far = |of: &BlockSpread| of.distance.map(|distance| distance * n.sqrt() / of.deviation.max(f64::MIN_POSITIVE));
    let mut order: Vec<usize> = (0..outlooks.len()).collect();
    order.sort_by(|&one, &other| {
        let far = |index: usize| far(&outlooks[index]).unwrap_or(0.0);
        far(other).total_cmp(&far(one))
    });
    let mut expected: Vec<ClaimForecast> = outlooks
        .iter()
        .map(|of| ClaimForecast {
            text: String::new(),
            half_width: half_width(of.deviation, blocks, level).filter(|_| of.is_ratio),
            distance: of.distance.filter(|_| of.is_ratio),
            is_decided: None,
        })
        .collect();
    let mut is_sure = true;
    for (rank, &index) in order.iter().enumerate() {
        let needed = level.among(outlooks.len() - rank).student_t(n - 1.0) + NORMAL_80;
        let Some(far) = far(&outlooks[index]) else { continue };
        is_sure &= far >= needed;
        expected[index].is_decided = Some(is_sure);
    }
    expected
}

/// The scatter of a scenario's trials: from trial to trial that of its main figure, and within a trial that of what was carried.
fn spread(scenario: &Scenario, trials: &[&TrialRecord]) -> Option<Spread> {
    let window = trials.first()?.seconds();
    let (side, metric) = main_figure(scenario);
    let values: Vec<f64> = trials
        .iter()
        .map(|trial| reading(trial, side, metric).map(|reading| reading.value.ln()))
        .collect::<Option<_>>()?;
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let parts: Vec<(f64, f64)> = trials.iter().filter_map(|trial| parts(trial)).collect();
    let (variance, seconds) = parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    let n = parts.len().max(1) as f64;
    Spread::estimated(&values, variance / n, seconds / n, window).map(|spread| Spread {
        // Two or three trials that agree by chance are no proof that all do.
        between: spread.between.max(ASSUMED.between / 25.0),
        within: spread.within.max(ASSUMED.within / 25.0),
    })
}

/// The figure that costs the most trials to know: the first watched one of packets, else the CPU time of a unit of traffic.
fn main_figure(scenario: &Scenario) -> (Side, Metric) {
    let [one, _] = scenario.traffic.sides();
    if scenario.traffic.packets.is_some() {
        return scenario.watched.first().copied().unwrap_or((Side::Local, Metric::Connections));
    }
    (one, if scenario.traffic.flow().is_some() { Metric::ServiceDemand } else { Metric::TransactionDemand })
}

/// The variance of the logarithm of what each interval of a trial carried, and how long an interval is.
fn parts(trial: &TrialRecord) -> Option<(f64, f64)> {
    let rates = |worker: &WorkerRecord| -> Vec<f64> {
        let count =
            |s: &rig_load::record::Sample| s.units.max(s.bytes).max(s.bytes_in) as f64 / s.span_ns.max(1) as f64;
        worker
            .samples
            .iter()
            .filter(|sample| sample.span_ns > 0)
            .map(count)
            .filter(|rate| *rate > 0.0)
            .map(f64::ln)
            .collect()
    };
    let worker = trial.workers.iter().find(|worker| !worker.background && rates(worker).len() > 2)?;
    let span = worker.samples.iter().map(|sample| sample.span_ns).max()? as f64 / 1e9;
    Some((Sample::from(rates(worker)).variance()?, span))
}

/// What a trial takes besides warm-up, window and cool-down.
fn overhead(scenario: &Scenario, trials: &[&TrialRecord]) -> Duration {
    let is_searched = scenario.traffic.packets.as_ref().is_some_and(PacketTraffic::is_searched);
    let of_one = |trial: &&TrialRecord| {
        let around = Duration::from_micros(trial.setup_us + trial.teardown_us);
        if is_searched {
            Duration::from_micros(trial.total_us).saturating_sub(Duration::from_secs_f64(trial.seconds()))
        } else {
            // Starting and ending workers.
            around + Duration::from_millis(100)
        }
    };
    match u32::try_from(trials.len()) {
        Ok(n) if n > 0 => trials.iter().map(of_one).sum::<Duration>() / n,
        _ if is_searched => SEARCH,
        _ => OVERHEAD,
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repeat::Within(budget) = self.timing.repeat else { return Ok(()) };
        write!(
            f,
            "{} blocks of {} trials with windows of {} are planned in {}",
            budget.blocks,
            self.scenarios,
            Span(self.timing.phases.window),
            minutes(budget.time()),
        )?;
        f.write_str(&match self.learnt {
            ForecastBasis::Nothing => {
                ", from an assumed scatter of 5 %: the store has no complete run of this suite yet".to_owned()
            }
            ForecastBasis::Before(trials) => format!(", from the scatter of {trials} trials made before"),
            ForecastBasis::FirstBlocks(trials) => format!(", from the scatter of {trials} short trials made first"),
        })?;
        if self.claims.is_empty() {
            return Ok(());
        }
        let mut halves: Vec<f64> = self.claims.iter().filter_map(|claim| claim.half_width).collect();
        halves.sort_unstable_by(f64::total_cmp);
        let percent = |half: f64| (half.exp() - 1.0) * 100.0;
        if let (Some(least), Some(most)) = (halves.first(), halves.last()) {
            let (least, most) = (percent(*least), percent(*most));
            write!(f, ". That tells the claims' ratios to ±{least:.1} %")?;
            if most - least > 0.1 {
                write!(f, " at best and ±{most:.1} % at worst")?;
            }
        }
        let told = self.claims.iter().filter(|claim| claim.is_decided.is_some()).count();
        if told == 0 {
            return Ok(());
        }
        let unlikely: Vec<&ClaimForecast> =
            self.claims.iter().filter(|claim| claim.is_decided == Some(false)).collect();
        let decided = match told - unlikely.len() {
            0 => format!("none of {told}"),
            n if n == told => format!("all {told}"),
            n => format!("{n} of {told}"),
        };
        let by = if matches!(self.learnt, ForecastBasis::Before(_)) { "what was measured before" } else { "these" };
        write!(f, ". By {by}, {decided} claims are each decided by four of five such runs")?;
        if told < self.claims.len() {
            write!(f, " ({} more were not measured in blocks)", self.claims.len() - told)?;
        }
        if !unlikely.is_empty() {
            f.write_str("; these may stay undecided:")?;
        }
        for claim in unlikely {
            let near = claim
                .distance
                .map(|distance| format!(" (it was within {:.1} % of what is claimed)", percent(distance)));
            write!(f, "\n  {}{}", claim.text, near.unwrap_or_default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
