//! SCTP sockets of one association (SOCK_STREAM, RFC 6458, section 4): their options. Numbers and layouts are those of linux/sctp.h.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::option::{set_option, set_option_bytes};

const INITMSG: c_int = 2;
const NODELAY: c_int = 3;
const MAXSEG: c_int = 13;
const STATUS: c_int = 14;
const BINDX_ADD: c_int = 100;
/// Bytes of `struct sctp_status`, which is packed.
const STATUS_LENGTH: usize = 176;

/// What an association tells of itself (SCTP_STATUS, RFC 6458, 8.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Bytes that the peer takes.
    pub send_window: u32,
    /// DATA chunks that have left and that the peer has not acknowledged.
    pub unacknowledged: u16,
    /// Of the path in use: bytes.
    pub congestion_window: u32,
    /// The smoothed round-trip time; Linux has it in ticks of its timer (CONFIG_HZ), of which user space does not hear how long they are.
    pub rtt_ticks: u32,
    pub path_mtu: u32,
}

impl Status {
    fn read(bytes: &[u8; STATUS_LENGTH]) -> Self {
        let [two, four] = [
            |bytes: &[u8]| u32::from(u16::from_ne_bytes([bytes[0], bytes[1]])),
            |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        ];
        Self {
            send_window: four(&bytes[8..]),
            unacknowledged: two(&bytes[12..]) as u16,
            // Behind 24 bytes of the association, the number and the 128 bytes of the address of its path, and that path's state.
            congestion_window: four(&bytes[160..]),
            rtt_ticks: four(&bytes[164..]),
            path_mtu: four(&bytes[172..]),
        }
    }
}

/// Sends without waiting for more (SCTP_NODELAY, 8.1.5).
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_no_delay(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_SCTP, NODELAY, &1)
}

/// The most bytes of a message that a DATA chunk has (SCTP_MAXSEG, 8.1.16); longer messages are cut.
///
/// # Errors
/// Those of setsockopt(2): EINVAL where the kernel has no such chunks.
pub fn set_max_segment(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    // Of associations to come.
    set_option(socket, libc::IPPROTO_SCTP, MAXSEG, &[0, bytes])
}

/// How many streams an association to come asks for (SCTP_INITMSG, 8.1.3).
///
/// # Errors
/// Those of setsockopt(2).
pub fn set_streams(socket: impl AsFd, streams: u16) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_SCTP, INITMSG, &[streams, 0, 0, 0])
}

/// Binds to further addresses (sctp_bindx(), 9.1), whose ports are 0 or that of the first.
///
/// # Errors
/// Those of bind(2).
pub fn bind_more(socket: impl AsFd, addresses: &[SocketAddr]) -> io::Result<()> {
    let packed: Vec<u8> = addresses.iter().flat_map(packed).collect();
    set_option_bytes(socket, libc::IPPROTO_SCTP, BINDX_ADD, &packed)
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn packed(address: &SocketAddr) -> Vec<u8> {
    let (family, port) = match address {
        SocketAddr::V4(_) => (libc::AF_INET, address.port()),
        SocketAddr::V6(_) => (libc::AF_INET6, address.port()),
    };
    let mut bytes = (family as u16).to_ne_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// What the association of a socket tells.
///
/// # Errors
/// Those of getsockopt(2): EINVAL where there is none.
pub fn status(socket: impl AsFd) -> io::Result<Status> {
    let mut bytes = [0_u8; STATUS_LENGTH];
    let mut length = STATUS_LENGTH as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the array.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_SCTP,
            STATUS,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(Status::read(&bytes)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_laid_out_as_the_kernel_has_them() {
        let v4 = packed(&"192.0.2.1:5201".parse().unwrap());
        let family = (libc::AF_INET as u16).to_ne_bytes();
        assert_eq!(v4, [&family[..], &[0x14, 0x51, 192, 0, 2, 1], &[0; 8]].concat());
        let v6 = packed(&"[fe80::1%3]:80".parse().unwrap());
        assert_eq!((v6.len(), v6[23], &v6[24..]), (28, 1, &3_u32.to_ne_bytes()[..]));
    }

    #[test]
    fn a_status_is_read_from_its_places() {
        let mut bytes = [0; STATUS_LENGTH];
        bytes[8..12].copy_from_slice(&106_496_u32.to_ne_bytes());
        bytes[12..14].copy_from_slice(&3_u16.to_ne_bytes());
        bytes[14..16].copy_from_slice(&7_u16.to_ne_bytes());
        for (at, value) in [(160, 4380_u32), (164, 12), (168, 3000), (172, 1500)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let told =
            Status { send_window: 106_496, unacknowledged: 3, congestion_window: 4380, rtt_ticks: 12, path_mtu: 1500 };
        assert_eq!(Status::read(&bytes), told);
    }
}
