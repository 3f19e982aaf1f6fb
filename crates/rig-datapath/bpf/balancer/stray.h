/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What belongs to no connection and begins none: left to the kernel, which may know of it, so often in a tick. */
#ifndef BALANCER_STRAY_H
#define BALANCER_STRAY_H

#include "packet.h"
#include "route.h"

static always_inline int is_owned(const struct address *a, enum ownership as)
{
	__u32 *ownership = bpf_map_lookup_elem(&owned, a);

	return ownership && *ownership & as;
}

/* Whether this CPU has left as many to the kernel in this tick as it may. */
static always_inline int is_spent(enum pass reason, const struct control *control, __u32 tick)
{
	__u32 key = reason;
	const struct telling *t = bpf_map_lookup_elem(&strays, &key);

	return control->strays && (!t || (t->tick == tick && t->told >= control->strays));
}

static always_inline int spend(enum pass reason, __u32 tick)
{
	__u32 key = reason;
	struct telling *t = DRY ? 0 : bpf_map_lookup_elem(&strays, &key);

	if (t) {
		t->told = t->tick == tick ? t->told + 1 : 1;
		t->tick = tick;
	}
	return pass(reason);
}

/*
 * TCP of no connection, and none that begins one. The kernel answers by a reset where the service's address is its own, so
 * that the client hears of it; where it would forward, packets could come back here for as long as they live.
 */
static __noinline int stray(struct xdp_md *ctx, const struct packet *p, __u32 tick)
{
	const struct control *control = settings();

	if (!control || p->tcp_flags & (TCP_RST | TCP_SYN))
		return drop(DROP_NO_CONNECTION);
	/* Before the route is asked for: a flood is to cost as little as can be. */
	if (is_spent(PASS_NO_CONNECTION, control, tick))
		return drop(DROP_STRAYS);
	if (!stays_here(ctx, &p->tuple, p->ipv6))
		return drop(DROP_NO_CONNECTION);
	return spend(PASS_NO_CONNECTION, tick);
}

/*
 * What no connection and no service has. Each that comes to one of the balancer's addresses costs the kernel an answer, so they
 * are limited like strays; what a socket of this machine waits for is no stray, but a listening one waits for anybody's.
 */
static __noinline int leave_alone(struct xdp_md *ctx, const struct packet *p, enum pass reason, __u32 tick)
{
	const struct control *control = settings();

	if (!control || !control->strays || !is_owned(&p->tuple.destination, OWNED_TO))
		return pass(reason);
	if (!is_spent(reason, control, tick))
		return spend(reason, tick);
	if (reason == PASS_NO_SERVICE && has_socket(ctx, &p->tuple, p->ipv6))
		return pass(reason);
	return drop(DROP_STRAYS);
}

#endif
