//! Setting the options of a load's sockets.

use std::io;
use std::os::fd::AsFd;

use rig_sys::socket::mptcp_socket;
use rig_sys::{Error, Result};
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket, Type};

use crate::plan::SocketOptions;

impl SocketOptions {
    /// A socket of such a load: of TCP, or of MPTCP where that is asked for, or of UDP.
    ///
    /// # Errors
    /// Why there is none, with what to do.
    pub(crate) fn socket(&self, domain: Domain, kind: Type) -> io::Result<Socket> {
        match self.mptcp && kind == Type::STREAM {
            true => mptcp_socket(domain),
            false => Socket::new(domain, kind, None),
        }
    }

    /// Sets them on a socket that is not connected yet; connections that a listening one accepts inherit all but the priority.
    ///
    /// # Errors
    /// The first that the kernel does not grant, by name, with what to do.
    pub(crate) fn apply(&self, socket: impl AsFd, ipv6: bool) -> Result<()> {
        let reference = SockRef::from(&socket);
        if let Some(dscp) = self.dscp {
            let byte = dscp.type_of_service().into();
            if ipv6 {
                reference.set_tclass_v6(byte).map_err(|error| refused("the DSCP (IPV6_TCLASS)", dscp, error))?;
            }
            // Of IPv6, too: such a socket may have a peer of IPv4.
            reference.set_tos_v4(byte).map_err(|error| refused("the DSCP (IP_TOS)", dscp, error))?;
        }
        if let Some(hops) = self.hop_limit {
            if ipv6 {
                let set = reference.set_unicast_hops_v6(hops);
                set.map_err(|error| refused("the hop limit (IPV6_UNICAST_HOPS)", hops, error))?;
            }
            reference.set_ttl_v4(hops).map_err(|error| refused("the hop limit (IP_TTL)", hops, error))?;
        }
        if let Some(bytes) = self.mss {
            reference.set_tcp_mss(bytes).map_err(|error| refused("the MSS (TCP_MAXSEG)", bytes, error))?;
        }
        if let Some(bytes) = self.not_sent_low_water {
            let set = reference.set_tcp_notsent_lowat(bytes);
            set.map_err(|error| refused("the low-water mark of unsent bytes (TCP_NOTSENT_LOWAT)", bytes, error))?;
        }
        if let Some(us) = self.busy_poll_us {
            reference
                .set_busy_poll(us)
                .map_err(|error| refused("busy polling (SO_BUSY_POLL)", us, of_polling(error)))?;
        }
        // After IP_TOS, which sets one, too.
        set_priority(socket, self.priority)
    }
}

fn of_polling(error: io::Error) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "more than net.core.busy_read takes CAP_NET_ADMIN: run as root, or raise that"
        }
        _ if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => {
            "this kernel was built without it (CONFIG_NET_RX_BUSY_POLL)"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

/// What connections do not inherit from the listening socket that they come from.
pub(crate) fn set_priority(socket: impl AsFd, priority: Option<u32>) -> Result<()> {
    let Some(priority) = priority else { return Ok(()) };
    SockRef::from(&socket).set_priority(priority).map_err(|error| {
        let error = match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::new(
                error.kind(),
                format!(
                    "above {0} it takes CAP_NET_ADMIN: run as root, or choose one from 0 to {0}",
                    SocketOptions::PRIORITY_OF_ALL
                ),
            ),
            _ => error,
        };
        refused("the socket priority (SO_PRIORITY)", priority, error)
    })
}

fn refused(option: &str, value: impl std::fmt::Display, error: io::Error) -> Error {
    Error::new(format!("set {option} to {value}"), error)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn the_kernel_has_what_was_set() {
        let tcp = SocketOptions {
            dscp: "af41".parse().ok(),
            mss: Some(1000),
            hop_limit: Some(9),
            priority: Some(5),
            not_sent_low_water: Some(65_536),
            busy_poll_us: None,
            mptcp: false,
        };
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to: SocketAddr = address.parse().unwrap();
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
            tcp.apply(&socket, to.is_ipv6()).unwrap();
            assert_eq!((socket.tos_v4().unwrap(), socket.ttl_v4().unwrap()), (34 << 2, 9));
            if to.is_ipv6() {
                assert_eq!((socket.tclass_v6().unwrap(), socket.unicast_hops_v6().unwrap()), (34 << 2, 9));
            }
            assert_eq!((socket.priority().unwrap(), socket.tcp_notsent_lowat().unwrap()), (5, 65_536));
        }
        let udp = SocketOptions { mss: None, not_sent_low_water: None, ..tcp };
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        udp.apply(&socket, false).unwrap();
        assert_eq!((socket.tos_v4().unwrap(), socket.priority().unwrap()), (34 << 2, 5));
    }

    #[test]
    fn what_the_kernel_refuses_is_named() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let options = SocketOptions { mss: Some(1000), ..Default::default() };
        let error = options.apply(&socket, false).unwrap_err().to_string();
        assert!(error.starts_with("set the MSS (TCP_MAXSEG) to 1000: "), "{error}");
    }
}
