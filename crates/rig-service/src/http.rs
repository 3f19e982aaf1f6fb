//! `GET /metrics` over HTTP, and nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rig_sys::socket::NamedAddress;

use crate::connections::Connections;
use crate::deadline::DeadlineStream;

/// Who has not asked and taken the answer by then is left, however steadily it goes on.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// Some collectors, and a client that is slow on purpose.
const MOST_AT_ONCE: usize = 16;
/// Of a request's head.
const LONGEST: usize = 16 << 10;
/// <https://prometheus.io/docs/specs/om/open_metrics_spec/>
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Binds at once, so that an address that cannot be had is told before anything else is done.
///
/// # Errors
/// When there is no such address here, or another one listens there.
pub fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let place = || format!("serve metrics at {}: choose another address", NamedAddress::from(address));
    TcpListener::bind(address).with_context(place)
}

/// The metrics as text, each time that a client asks for them; `None` when they cannot be had.
type MetricsSource = dyn Fn() -> Option<String> + Send + Sync;

/// Serves as long as the process lives.
///
/// # Errors
/// When there can be no thread for it.
pub fn serve(listener: TcpListener, rendered: impl Fn() -> Option<String> + Send + Sync + 'static) -> io::Result<()> {
    let rendered: Arc<MetricsSource> = Arc::new(rendered);
    let serve = move || {
        Connections::new("scrape", MOST_AT_ONCE).serve(listener.incoming(), move |stream| {
            // Who has gone away needs no answer.
            let _gone = answer(&mut DeadlineStream::new(stream, TIMEOUT), &*rendered);
        });
    };
    thread::Builder::new().name("metrics".into()).spawn(serve).map(|_| ())
}

fn answer(stream: &mut DeadlineStream<TcpStream>, rendered: &MetricsSource) -> io::Result<()> {
    let mut head = Vec::new();
    let (status, kind, body) = loop {
        let mut more = [0; 2048];
        let read = stream.read(&mut more)?;
        if read == 0 {
            return Ok(());
        }
        head.extend_from_slice(&more[..read]);
        if let Some(response) = respond(&head, rendered) {
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
fn respond(head: &[u8], rendered: &MetricsSource) -> Option<(&'static str, &'static str, String)> {
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
        ("GET" | "HEAD", "/metrics") => match rendered() {
            Some(text) => ("200 OK", CONTENT, text),
            None => ("503 Service Unavailable", TEXT, "the control plane cannot read its counters\n".into()),
        },
        ("GET" | "HEAD", _) => ("404 Not Found", TEXT, "metrics are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", TEXT, "only GET\n".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> Option<&'static str> {
        respond(request.as_bytes(), &|| None).map(|(status, ..)| status)
    }

    #[test]
    fn who_is_slow_keeps_nobody_waiting() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        serve(listener, || None)?;
        let mut slow = TcpStream::connect(address)?;
        slow.write_all(b"GET /metr")?;
        let mut other = TcpStream::connect(address)?;
        other.write_all(b"GET / HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        other.read_to_string(&mut text)?;
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\n"), "{text}");
        // It is still being waited for.
        slow.write_all(b"x HTTP/1.1\r\n\r\n")?;
        Ok(())
    }

    #[test]
    fn a_byte_now_and_then_renews_nothing() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut peer = TcpStream::connect(listener.local_addr()?)?;
        peer.write_all(b"GET /")?;
        let mut late = DeadlineStream::new(listener.accept()?.0, Duration::ZERO);
        assert_eq!(answer(&mut late, &|| None).map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        Ok(())
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
