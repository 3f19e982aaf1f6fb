/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What rules that log have decided: each flow once, and again when its verdict changes. The daemon reads the ring now and then and is
 * not woken for it; where the ring is full, records are counted and lost.
 */
#ifndef VROUTER_LOG_H
#define VROUTER_LOG_H

#include "packet.h"

/* Refusals have no flow, so that each packet is another one: so many of an interface are logged. */
#define NS_PER_REFUSAL 10000000ULL
#define REFUSALS_AT_ONCE 128

static always_inline void count_log(__u32 place, __u32 count)
{
	__u64 *value = bpf_map_lookup_elem(&log_counts, &place);

	if (value)
		*value += count;
}

/* Where two CPUs log refusals of one interface at a time one of them may not be counted. */
static always_inline int may_log_refusal(__u32 interface)
{
	__u64 *next = bpf_map_lookup_elem(&log_turns, &interface), now = bpf_ktime_get_ns(), from;

	if (!next)
		return 0;
	from = *next > now ? *next : now;
	if (from - now > (REFUSALS_AT_ONCE - 1) * NS_PER_REFUSAL)
		return 0;
	*next = from + NS_PER_REFUSAL;
	return 1;
}

/* Fills a record but for `flags`. A function of its own so that its type is among those of the object (BTF). */
static __attribute__((noinline)) int describe(struct log_record *one, const struct flow_key *k, const struct rule_match *s,
					      const struct list *l, const struct packet *p)
{
	one->time = bpf_ktime_get_ns();
	one->source = k->source;
	one->destination = k->destination;
	one->source_port = k->source_port;
	one->destination_port = k->destination_port;
	one->interface = s->interface;
	one->list = l->number;
	one->since = l->since;
	one->rule = s->rule;
	one->protocol = p->protocol;
	one->type = p->type;
	__builtin_memset(one->pad, 0, sizeof(one->pad));
	return 0;
}

/* Logs what rules have said of a flow, which this packet's direction began, or, where that is `of_answers`, the other one. */
__attribute__((noinline)) int log_matches(int of_answers, __u32 is_let_through)
{
	const struct work *w = work_here();
	const struct flow_key *k;

	if (!w)
		return 0;
	k = of_answers ? &w->back_key : &w->packet.key;
	for (__u32 i = 0; i < MAX_MATCHES && i < w->match_count; i++) {
		const struct rule_match *s = &w->matches[i];
		__u32 list = s->list;
		const struct list *l = bpf_map_lookup_elem(&lists, &list);
		struct log_record *one = l ? bpf_ringbuf_reserve(&log_ring, sizeof(*one), 0) : 0;

		if (!one) {
			count_log(LOG_LOST, 1);
			continue;
		}
		describe(one, k, s, l, &w->packet);
		one->flags = s->flags | (is_let_through ? LOG_LET_THROUGH : 0);
		bpf_ringbuf_submit(one, BPF_RB_NO_WAKEUP);
		count_log(LOG_WRITTEN, 1);
	}
	return 0;
}

#endif
