//! Who may take part in a load.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, acceptfrom_with};

/// Whether a peer may take part, when only one address may.
pub(crate) fn is_welcome(peer: Option<IpAddr>, only_from: Option<IpAddr>) -> bool {
    only_from.is_none_or(|only| peer.map(|peer| peer.to_canonical()) == Some(only.to_canonical()))
}

/// A listening TCP socket.
#[derive(Debug)]
pub(crate) struct Door {
    listener: OwnedFd,
    only_from: Option<IpAddr>,
}

impl Door {
    pub(crate) fn new(listener: OwnedFd, only_from: Option<IpAddr>) -> Self {
        Self { listener, only_from }
    }

    /// The next connection of somebody who may take part; others are closed.
    pub(crate) fn accept(&self, flags: SocketFlags) -> Result<OwnedFd, Errno> {
        if self.only_from.is_none() {
            return accept_with(&self.listener, flags);
        }
        loop {
            let (socket, peer) = acceptfrom_with(&self.listener, flags)?;
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            if is_welcome(peer.map(|peer| peer.ip()), self.only_from) {
                return Ok(socket);
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use rustix::net::sockopt::set_socket_reuseaddr;
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn an_address_is_the_same_in_both_families() {
        let v4 = Some("10.0.0.1".parse().unwrap());
        let mapped = Some("::ffff:10.0.0.1".parse().unwrap());
        assert!(is_welcome(v4, mapped) && is_welcome(mapped, v4) && is_welcome(v4, None) && is_welcome(None, None));
        assert!(!is_welcome(Some("10.0.0.2".parse().unwrap()), v4) && !is_welcome(None, v4));
    }

    #[test]
    fn strangers_are_closed_and_do_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let door = Door::new(listener.into(), Some("127.0.0.1".parse().unwrap()));
        let from = |ip: [u8; 4]| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            set_socket_reuseaddr(&socket, true).unwrap();
            socket.bind(&SocketAddr::from((ip, 0)).into()).unwrap();
            socket.connect(&address.into()).unwrap();
            socket
        };
        let mut stranger = from([127, 0, 0, 2]);
        let friend = from([127, 0, 0, 1]);
        let accepted = Socket::from(door.accept(SocketFlags::CLOEXEC).unwrap());
        let ends = (accepted.peer_addr().unwrap().as_socket(), friend.local_addr().unwrap().as_socket());
        assert_eq!(ends.0, ends.1);
        assert!(matches!(stranger.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
