//! Tests between two machines in the store.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use jiff::Timestamp;
use netrig_ends::client::Watch;
use netrig_ends::client_session::{Test, TestRecords};
use netrig_ends::machine::Meter;
use netrig_ends::report::{self, TestResult, trial};
use rig_cli::exit::{Exit, ExitContext, Failure, StoppedByUser, in_words};
use rig_cli::streams::note;
use rig_facts::record::certainty::{self, ScenarioCertainty};
use rig_facts::record::{Environment, TrialRecord};
use rig_facts::store::{NewRun, Run, RunEnd, RunId, RunState, Store};
use rig_load::record::Sample;
use rig_report::document::Document;
use rig_suite::ends::{EndsTest, Loads, Peer, suite};
use rig_suite::options::Options;
use rig_suite::suite::{Repeat, Timing};
use rig_testbed::host;
use rig_verdict::view::RunView;

use super::super::report::path_of;
use super::live::IntervalDisplay;
use super::options::StoreOptions;
use crate::BUILD;

/// Keeps each trial as it ends, and shows what [`IntervalDisplay`] does.
#[derive(Debug)]
pub struct TrialRecorder<'a> {
    host: &'a str,
    test: &'a Test,
    planned: u32,
    keeping: &'a StoreOptions,
    /// What users tell the server's machine apart by, where hosts.toml has it.
    peer_labels: BTreeMap<String, String>,
    pub live: IntervalDisplay,
    /// What this machine's sockets are bound to, in words.
    pub source: Option<String>,
    /// This machine.
    pub environment: Environment,
    pub started_unix_ms: i64,
    pub trials: Vec<TrialRecord>,
    /// How many of them the store has.
    stored: u32,
    /// `None` where this user has no store, and asked for none.
    store: Option<Store>,
    id: Option<RunId>,
    /// When the last trial was done.
    since_unix_ms: i64,
}

impl<'a> TrialRecorder<'a> {
    pub fn new(
        host: &'a str,
        test: &'a Test,
        planned: u32,
        live: IntervalDisplay,
        keeping: &'a StoreOptions,
        peer_labels: BTreeMap<String, String>,
    ) -> Result<Self, Failure> {
        let opened = match keeping.no_store {
            true => Ok(None),
            false => path_of(&keeping.store).and_then(|path| Store::open(&path).map(Some).or_exit(Exit::Failed)),
        };
        let is_asked_for = keeping.store.store.is_some() || keeping.label.is_some() || keeping.in_turn.is_some();
        let store = match opened {
            Ok(store) => store,
            Err(failure) if is_asked_for => return Err(failure),
            // In a container without a home a test is as good as elsewhere.
            Err(failure) => {
                note(format_args!("This test is not stored: {}", in_words(&failure.error)));
                None
            }
        };
        let started_unix_ms = Timestamp::now().as_millisecond();
        Ok(Self {
            host,
            test,
            planned,
            keeping,
            peer_labels,
            live,
            source: Some(&test.source).filter(|source| !source.is_default()).map(ToString::to_string),
            environment: Environment { cpu_time: accounting(), ..host::environment(BUILD) },
            started_unix_ms,
            trials: Vec::new(),
            stored: 0,
            store,
            id: None,
            since_unix_ms: started_unix_ms,
        })
    }

    /// The number of the run in the store.
    pub fn number(&self) -> Option<String> {
        self.id.map(|id| id.to_string())
    }

    /// Whether the store has all trials.
    pub fn has_stored_all(&self) -> bool {
        self.stored as usize == self.trials.len()
    }

    /// Closes the run in the store.
    pub fn finish(&mut self, result: &Result<()>) -> Result<(), Failure> {
        let (Some(store), Some(id)) = (&mut self.store, self.id) else { return Ok(()) };
        let ending = match result {
            Ok(()) => RunEnd::Complete,
            Err(error) if error.is::<StoppedByUser>() => RunEnd::Interrupted,
            Err(error) => RunEnd::Failed { reason: in_words(error) },
        };
        let outcome =
            if result.is_ok() { certainty::RepetitionEnd::Fixed } else { certainty::RepetitionEnd::Unfinished };
        let scenario = self.test.client.name().to_owned();
        let settled = [ScenarioCertainty { scenario, trials: self.stored, outcome }];
        let goals = serde_json::to_value(settled).context("describe the run").or_exit(Exit::Failed)?;
        store.finish_run(id, &ending, Some(&goals), Timestamp::now().as_millisecond()).or_exit(Exit::Failed)
    }

