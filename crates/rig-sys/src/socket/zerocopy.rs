//! Sending without copying: MSG_ZEROCOPY (Documentation/networking/msg_zerocopy.rst of the kernel).

use std::io;
use std::mem::{self, MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::time::Timespec;

use super::set_option;

/// Completions are fetched after this many sends: rarely enough to cost little, and often enough for the
/// smallest default of net.core.optmem_max, which pays for them.
const BATCH: u32 = 16;

/// How long is waited when the memory for pending completions is used up.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// One message that is sent again and again, by reference, over any number of stream sockets.
///
/// The kernel reads the message's pages until it reports their completion, which it does on each socket's error queue.
/// They are never written to, and never freed before: dropping this value while sends are pending leaks the message.
#[derive(Debug)]
pub struct ZeroCopy {
    message: Vec<u8>,
    start: usize,
    pending: u32,
    /// Sends since completions were last fetched.
    unfetched: u32,
    copied: u64,
}

impl ZeroCopy {
    /// `message[start..]` is what is sent.
    pub fn new(message: Vec<u8>, start: usize) -> Self {
        Self { start: start.min(message.len()), message, pending: 0, unfetched: 0, copied: 0 }
    }

    /// Has to be called once for each socket (SO_ZEROCOPY).
    pub fn enable(socket: impl AsFd) -> io::Result<()> {
        set_option(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, &(1 as libc::c_int))
    }

    /// Sends the message, or the part of it that fits; blocks as send(2) does.
    ///
    /// # Errors
    /// Those of send(2). EAGAIN, even on a socket in blocking mode, after a wait of a millisecond: the memory for
    /// pending completions is used up. ENOBUFS: the message does not fit into what the process may lock in memory
    /// (`ulimit -l`) or into net.core.optmem_max.
    pub fn send(&mut self, socket: impl AsFd) -> Result<usize, Errno> {
        let socket = socket.as_fd();
        let flags = SendFlags::NOSIGNAL.union(SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as _));
        match send(socket, &self.message[self.start..], flags) {
            Ok(bytes) => {
                self.pending += 1;
                self.unfetched += 1;
                if self.unfetched >= BATCH {
                    self.settle(socket)?;
                }
                Ok(bytes)
            }
            Err(Errno::NOBUFS) if self.pending > 0 => {
                if self.settle(socket)? == 0 {
                    // A completion on this socket ends the wait. It may be another socket's that frees memory.
                    poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::empty())], Some(&RETRY))?;
                }
                Err(Errno::AGAIN)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Fetches the completions that wait on the socket's error queue. Returns their number.
    pub fn settle(&mut self, socket: impl AsFd) -> Result<u32, Errno> {
        self.unfetched = 0;
        let mut settled = 0;
        while let Some(range) = completion(socket.as_fd())? {
            let sends = range.sends();
            settled += sends;
            if range.copied {
                self.copied += u64::from(sends);
            }
        }
        self.pending = self.pending.saturating_sub(settled);
        Ok(settled)
    }

    /// Takes the number of sends, since the last call, that the kernel completed by copying after all.
    pub fn take_copied(&mut self) -> u64 {
        mem::take(&mut self.copied)
    }
}

impl Drop for ZeroCopy {
    fn drop(&mut self) {
        if self.pending > 0 {
            mem::forget(mem::take(&mut self.message));
        }
    }
}

/// Consecutive sends of one socket that are complete.
#[derive(Debug, Clone, Copy)]
struct Range {
    first: u32,
    last: u32,
    copied: bool,
}

impl Range {
    fn sends(self) -> u32 {
        // The kernel counts a socket's sends modulo 2^32.
        self.last.wrapping_sub(self.first).wrapping_add(1)
    }
}

/// linux/errqueue.h
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// Takes one notification off the error queue.
fn completion(socket: BorrowedFd<'_>) -> Result<Option<Range>, Errno> {
    /// Room for the extended error and an IPv6 address behind it, aligned as control messages have to be.
    #[repr(C, align(8))]
    struct ControlMessage([MaybeUninit<u8>; 128]);

    let mut control = ControlMessage([MaybeUninit::uninit(); 128]);
    // SAFETY: all zeroes is a valid msghdr: no name, no buffers, no control data.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<ControlMessage>() as _;
    // SAFETY: the header describes one control buffer of the given length, which outlives the call.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    if received < 0 {
        return match Errno::from_io_error(&io::Error::last_os_error()) {
            Some(Errno::AGAIN) => Ok(None),
            other => Err(other.unwrap_or(Errno::IO)),
        };
    }
    // SAFETY: the kernel has filled the control buffer and set its length in the header, and CMSG_FIRSTHDR returns a
    // header that lies inside that length, or null.
    let message = unsafe { libc::CMSG_FIRSTHDR(&raw const header).as_ref() };
    let is_error = message.is_some_and(|m| {
        (m.cmsg_level, m.cmsg_type) == (libc::SOL_IP, libc::IP_RECVERR)
            || (m.cmsg_level, m.cmsg_type) == (libc::SOL_IPV6, libc::IPV6_RECVERR)
    });
    let Some(message) = message.filter(|_| is_error) else { return Err(Errno::BADMSG) };
    // SAFETY: a control message of these types carries a sock_extended_err, which may be unaligned.
    let error: libc::sock_extended_err =
        unsafe { libc::CMSG_DATA(message).cast::<libc::sock_extended_err>().read_unaligned() };
    if error.ee_origin != SO_EE_ORIGIN_ZEROCOPY || error.ee_errno != 0 {
        return Err(Errno::from_raw_os_error(error.ee_errno as i32));
    }
    let copied = error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0;
    Ok(Some(Range { first: error.ee_info, last: error.ee_data, copied }))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn every_send_is_completed_once() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                rig_skip::skip(rig_skip::Lack::Ipv6, format_args!("no address {address}"));
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut server = listener.accept().unwrap().0;
            ZeroCopy::enable(&client).unwrap();
            let mut sender = ZeroCopy::new(vec![7; 10_000], 0);
            let sends = 100;
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                server.read_to_end(&mut all).unwrap();
                all
            });
            for _ in 0..sends {
                let sent = loop {
                    match sender.send(&client) {
                        Err(Errno::AGAIN) => {}
                        other => break other.unwrap(),
                    }
                };
                assert_eq!(sent, 10_000);
            }
            client.shutdown(std::net::Shutdown::Write).unwrap();
            let received = reader.join().unwrap();
            assert!(received.len() == sends * 10_000 && received.iter().all(|&byte| byte == 7));
            sender.settle(&client).unwrap();
            assert_eq!(sender.pending, 0);
            // Data that loops back to the machine is always copied.
            assert_eq!(sender.take_copied(), sends as u64);
            assert_eq!(sender.take_copied(), 0);
        }
    }

    #[test]
    fn ranges_wrap() {
        assert_eq!(Range { first: u32::MAX, last: 1, copied: false }.sends(), 3);
        assert_eq!(Range { first: 5, last: 5, copied: false }.sends(), 1);
    }
}
