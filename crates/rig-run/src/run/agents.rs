//! The datapaths of a scenario at work, each of their agents on its node, and what they tell for the record.
//!
//! They stand as long as the value lives. Their processes die with the host's program, and everything else is gone with the
//! testbed's namespaces.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use rig_cli::exit::{both, in_words};
use rig_facts::flame::{FoldedStacks, HERTZ};
use rig_facts::programme::Command;
use rig_facts::record::{AgentRecord, CommandRecord, DutRecord, NodeRecord, Profile};
use rig_stats::series::Track;
use rig_suite::suite::{ALONE, DatapathSetup, Scenario, Traffic, asked, server};
use rig_sys::clock::{monotonic_ns, own_cpu_ns};
use rig_sys::cpu::CpuSet;
use rig_testbed::datapath::protocol::{Description, Reading};
use rig_testbed::datapath::{self, Counters, DatapathRegistry, Missing, Services, Site, Starting, State};
use rig_testbed::host::{Host, StackSampling};
use rig_testbed::topology::{Family, Layout};
use rig_testbed::{LostPeer, Placement, Testbed};
use serde_json::Value;

use super::stacks::host_of;
use crate::run::MissingResource;

/// What datapaths call the count of connections that have begun.
const CONNECTIONS: &str = "connections";

/// Agents that are being started at a time: each has programs that the kernel verifies, and none is to wait so long for a CPU that it
/// is given up.
const AT_ONCE: usize = 8;

/// All agents of a scenario.
#[derive(Debug)]
pub struct Agents(Vec<Agent>);

/// A datapath at work on a node.
#[derive(Debug)]
struct Agent {
    /// Its node's number.
    node: usize,
    /// CPUs on which it carries packets, and those of them that other nodes have too.
    cpus: CpuSet,
    shared: CpuSet,
    /// Whether it stands between the ends of the load.
    is_between: bool,
    profile: bool,
    process: RefCell<Box<dyn datapath::Agent>>,
}

/// An agent that is being started.
struct StartingAgent {
    node: usize,
    site: Site,
    is_between: bool,
    profile: bool,
    starting: Box<dyn Starting>,
}

/// What agents have counted over time.
#[derive(Debug)]
pub(super) struct Sampler {
    last: Vec<Reading>,
    tracks: Vec<Track>,
    /// CPU time that the readings took.
    cost_ns: u64,
}

impl Sampler {
    /// Counts from now on.
    ///
    /// # Errors
    /// When an agent does not tell its counters.
    pub(super) fn start(agents: &Agents) -> Result<Self> {
        let last = agents.read()?;
        let tracks = vec![Track::default(); last.len()];
        Ok(Self { last, tracks, cost_ns: 0 })
    }

    /// Reads what has happened since the last time.
    ///
    /// # Errors
    /// When an agent does not tell its counters.
    pub(super) fn sample(&mut self, agents: &Agents) -> Result<()> {
        let before_ns = own_cpu_ns();
        let now = agents.read()?;
        for (track, (now, last)) in self.tracks.iter_mut().zip(now.iter().zip(&self.last)) {
            let span_us = now.at_ns.saturating_sub(last.at_ns) / 1000;
            let Counters { counts, drops } = now.counters.since(&last.counters);
            self.cost_ns += now.cost_ns;
            let drops: Vec<_> = drops.into_iter().map(|(why, count)| (format!("dropped: {why}"), count)).collect();
            let values = counts.iter().chain(drops.iter().map(|(why, count)| (why, count)));
            track.push(span_us, values.map(|(name, count)| (name.as_str(), *count)));
        }
        self.last = now;
        self.cost_ns += own_cpu_ns().saturating_sub(before_ns);
        Ok(())
    }

    /// The course of each agent, and the CPU time in nanoseconds that it took to read it.
    pub(super) fn finish(self) -> (Vec<Track>, u64) {
        (self.tracks.into_iter().map(Track::finished).collect(), self.cost_ns)
    }
}

