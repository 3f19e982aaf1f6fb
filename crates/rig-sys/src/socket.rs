//! Socket options and calls that std and rustix lack, and the ones whose outcome has to be checked.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::sockopt;

use crate::error::{Error, ErrorContext, Result};

mod binding;
mod datagram;
mod dscp;
mod flow_label;
mod interface;
mod mptcp;
mod option;
pub mod sctp;
mod timestamp;
mod zerocopy;
mod zone;

pub use self::binding::SourceBinding;
pub use self::datagram::{
    Arrived, LONGEST_MESSAGE, ReceiveBatch, SendBatch, set_coalescing, set_pacing_rate, set_segment_size,
};
pub use self::dscp::{Dscp, DscpError};
pub use self::flow_label::lease_flow_label;
pub use self::interface::interface_of;
pub use self::mptcp::{has_mptcp, is_mptcp, mptcp_socket};
pub(crate) use self::option::set_option;
pub use self::option::{
    keep_packets_whole, receive_echo_replies, set_defer_accept, set_dont_route, set_fast_open, set_fast_open_connect,
    set_receive_errors,
};
pub use self::timestamp::{receive_stamped, sent_stamp, stamp_datagrams};
pub use self::zerocopy::ZeroCopy;
pub use self::zone::{AddressError, LinkLocalInterfaces, NamedAddress, ZonedAddress, parse_address, resolve};

/// One of a socket's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// SO_SNDBUF
    Send,
    /// SO_RCVBUF
    Receive,
}

impl Buffer {
    /// The setting that limits what an unprivileged process can get.
    pub fn limit(self) -> &'static str {
        match self {
            Self::Send => "net.core.wmem_max",
            Self::Receive => "net.core.rmem_max",
        }
    }
}

/// Sets a socket buffer to `bytes` and returns what the kernel granted. socket(7): the kernel doubles the value for its
/// own book-keeping; both numbers here are without that factor. When `net.core.[rw]mem_max` limits the plain option,
/// SO_SNDBUFFORCE or SO_RCVBUFFORCE is tried, which CAP_NET_ADMIN allows.
pub fn set_buffer(socket: impl AsFd, buffer: Buffer, bytes: u32) -> Result<u32> {
    let socket = socket.as_fd();
    let what = || format!("set a socket's {buffer:?} buffer to {bytes} bytes").to_lowercase();
    let size = bytes as usize;
    match buffer {
        Buffer::Send => sockopt::set_socket_send_buffer_size(socket, size),
        Buffer::Receive => sockopt::set_socket_recv_buffer_size(socket, size),
    }
    .during(what)?;
    let granted = self::buffer(socket, buffer).during(what)? / 2;
    if granted >= bytes {
        return Ok(granted);
    }
    let forced = match buffer {
        Buffer::Send => sockopt::set_socket_send_buffer_size_force(socket, size),
        Buffer::Receive => sockopt::set_socket_recv_buffer_size_force(socket, size),
    };
    // Without the capability the plain option's result stands.
    if forced.is_ok() { Ok(self::buffer(socket, buffer).during(what)? / 2) } else { Ok(granted) }
}

/// Size of a socket buffer as the kernel reports it: twice what can be asked for (socket(7)).
pub fn buffer(socket: impl AsFd, buffer: Buffer) -> io::Result<u32> {
    let size = match buffer {
        Buffer::Send => sockopt::socket_send_buffer_size(socket)?,
        Buffer::Receive => sockopt::socket_recv_buffer_size(socket)?,
    };
    Ok(u32::try_from(size).unwrap_or(u32::MAX))
}

/// Selects the congestion control of a TCP socket (TCP_CONGESTION, tcp(7)). Connections that a listening socket
/// accepts inherit its choice.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> Result<()> {
    // What it has already needs no privilege.
    if congestion_control(&socket).is_ok_and(|now| now == name) {
        return Ok(());
    }
    sockopt::set_tcp_congestion(socket, name).map_err(|errno| {
        let available = congestion_controls().unwrap_or_default().join(" ");
        let operation = match errno {
            rustix::io::Errno::NOENT => {
                format!("select congestion control '{name}' (available: {available}; `modprobe tcp_{name}` may add it)")
            }
            rustix::io::Errno::PERM => format!(
                "select congestion control '{name}' (not allowed here without privilege: add it to \
                 net.ipv4.tcp_allowed_congestion_control; available: {available})"
            ),
            _ => format!("select congestion control '{name}' (available: {available})"),
        };
        Error::new(operation, errno)
    })
}

