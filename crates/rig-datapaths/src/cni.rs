//! CNI plug-ins, as a container runtime calls them: what they make for containers is the network that is measured.
//!
//! The agent is the runtime. Its process is in the node's network namespace, where plug-ins make bridges and rules, and has mounts of its
//! own, where they keep leases and locks: nothing of it is the machine's.

mod conformance;
mod containers;
mod leftovers;
mod operations;
mod ports;
mod reach;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig_cni::{Conflist, Failure, PluginFailure, default_folders};
use rig_stats::units::Span;
use rig_testbed::datapath::{
    Attach, Command, Counters, Datapath, DatapathRequest, Live, Mistake, Process, Settings, Site, State,
    UnknownCommand, read_settings,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::containers::Containers;
use self::operations::AtOnce;
use self::ports::Ports;
use crate::arguments::{self, NoArguments};

/// How long a plug-in may take where nothing is said: what takes longer is taken to hang.
const TIME_LIMIT: Duration = Duration::from_secs(30);
const TIME_LIMITS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(120);
/// Of a whole chain, so that an operation that hangs ends well before an agent's answer is waited for no more.
const CHAIN_LIMIT: Duration = Duration::from_secs(120);
/// A hundred containers at once wait for each other's locks, in each plug-in of a chain.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// When a command begins nothing more. What has begun may then take two operations, the second a DEL, and a while for packets.
const BUDGET: Duration = Duration::from_secs(300);

/// How much longer a command may begin something.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    began: Instant,
    budget: Duration,
}

impl Deadline {
    fn new() -> Self {
        Self { began: Instant::now(), budget: BUDGET }
    }

    fn has_passed(self) -> bool {
        self.began.elapsed() >= self.budget
    }

    /// In words, with the last call that had to be ended, where there is one.
    fn stopped(self, hanging: Option<&str>) -> String {
        let after = self.began.elapsed().as_secs();
        hanging.map_or_else(
            || format!("stopped after {after} s, the time that there is for it"),
            |hanging| format!("stopped after {after} s: {hanging}"),
        )
    }
}

/// A call that was ended for its time limit, in words.
fn hanging(failure: &PluginFailure) -> Option<String> {
    let PluginFailure { plugin, command, failure, .. } = failure;
    matches!(failure, Failure::TimedOut { .. }).then(|| format!("{command} of plug-in {plugin} does not end"))
}

#[derive(Debug)]
pub(crate) struct Cni;

/// What a suite says of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CniSettings {
    /// The text of a network configuration.
    conflist: String,
    /// Where plug-ins are looked for, in this order.
    bin: Option<Vec<PathBuf>>,
    /// How many of its plug-ins are called, from the first; all where that is not said.
    plugins: Option<usize>,
    /// What plug-ins that have a capability are told, by its name.
    #[serde(default)]
    capabilities: Map<String, Value>,
    /// Of each call of a plug-in.
    time_limit: Option<Span>,
}

impl CniSettings {
    fn network(&self) -> Result<Conflist, Mistake> {
        if !self.conflist.trim_start().starts_with('{') {
            let what = format!("'{}' is no text of a network configuration", self.conflist);
            return Err(
                Mistake::new(what, "name a file beside the suite file, or write its JSON itself").at("conflist")
            );
        }
        let network = Conflist::parse(&self.conflist)
            .map_err(|error| Mistake { hint: None, ..Mistake::new(error.to_string(), "").at("conflist") })?;
        match self.plugins {
            Some(count) if !(1..=network.plugins.len()).contains(&count) => {
                let what = format!("{count} plug-ins of network {}", network.name);
                let hint = format!("it has {}: {}", network.plugins.len(), network.chain());
                Err(Mistake::new(what, hint).at("plugins"))
            }
            Some(count) => Ok(network.of_first(count)),
            None => Ok(network),
        }
    }

    /// How many plug-ins an operation calls.
    fn called(&self) -> u32 {
        self.network().map_or(1, |network| network.plugins.len().max(1) as u32)
    }

    fn time_limit(&self) -> Duration {
        self.time_limit.map_or_else(|| TIME_LIMIT.min(CHAIN_LIMIT / self.called()), |limit| limit.0)
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.bin.clone().unwrap_or_else(default_folders)
    }
}

