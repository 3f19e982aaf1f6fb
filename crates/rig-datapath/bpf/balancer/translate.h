/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is written into a packet on its way through. */
#ifndef BALANCER_TRANSLATE_H
#define BALANCER_TRANSLATE_H

#include "packet.h"

/* Source and destination of a packet when it leaves, and by how much its checksums change. */
struct translation {
	const struct address *source, *destination;
	__u16 source_port, destination_port;
	/* See struct connection; of this direction. */
	__u16 delta, address_delta;
};

static always_inline void set_deltas(struct connection *c, const struct tuple *old, const struct translation *new)
{
	__u64 addresses = sum_address(new->source) + sum_address(new->destination);

	addresses += (__u16)~fold(sum_address(&old->source) + sum_address(&old->destination));
	c->address_delta = fold(addresses);
	c->delta = fold(addresses + new->source_port + new->destination_port + (__u16)~old->source_port +
			(__u16)~old->destination_port);
}

/* How packets of a connection are translated; 0 when its tables are not there. */
static always_inline int translation_of(const struct connection *c, const struct service *s, const struct backend *b,
					enum direction direction, struct translation *t)
{
	const struct address *local;

	if (direction == OUTWARD) {
		t->source = &s->address;
		t->source_port = service_port(c, s);
		t->destination = &c->client;
		t->destination_port = c->client_port;
		t->delta = ~c->delta;
		t->address_delta = ~c->address_delta;
		return 1;
	}
	t->delta = c->delta;
	t->address_delta = c->address_delta;
	t->destination = &b->address;
	t->destination_port = backend_port(c, b);
	if (s->forward == NAT) {
		t->source = &c->client;
		t->source_port = c->client_port;
		return 1;
	}
	local = local_at(c->local);
	if (!local)
		return 0;
	t->source = local;
	t->source_port = c->local_port;
	return 1;
}

/*
 * A sender on this machine may have left the checksum to its network device, which never came: then the field holds the
 * sum of the pseudo header alone. What arrives so is completed. A complete checksum may look the same once in 65,536,
 * and comes out as it was.
 */
static always_inline __u16 complete(struct xdp_md *ctx, const struct packet *p, __u16 checksum, const struct control *c,
				    int *partial)
{
	__u16 length = p->l3_length - (p->l4 - p->l3);
	__u16 pseudo = fold(sum_pseudo(&p->tuple.source, &p->tuple.destination, p->tuple.protocol, length));

	*partial = 0;
	/* Of what leaves in fragments the sender itself has made it. */
	if (checksum != pseudo || p->part)
		return checksum;

	__s64 sum = sum_bytes(ctx, p->l4, length);

	if (sum < 0)
		return checksum;
	/* Without the checksum field itself. */
	sum += (__u16)~checksum;

	__u16 whole = ~fold((__u64)sum + pseudo);

	if (whole == checksum || (!whole && checksum == 0xffff))
		return checksum;
	*partial = c->keeps_offload;
	return *partial ? checksum : whole;
}

static always_inline __u16 updated_or_partial(__u16 checksum, const struct translation *t, int partial)
{
	/* A partial checksum is a sum and no complement, over addresses and no ports. */
	return partial ? fold((__u64)checksum + t->address_delta) : updated(checksum, t->delta);
}

/* A packet that is forwarded without translation: no checksum is updated, but one that the sender left to its device is completed. */
static always_inline int complete_flow(struct xdp_md *ctx, const struct packet *p, const struct control *control)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l4 = p->l4 & L4_MASK;
	int partial;

	if (p->tuple.protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = data + l4;

		if ((void *)(tcp + 1) > end)
			return DROP_INTERNAL;
		tcp->check = complete(ctx, p, tcp->check, control, &partial);
	} else {
		struct udphdr *udp = data + l4;

		if ((void *)(udp + 1) > end)
			return DROP_INTERNAL;
		if (udp->check)
			udp->check = complete(ctx, p, udp->check, control, &partial) ?: 0xffff;
	}
	return 0;
}

