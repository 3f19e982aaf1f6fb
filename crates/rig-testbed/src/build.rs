//! Testbeds that stand: namespaces, interfaces and addresses, alive as long as a [`Testbed`].

mod three;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use rig_sys::counters::NamespaceCounters;
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, QueueStats, TokenBucket, VethPair, Vxlan};
use rig_sys::netns::NetNs;
use rig_sys::{Error, Result};

use super::topology::{Endpoint, Family, Path, Topology, WireOptions};

/// The interface that joins an endpoint or a node to the outside; of a middle, to the client. Where there are several lanes,
/// that of the first.
pub const UPLINK: &str = "eth0";
/// The interface that joins a middle to the server, of the first lane.
pub const SERVER_LINK: &str = "eth1";
const BRIDGE: &str = "br0";
const VXLAN: &str = "vxlan0";
const VXLAN_VNI: u32 = 42;
/// RFC 7348.
const VXLAN_PORT: u16 = 4789;

/// A testbed that stands. Dropping it closes the namespaces, which is all it takes to remove it: nothing of it exists
/// outside them.
#[derive(Debug)]
pub struct Testbed {
    topology: Topology,
    nodes: Vec<LiveNode>,
}

#[derive(Debug)]
struct LiveNode {
    cpus: CpuSet,
    place: Place,
    containers: Vec<Place>,
}

impl LiveNode {
    /// Without containers: where load ends at such a node, it ends in the node's own network stack.
    fn is_plain(&self) -> bool {
        self.containers.is_empty()
    }
}

/// A namespace with the means to configure and observe it.
#[derive(Debug)]
pub struct Place {
    /// `node` or `node/container`.
    pub name: String,
    pub ns: NetNs,
    pub counters: NamespaceCounters,
    netlink: Netlink,
    /// Interfaces that netrig made here.
    interfaces: Vec<Interface>,
}

#[derive(Debug)]
struct Interface {
    name: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Veth,
    Macvlan,
    Bridge,
    Vxlan,
}

impl Kind {
    /// The kernel does not let a macvlan interface's offloads be switched: what it sends is segmented as it enters the
    /// interface below, before the wire.
    fn has_own_offloads(self) -> bool {
        self != Self::Macvlan
    }

    /// Whether the interface becomes operational by its own: a bridge does with its ports, a tunnel never says so.
    fn has_carrier(self) -> bool {
        matches!(self, Self::Veth | Self::Macvlan)
    }
}

/// Longest time for the kernel to work off the changes of carrier; a loaded machine takes milliseconds.
const CARRIER_PATIENCE: Duration = Duration::from_secs(5);

impl Testbed {
    /// Builds `topology`; `cpus` are the CPUs of each node, in the nodes' order.
    ///
    /// # Errors
    /// Names the step that the kernel refused. What was built until then is gone again.
    pub fn build(topology: &Topology, cpus: &[CpuSet]) -> Result<Self> {
        let mut nodes = Vec::with_capacity(topology.nodes().len());
        for (node, cpus) in topology.nodes().iter().zip(cpus) {
            let containers = node
                .containers
                .iter()
                .map(|container| Place::create(format!("{}/{container}", node.name)))
                .collect::<Result<_>>()?;
            nodes.push(LiveNode { cpus: cpus.clone(), place: Place::create(node.name.clone())?, containers });
        }
        let mut testbed = Self { topology: topology.clone(), nodes };
        if topology.family() == Family::Ipv6 {
            testbed.prepare_ipv6()?;
        }
        testbed.lay_wire()?;
        match topology.path() {
            Path::Raw => testbed.address_nodes(|_| true)?,
            Path::Etun => testbed.route_containers()?,
            Path::Bridge | Path::Colocated => testbed.bridge_containers(Uplink::Wire)?,
            Path::Macvlan => testbed.add_macvlans()?,
            Path::Vxlan => testbed.bridge_containers(Uplink::Vxlan)?,
            Path::Direct => testbed.address_lanes()?,
            Path::Balancer | Path::Nftables | Path::Haproxy | Path::Ipvs => testbed.route_through_middle()?,
        }
        testbed.finish()?;
        Ok(testbed)
    }

