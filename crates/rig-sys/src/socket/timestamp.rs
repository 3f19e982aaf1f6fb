//! The times at which the kernel sent and received datagrams: SO_TIMESTAMPING (the kernel's Documentation/networking/timestamping.rst).
//!
//! They are by CLOCK_REALTIME. Those of network cards are not asked for: they are by a clock of the card's own.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::set_option;

/// asm-generic/socket.h, which all architectures but parisc and sparc follow: the option, and the control message with the times.
const SO_TIMESTAMPING: libc::c_int = 37;

/// linux/errqueue.h: the driver took the datagram.
const SCM_TSTAMP_SND: u32 = 0;

/// Three times, of which the first is the kernel's (`struct scm_timestamping`).
type Times = [[libc::c_long; 2]; 3];

/// Has the kernel stamp the datagrams that arrive over `socket`, and those that are sent by it, which it numbers from 0.
///
/// # Errors
/// EINVAL or ENOPROTOOPT where the kernel has no such stamps.
pub fn stamp_datagrams(socket: impl AsFd) -> io::Result<()> {
    let stamps =
        libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_TX_SOFTWARE;
    // Without the datagram itself, which others may not be let see.
    let how = libc::SOF_TIMESTAMPING_OPT_ID | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    set_option(socket, libc::SOL_SOCKET, SO_TIMESTAMPING, &(stamps | how))
}

/// Takes a datagram that has arrived: its length, and when the kernel had it, ns of CLOCK_REALTIME. Does not wait. The kernel stamps only
/// some time after a first socket on the machine asked for it.
///
/// # Errors
/// Those of recv(2).
pub fn receive_stamped(socket: impl AsFd, buffer: &mut [u8]) -> Result<(usize, Option<u64>), Errno> {
    let mut message = Message::default();
    let length = message.receive(socket, buffer, 0)?;
    Ok((length, message.time()))
}

/// Takes a stamp of a datagram that was sent: its number, and when its driver took it, ns of CLOCK_REALTIME. Does not wait; `None` where there
/// is none (yet).
///
/// # Errors
/// Those of recv(2).
pub fn sent_stamp(socket: impl AsFd) -> Result<Option<(u32, u64)>, Errno> {
    let mut message = Message::default();
    match message.receive(socket, &mut [], libc::MSG_ERRQUEUE) {
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
        // What else is in the queue, as a port that is unreachable, is an error of the next call, too.
        Ok(_) => Ok(message.number().zip(message.time())),
    }
}

/// What came beside a datagram.
#[derive(Default)]
struct Message {
    control: Control,
    length: usize,
}

/// Room for the times and an extended error with an address, aligned as they have to be.
#[repr(C, align(8))]
struct Control([u8; 256]);

impl Default for Control {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Message {
    fn receive(&mut self, socket: impl AsFd, buffer: &mut [u8], flags: libc::c_int) -> Result<usize, Errno> {
        let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all zeroes is a valid header: no name, no buffers, no control data.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = self.control.0.as_mut_ptr().cast();
        header.msg_controllen = self.control.0.len() as _;
        let flags = flags | libc::MSG_DONTWAIT;
        // SAFETY: the header describes one buffer and one control buffer, of the given lengths, which live through the call.
        let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
        let received = usize::try_from(received)
            .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))?;
        self.length = header.msg_controllen as usize;
        Ok(received)
    }

    /// The data of the first control message of these kinds, if it is as long as a `T`.
    fn find<T: Copy>(&self, kinds: &[(libc::c_int, libc::c_int)]) -> Option<T> {
        // SAFETY: all zeroes is a valid header, as above.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_control = self.control.0.as_ptr().cast_mut().cast();
        header.msg_controllen = self.length.min(self.control.0.len()) as _;
        // SAFETY: the control buffer lives as long as `self`, and its length is what the kernel wrote into it; both calls return a
        // header inside that length, or null.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header).as_ref() };
        while let Some(message) = next {
            // SAFETY: computes a length, in the type that the C library has for it.
            let whole = unsafe { libc::CMSG_LEN(mem::size_of::<T>() as u32) } as _;
            if kinds.contains(&(message.cmsg_level, message.cmsg_type)) && message.cmsg_len >= whole {
                // SAFETY: the control message is long enough for a T, which may be unaligned, and is made of integers.
                return Some(unsafe { libc::CMSG_DATA(message).cast::<T>().read_unaligned() });
            }
            // SAFETY: as for the first.
            next = unsafe { libc::CMSG_NXTHDR(&raw const header, message).as_ref() };
        }
        None
    }

    fn time(&self) -> Option<u64> {
        let [[seconds, ns], ..] = self.find::<Times>(&[(libc::SOL_SOCKET, SO_TIMESTAMPING)])?;
        let ns = (seconds as u64).checked_mul(1_000_000_000)?.checked_add(ns as u64)?;
        (ns > 0).then_some(ns)
    }

    fn number(&self) -> Option<u32> {
        let kinds = [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)];
        let error = self.find::<libc::sock_extended_err>(&kinds)?;
        let is_sent = error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING && error.ee_info == SCM_TSTAMP_SND;
        is_sent.then_some(error.ee_data)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::clock;

    fn wait(socket: &UdpSocket, what: PollFlags) {
        poll(&mut [PollFd::new(socket, what)], None).unwrap();
    }

    #[test]
    fn both_ends_of_a_datagram_are_stamped_in_order() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(a) = UdpSocket::bind(address) else { continue };
            let b = UdpSocket::bind(address).unwrap();
            a.connect(b.local_addr().unwrap()).unwrap();
            b.connect(a.local_addr().unwrap()).unwrap();
            stamp_datagrams(&a).unwrap();
            stamp_datagrams(&b).unwrap();
            let mut seen = 0;
            for number in 0..100_000 {
                let before = clock::RealtimeAhead::read();
                let began = clock::monotonic_ns();
                a.send(&[7; 20]).unwrap();
                wait(&b, PollFlags::IN);
                let (length, received) = receive_stamped(&b, &mut [0; 64]).unwrap();
                wait(&a, PollFlags::empty());
                let (of, sent) = sent_stamp(&a).unwrap().unwrap();
                assert_eq!((length, of), (20, number));
                // The kernel begins to stamp what arrives some time after it was first asked to.
                let Some(received) = received else { continue };
                let (sent, received) = (before.monotonic(sent), before.monotonic(received));
                assert!(began <= sent + before.bound_ns && sent <= received, "{began} {sent} {received}");
                assert!(received <= clock::monotonic_ns() + before.bound_ns);
                assert_eq!(sent_stamp(&a), Ok(None));
                assert_eq!(receive_stamped(&b, &mut [0; 64]), Err(Errno::AGAIN));
                seen += 1;
                if seen == 3 {
                    break;
                }
            }
            assert_eq!(seen, 3);
        }
    }
}
