/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the vRouter's programs and their control plane share; src/vrouter/shape.rs has the same layouts, and a test
 * holds both against each other. Addresses, ports and lengths of packets are in network byte order, all else in the machine's.
 */
#ifndef VROUTER_SHAPE_H
#define VROUTER_SHAPE_H

#include "lib/address.h"

/* Rules of a list, a bit each. */
#define RULE_WORDS 16
#define MAX_RULES (64 * RULE_WORDS)
#define MAX_LISTS 2
#define MAX_WAYS 64
/* Members of a network, here and elsewhere, that frames to all are copied to. */
#define MAX_MEMBERS 512
/* Flows that the sweep is told of at once, on old kernels. */
#define SWEPT_AT_ONCE 4096
/* Of a prefix's length: the number of its VRF comes first, with a bit for IPv4, whose addresses are in no prefix of IPv6. */
#define VRF_BITS 32
#define OF_IPV4 (1U << 31)
#define LABELS (1 << 20)
/* Reasons for drops have numbers below. */
#define REASONS 96
/* Dropped packets that are remembered for each CPU. */
#define LOGGED 256
/* A tick is 2^27 ns, 134 ms. */
#define TICK_SHIFT 27
/* Bytes of the largest IP packet that bpf_skb_adjust_room makes room in: see control.rs. */
#define LARGEST 16000

struct host_key {
	struct address address;
	__u32 vrf;
	__u32 pad;
};
_Static_assert(sizeof(struct host_key) == 24, "");

struct prefix_key {
	__u32 length;
	__u32 vrf;
	struct address address;
};
_Static_assert(sizeof(struct prefix_key) == 24, "");

struct mac_key {
	__u32 vrf;
	__u8 mac[6];
	__u16 pad;
};
_Static_assert(sizeof(struct mac_key) == 12, "");

/* Label: of MPLS or VXLAN, for tunnels; the number of ways, for ECMP, whose first is next hop `next_hop`. */
struct route {
	__u32 next_hop;
	__u32 label;
};

enum next_hop_kind {
	DISCARD = 0,
	TO_INTERFACE = 1,
	TO_TUNNEL = 2,
	TO_GATEWAY = 3,
	TO_VRF = 4,
	TO_ONE = 5,
	TO_ALL = 6,
};

enum encapsulation { MPLS_OVER_UDP = 1, MPLS_OVER_GRE = 2, VXLAN = 3 };

struct next_hop {
	__u8 kind;
	__u8 encapsulation;
	/* Of a tunnel: the largest inner IP packet, bytes. Of several ways, and of all: how many. */
	__u16 mtu;
	/* The kernel's number of the interface that packets leave by. */
	__u32 ifindex;
	/* Of an interface: its own number. Of a VRF: the table's. Of several ways, and of all: where these are. */
	__u32 number;
	/* Of all: how many of them are here, and come first. */
	__u32 source;
	/* Of all: whether frames to unknown addresses go there, too. */
	__u32 destination;
	__u32 gateway;
	/* Of an interface: the container's. Of a tunnel with an inner Ethernet header: its destination. */
	__u8 mac[6];
	__u16 pad;
};
_Static_assert(sizeof(struct next_hop) == 32, "");

/* Ways of a next hop that leads to several. */
struct ways {
	struct route way[MAX_WAYS];
};
_Static_assert(sizeof(struct ways) == 512, "");

/* Members that frames to all go to: interfaces here, then tunnels. */
struct members {
	struct route to[MAX_MEMBERS];
};
_Static_assert(sizeof(struct members) == 4096, "");

/* Another router: where the next hop to it is, and by which interface alone packets of its are taken, 0 for any. */
struct peer {
	__u32 ifindex;
	__be32 gateway;
	__u32 comes_by;
};
_Static_assert(sizeof(struct peer) == 12, "");

enum interface_flag {
	/* What it sends and receives is held against lists, and is of flows. */
	HAS_POLICY = 1,
	/* It may answer as a DHCP server. */
	SERVES_DHCP = 2,
	/* Its frames may come from any MAC address; those for it go to the one that the last of them came from. */
	ANY_MAC = 4,
};

