/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The way out: what the kernel's routes and neighbours say, remembered for about a second. */
#ifndef RIG_WAY_H
#define RIG_WAY_H

#include "packet.h"

#define AF_INET 2
#define AF_INET6 10
/* Ticks for which a way is believed, as a shift: 8 ticks are 1.07 s. */
#define WAY_SHIFT 3

struct way {
	__u32 ifindex;
	__u8 source[6], destination[6];
	__u16 mtu;
	__u16 pad;
};

static always_inline void note_missed(struct bpf_fib_lookup *fib)
{
	struct next_hop hop = { .ifindex = fib->ifindex };
	__u32 noted = 1;

	if (DRY)
		return;
	/* The kernel has put the gateway in the destination's place, which IPv4 may have of IPv6 (RFC 5549). */
	if (fib->family == AF_INET6)
		set_v6(&hop.address, (struct in6_addr *)fib->ipv6_dst);
	else
		set_v4(&hop.address, fib->ipv4_dst);
	/* Most packets find it noted, by other CPUs too: looking takes no lock. */
	if (!bpf_map_lookup_elem(&missed, &hop))
		bpf_map_update_elem(&missed, &hop, &noted, BPF_NOEXIST);
}

/*
 * Asks the kernel; 0 or a reason for a drop. The interface that `way` has before is one whose link is reached without a
 * neighbour entry.
 */
static __noinline int look_up(struct xdp_md *ctx, const struct address *from, const struct address *to, int ipv6,
			      struct way *way)
{
	struct bpf_fib_lookup fib = { .ifindex = ctx->ingress_ifindex };
	__u32 reached = way->ifindex;
	long result;

	if (ipv6) {
		fib.family = AF_INET6;
		get_v6((struct in6_addr *)fib.ipv6_src, from);
		get_v6((struct in6_addr *)fib.ipv6_dst, to);
	} else {
		fib.family = AF_INET;
		fib.ipv4_src = v4_of(from);
		fib.ipv4_dst = v4_of(to);
	}
	result = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	way->ifindex = fib.ifindex;
	way->mtu = fib.mtu_result;
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH) {
		if (fib.ifindex != reached)
			note_missed(&fib);
		return DROP_NO_NEIGHBOR;
	}
	if (result != BPF_FIB_LKUP_RET_SUCCESS)
		return DROP_NO_ROUTE;
	__builtin_memcpy(way->source, fib.smac, 6);
	__builtin_memcpy(way->destination, fib.dmac, 6);
	return 0;
}

/* The way to a backend, from this CPU's memory or the kernel. */
static always_inline int way_to_backend(struct xdp_md *ctx, const struct address *from, const struct backend *b,
					__u32 number, int ipv6, __u32 tick, struct hop **out)
{
	struct hop *hop = bpf_map_lookup_elem(&hops, &number);

	if (!hop)
		return DROP_INTERNAL;
	*out = hop;
	/* A traced packet asks the kernel. */
	if (!DRY && hop->known == KNOWN && hop->looked_up >> WAY_SHIFT == tick >> WAY_SHIFT)
		return 0;

	struct way way = {};
	int reason = look_up(ctx, from, &b->address, ipv6, &way);

	if (reason) {
		hop->known = UNKNOWN;
		return reason;
	}
	hop->ifindex = way.ifindex;
	__builtin_memcpy(hop->source, way.source, 6);
	__builtin_memcpy(hop->destination, way.destination, 6);
	hop->mtu = way.mtu;
	hop->looked_up = tick;
	hop->known = KNOWN;
	return 0;
}

#define HOP_MAC(hop) ((hop)&0xffffffffffffULL)
#define HOP_TIME(hop) ((__u16)((hop) >> 48))

static always_inline __u16 hop_time(__u32 tick)
{
	return tick >> WAY_SHIFT;
}

static always_inline __u64 mac_number(const __u8 *mac)
{
	__u64 number = 0;

	__builtin_memcpy(&number, mac, 6);
	return number;
}

/*
 * Notes by whom the client's first packet came, as a way that has to be looked up: the kernel is asked when there is
 * something to send there, which for many a packet there never is.
 */
static always_inline void remember_arrival(struct xdp_md *ctx, struct connection *c, const struct ethhdr *arrived,
					   __u32 tick)
{
	__u32 mtu = 0;

	c->hop_ifindex = ctx->ingress_ifindex;
	__builtin_memcpy(c->hop_source, arrived->h_dest, 6);
	c->hop_mtu = bpf_check_mtu(ctx, ctx->ingress_ifindex, &mtu, 0, 0) >= 0 ? mtu : 0;
	*(volatile __u64 *)&c->hop = mac_number(arrived->h_source) | (__u64)(__u16)(hop_time(tick) - 1) << 48;
}

/*
 * Looks up the way to the client. One that the kernel does not know, on the link from which its packets have come, is
 * reached by way of whoever sent them.
 */
static always_inline int way_to_client(struct xdp_md *ctx, struct connection *c, const struct address *from, int ipv6,
				       __u32 tick)
{
	__u64 known = *(volatile __u64 *)&c->hop;
	struct way way = { .ifindex = HOP_MAC(known) ? c->hop_ifindex : 0 };
	int reason = look_up(ctx, from, &c->client, ipv6, &way);

	if (reason == DROP_NO_NEIGHBOR && HOP_MAC(known) && way.ifindex == c->hop_ifindex) {
		*(volatile __u64 *)&c->hop = HOP_MAC(known) | (__u64)hop_time(tick) << 48;
		return 0;
	}
	if (reason)
		return reason;
	c->hop_ifindex = way.ifindex;
	__builtin_memcpy(c->hop_source, way.source, 6);
	c->hop_mtu = way.mtu;
	*(volatile __u64 *)&c->hop = mac_number(way.destination) | (__u64)hop_time(tick) << 48;
	return 0;
}

static always_inline int leave_by(struct xdp_md *ctx, const struct packet *p, __u32 ifindex, const struct control *c)
{
	return ifindex == ctx->ingress_ifindex && !c->redirects_back && !p->queued ? XDP_TX : bpf_redirect(ifindex, 0);
}

#endif
