/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Frames: Ethernet with at most one tag, IPv4 and IPv6 without options, TCP, UDP and ICMP errors. */
#ifndef BALANCER_PACKET_H
#define BALANCER_PACKET_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "sum.h"
#include "table.h"

#define TAG_BYTES 4
#define IP_FRAGMENT 0x3fff
/* For the verifier: offsets of headers are at most 18 and 58. */
#define L3_MASK 31
#define L4_MASK 63

enum tcp_flag { TCP_FIN = 0x01, TCP_SYN = 0x02, TCP_RST = 0x04, TCP_ACK = 0x10 };

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

struct packet {
	struct tuple tuple;
	__u16 l3_length;
	/* Offsets in the frame. */
	__u16 l3, l4;
	__u8 ipv6;
	__u8 tcp_flags;
	__u8 ttl;
	/* Of what is left to the kernel. */
	__u8 reason;
	/* It has come by a worker's queue, where there is no interface that could turn it round. */
	__u8 queued;
};

struct icmp_error {
	__u8 type, code;
	__u16 checksum;
	__u32 rest;
};

/* The part of TCP's and UDP's headers that says who talks with whom. */
struct ports {
	__u16 source, destination;
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

static always_inline enum kind leave(struct packet *p, enum pass reason)
{
	p->reason = reason;
	return LEAVE;
}

/* RFC 792: unreachable, time exceeded, parameter problem. RFC 4443, 2.1: types below 128 are errors. */
static always_inline int is_error(const struct packet *p, __u8 type)
{
	return p->ipv6 ? type >= 1 && type <= 4 : type == 3 || type == 11 || type == 12;
}

static always_inline __u32 outer_length(const struct packet *p)
{
	return p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/* The quoted packet of an ICMP error, or the one inside that. `l4` is behind the error's own header. */
static always_inline enum kind parse_quoted(struct packet *p, void *quoted, void *end, int inside)
{
	struct tuple *t = &p->tuple;
	struct ports *ports;

	if (p->ipv6) {
		struct ipv6hdr *ip = quoted;

		if ((void *)(ip + 1) > end || ip->version != 6)
			return leave(p, PASS_ICMP_UNKNOWN);
		t->protocol = ip->nexthdr;
		set_v6(&t->source, &ip->saddr);
		set_v6(&t->destination, &ip->daddr);
		ports = (void *)(ip + 1);
	} else {
		struct iphdr *ip = quoted;

		if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5 ||
		    ip->frag_off & bpf_htons(IP_FRAGMENT & ~0x2000))
			return leave(p, PASS_ICMP_UNKNOWN);
		t->protocol = ip->protocol;
		set_v4(&t->source, ip->saddr);
		set_v4(&t->destination, ip->daddr);
		ports = (void *)(ip + 1);
	}
	if (!inside && t->protocol == (p->ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP))
		return OUTER_ERROR;
	/* RFC 792 quotes at least eight bytes. */
	if ((t->protocol != IPPROTO_TCP && t->protocol != IPPROTO_UDP) || (void *)(ports + 2) > end)
		return leave(p, PASS_ICMP_UNKNOWN);
	t->source_port = ports->source;
	t->destination_port = ports->destination;
	if (inside)
		return OUTER_ERROR;
	swap_tuple(t);
	return ERROR;
}

static always_inline enum kind parse_l4(struct packet *p, void *l4, void *end, __u16 length)
{
	struct tuple *t = &p->tuple;

	if (t->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;

		if ((void *)(tcp + 1) > end || length < sizeof(*tcp))
			return leave(p, PASS_MALFORMED);
		t->source_port = tcp->source;
		t->destination_port = tcp->dest;
		p->tcp_flags = ((__u8 *)tcp)[13];
		return FLOW;
	}
	if (t->protocol == IPPROTO_UDP) {
		struct udphdr *udp = l4;

		if ((void *)(udp + 1) > end || length < sizeof(*udp))
			return leave(p, PASS_MALFORMED);
		t->source_port = udp->source;
		t->destination_port = udp->dest;
		return FLOW;
	}
	if (t->protocol == (p->ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP)) {
		struct icmp_error *icmp = l4;

		if ((void *)(icmp + 1) > end || length < sizeof(*icmp))
			return leave(p, PASS_MALFORMED);
		if (!is_error(p, icmp->type))
			return leave(p, PASS_PROTOCOL);

		enum kind kind = parse_quoted(p, icmp + 1, end, 0);

		if (kind == OUTER_ERROR)
			kind = parse_quoted(p, (void *)(icmp + 1) + outer_length(p), end, 1);
		return kind;
	}
	return leave(p, PASS_PROTOCOL);
}

/* What of the kernel's types is read here; their places are found when the program is loaded. */
#define OF_THE_KERNEL __attribute__((preserve_access_index))

struct net_device {
	/* What dev_addr points to, which a program may not follow, as the kernel keeps it to compare with. */
	__u8 dev_addr_shadow[32];
} OF_THE_KERNEL;

struct xdp_rxq_info {
	struct net_device *dev;
} OF_THE_KERNEL;

struct xdp_buff {
	struct xdp_rxq_info *rxq;
} OF_THE_KERNEL;

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

/* Whether the frame is for this device, and not one that came to it as to all, or because it listens to all. */
static always_inline int is_for_device(struct xdp_md *ctx, const struct ethhdr *ethernet)
{
	const struct xdp_buff *buffer = bpf_cast_to_kern_ctx(ctx);
	const __u8 *own = buffer->rxq->dev->dev_addr_shadow;

	return *(const __u32 *)own == *(const __u32 *)ethernet->h_dest &&
	       *(const __u16 *)(own + 4) == *(const __u16 *)(ethernet->h_dest + 4);
}

static always_inline enum kind parse(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	void *l3 = ethernet + 1;
	__be16 type;
	__u32 behind;

	if (l3 > end)
		return leave(p, PASS_NOT_IP);
	type = ethernet->h_proto;
	p->l3 = sizeof(*ethernet);
	if (type == bpf_htons(ETH_P_8021Q)) {
		__be16 *tag = l3;

		l3 += TAG_BYTES;
		if (l3 > end)
			return leave(p, PASS_NOT_IP);
		type = tag[1];
		p->l3 += TAG_BYTES;
	}
	if ((type == bpf_htons(ETH_P_IP) || type == bpf_htons(ETH_P_IPV6)) && !is_for_device(ctx, ethernet))
		return leave(p, PASS_OTHER_MAC);
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = l3;

		if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
			return leave(p, PASS_MALFORMED);
		p->l3_length = bpf_ntohs(ip->tot_len);
		p->tuple.protocol = ip->protocol;
		p->ttl = ip->ttl;
		set_v4(&p->tuple.source, ip->saddr);
		set_v4(&p->tuple.destination, ip->daddr);
		if (ip->frag_off & bpf_htons(IP_FRAGMENT))
			return FRAGMENT;
		if (ip->ihl != 5)
			return OPTIONS;
		behind = sizeof(*ip);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = l3;

		if ((void *)(ip + 1) > end || ip->version != 6)
			return leave(p, PASS_MALFORMED);
		p->ipv6 = 1;
		p->l3_length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
		p->tuple.protocol = ip->nexthdr;
		p->ttl = ip->hop_limit;
		set_v6(&p->tuple.source, &ip->saddr);
		set_v6(&p->tuple.destination, &ip->daddr);
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
	if (l3 + p->l3_length > end && p->l3 + (__u32)p->l3_length > bpf_xdp_get_buff_len(ctx))
		return leave(p, PASS_MALFORMED);
	p->l4 = p->l3 + behind;
	return parse_l4(p, l3 + behind, end, p->l3_length - behind);
}

#endif
