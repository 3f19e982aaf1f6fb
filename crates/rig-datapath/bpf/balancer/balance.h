/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A packet's path through the balancer, from the frame that arrives to the one that leaves. */
#ifndef BALANCER_BALANCE_H
#define BALANCER_BALANCE_H

#include "fragment.h"
#include "access.h"
#include "capture.h"
#include "quic.h"

/* A client's first packet of TCP. */
static always_inline int is_opening(const struct packet *p, enum kind kind)
{
	return kind == FLOW && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* As TCP refuses what it has not asked for. */
static always_inline int is_lone_reset(const struct packet *p)
{
	return (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_RST;
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

/* Whether workers share such packets. */
static always_inline int is_spread(const struct packet *p, enum kind kind)
{
	return (kind == FLOW || kind == ERROR) &&
	       (is_owned(&p->tuple.destination, OWNED_TO) || is_owned(&p->tuple.source, OWNED_FROM));
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
	if (entry && is_local(ctx, p))
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
	made = create_connection(ctx, p, hash, number, named_backend(ctx, p, number, before), tick);
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

		if (policy == POLICY_FORWARD)
			packet->part = part_of(packet, ctx, now_tick(control));
		if (packet->part == PART_LATER)
			return forward_fragment(packet, ctx, now_tick(control));
		if (!packet->part) {
			if (policy != POLICY_PASS && is_owned(&packet->tuple.destination, OWNED_TO))
				return drop(kind == FRAGMENT ? DROP_FRAGMENT : DROP_IP_OPTIONS);
			return pass(kind == FRAGMENT ? PASS_FRAGMENT : PASS_IP_OPTIONS);
		}
		kind = FLOW;
	}
	if (last == STAGE_PARSE)
		return XDP_PASS;
	hash = hash_tuple(&packet->tuple);
	tick = now_tick(control);
	packet->opens = is_opening(packet, kind);
	if (packet->opens && last == STAGE_FORWARD) {
		number = service_for(&packet->tuple);
		packet->proxied = number && is_proxying(number) && !is_admitted(packet, number, tick);
		if (number && !packet->proxied)
			prefetch_reply_bucket(&packet->tuple, number, hash);
	}
	TRACE(hash, hash);
	/* Also where the client's connection before it has the same ports. */
	if (kind == FLOW && last == STAGE_FORWARD && is_lone_reset(packet) && admits(packet, ctx, service_for(&packet->tuple), tick))
		return drop(DROP_ADMITTED);
	entry = find(&packet->tuple, hash);
	if (last == STAGE_LOOKUP)
		return entry ? XDP_TX : XDP_PASS;
	packet->kind = kind;
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
