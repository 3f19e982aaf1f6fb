/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The connection table: records in sets or in the overflow, and an index of buckets; see shape.h.
 *
 * Looking up takes no lock. Inserting takes that of the tuple's own bucket, so that no two CPUs insert the same;
 * removing takes none, because it may be interrupted by the packet path on the same CPU.
 *
 * Functions with loops are global, for the verifier: it looks at each of them once and by itself.
 */
#ifndef BALANCER_TABLE_H
#define BALANCER_TABLE_H

#include <bpf/bpf_endian.h>

#include "sources.h"

#define SLOT(entry) ((__u32)(entry)&0x7fffffff)
#define DIRECTION(entry) ((enum direction)(((__u32)(entry)) >> 31))
#define STATE(live) ((enum state)(((live) >> 32) & 0xff))
#define BEFORE(live) ((enum state)(((live) >> 40) & 0xff))
/* In CLOSE, beside the state before: the backend has reset it. */
#define RESET_BY_BACKEND (1U << 16)
#define TICK(live) ((__u32)(live))
#define LIVE(state, tick) ((__u64)(state) << 32 | (tick))

static always_inline struct bucket *bucket_at(__u64 hash, int step)
{
	__u32 key = ((__u32)hash + step * ((__u32)(hash >> 40) | 1)) & tuning.bucket_mask;

	return bpf_map_lookup_elem(&buckets, &key);
}

static always_inline struct connection *connection_at(__u32 slot)
{
#if TRACING
	if (slot == COPY_IN_SET || slot == COPY_IN_OVERFLOW) {
		struct trace *t = trace_record();
		struct connection *copy;

		if (!t)
			return 0;
		copy = &t->copy;
		barrier_var(copy);
		return copy;
	}
	/* The compiler knows which numbers `take_slot` gives, and would leave out the mask, without which the verifier refuses it. */
	barrier_var(slot);
#endif
	__u32 key = slot / WAYS;
	struct set *set = bpf_map_lookup_elem(&connections, &key);

	if (!set)
		return 0;
	/* Arithmetic before the check is nothing for the verifier. */
	barrier_var(set);
	return &set->way[slot % WAYS];
}

/* The set of a tuple. */
static always_inline __u32 set_of(__u64 hash)
{
	return 1 + ((hash & 0xffffffff) * tuning.sets >> 32);
}

static always_inline int is_in_set(__u32 slot)
{
	return TRACING ? slot == COPY_IN_SET : slot / WAYS <= tuning.sets;
}

static always_inline struct service *service_at(__u32 number)
{
	return bpf_map_lookup_elem(&services, &number);
}

static always_inline struct backend *backend_at(__u32 number)
{
	return bpf_map_lookup_elem(&backends, &number);
}

static always_inline struct address *local_at(__u32 number)
{
	return bpf_map_lookup_elem(&locals, &number);
}

static always_inline int same(const struct address *a, const struct address *b)
{
	return a->lo == b->lo && a->hi == b->hi;
}

/*
 * The ports that a connection's client and its backend are spoken to at. Those of a service of any port are the one that the client asked for,
 * which is kept in place of the local port: FullNAT alone has local ones, and no such services.
 */
static always_inline __u16 service_port(const struct connection *c, const struct service *s)
{
	return s->port ?: c->local_port;
}

static always_inline __u16 backend_port(const struct connection *c, const struct backend *b)
{
	return b->port ?: c->local_port;
}

/* Whether a packet with this tuple belongs to the connection, in this direction. */
static always_inline int matches(const struct connection *c, enum direction direction, const struct tuple *t)
{
	const struct service *s = service_at(c->service);

	if (!s || s->protocol != t->protocol)
		return 0;
	if (direction == INWARD)
		return same(&c->client, &t->source) && c->client_port == t->source_port &&
		       same(&s->address, &t->destination) && service_port(c, s) == t->destination_port;

	const struct backend *b = backend_at(c->backend);

	if (!b || !same(&b->address, &t->source) || backend_port(c, b) != t->source_port)
		return 0;
	if (s->forward == NAT)
		return same(&c->client, &t->destination) && c->client_port == t->destination_port;

	const struct address *l = local_at(c->local);

	return l && same(l, &t->destination) && c->local_port == t->destination_port;
}

