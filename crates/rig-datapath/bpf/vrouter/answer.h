/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Packets of the router's own: answers to ARP, neighbour solicitations and pings, and ICMP errors. */
#ifndef VROUTER_ANSWER_H
#define VROUTER_ANSWER_H

#include "tunnel.h"

/* Bytes that an ICMP error quotes: the addresses and ports, and more than RFC 792 asks for. */
#define QUOTED 128
#define ICMP_HEADER 8

/* Behind the Ethernet header. */
struct arp {
	__be16 hardware, protocol;
	__u8 hardware_length, protocol_length;
	__be16 operation;
	__u8 sender_mac[6];
	__be32 sender;
	__u8 target_mac[6];
	__be32 target;
} __attribute__((packed));

struct solicitation {
	struct ipv6hdr ip;
	__u8 type, code;
	__u16 checksum;
	__be32 flags;
	struct in6_addr target;
};

struct advertisement {
	struct solicitation solicited;
	__u8 option, option_length;
	__u8 mac[6];
};

/* Out by the interface that it came in by, where the container is. */
static always_inline int send_back(struct __sk_buff *skb, __u32 interface)
{
	count_out(interface, skb->len);
	return bpf_redirect(skb->ifindex, 0);
}

/* Whether the router answers for an address: it has a route there, which does not lead back to the sender. */
static __attribute__((noinline)) int answers_for(const struct interface *at, __u32 number, const struct address *target)
{
	const struct next_hop *nh;
	struct route r = {};

	if (!at || resolve(at->vrf, target, 0, &r))
		return 0;
	nh = next_hop_at(r.next_hop);
	return nh && !leads_to_interface(nh, number);
}

/* RFC 826, and RFC 1027 for others. */
static always_inline int answer_arp(struct __sk_buff *skb, struct packet *p, const struct interface *at, __u32 number,
				    const struct control *c)
{
	struct ethhdr *ethernet = (void *)(long)skb->data;
	struct arp *a = (void *)(ethernet + 1);
	struct address target;
	__be32 asked;

	if ((void *)(a + 1) > (void *)(long)skb->data_end || a->hardware != bpf_htons(1) ||
	    a->protocol != bpf_htons(ETH_P_IP) || a->hardware_length != 6 || a->protocol_length != 4)
		return drop(p, number, REASON_INVALID_ARP);
	asked = a->target;
	set_v4(&target, asked);
	/* A host that asks for its own address probes whether another one has it (RFC 5227). */
	if (a->operation != bpf_htons(1) || asked == a->sender || !answers_for(at, number, &target))
		return drop(p, number, REASON_UNANSWERED);
	set_mac(ethernet->h_dest, a->sender_mac);
	set_mac(ethernet->h_source, c->mac);
	a->operation = bpf_htons(2);
	set_mac(a->target_mac, a->sender_mac);
	a->target = a->sender;
	set_mac(a->sender_mac, c->mac);
	a->sender = asked;
	return send_back(skb, number);
}

/*
 * What the neighbour solicitation at `at`, an offset that the compiler knows, asks for: 0, or the reason why it is not answered (RFC
 * 4861, 7.1.1, and RFC 6980, 5).
 */
static always_inline int asked_for(struct __sk_buff *skb, const struct packet *p, __u32 at, struct address *target)
{
	struct solicitation *s = (void *)(long)skb->data + at;

	if ((void *)(s + 1) > (void *)(long)skb->data_end || p->length < sizeof(*s) || p->l4 != at + sizeof(s->ip) || p->fragment ||
	    s->ip.hop_limit != 255 || s->code)
		return REASON_INVALID_ARP;
	set_v6(target, &s->target);
	if (*(__u8 *)&s->target == 0xff || is_v4(target))
		return REASON_INVALID_ARP;
	/* From the unspecified address: duplicate address detection (RFC 4862, 5.4). */
	return !p->key.source.hi && !p->key.source.lo ? REASON_UNANSWERED : 0;
}