/// A window that has begun: what was read at its begin, of each agent.
#[derive(Debug)]
pub struct Window(Vec<(Reading, Option<Result<StackSampling>>)>);

/// A window that has ended.
#[derive(Debug, Default)]
pub struct Observed(Vec<(AgentRecord, Option<DutRecord>, Option<Result<StackSampling>>)>);

impl Observed {
    /// To be called when the load has ended, whose CPUs it may use: what each agent did, and what the node between the
    /// ends did, where there is one.
    ///
    /// # Errors
    /// When the host does not answer.
    pub fn records(self, host: &dyn Host) -> Result<(Vec<AgentRecord>, Option<DutRecord>)> {
        let (mut agents, mut dut) = (Vec::new(), None);
        for (agent, node, sampled) in self.0 {
            let own = host_of(host, &agent.node);
            agents.push(agent);
            let Some(node) = node else { continue };
            let stacks = match sampled {
                Some(Ok(sampling)) => Some(own.folded_stacks(sampling)?),
                Some(Err(why)) => Some(FoldedStacks::nothing(HERTZ, &in_words(&why))),
                None => None,
            };
            let cpus = CpuSet::new(node.workers.iter().copied());
            dut = Some(DutRecord { profile: stacks.map(|stacks| Profile::of(&stacks, &cpus)), ..node });
        }
        Ok((agents, dut))
    }
}

/// Why a scenario cannot be run on any machine; `None` when it can.
pub fn impossible(scenario: &Scenario, datapaths: DatapathRegistry) -> Option<Missing> {
    scenario.datapaths.iter().find_map(|setup| match datapaths.find(&setup.name) {
        Some(datapath) => datapath.impossible(&asked(scenario, setup)),
        None => Some(unknown(setup, datapaths)),
    })
}

/// Why a scenario cannot be run with its nodes on a host, however that is configured; `None` when nothing speaks against it.
///
/// # Errors
/// When the host cannot be asked.
pub fn not_here(
    scenario: &Scenario,
    placement: &Placement,
    datapaths: DatapathRegistry,
    host: &dyn Host,
) -> Result<Option<MissingResource>> {
    let lack = |Missing { found, remedy }: Missing| {
        let effect = format!("scenario {} is left out", scenario.id);
        MissingResource { found, effect, remedy }
    };
    let workers = scenario.dut.filter(|_| scenario.topology.dut().is_some()).map_or(0, |dut| dut.workers);
    if !placement.has_cpus_for(workers) {
        let found = format!("{workers} workers need a CPU each");
        return Ok(Some(lack(Missing::new(found, "use a machine with more CPUs, or name more with --cpus"))));
    }
    if let Some(missing) = impossible(scenario, datapaths) {
        return Ok(Some(lack(missing)));
    }
    let mut missing =
        scenario.datapaths.iter().filter_map(|setup| host.missing(&setup.name, &setup.settings).transpose());
    Ok(missing.next().transpose()?.map(lack))
}

fn unknown(setup: &DatapathSetup, datapaths: DatapathRegistry) -> Missing {
    Missing::new(format!("no datapath '{}'", setup.name), format!("datapaths are {}", datapaths.names()))
}

/// What clients of the scenario reach through the node between them and the servers.
fn services(scenario: &Scenario, testbed: &Testbed<'_>) -> Result<Services> {
    let topology = testbed.topology();
    let (Some((protocol, ports)), Some(packets)) = (server(scenario), &scenario.traffic.packets) else {
        bail!("path {} carries loads of packets only: give the load kind = \"packets\"", topology.path());
    };
    let (from, to) = scenario.traffic.pairs.first().context("find the load's ends")?;
    let dut = scenario.dut.unwrap_or(ALONE);
    let virtuals = topology.virtual_pool().addresses(dut.service_addresses);
    Ok(Services {
        protocol,
        addresses: virtuals.flat_map(|ip| ports.clone().map(move |port| (ip, port).into())).collect(),
        backends: topology.addresses(to, packets.server_addresses).context("find the servers")?,
        local: topology.local_pool().addresses(dut.local_addresses).collect(),
        clients: from.node.clone(),
        servers: to.node.clone(),
    })
}

