//! netrig's receive spreader, `netrig spread run` for the interfaces of a node that lead to other nodes.

use anyhow::{Context, Result, bail};
use netrig_spread::SPREADER;
use netrig_spread::actuator::{Kind, probe};
use netrig_spread::message::{Interface as InterfaceStatus, LogEntry, LogEvent, Reply, Request, Status};
use netrig_spread::settings::{AnyKeyword, SettingChange, SettingChanges};
use rig_spread::history::{EntryMove, History};
use rig_spread::{Order, Tuning};
use rig_sys::advice::{NAMESPACES, rights};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_testbed::datapath::protocol::Description;
use rig_testbed::datapath::{
    Command, Control, Datapath, DatapathRequest, Machine, Missing, Mistake, Process, ServiceAgent, ServiceProcess,
    Settings, Site, Start, Starting, State, UnknownCommand, read_settings,
};
use rig_testbed::host::Host;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toml::Table;

use crate::arguments::{NoArguments, read};

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
struct SuiteSettings {
    /// The most preferred first.
    actuator: Option<Vec<Kind>>,
    tuning: Tuning,
}

/// What is its own, and what `set` could say.
fn divided(settings: &Settings) -> (Settings, Settings) {
    let is_own = |key: &str| key == "actuator" || key == "tuning";
    settings.clone().into_iter().partition(|(key, _)| is_own(key))
}

fn understood(settings: &Settings) -> Result<(SuiteSettings, SettingChanges), Mistake> {
    let (own, changes) = divided(settings);
    Ok((read_settings(&own)?, read_settings(&changes)?))
}

impl Datapath for Spreader {
    fn name(&self) -> &'static str {
        "spreader"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        let (own, _) = understood(asked.settings)?;
        if own.actuator.is_some_and(|kinds| kinds.is_empty()) {
            return Err(Mistake::new("no actuator", "name one, for instance [\"napi\"], or remove it").at("actuator"));
        }
        Ok(())
    }

    fn missing(&self, machine: &Machine, _: &Settings) -> Option<Missing> {
        machine.rootless.then(|| Missing::new("moving receive work between CPUs needs root", rights(NAMESPACES)))
    }

    /// Looks for what could move the receive work of a veth interface that is made for it, in a namespace of its own.
    fn try_out(&self) -> Result<()> {
        let [here, there] = [NetNs::create()?, NetNs::create()?];
        let mut link = Netlink::open(&here)?;
        link.add_veth(&VethPair { name: "spread", peer: "peer", peer_ns: &there, queues: 1, mtu: 1500 })?;
        // As it does when it takes one.
        ethtool::set(&here, "spread", Offload::Gro, true)?;
        link.set_up("spread")?;
        Netlink::open(&there)?.set_up("peer")?;
        let report = here.run(|| probe("spread"))??;
        if !report.prospects.iter().any(|one| one.preferred && one.entries > 0) {
            let of_preferred = report.lacks.iter().filter(|lack| Kind::PREFERRED.contains(&lack.kind));
            let why: Vec<String> = of_preferred.map(|lack| format!("{}: {}", lack.kind, lack.why)).collect();
            bail!("the receive work of a veth interface cannot be moved: {}", why.join("; "));
        }
        Ok(())
    }

    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn check_command(&self, name: &str, arguments: &Settings) -> Result<(), Mistake> {
        match name {
            "set" if arguments.is_empty() => {
                Err(Mistake::new("nothing to set", "for instance arguments = { mode = \"dynamic\" }"))
            }
            "set" => read_settings::<SettingChanges>(arguments).map(drop),
            "status" => read_settings::<NoArguments>(arguments).map(drop),
            // That there is none is told where it is to be executed.
            _ => Ok(()),
        }
    }

    fn process(&self) -> Process<'_> {
        Process::Service(self)
    }
}

impl Start for Spreader {
    fn start(&self, host: &dyn Host, site: &Site, settings: &Settings) -> Result<Box<dyn Starting>> {
        let (own, changes) = understood(settings)?;
        let links: Vec<&str> = site.interfaces().iter().map(|link| link.name.as_str()).collect();
        if links.is_empty() {
            bail!("node {} has no interface that leads to another node", site.node());
        }
        // Without a word it takes all of the machine's, but for threads of a core that another is of.
        let cpus = (*site.cpus() != CpuSet::online()?).then(|| site.cpus().clone());
        let text = text(&links, cpus, &own, &changes)?;
        let service = ServiceProcess::start(host, self, site, &ARGUMENTS, &SPREADER.protocol(), &text)?;
        Ok(Box::new(ServiceAgent::new(service, Spreading { own, settings: Settings::new(), begun_ns: 0 })))
    }
}

const ARGUMENTS: [&str; 3] = ["spread", "run", "--on-stdio"];

/// The text of the file of a spreader for these interfaces, and these CPUs where nothing else is said.
fn text(links: &[&str], cpus: Option<CpuSet>, own: &SuiteSettings, changes: &SettingChanges) -> Result<String> {
    let mut changes = changes.clone();
    // The file leaves out what a command has a word for.
    changes.base = changes.base.filter(|base| *base != SettingChange::Any(AnyKeyword::Any));
    changes.cpus =
        changes.cpus.filter(|cpus| *cpus != SettingChange::Any(AnyKeyword::Any)).or(cpus.map(SettingChange::This));
    let interface = |link: &&str| -> Result<toml::Value> {
        let mut table = Table::try_from(&changes)?;
        table.insert("name".to_owned(), (*link).into());
        if let Some(kinds) = &own.actuator {
            table.insert("actuator".to_owned(), toml::Value::try_from(kinds)?);
        }
        table.insert("tuning".to_owned(), toml::Value::try_from(own.tuning)?);
        Ok(table.into())
    };
    let interfaces = links.iter().map(interface).collect::<Result<Vec<_>>>()?;
    Ok(Table::from_iter([("interface".to_owned(), interfaces.into())]).to_string())
}

