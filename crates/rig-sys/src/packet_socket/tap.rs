//! IP packets of all interfaces, past the kernel's own judgement of them: what comes from certain senders is heard although the kernel
//! would drop it, and what is sent goes to a neighbour that is named. They begin at the IP header (SOCK_DGRAM, packet(7)).

use std::io;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{dropped, filter};
use crate::error::{Error, Result};
use crate::socket::{Buffer, set_buffer, set_option};

/// Bytes that wait to be received: a sender may be heard whose other packets pass here, too.
const BUFFER: u32 = 4 << 20;

/// Hears packets of one IP version, and sends some. Nothing waits.
#[derive(Debug)]
pub struct PacketTap {
    fd: OwnedFd,
    protocol: u16,
}

impl PacketTap {
    /// Of the calling thread's network namespace; takes CAP_NET_RAW. It hears nothing before [`Self::hear`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(ipv6: bool) -> Result<Self> {
        let protocol = if ipv6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP } as u16;
        // SAFETY: takes no pointers. Protocol 0: nothing is received before bind(2).
        let fd =
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(Error::new("make a packet socket", io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor, which nothing else owns.
        let tap = Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, protocol };
        let failed = |error| Error::new("prepare a packet socket", error);
        set_option(&tap.fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32).map_err(failed)?;
        tap.filter(&[]).map_err(failed)?;
        set_buffer(&tap.fd, Buffer::Receive, BUFFER)?;
        let address = tap.address(0, &[]);
        // SAFETY: pointer and length are those of a socket address that lives through the call.
        let bound = unsafe {
            libc::bind(
                tap.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound == 0 { Ok(tap) } else { Err(failed(io::Error::last_os_error())) }
    }

    /// How many senders can be told apart.
    pub const MOST_SENDERS: usize = 400;

    /// Hears what comes from these senders, and nothing else. Those of the other IP version do not matter.
    ///
    /// # Errors
    /// When they are more than [`Self::MOST_SENDERS`], and the kernel's.
    pub fn hear(&self, senders: &[IpAddr]) -> io::Result<()> {
        let ipv6 = self.protocol == libc::ETH_P_IPV6 as u16;
        let own: Vec<IpAddr> = senders.iter().filter(|sender| sender.is_ipv6() == ipv6).copied().collect();
        if own.len() > Self::MOST_SENDERS {
            return Err(io::Error::other(format!("more than {} addresses to hear from", Self::MOST_SENDERS)));
        }
        self.filter(&own)
    }

    fn filter(&self, senders: &[IpAddr]) -> io::Result<()> {
        let mut program = filter::from_senders(senders);
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        set_option(&self.fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next packet that has come, as far as there is room for it.
    ///
    /// # Errors
    /// `WouldBlock` when none has, and the kernel's.
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(&self.fd, packet, rustix::net::RecvFlags::DONTWAIT)?.0)
    }

    /// How many packets had no room since this was last asked.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dropped(&self) -> io::Result<u32> {
        dropped(&self.fd)
    }

    /// Sends a packet to a neighbour of an interface, which has this link-layer address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, interface: u32, neighbor: &[u8], packet: &[u8]) -> io::Result<()> {
        let address = self.address(interface, neighbor);
        // SAFETY: both pointers are those of values that live through the call, with their lengths.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn address(&self, interface: u32, neighbor: &[u8]) -> libc::sockaddr_ll {
        let mut bytes = [0; 8];
        let length = neighbor.len().min(bytes.len());
        bytes[..length].copy_from_slice(&neighbor[..length]);
        libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: self.protocol.to_be(),
            sll_ifindex: interface as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: length as u8,
            sll_addr: bytes,
        }
    }
}
