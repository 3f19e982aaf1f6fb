//! The fewest CPUs that suffice when every flow's rate is known beforehand.
//!
//! Packing by first fit decreasing: at most 11/9 of the least number and one more (Dósa, 2007), so what is compared with it
//! may look better than it is by as much; never worse.

use serde::{Deserialize, Serialize};

/// What one interface demands now.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Load of each entry, as a fraction of one CPU.
    pub loads: Vec<f64>,
    /// Load of distributing all of it; 0: hardware does.
    pub distributing: f64,
    /// The base's place among the CPUs; none: whichever suits.
    pub base: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OptimalPlacement {
    pub cpus: u32,
    /// Share of the demand that can be met.
    pub share: f64,
}

/// The fewest CPUs that carry the demands, none above `hi`; where there are too few for that, all that they carry when full.
/// `other` has the other work of each CPU that may be used.
pub fn best(demands: &[Demand], other: &[f64], hi: f64) -> OptimalPlacement {
    if demands.iter().all(|demand| demand.loads.iter().all(|load| *load <= 0.0)) {
        return OptimalPlacement { cpus: 0, share: 1.0 };
    }
    if let Some(cpus) = fewest(demands, other, 1.0, hi, hi) {
        return OptimalPlacement { cpus, share: 1.0 };
    }
    // Distribution alone may fill a base, and an entry a CPU; the others keep their room.
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..14 {
        let share = (low + high) / 2.0;
        if fewest(demands, other, share, 1.0, 1.0).is_some() { low = share } else { high = share }
    }
    let cpus = fewest(demands, other, low, hi, 1.0).or_else(|| fewest(demands, other, low, 1.0, 1.0));
    OptimalPlacement { cpus: cpus.unwrap_or_else(|| u32::try_from(other.len()).unwrap_or(u32::MAX)), share: low }
}

/// `alone` is what a CPU may be loaded to that has nothing but distributing, or a single entry.
fn fewest(demands: &[Demand], other: &[f64], share: f64, hi: f64, alone: f64) -> Option<u32> {
    let count = other.len();
    // The CPUs with least other work first: what is packed fits there if anywhere.
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| other[*a].total_cmp(&other[*b]).then(a.cmp(b)));
    let mut bins: Vec<f64> = other.to_vec();
    let mut used = vec![false; count];
    let mut items = Vec::new();
    for demand in demands {
        let sum: f64 = demand.loads.iter().sum::<f64>() * share;
        if sum <= 0.0 {
            continue;
        }
        let base = demand.base.unwrap_or(*order.first()?);
        // A single entry cannot be spread: it has its CPU to itself, and costs nothing to distribute there.
        let single = demand.loads.iter().filter(|load| **load > 0.0).count() == 1 && bins[base] == 0.0;
        if bins[base] + sum <= if single { alone } else { hi } {
            bins[base] += sum;
            used[base] = true;
            continue;
        }
        if demand.distributing > 0.0 {
            bins[base] += demand.distributing * share;
            if bins[base] > alone {
                return None;
            }
            used[base] = true;
        }
        items.extend(demand.loads.iter().map(|load| load * share).filter(|load| *load > 0.0));
    }
    items.sort_by(|a, b| b.total_cmp(a));
    for item in items {
        let fits = |at: &usize| bins[*at] + item <= hi;
        let at = (0..count).filter(|at| used[*at]).find(fits).or_else(|| {
            let empty = |at: &usize| !used[*at] && (bins[*at] + item <= hi.max(if item > hi { alone } else { 0.0 }));
            order.iter().copied().find(empty)
        })?;
        bins[at] += item;
        used[at] = true;
    }
    u32::try_from(used.iter().filter(|used| **used).count()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: f64 = 7.46;
    const DISTRIBUTE: f64 = 21.1;

    fn even(gbits: f64, entries: usize) -> Demand {
        Demand {
            loads: vec![gbits / PROCESS / entries as f64; entries],
            distributing: gbits / DISTRIBUTE,
            base: Some(0),
        }
    }

    #[test]
    fn the_guides_loads_need_what_it_says() {
        let of = |gbits| best(&[even(gbits, 64)], &[0.0; 40], 0.85);
        assert_eq!(of(5.5), OptimalPlacement { cpus: 1, share: 1.0 });
        assert_eq!(of(10.3), OptimalPlacement { cpus: 3, share: 1.0 });
        let full = of(40.0);
        assert_eq!(full.cpus, 5);
        assert!((full.share * 40.0 - DISTRIBUTE).abs() < 0.1, "{full:?}");
        assert_eq!(of(0.0).cpus, 0);
    }

    #[test]
    fn an_entry_that_needs_a_whole_cpu_has_it() {
        let demand = Demand { loads: vec![0.95, 0.2, 0.2], distributing: 0.0, base: None };
        let found = best(std::slice::from_ref(&demand), &[0.0; 8], 0.85);
        assert_eq!(found, OptimalPlacement { cpus: 2, share: found.share });
        assert!(found.share > 0.89, "{found:?}");
        let two = Demand { loads: vec![1.9, 0.2], ..demand };
        assert!(best(&[two], &[0.0; 8], 0.85).share < 0.53);
    }

    #[test]
    fn other_work_counts() {
        let demand = Demand { base: None, distributing: 0.0, ..even(5.5, 64) };
        assert_eq!(best(std::slice::from_ref(&demand), &[0.6, 0.0], 0.85).cpus, 1);
        assert_eq!(best(std::slice::from_ref(&demand), &[0.4, 0.4], 0.85).cpus, 2);
    }
}
