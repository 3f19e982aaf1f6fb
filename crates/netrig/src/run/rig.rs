//! The machine as it executes trials: a testbed, a worker process at each endpoint, counters read at the window's edges.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use rig_load::driver::{Cancel, Driver, DriverError, Pair, Worker};
use rig_load::plan::{Load, Phases, Role, WorkerPlan};
use rig_load::record::{Sample, WorkerRecord};
use rig_sys::clock;
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::process::{die_with_parent, in_namespace, in_own_group};

use super::meter::Reading;
use super::suspicion::flags;
use super::{Execute, Stopped};
use crate::figures::node_of;
use crate::record::{NodeRecord, RigCost, TrialRecord};
use crate::suite::{Scenario, Timing, Traffic};
use crate::testbed::topology::Endpoint;
use crate::testbed::{Testbed, share_cpus};

/// The listeners' port, NTttcp's default; every endpoint is a namespace of its own, so that it is always free.
const PORT: u16 = 5001;
/// That of the load under the one that is measured, which may end at the same endpoint.
const UNDER_PORT: u16 = 5002;
/// Tells the workers of that load from those at the same endpoints, in samples and messages.
pub(super) const UNDER: &str = " (background)";
/// Longest window for measuring the rig's own cost.
const COST_WINDOW: Duration = Duration::from_secs(2);

/// Executes trials on this machine.
#[derive(Debug)]
pub struct Rig {
    /// The program whose `worker` subcommand is one end of a load: netrig itself.
    program: PathBuf,
    /// The CPUs of each node.
    shares: Vec<CpuSet>,
    /// Cores of several threads.
    cores: Vec<CpuSet>,
    cancel: Cancel,
}

/// What a load left behind, with the counters of the nodes around it.
struct Observation {
    window: (u64, u64),
    nodes: Vec<NodeRecord>,
    workers: Vec<WorkerRecord>,
    throttled_us: Option<u64>,
}

impl Rig {
    /// `nodes` nodes share `cpus`; `cancel` stops whatever runs.
    ///
    /// # Errors
    /// When there are fewer CPUs than nodes.
    pub fn new(program: PathBuf, cpus: &CpuSet, nodes: usize, cancel: Cancel) -> Result<Self> {
        let cores = shared_cores();
        let shares = share_cpus(cpus, &cores, nodes)?;
        // The runner keeps off the nodes' CPUs where the machine has others.
        let owned = CpuSet::new(shares.iter().flat_map(|share| share.as_slice().iter().copied()));
        CpuSet::allowed()?.without(&owned).apply()?;
        Ok(Self { program, shares, cores, cancel })
    }

    /// The CPUs of each node.
    pub fn shares(&self) -> &[CpuSet] {
        &self.shares
    }

