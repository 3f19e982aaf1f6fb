// SPDX-License-Identifier: MIT OR Apache-2.0
/* The layer-4 balancer: `balance` for packets, `sweep` for what has expired, `adopt` for what other balancers have told of. */
#include "adopt.h"

char _license[] SEC("license") = "Dual MIT/GPL";

SEC(XDP)
int balance(struct xdp_md *ctx)
{
	return balance_to(ctx, STAGE_FORWARD);
}

/* Marks the local address of a record as in use in this round. */
static always_inline void mark_local(const struct connection *c, __u32 round)
{
	__u32 number = c->local, *met = number ? bpf_map_lookup_elem(&locals_met, &number) : 0;

	if (met && *met != round)
		*met = round;
}

/* Whether a connection ends, silent or not: it is flushed, or its service does not keep those of such a backend. */
static always_inline int is_to_end(const struct sweep *s, const struct connection *c)
{
	const struct backend *b = backend_at(c->backend);

	return s->service || s->backend || (b && b->ends);
}

/* Ticks of silence after which a connection in this state ends. */
static always_inline __u32 timeout_of(const struct sweep *s, const struct service *service, __u32 backend,
				    enum state state)
{
	const __u32 *shortage = bpf_map_lookup_elem(&shortages, &backend);
	__u32 early = s->early | (shortage ? *shortage : 0), most = service->timeout[state];

	if (early & EARLY_UNANSWERED && is_unanswered(state) && s->unanswered < most)
		most = s->unanswered;
	if (early & EARLY_CLOSING && is_closing(state) && s->closing < most)
		most = s->closing;
	return most;
}

static long sweep_one(__u32 i, struct sweep *s)
{
	__u32 slot = s->from + i;
	struct connection *c = connection_at(slot);
	struct service *service;
	__u64 live;
	__u32 age, state;

	if (!c)
		return 1;
	live = *(volatile __u64 *)&c->live;
	age = s->tick - TICK(live);
	if (STATE(live) == FREE || (s->backend && s->backend != c->backend) ||
	    (s->service && s->service != ANY_SERVICE && s->service != c->service))
		return 0;
	mark_local(c, s->round);
	switch (STATE(live)) {
	case RESERVED:
		return 0;
	case DEAD:
		/* A tick is a thousand times what a packet takes. */
		if (!s->all && (age < 2 || age >> 31))
			return 0;
		give_slot(c, slot);
		s->freed++;
		return 0;
	default:
		service = service_at(c->service);
		state = STATE(live);
		/* What is compared is to be what is used. */
		barrier_var(state);
		if (service && state < STATES && !s->all && !is_to_end(s, c)) {
			__u32 timeout = timeout_of(s, service, c->backend, state);

			/* A packet may have come after the sweep began: then the age is negative. */
			if (age < timeout || age >> 31) {
				/* A reset may be a forged source's own answer to what it has not begun. */
				if (service->persistence && state != SYN_RECV &&
				    (state != CLOSE || BEFORE(live) != SYN_RECV))
					keep_template(slot, s->tick, RENEWS);
				s->live++;
				return 0;
			}
		}
		if (end_connection(slot, live, s->tick))
			s->expired++;
		else
			s->live++;
		return 0;
	}
}

/*
 * Ends connections of a range of slots that have been silent for their state's timeout, and frees what ended earlier.
 * Run by the control plane, one at a time; packets may interrupt it anywhere.
 */
#ifdef OLD_KERNEL
/* No program is of type syscall before Linux 5.14: this one is run once for each slot, on a frame that is what it is to do and has done. */
SEC("xdp")
int sweep(struct xdp_md *ctx)
{
	struct sweep *s = (void *)(long)ctx->data;
	const struct control *c = settings();

	if (!c || (void *)(s + 1) > (void *)(long)ctx->data_end || s->from == 0)
		return XDP_ABORTED;
	if (!s->tick)
		s->tick = c->fixed_tick ?: bpf_ktime_get_ns() >> TICK_SHIFT;
	if (s->next < s->count)
		sweep_one(s->next++, s);
	return XDP_PASS;
}
#else
SEC("syscall")
int sweep(struct sweep *ctx)
{
	struct sweep s = { .from = ctx->from,
			   .count = ctx->count,
			   .all = ctx->all,
			   .round = ctx->round,
			   .unanswered = ctx->unanswered,
			   .closing = ctx->closing,
			   .service = ctx->service,
			   .backend = ctx->backend,
			   .early = ctx->early };
	const struct control *c = settings();

	if (!c)
		return -1;
	/* The coarse clock, which packets are stamped with, is not for programs of this kind; it is a jiffy late at most. */
	s.tick = c->fixed_tick ?: bpf_ktime_get_ns() >> TICK_SHIFT;
	if (s.from == 0)
		return -1;
	bpf_loop(s.count, sweep_one, &s, 0);
	ctx->tick = s.tick;
	ctx->expired += s.expired;
	ctx->freed += s.freed;
	ctx->live += s.live;
	return 0;
}
#endif
