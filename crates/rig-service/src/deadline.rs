//! Streams of clients that may be slow on purpose.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A stream each of whose calls can have a time limit.
pub(crate) trait LimitedStream: Read + Write {
    fn limit_read(&self, limit: Duration) -> io::Result<()>;
    fn limit_write(&self, limit: Duration) -> io::Result<()>;
}

impl LimitedStream for TcpStream {
    fn limit_read(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }

    fn limit_write(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))
    }
}

impl LimitedStream for UnixStream {
    fn limit_read(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))
    }

    fn limit_write(&self, limit: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(limit))
    }
}

/// A stream that is given up at a moment: one byte at a time would renew a timeout of each call.
pub(crate) struct DeadlineStream<S> {
    stream: S,
    until: Instant,
}

impl<S: LimitedStream> DeadlineStream<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, until: Instant::now() + limit }
    }

    /// From now on.
    pub(crate) fn renew(&mut self, limit: Duration) {
        self.until = Instant::now() + limit;
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl<S: LimitedStream> Read for DeadlineStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.limit_read(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl<S: LimitedStream> Write for DeadlineStream<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.limit_write(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
