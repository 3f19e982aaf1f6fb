/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where packets go. */
#ifndef VROUTER_ROUTE_H
#define VROUTER_ROUTE_H

#include "packet.h"

/* Tables that a route may lead through. */
#define MAX_VRFS_ON_THE_WAY 3
/* Source ports of tunnels are dynamic ones (RFC 6335, 6), as RFC 7510 and RFC 7348 want them. */
#define FIRST_TUNNEL_PORT 49152

/* The result of a packet's lookups. */
struct resolution {
	struct route route;
	__u16 tunnel_port;
	/* The packet has begun a flow, and is counted there. */
	__u8 is_new;
	/* The analyser that has a copy; 0 for none. */
	__u8 mirror;
};

static always_inline const struct next_hop *next_hop_at(__u32 number)
{
	return bpf_map_lookup_elem(&next_hops, &number);
}

static always_inline const struct interface *interface_at(__u32 number)
{
	return bpf_map_lookup_elem(&interfaces, &number);
}

/* A flow's hash, equal for all its packets in one direction. */
static always_inline __u32 hash_of(const struct flow_key *k)
{
	__u64 h = k->source.hi * 0x9e3779b97f4a7c15ULL + k->source.lo * 0xc2b2ae3d27d4eb4fULL +
		  k->destination.hi * 0x165667b19e3779f9ULL + k->destination.lo * 0xd6e8feb86659fd93ULL +
		  ((__u64)k->source_port << 16 | k->destination_port | (__u64)AT_PROTOCOL(k->at) << 32) *
			  0xff51afd7ed558ccdULL;

	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	return h >> 32;
}

/* As `hash_of`, the same for all pieces of a packet, of which the first alone has ports. */
static always_inline __u32 hash_of_packet(const struct packet *p)
{
	struct flow_key k = p->key;

	if (p->fragment)
		k.source_port = k.destination_port = 0;
	return hash_of(&k);
}

static always_inline __u16 tunnel_port(__u32 hash)
{
	return FIRST_TUNNEL_PORT + (hash >> 18);
}

/* A table's route; 0 where it has none. */
static always_inline const struct route *route_to(__u32 vrf, const struct address *to)
{
	struct host_key host = { .address = *to, .vrf = vrf };
	struct prefix_key prefix = { .length = VRF_BITS + 128, .vrf = vrf, .address = *to };
	const struct route *r = bpf_map_lookup_elem(&hosts, &host);

	if (r)
		return r;
	if (is_v4(to))
		prefix.vrf |= OF_IPV4;
	return bpf_map_lookup_elem(&prefixes, &prefix);
}

/* One of several ways. */
static always_inline const struct route *one_of(const struct next_hop *nh, __u32 hash)
{
	__u32 number = nh->number;
	const struct ways *w = bpf_map_lookup_elem(&ways, &number);
	__u32 way = w && nh->mtu ? ((__u64)hash * nh->mtu) >> 32 : MAX_WAYS;

	return w && way < MAX_WAYS ? &w->way[way] : 0;
}

#ifdef OLD_KERNEL
/* A route and a reason for a drop, 0 for none, as one word: of pointers the verifier lets functions that it looks at once have none. */
static always_inline __u64 word_of_route(int reason, const struct route *r)
{
	return (__u64)reason << 56 | (__u64)r->label << 32 | r->next_hop;
}

/* No label is longer than a VNI. */
static always_inline int route_of_word(__u64 word, struct route *r)
{
	r->next_hop = word;
	r->label = word >> 32 & 0xffffff;
	return word >> 56;
}

