//! The socket by which requests come: a thread for each that asks, one after the other to the control plane.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::Mode;

use super::crowd::Crowd;
use crate::message::{Reply, Request};
use crate::place::Place;

/// What comes to the control plane.
pub(super) enum Event {
    Ask(Ask),
    /// The configuration file shall be read again.
    Reload,
    Stop,
}

pub(super) struct Ask {
    pub(super) request: Request,
    /// Replies to it; whoever asked may be gone.
    pub(super) reply: SyncSender<Reply>,
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
pub(super) struct Server {
    place: Place,
    askers: Arc<Crowd>,
}

impl Server {
    /// The lock must be held: a socket that is there is a dead one's.
    pub(super) fn start(place: &Place, events: Sender<Event>) -> anyhow::Result<Self> {
        let path = place.socket();
        let how = || format!("listen at {}", path.display());
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error).with_context(how);
        }
        // For nobody else, from its first moment on.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(&path);
        rustix::process::umask(before);
        let listener = listener.with_context(how)?;
        let askers = Arc::new(Crowd::new("answer", MOST_AT_ONCE));
        let crowd = Arc::clone(&askers);
        let accept = move || {
            crowd.welcome(listener.incoming(), move |stream| {
                // Whoever asked has gone: there is nobody to tell.
                let _gone = converse(stream, &events);
            });
        };
        thread::Builder::new().name("socket".into()).spawn(accept).with_context(how)?;
        Ok(Self { place: place.clone(), askers })
    }

    /// Nobody finds the socket any more; those who are being answered get a moment for it.
    pub(super) fn stop(self) {
        let _gone = fs::remove_file(self.place.socket());
        let deadline = Instant::now() + Duration::from_millis(300);
        while self.askers.count() > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn converse(stream: UnixStream, events: &Sender<Event>) -> io::Result<()> {
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
        let request: Request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => {
                let what = format!("this control plane does not understand the request: {error}");
                let hint = format!("it is netrig {}: ask with the same version", env!("CARGO_PKG_VERSION"));
                write_line(&mut out, &Reply::Refused { what, hint: Some(hint) })?;
                continue;
            }
        };
        let (reply, replies) = mpsc::sync_channel(BATCHES);
        events.send(Event::Ask(Ask { request, reply })).map_err(|_| ended())?;
        loop {
            let reply = replies.recv().map_err(|_| ended())?;
            let more = matches!(reply, Reply::Connections { last: false, .. });
            write_line(&mut out, &reply)?;
            if !more {
                break;
            }
        }
    }
}

fn write_line(out: &mut UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    out.write_all(&line)
}
