/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* IP in IP (RFC 2003) and IPv6 in IPv6 (RFC 2473). */
#ifndef BALANCER_ENCAPSULATE_H
#define BALANCER_ENCAPSULATE_H

#include "packet.h"

#define OUTER_TTL 64

/* Makes room of `bytes` behind the link-layer header, which is `l2` bytes; 0 or a reason for a drop. */
static always_inline int push(struct xdp_md *ctx, __u32 l2, __u32 bytes)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 link[sizeof(struct ethhdr) + TAG_BYTES] = {};

	/* Two branches, because the verifier wants lengths that it knows. */
	if (l2 == sizeof(struct ethhdr)) {
		if (data + sizeof(struct ethhdr) > end)
			return DROP_INTERNAL;
		__builtin_memcpy(link, data, sizeof(struct ethhdr));
	} else {
		if (data + sizeof(link) > end)
			return DROP_INTERNAL;
		__builtin_memcpy(link, data, sizeof(link));
	}
	if (bpf_xdp_adjust_head(ctx, -(int)bytes))
		return DROP_INTERNAL;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (l2 == sizeof(struct ethhdr)) {
		if (data + sizeof(struct ethhdr) > end)
			return DROP_INTERNAL;
		__builtin_memcpy(data, link, sizeof(struct ethhdr));
	} else {
		if (data + sizeof(link) > end)
			return DROP_INTERNAL;
		__builtin_memcpy(data, link, sizeof(link));
	}
	return 0;
}

/* Never 0, which is none (RFC 6437, 2). */
static always_inline __u32 flow_label(const struct packet *p)
{
	return (hash_endpoint(&p->tuple.source, p->tuple.source_port) & 0xfffff) ?: 1;
}

/*
 * Puts an outer header of the packet's own family in front, from `local` to the backend, with the inner one's traffic
 * class. No router may fragment it (RFC 2003, 3.1): so the identification, which would have to differ from packet to
 * packet, is 0 (RFC 6864, 4.1), and a router that it is too big for sends a message. IPv6's flow label is that of the inner flow, for
 * routers with several paths of equal cost (RFC 6438); in IPv4 they have the addresses alone.
 */
static always_inline int encapsulate(struct xdp_md *ctx, struct packet *p, const struct address *local,
				     const struct address *backend)
{
	__u32 outer = p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	__u32 l2 = p->l3 & L3_MASK;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 class = 0;

	if (!p->ipv6) {
		struct iphdr *ip = data + l2;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		class = ip->tos;
	} else {
		__u8 *ip = data + l2;

		if ((void *)(ip + 4) > end)
			return DROP_INTERNAL;
		class = ip[0] << 4 | ip[1] >> 4;
	}
	if (push(ctx, l2, outer))
		return DROP_INTERNAL;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (p->ipv6) {
		struct ipv6hdr *ip = data + l2;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		__builtin_memset(ip, 0, sizeof(*ip));
		*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)class << 20 | flow_label(p));
		ip->payload_len = bpf_htons(p->l3_length);
		ip->nexthdr = IPPROTO_IPV6;
		ip->hop_limit = OUTER_TTL;
		get_v6(&ip->saddr, local);
		get_v6(&ip->daddr, backend);
	} else {
		struct iphdr *ip = data + l2;
		__u64 sum;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		__builtin_memset(ip, 0, sizeof(*ip));
		*(__u8 *)ip = 0x45;
		ip->tos = class;
		ip->tot_len = bpf_htons(p->l3_length + sizeof(*ip));
		ip->frag_off = bpf_htons(DONT_FRAGMENT);
		ip->ttl = OUTER_TTL;
		ip->protocol = IPPROTO_IPIP;
		ip->saddr = v4_of(local);
		ip->daddr = v4_of(backend);
		sum = bpf_htons(0x4500 | class) + (__u64)ip->tot_len + ip->frag_off +
		      bpf_htons(OUTER_TTL << 8 | IPPROTO_IPIP) + ip->saddr + ip->daddr;
		ip->check = ~fold(sum);
	}
	return 0;
}

#endif