/* Defines `name`, a function of `declared` and a route to be filled in, of which `names` are the words; `of_words` calls its body with them. */
#define TO_ROUTE(name, declared, words, names, of_words)                                                              \
	static always_inline int name##_of(LISTED declared, struct route *out);                                        \
	__attribute__((noinline)) __u64 name##_by_words(LISTED words)                                                  \
	{                                                                                                              \
		struct route out = {};                                                                                 \
		int reason = of_words;                                                                                 \
		return word_of_route(reason, &out);                                                                    \
	}                                                                                                              \
	static always_inline int name(LISTED declared, struct route *out)                                              \
	{                                                                                                              \
		return route_of_word(name##_by_words(LISTED names), out);                                              \
	}                                                                                                              \
	static always_inline int name##_of(LISTED declared, struct route *out)
#else
#define TO_ROUTE(name, declared, words, names, of_words)                                                              \
	__attribute__((noinline)) int name(LISTED declared, struct route *out)
#endif

/*
 * Follows a route through tables and several next hops to the last one: an interface, a tunnel or the gateway. 0, or a
 * reason for a drop.
 */
TO_ROUTE(resolve, (__u32 vrf, const struct address *to, __u32 hash), (__u32 vrf, __u64 hi, __u64 lo, __u32 hash),
	 (vrf, to->hi, to->lo, hash), resolve_of(vrf, &(struct address){ hi, lo }, hash, &out))
{
	struct work *w = work_here();

	if (!w || !to || !out)
		return REASON_INVALID_NH;
	w->packet.passed = 0;
	for (int i = 0; i < MAX_VRFS_ON_THE_WAY; i++) {
		const struct route *r = route_to(vrf, to);
		const struct next_hop *nh;

		if (!r)
			return REASON_NO_ROUTE;
		nh = next_hop_at(r->next_hop);
		if (!nh)
			return REASON_INVALID_NH;
		if (nh->kind == TO_ONE) {
			r = one_of(nh, hash);
			if (!r)
				return REASON_INVALID_NH;
			w->packet.passed |= PASSED_ECMP;
		}
		*out = *r;
		if (nh->kind == TO_VRF) {
			vrf = nh->number;
			w->packet.passed++;
			continue;
		}
		return nh->kind == DISCARD ? NOWHERE : 0;
	}
	return REASON_INVALID_NH;
}

/*
 * By the interface's own number: that of its next hop is another one when the interface has changed, and while a change is written,
 * routes and interfaces do not agree on it.
 */
static always_inline int leads_to_interface(const struct next_hop *nh, __u32 number)
{
	return nh->kind == TO_INTERFACE && nh->number == number;
}

static always_inline int is_by(const struct next_hop *nh, __u32 number, __u32 outer)
{
	return outer ? nh->kind == TO_TUNNEL && nh->destination == outer : leads_to_interface(nh, number);
}

/*
 * The route back to a packet's source, which must lead to where the packet came from: interface `number`, which is `at`, or the router
 * `outer`. 0, or a reason for a drop.
 */
TO_ROUTE(route_back, (const struct interface *at, __u32 number, const struct address *source, __u32 outer),
	 (__u32 vrf, __u32 number, __u64 hi, __u64 lo, __u32 outer), (at->vrf, number, source->hi, source->lo, outer),
	 route_back_of(&(struct interface){ .vrf = vrf }, number, &(struct address){ hi, lo }, outer, &out))
{
	const struct next_hop *nh;
	const struct route *r;
	struct ways *w;
	__u32 several;

	if (!at || !source || !out)
		return REASON_INVALID_SOURCE;
	r = route_to(at->vrf, source);
	nh = r ? next_hop_at(r->next_hop) : 0;
	if (!nh)
		return REASON_INVALID_SOURCE;
	*out = *r;
	for (int i = 1; nh->kind == TO_VRF && i < MAX_VRFS_ON_THE_WAY; i++) {
		r = route_to(nh->number, source);
		nh = r ? next_hop_at(r->next_hop) : 0;
		if (!nh)
			return REASON_INVALID_SOURCE;
		*out = *r;
	}
	if (is_by(nh, number, outer))
		return 0;
	several = nh->number;
	w = nh->kind == TO_ONE ? bpf_map_lookup_elem(&ways, &several) : 0;
	if (!w)
		return REASON_INVALID_SOURCE;
	for (int i = 0; i < MAX_WAYS; i++) {
		nh = next_hop_at(w->way[i].next_hop);
		if (nh && is_by(nh, number, outer)) {
			*out = w->way[i];
			return 0;
		}
	}
	return REASON_INVALID_SOURCE;
}

#endif
