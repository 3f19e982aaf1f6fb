//! Asking a service that runs: a line of JSON each way over a Unix socket, and answers that are several lines.
//!
//! ```text
//! Conversation ── request ──> Server ── Ask ──> the service, one after the other
//!              <── answers, the last of which says so ──
//! ```

mod crowd;
mod server;

use std::io::{self, BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crowd::Crowd;
pub use server::{Ask, Server};

/// What a service says to who asks.
pub trait Answer: Serialize + DeserializeOwned + Send + 'static {
    /// Whether nothing more comes for this request.
    fn is_last(&self) -> bool;

    /// Nothing was done.
    fn refused(what: String, hint: Option<String>) -> Self;
}

/// How long an answer may take: of a service that is alive it takes a fraction of a second, but a machine may be too busy to
/// run it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("an answer that this version does not understand")]
    Foreign,
}

/// A request of a service, and its answers.
#[derive(Debug)]
pub struct Conversation<A> {
    stream: BufReader<UnixStream>,
    answers: PhantomData<A>,
}

impl<A: Answer> Conversation<A> {
    /// # Errors
    /// [`io::ErrorKind::NotFound`] and [`io::ErrorKind::ConnectionRefused`] where no service listens.
    pub fn begin(socket: &Path, request: &impl Serialize) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        Ok(Self { stream: BufReader::new(stream), answers: PhantomData })
    }

    /// # Errors
    /// When none comes.
    pub fn answer(&mut self) -> Result<A, NoAnswer> {
        let mut line = Vec::new();
        let read = self.stream.read_until(b'\n', &mut line)?;
        if read == 0 || line.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it had answered").into());
        }
        serde_json::from_slice(&line).map_err(|_| NoAnswer::Foreign)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Says {
        Number { number: u32, last: bool },
        Refused(String),
    }

    impl Answer for Says {
        fn is_last(&self) -> bool {
            !matches!(self, Self::Number { last: false, .. })
        }

        fn refused(what: String, hint: Option<String>) -> Self {
            Self::Refused(what + &hint.unwrap_or_default())
        }
    }

    #[test]
    fn each_request_has_its_answers_and_what_is_no_request_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("sock");
        let begin = |request: &str| Conversation::<Says>::begin(&socket, &request);
        assert_eq!(begin("3").unwrap_err().kind(), io::ErrorKind::NotFound);
        let count = |Ask { request, reply }: Ask<String, Says>| {
            let most: u32 = request.parse().unwrap();
            // Whoever asks takes them one by one.
            std::thread::spawn(move || {
                (1..=most).all(|number| reply.send(Says::Number { number, last: number == most }).is_ok())
            });
            true
        };
        let server = Server::start(&socket, count).unwrap();
        let mut conversation = begin("20").unwrap();
        for number in 1..=20 {
            assert_eq!(conversation.answer().unwrap(), Says::Number { number, last: number == 20 });
        }
        let mut other = Conversation::<Says>::begin(&socket, &7).unwrap();
        let Says::Refused(why) = other.answer().unwrap() else { panic!("taken") };
        assert!(why.contains("does not understand the request"), "{why}");
        drop((conversation, other));
        server.stop();
        assert_eq!(begin("3").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
