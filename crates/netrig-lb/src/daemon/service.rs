//! The control plane inside another program, on a thread of its own: tables, rules, devices and all that is done again and
//! again are those of `netrig lb run`. What a service of a machine has besides is left out: lock, socket, files, metrics.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Result;
use rig_cli::exit::Failure;
use rig_datapath::balancer::Handle;
use rig_service::Counters;
pub use rig_service::embedded::Body;
use rig_service::embedded::Embedded;

use super::engine::{Engine, Voice, counters};
use super::{Run, build};
use crate::message::{Reply, Request};
use crate::settings::Settings;

/// A balancer at work, until it is dropped.
#[derive(Debug)]
pub struct Service {
    engine: Embedded<Engine>,
    handle: Handle,
    said: Arc<Mutex<Vec<String>>>,
}

impl Service {
    /// Starts it with all that `settings` say but for where metrics are served. `spawn` starts the thread, in the network
    /// namespace whose devices are meant and on the CPUs on which the control plane may work; the watch of routes and
    /// neighbours is a thread of this thread.
    ///
    /// # Errors
    /// As `netrig lb run`.
    pub fn start(
        settings: Settings,
        spawn: impl FnOnce(Body) -> Result<JoinHandle<()>>,
    ) -> std::result::Result<Self, Failure> {
        let said = Arc::<Mutex<Vec<String>>>::default();
        let voice = Voice::Kept(Arc::clone(&said));
        let (engine, handle) = Embedded::start(spawn, move || {
            let engine = Engine { voice, ..engine(settings)? };
            let handle = engine.balancer.handle();
            Ok((engine, handle))
        })?;
        Ok(Self { engine, handle, said })
    }

    /// Its tables: what they count, and connections.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What it has counted, read without waiting for the control plane.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub fn counters(&self) -> Result<Counters> {
        Ok(counters(&self.handle)?)
    }

    /// Asks what `netrig lb` asks a balancer that runs. Not for listings of connections, which are many replies.
    ///
    /// # Errors
    /// What was refused, with the next step, and when the balancer has ended.
    pub fn ask(&self, request: Request) -> Result<Reply> {
        self.engine.ask(request)
    }

    /// What it has said of devices that went and came, and of what stands in the way of its work.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn engine(settings: Settings) -> std::result::Result<Engine, Failure> {
    build(&Run::default(), None, settings)
}
