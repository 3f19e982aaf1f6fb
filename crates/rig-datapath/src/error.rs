//! What can go wrong between the programs and the kernel.

use std::net::{IpAddr, SocketAddr};

use rig_sys::advice;

use crate::kernel::{OLDEST_TRIED, version};

/// An error of a datapath.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("the kernel does not let this process load eBPF programs: {}", advice::rights(advice::PROGRAMS))]
    NotPermitted(#[source] std::io::Error),
    #[error(
        "the kernel does not tell its types (/sys/kernel/btf/vmlinux), which takes one built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes(#[source] std::io::Error),
    #[error("the kernel refuses the program `{program}`{}", needed(.source, version()))]
    Load { program: &'static str, source: libbpf_rs::Error },
    #[error("the program `{program}` calls bpf_{helper}, which this kernel does not have (Linux has it since {since})")]
    Helper { program: &'static str, helper: &'static str, since: &'static str },
    #[error("cannot {operation} map `{map}`")]
    Map { map: &'static str, operation: &'static str, source: libbpf_rs::Error },
    #[error("the compiled object has no {kind} `{name}`: its sources and this crate are of different versions")]
    Missing { kind: &'static str, name: String },
    #[error("the program `{program}` runs on packets as if they came in by an interface from Linux 5.15 on")]
    TestRunInterface { program: &'static str, source: libbpf_rs::Error },
    #[error("cannot run the program `{program}` on a packet")]
    TestRun { program: &'static str, source: libbpf_rs::Error },
    #[error("cannot attach to interface {interface}: {reason}")]
    Attach { interface: u32, reason: String, source: libbpf_rs::Error },
    #[error(
        "cannot close interface {interface} for when there is no router: it takes the kernel's clsact and bpf filters \
         (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF), and that preference 2 of the interface's ingress filters is free"
    )]
    Close { interface: u32, source: std::io::Error },
    #[error("cannot open interface {interface}, which was closed for when there is no router")]
    Open { interface: u32, source: std::io::Error },
    #[error("cannot list this network namespace's interfaces")]
    Interfaces { source: std::io::Error },
    #[error("cannot have the kernel ask for {address}: is there a route to it?")]
    Neighbor { address: IpAddr, source: std::io::Error },
    #[error("cannot watch the kernel's routes and neighbours, which are asked for more often instead")]
    Watch { source: std::io::Error },
    #[error("cannot {operation} {path}")]
    Pin { operation: &'static str, path: String, source: libbpf_rs::Error },
    #[error("{path} holds the tables of a balancer of another size or version: remove the directory to start anew")]
    PinnedOtherwise { path: String },
    #[error("there is room for {room} {what}, and {wanted} are wanted: load it with larger sizes")]
    NoRoom { what: &'static str, room: u32, wanted: usize },
    #[error("a balancer cannot be made for {wanted} {what}: {least} to {most}")]
    Size { what: &'static str, wanted: u32, least: u32, most: u32 },
    #[error(
        "service {service} has connections that are counted by {most} other lengths of its sources' prefixes: end them first"
    )]
    SourcePrefixes { service: SocketAddr, most: usize },
    #[error("CPU {cpu} cannot be a worker: {reason}")]
    Worker { cpu: u32, reason: &'static str },
    #[error("cannot put programs on {}, which has to be a directory of cgroup v2, without programs of others that bear none beside them", path.display())]
    Cgroup { path: std::path::PathBuf, source: libbpf_rs::Error },
    #[error("somebody captures packets of this balancer already, one at a time can")]
    Capturing,
    #[error("cannot draw a secret for the SYN proxy's cookies from /dev/urandom")]
    Secret { source: std::io::Error },
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A hint for a program that was refused by a kernel that is older than those on which it was tried. Empty where a limit stands in the way,
/// which the caller explains.
fn needed(source: &libbpf_rs::Error, version: Option<(u32, u32)>) -> String {
    match version {
        Some((major, minor)) if version < Some(OLDEST_TRIED) && advice::in_words(&format!("{source:#}")).is_none() => {
            let (oldest, of_it) = OLDEST_TRIED;
            format!(": this is Linux {major}.{minor}, and all programs load on {oldest}.{of_it} or later")
        }
        _ => String::new(),
    }
}

/// A configuration that cannot be carried out, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("service {service} is listed twice")]
    DuplicateService { service: SocketAddr },
    #[error("service {service}: backend {backend} is listed twice")]
    DuplicateBackend { service: SocketAddr, backend: SocketAddr },
    #[error(
        "service {service} of any port with full-nat: a connection's record has room for one port, which is the local one; use nat, route or tunnel"
    )]
    AnyPortFullNat { service: SocketAddr },
    #[error(
        "service {service} of any port: backend {backend} has a port, and packets go to the port that the client asked for"
    )]
    AnyPortBackend { service: SocketAddr, backend: SocketAddr },
    #[error("service {service}: port 0 of backend {backend} is not a port")]
    NoBackendPort { service: SocketAddr, backend: SocketAddr },
    #[error(
        "service {service}: {address} is unspecified, multicast, loopback or of IPv4 in IPv6: no service, backend or local address can be that"
    )]
    ServiceAddress { service: SocketAddr, address: IpAddr },
    #[error(
        "service {service}: {address} is of the other address family: only a service of IPv6 that is forwarded by full-nat may have backends and local addresses of IPv4"
    )]
    Family { service: SocketAddr, address: IpAddr },
    #[error("service {service}: backend {backend} is of {family}, and the service has no local address of {family}")]
    NoLocalOfFamily { service: SocketAddr, backend: IpAddr, family: &'static str },
    #[error("service {service}: backend {backend} has another port, and forwarding by {forward} cannot change it")]
    BackendPort { service: SocketAddr, backend: SocketAddr, forward: &'static str },
    #[error("service {service}: forwarding by {forward} needs at least one local address")]
    NoLocalAddress { service: SocketAddr, forward: &'static str },
    #[error("service {service}: local address {address} is listed twice")]
    DuplicateLocal { service: SocketAddr, address: IpAddr },
    #[error("service {service}: {address} is a service's address, and no local one")]
    LocalIsService { service: SocketAddr, address: IpAddr },
    #[error("service {service}: {address} is a backend's address, and no local one")]
    LocalIsBackend { service: SocketAddr, address: IpAddr },
    #[error(
        "service {service}: {address} is {whose}, and one of {prefix}, which its tunnels' sources are of: who has an address drops what comes from it"
    )]
    SourceInUse { service: SocketAddr, prefix: ipnet::IpNet, address: IpAddr, whose: &'static str },
    #[error("service {service}: backend {backend}: weight {weight} is more than {max}")]
    Weight { service: SocketAddr, backend: SocketAddr, weight: u32, max: u32 },
    #[error("service {service}: {count} backends are more than {max}")]
    Backends { service: SocketAddr, count: usize, max: usize },
    #[error("service {service}: timeout {name} must be between 1 s and 30 days")]
    Timeout { service: SocketAddr, name: &'static str },
    #[error("service {service}: the SYN proxy is for TCP")]
    SynProxy { service: SocketAddr },
    #[error("service {service}: backend {backend} has a lower limit without one that is at least as high")]
    LowerLimit { service: SocketAddr, backend: SocketAddr },
    #[error(
        "service {service}: backend {backend} is also one of {other}, and both have one_packet with nat: an answer says by its source alone which service it is of"
    )]
    SharedOnePacket { service: SocketAddr, other: SocketAddr, backend: SocketAddr },
    #[error("service {service}: {what}")]
    Limits { service: SocketAddr, what: &'static str },
    #[error(
        "service {service}: client_address is for full-nat, and \"toa\" and \"proxy_v2\" for TCP, \"uoa\" for UDP: by other ways to forward backends see clients' addresses"
    )]
    ClientAddress { service: SocketAddr },
    #[error(
        "service {service}: client_address with sloppy_tcp: of a connection that is picked up in its middle the backend can be told nothing any more, and clients could say themselves who they are"
    )]
    PickedUpClient { service: SocketAddr },
    #[error("the prefix {prefix} is in both lists, allow and deny, or has bits set behind its length")]
    Access { prefix: ipnet::IpNet },
    #[error("{0}")]
    Vrouter(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_not_told_as_the_kernels_version() {
        let hint = |errno, version| needed(&libbpf_rs::Error::from_raw_os_error(errno), version);
        assert_eq!(hint(22, Some((5, 4))), ": this is Linux 5.4, and all programs load on 5.10 or later");
        // Too many open files, a file system that is read-only.
        assert_eq!([24, 30].map(|errno| hint(errno, Some((5, 4)))), ["", ""]);
        assert_eq!([Some((5, 10)), Some((6, 18)), None].map(|version| hint(22, version)), ["", "", ""]);
    }
}
