//! Multipath TCP (RFC 8684).

use std::ffi::c_int;
use std::fs;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Protocol, Socket, Type};

/// linux/mptcp.h and linux/socket.h.
const SOL_MPTCP: c_int = 284;
const MPTCP_INFO: c_int = 1;
const FLAG_FALLBACK: u32 = 1;

/// The begin of `struct mptcp_info` of linux/mptcp.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct MptcpInfo {
    /// Subflows, announced and accepted addresses, and the most of each.
    counts: [u8; 6],
    flags: u32,
}

/// A stream socket of MPTCP, which speaks plain TCP with a peer that has none.
///
/// # Errors
/// Why there is none, with what to do.
pub fn mptcp_socket(domain: Domain) -> io::Result<Socket> {
    Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)).map_err(lacking)
}

fn lacking(error: io::Error) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT | libc::EINVAL) => "this kernel was built without MPTCP (CONFIG_MPTCP)",
        Some(libc::ENOPROTOOPT) => "MPTCP is switched off here: sysctl -w net.mptcp.enabled=1",
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

/// Whether a connection is one of MPTCP; false where either end, or what is between them, had it fall back to plain TCP (MPTCP_INFO).
/// `None` where the kernel does not tell, which is before Linux 5.16.
///
/// # Errors
/// Of getsockopt.
pub fn is_mptcp(socket: impl AsFd) -> io::Result<Option<bool>> {
    match info(socket) {
        Ok(info) => Ok(Some(info.flags & FLAG_FALLBACK == 0)),
        Err(error) => without_info(error, has_info),
    }
}

/// What an answer without MPTCP_INFO says. What has fallen back has the options of TCP alone: it answers as IPv6 (ENOPROTOOPT) or IPv4
/// (EOPNOTSUPP) does, and the latter is what an older kernel says of every MPTCP socket.
fn without_info(error: io::Error, has_info: impl FnOnce() -> bool) -> io::Result<Option<bool>> {
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => Ok(Some(false)),
        Some(libc::EOPNOTSUPP) => Ok(has_info().then_some(false)),
        _ => Err(error),
    }
}

/// Whether this kernel tells of its MPTCP sockets; without any there is nothing that it could hide.
fn has_info() -> bool {
    let Ok(socket) = mptcp_socket(Domain::IPV4) else { return true };
    info(&socket).err().and_then(|error| error.raw_os_error()) != Some(libc::EOPNOTSUPP)
}

fn info(socket: impl AsFd) -> io::Result<MptcpInfo> {
    let mut info = MaybeUninit::<MptcpInfo>::zeroed();
    let mut length = size_of::<MptcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the struct; every bit pattern of it is valid, and
    // what the kernel does not write stays zero.
    let result = unsafe {
        let pointer = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), SOL_MPTCP, MPTCP_INFO, pointer, &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a struct of integers, zeroed above and then filled in by the kernel.
    Ok(unsafe { info.assume_init() })
}

/// Whether this network namespace has MPTCP.
pub fn has_mptcp() -> bool {
    fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_tells_whether_it_is_one_of_mptcp() {
        let plain = TcpListener::bind("127.0.0.1:0").unwrap();
        let of_tcp = TcpStream::connect(plain.local_addr().unwrap()).unwrap();
        assert_eq!(is_mptcp(&of_tcp).unwrap(), Some(false));
        if !has_mptcp() {
            assert!(mptcp_socket(Domain::IPV4).unwrap_err().to_string().contains("MPTCP"));
            return;
        }
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = mptcp_socket(Domain::IPV4).unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(2).unwrap();
        for (to, is_multipath) in [(listener.local_addr().unwrap(), true), (plain.local_addr().unwrap().into(), false)]
        {
            let mut socket = mptcp_socket(Domain::IPV4).unwrap();
            socket.connect(&to).unwrap();
            let mut accepted = if is_multipath {
                listener.accept().unwrap().0
            } else {
                plain.accept().unwrap();
                plain.accept().unwrap().0.into()
            };
            // Either falls back with the first data at the latest.
            socket.write_all(b"x").unwrap();
            accepted.read_exact(&mut [0; 1]).unwrap();
            accepted.write_all(b"y").unwrap();
            socket.read_exact(&mut [0; 1]).unwrap();
            assert_eq!(is_mptcp(&socket).unwrap(), Some(is_multipath));
            assert_eq!(is_mptcp(&accepted).unwrap(), Some(is_multipath));
        }
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_not_one_that_fell_back() {
        let said = |errno, has_info| without_info(io::Error::from_raw_os_error(errno), || has_info);
        assert_eq!(said(libc::EOPNOTSUPP, false).unwrap(), None);
        assert_eq!(said(libc::EOPNOTSUPP, true).unwrap(), Some(false));
        assert_eq!(said(libc::ENOPROTOOPT, false).unwrap(), Some(false));
        assert_eq!(said(libc::EBADF, true).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_kernel_without_it_is_named() {
        for (errno, words) in [(libc::EPROTONOSUPPORT, "CONFIG_MPTCP"), (libc::ENOPROTOOPT, "net.mptcp.enabled")] {
            let error = lacking(io::Error::from_raw_os_error(errno)).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