/* RFC 4861, 7.2.4: in place of the question. */
static always_inline void write_advertisement(struct advertisement *a, const struct packet *p, const struct address *target,
					      const __u8 *mac, __be32 flags)
{
	struct solicitation *s = &a->solicited;
	__u64 sum;

	s->ip.payload_len = bpf_htons(sizeof(*a) - sizeof(struct ipv6hdr));
	get_v6(&s->ip.daddr, &p->key.source);
	get_v6(&s->ip.saddr, target);
	s->type = 136;
	s->checksum = 0;
	s->flags = flags;
	a->option = 2;
	a->option_length = 1;
	set_mac(a->mac, mac);
	sum = 2 * sum_address(target) + sum_address(&p->key.source) + s->ip.payload_len +
	      bpf_htons(IPPROTO_ICMPV6) + bpf_htons(136 << 8) + s->flags + bpf_htons(0x0201) + *(__u16 *)mac +
	      *(__u16 *)(mac + 2) + *(__u16 *)(mac + 4);
	s->checksum = ~fold(sum);
}

/* An answer to a neighbour's question, with the router's address in it. */
static always_inline int answer_solicitation(struct __sk_buff *skb, struct packet *p, const struct interface *at,
					     __u32 number, const struct control *c)
{
	struct ethhdr *ethernet;
	struct advertisement *a;
	struct address target;
	int reason = asked_for(skb, p, ETH_HLEN, &target);

	if (!reason && !answers_for(at, number, &target))
		reason = REASON_UNANSWERED;
	if (reason)
		return drop(p, number, reason);
	if (bpf_skb_change_tail(skb, ETH_HLEN + sizeof(*a), 0))
		return drop(p, number, REASON_PUSH);
	ethernet = (void *)(long)skb->data;
	a = (void *)(ethernet + 1);
	if ((void *)(a + 1) > (void *)(long)skb->data_end)
		return drop(p, number, REASON_PUSH);
	/* To the sender's address, even if the configuration has another one for the container (RFC 4861, 7.2.4). */
	set_mac(ethernet->h_dest, ethernet->h_source);
	set_mac(ethernet->h_source, c->mac);
	/* Router, solicited, override. */
	write_advertisement(a, p, &target, c->mac, bpf_htonl(0xe0000000));
	return send_back(skb, number);
}

/* The container here whose address a router behind a tunnel asks for, in the network of `next_hop`, which an identifier led to. */
static __attribute__((noinline)) const struct interface *asked_by_peer(__u32 next_hop, const struct address *target)
{
	struct host_key key = { .address = *target };
	const struct next_hop *nh = next_hop_at(next_hop);
	const struct interface *at = nh && nh->kind == TO_INTERFACE ? interface_at(nh->number) : 0;
	const struct route *r;

	if (nh && nh->kind == TO_VRF)
		key.vrf = nh->number;
	else if (at)
		key.vrf = at->vrf;
	else
		return 0;
	/* Addresses of others, and what is behind a container, are for others to answer for. */
	r = bpf_map_lookup_elem(&hosts, &key);
	nh = r ? next_hop_at(r->next_hop) : 0;
	return nh && nh->kind == TO_INTERFACE ? interface_at(nh->number) : 0;
}

/* A tunnel's frame goes back to where it came from, `length` bytes behind the Ethernet header. */
static always_inline int send_back_to_peer(struct __sk_buff *skb, const struct packet *p, const struct outer *o,
					   const struct ethhdr *inner, const __u8 *mac, __u32 length)
{
	const struct control *c = controls_now();
	const struct peer *peer = bpf_map_lookup_elem(&peers, &o->source);
	struct over_vxlan *v = (void *)(long)skb->data + ETH_HLEN;
	struct ethhdr *frame = (void *)(v + 1);

	if (!c || !peer || (void *)(frame + 1) > (void *)(long)skb->data_end)
		return drop(p, 0, REASON_PULL);

	struct next_hop back = { .source = c->address, .destination = o->source };
	struct bpf_redir_neigh gateway = { .nh_family = 2, .ipv4_nh = peer->gateway };

	write_ip(&v->outer.ip, &back, p->class, IPPROTO_UDP, length);
	write_udp(&v->outer.udp, bpf_ntohs(v->outer.udp.source), VXLAN_PORT, length - sizeof(struct iphdr));
	v->vxlan.flags = bpf_htonl(VNI_VALID);
	v->vxlan.vni = bpf_htonl(o->label << 8);
	set_mac(frame->h_dest, inner->h_source);
	set_mac(frame->h_source, mac);
	return bpf_redirect_neigh(peer->ifindex, &gateway, sizeof(gateway), 0);
}

