//! Asking a service that runs.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rig_cli::exit::{Exit, Failure};
use rig_lines::{Error, LostPeer, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::files::ServiceFiles;
use crate::protocol::{Answer, BUILD, Question, Stamped};

/// How long an answer may take: of a service that is alive it takes a fraction of a second, but a machine may be too busy to
/// run it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A service as its clients know it, and its name in messages.
#[derive(Debug, Clone)]
pub struct Client {
    files: ServiceFiles,
    /// `the balancer named lb`.
    subject: String,
    /// That it does not run, and how it is started.
    absent: String,
    /// Of one that goes on without its process: the file that is there then, and what to do.
    unattended: Option<(PathBuf, String)>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{absent}")]
    NotRunning { absent: String },
    /// It goes on without its process.
    #[error("{what}")]
    Unattended { what: String },
    #[error("not permitted to talk to {subject}: its socket {socket} is for the user that runs it (root)")]
    NotPermitted { subject: String, socket: PathBuf },
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Lost(#[from] LostPeer),
    /// It is not known which one is meant.
    #[error(transparent)]
    Unknown(#[from] anyhow::Error),
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let exit = match error {
            AskError::Refused(_) => Exit::BadInput,
            AskError::NotRunning { .. } | AskError::Unattended { .. } | AskError::NotPermitted { .. } => Exit::Lacking,
            AskError::Lost(_) | AskError::Unknown(_) => Exit::Failed,
        };
        Self::new(exit, error)
    }
}

type Lines<'a> = rig_lines::Client<&'a UnixStream, &'a UnixStream>;

impl Client {
    pub fn new(files: ServiceFiles, subject: impl Into<String>, absent: impl Into<String>) -> Self {
        Self { files, subject: subject.into(), absent: absent.into(), unattended: None }
    }

    /// What holds of one that does not run where this file is.
    #[must_use]
    pub fn or_unattended(self, file: PathBuf, what: impl Into<String>) -> Self {
        Self { unattended: Some((file, what.into())), ..self }
    }

    pub fn files(&self) -> &ServiceFiles {
        &self.files
    }

    /// One request, one answer.
    ///
    /// # Errors
    /// When there is none.
    pub fn ask<A: DeserializeOwned>(&self, request: &impl Serialize) -> Result<A, AskError> {
        match self.question(&Question::Ask(request))? {
            Answer::Answer(answer) => Ok(answer),
            _ => Err(self.foreign("another kind of answer")),
        }
    }

    /// Has the service read its file again; says what has changed.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn reload(&self) -> Result<Vec<String>, AskError> {
        match self.question(&Question::<()>::Reload { settings: None })? {
            Answer::<()>::Done(lines) => Ok(lines),
            _ => Err(self.foreign("another kind of answer")),
        }
    }

    /// # Errors
    /// As [`Self::ask`].
    pub fn counters(&self) -> Result<Stamped, AskError> {
        match self.question(&Question::<()>::Counters)? {
            Answer::<()>::Counters(counters) => Ok(counters),
            _ => Err(self.foreign("another kind of answer")),
        }
    }

    /// Gives `with` each part of the answer, until it breaks.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn stream<A: DeserializeOwned, B>(
        &self,
        request: &impl Serialize,
        mut with: impl FnMut(A) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, AskError> {
        let stream = self.connect()?;
        let mut lines = self.begin(&stream, &Question::Ask(request))?;
        loop {
            let (answer, is_last) = self.part(&mut lines)?;
            let Answer::Answer(answer) = answer else { return Err(self.foreign("another kind of answer")) };
            if let ControlFlow::Break(value) = with(answer) {
                return Ok(ControlFlow::Break(value));
            }
            if is_last {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// An answer that is none of those that there are to the request.
    pub fn foreign(&self, why: &str) -> AskError {
        let subject = &self.subject;
        let what = "gives an answer that this netrig does not understand: restart it with this version";
        LostPeer(format!("{subject} {what} ({why})")).into()
    }

    fn question<A: DeserializeOwned>(&self, question: &Question<impl Serialize>) -> Result<Answer<A>, AskError> {
        let stream = self.connect()?;
        let mut lines = self.begin(&stream, question)?;
        match self.part(&mut lines)? {
            (answer, true) => Ok(answer),
            (_, false) => Err(self.foreign("an answer of several parts")),
        }
    }

    fn connect(&self) -> Result<UnixStream, AskError> {
        let socket = self.files.socket();
        let stream = UnixStream::connect(&socket).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => match &self.unattended {
                Some((file, what)) if file.exists() => AskError::Unattended { what: what.clone() },
                _ => AskError::NotRunning { absent: self.absent.clone() },
            },
            io::ErrorKind::PermissionDenied => AskError::NotPermitted { subject: self.subject.clone(), socket },
            _ => self.silent(&source),
        })?;
        let waits = stream.set_read_timeout(Some(TIMEOUT)).and_then(|()| stream.set_write_timeout(Some(TIMEOUT)));
        waits.map_err(|source| self.silent(&source))?;
        Ok(stream)
    }

    fn begin<'a>(&self, stream: &'a UnixStream, question: &Question<impl Serialize>) -> Result<Lines<'a>, AskError> {
        let protocol = self.files.kind().protocol();
        let mut lines = Lines::greet(stream, stream, &protocol, BUILD).map_err(|error| self.error(error))?;
        lines.begin(question).map_err(|error| self.error(error))?;
        Ok(lines)
    }

    fn part<A: DeserializeOwned>(&self, lines: &mut Lines<'_>) -> Result<(Answer<A>, bool), AskError> {
        lines.part().map_err(|error| self.error(error))
    }

    fn error(&self, error: Error) -> AskError {
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::Io(source) => self.silent(&source),
            error if error.is_end() => self.silent(&"it ended before it had answered"),
            Error::Oversized { .. } => Refusal::new(error.to_string(), None).into(),
            error => self.foreign(&error.to_string()),
        }
    }

    fn silent(&self, why: &dyn fmt::Display) -> AskError {
        LostPeer(format!("{} does not answer at {}: {why}", self.subject, self.files.socket().display())).into()
    }
}
