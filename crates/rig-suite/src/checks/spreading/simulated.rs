//! The activities of the checks in the simulator, with the costs that a trial measured.

use rig_spread::simulate::guide::{Activity, Errors, Load, Loads, MeasuredActivity, Name, activities, errors};
use rig_spread::simulate::{Costs, Flow};

use super::seen::{SpreaderTrial, Time, last, seconds};
use super::{BURST_COALESCED, COALESCE, FULL, SECOND, STATIC_FULL, STATIC_LOW};

/// Machines that the guide's activities are simulated for.
const MACHINES: [u32; 4] = [8, 16, 32, 64];
/// Into so many flows a load is divided, about.
const FLOWS: f64 = 64.0;

/// What a trial cost, and what the simulator makes of that.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    pub costs: Costs,
    pub entries: u32,
    /// On as many CPUs as the trial had, with its loads and the other work that was on them.
    pub same: Vec<Activity>,
    pub measured: Vec<MeasuredActivity>,
    pub errors: Vec<Errors>,
    /// With the guide's loads, by the number of CPUs.
    pub larger: Vec<(u32, Vec<Activity>)>,
}

/// Each activity with the phase that it is.
const PHASES: [(Name, &str); 6] = [
    (Name::StaticLow, STATIC_LOW),
    (Name::StaticFull, STATIC_FULL),
    (Name::Coalescing, COALESCE),
    (Name::SecondLoad, SECOND),
    (Name::BurstFromParked, FULL),
    (Name::BurstFromCoalesced, BURST_COALESCED),
];

impl Simulated {
    /// None where the trial has not all phases, or too few packets to tell costs from.
    pub fn of(seen: &SpreaderTrial<'_>) -> Option<Self> {
        let total =
            |what: &str| -> f64 { seen.cpus().iter().map(|cpu| seen.total(&format!("cpu{cpu}_{what}")) as f64).sum() };
        let packets = total("packets");
        let bytes = seen.received_bytes() as f64 / (seen.received() as f64).max(1.0);
        let costs = Costs::measured(total("processing_ns") / packets, total("distributing_ns") / packets, bytes);
        costs.check().ok()?;
        let load = |phase: &str| Some(load(seen, &half(&seen.time(phase)?)));
        let loads = Loads {
            low: load(STATIC_LOW)?,
            middle: load(SECOND)?,
            full: load(FULL)?,
            flows: flows(&seen.entries(&seen.time(STATIC_LOW)?)),
        };
        let entries = seen.history.table.len() as u32;
        let cpus = seen.cpus().len() as u32;
        if cpus < 2 || entries < 2 {
            return None;
        }
        let same = activities(cpus, entries, &costs, &loads);
        let measured = PHASES.map(|(name, phase)| Some(measured(seen, name, &half(&seen.time(phase)?))));
        let measured: Vec<MeasuredActivity> = measured.into_iter().collect::<Option<_>>()?;
        let errors = errors(&same, &measured);
        let larger = |cpus: u32| (cpus, activities(cpus, entries, &costs, &Loads::like_the_guides(&costs, cpus)));
        Some(Self { costs, entries, same, measured, errors, larger: MACHINES.map(larger).to_vec() })
    }
}

/// The last half, in which all has settled where it does.
fn half(time: &Time) -> Time {
    last(time, (time.end - time.start) / 2)
}

/// Flows of equal rates that fall into entries as packets did.
fn flows(entries: &[f64]) -> Vec<Flow> {
    let all: f64 = entries.iter().sum();
    let count = |packets: f64| (packets / all.max(1.0) * FLOWS).round() as usize;
    let of = |(entry, packets): (usize, &f64)| {
        std::iter::repeat_n(Flow { hash: entry as u64, rate: 0.0, elastic: true }, count(*packets))
    };
    entries.iter().enumerate().flat_map(of).collect()
}

fn load(seen: &SpreaderTrial<'_>, time: &Time) -> Load {
    let busy = |cpu: u32| seen.count(&format!("cpu{cpu}_busy_ns"), time) / 1e9 / seconds(time);
    let other =
        |(cpu, distributing, processing): &(u32, f64, f64)| (busy(*cpu) - distributing - processing).clamp(0.0, 1.0);
    Load { rate: rate(seen, time), other: seen.receiving(time).iter().map(other).collect() }
}

/// Packets per second.
fn rate(seen: &SpreaderTrial<'_>, time: &Time) -> f64 {
    seen.entries(time).iter().sum::<f64>() / seconds(time)
}

fn measured(seen: &SpreaderTrial<'_>, name: Name, time: &Time) -> MeasuredActivity {
    MeasuredActivity {
        name,
        carried_pps: rate(seen, time),
        cpus: seen.engaged(time).len() as f64,
        cpu_time: seen.cores(time),
    }
}
