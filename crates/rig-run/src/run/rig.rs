//! The machine as it executes trials: a testbed, a worker process at each endpoint, counters read at the window's edges.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use rig_cli::exit::{StoppedByUser, both};
use rig_facts::figures::node_of;
use rig_facts::layers::Map;
use rig_facts::programme::{LIMIT_WINDOW, Phase, Programme, ScenarioLoad};
use rig_facts::record::{
    AgentRecord, Calibration, DutRecord, Environment, LimitRecord, NodeFrames, NodeRecord, PhaseRecord, RigCost,
    SearchRecord, Series, TrialRecord,
};
use rig_facts::suspicion::flags;
use rig_load::driver::{Cancel, Driver, DriverError};
use rig_load::plan::Phases;
use rig_load::record::{PacketRecord, Sample, WorkerRecord};
use rig_packet::search::StepPurpose;
use rig_suite::suite::{PacketThreads, Scenario, SearchPlan, Timing, Traffic};
use rig_sys::clock;
use rig_sys::cpu::CpuSet;
use rig_testbed::datapath::{DatapathRegistry, Machine};
use rig_testbed::host::{Host, Local};
use rig_testbed::preflight::NetworkFault;
use rig_testbed::topology::{DUT, Endpoint, Family, Topology, WireOptions};
use rig_testbed::{LostPeer, Placement, Testbed};

use super::agents::Agents;
use super::before;
use super::calibration::gauge;
use super::clocks::{ClockRecords, Clocks};
use super::course::{Counting, ProgrammeWindow, refuse_missed_window};
use super::measured::{FailedAfterTrial, measured};
use super::programme::carry_out;
use super::search::{offered, search, with_opening};
use super::stacks::{Sampling, prepare_stacks};
use super::under_load::{self, LatestSamples, TestbedUnderLoad};
use super::unloaded::{Unloaded, settling};
use super::{Execute, LostHost, TestbedUnavailable, ends_runs};

/// Longest window for measuring the rig's own cost.
const COST_WINDOW: Duration = Duration::from_secs(2);

/// Executes trials on a host.
#[derive(Debug)]
pub struct Rig {
    host: Box<dyn Host>,
    trials: Trials,
}

/// How trials are made, on any host.
#[derive(Debug)]
pub struct Trials {
    /// The generator's own limits that were found so far, with what they were found for.
    generator: Vec<(Generator, Option<f64>)>,
    placement: Placement,
    /// Cores of several threads.
    cores: Vec<CpuSet>,
    cancel: Cancel,
    datapaths: DatapathRegistry,
    /// By which what the CPUs ran is divided, in a window more of each trial; `None` without one.
    layers: Option<Map>,
}

/// What a load left behind, with the counters of the nodes around it.
pub(super) struct Observation {
    pub(super) window: (u64, u64),
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) workers: Vec<WorkerRecord>,
    throttled_us: Option<u64>,
    pub(super) agents: Vec<AgentRecord>,
    pub(super) dut: Option<DutRecord>,
    pub(super) phases: Vec<PhaseRecord>,
    series: Option<Series>,
    pub(super) stacks: Option<Sampling>,
    frames: Option<Vec<NodeFrames>>,
}

/// A testbed, and the agents at work on its nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stage<'a> {
    pub(super) testbed: &'a Testbed<'a>,
    pub(super) agents: &'a Agents,
    pub(super) clocks: &'a Clocks,
    /// Whether stacks are to be sampled where that was asked for: a step that is not kept does without.
    pub(super) samples: bool,
    /// Whether those of all nodes' CPUs are.
    pub(super) stacks: bool,
}

impl<'a> Stage<'a> {
    /// With the stacks of all nodes' CPUs, instead of those that the scenario asks for.
    pub(super) fn sampled(self) -> Self {
        Self { samples: false, stacks: true, ..self }
    }

    fn new(testbed: &'a Testbed<'a>, agents: &'a Agents, clocks: &'a Clocks) -> Self {
        Self { testbed, agents, clocks, samples: true, stacks: false }
    }
}

/// What the generator's own limit depends on.
#[derive(Debug, Clone, PartialEq)]
struct Generator {
    traffic: Traffic,
    family: Family,
    mtu: u32,
    /// Whether both ends have the same CPUs.
    shares_ends: bool,
    phases: Phases,
}

