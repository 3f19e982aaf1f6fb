//! ICMP echoes: one socket for each family and source address, whatever the number of backends.

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rig_wire::checksum::PartialChecksum;
use rig_wire::icmp::{self, Icmp};
use rig_wire::icmpv6::{self, Icmpv6};
use socket2::{Domain, Protocol, Socket, Type};

/// Packets that are taken in one turn, whoever sends them.
const MOST_AT_ONCE: usize = 1024;

/// A socket that many echoes share.
#[derive(Debug)]
pub struct EchoSocket {
    socket: Socket,
    ipv6: bool,
    /// Whose answers are awaited, by nonce.
    awaited: HashMap<u64, (IpAddr, u64)>,
}

/// An echo request with this nonce. `pseudo` is the packet's header in the checksum, of IPv6; the kernel fills that in for a raw socket.
pub fn request(nonce: u64, pseudo: Option<PartialChecksum>) -> Vec<u8> {
    let (echo, data) = (((nonce >> 16) as u16, nonce as u16), nonce.to_be_bytes());
    let mut bytes = vec![0; icmp::HEADER + data.len()];
    // There is room.
    let _ = match pseudo {
        Some(pseudo) => icmpv6::write_echo(&mut bytes, icmpv6::kind::ECHO_REQUEST, echo, &data, pseudo),
        None => icmp::write_echo(&mut bytes, icmp::kind::ECHO_REQUEST, echo, &data),
    };
    bytes
}

/// The nonce of a reply.
pub fn nonce_of(reply: &[u8], ipv6: bool) -> Option<u64> {
    let (kind, data) = match ipv6 {
        true => Icmpv6::parse(reply).map(|reply| (reply.kind(), reply.payload())).ok()?,
        false => Icmp::parse(reply).map(|reply| (reply.kind(), reply.payload())).ok()?,
    };
    let is_reply = kind == if ipv6 { icmpv6::kind::ECHO_REPLY } else { icmp::kind::ECHO_REPLY };
    is_reply.then(|| data.try_into().ok().map(u64::from_be_bytes)).flatten()
}

impl EchoSocket {
    pub fn open(ipv6: bool, source: Option<IpAddr>) -> io::Result<Self> {
        let (domain, protocol) = if ipv6 { (Domain::IPV6, Protocol::ICMPV6) } else { (Domain::IPV4, Protocol::ICMPV4) };
        let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(protocol))?;
        if let Some(source) = source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        rig_sys::socket::receive_echo_replies(&socket, ipv6)?;
        Ok(Self { socket, ipv6, awaited: HashMap::new() })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn send(&mut self, to: IpAddr, nonce: u64, flight: u64) -> io::Result<()> {
        let pseudo = self.ipv6.then_some(PartialChecksum::ZERO);
        self.socket.send_to(&request(nonce, pseudo), &SocketAddr::new(to, 0).into())?;
        self.awaited.insert(nonce, (to, flight));
        Ok(())
    }

    pub fn forget(&mut self, nonce: u64) {
        self.awaited.remove(&nonce);
    }

    /// Those that were answered by who was asked.
    pub fn answered(&mut self) -> Vec<u64> {
        let mut answered = Vec::new();
        let mut packet = [0; 128];
        for _ in 0..MOST_AT_ONCE {
            let (length, from) = match self.receive(&mut packet) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let header = match self.ipv6 {
                true => 0,
                // A raw socket of IPv4 gives the header, too (raw(7)).
                false => usize::from(packet[0] & 0xf) * 4,
            };
            let Some(nonce) = packet[..length].get(header..).and_then(|reply| nonce_of(reply, self.ipv6)) else {
                continue;
            };
            if self.awaited.get(&nonce).is_some_and(|(asked, _)| from.is_none_or(|from| from == *asked))
                && let Some((_, flight)) = self.awaited.remove(&nonce)
            {
                answered.push(flight);
            }
        }
        answered
    }

    /// A packet with its sender.
    fn receive(&self, packet: &mut [u8; 128]) -> io::Result<(usize, Option<IpAddr>)> {
        if self.ipv6 {
            // std's buffers, where socket2's are uninitialized memory.
            let (length, from) = rustix::net::recvfrom(&self.socket, &mut packet[..], rustix::net::RecvFlags::DONTWAIT)
                .map(|(length, _, from)| (length, from))?;
            let from = from.and_then(|from| SocketAddr::try_from(from).ok()).map(|from| from.ip());
            return Ok((length, from));
        }
        let length = (&self.socket).read(packet)?;
        let from = Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]);
        Ok((length, Some(from.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_known_by_its_nonce_and_its_type() {
        const NONCE: u64 = 0x1122_3344_5566_7788;
        for (ipv6, reply) in [(false, 0), (true, 129)] {
            let request = request(NONCE, ipv6.then_some(PartialChecksum::ZERO));
            assert_eq!(nonce_of(&request, ipv6), None);
            let mut answer = request;
            answer[0] = reply;
            assert_eq!(nonce_of(&answer, ipv6), Some(NONCE));
            assert_eq!(nonce_of(&answer[..15], ipv6), None);
            assert_eq!(nonce_of(&[], ipv6), None);
        }
    }
}
