/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets of connections that are known, out to their backends and clients. */
#ifndef BALANCER_FORWARD_H
#define BALANCER_FORWARD_H

#include "create.h"
#include "client_address.h"
#include "family.h"
#include "proxy_steps.h"
#include "too_big.h"
#include "tunnel.h"

/* The number of the service that a packet is to: that of its port, or that of any; 0 for none. A function of its own as `ask_kernel`. */
static __noinline __u32 service_for(const struct tuple *t)
{
	struct service_key key = { .address = t->destination,
				   .port = t->destination_port,
				   .protocol = t->protocol };
	const __u32 *number = bpf_map_lookup_elem(&service_of, &key);
	const struct control *control;

	if (!number) {
		control = settings();
		if (control && control->has_any_port) {
			key.port = 0;
			number = bpf_map_lookup_elem(&service_of, &key);
		}
	}
	return number ? *number : 0;
}

/* The entry of a copy of the connection, which a traced packet may change; 0 when there is none. */
static always_inline __u32 copy_of(__u32 entry)
{
#if TRACING
	struct connection *c = connection_at(SLOT(entry));
	struct trace *t = trace_record();
	const struct splice *splice;

	if (!c || !t)
		return 0;
	t->entry = entry;
	t->live = c->live;
	t->copy = *c;
	splice = c->counter & (SPLICED | PREFIXED) ? record_of_splice(SLOT(entry)) : 0;
	if (splice)
		t->splice = *splice;
	return COPY_IN_SET | (__u32)DIRECTION(entry) << 31;
#endif
	return entry;
}

static always_inline void count(__u32 backend, enum direction direction, __u16 bytes)
{
	struct traffic_count *t = bpf_map_lookup_elem(&traffic, &backend);

	if (!t)
		return;
	if (direction == INWARD) {
		t->in_packets++;
		t->in_bytes += bytes;
	} else {
		t->out_packets++;
		t->out_bytes += bytes;
	}
}

static always_inline void count_refused_connection(__u32 backend)
{
	struct traffic_count *t = bpf_map_lookup_elem(&traffic, &backend);

	if (t)
		t->refused++;
}

/* Makes the connection's state that behind this packet; 0 where another CPU changes it at the same moment. */
static always_inline int try_state(struct connection *c, const struct service *s, const struct packet *p,
				   enum direction direction, __u32 tick)
{
	__u64 live = *(volatile __u64 *)&c->live;
	__u64 next = LIVE(next_state(live, p, direction, is_direct_return(s)), tick);
	enum state old = STATE(live), new = STATE(next);

	if (old >= RESERVED || live == next)
		return 1;
	if (atomic_replace(&c->live, live, next) != live)
		return 0;
	if (old == ESTABLISHED && new != ESTABLISHED)
		add_load(c->backend, 0, -1);
	else if (old != ESTABLISHED && new == ESTABLISHED)
		add_load(c->backend, 0, 1);
	if (old != new && is_waiting(live) != is_waiting(next)) {
		count_unanswered(c, is_waiting(live) ? -1 : 1);
		if (is_refusal(p, next))
			count_refused_connection(c->backend);
	}
	return 1;
}

/* Once more, and seldom: a function of its own, so that the verifier walks through it once. */
OF_PACKET(int, retry_state, (__u32 slot, __u32 direction, __u32 tick), (slot, direction, tick))
{
	struct connection *c = connection_at(slot);
	const struct service *s = c ? service_at(c->service) : 0;

	return !p || !s || try_state(c, s, p, direction & OUTWARD, tick);
}

static always_inline void update_state(struct connection *c, const struct service *s, struct packet *p, __u32 slot,
				       enum direction direction, __u32 tick)
{
	int done = try_state(c, s, p, direction, tick);

	for (int i = 0; i < 3 && !done; i++)
		done = retry_state(p, slot, direction, tick);
}

/* Less time to live, and another's addresses and ports; 0 or a reason for a drop. `sequence` is added to the number that an error quotes. */
static always_inline int translate(struct xdp_md *ctx, struct packet *p, const struct connection *c, const struct service *s,
				   int kind, __u32 sequence, enum direction direction, const struct control *control)
{
	const struct backend *b = direction == INWARD ? backend_at(c->backend) : 0;
	struct translation t;
	int reason;

	if ((direction == INWARD && !b) || !translation_of(c, s, b, direction, &t))
		return DROP_INTERNAL;
	reason = decrement_ttl(ctx, p);
	if (reason)
		return reason;
	if (kind != FLOW)
		return translate_error(ctx, p, &t, direction == INWARD && s->forward == NAT, sequence);
	return translate_flow(ctx, p, &t, control) ?: write_addresses(ctx, p, &t);
}

/* What is added to the number that an error quotes. A function of its own as `ask_kernel`. */
OF_PACKET(__u32, quoted_sequence, (struct xdp_md *ctx, __u32 entry), (ctx, entry))
{
	const struct connection *c = connection_at(SLOT(entry));

	if (!p || !c)
		return 0;
	if (DIRECTION(entry) == INWARD)
		return is_spliced(c) ? quoted_delta(SLOT(entry)) : 0;
	return c->counter & (TELLS | PREFIXED) ? tell_of_error(p, ctx, SLOT(entry)) : 0;
}

/* A function of its own as `ask_kernel`. */
OF_PACKET(int, translate_quoted, (struct xdp_md *ctx, __u32 entry, __u32 sequence), (ctx, entry, sequence))
{
	const struct control *control = settings();
	const struct connection *c = connection_at(SLOT(entry));
	const struct service *s = c ? service_at(c->service) : 0;

	if (!p || !control || !s)
		return DROP_INTERNAL;
	return translate(ctx, p, c, s, ERROR, sequence, DIRECTION(entry), control);
}

