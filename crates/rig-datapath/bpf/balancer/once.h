/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Services that schedule each datagram by itself, as IPVS's one-packet scheduling has it. A datagram has a connection for as long as it is
 * handled: one record for each CPU, behind those of the table, that no other packet finds, the sweep never meets and no limit counts.
 *
 * With NAT the backends' packets pass here, too. Which service one is of, its source says, so that a backend is such a service's only once
 * (`Config::validate` in src/balancer/config.rs). IPVS leaves them as they are.
 */
#ifndef BALANCER_ONCE_H
#define BALANCER_ONCE_H

#include "persistence.h"
#include "state.h"
#include "translate.h"

/* The slot of this CPU's record. */
static always_inline __u32 passing_slot(void)
{
	return TRACING ? COPY_IN_SET : (1 + tuning.sets + tuning.overflow / WAYS + bpf_get_smp_processor_id()) * WAYS;
}

/* Whether a slot is such a one. Of a service that has changed meanwhile its flag does not say so. */
static always_inline int is_passing(__u32 slot, const struct service *s)
{
	return TRACING ? s && s->flags & ONE_PACKET : slot / WAYS > tuning.sets + tuning.overflow / WAYS;
}

static always_inline void begin_passing(struct connection *c, const struct address *client, __u16 port, __u32 service, __u32 backend,
					__u32 tick)
{
	c->live = LIVE(UDP_NORMAL, tick);
	c->client = *client;
	c->client_port = port;
	c->local_port = 0;
	c->service = service;
	c->local = 0;
	c->backend = backend;
	c->counter = 0;
	c->route = 0;
}

/* As `schedule`, with nothing counted towards the backend. */
OF_TUPLE(int, schedule_once, (__u32 service), (service))
{
	const struct service *s = service_at(service);
	__u32 length, at;
	__u64 list;

	if (!s || !t)
		return -DROP_INTERNAL;
	list = READ_ONCE(s->schedule);
	length = LENGTH(list);
	if (!length)
		return -DROP_NO_BACKEND;
	at = start_in(s, service, t, length, 1);
	for (int i = 0; i < SCHEDULE_TRIES; i++) {
		__u32 number = list_at(list, at);

		if (number && weight_of(number))
			return number;
		at = (at + 1) % length;
	}
	return -DROP_BACKENDS_FULL;
}

/* What of a datagram's connection is known when its record has the backend; 0 or a reason for a drop. A function of its own as `ask_kernel`. */
OF_PACKET(int, complete_passing, (__u32 slot), (slot))
{
	struct connection *c = connection_at(slot);
	const struct service *s = c ? service_at(c->service) : 0;
	const struct backend *b = c ? backend_at(c->backend) : 0;
	struct translation t;
	struct traffic_count *counters;
	__u32 key;

	if (!p || !s || !b)
		return DROP_INTERNAL;
	if (s->forward == NAT && translation_of(c, s, b, INWARD, &t))
		set_deltas(c, &p->tuple, &t);
	key = c->backend;
	counters = bpf_map_lookup_elem(&traffic, &key);
	if (counters)
		counters->connections++;
	TRACE(created, 1);
	return 0;
}

/* The slot, or a negative reason for a drop. `named`: as of `reserve`. */
OF_PACKET(int, schedule_packet, (__u32 number, __u32 named, __u32 tick), (number, named, tick))
{
	const struct service *s = service_at(number);
	__u32 slot = passing_slot();
	struct connection *c = connection_at(slot);
	int backend = 0, reason;

	if (!p || !s || !c)
		return -DROP_INTERNAL;
	if (!named && s->persistence)
		backend = persistent_backend(p, number, tick);
	if (named) {
		TRACE(named, 1);
		backend = named;
	} else if (backend) {
		TRACE(kept, 1);
		add_load(backend, -1, 0);
	} else {
		backend = schedule_once(&p->tuple, number);
	}
	if (backend < 0)
		return backend;
	TRACE(backend, backend);
	begin_passing(c, &p->tuple.source, p->tuple.source_port, number, backend, tick);
	if (!s->port)
		c->local_port = p->tuple.destination_port;
	/* It takes from the rates, and is none of its source's when it has gone on. */
	if (!TRACING && s->access & ACCESS_LIMITED) {
		reason = count_at_source(c, 0);
		uncount_at_source(c);
		c->counter = 0;
		if (reason)
			return -reason;
	}
	if (s->forward == TUNNEL) {
		__u64 list = READ_ONCE(s->locals);
		__u32 addresses = LENGTH(list);

		if (!addresses)
			return -DROP_NO_LOCAL_ADDRESS;
		c->local = list_at(list, hash_endpoint(&c->client, c->client_port) % addresses);
	}
	reason = complete_passing(p, slot);
	if (reason)
		return -reason;
	if (!TRACING && s->persistence)
		keep_template(slot, tick, BEGINS);
	return slot;
}

/* Whether an ICMP error is to the sender of the packet that it quotes. */
static always_inline int is_to_sender(struct xdp_md *ctx, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = p->l3 & L3_MASK;
	struct address to;

	if (p->ipv6) {
		struct ipv6hdr *ip = data + l3;

		if ((void *)(ip + 1) > end)
			return 0;
		set_v6(&to, &ip->daddr);
	} else {
		struct iphdr *ip = data + l3;

		if ((void *)(ip + 1) > end)
			return 0;
		set_v4(&to, ip->daddr);
	}
	return to.hi == p->tuple.destination.hi && to.lo == p->tuple.destination.lo;
}

/* The entry of a packet, or of an ICMP error about one, from a backend whose service has no connection for it; 0 where there is no such one. */
OF_PACKET(__u32, entry_back, (__u32 tick), (tick))
{
	struct template_key key = {};
	__u32 slot = passing_slot();
	struct connection *c = connection_at(slot);
	const struct service *s;
	const struct backend *b;
	const __u32 *number;
	struct translation t;

	if (!p || !c || p->tuple.protocol != IPPROTO_UDP)
		return 0;
	key.source = p->tuple.source;
	key.service = BY_SOURCE_PORT | p->tuple.source_port;
	number = bpf_map_lookup_elem(&members, &key);
	b = number ? backend_at(*number) : 0;
	s = b ? service_at(b->service) : 0;
	if (!s || s->forward != NAT || !(s->flags & ONE_PACKET))
		return 0;
	begin_passing(c, &p->tuple.destination, p->tuple.destination_port, b->service, *number, tick);
	if (!translation_of(c, s, b, OUTWARD, &t))
		return 0;
	set_deltas(c, &p->tuple, &t);
	c->delta = ~c->delta;
	c->address_delta = ~c->address_delta;
	return slot | (__u32)OUTWARD << 31;
}

#endif
