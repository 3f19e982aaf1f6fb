/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames to all of a network: broadcasts, groups and, where the network is set to that, unknown addresses. Each member gets a
 * copy but the sender; a frame that came by a tunnel goes into no tunnel. Copies are held against rules one by one and are of no flow.
 */
#ifndef VROUTER_FLOOD_H
#define VROUTER_FLOOD_H

#include "tunnel.h"

/*
 * Of a packet's mark: it is the copy for this member, and comes in by the same interface once more. A packet can be redirected to
 * the neighbour behind a tunnel only by itself, not as a copy. Packets of other network namespaces come without marks.
 */
#define COPY_MARK 0xfd0d0000U
#define COPY_MARKED 0xffff0000U

static always_inline int is_copy(const struct __sk_buff *skb)
{
	return (skb->mark & COPY_MARKED) == COPY_MARK;
}

/* Copies that an interface may have made, so that they take a tenth of a CPU at most; and how many at once, as the backlog takes. */
#define NS_PER_COPY 10000ULL
#define COPIES_AT_ONCE 1000

/* Where two CPUs copy for one interface at a time one of them may not be counted. */
static always_inline int may_copy(__u64 *next, __u32 copies, __u64 at_once)
{
	__u64 now = bpf_ktime_get_ns(), from;

	if (!next)
		return 0;
	from = *next > now ? *next : now;
	if (from - now > at_once * NS_PER_COPY)
		return 0;
	*next = from + copies * NS_PER_COPY;
	return 1;
}

/* The largest packet on the wire that becomes of it, behind the link's header. */
static always_inline __u32 on_the_wire(struct __sk_buff *skb, const struct packet *p)
{
	return skb->gso_segs > 1 && skb->gso_size ? p->l4 - p->l3 + p->header + skb->gso_size : p->length;
}

/*
 * A source without an address yet (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2), or with one of its link alone (RFC 4291, 2.5.6): no route
 * leads there.
 */
static always_inline int is_of_link(const struct address *a)
{
	if (is_v4(a))
		return !v4_of(a);
	return (!a->hi && !a->lo) || bpf_be64_to_cpu(a->hi) >> 54 == 0xfe80 >> 6;
}

/* The next hop to all members of a network; 0 where frames go to none. */
static always_inline __u32 all_of(__u32 vrf)
{
	struct mac_key key = { .vrf = vrf, .mac = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff } };
	const struct route *r = bpf_map_lookup_elem(&macs, &key);

	return r ? r->next_hop : 0;
}

/* The next hop for a frame to a group or an unknown address; 0 where such frames go to no member. */
static always_inline __u32 all_of_frame(__u32 vrf, const __u8 *mac)
{
	__u32 all = all_of(vrf);
	const struct next_hop *nh;

	if (!all || mac[0] & 1)
		return all;
	nh = next_hop_at(all);
	return nh && nh->destination ? all : 0;
}

struct copying {
	struct __sk_buff *skb;
	/* The entry of `members`. */
	__u32 place;
	/* The interface that the packet comes from, which is left out; 0 for a tunnel. */
	__u32 number;
	/* How many members there are. */
	__u32 count;
	/* One behind the member that is next: the last one gets the packet itself. */
	__u32 next;
	__u32 copies, refused;
};

/* The next hop of a member, with its label; 0 where there is none. A function, so that its look at the table is not taken apart. */
static __attribute__((noinline)) const struct next_hop *member(__u32 place, __u32 at, struct route *out)
{
	const struct members *m = bpf_map_lookup_elem(&members, &place);

	if (!m || at >= MAX_MEMBERS)
		return 0;
	*out = m->to[at];
	return next_hop_at(out->next_hop);
}

/* A copy to the member that is next. */
static __attribute__((noinline)) int copy_to_next(struct copying *c)
{
	struct route to = {};
	const struct next_hop *nh = member(c->place, c->next - 1, &to);
	struct work *w = work_here();
	struct __sk_buff *skb = c->skb;
	int failed;

	if (!nh || !w)
		return 0;
	if (nh->kind == TO_INTERFACE) {
		count_out(nh->number, skb->len);
		failed = bpf_clone_redirect(skb, nh->ifindex, 0);
	} else {
		skb->mark = COPY_MARK | (c->next - 1);
		failed = bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
		skb->mark = 0;
	}
	if (failed)
		drop(&w->packet, c->number, REASON_CLONE);
	else
		c->copies++;
	return 0;
}

