/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A connection that another balancer has told of, put into the table as if its packets had come here. Run by the control plane for each of
 * them, upon a frame that is a `struct adoption`. From Linux 6.3 on such a run is not interrupted by packets' programs on its CPU, so that
 * no packet waits for a bucket's lock that it holds. Before, it may be, and with CONFIG_PREEMPT lie still with the lock: packets that make
 * or end a connection in that bucket meanwhile try LOCK_TRIES times, and are dropped as contended.
 */
#ifndef BALANCER_ADOPT_H
#define BALANCER_ADOPT_H

#include "balance.h"

/* Whether a time is later than another one, ticks. */
static always_inline int is_later(__u32 tick, __u32 than)
{
	return (__s32)(tick - than) > 0;
}

/* Makes a record that is there what was told of it, unless packets have come here since; enum adopted. */
static __noinline int refresh(struct connection *c, __u64 told)
{
	for (int i = 0; i < 4; i++) {
		__u64 live = *(volatile __u64 *)&c->live, next;
		enum state old = STATE(live), new = STATE(told);
		/* Both clocks tick at their own moments: what comes behind a state may seem to be as late as what came before. */
		int is_further = new > old && !is_later(TICK(live), TICK(told) + ADOPTION_SLACK);

		if (old == FREE || old >= RESERVED)
			return ADOPT_CONTENDED;
		if (!is_later(TICK(told), TICK(live)) && !is_further)
			return ADOPT_KEPT;
		next = is_later(TICK(live), TICK(told)) ? (told >> 32 << 32) | TICK(live) : told;
		if (atomic_replace(&c->live, live, next) != live)
			continue;
		if (old == ESTABLISHED && new != ESTABLISHED)
			add_load(c->backend, 0, -1);
		else if (old != ESTABLISHED && new == ESTABLISHED)
			add_load(c->backend, 0, 1);
		if (is_waiting(live) != is_waiting(next))
			count_unanswered(c, is_waiting(live) ? -1 : 1);
		return ADOPT_UPDATED;
	}
	return ADOPT_CONTENDED;
}

/*
 * The steps are functions of their own, called one after the other: frames of called functions add up.
 */

/* Ends a record that is in the way of one that was told of, if that is the later one. */
static __noinline int makes_way(__u32 slot, __u32 tick, __u32 now)
{
	struct connection *c = connection_at(slot);
	__u64 live;

	if (!slot || !c)
		return 0;
	live = *(volatile __u64 *)&c->live;
	if (STATE(live) == FREE || STATE(live) >= RESERVED)
		return 0;
	return is_later(tick, TICK(live) + ADOPTION_SLACK) && end_connection(slot, live, now);
}

/* The hash of the client's packets; 0 when there is no such service, or it has no connections. */
static __noinline __u64 adopted_tuple(const struct adoption *a, struct tuple *t)
{
	const struct service *s = service_at(a->service);

	if (!s || !s->protocol || s->flags & ONE_PACKET)
		return 0;
	t->protocol = s->protocol;
	t->source = a->client;
	t->source_port = a->client_port;
	t->destination = s->address;
	t->destination_port = s->port ?: a->local_port;
	return hash_tuple(t) ?: 1;
}

/* The slot of a connection of this client and port; 0 when there is none. */
static __noinline __u32 known_slot(const struct adoption *a)
{
	struct tuple t = {};
	__u64 hash = adopted_tuple(a, &t);

	return hash ? SLOT(find_each(&t, hash)) : 0;
}

/* Whether a record is the connection that was told of, and no other one of the same client and port. */
static always_inline int is_same(const struct connection *c, const struct adoption *a)
{
	const struct service *s = service_at(c->service);

	if (!s || c->backend != a->backend)
		return 0;
	return s->forward != FULLNAT || (c->local == a->local && c->local_port == a->local_port);
}

/* A record with its shares of limits, which nothing finds yet: its slot, or as a negative number enum adopted. */
static __noinline int adopt_slot(const struct adoption *a)
{
	const struct service *s = service_at(a->service);
	const struct backend *b = backend_at(a->backend);
	__u32 number = a->backend;
	struct load *load = bpf_map_lookup_elem(&loads, &number);
	struct tuple t = {};
	__u64 hash = adopted_tuple(a, &t);
	struct connection *c;
	int counter, slot;

	if (!s || !b || !load || !hash)
		return -ADOPT_STALE;
	if (b->ends)
		return -ADOPT_ENDS;
	/* By the upper limit alone: whether it waits for the lower one, the balancer has asked that let the connection in. */
	if (b->limit && (__u32)load->connections >= b->limit)
		return -ADOPT_BACKEND_FULL;
	if (!count_in_service(s, a->service))
		return -ADOPT_SERVICE_FULL;
	counter = count_connection();
	slot = counter < 0 ? 0 : take_slot(hash, a->now);
	c = connection_at(slot);
	if (!slot || !c) {
		uncount_in_service(a->service);
		if (counter >= 0)
			uncount_connection(counter);
		return counter < 0 ? -ADOPT_TABLE_FULL : -ADOPT_NO_ROOM;
	}
	note_full(b, load, load->connections);
	add_load(a->backend, 1, 0);
	c->tag = hash >> 32;
	c->client = a->client;
	c->client_port = a->client_port;
	c->service = a->service;
	c->backend = a->backend;
	/* Of a connection of UDP the backend may be told at any time. */
	c->counter = counter | bit_of_family(s, a->backend) | (s->client_address == ADDRESS_UOA ? TELLS | OPTED : 0);
	c->local = a->local;
	c->local_port = a->local_port;
	c->route = 0;
	if (s->access & ACCESS_LIMITED)
		count_at_source(c, 1);
	return slot;
}