/* The tuple of a backend's packets to the address and port that it was spoken to from. */
static always_inline void backends_tuple(struct tuple *t, const struct service *s, const struct backend *b,
					 const struct address *to, __u16 port)
{
	t->source = b->address;
	t->source_port = b->port;
	t->destination = *to;
	t->destination_port = port;
	t->protocol = s->protocol;
}

/* Whether a backend is of another family than its service: with FullNAT, IPv4 of a service of IPv6. */
static always_inline int is_of_other_family(const struct service *s, const struct backend *b)
{
	return is_v4(&s->address) != is_v4(&b->address);
}

/* The tuple of a connection's packets in this direction; 0 when there is none. */
static always_inline int tuple_of(const struct connection *c, enum direction direction, struct tuple *t)
{
	const struct service *s = service_at(c->service);
	const struct backend *b = backend_at(c->backend);

	if (!s || !b)
		return 0;
	if (direction == INWARD) {
		t->protocol = s->protocol;
		t->source = c->client;
		t->source_port = c->client_port;
		t->destination = s->address;
		t->destination_port = service_port(c, s);
		return 1;
	}
	if (s->forward == NAT) {
		backends_tuple(t, s, b, &c->client, c->client_port);
		t->source_port = backend_port(c, b);
		return 1;
	}

	const struct address *l = local_at(c->local);

	if (!l)
		return 0;
	backends_tuple(t, s, b, l, c->local_port);
	return s->forward == FULLNAT;
}

static always_inline int is_known(const struct connection *c)
{
	return STATE(c->live) != FREE && STATE(c->live) < RESERVED;
}

static always_inline int belongs(__u64 entry, const struct tuple *t)
{
	struct connection *c = connection_at(SLOT(entry));

	return c && is_known(c) && matches(c, DIRECTION(entry), t);
}

/* As `belongs`, but also true while the connection is still being put in: index entries are written before the state. */
static always_inline int will_belong(__u64 entry, const struct tuple *t)
{
	struct connection *c = connection_at(SLOT(entry));

	return c && (is_known(c) || STATE(c->live) == RESERVED) && matches(c, DIRECTION(entry), t);
}

/* Whether an entry is the tuple's. A function of its own: what follows upon its answer is the same for all entries. */
OF_TUPLE(int, is_entry_of, (__u64 entry, int taken), (entry, taken))
{
	if (!t)
		return 0;
	return taken ? will_belong(entry, t) : belongs(entry, t);
}

/*
 * The index entry for a tuple, slot and direction of it; 0 when there is none. `taken`: also one of a connection that is
 * not there yet, which packets do not find and others must not take.
 */
OF_TUPLE(__u32, find_indexed, (__u64 hash, int taken), (hash, taken))
{
	if (!t)
		return 0;
	for (int step = 0; step < PATH_BUCKETS; step++) {
		struct bucket *bucket;

		/* Nothing that follows from it is kept on the stack. */
		barrier_var(hash);
		bucket = bucket_at(hash, step);
		if (!bucket)
			return 0;
		for (int i = 0; i < BUCKET_ENTRIES; i++) {
			__u64 entry = bucket->entry[i];

			if (entry && entry >> 32 == hash >> 32 && is_entry_of(t, entry, taken))
				return entry;
		}
		if (!(__u32)bucket->head)
			return 0;
	}
	return 0;
}

/* The slot of a client's packet's connection, where that is in its set; 0 when it is not. */
static always_inline __u32 find_in_set(const struct tuple *t, __u64 hash)
{
	__u32 tag = hash >> 32, set_number = set_of(hash);
	struct set *set = bpf_map_lookup_elem(&connections, &set_number);

	if (!set)
		return 0;
	for (int i = 0; i < WAYS; i++) {
		struct connection *c = &set->way[i];

		if (c->tag == tag && is_known(c) && matches(c, INWARD, t))
			return set_number * WAYS + i;
	}
	return 0;
}

/* Slot and direction of the connection that a packet belongs to; 0 when there is none. */
OF_TUPLE(__u32, find_each, (__u64 hash), (hash))
{
	if (!t)
		return 0;
	return find_in_set(t, hash) ?: find_indexed(t, hash, 0);
}

/*
 * As `find_each`, but quicker where the connection is in its set, or its entry in its own bucket, and no other there has the tag.
 * Set and bucket are both read before either is compared, so that their cache lines are fetched at the same time.
 */