/* Of LOOP: whether a member takes part. */
static long copy_to(__u32 at, struct copying *c)
{
	struct route to = {};
	const struct next_hop *nh = member(c->place, at, &to);
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	const struct interface *receiver;

	if (!nh || !p || (c->number && leads_to_interface(nh, c->number)))
		return 0;
	if (nh->kind == TO_INTERFACE) {
		receiver = interface_at(nh->number);
		if (!receiver)
			return 0;
		if (!is_let_through(p, &p->key, w, 0, nh->number)) {
			c->refused = 1;
			if (w->match_count)
				log_refusal(w, nh->number);
			drop(p, nh->number, REASON_POLICY);
			return 0;
		}
	} else if (nh->kind == TO_TUNNEL) {
		/* There are no errors about what was sent to many (RFC 1122, 3.2.2). The next hop is that of IP packets. */
		if (on_the_wire(c->skb, p) + overhead_of_frame(nh->encapsulation) > nh->mtu + overhead(nh->encapsulation)) {
			c->refused = 1;
			drop(p, c->number, REASON_TOO_BIG);
			return 0;
		}
	} else {
		return 0;
	}
	if (c->next)
		copy_to_next(c);
	c->next = at + 1;
	return 0;
}

/* The packet itself, or a copy of it that has come back, into the tunnel to a member. */
static always_inline int into_tunnel(struct __sk_buff *skb, struct packet *p, __u32 number, const struct next_hop *nh,
				     __u32 label)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr inner;
	int reason;

	skb->mark = 0;
	if (!nh || nh->kind != TO_TUNNEL)
		return drop(p, number, REASON_L2_NO_ROUTE);
	if (data + ETH_HLEN > end)
		return drop(p, number, REASON_PULL);
	inner = *(struct ethhdr *)data;
	/* It becomes the outer one, whose addresses the kernel fills in; not where they are a group's. */
	__builtin_memset(data, 0, ETH_ALEN);
	p->key.at = AT(number, p->protocol);
	reason = encapsulate_frame(skb, p, nh, label, tunnel_port(hash_of_packet(p)), &inner);
	if (reason)
		return drop(p, number, reason);

	struct bpf_redir_neigh gateway = { .nh_family = 2, .ipv4_nh = nh->gateway };

	return bpf_redirect_neigh(nh->ifindex, &gateway, sizeof(gateway), 0);
}

/* 0, or the reason why a packet is not for all. `at` is an interface of the network, the sender's own without `outer`. */
static always_inline int is_for_all(struct packet *p, const struct interface *at, __u32 number, __u32 outer)
{
	struct route back = {};

	/* RFC 1122, 3.2.2. */
	if (p->error)
		return REASON_INVALID_PACKET;
	p->key.at = AT(number, p->protocol);
	if (p->fragment) {
		int reason = join_fragments(p);

		if (reason)
			return reason;
	}
	if (is_of_link(&p->key.source))
		return 0;
	return route_back(at, number, &p->key.source, outer, &back);
}

#ifdef OLD_KERNEL
/*
 * A member's turn, by words alone, so that the verifier looks at it once: `places` is the entry of `members` and, below it, the interface;
 * what is returned is given to the next one.
 */
__noinline __u64 copy_in_turn(struct __sk_buff *skb, __u64 places, __u32 at, __u64 so_far)
{
	struct copying c = { .skb = skb,
			     .place = places >> 32,
			     .number = places,
			     .next = so_far & 0xffff,
			     .copies = (so_far >> 16) & 0xffff,
			     .refused = so_far >> 32 };

	copy_to(at, &c);
	return (__u64)c.refused << 32 | c.copies << 16 | c.next;
}

static always_inline void each_member(struct copying *c)
{
	__u64 so_far = c->next;

	for (__u32 at = 0; at < MAX_MEMBERS && at < c->count; at++)
		so_far = copy_in_turn(c->skb, (__u64)c->place << 32 | c->number, at, so_far);
	c->next = so_far & 0xffff;
	c->copies = (so_far >> 16) & 0xffff;
	c->refused = so_far >> 32;
}
#else
static always_inline void each_member(struct copying *c)
{
	c->next = UNKNOWN_ZERO(c->place);
	bpf_loop(c->count, copy_to, c, 0);
}
#endif

static always_inline void count_copies(const struct copying *c)
{
	__u32 number = c->number;
	struct copy_count *count = bpf_map_lookup_elem(&copied, &number);

	if (count) {
		count->frames++;
		count->copies += c->copies;
	}
}

/* Whether there is a last member, which gets the packet itself. */
static always_inline int copy_to_all(struct copying *c, const struct packet *p)
{
	each_member(c);
	if (c->next) {
		c->copies++;
		count_copies(c);
	} else if (!c->refused) {
		drop(p, c->number, REASON_L2_NO_ROUTE);
	}
	return c->next;
}

/*
 * Through the device's queue, as copies go: the kernel sets the packet's type anew by its destination address, so that a container drops
 * a frame for another's address. bpf_redirect_peer hands it over as the container's own (skb_scrub_packet in net/core/skbuff.c).
 */
static always_inline int to_last(struct __sk_buff *skb, const struct next_hop *nh)
{
	count_out(nh->number, skb->len);
	return bpf_redirect(nh->ifindex, 0);
}

