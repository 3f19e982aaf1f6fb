/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Which MAC addresses containers' frames come from, and which those for containers go to. */
#ifndef VROUTER_SOURCE_H
#define VROUTER_SOURCE_H

#include "flow.h"

static always_inline __u64 word_of_mac(const __u8 *mac)
{
	return *(const __u32 *)mac | (__u64)*(const __u16 *)(mac + 4) << 32;
}

static always_inline void set_mac_of_word(__u8 *to, __u64 mac)
{
	__u32 begin = mac;

	*(__u16 *)to = ((__u16 *)&begin)[0];
	*(__u16 *)(to + 2) = ((__u16 *)&begin)[1];
	*(__u16 *)(to + 4) = mac >> 32;
}

/*
 * What becomes of an interface's frame that comes from another address than the one that is known: 0, or a reason for a drop. Group
 * addresses, 0 and the router's own are not learned. Nothing is written where nothing changes.
 */
static always_inline int check_foreign_mac(struct interface *at, const struct control *c, struct traffic *t, __u64 source)
{
	__u32 begin = source;
	int is_one;

	if (!(at->flags & ANY_MAC)) {
		t->foreign++;
		if (at->foreign_mac != source)
			*(volatile __u64 *)&at->foreign_mac = source;
		return REASON_FOREIGN_MAC;
	}
	is_one = source && !(*(__u8 *)&begin & 1) && source != word_of_mac(c->mac);
	if (!is_one || at->known_mac)
		t->foreign++;
	if (is_one)
		*(volatile __u64 *)&at->known_mac = source;
	return 0;
}

/*
 * Looks at the address that a container's frame comes from. What becomes of the frame is put down and not returned, so that the verifier
 * has one way behind this in place of several.
 */
static __attribute__((noinline)) int check_source(struct __sk_buff *skb, struct packet *p, __u32 number)
{
	struct interface *at = bpf_map_lookup_elem(&interfaces, &number);
	const struct ethhdr *ethernet = (void *)(long)skb->data;
	__u64 source;

	if (!at || !p)
		return 0;
	if ((void *)(ethernet + 1) > (void *)(long)skb->data_end) {
		p->foreign = REASON_PULL;
		return 0;
	}
	source = word_of_mac(ethernet->h_source);
	if (source != at->known_mac) {
		const struct control *c = controls_now();
		struct traffic *t = traffic_of(number);

		if (c && t)
			p->foreign = check_foreign_mac(at, c, t, source);
	}
	return 0;
}

/*
 * The address of a frame for an interface, whose own next hop this is: the one that is known, or, before that, the one that others are
 * told, which a bridged frame has already.
 */
static always_inline void set_receiver(__u8 *mac, const struct next_hop *nh)
{
	const struct interface *to = interface_at(nh->number);
	__u64 known = to ? *(const volatile __u64 *)&to->known_mac : 0;

	set_mac_of_word(mac, known ?: word_of_mac(nh->mac));
}

#endif
