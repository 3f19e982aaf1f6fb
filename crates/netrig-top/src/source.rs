//! Where counters come from: the kernel, programs attached to it, and services that run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use netrig_lb::instance::Name;
use netrig_vrouter::client::RouterClient;
use rig_cli::exit::{Exit, ExitContext, Failure, in_words};
use rig_datapath::napi;
use rig_datapath::receive::Receive;
use rig_service::AskError;
use rig_sys::clock::{monotonic_ns, process_cpu_ns};
use rig_sys::counters::{self, NamespaceCounters};
use rig_sys::netns::{NetNs, Sysfs};

use crate::reading::{CountedQueue, ProgramCounts, Reading};

/// What is looked at.
#[derive(Debug)]
pub enum ViewTarget {
    /// These interfaces; without any, those that a spreader has taken, or all where none runs.
    Interfaces(Vec<String>),
    Balancer(Name),
    Router(RouterClient),
}

/// Reads again and again.
#[derive(Debug)]
pub struct Source {
    wanted: ViewTarget,
    net: NamespaceCounters,
    programs: Programs,
}

impl Source {
    /// # Errors
    /// Where what is wanted is not here.
    pub fn open(wanted: ViewTarget) -> Result<Self, Failure> {
        let net = NamespaceCounters::here().or_exit(Exit::Failed)?;
        if let ViewTarget::Interfaces(names) = &wanted {
            let here = net.interfaces().or_exit(Exit::Failed)?;
            if let Some(missing) = names.iter().find(|name| !here.contains_key(*name)) {
                let list = here.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let list = if list.is_empty() { "none but lo".to_owned() } else { list };
                let error = anyhow!("no interface {missing} in this network namespace; there are: {list}");
                return Err(Failure::new(Exit::BadInput, error));
            }
        }
        let here = NetNs::of_current_thread().or_exit(Exit::Failed)?;
        Ok(Self { wanted, net, programs: Programs::new(here) })
    }

    /// # Errors
    /// Where the kernel does not tell its counters, or the service does not answer.
    pub fn read(&mut self) -> Result<Reading, Failure> {
        let begun = Instant::now();
        let mut reading = Reading { at_ns: monotonic_ns(), ..Reading::default() };
        reading.interfaces = self.net.interfaces().or_exit(Exit::Failed)?;
        reading.ticks = counters::cpu_ticks().or_exit(Exit::Failed)?;
        reading.softnet = counters::softnet().or_exit(Exit::Failed)?;
        let asked = match &self.wanted {
            ViewTarget::Interfaces(names) => {
                match netrig_spread::client::status() {
                    Ok(status) => reading.spreader = Some(status),
                    Err(AskError::NotRunning { .. }) => {}
                    Err(error) => reading.lacks.push(in_words(&error.into())),
                }
                match (&reading.spreader, names.is_empty()) {
                    (Some(status), true) => status.interfaces.iter().map(|interface| interface.name.clone()).collect(),
                    (None, true) => reading.interfaces.keys().cloned().collect(),
                    (_, false) => names.clone(),
                }
            }
            ViewTarget::Balancer(name) => {
                let status = netrig_lb::client::status(name)?;
                let devices = status.devices.iter().map(|device| device.name.clone()).collect();
                reading.balancer = Some(status);
                devices
            }
            ViewTarget::Router(asked) => {
                let status = asked.status()?;
                let peers = status.peers.iter().filter_map(|peer| peer.device.clone());
                let own = status.interfaces.iter().filter_map(|interface| interface.device.clone());
                let devices: BTreeSet<String> = peers.chain(own).collect();
                reading.router = Some(status);
                devices.into_iter().collect()
            }
        };
        for name in asked {
            if reading.interfaces.contains_key(&name) {
                reading.shown.push(name);
            } else {
                reading.lacks.push(format!("{name} is not in this network namespace"));
            }
        }
        let taken = |name: &&String| {
            let taken = reading.spreader.as_ref().map(|status| &status.interfaces[..]).unwrap_or_default();
            !taken.iter().any(|interface| interface.name == **name)
        };
        let free: BTreeSet<String> = reading.shown.iter().filter(taken).cloned().collect();
        match self.programs.read(&free, &mut reading.lacks) {
            Ok(counted) => reading.counted = counted,
            Err(error) => reading.lacks.push(format!("no counts by queue: {}", in_words(&error))),
        }
        let (user, system) = process_cpu_ns();
        reading.own_cpu = Duration::from_nanos(user + system);
        reading.took = begun.elapsed();
        Ok(reading)
    }
}

