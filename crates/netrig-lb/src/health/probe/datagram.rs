//! A probe by a datagram of a kernel's socket.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::judge::DatagramJudge;
use super::stream::bind;
use super::words::{self, Verdict};

/// The longest answer that is looked at; of longer ones the beginning is.
const LONGEST: usize = 4096;

/// Datagrams that are taken in one turn, if they are no answers.
const MOST_AT_ONCE: usize = 16;

#[derive(Debug)]
pub struct DatagramProbe {
    socket: UdpSocket,
    judge: DatagramJudge,
}

impl DatagramProbe {
    /// Sends the question. The socket is connected, so that the kernel takes answers of that peer alone, and says when its port is closed.
    pub fn start(to: SocketAddr, source: Option<IpAddr>, message: &[u8], judge: DatagramJudge) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        bind(&socket, source, to)?;
        socket.connect(&to.into())?;
        socket.send(message)?;
        Ok(Self { socket: socket.into(), judge })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn go_on(&mut self) -> Option<Verdict> {
        let mut answer = [0; LONGEST];
        for _ in 0..MOST_AT_ONCE {
            match self.socket.recv(&mut answer) {
                Ok(length) => match self.judge.take(&answer[..length]) {
                    None => {}
                    verdict => return verdict,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Some(Err("port unreachable".to_owned()));
                }
                Err(error) => return Some(Err(words::of_error(&error))),
            }
        }
        None
    }
}
