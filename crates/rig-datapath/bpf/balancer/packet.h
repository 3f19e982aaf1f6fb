/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Frames: Ethernet with at most one tag, IPv4 and IPv6 without options, TCP, UDP and ICMP errors. */
#ifndef BALANCER_PACKET_H
#define BALANCER_PACKET_H

#include <bpf/bpf_core_read.h>

#include "lib/kernel.h"
#include "lib/packet.h"
#include "lib/types.h"
#include "sum.h"
#include "table.h"

/* For the verifier: offsets of headers are at most 18 and 66. */
#define L3_MASK 31
#define L4_MASK 127

enum kind {
	/* TCP or UDP. */
	FLOW,
	/* An ICMP error: the tuple is that of the packets that the quoted one answers. */
	ERROR,
	/* Not to be handled; `reason` says why. */
	LEAVE,
	/* A fragment, or one with IP options: policy decides, if it is the balancer's. */
	FRAGMENT,
	OPTIONS,
	/* An ICMP error about a tunnel's outer packet: the tuple is that of the one inside. */
	OUTER_ERROR,
};

static always_inline void swap_tuple(struct tuple *t)
{
	struct address a = t->source;
	__u16 port = t->source_port;

	t->source = t->destination;
	t->destination = a;
	t->source_port = t->destination_port;
	t->destination_port = port;
}

/* Of a header of IPv6: an IPv4-mapped address is none that packets have (RFC 4291, 2.5.5.2), and tables have it for one of IPv4. */
static always_inline int has_mapped(const struct tuple *t)
{
	return is_v4(&t->source) || is_v4(&t->destination);
}

static always_inline enum kind leave(struct packet *p, enum pass reason)
{
	p->reason = reason;
	return LEAVE;
}

