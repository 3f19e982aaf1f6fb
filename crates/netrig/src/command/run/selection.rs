//! What the command line asks for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cni::Conflist;
use rig_facts::layers::Map;
use rig_facts::record::PreTrialCommand;
use rig_suite::suite::{CniNetwork, EngineNetwork, Repeat, Suite, Timing, folder_of_more_plugins, more_plugins};

use super::super::compare::ReferenceRun;
use super::super::output::Output;
use super::super::report;
use super::RunArgs;

/// What a run is to be made of, and what is to come of it.
pub struct Selection {
    pub suite: Suite,
    /// As asked for; the schedule may have another one.
    pub timing: Timing,
    /// The map from functions to layers, where costs by layer are asked for.
    pub layers: Option<Map>,
    /// Whether a claim that does not hold is an error.
    pub gate: bool,
    pub store: PathBuf,
    pub output: Output,
    pub against: Option<ReferenceRun>,
}

impl Selection {
    pub fn of(args: &RunArgs) -> Result<Self, Failure> {
        let mut suite = Suite::load(&args.suite)?;
        if let Some(path) = &args.path {
            suite = suite.over(path)?;
        }
        if let Some(file) = &args.conflist {
            suite = suite.of_network(&network(file, &args.bin)?)?;
        }
        if args.network.is_some() || args.engine.is_some() {
            suite = suite.of_engine(&engine_network(args)?)?;
        }
        suite.check_datapaths(rig_datapaths::ALL)?;
        if !args.only.is_empty() {
            suite = suite.only(&args.only)?;
        }
        let suite = suite.with_before(&before(&args.inside))?.again(&args.again)?;
        let length = Length { quick: args.quick, window: args.window.map(|window| window.0), trials: args.trials };
        let (suite, timing) = length.of(suite)?;
        let layers = layers(args)?;
        let store = report::path_of(&args.store)?;
        let output = Output::choose(args.output.output.as_deref())?;
        let scenarios: Vec<&str> = suite.scenarios.iter().map(|scenario| scenario.id.as_str()).collect();
        let against = ReferenceRun::choose(args.against.as_deref(), &args.judge, &args.store, &suite.name, &scenarios)?;
        let gate = args.gate || suite.gate;
        Ok(Self { suite, timing, layers, gate, store, output, against })
    }
}

/// How long trials are and how many, as the command line has it.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    pub quick: bool,
    pub window: Option<Duration>,
    pub trials: Option<u32>,
}

impl Length {
    /// The suite, with the timing that is asked for.
    pub fn of(self, mut suite: Suite) -> Result<(Suite, Timing), Failure> {
        let mut timing = if self.quick {
            let hint = || anyhow!("suite '{}' has no [quick] timing: run it without --quick", suite.name);
            suite.quick.ok_or_else(hint).or_exit(Exit::BadInput)?
        } else {
            suite.timing
        };
        if self.quick {
            suite.hasten();
        }
        if let Some(window) = self.window {
            timing =
                timing.with_window(window).map_err(|error| anyhow!("--window: {error}")).or_exit(Exit::BadInput)?;
            suite.check_window(window).map_err(|error| anyhow!("--window: {error}")).or_exit(Exit::BadInput)?;
        }
        if let Some(trials) = self.trials {
            suite.scenarios.iter_mut().for_each(|scenario| scenario.trials_max = None);
            timing.repeat = Repeat::Times(trials);
        }
        Ok((suite, timing))
    }
}

/// Commands in nodes, as the command line has them: node and command in turn.
pub fn before(words: &[String]) -> Vec<PreTrialCommand> {
    let one = |[node, command]: &[String; 2]| PreTrialCommand { node: node.clone(), command: command.clone() };
    words.as_chunks().0.iter().map(one).collect()
}

/// A network of an engine of the machine's.
fn engine_network(args: &RunArgs) -> Result<EngineNetwork, Failure> {
    let name = args.network.clone().unwrap_or_else(|| "bridge".to_owned());
    let socket = match &args.engine {
        Some(socket) => std::path::absolute(socket).context("find the socket of --engine").or_exit(Exit::BadInput)?,
        None => match std::env::var("DOCKER_HOST") {
            Err(_) => PathBuf::from("/var/run/docker.sock"),
            Ok(host) => host.strip_prefix("unix://").map(PathBuf::from).ok_or_else(|| {
                let what =
                    anyhow!("DOCKER_HOST is '{host}': containers are measured on the machine that netrig runs on");
                Failure::new(Exit::BadInput, what)
                    .with_next("name a socket of this machine: --engine /var/run/docker.sock")
            })?,
        },
    };
    Ok(EngineNetwork { name, socket })
}

/// The network of a file, with plug-ins in these folders.
fn network(file: &Path, folders: &[PathBuf]) -> Result<CniNetwork, Failure> {
    let of_file = |error: anyhow::Error| error.context(file.display().to_string());
    let text = rig_cli::mistakes::read_text(file);
    let conflist = text.with_context(|| format!("read {}", file.display())).or_exit(Exit::BadInput)?;
    let read = Conflist::parse(&conflist).map_err(|error| of_file(error.into())).or_exit(Exit::BadInput)?;
    let more = serde_json::from_str(&conflist).ok().and_then(|network| folder_of_more_plugins(file, &network));
    if let Some(folder) = more {
        let (what, next) = more_plugins(&folder);
        return Err(Failure::new(Exit::BadInput, of_file(anyhow!(what))).with_next(next));
    }
    let folders = folders.iter().map(std::path::absolute).collect::<Result<_, _>>();
    let folders = folders.context("find the folder of --bin").or_exit(Exit::BadInput)?;
    Ok(CniNetwork { conflist, plugins: read.plugins.into_iter().map(|plugin| plugin.name).collect(), folders })
}

/// The map from functions to layers, where costs by layer are asked for.
fn layers(args: &RunArgs) -> Result<Option<Map>, Failure> {
    Ok(match &args.layers {
        None => None,
        Some(None) => Some(Map::built_in()),
        Some(Some(path)) => {
            let text = rig_cli::mistakes::read_text(path);
            let text = text.with_context(|| format!("read {}", path.display())).or_exit(Exit::BadInput)?;
            Some(Map::extended(&path.display().to_string(), &text).or_exit(Exit::BadInput)?)
        }
    })
}
