//! Where a socket's packets leave, and how fast.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use crate::error::{During, Result};

/// Limits the rate at which a socket's packets leave to `bytes_per_second` (SO_MAX_PACING_RATE, socket(7)). The `fq`
/// queueing discipline does it, and without that TCP itself (Linux 4.13); for other sockets it needs `fq`.
pub fn limit_pacing(socket: impl AsFd, bytes_per_second: u32) -> Result<()> {
    // SAFETY: the pointer is to a u32 that lives through the call, and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    let result = if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    result.during(|| format!("limit a socket to {bytes_per_second} bytes/s (SO_MAX_PACING_RATE)"))
}

/// The interface that owns `address`; `None` when none does (getifaddrs(3)).
pub fn interface_of(address: IpAddr) -> Result<Option<String>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the pointer is to a writable pointer, which the call fills.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error()).during(|| "list the interfaces' addresses".into());
    }
    let (mut entry, mut found) = (list, None);
    while !entry.is_null() && found.is_none() {
        // SAFETY: not null, and an entry of the list that getifaddrs made, which is freed only below.
        let interface = unsafe { &*entry };
        // SAFETY: the entry's address is null or a socket address of the family that it names.
        if unsafe { address_at(interface.ifa_addr) } == Some(address) {
            // SAFETY: the name is a string that lives as long as the list.
            found = Some(unsafe { CStr::from_ptr(interface.ifa_name) }.to_string_lossy().into_owned());
        }
        entry = interface.ifa_next;
    }
    // SAFETY: the list comes from getifaddrs, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// The Internet address in a socket address.
///
/// # Safety
/// `address` is null or points to a socket address of the family that it names.
unsafe fn address_at(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and each family's structure begins with the family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in.
            let address = unsafe { *address.cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6.
            let address = unsafe { *address.cast::<libc::sockaddr_in6>() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_owns_its_address() {
        assert_eq!(interface_of(Ipv4Addr::LOCALHOST.into()).unwrap().as_deref(), Some("lo"));
        assert_eq!(interface_of(Ipv4Addr::new(192, 0, 2, 77).into()).unwrap(), None);
    }

    #[test]
    fn the_kernel_keeps_the_pacing_rate() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        limit_pacing(&client, 125_000).unwrap();
        assert_eq!(super::super::tcp_info(&client).unwrap().max_pacing_rate, 125_000);
    }
}
