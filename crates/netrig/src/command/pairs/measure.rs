//! Tests between hosts, in steps in which no host has two: reached, carried out, kept in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use netrig_ends::pairs::rounds::rounds;
use netrig_ends::seal::Key;
use netrig_ends::server::Family;
use rig_cli::exit::{Exit, ExitContext, Failure, StoppedByUser, both, in_words};
use rig_cli::streams::note;
use rig_facts::record::certainty::{RepetitionEnd, ScenarioCertainty};
use rig_facts::record::{Environment, TrialRecord};
use rig_facts::store::{NewRun, RunEnd, RunId, Store};
use rig_load::driver::Cancel;
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, Schedule, SendMode, TcpStream, Transactions};
use rig_stats::units::counted;
use rig_suite::options::Options;
use rig_suite::pairs::{PAIRS, PODS, PairLoad, PairScenario, PairedHost, PairsTest, PodsTest};
use rig_suite::suite::{Repeat, Timing};
use rig_testbed::host::HostInterface;

use super::super::ends::cool_down_after;
use super::super::hosts::NamedHost;
use super::super::run::RunArgs;
use super::host::{self, ClientTest, ReachedHost, ServerPorts};

const WINDOW: Duration = Duration::from_secs(2);
const QUICK_WINDOW: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(500);
/// One connection for each of so many CPUs at most: more is rarely faster, and a card's limit is seldom reached by one.
const MOST_THREADS: u32 = 4;
/// Two rounds of tests with a host that fail, one after the other.
const GIVEN_UP: u32 = 6;

/// The times of each test.
pub fn phases(args: &RunArgs) -> Phases {
    let window = args.window.map_or(if args.quick { QUICK_WINDOW } else { WINDOW }, |window| window.0);
    // As the client of each test has it.
    Phases { warm_up: WARM_UP, window, cool_down: cool_down_after(window, false), interval: window }
}

/// Hosts that are to be tested with each other.
pub struct HostTests<'a> {
    pub args: &'a RunArgs,
    pub hosts: &'a [NamedHost],
    pub trials: u32,
    /// Of pods.
    pub pods: Option<Pods<'a>>,
}

/// What is different where hosts are pods.
pub struct Pods<'a> {
    pub test: PodsTest,
    /// Those that are not there, by their names, and why.
    pub left_out: BTreeMap<String, String>,
    pub service: Option<Service>,
    /// An error where pods are not there any more: asked where a test failed.
    pub check: &'a dyn Fn() -> anyhow::Result<()>,
}

/// An address that leads to the server of a host, as one more host: the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    pub address: IpAddr,
    /// Of the host's server.
    pub ports: ServerPorts,
    /// The host's number.
    pub server: usize,
}

impl HostTests<'_> {
    /// Reaches all, and makes all tests; what was done is in the store.
    pub fn make(&self, cancel: &Cancel, store: &mut Store) -> Result<(RunId, anyhow::Result<()>), Failure> {
        let program = std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed)?;
        // Of this run alone: nobody else is served.
        let key = Key::new_text().context("draw a random number").or_exit(Exit::Failed)?;
        let left_out = |host: &NamedHost| self.pods.as_ref().and_then(|pods| pods.left_out.get(&host.name));
        thread::scope(|scope| {
            let begun: Vec<HostThread<'_>> = self
                .hosts
                .iter()
                .enumerate()
                .map(|(number, host)| {
                    let (to_reached, reached) = mpsc::channel();
                    let (tests, of_host) = mpsc::channel();
                    let (to_outcomes, outcomes) = mpsc::channel();
                    let service = self.pods.as_ref().and_then(|pods| pods.service.as_ref());
                    let ports = service.filter(|service| service.server == number).map(|service| service.ports);
                    match left_out(host) {
                        Some(why) => drop(to_reached.send(Err(anyhow!(why.clone())))),
                        None => {
                            let server = host::ServerSettings { key: &key, ports: ports.unwrap_or_default() };
                            let program = &program;
                            scope.spawn(move || {
                                host::run(host, program, &server, cancel, &to_reached, of_host, &to_outcomes);
                            });
                        }
                    }
                    HostThread { host, reached, tests, outcomes }
                })
                .collect();
            measure(self, &begun, cancel, store)
        })
    }
}

