/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Places: local addresses and ports for connections to backends, see LEASE in shape.h.
 *
 * They go round, whichever CPU takes them and whatever service the backend is in, so that each is used again as late as can
 * be; a start by chance and RFC 6056's other schemes are for who is guessed at from afar, which backends are not.
 */
#ifndef BALANCER_PLACES_H
#define BALANCER_PLACES_H

#include "schedule.h"

struct local {
	__u32 address;
	__u16 port;
};

/* Number of a local address and port of a backend's nth place. */
static always_inline int local_of(const struct service *s, __u64 nth, struct local *l)
{
	__u32 addresses = LENGTH(s->locals);
	__u64 lease = nth / LEASE;

	if (!addresses || !tuning.port_leases)
		return 0;
	l->address = list_at(s->locals, lease % addresses);
	l->port = bpf_htons(tuning.port_low + lease / addresses % tuning.port_leases * LEASE + nth % LEASE);
	return 1;
}

static always_inline __u32 cursor_of(const struct backend *b)
{
	return hash_place(&b->address, b->port) % CURSORS;
}

static always_inline int rests_now(const struct service *s, const struct backend *b, __u64 nth, __u32 tick)
{
	struct local l;
	struct rest *rest;
	__u32 check;

	if (!local_of(s, nth, &l))
		return 0;
	rest = rest_of(b, l.address, l.port, &check);
	return rest && rest->check == check && rest->tick && tick - rest->tick < REST_TICKS;
}

/*
 * The first place of a lease that begins `ahead` leases further on, or later: of some the first in which no closed connection
 * rests, or the very first when there is none, which has rested longest. `pretended`, where it is not 0, is where a traced
 * packet's leases go on.
 */
__noinline __u64 take_lease(__u32 service, __u32 backend, __u32 ahead, __u64 pretended)
{
	const struct service *s = service_at(service);
	const struct backend *b = backend_at(backend);
	const struct control *c = settings();
	__u64 first, skip = ahead;
	struct order *order;
	__u32 key, tick;

	if (!s || !b || !c)
		return 0;
	key = cursor_of(b);
	order = bpf_map_lookup_elem(&orders, &key);
	if (!order)
		return 0;
	tick = now_tick(c);
	first = (pretended ?: *(volatile __u64 *)&order->lease) + skip * LEASE;
	for (int i = 0; i < LEASES_LOOKED_AT; i++) {
		if (!rests_now(s, b, first + i * LEASE, tick)) {
			skip += i;
			break;
		}
	}
	return (pretended ?: fetch_and_add(&order->lease, (skip + 1) * LEASE)) + skip * LEASE;
}

/* Whether a connection of a searched place is there already. */
struct search {
	__u64 from, found;
	__u32 service, backend;
};

static long search_one(__u32 i, struct search *search)
{
	const struct service *s = service_at(search->service);
	const struct backend *b = backend_at(search->backend);
	const struct address *address;
	struct tuple t = {};
	struct local l;

	if (!s || !b || !local_of(s, search->from + i, &l))
		return 1;
	address = local_at(l.address);
	if (!address)
		return 1;
	backends_tuple(&t, s, b, address, l.port);
	if (find_indexed(&t, hash_tuple(&t), 1))
		return 0;
	search->found = search->from + i + 1;
	return 1;
}

/*
 * A free place among those that are next, one further; 0 when there is none, or when this CPU has searched enough in this
 * tick. The next search goes on where this one has ended, so that all places come to be looked at.
 */
__noinline __u64 search_place(__u32 service, __u32 backend)
{
	const struct backend *b = backend_at(backend);
	const struct control *c = settings();
	struct search search = { .service = service, .backend = backend };
	__u32 key = 0, tick;
	struct telling *searches_here = bpf_map_lookup_elem(&searches, &key);
	struct order *order;

	if (!b || !c || !searches_here)
		return 0;
	tick = now_tick(c);
	if (!DRY) {
		if (searches_here->tick != tick) {
			searches_here->tick = tick;
			searches_here->told = 0;
		}
		if (searches_here->told >= SEARCHES_PER_TICK)
			return 0;
		searches_here->told++;
	}
	key = cursor_of(b);
	order = bpf_map_lookup_elem(&orders, &key);
	if (!order)
		return 0;
	search.from = fetch_and_add(&order->search, PLACES_SEARCHED);
	bpf_loop(PLACES_SEARCHED, search_one, &search, 0);
	return search.found;
}

#endif