/// Programs that count by queue, attached as long as an interface is shown that no spreader counts.
#[derive(Debug)]
struct Programs {
    here: NetNs,
    sysfs: Option<Sysfs>,
    receive: Option<Receive>,
    /// Why they cannot be had, which does not change.
    refused: Option<String>,
    queues: Vec<CountedQueue>,
    steered: BTreeSet<String>,
    /// Interfaces that have no queues now, and why.
    without: BTreeMap<String, String>,
    interfaces: BTreeSet<String>,
    searched: Option<Instant>,
}

/// How often queues are searched: they come and go with the link's state, and no event tells of it.
const SEARCH_EVERY: Duration = Duration::from_secs(5);

impl Programs {
    fn new(here: NetNs) -> Self {
        Self {
            sysfs: here.sysfs().ok(),
            here,
            receive: None,
            refused: None,
            queues: Vec::new(),
            steered: BTreeSet::new(),
            without: BTreeMap::new(),
            interfaces: BTreeSet::new(),
            searched: None,
        }
    }

    fn read(
        &mut self,
        interfaces: &BTreeSet<String>,
        lacks: &mut Vec<String>,
    ) -> anyhow::Result<Option<ProgramCounts>> {
        if interfaces.is_empty() {
            // They cost a reading of the clock for each poll.
            *self = Self { sysfs: self.sysfs.take(), ..Self::new(self.here.try_clone()?) };
            return Ok(None);
        }
        if self.receive.is_none() && self.refused.is_none() {
            match Receive::attach() {
                Ok(receive) => self.receive = Some(receive),
                Err(error) => self.refused = Some(in_words(&error.into())),
            }
        }
        let Some(receive) = &self.receive else {
            let why = self.refused.as_deref().unwrap_or_default();
            lacks.push(format!("no counts by queue, only the kernel's by CPU and by interface: {why}"));
            return Ok(None);
        };
        let late = self.searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY);
        if late || self.interfaces != *interfaces {
            let mut found = Vec::new();
            self.without.clear();
            self.steered.clear();
            for name in interfaces {
                match napi::of(&self.here, name) {
                    Ok(queues) if queues.is_empty() => {
                        self.without.insert(name.clone(), format!("{name} has no receive queues of its own now"));
                    }
                    Ok(queues) => found.extend(queues.into_iter().zip(0..).map(|(napi, queue)| (name, queue, napi.id))),
                    Err(error) => {
                        self.without.insert(name.clone(), in_words(&error.into()));
                    }
                }
                if self.is_steered(name) {
                    self.steered.insert(name.clone());
                }
            }
            self.queues.retain(|old| {
                let stays = found
                    .iter()
                    .any(|(name, queue, napi)| (*name, *queue, *napi) == (&old.interface, old.queue, old.napi));
                stays || receive.forget(old.napi).is_err()
            });
            for (name, queue, napi) in found {
                if self.queues.iter().any(|old| old.napi == napi) {
                    continue;
                }
                let index = (0..).find(|index| self.queues.iter().all(|old| old.index != *index)).unwrap_or_default();
                receive.watch(napi, index).with_context(|| format!("watch queue {queue} of {name}"))?;
                self.queues.push(CountedQueue { interface: name.clone(), queue, napi, index });
            }
            self.queues.sort_by(|a, b| (&a.interface, a.queue).cmp(&(&b.interface, b.queue)));
            self.interfaces.clone_from(interfaces);
            self.searched = Some(Instant::now());
        }
        // Of all interfaces of a machine, most have none.
        if let [(_, why)] = &self.without.iter().collect::<Vec<_>>()[..] {
            lacks.push(format!("{why}: counted by the kernel alone"));
        } else if !self.without.is_empty() {
            let names: Vec<&str> = self.without.keys().map(String::as_str).collect();
            lacks
                .push(format!("no receive queues of their own now, counted by the kernel alone: {}", names.join(", ")));
        }
        let places = self.queues.iter().map(|queue| queue.index + 1).max().unwrap_or(0);
        let reading = receive.read(places)?;
        Ok(Some(ProgramCounts { reading, queues: self.queues.clone(), steered: self.steered.clone() }))
    }

    fn is_steered(&self, interface: &str) -> bool {
        let Some(sysfs) = &self.sysfs else { return false };
        let mask = sysfs.read(interface, "queues/rx-0/rps_cpus").unwrap_or_default();
        mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
    }
}
