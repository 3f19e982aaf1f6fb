/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* IP in IP (RFC 2003) and IPv6 in IPv6 (RFC 2473), by themselves or with a header of GRE (RFC 2784) or UDP and GUE between. */
#ifndef BALANCER_ENCAPSULATE_H
#define BALANCER_ENCAPSULATE_H

#include "packet.h"
#include "schedule.h"

#define OUTER_TTL 64
/* Without fields (draft-ietf-intarea-gue-09, 3.1). */
#define GUE_BYTES 4
/* Ports of flows are the 2^14 dynamic ones (RFC 6335, 6), as that draft has it (5.11.1). */
#define FLOW_PORTS 0xc000

/* Protocol of what is inside, variant 0, no control message, no flags: in memory order. */
static always_inline __be32 gue_header(int ipv6)
{
	return bpf_htonl((__u32)(ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP) << 16);
}

/* How packets to a backend are packed. */
struct packing {
	__u64 word;
};

/* Read at once, so that no packet is half of one kind and half of another while the backend is changed. */
static always_inline struct packing packing_of(const struct backend *b)
{
	return (struct packing){ .word = *(const volatile __u64 *)&b->encapsulation };
}

#define KIND(packing) ((__u8)(packing).word)
#define HAS_SUM(packing) ((__u8)((packing).word >> 8))
#define TUNNEL_PORT(packing) ((__u16)((packing).word >> 16))
#define SOURCE_BITS(packing) ((packing).word >> 32 & 63)

/* What the outer header says that is behind it. */
static always_inline __u8 outer_protocol(struct packing packing, int ipv6)
{
	if (KIND(packing) == GUE)
		return IPPROTO_UDP;
	if (KIND(packing) == GRE)
		return IPPROTO_GRE;
	return ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
}

/* Bytes that a packet grows by in a tunnel to the backend. */
static always_inline __u32 tunnel_length(struct packing packing, int ipv6)
{
	__u32 length = ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (KIND(packing) == GUE)
		length += sizeof(struct udphdr) + GUE_BYTES;
	else if (KIND(packing) == GRE)
		length += GRE_BYTES;
	return length;
}

/* Those bits of a connection's local address that are of flows; none where it began before the service had the prefix that they are of. */
static always_inline __u64 source_mask(struct packing packing, const struct connection *c, const struct service *s)
{
	if (!SOURCE_BITS(packing) || c->local != list_at(READ_ONCE(s->locals), 0))
		return 0;
	return bpf_cpu_to_be64((1ULL << SOURCE_BITS(packing)) - 1);
}

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

/* What is behind the outer header, at this offset. */
static always_inline int write_between(struct xdp_md *ctx, const struct packet *p, struct packing packing, __u32 at, __u32 flow)
{
	void *between = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;

	if (KIND(packing) == GUE) {
		struct udphdr *udp = between;
		__be32 *gue = (void *)(udp + 1);

		if ((void *)(gue + 1) > end)
			return DROP_INTERNAL;
		udp->source = bpf_htons(FLOW_PORTS | flow);
		udp->dest = TUNNEL_PORT(packing);
		udp->len = bpf_htons(sizeof(*udp) + GUE_BYTES + p->l3_length);
		udp->check = 0;
		*gue = gue_header(p->ipv6);
	} else if (KIND(packing) == GRE) {
		__be32 *gre = between;

		if ((void *)(gre + 1) > end)
			return DROP_INTERNAL;
		*gre = gre_header(p->ipv6);
	}
	return 0;
}

/* The checksum of a tunnel's UDP, which is at this offset. */
static always_inline int write_sum(struct xdp_md *ctx, const struct address *from, const struct address *to, __u32 at, __u16 length)
{
	__s64 sum = sum_bytes(ctx, at, length);
	struct udphdr *udp = (void *)(long)ctx->data + at;

	if (sum < 0 || (void *)(udp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	udp->check = (__u16)~fold(sum + sum_pseudo(from, to, IPPROTO_UDP, length)) ?: 0xffff;
	return 0;
}

/*
 * Puts an outer header of the packet's own family in front, from `local` to the backend, with the inner one's traffic
 * class. No router may fragment it (RFC 2003, 3.1): so the identification, which would have to differ from packet to
 * packet, is 0 (RFC 6864, 4.1), and a router that it is too big for sends a message. For routers with several paths of equal cost, and for
 * receivers' queues, what of the inner flow is outside: IPv6's flow label (RFC 6438), never 0, which is none (RFC 6437, 2), GUE's source
 * port, and the last bits of the source address where it is of a prefix.
 */
static always_inline int encapsulate(struct xdp_md *ctx, struct packet *p, const struct address *local, const struct address *backend,
				     struct packing packing, __u64 mask)
{
	__u32 outer = outer_length(p), flow = hash_endpoint(&p->tuple.source, p->tuple.source_port);
	__u32 length = tunnel_length(packing, p->ipv6) - outer + p->l3_length, l2 = p->l3 & L3_MASK;
	struct address from = { .hi = local->hi, .lo = local->lo | (bpf_cpu_to_be64(flow) & mask) };
	int reason;
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
	if (push(ctx, l2, tunnel_length(packing, p->ipv6)))
		return DROP_INTERNAL;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (p->ipv6) {
		struct ipv6hdr *ip = data + l2;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		__builtin_memset(ip, 0, sizeof(*ip));
		*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)class << 20 | ((flow & 0xfffff) ?: 1));
		ip->payload_len = bpf_htons(length);
		ip->nexthdr = outer_protocol(packing, 1);
		ip->hop_limit = OUTER_TTL;
		get_v6(&ip->saddr, &from);
		get_v6(&ip->daddr, backend);
	} else {
		struct iphdr *ip = data + l2;
		__u64 sum;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		__builtin_memset(ip, 0, sizeof(*ip));
		*(__u8 *)ip = 0x45;
		ip->tos = class;
		ip->tot_len = bpf_htons(length + sizeof(*ip));
		ip->frag_off = bpf_htons(DONT_FRAGMENT);
		ip->ttl = OUTER_TTL;
		ip->protocol = outer_protocol(packing, 0);
		ip->saddr = v4_of(&from);
		ip->daddr = v4_of(backend);
		sum = bpf_htons(0x4500 | class) + (__u64)ip->tot_len + ip->frag_off +
		      bpf_htons(OUTER_TTL << 8 | ip->protocol) + ip->saddr + ip->daddr;
		ip->check = ~fold(sum);
	}
	if (KIND(packing) == IP_IN_IP)
		return 0;
	reason = write_between(ctx, p, packing, l2 + outer, flow);
	return reason || KIND(packing) != GUE || !HAS_SUM(packing) ? reason : write_sum(ctx, &from, backend, l2 + outer, length);
}

#endif
