/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where the SYN proxy comes into a packet's path (balance.h). */
#ifndef BALANCER_PROXY_STEPS_H
#define BALANCER_PROXY_STEPS_H

#include "state.h"
#include "syn_proxy.h"
#include "unmatched.h"

/* In place of a verdict: the SYN proxy has to see the packet first. */
#define UNSEEN -1

/* Whether the SYN proxy has a part in a packet of a connection, beyond shifting its numbers. */
static always_inline int concerns_proxy(const struct connection *c, const struct service *s, const struct packet *p,
					enum direction direction)
{
	if (is_spliced(c) && (c->counter & OPENING || p->tcp_flags & TCP_SYN))
		return 1;
	return is_opened_here(s) && direction == INWARD && is_over(STATE(c->live), 0);
}

/* Whether a packet ends its connection as the first one of another. A function of its own as `ask_kernel`. */
static __noinline int follows(struct xdp_md *ctx, struct packet *p, __u32 entry, __u32 tick)
{
	struct connection *c = connection_at(SLOT(entry));
	__u64 live;

	if (!c || DIRECTION(entry) == OUTWARD)
		return 0;
	live = *(volatile __u64 *)&c->live;
	return replaces(p, ctx, SLOT(entry), STATE(live)) && end_connection(SLOT(entry), live, tick);
}

/* The SYN proxy's answer to a SYN of this service. A function of its own as `ask_kernel`. */
static __noinline int answer(struct xdp_md *ctx, struct packet *p, __u32 number, __u32 tick)
{
	const struct control *control = settings();
	int reason = answer_syn(p, ctx, number, tick);

	if (reason || !control)
		return drop(reason ?: DROP_INTERNAL);
	count_refusal(number, DROP_SYN_ANSWERED);
	return counted(DROP_SYN_ANSWERED) | leave_by(ctx, p, p->came_by, control);
}

/* What the SYN proxy has made of a packet of a connection goes back. A function of its own as `ask_kernel`. */
static __noinline int send_back(struct xdp_md *ctx, struct packet *p)
{
	const struct control *control = settings();

	return counted(DROP_PROXY_WAITS) | (control ? leave_by(ctx, p, p->came_by, control) : XDP_DROP);
}

/* Whether a client's address has answered. A function of its own as `ask_kernel`. */
static __noinline int is_admitted(const struct packet *p, __u32 number, __u32 tick)
{
	const struct service *s = service_at(number);
	const __u32 *until = s && is_admitting(s) ? bpf_map_lookup_elem(&admitted, &p->tuple.source) : 0;

	return until && (__s32)(*until - tick) > 0;
}

/* Whether a reset is the answer to a challenge, and notes whose. A function of its own as `ask_kernel`. */
static __noinline int admits(struct packet *p, struct xdp_md *ctx, __u32 number, __u32 tick)
{
	const struct service *s = service_at(number);
	__u32 until = tick + ADMITTED_TICKS;

	if (!s || !is_admitting(s) || !is_answer(p, ctx))
		return 0;
	if (!TRACING)
		bpf_map_update_elem(&admitted, &p->tuple.source, &until, BPF_ANY);
	return 1;
}

/* What a packet of no connection comes with, enum cookie. A function of its own as `ask_kernel`. */
static __noinline __u32 cookie_for(struct packet *p, struct xdp_md *ctx, __u32 number)
{
	const struct service *s = service_at(number);

	return s && takes_cookies(s) ? find_cookie(p, ctx) : NO_COOKIE;
}

#endif
