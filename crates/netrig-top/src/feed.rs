//! Samples as they come, and what is kept of each machine for the screen: this one's, read here, or those of hosts.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use rig_cli::exit::{Exit, Failure};

use crate::between::between;
use crate::history::History;
use crate::hosts::{HostEvent, Hosts};
use crate::reading::Reading;
use crate::sample::Sample;
use crate::source::Source;

/// How much later than expected a sample of a host comes before that is told.
const LATE: Duration = Duration::from_secs(2);

/// How long keys are waited for, until it is looked whether samples of hosts have come.
const GLANCE_AT_HOSTS: Duration = Duration::from_millis(50);

/// Where samples come from.
#[derive(Debug)]
pub(crate) enum Feed {
    Local(Box<LocalSampler>),
    Hosts(Hosts),
}

/// This machine.
#[derive(Debug)]
pub(crate) struct LocalSampler {
    source: Source,
    before: Reading,
    next: Instant,
    /// Samples that are still to be shown.
    left: Option<u64>,
}

/// A machine on the screen.
#[derive(Debug, Default)]
pub(crate) struct Pane {
    /// Of a host.
    pub name: Option<String>,
    pub history: History,
    /// What is shown instead, while it is.
    pub frozen: Option<History>,
    /// The number of the interface, or of the balancer's service, that is chosen.
    pub index: usize,
    /// A sample has come that was not shown.
    pub is_fresh: bool,
    /// No more come: all that were asked for have, or why.
    pub ended: Option<Result<(), String>>,
    /// When the last one came.
    heard: Option<Instant>,
}

impl LocalSampler {
    /// # Errors
    /// As [`Source::read`].
    pub(crate) fn new(mut source: Source, interval: Duration, left: Option<u64>) -> Result<Self, Failure> {
        let before = source.read()?;
        Ok(Self { source, before, next: Instant::now() + interval, left })
    }

    /// What happened until now is no interval.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(crate) fn begin_anew(&mut self, interval: Duration) -> Result<(), Failure> {
        self.before = self.source.read()?;
        self.pace(interval);
        Ok(())
    }

    pub(crate) fn pace(&mut self, interval: Duration) {
        self.next = Instant::now() + interval;
    }

    fn sample(&mut self, interval: Duration) -> Result<Sample, Failure> {
        let now = self.source.read()?;
        let sample = between(&self.before, &now);
        self.before = now;
        self.left = self.left.map(|left| left.saturating_sub(1));
        // Samples that a delay has skipped are not made up for.
        self.next = (self.next + interval).max(Instant::now());
        Ok(sample)
    }
}

impl Feed {
    /// A pane for each machine.
    pub(crate) fn panes(&self) -> Vec<Pane> {
        match self {
            Self::Local(_) => vec![Pane::default()],
            Self::Hosts(hosts) => {
                let pane = |name: &String| Pane { name: Some(name.clone()), ..Pane::default() };
                hosts.names().iter().map(pane).collect()
            }
        }
    }

    /// Until when nothing is to be taken.
    pub(crate) fn rest(&self) -> Duration {
        match self {
            Self::Local(here) => here.next.saturating_duration_since(Instant::now()),
            Self::Hosts(_) => GLANCE_AT_HOSTS,
        }
    }

    /// Has panes take what comes next, for which it waits no longer than `limit`; whether something came.
    ///
    /// # Errors
    /// Where this machine's source has nothing more to tell.
    pub(crate) fn take(&mut self, panes: &mut [Pane], interval: Duration, limit: Duration) -> Result<bool, Failure> {
        match self {
            Self::Local(here) => {
                let wait = here.next.saturating_duration_since(Instant::now());
                std::thread::sleep(wait.min(limit));
                if wait > limit {
                    return Ok(false);
                }
                let sample = here.sample(interval)?;
                let is_last = here.left == Some(0);
                if let [pane] = panes {
                    pane.take(HostEvent::Sample(Box::new(sample)));
                    pane.ended = is_last.then_some(Ok(()));
                }
                Ok(true)
            }
            Self::Hosts(hosts) => {
                let mut event = hosts.next(limit);
                let came = event.is_some();
                while let Some((number, heard)) = event {
                    if let Some(pane) = panes.get_mut(number) {
                        pane.take(heard);
                    }
                    event = hosts.next(Duration::ZERO);
                }
                Ok(came)
            }
        }
    }
}

impl Pane {
    fn take(&mut self, event: HostEvent) {
        self.heard = Some(Instant::now());
        match event {
            HostEvent::Sample(sample) => {
                self.history.push(*sample);
                self.is_fresh = true;
            }
            HostEvent::Ended(result) => self.ended = Some(result),
        }
    }

    pub(crate) fn shown(&self) -> &History {
        self.frozen.as_ref().unwrap_or(&self.history)
    }

    /// For how long nothing has come of a host that should have been heard.
    pub(crate) fn silence(&self, interval: Duration) -> Option<Duration> {
        let silent = self.heard?.elapsed();
        (self.name.is_some() && self.ended.is_none() && silent > interval + LATE).then_some(silent)
    }

    /// Whether no more come for another reason than that all have.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.ended, Some(Err(_)))
    }
}

/// What came of it: all samples that were asked for, or an error that names the hosts of which they did not all come.
///
/// # Errors
/// Where a host was lost or refused.
pub(crate) fn outcome<'a>(ended: impl Iterator<Item = (&'a str, &'a Result<(), String>)>) -> Result<Exit, Failure> {
    let lost = ended.filter_map(|(name, result)| Some(format!("{name}: {}", result.as_ref().err()?)));
    let lost: Vec<String> = lost.collect();
    match lost.is_empty() {
        true => Ok(Exit::Done),
        false => Err(Failure::new(Exit::Failed, anyhow!("{}", lost.join("; ")))),
    }
}
