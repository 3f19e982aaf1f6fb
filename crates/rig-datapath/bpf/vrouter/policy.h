/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Whether a list of rules lets a packet through. */
#ifndef VROUTER_POLICY_H
#define VROUTER_POLICY_H

#include "packet.h"

/* As many ranges as 2^20, which no table has. */
#define SEARCH_STEPS 20
#define NO_ROW ~0U

static always_inline const struct row *row_at(__u32 number)
{
	return bpf_map_lookup_elem(&rows, &number);
}

/* 1 for a < b, otherwise 0 (Warren, "Hacker's Delight", 2-12). */
static always_inline __u64 is_below(__u64 a, __u64 b)
{
	return ((~a & b) | ((~a | b) & (a - b))) >> 63;
}

/*
 * Of `count` ranges from `first`, the last that does not begin behind what is looked for; the first begins at the lowest value.
 * The comparisons of a binary search are branches that neither the verifier nor the processor can predict: their results are
 * calculated with in place of that, and how much is left does not depend on them.
 */
struct search {
	__u32 at, left;
};

static always_inline __u32 middle_of(const struct search *s)
{
	return s->at + s->left / 2;
}

/* One half less; `behind` is 1 where the range in the middle begins behind what is looked for, otherwise 0. */
static always_inline void halve(struct search *s, __u64 behind)
{
	__u64 upper = behind - 1;

	asm volatile("" : "+r"(upper));
	s->at += s->left / 2 & upper;
	s->left -= s->left / 2;
}

static always_inline __u32 row_of_address(const struct list *l, __u64 hi, __u64 lo)
{
	struct search s = { l->cuts_first, l->cuts_count };
	const struct cut *c;
	__u32 at;

	for (int i = 0; i < SEARCH_STEPS && s.left > 1; i++) {
		at = middle_of(&s);
		c = bpf_map_lookup_elem(&cuts, &at);
		if (!c)
			return NO_ROW;
		halve(&s, c->from.hi == hi ? is_below(lo, c->from.lo) : is_below(hi, c->from.hi));
	}
	at = s.at;
	c = bpf_map_lookup_elem(&cuts, &at);
	return c ? c->row : NO_ROW;
}

static always_inline __u32 row_of_port(const struct list *l, __u32 port)
{
	struct search s = { l->bounds_first, l->bounds_count };
	const struct bound *b;
	__u32 at;

	for (int i = 0; i < SEARCH_STEPS && s.left > 1; i++) {
		at = middle_of(&s);
		b = bpf_map_lookup_elem(&bounds, &at);
		if (!b)
			return NO_ROW;
		halve(&s, is_below(port, b->from));
	}
	at = s.at;
	b = bpf_map_lookup_elem(&bounds, &at);
	return b ? b->row : NO_ROW;
}

/* How many bits are 0 below the lowest that is 1 (Warren, "Hacker's Delight", 5-1 and 5-4). */
static always_inline __u32 zeros_below(__u64 word)
{
	__u64 n = ~word & (word - 1);

	n -= n >> 1 & 0x5555555555555555ULL;
	n = (n & 0x3333333333333333ULL) + (n >> 2 & 0x3333333333333333ULL);
	n = (n + (n >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return n * 0x0101010101010101ULL >> 56;
}

#define ALLOWED 1
#define RULE_SHIFT 8
#define RULE_OF(answer) ((answer) >> RULE_SHIFT & (MAX_RULES - 1))

/* What else a rule has done, with its place. */
static always_inline int also_of(const struct list *l, __u32 rule)
{
	__u32 at = l->also_first + rule, *also = bpf_map_lookup_elem(&alsos, &at);

	return also && rule < l->also_count ? *also | rule << RULE_SHIFT : 0;
}

/*
 * ALLOWED or not, with what else the rule has done that matches: `enum also`, and with that, the rule's place. `port` is
 * protocol << 16 | destination port, or type of ICMP, in the machine's order.
 */
__attribute__((noinline)) int is_allowed(__u32 list, __u64 hi, __u64 lo, __u32 port)
{
	const struct list *l = bpf_map_lookup_elem(&lists, &list);
	const struct row *by_address, *by_port, *allowing;

	if (!l)
		return 0;
	by_address = row_at(row_of_address(l, bpf_be64_to_cpu(hi), bpf_be64_to_cpu(lo)));
	by_port = row_at(row_of_port(l, port));
	allowing = row_at(l->allow_row);
	if (!by_address || !by_port || !allowing)
		return 0;
	for (int i = 0; i < RULE_WORDS; i++) {
		__u64 both = by_address->word[i] & by_port->word[i];

		if (both) {
			int allows = (allowing->word[i] & both & -both) != 0;

			return l->also_count ? allows | also_of(l, i * 64 + zeros_below(both)) : allows;
		}
	}
	return l->allow_otherwise;
}

/* Whether a list lets a packet through; what is to be logged is put down. */
static always_inline int lets_through(struct work *w, __u32 list, const struct address *remote, __u32 port,
				      __u32 interface, __u8 flags)
{
	int answer = is_allowed(list, remote->hi, remote->lo, port);

	if (answer & ALSO_LOG) {
		struct rule_match *s = &w->matches[w->match_count % MAX_MATCHES];

		s->list = list;
		s->interface = interface;
		s->rule = RULE_OF(answer);
		s->flags = flags | (answer & ALLOWED ? LOG_RULE_ALLOWS : 0);
		w->match_count++;
	}
	if (!w->mirror)
		w->mirror = (__u32)answer >> ANALYSER_SHIFT;
	return answer & ALLOWED;
}

/* What a packet is held against: lists of the interface that sends it and of the one that gets it, where they are here. */
static always_inline int is_let_through(const struct packet *p, const struct flow_key *k, struct work *w, __u32 sender,
					__u32 receiver)
{
	const struct interface *from = sender ? bpf_map_lookup_elem(&interfaces, &sender) : 0;
	const struct interface *to = receiver ? bpf_map_lookup_elem(&interfaces, &receiver) : 0;
	__u32 port = (__u32)p->protocol << 16;

	w->match_count = w->mirror = 0;
	if (p->protocol == IPPROTO_ICMP || p->protocol == IPPROTO_ICMPV6)
		port |= p->type;
	else
		port |= bpf_ntohs(k->destination_port);
	for (int i = 0; from && from->flags & HAS_POLICY && i < MAX_LISTS; i++) {
		if (from->outward[i] && !lets_through(w, from->outward[i], &k->destination, port, sender, LOG_SENDS))
			return 0;
	}
	for (int i = 0; to && to->flags & HAS_POLICY && i < MAX_LISTS; i++) {
		if (to->inward[i] && !lets_through(w, to->inward[i], &k->source, port, receiver, 0))
			return 0;
	}
	if (!w->mirror && from)
		w->mirror = from->mirror;
	if (!w->mirror && to)
		w->mirror = to->mirror;
	return 1;
}

#endif
