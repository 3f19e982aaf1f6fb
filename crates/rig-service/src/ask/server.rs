//! The socket by which requests come: a thread for each that asks, one after the other to the service.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::Mode;
use serde::de::DeserializeOwned;

use super::{Answer, Crowd};

/// A request, and where its answers go; whoever asked may be gone.
#[derive(Debug)]
pub struct Ask<Q, A> {
    pub request: Q,
    pub reply: SyncSender<A>,
}

impl<Q, A> Ask<Q, A> {
    /// Asks the service from inside its process and waits for the one answer. `give` is as [`Server::start`]'s.
    pub fn within(request: Q, patience: Duration, give: impl FnOnce(Self) -> bool) -> Option<A> {
        let (reply, answers) = mpsc::sync_channel(1);
        if give(Self { request, reply }) { answers.recv_timeout(patience).ok() } else { None }
    }
}

/// Who asks and is silent for this long is left.
const IDLE: Duration = Duration::from_secs(60);
/// Who does not take the answer for this long is left. Listings are paged through by people.
const STUCK: Duration = Duration::from_secs(600);
/// Bytes of a request: a restore of thousands of rules is some hundred bytes each.
const LONGEST: u64 = 64 << 20;
const MOST_AT_ONCE: usize = 64;
/// Batches of a listing that wait for being written.
const BATCHES: usize = 2;

/// Listens as long as it lives.
#[derive(Debug)]
pub struct Server {
    socket: PathBuf,
    askers: Arc<Crowd>,
}

impl Server {
    /// Whoever calls it has seen to it that no other process listens there: a socket that is there is a dead one's. `give`
    /// gets each request, and says no where the service has ended.
    ///
    /// # Errors
    /// When nobody can listen there.
    pub fn start<Q, A>(socket: &Path, give: impl Fn(Ask<Q, A>) -> bool + Clone + Send + 'static) -> anyhow::Result<Self>
    where
        Q: DeserializeOwned + Send + 'static,
        A: Answer,
    {
        let how = || format!("listen at {}", socket.display());
        if let Err(error) = fs::remove_file(socket)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error).with_context(how);
        }
        // For nobody else, from its first moment on.
        let listener = {
            let before = rustix::process::umask(Mode::from_raw_mode(0o177));
            let listener = UnixListener::bind(socket);
            rustix::process::umask(before);
            listener.with_context(how)?
        };
        let askers = Arc::new(Crowd::new("answer", MOST_AT_ONCE));
        let crowd = Arc::clone(&askers);
        let accept = move || {
            crowd.welcome(listener.incoming(), move |stream| {
                // Whoever asked has gone: there is nobody to tell.
                let _gone = converse(stream, &give);
            });
        };
        thread::Builder::new().name("socket".into()).spawn(accept).with_context(how)?;
        Ok(Self { socket: socket.to_owned(), askers })
    }

    /// Nobody finds the socket any more; those who are being answered get a moment for it.
    pub fn stop(self) {
        let _gone = fs::remove_file(self.socket);
        let deadline = Instant::now() + Duration::from_millis(300);
        while self.askers.count() > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn converse<Q: DeserializeOwned, A: Answer>(stream: UnixStream, give: &impl Fn(Ask<Q, A>) -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(STUCK))?;
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        (&mut lines).take(LONGEST).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        let request: Q = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => {
                let what = format!("this control plane does not understand the request: {error}");
                let hint = format!("it is netrig {}: ask with the same version", env!("CARGO_PKG_VERSION"));
                write_line(&mut out, &A::refused(what, Some(hint)))?;
                continue;
            }
        };
        let (reply, replies) = mpsc::sync_channel(BATCHES);
        if !give(Ask { request, reply }) {
            return Err(ended());
        }
        loop {
            let reply = replies.recv().map_err(|_| ended())?;
            write_line(&mut out, &reply)?;
            if reply.is_last() {
                break;
            }
        }
    }
}

fn write_line(out: &mut UnixStream, reply: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    out.write_all(&line)
}
