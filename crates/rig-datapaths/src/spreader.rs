//! netrig's receive spreader, as `netrig spread run` runs it, for the interfaces of a node that lead to other nodes.

use anyhow::{Context, Result, bail};
use netrig_spread::actuator::Kind;
use netrig_spread::message::{Happened, Interface, Logged, Reply, Request, Status};
use netrig_spread::settings::{Changes, Rule, Settings as Rules};
use netrig_spread::{Body, Service};
use rig_spread::history::{History, Moved};
use rig_spread::{Order, Tuning};
use rig_sys::advice::{NAMESPACES, rights};
use rig_sys::clock::monotonic_ns;
use rig_sys::cpu::CpuSet;
use rig_testbed::datapath::{
    Asked, Attach, Command, Counters, Datapath, Live, Machine, Missing, Mistake, Process, Settings, Site, State,
    UnknownCommand, read_settings,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::arguments::{Nothing, read};
use crate::node;

/// Which CPU processes what a node receives.
#[derive(Debug)]
pub(crate) struct Spreader;

const COMMANDS: &[Command] = &[
    Command { name: "set", about: "sets what `netrig spread set` does, for all its interfaces: { mode, base, ... }" },
    Command { name: "status", about: "tells what `netrig spread show --json` does" },
];

/// What a suite can say of it, beside the settings that can change.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Own {
    /// The most preferred first.
    actuator: Option<Vec<Kind>>,
    tuning: Tuning,
}

/// What is its own, and what `set` could say.
fn divided(settings: &Settings) -> (Settings, Settings) {
    let is_own = |key: &str| key == "actuator" || key == "tuning";
    settings.clone().into_iter().partition(|(key, _)| is_own(key))
}

fn understood(settings: &Settings) -> Result<(Own, Changes), Mistake> {
    let (own, changes) = divided(settings);
    Ok((read_settings(&own)?, read_settings(&changes)?))
}

