/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Whether a list of rules lets a packet through. */
#ifndef VROUTER_POLICY_H
#define VROUTER_POLICY_H

#include "packet.h"

/* Ranges of a list of MAX_RULES rules are at most twice as many and one. */
#define SEARCH_STEPS 12

static always_inline const struct row *row_at(__u32 number)
{
	return bpf_map_lookup_elem(&rows, &number);
}

/* The range of addresses that one is in: the last that does not begin behind it. */
static always_inline const struct row *row_of_address(const struct list *l, const struct address *a)
{
	__u64 hi = bpf_be64_to_cpu(a->hi), lo = bpf_be64_to_cpu(a->lo);
	__u32 first = l->cuts_first, count = l->cuts_count, row = 0;

	for (int i = 0; i < SEARCH_STEPS; i++) {
		__u32 half = count / 2, middle = first + half;
		const struct cut *c = bpf_map_lookup_elem(&cuts, &middle);

		if (!count || !c)
			break;
		if (c->from.hi < hi || (c->from.hi == hi && c->from.lo <= lo)) {
			row = c->row;
			first = middle + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	return row_at(row);
}

static always_inline const struct row *row_of_port(const struct list *l, __u32 port)
{
	__u32 first = l->bounds_first, count = l->bounds_count, row = 0;

	for (int i = 0; i < SEARCH_STEPS; i++) {
		__u32 half = count / 2, middle = first + half;
		const struct bound *b = bpf_map_lookup_elem(&bounds, &middle);

		if (!count || !b)
			break;
		if (b->from <= port) {
			row = b->row;
			first = middle + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	return row_at(row);
}

/* `port` is protocol << 16 | destination port, or type of ICMP, in the machine's order. */
static __attribute__((noinline)) int is_allowed(__u32 list, const struct address *remote, __u32 port)
{
	const struct list *l = bpf_map_lookup_elem(&lists, &list);
	const struct row *by_address, *by_port, *allowing;

	if (!l)
		return 0;
	by_address = row_of_address(l, remote);
	by_port = row_of_port(l, port);
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
