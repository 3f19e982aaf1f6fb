/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Copies of packets that are dropped or left to the kernel, for who asks for that. Verdicts of such packets have their reason above the lower
 * byte (maps.h), so that packets that go through cost nothing for it.
 */
#ifndef BALANCER_CAPTURE_H
#define BALANCER_CAPTURE_H

#include <linux/errno.h>

#include "forward.h"

/* Whether a packet is to the service that is asked for; one without ports, where its address is. */
static always_inline int is_asked_for(const struct capture_filter *a, const struct tuple *t)
{
	const struct service *s;

	if (!a->protocol)
		return 1;
	if (t->destination.hi != a->address.hi || t->destination.lo != a->address.lo)
		return 0;
	if (!t->destination_port)
		return 1;
	if (t->protocol != a->protocol)
		return 0;
	if (a->port)
		return t->destination_port == a->port;
	/* Number 0, of no service, has no port either: as with a port, a packet that no other service has is captured while this one is not in force. */
	s = service_at(service_for(t));
	return s && !s->port;
}

/* Whether a packet is not ahead of the rate. Of CPUs that meet here one captures its packet, and those of the others are beyond the rate. */
static always_inline int is_in_time(const struct capture_filter *a, __u64 now)
{
	__u32 key = 0;
	__u64 *next = bpf_map_lookup_elem(&capture_next, &key), from, before;

	if (!next)
		return 0;
	before = from = *(volatile __u64 *)next;
	if (from < now)
		from = now;
	return from - now <= a->slack && atomic_replace(next, before, from + a->gap) == before;
}

/* A copy, of so many bytes; 0 where there was room. A function of its own so that its type is among those of the object (BTF). */
static __noinline int copy_out(struct xdp_md *ctx, const struct captured *head)
{
	return bpf_perf_event_output(ctx, &captures, BPF_F_CURRENT_CPU | (__u64)head->kept << 32, (void *)head, sizeof(*head));
}

/* The verdict that the kernel knows of one with a reason. A function of its own, beside the deepest chain of calls. */
OF_PACKET(int, end_with, (struct xdp_md *ctx, int verdict), (ctx, verdict))
{
	__u32 key = 0, reason = (__u32)verdict >> REASON_SHIFT & 0xff;
	struct capture_filter *a = bpf_map_lookup_elem(&capture_filter, &key);
	struct captured head = {};
	struct uncaptured *u;
	long failed;

	verdict &= VERDICT_MASK;
	if (!a || !p || !((reason & LEFT ? a->left : a->dropped) >> (reason & 63) & 1) || !is_asked_for(a, &p->tuple))
		return verdict;
	u = bpf_map_lookup_elem(&uncaptured, &key);
	if (!u)
		return verdict;
	head.time = bpf_ktime_get_ns();
	if (head.time > a->until) {
		/* Its reader's process was killed, and no packet need look at the clock any more. */
		a->dropped = a->left = 0;
		return verdict;
	}
	if (!is_in_time(a, head.time)) {
		u->beyond++;
		return verdict;
	}
	head.length = frame_length(ctx);
	head.kept = head.length < a->length ? head.length : a->length;
	head.interface = ctx->ingress_ifindex;
	head.reason = reason;
	head.verdict = verdict;
	failed = copy_out(ctx, &head);
	/* The reader has a buffer for each CPU that was there when it began; that of one that has been away since takes nothing. */
	if (failed == -ENOENT || failed == -EOPNOTSUPP)
		u->no_reader++;
	else if (failed)
		u->no_room++;
	return verdict;
}

#endif
