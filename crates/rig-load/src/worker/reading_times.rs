//! When the control thread of a load has something to read.

use std::collections::VecDeque;
use std::time::Duration;

use crate::command::{Command, CommandAction};
use crate::plan::Times;

/// The moments to come inside the window: samples, edges of phases, the end. Nanoseconds of CLOCK_MONOTONIC.
#[derive(Debug)]
pub(super) struct ReadingTimes {
    end_ns: u64,
    stop_ns: u64,
    step_ns: u64,
    sample_ns: u64,
    /// In order.
    marks: VecDeque<u64>,
}

/// What is to be read now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DueReadings {
    /// An interval has passed.
    pub sample: bool,
    /// A phase ends and another one begins.
    pub mark: bool,
    /// The window ends.
    pub end: bool,
}

impl ReadingTimes {
    pub(super) fn new(planned: Times, interval: Duration) -> Self {
        let Times { begin_ns, end_ns, stop_ns, .. } = planned;
        let step_ns = (interval.as_nanos() as u64).max(1);
        Self { end_ns, stop_ns, step_ns, sample_ns: begin_ns.saturating_add(step_ns), marks: VecDeque::new() }
    }

    pub(super) fn hear(&mut self, command: Command) {
        match command.what {
            CommandAction::Rate(_) => {}
            CommandAction::Mark => {
                let at = self.marks.partition_point(|mark| *mark <= command.at_ns);
                self.marks.insert(at, command.at_ns);
            }
            CommandAction::End => {
                let cool_down_ns = self.stop_ns.saturating_sub(self.end_ns);
                (self.end_ns, self.stop_ns) = (command.at_ns, command.at_ns.saturating_add(cool_down_ns));
            }
        }
    }

    /// The next moment.
    pub(super) fn next_ns(&self) -> u64 {
        let mark_ns = self.marks.front().copied().unwrap_or(u64::MAX);
        self.end_ns.min(self.sample_ns).min(mark_ns)
    }

    /// What is due at [`Self::next_ns`], which has come. The window ends with a sample, however short.
    pub(super) fn take(&mut self) -> DueReadings {
        let now_ns = self.next_ns();
        let end = now_ns >= self.end_ns;
        let mark = !end && self.marks.front().is_some_and(|mark| *mark <= now_ns);
        if mark {
            self.marks.pop_front();
        }
        let sample = end || now_ns >= self.sample_ns;
        if sample {
            self.sample_ns = self.sample_ns.saturating_add(self.step_ns);
        }
        DueReadings { sample, mark, end }
    }

    pub(super) fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// The end of the cool-down.
    pub(super) fn stop_ns(&self) -> u64 {
        self.stop_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: DueReadings = DueReadings { sample: true, mark: false, end: false };
    const MARK: DueReadings = DueReadings { sample: false, mark: true, end: false };
    const END: DueReadings = DueReadings { sample: true, mark: false, end: true };

    fn all(times: &mut ReadingTimes) -> Vec<(u64, DueReadings)> {
        let mut moments = Vec::new();
        loop {
            let at = times.next_ns();
            let due = times.take();
            moments.push((at, due));
            if due.end {
                return moments;
            }
        }
    }

    fn times(interval: u64) -> ReadingTimes {
        let planned = Times { start_ns: 50, begin_ns: 100, end_ns: 200, stop_ns: 230 };
        ReadingTimes::new(planned, Duration::from_nanos(interval))
    }

    #[test]
    fn samples_end_with_the_window() {
        assert_eq!(all(&mut times(30)), [(130, SAMPLE), (160, SAMPLE), (190, SAMPLE), (200, END)]);
        assert_eq!(all(&mut times(50)), [(150, SAMPLE), (200, END)]);
        assert_eq!(all(&mut times(1000)), [(200, END)]);
    }

    #[test]
    fn marks_are_read_at_their_moment_and_none_after_the_end() {
        let mut times = times(50);
        for at_ns in [170, 120, 150, 250] {
            times.hear(Command { at_ns, what: CommandAction::Mark });
        }
        let both = DueReadings { mark: true, ..SAMPLE };
        assert_eq!(all(&mut times), [(120, MARK), (150, both), (170, MARK), (200, END)]);
    }

    #[test]
    fn the_end_can_be_moved_and_takes_the_cool_down_along() {
        let mut times = times(50);
        times.hear(Command { at_ns: 140, what: CommandAction::End });
        assert_eq!((times.end_ns(), times.stop_ns()), (140, 170));
        assert_eq!(all(&mut times), [(140, END)]);
    }
}
