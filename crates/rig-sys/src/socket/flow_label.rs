//! IPv6 flow labels, RFC 6437.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::AsFd;

use super::set_option;

/// linux/in6.h
const IPV6_FLOWLABEL_MGR: libc::c_int = 32;
const IPV6_FLOWINFO_SEND: libc::c_int = 33;
const IPV6_FL_A_GET: u8 = 0;
const IPV6_FL_F_CREATE: u16 = 1;
const IPV6_FL_S_ANY: u8 = 255;

/// `struct in6_flowlabel_req` of linux/in6.h.
#[repr(C)]
struct FlowLabelRequest {
    destination: [u8; 16],
    /// Big-endian.
    label: u32,
    action: u8,
    share: u8,
    flags: u16,
    expires: u16,
    linger: u16,
    padding: u32,
}

/// Leases flow label `label` for packets of `socket` to `destination`. The label is to be in the address that is connected to, too.
///
/// # Errors
/// EINVAL beyond 20 bits, EPERM where another has the label for itself.
pub fn lease_flow_label(socket: impl AsFd, destination: Ipv6Addr, label: u32) -> io::Result<()> {
    let socket = socket.as_fd();
    let request = FlowLabelRequest {
        destination: destination.octets(),
        label: label.to_be(),
        action: IPV6_FL_A_GET,
        share: IPV6_FL_S_ANY,
        flags: IPV6_FL_F_CREATE,
        expires: 0,
        linger: 0,
        padding: 0,
    };
    set_option(socket, libc::IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &request)?;
    set_option(socket, libc::IPPROTO_IPV6, IPV6_FLOWINFO_SEND, &1 as &libc::c_int)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddrV6, UdpSocket};

    use super::*;

    #[test]
    fn a_label_is_leased_for_a_destination() {
        let Ok(socket) = UdpSocket::bind("[::1]:0") else {
            rig_skip::skip(rig_skip::Lack::Ipv6, "this machine has no IPv6");
            return;
        };
        let label = 0x2_1234;
        lease_flow_label(&socket, Ipv6Addr::LOCALHOST, label).unwrap();
        let to = SocketAddrV6::new(Ipv6Addr::LOCALHOST, socket.local_addr().unwrap().port(), label.to_be(), 0);
        socket.connect(to).unwrap();
        socket.send(&[1]).unwrap();
        assert_eq!(socket.recv(&mut [0; 2]).unwrap(), 1);
        assert!(lease_flow_label(&socket, Ipv6Addr::LOCALHOST, 1 << 21).is_err());
    }
}
