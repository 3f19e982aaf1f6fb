/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Flows: what was let through once, and where it went. An entry for each direction of a connection; a packet that finds its
 * own needs neither route nor rules, as long as these have not changed since.
 */
#ifndef VROUTER_FLOW_H
#define VROUTER_FLOW_H

#include <linux/errno.h>

#include "account.h"
#include "lib/atomic.h"
#include "log.h"
#include "policy.h"
#include "route.h"

static always_inline const struct control *controls_now(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&controls, &zero);
}

static always_inline __u32 tick_of(const struct control *c)
{
	return c->fixed_tick ?: coarse_ns() >> TICK_SHIFT;
}

/* What a packet's flags say of a TCP connection. */
static always_inline __u32 seen_in(const struct packet *p, int forward)
{
	__u32 seen = 0;

	if (p->tcp_flags & TCP_SYN)
		seen |= forward ? SEEN_SYN : SEEN_SYN_R;
	else if (p->tcp_flags & TCP_ACK)
		seen |= forward ? SEEN_ESTABLISHED : SEEN_ESTABLISHED_R;
	if (p->tcp_flags & TCP_FIN)
		seen |= forward ? SEEN_FIN : SEEN_FIN_R;
	if (p->tcp_flags & TCP_RST)
		seen |= SEEN_RST;
	return seen;
}

/* What TCP's flags say, kept with the direction that began the connection. */
static always_inline void note_tcp(struct flow *own, const struct packet *p)
{
	int forward = own->flags & FORWARD;
	struct flow *f = own;
	__u32 seen = seen_in(p, forward);

	if (!forward) {
		struct flow_key k = {};

		reverse(&k, &p->key);
		k.at = own->reverse_at;
		f = bpf_map_lookup_elem(&flows, &k);
		if (!f)
			return;
	}
	/* A connection that is opened anew with the same ports is another one. */
	if (p->tcp_flags & TCP_SYN && forward && f->tcp & (SEEN_FIN | SEEN_FIN_R | SEEN_RST))
		f->tcp = 0;
	if ((f->tcp & seen) != seen)
		atomic_or(&f->tcp, seen);
}

/* Of the first packets of a direction, however many segments they are; `before` are those that came before it. */
static always_inline int is_noteworthy(const struct packet *p, __u64 before)
{
	return p->protocol == IPPROTO_TCP &&
	       (p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST) || before < 3);
}

/* A later fragment has the ports of the first. */
static __attribute__((noinline)) int join_fragments(struct packet *p)
{
	struct fragment_key k = { .source = p->key.source,
				  .destination = p->key.destination,
				  .at = p->key.at,
				  .identification = p->identification };
	__u64 *found, first;

	if (!p->later) {
		/* Of ICMP rules ask for the type. */
		first = (__u64)p->type << 32 | (__u32)p->key.source_port << 16 | p->key.destination_port;
		return bpf_map_update_elem(&fragments, &k, &first, BPF_ANY) ? REASON_FRAGMENTS : 0;
	}
	found = bpf_map_lookup_elem(&fragments, &k);
	if (!found)
		return REASON_FRAGMENTS;
	p->type = *found >> 32;
	p->key.source_port = *found >> 16;
	p->key.destination_port = *found;
	return 0;
}

/*
 * An entry for replies that was there already now replies to this flow: the same client may have sent from another interface before,
 * whose entry will end without it.
 */
static __attribute__((noinline)) void redirect_replies(const struct work *w)
{
	struct flow *there = bpf_map_lookup_elem(&flows, &w->back_key);

	if (there && !(there->flags & FORWARD))
		there->reverse_at = w->back.reverse_at;
}

/* Enters both directions, or neither; `is_new` says whether no other CPU did at the same time. */
static always_inline int enter(const struct packet *p, struct work *w, const struct interface *at, __u32 number,
			       __u8 *is_new)
{
	__u64 *count = bpf_map_lookup_elem(&begun, &number), *gone = bpf_map_lookup_elem(&ended, &number);
	int there, error;

	if (!count || !gone)
		return REASON_INVALID_IF;
	if (at->most_flows && *count - *gone >= at->most_flows)
		return REASON_NEW_FLOWS;
	/* The answer's first: it may come while this packet is still here. */
	there = bpf_map_update_elem(&flows, &w->back_key, &w->back, BPF_NOEXIST);
	if (there && there != -EEXIST)
		return REASON_FLOW_TABLE_FULL;
	error = bpf_map_update_elem(&flows, &p->key, &w->own, BPF_NOEXIST);
	if (error && error != -EEXIST) {
		if (!there)
			bpf_map_delete_elem(&flows, &w->back_key);
		return REASON_FLOW_TABLE_FULL;
	}
	if (!error) {
		sum_up(count, 1);
		*is_new = 1;
		if (there)
			redirect_replies(w);
	}
	return 0;
}

