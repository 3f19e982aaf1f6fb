//! Flows that have been silent for too long are ended beside all else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rig_datapath::vrouter::{Sweeper, Timeouts};
use tracing::warn;

/// From one round to the next.
const REST: Duration = Duration::from_secs(1);

/// Goes on as long as it lives.
#[derive(Debug)]
pub(super) struct SweepThread {
    timeouts: Arc<Mutex<Timeouts>>,
    ended: Arc<AtomicU64>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl SweepThread {
    /// The table has `room` for so many connections.
    pub(super) fn start(sweeper: Sweeper, timeouts: Timeouts, room: u32) -> std::io::Result<Self> {
        let timeouts = Arc::new(Mutex::new(timeouts));
        let ended = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = channel();
        let (hold, count) = (Arc::clone(&timeouts), Arc::clone(&ended));
        let body = move || {
            let mut trouble = None;
            while stopped.recv_timeout(REST) == Err(RecvTimeoutError::Timeout) {
                let timeouts = *hold.lock().unwrap_or_else(PoisonError::into_inner);
                let swept = sweeper.runs_short(room).and_then(|runs_short| sweeper.sweep(&timeouts, runs_short));
                let swept = swept.map_err(|error| error.to_string());
                count.fetch_add(*swept.as_ref().unwrap_or(&0), Ordering::Relaxed);
                let now = swept.err();
                if let Some(error) = now.as_ref().filter(|_| now != trouble) {
                    warn!("cannot sweep the table, flows do not end: {error}");
                }
                trouble = now;
            }
        };
        let thread = std::thread::Builder::new().name("sweep".into()).spawn(body)?;
        Ok(Self { timeouts, ended, thread: Some((stop, thread)) })
    }

    pub(super) fn set(&self, timeouts: Timeouts) {
        *self.timeouts.lock().unwrap_or_else(PoisonError::into_inner) = timeouts;
    }

    /// Connections that it has ended.
    pub(super) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Drop for SweepThread {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
