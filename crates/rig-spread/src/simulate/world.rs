//! The receive path itself.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::scenario::{Change, Costs, Scenario};
use crate::observation::{CpuObservation, EntryObservation, Observation};

/// Packets that wait for a CPU at most (net.core.netdev_max_backlog).
const QUEUE: f64 = 1000.0;
/// A step, in ns.
const TICK: f64 = 1e6;
/// What waits longer than this, in ns, tells elastic flows not to send more, and than twice this, to send less.
const MARK: f64 = 3e5;
/// An elastic flow doubles its rate in ten steps.
const GROWTH: f64 = 1.071_773_462_536_293_2;
/// Just after a mark it only feels its way.
const CAREFUL: f64 = 1.01;
/// Steps without a mark after which it doubles again.
const CAREFULLY: u32 = 20;
/// Packets per second that an elastic flow begins with.
const BEGIN: f64 = 1700.0;
/// Steps without packets after which an elastic flow begins anew.
const ANEW: u32 = 200;
/// Buckets of waiting times: eight for each doubling, from a microsecond.
const BUCKETS: usize = 160;

#[derive(Debug, Clone, Default)]
struct FlowState {
    entry: usize,
    /// To send, and sent, packets per second.
    rate: f64,
    sent: f64,
    elastic: bool,
    marked: u32,
    silent: u32,
}

#[derive(Debug, Clone, Default)]
struct EntryState {
    cpu: usize,
    arrived: f64,
    /// At the base, at the CPU, and on the way between.
    first: f64,
    second: f64,
    coming: f64,
    delivered: f64,
    dropped: f64,
    /// Sums since the last observation.
    packets: f64,
    lost: f64,
    cost: f64,
    /// Fractions of packets that no observation had yet.
    carry: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct PortState {
    pub base: usize,
    flows: Vec<FlowState>,
    entries: Vec<EntryState>,
    spread: bool,
    /// Sums since the last observation, by CPU, in ns.
    distributing: Vec<f64>,
    processing: Vec<f64>,
    lost: Vec<f64>,
    squeezed: Vec<u64>,
    standing: Vec<bool>,
    ticks: u64,
    distributes: bool,
}

#[derive(Debug, Clone, Default)]
struct CpuState {
    number: u32,
    node: u32,
    online: bool,
    other: f64,
    /// Time that it was busy, in ns: since the beginning, and since each port's last observation.
    busy: f64,
    since: Vec<f64>,
    /// In this step: work that was done for ports, and how long what comes now would wait.
    done: f64,
    wait: f64,
    backlog: bool,
}

pub(super) struct SimulatedMachine {
    costs: Costs,
    cpus: Vec<CpuState>,
    pub ports: Vec<PortState>,
    random: Xoshiro256PlusPlus,
    noise: f64,
    /// What happened in the last step.
    pub delivered: f64,
    pub lost: f64,
    waits: [f64; BUCKETS],
}

impl SimulatedMachine {
    /// The tables are those that the rules begin with.
    pub fn new(scenario: &Scenario, tables: &[(u32, Vec<u32>)]) -> Self {
        let cpus: Vec<CpuState> = scenario
            .machine
            .cpus
            .iter()
            .map(|cpu| CpuState {
                number: cpu.number,
                node: cpu.numa_node,
                online: cpu.online,
                since: vec![0.0; scenario.ports.len()],
                ..CpuState::default()
            })
            .collect();
        let place = |number: u32| cpus.iter().position(|cpu| cpu.number == number).unwrap_or(0);
        let ports = scenario
            .ports
            .iter()
            .zip(tables)
            .map(|(port, (base, table))| PortState {
                base: place(*base),
                flows: port
                    .flows
                    .iter()
                    .map(|flow| FlowState {
                        entry: (flow.hash % table.len().max(1) as u64) as usize,
                        rate: flow.rate,
                        elastic: flow.elastic,
                        silent: ANEW,
                        ..FlowState::default()
                    })
                    .collect(),
                entries: table.iter().map(|cpu| EntryState { cpu: place(*cpu), ..EntryState::default() }).collect(),
                distributing: vec![0.0; cpus.len()],
                processing: vec![0.0; cpus.len()],
                lost: vec![0.0; cpus.len()],
                squeezed: vec![0; cpus.len()],
                standing: vec![true; cpus.len()],
                distributes: port.abilities.distributes && scenario.costs.distribute > 0.0,
                ..PortState::default()
            })
            .collect();
        Self {
            costs: scenario.costs,
            cpus,
            ports,
            random: Xoshiro256PlusPlus::seed_from_u64(scenario.seed),
            noise: scenario.noise,
            delivered: 0.0,
            lost: 0.0,
            waits: [0.0; BUCKETS],
        }
    }

