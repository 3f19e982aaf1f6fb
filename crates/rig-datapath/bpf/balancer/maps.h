/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Names of maps are those of their pins, by which the next version finds the tables (src/balancer/load.rs): they do not change.
 *
 * Sizes of 1 are set before loading. Mappable arrays begin on a page, so that their elements do not straddle lines.
 */
#ifndef BALANCER_MAPS_H
#define BALANCER_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "lib/old.h"
#include "reason.h"
#include "shape.h"

const volatile struct tuning tuning SEC(".rodata.tuning");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct set);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_COUNTERS);
	__type(key, __u32);
	__type(value, struct connection_count);
} shards SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pool);
} pools SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct service_key);
	__type(value, __u32);
} service_of SEC(".maps");

/* Addresses whose packets are the balancer's; the value is an enum ownership, or both. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, __u32);
} owned SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backend);
} backends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct address);
} locals SEC(".maps");

/* Schedules and pools of local addresses: numbers of backends and of local addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} lists SEC(".maps");

/* Where each service's schedule goes on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} turns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct load);
} loads SEC(".maps");

/* Connections of each service. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} held SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct refusals);
} refusals SEC(".maps");

/* Bits of enum early, of a backend's connections. For the sweep, as the control plane has it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} shortages SEC(".maps");

/* Connections of each service that are without an answer, as far as they count (COUNTED). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unanswered SEC(".maps");

/* By slot, of connections that are SPLICED. The array is made by the control plane when one is first needed. */
struct splices_of {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct splice));
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct splices_of);
} splices SEC(".maps");

/*
 * Who may begin connections. A change is a trie of its own, which takes the place of the one before at once; there is none where there
 * are no lists.
 */
struct access_lists {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct access_key));
	__uint(value_size, sizeof(struct access_rule));
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct access_lists);
} access SEC(".maps");

/* First packets that a prefix has decided on, by its number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} access_hits SEC(".maps");

/* Of services. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limits);
} limits SEC(".maps");

/* When a service may begin a connection that is not ahead of its rate. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} paces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source_set);
} sources SEC(".maps");

/* A service's connections that no counter of sources was free for. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unlimited SEC(".maps");

/* Made in advance, as programs that sleep take no others before Linux 6.1: the sweep is one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct template_key);
	__type(value, struct template);
} templates SEC(".maps");

/* Addresses that have answered the SYN proxy, where it does no more than ask: the tick until which that holds. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, __u32);
} admitted SEC(".maps");

/* First fragments of datagrams. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct fragment_key);
	__type(value, struct first_fragment);
} fragments SEC(".maps");

/*
 * Of services in groups, the first of its backends with an address; backends whose packets come back without a connection (once.h), or that IDs
 * of QUIC name (quic.h).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct template_key);
	__type(value, __u32);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_keys);
} cookie_keys SEC(".maps");

/* The next of backends' local ports on this CPU; at the beginning of a block another one is to be taken. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PORT_SEQUENCES);
	__type(key, __u32);
	__type(value, __u64);
} cursors SEC(".maps");

/* Where backends' sequences of blocks go on for all CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORT_SEQUENCES);
	__type(key, __u32);
	__type(value, struct port_sequence);
} orders SEC(".maps");

/* Blocks that are held down; one that has the hash of another overwrites it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct hold_down);
} rests SEC(".maps");

/* Searches of this CPU for a free local port. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rate_limit);
} searches SEC(".maps");

/* The round of sweeping that has last found a connection with this local address. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} locals_met SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cached_route);
} hops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic_count);
} traffic SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DROPS);
	__type(key, __u32);
	__type(value, __u64);
} drops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PASSES);
	__type(key, __u32);
	__type(value, __u64);
} passes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

/*
 * Next hops of packets that were dropped because the kernel had no neighbour entry. The control plane has the kernel resolve them, as
 * many as there is room for each second, and takes them out; one that finds no room is noted with its next packet.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct next_hop);
	__type(value, __u32);
} missed SEC(".maps");

/*
 * Next hops that packets went to, by backend, where routes depend on more than that: the control plane has the kernel keep them
 * fresh, and takes them out with the backend.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct next_hop);
	__type(value, __u32);
} next_hops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct routing);
} routings SEC(".maps");

/* VLAN devices, as the control plane sees them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_VLANS);
	__type(key, struct vlan_key);
	__type(value, struct vlan);
} vlans SEC(".maps");

/* By messages of routers on the paths of tunnels to backends. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct path_mtu);
} path_mtus SEC(".maps");

/* Counters of backends that are gone, by service; of services that are gone at 0. For the control plane alone. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic_count);
} past SEC(".maps");

/* ICMP messages that this CPU has sent. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rate_limit);
} tellings SEC(".maps");

/* What this CPU has left to the kernel of packets for the balancer's addresses, by enum pass. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PASSES);
	__type(key, __u32);
	__type(value, struct rate_limit);
} strays SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_filter);
} capture_filter SEC(".maps");

/* When a packet may be captured that is not ahead of the rate. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} capture_next SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct uncaptured);
} uncaptured SEC(".maps");

/* Of those who read captured packets; the kernel takes them out when a reader's process ends. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} captures SEC(".maps");

#include "tracing.h"

/* Verdicts of the program's own have above the kernel's their reason, with LEFT. */
#define REASON_SHIFT 8
#define VERDICT_MASK 0xff

/* Counts a packet whose sender is answered: what the verdict has in it beside the kernel's. */
static always_inline int counted(enum drop reason)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&drops, &key);

	if (count)
		*count += 1;
	return reason << REASON_SHIFT;
}

static always_inline int drop(enum drop reason)
{
	return XDP_DROP | counted(reason);
}

static always_inline int pass(enum pass reason)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&passes, &key);

	if (count)
		*count += 1;
	return XDP_PASS | (LEFT | reason) << REASON_SHIFT;
}

static always_inline const struct control *settings(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&controls, &key);
}

static always_inline __u32 now_tick(const struct control *c)
{
	if (c->fixed_tick)
		return c->fixed_tick;
	return coarse_ns() >> TICK_SHIFT;
}

#endif
