/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A packet's path through the balancer, from the frame that arrives to the one that leaves. */
#ifndef BALANCER_BALANCE_H
#define BALANCER_BALANCE_H

#include "create.h"
#include "access.h"
#include "capture.h"
#include "client_address.h"
#include "proxy_steps.h"
#include "too_big.h"
#include "tunnel.h"

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

/* A function of its own as `ask_kernel`. */
OF_PACKET(int, translate_quoted, (struct xdp_md *ctx, __u32 entry), (ctx, entry))
{
	const struct control *control = settings();
	const struct connection *c = connection_at(SLOT(entry));
	const struct service *s = c ? service_at(c->service) : 0;
	__u32 sequence = 0;

	if (!p || !control || !s)
		return DROP_INTERNAL;
	if (DIRECTION(entry) == INWARD)
		sequence = is_spliced(c) ? quoted_delta(SLOT(entry)) : 0;
	else if (c->counter & (TELLS | PREFIXED))
		sequence = tell_of_error(p, ctx, SLOT(entry));
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
	if (s->forward != TUNNEL)
		return 0;
	local = local_at(c->local);
	return local ? encapsulate(ctx, p, local, b) : DROP_INTERNAL;
}

/* As `translate`, and what is further done with segments of connections that the SYN proxy has made, or whose backend is to be told of the client. */
static always_inline int translate_all(struct xdp_md *ctx, struct packet *p, const struct connection *c, const struct service *s,
				       __u32 entry, const struct control *control)
{
	int reason = translate(ctx, p, c, s, FLOW, 0, DIRECTION(entry), control);

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
	if (kind == FLOW && !p->seen && concerns_proxy(c, s, p, direction))
		return UNSEEN;
	if (kind == FLOW)
		update_state(c, s, p, SLOT(entry), direction, tick);

	/* The route out first: a packet that cannot leave is not written to. */
	reason = find_route(ctx, c, direction, p->ipv6, tick, &route);
	if (reason)
		return drop(reason);
	if (direction == INWARD && s->forward == TUNNEL) {
		const struct backend *b = backend_at(c->backend);

		if (!b)
			return drop(DROP_INTERNAL);
		outer = tunnel_length(b, p->ipv6);
		route.mtu = through_tunnel(c->backend, route.mtu, tick);
	} else if (direction == INWARD && c->counter & TELLS && kind == FLOW) {
		outer = address_bytes(c->counter & PREFIXED ? ADDRESS_PROXY_V2 : ADDRESS_TOA, p->ipv6);
	}
	TRACE(mtu, route.mtu ? route.mtu - outer : 0);
	TRACE(ifindex, route.ifindex);
	/* With a tunnel's header it may be more than 16 bits have room for. */
	if (route.mtu && p->l3_length + outer > route.mtu) {
		/* With NAT the backend sees the client's own address, which no message may be from. */
		__u32 from = direction == OUTWARD && s->forward == NAT ? c->service : 0;

		return kind == FLOW ? too_big(p, ctx, from, route.mtu - outer, tick) : drop(DROP_TOO_BIG);
	}
	if (is_direct_return(s))
		reason = forward_whole(p, ctx, kind, entry);
	else if (kind == FLOW)
		reason = translate_all(ctx, p, c, s, entry, control);
	else
		reason = translate_quoted(p, ctx, entry);
	reason = reason ?: set_link(ctx, route.source, route.destination);
	if (reason)
		return drop(reason);
	count(c->backend, direction, p->l3_length);
	return leave_by(ctx, p, route.ifindex, control);
}

