//! What an agent does on its node, in whose network namespace its process is.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::die_with_parent;
use rig_testbed::UPLINK;
use rig_testbed::plan::DEFAULT_MTU;

/// Starts a program, which ends with the thread that calls this.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    die_with_parent(command).spawn()
}

/// What a program prints, given `input`.
///
/// # Errors
/// When it does not succeed, with what it said on standard error.
pub(crate) fn output(program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).with_context(|| format!("run {program}"))?;
    let mut stdin = child.stdin.take().context("speak to a child")?;
    // One that does not read all of it says why on standard error.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().with_context(|| format!("hear from {program}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{program} ended with {}: {}", output.status, why.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sets parameters of the kernel, by name and value.
///
/// # Errors
/// Names the first that is refused.
pub(crate) fn set_sysctls(settings: &[(&str, &str)]) -> Result<()> {
    Ok(NetNs::of_current_thread()?.sysctls(settings)?)
}

/// A parameter of the kernel.
///
/// # Errors
/// When there is none of this name.
pub(crate) fn sysctl(name: &str) -> Result<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let read = std::fs::read_to_string(path);
    Ok(read.with_context(|| format!("read {name}"))?.trim().to_owned())
}

/// The kernel's interfaces, addresses and routes.
///
/// # Errors
/// When the kernel does not answer.
pub(crate) fn netlink() -> Result<Netlink> {
    Ok(Netlink::open(&NetNs::of_current_thread()?)?)
}

/// Has the node take packets to these addresses for its own.
///
/// # Errors
/// When the kernel refuses one.
pub(crate) fn own(addresses: impl IntoIterator<Item = IpAddr>) -> Result<()> {
    let mut netlink = netlink()?;
    for address in addresses {
        netlink.add_address("lo", address, if address.is_ipv4() { 32 } else { 128 })?;
    }
    Ok(())
}

/// An interface that leads out of the node, for networks that are over one: its other end is in this namespace, which nothing else is in.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn lead_outside() -> Result<NetNs> {
    let outside = NetNs::create()?;
    let mut netlink = Netlink::here()?;
    netlink.add_veth(&VethPair { name: UPLINK, peer: UPLINK, peer_ns: &outside, queues: 1, mtu: DEFAULT_MTU })?;
    netlink.set_up(UPLINK)?;
    Netlink::open(&outside)?.set_up(UPLINK)?;
    Ok(outside)
}
