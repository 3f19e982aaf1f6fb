//! The protocol of moves under every interleaving that chance finds: packets of a flow stay in order, and moves come to an end.

use std::collections::VecDeque;

use proptest::prelude::*;
use rig_datapath::steer::model::{BucketState, Link, Processor};

const RECEIVERS: usize = 2;
const CPUS: usize = 2;
const FLOWS: usize = 3;
/// Packets that a queue has room for.
const ROOM: usize = 4;
/// The kernel puts so many into a queue at a time, and takes so many from it.
const BATCH: usize = 3;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A packet of the flow comes.
    Receive {
        flow: usize,
    },
    /// The poll ends, and the next one of this queue may be on another CPU.
    EndPoll {
        on: usize,
    },
    /// What is on its way is put into a queue, as far as there is room.
    Put {
        receiver: usize,
        cpu: usize,
    },
    /// That is told to the program.
    TellPut {
        receiver: usize,
        cpu: usize,
    },
    Move {
        to: usize,
    },
    /// The thread of a CPU goes one step on.
    Work {
        cpu: usize,
    },
}

/// Where a thread is (kernel/bpf/cpumap.c, cpu_map_kthread_run).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Look,
    /// It has seen that there is nothing, and has not lain down yet.
    Going,
    Asleep,
    Taken,
    Told,
}

/// The kernel, as far as packets and their order go: one receive queue, whose flows are all in one bucket.
struct KernelModel {
    way: BucketState,
    wanted: usize,
    polled_on: usize,
    links: Vec<Vec<Link>>,
    bulks: Vec<Vec<Vec<(usize, u64)>>>,
    /// Put in, and not yet told.
    untold: Vec<Vec<bool>>,
    queues: Vec<VecDeque<(usize, u64)>>,
    hands: Vec<Vec<(usize, u64)>>,
    /// Merged, and not yet delivered.
    held: Vec<Vec<(usize, u64)>>,
    at: Vec<ThreadState>,
    processors: Vec<Processor>,
    sent: [u64; FLOWS],
    delivered: [u64; FLOWS],
    last: usize,
}

impl KernelModel {
    fn new() -> Self {
        Self {
            way: BucketState::default(),
            wanted: 0,
            polled_on: 0,
            links: vec![vec![Link::default(); CPUS]; RECEIVERS],
            bulks: vec![vec![Vec::new(); CPUS]; RECEIVERS],
            untold: vec![vec![false; CPUS]; RECEIVERS],
            queues: vec![VecDeque::new(); CPUS],
            hands: vec![Vec::new(); CPUS],
            held: vec![Vec::new(); CPUS],
            at: vec![ThreadState::Look; CPUS],
            processors: vec![Processor::default(); CPUS],
            sent: [0; FLOWS],
            delivered: [0; FLOWS],
            last: 0,
        }
    }

    fn put(&mut self, receiver: usize, cpu: usize) {
        // One after the other on a CPU.
        self.tell_put(receiver, cpu);
        if self.bulks[receiver][cpu].is_empty() {
            return;
        }
        for packet in std::mem::take(&mut self.bulks[receiver][cpu]) {
            if self.queues[cpu].len() < ROOM {
                self.queues[cpu].push_back(packet);
            }
        }
        self.untold[receiver][cpu] = true;
    }

    fn tell_put(&mut self, receiver: usize, cpu: usize) {
        if std::mem::take(&mut self.untold[receiver][cpu]) {
            let processor = self.processors[cpu];
            self.links[receiver][cpu].put(&processor);
            if self.at[cpu] == ThreadState::Asleep {
                self.at[cpu] = ThreadState::Look;
            }
        }
    }

    fn flush(&mut self) {
        let receiver = self.polled_on;
        for cpu in 0..CPUS {
            self.put(receiver, cpu);
            self.tell_put(receiver, cpu);
        }
    }

