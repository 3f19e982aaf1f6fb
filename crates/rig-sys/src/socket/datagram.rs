//! Many datagrams with one system call: sendmmsg(2) and recvmmsg(2), and the kernel's segmentation (UDP_SEGMENT) and
//! coalescing (UDP_GRO) of them, udp(7).

use std::fmt;
use std::io;
use std::mem::{self, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::io::Errno;

use super::set_option;
use crate::direct;

/// linux/udp.h
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;

/// asm-generic/socket.h, which all architectures but alpha, parisc and sparc follow.
const SO_MAX_PACING_RATE: libc::c_int = 47;

/// The most that one message can carry: the largest IP packet.
pub const LONGEST_MESSAGE: usize = 65_535;

/// Messages begin on a cache line of their own.
const LINE: usize = 64;

/// Has the kernel cut each message that is sent over `socket` into datagrams of `bytes` (generic segmentation offload,
/// Linux 4.18); 0 switches it off. A message no longer than that stays one datagram.
///
/// # Errors
/// ENOPROTOOPT on older kernels, EINVAL beyond 65 535.
pub fn set_segment_size(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, UDP_SEGMENT, &(bytes as libc::c_int))
}

/// Lets the kernel hand over several datagrams of the same size as one message (generic receive offload, Linux 5.0):
/// see [`Arrived::segment`].
///
/// # Errors
/// ENOPROTOOPT on older kernels.
pub fn set_coalescing(socket: impl AsFd, on: bool) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, UDP_GRO, &libc::c_int::from(on))
}

/// The most bytes per second, headers included, that may leave over `socket` (SO_MAX_PACING_RATE, Linux 3.13). For UDP
/// only the fq queueing discipline, tc-fq(8), enforces it. A kernel of less than 64 bits takes at most 2^32 - 1.
pub fn set_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    let rate = libc::c_ulong::try_from(bytes_per_second).unwrap_or(libc::c_ulong::MAX);
    set_option(socket, libc::SOL_SOCKET, SO_MAX_PACING_RATE, &rate)
}

/// Messages of one length that are sent together over a connected socket.
pub struct SendBatch {
    bytes: Vec<u8>,
    length: usize,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

impl SendBatch {
    /// Room for `messages`, at least one, each of which begins as a copy of `message`.
    pub fn new(messages: usize, message: &[u8]) -> Self {
        let messages = messages.max(1);
        let stride = message.len().next_multiple_of(LINE);
        let mut bytes = vec![0; messages * stride];
        bytes.chunks_mut(stride.max(1)).for_each(|place| place[..message.len()].copy_from_slice(message));
        let (vectors, headers) = tables(messages);
        Self { bytes, length: message.len(), vectors, headers }
    }

    /// How many messages there is room for.
    pub fn messages(&self) -> usize {
        self.headers.len()
    }

    /// The bytes of a message, which stay as they are until they are changed.
    ///
    /// # Panics
    /// When there is no room for that many.
    #[inline]
    pub fn message(&mut self, index: usize) -> &mut [u8] {
        let stride = self.length.next_multiple_of(LINE);
        &mut self.bytes[index * stride..][..self.length]
    }

    /// Sends the first `count` messages and returns how many the kernel took. `wait` blocks as send(2) does.
    ///
    /// # Errors
    /// Those of send(2), when not even the first was taken. What stopped the kernel after the first is not told, and an
    /// error that a datagram before has brought up is forgotten then (sendmmsg(2), BUGS): to learn it, send one message
    /// alone and go on.
    pub fn send(&mut self, socket: impl AsFd, count: usize, wait: bool) -> Result<usize, Errno> {
        let fd = socket.as_fd().as_raw_fd();
        let count = count.min(self.headers.len());
        let stride = self.length.next_multiple_of(LINE);
        let bytes = self.bytes.as_mut_ptr();
        for (index, (vector, header)) in self.vectors.iter_mut().zip(&mut self.headers).enumerate().take(count) {
            // The kernel only reads from it. In bounds: there are as many strides as headers.
            vector.iov_base = bytes.wrapping_add(index * stride).cast();
            vector.iov_len = self.length;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        let flags = libc::MSG_NOSIGNAL | if wait { 0 } else { libc::MSG_DONTWAIT };
        if count == 1 {
            // SAFETY: the header describes one buffer of the given length, which belongs to this value; there is no
            // name and no control data.
            let sent = unsafe { libc::sendmsg(fd, &raw const self.headers[0].msg_hdr, flags) };
            return if sent < 0 { Err(last_errno()) } else { Ok(1) };
        }
        // SAFETY: as above, for `count` headers, each with a buffer of its own.
        let sent = unsafe { direct::sendmmsg(fd, self.headers.as_mut_ptr(), count, flags) };
        usize::try_from(sent).map_err(|_| last_errno())
    }
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBatch({} x {} bytes)", self.messages(), self.length)
    }
}

/// Room for messages that are received together.
pub struct ReceiveBatch {
    bytes: Vec<u8>,
    length: usize,
    /// One for each message when coalescing is on, else none.
    controls: Vec<ControlMessage>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    received: usize,
}

/// Room for one control message with an int, aligned as they have to be: CMSG_SPACE(sizeof(int)) is 24 at most.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct ControlMessage([u8; 32]);

/// A message that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived<'a> {
    pub bytes: &'a [u8],
    /// Length of the datagrams that the message is made of, of which the last may be shorter; that of the message when
    /// it is one datagram.
    pub segment: usize,
    /// It was longer than there was room for, and the rest is gone.
    pub truncated: bool,
}

