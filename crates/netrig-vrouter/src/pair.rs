//! Veth pairs of containers, which processes make that do not know each other's.

use std::io::ErrorKind;

use rig_sys::Result;
use rig_sys::netlink::{Netlink, VethPair};

/// Where kernels do not get to by counting from 1. A pair whose ends have the same number may wait for a second until it carries packets, and a
/// kernel that chooses gives both ends 2 in new namespaces; it takes the number of a far end only beside one of the near end.
const FIRST_NUMBER: u32 = 1 << 24;
/// Of pairs of them, below 2^31.
const NUMBERS: u32 = 1 << 29;
/// Numbers that are tried, where others have those before.
const ATTEMPTS: u32 = 8;

/// Makes a pair, whose ends have numbers that follow from a hash; `is_there` says whether there are devices of its names.
///
/// # Errors
/// The kernel's.
pub(crate) fn add(
    node: &mut Netlink,
    pair: &VethPair<'_>,
    hash: u64,
    is_there: impl Fn(&Netlink) -> bool,
) -> Result<()> {
    let number = FIRST_NUMBER + (hash % u64::from(NUMBERS)) as u32 * 2;
    let mut attempt = 0;
    while let Err(error) = node.add_veth_numbered(pair, [0, 1].map(|end| number + 2 * attempt + end)) {
        attempt += 1;
        if error.source.kind() != ErrorKind::AlreadyExists || is_there(node) || attempt == ATTEMPTS {
            return Err(error);
        }
    }
    Ok(())
}
