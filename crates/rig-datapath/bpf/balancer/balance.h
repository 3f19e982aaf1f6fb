/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A packet's path through the balancer, from the frame that arrives to the one that leaves. */
#ifndef BALANCER_BALANCE_H
#define BALANCER_BALANCE_H

#include "local_ports.h"
#include "state.h"
#include "unmatched.h"
#include "too_big.h"
#include "translate.h"
#include "tunnel.h"
#include "route.h"
#include "syn_proxy.h"

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

static always_inline int is_direct_return(const struct service *s)
{
	return s->forward == ROUTE || s->forward == TUNNEL;
}

/* Makes the connection's state that behind this packet, also where another CPU changes it at the same moment. */
static always_inline void update_state(struct connection *c, const struct service *s, const struct packet *p,
				enum direction direction, __u32 tick)
{
	for (int i = 0; i < 4; i++) {
		__u64 live = *(volatile __u64 *)&c->live;
		__u64 next = LIVE(next_state(live, p, direction, is_direct_return(s)), tick);
		enum state old = STATE(live), new = STATE(next);

		if (old >= RESERVED || live == next)
			return;
		if (atomic_replace(&c->live, live, next) != live)
			continue;
		if (old == ESTABLISHED && new != ESTABLISHED)
			add_load(c->backend, 0, -1);
		else if (old != ESTABLISHED && new == ESTABLISHED)
			add_load(c->backend, 0, 1);
		if (old != new && (old == SYN_RECV || new == SYN_RECV))
			count_unanswered(c, old == SYN_RECV ? -1 : 1);
		return;
	}
}

/* Less time to live, and another's addresses and ports; 0 or a reason for a drop. */
static always_inline int translate(struct xdp_md *ctx, struct packet *p, const struct connection *c, const struct service *s,
				   int kind, __u32 slot, enum direction direction, const struct control *control)
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
		return translate_error(ctx, p, &t, direction == INWARD && s->forward == NAT,
				       is_spliced(c) && direction == INWARD ? quoted_delta(slot) : 0);
	return translate_flow(ctx, p, &t, control) ?: write_addresses(ctx, p, &t);
}

/* A function of its own as `ask_kernel`. */
static __noinline int translate_quoted(struct xdp_md *ctx, struct packet *p, const struct connection *c, __u32 slot,
				       enum direction direction)
{
	const struct control *control = settings();
	const struct service *s = service_at(c->service);

	return control && s ? translate(ctx, p, c, s, ERROR, slot, direction, control) : DROP_INTERNAL;
}

/* Less time to live, and what a tunnel puts around; 0 or a reason for a drop. A function of its own as `ask_kernel`. */
static __noinline int forward_whole(struct xdp_md *ctx, struct packet *p, const struct connection *c, int kind,
				    enum direction direction)
{
	const struct control *control = settings();
	const struct service *s = service_at(c->service);
	const struct backend *b = backend_at(c->backend);
	const struct address *local;
	int reason;

	if (!control || !s || !b)
		return DROP_INTERNAL;
	reason = decrement_ttl(ctx, p);
	if (!reason && kind == FLOW)
		reason = complete_flow(ctx, p, control);
	if (reason || s->forward != TUNNEL || direction != INWARD)
		return reason;
	local = local_at(c->local);
	return local ? encapsulate(ctx, p, local, &b->address) : DROP_INTERNAL;
}

/*
 * Whether a connection is over, so that a SYN with its ports opens another one (RFC 9293, 3.6.1; RFC 6191), as with IPVS's
 * conn_reuse_mode=1. Where the backend's packets do not pass here, the client's own FIN is all that is seen of the end.
 */
static always_inline int is_over(enum state state, int direct_return)
{
	return state == TIME_WAIT || state == CLOSE || (direct_return && state == FIN_WAIT);
}

/* In place of a verdict: the SYN proxy has to see the packet first. */
#define UNSEEN -1
/* And: the connection has ended, and the packet is the first one of another. */
#define FOLLOWED -2

/* Whether the SYN proxy has a part in a packet of a connection, beyond shifting its numbers. */
static always_inline int concerns_proxy(const struct connection *c, const struct service *s, const struct packet *p,
					enum direction direction)
{
	if (is_spliced(c) && (c->counter & OPENING || p->tcp_flags & TCP_SYN))
		return 1;
	return s->syn_proxy != PROXY_OFF && direction == INWARD && is_over(STATE(c->live), 0);
}

