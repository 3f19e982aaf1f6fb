//! netrig's own overlay router, on every node of the path.

mod commands;
mod nodes;
mod runner;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use netrig_vrouter::compile::{self, Numbers, compile};
use netrig_vrouter::routes::{RouteSource, RouteTable};
use netrig_vrouter::settings::Settings as Nodes;
use rig_datapath::vrouter::{Action, Config, Encapsulation, Router, Sizes};
use rig_sys::advice::{NAMESPACES, rights};
use rig_testbed::datapath::{
    Asked, Command, Counters, Datapath, Live, Machine, Missing, Mistake, Settings, Site, State, read_settings,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::commands::Told;
use self::runner::RunnerRoutes;
use crate::node;

/// tc programs on the node's ends of containers' links and on the wire.
#[derive(Debug)]
pub(crate) struct Vrouter;

/// What a suite can say of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
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

/// How often flows that have ended are forgotten.
const SWEEP: Duration = Duration::from_secs(1);
/// The most rules that are asked for: one more allows.
const MOST_RULES: u32 = 1023;

impl Datapath for Vrouter {
    fn name(&self) -> &'static str {
        "vrouter"
    }

    fn validate(&self, asked: &Asked<'_>) -> Result<(), Mistake> {
        let own: Own = read_settings(asked.settings)?;
        check_rules(own.rules).map_err(|mistake| mistake.at("rules"))?;
        if own.rules > 0 && !own.policy {
            return Err(Mistake::new("rules without policy", "remove one of both").at("rules"));
        }
        Ok(())
    }

    fn missing(&self, machine: &Machine) -> Option<Missing> {
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

    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>> {
        Ok(Box::new(Routing::start(site, settings).context("start the vRouter")?))
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
    router: Router,
    control: Control,
    /// Where tunnels to each node end; nowhere, of this one.
    ends: BTreeMap<String, Option<Ipv4Addr>>,
    asked: Settings,
    encapsulation: Encapsulation,
    interfaces: BTreeSet<u32>,
    sweeping: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Routing {
    fn start(site: &Site, settings: &Settings) -> Result<Self> {
        let own: Own = read_settings(settings)?;
        let netlink = node::netlink()?;
        let encapsulation = own.encapsulation.into();
        let nodes = nodes::settings(site, encapsulation)?;
        let kernel = nodes::site(&nodes, site.plan(), site.number(), |name| Ok(netlink.index(name)?))?;
        let name = site.node();
        let policy = own.policy.then_some((own.rules, Action::Allow));
        let mut control = Control::new(nodes, kernel, name, Told { policy });
        let config = control.config()?;
        let ends = control.settings.nodes.iter();
        let ends = ends.map(|(node, of)| (node.clone(), Some(of.address).filter(|_| node != name))).collect();
        let interfaces = config.interfaces.keys().copied().collect();
        let room = control.settings.router.flows;
        let mut router = Router::load(Sizes { flows: room.saturating_mul(2), ..Sizes::default() })?;
        router.apply(&config)?;
        router.attach()?;
        let (sweeper, timeouts) = (router.sweeper(), control.settings.router.timeouts);
        let (stop, stopped) = channel();
        let sweeping = node::thread("vrouter", move || {
            while stopped.recv_timeout(SWEEP) == Err(RecvTimeoutError::Timeout) {
                // As `netrig vrouter run` does. A table that cannot be read now can be the next time; flows that stay are counted where
                // there are too many.
                let _ = sweeper.runs_short(room).and_then(|runs_short| sweeper.sweep(&timeouts, runs_short));
            }
        })?;
        let Value::Object(asked) = serde_json::to_value(&own)? else { bail!("settings that are not a table") };
        let sweeping = Some((stop, sweeping));
        Ok(Self { router, control, ends, asked, encapsulation, interfaces, sweeping })
    }

    /// Has the router do what its control says, from its next packet on.
    fn tell(&mut self, mut control: Control) -> Result<()> {
        self.router.apply(&control.config()?)?;
        if let Some((rules, _)) = control.told.policy {
            self.asked.insert("rules".to_owned(), rules.into());
        }
        self.control = control;
        Ok(())
    }

    fn connections(&self) -> Result<u64> {
        let each = self.interfaces.iter().map(|interface| self.router.connections(*interface));
        Ok(each.sum::<Result<u64, _>>()?)
    }
}

/// What decides what the router of a node does: the control plane of `netrig vrouter run`, whose routes to other nodes come from
/// the rig's runner.
#[derive(Debug, Clone)]
struct Control {
    /// Of all nodes.
    settings: Nodes,
    kernel: compile::Site,
    node: String,
    source: RunnerRoutes,
    table: RouteTable,
    numbers: Numbers,
    told: Told,
}

impl Control {
    fn new(settings: Nodes, kernel: compile::Site, node: &str, told: Told) -> Self {
        let source = RunnerRoutes::new(&settings, node);
        let (table, numbers) = (RouteTable::default(), Numbers::default());
        Self { settings, kernel, node: node.to_owned(), source, table, numbers, told }
    }

    fn config(&mut self) -> Result<Config> {
        for update in self.source.updates()? {
            self.table.apply(update);
        }
        let compiled = compile(&self.settings, &self.node, &self.kernel, &self.table, &mut self.numbers)?;
        // They say what is left out.
        if let Some(note) = compiled.notes.first() {
            bail!("{note}");
        }
        self.told.with_rules(compiled.config)
    }
}

impl Drop for Routing {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.sweeping.take() {
            drop(stop);
            let _ = thread.join();
        }
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

impl Live for Routing {
    fn version(&self) -> Result<String> {
        Ok(format!("netrig {}, tc programs, {}", env!("CARGO_PKG_VERSION"), self.encapsulation.name()))
    }

    fn settings(&self) -> Settings {
        self.asked.clone()
    }

    fn counters(&self) -> Result<Counters> {
        let mut counts = BTreeMap::new();
        for interface in &self.interfaces {
            let traffic = self.router.traffic(*interface)?;
            for (name, count) in [
                ("in_packets", traffic.in_packets),
                ("in_bytes", traffic.in_bytes),
                ("out_packets", traffic.out_packets),
                ("out_bytes", traffic.out_bytes),
            ] {
                *counts.entry(name.to_owned()).or_insert(0) += count;
            }
        }
        let drops = self.router.drops()?.into_iter().map(|(reason, count)| (reason.text().to_owned(), count));
        Ok(Counters { counts, drops: drops.collect() })
    }

    fn state(&self) -> Result<State> {
        Ok(State { connections: Some(self.connections()?), ..State::default() })
    }

    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        commands::execute(self, name, arguments)
    }
}
