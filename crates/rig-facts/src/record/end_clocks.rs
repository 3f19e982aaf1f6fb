//! How far the clocks of a load's two ends are apart, where these are on two machines.

use std::fmt;

use rig_load::exchange::PathOffset;
use rig_testbed::host::ClockOffset;
use serde::{Deserialize, Serialize};

/// The clock of the node `to` less that of `from`, when the load began and after it had ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndClocks {
    pub from: String,
    pub to: String,
    /// The better known of the next two, or, where they contradict each other, what was asked. By that of the begin, times of one end were made times of the other.
    pub at_begin: ClockOffset,
    pub at_end: ClockOffset,
    /// By exchanges over the load's own path, `None` where they were not answered.
    pub path_at_begin: Option<PathOffset>,
    pub path_at_end: Option<PathOffset>,
    /// By questions beside the load: of the runner to both hosts, or of the client over the control connection.
    pub asked_at_begin: ClockOffset,
    pub asked_at_end: ClockOffset,
    /// How much faster `to`'s clock ran, parts in a billion, and how wrong that can be: what changed from begin to end.
    pub drift_ppb: f64,
    pub drift_bound_ppb: f64,
    /// Difference of a time of the one and a time of the other, by the offset of the begin, is not further from the truth than this at
    /// any moment of the load, as long as their drift stays the same meanwhile.
    pub bound_ns: u64,
}

/// What keeps the clocks of two machines from being known better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundLimit {
    /// Exchanges over the load's own path were not answered.
    NotAnswered,
    /// What they told cannot be true if the questions beside the load are.
    Contradicted,
    /// The shortest round trip was that long.
    RoundTrips,
    /// One clock ran faster than the other while the load ran.
    Drift,
}

impl fmt::Display for BoundLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAnswered => "exchanges over the load's own path were not answered",
            Self::Contradicted => "exchanges over the load's own path contradicted the questions beside it",
            Self::RoundTrips => "the shortest round trip by which they are compared is that long",
            Self::Drift => "one ran faster than the other while the load ran",
        })
    }
}

/// One of two moments at which offsets are found out.
#[derive(Debug, Clone, Copy)]
pub struct OffsetReading {
    /// By a clock that is used for both moments.
    pub at_ns: u64,
    pub path: Option<PathOffset>,
    pub asked: ClockOffset,
}

impl OffsetReading {
    /// The better known, if both can be true. Exchanges are datagrams that no key protects: where these contradict the questions, the
    /// questions hold.
    pub fn best(&self) -> ClockOffset {
        let asked = self.asked;
        let agrees = |path: &ClockOffset| path.ns.abs_diff(asked.ns) <= path.bound_ns.saturating_add(asked.bound_ns);
        let path = self.path.map(|path| ClockOffset { ns: path.ns, bound_ns: path.bound_ns });
        path.filter(|path| path.bound_ns <= asked.bound_ns && agrees(path)).unwrap_or(asked)
    }
}

impl EndClocks {
    /// Whether both offsets are by the load's own path.
    pub fn is_by_path(&self) -> bool {
        let is = |used: ClockOffset, path: Option<PathOffset>| {
            path.is_some_and(|path| path.ns == used.ns && path.bound_ns == used.bound_ns)
        };
        is(self.at_begin, self.path_at_begin) && is(self.at_end, self.path_at_end)
    }

    /// What the bound is mostly of.
    pub fn limit(&self) -> BoundLimit {
        let apart = self.at_begin.ns.abs_diff(self.at_end.ns);
        let (begin, end) = (
            (self.at_begin, self.path_at_begin, self.asked_at_begin),
            (self.at_end, self.path_at_end, self.asked_at_end),
        );
        let (used, path, asked) = if begin.0.bound_ns > end.0.bound_ns { begin } else { end };
        match path {
            // Closer, both can be of clocks that keep step.
            _ if apart > begin.0.bound_ns.saturating_add(end.0.bound_ns) => BoundLimit::Drift,
            None => BoundLimit::NotAnswered,
            Some(path) if path.bound_ns > asked.bound_ns || path.bound_ns == used.bound_ns => BoundLimit::RoundTrips,
            Some(_) => BoundLimit::Contradicted,
        }
    }

