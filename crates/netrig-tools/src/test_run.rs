//! The course of a test: warm-up, measured part, cool-down, with lines of the throughput as it is.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rig_load::worker::embedded::Counts;
use rig_sys::clock::monotonic_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::counters::{CounterSelection, Difference, Snapshot};

/// Between two lines of the present throughput.
const TICK_NS: u64 = 500_000_000;

/// Waits until one of `fds` is readable (or has failed) or `until_ns` of the monotonic clock has come; tells which.
pub fn wait_readable(fds: &[BorrowedFd<'_>], until_ns: u64) -> io::Result<Vec<bool>> {
    loop {
        let mut entries: Vec<PollFd<'_>> = fds.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
        // An hour at most, so that every time fits `Timespec`.
        let left = left.min(Duration::from_secs(3600));
        let timeout = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut entries, Some(&timeout)) {
            Ok(_) => return Ok(entries.iter().map(|entry| !entry.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads what is there. `None` at the end of the stream or when it has failed.
pub fn read_some(mut stream: &TcpStream, buffer: &mut [u8]) -> Option<usize> {
    match stream.read(buffer) {
        Ok(0) => None,
        Ok(n) => Some(n),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Some(0),
        Err(_) => None,
    }
}

/// Why a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Its time had come.
    Due,
    /// The user wants it to.
    Interrupted,
    /// The other end stopped it, or said so by leaving.
    Stopped,
    /// No byte more will come or go.
    Dry,
    /// Nothing moved for longer than was asked for.
    Stalled,
}

/// The end that takes part: where bytes are counted, and where it is noticed that the test is over early.
pub trait TestEnd {
    fn counts(&self) -> Vec<Counts>;

    /// The counts and the machine when the test began, where the part knows: what moves between that moment and the
    /// course's own first look must not be lost. Asked for once, by a test without warm-up.
    fn begun(&mut self) -> Option<Start> {
        None
    }

    /// Serves the connections until `until_ns`; ends earlier, with the reason, when the test is over.
    ///
    /// # Errors
    /// What makes it pointless to go on, in words for people.
    fn serve(&mut self, until_ns: u64) -> anyhow::Result<Option<EndReason>>;
}

/// The begin of a window.
#[derive(Debug)]
pub struct Start {
    pub counts: Vec<Counts>,
    pub machine: Snapshot,
}

/// Is told how the test goes, to print it.
pub trait TestObserver {
    /// The present throughput: bytes in so many seconds.
    fn tick(&mut self, bytes: u64, seconds: f64);
    fn warmed_up(&mut self);
    /// The measured part is over. `cooling`: traffic goes on.
    fn measured(&mut self, cooling: bool);
    fn finished(&mut self);
    fn interrupted(&mut self);
}

/// The times of a test, all from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub warm_up: Duration,
    /// `None`: until it ends for another reason.
    pub window: Option<Duration>,
    /// The end of everything; `None` as above. When it is before the end of the window, it ends the window.
    pub total: Option<Duration>,
    /// Nothing may move for this long.
    pub stall: Option<Duration>,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Measurement {
    pub machine: Difference,
    /// The counts of each thread inside the window.
    pub threads: Vec<Counts>,
    pub end: EndReason,
    /// The time from the start to the window's end.
    pub ran: Duration,
}

impl Measurement {
    pub fn bytes(&self) -> u64 {
        self.threads.iter().map(|thread| thread.bytes).sum()
    }

    pub fn operations(&self) -> u64 {
        self.threads.iter().map(|thread| thread.operations).sum()
    }

    pub fn seconds(&self) -> f64 {
        self.machine.seconds()
    }
}

/// Runs a test that starts now. `None` when it ended before its window began.
///
/// # Errors
/// Those of the part.
pub fn run(
    part: &mut dyn TestEnd,
    witness: &mut dyn TestObserver,
    times: &Times,
    chosen: &CounterSelection,
) -> anyhow::Result<Option<Measurement>> {
    let start_ns = monotonic_ns();
    let after = |span: Duration| start_ns.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    let total_ns = times.total.map_or(u64::MAX, after);
    let begin_ns = after(times.warm_up);
    let mut pulse = ThroughputMonitor::new(part, start_ns, times.stall);
    if !times.warm_up.is_zero() {
        if let Some(end) = pulse.until(part, witness, begin_ns.min(total_ns))? {
            tell(end, witness);
            witness.finished();
            return Ok(None);
        }
        witness.warmed_up();
    }
    let begun = if times.warm_up.is_zero() { part.begun() } else { None };
    let Start { counts: before, machine: begin } =
        begun.unwrap_or_else(|| Start { counts: part.counts(), machine: Snapshot::take(chosen) });
    let end_ns =
        times.window.map_or(u64::MAX, |window| begin_ns.saturating_add(window.as_nanos() as u64)).min(total_ns);
    pulse.last_tick(part, begin.at_ns);
    let early = pulse.until(part, witness, end_ns)?;
    let after = part.counts();
    let machine = Difference { end: Snapshot::take(chosen), begin };
    let threads = after.iter().zip(&before).map(|(after, before)| after.since(*before)).collect();
    let ran = Duration::from_nanos(machine.end.at_ns.saturating_sub(start_ns));
    let mut measured = Measurement { machine, threads, end: early.unwrap_or(EndReason::Due), ran };
    match early {
        Some(end) => tell(end, witness),
        None => {
            witness.measured(total_ns > end_ns);
            if total_ns > end_ns && total_ns != u64::MAX {
                pulse.quiet = true;
                // Even if the cool-down ends early, the window is whole.
                if pulse.until(part, witness, total_ns)? == Some(EndReason::Interrupted) {
                    measured.end = EndReason::Interrupted;
                    witness.interrupted();
                }
            }
        }
    }
    if early.is_some() {
        witness.measured(false);
    }
    witness.finished();
    Ok(Some(measured))
}

fn tell(end: EndReason, witness: &mut dyn TestObserver) {
    if end == EndReason::Interrupted {
        witness.interrupted();
    }
}

/// The lines of the present throughput, and the watch over whether anything moves.
struct ThroughputMonitor {
    at_ns: u64,
    bytes: u64,
    moved_ns: u64,
    stall_ns: u64,
    quiet: bool,
}

impl ThroughputMonitor {
    fn new(part: &dyn TestEnd, now_ns: u64, stall: Option<Duration>) -> Self {
        let stall_ns = stall.map_or(u64::MAX, |stall| stall.as_nanos() as u64);
        Self { at_ns: now_ns, bytes: total(part), moved_ns: now_ns, stall_ns, quiet: false }
    }

    fn last_tick(&mut self, part: &dyn TestEnd, now_ns: u64) {
        (self.at_ns, self.bytes) = (now_ns, total(part));
    }

    fn until(
        &mut self,
        part: &mut dyn TestEnd,
        witness: &mut dyn TestObserver,
        until_ns: u64,
    ) -> anyhow::Result<Option<EndReason>> {
        loop {
            let next_ns = self.at_ns.saturating_add(TICK_NS).min(until_ns);
            if let Some(end) = part.serve(next_ns)? {
                return Ok(Some(end));
            }
            let now_ns = monotonic_ns();
            if now_ns >= self.at_ns.saturating_add(TICK_NS) {
                let bytes = total(part);
                let moved = bytes.saturating_sub(self.bytes);
                if !self.quiet {
                    witness.tick(moved, (now_ns - self.at_ns) as f64 / 1e9);
                }
                if moved > 0 {
                    self.moved_ns = now_ns;
                }
                (self.at_ns, self.bytes) = (now_ns, bytes);
                if now_ns - self.moved_ns > self.stall_ns {
                    return Ok(Some(EndReason::Stalled));
                }
            }
            if now_ns >= until_ns {
                return Ok(None);
            }
        }
    }
}

fn total(part: &dyn TestEnd) -> u64 {
    part.counts().iter().map(|count| count.bytes).sum()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Counts a byte and an operation at each look, and ends when it is told to.
    #[derive(Default)]
    struct FakeEnd {
        looks: u64,
        ends: Option<(u64, EndReason)>,
        begun: Option<Start>,
    }

    impl TestEnd for FakeEnd {
        fn counts(&self) -> Vec<Counts> {
            vec![Counts { bytes: self.looks, operations: self.looks }]
        }

        fn begun(&mut self) -> Option<Start> {
            self.begun.take()
        }

        fn serve(&mut self, until_ns: u64) -> anyhow::Result<Option<EndReason>> {
            rig_sys::clock::sleep_until(until_ns.min(rig_sys::clock::monotonic_after(Duration::from_millis(1))));
            self.looks += 1;
            Ok(self.ends.filter(|(at, _)| self.looks >= *at).map(|(_, end)| end))
        }
    }

    #[derive(Default)]
    struct RecordedCalls(Vec<&'static str>);

    impl TestObserver for RecordedCalls {
        fn tick(&mut self, _: u64, _: f64) {}
        fn warmed_up(&mut self) {
            self.0.push("warm");
        }
        fn measured(&mut self, cooling: bool) {
            self.0.push(if cooling { "measured, cooling" } else { "measured" });
        }
        fn finished(&mut self) {
            self.0.push("finished");
        }
        fn interrupted(&mut self) {
            self.0.push("interrupted");
        }
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn only_the_window_counts_and_every_phase_is_told() {
        let times = Times { warm_up: ms(20), window: Some(ms(30)), total: Some(ms(70)), stall: None };
        let (mut part, mut words) = (FakeEnd::default(), RecordedCalls::default());
        let measured = run(&mut part, &mut words, &times, &CounterSelection::default()).unwrap().unwrap();
        assert_eq!(words.0, ["warm", "measured, cooling", "finished"]);
        assert!(measured.bytes() > 0 && measured.bytes() < part.looks, "{} of {}", measured.bytes(), part.looks);
        assert_eq!(measured.end, EndReason::Due);
        assert!(measured.seconds() > 0.0);
    }

    #[test]
    fn an_early_end_ends_the_window() {
        let times = Times { warm_up: ms(0), window: None, total: None, stall: None };
        for end in [EndReason::Interrupted, EndReason::Stopped, EndReason::Dry] {
            let (mut part, mut words) =
                (FakeEnd { ends: Some((5, end)), ..Default::default() }, RecordedCalls::default());
            let measured = run(&mut part, &mut words, &times, &CounterSelection::default()).unwrap().unwrap();
            assert_eq!((measured.end, measured.bytes()), (end, 5));
            assert_eq!(words.0.contains(&"interrupted"), end == EndReason::Interrupted);
        }
        let times = Times { warm_up: ms(60_000), ..times };
        let (mut part, mut words) =
            (FakeEnd { ends: Some((3, EndReason::Stopped)), ..Default::default() }, RecordedCalls::default());
        assert!(run(&mut part, &mut words, &times, &CounterSelection::default()).unwrap().is_none());
    }

    /// A peer may have sent everything before the course takes its first look.
    #[test]
    fn what_moved_since_the_begin_counts() {
        let times = Times { warm_up: ms(0), window: Some(ms(20)), total: Some(ms(20)), stall: None };
        let start = || Start { counts: vec![Counts::default()], machine: Snapshot::take(&CounterSelection::default()) };
        let mut part = FakeEnd { looks: 1000, begun: Some(start()), ..Default::default() };
        let measured =
            run(&mut part, &mut RecordedCalls::default(), &times, &CounterSelection::default()).unwrap().unwrap();
        assert!(measured.bytes() > 1000, "{}", measured.bytes());
        let mut part = FakeEnd { looks: 1000, begun: Some(start()), ..Default::default() };
        let times = Times { warm_up: ms(5), total: None, ..times };
        let measured =
            run(&mut part, &mut RecordedCalls::default(), &times, &CounterSelection::default()).unwrap().unwrap();
        assert!(measured.bytes() < 1000, "a warm-up is not of the window: {}", measured.bytes());
    }

    #[test]
    fn a_total_before_the_end_of_the_window_ends_it() {
        let times = Times { warm_up: ms(0), window: Some(ms(60_000)), total: Some(ms(20)), stall: None };
        let measured =
            run(&mut FakeEnd::default(), &mut RecordedCalls::default(), &times, &CounterSelection::default());
        assert!(measured.unwrap().unwrap().seconds() < 50.0);
    }

    #[test]
    fn the_signal_is_seen_again_and_again() {
        let cancel = rig_load::driver::Cancel::new().unwrap();
        let seen = || wait_readable(&[cancel.as_fd()], monotonic_ns()).unwrap()[0];
        assert!(!cancel.is_cancelled() && !seen());
        cancel.cancel();
        assert!(cancel.is_cancelled() && seen() && seen());
    }
}
