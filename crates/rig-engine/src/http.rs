//! As much of HTTP as an engine's socket needs. Requests are HTTP/1.0, whose answers end with the connection, in one piece (RFC 1945, 7.2.2);
//! streams are HTTP/1.1 connections that are upgraded.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::{EngineError, Result};

/// Longest time without a byte of an answer: an engine makes networks and containers in seconds, on a busy machine in tens of them.
const SILENCE: Duration = Duration::from_secs(120);
/// Most bytes of an answer's head, and of its body.
const LONGEST_HEAD: usize = 64 << 10;
const LONGEST_BODY: u64 = 64 << 20;
/// Most headers of an answer.
const MOST_HEADERS: usize = 64;

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
}

pub(crate) fn connect(socket: &Path) -> Result<UnixStream> {
    let stream = uninterrupted(|| UnixStream::connect(socket)).map_err(|why| match why.kind() {
        io::ErrorKind::PermissionDenied => EngineError::Forbidden { socket: socket.to_owned() },
        _ => EngineError::Absent { socket: socket.to_owned(), why },
    })?;
    let lost = |why| EngineError::Lost { what: format!("speak to {}", socket.display()), why };
    stream.set_read_timeout(Some(SILENCE)).map_err(lost)?;
    stream.set_write_timeout(Some(SILENCE)).map_err(lost)?;
    Ok(stream)
}

/// Tries again what a signal has ended early.
fn uninterrupted<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// The begin of a request, with a body of `length` bytes to follow.
pub(crate) fn request_head(method: &str, path: &str, kind: &str, length: u64) -> String {
    format!(
        "{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
}

/// A request after whose answer the connection is a stream.
pub(crate) fn upgrade_request(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: \
         Upgrade\r\nUpgrade: tcp\r\n\r\n{body}"
    )
}

/// Reads the head of an answer, and gives what of the body came with it.
pub(crate) fn read_head(from: &mut impl Read) -> io::Result<(Head, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&bytes).map_err(|error| invalid(&error.to_string()))? {
            httparse::Status::Complete(length) => {
                let status = response.code.ok_or_else(|| invalid("no status"))?;
                return Ok((Head { status }, bytes.split_off(length)));
            }
            httparse::Status::Partial if bytes.len() > LONGEST_HEAD => return Err(invalid("a head without an end")),
            httparse::Status::Partial => {
                let mut chunk = [0; 4096];
                let count = uninterrupted(|| from.read(&mut chunk))?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                bytes.extend_from_slice(&chunk[..count]);
            }
        }
    }
}

/// Sends a request with its body and reads the answer to its end.
pub(crate) fn exchange(
    stream: &mut UnixStream,
    head: &str,
    body: impl FnOnce(&mut UnixStream) -> io::Result<()>,
) -> io::Result<(u16, Vec<u8>)> {
    // An engine that refuses early answers before it has read everything.
    let sent = stream.write_all(head.as_bytes()).and_then(|()| body(stream));
    let answer = read_head(stream).and_then(|(head, mut bytes)| {
        stream.take(LONGEST_BODY).read_to_end(&mut bytes)?;
        Ok((head.status, bytes))
    });
    match (sent, answer) {
        (Err(error), Err(_)) => Err(error),
        (_, answer) => answer,
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// A value within a path or a query (RFC 3986, 2.1).
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whole_however_it_comes() {
        let text = b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\nrest";
        // One byte at a time.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
                (into[0], self.0) = (*first, rest);
                Ok(1)
            }
        }
        assert_eq!(read_head(&mut Slow(text)).unwrap(), (Head { status: 101 }, Vec::new()));
        assert_eq!(read_head(&mut &text[..]).unwrap(), (Head { status: 101 }, b"rest".to_vec()));
        assert_eq!(read_head(&mut &text[..30]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read_head(&mut &b"SSH-2.0-OpenSSH\r\n\r\n"[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'a'; 2 * LONGEST_HEAD]].concat();
        assert_eq!(read_head(&mut &endless[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn values_do_not_leave_their_place() {
        assert_eq!(escaped("a/b?c=d&e f%"), "a%2Fb%3Fc%3Dd%26e%20f%25");
        assert_eq!(escaped("netrig-1.2_x~"), "netrig-1.2_x~");
    }
}
