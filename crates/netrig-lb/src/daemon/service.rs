//! The control plane inside another program, on a thread of its own: tables, rules, devices and all that is done again and
//! again are those of `netrig lb run`. What a service of a machine has besides is left out: lock, socket, files, metrics.

use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_datapath::balancer::Handle;

use super::engine::{Engine, Voice};
use super::keep::Pins;
use super::socket::{Ask, Event};
use super::{Overlay, Run, build};
use crate::instance::{Name, files};
use crate::message::{Reply, Request};
use crate::settings::Settings;

/// A balancer at work, until it is dropped.
pub struct Service {
    events: Sender<Event>,
    thread: Option<JoinHandle<()>>,
    handle: Handle,
    said: Arc<Mutex<Vec<String>>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("said", &self.said).finish_non_exhaustive()
    }
}

/// All that the thread does.
pub type Body = Box<dyn FnOnce() + Send>;

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
        let (events, received) = mpsc::channel();
        let (tell, told) = mpsc::sync_channel(1);
        let voice = Voice::Kept(Arc::clone(&said));
        let body = move || match engine(settings) {
            Err(failure) => drop(tell.send(Err(failure))),
            Ok(mut engine) => {
                engine.voice = voice;
                if tell.send(Ok(engine.balancer.handle())).is_ok() {
                    let _ended = engine.work(&received);
                }
                engine.devices.unplace();
            }
        };
        let thread = spawn(Box::new(body))?;
        let unheard = || Failure::new(Exit::Failed, anyhow!("the balancer's thread has ended"));
        match told.recv().map_err(|_| unheard()).flatten() {
            Ok(handle) => Ok(Self { events, thread: Some(thread), handle, said }),
            Err(failure) => {
                let _ended = thread.join();
                Err(failure)
            }
        }
    }

    /// Its tables: what they count, and connections.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Asks what `netrig lb` asks a balancer that runs. Not for listings of connections, which are many replies.
    ///
    /// # Errors
    /// What was refused, with the next step, and when the balancer has ended.
    pub fn ask(&self, request: Request) -> Result<Reply> {
        let ended = || "the balancer has ended";
        let (reply, replies) = mpsc::sync_channel(1);
        self.events.send(Event::Ask(Ask { request, reply })).ok().with_context(ended)?;
        match replies.recv().ok().with_context(ended)? {
            Reply::Refused { what, hint: Some(hint), .. } => bail!("{what}: {hint}"),
            Reply::Refused { what, hint: None, .. } => bail!("{what}"),
            reply => Ok(reply),
        }
    }

    /// What it has said of devices that went and came, and of what stands in the way of its work.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = self.events.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn engine(settings: Settings) -> std::result::Result<Engine, Failure> {
    // Nothing persists, so that of this name's files at most the one is written that tells where queues were.
    let name: Name = format!("in-{}", std::process::id()).parse().or_exit(Exit::Failed)?;
    let files = files(&name);
    let run = Run { file: None, name, persist: false, overlay: Overlay::default() };
    let pins = Pins::of(&files);
    build(&run, files, &pins, settings, false)
}
