/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* New connections: their backend, local address and port, and their record. */
#ifndef BALANCER_CREATE_H
#define BALANCER_CREATE_H

#include "local_ports.h"
#include "once.h"
#include "persistence.h"
#include "route.h"
#include "state.h"
#include "syn_proxy.h"
#include "translate.h"

/* How a service's connections remember that backends are told of their clients. */
static always_inline __u16 way_of_telling(const struct service *s)
{
	if (!s->client_address)
		return 0;
	return s->client_address == ADDRESS_PROXY_V2 ? PREFIXED : OPTED;
}

/* Whether headers of a connection to this backend are translated. */
static always_inline __u16 bit_of_family(const struct service *s, __u32 backend)
{
	const struct backend *b = backend_at(backend);

	return b && is_of_other_family(s, b) ? MIXED : 0;
}

/* Whether the backend is to be told of the client of a connection that this packet begins. */
static always_inline __u16 bits_of_telling(const struct service *s, const struct packet *p)
{
	if (!s->client_address || !(s->client_address == ADDRESS_UOA || p->opens || p->cookie))
		return 0;
	return TELLS | way_of_telling(s);
}

/*
 * Prefetches the bucket that a new connection's entry for replies will most likely go to, ahead of the look-up: both cache lines are
 * fetched at the same time then. It is a guess: another CPU may take the port or the turn of the backend before.
 */
OF_TUPLE(int, prefetch_reply_bucket, (__u32 number, __u64 hash), (number, hash))
{
	const struct service *s = service_at(number);
	const struct address *to = t ? &t->source : 0;
	struct tuple reply = {};
	struct local l = {};
	struct backend *b;
	struct bucket *bucket;
	__u64 *next_port;
	__u32 key;

	if (!s || !t)
		return 0;
	l.port = t->source_port;
	b = backend_at(likely_backend(s, number, t, hash));
	if (!b)
		return 0;
	if (s->forward == FULLNAT) {
		key = sequence_of(b);
		next_port = bpf_map_lookup_elem(&cursors, &key);
		/* Which block is next is not known before it is taken. */
		if (!next_port || *next_port % PORT_BLOCK == 0 || !local_of(s, b, *next_port, &l))
			return 0;
		to = local_at(l.address);
	} else if (s->forward != NAT) {
		return 0;
	}
	if (!to)
		return 0;
	backends_tuple(&reply, s, b, to, l.port);
	if (!b->port)
		reply.source_port = t->destination_port;
	bucket = bucket_at(hash_tuple(&reply), 0);
	return bucket ? *(volatile __u32 *)&bucket->head : 0;
}

/* Gives a connection the nth local port of its backend; 0 without any address. */
static __noinline int take_local(__u32 slot, __u64 nth)
{
	struct connection *c = connection_at(slot);
	const struct service *s = c ? service_at(c->service) : 0;
	const struct backend *b = c ? backend_at(c->backend) : 0;
	struct local l;

	if (!s || !b || !local_of(s, b, nth, &l))
		return 0;
	c->local = l.address;
	c->local_port = l.port;
	return 1;
}

/* Gives a connection the nth local port of its backend, and inserts the entry for it: enum inserted, or -1 without any address. */
__noinline int insert_at(__u32 slot, __u64 nth)
{
	const struct connection *c;
	struct tuple t = {};

	if (!take_local(slot, nth))
		return -1;
	c = connection_at(slot);
	if (!c || !tuple_of(c, OUTWARD, &t))
		return -1;
	return insert(&t, hash_tuple(&t), slot | (__u32)OUTWARD << 31, 0);
}