/* What the SYN proxy does with a packet of a connection: 0, a reason for a drop, TURNED, or FOLLOWED. A function of its own as `ask_kernel`. */
static __noinline int step(struct xdp_md *ctx, struct packet *p, __u32 entry, __u32 tick)
{
	struct connection *c = connection_at(SLOT(entry));
	const struct service *s = c ? service_at(c->service) : 0;
	__u64 live;

	if (!s)
		return DROP_INTERNAL;
	p->seen = 1;
	live = *(volatile __u64 *)&c->live;
	if (DIRECTION(entry) == INWARD && replaces(p, ctx, SLOT(entry), STATE(live)) && end_connection(SLOT(entry), live, tick))
		return FOLLOWED;
	return is_spliced(c) ? step_splice(p, ctx, SLOT(entry), DIRECTION(entry), tick) : 0;
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
		update_state(c, s, p, direction, tick);

	/* The route out first: a packet that cannot leave is not written to. */
	reason = find_route(ctx, c, direction, p->ipv6, tick, &route);
	if (reason)
		return drop(reason);
	if (direction == INWARD && s->forward == TUNNEL) {
		outer = p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
		route.mtu = through_tunnel(c->backend, route.mtu, tick);
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
		reason = forward_whole(ctx, p, c, kind, direction);
	else if (kind == FLOW)
		reason = translate(ctx, p, c, s, FLOW, 0, direction, control) ?: is_spliced(c) ? shift(p, ctx, entry) : 0;
	else
		reason = translate_quoted(ctx, p, c, SLOT(entry), direction);
	reason = reason ?: set_link(ctx, route.source, route.destination);
	if (reason)
		return drop(reason);
	count(c->backend, direction, p->l3_length);
	return leave_by(ctx, p, route.ifindex, control);
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
		if (!next_port || *next_port % PORT_BLOCK == 0 || !local_of(s, *next_port, &l))
			return 0;
		to = local_at(l.address);
	} else if (s->forward != NAT) {
		return 0;
	}
	if (!to)
		return 0;
	backends_tuple(&reply, s, b, to, l.port);
	bucket = bucket_at(hash_tuple(&reply), 0);
	return bucket ? *(volatile __u32 *)&bucket->head : 0;
}

