/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Local addresses and ports for connections to backends, see PORT_BLOCK in shape.h.
 *
 * They are assigned in one sequence, on all CPUs and for all services that the backend is in, so that each is used again as late as
 * can be. RFC 6056's random schemes are against guesses from outside, which connections to backends are not open to.
 */
#ifndef BALANCER_LOCAL_PORTS_H
#define BALANCER_LOCAL_PORTS_H

#include "schedule.h"

struct local {
	__u32 address;
	__u16 port;
};

/* The list of local addresses of the backend's family. */
static always_inline __u64 locals_for(const struct service *s, const struct backend *b)
{
	return is_of_other_family(s, b) ? READ_ONCE(s->locals_v4) : READ_ONCE(s->locals);
}

/* The number of a local address of a list, and a port of it: the nth of a backend's sequence. */
static always_inline int local_in(__u64 list, __u64 nth, struct local *l)
{
	__u32 addresses = LENGTH(list);
	__u64 block = nth / PORT_BLOCK;

	if (!addresses || !tuning.port_blocks)
		return 0;
	l->address = list_at(list, block % addresses);
	l->port = bpf_htons(tuning.port_low + block / addresses % tuning.port_blocks * PORT_BLOCK + nth % PORT_BLOCK);
	return 1;
}

static always_inline int local_of(const struct service *s, const struct backend *b, __u64 nth, struct local *l)
{
	return local_in(locals_for(s, b), nth, l);
}

static always_inline __u32 sequence_of(const struct backend *b)
{
	return hash_endpoint(&b->address, b->port) % PORT_SEQUENCES;
}

static always_inline int is_held_down(const struct service *s, const struct backend *b, __u64 nth, __u32 tick)
{
	struct local l;
	struct hold_down *hold;
	__u32 check;

	if (!local_of(s, b, nth, &l))
		return 0;
	hold = hold_of(b, l.address, l.port, &check);
	return hold && hold->check == check && hold->tick && tick - hold->tick < HOLD_TICKS;
}

/*
 * The first port of a block that is `ahead` blocks further on, or more: of some the first that is not held down, or the very first
 * when there is none, which has been held down longest. `traced_block`, where it is not 0, is where a traced packet's sequence
 * goes on.
 */
__noinline __u64 take_block(__u32 service, __u32 backend, __u32 ahead, __u64 traced_block)
{
	const struct service *s = service_at(service);
	const struct backend *b = backend_at(backend);
	const struct control *c = settings();
	__u64 first, skip = ahead;
	struct port_sequence *sequence;
	__u32 key, tick;

	if (!s || !b || !c)
		return 0;
	key = sequence_of(b);
	sequence = bpf_map_lookup_elem(&orders, &key);
	if (!sequence)
		return 0;
	tick = now_tick(c);
	first = (traced_block ?: *(volatile __u64 *)&sequence->block) + skip * PORT_BLOCK;
	for (int i = 0; i < BLOCK_TRIES; i++) {
		if (!is_held_down(s, b, first + i * PORT_BLOCK, tick)) {
			skip += i;
			break;
		}
	}
	return (traced_block ?: fetch_and_add(&sequence->block, (skip + 1) * PORT_BLOCK)) + skip * PORT_BLOCK;
}

/* A search for a local port that no connection to the backend has. */
struct search {
	__u64 from, found, locals;
	__u32 service, backend;
};

/* Looks up before the search what it is not to do for each port. */
static always_inline void begin_search(struct search *search)
{
	const struct service *s = service_at(search->service);
	const struct backend *b = backend_at(search->backend);

	if (s && b)
		search->locals = locals_for(s, b);
}

static long search_one(__u32 i, struct search *search)
{
	const struct service *s = service_at(search->service);
	const struct backend *b = backend_at(search->backend);
	const struct address *address;
	struct tuple t = {};
	struct local l;

	if (!s || !b || !local_in(search->locals, search->from + i, &l))
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

#ifdef OLD_KERNEL
/* As with `try_to_lock`. */
#define SEARCHED_AT_ONCE 64

/* Whether a port is free: 0, or the next one. What the loop counts by has to stay in a register, for which its body must not be large. */
__noinline __u64 search_at(__u32 service, __u32 backend, __u64 nth)
{
	struct search search = { .service = service, .backend = backend, .from = nth };

	begin_search(&search);
	search_one(0, &search);
	return search.found;
}

static long search_next(__u32 i, struct search *search)
{
	search->found = search_at(search->service, search->backend, search->from + i);
	return search->found != 0;
}

__noinline __u64 search_some(__u32 service, __u32 backend, __u64 from)
{
	struct search search = { .service = service, .backend = backend, .from = from };

	LOOP(SEARCHED_AT_ONCE, SEARCHED_AT_ONCE, search_next, &search);
	return search.found;
}

/* The frame of `search_at` is as large as those of this and of the body of its loop would be. */
#define SEARCH static always_inline

static always_inline void search_all(struct search *search)
{
	for (int i = 0; i < PORTS_SEARCHED / SEARCHED_AT_ONCE && !search->found; i++)
		search->found = search_some(search->service, search->backend, search->from + i * SEARCHED_AT_ONCE);
}
#else
#define SEARCH __noinline

static always_inline void search_all(struct search *search)
{
	begin_search(search);
	bpf_loop(PORTS_SEARCHED, search_one, search, 0);
}
#endif

/*
 * A free local port among those that are next, and 1; 0 when there is none, or when this CPU has searched as often as it may in this
 * tick. The next search goes on where this one has ended, so that all ports are searched.
 */
SEARCH __u64 search_port(__u32 service, __u32 backend)
{
	const struct backend *b = backend_at(backend);
	const struct control *c = settings();
	struct search search = { .service = service, .backend = backend };
	__u32 key = 0, tick;
	struct rate_limit *searches_here = bpf_map_lookup_elem(&searches, &key);
	struct port_sequence *sequence;

	if (!b || !c || !searches_here)
		return 0;
	tick = now_tick(c);
	if (!TRACING) {
		if (searches_here->tick != tick) {
			searches_here->tick = tick;
			searches_here->used = 0;
		}
		if (searches_here->used >= SEARCHES_PER_TICK)
			return 0;
		searches_here->used++;
	}
	key = sequence_of(b);
	sequence = bpf_map_lookup_elem(&orders, &key);
	if (!sequence)
		return 0;
	search.from = fetch_and_add(&sequence->search, PORTS_SEARCHED);
	search_all(&search);
	return search.found;
}

#endif
