//! Offload features, queues and receive-side scaling of an interface, by the ethtool ioctl (linux/ethtool.h).

mod card;
mod features;
mod statistics;

use std::io;

use rustix::net::{AddressFamily, SocketType, socket};
use serde::{Deserialize, Serialize};
use std::os::fd::AsRawFd;

use crate::error::{Error, Result};
use crate::netns::NetNs;

pub use card::card;
pub use features::{set_features, want_features, wanted_features};
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

/// The flows whose spreading over queues can be asked for (`TCP_V4_FLOW` and so on of linux/ethtool.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    TcpV4 = 1,
    UdpV4 = 2,
    TcpV6 = 5,
    UdpV6 = 6,
}

/// How an interface spreads what it receives over its queues: by the Toeplitz hash over both addresses and both ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveHash {
    pub key: Vec<u8>,
    /// The queue for each value of the hash modulo the number of entries.
    pub table: Vec<u32>,
}

/// `struct ethtool_rxnfc` as far as ETHTOOL_GRXFH goes.
#[repr(C)]
struct EthtoolHashFields {
    command: u32,
    flow: u32,
    fields: u64,
}

/// `struct ethtool_rxfh`.
#[repr(C)]
struct EthtoolReceiveHash {
    command: u32,
    context: u32,
    table_size: u32,
    key_size: u32,
    function: u8,
    /// Addresses and ports are put into another order first.
    transform: u8,
    reserved: [u8; 6],
    /// The table, one word each, then the bytes of the key.
    words: [u32; Self::WORDS],
}

impl EthtoolReceiveHash {
    const COMMAND: u32 = 0x46;
    /// Room for every table and key that there is.
    const WORDS: usize = 8192;
    /// `ETH_RSS_HASH_TOP`.
    const TOEPLITZ: u8 = 1;

    fn new(table_size: u32, key_size: u32) -> Box<Self> {
        Box::new(Self {
            command: Self::COMMAND,
            context: 0,
            table_size,
            key_size,
            function: 0,
            transform: 0,
            reserved: [0; 6],
            words: [0; Self::WORDS],
        })
    }

    fn fits(&self) -> bool {
        self.table_size as usize + (self.key_size as usize).div_ceil(4) <= Self::WORDS
    }

    /// `None` when it is no plain Toeplitz hash, or the driver keeps the key or the table to itself.
    fn hash(&self) -> Option<ReceiveHash> {
        let plain = self.function == Self::TOEPLITZ && self.transform == 0;
        let (table, rest) = self.words.split_at_checked(self.table_size as usize)?;
        let key: Vec<u8> = rest.iter().flat_map(|word| word.to_ne_bytes()).take(self.key_size as usize).collect();
        let known = plain && !table.is_empty() && !key.is_empty();
        known.then(|| ReceiveHash { key, table: table.to_vec() })
    }
}

/// How `interface` of the calling thread's namespace spreads `flow`; `None` when it does so in another way.
///
/// # Errors
/// EOPNOTSUPP when the driver does not tell.
pub fn receive_hash(interface: &str, flow: Flow) -> Result<Option<ReceiveHash>> {
    const ETHTOOL_GRXFH: u32 = 0x29;
    // RXH_IP_SRC, RXH_IP_DST, RXH_L4_B_0_1, RXH_L4_B_2_3.
    const ENDS: u64 = 0xf << 4;
    let failed = |e| Error::new(format!("read how {interface} spreads what it receives"), e);
    let mut hashed = EthtoolHashFields { command: ETHTOOL_GRXFH, flow: flow as u32, fields: 0 };
    ioctl(interface, &mut hashed).map_err(failed)?;
    if hashed.fields != ENDS {
        return Ok(None);
    }
    // Without room it says how much there is to read.
    let mut sizes = EthtoolReceiveHash::new(0, 0);
    ioctl(interface, &mut *sizes).map_err(failed)?;
    if !sizes.fits() {
        return Ok(None);
    }
    let mut read = EthtoolReceiveHash::new(sizes.table_size, sizes.key_size);
    ioctl(interface, &mut *read).map_err(failed)?;
    Ok(read.hash())
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

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn table_and_key_are_where_the_kernel_puts_them() {
        assert_eq!(offset_of!(EthtoolReceiveHash, words), 24, "rss_config of struct ethtool_rxfh");
        let mut read = EthtoolReceiveHash::new(4, 6);
        read.function = EthtoolReceiveHash::TOEPLITZ;
        read.words[..4].copy_from_slice(&[0, 1, 2, 1]);
        read.words[4] = u32::from_ne_bytes([10, 11, 12, 13]);
        read.words[5] = u32::from_ne_bytes([14, 15, 16, 17]);
        let known = ReceiveHash { key: vec![10, 11, 12, 13, 14, 15], table: vec![0, 1, 2, 1] };
        assert_eq!(read.hash(), Some(known));
        read.transform = 1;
        assert_eq!(read.hash(), None, "both directions of a flow have one hash");
        let mut other = EthtoolReceiveHash::new(4, 6);
        other.function = 2;
        assert_eq!(other.hash(), None, "another function");
        let mut hidden = EthtoolReceiveHash::new(0, 6);
        hidden.function = EthtoolReceiveHash::TOEPLITZ;
        assert_eq!(hidden.hash(), None, "no table");
        assert!(!EthtoolReceiveHash::new(u32::MAX, u32::MAX).fits());
        assert_eq!(EthtoolReceiveHash::new(u32::MAX, 0).hash(), None);
    }

    #[test]
    fn an_interface_without_receive_side_scaling_says_so() {
        assert!(receive_hash("lo", Flow::TcpV4).is_err());
        assert!(receive_hash("there-is-none", Flow::UdpV6).is_err());
    }
}