/* One hop less (RFC 1812, 5.3.1); the caller has seen to it that there are any. */
static always_inline int decrement_ttl(struct xdp_md *ctx, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = p->l3 & L3_MASK;

	if (p->ipv6) {
		struct ipv6hdr *ip = data + l3;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		ip->hop_limit--;
	} else {
		struct iphdr *ip = data + l3;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		ip->ttl--;
		ip->check = updated(ip->check, bpf_htons(0xfeff));
	}
	return 0;
}

/*
 * Gives a packet the DSCP that it is to have (RFC 2474, 3); the bits of ECN stay (RFC 3168, 5). 0 or a reason for a drop. A function of its
 * own as `ask_kernel`.
 */
OF_PACKET(int, set_dscp, (struct xdp_md *ctx), (ctx))
{
	__be16 *word, before;
	__u32 shift, dscp;

	if (!p)
		return DROP_INTERNAL;
	word = (void *)(long)ctx->data + (p->l3 & L3_MASK);
	if ((void *)word + sizeof(struct iphdr) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	/* Both headers begin with the version; that of IPv6 has nothing between it and the traffic class. */
	shift = p->ipv6 ? 4 : 0;
	dscp = p->dscp & DSCP_MASK;
	p->dscp = 0;
	before = *word;
	*word = bpf_htons((bpf_ntohs(before) & ~(DSCP_MASK << shift)) | dscp << shift);
	if (!p->ipv6) {
		struct iphdr *ip = (void *)word;

		ip->check = exchanged(ip->check, before, *word);
	}
	return 0;
}

static always_inline int write_addresses(struct xdp_md *ctx, const struct packet *p, const struct translation *t)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = p->l3 & L3_MASK;

	if (p->ipv6) {
		struct ipv6hdr *ip = data + l3;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		get_v6(&ip->saddr, t->source);
		get_v6(&ip->daddr, t->destination);
	} else {
		struct iphdr *ip = data + l3;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		ip->saddr = v4_of(t->source);
		ip->daddr = v4_of(t->destination);
		ip->check = updated(ip->check, t->address_delta);
	}
	return 0;
}

/* Ports and checksum of a TCP or UDP packet. */
static always_inline int translate_flow(struct xdp_md *ctx, struct packet *p, const struct translation *t,
					const struct control *control)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l4 = p->l4 & L4_MASK;
	__u16 checksum;
	int partial;

	if (p->tuple.protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = data + l4;

		if ((void *)(tcp + 1) > end)
			return DROP_INTERNAL;
		checksum = complete(ctx, p, tcp->check, control, &partial);
		p->partial = partial;
		tcp->source = t->source_port;
		tcp->dest = t->destination_port;
		tcp->check = updated_or_partial(checksum, t, partial);
	} else {
		struct udphdr *udp = data + l4;

		if ((void *)(udp + 1) > end)
			return DROP_INTERNAL;
		/* RFC 768: 0 is no checksum, and one that comes out as 0 is written as its equal. */
		if (udp->check) {
			checksum = complete(ctx, p, udp->check, control, &partial);
			checksum = updated_or_partial(checksum, t, partial);
			udp->check = checksum ?: 0xffff;
		}
		udp->source = t->source_port;
		udp->dest = t->destination_port;
	}
	return 0;
}

/*
 * Ports, checksum and, by `sequence`, the number of a packet that an ICMP error quotes; `change` gets what words change by, but for the ports. 0 or
 * a reason for a drop.
 */
static always_inline int translate_quoted_ports(struct xdp_md *ctx, const struct packet *p, const struct translation *t,
						struct ports *ports, __u32 sequence, __u64 *change)
{
	void *end = (void *)(long)ctx->data_end;