/* Whether a packet is for a service of an interface's whose flows are fat. */
static __attribute__((noinline)) int is_fat(const struct packet *p, __u32 interface)
{
	struct fat_key k = { .at = AT(interface, p->protocol), .port = p->key.destination_port };

	return (p->protocol == IPPROTO_TCP || p->protocol == IPPROTO_UDP) && bpf_map_lookup_elem(&fat, &k);
}

/*
 * The fat flow that a packet without one of its own is of; its key becomes the flow's. A service may send to any port of its client,
 * but that begins no TCP connection: a SYN is held against the rules.
 */
static __attribute__((noinline)) struct flow *find_fat(struct packet *p)
{
	struct flow_key k = p->key;
	struct flow *f;

	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return 0;
	k.source_port = 0;
	f = bpf_map_lookup_elem(&flows, &k);
	if (f && (f->flags & (FAT | FORWARD)) == (FAT | FORWARD)) {
		p->key.source_port = 0;
		return f;
	}
	k.source_port = p->key.source_port;
	k.destination_port = 0;
	f = bpf_map_lookup_elem(&flows, &k);
	if (!f || (f->flags & (FAT | FORWARD)) != FAT || (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return 0;
	p->key.destination_port = 0;
	return f;
}

/*
 * Makes a flow to another interface here fat where that has it so, if its packets still go there: several ways are chosen from by
 * the key.
 */
static __attribute__((noinline)) int fatten(struct packet *p, __u32 vrf, __u32 interface, struct route *route)
{
	struct route before = *route;
	__u16 port = p->key.source_port;

	if (!is_fat(p, interface))
		return 0;
	p->key.source_port = 0;
	if (!resolve(vrf, &p->key.destination, hash_of(&p->key), route) && route->next_hop == before.next_hop)
		return FAT;
	*route = before;
	p->key.source_port = port;
	return 0;
}

/*
 * Logs new decisions of rules about a known flow, if the verdict is another one than was logged last. That one is kept with the
 * direction that began the flow, as long as there is one.
 */
static __attribute__((noinline)) int log_change(struct work *w, struct flow *known, __u32 is_let_through)
{
	int of_answers = !(known->flags & FORWARD);
	struct flow *began = known;

	if (of_answers)
		began = bpf_map_lookup_elem(&flows, &w->back_key) ?: known;
	if (began->flags & (is_let_through ? LOGGED_ALLOWED : LOGGED_DENIED))
		return 0;
	began->flags = (began->flags & ~(LOGGED_ALLOWED | LOGGED_DENIED)) | (is_let_through ? LOGGED_ALLOWED : LOGGED_DENIED);
	return log_matches(of_answers, is_let_through);
}

/* Logs what rules have refused that is of no flow. */
static always_inline int log_refusal(struct work *w, __u32 interface)
{
	if (may_log_refusal(interface))
		return log_matches(0, 0);
	count_log(LOG_HELD_BACK, w->match_count);
	return 0;
}

/*
 * What becomes of a packet without a flow, or of one whose flow is of an older configuration. `number` is the interface that
 * it comes from, or, where `outer` says which router it came from, the one that it goes to. 0, or a reason for a drop.
 */
OF_POINTERS int decide(__u32 number, __u32 outer, struct flow *known, struct resolution *out)
{
	const struct interface *at = interface_at(number);
	const struct control *c = controls_now();
	int forward = !known || known->flags & FORWARD, reason, fat_flag = known ? known->flags & FAT : 0;
	__u32 hash;
	struct work *w = work_here();
	struct packet *p;
	struct route *route;
	struct flow *own, *back;
	__u32 reverse_at, other = 0, epoch;

	if (!at || !c || !w || !out)
		return REASON_INVALID_IF;
	p = &w->packet;
	route = &out->route;
	reverse_at = p->key.at;
	/* Before routes and rules are asked: those that change meanwhile are asked again for the next packet. */
	epoch = *(const volatile __u32 *)&c->epoch;
	own = &w->own;
	back = &w->back;
	if (!known && c->fat && is_fat(p, number)) {
		p->key.source_port = 0;
		fat_flag = FAT;
	}
	hash = hash_of(&p->key);
	/* To oneself: both directions would be one entry, that of an answer, which stays until the one that began it goes. */
	if (is_same(&p->key.source, &p->key.destination))
		return REASON_INVALID_SOURCE;
	/* Strict reverse path (RFC 3704, 2.2): a source that packets do not go to by the same way is none. */
	reason = route_back(at, number, &p->key.source, outer, route);
	if (reason)
		return reason;
	back->next_hop = route->next_hop;
	back->label = route->label;
	out->tunnel_port = tunnel_port(hash);
	if (outer) {
		route->next_hop = at->next_hop;
		route->label = 0;
	} else {
		const struct next_hop *nh;

		reason = resolve(at->vrf, &p->key.destination, hash, route);
		if (reason)
			return reason;
		nh = next_hop_at(route->next_hop);
		if (!nh)
			return REASON_INVALID_NH;
		/* Packets to the gateway, which the router itself answers, make no flow. */
		if (nh->kind == TO_GATEWAY)
			return 0;
		if (nh->kind == TO_INTERFACE) {
			other = nh->number;
			if (!known && c->fat && !fat_flag)
				fat_flag = fatten(p, at->vrf, other, route);
			reverse_at = AT(nh->number, p->protocol);
		}
	}
	reverse(&w->back_key, &p->key);
	/* Rules are for the direction that began it. */
	if (!forward)
		p->type = query_of(p, p->type);
	w->back_key.at = reverse_at;
	if (!is_let_through(p, forward ? &p->key : &w->back_key, w,
			    outer ? (forward ? 0 : number) : (forward ? number : other),
			    outer ? (forward ? number : 0) : (forward ? other : number))) {
		if (!known) {
			if (w->match_count)
				log_refusal(w, number);
			return REASON_POLICY;
		}
		if (w->match_count)
			log_change(w, known, 0);
		known->flags |= DENIED;
		known->epoch = epoch;
		return REASON_FLOW_ACTION_DROP;
	}
	own->packets = p->segments;
	own->bytes = p->length;
	back->packets = back->bytes = 0;
	own->epoch = back->epoch = epoch;
	own->tick = back->tick = own->begun = back->begun = tick_of(c);
	/* What connections say of themselves is of none of them alone. */
	own->tcp = p->protocol == IPPROTO_TCP && !fat_flag ? seen_in(p, 1) : 0;
	back->tcp = 0;
	own->next_hop = route->next_hop;
	own->label = route->label;
	own->reverse_at = reverse_at;
	back->reverse_at = p->key.at;
	own->tunnel_port = out->tunnel_port;
	back->tunnel_port = tunnel_port(hash_of(&w->back_key));
	own->flags = FORWARD | fat_flag | (w->match_count ? LOGGED_ALLOWED : 0);
	back->flags = fat_flag;
	own->mirror = back->mirror = out->mirror = w->mirror;
	if (known) {
		if (w->match_count)
			log_change(w, known, 1);
		/* Answers come by another way than before; where there is no room they are held against the rules. */
		if (forward && known->reverse_at != reverse_at &&
		    bpf_map_update_elem(&flows, &w->back_key, back, BPF_NOEXIST) == -EEXIST)
			redirect_replies(w);
		known->next_hop = route->next_hop;
		known->label = route->label;
		known->mirror = w->mirror;
		known->reverse_at = reverse_at;
		known->flags &= ~DENIED;
		known->epoch = epoch;
		return 0;
	}
	reason = enter(p, w, at, number, &out->is_new);
	if (w->match_count && out->is_new)
		log_matches(0, 1);
	return reason;
}

/* The flow of a packet, or the reason why it has none. `bytes` are those of the whole frame. */
static always_inline int follow(struct __sk_buff *skb, struct packet *p, __u32 number, __u32 outer,
				const struct control *c, struct resolution *out)
{
	struct flow *f;
	__u64 before;
	int reason;

	p->key.at = AT(number, p->protocol);
	if (p->fragment) {
		reason = join_fragments(p);
		if (reason)
			return reason;
	}
	p->segments = skb->gso_segs ?: 1;
	f = bpf_map_lookup_elem(&flows, &p->key);
	if (!f && c->fat)
		f = find_fat(p);
	if (!f || f->epoch != c->epoch) {
		if (p->error && !f)
			return REASON_POLICY;
		reason = decide(number, outer, f, out);
		if (reason || out->is_new)
			return reason;
		if (!f)
			f = bpf_map_lookup_elem(&flows, &p->key);
		/* The gateway's have none, or one of the time before it was the gateway's; or all has changed once more. It is not counted. */
		if (!f || f->epoch != c->epoch) {
			p->segments = 0;
			return 0;
		}
	}
	if (f->flags & DENIED)
		return REASON_FLOW_ACTION_DROP;
	before = f->packets;
	sum_up(&f->packets, p->segments);
	sum_up(&f->bytes, p->length);
	f->tick = tick_of(c);
	out->route.next_hop = f->next_hop;
	out->route.label = f->label;
	out->tunnel_port = f->tunnel_port;
	out->mirror = f->mirror;
	if (is_noteworthy(p, before) && !p->error && !(f->flags & FAT))
		note_tcp(f, p);
	return 0;
}

#endif