    fn deliver(&mut self, (flow, number): (usize, u64)) -> Result<(), TestCaseError> {
        prop_assert!(self.delivered[flow] < number, "flow {flow}: {number} after {}", self.delivered[flow]);
        self.delivered[flow] = number;
        Ok(())
    }

    fn work(&mut self, cpu: usize) -> Result<(), TestCaseError> {
        self.at[cpu] = match self.at[cpu] {
            ThreadState::Look if self.queues[cpu].is_empty() => ThreadState::Going,
            ThreadState::Look => {
                let count = self.queues[cpu].len().min(BATCH);
                self.hands[cpu].extend(self.queues[cpu].drain(..count));
                ThreadState::Taken
            }
            ThreadState::Going => {
                self.processors[cpu].lay_down();
                // The CPU that put a packet in meanwhile has woken this one up.
                if self.queues[cpu].is_empty() { ThreadState::Asleep } else { ThreadState::Look }
            }
            ThreadState::Asleep => ThreadState::Asleep,
            ThreadState::Taken => {
                self.processors[cpu].took();
                ThreadState::Told
            }
            ThreadState::Told => {
                let taken = std::mem::take(&mut self.hands[cpu]);
                self.held[cpu].extend(taken);
                if self.queues[cpu].is_empty() || self.held[cpu].len() > 2 * BATCH {
                    for packet in std::mem::take(&mut self.held[cpu]) {
                        self.deliver(packet)?;
                    }
                }
                ThreadState::Look
            }
        };
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Receive { flow } => {
                let on = self.polled_on;
                // What was put in is told before the next packet is looked at.
                (0..CPUS).for_each(|cpu| self.tell_put(on, cpu));
                self.sent[flow] += 1;
                let cpu = self.way.next(self.wanted, on, &mut self.links, &self.processors);
                self.last = cpu;
                self.bulks[on][cpu].push((flow, self.sent[flow]));
                if self.bulks[on][cpu].len() == BATCH {
                    self.put(on, cpu);
                }
            }
            Step::EndPoll { on } => {
                self.flush();
                self.polled_on = on;
            }
            Step::Put { receiver, cpu } => self.put(receiver, cpu),
            Step::TellPut { receiver, cpu } => self.tell_put(receiver, cpu),
            Step::Move { to } => self.wanted = to,
            Step::Work { cpu } => self.work(cpu)?,
        }
        Ok(())
    }

    /// Until nothing is left to do.
    fn rest(&mut self) -> Result<(), TestCaseError> {
        self.flush();
        for _ in 0..100 {
            (0..CPUS).try_for_each(|cpu| self.work(cpu))?;
        }
        Ok(())
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..FLOWS).prop_map(|flow| Step::Receive { flow }),
        2 => (0..RECEIVERS).prop_map(|on| Step::EndPoll { on }),
        1 => (0..RECEIVERS, 0..CPUS).prop_map(|(receiver, cpu)| Step::Put { receiver, cpu }),
        1 => (0..RECEIVERS, 0..CPUS).prop_map(|(receiver, cpu)| Step::TellPut { receiver, cpu }),
        2 => (0..CPUS).prop_map(|to| Step::Move { to }),
        8 => (0..CPUS).prop_map(|cpu| Step::Work { cpu }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn packets_of_a_flow_stay_in_order_over_moves_and_drops(steps in prop::collection::vec(step(), 1..120)) {
        let mut kernel = KernelModel::new();
        for step in steps {
            kernel.step(step)?;
        }
        kernel.rest()?;
        prop_assert!(kernel.held.iter().all(Vec::is_empty));
        // However many were dropped: two packets later the bucket is where it is wanted.
        for _ in 0..2 {
            kernel.step(Step::Receive { flow: 0 })?;
            kernel.rest()?;
        }
        kernel.step(Step::Receive { flow: 0 })?;
        prop_assert_eq!(kernel.last, kernel.wanted);
    }
}
