//! netrig's own overlay router, `netrig vrouter run` on every node of the path.

mod commands;
mod settings;

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use netrig_vrouter::ROUTER;
use netrig_vrouter::message::{Reply, Request, Status, Table};
use rig_datapath::vrouter::{Encapsulation, Router, Sizes};
use rig_sys::advice::{NAMESPACES, rights};
use rig_testbed::datapath::protocol::Description;
use rig_testbed::datapath::{
    Command, Control, Datapath, DatapathRequest, Machine, Missing, Mistake, Process, ServiceAgent, ServiceProcess,
    Settings, Site, Start, Starting, State, read_settings,
};
use rig_testbed::host::Host;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::settings::{Policy, TestbedSettings};

/// tc programs on the node's ends of containers' links and on the wire.
#[derive(Debug)]
pub(crate) struct Vrouter;

/// What a suite can say of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SuiteSettings {
    #[serde(default)]
    encapsulation: Wrapping,
    /// Whether packets are held against rules, and are of flows.
    #[serde(default = "yes")]
    policy: bool,
    /// Rules of each container and direction that match nothing, before one that allows all.
    #[serde(default)]
    rules: u32,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Wrapping {
    #[default]
    MplsOUdp,
    MplsOGre,
    Vxlan,
}

fn yes() -> bool {
    true
}

/// The most rules that are asked for: one more allows.
const MOST_RULES: u32 = 1023;

impl Datapath for Vrouter {
    fn name(&self) -> &'static str {
        "vrouter"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        let own: SuiteSettings = read_settings(asked.settings)?;
        check_rules(own.rules).map_err(|mistake| mistake.at("rules"))?;
        if own.rules > 0 && !own.policy {
            return Err(Mistake::new("rules without policy", "remove one of both").at("rules"));
        }
        Ok(())
    }

    fn missing(&self, machine: &Machine, _: &Settings) -> Option<Missing> {
        machine.rootless.then(|| Missing::new("tc programs need root", rights(NAMESPACES)))
    }

    fn try_out(&self) -> Result<()> {
        Router::load(Sizes::default()).map(drop).context("load the vRouter's programs")
    }

    fn commands(&self) -> &'static [Command] {
        commands::ALL
    }

    fn check_command(&self, name: &str, arguments: &Settings) -> Result<(), Mistake> {
        commands::check(name, arguments)
    }

    fn process(&self) -> Process<'_> {
        Process::Service(self)
    }
}

impl Start for Vrouter {
    fn start(&self, host: &dyn Host, site: &Site, settings: &Settings) -> Result<Box<dyn Starting>> {
        let own: SuiteSettings = read_settings(settings)?;
        let policy = own.policy.then_some(Policy { rules: own.rules, allows: true });
        let testbed = TestbedSettings::of(site, own.encapsulation.into(), policy)?;
        let text = testbed.text().context("write the vRouter's settings")?;
        let arguments = ["vrouter", "run", "--on-stdio", "--node", site.node()];
        let service = ServiceProcess::start(host, self, site, &arguments, &ROUTER.protocol(), &text)?;
        let Value::Object(settings) = serde_json::to_value(&own)? else { bail!("settings that are not a table") };
        let routing = Routing { encapsulation: own.encapsulation.into(), settings, testbed };
        Ok(Box::new(ServiceAgent::new(service, routing)))
    }
}

fn check_rules(rules: u32) -> Result<(), Mistake> {
    match rules {
        0..=MOST_RULES => Ok(()),
        _ => Err(Mistake::new(format!("{rules} rules"), format!("choose up to {MOST_RULES}"))),
    }
}

/// The router of a node at work.
#[derive(Debug)]
struct Routing {
    encapsulation: Encapsulation,
    /// The suite's, in force.
    settings: Settings,
    /// What its settings are made of.
    testbed: TestbedSettings,
}

impl Routing {
    /// Has the router do what other settings say, from its next packet on.
    fn reload(&mut self, service: &mut ServiceProcess, testbed: TestbedSettings) -> Result<()> {
        service.reload(&testbed.text()?)?;
        complete(&status(service)?)?;
        if let Some(Policy { rules, .. }) = testbed.policy {
            self.settings.insert("rules".to_owned(), rules.into());
        }
        self.testbed = testbed;
        Ok(())
    }
}

/// What of the settings is not in force is no testbed as it was asked for.
fn complete(status: &Status) -> Result<()> {
    match status.notes.first() {
        Some(note) => bail!("{note}"),
        None => Ok(()),
    }
}

fn status(service: &mut ServiceProcess) -> Result<Status> {
    match service.ask(Request::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(service.unasked(&other)),
    }
}

fn tables(service: &mut ServiceProcess) -> Result<Vec<Table>> {
    match service.ask(Request::Routes(None))? {
        Reply::Routes(tables) => Ok(tables),
        other => Err(service.unasked(&other)),
    }
}

impl From<Wrapping> for Encapsulation {
    fn from(wrapping: Wrapping) -> Self {
        match wrapping {
            Wrapping::MplsOUdp => Self::MplsOverUdp,
            Wrapping::MplsOGre => Self::MplsOverGre,
            Wrapping::Vxlan => Self::Vxlan,
        }
    }
}

impl Control for Routing {
    fn begun(&mut self, service: &mut ServiceProcess) -> Result<()> {
        complete(&status(service)?).context("start the vRouter")
    }

    fn describe(&mut self, service: &mut ServiceProcess) -> Result<Description> {
        let Status { netrig_version, interfaces, .. } = status(service)?;
        Ok(Description {
            version: format!("netrig {netrig_version}, tc programs, {}", self.encapsulation.name()),
            settings: self.settings.clone(),
            state: State {
                connections: Some(interfaces.iter().map(|interface| interface.connections).sum()),
                ..State::default()
            },
        })
    }

    fn command(&mut self, service: &mut ServiceProcess, name: &str, arguments: &Value) -> Result<Value> {
        commands::execute(self, service, name, arguments)
    }
}

/// Names of a set, for messages.
fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
