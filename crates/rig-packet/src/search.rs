//! The search for the highest rate that is carried without loss: which rate to offer next, given what became of those
//! before. It knows no clock and no network: the caller offers each rate and brings the verdict.
//!
//! The rate is raised geometrically until something is lost, or lowered until nothing is; then the interval between the
//! highest rate that was carried and the lowest that was not is bisected until it is as narrow as asked for; then the
//! highest is confirmed for a longer time. A confirmation that fails steps down, by the precision and then twice as far
//! each time, and once one is held what lies between is bisected by confirmations: what is given as the limit was always
//! carried without loss for that longer time (RFC 2544, 26.1 calls it the throughput).
//!
//! A step that loses something is made once more, never more often: only a rate that lost twice in a row counts as too
//! high. On a machine that others use too, a stolen time slice in one step would otherwise end the search far below the
//! limit. A rate that loses with probability p in a step passes for carried with 1 - p^2, so that a rate which truly
//! loses every second time may pass; the confirmation, which is longer, is what decides. All attempts are in the trail.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Attempts at one rate, the first included, before it counts as too high.
pub const ATTEMPTS: u32 = 2;
/// Steps of one search at most, repetitions included.
pub const STEPS: usize = 100;
/// The lowest rate that is tried, as a part of the first.
const LOWEST: f64 = 1.0 / 1024.0;
/// No rate below this is tried either, unless the first is: per second, so that a step of a few seconds offers something.
const SLOWEST: f64 = 1.0;
/// A limit from this part of the generator's own on says nothing of what was to be measured, and so does a generator
/// that was busy for this part of its time.
pub const BOUND: f64 = 0.9;

/// How a limit is searched.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Search {
    /// The first rate, per second.
    pub start: f64,
    /// What the rate is multiplied with until something is lost: above 1, at most 16.
    pub growth: f64,
    /// How far the highest rate carried may be from the lowest that was not, relative to it: 0.001 to 0.5.
    pub precision: f64,
    /// No rate above this is offered.
    pub most: Option<f64>,
    /// The share of connections and requests that may begin more than a millisecond after their time, 0 to 1. Above it
    /// the generator missed its own schedule: the rate was not offered, and a limit found there is the generator's
    /// ([`GeneratorBound::Late`]).
    pub late: f64,
}

/// A value of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchValue {
    Start,
    Growth,
    Precision,
    Most,
    Late,
}

impl fmt::Display for SearchValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "a first rate",
            Self::Growth => "a growth",
            Self::Precision => "a precision",
            Self::Most => "a highest rate",
            Self::Late => "a share that may be late",
        })
    }
}

/// A search that cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what} of {value}: give {range}")]
pub struct SearchError {
    pub what: SearchValue,
    pub value: f64,
    pub range: &'static str,
}

impl Search {
    /// # Errors
    /// The first value that is out of its range.
    pub fn check(&self) -> Result<(), SearchError> {
        let Self { start, growth, precision, most, late } = *self;
        let least = most.unwrap_or(start);
        for (what, value, good, range) in [
            (SearchValue::Start, start, start.is_finite() && start > 0.0, "more than 0 per second"),
            (SearchValue::Growth, growth, growth > 1.0 && growth <= 16.0, "more than 1 and at most 16"),
            (SearchValue::Precision, precision, (0.001..=0.5).contains(&precision), "0.1 % to 50 %"),
            (SearchValue::Most, least, least.is_finite() && least >= start, "no less than the first rate"),
            (SearchValue::Late, late, (0.0..=1.0).contains(&late), "0 % to 100 %"),
        ] {
            if !good {
                return Err(SearchError { what, value, range });
            }
        }
        Ok(())
    }
}

/// What a step is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepPurpose {
    /// Nothing was lost so far: higher.
    Raise,
    /// Something was always lost so far: lower.
    Lower,
    /// Between a rate that was carried and one that was not.
    Bisect,
    /// The highest that was carried, for longer.
    Confirm,
}

/// What is to be offered next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateOffer {
    /// Per second.
    pub rate: f64,
    pub purpose: StepPurpose,
    /// 1, or more when the same step has lost something before.
    pub attempt: u32,
}

/// One step that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Offered, per second.
    pub rate: f64,
    pub purpose: StepPurpose,
    pub attempt: u32,
    /// What was lost: none when the rate was carried.
    pub losses: Vec<Loss>,
}

impl Step {
    pub fn is_clean(&self) -> bool {
        self.losses.is_empty()
    }
}

/// One kind of loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Where and what: the end and the name of the counter, e.g. `local synRt`.
    pub counter: String,
    pub count: u64,
}

