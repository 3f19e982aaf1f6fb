//! Whether both runs had the same machine, by the calibration around their trials.

use rig_facts::record::{Calibration, is_apart};
use rig_stats::sample::Sample;

use super::{Conditions, Difference};
use crate::export::RunData;

/// The middle of all trials' calibration of the CPUs, nanoseconds; `None` of runs that recorded none.
pub(super) fn work_ns(run: &RunData) -> Option<f64> {
    let trials = run.scenarios.iter().flat_map(|scenario| &scenario.trials);
    let calibrations =
        trials.filter_map(|trial| serde_json::from_value::<Calibration>(trial["calibration"].clone()).ok());
    calibrations.filter_map(|calibration| calibration.work_ns()).collect::<Sample>().median()
}

/// How much longer the new run's machine took, as a ratio, where that is so much that it was another machine.
pub(super) fn change(old: &Conditions, new: &Conditions) -> Option<f64> {
    let ratio = new.work_ns? / old.work_ns?;
    is_apart(ratio).then_some(ratio)
}

/// The difference of the calibrations, for the reader; also where only one of the runs has one.
pub(super) fn difference(old: &Conditions, new: &Conditions) -> Option<Difference> {
    let words = |ns: Option<f64>| ns.map_or_else(|| "not recorded".to_owned(), |ns| format!("{:.1} us", ns / 1e3));
    let (one, other) = (old.work_ns, new.work_ns);
    let differs = change(old, new).is_some() || one.is_some() != other.is_some();
    differs.then(|| Difference {
        what: "Machine, by the same arithmetic on its CPUs".to_owned(),
        old: words(one),
        new: words(other),
    })
}