/* A container's frame to the members that `all` leads to; or the copy of one that is for a tunnel. */
static __attribute__((noinline)) int flood(struct __sk_buff *skb, __u32 number, __u32 all)
{
	const struct interface *at = interface_at(number);
	const struct next_hop *nh = next_hop_at(all);
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	struct copying c = { .skb = skb, .number = number };
	struct route last = {};
	int reason;

	if (!p || !at)
		return TC_ACT_SHOT;
	if (!nh || nh->kind != TO_ALL)
		return drop(p, number, REASON_L2_NO_ROUTE);
	c.place = nh->number;
	if (is_copy(skb)) {
		c.next = 1 + (skb->mark & ~COPY_MARKED);
		nh = member(c.place, c.next - 1, &last);
		return into_tunnel(skb, p, number, nh, last.label);
	}
	reason = is_for_all(p, at, number, 0);
	if (!reason && !is_let_through(p, &p->key, w, number, 0)) {
		reason = REASON_POLICY;
		if (w->match_count)
			log_refusal(w, number);
	}
	if (!reason && !may_copy(bpf_map_lookup_elem(&copying, &number), nh->mtu, COPIES_AT_ONCE))
		reason = REASON_MANY_COPIES;
	if (reason)
		return drop(p, number, reason);
	c.count = nh->mtu;
	if (!copy_to_all(&c, p))
		return TC_ACT_SHOT;
	nh = member(c.place, c.next - 1, &last);
	if (nh && nh->kind == TO_INTERFACE)
		return to_last(skb, nh);
	return into_tunnel(skb, p, number, nh, last.label);
}

/* What came by a tunnel to the members here that `all` leads to. */
static __attribute__((noinline)) int flood_in(struct __sk_buff *skb, const struct outer *o, const struct ethhdr *inner,
					      __u32 all)
{
	const struct next_hop *nh = next_hop_at(all);
	const struct interface *at;
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	struct copying c = { .skb = skb };
	struct ethhdr *ethernet;
	struct route last = {};
	int reason;

	if (!p)
		return TC_ACT_SHOT;
	if (!nh || nh->kind != TO_ALL || !nh->source)
		return drop(p, 0, REASON_L2_NO_ROUTE);
	c.place = nh->number;
	c.count = nh->source;
	nh = member(c.place, 0, &last);
	at = nh ? interface_at(nh->number) : 0;
	if (!at)
		return drop(p, 0, REASON_INVALID_IF);
	reason = is_for_all(p, at, nh->number, o->source);
	if (!reason && !may_copy(bpf_map_lookup_elem(&copying_in, &c.place), c.count, COPIES_AT_ONCE))
		reason = REASON_MANY_COPIES;
	if (!reason)
		reason = strip(skb, p, overhead_of_frame(o->encapsulation), inner->h_proto);
	if (!reason && (o->class ^ p->class) & 3)
		reason = mark(skb, p, o->class);
	if (reason)
		return drop(p, 0, reason);
	ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) > (void *)(long)skb->data_end)
		return drop(p, 0, REASON_PULL);
	set_mac(ethernet->h_dest, inner->h_dest);
	set_mac(ethernet->h_source, inner->h_source);
	if (!copy_to_all(&c, p))
		return TC_ACT_SHOT;
	nh = member(c.place, c.next - 1, &last);
	if (!nh || nh->kind != TO_INTERFACE)
		return drop(p, 0, REASON_INVALID_NH);
	return to_last(skb, nh);
}

/*
 * A frame behind a network's label for frames to all, whose next hop is `all`: 0, or a reason for a drop. ARP requests cannot be answered:
 * the label names the network, and not the node that asks. A frame for an unknown address is flooded where the network is set to that,
 * and other ones are not sent so.
 */
static __attribute__((noinline)) int parse_flooded(struct __sk_buff *skb, const struct outer *o, __u32 all, struct ethhdr *inner)
{
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	const struct next_hop *nh = next_hop_at(all);
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *frame;
	int reason;

	if (!p || !nh)
		return REASON_INVALID_NH;
	frame = data + ETH_HLEN +
		(o->encapsulation == MPLS_OVER_GRE ? sizeof(struct mpls_over_gre) : sizeof(struct mpls_over_udp));
	if ((void *)(frame + 1) > end)
		return REASON_INVALID_PACKET;
	*inner = *frame;
	if (inner->h_proto == bpf_htons(ETH_P_ARP))
		return REASON_UNANSWERED;
	if (inner->h_proto != bpf_htons(ETH_P_IP) && inner->h_proto != bpf_htons(ETH_P_IPV6))
		return REASON_INVALID_PROTOCOL;
	reason = parse_behind_label(skb, o, ETH_HLEN, inner->h_proto);
	if (reason)
		return reason;
	if (p->l3 + p->length > o->end)
		return REASON_INVALID_PACKET;
	/* The sender's node checks whether it may serve DHCP. */
	reason = is_for_router_alone(p, 1);
	if (reason)
		return reason;
	return !(inner->h_dest[0] & 1) && !nh->destination ? REASON_L2_NO_ROUTE : 0;
}

#endif