    pub fn change(&mut self, change: Change) {
        match change {
            Change::Rate { port, rate } => self.ports[port].flows.iter_mut().for_each(|flow| flow.rate = rate),
            Change::FlowRate { port, flow, rate } => self.ports[port].flows[flow].rate = rate,
            Change::Other { cpu, load } => {
                if let Some(at) = self.at(cpu) {
                    self.cpus[at].other = load;
                }
            }
            Change::Online { cpu, online } => {
                if let Some(at) = self.at(cpu) {
                    self.cpus[at].online = online;
                }
            }
            Change::Mode { .. } => {}
        }
    }

    fn at(&self, cpu: u32) -> Option<usize> {
        self.cpus.iter().position(|state| state.number == cpu)
    }

    /// An entry goes to another CPU, what waits of it too: order is kept.
    pub fn place(&mut self, port: usize, entry: Option<usize>, cpu: u32) {
        let Some(at) = self.at(cpu) else { return };
        match entry {
            None => self.ports[port].base = at,
            Some(entry) => {
                if let Some(state) = self.ports[port].entries.get_mut(entry) {
                    state.cpu = at;
                }
            }
        }
    }

    /// Whether a random draw is below `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random::<f64>() < share
    }

    /// The CPU that does an entry's work: its own, or the base when that is offline, or any other.
    fn worker(&self, wanted: usize, base: usize) -> usize {
        [wanted, base]
            .into_iter()
            .find(|at| self.cpus[*at].online)
            .unwrap_or_else(|| self.cpus.iter().position(|cpu| cpu.online).unwrap_or(wanted))
    }

    fn cost(&self, at: usize, base: usize) -> f64 {
        let near = self.cpus[at].node == self.cpus[base].node;
        self.costs.process * if near { 1.0 } else { self.costs.numa }
    }