impl Generator {
    /// That of a scenario, between these ends.
    fn of(scenario: &Scenario, [from, to]: [Endpoint; 2], timing: &Timing) -> Self {
        let topology = &scenario.topology;
        Self {
            traffic: Traffic { pairs: vec![(from, to)], ..scenario.traffic.clone() },
            family: topology.family(),
            mtu: topology.endpoint_mtu(),
            shares_ends: topology.path().is_of_three(),
            phases: timing.phases,
        }
    }
}

/// The ends of a testbed in which nothing is between them. Nodes with a machine each are the scenario's own.
fn generator_ends(host: &dyn Host, from: &Endpoint, to: &Endpoint) -> [Endpoint; 2] {
    let nodes = if host.members().is_empty() { ["from", "to"] } else { [&*from.node, &*to.node] };
    nodes.map(|node| Endpoint { node: node.to_owned(), container: None })
}

impl Rig {
    /// On this machine, as [`Self::on`], of which `nodes` share `cpus`; `program` is netrig itself, whose `worker` subcommand is one end of a
    /// load.
    ///
    /// # Errors
    /// When there are fewer CPUs than nodes.
    pub fn new(
        program: PathBuf,
        cpus: &CpuSet,
        nodes: usize,
        cancel: Cancel,
        datapaths: DatapathRegistry,
    ) -> Result<Self> {
        let host = Local::new()?.with_program(program).with_datapaths(datapaths.on(Machine { rootless: false }));
        let cores = host.facts()?.cores;
        let placement = Placement::new(cpus, &cores, nodes)?;
        Self::on(Box::new(host), placement, cores, cancel, datapaths)
    }

    /// On a host without nodes; `cores` are those of its machine that have several threads; `cancel` stops a trial that runs; `datapaths` are
    /// those that scenarios may have.
    ///
    /// # Errors
    /// When the host cannot be asked.
    pub fn on(
        host: Box<dyn Host>,
        placement: Placement,
        cores: Vec<CpuSet>,
        cancel: Cancel,
        datapaths: DatapathRegistry,
    ) -> Result<Self> {
        // Counters are to be read at the window's edges, also where the load fills every CPU that there is.
        clock::be_punctual();
        let trials = Trials { generator: Vec::new(), placement, cores, cancel, datapaths, layers: None };
        host.keep_off(&owned(&trials.placement.all()))?;
        Ok(Self { host, trials })
    }

    /// Each trial has a second window, with the same load in the same testbed, in which the stacks of all nodes' CPUs are
    /// sampled and divided by `map`.
    ///
    /// # Errors
    /// When the host cannot sample stacks, or the machine does not let them be sampled.
    pub fn divide_by(&mut self, map: Map) -> Result<()> {
        self.prepare_samples()?;
        self.host.count_interrupts()?;
        self.trials.layers = Some(map);
        Ok(())
    }

    /// Makes ready to sample the stacks of all nodes' CPUs, as scenarios with `profile` ask for.
    ///
    /// # Errors
    /// As [`Self::divide_by`].
    pub fn prepare_samples(&self) -> Result<()> {
        prepare_stacks(self.host.as_ref(), &owned(&self.trials.placement.all()))
    }

    /// The machine of the nodes and its settings.
    ///
    /// # Errors
    /// When the host does not answer.
    pub fn environment(&self) -> Result<Environment> {
        self.host.environment()
    }

    /// How the testbeds share the machine.
    pub fn placement(&self) -> &Placement {
        &self.trials.placement
    }

