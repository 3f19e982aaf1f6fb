//! Why packets are dropped and why they are left to the kernel: numbers that the programs count under.
//!
//! A number that was once given is never given again.

use crate::reasons::reasons;

reasons! {
    /// Why a packet was dropped.
    Drop {
        Fragment = 1, "fragment", "a fragment for one of the balancer's addresses that follows no known one",
            "of UDP it came before its first fragment, which alone has ports, or 2 s later; others, and those between IPv6 and IPv4, are not forwarded: lower the sender's MTU";
        IpOptions = 2, "ip_options", "IP options or extension headers on a packet for one of the balancer's addresses",
            "find out who sends them, or let them pass to the kernel";
        Ttl = 3, "ttl", "the packet's time to live has run out",
            "look for a routing loop between the balancer and its backends or clients";
        NoConnection = 4, "no_connection", "a TCP packet for a service that belongs to no known connection and begins none",
            "normal after a connection has expired; many of them are an attack, or timeouts that are too short";
        NoBackend = 5, "no_backend", "a new connection for a service that has no backend with a weight",
            "add a backend, or give one a weight";
        BackendsFull = 6, "backends_full", "a new connection while all backends are at their connection limit",
            "raise the limits or add backends";
        TableFull = 7, "table_full", "a new connection while the connection table is full",
            "raise `connections`, which needs a restart, or shorten timeouts";
        IndexFull = 8, "index_full", "a new connection whose places in the table are all taken, while there are free ones elsewhere",
            "raise `connections`, which needs a restart";
        NoLocalPort = 9, "no_local_port", "a new connection, and no free local port towards its backend",
            "add local addresses to the service, or backends";
        NoRoute = 10, "no_route", "the kernel has no route, or does not forward on the interface",
            "add a route; set net.ipv4.ip_forward=1 and net.ipv6.conf.all.forwarding=1";
        NoNeighbor = 11, "no_neighbor", "the kernel does not know the next hop's link-layer address",
            "check that it is up and answers: `ip neigh`, `ip route get ADDRESS`; the control plane makes the kernel ask";
        TooBig = 12, "too_big", "the packet is larger than the next link's MTU, and its sender was not told: IPv4 without DF, later fragments, IPv6 of up to 1280 bytes, or more than 477 a second",
            "raise the MTU, or lower the senders' (MSS), by what tunnels add: 20 to 32 bytes for IPv4, 40 to 52 for IPv6";
        Contended = 13, "contended", "the index was being written to by other CPUs for too long",
            "report it: this should not happen";
        NatClash = 14, "nat_clash", "a client uses one port towards two services that have a backend in common",
            "forward one of the services by FullNAT";
        NoLocalAddress = 15, "no_local_address", "the service has no local address",
            "give it one";
        Internal = 16, "internal", "the program found its tables in an impossible state",
            "report it: this should not happen";
        WorkerBusy = 17, "worker_busy", "a packet for a worker whose queue was full",
            "more workers";
        TooBigTold = 18, "too_big_told", "the packet is larger than the next link's MTU; its sender was told by ICMP",
            "nothing if it happens once for each path; otherwise check that ICMP reaches senders, or lower their MTU (MSS)";
        NotSent = 19, "not_sent", "the device that the packet was to leave by did not take it",
            "its queue was full, or its driver takes no frames of XDP programs: `ethtool -S DEV`; of a veth, the peer needs GRO or an XDP program";
        ServiceFull = 20, "service_full", "a new connection of a service that is at its limit",
            "raise the service's limit; where most of its connections are unanswered, see who begins them";
        Strays = 21, "strays", "a packet of no known connection to one of the balancer's addresses, more of which the kernel would have to answer than `strays` allows",
            "many of them are an attack, or come for what this machine passes on from such an address itself: then raise `strays`";
        SynAnswered = 22, "syn_answered", "a client's SYN that the SYN proxy answered itself: the backend gets one when the client answers",
            "nothing: with `syn_proxy = \"auto\"` a flood goes on while they come, and `netrig lb status` shows of which service";
        ProxyWaits = 23, "proxy_waits", "a packet of a connection of the SYN proxy's, before its backend has answered, that says nothing new; or a backend's that answers another SYN, which is reset",
            "nothing if few; many of them: see whether the service's backends answer, and whether their backlog is full (`ss -lnt`)";
        Denied = 24, "denied", "a new connection from an address that the lists `allow` and `deny` refuse",
            "nothing if it is meant; `netrig lb access` shows which prefix refuses how many, and takes prefixes out";
        SourceLimit = 25, "source_limit", "a new connection from a source that has as many as `source_limit` allows",
            "nothing if it is meant; many clients behind one address (NAT, a proxy) may need a higher limit: `netrig lb -E SERVICE --source-limit N`";
        SourceRate = 26, "source_rate", "a new connection from a source that begins them faster than `source_rate` allows",
            "nothing if it is meant; many clients behind one address (NAT, a proxy) may need a higher rate or burst: `netrig lb -E SERVICE --source-rate N --source-burst N`";
        NewRate = 27, "new_rate", "a new connection of a service that begins them faster than `new_rate` allows",
            "nothing while it is attacked, and it serves as many as it can; otherwise raise the rate or burst: `netrig lb -E SERVICE --new-rate N --new-burst N`";
        NotTold = 28, "not_told", "a packet that was to tell a backend its client's address, which went to it without: a SYN whose header had no room, or a datagram that is in fragments or too large for its link with it",
            "nothing of TCP: a SYN with many options, as with TCP Fast Open over IPv6, is told of by the next segment, as data of a SYN are not taken; of UDP a larger MTU between here and the backends";
        BeforeFirst = 29, "before_first", "a client's data with a number before its connection's first one, or a backend's SYN-ACK for another such number, before a header of `proxy_v2` has been acknowledged: what it carries could stand where the header belongs",
            "nothing if few: repeated segments of an older connection; many of them are clients that try to be taken for others";
        NoTemplate = 30, "no_template", "a new connection of a service with `persistence`, which goes on, but whose source is not remembered: there is no room for more sources",
            "raise [room] templates, or shorten persistence; forged sources take room, too: see who begins connections, and `syn_proxy`";
        NoEqual = 31, "no_equal", "a packet between a client of IPv6 and a backend of IPv4 that has no equal in the other family: an ICMP error of a kind that is not there, or a datagram without a checksum whose length is not that of its packet",
            "nothing: RFC 7915 drops such errors, too; of datagrams see what the backend sends";
        Admitted = 32, "admitted", "a reset by which an address has answered the SYN proxy, for a service by `route` or `tunnel`: its SYNs go to backends for 10 min",
            "nothing: about one for each client and 10 min while SYNs are answered";
    }
}