impl<'a> Arrived<'a> {
    /// The datagrams in it. A message without a byte is one datagram too.
    #[inline]
    pub fn datagrams(self) -> impl Iterator<Item = &'a [u8]> {
        let empty: Option<&[u8]> = self.bytes.is_empty().then_some(&[]);
        self.bytes.chunks(self.segment.max(1)).chain(empty)
    }
}

impl ReceiveBatch {
    /// Room for `messages`, at least one, of up to `length` bytes. `coalesced` says that the sockets are told to
    /// coalesce ([`set_coalescing`]).
    pub fn new(messages: usize, length: usize, coalesced: bool) -> Self {
        let messages = messages.max(1);
        let (vectors, headers) = tables(messages);
        let controls = vec![ControlMessage([0; 32]); if coalesced { messages } else { 0 }];
        let bytes = vec![0; messages * length.next_multiple_of(LINE)];
        Self { bytes, length, controls, vectors, headers, received: 0 }
    }

    /// Receives what is there, as many messages as there is room for, and returns how many. `wait` blocks until there
    /// is at least one. After shutdown(2) of the socket that is one without a byte.
    ///
    /// # Errors
    /// Those of recv(2).
    pub fn receive(&mut self, socket: impl AsFd, wait: bool) -> Result<usize, Errno> {
        let fd = socket.as_fd().as_raw_fd();
        self.received = 0;
        let stride = self.length.next_multiple_of(LINE);
        let bytes = self.bytes.as_mut_ptr();
        for (index, (vector, header)) in self.vectors.iter_mut().zip(&mut self.headers).enumerate() {
            // In bounds: there are as many strides as headers.
            vector.iov_base = bytes.wrapping_add(index * stride).cast();
            vector.iov_len = self.length;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_flags = 0;
            header.msg_len = 0;
        }
        for (control, header) in self.controls.iter_mut().zip(&mut self.headers) {
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of::<ControlMessage>() as _;
        }
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        self.received = if self.headers.len() == 1 {
            // SAFETY: the header describes one buffer and at most one control buffer, of the given lengths, which belong
            // to this value; there is no room for a name.
            let received = unsafe { libc::recvmsg(fd, &raw mut self.headers[0].msg_hdr, flags) };
            self.headers[0].msg_len = u32::try_from(received).map_err(|_| last_errno())?;
            1
        } else {
            let (headers, count) = (self.headers.as_mut_ptr(), self.headers.len());
            let flags = flags | if wait { libc::MSG_WAITFORONE } else { 0 };
            // SAFETY: as above, for `count` headers, each with buffers of its own; no time-out is given.
            let received = unsafe { direct::recvmmsg(fd, headers, count, flags) };
            usize::try_from(received).map_err(|_| last_errno())?
        };
        Ok(self.received)
    }

    /// The messages that the last [`Self::receive`] brought.
    pub fn messages(&self) -> impl Iterator<Item = Arrived<'_>> {
        let stride = self.length.next_multiple_of(LINE);
        self.headers[..self.received].iter().enumerate().map(move |(index, header)| {
            let length = (header.msg_len as usize).min(self.length);
            let segment = if self.controls.is_empty() { None } else { segment(&header.msg_hdr) };
            Arrived {
                bytes: &self.bytes[index * stride..][..length],
                segment: segment.unwrap_or(length),
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            }
        })
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiveBatch({} x {} bytes)", self.headers.len(), self.length)
    }
}