impl Agents {
    /// Puts to work what the scenario has on the nodes of `testbed`: several are started before the first is waited for. On paths
    /// with networks it then looks whether containers reach those of their own, and no others.
    ///
    /// # Errors
    /// Names what could not be set up, or the container that is not reached ([`rig_testbed::preflight::NetworkFault`]).
    pub fn attach(scenario: &Scenario, testbed: &Testbed<'_>, datapaths: DatapathRegistry) -> Result<Self> {
        let topology = testbed.topology();
        let (mut begun, mut agents) = (VecDeque::new(), Vec::new());
        for setup in &scenario.datapaths {
            let Some(datapath) = datapaths.find(&setup.name) else {
                let Missing { found, remedy } = unknown(setup, datapaths);
                bail!("{found}: {remedy}");
            };
            for on in &setup.nodes {
                let node = topology.nodes().iter().position(|node| node.name == *on);
                let node = node.with_context(|| format!("find node {on} for {}", setup.name))?;
                let is_between = topology.dut() == Some(node);
                let services = is_between.then(|| services(scenario, testbed)).transpose()?;
                let site = Site::new(testbed, node, services)?;
                let profile = is_between && scenario.dut.is_some_and(|dut| dut.profile);
                if profile {
                    // A figure less, with the reason, where stacks are not to be had.
                    let _unsampled = host_of(testbed.host(), on).prepare_stacks(site.cpus());
                }
                let starting = datapath::start(testbed.host(), datapath, &site, &setup.settings)?;
                begun.push_back(StartingAgent { node, site, is_between, profile, starting });
                if begun.len() == AT_ONCE
                    && let Some(first) = begun.pop_front()
                {
                    agents.push(first.attached()?);
                }
            }
        }
        for last in begun {
            agents.push(last.attached()?);
        }
        if topology.path().layout() == Layout::Several {
            testbed.check_networks().context("before the load")?;
        }
        Ok(Self(agents))
    }

    /// Has the testbed know the containers that they have made, and the addresses that they have given, on a path that leaves that to them.
    ///
    /// # Errors
    /// When an agent does not tell, a container is not to be found, or an end of a load was given no address of the testbed's family.
    pub fn complete_testbed(&self, scenario: &Scenario, testbed: &mut Testbed<'_>) -> Result<()> {
        let topology = &scenario.topology;
        if !topology.path().addresses_are_given() {
            return Ok(());
        }
        let mut given: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        let mut reached_at = BTreeMap::new();
        for agent in &self.0 {
            let state = agent.process.borrow_mut().describe()?.state;
            testbed.use_containers(&state.containers)?;
            given.extend(state.addresses);
            reached_at.extend(state.reached_at);
        }
        let is_ipv6 = topology.family() == Family::Ipv6;
        for end in scenario.traffic.endpoints().chain(scenario.under.iter().flat_map(Traffic::endpoints)) {
            let of_end = given.get(&end.to_string()).map_or(&[][..], Vec::as_slice);
            if !of_end.iter().any(|address| address.is_ipv6() == is_ipv6) {
                let got: Vec<String> = of_end.iter().map(ToString::to_string).collect();
                let got = if got.is_empty() { "none".to_owned() } else { got.join(", ") };
                bail!(
                    "{end} was given no address of {}, which the testbed asks for, but {got}: configure the network for both, or give \
                     the testbed another family",
                    if is_ipv6 { "IPv6" } else { "IPv4" }
                );
            }
        }
        testbed.note_addresses(given, reached_at);
        Ok(())
    }

    /// Without any.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// To be called at the window's begin. Stacks are sampled where the scenario and `samples` say so.
    ///
    /// # Errors
    /// When an agent does not tell its counters.
    pub fn begin(&self, host: &dyn Host, samples: bool) -> Result<Window> {
        let begun = self.read()?;
        let start = |agent: &Agent| host_of(host, &agent.on()).start_stacks(&agent.cpus, HERTZ);
        let stacks = |agent: &Agent| (samples && agent.profile).then(|| start(agent));
        Ok(Window(begun.into_iter().zip(self.0.iter().map(stacks)).collect()))
    }

