//! Client, balancer and servers in namespaces.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::Error;
use rig_datapath::balancer::{Attachment, Balancer, Config, Drop, GenericXdp, Mode, Sizes};
use rig_skip::{Lack, skip};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{NeighborRefresh, Netlink, NextHop, VethPair};
use rig_sys::netns::{self, NetNs};
use rig_sys::xdp;
use rustix::io::Errno;

use crate::pool::Pooled;

/// What must come may take this long, on a machine that is busy with other things.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The network number of the client; servers have those from [`SERVERS`] on.
const CLIENT: u8 = 10;
const SERVERS: u8 = 20;
/// The interface of the client and of each server.
pub const HOST: &str = "eth0";

#[track_caller]
pub fn until(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !look() {
        assert!(Instant::now() < deadline, "{what}: it does not come");
        thread::sleep(Duration::from_millis(5));
    }
}

/// How the wires are.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub servers: u8,
    /// Of the wires between the balancer and its neighbours towards the servers.
    pub server_mtu: u32,
    pub narrow: MtuBottleneck,
    /// Whether senders leave checksums to their devices.
    pub offload: bool,
}

/// Where two routers are, with a wire of this MTU between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtuBottleneck {
    Nowhere,
    Client(u32),
    Server(u32),
}

impl Default for Plan {
    fn default() -> Self {
        Self { servers: 2, server_mtu: 1500, narrow: MtuBottleneck::Nowhere, offload: true }
    }
}

/// The namespaces, which live as long as this.
pub struct Wires {
    pub client: NetNs,
    pub here: NetNs,
    pub servers: Vec<NetNs>,
    /// From the host that they lead to, towards the balancer.
    pub routers: Vec<NetNs>,
    /// The balancer's interfaces: towards the client, and towards each server.
    pub interfaces: Vec<String>,
}

/// A host's address in the network of this number.
fn host(net: u8, ipv6: bool) -> IpAddr {
    address(net, 0, 2, ipv6)
}

fn address(net: u8, wire: usize, end: u8, ipv6: bool) -> IpAddr {
    if ipv6 { format!("fd{net}:{wire}::{end}").parse().unwrap() } else { IpAddr::from([10, net, wire as u8, end]) }
}

pub fn client(ipv6: bool) -> IpAddr {
    host(CLIENT, ipv6)
}

/// A port of the server of this number, counted from 0.
pub fn server(number: u8, ipv6: bool, port: u16) -> SocketAddr {
    SocketAddr::new(host(SERVERS + number, ipv6), port)
}

const FAMILIES: [(bool, u8); 2] = [(false, 24), (true, 64)];

/// Joins namespaces to a chain: the host first, the balancer last, routers between. On each wire the host's side has the
/// address 2, the other one 1.
fn chain(net: u8, nodes: &[&NetNs], mtus: &[u32], last: &str, offload: bool) {
    let mut links: Vec<Netlink> = nodes.iter().map(|node| Netlink::open(node).unwrap()).collect();
    for (wire, mtu) in mtus.iter().enumerate() {
        let near = if wire == 0 { HOST } else { "up" };
        let far = if wire + 2 == nodes.len() { last } else { "down" };
        let pair = VethPair { name: near, peer: far, peer_ns: nodes[wire + 1], queues: 1, mtu: *mtu };
        links[wire].add_veth(&pair).unwrap();
        for (node, name, end) in [(wire, near, 2), (wire + 1, far, 1)] {
            for (ipv6, prefix) in FAMILIES {
                links[node].add_address(name, address(net, wire, end, ipv6), prefix).unwrap();
            }
            links[node].set_up(name).unwrap();
            ethtool::set(nodes[node], name, Offload::Gro, true).unwrap();
        }
        if wire + 2 == nodes.len() {
            xdp::take_redirected(nodes[wire], near, true).unwrap();
        }
        if !offload {
            ethtool::set(nodes[wire], near, Offload::Checksum, false).unwrap();
        }
        until("the wire", || links[wire].is_operational(near).unwrap() && links[wire + 1].is_operational(far).unwrap());
    }
    for (ipv6, prefix) in FAMILIES {
        let anywhere: IpAddr = if ipv6 { [0_u16; 8].into() } else { [0; 4].into() };
        for wire in 0..mtus.len() {
            links[wire].add_route(anywhere, 0, address(net, wire, 1, ipv6)).unwrap();
            if wire > 0 {
                let to = if ipv6 { address(net, 0, 0, true) } else { IpAddr::from([10, net, 0, 0]) };
                links[wire + 1].add_route(to, prefix, address(net, wire, 2, ipv6)).unwrap();
            }
        }
    }
}

