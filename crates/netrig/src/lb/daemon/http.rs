//! `GET /metrics`, and nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Context;

use super::socket::{Ask, Event};
use crate::lb::message::{Reply, Request};
use crate::lb::metrics;

/// Who says or takes nothing for this long is left.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of a request's head.
const LONGEST: usize = 16 << 10;
/// <https://prometheus.io/docs/specs/om/open_metrics_spec/>
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Binds at once, so that an address that cannot be had is told before anything else is done.
pub(super) fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| format!("serve metrics at {address}: choose another address"))
}

/// Serves as long as the process lives, one scrape at a time.
pub(super) fn serve(listener: TcpListener, events: Sender<Event>) -> io::Result<()> {
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // Who has gone away needs no answer.
            let _gone = answer(stream, &events);
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(serve).map(|_| ())
}

fn answer(mut stream: TcpStream, events: &Sender<Event>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let (status, kind, body) = loop {
        let mut more = [0; 2048];
        let read = stream.read(&mut more)?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(&more[..read]);
        if let Some(response) = respond(&head, events) {
            break response;
        }
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    stream.write_all(response.as_bytes())?;
    if head.starts_with(b"HEAD ") { Ok(()) } else { stream.write_all(body.as_bytes()) }
}

/// Status, type and body for the head of a request (RFC 9112); `None` while it is not all there.
fn respond(head: &[u8], events: &Sender<Event>) -> Option<(&'static str, &'static str, String)> {
    const TEXT: &str = "text/plain; charset=utf-8";
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(parsed) if parsed.is_complete() => {}
        Ok(_) if head.len() < LONGEST => return None,
        Ok(_) => return Some(("431 Request Header Fields Too Large", TEXT, "too long\n".into())),
        Err(error) => return Some(("400 Bad Request", TEXT, format!("{error}\n"))),
    }
    let path = request.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    Some(match (request.method.unwrap_or_default(), path) {
        ("GET" | "HEAD", "/metrics") => match rendered(events) {
            Some(text) => ("200 OK", CONTENT, text),
            None => ("503 Service Unavailable", TEXT, "the control plane cannot read its counters\n".into()),
        },
        ("GET" | "HEAD", _) => ("404 Not Found", TEXT, "metrics are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", TEXT, "only GET\n".into()),
    })
}

fn rendered(events: &Sender<Event>) -> Option<String> {
    let (reply, replies) = mpsc::sync_channel(1);
    events.send(Event::Ask(Ask { request: Request::Status, reply })).ok()?;
    match replies.recv_timeout(PATIENCE).ok()? {
        Reply::Status(status) => Some(metrics::render(&status)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> Option<&'static str> {
        let (sender, _) = mpsc::channel();
        respond(request.as_bytes(), &sender).map(|(status, ..)| status)
    }

    #[test]
    fn nothing_else_is_served() {
        assert_eq!(status("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Some("404 Not Found"));
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), Some("405 Method Not Allowed"));
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost:"), None);
        assert_eq!(status("\0\r\n\r\n"), Some("400 Bad Request"));
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "b".repeat(LONGEST));
        assert_eq!(status(&long), Some("431 Request Header Fields Too Large"));
        // Whose control plane has ended.
        assert_eq!(status("GET /metrics?a=b HTTP/1.0\r\n\r\n"), Some("503 Service Unavailable"));
    }
}
