//! The answering side: conversations over a Unix socket, a thread each, and over standard streams.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rig_lines::{Error, Protocol, Reader, Refusal, Reply, Request, Writer, decode, unknown_field};
use rustix::fs::Mode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::debug;

use crate::connections::Connections;
use crate::protocol::{BUILD, Outcome, Question};
use crate::service::Replies;

/// A client that is silent for this long is left.
const IDLE: Duration = Duration::from_secs(60);
/// A client that does not take the answer for this long is left. Listings are paged through by people.
const STUCK: Duration = Duration::from_secs(600);
const MOST_AT_ONCE: usize = 64;
/// Parts of an answer that wait for being written.
const BATCHES: usize = 2;
/// What is being answered gets this long at the end.
const LAST_ANSWERS: Duration = Duration::from_millis(300);

/// Conversations with one service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conversation {
    /// Requests that have come and are not answered yet.
    unanswered: Arc<AtomicUsize>,
}

impl Conversation {
    /// Until the other side ends it. `give` gets each request, and says no where the service has ended.
    pub(crate) fn hold<Q: DeserializeOwned + Serialize, A: Serialize>(
        &self,
        from: impl Read,
        to: impl Write,
        protocol: &Protocol,
        give: &impl Fn(Question<Q>, Replies<A>) -> bool,
    ) -> Result<(), Error> {
        let (mut reader, mut writer) = (Reader::new(from, protocol.longest), Writer::new(to, protocol.longest));
        // Before the other one's is read: a client of another version is told by it whom it speaks to.
        writer.message(&protocol.greeting(BUILD))?;
        reader.greeting(protocol)?;
        let read = |line: &[u8]| -> Result<_, Error> {
            let request = decode::<Request<Question<Q>>>(line)?;
            Ok((unknown_field(line, &request), request))
        };
        while let Some(request) = reader.line(read)? {
            let (unknown, Request { number, request }) = match request {
                Ok(request) => request,
                Err(error) => {
                    writer.message(&Reply::<()>::Broken { why: error.to_string() })?;
                    return Err(error);
                }
            };
            if let Some(field) = unknown {
                // Half of what was asked is another request.
                let hint = "nothing was done; restart it with the netrig that asks".to_owned();
                let why = Refusal::new(format!("this control plane does not know '{field}'"), Some(hint));
                writer.message(&Reply::<()>::Refused { number, why })?;
                continue;
            }
            self.unanswered.fetch_add(1, Ordering::SeqCst);
            let answered = answer(&mut writer, number, request, give);
            self.unanswered.fetch_sub(1, Ordering::SeqCst);
            answered?;
        }
        Ok(())
    }

    /// Waits for what is being answered, for a moment.
    pub(crate) fn finish(&self) {
        let deadline = Instant::now() + LAST_ANSWERS;
        while self.unanswered.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn answer<Q, A: Serialize>(
    writer: &mut Writer<impl Write>,
    number: u64,
    question: Question<Q>,
    give: &impl Fn(Question<Q>, Replies<A>) -> bool,
) -> Result<(), Error> {
    let (to, outcomes) = mpsc::sync_channel(BATCHES);
    if !give(question, Replies::new(to)) {
        return Err(Error::Ended);
    }
    loop {
        let reply = match outcomes.recv().map_err(|_| Error::Ended)? {
            Outcome::Part(value) => Reply::Part { number, value },
            Outcome::Answer(value) => Reply::Answer { number, value },
            Outcome::Refused(why) => Reply::Refused { number, why },
        };
        writer.message(&reply)?;
        if !matches!(reply, Reply::Part { .. }) {
            return Ok(());
        }
    }
}

/// Listens there, for no other user from the first moment on. A socket that is there is taken for a dead process's.
pub(crate) fn listen(socket: &Path) -> io::Result<UnixListener> {
    if let Err(error) = fs::remove_file(socket)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(socket);
    rustix::process::umask(before);
    listener
}

/// Listens as long as it lives.
#[derive(Debug)]
pub(crate) struct SocketServer {
    socket: PathBuf,
    conversation: Conversation,
}

impl SocketServer {
    /// The caller has seen to it that no other process listens there: a socket that is there is a dead one's.
    ///
    /// # Errors
    /// When the socket cannot be bound there.
    pub(crate) fn start<Q, A>(
        socket: &Path,
        protocol: Protocol,
        give: impl Fn(Question<Q>, Replies<A>) -> bool + Clone + Send + 'static,
    ) -> anyhow::Result<Self>
    where
        Q: DeserializeOwned + Serialize + 'static,
        A: Serialize + 'static,
    {
        let how = || format!("listen at {}", socket.display());
        let listener = listen(socket).with_context(how)?;
        let conversation = Conversation::default();
        let each = conversation.clone();
        let accept = move || {
            Connections::new("answer", MOST_AT_ONCE).serve(listener.incoming(), move |stream: UnixStream| {
                // The client has gone, or is none: there is no other client to tell.
                if let Err(error) = converse(&each, &stream, &protocol, &give) {
                    debug!("a client is left: {error}");
                }
            });
        };
        thread::Builder::new().name("socket".into()).spawn(accept).with_context(how)?;
        Ok(Self { socket: socket.to_owned(), conversation })
    }

    /// No client finds the socket any more; one that is being answered gets a moment for it.
    pub(crate) fn stop(self) {
        let _gone = fs::remove_file(&self.socket);
        self.conversation.finish();
    }
}

fn converse<Q: DeserializeOwned + Serialize, A: Serialize>(
    conversation: &Conversation,
    stream: &UnixStream,
    protocol: &Protocol,
    give: &impl Fn(Question<Q>, Replies<A>) -> bool,
) -> Result<(), Error> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(STUCK))?;
    conversation.hold(stream, stream, protocol, give)
}
