//! What a driver counts for itself, by its own names, as `ethtool -S` shows it.

use std::collections::BTreeMap;
use std::io;

use super::ioctl;
use crate::error::{Error, Result};

/// Counters that there is room for; cards with the most queues have some thousands.
const MOST: usize = 8192;
/// Bytes of a name (`ETH_GSTRING_LEN`).
const NAME: usize = 32;
/// `ETH_SS_STATS`.
const COUNTERS: u32 = 1;

/// `struct ethtool_sset_info`, asked for one set.
#[repr(C)]
struct EthtoolSetInfo {
    command: u32,
    reserved: u32,
    sets: u64,
    length: u32,
    padding: u32,
}

/// `struct ethtool_gstrings`.
#[repr(C)]
struct EthtoolNames {
    command: u32,
    set: u32,
    length: u32,
    names: [[u8; NAME]; MOST],
}

/// `struct ethtool_stats`.
#[repr(C)]
struct EthtoolStatistics {
    command: u32,
    length: u32,
    values: [u64; MOST],
}

/// The counters of the driver of `interface` of the calling thread's namespace; none of a driver that has none.
///
/// # Errors
/// When the interface is not there, or its driver does not tell.
pub fn statistics(interface: &str) -> Result<BTreeMap<String, u64>> {
    read(interface).map_err(|e| Error::new(format!("read the driver's counters of {interface}"), e))
}

fn read(interface: &str) -> io::Result<BTreeMap<String, u64>> {
    const ETHTOOL_GSSET_INFO: u32 = 0x37;
    const ETHTOOL_GSTRINGS: u32 = 0x1b;
    const ETHTOOL_GSTATS: u32 = 0x1d;
    let mut info =
        EthtoolSetInfo { command: ETHTOOL_GSSET_INFO, reserved: 0, sets: 1 << COUNTERS, length: 0, padding: 0 };
    match ioctl(interface, &mut info) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(BTreeMap::new()),
        outcome => outcome?,
    }
    // A driver without counters takes the set out of what was asked for.
    if info.sets == 0 || info.length == 0 {
        return Ok(BTreeMap::new());
    }
    if info.length as usize > MOST {
        return Err(io::Error::other(format!("{} counters are more than there is room for", info.length)));
    }
    let mut names = Box::new(EthtoolNames {
        command: ETHTOOL_GSTRINGS,
        set: COUNTERS,
        length: info.length,
        names: [[0; NAME]; MOST],
    });
    ioctl(interface, &mut *names)?;
    let mut read = Box::new(EthtoolStatistics { command: ETHTOOL_GSTATS, length: info.length, values: [0; MOST] });
    ioctl(interface, &mut *read)?;
    let length = names.length.min(read.length) as usize;
    let named = names.names.iter().zip(read.values).take(length).map(|(name, value)| {
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        (String::from_utf8_lossy(name).trim().to_owned(), value)
    });
    Ok(named.filter(|(name, _)| !name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn lists_are_where_the_kernel_puts_them() {
        assert_eq!(offset_of!(EthtoolSetInfo, length), 16, "data of struct ethtool_sset_info");
        assert_eq!(offset_of!(EthtoolNames, names), 12, "data of struct ethtool_gstrings");
        assert_eq!(offset_of!(EthtoolStatistics, values), 8, "data of struct ethtool_stats");
    }

    #[test]
    fn a_driver_without_counters_has_none_and_no_interface_is_an_error() {
        assert_eq!(statistics("lo").unwrap(), BTreeMap::new());
        assert!(statistics("there-is-none").is_err());
    }
}
