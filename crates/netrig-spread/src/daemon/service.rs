//! The spreader inside another program, on a thread of its own: what a suite measures is what users run. Lock, socket, guard,
//! files and metrics are left out: the namespace goes with the program, and its interfaces with that.

use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};

use super::engine::{Engine, Source, lacking};
use super::keep::Kept;
use super::{Ask, Event};
use crate::message::{Reply, Request};
use crate::settings::Settings;

/// A spreader at work, until it is dropped.
pub struct Service {
    events: Sender<Event>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

/// All that the thread does.
pub type Body = Box<dyn FnOnce() + Send>;

impl Service {
    /// `spawn` starts the thread, in the network namespace whose interfaces are meant and on the CPUs on which it may work.
    ///
    /// # Errors
    /// When no interface can be taken.
    pub fn start(settings: Settings, spawn: impl FnOnce(Body) -> Result<JoinHandle<()>>) -> Result<Self> {
        let (events, received) = mpsc::channel();
        let (tell, told) = mpsc::sync_channel(1);
        let body = move || {
            let begun = Engine::start(settings, Source::Said, Kept::new(None), None, false).and_then(|engine| {
                if engine.interfaces().next().is_none() {
                    lacking(engine.waiting())?;
                }
                Ok(engine)
            });
            match begun {
                Err(error) => drop(tell.send(Err(error))),
                Ok(mut engine) => {
                    if tell.send(Ok(())).is_ok() {
                        let _ended = engine.work(&received);
                    }
                    engine.end();
                }
            }
        };
        let thread = spawn(Box::new(body))?;
        match told.recv().map_err(|_| anyhow!("the spreader's thread has ended")).flatten() {
            Ok(()) => Ok(Self { events, thread: Some(thread) }),
            Err(error) => {
                let _ended = thread.join();
                Err(error)
            }
        }
    }

    /// Asks what `netrig spread` asks one that runs.
    ///
    /// # Errors
    /// What was refused, with the next step, and when it has ended.
    pub fn ask(&self, request: Request) -> Result<Reply> {
        let ended = || "the spreader has ended";
        let (reply, replies) = mpsc::sync_channel(1);
        self.events.send(Event::Ask(Ask { request, reply })).ok().with_context(ended)?;
        match replies.recv().ok().with_context(ended)? {
            Reply::Refused { what, hint: Some(hint) } => bail!("{what}: {hint}"),
            Reply::Refused { what, hint: None } => bail!("{what}"),
            reply => Ok(reply),
        }
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
