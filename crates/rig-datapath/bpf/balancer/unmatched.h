/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets that match no connection and open none: left to the kernel, which may know of them, so often in a tick. */
#ifndef BALANCER_UNMATCHED_H
#define BALANCER_UNMATCHED_H

#include "packet.h"
#include "route.h"

static always_inline int is_owned(const struct address *a, enum ownership as)
{
	__u32 *ownership = bpf_map_lookup_elem(&owned, a);

	return ownership && *ownership & as;
}

/* Whether this CPU has left as many to the kernel in this tick as it may. */
static always_inline int is_over_limit(enum pass reason, const struct control *control, __u32 tick)
{
	__u32 key = reason;
	const struct rate_limit *t = bpf_map_lookup_elem(&strays, &key);

	return control->strays && (!t || (t->tick == tick && t->used >= control->strays));
}

static always_inline int pass_counted(enum pass reason, __u32 tick)
{
	__u32 key = reason;
	struct rate_limit *t = TRACING ? 0 : bpf_map_lookup_elem(&strays, &key);

	if (t) {
		t->used = t->tick == tick ? t->used + 1 : 1;
		t->tick = tick;
	}
	return pass(reason);
}

/*
 * TCP of no connection, and none that opens one. The kernel answers by a reset where the service's address is its own, so
 * that the client learns of it; where it would forward, packets could come back here until their time to live is over.
 */
static __noinline int leave_stray(struct xdp_md *ctx, const struct packet *p, __u32 tick)
{
	const struct control *control = settings();

	if (!control || p->tcp_flags & (TCP_RST | TCP_SYN))
		return drop(DROP_NO_CONNECTION);
	/* Before the look-up of the route: a flood is to cost as little as can be. */
	if (is_over_limit(PASS_NO_CONNECTION, control, tick))
		return drop(DROP_STRAYS);
	if (!is_local(ctx, p))
		return drop(DROP_NO_CONNECTION);
	return pass_counted(PASS_NO_CONNECTION, tick);
}

/*
 * Packets that match neither a connection nor a service. Each to one of the balancer's addresses costs the kernel an answer, so they
 * are limited as strays; those of a connected socket of this machine are none, but a listening one would take all.
 */
static __noinline int leave_unmatched(struct xdp_md *ctx, const struct packet *p, enum pass reason, __u32 tick)
{
	const struct control *control = settings();

	if (!control || !control->strays || !is_owned(&p->tuple.destination, OWNED_TO))
		return pass(reason);
	if (!is_over_limit(reason, control, tick))
		return pass_counted(reason, tick);
	if (reason == PASS_NO_SERVICE && has_socket(ctx, &p->tuple, p->ipv6))
		return pass(reason);
	return drop(DROP_STRAYS);
}

static always_inline void count_refusal(__u32 service, enum drop reason)
{
	struct refusals *r = TRACING ? 0 : bpf_map_lookup_elem(&refusals, &service);

	/* Masked, not compared: compilers drop the mask behind a comparison, which Linux 6.12 and older do not see through. */
	if (r)
		r->of[reason % 32]++;
}

/* A packet that would begin a connection of the service, and does not. */
static always_inline int refuse(__u32 service, enum drop reason)
{
	count_refusal(service, reason);
	return drop(reason);
}

#endif