    /// Makes a trial in a testbed that stands and stays: the record knows of no set-up and no take-down.
    ///
    /// # Errors
    /// As [`Execute::trial`].
    pub fn trial_in(
        &self,
        testbed: &Testbed,
        scenario: &Scenario,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<TrialRecord> {
        let started_unix_ms = Timestamp::now().as_millisecond();
        let started = Instant::now();
        let observed = self.observe(testbed, scenario, timing.phases, true, interim)?;
        let mut record = TrialRecord {
            search: None,
            scenario: scenario.id.clone(),
            ordinal,
            started_unix_ms,
            setup_us: 0,
            teardown_us: 0,
            total_us: started.elapsed().as_micros() as u64,
            window_begin_ns: observed.window.0,
            window_end_ns: observed.window.1,
            nodes: observed.nodes,
            workers: observed.workers,
            throttled_us: observed.throttled_us,
            flags: Vec::new(),
        };
        record.flags = flags(&record, &scenario.topology, &self.cores);
        Ok(record)
    }

    fn observe(
        &self,
        testbed: &Testbed,
        scenario: &Scenario,
        phases: Phases,
        loaded: bool,
        interim: &mut dyn FnMut(&str, &Sample),
    ) -> Result<Observation> {
        let mut pairs = self.pairs(testbed, &scenario.traffic, ("", PORT), phases, loaded)?;
        let measured = 2 * pairs.len();
        if let Some(under) = &scenario.under {
            pairs.extend(self.pairs(testbed, under, (UNDER, UNDER_PORT), phases, loaded)?);
        }
        let mut running = Driver::new(&self.cancel)
            .on_sample(|worker, sample| interim(worker, sample))
            .start(pairs)
            .map_err(stopped_or)?;
        let (begin_ns, end_ns) = running.window();
        running.wait_until(begin_ns).map_err(stopped_or)?;
        let begin = Reading::take(testbed)?;
        running.wait_until(end_ns).map_err(stopped_or)?;
        let end = Reading::take(testbed)?;
        let mut workers = running.finish().map_err(stopped_or)?;
        for worker in &mut workers[measured..] {
            worker.name.truncate(worker.name.len() - UNDER.len());
            worker.background = true;
        }
        Ok(Observation {
            window: (begin.at_ns, end.at_ns),
            nodes: begin.until(&end, testbed),
            workers,
            throttled_us: begin.throttled_until(&end),
        })
    }

    /// The workers of `traffic`, with a word that tells them from others and their listeners' port. They idle unless
    /// `loaded`.
    fn pairs<'a>(
        &'a self,
        testbed: &'a Testbed,
        traffic: &Traffic,
        (word, port): (&str, u16),
        phases: Phases,
        loaded: bool,
    ) -> Result<Vec<Pair<'a>>> {
        let load = |load: &Load| if loaded { load.clone() } else { Load::Idle };
        let pairs = traffic.pairs.iter().map(|(from, to)| {
            let address = testbed.topology().address(to).with_context(|| format!("find the address of {to}"))?;
            let address = (address, port).into();
            let (listen, connect) = (Role::Listen { address, only_from: None }, Role::Connect { to: address });
            Ok(Pair {
                listen: self.worker(testbed, to, word, listen, load(&traffic.listen), phases)?,
                connect: self.worker(testbed, from, word, connect, load(&traffic.connect), phases)?,
            })
        });
        pairs.collect()
    }

    fn worker<'a>(
        &'a self,
        testbed: &'a Testbed,
        place: &Endpoint,
        word: &str,
        role: Role,
        load: Load,
        phases: Phases,
    ) -> Result<Worker<'a>> {
        let (home, cpus) = testbed.endpoint(place).with_context(|| format!("find endpoint {place}"))?;
        let plan = WorkerPlan { name: format!("{place}{word}"), cpus: cpus.as_slice().to_vec(), role, load, phases };
        let spawn = move || -> io::Result<Child> {
            let mut command = Command::new(&self.program);
            command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            in_namespace(die_with_parent(in_own_group(&mut command)), &home.ns).spawn()
        };
        Ok(Worker { plan, spawn: Box::new(spawn) })
    }

    fn build(&self, scenario: &Scenario) -> Result<Testbed> {
        Testbed::build(&scenario.topology, &self.shares).context("build the testbed")
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
        if self.cancel.is_cancelled() {
            return Err(Stopped.into());
        }
        let started_unix_ms = Timestamp::now().as_millisecond();
        let started = Instant::now();
        let testbed = self.build(scenario)?;
        let setup = started.elapsed();
        let record = self.trial_in(&testbed, scenario, ordinal, timing, interim)?;
        let closing = Instant::now();
        drop(testbed);
        Ok(TrialRecord {
            started_unix_ms,
            setup_us: setup.as_micros() as u64,
            teardown_us: closing.elapsed().as_micros() as u64,
            total_us: started.elapsed().as_micros() as u64,
            ..record
        })
    }

    fn rig_cost(&mut self, scenario: &Scenario, timing: &Timing) -> Result<RigCost> {
        let testbed = self.build(scenario)?;
        let phases = Phases {
            warm_up: Duration::ZERO,
            cool_down: Duration::ZERO,
            window: timing.phases.window.min(COST_WINDOW),
            ..timing.phases
        };
        let runner = own_cpu_ns();
        let observed = self.observe(&testbed, scenario, phases, false, &mut |_, _| ())?;
        let runner = own_cpu_ns().saturating_sub(runner);
        let window_ns = (observed.window.1 - observed.window.0).max(1) as f64;
        let own = |node: &NodeRecord| {
            let workers = observed.workers.iter().filter(|worker| node_of(&worker.name) == node.name);
            let workers: u64 = workers.map(|w| w.process_cpu.user_ns + w.process_cpu.system_ns).sum();
            (workers + runner) as f64 * 100.0 / window_ns / node.cpus.len().max(1) as f64
        };
        Ok(RigCost {
            nodes: observed.nodes.iter().map(|node| (node.name.clone(), own(node))).collect(),
            busy: observed.nodes.iter().map(|node| (node.name.clone(), node.busy_percent())).collect(),
        })
    }
}

/// CPU time of the runner itself so far.
fn own_cpu_ns() -> u64 {
    let (user, system) = clock::process_cpu_ns();
    user + system
}

fn stopped_or(error: DriverError) -> anyhow::Error {
    match error {
        DriverError::Cancelled => Stopped.into(),
        error => error.into(),
    }
}
