//! Frames that XDP programs redirect into a veth interface.

use std::os::fd::{AsFd, AsRawFd};

use super::assemble::Assembler;
use super::{bpf, kernel_is_before};
use crate::error::{Error, Result};
use crate::ethtool::{self, Offload};
use crate::netlink::Netlink;
use crate::netns::NetNs;

/// `XDP_PASS` of linux/bpf.h.
const PASS: i32 = 2;

/// Whether a veth interface takes such frames from its peer once it has generic receive offload. Before Linux 5.13 it takes
/// them only with an XDP program of its own (`veth_xdp_xmit` of drivers/net/veth.c).
pub fn offload_takes_redirected() -> bool {
    !kernel_is_before(5, 13)
}

/// Has the veth interface `name` of `ns` take frames that XDP programs redirect into its peer, or not any more: by generic
/// receive offload, and where that is not enough, by a program that lets all frames pass, too. It stays with the interface.
///
/// # Errors
/// When there is no such interface, and before Linux 5.13 when another XDP program is on it, or without CAP_BPF.
pub fn take_redirected(ns: &NetNs, name: &str, on: bool) -> Result<()> {
    ethtool::set(ns, name, Offload::Gro, on)?;
    if offload_takes_redirected() {
        return Ok(());
    }
    let mut netlink = Netlink::open(ns)?;
    if !on {
        return netlink.set_xdp(name, None);
    }
    let mut program = Assembler::default();
    program.end(PASS);
    let program = bpf::load_program(&program.finish(), 0);
    let program = program.map_err(|error| Error::new(format!("load an XDP program for {name}"), error))?;
    netlink.set_xdp(name, Some(program.as_fd().as_raw_fd()))
}
