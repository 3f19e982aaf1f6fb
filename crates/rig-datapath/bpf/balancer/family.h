/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Packets of connections between a client of IPv6 and a backend of IPv4: headers of IP, and ICMP errors with what they quote, are translated as
 * RFC 7915 has it. Addresses and ports are those of the connection, so that checksums change as those of any other one.
 *
 * Where it differs: what is larger than 1280 bytes for the client and may be fragmented (4.1) goes as it is, or is dropped where it does not
 * fit; fragments are dropped; a datagram of IPv6 without a checksum, which only tunnels may send (RFC 6935), gets one. A router's MTU is told as it is, whatever fits into the next links (4.2, 5.2): what does not is told, too.
 */
#ifndef BALANCER_FAMILY_H
#define BALANCER_FAMILY_H

#include "too_big.h"
#include "translate.h"
#include "tunnel.h"

/* By how much a packet is larger with IPv6. */
#define FAMILY_BYTES ((__u32)(sizeof(struct ipv6hdr) - sizeof(struct iphdr)))
/* Packets of IPv4 that have come as IPv6 may be fragmented up to this size: a client may take no smaller MTU for it (RFC 7915, 5.1). */
#define MOST_FRAGMENTED (IPV6_LEAST_MTU - FAMILY_BYTES)

/* Whether a packet of a connection leaves as IPv6. */
static always_inline int leaves_as_ipv6(const struct packet *p, const struct connection *c)
{
	return c->counter & MIXED ? !p->ipv6 : p->ipv6;
}

/* What is the same in both families' headers. */
struct ip_header {
	__u8 class, ttl, protocol;
	/* Behind the header, without options and extensions. */
	__u16 bytes;
};

static always_inline int read_header(struct xdp_md *ctx, __u32 at, int ipv6, struct ip_header *h)
{
	void *header = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;

	if (ipv6) {
		struct ipv6hdr *ip = header;

		if ((void *)(ip + 1) > end)
			return 0;
		h->class = ((__u8 *)ip)[0] << 4 | ((__u8 *)ip)[1] >> 4;
		h->ttl = ip->hop_limit;
		h->protocol = ip->nexthdr;
		h->bytes = bpf_ntohs(ip->payload_len);
	} else {
		struct iphdr *ip = header;

		if ((void *)(ip + 1) > end)
			return 0;
		h->class = ip->tos;
		h->ttl = ip->ttl;
		h->protocol = ip->protocol;
		h->bytes = bpf_ntohs(ip->tot_len) - sizeof(*ip);
	}
	return 1;
}

/*
 * Writes a header. `id` is the identification of IPv4 where that counts: where routers may fragment (RFC 6864, 4.1). It is a checksum, which
 * differs between packets as well as a number by chance.
 */
static always_inline int write_header(struct xdp_md *ctx, __u32 at, int ipv6, const struct ip_header *h, const struct address *from,
				      const struct address *to, __u16 id)
{
	void *header = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;

	if (ipv6) {
		struct ipv6hdr *ip = header;

		if ((void *)(ip + 1) > end)
			return 0;
		*(__be32 *)ip = bpf_htonl(6u << 28 | (__u32)h->class << 20);
		ip->payload_len = bpf_htons(h->bytes);
		ip->nexthdr = h->protocol;
		ip->hop_limit = h->ttl;
		get_v6(&ip->saddr, from);
		get_v6(&ip->daddr, to);
	} else {
		struct iphdr *ip = header;
		__u16 bytes = h->bytes + sizeof(*ip);
		int whole = bytes > MOST_FRAGMENTED;
		__u64 sum;

		if ((void *)(ip + 1) > end)
			return 0;
		*(__be16 *)ip = bpf_htons(0x4500 | h->class);
		ip->tot_len = bpf_htons(bytes);
		ip->id = whole ? 0 : id;
		ip->frag_off = whole ? bpf_htons(DONT_FRAGMENT) : 0;
		*(__be16 *)&ip->ttl = bpf_htons(h->ttl << 8 | h->protocol);
		ip->saddr = v4_of(from);
		ip->daddr = v4_of(to);
		sum = *(__be16 *)ip + (__u64)ip->tot_len + ip->id + ip->frag_off + *(__be16 *)&ip->ttl + ip->saddr + ip->daddr;
		ip->check = ~fold(sum);
	}
	return 1;
}