    /// Lets the kernels on the way route to the pools of endpoints that make their packets themselves. Where both ends
    /// are on one link there is nothing to route.
    ///
    /// # Errors
    /// When a kernel refuses a route.
    pub fn route_pools(&mut self) -> Result<()> {
        if self.topology.path().has_middle() {
            return self.route_lane_pools();
        }
        if self.topology.path() != Path::Etun {
            return Ok(());
        }
        let topology = &self.topology;
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let names = &topology.nodes()[number];
            for (index, container) in names.containers.iter().enumerate() {
                let endpoint = Endpoint { node: names.name.clone(), container: Some(container.clone()) };
                let Some(pool) = topology.pool(&endpoint) else { continue };
                let (subnet, prefix) = pool.subnet();
                // The container's own kernel says where the interface is, which the packets then find.
                let (via, _) = topology.container_address(number, index);
                node.place.netlink.add_route(subnet, prefix, via)?;
            }
        }
        if let [a, b] = &mut self.nodes[..] {
            for (node, other) in [(a, 1), (b, 0)] {
                let (subnet, prefix) = topology.pools_subnet(other);
                node.place.netlink.add_route(subnet, prefix, topology.node_address(other).0)?;
            }
        }
        Ok(())
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Namespaces of one node, its own first.
    pub fn places(&self, node: usize) -> impl Iterator<Item = &Place> {
        let node = &self.nodes[node];
        std::iter::once(&node.place).chain(&node.containers)
    }

