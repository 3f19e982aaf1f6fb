//! setsockopt(2) for options that std and rustix lack.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// linux/in.h and linux/in6.h: the packet is never cut, and the path's MTU is heard of.
const PMTUDISC_DO: c_int = 2;

/// Sends to hosts of the interfaces' own networks alone (SO_DONTROUTE, socket(7)).
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_dont_route(socket: impl AsFd, on: bool) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_DONTROUTE, &c_int::from(on))
}

/// Has packets never cut on their way (IP_MTU_DISCOVER, ip(7); IPV6_MTU_DISCOVER, ipv6(7)). The socket is one of IPv6, or of IPv4.
///
/// # Errors
/// Those of setsockopt(2).
pub fn keep_packets_whole(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let (level, option) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER) } else { (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) };
    set_option(socket, level, option, &PMTUDISC_DO)
}

/// Has a datagram that the machine's own queues drop be an error of the call, ENOBUFS, and ICMP's errors those of later ones (IP_RECVERR,
/// ip(7); IPV6_RECVERR, ipv6(7)).
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_receive_errors(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let (level, option) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) } else { (libc::IPPROTO_IP, libc::IP_RECVERR) };
    set_option(socket, level, option, &1)
}

/// Hands over a connection when data has come, or after so many seconds (TCP_DEFER_ACCEPT, tcp(7)). For a listening socket.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_defer_accept(socket: impl AsFd, seconds: u16) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &c_int::from(seconds))
}

/// Takes data with the first segment (TCP_FASTOPEN, RFC 7413), of so many connections that are not there yet. For a listening socket.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_fast_open(socket: impl AsFd, backlog: u16) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &c_int::from(backlog))
}

/// Lets the first write go with the first segment (TCP_FASTOPEN_CONNECT, Linux 4.11). For a socket that will connect.
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_fast_open_connect(socket: impl AsFd) -> io::Result<()> {
    const TCP_FASTOPEN_CONNECT: c_int = 30;
    set_option(socket, libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &1)
}

/// Has a raw socket of ICMP receive echo replies and nothing else (ICMP_FILTER of linux/icmp.h; ICMPV6_FILTER, RFC 3542, 3.2).
///
/// # Errors
/// Those of setsockopt(2).
pub fn receive_echo_replies(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    const ICMP_FILTER: c_int = 1;
    const ICMPV6_FILTER: c_int = 1;
    const SOL_RAW: c_int = 255;
    const REPLY: u32 = 0;
    const REPLY_V6: usize = 129;
    if ipv6 {
        // A bit that is set blocks a type.
        let mut blocked = [u32::MAX; 8];
        blocked[REPLY_V6 / 32] &= !(1 << (REPLY_V6 % 32));
        return set_option(socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &blocked);
    }
    set_option(socket, SOL_RAW, ICMP_FILTER, &!(1_u32 << REPLY))
}

/// Leaves the port of a socket that is bound to an address to connect(2), which takes one that is free for its destination
/// (IP_BIND_ADDRESS_NO_PORT, ip(7), Linux 4.2; for IPv6, too).
///
/// # Errors
/// Those of setsockopt(2).
pub(super) fn let_connect_choose_port(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &1)
}

/// Sets an option whose value the kernel takes as `T` is laid out.
pub(crate) fn set_option<T>(socket: impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length are those of a value that lives through the call. What it may point to in turn, as a
    // filter's instructions or the memory of AF_XDP's frames, the kernel checks itself, as it does for any process.
    let result = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value, size_of::<T>() as libc::socklen_t)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option whose value has any length.
pub(super) fn set_option_bytes(socket: impl AsFd, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length are those of a slice that lives through the call, which the kernel reads.
    let result = unsafe {
        let length = value.len() as libc::socklen_t;
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value.as_ptr().cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