/* A packet of IPv4 that has grown behind its header, as `write_header` would have it; 0 or a reason for a drop. */
static always_inline int keep_whole(struct xdp_md *ctx, const struct packet *p, const struct connection *c)
{
	struct iphdr *ip = (void *)(long)ctx->data + (p->l3 & L3_MASK);
	__u64 change;

	if (!(c->counter & MIXED) || p->l3_length <= MOST_FRAGMENTED)
		return 0;
	if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	if (ip->frag_off)
		return 0;
	change = (__u64)(__u16)~ip->id + bpf_htons(DONT_FRAGMENT);
	ip->id = 0;
	ip->frag_off = bpf_htons(DONT_FRAGMENT);
	ip->check = updated(ip->check, fold(change));
	return 0;
}

/* The frame, whose link-layer header is `l2` bytes with the type at its end, is of this family. */
static always_inline int write_type(struct xdp_md *ctx, __u32 l2, int ipv6)
{
	__u32 behind = l2 == sizeof(struct ethhdr) ? 0 : TAG_BYTES;
	__be16 *type = (void *)(long)ctx->data + offsetof(struct ethhdr, h_proto) + behind;

	if ((void *)(type + 1) > (void *)(long)ctx->data_end)
		return 0;
	*type = bpf_htons(ipv6 ? ETH_P_IPV6 : ETH_P_IP);
	return 1;
}

/* How packets of a connection are translated, as `translation_of`. */
static always_inline int translation_at(__u32 entry, struct translation *t)
{
	const struct connection *c = connection_at(SLOT(entry));
	const struct service *s = c ? service_at(c->service) : 0;
	const struct backend *b = c ? backend_at(c->backend) : 0;

	return s && b && translation_of(c, s, b, DIRECTION(entry), t);
}

/* Whether a datagram has no checksum, nor can have one: it would be of other bytes than its receiver's. */
static always_inline int lacks_sum(struct xdp_md *ctx, const struct packet *p)
{
	struct udphdr *udp = (void *)(long)ctx->data + (p->l4 & L4_MASK);

	return (void *)(udp + 1) > (void *)(long)ctx->data_end ||
	       (!udp->check && udp->len != bpf_htons(p->l3_length - (p->l4 - p->l3)));
}

/* The word at this offset of the frame; -1 where there is none. */
static always_inline int word_at(struct xdp_md *ctx, __u32 at)
{
	const __u16 *word = (void *)(long)ctx->data + at;

	return (void *)(word + 1) > (void *)(long)ctx->data_end ? -1 : *word;
}

/* Makes of a packet one of the other family, with less time to live; 0 or a reason for a drop. */
OF_PACKET(int, change_family, (struct xdp_md *ctx, __u32 entry), (ctx, entry))
{
	const struct control *control = settings();
	const __u32 place = p && p->tuple.protocol == IPPROTO_UDP ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check);
	struct ip_header h = {};
	struct translation t;
	__u32 l2;
	int reason, sum;

	if (!p || !control || !translation_at(entry, &t))
		return DROP_INTERNAL;
	if (p->tuple.protocol == IPPROTO_UDP && lacks_sum(ctx, p))
		return DROP_NO_EQUAL;
	reason = translate_flow(ctx, p, &t, control);
	if (reason)
		return reason;
	l2 = p->l3 & L3_MASK;
	if (!read_header(ctx, l2, p->ipv6, &h) || push_header(ctx, l2, p->ipv6 ? -FAMILY_BYTES : FAMILY_BYTES))
		return DROP_INTERNAL;
	h.ttl--;
	p->ipv6 = !p->ipv6;
	p->l4 = l2 + outer_length(p);
	p->l3_length = h.bytes + outer_length(p);
	sum = word_at(ctx, (p->l4 & L4_MASK) + place);
	/* IPv6 has no datagrams without (RFC 7915, 4.5); of IPv4 it is the identification, too. */
	if (!sum && h.protocol == IPPROTO_UDP) {
		/* For the compiler it is another one, of which it must not keep where the fields are: the verifier takes no such pointer. */
		barrier_var(ctx);
		reason = write_sum(ctx, t.source, t.destination, p->l4 & L4_MASK, h.bytes);
		if (reason)
			return reason;
		sum = word_at(ctx, (p->l4 & L4_MASK) + place);
	}
	if (sum < 0 || !write_type(ctx, l2, p->ipv6) || !write_header(ctx, l2, p->ipv6, &h, t.source, t.destination, sum))
		return DROP_INTERNAL;
	return 0;
}

