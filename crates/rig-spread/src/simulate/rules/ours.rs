//! The policy of this crate.

use std::time::Duration;

use super::Decide;
use crate::effective::Config;
use crate::event::{Event, Move};
use crate::observation::Observation;
use crate::plan::plan;
use crate::settings::{Mode, Settings};
use crate::simulate::scenario::Scenario;
use crate::state::State;

pub(super) struct Ours {
    settings: Settings,
    config: Config,
    state: State,
    fixed: bool,
}

impl Ours {
    pub fn new(scenario: &Scenario, port: usize) -> Self {
        let settings = scenario.ports[port].settings.clone();
        Self { fixed: false, ..Self::with(settings, scenario, port) }
    }

    /// In one mode for good.
    pub fn with(settings: Settings, scenario: &Scenario, port: usize) -> Self {
        let abilities = scenario.ports[port].abilities;
        let config = Config::new(&settings, scenario.tuning, scenario.machine.clone(), abilities);
        Self { settings, state: State::new(&config), config, fixed: true }
    }

    fn configure(&mut self) {
        let Config { tuning, machine, abilities, .. } = &self.config;
        self.config = Config::new(&self.settings, *tuning, machine.clone(), *abilities);
    }
}

impl Decide for Ours {
    fn begin(&self) -> (u32, Vec<u32>) {
        (self.state.base, self.state.table.clone())
    }

    fn next(&self) -> u64 {
        u64::try_from(self.state.next_look(&self.config).as_millis()).unwrap_or(u64::MAX)
    }

    fn look(&mut self, seen: &Observation, now: Duration) -> (Vec<Move>, Vec<Event>) {
        let (state, moves, events) = plan(std::mem::take(&mut self.state), seen, &self.config, now);
        self.state = state;
        (moves, events)
    }

    fn failed(&mut self, entry: Option<u32>) {
        self.state = std::mem::take(&mut self.state).failed(entry);
    }

    fn online(&mut self, cpu: u32, online: bool) {
        if let Some(cpu) = self.config.machine.cpus.iter_mut().find(|there| there.number == cpu) {
            cpu.online = online;
        }
        self.configure();
    }

    fn mode(&mut self, mode: Mode) {
        if !self.fixed {
            self.settings.mode = mode;
            self.configure();
        }
    }
}
