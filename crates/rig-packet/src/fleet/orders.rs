//! What the control side tells all threads: written rarely, looked at in every pass.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::Nanos;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Order {
    /// Before this time clients open nothing; `None`: not yet said.
    pub open_from: Option<Nanos>,
    /// When winding down begins.
    pub until: Option<Nanos>,
    /// From when until when what is due is measured.
    pub window: Option<(Nanos, Nanos)>,
    /// What is to be added to a time of the peer's clock.
    pub peer_clock_ns: i64,
    /// From when on rates are those of the plan times this.
    pub rate: Option<(Nanos, f64)>,
    pub stop: bool,
}

#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Grows with each change, so that a pass reads one word that no thread writes to in between.
    version: AtomicU32,
    order: Mutex<Order>,
}

impl Orders {
    pub fn change(&self, change: impl FnOnce(&mut Order)) {
        let mut order = lock(&self.order);
        change(&mut order);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// What is ordered, if it is something else than at version `seen`.
    #[inline]
    pub fn news(&self, seen: &mut u32) -> Option<Order> {
        let version = self.version.load(Ordering::Acquire);
        if version == *seen {
            return None;
        }
        *seen = version;
        Some(*lock(&self.order))
    }
}

/// A thread that panicked while it held the lock left nothing half-done: values are put in place whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
