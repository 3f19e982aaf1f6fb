/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the balancer's programs and its control plane both know: the layout of every map. The Rust side of each
 * structure is in src/balancer/shape.rs; a test holds both against each other.
 *
 * A connection is a record of 64 bytes, in a table that is made like a set-associative cache: the hash of the client's packets
 * chooses a set, and the record is in one of its four ways, which costs one wait for memory. When all four are taken, it is in the
 * overflow, and an entry of 8 bytes in a bucket of the index leads there. Another index entry leads from the packets of the backend
 * to the record.
 *
 * Memory of one connection, by the tables for each that there may be: 1.5 records in sets and 1/8 in the overflow with its
 * element of `free_slots`, 104.5 bytes; index, at a fill of at most 4.5/7, 8 * 1.08 * 8/7 * 7/4.5 = 15.4 bytes and up to twice
 * that because buckets are a power of two. 120 bytes, for either family.
 *
 * Addresses and ports are in network byte order. Times are ticks of 2^27 ns (134 ms) of the monotonic clock.
 */
#ifndef BALANCER_SHAPE_H
#define BALANCER_SHAPE_H

#include "lib/address.h"

#define TICK_SHIFT 27

#define BUCKET_ENTRIES 7
/* Buckets in which an entry may lie: its own and those that it may spill to. */
#define PATH_BUCKETS 12
/*
 * Ports in a block. Connections to a backend differ by their local address and port. A CPU takes a block of ports of one address
 * from the backend's sequence, which all CPUs share, and assigns them one after the other. A block comes again when all others have.
 */
#define PORT_BLOCK 64
/* Local ports that are tried for one new connection: the first ones in sequence, the others with ever more blocks skipped. */
#define LOCAL_PORT_TRIES 32
#define SEQUENTIAL_TRIES 4
/* Blocks that are skipped at most, as a shift. */
#define MAX_SKIP_SHIFT 10
/* Blocks among which one is sought that is not held down. */
#define BLOCK_TRIES 8
/* Where most local ports are taken: how many are searched for one new connection, and for how many connections in a tick on a CPU. */
#define PORTS_SEARCHED 4096
#define SEARCHES_PER_TICK 16
/* Ticks of hold-down: a backend that closed first keeps the connection in TIME-WAIT for 60 s (RFC 9293, 3.4.2; Linux). */
#define HOLD_TICKS 448
/* Sequences of blocks, mostly more than there are backends: those that share one skip what the others have taken. */
#define PORT_SEQUENCES 4096
/* The least loaded backend of so many is looked for among all; of more, the less loaded of two. */
#define LEAST_SCANNED 16
/* Entries of a longer schedule that are walked through where both of the two are at their limits; the next walk goes on there. */
#define LEAST_WALKED 64
/* Entries of a schedule that are tried when backends are at their limit. */
#define SCHEDULE_TRIES 32
#define MAX_COUNTERS 64
#define WAYS 4
#define STATES 10

enum forward { FULLNAT = 1, NAT = 2, ROUTE = 3, TUNNEL = 4 };

enum scheduler { ROUND_ROBIN = 1, LEAST = 2, SOURCE_HASH = 3, FLOW_HASH = 4, SHORTEST_DELAY = 5, NEVER_QUEUE = 6 };

/* What tunnels have between the outer header and the packet. */
enum encapsulation { IP_IN_IP = 0, GUE = 1, GRE = 2 };

/*
 * Packets from the middle of a TCP connection begin one, as IPVS's sloppy_tcp has it. Each datagram is scheduled by itself (once.h).
 */
enum service_flag { SLOPPY_TCP = 1, ONE_PACKET = 2 };

/* Which backend a connection gets whose client uses again the port of one that is over. */
enum reuse { RESCHEDULE = 0, KEEP = 1 };

/* Whether first packets of TCP are answered by the SYN proxy (syn_proxy.h). */
enum syn_proxy { PROXY_OFF = 0, PROXY_AUTO = 1, PROXY_ALWAYS = 2 };