	if ((void *)(ports + 2) > end)
		return DROP_INTERNAL;
	ports->source = t->destination_port;
	ports->destination = t->source_port;
	/* The quotation may end before the checksum of what it quotes. UDP's is among its eight bytes. */
	if (p->tuple.protocol == IPPROTO_UDP) {
		struct udphdr *udp = (void *)ports;

		if (udp->check) {
			__u16 before = udp->check, after = updated(before, t->delta);

			udp->check = after ?: 0xffff;
			*change += (__u16)~before + udp->check;
		}
	} else {
		struct tcphdr *tcp = (void *)ports;
		__u64 shifted = 0;

		if (sequence && (void *)(&tcp->seq + 1) <= end) {
			__be32 before = tcp->seq;

			tcp->seq = bpf_htonl(bpf_ntohl(before) + sequence);
			shifted = (__u64)(__u32)~before + tcp->seq;
			*change += shifted;
		}
		if ((void *)(tcp + 1) <= end) {
			__u16 before = tcp->check;

			tcp->check = updated(before, fold(shifted + t->delta));
			*change += (__u16)~before + tcp->check;
		}
	}
	return 0;
}

/*
 * An ICMP error and the packet that it quotes (RFC 5508, 4.2). `t` is how packets in the error's direction are
 * translated; the quoted one went the other way. The error itself may be from any router on the path: `keep_source` leaves
 * it so. `sequence` is added to the quoted sequence number of TCP.
 */
static always_inline int translate_error(struct xdp_md *ctx, struct packet *p, const struct translation *t,
					 int keep_source, __u32 sequence)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l3 = p->l3 & L3_MASK, l4 = p->l4 & L4_MASK;
	struct icmp_header *icmp = data + l4;
	/* What the quoted packet's words change by, and the outer addresses, which ICMPv6's checksum covers too. */
	__u64 change = 0;
	struct ports *ports;

	if ((void *)(icmp + 1) > end)
		return DROP_INTERNAL;
	if (p->ipv6) {
		struct ipv6hdr *outer = data + l3;
		struct address from, to;

		if ((void *)(outer + 1) > end)
			return DROP_INTERNAL;
		set_v6(&from, &outer->saddr);
		set_v6(&to, &outer->daddr);
		change += (__u16)~fold(sum_address(&to)) + sum_address(t->destination);
		get_v6(&outer->daddr, t->destination);
		if (!keep_source) {
			change += (__u16)~fold(sum_address(&from)) + sum_address(t->source);
			get_v6(&outer->saddr, t->source);
		}

		struct ipv6hdr *ip = (void *)(icmp + 1);

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		get_v6(&ip->saddr, t->destination);
		get_v6(&ip->daddr, t->source);
		ports = (void *)(ip + 1);
		if (ip->nexthdr == IPPROTO_FRAGMENT)
			ports = (void *)ports + sizeof(struct fragment_header);
	} else {
		struct iphdr *outer = data + l3, *ip = (void *)(icmp + 1);
		__u64 outer_change;
		__u32 from = v4_of(t->source), to = v4_of(t->destination);

		if ((void *)(outer + 1) > end || (void *)(ip + 1) > end)
			return DROP_INTERNAL;
		if (keep_source)
			from = outer->saddr;
		outer_change = (__u64)(__u32)~outer->saddr + (__u32)~outer->daddr + from + to;
		outer->saddr = from;
		outer->daddr = to;
		outer->check = updated(outer->check, fold(outer_change));

		__u16 before = ip->check;

		ip->saddr = v4_of(t->destination);
		ip->daddr = v4_of(t->source);
		ip->check = updated(before, t->address_delta);
		change += (__u16)~before + ip->check;
		ports = (void *)(ip + 1);
	}
	change += t->delta;
	if (translate_quoted_ports(ctx, p, t, ports, sequence, &change))
		return DROP_INTERNAL;
	icmp->checksum = updated(icmp->checksum, fold(change));
	return 0;
}

#endif
