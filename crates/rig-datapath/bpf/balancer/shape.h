/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the balancer's programs and its control plane both know: the layout of every map. The Rust side of each
 * structure is in src/balancer/shape.rs; a test holds both against each other.
 *
 * A connection is a record of 64 bytes. It lies in its home, a set of four records that the hash of its packets from
 * the client points to, so that these cost one wait for memory; when all four are taken, in the overflow, and then an
 * index entry of 8 bytes leads there. An index entry leads from the packets of the backend to the record, too.
 *
 * Memory of one connection, by the tables for each that there may be: 1.5 records of homes and 1/8 of overflow with its
 * place in the pool, 104.5 bytes; index, at a fill of at most 4.5/7, 8 * 1.08 * 8/7 * 7/4.5 = 15.4 bytes and up to twice
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
 * Places are what connections to a backend can have: a local address and a port. A CPU takes a lease of so many of them, all
 * of one address, from the one order that all CPUs share, and gives them out one after the other. Each lease is taken again
 * when all others have been.
 */
#define LEASE 64
/* Places that are tried for one new connection: so many one after the other, and the others ever further ahead. */
#define PLACE_TRIES 32
#define NEAR_TRIES 4
/* Leases that the longest leap passes over. */
#define LEAP_SHIFT 10
/* Leases of which one is sought that no closed connection rests in. */
#define LEASES_LOOKED_AT 8
/* Where most places are taken: how many are looked through for one new connection, and for how many in a tick on a CPU. */
#define PLACES_SEARCHED 4096
#define SEARCHES_PER_TICK 16
/* Ticks for which a backend that closed first keeps the connection in TIME-WAIT, 60 s (RFC 9293, 3.4.2; Linux). */
#define REST_TICKS 448
/* More than there mostly are backends: those that share one leave out what the others have taken. */
#define CURSORS 4096
/* The least loaded backend of so many is looked for among all; of more, the less loaded of two. */
#define LEAST_LOOKED_AT 16
/* Entries of a longer schedule that are walked through where both of the two are at their limits; the next walk goes on there. */
#define LEAST_WALKED 64
/* Entries of a schedule that are tried when backends are at their limit. */
#define SCHEDULE_TRIES 32
#define MAX_SHARDS 64
#define WAYS 4
#define STATES 10

enum forward { FULLNAT = 1, NAT = 2, ROUTE = 3, TUNNEL = 4 };

enum scheduler { ROUND_ROBIN = 1, LEAST = 2, SOURCE_HASH = 3, FLOW_HASH = 4 };

/* Where a connection goes that takes the place of one that is over. */
enum reuse { RESCHEDULE = 0, KEEP = 1 };

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
	/* A reset has passed, which nobody here knows to be a real one: BEFORE says what a packet behind it makes of this. */
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
	__u16 local_port;
	__u16 service;
	__u16 local;
	__u16 backend;
	/* The shard that counts it. */
	__u16 shard;
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

/* Slot n is record n % 4 of set n / 4. Set 0 is unused, so that 0 is no slot; homes follow, then the overflow. */
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

/* A CPU's part of the count of connections. */
struct shard {
	__u64 used;
	__u64 pad[7];
};
_Static_assert(sizeof(struct shard) == 64, "shards do not share cache lines");

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
	__u16 port;
	__u8 protocol;
	__u8 forward;
	__u8 scheduler;
	/* Whether packets from the middle of a TCP connection begin one, as IPVS's sloppy_tcp has it. */
	__u8 sloppy;
	/* For the control plane, which may have been started anew: when connections end with their backend. */
	__u8 expire;
	/* enum reuse */
	__u8 reuse;
	__u64 schedule;
	__u64 locals;
	/* Ticks by state. */
	__u32 timeout[STATES];
	/* Connections at which it gets no more; 0: no limit. */
	__u32 limit;
	__u32 pad2;
	__u64 pad3;
};
_Static_assert(sizeof(struct service) == 96, "");

/* weight 0: keeps its connections and gets no new ones. limit 0: no limit. */
struct backend {
	struct address address;
	__u16 port;
	__u8 protocol;
	/* The sweep ends its connections. */
	__u8 ends;
	__u32 weight;
	__u32 limit;
	/* Whose it is; for the control plane, which may have been started anew. */
	__u32 service;
};
_Static_assert(sizeof(struct backend) == 32, "");

/* Connections in the low half, established ones in the upper. */
struct load {
	__u64 connections;
};

