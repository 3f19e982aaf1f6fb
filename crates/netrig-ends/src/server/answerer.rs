//! Exchanges of times with a client, by a thread: how far its clock is from this machine's.

use std::io::{self, PipeWriter, pipe};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread::{self, JoinHandle};

use rig_load::exchange::{PathMarks, answer_over};

/// It answers until it is dropped.
#[derive(Debug)]
pub(super) struct Answerer {
    /// `None` once it is to end.
    input: Option<PipeWriter>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Answerer {
    /// With the port that it has.
    pub(super) fn start(address: SocketAddr, client: IpAddr, marks: PathMarks) -> io::Result<(Self, u16)> {
        let socket = UdpSocket::bind(address)?;
        marks.apply(&socket)?;
        let port = socket.local_addr()?.port();
        let (input, end) = pipe()?;
        let answer = move || answer_over(socket, Some(client.to_canonical()), input);
        let thread = thread::Builder::new().name("clock".into()).spawn(answer)?;
        Ok((Self { input: Some(end), thread: Some(thread) }, port))
    }
}

impl Drop for Answerer {
    /// Its port is free then.
    fn drop(&mut self) {
        self.input = None;
        if let Some(thread) = self.thread.take() {
            // Where it could not go on, the client was not answered, and says so.
            let _ = thread.join();
        }
    }
}