/// A host, and what joins this thread to the one that makes its tests.
struct HostThread<'a> {
    host: &'a NamedHost,
    reached: Receiver<anyhow::Result<ReachedHost>>,
    tests: Sender<ClientTest>,
    outcomes: Receiver<anyhow::Result<TrialRecord>>,
}

fn measure(
    asked: &HostTests<'_>,
    threads: &[HostThread<'_>],
    cancel: &Cancel,
    store: &mut Store,
) -> Result<(RunId, anyhow::Result<()>), Failure> {
    let HostTests { args, trials, pods, .. } = asked;
    let (trials, service) = (*trials, pods.as_ref().and_then(|pods| pods.service.as_ref()));
    let say = |text: &str| {
        if !args.quiet {
            note(text);
        }
    };
    let (one, many) = if pods.is_some() { ("pod", "pods") } else { ("host", "hosts") };
    say(&format!("Reaching {}", counted(threads.len(), one, many)));
    let lost = || Err(anyhow!("the thread that reaches it has ended"));
    let reached: Vec<anyhow::Result<ReachedHost>> =
        threads.iter().map(|thread| thread.reached.recv().unwrap_or_else(|_| lost())).collect();
    if cancel.is_cancelled() {
        return Err(Failure::from(anyhow::Error::from(StoppedByUser)));
    }
    let left_out = |reached: &anyhow::Result<ReachedHost>| reached.as_ref().err().map(in_words);
    let mut test = PairsTest {
        hosts: threads
            .iter()
            .zip(&reached)
            .map(|(thread, reached)| PairedHost {
                name: thread.host.name.clone(),
                addresses: BTreeSet::new(),
                interfaces: BTreeSet::new(),
                labels: thread.host.access.labels.clone(),
                left_out: left_out(reached),
            })
            .collect(),
        stream: stream(reached.iter().flatten().map(|host| host.cpus).min().unwrap_or(1)),
        rr: transactions(),
        pods: pods.as_ref().map(|pods| pods.test.clone()),
    };
    let mut addresses = Addresses::between(threads, &reached);
    let mut ports: Vec<u16> = reached.iter().map(|reached| reached.as_ref().map_or(0, |host| host.port)).collect();
    if let Some(service) = service {
        let number = test.hosts.len();
        addresses.0.extend((0..number).map(|from| ((from, number), Ok(service.address))));
        ports.push(ports[service.server]);
        let left_out = test.hosts[service.server].left_out.clone();
        test.hosts.push(PairedHost {
            name: service.name.clone(),
            addresses: [service.address].into(),
            interfaces: BTreeSet::new(),
            labels: BTreeMap::new(),
            left_out,
        });
    }
    for (to, (host, reached)) in test.hosts.iter_mut().zip(&reached).enumerate() {
        host.addresses = addresses.of(to);
        let interfaces = reached.iter().flat_map(|reached| &reached.interfaces);
        let carries = |own: &&HostInterface| own.addresses.iter().any(|net| host.addresses.contains(&net.addr()));
        host.interfaces = interfaces.filter(carries).map(|own| own.name.clone()).collect();
    }
    refuse_lost(args, &test)?;
    for host in test.hosts.iter().filter(|host| host.left_out.is_some()) {
        let none = if pods.is_some() { "not tested" } else { "in no pair" };
        say(&format!("{} is {none}: {}", host.name, host.left_out.as_deref().unwrap_or_default()));
    }
    let phases = phases(args);
    let machines = threads.iter().zip(&reached);
    let machines = machines
        .filter_map(|(thread, reached)| Some((thread.host.name.clone(), reached.as_ref().ok()?.environment.clone())));
    let id = begin(args, &test, phases, trials, Environment::of_several(machines.collect()), store)?;

    let mut pairs = Pairs {
        test: &test,
        threads,
        addresses,
        ports,
        phases,
        failed: BTreeMap::new(),
        made: BTreeMap::new(),
        failed_in_a_row: vec![0; test.hosts.len()],
    };
    let result = match pods {
        None => pairs.all(trials, id, cancel, store, &say),
        Some(pods) => pairs.cases(trials, id, cancel, store, &say, pods.check),
    };
    let settled = pairs.settled(trials);
    let ending = match &result {
        Ok(()) => RunEnd::Complete,
        Err(error) if error.is::<StoppedByUser>() => RunEnd::Interrupted,
        Err(error) => RunEnd::Failed { reason: in_words(error) },
    };
    let goals = serde_json::to_value(settled).context("describe the run").or_exit(Exit::Failed)?;
    let stored = store.finish_run(id, &ending, Some(&goals), Timestamp::now().as_millisecond());
    Ok((id, both(result, stored.map_err(anyhow::Error::from))))
}

/// Refuses where no pair is left, or `--strict` asks for all.
fn refuse_lost(args: &RunArgs, test: &PairsTest) -> Result<(), Failure> {
    let lost: String =
        test.hosts.iter().filter_map(|host| Some(format!("\n  {}: {}", host.name, host.left_out.as_ref()?))).collect();
    let why = match test.scenarios().is_empty() {
        true if test.pods.is_some() => "no pod can be tested with another",
        true => "fewer than two hosts can be tested",
        _ if args.strict && !lost.is_empty() => "not all can be tested, and --strict asks for all",
        _ => return Ok(()),
    };
    Err(Failure::new(Exit::Lacking, anyhow!("{why}:{lost}")))
}

fn stream(cpus: u32) -> Load {
    Load::TcpStream(TcpStream {
        flow: Flow::Forward,
        threads: cpus.clamp(1, MOST_THREADS),
        connections: 1,
        message: 128 << 10,
        send_buffer: None,
        receive_buffer: None,
        no_delay: false,
        throttle: None,
        congestion_control: None,
        engine: Engine::Blocking,
        send_mode: SendMode::Copy,
        receive_mode: ReceiveMode::Copy,
        options: Default::default(),
    })
}

fn transactions() -> Load {
    Load::TcpRr(Transactions {
        threads: 1,
        connections: 1,
        request: 1,
        response: 1,
        in_flight: 1,
        schedule: Schedule::Closed,
        timeout: Duration::from_secs(1),
        send_buffer: None,
        receive_buffer: None,
        no_delay: false,
        congestion_control: None,
        options: Default::default(),
    })
}

fn begin(
    args: &RunArgs,
    test: &PairsTest,
    phases: Phases,
    trials: u32,
    environment: Environment,
    store: &mut Store,
) -> Result<RunId, Failure> {
    let options = Options {
        quick: args.quick,
        only: args.only.clone(),
        cpus: Vec::new(),
        timing: Timing { phases, repeat: Repeat::Times(trials) },
        seed: None,
        again: Vec::new(),
        aa: None,
        left_out: Vec::new(),
        host: None,
        label: args.label.clone(),
        gate: false,
        turns: None,
        pairs: Some(test.clone()),
        tool: None,
        ends: None,
        inside: Vec::new(),
    };
    let new = NewRun {
        suite: if test.pods.is_some() { PODS } else { PAIRS }.to_owned(),
        title: test.title(),
        suite_file: String::new(),
        suite_text: String::new(),
        options: serde_json::to_value(options).context("describe the run").or_exit(Exit::Failed)?,
        environment,
        planned_trials: u32::try_from(test.scenarios().len()).unwrap_or(u32::MAX).saturating_mul(trials),
        started_unix_ms: Timestamp::now().as_millisecond(),
    };
    store.begin_run(&new).or_exit(Exit::Failed)
}

/// By which address each host reaches each other one, or why by none.
struct Addresses(BTreeMap<(usize, usize), Result<IpAddr, String>>);

impl Addresses {
    fn between(threads: &[HostThread<'_>], reached: &[anyhow::Result<ReachedHost>]) -> Self {
        let interfaces = |host: usize| reached[host].as_ref().ok().map(|reached| reached.interfaces.as_slice());
        let mut all = BTreeMap::new();
        for from in 0..threads.len() {
            for to in (0..threads.len()).filter(|to| *to != from) {
                let (Some(near), Some(far)) = (interfaces(from), interfaces(to)) else { continue };
                let address = threads[to].host.reached_at(near, far, Family::Any);
                all.insert((from, to), address.map_err(|error| in_words(&error)));
            }
        }
        Self(all)
    }

    /// All by which a host is reached.
    fn of(&self, to: usize) -> BTreeSet<IpAddr> {
        self.0.iter().filter(|((_, own), _)| *own == to).filter_map(|(_, address)| address.clone().ok()).collect()
    }
}

/// All pairs as they are tested.
struct Pairs<'a> {
    test: &'a PairsTest,
    threads: &'a [HostThread<'a>],
    addresses: Addresses,
    ports: Vec<u16>,
    phases: Phases,
    /// In which trial a scenario failed, and why.
    failed: BTreeMap<PairScenario, (u32, String)>,
    /// Trials in the store.
    made: BTreeMap<PairScenario, u32>,
    /// By host.
    failed_in_a_row: Vec<u32>,
}