/* How a backend that sees local addresses is told of its clients' (client_address.h). */
enum client_address { ADDRESS_HIDDEN = 0, ADDRESS_TOA = 1, ADDRESS_PROXY_V2 = 2, ADDRESS_UOA = 3 };

/* Numbers are part of what is kept across restarts: never reuse one. */
enum state {
	FREE = 0,
	/* Picked up in the middle, nothing seen since. */
	NONE = 1,
	SYN_RECV = 2,
	ESTABLISHED = 3,
	/* The backend has closed its side; without a view of its packets: the client has. */
	FIN_WAIT = 4,
	/* The client has closed its side. */
	CLOSE_WAIT = 5,
	TIME_WAIT = 6,
	/* A reset has passed, which may be forged: BEFORE says what state a packet behind it leads back to. */
	CLOSE = 7,
	UDP_ONEWAY = 8,
	UDP_NORMAL = 9,
	/* Being filled in. */
	RESERVED = 14,
	/* Not to be found any more, and not yet to be used again: a packet may still be reading it. */
	DEAD = 15,
};

/* Direction of a packet, bit 31 of an index entry. */
enum direction { INWARD = 0, OUTWARD = 1 };

/*
 * live: tick of the last packet in the low 32 bits, state in the 8 above, and above these, in CLOSE, the state before.
 * Changed by compare-and-exchange alone.
 */
struct connection {
	__u64 live;
	struct address client;
	__u16 client_port;
	/* Of a service of any port, which has none of its own: the port that its client asked for (service_port of table.h). */
	__u16 local_port;
	__u16 service;
	__u16 local;
	__u16 backend;
	/* The counter that has it, below SPLICED and the others. */
	__u16 counter;
	/* One's-complement sums of what translation adds inward, over addresses and ports, and over addresses. */
	__u16 delta;
	__u16 address_delta;
	/*
	 * The route to the client: destination MAC in the low 48 bits; above, when it was looked up: a generation with the
	 * topmost bit set, or a time in units of 8 ticks.
	 */
	__u64 route;
	__u32 route_ifindex;
	__u8 route_source[6];
	__u16 route_mtu;
	/* The upper half of the hash of the client's packets. */
	__u32 tag;
};
_Static_assert(sizeof(struct connection) == 64, "a connection is one cache line");

/* It was made by the SYN proxy, and its numbers are translated: `splices` has a record of it. */
#define SPLICED 0x8000
/* It counts as one of the service's in `unanswered` while it is without an answer (is_waiting of table.h). */
#define COUNTED 0x4000
/* Of one that is SPLICED: its backend has not answered yet. */
#define OPENING 0x2000
/* Where it counts as one of its source's, which length of `limits` says what that is; 0 where it does not. */
#define SOURCE_SHIFT 10
#define OF_SOURCE(counter) ((counter) >> SOURCE_SHIFT & (SOURCE_LENGTHS - 1))
#define SOURCE_LENGTHS 8
/* Its backend has not shown yet that it has been told the client's address. */
#define TELLS 0x0200
/* A header of the PROXY protocol is before what its client sends, by which numbers differ; `splices` has the client's first one. */
#define PREFIXED 0x0100
/* Its backend is told by an option, or, of UDP, by a header of its own. */
#define OPTED 0x0080
/* Its client has IPv6 and its backend IPv4: headers are translated (family.h). */
#define MIXED 0x0040
#define COUNTER_MASK 0x003f
_Static_assert(MAX_COUNTERS - 1 <= COUNTER_MASK, "");

/*
 * What a connection has beside its record where the SYN proxy has opened it, or where it is PREFIXED, in an array that there is only where
 * a service has had such connections: most balancers do without.
 */
struct splice {
	/*
	 * In the low half the cookie, and from the backend's SYN-ACK on what is added to the backend's numbers. Above it enum phase, 8 bits;
	 * the backend's scale of windows, 8; by how much the client's are shifted, 8; whether windows are scaled. It is written as one word.
	 */
	__u64 word;
	/*
	 * The timestamp that the client has from here, and later what is added to the backend's. Of one that is not SPLICED: whether its backend
	 * has answered the first number, ANSWERED or 0.
	 */
	__u32 timestamp;
	/* The client's first number. */
	__u32 isn;
};
_Static_assert(sizeof(struct splice) == 16, "");