/// The congestion control of a TCP socket.
pub fn congestion_control(socket: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// The congestion controls that this network namespace offers.
pub fn congestion_controls() -> Result<Vec<String>> {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let text = std::fs::read_to_string(path).during(|| format!("read {path}"))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// linux/in.h
const IP_PMTUDISC_DO: libc::c_int = 2;

/// Has IPv4 datagrams over `socket` leave with the flag "don't fragment", whatever is known of the path (IP_MTU_DISCOVER, ip(7)).
///
/// # Errors
/// Those of setsockopt(2).
pub fn forbid_fragments(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &IP_PMTUDISC_DO)
}

/// `struct tcp_info` of linux/tcp.h. An older kernel knows fewer fields and leaves the rest zero.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct TcpInfo {
    pub state: u8,
    pub ca_state: u8,
    pub retransmits: u8,
    pub probes: u8,
    pub backoff: u8,
    pub options: u8,
    /// Window scales: send in the low, receive in the high half.
    pub window_scales: u8,
    pub flags: u8,
    pub rto_us: u32,
    pub ato_us: u32,
    pub send_mss: u32,
    pub receive_mss: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub fackets: u32,
    pub last_data_sent_ms: u32,
    pub last_ack_sent_ms: u32,
    pub last_data_received_ms: u32,
    pub last_ack_received_ms: u32,
    pub path_mtu: u32,
    pub receive_ssthresh: u32,
    pub rtt_us: u32,
    pub rtt_variance_us: u32,
    pub send_ssthresh: u32,
    pub congestion_window: u32,
    pub advertised_mss: u32,
    pub reordering: u32,
    pub receive_rtt_us: u32,
    pub receive_space: u32,
    pub total_retransmits: u32,
    pub pacing_rate: u64,
    pub max_pacing_rate: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segments_out: u32,
    pub segments_in: u32,
    pub not_sent_bytes: u32,
    pub min_rtt_us: u32,
    pub data_segments_in: u32,
    pub data_segments_out: u32,
    pub delivery_rate: u64,
    pub busy_us: u64,
    pub limited_by_receiver_us: u64,
    pub limited_by_send_buffer_us: u64,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub bytes_sent: u64,
    pub bytes_retransmitted: u64,
    pub duplicate_sacks: u32,
    /// Times that packets were found to have come out of order.
    pub reordering_events: u32,
    pub received_out_of_order: u32,
    /// The peer's window, bytes: from Linux 5.4 on.
    pub send_window: u32,
}

/// TCP_INFO of a socket.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut info = MaybeUninit::<TcpInfo>::zeroed();
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the struct; every bit pattern of it is valid, and
    // what the kernel does not write stays zero.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a struct of integers, zeroed above and then filled in by the kernel.
    Ok(unsafe { info.assume_init() })
}

/// The cookie of the network namespace that a socket is in: SO_NETNS_COOKIE, from Linux 5.14 on.
pub(crate) fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of the number.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(cookie) }
}

/// Makes writing to a peer that has gone fail with EPIPE instead of killing the process: sendfile(2) has no
/// MSG_NOSIGNAL.
pub fn ignore_sigpipe() {
    // SAFETY: SIG_IGN is no handler, so no code runs in signal context.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn tcp_info_counts_what_was_acknowledged() {
        use std::io::{Read, Write};
        let (mut client, mut server) = pair();
        client.write_all(&[1; 10_000]).unwrap();
        server.read_exact(&mut [0; 10_000]).unwrap();
        assert_eq!(tcp_info(&server).unwrap().bytes_received, 10_000);
        let info = tcp_info(&client).unwrap();
        assert_eq!(info.bytes_sent, 10_000);
        assert!(info.send_mss > 500 && info.congestion_window > 0 && info.rtt_us > 0, "{info:?}");
    }

    #[test]
    fn buffers_are_granted_or_said_to_be_less() {
        let (client, _server) = pair();
        for which in [Buffer::Send, Buffer::Receive] {
            let granted = set_buffer(&client, which, 65_536).unwrap();
            assert_eq!(granted, 65_536);
            assert_eq!(buffer(&client, which).unwrap(), 2 * 65_536);
        }
    }

    #[test]
    fn an_unknown_congestion_control_names_the_known_ones() {
        let (client, _server) = pair();
        let error = set_congestion_control(&client, "no-such").unwrap_err().to_string();
        let known = congestion_controls().unwrap();
        assert!(error.contains("no-such") && known.iter().all(|name| error.contains(name)), "{error}");
        set_congestion_control(&client, "reno").unwrap();
        assert_eq!(congestion_control(&client).unwrap(), "reno");
    }
}