reasons! {
    /// Why a packet was left to the kernel.
    Pass {
        NotIp = 1, "not_ip", "neither IPv4 nor IPv6, or more than one VLAN tag", "nothing: ARP is among them";
        Malformed = 2, "malformed", "an impossible header or length", "find out who sends them";
        Protocol = 3, "protocol", "neither TCP nor UDP nor an ICMP error", "nothing: neighbor discovery is among them";
        NoService = 4, "no_service", "neither of a known connection nor for a service", "nothing: the host's own traffic";
        Fragment = 5, "fragment", "a fragment for another host, or let pass by policy", "nothing";
        IpOptions = 6, "ip_options", "IP options for another host, or let pass by policy", "nothing";
        IcmpUnknown = 7, "icmp_unknown", "an ICMP error about a packet of no known connection", "nothing";
        OtherMac = 8, "other_mac", "IP in a frame that is for another device, or for all on the link", "nothing: multicast is among them";
        NoConnection = 9, "no_connection", "a TCP packet of no known connection to a service at one of this machine's own addresses, which answers with a reset",
            "normal after a connection has expired or was ended; where they go on, timeouts may be too short, or sloppy_tcp is meant";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and numbers of an enum of reason.h with a prefix.
    fn in_c(prefix: &str) -> Vec<(String, u32)> {
        let header = include_str!("../../bpf/balancer/reason.h");
        let entries = header.lines().filter_map(|line| line.trim().strip_suffix(',')?.split_once(" = "));
        let ours = entries.filter_map(|(name, number)| {
            Some((name.strip_prefix(prefix)?.to_lowercase(), number.parse::<u32>().ok()?))
        });
        ours.collect()
    }

    #[test]
    fn both_sides_count_under_the_same_numbers() {
        let drops: Vec<_> = Drop::ALL.iter().map(|reason| (reason.key().to_owned(), reason.number())).collect();
        assert_eq!(in_c("DROP_"), drops);
        let passes: Vec<_> = Pass::ALL.iter().map(|reason| (reason.key().to_owned(), reason.number())).collect();
        assert_eq!(in_c("PASS_"), passes);
    }
}