impl Pairs<'_> {
    fn all(
        &mut self,
        trials: u32,
        id: RunId,
        cancel: &Cancel,
        store: &mut Store,
        say: &dyn Fn(&str),
    ) -> anyhow::Result<()> {
        let paired = self.test.paired();
        let rounds = rounds(paired.len());
        for trial in 1..=trials {
            for (number, round) in rounds.iter().enumerate() {
                let pairs: Vec<(usize, usize)> =
                    round.iter().map(|(one, other)| (paired[*one], paired[*other])).collect();
                let of_trial = if trials > 1 { format!("trial {trial}, ") } else { String::new() };
                say(&format!("Run {id}: {of_trial}round {} of {}", number + 1, rounds.len()));
                // In both directions one after the other: in one step all pairs carry the same load.
                let step = |load, is_back: bool| {
                    pairs.iter().map(move |(one, other)| {
                        let (from, to) = if is_back { (*other, *one) } else { (*one, *other) };
                        PairScenario { from, to, load }
                    })
                };
                self.step(step(PairLoad::Stream, false).collect(), trial, id, cancel, store, say)?;
                self.step(step(PairLoad::Stream, true).collect(), trial, id, cancel, store, say)?;
                self.step(step(PairLoad::Rr, false).collect(), trial, id, cancel, store, say)?;
            }
        }
        Ok(())
    }

    /// One test at a time, for they share nodes: in each round all cases, and each round begins with another one.
    fn cases(
        &mut self,
        trials: u32,
        id: RunId,
        cancel: &Cancel,
        store: &mut Store,
        say: &dyn Fn(&str),
        check: &dyn Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut scenarios = self.test.scenarios();
        for trial in 1..=trials {
            say(&format!("Run {id}: round {trial} of {trials}"));
            for scenario in &scenarios {
                let failed = self.failed.len();
                self.step(vec![*scenario], trial, id, cancel, store, say)?;
                if self.failed.len() > failed {
                    check()?;
                }
            }
            // Both loads of a case stay together.
            let loads = 2.min(scenarios.len());
            scenarios.rotate_left(loads);
        }
        Ok(())
    }

    /// Tests of different hosts, at the same time; those that fail once more, at the same time again: a busy machine may have been late.
    fn step(
        &mut self,
        mut scenarios: Vec<PairScenario>,
        trial: u32,
        id: RunId,
        cancel: &Cancel,
        store: &mut Store,
        say: &dyn Fn(&str),
    ) -> anyhow::Result<()> {
        scenarios.retain(|scenario| !self.failed.contains_key(scenario));
        for is_last in [false, true] {
            let started_unix_ms = Timestamp::now().as_millisecond();
            let sent: Vec<_> = scenarios.drain(..).map(|scenario| (scenario, self.send(scenario))).collect();
            for (scenario, sent) in sent {
                let outcome = sent.and_then(|()| self.outcome(scenario));
                let hosts = [scenario.from, scenario.to];
                match outcome {
                    Ok(record) => {
                        hosts.iter().for_each(|host| self.failed_in_a_row[*host] = 0);
                        *self.made.entry(scenario).or_default() += 1;
                        let ordinal = self.made.values().sum();
                        let scenario = self.test.id(scenario);
                        let record = TrialRecord { scenario, ordinal, block: Some(trial), started_unix_ms, ..record };
                        store.add_trial(id, &record)?;
                    }
                    Err(_) if cancel.is_cancelled() => {}
                    Err(_) if !is_last => scenarios.push(scenario),
                    Err(error) => {
                        hosts.iter().for_each(|host| self.failed_in_a_row[*host] += 1);
                        let why = in_words(&error);
                        say(&format!("{} failed: {why}", self.test.id(scenario)));
                        self.failed.insert(scenario, (trial, why));
                    }
                }
            }
            if cancel.is_cancelled() {
                return Err(StoppedByUser.into());
            }
        }
        self.give_up(trial, say);
        Ok(())
    }

    /// Tries no more what has to do with hosts of which nothing succeeds any more: each test would take its longest time.
    fn give_up(&mut self, trial: u32, say: &dyn Fn(&str)) {
        for host in 0..self.failed_in_a_row.len() {
            if self.failed_in_a_row[host] < GIVEN_UP {
                continue;
            }
            self.failed_in_a_row[host] = 0;
            let why = format!("not tried: the last {GIVEN_UP} tests with {} failed", self.test.hosts[host].name);
            let mut count = 0;
            for scenario in self.test.scenarios() {
                let is_left = !self.made.contains_key(&scenario) && !self.failed.contains_key(&scenario);
                if is_left && [scenario.from, scenario.to].contains(&host) {
                    self.failed.insert(scenario, (trial, why.clone()));
                    count += 1;
                }
            }
            if count > 0 {
                say(&format!("{}: {why}", counted(count, "test", "tests")));
            }
        }
    }

    fn send(&self, PairScenario { from, to, load }: PairScenario) -> anyhow::Result<()> {
        let address = self.addresses.0.get(&(from, to)).context("one of the two was not reached")?;
        let address = address.as_ref().map_err(|why| anyhow!(why.clone()))?;
        let load = self.test.load(load).clone();
        let test = ClientTest { address: *address, port: self.ports[to], load, phases: self.phases };
        self.threads[from].tests.send(test).map_err(|_| anyhow!("the host's thread has ended"))
    }

    fn outcome(&self, scenario: PairScenario) -> anyhow::Result<TrialRecord> {
        self.threads[scenario.from].outcomes.recv().context("the host's thread has ended").flatten()
    }

    fn settled(&self, planned: u32) -> Vec<ScenarioCertainty> {
        let of = |scenario: PairScenario| {
            let trials = self.made.get(&scenario).copied().unwrap_or_default();
            let outcome = match self.failed.get(&scenario) {
                Some((trial, reason)) => RepetitionEnd::Failed { trial: *trial, reason: reason.clone() },
                None if trials == planned => RepetitionEnd::Fixed,
                None => RepetitionEnd::Unfinished,
            };
            ScenarioCertainty { scenario: self.test.id(scenario), trials, outcome }
        };
        self.test.scenarios().into_iter().map(of).collect()
    }
}
