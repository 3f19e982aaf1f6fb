//! A testbed under load, as a programme is carried out on it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::Result;
use rig_facts::claim::{Metric, Side};
use rig_facts::figures::node_of;
use rig_facts::programme::{Command, ScenarioLoad};
use rig_facts::record::{CommandRecord, Series, track};
use rig_load::driver::{RunningLoad, WorkerPair};
use rig_load::record::{Direction, End, Sample, WorkerRecord};
use rig_stats::series::Track;
use rig_sys::clock::monotonic_ns;
use rig_testbed::Testbed;
use rig_testbed::host::{Host, Mark, Sampled};
use rig_testbed::sampler::{CpuSample, NodeSample};

use super::agents::{self, Agents};
use super::programme::UnderLoad;
use super::rig::stopped_or;

/// What each worker saw in its last interval, by its label.
pub(super) type LatestSamples = Rc<RefCell<BTreeMap<String, Sample>>>;

/// One worker of a load that runs.
pub(super) struct Worker {
    name: String,
    /// In samples.
    label: String,
    direction: Direction,
    end: End,
    load: ScenarioLoad,
}

impl Worker {
    /// The workers of pairs, in the order in which the driver has them.
    pub(super) fn all(pairs: &[WorkerPair<'_>]) -> Vec<Self> {
        let workers = pairs.iter().flat_map(|pair| [&pair.listen, &pair.connect]);
        let worker = |worker: &rig_load::driver::Worker<'_>| Self {
            name: worker.plan.name.clone(),
            label: worker.label(),
            direction: worker.plan.direction(),
            end: worker.plan.end(),
            load: if worker.background { ScenarioLoad::Under } else { ScenarioLoad::Own },
        };
        workers.map(worker).collect()
    }

    /// As [`rig_facts::figures::workers`] has it.
    fn is_of(&self, side: Side) -> bool {
        self.load == ScenarioLoad::Own
            && match side {
                Side::Sender => self.direction == Direction::Send,
                Side::Receiver => self.direction == Direction::Receive,
                Side::Local => self.end == End::Connect,
                Side::Remote => self.end == End::Listen,
            }
    }
}

/// What reads counters over time.
pub(super) struct Samplers {
    /// What the nodes did in their last interval.
    nodes: Vec<NodeSample>,
    agents: agents::Sampler,
}

/// What they have read.
pub(super) struct AllSampled {
    nodes: Sampled,
    agents: (Vec<Track>, u64),
}

impl Samplers {
    pub(super) fn finish(self, host: &dyn Host) -> Result<AllSampled> {
        Ok(AllSampled { nodes: host.end_sampling()?, agents: self.agents.finish() })
    }
}

pub(super) struct TestbedUnderLoad<'r, 'd> {
    pub running: &'r mut RunningLoad<'d>,
    pub testbed: &'r Testbed<'r>,
    pub agents: &'r Agents,
    pub workers: Vec<Worker>,
    pub latest: LatestSamples,
    /// Whether there are series over time.
    pub sampled: bool,
    /// Called when the window has begun.
    pub on_begin: &'r mut dyn FnMut() -> Result<()>,
    /// The marks at which the counters were read.
    pub marks: Vec<Mark>,
    pub samplers: Option<Samplers>,
}

impl TestbedUnderLoad<'_, '_> {
    /// Stops a load before it has begun.
    pub(super) fn stop_at_once(&mut self, load: ScenarioLoad) {
        self.set_rate(load, 0.0, 0);
    }

    /// CPUs of the nodes on which the side's workers run, over the last interval.
    fn cpus(&self, side: Side) -> Vec<CpuSample> {
        let Some(samplers) = &self.samplers else { return Vec::new() };
        let nodes = self.testbed.topology().nodes().iter().zip(&samplers.nodes);
        let is_on = |name: &str| self.workers.iter().any(|worker| worker.is_of(side) && node_of(&worker.name) == name);
        nodes.filter(|(node, _)| is_on(&node.name)).flat_map(|(_, sample)| sample.cpus.clone()).collect()
    }

