/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Which backend gets a new connection. What differs between schedulers is in their lists, made by the control plane:
 * round robin, weighted or not, goes round one; the hashes point into a Maglev table; the least loaded is looked for among few,
 * and of many it is the less loaded of two (Mitzenmacher, "The power of two choices in randomized load balancing", 2001), which
 * are drawn from a round in which each is as often as its weight says.
 */
#ifndef BALANCER_SCHEDULE_H
#define BALANCER_SCHEDULE_H

#include "table.h"

#define OFFSET(list) ((__u32)(list))
#define LENGTH(list) ((__u32)((list) >> 32))

static always_inline __u32 hash_source(const struct tuple *t, int with_port)
{
	return hash_endpoint(&t->source, with_port ? t->source_port : 0);
}

static always_inline __u32 list_at(__u64 list, __u32 at)
{
	__u32 key = OFFSET(list) + at;
	__u32 *number = bpf_map_lookup_elem(&lists, &key);

	return number ? *number : 0;
}

/* Whether one with so many connections gets no more. */
static always_inline int is_at_limit(const struct backend *b, const struct load *load, __u32 has)
{
	return b->limit && (has >= b->limit || (b->lower && load->full == b->limit && has >= b->lower));
}

/*
 * Notes whether a backend that has got a connection beside so many waits from now on to fall below its lower limit. It does so by the limit
 * that it has reached: with another one it has not, as IPVS has it. What only seems to be below the limit, because another CPU has counted
 * one more meanwhile, takes nothing back.
 */
static always_inline void note_full(const struct backend *b, struct load *load, __u32 before)
{
	if (b->lower && before + 1 >= b->limit)
		load->full = b->limit;
	else if (load->full && (load->full != b->limit || before < b->lower || !b->lower))
		load->full = 0;
}

/* Counts a connection towards the backend, unless that is at its limit. A function of its own, since it is in a loop. */
__noinline int admit(__u32 number)
{
	struct backend *b = backend_at(number);
	struct load *load = bpf_map_lookup_elem(&loads, &number);

	if (!b || !load || !b->weight)
		return 0;

	__u64 before = fetch_and_add(&load->connections, 1) - HAS_ENDED(copy.backend, number);

	if (is_at_limit(b, load, before)) {
		fetch_and_add(&load->connections, -1);
		return 0;
	}
	if (!TRACING)
		note_full(b, load, before);
	return 1;
}

/*
 * Counts a connection that a backend has already, whatever its limit, and gives its number again. A function of its own: the frame of what
 * calls it is full.
 */
static __noinline __u32 count_own(__u32 number)
{
	struct backend *b = backend_at(number);
	struct load *load = bpf_map_lookup_elem(&loads, &number);

	if (b && load) {
		__u64 before = fetch_and_add(&load->connections, 1) - HAS_ENDED(copy.backend, number);

		if (!TRACING)
			note_full(b, load, before);
	}
	return number;
}

/*
 * Counts a connection towards the backend of the one that its client had with the same port, where the service has it so; 0 where
 * there is none, or it is another service's, or takes no more.
 */
static always_inline int keeps_backend(const struct service *s, __u32 number, __u32 before)
{
	const struct backend *b = before && s->reuse == KEEP ? backend_at(before) : 0;

	return b && b->service == number && admit(before);
}

struct least {
	__u64 list;
	/* The place in the list at which the search begins. */
	__u32 from;
	__u32 backend;
	/* What was found: the load over its weight is the smallest so far. */
	__u64 load;
	/* Its weight, 32 bits, and how the scheduler counts, in one word: arguments of a function are few. */
	__u64 weight_and_count;
};

/* The new connection itself counts as an established one. */
#define COUNTS_ITSELF 1
/* It counts nothing where there is no other one. */
#define IDLE_FIRST 2

/* An established connection weighs as much as 256 others: those are about to go, or may never come. */
#define ESTABLISHED_WEIGHT 256

static always_inline int is_by_load(const struct service *s)
{
	return s->scheduler == LEAST || s->scheduler >= SHORTEST_DELAY;
}

static always_inline struct least least_in(const struct service *s, __u64 list)
{
	struct least least = { .list = list };

	if (s->scheduler >= SHORTEST_DELAY)
		least.weight_and_count = s->scheduler == NEVER_QUEUE ? COUNTS_ITSELF | IDLE_FIRST : COUNTS_ITSELF;
	return least;
}

/* In place of a load, for one that is not the least loaded, or gets no more. */
#define NO_LESS (~0ULL)

/*
 * What a backend's connections count, where that is less for its weight than `load` for the weight that comes with it, or there is none
 * yet. A function of its own, since it is in a loop: the verifier follows each branch in there as often as it goes round.
 */