static always_inline __u32 outer_length(const struct packet *p)
{
	return p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

#define GRE_BYTES 4

/* GRE's (RFC 2784): no checksum, key or sequence number, version 0. */
static always_inline __be32 gre_header(int ipv6)
{
	return bpf_htonl(ipv6 ? ETH_P_IPV6 : ETH_P_IP);
}

/* Of IPv6's fragment header, in host byte order. */
#define FRAGMENT_OFFSET_V6 0xfff8

struct fragment_header {
	__u8 next, reserved;
	__be16 offset;
	__be32 id;
};
_Static_assert(sizeof(struct fragment_header) == 8, "");

/* The packet that an ICMP error quotes, or, where that is a tunnel's, the one `inside` it. */
static always_inline enum kind parse_quoted(struct packet *p, struct cursor *c, int inside)
{
	struct tuple *t = &p->tuple;
	struct ports *ports;

	if (p->ipv6) {
		struct ipv6hdr *ip = take_ipv6(c);

		if (!ip)
			return leave(p, PASS_ICMP_UNKNOWN);
		t->protocol = ip->nexthdr;
		set_v6(&t->source, &ip->saddr);
		set_v6(&t->destination, &ip->daddr);
		if (has_mapped(t))
			return leave(p, PASS_ICMP_UNKNOWN);
		if (ip->nexthdr == IPPROTO_FRAGMENT) {
			struct fragment_header *fragment = TAKE(c, struct fragment_header);

			if (!fragment || fragment->offset & bpf_htons(FRAGMENT_OFFSET_V6))
				return leave(p, PASS_ICMP_UNKNOWN);
			t->protocol = fragment->next;
		}
	} else {
		struct iphdr *ip = take_ipv4(c);

		if (!ip || ip->ihl != 5 || ip->frag_off & bpf_htons(FRAGMENT_OFFSET))
			return leave(p, PASS_ICMP_UNKNOWN);
		t->protocol = ip->protocol;
		set_v4(&t->source, ip->saddr);
		set_v4(&t->destination, ip->daddr);
	}
	if (!inside && t->protocol == (p->ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP))
		return OUTER_ERROR;
	if (!inside && t->protocol == IPPROTO_GRE) {
		__be32 *gre = take(c, GRE_BYTES);

		return gre && *gre == gre_header(p->ipv6) ? OUTER_ERROR : leave(p, PASS_ICMP_UNKNOWN);
	}
	ports = take(c, QUOTED_BYTES);
	if ((t->protocol != IPPROTO_TCP && t->protocol != IPPROTO_UDP) || !ports)
		return leave(p, PASS_ICMP_UNKNOWN);
	t->source_port = ports->source;
	t->destination_port = ports->destination;
	if (inside)
		return OUTER_ERROR;
	swap_tuple(t);
	return ERROR;
}

static always_inline enum kind parse_l4(struct packet *p, struct cursor *c, __u16 length)
{
	struct tuple *t = &p->tuple;

	if (t->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = TAKE(c, struct tcphdr);

		if (!tcp || length < sizeof(*tcp))
			return leave(p, PASS_MALFORMED);
		t->source_port = tcp->source;
		t->destination_port = tcp->dest;
		p->tcp_flags = ((__u8 *)tcp)[13];
		return FLOW;
	}
	if (t->protocol == IPPROTO_UDP) {
		struct udphdr *udp = TAKE(c, struct udphdr);

		if (!udp || length < sizeof(*udp))
			return leave(p, PASS_MALFORMED);
		t->source_port = udp->source;
		t->destination_port = udp->dest;
		return FLOW;
	}
	if (is_icmp(p->ipv6, t->protocol)) {
		struct icmp_header *icmp = TAKE(c, struct icmp_header);

		if (!icmp || length < sizeof(*icmp))
			return leave(p, PASS_MALFORMED);
		if (!is_icmp_error(p->ipv6, icmp->type))
			return leave(p, PASS_PROTOCOL);

		enum kind kind = parse_quoted(p, c, 0);

		return kind == OUTER_ERROR ? parse_quoted(p, c, 1) : kind;
	}
	return leave(p, PASS_PROTOCOL);
}

/* The address of the device that the frame came in by, for kernels that do not let a program have its context. */
static __attribute__((noinline)) __u64 own_address(struct xdp_md *ctx)
{
	/* A context is what it stands for: what of it programs see is translated as they are loaded. */
	const struct xdp_buff *buffer = (void *)ctx;
	const __u8 *address;
	__u64 own = 0;

	if (BPF_CORE_READ_INTO(&address, buffer, rxq, dev, dev_addr) || bpf_probe_read_kernel(&own, ETH_ALEN, address))
		return 0;
	return own;
}

static always_inline int is_address(const __u8 *mac, __u64 own)
{
	return own == ((__u64)*(const __u16 *)(mac + 4) << 32 | *(const __u32 *)mac);
}

#ifdef OLD_KERNEL
static always_inline int is_for_device(struct xdp_md *ctx, const struct ethhdr *ethernet)
{
	return is_address(ethernet->h_dest, own_address(ctx));
}
#else
extern void *bpf_cast_to_kern_ctx(void *) __ksym __weak;

/* Whether the frame is for this device, and not one that came to it as to all, or because it listens to all. */
static always_inline int is_for_device(struct xdp_md *ctx, const struct ethhdr *ethernet)
{
	const struct xdp_buff *buffer;
	const __u8 *own;

	if (!kernel.casts_contexts)
		return is_address(ethernet->h_dest, own_address(ctx));
	buffer = bpf_cast_to_kern_ctx(ctx);
	own = buffer->rxq->dev->dev_addr_shadow;
	return *(const __u32 *)own == *(const __u32 *)ethernet->h_dest &&
	       *(const __u16 *)(own + 4) == *(const __u16 *)(ethernet->h_dest + 4);
}
#endif

/*
 * The interface that a tagged frame belongs to: a VLAN device, or, where the tag is none's, that which it came in by. 0: it is for another address
 * than theirs. A VLAN device takes what is for its parent's, as Linux has it. A global function, so that what becomes of the packet is looked at once.
 */
__noinline __u32 tagged_for(struct xdp_md *ctx)
{
	struct vlan_key key = { .ifindex = ctx->ingress_ifindex };
	struct cursor c = CURSOR(ctx);
	struct ethhdr *ethernet = TAKE(&c, struct ethhdr);
	__be16 *tag = take(&c, TAG_BYTES);
	const struct vlan *v;

	if (!ethernet || !tag)
		return 0;
	key.tag = WITH_TAG | (bpf_ntohs(*tag) & VLAN_ID);
	v = bpf_map_lookup_elem(&vlans, &key);
	if (!is_for_device(ctx, ethernet) &&
	    !(v && *(const __u16 *)v->mac == *(__u16 *)ethernet->h_dest && *(const __u16 *)(v->mac + 2) == *(__u16 *)(ethernet->h_dest + 2) &&
	      *(const __u16 *)(v->mac + 4) == *(__u16 *)(ethernet->h_dest + 4)))
		return 0;
	return v ? v->ifindex | OF_VLAN : key.ifindex;
}

static always_inline enum kind parse(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = CURSOR(ctx);
	struct ethhdr *ethernet = TAKE(&c, struct ethhdr);
	__be16 type;
	void *l3;
	__u32 behind;

	if (!ethernet)
		return leave(p, PASS_NOT_IP);
	type = ethernet->h_proto;
	p->l3 = sizeof(*ethernet);
	if (type == bpf_htons(ETH_P_8021Q)) {
		__be16 *tag = take(&c, TAG_BYTES);

		if (!tag)
			return leave(p, PASS_NOT_IP);
		type = tag[1];
		p->l3 += TAG_BYTES;
	}
	if (type == bpf_htons(ETH_P_IP) || type == bpf_htons(ETH_P_IPV6)) {
		if (p->l3 != sizeof(*ethernet))
			p->came_by = tagged_for(ctx);
		else if (is_for_device(ctx, ethernet))
			p->came_by = ctx->ingress_ifindex;
		if (!p->came_by)
			return leave(p, PASS_OTHER_MAC);
	}
	l3 = c.at;
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = take_ipv4(&c);

		if (!ip)
			return leave(p, PASS_MALFORMED);
		p->l3_length = bpf_ntohs(ip->tot_len);
		p->tuple.protocol = ip->protocol;
		p->ttl = ip->ttl;
		set_v4(&p->tuple.source, ip->saddr);
		set_v4(&p->tuple.destination, ip->daddr);
		if (ip->frag_off & bpf_htons(IS_FRAGMENT))
			return FRAGMENT;
		if (ip->ihl != 5)
			return OPTIONS;
		behind = sizeof(*ip);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = take_ipv6(&c);

		if (!ip)
			return leave(p, PASS_MALFORMED);
		p->ipv6 = 1;
		p->l3_length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
		p->tuple.protocol = ip->nexthdr;
		p->ttl = ip->hop_limit;
		set_v6(&p->tuple.source, &ip->saddr);
		set_v6(&p->tuple.destination, &ip->daddr);
		if (has_mapped(&p->tuple))
			return leave(p, PASS_MALFORMED);
		if (ip->nexthdr == IPPROTO_FRAGMENT)
			return FRAGMENT;
		if (ip->nexthdr == IPPROTO_HOPOPTS || ip->nexthdr == IPPROTO_ROUTING || ip->nexthdr == IPPROTO_DSTOPTS)
			return OPTIONS;
		behind = sizeof(*ip);
	} else {
		return leave(p, PASS_NOT_IP);
	}
	if (p->l3_length < behind)
		return leave(p, PASS_MALFORMED);
	/* The linear part is all there is, unless the packet has fragments of memory. */
	if (l3 + p->l3_length > c.end && p->l3 + (__u32)p->l3_length > frame_length(ctx))
		return leave(p, PASS_MALFORMED);
	p->l4 = p->l3 + behind;
	return parse_l4(p, &c, p->l3_length - behind);
}

#endif
