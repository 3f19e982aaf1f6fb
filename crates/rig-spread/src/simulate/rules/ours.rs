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

pub(super) struct NetrigRule {
    settings: Settings,
    config: Config,
    state: State,
    /// Queue pairs of a static spread.
    static_pairs: u32,
    fixed: bool,
}

/// What is asked for, with as many queue pairs in a static mode as the scenario has for it.
fn limited(settings: &Settings, static_pairs: u32) -> Settings {
    let most = settings.max_queue_pairs;
    match settings.mode {
        Mode::Dynamic => settings.clone(),
        _ => Settings { max_queue_pairs: most.min(static_pairs), min_queue_pairs: 1, ..settings.clone() },
    }
}

impl NetrigRule {
    pub fn new(scenario: &Scenario, port: usize) -> Self {
        let settings = scenario.ports[port].settings.clone();
        Self { fixed: false, ..Self::with(settings, scenario, port) }
    }

    /// In one mode for good.
    pub fn with(settings: Settings, scenario: &Scenario, port: usize) -> Self {
        let Scenario { tuning, machine, static_pairs, .. } = scenario;
        let abilities = scenario.ports[port].abilities.clone();
        let config = Config::new(&limited(&settings, *static_pairs), *tuning, machine.clone(), abilities);
        Self { settings, state: State::new(&config), config, static_pairs: *static_pairs, fixed: true }
    }

    fn configure(&mut self) {
        let Config { tuning, machine, abilities, .. } = &self.config;
        let settings = limited(&self.settings, self.static_pairs);
        self.config = Config::new(&settings, *tuning, machine.clone(), abilities.clone());
    }
}

impl Decide for NetrigRule {
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
