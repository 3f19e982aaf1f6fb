//! What the kernel lets a load generator do with sockets.

use std::io;

use io_uring::{IoUring, Probe, opcode};
use socket2::{Domain, Protocol, Socket, Type};

use super::{ProbeResult, Refusal};
use crate::socket::{set_congestion_control, set_option};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sockets {
    /// An io_uring that can send and receive (Linux 5.6).
    pub io_uring: ProbeResult,
    /// `kernel.io_uring_disabled` (Linux 6.6): 0 allows all processes, 1 members of a group, 2 none.
    pub io_uring_disabled: Option<u64>,
    /// MSG_ZEROCOPY on TCP sockets (Linux 4.14).
    pub zero_copy: ProbeResult,
    /// UDP_SEGMENT: one send that the kernel cuts into datagrams (Linux 4.18).
    pub udp_segments: ProbeResult,
    /// UDP_GRO: datagrams handed over several at once (Linux 5.0).
    pub udp_coalescing: ProbeResult,
}

impl Sockets {
    pub fn try_out() -> Self {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        Self {
            io_uring: try_io_uring(),
            io_uring_disabled: disabled.and_then(|text| text.trim().parse().ok()),
            zero_copy: try_option(Type::STREAM, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)
                .map_err(|e| Refusal::new("set SO_ZEROCOPY on a TCP socket", &e)),
            udp_segments: try_option(Type::DGRAM, libc::SOL_UDP, libc::UDP_SEGMENT, 1000)
                .map_err(|e| Refusal::new("set UDP_SEGMENT on a socket", &e)),
            udp_coalescing: try_option(Type::DGRAM, libc::SOL_UDP, libc::UDP_GRO, 1)
                .map_err(|e| Refusal::new("set UDP_GRO on a socket", &e)),
        }
    }
}

/// Sets a congestion control on a socket that is thrown away. For root the kernel then loads the module that is still
/// missing, and [`super::Machine::congestion_controls`] has it from then on.
pub fn try_congestion_control(name: &str) -> ProbeResult {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP));
    let socket = socket.map_err(|error| Refusal::new("create a TCP socket", &error))?;
    Ok(set_congestion_control(&socket, name)?)
}

fn try_io_uring() -> ProbeResult {
    let ring = IoUring::new(4).map_err(|e| Refusal::new("create an io_uring", &e))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|e| Refusal::new("ask what io_uring can do", &e))?;
    let missing = [("send", opcode::Send::CODE), ("receive", opcode::Recv::CODE)];
    match missing.iter().find(|(_, code)| !probe.is_supported(*code)) {
        None => Ok(()),
        Some((name, _)) => {
            let error = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
            Err(Refusal::new(format!("{name} by io_uring"), &error))
        }
    }
}

fn try_option(kind: Type, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, kind, None)?;
    set_option(&socket, level, option, &value)
}
