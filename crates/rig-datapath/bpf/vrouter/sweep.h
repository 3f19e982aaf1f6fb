/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Ends flows that have been silent for too long. */
#ifndef VROUTER_SWEEP_H
#define VROUTER_SWEEP_H

#include "flow.h"

/*
 * Timeouts of flows that are silent in both directions, in ticks, and of unanswered ones where the table or its interface's share runs
 * short; and how many have ended.
 */
struct sweep {
	__u32 established, opening, closed, other, unanswered;
	/* Whether it is the whole table that does. */
	__u32 runs_short;
	__u32 shortest;
	__u32 tick;
	__u64 ended;
	/* Which element is next, on old kernels. */
	__u32 next, pad;
};
_Static_assert(sizeof(struct sweep) == 48, "");

static always_inline __u32 allowed(const struct sweep *s, __u32 protocol, __u32 tcp)
{
	if (protocol != IPPROTO_TCP)
		return s->other;
	if (tcp & SEEN_RST || (tcp & SEEN_FIN && tcp & SEEN_FIN_R))
		return s->closed;
	return tcp & SEEN_SYN && !(tcp & SEEN_SYN_R) ? s->opening : s->established;
}

/* A packet may have come after the sweep began. */
static always_inline __u32 silent_for(const struct sweep *s, const struct flow *f)
{
	__s32 age = s->tick - f->tick;

	return age < 0 ? 0 : age;
}

/*
 * Notes whether an interface has more than three quarters of the flows that it may have. Before any of them ends, so that it does not
 * depend on their order in the table which of them do.
 */
static long note_share(void *map, __u32 *number, struct interface *at, void *none)
{
	__u32 interface = *number;
	__u64 *count = bpf_map_lookup_elem(&begun, &interface), *gone = bpf_map_lookup_elem(&ended, &interface);
	__u32 *short_of = bpf_map_lookup_elem(&short_of_share, &interface);

	if (count && gone && short_of)
		*short_of = at->most_flows && (*count - *gone) * 4 > (__u64)at->most_flows * 3;
	return 0;
}

static __attribute__((noinline)) int share_runs_short(__u32 interface)
{
	__u32 *short_of = bpf_map_lookup_elem(&short_of_share, &interface);

	return short_of && *short_of;
}

static long sweep_flow(void *map, struct flow_key *key, struct flow *f, struct sweep *s)
{
	__u32 age = silent_for(s, f), other_age, longest, interface = AT_INTERFACE(key->at), forward = f->flags & FORWARD;
	struct flow_key k = {};
	struct flow *other;
	__u64 *count;
	int is_pair, is_early = 0;

	if (age < s->shortest)
		return 0;
	reverse(&k, key);
	k.at = f->reverse_at;
	other = bpf_map_lookup_elem(&flows, &k);
	/*
	 * One whose replies come from another interface by now has an entry of its own there. Of two entries that are both of the first
	 * packet's direction, or both of replies, as where two CPUs had a first packet at a time, neither decides for the other.
	 */
	is_pair = other && other->reverse_at == key->at && (other->flags ^ f->flags) & FORWARD;
	/* The entry of the direction that began it decides for both; one without such an entry for itself. */
	if (!forward && is_pair)
		return 0;
	if (other && is_pair) {
		other_age = silent_for(s, other);
		if (other_age < age)
			age = other_age;
	}
	longest = allowed(s, AT_PROTOCOL(key->at), f->tcp);
	if (is_pair && forward && !other->packets && age >= s->unanswered && longest > s->unanswered &&
	    (s->runs_short || share_runs_short(interface))) {
		is_early = age < longest;
		longest = s->unanswered;
	}
	if (age < longest)
		return 0;
	if (is_pair)
		bpf_map_delete_elem(&flows, &k);
	/* The key is that of the entry, which is another's when it is gone. */
	k = *key;
	/* Two directions in one bucket: the second is looked at although it went with the first. */
	if (bpf_map_delete_elem(&flows, &k))
		return 0;
	if (forward) {
		count = bpf_map_lookup_elem(&ended, &interface);
		if (count)
			sum_up(count, 1);
		count = is_early ? bpf_map_lookup_elem(&ended_early, &interface) : 0;
		if (count)
			sum_up(count, 1);
	}
	s->ended++;
	return 0;
}

#ifdef OLD_KERNEL
/*
 * Before Linux 5.14 no program is of type syscall, and before 5.13 none walks through a map: the control plane writes down keys, and has
 * a program run once for each of them, on a frame that is what it is to do and has done.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SWEPT_AT_ONCE);
	__type(key, __u32);
	__type(value, struct flow_key);
} swept SEC(".maps");

SEC("xdp")
int note_shares(struct xdp_md *ctx)
{
	struct sweep *s = (void *)(long)ctx->data;
	struct interface *at;
	__u32 number;

	if ((void *)(s + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	number = s->next++;
	at = bpf_map_lookup_elem(&interfaces, &number);
	if (at)
		note_share(0, &number, at, 0);
	return XDP_PASS;
}

SEC("xdp")
int sweep_flows(struct xdp_md *ctx)
{
	struct sweep *s = (void *)(long)ctx->data;
	const struct control *c = controls_now();
	struct flow_key *key;
	struct flow *found;
	__u32 at;

	if (!c || (void *)(s + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	if (!s->tick)
		s->tick = c->fixed_tick ?: bpf_ktime_get_ns() >> TICK_SHIFT;
	at = s->next++;
	key = bpf_map_lookup_elem(&swept, &at);
	found = key ? bpf_map_lookup_elem(&flows, key) : 0;
	if (found)
		sweep_flow(0, key, found, s);
	return XDP_PASS;
}
#else
/* Run by the control plane, one at a time; packets may interrupt it anywhere. */
SEC("syscall")
int sweep_flows(struct sweep *ctx)
{
	struct sweep s = { .established = ctx->established,
			   .opening = ctx->opening,
			   .closed = ctx->closed,
			   .other = ctx->other,
			   .unanswered = ctx->unanswered,
			   .runs_short = ctx->runs_short,
			   .shortest = ctx->shortest };
	const struct control *c = controls_now();

	if (!c)
		return -1;
	/* The coarse clock, which packets are stamped with, is not for programs of this kind; it is a jiffy late at most. */
	s.tick = c->fixed_tick ?: bpf_ktime_get_ns() >> TICK_SHIFT;
	bpf_for_each_map_elem(&interfaces, note_share, 0, 0);
	bpf_for_each_map_elem(&flows, sweep_flow, &s, 0);
	ctx->ended = s.ended;
	return 0;
}
#endif

#endif