    /// The host, to build a testbed on, and what makes trials in it.
    pub fn parts(&mut self) -> (&mut (dyn Host + 'static), &Trials) {
        (self.host.as_mut(), &self.trials)
    }
}

impl Trials {
    /// Makes a trial in a testbed that stands and stays: the record knows of no set-up and no take-down.
    ///
    /// # Errors
    /// As [`Execute::trial`].
    pub fn trial_in(
        &self,
        testbed: &Testbed<'_>,
        scenario: &Scenario,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<TrialRecord> {
        let (agents, clocks) =
            (Agents::none(), Clocks::of(testbed)?.over_path(testbed, scenario.traffic.pairs.first()));
        self.trial_with(Stage::new(testbed, &agents, &clocks), scenario, None, ordinal, timing, interim)
    }

    /// `generator` is its own limit, where a limit is searched.
    fn trial_with(
        &self,
        stage: Stage<'_>,
        scenario: &Scenario,
        generator: Option<f64>,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<TrialRecord> {
        let started_unix_ms = Timestamp::now().as_millisecond();
        let started = Instant::now();
        let searched = scenario.traffic.packets.as_ref().and_then(|packets| packets.search.as_ref());
        let programme = &scenario.programme;
        let (mut observed, mut search, mut limit, mut benchmark) = (None, None, None, None);
        let benchmarks = scenario.traffic.packets.as_ref().and_then(|packets| packets.benchmark.as_ref());
        let mut afterwards = Ok(());
        if let Some(plan) = benchmarks {
            let (at_limit, found, ended) = self.benchmark(stage, scenario, plan, generator, timing.phases, interim)?;
            (observed, benchmark, afterwards) = (Some(at_limit), Some(found), ended);
        } else if let Some(plan) = searched {
            let (at_limit, found) = self.find(stage, scenario, plan, generator, timing.phases, interim)?;
            (observed, search) = (Some(at_limit).filter(|_| programme.is_plain()), found);
        } else if programme.needs_limit() {
            limit = Some(self.limit(stage, scenario, timing.phases, interim)?);
        }
        let held = search.as_ref().and_then(|search| search.outcome.held);
        // Where none was found, the first rate shows what happens.
        let start = searched.map_or(0.0, |plan| plan.options.start);
        let known = limit.as_ref().map(|limit| limit.rate).or(held).unwrap_or(start);
        let observed = match observed {
            Some(observed) => observed,
            None => {
                let course = ProgrammeWindow { programme, limit: known, phases: timing.phases, loaded: true };
                self.perform(stage, scenario, course, interim)?
            }
        };
        let (clocks, host) = (stage.clocks, stage.testbed.host());
        // A host that is lost by now takes nothing of what was measured.
        let (ClockRecords { of_host, of_nodes, of_ends }, answered) = clocks.at_end(stage.testbed);
        afterwards = both(afterwards, answered);
        let mut record = TrialRecord {
            host: of_host,
            hosts: of_nodes,
            end_clocks: of_ends,
            uncompared: None,
            calibration: None,
            clocks: None,
            search,
            benchmark,
            agents: observed.agents,
            phases: observed.phases,
            series: observed.series,
            limit,
            dut: observed.dut,
            scenario: scenario.id.clone(),
            ordinal,
            block: None,
            started_unix_ms,
            setup_us: 0,
            teardown_us: 0,
            total_us: started.elapsed().as_micros() as u64,
            window_begin_ns: observed.window.0,
            window_end_ns: observed.window.1,
            nodes: observed.nodes,
            workers: observed.workers,
            throttled_us: observed.throttled_us,
            layers: None,
            set: Vec::new(),
            before: Vec::new(),
            frames: observed.frames,
            tool: None,
            flags: Vec::new(),
        };
        if host.local().is_none()
            && let Err(missed) = refuse_missed_window(&record)
        {
            return both(Err(missed), afterwards);
        }
        record.flags = flags(&record, &scenario.topology, &self.cores, &scenario.filled());
        let profiled = scenario.profile.then(Map::built_in);
        if let Some(map) = self.layers.as_ref().or(profiled.as_ref()).filter(|_| afterwards.is_ok()) {
            match self.by_layer(map, stage, scenario, &record, (known, timing.phases)) {
                Ok(layers) => record.layers = Some(layers),
                Err(error) => afterwards = Err(error),
            }
        }
        match afterwards {
            Ok(()) => Ok(record),
            Err(error) => Err(FailedAfterTrial::new(record, error).into()),
        }
    }

    /// The window at the limit, or at a share of it, and how that was found.
    fn find(
        &self,
        stage: Stage<'_>,
        scenario: &Scenario,
        plan: &SearchPlan,
        generator: Option<f64>,
        phases: Phases,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<(Observation, Option<SearchRecord>)> {
        let found = search(scenario, plan, phases, |scenario, phases, purpose| {
            let stage = Stage { samples: purpose == StepPurpose::Confirm, ..stage };
            self.observe(stage, scenario, phases, true, interim)
        })?;
        let held = found.outcome.held;
        let busy = |observed: &Observation| {
            let packets = observed.workers.iter().filter_map(|worker| worker.packets.as_ref());
            packets.map(PacketRecord::busy).fold(0.0, f64::max)
        };
        let busiest = found.held.as_ref().map_or(0.0, busy);
        // With nothing between its ends, the generator is all there is.
        let generator = if stage.testbed.topology().path().is_bare() { held } else { generator };
        let bound = found.outcome.generator_bound(generator, busiest);
        let observed = match found.held {
            Some(observed) if plan.measure_at >= 1.0 => observed,
            _ => {
                // Where nothing was held, the first rate shows what happens.
                let rate = held.map_or(plan.options.start, |held| held * plan.measure_at);
                let offered = offered(scenario, plan.of, rate);
                self.observe(stage, &offered, with_opening(&offered, plan.of, phases), true, interim)?
            }
        };
        let record = SearchRecord {
            of: plan.of,
            options: plan.options,
            step_us: plan.step.as_micros() as u64,
            confirmed_us: phases.window.as_micros() as u64,
            outcome: found.outcome,
            generator,
            bound,
            share: plan.measure_at,
        };
        Ok((observed, Some(record)))
    }

    /// The limit of the generator itself, for a scenario that searches one: the same load, by the same way into the
    /// kernel, over a bare wire between the same CPUs. Searched once for each load.
    fn generator_limit(
        &mut self,
        host: &mut (dyn Host + 'static),
        scenario: &Scenario,
        timing: &Timing,
    ) -> Result<Option<f64>> {
        let Some(packets) = &scenario.traffic.packets else { return Ok(None) };
        if scenario.topology.path().is_bare() || !packets.is_searched() {
            return Ok(None);
        }
        let Some((from, to)) = scenario.traffic.pairs.first() else { return Ok(None) };
        let ends = generator_ends(host, from, to);
        let generator = Generator::of(scenario, ends.clone(), timing);
        if let Some((_, known)) = self.generator.iter().find(|(of, _)| *of == generator) {
            return Ok(*known);
        }
        let topology = &scenario.topology;
        let mut bare = Scenario { under: None, traffic: generator.traffic.clone(), ..scenario.clone() };
        let of_three = topology.path().is_of_three();
        // Of three nodes each worker has a wire of its own.
        let workers = bare.traffic.packets.as_ref().filter(|_| !of_three).map(|packets| packets.workers);
        let queues = workers.map_or(1, PacketThreads::least);
        let wire = WireOptions { rate: None, mtu: generator.mtu, segmentation_offload: true, queues };
        let mut names = ends.each_ref().map(|end| end.node.clone()).to_vec();
        let path = topology.path().without_anything();
        if of_three {
            names.insert(DUT, "between".to_owned());
        }
        bare.topology = Topology::new(&names, Some(wire), path, &ends)?
            .with_family(generator.family)?
            .with_lanes(topology.lanes())?;
        bare.dut = None;
        bare.datapaths = Vec::new();
        let node = |end: &Endpoint| topology.nodes().iter().position(|node| node.name == end.node).unwrap_or(0);
        let all = self.placement.of(topology, scenario.dut)?;
        let shares = [from, to].map(|end| all.get(node(end)).cloned().unwrap_or_default());
        let testbed = Testbed::build_on(host, &bare.topology, &shares);
        let testbed = testbed.context("build the testbed of the generator's limit").map_err(unmade)?;
        let (agents, clocks) = (Agents::none(), Clocks::of(&testbed)?);
        let stage = Stage::new(&testbed, &agents, &clocks);
        let held = match (&packets.benchmark, &packets.search) {
            (Some(plan), _) => Some(self.generator_rate(stage, &bare, plan, timing.phases)?),
            (None, Some(plan)) => {
                let found = search(&bare, plan, timing.phases, |scenario, phases, _| {
                    self.observe(stage, scenario, phases, true, &mut |_, _| ())
                });
                found.context("search for the generator's own limit")?.outcome.held
            }
            (None, None) => None,
        };
        self.generator.push((generator, held));
        Ok(held)
    }

    /// What the scenario's load carries when its rates hold nothing back.
    fn limit(
        &self,
        stage: Stage<'_>,
        scenario: &Scenario,
        phases: Phases,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<LimitRecord> {
        let unpaced = Scenario { traffic: scenario.traffic.unpaced(), ..scenario.clone() };
        let window = phases.window.min(LIMIT_WINDOW);
        let phases = Phases { window, interval: phases.interval.min(window), ..phases };
        let observed = self.observe(stage, &unpaced, phases, true, interim).context("measure the load's limit")?;
        let own: Vec<&WorkerRecord> = observed.workers.iter().filter(|worker| !worker.background).collect();
        let rate = scenario.traffic.carried(&own);
        Ok(LimitRecord { rate, window_us: window.as_micros() as u64 })
    }

    /// A window in which nothing changes.
    pub(super) fn observe(
        &self,
        stage: Stage<'_>,
        scenario: &Scenario,
        phases: Phases,
        loaded: bool,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<Observation> {
        let course = ProgrammeWindow { programme: &Programme::default(), limit: 0.0, phases, loaded };
        self.perform(stage, scenario, course, interim)
    }

    /// A window in which a programme is carried out.
    pub(super) fn perform(
        &self,
        stage: Stage<'_>,
        scenario: &Scenario,
        course: ProgrammeWindow<'_>,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<Observation> {
        let Stage { testbed, agents, clocks, .. } = stage;
        let ProgrammeWindow { programme, limit, phases, .. } = course;
        // Before connections are made, which is when some datapaths decide.
        let commands =
            programme.phases.first().into_iter().flat_map(Phase::commands).map(|command| agents.tell(command));
        let commands = commands.collect::<Result<_>>().context("begin the first phase")?;
        let pairs = course.pairs(stage, scenario)?;
        let workers = under_load::Worker::all(&pairs);
        let before = Unloaded::read(stage)?;
        let latest = LatestSamples::default();
        let heard = latest.clone();
        let mut running = Driver::new(&self.cancel)
            .longer_lead(clocks.longer_lead())
            .on_sample(|worker, sample| {
                heard.borrow_mut().insert(worker.to_owned(), *sample);
                interim(worker, sample);
            })
            .start(pairs)
            .map_err(stopped_or)?;
        let (begin_ns, _) = running.window();
        let mut counting = Counting::default();
        let mut on_begin = || counting.begin(stage);
        let mut loaded_testbed = TestbedUnderLoad {
            running: &mut running,
            testbed,
            agents,
            workers,
            latest,
            sampled: programme.sample.is_some(),
            on_begin: &mut on_begin,
            marks: Vec::new(),
            samplers: None,
        };
        for which in [ScenarioLoad::Own, ScenarioLoad::Under] {
            if course.first_rate(which) == Some(0.0) {
                // It has a rate, which its plan needs, and does not begin with it.
                loaded_testbed.stop_at_once(which);
            }
        }
        let outcomes = carry_out(&mut loaded_testbed, programme, begin_ns, phases.window, limit, commands)?;
        let TestbedUnderLoad { marks, samplers, .. } = loaded_testbed;
        let [begin, .., end] = *marks.as_slice() else { bail!("the window has no edges") };
        let window = testbed.host().between(begin, end)?;
        let (observed, stacks) = counting.end(stage, &window.nodes)?;
        let sampled = samplers.map(|samplers| samplers.finish(testbed.host())).transpose()?;
        let phases = course.records(stage, &marks, outcomes)?;
        marks.iter().try_for_each(|mark| testbed.host().forget(*mark))?;
        let mut workers = running.finish().map_err(stopped_or)?;
        std::thread::sleep(settling(stage, &workers));
        let after = Unloaded::read(stage)?;
        let (mut agents, dut) = observed.records(testbed.host())?;
        let frames = after.complete(stage, &before, &mut agents);
        for agent in &mut agents {
            let clock = clocks.of_node(&agent.node);
            agent.read_ns = agent.read_ns.map(|(begin, end)| (clock.here(begin), clock.here(end)));
        }
        let interval_us = programme.sample.map_or(0, |interval| interval.as_micros() as u64);
        let series = sampled.map(|sampled| under_load::series(sampled, begin_ns, interval_us, &mut workers));
        Ok(Observation {
            window: (clocks.here(begin.at_ns), clocks.here(end.at_ns)),
            nodes: window.nodes,
            workers,
            agents,
            dut,
            phases,
            series,
            stacks,
            throttled_us: window.throttled_us,
            frames: Some(frames),
        })
    }

    /// [`Self::stand`]; what the machine does not let be made is [`TestbedUnavailable`].
    fn build<'h>(&self, host: &'h mut (dyn Host + 'static), scenario: &Scenario) -> Result<(Testbed<'h>, Agents)> {
        self.stand(host, scenario).map_err(unmade)
    }

    /// The testbed, and the agents on its nodes, which are to go first.
    fn stand<'h>(&self, host: &'h mut (dyn Host + 'static), scenario: &Scenario) -> Result<(Testbed<'h>, Agents)> {
        let shares = self.placement.of(&scenario.topology, scenario.dut)?;
        let owned = owned(&shares);
        host.keep_off(&owned)?;
        let mut testbed = Testbed::build_on(host, &scenario.topology, &shares).context("build the testbed")?;
        let attached = (|| {
            if std::iter::once(&scenario.traffic).chain(&scenario.under).any(|traffic| traffic.packets.is_some()) {
                testbed.route_pools().context("route to the packets' own addresses")?;
            }
            let agents = Agents::attach(scenario, &testbed, self.datapaths)?;
            agents.complete_testbed(scenario, &mut testbed)?;
            Ok(agents)
        })();
        match attached {
            Ok(agents) => Ok((testbed, agents)),
            Err(error) => both(Err(error), testbed.tear_down()),
        }
    }
}

/// Networks that are not apart are no lack of the machine, and a host or an agent that is lost refuses nothing: these are failures.
fn unmade(error: anyhow::Error) -> anyhow::Error {
    let is_fault = error.is::<NetworkFault>() || error.is::<StoppedByUser>() || error.is::<LostPeer>();
    if is_fault { error } else { TestbedUnavailable::new(error).into() }
}

/// All CPUs of the nodes.
fn owned(nodes: &[CpuSet]) -> CpuSet {
    CpuSet::new(nodes.iter().flat_map(|share| share.as_slice().iter().copied()))
}

impl Trials {
    fn measure_cost(&self, host: &mut (dyn Host + 'static), scenario: &Scenario, timing: &Timing) -> Result<RigCost> {
        let scenario = &scenario.on(&self.placement)?;
        let (testbed, agents) = self.build(host, scenario)?;
        let phases = Phases {
            warm_up: Duration::ZERO,
            cool_down: Duration::ZERO,
            window: timing.phases.window.min(COST_WINDOW),
            ..timing.phases
        };
        let before_ns = own_cpu_ns() + agents.cpu_ns()?;
        let clocks = Clocks::of(&testbed)?;
        let stage = Stage::new(&testbed, &agents, &clocks);
        let observed = self.observe(stage, scenario, phases, false, &mut |_, _| ())?;
        // Agents work for all nodes, as the runner does.
        let all_ns = (own_cpu_ns() + agents.cpu_ns()?).saturating_sub(before_ns);
        // What cannot be ended is told by a trial of the scenario, which has the same; the cost is known.
        let _ = agents.detach();
        let window_ns = (observed.window.1 - observed.window.0).max(1) as f64;
        let own = |node: &NodeRecord| {
            let workers = observed.workers.iter().filter(|worker| node_of(&worker.name) == node.name);
            let workers: u64 = workers.map(|w| w.process_cpu.user_ns + w.process_cpu.system_ns).sum();
            (workers + all_ns) as f64 * 100.0 / window_ns / node.cpus.len().max(1) as f64
        };
        Ok(RigCost {
            nodes: observed.nodes.iter().map(|node| (node.name.clone(), own(node))).collect(),
            busy: observed.nodes.iter().map(|node| (node.name.clone(), node.busy_percent())).collect(),
        })
    }

    fn make_trial(
        &mut self,
        host: &mut (dyn Host + 'static),
        scenario: &Scenario,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<TrialRecord> {
        if self.cancel.is_cancelled() {
            return Err(StoppedByUser.into());
        }
        let started_unix_ms = Timestamp::now().as_millisecond();
        let started = Instant::now();
        let scenario = &scenario.on(&self.placement)?;
        let generator = self.generator_limit(host, scenario, timing)?;
        let cpus = owned(&self.placement.of(&scenario.topology, scenario.dut)?);
        let is_here = host.local().is_some();
        let gauged = is_here.then(|| gauge(&cpus));
        let building = Instant::now();
        let (testbed, agents) = self.build(host, scenario)?;
        let setup = building.elapsed();
        let made = (|| {
            before::carry_out(testbed.host(), &scenario.before, &self.cancel)?;
            let clocks = Clocks::of(&testbed)?.over_path(&testbed, scenario.traffic.pairs.first());
            let stage = Stage::new(&testbed, &agents, &clocks);
            self.trial_with(stage, scenario, generator, ordinal, timing, interim)
        })();
        // A load that nothing carries any more fails, too.
        let lost = |error: anyhow::Error| if ends_runs(&error) { error } else { agents.lost().unwrap_or(error) };
        let (record, afterwards) = match measured(made.map_err(|error| FailedAfterTrial::with_failure(error, lost))) {
            Ok(trial) => trial,
            // Nobody waits for what is given up.
            Err(error) if ends_runs(&error) || self.cancel.is_cancelled() => return Err(error),
            Err(error) => return both(Err(error), both(agents.detach(), testbed.tear_down())),
        };
        let ends = scenario.traffic.pairs.first().filter(|_| scenario.topology.path().is_bare());
        if let (Some(search), Some((from, to))) = (&record.search, ends) {
            // What others would search again is known.
            let ends = generator_ends(testbed.host(), from, to);
            let generator = Generator::of(scenario, ends, timing);
            if !self.generator.iter().any(|(of, _)| *of == generator) {
                self.generator.push((generator, search.outcome.held));
            }
        }
        let closing = Instant::now();
        let closed = both(agents.detach(), testbed.tear_down());
        let teardown = closing.elapsed();
        let calibration = gauged.map(|before| Calibration { before, after: gauge(&cpus) });
        let record = TrialRecord {
            calibration,
            set: scenario.topology.chosen().iter().map(ToString::to_string).collect(),
            before: scenario.before.clone(),
            started_unix_ms,
            setup_us: setup.as_micros() as u64,
            teardown_us: teardown.as_micros() as u64,
            total_us: started.elapsed().as_micros() as u64,
            ..record
        };
        match both(afterwards, closed) {
            Ok(()) => Ok(record),
            Err(error) => Err(FailedAfterTrial::new(record, error).into()),
        }
    }
}

impl Rig {
    /// What ends with the signal that stops the run, or with the host, has not failed by itself.
    fn make<T>(&mut self, make: impl FnOnce(&mut Trials, &mut (dyn Host + 'static)) -> Result<T>) -> Result<T> {
        let Self { host, trials } = self;
        let made = make(trials, host.as_mut());
        let why = |error: anyhow::Error| match host.clock() {
            _ if trials.cancel.is_cancelled() => StoppedByUser.into(),
            Err(gone) => LostHost::new(gone).into(),
            Ok(_) => error,
        };
        made.map_err(|error| FailedAfterTrial::with_failure(error, why))
    }
}

impl Execute for Rig {
    fn trial(
        &mut self,
        scenario: &Scenario,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<TrialRecord> {
        self.make(|trials, host| trials.make_trial(host, scenario, ordinal, timing, interim))
    }

    fn rig_cost(&mut self, scenario: &Scenario, timing: &Timing) -> Result<RigCost> {
        self.make(|trials, host| trials.measure_cost(host, scenario, timing))
    }
}

/// CPU time of the runner itself so far.
fn own_cpu_ns() -> u64 {
    let (user, system) = clock::process_cpu_ns();
    user + system
}

pub(super) fn stopped_or(error: DriverError) -> anyhow::Error {
    match error {
        DriverError::Cancelled => StoppedByUser.into(),
        error => error.into(),
    }
}