    pub fn between(from: &str, to: &str, begin: &OffsetReading, end: &OffsetReading) -> Self {
        let (at_begin, at_end) = (begin.best(), end.best());
        let changed = i128::from(at_end.ns) - i128::from(at_begin.ns);
        let per_billion = 1e9 / end.at_ns.saturating_sub(begin.at_ns).max(1) as f64;
        // The offset moved along a line from one to the other, each of which is known to its own bound.
        let away = u64::try_from(changed.unsigned_abs()).unwrap_or(u64::MAX);
        Self {
            from: from.to_owned(),
            to: to.to_owned(),
            at_begin,
            at_end,
            path_at_begin: begin.path,
            path_at_end: end.path,
            asked_at_begin: begin.asked,
            asked_at_end: end.asked,
            drift_ppb: changed as f64 * per_billion,
            drift_bound_ppb: (at_begin.bound_ns as f64 + at_end.bound_ns as f64) * per_billion,
            bound_ns: at_begin.bound_ns.max(away.saturating_add(at_end.bound_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(ns: i64, bound_ns: u64) -> PathOffset {
        PathOffset { at_ns: 0, ns, bound_ns, exchanges: 64, stamped: 64, stepped: 0 }
    }

    fn reading(at_ns: u64, path: Option<PathOffset>, ns: i64, bound_ns: u64) -> OffsetReading {
        OffsetReading { at_ns, path, asked: ClockOffset { ns, bound_ns } }
    }

    #[test]
    fn the_better_known_is_used() {
        let begin = reading(0, Some(path(1_000, 10)), 1_030, 40);
        let end = reading(10_000_000_000, None, 1_500, 60);
        let clocks = EndClocks::between("a", "b", &begin, &end);
        assert_eq!((clocks.at_begin.ns, clocks.at_end.ns), (1_000, 1_500));
        assert_eq!((clocks.drift_ppb, clocks.drift_bound_ppb, clocks.bound_ns), (50.0, 7.0, 560));
        let clocks = EndClocks::between("a", "b", &reading(0, Some(path(1, 50)), 2, 40), &end);
        assert_eq!(clocks.at_begin, ClockOffset { ns: 2, bound_ns: 40 });
    }

    #[test]
    fn a_path_that_contradicts_the_questions_is_not_believed() {
        let best = |path_ns, bound_ns| reading(0, Some(path(path_ns, bound_ns)), 0, 100_000).best();
        assert_eq!(best(7_000_000_000, 1_000), ClockOffset { ns: 0, bound_ns: 100_000 });
        assert_eq!(best(-101_001, 1_000).ns, 0);
        assert_eq!(best(-101_000, 1_000), ClockOffset { ns: -101_000, bound_ns: 1_000 });
        let begin = reading(0, Some(path(7_000_000_000, 1_000)), 0, 100_000);
        let clocks = EndClocks::between("a", "b", &begin, &OffsetReading { at_ns: 1_000_000_000, ..begin });
        assert_eq!((clocks.at_begin.ns, clocks.bound_ns, clocks.is_by_path()), (0, 100_000, false));
    }

    #[test]
    fn a_wide_bound_has_a_reason() {
        let of = |begin: OffsetReading, end: OffsetReading| EndClocks::between("a", "b", &begin, &end).limit();
        let at = |path, bound_ns| reading(0, path, 0, bound_ns);
        let known = at(Some(path(0, 10)), 100);
        assert_eq!(of(at(None, 100), at(None, 90)), BoundLimit::NotAnswered);
        assert_eq!(of(known, at(None, 100)), BoundLimit::NotAnswered);
        assert_eq!(of(at(Some(path(7_000, 10)), 100), known), BoundLimit::Contradicted);
        assert_eq!(of(known, known), BoundLimit::RoundTrips);
        assert_eq!(of(at(Some(path(0, 200)), 100), known), BoundLimit::RoundTrips);
        assert_eq!(of(known, at(Some(path(20, 10)), 100)), BoundLimit::RoundTrips);
        assert_eq!(of(known, at(Some(path(21, 10)), 100)), BoundLimit::Drift);
        assert_eq!(of(at(None, 90), reading(0, None, 150, 100)), BoundLimit::NotAnswered);
    }

    proptest! {
        /// Clocks that drift evenly, each offset found as wrong as it may be: times of the load are within the bound.
        #[test]
        fn the_bound_holds_all_the_time(
            offset in -1_000_000_000_000i64..1_000_000_000_000,
            ppm in -300i64..300,
            lasts in 1u64..100_000_000_000,
            bounds in (0u64..1_000_000, 0u64..1_000_000),
            wrong in (-1.0..1.0, -1.0..1.0),
            at in 0.0..1.0,
        ) {
            let truth = |at: u64| offset + (i128::from(ppm) * i128::from(at) / 1_000_000) as i64;
            let found = |at: u64, bound: u64, wrong: f64| path(truth(at) + (bound as f64 * wrong) as i64, bound);
            let begin = reading(0, Some(found(0, bounds.0, wrong.0)), 0, u64::MAX);
            let end = reading(lasts, Some(found(lasts, bounds.1, wrong.1)), 0, u64::MAX);
            let clocks = EndClocks::between("a", "b", &begin, &end);
            let now = truth((lasts as f64 * at) as u64);
            prop_assert!(clocks.at_begin.ns.abs_diff(now) <= clocks.bound_ns + 1, "{clocks:?} {now}");
            let drift = (clocks.drift_ppb - ppm as f64 * 1000.0).abs();
            prop_assert!(drift <= clocks.drift_bound_ppb + 1e9 / lasts as f64, "{clocks:?}");
        }

        #[test]
        fn nothing_overflows(one: (u64, i64, u64), other: (u64, i64, u64)) {
            let of = |(at, ns, bound)| reading(at, None, ns, bound);
            let _ = EndClocks::between("a", "b", &of(one), &of(other));
        }
    }
}