impl Loss {
    /// Whether nothing is gone but time: the generator was behind its own schedule.
    pub fn is_lateness(&self) -> bool {
        self.counter.ends_with(LATE)
    }
}

/// As the counter's name follows its place.
const LATE: &str = " late";

/// Whether nothing was wrong with a rate but that the generator did not offer it in time.
pub fn is_late_alone(losses: &[Loss]) -> bool {
    !losses.is_empty() && losses.iter().all(Loss::is_lateness)
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.counter, self.count)
    }
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchEnding {
    /// The limit lies between a rate that was held and one that was not, as near to each other as asked for.
    Found,
    /// The highest rate allowed was held: the limit is above it.
    Ceiling,
    /// No rate was held, down to a thousandth of the first, to one per second, or to one of which nothing falls into a step.
    Nothing,
    /// Too many steps were made.
    Exhausted,
    /// The caller stopped it.
    Stopped,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    pub ending: SearchEnding,
    /// The highest rate confirmed, per second; `None` when none was.
    pub held: Option<f64>,
    /// The lowest rate that lost something in all its attempts.
    pub lost: Option<f64>,
    /// All steps, in their order.
    pub steps: Vec<Step>,
}

impl SearchResult {
    /// Whether the lowest rate that was not carried was missed by the generator alone, so that nothing is known of what it drives.
    pub fn is_late(&self) -> bool {
        let at = self.steps.iter().filter(|step| Some(step.rate) == self.lost && !step.is_clean());
        at.clone().count() > 0 && at.clone().all(|step| is_late_alone(&step.losses))
    }

    /// Whether the rate held is the generator's own limit: see [`generator_bound`].
    pub fn generator_bound(&self, generator: Option<f64>, busy: f64) -> Option<GeneratorBound> {
        let held = self.held?;
        generator_bound(held, generator, busy).or_else(|| self.is_late().then_some(GeneratorBound::Late))
    }
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct RateSearch {
    search: Search,
    /// Highest rate carried and lowest rate lost, by steps.
    carried: Option<f64>,
    lost: Option<f64>,
    /// Highest rate confirmed.
    held: Option<f64>,
    /// The rate to be confirmed, when the bisection by steps is over.
    confirming: Option<f64>,
    /// Rates whose confirmation failed.
    fallen: i32,
    ended: Option<(SearchEnding, Option<f64>)>,
    steps: Vec<Step>,
}

impl RateSearch {
    /// # Errors
    /// When `search` cannot be made.
    pub fn new(search: Search) -> Result<Self, SearchError> {
        search.check()?;
        let (carried, lost, held, confirming, ended) = (None, None, None, None, None);
        Ok(Self { search, carried, lost, held, confirming, fallen: 0, ended, steps: Vec::new() })
    }

    /// What is to be offered next; `None` when the search is over.
    pub fn next(&self) -> Option<RateOffer> {
        if self.ended.is_some() {
            return None;
        }
        if let Some(&Step { rate, purpose, attempt, .. }) = self.steps.last().filter(|step| self.is_repeated(step)) {
            return Some(RateOffer { rate, purpose, attempt: attempt + 1 });
        }
        let (rate, purpose) = self.aim();
        Some(RateOffer { rate, purpose, attempt: 1 })
    }

    /// The steps so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Takes what became of the rate that [`Self::next`] gave last; with no `losses` it was carried.
    ///
    /// # Panics
    /// When the search is over.
    pub fn report(&mut self, losses: Vec<Loss>) {
        let RateOffer { rate, purpose, attempt } = self.next().expect("a step is made of what next() offers");
        let step = Step { rate, purpose, attempt, losses };
        let (is_clean, is_repeated) = (step.is_clean(), self.is_repeated(&step));
        self.steps.push(step);
        match (purpose, is_clean) {
            (_, false) if is_repeated => return self.bound(),
            (StepPurpose::Confirm, true) => self.held = Some(rate),
            (StepPurpose::Confirm, false) => {
                self.lost = Some(self.lost.map_or(rate, |lost| lost.min(rate)));
                self.fallen += 1;
            }
            (_, true) => self.carried = Some(rate),
            (_, false) => self.lost = Some(rate),
        }
        if purpose == StepPurpose::Confirm {
            self.confirming = self.confirm(rate);
            if self.confirming.is_none() {
                let ending = if self.lost.is_none() { SearchEnding::Ceiling } else { SearchEnding::Found };
                self.ended = Some((ending, self.held));
            }
        } else if self.is_narrow() {
            self.confirming = self.carried;
        }
        self.bound();
    }