    /// A step of a millisecond.
    pub fn step(&mut self) {
        for port in 0..self.ports.len() {
            self.arrive(port);
        }
        let mut work = vec![0.0; self.cpus.len()];
        let mut waiting = vec![0.0; self.cpus.len()];
        let mut plans = Vec::with_capacity(self.ports.len());
        for port in &self.ports {
            let base = self.worker(port.base, port.base);
            let mut of = Vec::with_capacity(port.entries.len());
            for entry in &port.entries {
                let at = self.worker(entry.cpu, base);
                let cost = self.cost(at, base);
                let tax = if port.distributes { self.costs.distribute } else { 0.0 };
                let inline = if at == base { cost } else { 0.0 };
                work[base] += entry.first * (tax + inline);
                work[at] += entry.second * cost;
                waiting[base] += entry.first;
                waiting[at] += entry.second;
                of.push((at, cost, tax, inline));
            }
            plans.push((base, of));
        }
        let mut share = vec![1.0; self.cpus.len()];
        for (at, cpu) in self.cpus.iter_mut().enumerate() {
            let wake = if work[at] > 0.0 && !cpu.backlog { self.costs.wake } else { 0.0 };
            let room = ((1.0 - cpu.other) * TICK - wake).max(0.0);
            if work[at] > room {
                share[at] = room / work[at];
            }
            cpu.done = work[at] * share[at];
            let busy = cpu.done + wake + cpu.other * TICK;
            cpu.busy += busy;
            cpu.since.iter_mut().for_each(|since| *since += busy);
            cpu.backlog = share[at] < 1.0;
            let speed = (1.0 - cpu.other).max(0.01);
            cpu.wait = (work[at] - cpu.done) / speed;
        }
        (self.delivered, self.lost) = (0.0, 0.0);
        for (port, (base, of)) in self.ports.iter_mut().zip(&plans) {
            port.ticks += 1;
            for (entry, (at, cost, tax, inline)) in port.entries.iter_mut().zip(of) {
                let (at, base) = (*at, *base);
                let first = entry.first * share[base];
                let second = entry.second * share[at];
                port.distributing[base] += first * tax;
                port.processing[base] += first * inline;
                port.processing[at] += second * cost;
                entry.cost += first * inline + second * cost;
                entry.first -= first;
                entry.second -= second;
                let handed = if *inline == 0.0 { first } else { 0.0 };
                entry.delivered = second + first - handed;
                // What has no room is dropped, of each entry in proportion.
                let keep = |at: usize| {
                    let left = waiting[at] * (1.0 - share[at]);
                    if left > QUEUE { QUEUE / left } else { 1.0 }
                };
                let dropped = (entry.first * (1.0 - keep(base)), entry.second * (1.0 - keep(at)));
                entry.first -= dropped.0;
                entry.second -= dropped.1;
                entry.dropped = dropped.0 + dropped.1;
                port.lost[base] += dropped.0;
                port.lost[at] += dropped.1;
                entry.lost += entry.dropped;
                entry.coming = handed;
                entry.packets += entry.delivered;
                self.delivered += entry.delivered;
                self.lost += entry.dropped;
                let wait = self.cpus[at].wait + if *tax > 0.0 && at != base { self.cpus[base].wait } else { 0.0 };
                let bucket = ((wait / 1000.0).max(1.0).log2() * 8.0) as usize;
                self.waits[bucket.min(BUCKETS - 1)] += entry.delivered;
            }
            for (at, cpu) in self.cpus.iter().enumerate() {
                port.squeezed[at] += u64::from(cpu.backlog);
                port.standing[at] &= cpu.backlog;
            }
        }
        for port in 0..self.ports.len() {
            self.adapt(port);
        }
    }

    fn arrive(&mut self, port: usize) {
        let state = &mut self.ports[port];
        let sent: f64 = state.flows.iter().map(|flow| flow.sent.min(flow.rate)).sum();
        let link = self.costs.link_packets();
        let scale = if sent > link { link / sent } else { 1.0 };
        for entry in &mut state.entries {
            entry.arrived = 0.0;
            // What the base handed over in the step before is there now.
            entry.second += std::mem::take(&mut entry.coming);
        }
        for flow in &mut state.flows {
            if !flow.elastic {
                flow.sent = flow.rate;
            } else if flow.rate <= 0.0 {
                flow.sent = 0.0;
                flow.silent = flow.silent.saturating_add(1);
            } else if flow.silent >= ANEW {
                flow.silent = 0;
                flow.marked = CAREFULLY;
                flow.sent = BEGIN.min(flow.rate);
            } else {
                flow.silent = 0;
                flow.sent = flow.sent.max(BEGIN.min(flow.rate));
            }
            flow.sent = flow.sent.min(flow.rate) * scale;
            state.entries[flow.entry].arrived += flow.sent * TICK / 1e9;
        }
        let base = state.base;
        state.spread = state.distributes && state.entries.iter().any(|e| e.arrived > 0.0 && e.cpu != base);
        for entry in &mut state.entries {
            if state.spread {
                entry.first += entry.arrived;
            } else {
                entry.second += entry.arrived;
            }
        }
    }

    /// Elastic flows follow what becomes of their packets.
    fn adapt(&mut self, port: usize) {
        let base = self.worker(self.ports[port].base, self.ports[port].base);
        let places: Vec<usize> = self.ports[port].entries.iter().map(|entry| self.worker(entry.cpu, base)).collect();
        let state = &mut self.ports[port];
        for flow in state.flows.iter_mut().filter(|flow| flow.elastic && flow.sent > 0.0) {
            let entry = &state.entries[flow.entry];
            let mut wait = self.cpus[places[flow.entry]].wait;
            if state.spread {
                wait = wait.max(self.cpus[base].wait);
            }
            let served = if entry.arrived > 0.0 { (entry.delivered / entry.arrived).min(1.0) } else { 1.0 };
            if entry.dropped > 0.0 {
                flow.sent *= 0.7_f64.max(served.min(0.95));
                flow.marked = 0;
            } else if wait > 2.0 * MARK {
                flow.sent *= served.clamp(0.5, 0.97);
                flow.marked = 0;
            } else if wait > MARK {
                flow.marked = 0;
            } else {
                flow.marked = flow.marked.saturating_add(1);
                flow.sent *= if flow.marked > CAREFULLY { GROWTH } else { CAREFUL };
            }
            flow.sent = flow.sent.min(flow.rate);
        }
    }