struct interface {
	__u32 ifindex;
	__u32 vrf;
	/* Its own next hop. */
	__u32 next_hop;
	__u32 most_flows;
	__u32 outward[MAX_LISTS];
	__u32 inward[MAX_LISTS];
	__u8 mac[6];
	__u8 flags;
	/* The analyser of all its flows; 0 for none. */
	__u8 mirror;
	/*
	 * The MAC address that frames come from and go to, as word_of_mac() has it: `mac`, or with ANY_MAC the one that was learned, 0 before
	 * the first frame.
	 */
	__u64 known_mac;
	/* Without ANY_MAC: the other one that a frame came from last; 0 for none. */
	__u64 foreign_mac;
	/* The router's own addresses there, IPv4 and IPv6; 0 where it has none. */
	struct address gateway[2];
};
_Static_assert(sizeof(struct interface) == 88, "");

/*
 * Rules in their order, each a bit. Of a packet's remote address and of its protocol and port each, a row has the bits of the
 * rules that match it; the lowest bit that is in both rows is the first rule that matches (Lakshman and Stiliadis, "High-speed
 * policy-based packet forwarding using efficient multi-dimensional range matching", 1998).
 */
struct list {
	__u32 cuts_first, cuts_count;
	__u32 bounds_first, bounds_count;
	/* The row of rules that allow. */
	__u32 allow_row;
	__u32 allow_otherwise;
	/* What else is done, for each rule; none where no rule has more done. */
	__u32 also_first, also_count;
	/* For the log: the configuration's number of the list, and the epoch since which it has these rules. */
	__u32 number, since;
};
_Static_assert(sizeof(struct list) == 40, "");

/* What else a rule has done: bits in the place where is_allowed() has them; above, the number of an analyser, 0 for none. */
enum also {
	ALSO_LOG = 2,
};
#define ANALYSER_SHIFT 24
#define MOST_ANALYSERS 127

/* The first address of a range in which the same rules match; in the machine's order, so that they compare as numbers. */
struct cut {
	struct address from;
	__u32 row;
	__u32 pad;
};
_Static_assert(sizeof(struct cut) == 24, "");

/* Protocol and destination port, the lowest of a range in which the same rules match: protocol << 16 | port. */
struct bound {
	__u32 from;
	__u32 row;
};

/* Rules that match, the first in the lowest bit of the first word. */
struct row {
	__u64 word[RULE_WORDS];
};
_Static_assert(sizeof(struct row) == 128, "a row is two cache lines");

/*
 * A flow in one direction. `at` is the interface that the packets come from, or that they go to where they come from a
 * tunnel, with the protocol above it.
 */
struct flow_key {
	struct address source, destination;
	__u16 source_port, destination_port;
	__u32 at;
};
_Static_assert(sizeof(struct flow_key) == 40, "");
#define AT(interface, protocol) ((interface) | (__u32)(protocol) << 24)
#define AT_INTERFACE(at) ((at) & 0xffffff)
#define AT_PROTOCOL(at) ((at) >> 24)

/* A service whose flows are fat, of an interface: `at` as flows have it. */
struct fat_key {
	__u32 at;
	__be16 port;
	__u16 pad;
};
_Static_assert(sizeof(struct fat_key) == 8, "");

enum flow_flag {
	/* The direction of the packet that began it. */
	FORWARD = 1,
	/* A change of the configuration has forbidden it. */
	DENIED = 2,
	/* Of the direction that began it: what the log has of it last, let through or refused. */
	LOGGED_ALLOWED = 4,
	LOGGED_DENIED = 8,
	/* Of all ports of the client: the key has 0 in the place of its port. */
	FAT = 16,
};

/* What has been seen of TCP, by either direction, R for the one that answers. Contrail's letters. */
enum tcp_seen {
	SEEN_SYN = 0x01,
	SEEN_SYN_R = 0x02,
	SEEN_ESTABLISHED = 0x04,
	SEEN_ESTABLISHED_R = 0x08,
	SEEN_FIN = 0x10,
	SEEN_FIN_R = 0x20,
	SEEN_RST = 0x40,
};

