//! Two runs of one suite that take turns on a machine: a trial of one, then the same trial of the other, so that changes of the
//! machine over time affect both alike.
//!
//! Each run is a process of its own, so that even two builds of netrig can be compared. The process that started both (the
//! *starter*) says whose turn it is, in lines over the run's standard input and output:
//!
//! | from | line | meaning |
//! |---|---|---|
//! | run | `run N` | its number in the store |
//! | run | `ready` | it waits for its turn: for its next trial |
//! | starter | `go` | make one trial |
//! | starter | `end` | make no more |
//! | starter | the end of its lines | it was stopped, or is gone: end as by Ctrl-C |
//! | run | `over` | it has ended and is stored |

use std::fmt;
use std::io::{BufRead, Write};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use rig_cli::exit::StoppedByUser;
use rig_facts::record::{RigCost, TrialRecord};
use rig_load::driver::Cancel;
use rig_load::record::Sample;
use rig_suite::suite::{Scenario, Timing};

use super::Execute;

/// What a run says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnMessage {
    Run(String),
    Ready,
    Over,
}

impl FromStr for TurnMessage {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        Ok(match line.split_once(' ') {
            Some(("run", number)) => Self::Run(number.to_owned()),
            None if line == "ready" => Self::Ready,
            None if line == "over" => Self::Over,
            _ => bail!("a run that takes turns said `{line}`"),
        })
    }
}

impl fmt::Display for TurnMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(number) => write!(f, "run {number}"),
            Self::Ready => f.write_str("ready"),
            Self::Over => f.write_str("over"),
        }
    }
}

/// Make a trial.
pub const GO: &str = "go";
/// Make none any more.
pub const END: &str = "end";

/// The process that started both runs and gives the turns, as a run sees it.
#[expect(missing_debug_implementations, reason = "what is read and written has nothing to show")]
pub struct Starter<R, W> {
    /// What the starter says, and where it listens.
    pub from: R,
    pub to: W,
    pub cancel: Cancel,
}

impl<R: BufRead, W: Write> Starter<R, W> {
    /// Tells the starter.
    ///
    /// # Errors
    /// When it went away.
    pub fn say(&mut self, said: &TurnMessage) -> Result<()> {
        writeln!(self.to, "{said}").and_then(|()| self.to.flush()).context("tell who gives the turns")
    }

    /// Waits for the run's turn; `false` where no more trials are to be made.
    ///
    /// # Errors
    /// [`StoppedByUser`] when the starter went away or the user stopped the run, and when what it said is no word of its.
    pub fn turn(&mut self) -> Result<bool> {
        if self.say(&TurnMessage::Ready).is_err() {
            return Err(StoppedByUser.into());
        }
        let mut line = String::new();
        self.from.read_line(&mut line).context("wait for the turn")?;
        match line.trim_end() {
            "" => Err(StoppedByUser.into()),
            _ if self.cancel.is_cancelled() => Err(StoppedByUser.into()),
            GO => Ok(true),
            END => Ok(false),
            other => bail!("who gives the turns said `{other}`"),
        }
    }
}

/// Executes trials when it is their run's turn.
#[expect(missing_debug_implementations, reason = "what executes has nothing to show")]
pub struct TurnTaking<'a, R, W> {
    pub execute: &'a mut dyn Execute,
    pub starter: Starter<R, W>,
}

impl<R: BufRead, W: Write> Execute for TurnTaking<'_, R, W> {
    fn begin_trial(&mut self) -> Result<bool> {
        self.starter.turn()
    }

    fn trial(
        &mut self,
        scenario: &Scenario,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<TrialRecord> {
        self.execute.trial(scenario, ordinal, timing, interim)
    }

    fn rig_cost(&mut self, scenario: &Scenario, timing: &Timing) -> Result<RigCost> {
        self.execute.rig_cost(scenario, timing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_reads_back() {
        for said in [TurnMessage::Run("12".to_owned()), TurnMessage::Ready, TurnMessage::Over] {
            assert_eq!(said.to_string().parse::<TurnMessage>().unwrap(), said);
        }
        assert!("steady".parse::<TurnMessage>().is_err());
    }

    /// What a run with so many words from its starter does at each trial.
    fn told(words: &str, cancelled: bool) -> (Vec<String>, String) {
        struct Nothing;
        impl Execute for Nothing {
            fn trial(
                &mut self,
                _: &Scenario,
                _: u32,
                _: &Timing,
                _: &mut dyn FnMut(&str, &Sample),
            ) -> Result<TrialRecord> {
                bail!("nothing to make")
            }

            fn rig_cost(&mut self, _: &Scenario, _: &Timing) -> Result<RigCost> {
                bail!("nothing to measure")
            }
        }
        let cancel = Cancel::new().unwrap();
        if cancelled {
            cancel.cancel();
        }
        let mut to = Vec::new();
        let starter = Starter { from: words.as_bytes(), to: &mut to, cancel };
        let mut in_turn = TurnTaking { execute: &mut Nothing, starter };
        let answers = (0..3).map(|_| match in_turn.begin_trial() {
            Ok(answer) => answer.to_string(),
            Err(error) => error.to_string(),
        });
        let answers = answers.collect();
        (answers, String::from_utf8(to).unwrap())
    }

    #[test]
    fn a_run_makes_a_trial_when_told_and_stops_when_nobody_tells() {
        let (answers, said) = told("go\nend\n", false);
        assert_eq!(answers, ["true", "false", "stopped by the user"]);
        assert_eq!(said, "ready\nready\nready\n");
        assert_eq!(told("gone\n", false).0[0], "who gives the turns said `gone`");
        assert_eq!(told("go\n", true).0[0], "stopped by the user");
    }
}