/* New connections of a service that were refused on one CPU, by enum drop. */
struct refusals {
	__u64 of[32];
};
_Static_assert(sizeof(struct refusals) == 256, "");

struct traffic_count {
	__u64 connections;
	__u64 in_packets, in_bytes;
	__u64 out_packets, out_bytes;
};
_Static_assert(sizeof(struct traffic_count) == 40, "");

enum knowledge { UNKNOWN = 0, KNOWN = 1 };

/* What ways to backends depend on, which the control plane finds out from routes and rules. */
enum ways { BY_BACKEND = 0, BY_SOURCE = 1, BY_PORTS = 2 };

/*
 * What the control plane knows of routes and neighbours, read and written as one word. In ticks up to `watched_until` it
 * watches them: then the route to a client holds as long as the generation, 15 bits; later on, for 8 ticks.
 */
struct routing {
	__u32 watched_until;
	__u16 generation;
	/* enum ways */
	__u16 ways;
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

/* To whom on which link a packet was to go, and for which backend; 0 where it was a client's. */
struct next_hop {
	struct address address;
	__u32 ifindex;
	__u32 backend;
};
_Static_assert(sizeof(struct next_hop) == 24, "");

/* The MTU of a tunnel, of the outer packet, as a router on its way has told it, and when. */
struct path_mtu {
	__u32 tick, mtu;
};
_Static_assert(sizeof(struct path_mtu) == 8, "");
/* Ticks for which it is believed, 600 s (RFC 1191, 6.3). */
#define PATH_MTU_TICKS 4471

/* What one CPU has done in this tick of what it may do so often: ICMP messages sent, packets left to the kernel ... */
struct telling {
	__u32 tick, told;
};
_Static_assert(sizeof(struct telling) == 8, "");
#define TOLD_PER_TICK 64

enum policy { POLICY_DROP = 0, POLICY_PASS = 1 };

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
};
_Static_assert(sizeof(struct control) == 12, "");

/* Constants of a loaded program. */
struct tuning {
	/* Of the hash. */
	__u64 key[11];
	__u32 bucket_mask;
	__u32 shards;
	__u32 connections_per_shard;
	/* Local ports: the first, and leases of them. */
	__u16 port_low, port_leases;
	__u32 rest_mask;
	/* Sets that are homes, and slots of overflow behind them. */
	__u32 homes;
	__u32 overflow;
	/* SHAPE_VERSION of the control plane that has made the tables (src/balancer/shape.rs). */
	__u32 version;
	__u32 cached_mask;
	__u32 pad;
};
_Static_assert(sizeof(struct tuning) == 128, "");

/* Where a backend's places go on: the first of the next lease, and the first that has not been searched yet. */
struct order {
	__u64 lease, search;
};
_Static_assert(sizeof(struct order) == 16, "");

/* A lease in which a connection was that its backend has closed first: which, and the tick of its last packet. */
struct rest {
	__u32 check, tick;
};
_Static_assert(sizeof(struct rest) == 8, "");

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

enum anew { ANEW_ELSEWHERE = 1, ANEW_THERE = 2 };

/* What became of a traced packet; 0 is none everywhere. */
struct trace {
	/* enum kind, and 1. */
	__u32 kind;
	/* Slot and direction of the connection that it belongs to, and its `live`. */
	__u32 found;
	__u64 live;
	/* enum anew: that connection ends, and another one takes its place. */
	__u32 anew;
	/* For a new connection: numbers of service and backend, and whether it comes to be. */
	__u32 service, backend, begun;
	/* By which interface it leaves, and how large packets may be there, of this one's own bytes. */
	__u32 ifindex, mtu;
	__u32 cpu;
	/* Workers share such packets. */
	__u32 owned;
	/* Of its tuple. */
	__u64 hash;
	/* The connection as it would be. */
	struct connection copy;
};
_Static_assert(sizeof(struct trace) == 120, "");

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
	/* 1: end all connections, whether they have expired or not, and let no place rest. */
	__u32 all;
	/* Which round through the table it is part of. */
	__u32 round;
	/* The longest silence in ticks of connections that nobody has answered, and of those that are closing: of who ends early. */
	__u32 unanswered, closing;
	/* Numbers of a service and of a backend, where not 0: ends their connections, and looks at no others. */
	__u32 service, backend;
	/* Bits of enum early, of all connections. */
	__u32 early;
};
_Static_assert(sizeof(struct sweep) == 52, "");

#endif