    /// To be called at the window's end; `nodes` are what the testbed's counters say of the window.
    ///
    /// # Errors
    /// When an agent does not tell of itself.
    pub fn end(&self, host: &dyn Host, window: Window, nodes: &[NodeRecord]) -> Result<Observed> {
        let now = self.read()?;
        let mut observed = Vec::new();
        for ((agent, now), (begin, stacks)) in self.0.iter().zip(now).zip(window.0) {
            let record = agent.record(&begin, &now)?;
            // Last, for it takes some milliseconds.
            if let Some(Ok(sampling)) = &stacks {
                host_of(host, &agent.on()).stop_stacks(*sampling)?;
            }
            let node = nodes.get(agent.node).filter(|_| agent.is_between);
            let dut = node.map(|node| agent.of_node(&record, node));
            observed.push((record, dut, stacks));
        }
        Ok(Observed(observed))
    }

    /// What each has counted. All read at the same time, and stamp when: how long it takes to hear of it is nothing of a window.
    fn read(&self) -> Result<Vec<Reading>> {
        self.0.iter().try_for_each(|agent| agent.process.borrow_mut().begin_reading())?;
        self.0.iter().map(|agent| agent.process.borrow_mut().reading()).collect()
    }

    /// The first that does not answer any more: where a load fails, that may be why.
    pub(super) fn lost(&self) -> Option<anyhow::Error> {
        self.read().err().filter(anyhow::Error::is::<LostPeer>)
    }

    /// What each agent has counted since it was attached, with its name and its node's.
    ///
    /// # Errors
    /// When an agent does not tell.
    pub fn counters(&self) -> Result<Vec<(String, String, Counters)>> {
        let of = |(agent, reading): (&Agent, Reading)| (agent.name(), agent.on(), reading.counters);
        Ok(self.0.iter().zip(self.read()?).map(of).collect())
    }

    /// CPU time of the processes of all agents since they were started, ns.
    ///
    /// # Errors
    /// When an agent does not tell.
    pub(super) fn cpu_ns(&self) -> Result<u64> {
        Ok(self.read()?.iter().map(|reading| reading.process_cpu_ns).sum())
    }

    /// What each has counted since it was attached, to be read when no load runs.
    ///
    /// # Errors
    /// When one does not tell.
    pub(super) fn totals(&self) -> Result<Vec<Counters>> {
        Ok(self.read()?.into_iter().map(|reading| reading.counters).collect())
    }

    /// Adds to the records what came between two such readings.
    pub(super) fn complete(&self, records: &mut [AgentRecord], before: &[Counters], after: &[Counters]) {
        let edges = before.iter().zip(after);
        for ((agent, record), (before, after)) in self.0.iter().zip(records).zip(edges) {
            let Counters { counts, drops } = after.since(before).only_drops_that_occurred();
            record.begun = counts.get(CONNECTIONS).copied().filter(|_| agent.is_between);
            record.dropped = Some(drops);
        }
    }

    /// Tells the agents of a datapath, on all nodes or on one, to do something; their answers with their nodes' names.
    ///
    /// # Errors
    /// When there is no such agent, when it does not know the command
    /// ([`UnknownCommand`](rig_testbed::datapath::UnknownCommand)), and when it could not be done.
    pub fn command(
        &self,
        datapath: &str,
        node: Option<&str>,
        name: &str,
        arguments: &Value,
    ) -> Result<Vec<(String, Value)>> {
        let meant = |agent: &&Agent| agent.name() == datapath && node.is_none_or(|node| agent.on() == node);
        let told = |agent: &Agent| -> Result<(String, Value)> {
            let answer = agent.process.borrow_mut().command(name, arguments);
            Ok((agent.on(), answer.with_context(|| format!("tell {agent}: {name}"))?))
        };
        let answers: Vec<(String, Value)> = self.0.iter().filter(meant).map(told).collect::<Result<_>>()?;
        if answers.is_empty() {
            let there: Vec<String> = self.0.iter().map(ToString::to_string).collect();
            let there =
                if there.is_empty() { "there is none".to_owned() } else { format!("there is {}", there.join(", ")) };
            let node = node.map(|node| format!(" on {node}")).unwrap_or_default();
            bail!("no agent {datapath}{node} to be told {name}: {there}");
        }
        Ok(answers)
    }

