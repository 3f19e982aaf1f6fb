//! `log`: what is kept, and what comes.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::{note, print_on};

use crate::message::{Log, LogCounts, LogEntry};

/// Between two questions for what has come.
const REST: Duration = Duration::from_millis(200);

/// Shows what a router has logged; with `goes_on` also what comes, until it is stopped by Ctrl-C or its output is closed. What was
/// not kept is told on standard error.
///
/// # Errors
/// When the router does not answer any more.
pub fn log(
    goes_on: bool,
    ask: impl FnMut(u64) -> Result<Log, Failure>,
    line: impl Fn(&LogEntry) -> Result<String, Failure>,
) -> Result<Exit, Failure> {
    let (stop, stopped) = mpsc::channel();
    if goes_on {
        let caught = rig_sys::signal::on_stop_signal(move || {
            let _ended = stop.send(());
        });
        caught.context("catch signals").or_exit(Exit::Failed)?;
    }
    until(goes_on.then_some(&stopped), ask, line, note)
}

fn until(
    stopped: Option<&Receiver<()>>,
    mut ask: impl FnMut(u64) -> Result<Log, Failure>,
    line: impl Fn(&LogEntry) -> Result<String, Failure>,
    mut say: impl FnMut(String),
) -> Result<Exit, Failure> {
    let (mut from, mut process, mut before) = (0, None, LogCounts::default());
    loop {
        let mut log = ask(from)?;
        if process.is_some_and(|process| process != log.process) {
            say("the router was started again".to_owned());
            // What a router that persists has counted goes on.
            before.lost = before.lost.min(log.counts.lost);
            before.held_back = before.held_back.min(log.counts.held_back);
            (log, from) = (ask(0)?, 0);
        }
        process = Some(log.process);
        let text = log.entries.iter().map(&line).collect::<Result<String, Failure>>()?;
        // Before the first question nothing was missed that could have been shown.
        let first = log.entries.first().map_or(log.next, |entry| entry.sequence);
        if from > 0 && first > from {
            say(format!("{} were pushed out before they could be shown", first - from));
        }
        missing(&before, &log.counts).for_each(&mut say);
        (from, before) = (log.next, log.counts);
        if !text.is_empty() && !print_on(&text)? {
            return Ok(Exit::Done);
        }
        match stopped.map(|stopped| stopped.recv_timeout(REST)) {
            Some(Err(RecvTimeoutError::Timeout)) => {}
            _ => return Ok(Exit::Done),
        }
    }
}

/// What the datapath could not tell since a look before.
fn missing(before: &LogCounts, now: &LogCounts) -> impl Iterator<Item = String> {
    let lost = now.lost.saturating_sub(before.lost);
    let held_back = now.held_back.saturating_sub(before.held_back);
    let lost = (lost > 0).then(|| format!("{lost} were lost: the daemon did not take them from the datapath in time"));
    let held_back =
        (held_back > 0).then(|| format!("{held_back} refusals were held back: more than 100 a second of an interface"));
    lost.into_iter().chain(held_back)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn what_is_missing_is_told() {
        let entries = fixture::logged();
        let log = |process, from: usize, next, lost| Log {
            process,
            entries: entries[from..].to_vec(),
            next,
            counts: LogCounts { lost, held_back: 2, ..LogCounts::default() },
        };
        let answers = [log(1, 0, 5, 1), log(1, 0, 13, 4), log(2, 1, 13, 0), log(2, 0, 13, 0)];
        let (mut answers, mut asked, mut said) = (answers.into_iter(), Vec::new(), Vec::new());
        let (stop, stopped) = mpsc::channel();
        let ask = |from| {
            asked.push(from);
            if asked.len() == 4 {
                stop.send(()).unwrap();
            }
            Ok(answers.next().unwrap())
        };
        let ended = until(Some(&stopped), ask, |_| Ok(String::new()), |text| said.push(text));
        assert_eq!(ended.unwrap(), Exit::Done);
        assert_eq!(asked, [0, 5, 13, 0]);
        assert_eq!(
            said,
            [
                "1 were lost: the daemon did not take them from the datapath in time",
                "2 refusals were held back: more than 100 a second of an interface",
                "6 were pushed out before they could be shown",
                "3 were lost: the daemon did not take them from the datapath in time",
                "the router was started again",
            ]
        );
    }
}
