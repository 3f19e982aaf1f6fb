//! What a service is to the frame that serves it.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use rig_cli::exit::{Exit, Failure};
use rig_lines::Refusal;
use rig_sys::netlink;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol::{Answer, Counters, Outcome};

/// How often it is looked whether there is room for a part of an answer.
const LOOK: Duration = Duration::from_millis(20);

/// Something that runs until it is told to end. All of it is called by one thread, one call after the other.
pub trait Service: Sized {
    type Request: DeserializeOwned + Serialize + Send + 'static;
    type Reply: Serialize + Send + 'static;

    /// Changes in the kernel, of the network namespace that it was started in, of which it is told by [`Self::changed`].
    const WATCHES: Option<KernelEventFilter> = None;

    /// What its user is told when it is ready.
    fn introduction(&self) -> String;

    /// Answers, at once or by a thread that is given `replies`. Who asked to end it is told by [`Self::stop`]: it breaks with
    /// their `replies`.
    fn answer(&mut self, request: Self::Request, replies: Replies<Self::Reply>) -> ControlFlow<Replies<Self::Reply>>;

    /// Puts other settings in force, all of them or nothing: those of this text, or of its file, which is read again. Says what has
    /// changed.
    ///
    /// # Errors
    /// Where nothing was changed.
    fn reload(&mut self, settings: Option<&str>) -> Result<Vec<String>, Refusal>;

    /// When [`Self::tick`] is to be called.
    fn due(&self) -> Instant;

    /// Does what is due.
    fn tick(&mut self);

    /// Something that it watches in the kernel has changed.
    fn changed(&mut self) {}

    /// A thread of its own has called its [`Waker`].
    fn woken(&mut self) {}

    /// All counters as OpenMetrics text.
    ///
    /// # Errors
    /// When they cannot be read.
    fn metrics(&mut self) -> anyhow::Result<String>;

    /// What a measurement reads at both edges of its window: to be had in microseconds, without a listing.
    ///
    /// # Errors
    /// When they cannot be read.
    fn counters(&mut self) -> anyhow::Result<Counters>;

    /// Undoes what has to be undone, and answers who asked for the end.
    ///
    /// # Errors
    /// When something could not be undone.
    fn stop(self, end: End<Self::Reply>) -> Result<Exit, Failure>;
}

/// Which changes of the kernel concern a service.
#[derive(Debug, Clone, Copy)]
pub struct KernelEventFilter {
    /// For a message.
    pub what: &'static str,
    pub concerns: fn(&netlink::Event) -> bool,
}

/// Why a service ends.
#[derive(Debug)]
pub enum End<A> {
    /// A signal, or the end of its input.
    Signal,
    /// A request, to be answered when it has ended.
    Request(Replies<A>),
    /// It has begun, and cannot be served.
    Failure,
}

/// Calls a service's [`Service::woken`] from another thread.
pub struct Waker(Box<dyn Fn() + Send + Sync>);

impl Waker {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Box::new(wake))
    }

    pub fn wake(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

/// Where answers to a request go. The client may have gone, which is no error.
#[derive(Debug)]
pub struct Replies<A> {
    to: SyncSender<Outcome<A>>,
}

/// The client has gone, and takes no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the one who asked has gone")]
pub struct ClientGone;

impl<A> Replies<A> {
    pub(crate) fn new(to: SyncSender<Outcome<A>>) -> Self {
        Self { to }
    }

    /// A part of an answer that has more; waits until there is room for it, so it is for threads of their own.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn part(&self, value: A) -> Result<(), ClientGone> {
        self.to.send(Outcome::Part(Answer::Answer(value))).map_err(|_| ClientGone)
    }

    /// As [`Self::part`], but no longer than `most`: whether there was room for it.
    ///
    /// # Errors
    /// When the client has gone.
    pub fn part_within(&self, value: A, most: Duration) -> Result<bool, ClientGone> {
        let deadline = Instant::now() + most;
        let mut part = Outcome::Part(Answer::Answer(value));
        loop {
            part = match self.to.try_send(part) {
                Ok(()) => return Ok(true),
                Err(TrySendError::Disconnected(_)) => return Err(ClientGone),
                Err(TrySendError::Full(part)) => part,
            };
            if Instant::now() >= deadline {
                return Ok(false);
            }
            thread::sleep(LOOK);
        }
    }

    /// The answer, or the last part of it.
    pub fn answer(self, value: A) {
        self.give(Answer::Answer(value));
    }

    pub fn refuse(self, refusal: Refusal) {
        let _gone = self.to.send(Outcome::Refused(refusal));
    }

    pub fn finish(self, answer: Result<A, Refusal>) {
        match answer {
            Ok(value) => self.answer(value),
            Err(refusal) => self.refuse(refusal),
        }
    }

    pub(crate) fn give(self, answer: Answer<A>) {
        let _gone = self.to.send(Outcome::Answer(answer));
    }
}