/* The type and code, above, and the rest of an ICMP error's header, in host byte order. */
#define MESSAGE(type, code) ((__u32)((type) << 8 | (code)))
struct message {
	__u32 is, rest;
};

/* Where the header of the other family has the field that an error points at; -1 where it has none (RFC 7915, 4.2, 5.2). */
static always_inline int pointer_v6(__u32 v4)
{
	if (v4 < 2)
		return v4;
	if (v4 == 2 || v4 == 3)
		return 4;
	if (v4 == 8)
		return 7;
	if (v4 == 9)
		return 6;
	if (v4 < 12 || v4 > 19)
		return -1;
	return v4 < 16 ? 8 : 24;
}

static always_inline int pointer_v4(__u32 v6)
{
	if (v6 < 2)
		return v6;
	if (v6 < 4 || v6 > 39)
		return -1;
	if (v6 < 6)
		return 2;
	if (v6 == 6)
		return 9;
	if (v6 == 7)
		return 8;
	return v6 < 24 ? 12 : 16;
}

/*
 * What an error of IPv4 is with IPv6 (RFC 7915, 4.2); 0 where there is nothing of the kind. `mtu` is what it says that fits, 0 where that is not
 * what it is about. Of who says none of it 1280 is what always fits.
 */
static always_inline int message_v6(struct message *m, __u32 mtu)
{
	__u32 type = m->is >> 8, code = m->is & 0xff;
	int pointer;

	if (type == 11) {
		m->is = MESSAGE(3, code);
		m->rest = 0;
		return 1;
	}
	if (type == 12) {
		pointer = pointer_v6(m->rest >> 24);
		m->is = MESSAGE(4, 0);
		m->rest = pointer;
		return pointer >= 0 && (code == 0 || code == 2);
	}
	m->rest = 0;
	if (mtu) {
		mtu += FAMILY_BYTES;
		m->is = MESSAGE(2, 0);
		m->rest = mtu < IPV6_LEAST_MTU ? IPV6_LEAST_MTU : mtu;
	} else if (code == 2) {
		/* No such protocol: the next header is not known. */
		m->is = MESSAGE(4, 1);
		m->rest = 6;
	} else if (code == 3) {
		m->is = MESSAGE(1, 4);
	} else if (code == 9 || code == 10 || code == 13 || code == 15) {
		m->is = MESSAGE(1, 1);
	} else {
		m->is = MESSAGE(1, 0);
	}
	return code < 16 && code != 14;
}

/* What an error of IPv6 is with IPv4 (RFC 7915, 5.2). */
static always_inline int message_v4(struct message *m, __u32 mtu)
{
	__u32 type = m->is >> 8, code = m->is & 0xff;
	int pointer;

	if (mtu) {
		m->is = MESSAGE(3, 4);
		m->rest = mtu - FAMILY_BYTES;
		return 1;
	}
	if (type == 3) {
		m->is = MESSAGE(11, code);
		m->rest = 0;
		return 1;
	}
	if (type == 4) {
		pointer = pointer_v4(m->rest);
		m->is = code == 1 ? MESSAGE(3, 2) : MESSAGE(12, 0);
		m->rest = code == 1 ? 0 : (__u32)pointer << 24;
		return code == 1 || (code == 0 && pointer >= 0);
	}
	m->is = MESSAGE(3, code == 1 ? 10 : code == 4 ? 3 : 1);
	m->rest = 0;
	return code < 5;
}

