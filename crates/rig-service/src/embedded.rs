//! A service on a thread of another program.

use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, Failure};

use crate::protocol::{Answer, Outcome, Question};
use crate::serve::{Event, work};
use crate::service::{End, Replies, Service};

/// All that the thread does.
pub type Body = Box<dyn FnOnce() + Send>;

/// A service at work, until it is dropped.
pub struct Embedded<S: Service> {
    events: Sender<Event<S::Request, S::Reply>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Service> fmt::Debug for Embedded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

impl<S: Service + 'static> Embedded<S> {
    /// `spawn` starts the thread, which calls `start`; what that gives beside the service is this program's.
    ///
    /// # Errors
    /// As `spawn` and `start` say.
    pub fn start<T: Send + 'static>(
        spawn: impl FnOnce(Body) -> anyhow::Result<JoinHandle<()>>,
        start: impl FnOnce() -> Result<(S, T), Failure> + Send + 'static,
    ) -> Result<(Self, T), Failure> {
        let (events, received) = mpsc::channel();
        let (started, start_ended) = mpsc::sync_channel(1);
        let body = move || match start() {
            Err(failure) => drop(started.send(Err(failure))),
            Ok((mut service, of_program)) => {
                if started.send(Ok(of_program)).is_ok() {
                    let _end = work(&mut service, &received);
                }
                let _undone = service.stop(End::Signal);
            }
        };
        let thread = spawn(Box::new(body))?;
        let unheard = || Failure::new(Exit::Failed, anyhow!("the thread of the service has ended"));
        match start_ended.recv().map_err(|_| unheard()).flatten() {
            Ok(of_program) => Ok((Self { events, thread: Some(thread) }, of_program)),
            Err(failure) => {
                let _ended = thread.join();
                Err(failure)
            }
        }
    }

    /// Not for requests whose answer has several parts.
    ///
    /// # Errors
    /// What was refused, with the next step, and when the service has ended.
    pub fn ask(&self, request: S::Request) -> anyhow::Result<S::Reply> {
        let ended = || "the service has ended";
        let (to, outcomes) = mpsc::sync_channel(1);
        let question = Event::Question(Question::Ask(request), Replies::new(to));
        self.events.send(question).ok().with_context(ended)?;
        match outcomes.recv().ok().with_context(ended)? {
            Outcome::Answer(Answer::Answer(reply)) => Ok(reply),
            Outcome::Refused(refusal) => Err(refusal.into()),
            Outcome::Part(_) | Outcome::Answer(_) => Err(anyhow!("another kind of answer")),
        }
    }
}

impl<S: Service> Drop for Embedded<S> {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = self.events.send(Event::Stop);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