/* Less time to live, and what a tunnel puts around; 0 or a reason for a drop. A function of its own as `ask_kernel`. */
OF_PACKET(int, forward_whole, (struct xdp_md *ctx, int kind, __u32 entry), (ctx, kind, entry))
{
	const struct control *control = settings();
	const struct connection *c = connection_at(SLOT(entry));
	const struct service *s;
	const struct backend *b;
	const struct address *local;
	struct packing packing;
	int reason;

	if (!p || !control || !c)
		return DROP_INTERNAL;
	reason = decrement_ttl(ctx, p);
	if (!reason && kind == FLOW)
		reason = complete_flow(ctx, p, control);
	if (reason || DIRECTION(entry) != INWARD)
		return reason;
	s = service_at(c->service);
	b = backend_at(c->backend);
	if (!s || !b)
		return DROP_INTERNAL;
	/* Before the outer header, which has that of the inner one. */
	if (p->dscp && set_dscp(p, ctx))
		return DROP_INTERNAL;
	if (s->forward != TUNNEL)
		return 0;
	local = local_at(c->local);
	if (!local)
		return DROP_INTERNAL;
	packing = packing_of(b);
	return encapsulate(ctx, p, local, &b->address, packing, source_mask(packing, c, s));
}

/* As `translate`, and what is further done with segments of connections that the SYN proxy has made, or whose backend is to be told of the client. */
static always_inline int translate_all(struct xdp_md *ctx, struct packet *p, const struct connection *c, const struct service *s,
				       __u32 entry, const struct control *control)
{
	int reason = c->counter & MIXED ? change_family(p, ctx, entry)
					: translate(ctx, p, c, s, FLOW, 0, DIRECTION(entry), control);

	if (reason || !(c->counter & (SPLICED | PREFIXED | OPTED)))
		return reason;
	if (is_spliced(c))
		reason = shift(p, ctx, entry);
	if (!reason && c->counter & PREFIXED)
		return shift_prefixed(p, ctx, entry);
	if (!reason && c->counter & OPTED && (c->counter & TELLS || p->tcp_flags & TCP_SYN))
		return tell(p, ctx, entry);
	return reason;
}

/* A packet of a connection that is known, by its index entry. `kind` is FLOW or ERROR. The verdict, or UNSEEN. */
OF_PACKET(int, forward, (struct xdp_md *ctx, int kind, __u32 entry, __u32 tick), (ctx, kind, entry, tick))
{
	struct connection *c = connection_at(SLOT(entry));
	const enum direction direction = DIRECTION(entry);
	const struct control *control = settings();
	struct service *s;
	struct route route = {};
	__u32 outer = 0;
	int reason;

	if (!c || !p || !control)
		return drop(DROP_INTERNAL);
	s = service_at(c->service);
	if (!s)
		return drop(DROP_INTERNAL);
	if (p->ttl <= 1)
		return drop(DROP_TTL);
	if (p->part && c->counter & MIXED)
		return drop(DROP_FRAGMENT);
	if (kind == FLOW && !p->seen && concerns_proxy(c, s, p, direction))
		return UNSEEN;
	if (kind == FLOW)
		update_state(c, s, p, SLOT(entry), direction, tick);

	/* The route out first: a packet that cannot leave is not written to. */
	reason = find_route(ctx, p, c, direction, leaves_as_ipv6(p, c), tick, &route);
	if (reason)
		return drop(reason);
	if (direction == INWARD && s->forward == TUNNEL) {
		const struct backend *b = backend_at(c->backend);

		if (!b)
			return drop(DROP_INTERNAL);
		outer = tunnel_length(packing_of(b), p->ipv6);
		route.mtu = through_tunnel(c->backend, route.mtu, tick);
	} else if (direction == INWARD && c->counter & TELLS && kind == FLOW) {
		outer = address_bytes(way_told(p, c), p->ipv6);
		/* Of a datagram the sender may not know how to send a smaller one: it goes without. */
		if (p->tuple.protocol == IPPROTO_UDP) {
			p->full = route.mtu && p->l3_length + outer - (c->counter & MIXED ? FAMILY_BYTES : 0) > route.mtu;
			outer = 0;
		}
	}
	if (c->counter & MIXED)
		outer += direction == OUTWARD ? FAMILY_BYTES : -FAMILY_BYTES;
	TRACE(mtu, route.mtu ? route.mtu - outer : 0);
	TRACE(ifindex, route.ifindex & ~OF_VLAN);
	/* With a tunnel's header it may be more than 16 bits have room for. */
	if (route.mtu && p->l3_length + outer > route.mtu) {
		/* With NAT the backend sees the client's own address, which no message may be from. */
		__u32 from = direction == OUTWARD && s->forward == NAT ? c->service : 0;

		return kind == FLOW ? too_big(p, ctx, from, route.mtu - outer, tick) : drop(DROP_TOO_BIG);
	}
	p->dscp = direction == INWARD ? s->dscp : 0;
	if (is_direct_return(s))
		reason = forward_whole(p, ctx, kind, entry);
	else if (kind == FLOW)
		reason = translate_all(ctx, p, c, s, entry, control);
	else if (c->counter & MIXED)
		reason = change_family_of_error(p, ctx, entry, quoted_sequence(p, ctx, entry));
	else
		reason = translate_quoted(p, ctx, entry, quoted_sequence(p, ctx, entry));
	/* Last of all: what is dropped is as it would be without. */
	if (!reason && p->dscp)
		reason = set_dscp(p, ctx);
	reason = reason ?: set_link(ctx, route.source, route.destination);
	if (reason)
		return drop(reason);
	count(c->backend, direction, p->l3_length);
	return leave_by(ctx, p, route.ifindex, control);
}

#endif