/*
 * The sum of what an ICMP error's checksum is of and that is written anew: its own header but for the checksum, and the quoted one; with IPv6 what
 * the error's own header has of it, too. -1 where they are not there.
 */
static __noinline __s64 sum_of_error(struct xdp_md *ctx, __u32 l3, int ipv6)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct icmp_header *icmp;
	__u64 sum;

	l3 &= L3_MASK;
	if (ipv6) {
		struct ipv6hdr *outer = data + l3;

		icmp = (void *)(outer + 1);
		if ((void *)(icmp + 1) + sizeof(struct ipv6hdr) > end)
			return -1;
		sum = SUM_BYTES(&outer->saddr, 2 * sizeof(struct in6_addr)) + outer->payload_len + bpf_htons(IPPROTO_ICMPV6) +
		      SUM_BYTES(icmp + 1, sizeof(struct ipv6hdr));
	} else {
		struct iphdr *outer = data + l3;

		icmp = (void *)(outer + 1);
		if ((void *)(icmp + 1) + sizeof(struct iphdr) > end)
			return -1;
		sum = SUM_BYTES(icmp + 1, sizeof(struct iphdr));
	}
	return sum + *(__u16 *)icmp + icmp->rest;
}

/* Cuts off what is behind `end`, `bytes` long; the sum of it, or -1. A function of its own as `ask_kernel`. */
static __noinline __s64 cut_off(struct xdp_md *ctx, __u32 end, __u32 bytes)
{
	__s64 sum = sum_bytes(ctx, end, bytes);

	return sum < 0 || bpf_xdp_adjust_tail(ctx, (int)end - (int)frame_length(ctx)) ? -1 : (__s64)fold(sum);
}

/* Ports and number of the quoted packet; what the error's checksum changes by, or -1. A function of its own as `ask_kernel`. */
OF_PACKET(__s64, change_quoted, (struct xdp_md *ctx, __u32 entry, __u32 sequence), (ctx, entry, sequence))
{
	struct translation t;
	__u64 change;
	__u32 at;

	if (!p || !translation_at(entry, &t))
		return -1;
	/* Of the ports. */
	change = t.delta + (__u64)(__u16)~t.address_delta;
	at = (p->l4 & L4_MASK) + sizeof(struct icmp_header) + outer_length(p);
	if (translate_quoted_ports(ctx, p, &t, (void *)(long)ctx->data + at, sequence, &change))
		return -1;
	return fold(change);
}

/* What an ICMP error is made of, which would take a third of the stack that is left. No program is interrupted by another packet's. */
struct error_headers {
	struct ip_header outer, inner;
	struct message message;
	__u16 checksum;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct error_headers);
} error_headers SEC(".maps");

static always_inline struct error_headers *headers_here(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&error_headers, &key);
}

/* What an error is made of, as it is to be; 0 or a reason for a drop. A function of its own as `ask_kernel`. */
OF_PACKET(int, read_error, (struct xdp_md *ctx), (ctx))
{
	struct error_headers *e = headers_here();
	struct icmp_header *icmp;
	struct message m;
	__u32 l4, mtu;

	if (!p || !e)
		return DROP_INTERNAL;
	l4 = p->l4 & L4_MASK;
	icmp = (void *)(long)ctx->data + l4;
	if ((void *)(icmp + 1) > (void *)(long)ctx->data_end || !read_header(ctx, p->l3 & L3_MASK, p->ipv6, &e->outer) ||
	    !read_header(ctx, l4 + sizeof(*icmp), p->ipv6, &e->inner))
		return DROP_INTERNAL;
	m.is = MESSAGE(icmp->type, icmp->code);
	m.rest = bpf_ntohl(icmp->rest);
	mtu = mtu_of_message(p, icmp);
	/* The balancer sends no fragments, but routers may cut what it has let them: a first part that is quoted is translated as if it were whole. */
	if (e->inner.protocol != p->tuple.protocol || !(p->ipv6 ? message_v4(&m, mtu) : message_v6(&m, mtu)))
		return DROP_NO_EQUAL;
	e->message = m;
	e->checksum = icmp->checksum;
	return 0;
}