static always_inline __u32 find(const struct tuple *t, __u64 hash)
{
	__u32 tag = hash >> 32, set_number = set_of(hash), slot = UNKNOWN_ZERO(hash);
	struct set *set = bpf_map_lookup_elem(&connections, &set_number);
	struct bucket *bucket = bucket_at(hash, 0);
	__u64 found = UNKNOWN_ZERO(hash);

	if (!set || !bucket)
		return 0;

	__u32 passed = *(volatile __u64 *)&bucket->head;

#pragma unroll
	for (int i = 0; i < WAYS; i++)
		if (set->way[i].tag == tag)
			slot = set_number * WAYS + i;
	if (slot) {
		struct connection *c = &set->way[slot % WAYS];

		if (is_known(c) && matches(c, INWARD, t))
			return slot;
	}
#pragma unroll
	for (int i = 0; i < BUCKET_ENTRIES; i++) {
		__u64 entry = bucket->entry[i];

		if (entry >> 32 == tag)
			found = entry ?: found;
	}
	if (found) {
		if (belongs(found, t))
			return found;
	} else if (!slot && !passed) {
		return 0;
	}
	return find_each(t, hash);
}

enum inserted { INSERTED, EXISTS, NO_ROOM, CONTENDED };

struct locking {
	struct bucket *bucket;
	int locked;
};

static long try_lock(__u32 i, struct locking *l)
{
	__u64 head = l->bucket->head & ~BUCKET_LOCK;

	l->locked = replace(&l->bucket->head, head, head | BUCKET_LOCK);
	return l->locked;
}

/* It is held for one insertion, which nothing interrupts: some hundred nanoseconds. */
#define LOCK_TRIES 1000

#ifdef OLD_KERNEL
/* The verifier puts off no more than 8,192 branches, which is less than a loop of this length has: it is a loop of loops. */
#define TRIES_AT_ONCE 40

__noinline int try_to_lock(__u64 hash)
{
	struct locking lock = { .bucket = bucket_at(hash, 0) };

	if (!lock.bucket)
		return 0;
	LOOP(TRIES_AT_ONCE, TRIES_AT_ONCE, try_lock, &lock);
	return lock.locked;
}

static always_inline int lock_bucket(struct bucket *first, __u64 hash)
{
	int locked = 0;

	for (int i = 0; i < LOCK_TRIES / TRIES_AT_ONCE && !locked; i++)
		locked = try_to_lock(hash);
	return locked;
}
#else
static always_inline int lock_bucket(struct bucket *first, __u64 hash)
{
	struct locking lock = { .bucket = first };

	bpf_loop(LOCK_TRIES, try_lock, &lock, 0);
	return lock.locked;
}
#endif

/* Puts an entry in the place of another one of a bucket on the way, which 0 is for none; whether there was such a one. */
__noinline int swap_entry(__u64 hash, __u32 step, __u64 before, __u64 entry)
{
	struct bucket *bucket = bucket_at(hash, step);

	/* A tracing program writes nothing, and would be called without it. */
	barrier_var(entry);
	if (!bucket)
		return 0;
	for (int i = 0; i < BUCKET_ENTRIES; i++)
		if (bucket->entry[i] == before && replace(&bucket->entry[i], before, entry))
			return 1;
	return 0;
}

/*
 * Makes a connection be found by packets with the tuple, unless another one is. In its set that takes no index entry: packets find
 * it from the moment that the record has a state, which is that of `live`.
 */
OF_TUPLE(int, insert, (__u64 hash, __u32 slot_and_direction, __u64 live), (hash, slot_and_direction, live))
{
	struct bucket *first = bucket_at(hash, 0);
	enum inserted result = NO_ROOM;
	__u32 taken = 0;

	if (!first || !t)
		return NO_ROOM;
	if (!lock_bucket(first, hash))
		return CONTENDED;

	/*
	 * No tuple is both a client's and a backend's: no local address is a service's. A traced packet has found no
	 * connection before, or one that would have ended.
	 */
	if (live && !TRACING)
		taken = find_in_set(t, hash);
	if (!taken && (!live || !TRACING))
		taken = find_indexed(t, hash, !live);
	if (taken && !HAS_ENDED(entry, SLOT(taken))) {
		result = EXISTS;
		goto unlock;
	}
	if (live) {
		struct connection *c = connection_at(SLOT(slot_and_direction));

		if (!c)
			goto unlock;
		*(volatile __u64 *)&c->live = live;
		if (is_in_set(SLOT(slot_and_direction))) {
			result = INSERTED;
			goto unlock;
		}
	}
	for (int step = 0; step < PATH_BUCKETS; step++) {
		struct bucket *bucket = bucket_at(hash, step);

		if (!bucket)
			goto unlock;
		if (swap_entry(hash, step, 0, (hash >> 32) << 32 | slot_and_direction)) {
			result = INSERTED;
			goto unlock;
		}
		/* Before the entry can be seen behind it. */
		if (step + 1 < PATH_BUCKETS)
			fetch_and_add(&bucket->head, 1);
	}
	/* No room in all of them: no entry of this tuple has passed them. */
	for (int step = 0; step + 1 < PATH_BUCKETS; step++) {
		struct bucket *bucket = bucket_at(hash, step);

		if (bucket)
			fetch_and_add(&bucket->head, -1);
	}
unlock:
	/* The lock is the topmost bit: added once more it is gone. */
	fetch_and_add(&first->head, BUCKET_LOCK);
	return result;
}

