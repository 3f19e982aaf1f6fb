//! Packet sockets (packet(7)): frames of an interface where AF_XDP is not available. They work in a user namespace
//! without root.
//!
//! The kernel's network stack sees the received frames too, and answers them where it can. So the addresses that are used
//! here must not be the kernel's, and it must not forward.

mod filter;
mod ring;
mod tap;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use ring::{Receiver, Sender};
pub use tap::PacketTap;

use crate::error::{Error, Result};
use crate::socket::set_option;
use crate::xdp::{Filter, Link, OpenError, QueueCpu};

/// How a port is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub filter: Filter,
    /// Bytes of the largest frame, without frame check sequence.
    pub frame: usize,
    /// Frames that are sent together at most.
    pub burst: u32,
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    /// In the order in which they were asked for.
    pub queues: Vec<(Receiver, Sender)>,
    pub mac: [u8; 6],
}

/// The socket, and what it counts in this process.
#[derive(Debug)]
struct SharedSocket {
    fd: OwnedFd,
    /// Frames that the kernel would not send.
    tx_refused: AtomicU64,
    /// What the kernel's counter, which each reading sets to zero, said so far.
    rx_dropped: AtomicU64,
}

/// What is counted at a socket, since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames for which the ring had no room.
    pub rx_dropped: u64,
    /// Frames that the kernel would not send.
    pub tx_refused: u64,
}

/// Packets for which there was no room since this was last read.
fn dropped(socket: &OwnedFd) -> io::Result<u32> {
    // struct tpacket_stats: packets, drops.
    let mut counters = [0u32; 2];
    let mut length = size_of::<[u32; 2]>() as libc::socklen_t;
    // SAFETY: pointer and length are those of a writable structure of two integers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            counters.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(counters[1]) } else { Err(io::Error::last_os_error()) }
}

/// Reads a socket's counters, from any thread.
#[derive(Debug, Clone)]
pub struct Meter(Arc<SharedSocket>);

impl Meter {
    pub fn read(&self) -> Result<Statistics> {
        let dropped = dropped(&self.0.fd).map_err(|error| Error::new("read the counters of a packet socket", error))?;
        let before = self.0.rx_dropped.fetch_add(dropped.into(), Ordering::Relaxed);
        Ok(Statistics {
            rx_dropped: before + u64::from(dropped),
            tx_refused: self.0.tx_refused.load(Ordering::Relaxed),
        })
    }
}

impl Port {
    /// Takes frames of `interface`, which is one of the calling thread's network namespace. Frames go to the worker that
    /// has the number of the queue by which they came; the places' queues are 0, 1, 2 ... in this order.
    pub fn open(interface: &str, places: &[QueueCpu], options: &Options) -> Result<Self, OpenError> {
        let link = Link::read(interface)?;
        if let Some(place) = places.iter().find(|place| place.queue >= link.queues) {
            return Err(link.no_queue(place.queue));
        }
        let count = places.len() as u32;
        if count > 1 && !places.iter().map(|place| place.queue).eq(0..count) {
            let advice = "packet sockets share frames by queue, from queue 0 on without gaps".to_owned();
            let queue = places.last().map_or(0, |place| place.queue);
            return Err(OpenError::NoQueue { interface: link.name, queue, advice });
        }
        let mut queues = Vec::with_capacity(places.len());
        for _ in places {
            queues.push(open(&link, options)?);
        }
        if count > 1 {
            let descriptors: Vec<_> = queues.iter().map(|(receiver, _)| receiver.descriptor()).collect();
            share(&descriptors).map_err(|error| Error::new(format!("share frames of {interface} by queue"), error))?;
        }
        Ok(Self { queues, mac: link.mac })
    }
}

fn open(link: &Link, options: &Options) -> Result<(Receiver, Sender), OpenError> {
    // SAFETY: takes no pointers. Protocol 0: nothing is received before bind(2).
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EPERM) => OpenError::NoPacketSocket,
            _ => Error::new("make a packet socket", error).into(),
        });
    }
    // SAFETY: a new descriptor, which nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let failed = |what: &str| {
        let operation = format!("{what} of a packet socket at {}", link.name);
        move |error| OpenError::from(Error::new(operation, error))
    };
    if let Some(mut program) = filter::program(&options.filter) {
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        set_option(&fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program).map_err(failed("set the filter"))?;
    }
    // Linux 4.20. Without, what is sent here would come back.
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32).map_err(failed("ignore what is sent"))?;
    // Past the queueing discipline, as a program that paces itself wants it.
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)
        .map_err(failed("pass by the queueing discipline"))?;
    let membership = libc::packet_mreq {
        mr_ifindex: link.index as i32,
        mr_type: libc::PACKET_MR_ALLMULTI as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // Questions of neighbor discovery are multicast (RFC 4861).
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership).map_err(failed("receive multicast"))?;
    let shared = SharedSocket { fd, tx_refused: AtomicU64::new(0), rx_dropped: AtomicU64::new(0) };
    let halves = ring::halves(shared, options).map_err(failed("make the rings"))?;
    bind(halves.0.descriptor(), link).map_err(failed("bind"))?;
    Ok(halves)
}

fn bind(fd: &OwnedFd, link: &Link) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: link.index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: pointer and length are those of a socket address that lives through the call.
    let result =
        unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives each socket the frames of the queue that has its number.
fn share(sockets: &[&OwnedFd]) -> io::Result<()> {
    let flags = |flag: libc::c_uint| (libc::PACKET_FANOUT_QM | flag) << 16;
    // A frame of queue q has the number q + 1 (skb_record_rx_queue), modulo the number of sockets: the last one first.
    let (last, others) = sockets.split_last().ok_or(io::ErrorKind::InvalidInput)?;
    set_option(last, libc::SOL_PACKET, libc::PACKET_FANOUT, &flags(libc::PACKET_FANOUT_FLAG_UNIQUEID))?;
    let mut group = 0u32;
    let mut length = size_of::<u32>() as libc::socklen_t;
    // SAFETY: pointer and length are those of a writable integer.
    let result = unsafe {
        libc::getsockopt(
            last.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut group).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    for socket in others {
        set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &(group & 0xffff | flags(0)))?;
    }
    Ok(())
}
