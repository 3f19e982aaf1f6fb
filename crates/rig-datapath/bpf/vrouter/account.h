/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is counted, and which packets were dropped last. */
#ifndef VROUTER_ACCOUNT_H
#define VROUTER_ACCOUNT_H

#include <linux/pkt_cls.h>

#include "lib/tc.h"
#include "packet.h"

static always_inline struct traffic *traffic_of(__u32 interface)
{
	return bpf_map_lookup_elem(&traffic, &interface);
}

static always_inline struct traffic *count_in(__u32 interface, __u32 bytes)
{
	struct traffic *t = traffic_of(interface);

	if (t) {
		t->in_packets++;
		t->in_bytes += bytes;
	}
	return t;
}

static always_inline struct traffic *count_out(__u32 interface, __u32 bytes)
{
	struct traffic *t = traffic_of(interface);

	if (t) {
		t->out_packets++;
		t->out_bytes += bytes;
	}
	return t;
}

/* Counts the program's path that a packet took, and which other tables and next hops of several its route has passed through. */
static always_inline void count_hop(struct traffic *t, const struct packet *p, __u32 hop)
{
	if (!t || hop >= HOPS)
		return;
	t->hops[hop]++;
	if (p->passed) {
		t->hops[HOP_TRANSLATE] += p->passed & TRANSLATIONS;
		t->hops[HOP_ECMP] += (p->passed & PASSED_ECMP) != 0;
	}
}

/* Counts a packet of an interface, 0 for none, as dropped, and notes it. */
static __attribute__((noinline)) int drop(const struct packet *p, __u32 interface, __u32 reason)
{
	__u32 key, zero = 0, *turn;
	struct traffic *t = traffic_of(interface);
	struct dropped_packet *d;
	__u64 *counts;

	if (reason == NOWHERE)
		reason = REASON_DISCARD;
	counts = bpf_map_lookup_elem(&drops, &interface);
	if (counts && reason < REASONS)
		counts[reason]++;
	if (t)
		t->drops++;
	turn = bpf_map_lookup_elem(&drop_turns, &zero);
	if (!turn)
		return TC_ACT_SHOT;
	key = bpf_get_smp_processor_id() * LOGGED + *turn % LOGGED;
	(*turn)++;
	d = bpf_map_lookup_elem(&dropped, &key);
	if (d) {
		d->time = bpf_ktime_get_ns();
		d->source = p->key.source;
		d->destination = p->key.destination;
		d->source_port = p->key.source_port;
		d->destination_port = p->key.destination_port;
		d->interface = interface;
		d->protocol = p->protocol;
		d->reason = reason;
		d->length = p->length;
	}
	return TC_ACT_SHOT;
}

#endif