    /// [`Self::command`], for the record.
    ///
    /// # Errors
    /// As there.
    pub(super) fn tell(&self, command: &Command) -> Result<CommandRecord> {
        let Command { datapath, node, name, arguments } = command;
        let told_ns = monotonic_ns();
        let answers = self.command(datapath, node.as_deref(), name, &Value::Object(arguments.clone()))?;
        Ok(CommandRecord {
            datapath: datapath.clone(),
            command: name.clone(),
            arguments: arguments.clone(),
            told_ns,
            answered_ns: monotonic_ns(),
            answers,
        })
    }

    /// Ends their work.
    ///
    /// # Errors
    /// Those that could not be undone; the others are ended all the same.
    pub fn detach(self) -> Result<()> {
        let end = |agent: Agent| {
            let what = format!("end {agent}");
            agent.process.into_inner().detach().context(what)
        };
        self.0.into_iter().map(end).fold(Ok(()), both)
    }
}

impl StartingAgent {
    fn attached(self) -> Result<Agent> {
        Ok(Agent {
            node: self.node,
            cpus: self.site.cpus().clone(),
            shared: self.site.shared_cpus().clone(),
            is_between: self.is_between,
            profile: self.profile,
            process: RefCell::new(self.starting.attached()?),
        })
    }
}

impl Agent {
    /// The name of the datapath.
    fn name(&self) -> String {
        self.process.borrow().name().to_owned()
    }

    /// Its node's name.
    fn on(&self) -> String {
        self.process.borrow().node().to_owned()
    }

    fn record(&self, begin: &Reading, end: &Reading) -> Result<AgentRecord> {
        let Description { version, settings, state } = self.process.borrow_mut().describe()?;
        Ok(AgentRecord {
            name: self.name(),
            node: self.on(),
            version,
            cpus: self.cpus.as_slice().to_vec(),
            settings,
            counters: end.counters.since(&begin.counters).only_drops_that_occurred(),
            read_ns: Some((begin.at_ns, end.at_ns)),
            // Paths of processes, which nobody finds there later.
            state: State { containers: BTreeMap::new(), ..state },
            begun: None,
            dropped: None,
        })
    }

    /// What its node did, which stands between the ends.
    fn of_node(&self, agent: &AgentRecord, node: &NodeRecord) -> DutRecord {
        let wires = || node.interfaces.iter().filter(|interface| !interface.name.ends_with(":lo"));
        let mut drops = agent.counters.drops.clone();
        drops.extend(wires().flat_map(|wire| {
            [
                (format!("{} (received)", wire.name), wire.rx_dropped + wire.rx_errors),
                (format!("{} (sent)", wire.name), wire.tx_dropped + wire.tx_errors),
            ]
        }));
        drops.retain(|(_, count)| *count > 0);
        DutRecord {
            workers: self.cpus.as_slice().to_vec(),
            shared: self.shared.as_slice().to_vec(),
            system: agent.version.clone(),
            in_packets: wires().map(|wire| wire.rx_packets).sum(),
            in_bytes: wires().map(|wire| wire.rx_bytes).sum(),
            out_packets: wires().map(|wire| wire.tx_packets).sum(),
            out_bytes: wires().map(|wire| wire.tx_bytes).sum(),
            connections: agent.state.connections,
            memory_bytes: agent.state.memory_bytes,
            services: agent.state.services.clone(),
            drops,
            profile: None,
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.name(), self.on())
    }
}