const AT_ONCE: &str = "at_once";
const CONFORM: &str = "conform";

const COMMANDS: &[Command] = &[
    Command {
        name: AT_ONCE,
        about: "adds so many containers at once, checks and deletes them, and says how long each took: count 1 to 250 (1), rounds \
                of it 1 to 100 (1), together up to 2000 containers",
    },
    Command { name: CONFORM, about: "tries what the specification asks of plug-ins, and says what held" },
];

impl Datapath for Cni {
    fn name(&self) -> &'static str {
        "cni"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        if asked.settings.is_empty() {
            let hint = "give it [[scenario.datapath]] with name = \"cni\" and conflist = \"FILE\"";
            return Err(Mistake::new("path cni without a network configuration", hint));
        }
        let own: CniSettings = read_settings(asked.settings)?;
        own.network()?;
        if let Some(folder) = own.folders().iter().find(|folder| !folder.is_absolute()) {
            let what = format!("plug-ins in '{}'", folder.display());
            return Err(Mistake::new(what, "write the whole path of the folder").at("bin"));
        }
        if !TIME_LIMITS.contains(&own.time_limit()) {
            let what = format!("a time limit of {} for each plug-in", Span(own.time_limit()));
            let hint = format!("choose {} to {}", Span(*TIME_LIMITS.start()), Span(*TIME_LIMITS.end()));
            return Err(Mistake::new(what, hint).at("time_limit"));
        }
        let called = own.called();
        if own.time_limit().saturating_mul(called) > CHAIN_LIMIT {
            let what = format!("a time limit of {} for each of {called} plug-ins", Span(own.time_limit()));
            let hint =
                format!("choose at most {}: all of them may take {}", Span(CHAIN_LIMIT / called), Span(CHAIN_LIMIT));
            return Err(Mistake::new(what, hint).at("time_limit"));
        }
        if let Some((port, highest)) = Ports::of(&own.capabilities).without_room() {
            let what =
                format!("hostPort {port}: each container has ports further up, and those of the last are beyond 65535");
            return Err(Mistake::new(what, format!("choose ports up to {highest}")).at("capabilities"));
        }
        Ok(())
    }

    fn commands(&self) -> &'static [Command] {
        COMMANDS
    }

    fn check_command(&self, name: &str, arguments: &Settings) -> Result<(), Mistake> {
        match name {
            AT_ONCE => read_settings::<AtOnce>(arguments)?.check(),
            _ => read_settings::<NoArguments>(arguments).map(drop),
        }
    }

    fn answer_timeout(&self) -> Duration {
        ANSWER_TIMEOUT
    }

    fn starts_programs(&self) -> bool {
        true
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for Cni {
    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>> {
        let own: CniSettings = read_settings(settings)?;
        let containers = Containers::attach(site, &own)?;
        Ok(Box::new(LiveCni { containers: Some(containers), settings: settings.clone() }))
    }
}

#[derive(Debug)]
struct LiveCni {
    /// `None` when they were deleted.
    containers: Option<Containers>,
    settings: Settings,
}

impl LiveCni {
    fn containers(&self) -> Result<&Containers> {
        self.containers.as_ref().context("find the containers, which are deleted")
    }
}

impl Live for LiveCni {
    fn version(&self) -> Result<String> {
        let runtime = self.containers()?.runtime();
        let network = runtime.network();
        Ok(format!("CNI {}, network {}: {}", runtime.version(), network.name, network.chain()))
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::default())
    }

    fn state(&self) -> Result<State> {
        let containers = self.containers()?;
        let Value::Object(more) = json!({ "attachments": containers.told() }) else { bail!("no object") };
        Ok(State { addresses: containers.addresses(), more, ..State::default() })
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        let containers = self.containers()?;
        match name {
            AT_ONCE => operations::at_once(containers, &arguments::read(arguments)?),
            CONFORM => {
                let NoArguments {} = arguments::read(arguments)?;
                conformance::conform(containers)
            }
            _ => bail!(UnknownCommand::of(&Cni, name)),
        }
    }

    fn detach(mut self: Box<Self>) -> Result<()> {
        self.containers.take().map_or(Ok(()), Containers::delete)
    }
}

#[cfg(test)]
mod tests;