impl Datapath for Spreader {
    fn name(&self) -> &'static str {
        "spreader"
    }

    fn validate(&self, asked: &Asked<'_>) -> Result<(), Mistake> {
        let (own, _) = understood(asked.settings)?;
        if own.actuator.is_some_and(|kinds| kinds.is_empty()) {
            return Err(Mistake::new("no actuator", "name one, for instance [\"napi\"], or remove it").at("actuator"));
        }
        Ok(())
    }

    fn missing(&self, machine: &Machine) -> Option<Missing> {
        machine.rootless.then(|| Missing::new("moving receive work between CPUs needs root", rights(NAMESPACES)))
    }

    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn check_command(&self, name: &str, arguments: &Settings) -> Result<(), Mistake> {
        match name {
            "set" if arguments.is_empty() => {
                Err(Mistake::new("nothing to set", "for instance arguments = { mode = \"dynamic\" }"))
            }
            "set" => read_settings::<Changes>(arguments).map(drop),
            "status" => read_settings::<Nothing>(arguments).map(drop),
            // That there is none is told where it is to be executed.
            _ => Ok(()),
        }
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Spreader {
    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>> {
        Ok(Box::new(Spreading::start(site, settings).context("start the receive spreader")?))
    }
}

/// The spreader of a node at work.
#[derive(Debug)]
struct Spreading {
    service: Service,
    settings: Settings,
    /// CLOCK_MONOTONIC at which it began, nanoseconds, to a millisecond.
    begun_ns: u64,
}

impl Spreading {
    fn start(site: &Site, settings: &Settings) -> Result<Self> {
        let (own, changes) = understood(settings)?;
        let links = site.interfaces();
        if links.is_empty() {
            bail!("node {} has no interface that leads to another node", site.node());
        }
        let rule = |name: &str| -> Result<Rule> {
            let mut rule = Rule::of(name.parse().map_err(anyhow::Error::msg)?);
            if let Some(kinds) = &own.actuator {
                rule.actuators.clone_from(kinds);
            }
            rule.settings = changes.over(&rule.settings);
            // Without a word it takes all of the machine's, but for threads of a core that another is of.
            if rule.settings.cpus.is_none() && *site.cpus() != CpuSet::online()? {
                rule.settings.cpus = Some(site.cpus().as_slice().to_vec());
            }
            rule.tuning = own.tuning;
            Ok(rule)
        };
        let rules = links.iter().map(|link| rule(&link.name)).collect::<Result<_>>()?;
        let spawn = |body: Body| node::thread("spreader", body);
        let service = Service::start(Rules { rules, ..Rules::default() }, spawn)?;
        let mut new = Self { service, settings: Settings::new(), begun_ns: 0 };
        let status = new.status()?;
        new.begun_ns = monotonic_ns().saturating_sub(status.uptime_ms * 1_000_000);
        let requested = status.interfaces.first().context("find the interface that was taken")?.requested.clone();
        if let (Value::Object(requested), Value::Object(own)) =
            (serde_json::to_value(requested)?, serde_json::to_value(own)?)
        {
            new.settings = requested.into_iter().chain(own).collect();
        }
        Ok(new)
    }

    fn status(&self) -> Result<Status> {
        match self.service.ask(Request::Status)? {
            Reply::Status(status) => Ok(*status),
            other => bail!("the spreader answered something else: {other:?}"),
        }
    }

    fn log(&self) -> Result<Vec<Logged>> {
        match self.service.ask(Request::Events { after: 0 })? {
            Reply::Events(events) => Ok(events),
            other => bail!("the spreader answered something else than its log: {other:?}"),
        }
    }

    /// What there is of an interface's moves.
    fn history(&self, interface: &Interface, events: &[Logged], at_ns: u64) -> History {
        let lost = events.first().map_or(0, |first| first.number - 1);
        let moves = events.iter().filter(|logged| logged.interface == interface.name).filter_map(|logged| {
            let Happened::Moved(moved) = logged.what else { return None };
            Some(Moved {
                at_ns: self.begun_ns + logged.at_ns,
                entry: moved.entry?,
                from: moved.from,
                to: moved.to,
                why: moved.why,
                paid: moved.paid,
            })
        });
        History {
            interface: interface.name.clone(),
            actuator: interface.actuator.to_string(),
            distributes: interface.abilities.distributes,
            exact_order: interface.actuator.order() == Order::Exact,
            base: interface.base,
            // Moves lead to where entries are put by threads.
            table: interface
                .entries
                .iter()
                .map(|entry| entry.prepared.or(u32::try_from(entry.receive_processor).ok()))
                .collect(),
            at_ns,
            moves: moves.collect(),
            lost,
        }
    }
}

impl Live for Spreading {
    fn version(&self) -> Result<String> {
        let status = self.status()?;
        let kinds: Vec<String> = status.interfaces.iter().map(|interface| interface.actuator.to_string()).collect();
        Ok(format!("netrig {}, receive spreader, actuator {}", env!("CARGO_PKG_VERSION"), kinds.join(", ")))
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn counters(&self) -> Result<Counters> {
        let counted = Service::counters(&self.status()?);
        Ok(Counters { counts: counted.counts, drops: counted.drops })
    }

    fn state(&self) -> Result<State> {
        let status = self.status()?;
        let events = self.log()?;
        let at_ns = monotonic_ns();
        let histories = status.interfaces.iter().map(|interface| self.history(interface, &events, at_ns));
        let mut state = State::default();
        state.more.insert("histories".to_owned(), serde_json::to_value(histories.collect::<Vec<_>>())?);
        state.more.insert("status".to_owned(), serde_json::to_value(status)?);
        Ok(state)
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        match name {
            "set" => {
                let changes: Changes = read(arguments)?;
                let mut done = Vec::new();
                for interface in self.status()?.interfaces {
                    let set = Request::Set { interface: interface.name, changes: changes.clone() };
                    if let Reply::Done(lines) = self.service.ask(set)? {
                        done.extend(lines);
                    }
                }
                Ok(json!({ "done": done }))
            }
            "status" => {
                let Nothing {} = read(arguments)?;
                Ok(serde_json::to_value(self.status()?)?)
            }
            _ => bail!(UnknownCommand::of(&Spreader, name)),
        }
    }
}