/* Gives a connection the nth local port of its backend, and inserts the entry for it: enum inserted, or -1 without any address. */
__noinline int insert_at(__u32 slot, __u64 nth)
{
	struct connection *c = connection_at(slot);
	struct service *s;
	struct tuple t = {};
	struct local l;

	if (!c)
		return -1;
	s = service_at(c->service);
	if (!s || !local_of(s, nth, &l))
		return -1;
	c->local = l.address;
	c->local_port = l.port;
	if (!tuple_of(c, OUTWARD, &t))
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

/*
 * The slot, or a negative reason for a drop. `before` is the backend of the connection that the client had with the same port; 0
 * where there is none.
 */
OF_PACKET(int, reserve, (__u64 hash, __u32 number, __u32 before, __u32 tick), (hash, number, before, tick))
{
	const struct service *s = service_at(number);
	struct connection *c;
	__u32 slot;
	int backend, counter;

	if (!p || !s)
		return -DROP_INTERNAL;
	if (!count_in_service(s, number))
		return -DROP_SERVICE_FULL;
	if (keeps_backend(s, number, before)) {
		TRACE(reopening, REOPENED_SAME_BACKEND);
		backend = before;
	} else {
		backend = schedule(&p->tuple, number, hash);
	}
	if (backend < 0) {
		uncount_in_service(number);
		return backend;
	}
	counter = count_connection();
	if (counter < 0) {
		uncount_in_service(number);
		add_load(backend, -1, 0);
		return -DROP_TABLE_FULL;
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
	c->counter = counter;
	c->local = 0;
	c->local_port = 0;
	c->route = 0;
	return slot;
}

/* Abandons a record before any packet of the client could find it. */
static always_inline int abandon(__u32 slot, __u32 tick, int reason)
{
	struct connection *c = connection_at(slot);

	if (c) {
		add_load(c->backend, -1, 0);
		uncount_in_service(c->service);
		c->live = LIVE(DEAD, tick);
	}
	return -reason;
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
		keep_arrival(ctx, c, ethernet, tick);

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
	return slot;
}

static always_inline int create_connection(struct xdp_md *ctx, struct packet *p, __u64 hash, __u32 number, __u32 before, __u32 tick)
{
	int slot = reserve(p, hash, number, before, tick), reason;
	const struct service *s = service_at(number);

	if (slot < 0)
		return slot;
	if (p->cookie) {
		reason = begin_splice(p, ctx, slot);
		if (reason)
			return abandon(slot, tick, reason);
		p->tcp_flags = TCP_SYN;
	}
	if (s && s->forward == FULLNAT)
		reason = insert_local_port(slot);
	else
		reason = insert_outward(slot);
	if (reason)
		return abandon(slot, tick, reason);
	return publish(p, ctx, hash, slot, tick);
}

/* A client's first packet of TCP. */
static always_inline int is_opening(const struct packet *p, enum kind kind)
{
	return kind == FLOW && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/*
 * A client that uses a port again after its connection is over is scheduled, counted and limited as any other one. One whose connection
 * still closes, or that repeats its SYN, goes on with the same backend, unless that one gets no new connections. The old connection
 * ends here; one that is over only when the client has acknowledged the SYN proxy's answer. `before` is its backend.
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
	return (over || (!b->weight && (is_closing(state) || state == SYN_RECV))) && end_connection(SLOT(entry), live, tick);
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
	splice = is_spliced(c) ? record_of_splice(SLOT(entry)) : 0;
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

static always_inline int refuse(__u32 service, enum drop reason)
{
	struct refusals *r = TRACING ? 0 : bpf_map_lookup_elem(&refusals, &service);

	if (r)
		r->of[reason % 32]++;
	return drop(reason);
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
	return s && s->sloppy;
}

/* The SYN proxy's answer to a SYN of this service. A function of its own as `ask_kernel`. */
static __noinline int answer(struct xdp_md *ctx, struct packet *p, __u32 number, __u32 tick)
{
	const struct control *control = settings();
	int reason = answer_syn(p, ctx, tick);

	if (reason || !control)
		return drop(reason ?: DROP_INTERNAL);
	refuse(number, DROP_SYN_ANSWERED);
	return leave_by(ctx, p, ctx->ingress_ifindex, control);
}

/* What the SYN proxy has made of a packet of a connection goes back. A function of its own as `ask_kernel`. */
static __noinline int send_back(struct xdp_md *ctx, struct packet *p)
{
	const struct control *control = settings();

	drop(DROP_PROXY_WAITS);
	return control ? leave_by(ctx, p, ctx->ingress_ifindex, control) : XDP_DROP;
}

/* What a packet of no connection comes with, enum cookie. A function of its own as `ask_kernel`. */
static __noinline __u32 cookie_for(struct packet *p, struct xdp_md *ctx, __u32 number)
{
	const struct service *s = service_at(number);

	return s && takes_cookies(s) ? find_cookie(p, ctx) : NO_COOKIE;
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

	if (kind != FLOW)
		return leave_unmatched(ctx, p, PASS_ICMP_UNKNOWN, tick);
	if (!p->opens)
		number = service_for(&p->tuple);
	if (!number)
		return leave_unmatched(ctx, p, PASS_NO_SERVICE, tick);
	if (p->proxied && may_begin(p, number))
		return answer(ctx, p, number, tick);
	if (!p->opens)
		p->cookie = cookie_for(p, ctx, number);
	if (!p->cookie && !may_begin(p, number))
		return leave_stray(ctx, p, tick);
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

/* What becomes of a parsed packet. */
static always_inline int balance_parsed(struct xdp_md *ctx, struct packet *packet, enum kind kind, enum stage last)
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
			int made = begin(ctx, packet, kind, number, before, tick, &entry);

			if (!entry)
				return made;
		}
		if (kind == OUTER_ERROR)
			return outer_error(packet, ctx, entry, tick);
		verdict = forward(packet, ctx, kind, entry, tick);
		if (verdict != UNSEEN)
			return verdict;
		verdict = step(ctx, packet, entry, tick);
		if (verdict > 0)
			return drop(verdict);
		if (verdict == TURNED)
			return send_back(ctx, packet);
		if (verdict != FOLLOWED)
			continue;
		TRACE(reopening, REOPENED);
		before = backend_of(entry);
		entry = 0;
	}
	return drop(DROP_INTERNAL);
}

static always_inline int balance_to(struct xdp_md *ctx, enum stage last)
{
	PACKET(packet);

	enum kind kind = parse(ctx, packet);

	return balance_parsed(ctx, packet, kind, last);
}

#endif
