//! The runs of a store in a list, those set apart by name that another machine seems to have made.

use std::collections::BTreeMap;

use rig_facts::record::{SetApart, is_apart};
use rig_facts::store::{RunCalibration, RunId, RunState, RunSummary, UnreadablePart, UnreadableRuns};
use rig_stats::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All runs of a store, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryData {
    pub runs: Vec<HistoryRun>,
    /// What of the store is damaged, and not among the runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedData>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DamagedData {
    /// Its number, where that is known.
    pub run: Option<i64>,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryRun {
    pub run: i64,
    pub label: Option<String>,
    pub suite: String,
    pub title: String,
    pub netrig_version: String,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// Null while the run works, and for one whose runner was killed.
    pub ended_unix_ms: Option<i64>,
    /// `running`, `complete`, `interrupted`, or `failed: ` and why.
    pub state: String,
    pub trials: u32,
    /// How long the same arithmetic took on a CPU around the trials, the median over them; null where it was not recorded.
    pub calibration_us: Option<f64>,
    /// Of a run whose calibration is not that of most others made by a build of the same kind: it says "other machine". Noise floors
    /// leave such runs out where they are unlike the run that is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_apart: Option<SetApart>,
}

impl HistoryData {
    pub fn of(runs: &[RunSummary], calibrated: &BTreeMap<RunId, RunCalibration>) -> Self {
        let apart = set_apart(calibrated);
        let run = |run: &RunSummary| HistoryRun {
            run: run.id.get(),
            label: run.label.as_ref().map(ToString::to_string),
            suite: run.suite.clone(),
            title: run.title.clone(),
            netrig_version: run.netrig_version.clone(),
            started_unix_ms: run.started_unix_ms,
            ended_unix_ms: run.ended_unix_ms,
            state: RunState::to_string(&run.state),
            trials: run.stored_trials,
            calibration_us: calibrated.get(&run.id).map(|calibrated| calibrated.work_ns / 1e3),
            set_apart: apart.get(&run.id).copied(),
        };
        Self { runs: runs.iter().map(run).collect(), damaged: Vec::new() }
    }

    /// With what could not be read.
    #[must_use]
    pub fn with_unread(self, unread: &[UnreadablePart]) -> Self {
        let damaged = unread.iter().map(|one| match one.what {
            UnreadableRuns::One(run) => DamagedData { run: Some(run.get()), why: one.why.clone() },
            _ => DamagedData { run: None, why: one.to_string() },
        });
        Self { damaged: damaged.collect(), ..self }
    }

    /// What is said below a list of them; `None` where no run is set apart.
    pub fn note(&self) -> Option<String> {
        let apart = self.runs.iter().filter(|run| run.set_apart.is_some()).count();
        (apart > 0).then(|| {
            format!(
                "{} set apart: by calibration another machine than that of most runs.\n\
                 Noise floors leave out what was made on another machine.",
                counted(apart, "run is", "runs are"),
            )
        })
    }
}

/// The runs whose machine was not that of most, by calibration. A build without optimization takes longer for the same arithmetic, so
/// that builds of a kind are looked at by themselves.
pub fn set_apart(calibrated: &BTreeMap<RunId, RunCalibration>) -> BTreeMap<RunId, SetApart> {
    let mut kinds: BTreeMap<&str, Vec<(RunId, f64)>> = BTreeMap::new();
    for (id, run) in calibrated {
        kinds.entry(&run.build_kind).or_default().push((*id, run.work_ns));
    }
    let mut apart = BTreeMap::new();
    for runs in kinds.values() {
        let like = |own: f64| runs.iter().filter(|(_, other)| !is_apart(*other / own)).count();
        // The run that most runs are like; `max_by_key` takes the latest of equals, since after a lasting change the new machine is
        // the usual one.
        let Some((usual, n)) = runs.iter().map(|(_, own)| (*own, like(*own))).max_by_key(|(_, n)| *n) else { continue };
        // A run that is like no other shows nothing usual.
        if n < 2 {
            continue;
        }
        for (id, own) in runs.iter().filter(|(_, own)| is_apart(own / usual)) {
            apart.insert(*id, SetApart { slower_percent: 100.0 * (own / usual - 1.0), usual_runs: n });
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(times: &[(f64, &str)]) -> BTreeMap<RunId, RunCalibration> {
        let run = |(index, (work_ns, kind)): (usize, &(f64, &str))| {
            let id: RunId = serde_json::from_value((index + 1).into()).unwrap();
            (id, RunCalibration { work_ns: *work_ns, build_kind: (*kind).to_owned() })
        };
        times.iter().enumerate().map(run).collect()
    }

    fn apart(times: &[(f64, &str)]) -> Vec<(i64, i64)> {
        let found = set_apart(&runs(times));
        found.iter().map(|(id, apart)| (id.get(), apart.slower_percent.round() as i64)).collect()
    }

    #[test]
    fn what_most_runs_have_is_usual() {
        let release = |times: &[f64]| apart(&times.iter().map(|time| (*time, "release")).collect::<Vec<_>>());
        assert_eq!(release(&[100.0, 101.0, 120.0, 99.0, 80.0]), [(3, 21), (5, -19)]);
        assert_eq!(release(&[100.0, 101.0, 99.0]), []);
        assert_eq!(release(&[100.0, 130.0]), [], "which of two is usual cannot be known");
        assert_eq!(
            release(&[100.0, 100.0, 130.0, 130.0]),
            [(1, -23), (2, -23)],
            "the later ones are what is usual now"
        );
        assert_eq!(release(&[]), []);
        assert_eq!(apart(&[(100.0, "release"), (101.0, "release"), (400.0, "debug"), (401.0, "debug")]), []);
    }

    #[test]
    fn those_set_apart_are_named() {
        let calibrated = runs(&[(1e5, "a"), (1e5, "a"), (1.3e5, "a")]);
        let summary = |id: &RunId| RunSummary {
            id: *id,
            label: None,
            suite: "layers".into(),
            title: "x".into(),
            netrig_version: "0.1.0".into(),
            started_unix_ms: 0,
            ended_unix_ms: None,
            state: RunState::Complete,
            planned_trials: 1,
            stored_trials: 1,
        };
        let data = HistoryData::of(&calibrated.keys().map(summary).collect::<Vec<_>>(), &calibrated);
        assert_eq!(data.runs[2].calibration_us, Some(130.0));
        let note = data.note().unwrap();
        assert!(note.starts_with("1 run is set apart: "), "{note}");
        assert_eq!(data.runs[2].set_apart.unwrap().to_string(), "30 % slower");
        assert!(note.lines().all(|line| line.len() <= 80), "{note}");
        assert_eq!(HistoryData::of(&[summary(calibrated.keys().next().unwrap())], &BTreeMap::new()).note(), None);
    }
}
