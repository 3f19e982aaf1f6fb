//! Offload features, queues and receive-side scaling of an interface, by the ethtool ioctl (linux/ethtool.h).

mod card;
mod features;
mod hash;
mod statistics;

use std::io;

use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};
use std::os::fd::AsRawFd;

use crate::error::{Error, Result};
use crate::netns::NetNs;

pub use card::{card, fact};
pub use features::{set_features, want_features, wanted_features};
pub use hash::{
    Flow, HashFields, HashSettings, ReceiveHash, hash_fields, hash_settings, receive_hash, receive_rules, set_hash_key,
};
pub use statistics::statistics;

/// An offload that can be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// TCP segmentation by the device: the stack hands it up to 64 KiB at once.
    Tso,
    /// Segmentation just above the driver.
    Gso,
    /// Merging of received segments.
    Gro,
    /// Checksums of sent packets by the device.
    Checksum,
}

impl Offload {
    /// ETHTOOL_Gxxx and ETHTOOL_Sxxx.
    fn commands(self) -> (u32, u32) {
        match self {
            Self::Tso => (0x1e, 0x1f),
            Self::Gso => (0x23, 0x24),
            Self::Gro => (0x2b, 0x2c),
            Self::Checksum => (0x16, 0x17),
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

/// Switches offloads of interfaces inside `ns`, in their order. A device that refuses to switch what is as wanted already
/// is no failure.
///
/// # Errors
/// When an offload stays what it is not to be, or the device does not tell.
pub fn set_all(ns: &NetNs, offloads: &[(&str, Offload, bool)]) -> Result<()> {
    let set = |&(interface, offload, on): &(&str, Offload, bool)| {
        let mut value = EthtoolValue { command: offload.commands().1, data: u32::from(on) };
        let Err(error) = ioctl(interface, &mut value) else { return Ok(()) };
        let mut now = EthtoolValue { command: offload.commands().0, data: 0 };
        match ioctl(interface, &mut now) {
            Ok(()) if (now.data != 0) == on => Ok(()),
            _ => Err(Error::new(format!("switch {offload:?} of {interface} {}", if on { "on" } else { "off" }), error)),
        }
    };
    ns.run(|| offloads.iter().try_for_each(set))?
}

/// Whether an offload of `interface` is on.
pub fn get(ns: &NetNs, interface: &str, offload: Offload) -> Result<bool> {
    let mut value = EthtoolValue { command: offload.commands().0, data: 0 };
    ns.run(|| ioctl(interface, &mut value))?.map_err(|e| Error::new(format!("read {offload:?} of {interface}"), e))?;
    Ok(value.data != 0)
}

/// Whether the device of `interface` of the calling thread's namespace takes VLAN tags off what it receives
/// (ETH_FLAG_RXVLAN of ETHTOOL_GFLAGS).
///
/// # Errors
/// EOPNOTSUPP when the driver does not tell.
pub fn takes_tags_off(interface: &str) -> Result<bool> {
    const ETHTOOL_GFLAGS: u32 = 0x25;
    const ETH_FLAG_RXVLAN: u32 = 1 << 8;
    let mut value = EthtoolValue { command: ETHTOOL_GFLAGS, data: 0 };
    ioctl(interface, &mut value).map_err(|e| Error::new(format!("read the VLAN offload of {interface}"), e))?;
    Ok(value.data & ETH_FLAG_RXVLAN != 0)
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    command: u32,
    max: [u32; 4],
    now: Channels,
}

/// How many queues of each kind are in use, as `ethtool -l` calls them.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channels {
    pub receive: u32,
    pub transmit: u32,
    pub other: u32,
    pub combined: u32,
}

/// Receive and transmit queues that are in use at `interface` of the calling thread's namespace.
///
/// # Errors
/// EOPNOTSUPP when the driver does not tell.
pub fn queues(interface: &str) -> Result<(u32, u32)> {
    let Channels { receive, transmit, combined, .. } = channels(interface)?;
    Ok((receive + combined, transmit + combined))
}

/// The queues of `interface` of the calling thread's namespace by their kinds.
///
/// # Errors
/// EOPNOTSUPP when the driver does not tell.
pub fn channels(interface: &str) -> Result<Channels> {
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
    ioctl(interface, &mut channels).map_err(|e| Error::new(format!("read the queues of {interface}"), e))?;
    Ok(channels.now)
}

/// Has `interface` of the calling thread's namespace use so many queues, as `ethtool -L` does.
///
/// # Errors
/// What the driver refuses.
pub fn set_channels(interface: &str, channels: &Channels) -> Result<()> {
    const ETHTOOL_SCHANNELS: u32 = 0x3d;
    let mut wanted = EthtoolChannels { command: ETHTOOL_SCHANNELS, now: *channels, ..EthtoolChannels::default() };
    ioctl(interface, &mut wanted).map_err(|e| Error::new(format!("set the queues of {interface}"), e))
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct EthtoolDriver {
    command: u32,
    /// The driver's name, its version, the firmware's, and the address on the bus.
    words: [[u8; 32]; 4],
    rest: [u8; 64],
}

impl EthtoolDriver {
    fn texts(&self) -> [String; 4] {
        self.words.map(|word| {
            let text = word.split(|&byte| byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(text).into_owned()
        })
    }
}

fn driver_info(interface: &str) -> Result<EthtoolDriver> {
    const ETHTOOL_GDRVINFO: u32 = 0x3;
    let mut info = EthtoolDriver { command: ETHTOOL_GDRVINFO, words: [[0; 32]; 4], rest: [0; 64] };
    ioctl(interface, &mut info).map_err(|e| Error::new(format!("read the driver of {interface}"), e))?;
    Ok(info)
}

/// The name of the driver of `interface` of the calling thread's namespace, e.g. `veth`.
pub fn driver(interface: &str) -> Result<String> {
    let [name, ..] = driver_info(interface)?.texts();
    Ok(name)
}

/// `struct ethtool_rxfh_indir`.
#[repr(C)]
struct EthtoolIndirection {
    command: u32,
    size: u32,
    queues: [u32; Self::MOST],
}

impl EthtoolIndirection {
    /// Entries of the largest table that there is.
    const MOST: usize = 8192;

    fn new(command: u32, size: usize) -> io::Result<Box<Self>> {
        if size > Self::MOST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Box::new(Self { command, size: size as u32, queues: [0; Self::MOST] }))
    }
}

/// The queue of each entry of the indirection table of `interface`, of the calling thread's namespace.
pub(crate) fn indirection(interface: &str) -> io::Result<Vec<u32>> {
    const ETHTOOL_GRXFHINDIR: u32 = 0x38;
    // Without room it says how much there is to read.
    let mut size = EthtoolIndirection::new(ETHTOOL_GRXFHINDIR, 0)?;
    ioctl(interface, &mut *size)?;
    let mut read = EthtoolIndirection::new(ETHTOOL_GRXFHINDIR, size.size as usize)?;
    ioctl(interface, &mut *read)?;
    Ok(read.queues[..read.size as usize].to_vec())
}

/// Writes that table; an empty one is the driver's own.
pub(crate) fn set_indirection(interface: &str, table: &[u32]) -> io::Result<()> {
    const ETHTOOL_SRXFHINDIR: u32 = 0x39;
    let mut written = EthtoolIndirection::new(ETHTOOL_SRXFHINDIR, table.len())?;
    written.queues[..table.len()].copy_from_slice(table);
    ioctl(interface, &mut *written)
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
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    // Setting features, it tells by bits what was not as asked.
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
