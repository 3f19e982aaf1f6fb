/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Datagrams of UDP that come in fragments, of which the first alone has ports. It is handled as any datagram, and what it says is
 * remembered, by which the others find its connection. One that comes before the first is dropped. TCP's senders find out what fits into the path.
 */
#ifndef BALANCER_FRAGMENT_H
#define BALANCER_FRAGMENT_H

#include "forward.h"

/* Which part of which datagram it is. Of the first one the packet's tuple and offsets are as those of a whole one. */
static always_inline enum part parse_fragment(struct xdp_md *ctx, struct packet *p, __u32 *id)
{
	__u32 l3 = p->l3 & L3_MASK, behind;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct udphdr *udp;
	int first;

	if (p->ipv6) {
		struct ipv6hdr *ip = data + l3;
		struct fragment_header *header = (void *)(ip + 1);

		behind = sizeof(*ip) + sizeof(*header);
		if ((void *)(header + 1) > end || header->next != IPPROTO_UDP)
			return PART_UNKNOWN;
		*id = header->id;
		first = !(header->offset & bpf_htons(FRAGMENT_OFFSET_V6));
		udp = (void *)(header + 1);
	} else {
		struct iphdr *ip = data + l3;

		behind = sizeof(*ip);
		if ((void *)(ip + 1) > end || ip->ihl != 5 || ip->protocol != IPPROTO_UDP)
			return PART_UNKNOWN;
		*id = ip->id;
		first = !(ip->frag_off & bpf_htons(FRAGMENT_OFFSET));
		udp = (void *)(ip + 1);
	}
	if (p->l3_length <= behind || l3 + p->l3_length > frame_length(ctx))
		return PART_UNKNOWN;
	p->tuple.protocol = IPPROTO_UDP;
	p->l4 = l3 + behind;
	if (!first)
		return PART_LATER;
	if ((void *)(udp + 1) > end || p->l3_length < behind + sizeof(*udp))
		return PART_UNKNOWN;
	p->tuple.source_port = udp->source;
	p->tuple.destination_port = udp->dest;
	return PART_FIRST;
}

/* Addresses alone. */
static always_inline int translate_addresses(struct xdp_md *ctx, const struct packet *p, const struct connection *c,
					     const struct service *s, enum direction direction)
{
	const struct backend *b = direction == INWARD ? backend_at(c->backend) : 0;
	struct translation t;

	if ((direction == INWARD && !b) || !translation_of(c, s, b, direction, &t))
		return DROP_INTERNAL;
	return decrement_ttl(ctx, p) ?: write_addresses(ctx, p, &t);
}

/* One behind the first, whose ports are known. */
OF_PACKET(int, forward_fragment, (struct xdp_md *ctx, __u32 tick), (ctx, tick))
{
	const struct control *control = settings();
	struct route route = {};
	enum direction direction;
	struct connection *c;
	struct service *s;
	__u32 entry, outer = 0;
	int reason;

	if (!p || !control)
		return drop(DROP_INTERNAL);
	entry = find_each(&p->tuple, hash_tuple(&p->tuple));
	if (TRACING && entry)
		entry = copy_of(entry);
	if (!entry)
		return drop(DROP_FRAGMENT);
	direction = DIRECTION(entry);
	c = connection_at(SLOT(entry));
	s = c ? service_at(c->service) : 0;
	if (!s)
		return drop(DROP_INTERNAL);
	if (p->ttl <= 1)
		return drop(DROP_TTL);
	if (c->counter & MIXED)
		return drop(DROP_FRAGMENT);
	update_state(c, s, p, SLOT(entry), direction, tick);
	reason = find_route(ctx, p, c, direction, p->ipv6, tick, &route);
	if (reason)
		return drop(reason);
	if (direction == INWARD && s->forward == TUNNEL) {
		const struct backend *b = backend_at(c->backend);

		if (!b)
			return drop(DROP_INTERNAL);
		outer = tunnel_length(packing_of(b), p->ipv6);
		route.mtu = through_tunnel(c->backend, route.mtu, tick);
	}
	TRACE(mtu, route.mtu ? route.mtu - outer : 0);
	TRACE(ifindex, route.ifindex & ~OF_VLAN);
	if (route.mtu && p->l3_length + outer > route.mtu)
		return drop(DROP_TOO_BIG);
	p->dscp = direction == INWARD ? s->dscp : 0;
	reason = is_direct_return(s) ? forward_whole(p, ctx, FRAGMENT, entry) : translate_addresses(ctx, p, c, s, direction);
	if (!reason && p->dscp)
		reason = set_dscp(p, ctx);
	reason = reason ?: set_link(ctx, route.source, route.destination);
	if (reason)
		return drop(reason);
	count(c->backend, direction, p->l3_length);
	return leave_by(ctx, p, route.ifindex, control);
}

/*
 * Whether the first part of a datagram is of a connection, or begins one; or it is an answer of a service that schedules each datagram by itself,
 * whose other parts are dropped. What the balancer does not handle takes no room.
 */
static always_inline int is_handled(struct xdp_md *ctx, struct packet *p, __u32 tick)
{
	const struct control *control = settings();

	if (service_for(&p->tuple) || find_each(&p->tuple, hash_tuple(&p->tuple)))
		return 1;
	return control && control->has_entries_back && entry_back(p, tick) && !is_local(ctx, p);
}

/* Which part of a datagram it is that can be handled: with ports, which only the first one brings. */
OF_PACKET(int, part_of, (struct xdp_md *ctx, __u32 tick), (ctx, tick))
{
	struct first_fragment *known, first = {};
	struct fragment_key key = {};
	enum part part;

	if (!p)
		return PART_UNKNOWN;
	part = parse_fragment(ctx, p, &key.id);
	if (part == PART_UNKNOWN)
		return part;
	key.source = p->tuple.source;
	key.destination = p->tuple.destination;
	if (part == PART_FIRST) {
		first.source_port = p->tuple.source_port;
		first.destination_port = p->tuple.destination_port;
		first.tick = tick;
		if (!TRACING && is_handled(ctx, p, tick))
			bpf_map_update_elem(&fragments, &key, &first, BPF_ANY);
		return part;
	}
	known = bpf_map_lookup_elem(&fragments, &key);
	if (!known || tick - known->tick > FRAGMENT_TICKS)
		return PART_UNKNOWN;
	p->tuple.source_port = known->source_port;
	p->tuple.destination_port = known->destination_port;
	return part;
}

#endif