struct flow {
	__u64 packets, bytes;
	/* Of the configuration under which it was let through. */
	__u32 epoch;
	__u32 next_hop;
	__u32 label;
	/* `at` of the other direction. */
	__u32 reverse_at;
	__u32 tick;
	/* Kept with the direction that began it. */
	__u32 tcp;
	__u16 tunnel_port;
	__u8 flags;
	/* The analyser that has copies of its packets; 0 for none. */
	__u8 mirror;
	__u32 begun;
};
_Static_assert(sizeof(struct flow) == 48, "");

struct fragment_key {
	struct address source, destination;
	__u32 at;
	__u32 identification;
};
_Static_assert(sizeof(struct fragment_key) == 40, "");

struct control {
	/* Changes with every change of routes and rules; never 0. */
	__u32 epoch;
	/* The router's own address of the underlay. */
	__u32 address;
	__u8 mac[6];
	/* Whether there may be fat flows. */
	__u16 fat;
	/* In place of the clock's tick, for tests; 0 for the clock. */
	__u32 fixed_tick;
};
_Static_assert(sizeof(struct control) == 20, "");

/* What has taken packets, places in `hops` of an interface. Tunnels are HOP_TUNNEL and their encapsulation. */
enum hop {
	HOP_RECEIVE = 0,
	HOP_ENCAP = 1,
	HOP_L2_ENCAP = 2,
	HOP_TRANSLATE = 3,
	/* No tunnel has encapsulation 0. */
	HOP_ECMP = 4,
	HOP_TUNNEL = 4,
	HOPS = 8,
};

struct traffic {
	/* From the container, and to it. */
	__u64 in_packets, in_bytes, out_packets, out_bytes;
	/* Dropped for any reason. */
	__u64 drops;
	/* Of packets from the container, and of those that come to it by tunnels. */
	__u64 hops[HOPS];
	/* From another MAC address than the one that was known. */
	__u64 foreign;
};
_Static_assert(sizeof(struct traffic) == 112, "");

/* A collector of copies of packets. */
struct analyser {
	/* Its source and destination are the outer packet's; `mtu` is that of the way there, the outer header included. */
	struct next_hop next_hop;
	__be16 port;
	__u16 pad;
	__u32 vni;
};
_Static_assert(sizeof(struct analyser) == 40, "");

/* Of an analyser; a copy that is still to be cut into segments is one. */
struct mirror_count {
	/* Bytes of the frames that were copied, as far as the copies have them. */
	__u64 packets, bytes;
	/* That do not have all of the packet; that could not be made. */
	__u64 cut, failed;
};

/* Frames to all that came from an interface, and what they were copied to. */
struct copy_count {
	__u64 frames, copies;
};

struct dropped_packet {
	__u64 time;
	struct address source, destination;
	__u16 source_port, destination_port;
	__u32 interface;
	__u8 protocol;
	__u8 reason;
	__u16 length;
	__u32 pad;
};
_Static_assert(sizeof(struct dropped_packet) == 56, "");

enum logged_flag {
	/* The list is for packets that the interface sends; otherwise for those that it receives. */
	LOG_SENDS = 1,
	/* Whether the rule allows, and whether the packet was let through: another list may have refused it. */
	LOG_RULE_ALLOWS = 2,
	LOG_LET_THROUGH = 4,
};

/* A flow that a rule of a list has decided about which logs. */
struct log_record {
	__u64 time;
	/* Of the direction that began it. */
	struct address source, destination;
	__u16 source_port, destination_port;
	__u32 interface;
	__u32 list, since;
	__u16 rule;
	__u8 protocol;
	__u8 flags;
	/* Of ICMP. */
	__u8 type;
	__u8 pad[3];
};
_Static_assert(sizeof(struct log_record) == 64, "");

/* Places in `log_counts`. */
enum log_count {
	LOG_WRITTEN = 0,
	/* The ring is full of records that have not been read. */
	LOG_LOST = 1,
	/* Refusals beyond what an interface may tell of. */
	LOG_HELD_BACK = 2,
	LOG_COUNTS = 3,
};

#endif
