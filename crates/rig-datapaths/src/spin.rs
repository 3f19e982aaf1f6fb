//! A known time for each packet that a node receives: by it one sees whether a difference of that size is found.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rig_datapath::spin::Spin;
use rig_sys::advice::{NAMESPACES, rights};
use rig_testbed::datapath::{
    Attach, Counters, Datapath, DatapathRequest, Live, Machine, Missing, Mistake, Process, Settings, Site, State,
    UnknownCommand, read_settings,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::node;

#[derive(Debug)]
pub(crate) struct SpinDatapath;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpinSettings {
    /// Nanoseconds.
    time_ns: u64,
}

impl Datapath for SpinDatapath {
    fn name(&self) -> &'static str {
        "spin"
    }

    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake> {
        let own: SpinSettings = read_settings(asked.settings)?;
        if Spin::TIME_NS.contains(&own.time_ns) {
            return Ok(());
        }
        let hint = format!("choose {} to {} ns", Spin::TIME_NS.start(), Spin::TIME_NS.end());
        Err(Mistake::new(format!("{} ns for each packet cannot be spent", own.time_ns), hint).at("time_ns"))
    }

    fn missing(&self, machine: &Machine, _: &Settings) -> Option<Missing> {
        machine.rootless.then(|| Missing::new("eBPF programs on interfaces need root", rights(NAMESPACES)))
    }

    fn try_out(&self) -> Result<()> {
        Ok(Spin::load(Duration::from_nanos(*Spin::TIME_NS.start())).map(drop)?)
    }

    fn process(&self) -> Process<'_> {
        Process::Agent(self)
    }
}

impl Attach for SpinDatapath {
    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>> {
        let own: SpinSettings = read_settings(settings)?;
        let links = site.interfaces();
        if links.is_empty() {
            bail!("node {} has no interface that leads to another node", site.node());
        }
        let netlink = node::netlink()?;
        let mut spin = Spin::load(Duration::from_nanos(own.time_ns))?;
        for link in links {
            let index = netlink.index(&link.name)?;
            spin.attach(index).with_context(|| format!("spend time on packets of {}", link.name))?;
        }
        Ok(Box::new(LiveSpin { spin, settings: settings.clone() }))
    }
}

#[derive(Debug)]
struct LiveSpin {
    spin: Spin,
    settings: Settings,
}

impl Live for LiveSpin {
    fn version(&self) -> Result<String> {
        Ok(format!("netrig {}, a known time for each packet", env!("CARGO_PKG_VERSION")))
    }

    fn settings(&self) -> Settings {
        self.settings.clone()
    }

    fn counters(&self) -> Result<Counters> {
        let spun = self.spin.spun()?;
        let time_ns = u64::try_from(spun.time.as_nanos())?;
        let counts = BTreeMap::from([("packets".to_owned(), spun.packets), ("spun_ns".to_owned(), time_ns)]);
        Ok(Counters { counts, drops: Vec::new() })
    }

    fn state(&self) -> Result<State> {
        Ok(State::default())
    }

    fn command(&mut self, name: &str, _arguments: &Value) -> Result<Value> {
        bail!(UnknownCommand::of(&SpinDatapath, name))
    }
}
