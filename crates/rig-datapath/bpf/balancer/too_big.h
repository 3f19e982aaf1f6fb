/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Packets that do not fit into the next link, and the messages to their senders: fragmentation needed (RFC 792, with the MTU of
 * RFC 1191) or packet too big (RFC 4443, 3.2).
 */
#ifndef BALANCER_TOO_BIG_H
#define BALANCER_TOO_BIG_H

#include "encapsulate.h"
#include "route.h"

#define IPV6_LEAST_MTU 1280
/* RFC 1812, 4.3.2.3; RFC 4443, 2.4 (c): the whole message. */
#define MOST_MESSAGE_V4 576
#define MOST_MESSAGE_V6 IPV6_LEAST_MTU
/* RFC 1812, 4.3.2.5: internetwork control. */
#define CONTROL_TOS 0xc0

/* RFC 1812, 4.3.2.8 and RFC 4443, 2.4 (f) want a limit: so many a tick on each CPU, 477 a second. */
static always_inline int may_send_icmp(__u32 tick)
{
	__u32 key = 0;
	struct rate_limit *t = bpf_map_lookup_elem(&tellings, &key);

	if (!t)
		return 0;
	if (t->tick != tick) {
		t->tick = tick;
		t->used = 0;
	}
	if (t->used >= ICMP_PER_TICK)
		return 0;
	t->used++;
	return 1;
}

static always_inline int write_v4(struct xdp_md *ctx, __u32 l3, const struct address *from, const struct address *to,
				  __u32 quoted, __u32 mtu, __u64 sum)
{
	struct iphdr *ip = (void *)(long)ctx->data + l3;
	struct icmp_header *icmp = (void *)(ip + 1);
	__u64 header;

	if ((void *)(icmp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	__builtin_memset(ip, 0, sizeof(*ip));
	*(__u8 *)ip = 0x45;
	ip->tos = CONTROL_TOS;
	ip->tot_len = bpf_htons(sizeof(*ip) + sizeof(*icmp) + quoted);
	ip->ttl = OUTER_TTL;
	ip->protocol = IPPROTO_ICMP;
	ip->saddr = v4_of(from);
	ip->daddr = v4_of(to);
	header = bpf_htons(0x4500 | CONTROL_TOS) + (__u64)ip->tot_len + bpf_htons(OUTER_TTL << 8 | IPPROTO_ICMP) +
		 ip->saddr + ip->daddr;
	ip->check = ~fold(header);
	icmp->type = 3;
	icmp->code = 4;
	icmp->rest = bpf_htonl(mtu);
	icmp->checksum = ~fold(sum + bpf_htons(3 << 8 | 4) + icmp->rest);
	return 0;
}

static always_inline int write_v6(struct xdp_md *ctx, __u32 l3, const struct address *from, const struct address *to,
				  __u32 quoted, __u32 mtu, __u64 sum)
{
	struct ipv6hdr *ip = (void *)(long)ctx->data + l3;
	struct icmp_header *icmp = (void *)(ip + 1);
	__u16 length = sizeof(*icmp) + quoted;

	if ((void *)(icmp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	*(__be32 *)ip = bpf_htonl(6u << 28);
	ip->payload_len = bpf_htons(length);
	ip->nexthdr = IPPROTO_ICMPV6;
	ip->hop_limit = OUTER_TTL;
	get_v6(&ip->saddr, from);
	get_v6(&ip->daddr, to);
	icmp->type = 2;
	icmp->code = 0;
	icmp->rest = bpf_htonl(mtu);
	icmp->checksum = ~fold(sum + bpf_htons(2 << 8) + icmp->rest + sum_pseudo(from, to, IPPROTO_ICMPV6, length));
	return 0;
}

static always_inline int may_be_fragmented(struct xdp_md *ctx, const struct packet *p)
{
	struct iphdr *ip = (void *)(long)ctx->data + (p->l3 & L3_MASK);

	return (void *)(ip + 1) > (void *)(long)ctx->data_end || !(ip->frag_off & bpf_htons(DONT_FRAGMENT));
}

/* A function of its own as `ask_kernel`. */
static __noinline int push_header(struct xdp_md *ctx, __u32 l2, __u32 bytes)
{
	return push(ctx, l2, bytes);
}

/*
 * Drops the packet, which is as it came, and sends a message to its sender that `mtu` bytes fit, back to the link address that it
 * came from. The message is from the service, or, where that is 0, from where the packet was to.
 */
OF_PACKET(int, too_big, (struct xdp_md *ctx, __u32 service, __u32 mtu, __u32 tick), (ctx, service, mtu, tick))
{
	const struct control *control;
	const struct service *s = service_at(service);
	const struct address *from;
	struct ethhdr *ethernet;
	__u32 l3, most, quoted;
	__u8 mac[6];
	__s64 sum;

	if (!p || !s)
		return drop(DROP_INTERNAL);
	l3 = p->l3 & L3_MASK;
	if (p->ipv6) {
		/* RFC 8200, 5: what is no larger must go through. No sender would make them smaller for a message. */
		if (p->l3_length <= IPV6_LEAST_MTU)
			return drop(DROP_TOO_BIG);
		if (mtu < IPV6_LEAST_MTU)
			mtu = IPV6_LEAST_MTU;
		most = MOST_MESSAGE_V6 - sizeof(struct ipv6hdr);
	} else {
		if (may_be_fragmented(ctx, p))
			return drop(DROP_TOO_BIG);
		most = MOST_MESSAGE_V4 - sizeof(struct iphdr);
	}
	if (!may_send_icmp(tick))
		return drop(DROP_TOO_BIG);
	most -= sizeof(struct icmp_header);
	quoted = p->l3_length < most ? p->l3_length : most;
	if (bpf_xdp_adjust_tail(ctx, (int)(l3 + quoted) - (int)frame_length(ctx)))
		return drop(DROP_INTERNAL);
	sum = sum_bytes(ctx, l3, quoted);
	if (sum < 0 || push_header(ctx, l3, outer_length(p) + sizeof(struct icmp_header)))
		return drop(DROP_INTERNAL);
	from = service ? &s->address : &p->tuple.destination;
	if (p->ipv6 ? write_v6(ctx, l3, from, &p->tuple.source, quoted, mtu, sum) :
		      write_v4(ctx, l3, from, &p->tuple.source, quoted, mtu, sum))
		return drop(DROP_INTERNAL);
	ethernet = (void *)(long)ctx->data;
	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return drop(DROP_INTERNAL);
	__builtin_memcpy(mac, ethernet->h_source, 6);
	__builtin_memcpy(ethernet->h_source, ethernet->h_dest, 6);
	__builtin_memcpy(ethernet->h_dest, mac, 6);
	control = settings();
	if (!control)
		return drop(DROP_INTERNAL);
	return counted(DROP_TOO_BIG_TOLD) | leave_by(ctx, p, p->came_by, control);
}

#endif
