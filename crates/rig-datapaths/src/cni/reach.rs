//! Whether a container is reached, and how soon.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rig_sys::netns::NetNs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// RFC 862; every container is a namespace of its own, so that it is always free.
const PORT: u16 = 7;
/// How long an answer to a datagram is waited for before the next is sent.
const AGAIN: Duration = Duration::from_millis(1);
/// How long one is sent in vain.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Answers what comes to a container, from before it has an interface on.
#[derive(Debug)]
pub(super) struct Echo {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// # Errors
    /// When the port cannot be opened.
    pub(super) fn open(namespace: &NetNs) -> Result<Self> {
        // Where the kernel has IPv6, a socket of it hears both.
        let socket = namespace.run(|| {
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)))
        })?;
        let socket = socket.with_context(|| format!("open port {PORT} in a container"))?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        let ends = Arc::new(AtomicBool::new(false));
        let ended = ends.clone();
        let answer = move || {
            let mut bytes = [0; 16];
            while !ended.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut bytes) {
                    let _ = socket.send_to(&bytes[..length], from);
                }
            }
        };
        let thread = thread::Builder::new().name("echo".into()).spawn(answer).context("start a thread")?;
        Ok(Self { ends, thread: Some(thread) })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What asks from a container.
#[derive(Debug)]
pub(super) struct Prober {
    socket: UdpSocket,
}

impl Prober {
    /// In the namespace, for an address of the same family.
    ///
    /// # Errors
    /// When no socket can be opened.
    pub(super) fn open(namespace: &NetNs, to: IpAddr) -> Result<Self> {
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = namespace.run(|| UdpSocket::bind((any, 0)))?.context("open a port in a container")?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket })
    }

    /// When the first answer came; `None` where there is none in [`TIMEOUT`].
    pub(super) fn first_answer(&self, to: IpAddr) -> Option<Instant> {
        self.first_answer_from(SocketAddr::new(to, PORT), TIMEOUT)
    }

    fn first_answer_from(&self, to: SocketAddr, timeout: Duration) -> Option<Instant> {
        let began = Instant::now();
        let mut bytes = [0; 16];
        while began.elapsed() < timeout {
            // While there is no route, none is sent, and no answer is to be waited for.
            if self.socket.send_to(b"netrig", to).is_err() {
                thread::sleep(AGAIN);
                continue;
            }
            let again = Instant::now() + AGAIN;
            while let Some(left) = again.checked_duration_since(Instant::now()) {
                // A socket's own time limit is counted in ticks of the kernel, of up to 10 ms each; this one is not.
                let limit = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
                let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&limit));
                // An error that was waiting, such as of a port that is not open yet, is taken by this too.
                if self.socket.recv_from(&mut bytes).is_ok_and(|(_, from)| from == to) {
                    return Some(Instant::now());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_waited_for_and_one_that_never_comes_is_not_an_answer() {
        let to = Ipv4Addr::LOCALHOST;
        let silent = UdpSocket::bind((to, 0)).unwrap();
        let answering = UdpSocket::bind((to, 0)).unwrap();
        let silent_port = silent.local_addr().unwrap().port();
        let port = answering.local_addr().unwrap().port();
        let thread = thread::spawn(move || {
            let mut bytes = [0; 16];
            let (length, from) = answering.recv_from(&mut bytes).unwrap();
            answering.send_to(&bytes[..length], from).unwrap();
        });
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let prober = Prober { socket };
        assert!(prober.first_answer_from(SocketAddr::from((to, port)), TIMEOUT).is_some());
        thread.join().unwrap();
        assert!(prober.first_answer_from(SocketAddr::from((to, silent_port)), Duration::from_millis(10)).is_none());
    }
}