    /// What was seen of a port since the last time, with errors of measurement; counters begin anew.
    pub fn observe(&mut self, port: usize) -> Observation {
        let ticks = self.ports[port].ticks;
        let over = Duration::from_millis(ticks);
        let noise = self.noise;
        let random = &mut self.random;
        let mut measured =
            |value: f64| if noise > 0.0 { value * (1.0 + noise * (2.0 * random.random::<f64>() - 1.0)) } else { value };
        let nanos = |value: f64| Duration::from_nanos(value.max(0.0) as u64);
        let state = &mut self.ports[port];
        let bytes = self.costs.packet_bytes;
        let mut entries = Vec::with_capacity(state.entries.len());
        for entry in &mut state.entries {
            let packets = measured(entry.packets) + entry.carry;
            entry.carry = packets.fract();
            entries.push(EntryObservation {
                packets: packets as u64,
                bytes: (packets.floor() * bytes) as u64,
                cost: Some(nanos(measured(entry.cost))),
                waiting: Some((entry.first + entry.second) as u64),
                lost: entry.lost as u64,
            });
            (entry.packets, entry.lost, entry.cost) = (0.0, 0.0, 0.0);
        }
        let mut cpus = Vec::with_capacity(self.cpus.len());
        for (at, cpu) in self.cpus.iter_mut().enumerate() {
            let span = over.as_nanos() as f64;
            let (distributing, processing) = (measured(state.distributing[at]), measured(state.processing[at]));
            let own = state.distributing[at] + state.processing[at];
            let other = measured((cpu.since[port] - own).max(0.0)).min((span - distributing - processing).max(0.0));
            cpus.push(CpuObservation {
                packets: 0,
                number: cpu.number,
                distributing: nanos(distributing),
                processing: nanos(processing),
                other: nanos(other),
                lost: state.lost[at] as u64,
                squeezed: state.squeezed[at],
                standing_queue: state.standing[at] && ticks > 0,
            });
            cpu.since[port] = 0.0;
            (state.distributing[at], state.processing[at], state.lost[at]) = (0.0, 0.0, 0.0);
            (state.squeezed[at], state.standing[at]) = (0, true);
        }
        state.ticks = 0;
        Observation { over, entries, cpus }
    }

    /// CPUs at work for ports in the last step.
    pub fn used(&self) -> u32 {
        u32::try_from(self.cpus.iter().filter(|cpu| cpu.done > 0.0).count()).unwrap_or(u32::MAX)
    }

    /// CPUs' worth of distributing and processing in the last step.
    pub fn work(&self) -> f64 {
        self.cpus.iter().map(|cpu| cpu.done).sum::<f64>() / TICK
    }

    /// CPU seconds spent since the beginning, other work included.
    pub fn busy(&self) -> f64 {
        self.cpus.iter().map(|cpu| cpu.busy).sum::<f64>() / 1e9
    }

    /// The highest load of any CPU by ports and other work in the last step.
    pub fn highest(&self) -> f64 {
        self.cpus.iter().map(|cpu| cpu.done / TICK + cpu.other).fold(0.0, f64::max)
    }

    /// The time in ns that a share of packets waited at most; within a step there is no waiting.
    pub fn waited(&self, share: f64) -> f64 {
        let all: f64 = self.waits.iter().sum();
        let mut sum = 0.0;
        for (bucket, packets) in self.waits.iter().enumerate() {
            sum += packets;
            if sum >= all * share && all > 0.0 {
                return if bucket == 0 { 0.0 } else { ((bucket + 1) as f64 / 8.0).exp2() * 1000.0 };
            }
        }
        0.0
    }

    pub fn costs(&self) -> &Costs {
        &self.costs
    }
}
