//! Which addresses may take part in a load.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rig_sys::socket::ZonedAddress;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, acceptfrom_with};
use socket2::SockRef;

/// Whether a peer may take part, when only one address may.
pub(crate) fn is_allowed(peer: Option<SocketAddr>, only_from: Option<ZonedAddress>) -> bool {
    let canonical = |peer| ZonedAddress::from(peer).to_canonical();
    only_from.is_none_or(|only| peer.map(canonical) == Some(only.to_canonical()))
}

/// A listening TCP socket.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: OwnedFd,
    only_from: Option<ZonedAddress>,
    /// SO_PRIORITY of each connection.
    priority: Option<u32>,
}

impl Listener {
    pub(crate) fn new(listener: OwnedFd, only_from: Option<ZonedAddress>, priority: Option<u32>) -> Self {
        Self { listener, only_from, priority }
    }

    /// The next connection from the allowed address; others are closed.
    pub(crate) fn accept(&self, flags: SocketFlags) -> Result<OwnedFd, Errno> {
        let socket = self.accept_allowed(flags)?;
        if let Some(priority) = self.priority {
            let set = SockRef::from(&socket).set_priority(priority);
            set.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        Ok(socket)
    }

    fn accept_allowed(&self, flags: SocketFlags) -> Result<OwnedFd, Errno> {
        if self.only_from.is_none() {
            return accept_with(&self.listener, flags);
        }
        loop {
            let (socket, peer) = acceptfrom_with(&self.listener, flags)?;
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            if is_allowed(peer, self.only_from) {
                return Ok(socket);
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{IpAddr, SocketAddrV6, TcpListener};

    use rustix::net::sockopt::set_socket_reuseaddr;
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn an_address_is_the_same_in_both_families() {
        let peer = |text: &str| Some(text.parse().unwrap());
        let only = |text: &str| Some(ZonedAddress::from(text.parse::<IpAddr>().unwrap()));
        let (v4, mapped) = ("10.0.0.1:9", "[::ffff:10.0.0.1]:9");
        assert!(is_allowed(peer(v4), only("::ffff:10.0.0.1")) && is_allowed(peer(mapped), only("10.0.0.1")));
        assert!(is_allowed(peer(v4), None) && is_allowed(None, None));
        assert!(!is_allowed(peer("10.0.0.2:9"), only("10.0.0.1")) && !is_allowed(None, only("10.0.0.1")));
    }

    #[test]
    fn the_same_link_local_address_on_another_link_is_another_host() {
        let of = |zone| SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, zone));
        let only = Some(ZonedAddress::from(of(2)));
        assert!(is_allowed(Some(of(2)), only));
        assert!(!is_allowed(Some(of(3)), only));
    }

    #[test]
    fn strangers_are_closed_and_do_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::new(listener.into(), Some("127.0.0.1".parse().unwrap()), Some(5));
        let from = |ip: [u8; 4]| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            set_socket_reuseaddr(&socket, true).unwrap();
            socket.bind(&SocketAddr::from((ip, 0)).into()).unwrap();
            socket.connect(&address.into()).unwrap();
            socket
        };
        let mut stranger = from([127, 0, 0, 2]);
        let friend = from([127, 0, 0, 1]);
        let accepted = Socket::from(listener.accept(SocketFlags::CLOEXEC).unwrap());
        let ends = (accepted.peer_addr().unwrap().as_socket(), friend.local_addr().unwrap().as_socket());
        assert_eq!(ends.0, ends.1);
        assert_eq!(accepted.priority().unwrap(), 5);
        assert!(matches!(stranger.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