/*
 * A question for an address from behind a tunnel, where the sender may know of no router: it is answered with the container's own
 * MAC address, which frames of its network come by.
 */
static __attribute__((noinline)) int answer_arp_of_peer(struct __sk_buff *skb, const struct outer *o,
							const struct ethhdr *inner)
{
	const __u32 at = sizeof(struct over_vxlan) + ETH_HLEN;
	__u32 *found = bpf_map_lookup_elem(&vnis, &o->label);
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	const struct interface *to;
	struct address target;
	struct arp *a;
	__be32 asked;

	if (!p)
		return TC_ACT_SHOT;
	if (!found)
		return drop(p, 0, REASON_INVALID_VNID);
	if (ETH_HLEN + at + sizeof(*a) > o->end || bpf_skb_pull_data(skb, ETH_HLEN + at + sizeof(*a)))
		return drop(p, 0, REASON_INVALID_ARP);
	a = (void *)(long)skb->data + ETH_HLEN + at;
	if ((void *)(a + 1) > (void *)(long)skb->data_end || a->hardware != bpf_htons(1) ||
	    a->protocol != bpf_htons(ETH_P_IP) || a->hardware_length != 6 || a->protocol_length != 4)
		return drop(p, 0, REASON_INVALID_ARP);
	asked = a->target;
	set_v4(&target, asked);
	to = asked_by_peer(*found, &target);
	if (a->operation != bpf_htons(1) || asked == a->sender || !to)
		return drop(p, 0, REASON_UNANSWERED);
	a->operation = bpf_htons(2);
	set_mac(a->target_mac, a->sender_mac);
	a->target = a->sender;
	set_mac(a->sender_mac, to->mac);
	a->sender = asked;
	return send_back_to_peer(skb, p, o, inner, to->mac, at + sizeof(*a));
}

/* The same for IPv6. */
static __attribute__((noinline)) int answer_solicitation_of_peer(struct __sk_buff *skb, const struct outer *o,
								 const struct ethhdr *inner, __u32 next_hop)
{
	const __u32 at = ETH_HLEN + sizeof(struct over_vxlan) + ETH_HLEN;
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	const struct interface *to;
	struct advertisement *a;
	struct address target;
	int reason;

	if (!p)
		return TC_ACT_SHOT;
	reason = asked_for(skb, p, at, &target);
	if (reason)
		return drop(p, 0, reason);
	to = asked_by_peer(next_hop, &target);
	if (!to)
		return drop(p, 0, REASON_UNANSWERED);
	if (bpf_skb_change_tail(skb, at + sizeof(*a), 0))
		return drop(p, 0, REASON_PUSH);
	a = (void *)(long)skb->data + at;
	if ((void *)(a + 1) > (void *)(long)skb->data_end)
		return drop(p, 0, REASON_PUSH);
	/* Solicited, override: the container need not be a router. */
	write_advertisement(a, p, &target, to->mac, bpf_htonl(0x60000000));
	return send_back_to_peer(skb, p, o, inner, to->mac, at - ETH_HLEN + sizeof(*a));
}

