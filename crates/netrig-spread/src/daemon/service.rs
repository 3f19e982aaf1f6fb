//! The spreader inside another program, on a thread of its own: what a suite measures is what users run. Lock, socket, guard,
//! files and metrics are left out: the namespace goes with the program, and its interfaces with that.

use std::thread::JoinHandle;

use anyhow::Result;
use rig_cli::exit::{Exit, OrExit};
use rig_service::Counters;
pub use rig_service::embedded::Body;
use rig_service::embedded::Embedded;

use super::engine::{Engine, Source, counters, lacking};
use super::keep::Kept;
use crate::message::{Reply, Request, Status};
use crate::settings::Settings;

/// A spreader at work, until it is dropped.
#[derive(Debug)]
pub struct Service(Embedded<Engine>);

impl Service {
    /// `spawn` starts the thread, in the network namespace whose interfaces are meant and on the CPUs on which it may work.
    ///
    /// # Errors
    /// When no interface can be taken.
    pub fn start(settings: Settings, spawn: impl FnOnce(Body) -> Result<JoinHandle<()>>) -> Result<Self> {
        let start = move || {
            let engine = Engine::start(settings, Source::CommandLine, Kept::new(None), None, false);
            let engine = engine.or_exit(Exit::Lacking)?;
            if engine.interfaces().next().is_none() {
                lacking(engine.waiting()).or_exit(Exit::Lacking)?;
            }
            Ok((engine, ()))
        };
        let (engine, ()) = Embedded::start(spawn, start).map_err(|failure| failure.error)?;
        Ok(Self(engine))
    }

    /// What a running spreader tells a measurement, of a status that it gave.
    pub fn counters(status: &Status) -> Counters {
        counters(status)
    }

    /// Asks what `netrig spread` asks one that runs.
    ///
    /// # Errors
    /// What was refused, with the next step, and when it has ended.
    pub fn ask(&self, request: Request) -> Result<Reply> {
        self.0.ask(request)
    }
}
