//! Which interface an address belongs to.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use crate::error::{During, Result};

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
}
