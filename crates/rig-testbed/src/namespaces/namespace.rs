//! A namespace of a testbed that stands, and the steps by which it comes to be as planned.

use std::io;

use rig_datapath::napi;
use rig_sys::counters::NamespaceCounters;
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{self, LinkCounters, Netlink, QueueStats, TokenBucket, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::{Error, Result};
use rustix::io::Errno;

use crate::plan::{Interface, InterfaceRef, Link, NamespacePlan};

/// A namespace with the means to configure and observe it.
#[derive(Debug)]
pub struct Namespace {
    /// `node` or `node/container`.
    pub name: String,
    pub ns: NetNs,
    pub counters: NamespaceCounters,
    /// Whether another of its node is the same.
    pub(super) is_shared: bool,
    netlink: Netlink,
    /// The CPUs to which interfaces that are made from now on steer received packets.
    announced: CpuSet,
    /// Interfaces over those of the host, each with the name of that.
    shared: Vec<(String, String)>,
    /// Ends of veth pairs, each with the other one.
    pairs: Vec<(String, InterfaceRef)>,
}

/// Receive packet steering of interfaces that are created in a namespace.
const DEFAULT_STEERING: &str = "net.core.rps_default_mask";

impl Namespace {
    /// The hardware address of an interface.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn mac(&self, interface: &str) -> Result<[u8; 6]> {
        let text = self.ns.sysfs()?.read(interface, "address")?;
        let mut mac = [0; 6];
        for (byte, digits) in mac.iter_mut().zip(text.trim().split(':')) {
            *byte = u8::from_str_radix(digits, 16).map_err(|error| {
                Error::new(format!("read the address of {interface} of {}", self.name), io::Error::other(error))
            })?;
        }
        Ok(mac)
    }

    /// An empty namespace, `lo` up, that behaves the same on every machine.
    pub(super) fn create(name: String) -> Result<Self> {
        let ns = NetNs::create()?;
        ns.reset_ipv4()?;
        let mut own = Self::of(name, ns)?;
        own.netlink.set_up("lo")?;
        Ok(own)
    }

    /// A namespace that is there, as it is.
    pub(super) fn of(name: String, ns: NetNs) -> Result<Self> {
        Ok(Self {
            counters: NamespaceCounters::open(&ns)?,
            is_shared: false,
            netlink: Netlink::open(&ns)?,
            announced: CpuSet::default(),
            shared: Vec::new(),
            pairs: Vec::new(),
            name,
            ns,
        })
    }

    pub(super) fn set_sysctls(&self, space: &NamespacePlan) -> Result<()> {
        self.refuse_to_change_the_machine(space)?;
        let settings: Vec<_> = space.sysctls.iter().map(|own| (own.key.as_str(), own.value.as_str())).collect();
        if settings.is_empty() { Ok(()) } else { self.ns.sysctls(&settings) }
    }

    /// Containers on the network of the machine that their engine is on share its namespace.
    fn refuse_to_change_the_machine(&self, space: &NamespacePlan) -> Result<()> {
        if (space.sysctls.is_empty() && space.chosen.is_empty())
            || self.ns.inode()? != NetNs::of_current_thread()?.inode()?
        {
            return Ok(());
        }
        let keys: Vec<&str> = space.sysctls.iter().chain(&space.chosen).map(|own| own.key.as_str()).collect();
        let why = "it is the machine's own network namespace, of which nothing is changed";
        Err(Error::new(format!("set {} in {}", keys.join(", "), self.name), io::Error::other(why)))
    }

    /// Makes interfaces that are created from now on steer what they receive to `cpus`: the only way without root. Where
    /// it does not work (before Linux 6.4, or with a read-only /proc/sys), [`Self::steer`] finds the mask unset and sets
    /// it, or says that it cannot.
    pub(super) fn announce(&mut self, cpus: Option<&CpuSet>) {
        let none = CpuSet::default();
        let cpus = cpus.unwrap_or(&none);
        if self.announced != *cpus {
            let _ = self.ns.sysctl(DEFAULT_STEERING, &cpus.mask());
            self.announced = cpus.clone();
        }
    }

    /// A veth pair with its other end elsewhere.
    pub(super) fn add_veth(&mut self, own: &Interface, elsewhere: &mut Self, far: &Interface) -> Result<()> {
        self.announce(own.steering.as_ref());
        elsewhere.announce(far.steering.as_ref());
        let (name, peer, queues) = (own.name.as_str(), far.name.as_str(), own.queues);
        self.netlink.add_veth(&VethPair { name, peer, peer_ns: &elsewhere.ns, queues, mtu: own.mtu.unwrap_or(MTU) })?;
        self.pairs.push((name.to_owned(), InterfaceRef::new(&elsewhere.name, peer)));
        elsewhere.pairs.push((peer.to_owned(), InterfaceRef::new(&self.name, name)));
        self.set_mac(own)?;
        elsewhere.set_mac(far)
    }

    /// The other end of a veth pair.
    pub(crate) fn far_of(&self, interface: &str) -> Option<&InterfaceRef> {
        self.pairs.iter().find(|(own, _)| own == interface).map(|(_, far)| far)
    }

    /// The host's interfaces on which some of these stand.
    pub(crate) fn below(&self) -> impl Iterator<Item = &str> {
        self.shared.iter().map(|(_, over)| over.as_str())
    }

    /// Where its interfaces say that frames were lost.
    pub(crate) fn lost_frames(&self) -> Result<Vec<LinkCounters>> {
        self.netlink.lost_frames()
    }

    /// A macvlan interface over one of this namespace, in another.
    pub(super) fn add_macvlan(&mut self, over: &str, elsewhere: &mut Self, own: &Interface) -> Result<()> {
        elsewhere.announce(own.steering.as_ref());
        self.netlink.add_macvlan(&own.name, over, &elsewhere.ns)?;
        elsewhere.set_mac(own)
    }

    /// A macvlan interface over one of the host's, by a socket into the host's namespace.
    pub(super) fn add_shared(&mut self, host: &mut Netlink, over: &str, own: &Interface) -> Result<()> {
        self.announce(own.steering.as_ref());
        host.add_macvlan(&own.name, over, &self.ns)?;
        self.shared.push((own.name.clone(), over.to_owned()));
        self.set_mac(own)
    }

    /// Sets what the plan says of an interface that has come into this namespace with an address of its own.
    pub(super) fn fit_taken(&mut self, own: &Interface) -> Result<()> {
        own.mtu.map_or(Ok(()), |mtu| self.netlink.set_mtu(&own.name, mtu))?;
        self.set_mac(own)
    }

    /// An interface that needs no other namespace.
    pub(super) fn add_link(&mut self, own: &Interface) -> Result<()> {
        let mtu = own.mtu.unwrap_or(MTU);
        match &own.link {
            Link::Bridge => {
                self.announce(own.steering.as_ref());
                self.netlink.add_bridge(&own.name, mtu)?;
            }
            Link::Vxlan { vni, port, local, underlay, remotes } => {
                self.announce(own.steering.as_ref());
                let (name, vni, local, port) = (own.name.as_str(), *vni, *local, *port);
                self.netlink.add_vxlan(&netlink::Vxlan { name, vni, local, port, underlay, mtu })?;
                remotes.iter().try_for_each(|remote| self.netlink.add_vxlan_remote(name, *remote))?;
            }
            // The other namespace comes into it.
            Link::Wire | Link::Veth { .. } | Link::Far | Link::Macvlan { .. } | Link::OfHost { .. } => return Ok(()),
        }
        self.set_mac(own)
    }

    fn set_mac(&mut self, own: &Interface) -> Result<()> {
        own.mac.map_or(Ok(()), |mac| self.netlink.set_mac(&own.name, mac.0))
    }

    /// Makes interfaces ports of their bridges.
    pub(super) fn set_bridges(&mut self, space: &NamespacePlan) -> Result<()> {
        for own in &space.interfaces {
            if let Some(bridge) = &own.bridge {
                self.netlink.set_bridge(&own.name, bridge)?;
            }
        }
        Ok(())
    }

    /// Sets the rate limits of interfaces, their offloads, and proxy ARP.
    pub(super) fn limit(&mut self, space: &NamespacePlan) -> Result<()> {
        let mut offloads: Vec<(&str, Offload, bool)> = Vec::new();
        for own in &space.interfaces {
            if let Some(rate) = own.rate {
                self.netlink.set_token_bucket(&own.name, token_bucket(rate))?;
            }
            offloads.extend(own.offloads.iter().map(|(offload, on)| (own.name.as_str(), *offload, *on)));
        }
        if !offloads.is_empty() {
            ethtool::set_all(&self.ns, &offloads)?;
        }
        let proxies = || space.interfaces.iter().filter(|own| own.proxy_arp);
        let sysctls: Vec<String> = proxies().map(|own| format!("net.ipv4.conf.{}.proxy_arp", own.name)).collect();
        if !sysctls.is_empty() {
            self.ns.sysctls(&sysctls.iter().map(|key| (key.as_str(), "1")).collect::<Vec<_>>())?;
        }
        proxies().try_for_each(|own| self.netlink.answer_proxies_at_once(&own.name))
    }

    pub(super) fn set_wires_up(&mut self, space: &NamespacePlan) -> Result<()> {
        self.set_up(space, Link::is_outward)
    }

    pub(super) fn set_others_up(&mut self, space: &NamespacePlan) -> Result<()> {
        self.set_up(space, |link| !link.is_outward())
    }

    fn set_up(&mut self, space: &NamespacePlan, which: impl Fn(&Link) -> bool) -> Result<()> {
        let mut interfaces = space.interfaces.iter().filter(|own| which(&own.link));
        interfaces.try_for_each(|own| self.netlink.set_up(&own.name))
    }

    pub(super) fn add_addresses(&mut self, space: &NamespacePlan) -> Result<()> {
        for own in &space.interfaces {
            for address in &own.addresses {
                self.netlink.add_address(&own.name, address.addr(), address.prefix_len())?;
            }
        }
        Ok(())
    }

    pub(super) fn add_routes(&mut self, space: &NamespacePlan) -> Result<()> {
        for route in &space.routes {
            let (destination, prefix) = (route.to.addr(), route.to.prefix_len());
            let interface = route.interface.as_deref();
            self.netlink.install_route(&netlink::Route { destination, prefix, gateway: route.via, interface })?;
        }
        let mut neighbours = space.neighbours.iter();
        neighbours.try_for_each(|own| self.netlink.add_neighbor(&own.interface, own.address, own.mac.0))
    }

    /// Places what interfaces receive: their threads first, then the CPUs that go on with it.
    pub(super) fn place_receiving(&mut self, space: &NamespacePlan) -> Result<()> {
        self.announce(None);
        for own in &space.interfaces {
            if let Some(threads) = &own.threads {
                napi::place(&self.ns, &own.name, &threads.cpus, threads.urgency)?;
            }
            if let Some(cpus) = &own.steering {
                self.steer(&own.name, own.queues, cpus)?;
            }
        }
        Ok(())
    }

    /// Sets what users chose. This is the last step, since it may replace settings of the steps before.
    pub(super) fn set_chosen(&mut self, space: &NamespacePlan) -> Result<()> {
        let name = self.name.clone();
        let here = |error: Error| Error::new(format!("{} in {name}", error.operation), error.source);
        for own in &space.interfaces {
            if !own.features.is_empty() {
                ethtool::set_features(&self.ns, &own.name, &own.features).map_err(here)?;
            }
            if let Some(threaded) = own.threaded {
                let word = if threaded { "1" } else { "0" };
                self.ns.sysfs()?.write(&own.name, "threaded", word).map_err(|error| {
                    let operation = format!("switch threaded NAPI of {}", own.name);
                    // Without it a veth interface has no queue of its own that a thread could serve.
                    let why = match Errno::from_io_error(&error.source) {
                        Some(Errno::OPNOTSUPP) => {
                            io::Error::other("it has no receive queues of its own; a veth has with GRO on")
                        }
                        _ => error.source,
                    };
                    here(Error::new(operation, why))
                })?;
            }
            if let Some(kind) = &own.qdisc {
                self.netlink.set_qdisc(&own.name, kind).map_err(|error| match error.source.kind() {
                    io::ErrorKind::NotFound => {
                        here(Error::new(error.operation, io::Error::other("the kernel has no qdisc of this kind")))
                    }
                    _ => here(error),
                })?;
            }
        }
        if space.chosen.is_empty() {
            return Ok(());
        }
        let chosen: Vec<_> = space.chosen.iter().map(|own| (own.key.as_str(), own.value.as_str())).collect();
        self.ns.sysctls(&chosen).map_err(|error| match error.source.kind() {
            io::ErrorKind::NotFound => {
                let why = "a network namespace has none of this name: it is the whole machine's, or there is none";
                here(Error::new(error.operation, io::Error::other(why)))
            }
            _ => here(error),
        })
    }

    /// Makes these CPUs process what `interface` receives. A veth hands its packets to the backlog of the CPU that sent them
    /// unless receive packet steering names others (Documentation/networking/scaling.rst).
    fn steer(&self, interface: &str, queues: u32, cpus: &CpuSet) -> Result<()> {
        let sysfs = self.ns.sysfs()?;
        let wanted = cpus.mask();
        for queue in 0..queues {
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

    pub(super) fn is_operational(&self, interface: &str) -> Result<bool> {
        self.netlink.is_operational(interface)
    }

    pub(super) fn queue_stats(&self, interface: &str) -> Result<QueueStats> {
        self.netlink.queue_stats(interface)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The kernel takes namespaces down some time after their end, and until then these would answer for addresses that the next
        // testbed has, too.
        for (name, _) in std::mem::take(&mut self.shared) {
            let _ = self.netlink.remove_link(&name);
        }
    }
}

/// That of an interface of which a plan says nothing, bytes.
const MTU: u32 = 1500;

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
    use crate::topology::WireOptions;

    #[test]
    fn buckets_hold_the_largest_packet() {
        for rate in [WireOptions::RATE_MIN, 1_000_000_000, 10_000_000_000, 400_000_000_000] {
            let bucket = token_bucket(rate);
            assert!(bucket.burst > 65_536 + 14 && bucket.limit >= bucket.burst, "{rate}: {bucket:?}");
        }
    }
}