impl Wires {
    /// `None`, said aloud, where there can be no namespaces.
    pub fn new(plan: Plan) -> Option<Self> {
        if rig_sys::process::user_id() != 0 || !netns::may_create_namespaces() {
            skip(Lack::Root, "network namespaces and eBPF programs need it");
            return None;
        }
        let new = || NetNs::create().unwrap();
        let (client, here) = (new(), new());
        let servers: Vec<NetNs> = (0..plan.servers).map(|_| new()).collect();
        let routers = if plan.narrow == MtuBottleneck::Nowhere { Vec::new() } else { vec![new(), new()] };
        for node in routers.iter().chain([&here, &client]).chain(&servers) {
            let forward = if routers.iter().any(|router| std::ptr::eq(router, node)) || std::ptr::eq(node, &here) {
                "1"
            } else {
                "0"
            };
            let settings = [
                ("net.ipv4.ip_forward", forward),
                ("net.ipv6.conf.all.forwarding", forward),
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.conf.default.rp_filter", "0"),
                ("net.ipv4.tcp_mtu_probing", "0"),
                ("net.ipv4.ip_no_pmtu_disc", "0"),
                ("net.ipv4.icmp_ratelimit", "0"),
                ("net.ipv6.icmp.ratelimit", "0"),
            ];
            node.sysctls(&settings).unwrap();
            Netlink::open(node).unwrap().set_up("lo").unwrap();
        }
        let wires = |net, host, last: &str, wide, narrow: Option<u32>| match narrow {
            None => chain(net, &[host, &here], &[wide], last, plan.offload),
            Some(mtu) => {
                let nodes = [host, &routers[0], &routers[1], &here];
                chain(net, &nodes, &[wide, mtu, wide], last, plan.offload);
            }
        };
        let at_client = if let MtuBottleneck::Client(mtu) = plan.narrow { Some(mtu) } else { None };
        wires(CLIENT, &client, "clients", 1500, at_client);
        let mut interfaces = vec!["clients".to_owned()];
        for (number, server) in servers.iter().enumerate() {
            let at_server =
                if let MtuBottleneck::Server(mtu) = plan.narrow { Some(mtu).filter(|_| number == 0) } else { None };
            let name = format!("server{number}");
            wires(SERVERS + number as u8, server, &name, plan.server_mtu, at_server);
            interfaces.push(name);
        }
        let wires = Self { client, here, servers, routers, interfaces };
        wires.meet();
        Some(wires)
    }

    /// Has the kernel ask for its neighbours: a closed port answers with a reset.
    fn meet(&self) {
        let ask = |to: SocketAddr| {
            let answer = self.here.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(1))).unwrap();
            answer.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        };
        for (ipv6, _) in FAMILIES {
            until("the client", || ask(SocketAddr::new(client(ipv6), 9)));
            for number in 0..self.servers.len() as u8 {
                until("a server", || ask(server(number, ipv6, 9)));
            }
        }
    }

    /// Gives all servers the services' addresses, which they answer for directly.
    pub fn give_services(&self, addresses: &[&str]) {
        for server in &self.servers {
            let mut link = Netlink::open(server).unwrap();
            for address in addresses {
                let address: IpAddr = address.parse().unwrap();
                link.add_address("lo", address, if address.is_ipv4() { 32 } else { 128 }).unwrap();
            }
        }
    }

    /// Whether the kernel keeps neighbours fresh for others (Linux 5.16).
    pub fn manages_neighbors(&self) -> bool {
        let netlink = Netlink::open(&self.here).unwrap();
        let nobody = NextHop { address: [10, SERVERS, 0, 250].into(), interface: netlink.index("server0").unwrap() };
        let refresh = netlink.manage_neighbor(nobody).unwrap();
        netlink.release_neighbor(nobody).unwrap();
        refresh == NeighborRefresh::Kernel
    }

    /// Counters of client and servers that say that a packet came damaged.
    pub fn damage(&self) -> Vec<(String, u64)> {
        let hosts = [&self.client].into_iter().chain(&self.servers);
        hosts.flat_map(damage).collect()
    }
}

/// A file of /proc/net as seen from a namespace.
pub fn proc_net(ns: &NetNs, name: &str) -> String {
    ns.run(|| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap()).unwrap()
}

/// The kernel's counters of protocols (snmp_counter.rst), as `TcpInErrs` and the like.
pub fn counters(ns: &NetNs) -> Vec<(String, u64)> {
    let (snmp, snmp6) = (proc_net(ns, "snmp") + &proc_net(ns, "netstat"), proc_net(ns, "snmp6"));
    let lines: Vec<&str> = snmp.lines().collect();
    let mut counters = Vec::new();
    for pair in lines.chunks(2) {
        let ((protocol, names), (_, values)) = (pair[0].split_once(": ").unwrap(), pair[1].split_once(": ").unwrap());
        let values = values.split_whitespace().map(|value| value.parse().unwrap_or(0));
        counters.extend(names.split_whitespace().map(|name| format!("{protocol}{name}")).zip(values));
    }
    let pairs = snmp6.lines().filter_map(|line| line.split_once(char::is_whitespace));
    counters.extend(pairs.filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?))));
    counters
}

