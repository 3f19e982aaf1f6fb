//! `netrig netperf` and `netrig netserver` against each other and, where these are on PATH, against the originals, in a world of
//! their own.

mod original;
mod own;

use std::path::Path;
use std::process::Command;

use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;

use super::ntttcp::process::{Process, ProcessOutput, until_listening};
use super::world::NETRIG;

/// netperf looks up families of addresses that the machine has on other interfaces than the loopback.
const HERE: [&str; 2] = ["10.9.0.1", "fd09::1"];
pub const PORT: u16 = 12_865;

pub fn netrig(tool: &str) -> Command {
    let mut command = Command::new(NETRIG);
    command.arg(tool);
    command
}

/// Addresses of this world.
fn give_addresses() {
    let here = NetNs::of_current_thread().unwrap();
    here.sysctls(&[("net.ipv6.conf.all.disable_ipv6", "0"), ("net.ipv6.conf.default.accept_dad", "0")]).unwrap();
    let mut link = Netlink::open(&here).unwrap();
    link.add_veth(&VethPair { name: "left", peer: "right", peer_ns: &here, queues: 1, mtu: 1500 }).unwrap();
    link.set_up("left").unwrap();
    link.set_up("right").unwrap();
    for (address, bits) in [(HERE[0], 24), (HERE[1], 64)] {
        link.add_address("left", address.parse().unwrap(), bits).unwrap();
    }
}

/// Another namespace behind a link of 1500 bytes: this end is 10.8.0.1.
fn link_to_another() -> NetNs {
    let (here, there) = (NetNs::of_current_thread().unwrap(), NetNs::create().unwrap());
    let [mut near, mut far] = [&here, &there].map(|ns| Netlink::open(ns).unwrap());
    near.add_veth(&VethPair { name: "near", peer: "far", peer_ns: &there, queues: 1, mtu: 1500 }).unwrap();
    for (side, name, address) in [(&mut near, "near", "10.8.0.1"), (&mut far, "far", "10.8.0.2")] {
        side.set_up(name).unwrap();
        side.add_address(name, address.parse().unwrap(), 24).unwrap();
    }
    there
}

/// A netserver in the foreground, which listens.
pub fn server(mut program: Command, options: &str) -> Process {
    let server = Process::start(&mut program, &format!("-D {options}"), Path::new("/"));
    until_listening(PORT);
    server
}

pub fn run(mut program: Command, options: &str) -> ProcessOutput {
    Process::start(&mut program, options, Path::new("/")).end()
}

/// Numbers of the last line that begins with one, and of the one before it where that does, too.
pub fn numbers(output: &ProcessOutput) -> Vec<Vec<f64>> {
    let row = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<Vec<f64>>>()
            .filter(|row| !row.is_empty())
    };
    output.out.lines().filter_map(row).collect()
}

/// The value of a selector in the output of `-k`.
#[track_caller]
fn value<'a>(output: &'a ProcessOutput, name: &str) -> &'a str {
    let line = output.out.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {name}: {output:#?}"))
}