/* Takes an entry out of the index. */
__noinline int remove(__u64 hash, __u32 slot_and_direction)
{
	__u64 entry = (hash >> 32) << 32 | slot_and_direction;
	int found = -1;

	for (int step = 0; step < PATH_BUCKETS && found < 0; step++)
		if (swap_entry(hash, step, entry, 0))
			found = step;
	for (int step = 0; step < PATH_BUCKETS; step++) {
		if (step >= found)
			break;

		struct bucket *bucket = bucket_at(hash, step);

		if (bucket)
			fetch_and_add(&bucket->head, -1);
	}
	return found >= 0;
}

/* Counts a connection, with this CPU's counter when there is room in it. The counter's number, or -1. */
__noinline int count_connection(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	for (__u32 i = 0; i < MAX_COUNTERS; i++) {
		if (i >= tuning.counters)
			break;

		__u32 number = (cpu + i) % tuning.counters;
		struct connection_count *count = bpf_map_lookup_elem(&shards, &number);

		if (!count)
			break;
		if (fetch_and_add(&count->used, 1) < tuning.connections_per_counter)
			return number;
		fetch_and_add(&count->used, -1);
	}
	return -1;
}

static always_inline void uncount_connection(__u32 number)
{
	struct connection_count *count = bpf_map_lookup_elem(&shards, &number);

	if (count)
		fetch_and_add(&count->used, -1);
}

static always_inline __u32 take_overflow(void)
{
	__u32 key = 0, first = (tuning.sets + 1) * WAYS;
	struct pool *pool = bpf_map_lookup_elem(&pools, &key);

	if (!pool || !tuning.overflow)
		return 0;
	if (pool->fresh < tuning.overflow) {
		__u64 fresh = fetch_and_add(&pool->fresh, 1);

		if (fresh < tuning.overflow)
			return first + fresh;
		/* It stays above, by no more than there are CPUs. */
	}
	for (int i = 0; i < 8; i++) {
		__u64 taken = pool->taken;

		if (taken >= pool->given)
			return 0;

		__u32 at = taken % tuning.overflow;
		__u32 *element = bpf_map_lookup_elem(&free_slots, &at);

		if (!element)
			return 0;

		__u32 slot = *element;

		if (replace(&pool->taken, taken, taken + 1))
			return slot;
	}
	return 0;
}

/* A free slot, in the tuple's set when there is one there; 0 when there is none. Its record is reserved. */
__noinline __u32 take_slot(__u64 hash, __u32 tick)
{
	__u32 set_number = set_of(hash), slot;
	struct set *set = bpf_map_lookup_elem(&connections, &set_number);
	struct connection *c;

	if (!set)
		return 0;
	for (int i = 0; i < WAYS; i++)
		if (set->way[i].live == 0 && replace(&set->way[i].live, 0, LIVE(RESERVED, tick)))
			return TRACING ? COPY_IN_SET : set_number * WAYS + i;
	slot = take_overflow();
	if (TRACING)
		return slot ? COPY_IN_OVERFLOW : 0;
	c = connection_at(slot);
	if (!slot || !c)
		return 0;
	c->live = LIVE(RESERVED, tick);
	return slot;
}