/* The entry for the backend's packets, and of a tunnel the local address; enum adopted. */
static __noinline int adopt_outward(__u32 slot)
{
	struct connection *c = connection_at(slot);
	struct service *s = c ? service_at(c->service) : 0;
	struct tuple t = {};

	if (!c || !s)
		return ADOPT_STALE;
	if (s->forward != FULLNAT && s->forward != NAT)
		return insert_outward(slot) ? ADOPT_NO_LOCAL : ADOPT_CREATED;
	if (!tuple_of(c, OUTWARD, &t))
		return ADOPT_NO_LOCAL;
	switch (insert(&t, hash_tuple(&t), slot | (__u32)OUTWARD << 31, 0)) {
	case INSERTED:
		return ADOPT_CREATED;
	case EXISTS:
		return ADOPT_PORT_TAKEN;
	case NO_ROOM:
		return ADOPT_NO_ROOM;
	default:
		return ADOPT_CONTENDED;
	}
}

/* The slot of the connection that has the entry for the backend's packets which this one is to have. */
static __noinline __u32 rival_of(__u32 slot)
{
	struct connection *c = connection_at(slot);
	struct tuple t = {};

	if (!c || !tuple_of(c, OUTWARD, &t))
		return 0;
	return SLOT(find_indexed(&t, hash_tuple(&t), 1));
}

/* From here on packets find it; enum adopted. */
static __noinline int adopt_inward(const struct adoption *a, __u32 slot)
{
	struct connection *c = connection_at(slot);
	struct service *s = service_at(a->service);
	struct backend *b = backend_at(a->backend);
	__u64 live = (__u64)a->state << 32 | a->tick, hash;
	struct translation translation;
	struct tuple t = {};
	int result;

	hash = adopted_tuple(a, &t);
	if (!c || !s || !b || !hash)
		return ADOPT_STALE;
	if (!is_direct_return(s) && translation_of(c, s, b, INWARD, &translation))
		set_deltas(c, &t, &translation);
	result = insert(&t, hash, slot, live);
	if (result != INSERTED)
		return result == NO_ROOM ? ADOPT_NO_ROOM : ADOPT_CONTENDED;
	if (STATE(live) == ESTABLISHED)
		add_load(a->backend, 0, 1);
	return ADOPT_CREATED;
}

/* Takes back what was done for a record that no packet has found. */
static __noinline int take_back(__u32 slot, __u32 now, int has_entry)
{
	struct connection *c = connection_at(slot);
	struct tuple back = {};

	if (has_entry && c && tuple_of(c, OUTWARD, &back))
		remove(hash_tuple(&back), slot | (__u32)OUTWARD << 31);
	return abandon(slot, now, 0);
}

/* Keeps its source where it is, unless that has been for longer than the service keeps any. */
static __noinline int adopt_source(const struct adoption *a, __u32 slot)
{
	const struct service *s = service_at(a->service);

	return s && a->idle < s->persistence ? keep_template(slot, a->tick, TOLD) : 0;
}

/* What becomes of a connection that was told of; enum adopted. */
static always_inline int adopt_one(struct adoption *a)
{
	struct connection *c;
	int slot, result;

	slot = known_slot(a);
	c = slot ? connection_at(slot) : 0;
	if (c && is_same(c, a)) {
		a->slot = slot;
		result = refresh(c, (__u64)a->state << 32 | a->tick);
		a->tick = TICK(*(volatile __u64 *)&c->live);
		return result;
	}
	if (c && !makes_way(slot, a->tick, a->now))
		return ADOPT_KEPT;
	slot = adopt_slot(a);
	if (slot < 0)
		return -slot;
	result = adopt_outward(slot);
	if (result == ADOPT_PORT_TAKEN && makes_way(rival_of(slot), a->tick, a->now))
		result = adopt_outward(slot);
	if (result != ADOPT_CREATED) {
		take_back(slot, a->now, 0);
		return result;
	}
	result = adopt_inward(a, slot);
	if (result != ADOPT_CREATED)
		take_back(slot, a->now, 1);
	else
		adopt_source(a, slot);
	a->slot = slot;
	return result;
}

SEC("xdp")
int adopt(struct xdp_md *ctx)
{
	struct adoption *frame = (void *)(long)ctx->data, a;
	const struct control *c = settings();

	if (!c || (void *)(frame + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	a = *frame;
	a.now = now_tick(c);
	a.tick = a.now - a.idle;
	a.slot = 0;
	a.result = adopt_one(&a);
	*frame = a;
	return XDP_PASS;
}

#endif
