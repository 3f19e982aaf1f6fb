/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Tunnels whose route has a smaller MTU than their first link: what routers on it say of it (RFC 2003, 4 and 5; RFC 2473, 8). */
#ifndef BALANCER_TUNNEL_H
#define BALANCER_TUNNEL_H

#include "too_big.h"

/* The smallest MTU that is taken from a message (RFC 791, 3.2): with less, forged ones could make packets useless. */
#define IPV4_LEAST_MTU 576

/* How large outer packets to a backend may be, of which `mtu` fit into the first link. */
static always_inline __u32 through_tunnel(__u32 backend, __u32 mtu, __u32 tick)
{
	struct path_mtu *known = bpf_map_lookup_elem(&path_mtus, &backend);

	if (!known || !known->mtu || tick - known->tick >= PATH_MTU_TICKS)
		return mtu;
	return mtu && mtu < known->mtu ? mtu : known->mtu;
}

/* The MTU that a message says: fragmentation needed, or packet too big; 0 when it says none. */
static always_inline __u32 mtu_of_message(const struct packet *p, const struct icmp_header *icmp)
{
	__u32 mtu = bpf_ntohl(icmp->rest), least = p->ipv6 ? IPV6_LEAST_MTU : IPV4_LEAST_MTU;

	if (p->ipv6 ? icmp->type != 2 : icmp->type != 3 || icmp->code != 4)
		return 0;
	if (!p->ipv6)
		mtu &= 0xffff;
	if (mtu < least)
		mtu = least;
	return mtu < 0xffff ? mtu : 0xffff;
}

/* Whether the quoted outer packet is one from this address to the backend. */
static always_inline int is_outer(struct xdp_md *ctx, const struct packet *p, const struct address *local, const struct address *backend,
				  struct packing packing, __u64 mask)
{
	void *quoted = (void *)(long)ctx->data + (p->l4 & L4_MASK) + sizeof(struct icmp_header);
	void *end = (void *)(long)ctx->data_end;
	struct address from, to;
	struct ports *ports;
	__u8 protocol;

	if (p->ipv6) {
		struct ipv6hdr *ip = quoted;

		if ((void *)(ip + 1) > end)
			return 0;
		set_v6(&from, &ip->saddr);
		set_v6(&to, &ip->daddr);
		protocol = ip->nexthdr;
		ports = (void *)(ip + 1);
	} else {
		struct iphdr *ip = quoted;

		if ((void *)(ip + 1) > end)
			return 0;
		set_v4(&from, ip->saddr);
		set_v4(&to, ip->daddr);
		protocol = ip->protocol;
		ports = (void *)(ip + 1);
	}
	from.lo &= ~mask;
	if (protocol == IPPROTO_UDP && ((void *)(ports + 1) > end || ports->destination != TUNNEL_PORT(packing)))
		return 0;
	return protocol == outer_protocol(packing, p->ipv6) && same(&from, local) && same(&to, backend);
}

/*
 * The entry of the connection whose packet is in a tunnel's of UDP that an ICMP error quotes, of which it is about then; 0 where there is
 * none. For errors about no connection's own packets: what looks like a tunnel's may be any datagram.
 */
OF_PACKET(__u32, entry_inside, (struct xdp_md *ctx), (ctx))
{
	struct cursor c = CURSOR(ctx);
	const struct control *control = settings();
	__be32 *header;

	if (!p || !control || !control->has_gue || p->tuple.protocol != IPPROTO_UDP)
		return 0;
	c.at += (p->l4 & L4_MASK) + sizeof(struct icmp_header) + outer_length(p) + sizeof(struct udphdr);
	header = take(&c, GUE_BYTES);
	if (!header || *header != gue_header(p->ipv6))
		return 0;
	p->kind = parse_quoted(p, &c, 1);
	return p->kind == OUTER_ERROR ? find_each(&p->tuple, hash_tuple(&p->tuple)) : 0;
}

/*
 * An ICMP error about the outer packet of a connection's tunnel. That it was too big is remembered of the backend, and the
 * client is told what fits inside, about its own packet, as if from the service. Other errors are left to the kernel.
 */
OF_PACKET(int, outer_error, (struct xdp_md *ctx, __u32 entry, __u32 tick), (ctx, entry, tick))
{
	struct connection *c = connection_at(SLOT(entry));
	const struct control *control = settings();
	__u32 outer, l3, mtu, header, most, quoted, key;
	const struct address *local;
	const struct service *s;
	const struct backend *b;
	struct icmp_header *icmp;
	struct path_mtu *known;
	struct packing packing;
	struct route route = {};
	int reason;
	__s64 sum;

	if (!c || !p || !control)
		return drop(DROP_INTERNAL);
	s = service_at(c->service);
	b = backend_at(c->backend);
	local = local_at(c->local);
	icmp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if (!s || !b)
		return pass(PASS_ICMP_UNKNOWN);
	packing = packing_of(b);
	if (!local || s->forward != TUNNEL || DIRECTION(entry) == OUTWARD ||
	    (void *)(icmp + 1) > (void *)(long)ctx->data_end || !is_outer(ctx, p, local, &b->address, packing, source_mask(packing, c, s)))
		return pass(PASS_ICMP_UNKNOWN);
	mtu = mtu_of_message(p, icmp);
	if (!mtu)
		return pass(PASS_ICMP_UNKNOWN);
	key = c->backend;
	known = bpf_map_lookup_elem(&path_mtus, &key);
	if (known && !TRACING) {
		known->mtu = mtu;
		known->tick = tick;
	}
	outer = tunnel_length(packing, p->ipv6);
	header = outer_length(p) + sizeof(struct icmp_header);
	if (p->l3_length < header + outer || !may_send_icmp(tick))
		return drop(DROP_TOO_BIG);
	reason = find_route(ctx, p, c, OUTWARD, p->ipv6, tick, &route);
	if (reason)
		return drop(reason);
	l3 = p->l3 & L3_MASK;
	quoted = p->l3_length - header - outer;
	most = (p->ipv6 ? MOST_MESSAGE_V6 : MOST_MESSAGE_V4) - header;
	if (quoted > most)
		quoted = most;
	mtu -= outer;
	if (p->ipv6 && mtu < IPV6_LEAST_MTU)
		mtu = IPV6_LEAST_MTU;
	if (bpf_xdp_adjust_tail(ctx, (int)(l3 + header + outer + quoted) - (int)frame_length(ctx)))
		return drop(DROP_INTERNAL);
	sum = sum_bytes(ctx, l3 + header + outer, quoted);
	/* The outer header goes, and the message's own is written anew in front of what was inside. */
	if (sum < 0 || push(ctx, l3, -outer))
		return drop(DROP_INTERNAL);
	reason = p->ipv6 ? write_v6(ctx, l3, &s->address, &c->client, quoted, mtu, sum) :
			   write_v4(ctx, l3, &s->address, &c->client, quoted, mtu, sum);
	reason = reason ?: set_link(ctx, route.source, route.destination);
	if (reason)
		return drop(reason);
	return counted(DROP_TOO_BIG_TOLD) | leave_by(ctx, p, route.ifindex, control);
}

#endif