    /// The sum of what the workers counted a second in their last interval; `None` when one has not said anything.
    fn rate(&self, is_meant: impl Fn(&Worker) -> bool, count: impl Fn(&Worker, &Sample) -> u64) -> Option<f64> {
        let latest = self.latest.borrow();
        let meant = self.workers.iter().filter(|worker| is_meant(worker));
        let rates = meant.map(|worker| {
            let sample = latest.get(&worker.label).filter(|sample| sample.span_ns > 0)?;
            Some(count(worker, sample) as f64 * 1e9 / sample.span_ns as f64)
        });
        let rates: Vec<f64> = rates.collect::<Option<_>>()?;
        (!rates.is_empty()).then(|| rates.iter().sum())
    }
}

/// Payload that counts as the worker's own, bits.
fn bits(worker: &Worker, sample: &Sample) -> u64 {
    8 * if worker.direction == Direction::Both { sample.bytes_in } else { sample.bytes }
}

impl UnderLoad for TestbedUnderLoad<'_, '_> {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn wait_until(&mut self, at_ns: u64) -> Result<()> {
        self.running.wait_until(at_ns).map_err(stopped_or)
    }

    fn set_rate(&mut self, load: ScenarioLoad, rate: f64, at_ns: u64) {
        for (index, _) in self.workers.iter().enumerate().filter(|(_, worker)| worker.load == load) {
            self.running.set_rate(index, rate, at_ns);
        }
    }

    fn mark(&mut self, at_ns: u64) {
        self.running.mark(at_ns);
    }

    fn end_at(&mut self, at_ns: u64) {
        self.running.end_at(at_ns);
    }

    fn command(&mut self, command: &Command) -> Result<CommandRecord> {
        self.agents.tell(command)
    }

    fn read(&mut self) -> Result<()> {
        let host = self.testbed.host();
        self.marks.push(host.mark()?);
        if self.marks.len() == 1 {
            (self.on_begin)()?;
            if self.sampled {
                host.start_sampling()?;
                self.samplers = Some(Samplers { nodes: Vec::new(), agents: agents::Sampler::start(self.agents)? });
            }
        }
        Ok(())
    }

    fn sample(&mut self) -> Result<()> {
        if let Some(Samplers { nodes, agents }) = &mut self.samplers {
            *nodes = self.testbed.host().sample()?;
            agents.sample(self.agents)?;
        }
        Ok(())
    }

    fn figure(&self, side: Side, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Throughput => self.rate(|worker| worker.is_of(side), bits),
            Metric::Transactions | Metric::Datagrams | Metric::Connections => {
                self.rate(|worker| worker.is_of(side), |_, sample| sample.units)
            }
            Metric::BackgroundThroughput => {
                let arrives = |worker: &Worker| {
                    worker.load == ScenarioLoad::Under
                        && matches!(worker.direction, Direction::Receive | Direction::Both)
                };
                self.rate(arrives, bits)
            }
            Metric::Cpu => {
                let cpus = self.cpus(side);
                (!cpus.is_empty()).then(|| cpus.iter().map(|cpu| cpu.busy).sum::<f64>() / cpus.len() as f64)
            }
            Metric::CpusUsed => {
                let packets: Vec<u64> = self.cpus(side).iter().map(|cpu| cpu.packets).collect();
                (!packets.is_empty()).then(|| rig_facts::figures::phases::used(&packets) as f64)
            }
            _ => None,
        }
    }
}

/// The series of a trial, with the workers' part taken out of their records.
pub(super) fn series(sampled: AllSampled, begin_ns: u64, interval_us: u64, workers: &mut [WorkerRecord]) -> Series {
    let AllSampled { nodes: Sampled { tracks: nodes, cost_ns: nodes_ns }, agents: (agents, agents_ns) } = sampled;
    let workers = workers.iter_mut().map(|worker| track(&std::mem::take(&mut worker.samples))).collect();
    Series { begin_ns, interval_us, workers, nodes, agents, cost_us: (nodes_ns + agents_ns) / 1000 }
}