pub fn counter(ns: &NetNs, name: &str) -> u64 {
    counters(ns).into_iter().find(|(of, _)| of == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

fn damage(ns: &NetNs) -> Vec<(String, u64)> {
    let mut counters = counters(ns);
    // A SYN that is sent again after its answer was lost counts as an error, too.
    let challenged = counters.iter().find(|(name, _)| name == "TcpExtTCPSYNChallenge").map_or(0, |(_, count)| *count);
    counters.iter_mut().filter(|(name, _)| name == "TcpInErrs").for_each(|(_, count)| *count -= challenged.min(*count));
    counters.retain(|(name, count)| {
        *count > 0
            && (name.ends_with("InCsumErrors") || ["TcpInErrs", "IpInHdrErrors", "Ip6InHdrErrors"].contains(&&**name))
    });
    counters
}

/// A balancer on the wires, held by this process.
pub struct Lab {
    pub attachments: Vec<Attachment>,
    /// After its attachments, which are to go first.
    pub balancer: Pooled<Balancer>,
    pub wires: Wires,
}

/// `None`, said aloud, where eBPF programs cannot be loaded.
pub fn load(sizes: Sizes) -> Option<Pooled<Balancer>> {
    match Pooled::load(sizes) {
        Ok(balancer) => Some(balancer),
        Err(error @ rig_datapath::Error::NotPermitted(_)) => {
            skip(Lack::Root, error);
            None
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

impl Lab {
    pub fn new(plan: Plan, sizes: Sizes, config: &Config) -> Option<Self> {
        let wires = Wires::new(plan)?;
        wires.here.enter().unwrap();
        let mut balancer = load(sizes)?;
        balancer.apply(config).unwrap();
        let attachments = attach(&mut balancer, &wires.interfaces);
        Some(Self { balancer, attachments, wires })
    }

    /// What the balancer's daemon does about once a second; here more often.
    pub fn tend(&mut self) {
        // As there: a device may go while its neighbours are asked for.
        match self.balancer.ask_for_neighbors() {
            Err(Error::Neighbor { source, .. }) if Errno::from_io_error(&source) == Some(Errno::NODEV) => {}
            asked => drop(asked.unwrap()),
        }
        self.balancer.sweep_all().unwrap();
    }

    pub fn tend_until(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !look(self) {
            assert!(Instant::now() < deadline, "{what}: it does not come; drops: {:?}", self.drops());
            self.tend();
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Does `work` on another thread and tends the balancer meanwhile.
    pub fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                self.tend();
                thread::sleep(Duration::from_millis(20));
            }
            working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Drops that there have been.
    pub fn drops(&self) -> Vec<(Drop, u64)> {
        let mut drops = self.balancer.drops().unwrap();
        drops.retain(|(_, count)| *count > 0);
        drops
    }

    /// Drops that are faults. Others are not the balancer's: a veth's ring of 256, which a CPU empties that may be busy, has no room for some; and
    /// where the kernel manages no neighbours, packets come before the first is known.
    pub fn losses(&self) -> Vec<(Drop, u64)> {
        let mut drops = self.drops();
        let explained =
            |reason| reason == Drop::NotSent || (reason == Drop::NoNeighbor && !self.wires.manages_neighbors());
        drops.retain(|(reason, _)| !explained(*reason));
        drops
    }

    pub fn dropped(&self, reason: Drop) -> u64 {
        self.balancer.drops().unwrap().into_iter().find(|(of, _)| *of == reason).unwrap().1
    }

    pub fn connections(&self) -> usize {
        let mut count = 0;
        self.balancer.connections(|_| count += 1).unwrap();
        count
    }

    /// Once all clients have gone, nothing is left: no connection, no load of a backend, all places free again.
    pub fn is_left_clean(&mut self) {
        self.tend_until("the end of the last connection", |lab| lab.connections() == 0);
        let services = self.balancer.services().unwrap();
        let loads =
            services.iter().flat_map(|service| &service.backends).map(|backend| backend.active + backend.inactive);
        assert_eq!(loads.sum::<u32>(), 0, "backends have connections that are not there: {services:?}");
        let internal = [Drop::Internal, Drop::Contended].map(|reason| self.dropped(reason));
        assert_eq!(internal, [0, 0], "what should not be");
    }
}

/// To each interface of the calling thread's namespace, in its driver.
pub fn attach(balancer: &mut Balancer, interfaces: &[String]) -> Vec<Attachment> {
    let link = Netlink::here().unwrap();
    let one = |name: &String| {
        let attachment = balancer.attach(link.index(name).unwrap(), GenericXdp::Refused).unwrap();
        assert_eq!(attachment.mode(), Mode::Native);
        attachment
    };
    interfaces.iter().map(one).collect()
}

/// Bytes that do not repeat, always the same for a seed (splitmix64, Steele et al., OOPSLA 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes);
        bytes
    }
}