/// The spreader of a node at work.
#[derive(Debug)]
struct Spreading {
    own: SuiteSettings,
    settings: Settings,
    /// CLOCK_MONOTONIC of its machine at which it began, nanoseconds, to a millisecond.
    begun_ns: u64,
}

fn status(service: &mut ServiceProcess) -> Result<Status> {
    match service.ask(Request::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(service.unasked(&other)),
    }
}

fn log(service: &mut ServiceProcess) -> Result<Vec<LogEntry>> {
    match service.ask(Request::Events { after: 0 })? {
        Reply::Events(events) => Ok(events),
        other => Err(service.unasked(&other)),
    }
}

impl Spreading {
    /// What there is of an interface's moves.
    fn history(&self, interface: &InterfaceStatus, events: &[LogEntry], at_ns: u64) -> History {
        let lost = events.first().map_or(0, |first| first.number - 1);
        let moves = events.iter().filter(|logged| logged.interface == interface.name).filter_map(|logged| {
            let LogEvent::Moved(moved) = logged.what else { return None };
            Some(EntryMove {
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

impl Control for Spreading {
    fn begun(&mut self, service: &mut ServiceProcess) -> Result<()> {
        let status = status(service)?;
        self.begun_ns = service.counters()?.at_ns.saturating_sub(status.uptime_ms * 1_000_000);
        let requested = status.interfaces.first().context("find the interface that was taken")?.requested.clone();
        if let (Value::Object(requested), Value::Object(own)) =
            (serde_json::to_value(requested)?, serde_json::to_value(&self.own)?)
        {
            self.settings = requested.into_iter().chain(own).collect();
        }
        Ok(())
    }

    fn describe(&mut self, service: &mut ServiceProcess) -> Result<Description> {
        let status = status(service)?;
        let kinds: Vec<String> = status.interfaces.iter().map(|interface| interface.actuator.to_string()).collect();
        let version = format!("netrig {}, receive spreader, actuator {}", service.build(), kinds.join(", "));
        let events = log(service)?;
        let at_ns = service.counters()?.at_ns;
        let histories = status.interfaces.iter().map(|interface| self.history(interface, &events, at_ns));
        let mut state = State::default();
        state.more.insert("histories".to_owned(), serde_json::to_value(histories.collect::<Vec<_>>())?);
        state.more.insert("status".to_owned(), serde_json::to_value(status)?);
        Ok(Description { version, settings: self.settings.clone(), state })
    }

    fn command(&mut self, service: &mut ServiceProcess, name: &str, arguments: &Value) -> Result<Value> {
        match name {
            "set" => {
                let changes: SettingChanges = read(arguments)?;
                let mut done = Vec::new();
                for interface in status(service)?.interfaces {
                    let set = Request::Set { interface: interface.name, changes: changes.clone() };
                    if let Reply::Done(lines) = service.ask(set)? {
                        done.extend(lines);
                    }
                }
                Ok(json!({ "done": done }))
            }
            "status" => {
                let NoArguments {} = read(arguments)?;
                Ok(serde_json::to_value(status(service)?)?)
            }
            _ => bail!(UnknownCommand::of(&Spreader, name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use netrig_spread::settings::{Rule, Settings as File};
    use rig_spread::Mode;

    use super::*;

    fn file(settings: Value, cpus: Option<CpuSet>) -> Vec<Rule> {
        let (own, changes) = understood(&serde_json::from_value(settings).unwrap()).unwrap();
        let text = text(&["eth0", "eth1"], cpus, &own, &changes).unwrap();
        File::parse("spread.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}")).rules
    }

    #[test]
    fn what_a_suite_says_is_what_the_file_says() {
        let node = CpuSet::new([0, 2]);
        let rules = file(json!({}), Some(node.clone()));
        let mut expected = Rule::of("eth0".parse().unwrap());
        expected.settings.cpus = Some(vec![0, 2]);
        assert_eq!((rules.len(), &rules[0]), (2, &expected));
        let rules = file(json!({ "cpus": "any", "base": "any" }), None);
        assert_eq!(rules[1], Rule::of("eth1".parse().unwrap()));
        let all = json!({
            "actuator": Kind::ALL, "mode": "StaticVrss", "base": 3, "cpus": "1-3", "max_queue_pairs": 2, "min_queue_pairs": 1,
            "exclude_primary": true, "independent_host_spreading": true, "tuning": { "hold": "2s", "looks": 7 }
        });
        let rules = file(all, Some(node));
        let Rule { actuators, settings, tuning, .. } = &rules[0];
        assert_eq!((&actuators[..], settings.mode, settings.base), (&Kind::ALL[..], Mode::StaticVrss, Some(3)));
        assert_eq!((settings.cpus.as_deref(), settings.max_queue_pairs), (Some(&[1, 2, 3][..]), 2));
        assert!(settings.exclude_primary && settings.independent_host_spreading);
        assert_eq!((tuning.hold.0.as_secs(), tuning.looks), (2, 7));
    }
}