    /// Ends a search that leads nowhere.
    fn bound(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let start = self.search.start;
        if self.aim().0 < (start * LOWEST).max(SLOWEST.min(start)) {
            self.ended = Some((SearchEnding::Nothing, None));
        } else if self.steps.len() >= STEPS {
            self.ended = Some((SearchEnding::Exhausted, self.held));
        }
    }

    /// What is to be confirmed after `rate` was, or was not; `None` when the search is over.
    fn confirm(&self, rate: f64) -> Option<f64> {
        match (self.held, self.lost) {
            (None, _) => Some(rate * (1.0 - (self.search.precision * 2f64.powi(self.fallen - 1)).min(0.5))),
            (Some(held), Some(lost)) if self.fallen > 0 && lost > held * (1.0 + self.search.precision) => {
                Some((held * lost).sqrt())
            }
            (Some(_), _) => None,
        }
    }

    /// Ends it with what is known.
    pub fn stop(&mut self) {
        self.ended = self.ended.or(Some((SearchEnding::Stopped, self.held)));
    }

    /// Ends it where the rate that is next cannot be told from none.
    pub fn give_up(&mut self) {
        self.ended = self.ended.or(Some((SearchEnding::Nothing, None)));
    }

    /// What was found; `None` while the search goes on.
    pub fn outcome(&self) -> Option<SearchResult> {
        let (ending, held) = self.ended?;
        Some(SearchResult { ending, held, lost: self.lost, steps: self.steps.clone() })
    }

    fn is_repeated(&self, step: &Step) -> bool {
        !step.is_clean() && step.attempt < ATTEMPTS
    }

    /// Whether nothing is left to be bisected.
    fn is_narrow(&self) -> bool {
        match (self.carried, self.lost) {
            (Some(carried), Some(lost)) => lost <= carried * (1.0 + self.search.precision),
            (Some(carried), None) => self.search.most.is_some_and(|most| carried >= most),
            (None, _) => false,
        }
    }

    fn aim(&self) -> (f64, StepPurpose) {
        let Search { start, growth, most, .. } = self.search;
        match (self.confirming, self.carried, self.lost) {
            (Some(rate), ..) => (rate, StepPurpose::Confirm),
            (None, None, None) => (start, StepPurpose::Raise),
            (None, Some(carried), None) => (most.unwrap_or(f64::MAX).min(carried * growth), StepPurpose::Raise),
            (None, None, Some(lost)) => (lost / growth, StepPurpose::Lower),
            (None, Some(carried), Some(lost)) => ((carried * lost).sqrt(), StepPurpose::Bisect),
        }
    }
}

/// The counters that say that something was lost, by their names in [`Counters::fields`].
const LOSSES: [&str; 17] = [
    "dropTx",
    "badRx",
    "synRt",
    "finRt",
    "ackRt",
    "pushRt",
    "tcpDrop",
    "udpRt",
    "udpDrop",
    "udpLate",
    "udpDup",
    "skErr",
    "skUnfinished",
    "httpErr",
    "noSocket",
    "unreachable",
    "missed",
];

/// What an end lost, by its counters' increase `count` (names as in `Counters::fields`); `place` goes before the names.
/// Connections and requests that began late count when they are more than the share `late` of all that began.
pub fn losses(place: &str, count: impl Fn(&str) -> u64, late: f64) -> Vec<Loss> {
    let loss = |name: &str, count| Loss { counter: format!("{place} {name}"), count };
    let mut losses: Vec<Loss> =
        LOSSES.iter().map(|name| loss(name, count(name))).filter(|loss| loss.count > 0).collect();
    let behind = count("late");
    // A request of its own connection begins with that.
    let began = count("skOpen").max(count("tcpReq")).max(count("udpTx"));
    if behind as f64 > late * began as f64 {
        losses.push(loss("late", behind));
    }
    losses
}

/// Why a result is the generator's own limit and not that of what it drove.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GeneratorBound {
    /// The limit is this part of what the generator reaches with nothing between its ends.
    Limit(f64),
    /// The busiest of its threads had something to do for this part of the time.
    Busy(f64),
    /// At the next higher rate it was behind its own schedule, and nothing was lost.
    Late,
}

/// Whether `limit` is the generator's own: that was measured as `generator`, and its busiest thread had something to do
/// for the part `busy` of the time.
pub fn generator_bound(limit: f64, generator: Option<f64>, busy: f64) -> Option<GeneratorBound> {
    let share = generator.filter(|generator| *generator > 0.0).map(|generator| limit / generator);
    match share {
        Some(share) if share >= BOUND => Some(GeneratorBound::Limit(share)),
        _ => (busy >= BOUND).then_some(GeneratorBound::Busy(busy)),
    }
}

#[cfg(test)]
mod tests;