    fn new_run(&self, address: SocketAddr, machine: &Environment) -> Result<NewRun> {
        let Self { host, test, keeping, .. } = self;
        let cpus = |cpus: &[u32]| rig_sys::cpu::CpuSet::new(cpus.iter().copied()).to_string();
        let options = Options {
            quick: false,
            only: Vec::new(),
            cpus: [&test.client_cpus, &test.server_cpus].map(|list| cpus(list)).into(),
            timing: Timing { phases: test.phases, repeat: Repeat::Times(self.planned) },
            seed: None,
            again: Vec::new(),
            aa: None,
            left_out: Vec::new(),
            host: None,
            label: keeping.label.clone(),
            gate: false,
            turns: keeping.in_turn.clone(),
            inside: Vec::new(),
            pairs: None,
            tool: None,
            ends: Some(EndsTest {
                peer: Peer {
                    host: (*host).to_owned(),
                    address: Some(address.into()),
                    source: self.source.clone(),
                    machine: machine.clone(),
                },
                load: Loads { client: test.client.clone(), server: test.server.clone() },
                client_cpus: test.client_cpus.clone(),
                server_cpus: test.server_cpus.clone(),
            }),
        };
        Ok(NewRun {
            suite: suite(&test.client).to_owned(),
            title: format!("{} to {host}", test.client.name()),
            suite_file: String::new(),
            suite_text: String::new(),
            options: serde_json::to_value(options).context("describe the run")?,
            environment: self.environment.clone(),
            planned_trials: self.planned,
            started_unix_ms: self.started_unix_ms,
        })
    }
}

impl Watch for TrialRecorder<'_> {
    fn connected(&mut self, address: SocketAddr, machine: &Environment) -> Result<()> {
        // It does not know them itself.
        let machine = &Environment { labels: self.peer_labels.clone(), ..machine.clone() };
        self.live.connected(address, machine)?;
        if self.id.is_none() && self.store.is_some() {
            let new = self.new_run(address, machine)?;
            self.id = self.store.as_mut().map(|store| store.begin_run(&new)).transpose()?;
        }
        Ok(())
    }

    fn interim(&mut self, end: &'static str, sample: &Sample) {
        self.live.interim(end, sample);
    }

    fn done(&mut self, ends: &TestRecords) -> Result<()> {
        self.live.done(ends)?;
        let record = trial(ends, &self.test.client, self.trials.len() as u32 + 1, self.since_unix_ms);
        self.since_unix_ms = Timestamp::now().as_millisecond();
        let stored = match (&mut self.store, self.id) {
            (Some(store), Some(id)) => store.add_trial(id, &record).inspect(|()| self.stored += 1),
            _ => Ok(()),
        };
        // Also what is not stored was measured, and is told.
        self.trials.push(record);
        Ok(stored?)
    }
}

/// How this machine counts CPU time, as a server says of its own.
fn accounting() -> Option<String> {
    Meter::new().ok().map(|mut meter| meter.accounting())
}

/// The report and the view of a stored test; `None` of a suite's run.
pub fn document_of(run: &Run, options: &Options) -> Option<(Document, RunView)> {
    let EndsTest { peer, load, client_cpus, server_cpus } = options.ends.as_ref()?;
    let test = Test {
        client: load.client.clone(),
        client_cpus: client_cpus.clone(),
        // Interfaces of that machine: what is known of them are words.
        source: Default::default(),
        server: load.server.clone(),
        server_cpus: server_cpus.clone(),
        phases: options.timing.phases,
    };
    let id = run.summary.id.to_string();
    let server = peer.address.clone().map(|address| (address, peer.machine.clone()));
    let outcome = TestResult {
        host: &peer.host,
        run: Some(&id),
        test: &test,
        source: peer.source.as_deref(),
        trials: &run.trials,
        partial: None,
        // A run that took turns has all its trials when its starter ends it.
        planned: if options.turns.is_some() { run.summary.stored_trials } else { run.summary.planned_trials },
        started_unix_ms: run.summary.started_unix_ms,
        server: server.as_ref(),
        client: &run.environment,
        turns: options.turns.as_ref(),
        failure: match &run.summary.state {
            RunState::Failed { reason } => Some(reason),
            _ => None,
        },
    };
    Some((report::document(&outcome), report::view(&outcome)))
}