/// What UDP_GRO says about a message of [`ReceiveBatch`]: the length of its datagrams.
fn segment(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the header's control buffer belongs to the batch that the header is borrowed from, and its length is what
    // the kernel wrote into it; CMSG_FIRSTHDR returns a header inside that length, or null.
    let message = unsafe { libc::CMSG_FIRSTHDR(header).as_ref() }?;
    // SAFETY: computes a length.
    let whole = unsafe { libc::CMSG_LEN(size_of::<libc::c_int>() as u32) } as usize;
    if (message.cmsg_level, message.cmsg_type) != (libc::SOL_UDP, UDP_GRO) || (message.cmsg_len as usize) < whole {
        return None;
    }
    // SAFETY: the control message is long enough for an int, which may be unaligned.
    let bytes = unsafe { libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned() };
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

/// Empty tables for `messages`. Their pointers are set for each call, so the tables can be moved.
fn tables(messages: usize) -> (Vec<libc::iovec>, Vec<libc::mmsghdr>) {
    // SAFETY: all zeroes is a valid header: no name, no buffers, no control data.
    let header: libc::mmsghdr = unsafe { mem::zeroed() };
    (vec![libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; messages], vec![header; messages])
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        b.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (a, b)
    }

    fn numbered(batch: &mut SendBatch, piece: usize) -> Vec<Vec<u8>> {
        let mut all = vec![];
        for index in 0..batch.messages() {
            for part in batch.message(index).chunks_mut(piece) {
                part[0] = all.len() as u8;
                all.push(part.to_vec());
            }
        }
        all
    }

    fn received(batch: &mut ReceiveBatch, socket: &UdpSocket, datagrams: usize) -> (Vec<Vec<u8>>, usize) {
        let (mut all, mut messages) = (vec![], 0);
        while all.len() < datagrams {
            messages += batch.receive(socket, true).unwrap();
            for arrived in batch.messages() {
                assert!(!arrived.truncated);
                all.extend(arrived.datagrams().map(<[u8]>::to_vec));
            }
        }
        (all, messages)
    }

    #[test]
    fn batches_arrive_in_order_and_unchanged() {
        for messages in [1, 2, 7] {
            let (a, b) = pair();
            let mut out = SendBatch::new(messages, &[9; 100]);
            let sent = numbered(&mut out, 100);
            assert_eq!(sent.len(), messages);
            assert_eq!(out.send(&a, messages, true).unwrap(), messages);
            for room in [1, 3] {
                let mut into = ReceiveBatch::new(room, 200, false);
                assert_eq!(received(&mut into, &b, messages).0, sent);
                assert_eq!(into.receive(&b, false), Err(Errno::AGAIN));
                assert_eq!(into.messages().count(), 0);
                out.send(&a, messages, true).unwrap();
            }
        }
    }

    #[test]
    fn the_kernel_cuts_and_joins() {
        for (length, piece) in [(2000, 500), (1999, 500), (500, 500), (30_000, 1000)] {
            for coalesced in [false, true] {
                let (a, b) = pair();
                set_segment_size(&a, piece as u32).unwrap();
                set_coalescing(&b, coalesced).unwrap();
                let mut out = SendBatch::new(2, &vec![1; length]);
                let sent = numbered(&mut out, piece);
                assert_eq!(out.send(&a, 2, true).unwrap(), 2);
                let mut into = ReceiveBatch::new(4, if coalesced { LONGEST_MESSAGE } else { piece }, coalesced);
                let (all, messages) = received(&mut into, &b, sent.len());
                assert_eq!(all, sent);
                // The loopback hands a message over as it was sent.
                assert_eq!(messages, if coalesced { 2 } else { sent.len() });
            }
        }
    }

    #[test]
    fn only_the_first_messages_are_sent_when_asked() {
        let (a, b) = pair();
        let mut out = SendBatch::new(5, &[0; 10]);
        let sent = numbered(&mut out, 10);
        assert_eq!(out.send(&a, 3, false).unwrap(), 3);
        let mut into = ReceiveBatch::new(5, 10, false);
        assert_eq!(received(&mut into, &b, 3).0, sent[..3]);
    }

    #[test]
    fn what_does_not_fit_is_said_to_be_truncated() {
        let (a, b) = pair();
        a.send(&[1; 11]).unwrap();
        a.send(&[]).unwrap();
        let mut into = ReceiveBatch::new(2, 10, false);
        let mut seen = vec![];
        while seen.len() < 2 {
            into.receive(&b, true).unwrap();
            seen.extend(into.messages().map(|m| (m.bytes.len(), m.truncated, m.datagrams().count())));
        }
        assert_eq!(seen, [(10, true, 1), (0, false, 1)]);
    }

    #[test]
    fn refusals_are_told() {
        let (a, b) = pair();
        drop(b);
        let mut out = SendBatch::new(2, &[0; 10]);
        // The answer comes while the batch is on its way, and stops it; sendmmsg(2) then forgets the reason.
        assert_eq!(out.send(&a, 2, true), Ok(1));
        assert_eq!(out.send(&a, 1, true), Ok(1));
        assert_eq!(out.send(&a, 2, true), Err(Errno::CONNREFUSED));
        let (a, _b) = pair();
        assert_eq!(SendBatch::new(1, &vec![0; 65_508]).send(&a, 1, true), Err(Errno::MSGSIZE));
        // More than one segment, each larger than the device takes.
        set_segment_size(&a, 100).unwrap();
        assert!(SendBatch::new(1, &[0; 60_000]).send(&a, 1, true).is_err());
        set_pacing_rate(&a, u64::MAX).unwrap();
    }
}
