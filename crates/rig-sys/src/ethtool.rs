//! Offload features of an interface, by the ethtool ioctl (linux/ethtool.h).

use std::io;

use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::AsRawFd;

use crate::error::{Error, Result};
use crate::netns::NetNs;

/// An offload that can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// TCP segmentation by the device: the stack hands it up to 64 KiB at once.
    Tso,
    /// Segmentation just above the driver.
    Gso,
    /// Merging of received segments.
    Gro,
}

impl Offload {
    /// ETHTOOL_Gxxx and ETHTOOL_Sxxx.
    fn commands(self) -> (u32, u32) {
        match self {
            Self::Tso => (0x1e, 0x1f),
            Self::Gso => (0x23, 0x24),
            Self::Gro => (0x2b, 0x2c),
        }
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Switches an offload of `interface` inside `ns`.
///
/// # Errors
/// EOPNOTSUPP when the driver does not let it be changed.
pub fn set(ns: &NetNs, interface: &str, offload: Offload, on: bool) -> Result<()> {
    let mut value = EthtoolValue { command: offload.commands().1, data: u32::from(on) };
    ns.run(|| ioctl(interface, &mut value))?
        .map_err(|e| Error::new(format!("switch {offload:?} of {interface} {}", if on { "on" } else { "off" }), e))
}

/// Whether an offload of `interface` is on.
pub fn get(ns: &NetNs, interface: &str, offload: Offload) -> Result<bool> {
    let mut value = EthtoolValue { command: offload.commands().0, data: 0 };
    ns.run(|| ioctl(interface, &mut value))?.map_err(|e| Error::new(format!("read {offload:?} of {interface}"), e))?;
    Ok(value.data != 0)
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    command: u32,
    max: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

/// Receive and transmit queues that are in use at `interface` of the calling thread's namespace.
///
/// # Errors
/// EOPNOTSUPP when the driver does not tell.
pub fn queues(interface: &str) -> Result<(u32, u32)> {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
    ioctl(interface, &mut channels).map_err(|e| Error::new(format!("read the queues of {interface}"), e))?;
    Ok((channels.receive + channels.combined, channels.transmit + channels.combined))
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct EthtoolDriver {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// The name of the driver of `interface` of the calling thread's namespace, e.g. `veth`.
pub fn driver(interface: &str) -> Result<String> {
    const ETHTOOL_GDRVINFO: u32 = 0x3;
    let mut info = EthtoolDriver { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    ioctl(interface, &mut info).map_err(|e| Error::new(format!("read the driver of {interface}"), e))?;
    let name = info.driver.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// `value` is a structure that begins with the command that it belongs to.
fn ioctl<T>(interface: &str, value: &mut T) -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
    // SAFETY: SIOCETHTOOL reads and writes the command's structure behind ifr_data; both structures outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
