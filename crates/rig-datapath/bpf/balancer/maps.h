/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sizes of 1 are set before loading. Mappable arrays begin on a page, so that their elements do not straddle lines. */
#ifndef BALANCER_MAPS_H
#define BALANCER_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

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
	__uint(max_entries, MAX_SHARDS);
	__type(key, __u32);
	__type(value, struct shard);
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

/* The next of backends' places on this CPU; at the beginning of a lease another one is to be taken. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CURSORS);
	__type(key, __u32);
	__type(value, __u64);
} cursors SEC(".maps");

/* Where backends' places go on for all CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CURSORS);
	__type(key, __u32);
	__type(value, struct order);
} orders SEC(".maps");

/* Leases that rest; one that falls on another's place takes it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rest);
} rests SEC(".maps");

/* Searches of this CPU for a free place. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct telling);
} searches SEC(".maps");

/* The round of sweeping that has last met a connection with this local address. */
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
 * Next hops that packets were dropped for because the kernel had no neighbour entry. The control plane has it ask for them,
 * as many as there is room for each second, and takes them out; what finds no room will when its next packet comes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct next_hop);
	__type(value, __u32);
} missed SEC(".maps");

/*
 * Next hops that packets went to, by backend, where ways depend on more than that: the control plane has the kernel keep them
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

/* What routers on the way of tunnels to backends have told. */
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

/* How often this CPU has told senders. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct telling);
} tellings SEC(".maps");

/* What this CPU has left to the kernel of packets for the balancer's addresses, by enum pass. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PASSES);
	__type(key, __u32);
	__type(value, struct telling);
} strays SEC(".maps");

#include "dry.h"

static always_inline int drop(enum drop reason)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&drops, &key);

	if (count)
		*count += 1;
	return XDP_DROP;
}

static always_inline int pass(enum pass reason)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&passes, &key);

	if (count)
		*count += 1;
	return XDP_PASS;
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
	return bpf_ktime_get_coarse_ns() >> TICK_SHIFT;
}

#endif