/*
 * Writes the error's own header, before it that of IP, and behind it the quoted one. `change` is what its checksum changes by, but for these. 0 or a
 * reason for a drop. A function of its own as `ask_kernel`.
 */
OF_PACKET(int, write_error, (struct xdp_md *ctx, __u32 entry, __u32 change), (ctx, entry, change))
{
	const struct error_headers *e = headers_here();
	struct icmp_header *icmp;
	struct translation t;
	__u32 l2, l4;
	__s64 sum;

	if (!p || !e || !translation_at(entry, &t))
		return DROP_INTERNAL;
	l2 = p->l3 & L3_MASK;
	l4 = p->l4 & L4_MASK;
	if (!write_type(ctx, l2, p->ipv6) || !write_header(ctx, l2, p->ipv6, &e->outer, t.source, t.destination, e->checksum) ||
	    !write_header(ctx, l4 + sizeof(*icmp), p->ipv6, &e->inner, t.destination, t.source, 0))
		return DROP_INTERNAL;
	icmp = (void *)(long)ctx->data + l4;
	if ((void *)(icmp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	*(__be16 *)icmp = bpf_htons(e->message.is);
	icmp->rest = bpf_htonl(e->message.rest);
	sum = sum_of_error(ctx, l2, p->ipv6);
	icmp = (void *)(long)ctx->data + l4;
	if (sum < 0 || (void *)(icmp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	icmp->checksum = updated(e->checksum, fold((__u64)change + sum));
	return 0;
}

/*
 * Makes of an ICMP error, with what it quotes, one of the other family; 0 or a reason for a drop. It is from the service, or from the local address:
 * routers between have none that the other side knows. What may follow the quoted packet (RFC 4884) is not told of any more. `sequence` is added to
 * the number that is quoted.
 */
OF_PACKET(int, change_family_of_error, (struct xdp_md *ctx, __u32 entry, __u32 sequence), (ctx, entry, sequence))
{
	const __u32 by = 2 * FAMILY_BYTES, most = MOST_MESSAGE_V6 - by;
	struct error_headers *e = headers_here();
	__s64 sum, change;
	__u32 l2;
	int reason;

	if (!p || !e)
		return DROP_INTERNAL;
	l2 = p->l3 & L3_MASK;
	reason = read_error(p, ctx);
	if (reason)
		return reason;
	sum = sum_of_error(ctx, l2, p->ipv6);
	change = change_quoted(p, ctx, entry, sequence);
	if (sum < 0 || change < 0)
		return DROP_INTERNAL;
	change += (__u16)~fold(sum);
	if (!p->ipv6 && p->l3_length > most) {
		sum = cut_off(ctx, l2 + most, p->l3_length - most);
		if (sum < 0)
			return DROP_INTERNAL;
		change += (__u16)~sum;
		e->outer.bytes = most - sizeof(struct iphdr);
	}
	if (push_header(ctx, l2, p->ipv6 ? -by : by))
		return DROP_INTERNAL;
	p->ipv6 = !p->ipv6;
	p->l4 = l2 + outer_length(p);
	/* The quoted header is longer or shorter, too. */
	e->outer.bytes += p->ipv6 ? FAMILY_BYTES : -FAMILY_BYTES;
	e->outer.ttl--;
	e->outer.protocol = p->ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
	p->l3_length = e->outer.bytes + outer_length(p);
	return write_error(p, ctx, entry, change);
}

#endif