#define ANSWERED 1

enum phase { SPLICE_WAITING = 1, SPLICE_OPEN = 2 };

/* The SYN proxy's own window scale, as Linux has it by default. */
#define OWN_SCALE 7

/* Keys of epochs, by their numbers' last bits. `secret` is what the control plane makes them of. */
#define EPOCHS 4
struct cookie_keys {
	__u64 key[EPOCHS][2];
	__u64 secret[2];
	__u64 epoch;
};
_Static_assert(sizeof(struct cookie_keys) == 88, "");

/*
 * Slot n is way n % 4 of set n / 4. Set 0 is unused, so that 0 is no slot; the sets of the hash follow, then the overflow, and then one set
 * for each CPU, whose first record is that of a datagram that is scheduled by itself (once.h).
 */
struct set {
	struct connection way[WAYS];
};
_Static_assert(sizeof(struct set) == 256, "");

/* head: bit 63 is the lock of insertions, the low 32 bits count entries that passed this bucket for want of room. */
struct bucket {
	__u64 head;
	/* Hash's upper half, direction, slot; 0 is an empty entry. */
	__u64 entry[BUCKET_ENTRIES];
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is one cache line");
#define BUCKET_LOCK (1ULL << 63)

/* A part of the count of connections, for few CPUs. */
struct connection_count {
	__u64 used;
	__u64 pad[7];
};
_Static_assert(sizeof(struct connection_count) == 64, "counters do not share cache lines");

/*
 * The overflow's free slots. Those that were never used go first; then, first come first served, those that were given
 * back to `free_slots`. All three only grow.
 */
struct pool {
	__u64 fresh;
	__u64 taken, given;
};
_Static_assert(sizeof(struct pool) == 24, "");

struct service_key {
	struct address address;
	__u16 port;
	__u8 protocol;
	__u8 pad[5];
};
_Static_assert(sizeof(struct service_key) == 24, "");

/* Packets to the address: of services, and local ones. Packets from it: of backends that answer to clients' addresses. */
enum ownership { OWNED_TO = 1, OWNED_FROM = 2 };

/* schedule, locals: offset in `lists` in the low half, length in the upper. */
struct service {
	struct address address;
	/* 0: any that no other service has. So it is with FullNAT never, and with its backends' ports. */
	__u16 port;
	__u8 protocol;
	__u8 forward;
	__u8 scheduler;
	/* Bits of enum service_flag. */
	__u8 flags;
	/* What packets to its backends have for a DSCP, in its place in IPv4's TOS, and SETS_DSCP; 0: what they come with. */
	__u8 dscp;
	/* enum reuse */
	__u8 reuse;
	__u64 schedule;
	__u64 locals;
	/* Ticks by state. */
	__u32 timeout[STATES];
	/* Connections at which it gets no more; 0: no limit. */
	__u32 limit;
	/* Connections without an answer from which on PROXY_AUTO is in force. */
	__u32 proxy_from;
	/* enum syn_proxy */
	__u8 syn_proxy;
	/* Bits of enum access. */
	__u8 access;
	/* enum client_address */
	__u8 client_address;
	/* How many bits of an address are a source whose connections stay together, of 128; and for how many ticks, 0: not at all. */
	__u8 persistent_bits;
	__u32 persistence;
	/* As `locals`, which are of the service's own family: those of IPv4 of a service of IPv6, for backends of IPv4. */
	__u64 locals_v4;
	/* For the control plane, which may have been started anew: when connections end with their backend. */
	__u8 expire;
	/* Bytes of the server ID in connection IDs of QUIC, up to 7, and which number its configuration has there; 0 bytes: none is looked for. */
	__u8 quic_length;
	__u8 quic_configuration;
	__u8 pad[5];
};
_Static_assert(sizeof(struct service) == 112, "");
#define SETS_DSCP 1
#define DSCP_MASK 0xfc

/*
 * A source whose connections stay together, of a service or a group. Or an address of backends, of a service; or that of a backend whose
 * service has no connections for its answers, with the port and BY_SOURCE_PORT in place of the service. Or a server ID of QUIC, in the lower
 * half, below QUIC_HI, with BY_QUIC beside the service.
 */
#define BY_SOURCE_PORT 0x10000
#define BY_QUIC 0x20000
/* No address that a service or backend may have begins so (RFC 4291, 2.7). */
#define QUIC_HI 0xff00000000000000ULL
struct template_key {
	struct address source;
	__u32 service;
	__u32 pad;
};
_Static_assert(sizeof(struct template_key) == 24, "");

/* Where its last connection went, and until which tick the next one goes there, too. */
struct template {
	__u32 until;
	__u32 backend;
};
_Static_assert(sizeof(struct template) == 8, "");

/*
 * weight 0: keeps its connections and gets no new ones. limit 0: no limit. lower: one that has reached its limit gets no more until it has
 * fewer than so many; 0: until it has fewer than the limit.
 */
struct backend {
	struct address address;
	__u16 port;
	__u8 protocol;
	/* The sweep ends its connections. */
	__u8 ends;
	__u16 weight;
	/* The one that it is of. */
	__u16 service;
	__u32 limit;
	__u32 lower;
	/* Of tunnels to it: enum encapsulation; whether UDP has a checksum; and the port that it is to. */
	__u8 encapsulation;
	__u8 has_sum;
	__u16 tunnel_port;
	/* How many of the last bits of outer source addresses are of the flow's hash, up to 32. */
	__u8 source_bits;
	__u8 pad[3];
};
_Static_assert(sizeof(struct backend) == 40, "");

/* Which lists a service's first packets are looked up in, and whether it has limits for them. */
enum access { ACCESS_OWN = 1, ACCESS_OF_ALL = 2, ACCESS_LIMITED = 4 };

/*
 * Of the trie of all lists. `bits` are those of `list` and of the address, as far as the prefix goes. `list` is a service's number,
 * 0 for all services', and ACCESS_V6: the prefix of no length is another one for each family.
 */
struct access_key {
	__u32 bits;
	__u32 list;
	struct address address;
};
_Static_assert(sizeof(struct access_key) == 24, "");
#define ACCESS_V6 0x10000
#define ACCESS_BITS 160

/* What is said of a prefix: whether it is allowed, its length, and the number that packets are counted under. */
struct access_rule {
	__u32 number;
	__u16 allows;
	__u16 length;
};
_Static_assert(sizeof(struct access_rule) == 8, "");

/*
 * How fast a service and each of its sources may begin connections, and how many each source may have (sources.h). Of rates the time from
 * one to the next and how far ahead of that they may be, which is the burst less one; nanoseconds. 0: no limit.
 */
struct limits {
	__u64 gap, slack;
	__u64 source_gap, source_slack;
	__u32 source_limit;
	/* Which of `length` is in force; 0 where sources are not limited. */
	__u32 current;
	/* How many bits of an address are its source, of 128. Connections are known by these that have begun under other ones. */
	__u8 length[SOURCE_LENGTHS];
	/* Services with the same one share templates of sources; 0: none does. It has a bit that numbers of services have not. */
	__u32 group;
	__u32 pad;
};
_Static_assert(sizeof(struct limits) == 56, "");

/* Connections in the low half of `word`, and above it a part of the hash. `next` is when a connection may begin that is not ahead. */
struct source {
	__u64 word, next;
};
_Static_assert(sizeof(struct source) == 16, "");
#define SOURCE_WAYS 4
struct source_set {
	struct source way[SOURCE_WAYS];
};
_Static_assert(sizeof(struct source_set) == 64, "a set is one cache line");

/*
 * Connections in the low half, established ones in the upper; and of one with a lower limit, the upper one that it has reached while it waits
 * to fall below that.
 */
struct load {
	__u64 connections;
	__u64 full;
};
_Static_assert(sizeof(struct load) == 16, "");

/* New connections of a service that were refused on one CPU, by enum drop: reasons from 32 on are of other packets. */
struct refusals {
	__u64 of[32];
};
_Static_assert(sizeof(struct refusals) == 256, "");

struct traffic_count {
	__u64 connections;
	__u64 in_packets, in_bytes;
	__u64 out_packets, out_bytes;
	/* Resets of the backend in place of an answer to a first packet: nobody listens there (is_refusal of state.h). */
	__u64 refused;
};
_Static_assert(sizeof(struct traffic_count) == 48, "");

enum knowledge { UNKNOWN = 0, KNOWN = 1 };

/* What routes to backends depend on, which the control plane finds out from routes and rules. */
enum route_key { BY_BACKEND = 0, BY_SOURCE = 1, BY_PORTS = 2 };

/*
 * What the control plane knows of routes and neighbours, read and written as one word. In ticks up to `watched_until` it
 * watches them: then the route to a client holds as long as the generation, 15 bits; later on, for 8 ticks.
 */
struct routing {
	__u32 watched_until;
	__u16 generation;
	/* enum route_key */
	__u16 key;
};
_Static_assert(sizeof(struct routing) == 8, "");

/* The route to a backend as one CPU knows it. */
struct cached_route {
	/*
	 * When it was looked up: as in a connection's `route` in the low half, the time above in either case. There are few, and
	 * the kernel says nothing of path MTUs to tunnels' ends.
	 */
	__u32 stamp;
	__u32 ifindex;
	__u8 source[6], destination[6];
	__u16 mtu;
	/* enum knowledge */
	__u16 known;
	__u32 backend;
	/* A hash of all that it depends on beside the backend; 0 where that is nothing. */
	__u32 flow;
};
_Static_assert(sizeof(struct cached_route) == 32, "");

/* The neighbour, by address and interface, that a packet was to go to, and the backend behind it; 0 for packets to clients. */
struct next_hop {
	struct address address;
	__u32 ifindex;
	__u32 backend;
};
_Static_assert(sizeof(struct next_hop) == 24, "");

/*
 * An interface by itself, `tag` 0: frames of a VLAN device leave by its parent, `ifindex`, with the tag `id`. Or an interface and a tag: frames that
 * come in by it with the tag belong to the VLAN device `ifindex`, whose address is `mac`.
 */
#define WITH_TAG 0x10000
struct vlan_key {
	__u32 ifindex, tag;
};
_Static_assert(sizeof(struct vlan_key) == 8, "");
struct vlan {
	__u32 ifindex;
	__u16 id;
	__u8 mac[6];
};
_Static_assert(sizeof(struct vlan) == 12, "");
#define MOST_VLANS 8192
/* In the number of an interface, of a route or a packet, that is such a VLAN device. */
#define OF_VLAN 0x80000000
/* Of an 802.1Q tag's first two bytes. */
#define VLAN_ID 0x0fff

/* The MTU of a tunnel, of the outer packet, by a message of a router on its path, and when that came. */
struct path_mtu {
	__u32 tick, mtu;
};
_Static_assert(sizeof(struct path_mtu) == 8, "");
/* Ticks for which it is believed, 600 s (RFC 1191, 6.3). */
#define PATH_MTU_TICKS 4471

/* How often one CPU has done in this tick what is limited: ICMP messages sent, packets left to the kernel ... */
struct rate_limit {
	__u32 tick, used;
};
_Static_assert(sizeof(struct rate_limit) == 8, "");
#define ICMP_PER_TICK 64

/* The last one for fragments alone. */
enum policy { POLICY_DROP = 0, POLICY_PASS = 1, POLICY_FORWARD = 2 };

/* Of which datagram a fragment is (RFC 791, 3.2; RFC 8200, 4.5). */
struct fragment_key {
	struct address source, destination;
	__u32 id, pad;
};
_Static_assert(sizeof(struct fragment_key) == 40, "");

/* What its first fragment has said, and when. */
struct first_fragment {
	__u16 source_port, destination_port;
	__u32 tick;
};
_Static_assert(sizeof(struct first_fragment) == 8, "");
/* Ticks for which the others may come after it, 2 s: after more than that its sender may have given the identification to another datagram. */
#define FRAGMENT_TICKS 15

struct control {
	/* 0: the kernel's clock. Anything else is the time, for tests. */
	__u32 fixed_tick;
	__u8 fragments;
	__u8 options;
	/* The kernel goes on with the buffer that it had, so that a partial checksum must stay partial. */
	__u8 keeps_offload;
	/* Packets that leave by the interface that they came in by are redirected there. */
	__u8 redirects_back;
	/* Packets for its addresses that a CPU leaves to the kernel in a tick, of each reason; 0: no limit. */
	__u32 strays;
	/* `members` has backends whose packets come back without a connection. */
	__u16 has_entries_back;
	/* There are backends whose tunnels are of UDP. */
	__u8 has_gue;
	/* There are services of any port. */
	__u8 has_any_port;
};
_Static_assert(sizeof(struct control) == 16, "");

/* Constants of a loaded program. */
struct tuning {
	/* Of the hash. */
	__u64 key[11];
	__u32 bucket_mask;
	__u32 counters;
	__u32 connections_per_counter;
	/* Local ports: the first, and blocks of them. */
	__u16 port_low, port_blocks;
	__u32 hold_mask;
	/* Sets of the hash, and slots of overflow behind them. */
	__u32 sets;
	__u32 overflow;
	/* SHAPE_VERSION of the control plane that has made the tables (src/balancer/shape.rs). */
	__u32 version;
	__u32 cached_mask;
	/* Sets of sources. */
	__u32 source_sets;
};
_Static_assert(sizeof(struct tuning) == 128, "");

/* Where a backend's sequence goes on: the first port of the next block, and the first that has not been searched yet. */
struct port_sequence {
	__u64 block, search;
};
_Static_assert(sizeof(struct port_sequence) == 16, "");

/* A block with a connection that its backend has closed first: which, and the tick of that one's last packet. */
struct hold_down {
	__u32 check, tick;
};
_Static_assert(sizeof(struct hold_down) == 8, "");

/* Workers that packets are spread over. */
#define MAX_WORKERS 128
/* In place of a CPU: packets of this worker are handled where they have come in. */
#define AT_ONCE 0xffffffff

struct spreading {
	__u32 workers;
	__u32 cpu[MAX_WORKERS];
};
_Static_assert(sizeof(struct spreading) == 516, "");

/* What the kernel takes for an entry of a CPU map (linux/bpf.h, struct bpf_cpumap_val). */
struct worker_queue {
	__u32 packets;
	__s32 program;
};
_Static_assert(sizeof(struct worker_queue) == 8, "");

enum reopening { REOPENED = 1, REOPENED_SAME_BACKEND = 2 };

/* What became of a traced packet; 0 is none in all fields. */
struct trace {
	/* enum kind, and 1. */
	__u32 kind;
	/* Slot and direction of the connection that it belongs to, and its `live`. */
	__u32 entry;
	__u64 live;
	/* enum reopening: that connection ends, and its client opens another one. */
	__u32 reopening;
	/* For a new connection: numbers of service and backend, and whether it is created. */
	__u32 service, backend, created;
	/* By which interface it leaves, and how large packets may be there, of this one's own bytes. */
	__u32 ifindex, mtu;
	__u32 cpu;
	/* Workers share such packets. */
	__u32 owned;
	/* For a new connection: its source is kept at the backend; its connection ID of QUIC names that. */
	__u32 kept, named;
	/* The hash of its tuple. */
	__u64 hash;
	/* The connection as it would be. */
	struct connection copy;
	struct splice splice;
	/* Which prefix of a list decides on it: the client's address as far as the rule's length says; `number` 0 is none. */
	struct access_key client;
	struct access_rule rule;
};
_Static_assert(sizeof(struct trace) == 176, "");

/* What became of a connection that another balancer has told of. Numbers are those of `Adopted` in src/balancer/adopt.rs. */
enum adopted {
	ADOPT_CREATED = 1,
	ADOPT_UPDATED = 2,
	/* What is here is as late, or later. */
	ADOPT_KEPT = 3,
	/* Its service or backend has gone meanwhile. */
	ADOPT_STALE = 4,
	ADOPT_SERVICE_FULL = 5,
	ADOPT_BACKEND_FULL = 6,
	ADOPT_TABLE_FULL = 7,
	ADOPT_NO_ROOM = 8,
	ADOPT_CONTENDED = 9,
	ADOPT_PORT_TAKEN = 10,
	ADOPT_NO_LOCAL = 11,
	/* Its service ends the connections of this backend. */
	ADOPT_ENDS = 12,
};

/* Ticks by which two machines' times of one packet may differ: each counts from a moment of its own. */
#define ADOPTION_SLACK 2

struct adoption {
	struct address client;
	/* The second as in a connection. */
	__u16 client_port, local_port;
	/* Numbers here. */
	__u16 service, backend, local, pad;
	/* As above the tick in a connection's `live`. */
	__u32 state;
	/* Ticks since its last packet. */
	__u32 idle;
	/* Results: enum adopted, the slot of the record, the tick of its last packet, and the time. */
	__u32 result, slot, tick, now;
	__u32 unused;
};
_Static_assert(sizeof(struct adoption) == 56, "");

/* Added to the number of a reason why packets are left to the kernel, where those for drops may be, too. */
#define LEFT 0x80

/* Packets of which reasons are to be captured. */
struct capture_filter {
	/* By the bits of enum drop and of enum pass. */
	__u64 dropped, left;
	/* Nanoseconds from one packet to the next, and how far ahead of that they may be. */
	__u64 gap, slack;
	/* CLOCK_MONOTONIC, nanoseconds: what is not put off by then is off, for who reads is no longer there. */
	__u64 until;
	/* Of packets to this address and port alone, or to the service of any port; `protocol` 0: of all. */
	struct address address;
	/* Of each packet, bytes. */
	__u32 length;
	__u16 port;
	__u8 protocol;
	__u8 pad;
};
_Static_assert(sizeof(struct capture_filter) == 64, "");

/* Before the bytes of a packet. */
struct captured {
	/* CLOCK_MONOTONIC, nanoseconds. */
	__u64 time;
	/* Of the frame, and of that what follows. */
	__u32 length, kept;
	__u32 interface;
	/* enum drop, or LEFT and enum pass. */
	__u16 reason;
	/* enum xdp_action: one whose sender is answered is not dropped. */
	__u16 verdict;
};
_Static_assert(sizeof(struct captured) == 24, "");

/* Packets that were asked for and not captured on one CPU: beyond the rate, for want of room, and where nobody reads this CPU's. */
struct uncaptured {
	__u64 beyond, no_room, no_reader;
};
_Static_assert(sizeof(struct uncaptured) == 24, "");

/* Which connections end early, because something runs short that they take. */
enum early { EARLY_UNANSWERED = 1, EARLY_CLOSING = 2 };

/* In place of a service's number. */
#define ANY_SERVICE 0xffffffff

struct sweep {
	__u32 from, count;
	__u32 tick;
	/* Results, added to. */
	__u32 expired, freed;
	__u32 live;
	/* 1: end all connections, whether they have expired or not, and free their slots at once. */
	__u32 all;
	/* Which round through the table it is part of. */
	__u32 round;
	/* Timeouts in ticks, where connections end early: of those without an answer, and of those that are closing. */
	__u32 unanswered, closing;
	/* Numbers of a service and of a backend, where not 0: ends their connections, and looks at no others. */
	__u32 service, backend;
	/* Bits of enum early, of all connections. */
	__u32 early;
	/* Which slot is next, on old kernels. */
	__u32 next;
};
_Static_assert(sizeof(struct sweep) == 56, "");

#endif