/* A local address and port that no other connection to the backend has; 0 or a reason for a drop. */
__noinline int insert_local_port(__u32 slot)
{
	struct connection *c = connection_at(slot);
	struct backend *b;
	__u64 *next_port, next, taken = 0;
	__u32 key;
	int result;

	if (!c)
		return DROP_INTERNAL;
	b = backend_at(c->backend);
	if (!b)
		return DROP_INTERNAL;
	key = sequence_of(b);
	next_port = bpf_map_lookup_elem(&cursors, &key);
	if (!next_port)
		return DROP_INTERNAL;
	next = *next_port;
	for (int i = 0; i < LOCAL_PORT_TRIES; i++) {
		/* Ports that are taken are mostly those of connections that last: ever more blocks are skipped. */
		__u32 skip = i < SEQUENTIAL_TRIES ? 0 : i - SEQUENTIAL_TRIES;

		if (i >= SEQUENTIAL_TRIES || next % PORT_BLOCK == 0) {
			next = take_block(c->service, c->backend, skip ? 1 << (skip < MAX_SKIP_SHIFT ? skip : MAX_SKIP_SHIFT) : 0, taken);
			if (TRACING)
				taken = next + PORT_BLOCK;
		}
		result = insert_at(slot, next++);
		if (result != EXISTS && result != NO_ROOM)
			goto done;
	}
	next = search_port(c->service, c->backend);
	if (!next)
		return DROP_NO_LOCAL_PORT;
	result = insert_at(slot, next - 1);
done:
	if (!TRACING)
		*next_port = next;
	if (result < 0)
		return DROP_NO_LOCAL_ADDRESS;
	return result == INSERTED ? 0 : result == CONTENDED ? DROP_CONTENDED : DROP_NO_LOCAL_PORT;
}

/*
 * The entry for packets from the backend where there is no local port to find, and with it the local address; 0 or a reason for a drop.
 */
__noinline int insert_outward(__u32 slot)
{
	struct connection *c = connection_at(slot);
	struct service *s;
	struct tuple t = {};

	if (!c)
		return DROP_INTERNAL;
	s = service_at(c->service);
	if (!s)
		return DROP_INTERNAL;
	if (s->forward == TUNNEL) {
		__u64 list = READ_ONCE(s->locals);
		__u32 addresses = LENGTH(list);

		/* A flow's outer source stays, and flows have different ones. */
		if (!addresses)
			return DROP_NO_LOCAL_ADDRESS;
		c->local = list_at(list, hash_endpoint(&c->client, c->client_port) % addresses);
		return 0;
	}
	if (s->forward != NAT)
		return 0;
	/* The client's own port is what there is. */
	if (!tuple_of(c, OUTWARD, &t))
		return DROP_INTERNAL;
	switch (insert(&t, hash_tuple(&t), slot | (__u32)OUTWARD << 31, 0)) {
	case INSERTED:
		return 0;
	case CONTENDED:
		return DROP_CONTENDED;
	case EXISTS:
		return DROP_NAT_CLASH;
	default:
		return DROP_INDEX_FULL;
	}
}

/*
 * A new connection takes three steps, which are functions of their own because frames of called functions add up: a
 * reserved record with a backend; the entry for the backend's packets, with the local address and port; the state, from
 * which on the client's packets find it.
 */

/* Abandons a record before any packet of the client could find it. */
static always_inline int abandon(__u32 slot, __u32 tick, int reason)
{
	struct connection *c = connection_at(slot);

	if (c) {
		add_load(c->backend, -1, 0);
		uncount_at_source(c);
		uncount_in_service(c->service);
		c->live = LIVE(DEAD, tick);
	}
	return -reason;
}

/*
 * The slot, or a negative reason for a drop. `before` is the backend of the connection that the client had with the same port, or, of QUIC,
 * the one that the connection ID names; 0 where there is none.
 */
OF_PACKET(int, reserve, (__u64 hash, __u32 number, __u32 before, __u32 tick), (hash, number, before, tick))
{
	const struct service *s = service_at(number);
	struct connection *c;
	__u32 slot;
	__u32 named = s && s->quic_length ? before : 0;
	int backend = 0, counter, refusal;

	if (!p || !s)
		return -DROP_INTERNAL;
	if (s->flags & ONE_PACKET)
		return schedule_packet(p, number, named, tick);
	if (!count_in_service(s, number))
		return -DROP_SERVICE_FULL;
	if (!named && s->persistence)
		backend = persistent_backend(p, number, tick);
	if (named) {
		TRACE(named, 1);
		backend = count_own(named);
	} else if (backend) {
		TRACE(kept, 1);
	} else if (keeps_backend(s, number, before)) {
		TRACE(reopening, REOPENED_SAME_BACKEND);
		backend = before;
	} else {
		backend = schedule(&p->tuple, number, hash);
	}
	if (backend < 0) {
		uncount_in_service(number);
		return backend;
	}
	/* The first part of a datagram whose parts would be dropped. */
	refusal = p->part && bit_of_family(s, backend) ? DROP_FRAGMENT : 0;
	counter = refusal ? -1 : count_connection();
	if (counter < 0) {
		uncount_in_service(number);
		add_load(backend, -1, 0);
		return -(refusal ?: DROP_TABLE_FULL);
	}
	slot = take_slot(hash, tick);
	c = connection_at(slot);
	if (!slot || !c) {
		uncount_connection(counter);
		uncount_in_service(number);
		add_load(backend, -1, 0);
		return -DROP_INDEX_FULL;
	}
	TRACE(backend, backend);
	c->tag = hash >> 32;
	c->client = p->tuple.source;
	c->client_port = p->tuple.source_port;
	c->service = number;
	c->backend = backend;
	c->counter = counter | bits_of_telling(s, p) | bit_of_family(s, backend);
	c->local = 0;
	c->local_port = s->port ? 0 : p->tuple.destination_port;
	c->route = 0;
	/* A traced packet has been asked about it, and is to count nowhere. */
	if (!TRACING && s->access & ACCESS_LIMITED) {
		refusal = count_at_source(c, 0);
		if (refusal)
			return abandon(slot, tick, refusal);
	}
	return slot;
}