/* A ping to the gateway. */
static always_inline int answer_echo(struct __sk_buff *skb, struct packet *p, __u32 number, const struct control *c)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *ethernet = data;
	struct icmp_header *icmp;

	if (!is_icmp(p->ipv6, p->protocol) || p->error || p->fragment || p->type != (p->ipv6 ? 128 : 8))
		return drop(p, number, REASON_NO_ROUTE);
	if (p->ipv6) {
		struct ipv6hdr *ip = data + ETH_HLEN;

		if (p->l4 != ETH_HLEN + sizeof(*ip))
			return drop(p, number, REASON_NO_ROUTE);
		icmp = (void *)(ip + 1);
		if ((void *)(icmp + 1) > end)
			return drop(p, number, REASON_PULL);
		get_v6(&ip->daddr, &p->key.source);
		get_v6(&ip->saddr, &p->key.destination);
		ip->hop_limit = OUTER_TTL;
		icmp->type = 129;
		icmp->checksum = exchanged(icmp->checksum, bpf_htons(128 << 8 | icmp->code),
					   bpf_htons(129 << 8 | icmp->code));
	} else {
		struct iphdr *ip = data + ETH_HLEN;
		__u16 old, new;

		if (p->l4 != ETH_HLEN + sizeof(*ip))
			return drop(p, number, REASON_NO_ROUTE);
		icmp = (void *)(ip + 1);
		if ((void *)(icmp + 1) > end)
			return drop(p, number, REASON_PULL);
		ip->daddr = v4_of(&p->key.source);
		ip->saddr = v4_of(&p->key.destination);
		old = *(__u16 *)&ip->ttl;
		ip->ttl = OUTER_TTL;
		new = *(__u16 *)&ip->ttl;
		ip->check = exchanged(ip->check, old, new);
		icmp->type = 0;
		icmp->checksum = exchanged(icmp->checksum, bpf_htons(8 << 8 | icmp->code), bpf_htons(icmp->code));
	}
	set_mac(ethernet->h_dest, ethernet->h_source);
	set_mac(ethernet->h_source, c->mac);
	return send_back(skb, number);
}

struct ipv4_error {
	struct iphdr ip;
	__u8 type, code;
	__u16 checksum;
	__be32 rest;
};

struct ipv6_error {
	struct ipv6hdr ip;
	__u8 type, code;
	__u16 checksum;
	__be32 rest;
};

/* What an ICMP error says: time exceeded, or, with an MTU, that the packet is too big for it (RFC 1191, RFC 8201). */
static always_inline __u16 kind_of_error(const struct packet *p, __u16 mtu)
{
	if (p->ipv6)
		return mtu ? 2 << 8 : 3 << 8;
	return mtu ? 3 << 8 | 4 : 11 << 8;
}

/* Whether it is one host's. */
static always_inline int is_one(const struct packet *p, const struct address *a)
{
	__u8 first = p->ipv6 ? a->hi : a->lo >> 32;

	if (p->ipv6)
		return (a->hi || a->lo) && first != 0xff;
	return v4_of(a) && first < 224;
}

/*
 * Whether a packet's sender may be sent an ICMP error: not for errors, which all of ICMPv6 below 128 are, for redirects, for later
 * fragments, nor for packets that are not between two hosts (RFC 1122, 3.2.2; RFC 4443, 2.4 e).
 */
static always_inline int may_send_error(const struct packet *p)
{
	if (p->error || p->later || !is_one(p, &p->key.source) || !is_one(p, &p->key.destination))
		return 0;
	if (!is_icmp(p->ipv6, p->protocol))
		return 1;
	return p->ipv6 ? p->type >= 128 && p->type != 137 : is_echo(p, p->type);
}

/* As many errors as Linux sends itself: net.ipv4.icmp_msgs_per_sec and icmp_msgs_burst, for each interface. */
#define NS_PER_ERROR 1000000ULL
#define ERRORS_AT_ONCE 50

/*
 * Whether an interface is not told of too much (RFC 1812, 4.3.2.8; RFC 4443, 2.4 f). Where two CPUs tell it something at a time one of
 * them may not be counted.
 */
static always_inline int has_error_quota(__u32 interface)
{
	__u64 *next = bpf_map_lookup_elem(&told, &interface), now = bpf_ktime_get_ns(), from;

	if (!next)
		return 0;
	from = *next > now ? *next : now;
	if (from - now > (ERRORS_AT_ONCE - 1) * NS_PER_ERROR)
		return 0;
	*next = from + NS_PER_ERROR;
	return 1;
}

/* Room for headers of `bytes` in front of an IP packet, with an Ethernet header to `mac`; 0 where there is none. */
static always_inline void *put_in_front(struct __sk_buff *skb, __u32 bytes, __be16 type, const __u8 *mac,
					const struct control *c)
{
	struct ethhdr *ethernet;

	if (bpf_skb_change_head(skb, bytes, 0))
		return 0;
	ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) + bytes > (void *)(long)skb->data_end)
		return 0;
	ethernet->h_proto = type;
	set_mac(ethernet->h_dest, mac);
	set_mac(ethernet->h_source, c->mac);
	return ethernet + 1;
}