    /// What the rate limit of a node's end of the wire has done so far; `None` when the wire has none.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn rate_limit(&self, node: usize) -> Result<Option<QueueStats>> {
        let limited = self.topology.wire().is_some_and(|wire| wire.rate.is_some());
        limited.then(|| self.nodes[node].place.netlink.queue_stats(UPLINK)).transpose()
    }

    pub fn cpus(&self, node: usize) -> &CpuSet {
        &self.nodes[node].cpus
    }

    /// The namespace of an endpoint and the CPUs of its node.
    pub fn endpoint(&self, endpoint: &Endpoint) -> Option<(&Place, &CpuSet)> {
        let node = self.topology.nodes().iter().position(|n| n.name == endpoint.node)?;
        let name = endpoint.to_string();
        let place = self.places(node).find(|place| place.name == name)?;
        Some((place, &self.nodes[node].cpus))
    }

    fn lay_wire(&mut self) -> Result<()> {
        let Some(wire) = self.topology.wire() else { return Ok(()) };
        if self.topology.path().is_of_three() {
            return self.lay_lanes(wire);
        }
        match &mut self.nodes[..] {
            [a, b] => {
                for node in [&*a, &*b] {
                    node.place.announce_steering(&node.cpus);
                }
                lay(wire, (a, UPLINK), (b, UPLINK))?;
                [a, b].iter().try_for_each(|node| node.place.steer_receive(UPLINK, wire, &node.cpus))
            }
            _ => Ok(()),
        }
    }

    /// Interfaces made from now on can use their addresses at once, and do not look for routers.
    fn prepare_ipv6(&mut self) -> Result<()> {
        const SETTINGS: [(&str, &str); 3] = [
            ("net.ipv6.conf.default.disable_ipv6", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
        ];
        self.all_places().try_for_each(|place| place.ns.sysctls(&SETTINGS))
    }

    fn address_nodes(&mut self, which: impl Fn(&LiveNode) -> bool) -> Result<()> {
        for (number, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| which(node)) {
            let (address, prefix) = self.topology.node_address(number);
            node.place.netlink.add_address(UPLINK, address, prefix)?;
        }
        Ok(())
    }

    fn route_containers(&mut self) -> Result<()> {
        let (forwarding, anywhere) = match self.topology.family() {
            Family::Ipv4 => ("net.ipv4.ip_forward", IpAddr::from(Ipv4Addr::UNSPECIFIED)),
            Family::Ipv6 => ("net.ipv6.conf.all.forwarding", IpAddr::from(Ipv6Addr::UNSPECIFIED)),
        };
        self.set_all_up()?;
        if self.topology.wire().is_some() {
            self.address_nodes(|_| true)?;
        }
        let mtu = self.topology.endpoint_mtu();
        for (number, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| !node.is_plain()) {
            node.place.ns.sysctl(forwarding, "1")?;
            for (index, container) in node.containers.iter_mut().enumerate() {
                let (address, prefix) = self.topology.container_address(number, index);
                let gateway = self.topology.gateway_address(number, index);
                let port = port_name(index);
                node.place.veth(&port, container, UPLINK, 1, mtu)?;
                node.place.netlink.add_address(&port, gateway, prefix)?;
                node.place.netlink.set_up(&port)?;
                container.netlink.add_address(UPLINK, address, prefix)?;
                container.netlink.set_up(UPLINK)?;
                container.netlink.add_route(anywhere, 0, gateway)?;
            }
        }
        if let [a, b] = &mut self.nodes[..] {
            for (node, other) in [(a, 1), (b, 0)] {
                let (subnet, prefix) = self.topology.containers_subnet(other);
                let gateway = self.topology.node_address(other).0;
                node.place.netlink.add_route(subnet, prefix, gateway)?;
            }
        }
        Ok(())
    }

    fn bridge_containers(&mut self, uplink: Uplink) -> Result<()> {
        let mtu = self.topology.endpoint_mtu();
        if let Uplink::Vxlan = uplink {
            self.set_all_up()?;
            self.address_nodes(|_| true)?;
            self.add_vxlans(mtu)?;
        }
        let wired = self.topology.wire().is_some();
        if let (Uplink::Wire, true) = (uplink, wired) {
            self.address_nodes(LiveNode::is_plain)?;
        }
        for (number, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| !node.is_plain()) {
            let place = &mut node.place;
            place.netlink.add_bridge(BRIDGE, mtu)?;
            place.own(BRIDGE, Kind::Bridge);
            match uplink {
                Uplink::Vxlan => place.netlink.set_bridge(VXLAN, BRIDGE)?,
                Uplink::Wire if wired => place.netlink.set_bridge(UPLINK, BRIDGE)?,
                Uplink::Wire => {}
            }
            for (index, container) in node.containers.iter_mut().enumerate() {
                let (address, prefix) = self.topology.container_address(number, index);
                let port = port_name(index);
                place.veth(&port, container, UPLINK, 1, mtu)?;
                place.netlink.set_bridge(&port, BRIDGE)?;
                container.netlink.add_address(UPLINK, address, prefix)?;
            }
        }
        Ok(())
    }

    fn add_vxlans(&mut self, mtu: u32) -> Result<()> {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let vxlan = Vxlan {
                name: VXLAN,
                vni: VXLAN_VNI,
                local: self.topology.node_address(number).0,
                port: VXLAN_PORT,
                underlay: UPLINK,
                mtu,
            };
            node.place.netlink.add_vxlan(&vxlan)?;
            node.place.own(VXLAN, Kind::Vxlan);
            node.place.netlink.add_vxlan_remote(VXLAN, self.topology.node_address(1 - number).0)?;
        }
        Ok(())
    }

    fn add_macvlans(&mut self) -> Result<()> {
        self.address_nodes(LiveNode::is_plain)?;
        for (number, node) in self.nodes.iter_mut().enumerate() {
            for (index, container) in node.containers.iter_mut().enumerate() {
                let (address, prefix) = self.topology.container_address(number, index);
                node.place.netlink.add_macvlan(UPLINK, UPLINK, &container.ns)?;
                container.own(UPLINK, Kind::Macvlan);
                container.netlink.add_address(UPLINK, address, prefix)?;
            }
        }
        Ok(())
    }

    /// Sets offloads where they differ from the default and brings everything up.
    fn finish(&mut self) -> Result<()> {
        if !self.topology.segmentation_offload() {
            for place in self.all_places() {
                for interface in place.interfaces.iter().filter(|i| i.kind.has_own_offloads()) {
                    disable_offloads(&place.ns, &interface.name)?;
                }
            }
        }
        self.set_all_up()?;
        if self.topology.path().is_of_three() {
            self.place_receiving()?;
        }
        self.wait_until_operational()
    }

    /// Waits for the interfaces that have a carrier; a packet that is sent earlier is lost, and costs its sender a second.
    fn wait_until_operational(&mut self) -> Result<()> {
        let deadline = Instant::now() + CARRIER_PATIENCE;
        for place in self.all_places() {
            for interface in place.interfaces.iter().filter(|interface| interface.kind.has_carrier()) {
                while !place.netlink.is_operational(&interface.name)? {
                    if Instant::now() > deadline {
                        let operation = format!("wait for {} of {} to carry packets", interface.name, place.name);
                        return Err(Error::new(operation, std::io::Error::from(std::io::ErrorKind::TimedOut)));
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
        Ok(())
    }

    fn set_all_up(&mut self) -> Result<()> {
        for place in self.all_places() {
            for interface in ["lo"].into_iter().chain(place.interfaces.iter().map(|i| i.name.as_str())) {
                place.netlink.set_up(interface)?;
            }
        }
        Ok(())
    }

    fn all_places(&mut self) -> impl Iterator<Item = &mut Place> {
        self.nodes.iter_mut().flat_map(|node| std::iter::once(&mut node.place).chain(&mut node.containers))
    }
}

#[derive(Debug, Clone, Copy)]
enum Uplink {
    Wire,
    Vxlan,
}

/// A wire between two nodes, with its limits.
fn lay(wire: WireOptions, a: (&mut LiveNode, &str), b: (&mut LiveNode, &str)) -> Result<()> {
    a.0.place.veth(a.1, &mut b.0.place, b.1, wire.queues, wire.mtu)?;
    for (node, interface) in [a, b] {
        if let Some(rate) = wire.rate {
            node.place.netlink.set_token_bucket(interface, token_bucket(rate))?;
        }
    }
    Ok(())
}

fn port_name(container: usize) -> String {
    format!("port{container}")
}

impl Place {
    /// The hardware address of an interface.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn mac(&self, interface: &str) -> Result<[u8; 6]> {
        let text = self.ns.sysfs()?.read(interface, "address")?;
        let mut mac = [0; 6];
        for (byte, digits) in mac.iter_mut().zip(text.trim().split(':')) {
            *byte = u8::from_str_radix(digits, 16).map_err(|error| {
                Error::new(format!("read the address of {interface} of {}", self.name), std::io::Error::other(error))
            })?;
        }
        Ok(mac)
    }

    fn create(name: String) -> Result<Self> {
        let ns = NetNs::create()?;
        Ok(Self {
            counters: NamespaceCounters::open(&ns)?,
            netlink: Netlink::open(&ns)?,
            interfaces: Vec::new(),
            name,
            ns,
        })
    }

    fn veth(&mut self, name: &str, far: &mut Self, peer: &str, queues: u32, mtu: u32) -> Result<()> {
        self.netlink.add_veth(&VethPair { name, peer, peer_ns: &far.ns, queues, mtu })?;
        self.own(name, Kind::Veth);
        far.own(peer, Kind::Veth);
        Ok(())
    }

    fn own(&mut self, name: &str, kind: Kind) {
        self.interfaces.push(Interface { name: name.to_owned(), kind });
    }

    /// Makes interfaces that are created from now on steer what they receive to `cpus`: the only way without root. Where
    /// it does not work (before Linux 6.4, or with a read-only /proc/sys), [`Self::steer_receive`] finds the mask unset
    /// and sets it, or says that it cannot.
    fn announce_steering(&self, cpus: &CpuSet) {
        let _ = self.ns.sysctl(DEFAULT_STEERING, &cpus.mask());
    }

    /// Makes the CPUs of this node process what `interface` receives, and other interfaces do as they always do. A veth
    /// hands its packets to the backlog of the CPU that sent them unless receive packet steering names others
    /// (Documentation/networking/scaling.rst).
    fn steer_receive(&self, interface: &str, wire: WireOptions, cpus: &CpuSet) -> Result<()> {
        self.announce_steering(&CpuSet::default());
        let sysfs = self.ns.sysfs()?;
        let wanted = cpus.mask();
        for queue in 0..wire.queues {
            let file = format!("queues/rx-{queue}/rps_cpus");
            // The kernel pads masks with zeroes to the number of possible CPUs.
            let now = sysfs.read(interface, &file)?.replace(',', "");
            if now.trim_start_matches('0') == wanted.replace(',', "").trim_start_matches('0') {
                continue;
            }
            sysfs.write(interface, &file, &wanted).map_err(|error| match error.is_permission() {
                false => error,
                true => Error::new(
                    "steer a node's receive processing to its CPUs without root (run as root, or on Linux 6.4 or newer)",
                    error.source,
                ),
            })?;
        }
        Ok(())
    }
}

/// Receive packet steering of interfaces that are created in a namespace.
const DEFAULT_STEERING: &str = "net.core.rps_default_mask";

/// Makes every packet of `interface` one segment, sent and received.
fn disable_offloads(ns: &NetNs, interface: &str) -> Result<()> {
    for offload in [Offload::Tso, Offload::Gso, Offload::Gro] {
        match ethtool::set(ns, interface, offload, false) {
            // A device without the offload cannot break the promise; one that cannot be switched off would.
            Err(error) if ethtool::get(ns, interface, offload).unwrap_or(true) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// A bucket of 1 ms and a queue of 5 ms, both large enough for the largest packets.
fn token_bucket(bits_per_second: u64) -> TokenBucket {
    let rate = bits_per_second / 8;
    let bytes = |milliseconds: u64, at_least: u64| u32::try_from((rate * milliseconds / 1000).max(at_least));
    TokenBucket {
        rate,
        burst: bytes(1, 128 * 1024).unwrap_or(u32::MAX),
        limit: bytes(5, 512 * 1024).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_the_largest_packet() {
        for rate in [WireOptions::RATE_MIN, 1_000_000_000, 10_000_000_000, 400_000_000_000] {
            let bucket = token_bucket(rate);
            assert!(bucket.burst > 65_536 + 14 && bucket.limit >= bucket.burst, "{rate}: {bucket:?}");
        }
    }
}