/* What a connection is to remember whose numbers are to be shifted behind a prefix. A function of its own as `ask_kernel`. */
static __noinline int note_first_number(struct xdp_md *ctx, const struct packet *p, __u32 slot)
{
	struct splice *splice = splice_at(slot);
	struct tcphdr *tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);

	if (!splice || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	splice->timestamp = 0;
	splice->isn = bpf_ntohl(tcp->seq);
	*(volatile __u64 *)&splice->word = 0;
	return 0;
}

/* The slot: another one when another CPU has had a packet of the same flow. Or a negative reason for a drop. */
OF_PACKET(int, publish, (struct xdp_md *ctx, __u64 hash, __u32 slot, __u32 tick), (ctx, hash, slot, tick))
{
	struct connection *c = connection_at(slot);
	struct translation t;
	struct service *s;
	struct backend *b;
	int result;

	if (!c || !p)
		return -DROP_INTERNAL;
	s = service_at(c->service);
	b = backend_at(c->backend);
	if (!s || !b)
		return abandon(slot, tick, DROP_INTERNAL);
	if (!is_direct_return(s) && translation_of(c, s, b, INWARD, &t))
		set_deltas(c, &p->tuple, &t);

	struct ethhdr *ethernet = (void *)(long)ctx->data;

	if (!is_direct_return(s) && (void *)(ethernet + 1) <= (void *)(long)ctx->data_end)
		keep_arrival(ctx, p, c, ethernet, tick);

	if (s->syn_proxy == PROXY_AUTO && !is_spliced(c) && first_state(p, is_direct_return(s)) == SYN_RECV) {
		c->counter |= COUNTED;
		count_unanswered(c, 1);
	}
	result = insert(&p->tuple, hash, slot, LIVE(first_state(p, is_direct_return(s)), tick));
	if (result != INSERTED) {
		struct tuple back = {};

		if (tuple_of(c, OUTWARD, &back))
			remove(hash_tuple(&back), slot | (__u32)OUTWARD << 31);
		count_unanswered(c, -1);
		abandon(slot, tick, 0);
		if (result == EXISTS)
			return SLOT(find_each(&p->tuple, hash)) ?: -DROP_CONTENDED;
		return result == CONTENDED ? -DROP_CONTENDED : -DROP_INDEX_FULL;
	}

	__u32 key = c->backend;
	struct traffic_count *counters = bpf_map_lookup_elem(&traffic, &key);

	if (counters)
		counters->connections++;
	TRACE(created, 1);
	if (!TRACING && s->persistence)
		keep_template(slot, tick, BEGINS);
	return slot;
}

static always_inline int create_connection(struct xdp_md *ctx, struct packet *p, __u64 hash, __u32 number, __u32 before, __u32 tick)
{
	int slot = reserve(p, hash, number, before, tick), reason;
	const struct service *s = service_at(number);

	if (slot < 0 || is_passing(slot, s))
		return slot;
	if (p->cookie) {
		reason = begin_splice(p, ctx, slot);
		if (reason)
			return abandon(slot, tick, reason);
		p->tcp_flags = TCP_SYN;
	} else if (s && s->client_address == ADDRESS_PROXY_V2 && p->opens) {
		reason = note_first_number(ctx, p, slot);
		if (reason)
			return abandon(slot, tick, reason);
	}
	if (s && s->forward == FULLNAT)
		reason = insert_local_port(slot);
	else
		reason = insert_outward(slot);
	if (reason)
		return abandon(slot, tick, reason);
	return publish(p, ctx, hash, slot, tick);
}

#endif
