//! Why packets are dropped: numbers that the programs count under.
//!
//! Those below 64 are Contrail's for the same reason. A number that was once given is never given again.

use crate::reasons::reasons;

reasons! {
    /// Why the vRouter dropped a packet.
    Reason {
        Discard = 0, "discard", "a route that leads nowhere", "see where it comes from: `rt --dump`";
        Pull = 1, "pull", "a packet whose headers could not be brought together", "report it: this should not happen";
        InvalidIf = 2, "invalid_if", "an interface that the router does not know", "take the program off it, or configure it";
        InvalidArp = 3, "invalid_arp", "a question for an address (ARP, neighbor solicitation) that is malformed", "find out who sends them";
        FlowActionDrop = 10, "flow_action_drop", "of a flow that changed rules now forbid", "allow it if it should pass";
        FlowTableFull = 13, "flow_table_full", "a new flow while the table of flows is full", "a larger table, or limits for each interface";
        Push = 17, "push", "a packet that had no room for an outer header, or that a tunnel device of its container has wrapped already", "give the containers routes in place of a tunnel of their own kernel; where they have none, report it: this should not happen";
        TtlExceeded = 18, "ttl_exceeded", "the packet's time to live has run out, and its sender was not told, or not once more", "look for a routing loop";
        InvalidNh = 19, "invalid_nh", "a next hop that cannot take such a packet", "see the route: `rt --dump`, `nh --get`";
        InvalidLabel = 20, "invalid_label", "an unknown MPLS label", "check that both routers agree: `mpls --dump`";
        InvalidProtocol = 21, "invalid_protocol", "neither IPv4 nor IPv6 nor ARP", "nothing, or find out who sends them";
        Clone = 27, "clone", "a copy of a frame to all that could not be made", "less load, or a longer net.core.netdev_max_backlog";
        InvalidPacket = 31, "invalid_packet", "an impossible header or length, or a VLAN tag", "find out who sends them";
        InvalidVnid = 35, "invalid_vnid", "a VXLAN network identifier that no network has", "check that both routers agree: `vxlan --dump`";
        Fragments = 36, "fragments", "a fragment whose first one has not come, or of a tunnel's packet", "raise the underlay's MTU, or lower the containers'";
        InvalidSource = 37, "invalid_source", "from an address that is not behind the interface it came by", "give the interface the address, or find out who forges it";
        L2NoRoute = 38, "l2_no_route", "a frame for an unknown MAC address, or to all of a network where no container gets it", "nothing; see `broadcast` of the network";
        NewFlows = 42, "new_flows", "a new flow of an interface that has as many as it may have", "raise its limit, or see who begins so many";
        NoRoute = 64, "no_route", "no route to the destination", "add a route, or let the networks talk";
        TooBig = 65, "too_big", "larger than the tunnel takes, and the sender was not told: it goes to many, or cannot be cut into pieces, there is no gateway to tell it, or it was told 1,000 times in a second", "lower the containers' MTU";
        TooBigTold = 66, "too_big_told", "larger than the tunnel takes; the sender was told by ICMP", "nothing if it happens once for each path; otherwise lower the containers' MTU";
        TtlTold = 67, "ttl_told", "the packet's time to live has run out; the sender was told by ICMP", "nothing: traceroute does it";
        Policy = 68, "policy", "rules do not let it begin a flow", "allow it if it should pass";
        Ecn = 69, "ecn", "the underlay marked congestion on a packet whose sender does not know of ECN (RFC 6040)", "less load on the underlay";
        NoPeer = 70, "no_peer", "a tunnel's packet from an address that is not a peer's", "add the peer, or find out who sends them";
        Unanswered = 71, "unanswered", "a question for an address (ARP, neighbor solicitation) that the router does not answer for: the asker's own, one that it has no route to, or one that came over MPLS", "nothing: hosts that come up ask whether their address is taken";
        ManyCopies = 76, "many_copies", "a frame to all from a sender whose frames would make more than 100,000 copies a second", "find out why it sends them";
        ManyPieces = 77, "many_pieces", "larger than the tunnel takes, from a sender whose packets would be cut into more than 100,000 pieces a second, or 500 at once", "lower the container's MTU";
        Claim = 78, "claim", "a message that would tell other containers whose an address is or who the router is: a neighbor or router advertisement, a redirect, a query for groups, or a DHCP server's answer", "find out who sends it; a DHCP server's interface needs `dhcp_server = true`";
        PeerInterface = 79, "peer_interface", "a tunnel's packet from another node by an interface that the way back to it does not take", "find out who forges it; where the underlay's ways are asymmetric, set `strict_underlay = false`";
        ForeignMac = 80, "foreign_mac", "a frame from another MAC address than the only one that its interface may have", "give the container the address that the file says, or say another one or `mac = \"any\"` there";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_count_under_the_same_numbers() {
        let header = include_str!("../../bpf/vrouter/reason.h");
        let entries = header.lines().filter_map(|line| line.trim().strip_suffix(',')?.split_once(" = "));
        let theirs: Vec<_> = entries
            .filter_map(|(name, number)| Some((name.strip_prefix("REASON_")?.to_lowercase(), number.parse().ok()?)))
            .collect();
        let ours: Vec<_> = Reason::ALL.iter().map(|reason| (reason.key().to_owned(), reason.number())).collect();
        assert_eq!(theirs, ours);
    }

    #[test]
    fn every_number_has_a_place_in_the_table() {
        assert!(Reason::ALL.iter().all(|reason| reason.number() < super::super::shape::REASONS));
    }
}
