//! Calls over HTTP/1.1 on a Unix socket: `POST /METHOD` with a body, and an answer with one. A connection has one call.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use std::{fs, str};

use anyhow::{Context, bail};
use tracing::debug;

use crate::connections::Connections;
use crate::deadline::{DeadlineStream, LimitedStream};
use crate::server::listen;

/// Who has not asked by then, or has not taken the answer, is left, however steadily it goes on.
const TIMEOUT: Duration = Duration::from_secs(5);
const MOST_AT_ONCE: usize = 64;
/// Of a request's head and of its body, bytes.
const LONGEST_HEAD: usize = 16 << 10;
const LONGEST_BODY: usize = 1 << 20;
const MOST_HEADERS: usize = 64;

/// A call, as it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `/METHOD`
    pub path: String,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    Ok,
    BadRequest,
    NotFound,
}

impl CallStatus {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    pub status: CallStatus,
    /// The type of the body (RFC 9110, 8.3).
    pub content: &'static str,
    pub body: String,
}

/// Listens as long as the process lives, or until it is stopped.
#[derive(Debug)]
pub struct CallServer {
    socket: PathBuf,
}

impl CallServer {
    /// Has each call answered by a thread of its own.
    ///
    /// # Errors
    /// When another process listens there, or the socket cannot be bound.
    pub fn start(socket: &Path, answer: impl Fn(&Call) -> CallAnswer + Clone + Send + 'static) -> anyhow::Result<Self> {
        let how = || format!("listen at {}", socket.display());
        if UnixStream::connect(socket).is_ok() {
            bail!("another process listens at {}", socket.display());
        }
        let listener = listen(socket).with_context(how)?;
        let accept = move || {
            Connections::new("call", MOST_AT_ONCE).serve(listener.incoming(), move |stream: UnixStream| {
                // The client has gone, or is none: there is no other client to tell.
                if let Err(error) = converse(&mut DeadlineStream::new(stream, TIMEOUT), &answer) {
                    debug!("a client is left: {error}");
                }
            });
        };
        thread::Builder::new().name("calls".into()).spawn(accept).with_context(how)?;
        Ok(Self { socket: socket.to_owned() })
    }

    /// No client finds the socket any more.
    pub fn stop(self) {
        let _gone = fs::remove_file(&self.socket);
    }
}

/// What is no call, as it is answered.
type Malformed = (&'static str, &'static str);

fn converse<S: LimitedStream>(stream: &mut DeadlineStream<S>, answer: &impl Fn(&Call) -> CallAnswer) -> io::Result<()> {
    let response = match read(stream)? {
        None => return Ok(()),
        Some(Ok(call)) => {
            let CallAnswer { status, content, body } = answer(&call);
            response(status.line(), content, &body)
        }
        Some(Err((status, why))) => response(status, "text/plain; charset=utf-8", why),
    };
    stream.renew(TIMEOUT);
    stream.write_all(response.as_bytes())
}

fn response(status: &str, content: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// The call of a connection; `None` where it has ended before.
fn read(stream: &mut impl Read) -> io::Result<Option<Result<Call, Malformed>>> {
    let mut bytes = Vec::new();
    let (path, length, mut body) = loop {
        let mut more = [0; 4096];
        let count = stream.read(&mut more)?;
        if count == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&more[..count]);
        match head(&bytes) {
            Some(Ok((path, length, end))) => break (path, length, bytes.split_off(end)),
            Some(Err(malformed)) => return Ok(Some(Err(malformed))),
            None => {}
        }
    };
    body.truncate(length);
    let missing = length - body.len();
    stream.take(missing as u64).read_to_end(&mut body)?;
    Ok((body.len() == length).then_some(Ok(Call { path, body })))
}

/// The path, the length of the body and where it begins (RFC 9112); `None` while the head is not all there.
fn head(bytes: &[u8]) -> Option<Result<(String, usize, usize), Malformed>> {
    const BAD: &str = "400 Bad Request";
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let end = match request.parse(bytes) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return None,
        Ok(httparse::Status::Partial) => return Some(Err(("431 Request Header Fields Too Large", "too long\n"))),
        Err(_) => return Some(Err((BAD, "no request of HTTP\n"))),
    };
    if request.method != Some("POST") {
        return Some(Err(("405 Method Not Allowed", "only POST\n")));
    }
    let mut length = 0;
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Some(Err(("411 Length Required", "say how long the body is\n")));
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            match str::from_utf8(header.value).ok().and_then(|text| text.trim().parse().ok()) {
                Some(said) => length = said,
                None => return Some(Err((BAD, "a length that is no number\n"))),
            }
        }
    }
    if length > LONGEST_BODY {
        return Some(Err(("413 Content Too Large", "at most 1 MiB\n")));
    }
    Some(Ok((request.path.unwrap_or_default().to_owned(), length, end)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn answer(call: &Call) -> CallAnswer {
        let status = if call.path == "/Echo" { CallStatus::Ok } else { CallStatus::NotFound };
        CallAnswer { status, content: "text/plain", body: String::from_utf8(call.body.clone()).unwrap() }
    }

    fn says(socket: &Path, pieces: &[&[u8]]) -> String {
        let mut stream = UnixStream::connect(socket).unwrap();
        for piece in pieces {
            stream.write_all(piece).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        // What is answered before all is read may end with a reset.
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn calls_are_answered_however_they_come() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s.sock");
        let server = CallServer::start(&socket, answer).unwrap();
        let twice = CallServer::start(&socket, answer).unwrap_err();
        assert!(twice.to_string().contains("another process listens"), "{twice}");
        let whole = b"POST /Echo HTTP/1.1\r\nHost: \r\nContent-Length: 5\r\n\r\nhello";
        for pieces in [vec![&whole[..]], whole.chunks(7).collect()] {
            let said = says(&socket, &pieces);
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\nhello"), "{said}");
        }
        let said = says(&socket, &[b"POST /Absent HTTP/1.1\r\n\r\n"]);
        assert!(said.starts_with("HTTP/1.1 404 Not Found\r\n"), "{said}");
        // One that ends early is not answered.
        assert_eq!(says(&socket, &[b"POST /Echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nhello"]), "");
        server.stop();
        assert!(UnixStream::connect(&socket).is_err());
        // What a killed one has left is taken over.
        fs::write(&socket, "").unwrap();
        CallServer::start(&socket, answer).unwrap();
    }

    #[test]
    fn nothing_else_is_a_call() {
        let status = |text: &str| head(text.as_bytes()).map(|head| head.unwrap_err().0);
        assert_eq!(status("GET /Echo HTTP/1.1\r\n\r\n"), Some("405 Method Not Allowed"));
        assert_eq!(status("\0\r\n\r\n"), Some("400 Bad Request"));
        assert_eq!(status("POST /Echo HTTP/1.1\r\nContent-Length: x\r\n\r\n"), Some("400 Bad Request"));
        assert_eq!(status("POST /Echo HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n"), Some("413 Content Too Large"));
        assert_eq!(status("POST /Echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), Some("411 Length Required"));
        assert_eq!(
            status(&format!("POST /Echo HTTP/1.1\r\nA: {}", "b".repeat(LONGEST_HEAD))),
            Some("431 Request Header Fields Too Large")
        );
        assert_eq!(head(b"POST /Echo HTTP/1.1\r\nHost:"), None);
        assert_eq!(head(b"POST /Echo HTTP/1.1\r\n\r\nrest"), Some(Ok(("/Echo".to_owned(), 0, 23))));
    }
}
