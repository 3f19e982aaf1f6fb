//! Which interface an address belongs to.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

use super::zone::ZonedAddress;
use crate::error::{ErrorContext, Result};

/// The interface that owns `address`; `None` when none does.
///
/// # Errors
/// When the kernel does not tell.
pub fn interface_of(address: ZonedAddress) -> Result<Option<String>> {
    Ok(own_addresses()?.into_iter().find(|(_, own)| *own == address).map(|(name, _)| name))
}

/// All addresses of this namespace, each with its interface's name (getifaddrs(3)).
pub(super) fn own_addresses() -> Result<Vec<(String, ZonedAddress)>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the pointer is to a writable pointer, which the call fills.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error()).during(|| "list the interfaces' addresses".into());
    }
    let (mut entry, mut found) = (list, Vec::new());
    while !entry.is_null() {
        // SAFETY: not null, and an entry of the list that getifaddrs made, which is freed only below.
        let interface = unsafe { &*entry };
        // SAFETY: the entry's address is null or a socket address of the family that it names.
        if let Some(address) = unsafe { address_at(interface.ifa_addr) } {
            // SAFETY: the name is a string that lives as long as the list.
            let name = unsafe { CStr::from_ptr(interface.ifa_name) }.to_string_lossy().into_owned();
            found.push((name, address));
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
unsafe fn address_at(address: *const libc::sockaddr) -> Option<ZonedAddress> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and each family's structure begins with the family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in.
            let address = unsafe { *address.cast::<libc::sockaddr_in>() };
            Some(IpAddr::from(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6.
            let address = unsafe { *address.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Some(SocketAddr::from(SocketAddrV6::new(ip, 0, 0, address.sin6_scope_id)).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_owns_its_address() {
        assert_eq!(interface_of("127.0.0.1".parse().unwrap()).unwrap().as_deref(), Some("lo"));
        assert_eq!(interface_of("192.0.2.77".parse().unwrap()).unwrap(), None);
    }
}
