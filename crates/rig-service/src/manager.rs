//! What the service manager that has started the process is told, as sd_notify(3) has it: that it is ready, reads its settings again,
//! is alive and ends. Without one (`NOTIFY_SOCKET` is not set) nothing is said.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tracing::warn;

/// Tells the manager that the process is ready.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Tells the manager that the process ends.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("cannot tell the service manager ($NOTIFY_SOCKET) how it goes: {error}");
    }
}

/// The manager of a service, as long as it works.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    is_there: bool,
    /// It ends what does not say so often that it is alive (`WatchdogSec=`).
    alive: Option<(Duration, Instant)>,
}

impl ServiceManager {
    /// Of the process; a service without files on the machine has none, even where the one that has started it does.
    pub(crate) fn of_process() -> Self {
        // Twice in the time allowed, as sd_watchdog_enabled(3) recommends.
        let alive = sd_notify::watchdog_enabled().map(|most| (most / 2, Instant::now()));
        Self { is_there: true, alive }
    }

    pub(crate) fn ready(&self) {
        if self.is_there {
            ready();
        }
    }

    /// Has it know that settings are read again while `reload` does so.
    pub(crate) fn during_reload<T>(&self, reload: impl FnOnce() -> T) -> T {
        if !self.is_there {
            return reload();
        }
        // Type=notify-reload, which systemd has since version 253, asks for the time.
        let began: Vec<NotifyState<'_>> =
            [NotifyState::Reloading].into_iter().chain(NotifyState::monotonic_usec_now()).collect();
        notify(&began);
        let result = reload();
        ready();
        result
    }

    pub(crate) fn stopping(&self) {
        if self.is_there {
            stopping();
        }
    }

    /// Says that it is alive if that is due, and when it is next.
    pub(crate) fn alive(&mut self) -> Option<Instant> {
        let (every, next) = self.alive.as_mut()?;
        let now = Instant::now();
        if now >= *next {
            notify(&[NotifyState::Watchdog]);
            *next = now + *every;
        }
        Some(*next)
    }
}
