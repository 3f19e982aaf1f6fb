/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Whether a list of rules lets a packet through. */
#ifndef VROUTER_POLICY_H
#define VROUTER_POLICY_H

#include "packet.h"

/* As many ranges as 2^20, which no table has. */
#define SEARCH_STEPS 20

static always_inline const struct row *row_at(__u32 number)
{
	return bpf_map_lookup_elem(&rows, &number);
}

/* A range among `count` from `first`: the last that does not begin behind what is looked for. */
struct search {
	__u64 hi, lo;
	__u32 port;
	__u32 first, count;
	__u32 row;
};

/* One half less; what is `before` is not behind the middle. */
static always_inline void halve(struct search *s, int before, __u32 row)
{
	__u32 half = s->count / 2;

	if (before) {
		s->row = row;
		s->first += half + 1;
		s->count -= half + 1;
	} else {
		s->count = half;
	}
}

static long look_at_address(__u32 i, struct search *s)
{
	__u32 middle = s->first + s->count / 2;
	const struct cut *c = bpf_map_lookup_elem(&cuts, &middle);

	if (!s->count || !c)
		return 1;
	halve(s, c->from.hi < s->hi || (c->from.hi == s->hi && c->from.lo <= s->lo), c->row);
	return 0;
}

static long look_at_port(__u32 i, struct search *s)
{
	__u32 middle = s->first + s->count / 2;
	const struct bound *b = bpf_map_lookup_elem(&bounds, &middle);

	if (!s->count || !b)
		return 1;
	halve(s, b->from <= s->port, b->row);
	return 0;
}

/* `port` is protocol << 16 | destination port, or type of ICMP, in the machine's order. */
__attribute__((noinline)) int is_allowed(__u32 list, const struct address *remote, __u32 port)
{
	const struct list *l = bpf_map_lookup_elem(&lists, &list);
	const struct row *by_address, *by_port, *allowing;
	struct search s = {};

	if (!l || !remote)
		return 0;
	s.hi = bpf_be64_to_cpu(remote->hi);
	s.lo = bpf_be64_to_cpu(remote->lo);
	s.first = l->cuts_first;
	s.count = l->cuts_count;
	bpf_loop(SEARCH_STEPS, look_at_address, &s, 0);
	by_address = row_at(s.row);
	s.port = port;
	s.first = l->bounds_first;
	s.count = l->bounds_count;
	bpf_loop(SEARCH_STEPS, look_at_port, &s, 0);
	by_port = row_at(s.row);
	allowing = row_at(l->allow_row);
	if (!by_address || !by_port || !allowing)
		return 0;
	for (int i = 0; i < RULE_WORDS; i++) {
		__u64 both = by_address->word[i] & by_port->word[i];

		if (both)
			return (allowing->word[i] & both & -both) != 0;
	}
	return l->allow_otherwise;
}

/* What a packet is held against: lists of the interface that sends it and of the one that gets it, where they are here. */
static always_inline int is_let_through(const struct packet *p, const struct flow_key *k, const struct interface *from,
					const struct interface *to)
{
	__u32 port = (__u32)p->protocol << 16;

	if (p->protocol == IPPROTO_ICMP || p->protocol == IPPROTO_ICMPV6)
		port |= p->type;
	else
		port |= bpf_ntohs(k->destination_port);
	for (int i = 0; i < MAX_LISTS; i++) {
		if (from && from->flags & HAS_POLICY && from->outward[i] &&
		    !is_allowed(from->outward[i], &k->destination, port))
			return 0;
		if (to && to->flags & HAS_POLICY && to->inward[i] && !is_allowed(to->inward[i], &k->source, port))
			return 0;
	}
	return 1;
}

#endif