/* A client's first packet of TCP. */
static always_inline int is_opening(const struct packet *p, enum kind kind)
{
	return kind == FLOW && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/*
 * A client that uses a port again after its connection is over is scheduled, counted and limited as any other one. One whose connection
 * still closes, or that repeats its SYN, goes on with the same backend, unless that one gets no new connections or is told otherwise now
 * who its client is. The old connection ends here; one that is over only when the client has acknowledged the SYN proxy's answer. `before` is its backend.
 */
static always_inline int reopens(const struct packet *p, enum kind kind, __u32 entry, __u32 *before, __u32 tick)
{
	struct connection *c;
	struct service *s;
	struct backend *b;
	enum state state;
	__u64 live;
	int over;

	/* No connection begins with these: a forged one must not end what a reset has not. */
	if (!is_opening(p, kind) || p->tcp_flags & (TCP_RST | TCP_FIN) || DIRECTION(entry) == OUTWARD)
		return 0;
	c = connection_at(SLOT(entry));
	if (!c)
		return 0;
	live = *(volatile __u64 *)&c->live;
	state = STATE(live);
	*before = c->backend;
	s = service_at(c->service);
	b = backend_at(c->backend);
	if (!s || !b)
		return 0;
	over = is_over(state, is_direct_return(s));
	if (over && p->proxied)
		return 1;
	if (is_closing(state) || state == SYN_RECV)
		over |= !b->weight || (c->counter & (PREFIXED | OPTED)) != way_of_telling(s);
	return over && end_connection(SLOT(entry), live, tick);
}

/* How far a packet goes: benchmarks stop behind the stages before the last (stages.h). */
enum stage { STAGE_PARSE, STAGE_LOOKUP, STAGE_FORWARD };

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

/* Whether workers share such packets. */
static always_inline int is_spread(const struct packet *p, enum kind kind)
{
	return (kind == FLOW || kind == ERROR) &&
	       (is_owned(&p->tuple.destination, OWNED_TO) || is_owned(&p->tuple.source, OWNED_FROM));
}

/* The number of the service that a packet is to; 0 for none. A function of its own as `ask_kernel`. */
static __noinline __u32 service_for(const struct tuple *t)
{
	struct service_key key = { .address = t->destination,
				   .port = t->destination_port,
				   .protocol = t->protocol };
	__u32 *number = bpf_map_lookup_elem(&service_of, &key);

	return number ? *number : 0;
}

/* Whether a packet of no known connection begins one. */
static always_inline int may_begin(const struct packet *p, __u32 number)
{
	const struct service *s = service_at(number);

	if (p->tuple.protocol != IPPROTO_TCP)
		return 1;
	if (p->tcp_flags & TCP_RST)
		return 0;
	if (p->tcp_flags & TCP_SYN)
		return !(p->tcp_flags & TCP_ACK);
	return s && s->flags & SLOPPY_TCP;
}

/* What of one that is for no service: the entry that leads back, which is OUTWARD, or what becomes of it. A function of its own as `ask_kernel`. */
static __noinline __u32 without_service(struct xdp_md *ctx, struct packet *p, int kind, __u32 tick)
{
	const struct control *control = settings();
	__u32 entry = 0;

	if (control && control->has_entries_back && (kind == FLOW || (kind == ERROR && is_to_sender(ctx, p))))
		entry = entry_back(p, tick);
	/* What backends answer to this machine's own questions, as checks ask. */
	if (entry && is_local(ctx, &p->tuple, p->ipv6))
		entry = 0;
	return entry ?: leave_unmatched(ctx, p, kind == FLOW ? PASS_NO_SERVICE : PASS_ICMP_UNKNOWN, tick);
}

/*
 * A packet that belongs to no connection. The entry of the one that it begins, and otherwise what becomes of it. `number` is its service's
 * where it opens one.
 */
static always_inline int begin(struct xdp_md *ctx, struct packet *p, enum kind kind, __u32 number, __u32 before, __u32 tick,
			       __u32 *entry)
{
	__u64 hash;
	int made;

	if (kind == FLOW && !p->opens)
		number = service_for(&p->tuple);
	if (!number) {
		if (kind == ERROR) {
			*entry = entry_inside(p, ctx);
			if (*entry)
				return 0;
		}
		number = without_service(ctx, p, p->kind, tick);
		if (DIRECTION(number) == INWARD)
			return number;
		*entry = number;
		return 0;
	}
	if (!p->opens)
		p->cookie = cookie_for(p, ctx, number);
	if (!p->cookie && !may_begin(p, number))
		return leave_stray(ctx, p, tick);
	made = refusal_of_first(p, number);
	if (made) {
		TRACE(service, number);
		return refuse(number, made);
	}
	if (p->proxied)
		return answer(ctx, p, number, tick);
	TRACE(service, number);
	/* Once more, which costs less than to keep it: the stack is full. */
	hash = hash_tuple(&p->tuple);
	made = create_connection(ctx, p, hash, number, before, tick);
	if (made < 0)
		return refuse(number, -made);
	if (p->cookie && make_syn(p, ctx))
		return drop(DROP_INTERNAL);
	p->seen = 1;
	*entry = made;
	return 0;
}

static always_inline __u32 backend_of(__u32 entry)
{
	const struct connection *c = connection_at(SLOT(entry));

	return c ? c->backend : 0;
}

/* What becomes of a parsed packet: a verdict, with the reason of one that does not go through. */
static always_inline int decide(struct xdp_md *ctx, struct packet *packet, enum kind kind, enum stage last)
{
	const struct control *control = settings();
	int verdict;
	__u64 hash;
	__u32 tick, entry, number = 0, before = 0;

	if (!control)
		return XDP_PASS;
	if (kind == LEAVE)
		return pass(packet->reason);
	if (kind == FRAGMENT || kind == OPTIONS) {
		__u8 policy = kind == FRAGMENT ? control->fragments : control->options;

		if (policy == POLICY_DROP && is_owned(&packet->tuple.destination, OWNED_TO))
			return drop(kind == FRAGMENT ? DROP_FRAGMENT : DROP_IP_OPTIONS);
		return pass(kind == FRAGMENT ? PASS_FRAGMENT : PASS_IP_OPTIONS);
	}
	if (last == STAGE_PARSE)
		return XDP_PASS;
	hash = hash_tuple(&packet->tuple);
	packet->opens = is_opening(packet, kind);
	if (packet->opens && last == STAGE_FORWARD) {
		number = service_for(&packet->tuple);
		packet->proxied = number && is_proxying(number);
		if (number && !packet->proxied)
			prefetch_reply_bucket(&packet->tuple, number, hash);
	}
	entry = find(&packet->tuple, hash);
	if (last == STAGE_LOOKUP)
		return entry ? XDP_TX : XDP_PASS;
	TRACE(hash, hash);
	packet->kind = kind;
	tick = now_tick(control);
	if (TRACING && entry)
		entry = copy_of(entry);
	if (entry && reopens(packet, kind, entry, &before, tick)) {
		if (!packet->proxied)
			TRACE(reopening, REOPENED);
		entry = 0;
	}
	/* Twice where the SYN proxy has a part in it. */
#pragma nounroll
	for (int turn = 0; turn < 2; turn++) {
		if (!entry) {
			int made = begin(ctx, packet, packet->kind, number, before, tick, &entry);

			if (!entry)
				return made;
		}
		if (packet->kind == OUTER_ERROR)
			return outer_error(packet, ctx, entry, tick);
		verdict = forward(packet, ctx, packet->kind, entry, tick);
		if (verdict != UNSEEN)
			return verdict;
		if (follows(ctx, packet, entry, tick)) {
			packet->seen = 1;
			TRACE(reopening, REOPENED);
			before = backend_of(entry);
			entry = 0;
			continue;
		}
		verdict = step_splice(packet, ctx, SLOT(entry), DIRECTION(entry), tick);
		if (verdict > 0)
			return drop(verdict);
		if (verdict == TURNED)
			return send_back(ctx, packet);
	}
	return drop(DROP_INTERNAL);
}

/* The verdict for the kernel. */
static always_inline int balance_parsed(struct xdp_md *ctx, struct packet *packet, enum kind kind, enum stage last)
{
	int verdict = decide(ctx, packet, kind, last);

	if (TRACING)
		return verdict & VERDICT_MASK;
	return verdict > VERDICT_MASK ? end_with(packet, ctx, verdict) : verdict;
}

static always_inline int balance_to(struct xdp_md *ctx, enum stage last)
{
	PACKET(packet);

	enum kind kind = parse(ctx, packet);

	return balance_parsed(ctx, packet, kind, last);
}

#endif
