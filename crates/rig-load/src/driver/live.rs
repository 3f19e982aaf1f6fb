//! Telling workers something while their load runs. A worker that has gone meanwhile is found by the next wait.

use std::time::Duration;

use super::group::RunningLoad;
use crate::command::{Command, CommandAction};
use crate::protocol::Order;

/// How long before it is to hold a command should be sent: the workers' control threads have to get their CPUs in that
/// time, in which load threads may be, and the load threads have to look.
pub const LEAD_OF_COMMANDS: Duration = Duration::from_millis(20);

impl RunningLoad<'_> {
    /// How many workers there are: two for each pair, the listening one first.
    pub fn workers(&self) -> usize {
        self.group.members.len()
    }

    /// Gives the load of a worker another rate from `at_ns` of CLOCK_MONOTONIC on: see [`CommandAction::Rate`]. Without effect on an
    /// end that has none of its own, as one that answers.
    pub fn set_rate(&mut self, worker: usize, rate: f64, at_ns: u64) {
        self.tell(worker, Command { at_ns, what: CommandAction::Rate(rate) });
    }

    /// Ends a phase of the window at `at_ns` and begins another one, in all workers.
    pub fn mark(&mut self, at_ns: u64) {
        self.tell_all(Command { at_ns, what: CommandAction::Mark });
    }

    /// Has the window end at `at_ns`, in all workers, and not when their plans say.
    pub fn end_at(&mut self, at_ns: u64) {
        let cool_down_ns = self.stop_ns - self.end_ns;
        (self.end_ns, self.stop_ns) = (at_ns, at_ns.saturating_add(cool_down_ns));
        self.tell_all(Command { at_ns, what: CommandAction::End });
    }

    fn tell_all(&mut self, command: Command) {
        (0..self.workers()).for_each(|worker| self.tell(worker, command));
    }

    fn tell(&mut self, worker: usize, command: Command) {
        if let Some(member) = self.group.members.get_mut(worker) {
            // Fails when the worker has gone; then its output has ended too, which says why.
            let at_ns = command.at_ns.saturating_add_signed(member.clock_ns);
            let _ = member.process.order(&Order::Command(Command { at_ns, ..command }));
        }
    }
}
