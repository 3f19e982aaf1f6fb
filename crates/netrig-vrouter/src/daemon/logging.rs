//! What rules have logged: taken from the datapath as it comes, and kept for who asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rig_datapath::vrouter::{Action, Config, Log, LogRecord, Router};
use rig_wire::protocol::{ICMP, ICMPV6};
use tracing::warn;

use super::trace::words;
use crate::compile::Numbers;
use crate::message::{self, LogEntry};

/// From one look to the next: until then the datapath's own room has to do, for 6,500 of them.
const REST: Duration = Duration::from_millis(100);
/// What is kept.
const KEPT: usize = 4096;

/// Goes on as long as it lives.
#[derive(Debug)]
pub(super) struct Logging {
    kept: Arc<Mutex<FlowLogBuffer>>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The latest, and what numbers in it stand for.
#[derive(Debug, Default)]
pub(super) struct FlowLogBuffer {
    names: Names,
    entries: VecDeque<LogEntry>,
    /// How many there have been.
    all: u64,
}

#[derive(Debug, Default)]
struct Names {
    interfaces: BTreeMap<u32, String>,
    lists: BTreeMap<u32, String>,
    /// Rules that log, by the number of their list, the epoch that this came with, and their place.
    rules: BTreeMap<(u32, u32), Rules>,
}

#[derive(Debug)]
struct Rules {
    /// Whether they are still in force; others stay until the next change, for what was logged shortly before this one.
    now: bool,
    words: BTreeMap<u16, String>,
}

impl FlowLogBuffer {
    /// To be called when a configuration has been applied, before anything that it logs is taken.
    pub(super) fn learn(&mut self, router: &Router, config: &Config, numbers: &Numbers) {
        let names = &mut self.names;
        for (known, now) in [(&mut names.interfaces, &numbers.interfaces), (&mut names.lists, &numbers.lists)] {
            for (name, number) in now.iter() {
                if known.get(&number).is_none_or(|known| known != name) {
                    known.insert(number, name.to_owned());
                }
            }
        }
        names.rules.retain(|_, rules| std::mem::take(&mut rules.now));
        for (number, since) in router.lists_since() {
            if let Some(rules) = names.rules.get_mut(&(number, since)) {
                rules.now = true;
                continue;
            }
            let rules = config.lists.get(&number).map_or(&[][..], |list| &list.rules);
            let logging = (0..).zip(rules).filter(|(_, rule)| rule.flow_actions.log);
            let words: BTreeMap<u16, String> = logging.map(|(place, rule)| (place, words(rule))).collect();
            if !words.is_empty() {
                names.rules.insert((number, since), Rules { now: true, words });
            }
        }
    }

    fn take(&mut self, logged: &LogRecord, clock: &Clock) {
        let names = &self.names;
        let in_words = |allow| if allow { "allow" } else { "deny" }.to_owned();
        let rules = names.rules.get(&(logged.list, logged.since));
        let entry = LogEntry {
            sequence: self.all + 1,
            unix_ms: clock.unix_ms(logged.at),
            interface: logged.interface,
            interface_name: names.interfaces.get(&logged.interface).cloned(),
            list: names.lists.get(&logged.list).cloned(),
            rule: u32::from(logged.rule) + 1,
            rule_text: rules.and_then(|rules| rules.words.get(&logged.rule)).cloned(),
            action: in_words(logged.action == Action::Allow),
            verdict: in_words(logged.let_through),
            protocol: logged.protocol,
            source: logged.source,
            destination: logged.destination,
            icmp_type: matches!(logged.protocol, ICMP | ICMPV6).then_some(logged.icmp_type),
        };
        self.all += 1;
        if self.entries.len() == KEPT {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// How many there have been that are kept no more, and how many are.
    pub(super) fn counts(&self) -> (u64, u64) {
        let kept = self.entries.len() as u64;
        (self.all - kept, kept)
    }

    pub(super) fn from(&self, sequence: u64, counts: message::LogCounts) -> message::Log {
        let entries = self.entries.iter().filter(|entry| entry.sequence >= sequence).cloned().collect();
        message::Log { process: std::process::id(), entries, next: self.all + 1, counts }
    }
}

/// The kernel's monotonic clock and that of the wall, at one time.
struct Clock {
    monotonic: Duration,
    wall: Duration,
}

impl Clock {
    fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { monotonic: Duration::from_nanos(rig_sys::clock::monotonic_ns()), wall }
    }

    fn unix_ms(&self, at: Duration) -> u64 {
        self.wall.saturating_sub(self.monotonic.saturating_sub(at)).as_millis() as u64
    }
}

impl Logging {
    pub(super) fn start(mut log: Log) -> std::io::Result<Self> {
        let kept = Arc::new(Mutex::new(FlowLogBuffer::default()));
        let (stop, stopped) = channel();
        let to = Arc::clone(&kept);
        let body = move || {
            let mut trouble = None;
            while stopped.recv_timeout(REST) == Err(RecvTimeoutError::Timeout) {
                // Names are those of when it was logged, or of a later configuration that knows the former one's.
                let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
                let read = log.read().map_err(|error| error.to_string());
                let clock = Clock::now();
                read.iter().flatten().for_each(|logged| to.take(logged, &clock));
                drop(to);
                let now = read.err();
                if let Some(error) = now.as_ref().filter(|_| now != trouble) {
                    warn!("cannot read what rules log: {error}");
                }
                trouble = now;
            }
        };
        let thread = std::thread::Builder::new().name("log".into()).spawn(body)?;
        Ok(Self { kept, thread: Some((stop, thread)) })
    }

    /// Nothing is taken from the datapath meanwhile.
    pub(super) fn hold(&self) -> MutexGuard<'_, FlowLogBuffer> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn logged(port: u16) -> LogRecord {
        LogRecord {
            at: Duration::from_secs(1),
            interface: 1,
            sends: true,
            list: 2,
            since: 7,
            rule: 3,
            action: Action::Allow,
            let_through: false,
            protocol: 6,
            source: ([10, 1, 0, 11], 40_000).into(),
            destination: ([10, 2, 0, 11], port).into(),
            icmp_type: 0,
        }
    }

    #[test]
    fn the_last_are_kept_and_the_others_counted() {
        let mut kept = FlowLogBuffer::default();
        kept.names.interfaces.insert(1, "client".to_owned());
        kept.names.rules.insert((2, 7), Rules { now: true, words: BTreeMap::from([(3, "tcp".to_owned())]) });
        let clock = Clock { monotonic: Duration::from_secs(3), wall: Duration::from_secs(1000) };
        (0..KEPT as u16 + 10).for_each(|port| kept.take(&logged(port), &clock));
        assert_eq!(kept.counts(), (10, KEPT as u64));
        let log = kept.from(KEPT as u64 + 9, message::LogCounts::default());
        let ports: Vec<u16> = log.entries.iter().map(|entry| entry.destination.port()).collect();
        assert_eq!((ports, log.next), (vec![KEPT as u16 + 8, KEPT as u16 + 9], KEPT as u64 + 11));
        let one = &log.entries[0];
        assert_eq!((one.unix_ms, one.interface_name.as_deref(), one.list.as_deref()), (998_000, Some("client"), None));
        assert_eq!((one.rule, one.rule_text.as_deref(), one.icmp_type), (4, Some("tcp"), None));
        assert_eq!((one.action.as_str(), one.verdict.as_str()), ("allow", "deny"));
        assert_eq!(kept.from(0, message::LogCounts::default()).entries.len(), KEPT);
    }
}