__noinline __u64 less_than(__u32 number, __u64 load, __u64 weight_and_count)
{
	const struct backend *b = backend_at(number);
	const struct load *own = bpf_map_lookup_elem(&loads, &number);
	__u32 weight = weight_and_count >> 32;
	__u64 both, sum;

	if (!b || !own || !b->weight)
		return NO_LESS;
	both = own->connections - HAS_ENDED(copy.backend, number);
	if (is_at_limit(b, own, both))
		return NO_LESS;
	sum = (both >> 32) * ESTABLISHED_WEIGHT + ((__u32)both - (both >> 32));
	if (weight_and_count & COUNTS_ITSELF && (sum || !(weight_and_count & IDLE_FIRST)))
		sum += ESTABLISHED_WEIGHT;
	return weight && sum * weight >= load * b->weight ? NO_LESS : sum;
}

__noinline __u32 weight_of(__u32 number)
{
	const struct backend *b = backend_at(number);

	return b ? b->weight : 0;
}

static long least_of(__u32 i, struct least *least)
{
	__u64 list = least->list, sum;
	__u32 at = least->from + i, length, number;

	/* What the verifier learns of the length here is not to follow it through the loop. */
	FORGET(list);
	length = LENGTH(list);
	number = list_at(list, at < length ? at : at - length);
	sum = less_than(number, least->load, least->weight_and_count);
	if (sum == NO_LESS)
		return 0;
	least->load = sum;
	least->weight_and_count = (__u64)weight_of(number) << 32 | (__u32)least->weight_and_count;
	least->backend = number;
	return 0;
}

/*
 * The less loaded of two for its weight; 0 when both are at their limits. They are drawn by the hash of the client's packets,
 * which is not known outside, so that a packet that is traced has the same.
 */
static always_inline __u32 less_loaded(const struct service *s, __u64 list, __u64 hash)
{
	struct least least = least_in(s, list);
	__u64 length = LENGTH(list);
	__u32 one = (hash & 0xffffffff) * length >> 32, other = (hash >> 32) * length >> 32;

	if (other == one)
		other = one + 1 < length ? one + 1 : 0;
	least_of(one, &least);
	least_of(other, &least);
	return least.backend;
}

/* Where in a list of this length, which the least loaded is not found by, a service's next connection begins to look. */
static always_inline __u32 start_in(const struct service *s, __u32 service, const struct tuple *t, __u32 length, int take)
{
	__u64 *turn;

	if (s->scheduler != ROUND_ROBIN)
		return hash_source(t, s->scheduler == FLOW_HASH) % length;
	turn = bpf_map_lookup_elem(&turns, &service);
	if (!turn)
		return 0;
	return (take ? fetch_and_add(turn, 1) : *turn) % length;
}

static always_inline __u32 walk_from(__u32 service, __u32 length)
{
	__u64 *turn = bpf_map_lookup_elem(&turns, &service);

	return turn ? fetch_and_add(turn, LEAST_WALKED) % length : 0;
}

/* The backend's number, with the connection counted towards it; or a negative reason for a drop. */
OF_TUPLE(int, schedule, (__u32 service, __u64 hash), (service, hash))
{
	const struct service *s = service_at(service);
	__u32 length, at;
	__u64 list;

	if (!s || !t)
		return -DROP_INTERNAL;
	/* One list for all of it: another one may be in place at any moment, and be shorter. */
	list = READ_ONCE(s->schedule);
	length = LENGTH(list);
	if (!length)
		return -DROP_NO_BACKEND;
	if (is_by_load(s)) {
		__u64 none = UNKNOWN_ZERO(list);
		struct least least = least_in(s, list);

		least.load = none;
		least.weight_and_count ^= none;
		least.backend = none;

		if (length > LEAST_SCANNED) {
			at = less_loaded(s, list, hash);
			if (at && admit(at))
				return at;
			/* The next connection, of the same client too, begins further on, so that all backends are tried. */
			least.from = walk_from(service, length);
			length = length < LEAST_WALKED ? length : LEAST_WALKED;
		}
		LOOP(LEAST_WALKED, length, least_of, &least);
		if (least.backend && admit(least.backend))
			return least.backend;
		return -DROP_BACKENDS_FULL;
	}
	at = start_in(s, service, t, length, 1);
	for (int i = 0; i < SCHEDULE_TRIES; i++) {
		__u32 number = list_at(list, at);

		if (number && admit(number))
			return number;
		/* Without a branch, of which the verifier would follow both ways each time. */
		at = (at + 1) % length;
	}
	return -DROP_BACKENDS_FULL;
}

/* The backend that `schedule` will most likely choose, with nothing changed; 0 when that takes a look at all of them. */
static always_inline __u32 likely_backend(const struct service *s, __u32 service, const struct tuple *t, __u64 hash)
{
	__u64 list = READ_ONCE(s->schedule);
	__u32 length = LENGTH(list);

	if (is_by_load(s))
		return length > LEAST_SCANNED ? less_loaded(s, list, hash) : 0;
	return length ? list_at(list, start_in(s, service, t, length, 0)) : 0;
}

#endif