/* Frees the slot of a connection that has ended. Called by the sweep alone, one at a time. */
static always_inline void give_slot(struct connection *c, __u32 slot)
{
	__u32 key = 0;
	struct pool *pool = bpf_map_lookup_elem(&pools, &key);

	uncount_connection(c->counter & COUNTER_MASK);
	*(volatile __u64 *)&c->live = 0;
	if (is_in_set(slot) || !pool || !tuning.overflow)
		return;

	__u64 given = pool->given;
	__u32 at = given % tuning.overflow;
	__u32 *element = bpf_map_lookup_elem(&free_slots, &at);

	if (element) {
		*element = slot;
		*(volatile __u64 *)&pool->given = given + 1;
	}
}

/* Counts a connection of the service, unless that is at its limit. */
static always_inline int count_in_service(const struct service *s, __u32 number)
{
	__u64 *count = bpf_map_lookup_elem(&held, &number);

	if (!count)
		return 0;
	if (fetch_and_add(count, 1) - HAS_ENDED(copy.service, number) < (s->limit ?: ~0U))
		return 1;
	fetch_and_add(count, -1);
	return 0;
}

static always_inline void uncount_in_service(__u32 number)
{
	__u64 *count = bpf_map_lookup_elem(&held, &number);

	if (count)
		fetch_and_add(count, -1);
}

static always_inline void add_load(__u32 backend, __s64 all, __s64 established)
{
	struct load *load = bpf_map_lookup_elem(&loads, &backend);

	/* Both halves in one: what the lower one borrows it gives back, because it never falls below 0. */
	if (load)
		fetch_and_add(&load->connections, all + (established << 32));
}

/* The hold-down of a block of ports at a local address, as a backend sees them. */
static always_inline struct hold_down *hold_of(const struct backend *b, __u32 local, __u16 port, __u32 *check)
{
	__u64 id = (__u64)hash_endpoint(&b->address, b->port) << 32 | local << 16 | bpf_ntohs(port) / PORT_BLOCK;
	__u64 mixed = id * 0x9e3779b97f4a7c15ULL;
	__u32 key = mixed >> 40 & tuning.hold_mask;

	*check = mixed >> 8;
	return bpf_map_lookup_elem(&rests, &key);
}

/* A connection has ended that its backend has closed first, or as well, and keeps in TIME-WAIT: its block of ports is held down. */
static always_inline void hold_down(const struct connection *c, __u64 live)
{
	const struct service *s = service_at(c->service);
	const struct backend *b = backend_at(c->backend);
	struct hold_down *hold;
	__u32 check;

	if (TRACING || !s || !b || s->forward != FULLNAT || (STATE(live) != FIN_WAIT && STATE(live) != TIME_WAIT))
		return;
	hold = hold_of(b, c->local, c->local_port, &check);
	if (!hold)
		return;
	hold->check = check;
	hold->tick = TICK(live);
}

/* Connections of a service that are without an answer. */
static always_inline __u64 *unanswered_of(__u32 service)
{
	return bpf_map_lookup_elem(&unanswered, &service);
}

/*
 * Whether a connection is without an answer: so are those that somebody has reset whom the backend's SYN-ACK came to, who did not begin
 * them. One that the backend has reset is answered.
 */
static always_inline int is_waiting(__u64 live)
{
	return STATE(live) == SYN_RECV || (live >> 32 & (RESET_BY_BACKEND | 0xffff)) == (CLOSE | SYN_RECV << 8);
}

/* A connection without an answer is one more, or less, of its service's. */
static always_inline void count_unanswered(const struct connection *c, __s64 what)
{
	__u64 *waiting = c->counter & COUNTED ? unanswered_of(c->service) : 0;

	if (waiting)
		fetch_and_add(waiting, what);
}

/*
 * Ends a connection: from here on no packet finds it. 0 when another CPU has changed it meanwhile.
 */
__noinline int end_connection(__u32 slot, __u64 live, __u32 tick)
{
	struct connection *c = connection_at(slot);
	struct tuple t = {};

	if (!c || !replace(&c->live, live, LIVE(DEAD, tick)))
		return 0;
	if (tuple_of(c, OUTWARD, &t))
		remove(hash_tuple(&t), slot | (__u32)OUTWARD << 31);
	if (!is_in_set(slot) && tuple_of(c, INWARD, &t))
		remove(hash_tuple(&t), slot);
	add_load(c->backend, -1, STATE(live) == ESTABLISHED ? -1 : 0);
	/* Lengths of prefixes are given to others when a service has none left. */
	uncount_at_source(c);
	uncount_in_service(c->service);
	if (is_waiting(live))
		count_unanswered(c, -1);
	hold_down(c, live);
	return 1;
}

#endif
