//! A test between two machines for programs, and as the run that it is.

use rig_facts::record::{AbRun, Clocks, Environment, TrialRecord};
use rig_load::plan::{Load, Phases};
use rig_stats::confidence::Level;
use rig_stats::units::counted;
use rig_suite::ends::{Loads, Peer, suite, words};
use rig_suite::suite::RequestedLoad;
use rig_sys::cpu::CpuSet;
use rig_sys::socket::NamedAddress;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::view::{Certainty, RunView, ScenarioView, Status};

/// What `data` of a test between two machines holds. What a version of netrig before did not write is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestData {
    pub kind: TestKind,
    /// The load's name.
    pub test: String,
    /// Its number in the client's store; null where it is not kept.
    #[serde(default)]
    pub run: Option<String>,
    #[serde(default)]
    pub started_unix_ms: Option<i64>,
    /// Trials that were asked for.
    #[serde(default)]
    pub planned: Option<u32>,
    /// The server as the user named it, and where it was found.
    pub host: String,
    pub address: Option<NamedAddress>,
    /// What the client's sockets were bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The machines.
    pub client: Environment,
    pub server: Option<Environment>,
    pub load: Loads,
    pub phases: Phases,
    /// The run that it took turns with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<AbRun>,
    /// Each figure of each end.
    pub figures: Vec<Value>,
    /// One for each trial.
    pub clocks: Vec<Clocks>,
    pub trials: Vec<TrialRecord>,
    /// Of a trial that was stopped.
    #[serde(default)]
    pub partial: Option<Value>,
    /// Why the test failed, where it did; its trials are those before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestKind {
    Test,
}

impl TestData {
    /// The run that it is: one scenario, whose trials are blocks.
    pub fn view(self) -> RunView {
        let load = &self.load.client;
        let done = self.trials.len() as u32;
        let planned = self.planned.unwrap_or(done);
        let status = if done < planned { Status::Interrupted { done, planned } } else { Status::Complete };
        let title = format!("{} to {}", load.name(), self.host);
        let first = self.trials.first();
        let cpus = first.into_iter().flat_map(|trial| &trial.nodes).map(|node| {
            let cpus: Vec<u32> = node.cpus.iter().map(|of| of.cpu).collect();
            CpuSet::new(cpus).to_string()
        });
        RunView {
            id: self.run.unwrap_or_else(|| "without a number".to_owned()),
            suite: suite(load).to_owned(),
            suite_file: String::new(),
            suite_text: String::new(),
            title: title.clone(),
            question: String::new(),
            answer: None,
            about: String::new(),
            started_unix_ms: self.started_unix_ms.or(first.map(|trial| trial.started_unix_ms)).unwrap_or_default(),
            status,
            options: words(load),
            cpus: cpus.collect(),
            phases: self.phases,
            repetition: counted(planned, "trial", "trials"),
            level: Level::default(),
            goal: None,
            environment: self.client,
            rig_cost: None,
            scenarios: vec![ScenarioView {
                id: load.name().to_owned(),
                name: title,
                about: String::new(),
                notes: Vec::new(),
                topology: String::new(),
                load: words(load),
                plan: requested(load),
                checks: None,
                certainty: if done < planned { Certainty::Unfinished } else { Certainty::Fixed },
                trials: self.trials,
            }],
            left_out: Vec::new(),
            tables: Vec::new(),
            baseline: None,
            claims: Vec::new(),
            judged: Vec::new(),
            aa: None,
            set_apart: None,
            turns: self.turns,
            peer: Some(Peer {
                host: self.host,
                address: self.address,
                source: self.source,
                machine: self.server.unwrap_or_default(),
            }),
            tool: None,
        }
    }
}

/// The load as it was asked for: between two machines there are no loads of packets.
pub fn requested(load: &Load) -> RequestedLoad {
    load.try_map(|_| Err(())).unwrap_or(RequestedLoad::Idle)
}