/*
 * Tells the sender of a packet, a container behind `at`, what became of it, in place of the packet: RFC 792 and RFC 4443.
 * `reason` counts those without a message.
 */
static __attribute__((noinline)) int send_error(struct __sk_buff *skb, struct packet *p, __u32 number, __u32 mtu)
{
	const struct interface *at = interface_at(number);
	const struct control *c = controls_now();
	__u32 length = p->length, quoted = length < QUOTED ? length : QUOTED, kind = kind_of_error(p, mtu);
	__u32 reason = mtu ? REASON_TOO_BIG : REASON_TTL_EXCEEDED;
	__u8 quote[QUOTED] = {}, sender[6];
	__s64 sum;

	if (!at || !c || !may_send_error(p))
		return drop(p, number, reason);
	if (!at->gateway[p->ipv6 & 1].lo || quoted < sizeof(struct iphdr) || quoted > QUOTED ||
	    !has_error_quota(number) || bpf_skb_load_bytes(skb, 6, sender, 6) || bpf_skb_load_bytes(skb, ETH_HLEN, quote, quoted))
		return drop(p, number, reason);
	sum = bpf_csum_diff(0, 0, (__be32 *)quote, sizeof(quote), 0);
	if (sum < 0 || bpf_skb_change_tail(skb, ETH_HLEN + quoted, 0))
		return drop(p, number, reason);
	if (p->ipv6) {
		struct ipv6_error *e = put_in_front(skb, sizeof(*e), bpf_htons(ETH_P_IPV6), sender, c);

		if (!e)
			return drop(p, number, REASON_PUSH);
		__builtin_memset(&e->ip, 0, sizeof(e->ip));
		*(__u8 *)&e->ip = 0x60;
		e->ip.payload_len = bpf_htons(ICMP_HEADER + quoted);
		e->ip.nexthdr = IPPROTO_ICMPV6;
		e->ip.hop_limit = OUTER_TTL;
		get_v6(&e->ip.daddr, &p->key.source);
		get_v6(&e->ip.saddr, &at->gateway[1]);
		e->type = kind >> 8;
		e->code = kind;
		e->rest = bpf_htonl(mtu);
		e->checksum = ~fold((__u64)sum + sum_address(&p->key.source) + sum_address(&at->gateway[1]) +
				    e->ip.payload_len + bpf_htons(IPPROTO_ICMPV6) + bpf_htons(kind) + e->rest);
	} else {
		struct ipv4_error *e = put_in_front(skb, sizeof(*e), bpf_htons(ETH_P_IP), sender, c);
		__u64 header;

		if (!e)
			return drop(p, number, REASON_PUSH);
		__builtin_memset(&e->ip, 0, sizeof(e->ip));
		*(__u8 *)&e->ip = 0x45;
		e->ip.tot_len = bpf_htons(sizeof(e->ip) + ICMP_HEADER + quoted);
		/* Without an identification, so no router may fragment it (RFC 6864, 4.1). */
		e->ip.frag_off = bpf_htons(0x4000);
		e->ip.ttl = OUTER_TTL;
		e->ip.protocol = IPPROTO_ICMP;
		e->ip.daddr = v4_of(&p->key.source);
		e->ip.saddr = v4_of(&at->gateway[0]);
		header = bpf_htons(0x4500) + (__u64)e->ip.tot_len + e->ip.frag_off +
			 bpf_htons(OUTER_TTL << 8 | IPPROTO_ICMP) + e->ip.saddr + e->ip.daddr;
		e->ip.check = ~fold(header);
		e->type = kind >> 8;
		e->code = kind;
		e->rest = bpf_htonl(mtu);
		e->checksum = ~fold((__u64)sum + bpf_htons(kind) + e->rest);
	}
	drop(p, number, mtu ? REASON_TOO_BIG_TOLD : REASON_TTL_TOLD);
	return send_back(skb, number);
}

#endif
