//! The view of a stored run: its suite's text read again, its claims judged again.

use std::collections::BTreeSet;
use std::time::Duration;

use rig_cli::exit::{Exit, Failure};
use rig_cli::mistakes::FileError;
use rig_facts::claim::{Claim, Judgement, Metric, Verdict};
use rig_facts::record::certainty::{RepetitionEnd, ScenarioCertainty, missed_words};
use rig_facts::record::{BenchmarkRecord, TrialRecord};
use rig_facts::store::{Run, RunId, RunState};
use rig_stats::units::minutes;
use rig_suite::options::Options;
use rig_suite::suite::{Repeat, Suite};
use rig_sys::cpu::CpuSet;

use crate::answer::answer;
use crate::export::ClaimData;
use crate::judge::{AaData, Rule, Ruling, judge};
use crate::no_verdict::{NoVerdict, no_verdict};
use crate::tool;
use crate::view::{self, Certainty, Effect, Open, RunView, ScenarioView, Status};

/// Why a stored run cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    #[error("read the options of run {0}")]
    Options(RunId, #[source] serde_json::Error),
    #[error("read the outcome of run {0}")]
    Outcome(RunId, #[source] serde_json::Error),
    #[error(transparent)]
    Suite(#[from] FileError),
}

impl From<StoredError> for Failure {
    fn from(error: StoredError) -> Self {
        match error {
            StoredError::Suite(error) => error.into(),
            other => Self::new(Exit::Failed, other),
        }
    }
}

/// What the run was asked to do.
///
/// # Errors
/// Where they are not those of any netrig.
pub fn options(run: &Run) -> Result<Options, StoredError> {
    serde_json::from_value(run.options.clone()).map_err(|error| StoredError::Options(run.summary.id, error))
}

/// How far the run came.
pub fn status(run: &Run) -> Status {
    let (done, planned) = (run.summary.stored_trials, run.summary.planned_trials);
    match &run.summary.state {
        RunState::Complete => Status::Complete,
        RunState::Running => Status::Running { done, planned },
        RunState::Interrupted => Status::Interrupted { done, planned },
        RunState::Failed { reason } => Status::Failed { done, planned, reason: reason.clone() },
    }
}

/// How the repetition of each scenario ended.
///
/// # Errors
/// Where it is not told as any netrig does.
pub fn settled(run: &Run) -> Result<Vec<ScenarioCertainty>, StoredError> {
    let goals = run.goals.clone().map(serde_json::from_value).transpose();
    Ok(goals.map_err(|error| StoredError::Outcome(run.summary.id, error))?.unwrap_or_default())
}

/// The view of a run of a suite, or of another tool's test.
///
/// # Errors
/// Where its suite's text or its outcome cannot be read.
pub fn view(run: &Run, options: &Options) -> Result<RunView, StoredError> {
    if let Some(tool) = &options.tool {
        return Ok(tool::view(run, status(run), options, tool));
    }
    let suite = Suite::parse_stored(&run.suite_file, &run.suite_text)?;
    let mut suite = suite.with_before(&options.inside)?.again(&options.again)?;
    if options.quick {
        suite.hasten();
    }
    let settled = settled(run)?;
    // Also where the number of trials was fixed: the suite says how sure its figures have to be.
    let level = suite.level();
    let equal: Vec<CpuSet> = options.cpus.iter().filter_map(|list| list.parse().ok()).collect();
    // Where nodes do not share the machine equally, its trials tell.
    let cpus = |id: &str| match run.trials.iter().find(|trial| trial.scenario == id) {
        Some(trial) => trial.nodes.iter().map(|node| CpuSet::new(node.cpus.iter().map(|of| of.cpu))).collect(),
        None => equal.clone(),
    };
    let is_again = |id: &str| options.again.iter().any(|again| Suite::name_of_again(again) == id);
    let asked = |id: &str| options.only.is_empty() || options.only.iter().any(|only| only == id) || is_again(id);
    let chosen = |id: &str| asked(id) && options.why_left_out(id).is_none();
    let scenarios = suite
        .scenarios
        .iter()
        .filter(|scenario| chosen(&scenario.id))
        .map(|scenario| ScenarioView {
            id: scenario.id.clone(),
            name: scenario.name.clone(),
            about: scenario.about.clone(),
            notes: scenario.notes.clone(),
            topology: scenario.describe(&cpus(&scenario.id)),
            load: scenario.load_words(),
            plan: scenario.plan(),
            checks: scenario.checks,
            trials: run.trials.iter().filter(|trial| trial.scenario == scenario.id).cloned().collect(),
            certainty: certainty(settled.iter().find(|s| s.scenario == scenario.id)),
        })
        .collect();
    // A claim about a scenario that was left out on purpose says nothing.
    let asked_of: Vec<&Claim> =
        suite.claims.iter().filter(|claim| claim.figures().iter().all(|figure| asked(&figure.scenario))).collect();
    let planned = match options.timing.repeat {
        Repeat::Within(budget) => Some(budget.blocks),
        Repeat::Times(_) | Repeat::Until(_) => None,
    };
    let is_over = run.summary.state != RunState::Running;
    let rule = Rule { level, planned, is_over };
    let rulings = judge(&asked_of, &run.trials, &rule);
    let twice = options.aa.as_ref().or(options.again.first());
    let twice = twice.and_then(|id| suite.scenario(id));
    let aa = twice.and_then(|scenario| AaData::of(&suite, scenario, &run.trials, &rule));
    let (claims, judged) = asked_of
        .iter()
        .zip(rulings)
        .map(|(claim, ruling)| {
            let no_verdict = no_verdict(claim, options, &settled, &run.trials);
            ruled(claim, ruling, no_verdict, run, suite.study.is_some())
        })
        .unzip();
    Ok(RunView {
        id: run.summary.id.to_string(),
        suite: suite.name.clone(),
        suite_file: run.suite_file.clone(),
        suite_text: run.suite_text.clone(),
        title: suite.title.clone(),
        question: suite.question.clone(),
        answer: answer(&suite.answers, &run.trials, level),
        about: suite.about.clone(),
        started_unix_ms: run.summary.started_unix_ms,
        status: status(run),
        options: options.words(),
        cpus: options.cpus.clone(),
        phases: options.timing.phases,
        repetition: options.timing.repeat.to_string(),
        level,
        goal: match options.timing.repeat {
            Repeat::Times(_) | Repeat::Within(_) => None,
            Repeat::Until(goal) => Some(goal),
        },
        environment: run.environment.clone(),
        rig_cost: run.rig_cost.clone(),
        scenarios,
        left_out: options.left_out.iter().filter_map(|one| one.of(&asked)).collect(),
        tables: suite.tables.clone(),
        baseline: suite.baseline.clone(),
        claims,
        judged,
        aa,
        set_apart: None,
        turns: options.turns.clone(),
        peer: None,
        tool: None,
    })
}

/// A claim with its ruling, for readers and for programs.
fn ruled(
    claim: &Claim,
    ruling: Ruling,
    no_verdict: Option<NoVerdict>,
    run: &Run,
    is_studys: bool,
) -> (view::Claim, ClaimData) {
    let verdict = if no_verdict.is_some() { Verdict::Undecided } else { ruling.judgement.verdict };
    let mut data = ClaimData::new(claim, &ruling, verdict, is_studys);
    let open = match &no_verdict {
        Some(NoVerdict { reason, .. }) => Some(Open::Refused { reason: reason.clone() }),
        None => why_open(&ruling.judgement),
    };
    let mut words = ruling.judgement.words.clone();
    if let Some(why) = no_verdict {
        words += &format!("; {}", why.words);
    }
    // What each block took of the scenarios that the claim is about.
    let scenarios: BTreeSet<&str> = claim.figures().iter().map(|figure| figure.scenario.as_str()).collect();
    let each: Option<f64> = scenarios
        .iter()
        .map(|id| {
            let own: Vec<u64> = run.trials.iter().filter(|t| t.scenario == *id).map(|t| t.total_us).collect();
            (!own.is_empty()).then(|| own.iter().sum::<u64>() as f64 / own.len() as f64 / 1e6)
        })
        .sum();
    if let (Some(blocks), Some(needed), Some(each)) = (data.blocks, data.blocks_needed, each) {
        let seconds = f64::from(needed.saturating_sub(blocks)) * each;
        data.seconds_needed = Some(seconds);
        words += &format!(": {} more for its scenarios", minutes(Duration::from_secs_f64(seconds)));
    }
    words += &generator_bound(claim, &run.trials);
    let verdict = if data.differs_from_study { Verdict::Differs } else { verdict };
    let effect = Effect::of(ruling.judgement);
    (
        view::Claim {
            text: claim.text().to_owned(),
            expression: claim.expression().to_owned(),
            verdict,
            words,
            effect,
            open,
        },
        data,
    )
}

/// What kept a claim from having a verdict.
fn why_open(judgement: &Judgement) -> Option<Open> {
    match judgement {
        Judgement { verdict: Verdict::Holds | Verdict::Refuted, .. } => None,
        Judgement { effect: None, .. } => Some(Open::NotMeasured),
        Judgement { bound: Some(_), .. } => Some(Open::Limit),
        Judgement { interval: None, .. } => Some(Open::SingleTrial),
        _ => Some(Open::Across),
    }
}

/// What is said of a scenario's repetition.
pub fn certainty(settled: Option<&ScenarioCertainty>) -> Certainty {
    match settled.map(|s| &s.outcome) {
        Some(RepetitionEnd::Fixed | RepetitionEnd::TimeUp) => Certainty::Fixed,
        Some(RepetitionEnd::Reached | RepetitionEnd::Decided) => Certainty::Reached,
        Some(RepetitionEnd::NotReached(missed)) => Certainty::Missed(missed_words(missed)),
        Some(failed @ RepetitionEnd::Failed { .. }) => Certainty::Failed(failed.to_string()),
        Some(RepetitionEnd::Unfinished) | None => Certainty::Unfinished,
    }
}

/// What a claim about limits must say of limits that are the generator's own: those of what it drove may be higher.
fn generator_bound(claim: &Claim, trials: &[TrialRecord]) -> String {
    let bound = |trial: &&TrialRecord| {
        trial.search.as_ref().is_some_and(|search| search.bound.is_some())
            || trial.benchmark.as_ref().is_some_and(BenchmarkRecord::is_generator_bound)
    };
    let mut scenarios: Vec<&str> = claim
        .figures()
        .iter()
        .filter(|figure| matches!(figure.metric, Metric::Limit | Metric::LimitHeld))
        .filter(|figure| trials.iter().filter(|trial| trial.scenario == figure.scenario).any(|trial| bound(&trial)))
        .map(|figure| figure.scenario.as_str())
        .collect();
    scenarios.dedup();
    match scenarios.as_slice() {
        [] => String::new(),
        scenarios => format!("; generator-bound: {} may carry more than the generator can drive", scenarios.join(", ")),
    }
}
