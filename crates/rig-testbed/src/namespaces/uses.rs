//! What the interfaces of a host are used for by the host itself.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rig_sys::netlink::{InterfaceAddress, InterfaceRoute, Link, Netlink};
use rig_sys::netns::{NetNs, NsFile, Sysfs};

/// Kinds of virtual interfaces that the kernel keeps in their namespace. It says so itself from Linux 6.12 on.
const IMMOVABLE: [&str; 3] = ["bond", "bridge", "team"];

/// What the interfaces of this process's network namespace are used for.
#[derive(Debug)]
pub(crate) struct Uses {
    pub(crate) links: Vec<Link>,
    pub(crate) addresses: Vec<InterfaceAddress>,
    routes: Vec<InterfaceRoute>,
    with_chosen_qdisc: BTreeSet<u32>,
    /// Where it may be mounted, as root may: what stands on an interface, of whatever kind, is told there.
    sysfs: Option<Sysfs>,
    /// This end of TCP connections.
    connections: Vec<SocketAddr>,
}

impl Uses {
    /// `netlink` speaks to the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn read(netlink: &Netlink) -> rig_sys::Result<Self> {
        let mut connections = Vec::new();
        for name in ["tcp", "tcp6"] {
            let mut text = String::new();
            // A kernel without IPv6 does not have the second.
            match NsFile::here(name) {
                Ok(file) => file.read(&mut text)?,
                Err(_) if name == "tcp6" => {}
                Err(error) => return Err(error),
            }
            connections.extend(established(&text));
        }
        Ok(Self {
            links: netlink.links()?,
            addresses: netlink.addresses()?,
            routes: netlink.routes()?,
            with_chosen_qdisc: netlink.with_chosen_qdisc()?,
            sysfs: NetNs::of_current_thread()?.sysfs().ok(),
            connections,
        })
    }

    /// Why the host cannot do without an interface, or netrig could not give it back as it was.
    pub(crate) fn of(&self, link: &Link) -> Option<String> {
        let name_of = |index: u32| {
            let found = self.links.iter().find(|link| link.index == index);
            found.map_or_else(|| format!("interface {index}"), |link| link.name.clone())
        };
        let routes = || self.routes.iter().filter(|route| route.goes_out_by(link.index));
        if routes().any(|route| route.is_default() && route.is_of_main_table()) {
            return Some("it has the default route".into());
        }
        if let Some(connection) = self.connections.iter().find(|connection| self.has(link, connection.ip())) {
            return Some(format!("a TCP connection goes over it, here {connection}"));
        }
        if let Some(controller) = link.controller {
            return Some(format!("it is a port of {}", name_of(controller)));
        }
        if let Some(port) = self.links.iter().find(|port| port.controller == Some(link.index)) {
            return Some(format!("{} is a port of it", port.name));
        }
        if let Some(above) = self.above(link) {
            return Some(format!("{above} stands on it"));
        }
        if let Some(kind) = link.kind.as_deref().filter(|kind| link.is_immovable || IMMOVABLE.contains(kind)) {
            return Some(format!("the kernel lets no interface of kind {kind} go to another network namespace"));
        }
        if let Some(route) = routes().find(|route| route.is_shared()) {
            return Some(format!("it shares the route {route} with others, which netrig could not put back"));
        }
        if self.with_chosen_qdisc.contains(&link.index) {
            return Some("it has settings of tc(8), which netrig could not put back".into());
        }
        link.has_xdp.then(|| "an XDP program is on it".into())
    }

    /// An interface that stands on this one, as of a VLAN or a tunnel, and that would go with it.
    fn above(&self, link: &Link) -> Option<String> {
        let by_link = self.links.iter().find(|above| stands_on(above, link.index)).map(|above| above.name.clone());
        by_link.or_else(|| {
            let entries = self.sysfs.as_ref()?.list(&link.name, "").ok()?;
            entries.iter().find_map(|entry| entry.strip_prefix("upper_").map(ToOwned::to_owned))
        })
    }

    fn has(&self, link: &Link, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.interface() == link.index && own.address() == Some(address))
    }
}

/// The other end of a veth pair stands beside the interface, not on it.
fn stands_on(above: &Link, index: u32) -> bool {
    let lower = above.far.filter(|far| far.namespace.is_none());
    above.kind.as_deref() != Some("veth") && lower.is_some_and(|far| far.index == index)
}

/// This end of each connection of `/proc/net/tcp` or `tcp6` that stands. An IPv4 address of an IPv6 socket is one.
fn established(text: &str) -> impl Iterator<Item = SocketAddr> {
    const ESTABLISHED: &str = "01";
    text.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (address, port) = local.split_once(':').filter(|_| state == ESTABLISHED)?;
        Some(SocketAddr::new(address_of(address)?, u16::from_str_radix(port, 16).ok()?))
    })
}

/// The kernel writes each 32 bits of an address as a number of the machine's own order.
fn address_of(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(digits.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut octets = [0; 16];
            for (at, part) in octets.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            Some(Ipv6Addr::from(octets).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn connections_that_stand_are_read_of_the_kernels_table() {
        let recorded = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 18012 1 0000000000000000 100 0 0 10 0
   1: 0200000A:0016 0100000A:D431 01 00000000:00000000 02:0009C4A5 00000000     0        0 21345 4 0000000000000000 20 4 31 10 -1
   2: 0200000A:A7F2 0100000A:0050 06 00000000:00000000 03:000013C8 00000000     0        0 0 3 0000000000000000
";
        let recorded6 = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 18014 1 0000000000000000 100 0 0 10 0
   1: 0000000000000000FFFF00000200000A:0016 0000000000000000FFFF00000100000A:9C40 01 00000000:00000000 02:000AFC80 00000000     0        0 30311 2 0000000000000000 20 4 30 10 -1
   2: B80D0120000000000000000002000000:0016 B80D0120000000000000000001000000:C001 01 00000000:00000000 02:000AFC80 00000000     0        0 30312 2 0000000000000000 20 4 30 10 -1
";
        let ends = |text| established(text).map(|end| end.to_string()).collect::<Vec<_>>();
        assert_eq!(ends(recorded), ["10.0.0.2:22"]);
        assert_eq!(ends(recorded6), ["10.0.0.2:22", "[2001:db8::2]:22"]);
    }

    #[test]
    fn what_is_no_line_of_the_table_is_no_connection() {
        for line in [
            "",
            "0:",
            "0: x y 01",
            "0: 0200000A 0100000A:1 01",
            "0: 0200:16 x 01",
            "0: 0200000A:99999 x 01",
            "0: é:1 x 01",
        ] {
            assert_eq!(established(line).count(), 0, "{line}");
        }
    }
}
