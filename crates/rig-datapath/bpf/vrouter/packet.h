/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Containers' packets: Ethernet, IPv4 and IPv6, and of TCP, UDP and ICMP what tells flows apart. */
#ifndef VROUTER_PACKET_H
#define VROUTER_PACKET_H

#include "lib/old.h"
#include "lib/packet.h"
#include "maps.h"

/* Parts of `passed`. */
#define TRANSLATIONS 0x0f
#define PASSED_ECMP 0x10

/* What of a packet is looked at: outer headers up to the inner TCP header, with IPv4 options or IPv6 extension headers. */
#define PULLED 192
/* IPv6 extension headers that are looked behind, and all their bytes. */
#define MAX_EXTENSIONS 4
/* The furthest that a packet's IP header is in a frame, behind all outer headers. */
#define MAX_L3 128
#define EXTENSIONS 64

struct packet {
	struct flow_key key;
	/* Of the IP header and of what is behind it. */
	__u32 l3, l4;
	/* Of the IP packet; of one that is still to be cut into segments, all of them in one. */
	__u32 length;
	/* How many segments it is or will be cut into. */
	__u32 segments;
	__u32 vrf;
	__u8 ipv6;
	__u8 protocol;
	/* DSCP and ECN. */
	__u8 class;
	__u8 ttl;
	__u8 tcp_flags;
	/* Of ICMP and IGMP. */
	__u8 type;
	/* A fragment; one behind the first. */
	__u8 fragment, later;
	/* An ICMP error; the key is that of the packets that the quoted one answers. */
	__u8 error;
	__u8 may_fragment;
	__u8 header;
	/* How many tables its route has led on from, and whether it was one of several ways. */
	__u8 passed;
	/*
	 * Of a container's frame, here, where the verifier does not follow what they are: whether it is for the router's MAC address, a
	 * piece of a larger packet, and why it is dropped by the address that it came from, 0 for not at all.
	 */
	__u8 is_routed, is_cut, foreign;
	/* IP's identification, equal in all fragments of a packet. */
	__u32 identification;
};

/* A rule that logs and has decided about a packet. */
struct rule_match {
	/* In the table. */
	__u32 list;
	__u32 interface;
	__u16 rule;
	__u8 flags;
	__u8 pad;
};

/* A frame that is copied. */
struct copy {
	/* 0 when nothing is copied. */
	__u32 analyser;
	/* Bytes of a tunnel's header that it has in front of its IP header, behind the outer Ethernet header; 0 for none. */
	__u16 outer;
	/* Source port of the outer packet. */
	__u16 port;
	/* Several segments of it cannot stay one packet in another outer header. */
	__u8 is_single;
	__u8 pad;
	struct ethhdr frame;
};

/* Lists that a packet is held against: of two interfaces. */
#define MAX_MATCHES (2 * MAX_LISTS)

/* What would be too much for the stack. A program runs to its end on its CPU before another packet comes. */
struct work {
	struct packet packet;
	struct flow_key back_key;
	struct flow own, back;
	struct rule_match matches[MAX_MATCHES];
	__u32 match_count;
	/* The analyser of the rules that match, or of an interface. */
	__u32 mirror;
	/* A copy that is on its way to `to_analyser`: see mirror.h. */
	struct copy copy;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

static always_inline struct work *work_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&works, &zero);
}

static always_inline int is_same(const struct address *a, const struct address *b)
{
	return a->hi == b->hi && a->lo == b->lo;
}

static always_inline int is_mac(const __u8 *a, const __u8 *b)
{
	return *(const __u32 *)a == *(const __u32 *)b && *(const __u16 *)(a + 4) == *(const __u16 *)(b + 4);
}

static always_inline void set_mac(__u8 *to, const __u8 *from)
{
	*(__u16 *)to = *(const __u16 *)from;
	*(__u16 *)(to + 2) = *(const __u16 *)(from + 2);
	*(__u16 *)(to + 4) = *(const __u16 *)(from + 4);
}

static always_inline void reverse(struct flow_key *to, const struct flow_key *from)
{
	to->source = from->destination;
	to->destination = from->source;
	to->source_port = from->destination_port;
	to->destination_port = from->source_port;
}

static always_inline int is_echo(const struct packet *p, __u8 type)
{
	return p->ipv6 ? type == 128 || type == 129 : type == 8 || type == 0;
}

/* The type of the query that a type of ICMP answers; other types are their own (RFC 792, RFC 950; RFC 4443, RFC 4620). */
static always_inline __u8 query_of(const struct packet *p, __u8 type)
{
	if (p->ipv6)
		return type == 129 || type == 140 ? type - 1 : type;
	if (!type)
		return 8;
	return type == 14 || type == 16 || type == 18 ? type - 1 : type;
}

/* The type that answers a query, and the other way round; others are their own. */
static always_inline __u8 answer_of(const struct packet *p, __u8 type)
{
	__u8 query = query_of(p, type);

	if (query != type)
		return query;
	if (p->ipv6)
		return type == 128 || type == 139 ? type + 1 : type;
	if (type == 8)
		return 0;
	return type == 13 || type == 15 || type == 17 ? type + 1 : type;
}

/*
 * What tells flows of ICMP apart, in the place of ports. Of a query the first is the identifier and the second that and the type, and
 * of its answer the other way round. All other types are of flows of their own that nothing answers: 0 and the type. Since types are
 * small and positive, no two of these are the same, in either direction: a query lets its answer back, and no other query.
 */
static always_inline void set_icmp_ports(const struct packet *p, __u8 type, __be16 id, __u16 *source, __u16 *destination)
{
	__u8 query = query_of(p, type);
	__be16 other;

	if (answer_of(p, type) == type)
		id = 0;
	other = bpf_htons(bpf_ntohs(id) + query);
	*source = query == type ? id : other;
	*destination = query == type ? other : id;
}

enum { UDP_DHCP_SERVER = 67, UDP_DHCP_CLIENT = 68, UDP_DHCPV6_CLIENT = 546, UDP_DHCPV6_SERVER = 547 };

/*
 * Messages that tell other hosts where an address is, which host is the router or which one the querier of groups, and are therefore never
 * forwarded: 0 for all else, or the reason for the drop. Advertisements and redirects (RFC 4861; RFC 792 and RFC 1256), queries of MLD
 * and IGMP (RFC 3810, RFC 3376), and DHCP servers' answers (RFC 2131, RFC 8415) but of interfaces that serve DHCP. Solicitations are
 * questions for the router. A fragment behind the first cannot be put together without that one.
 */
static always_inline int is_for_router_alone(const struct packet *p, int serves_dhcp)
{
	if (p->error || p->later)
		return 0;
	if (p->protocol == IPPROTO_UDP && !serves_dhcp) {
		__u16 from = bpf_ntohs(p->key.source_port), to = bpf_ntohs(p->key.destination_port);

		if (p->ipv6 ? from == UDP_DHCPV6_SERVER && to == UDP_DHCPV6_CLIENT :
			      from == UDP_DHCP_SERVER && to == UDP_DHCP_CLIENT)
			return REASON_CLAIM;
	}
	if (p->ipv6) {
		if (p->protocol != IPPROTO_ICMPV6)
			return 0;
		if (p->type == 133 || p->type == 135)
			return REASON_UNANSWERED;
		return p->type == 130 || p->type == 134 || p->type == 136 || p->type == 137 ? REASON_CLAIM : 0;
	}
	if (p->protocol == IPPROTO_IGMP)
		return p->type == 0x11 ? REASON_CLAIM : 0;
	return p->protocol == IPPROTO_ICMP && (p->type == 5 || p->type == 9) ? REASON_CLAIM : 0;
}

/* So that what is looked at lies in one piece. */
static always_inline int pull(struct __sk_buff *skb, __u32 bytes)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	if (data + bytes <= end || end - data >= skb->len)
		return 0;
	return bpf_skb_pull_data(skb, skb->len < bytes ? skb->len : bytes);
}

/*
 * So that an IP packet's headers do. What a socket sends has its payload in other pieces, where that lies as the receiver's
 * copy likes it: of TCP and UDP no more is moved than their headers, which are in one piece already.
 */
static always_inline int pull_headers(struct __sk_buff *skb, __u32 l3, __be16 type)
{
	__u32 ip = type == bpf_htons(ETH_P_IPV6) ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	void *data, *end;
	__u8 *header, protocol;

	if (pull(skb, l3 + ip + sizeof(struct tcphdr)))
		return 1;
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	header = data + l3;
	if ((void *)(header + sizeof(struct iphdr)) > end)
		return 0;
	protocol = type == bpf_htons(ETH_P_IPV6) ? header[6] : header[9];
	if ((protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && (type == bpf_htons(ETH_P_IPV6) || *header == 0x45))
		return 0;
	return pull(skb, PULLED);
}

/* Source and destination of the packet that an ICMP error quotes, exchanged: the flow that the error belongs to. */
static always_inline int parse_quoted(struct packet *p, struct cursor *c)
{
	struct flow_key *k = &p->key;
	struct address to = k->destination;
	struct icmp_header *icmp;
	__u8 protocol;

	if (p->ipv6) {
		struct ipv6hdr *ip = take_ipv6(c);

		if (!ip)
			return REASON_INVALID_PACKET;
		protocol = ip->nexthdr;
		set_v6(&k->destination, &ip->saddr);
		set_v6(&k->source, &ip->daddr);
	} else {
		struct iphdr *ip = take_ipv4(c);

		if (!ip || ip->ihl != 5)
			return REASON_INVALID_PACKET;
		protocol = ip->protocol;
		set_v4(&k->destination, ip->saddr);
		set_v4(&k->source, ip->daddr);
	}
	icmp = take(c, QUOTED_BYTES);
	if (!icmp || !is_same(&to, &k->destination))
		return REASON_INVALID_PACKET;
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) {
		struct ports *ports = (void *)icmp;

		k->destination_port = ports->source;
		k->source_port = ports->destination;
	} else if (protocol == p->protocol) {
		set_icmp_ports(p, icmp->type, icmp->id, &k->destination_port, &k->source_port);
		/* The type that would have answered. */
		p->type = answer_of(p, icmp->type);
	}
	p->protocol = protocol;
	p->error = 1;
	return 0;
}

static always_inline int parse_l4(struct packet *p, struct cursor *c, __u32 length)
{
	if (p->later)
		return 0;
	if (p->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = TAKE(c, struct tcphdr);

		if (!tcp || length < sizeof(*tcp) || tcp->doff < 5)
			return REASON_INVALID_PACKET;
		p->key.source_port = tcp->source;
		p->key.destination_port = tcp->dest;
		p->tcp_flags = ((__u8 *)tcp)[13];
		p->header = tcp->doff * 4;
	} else if (p->protocol == IPPROTO_UDP) {
		struct udphdr *udp = TAKE(c, struct udphdr);

		if (!udp || length < sizeof(*udp))
			return REASON_INVALID_PACKET;
		p->key.source_port = udp->source;
		p->key.destination_port = udp->dest;
		p->header = sizeof(*udp);
	} else if (is_icmp(p->ipv6, p->protocol)) {
		struct icmp_header *icmp = TAKE(c, struct icmp_header);

		if (!icmp || length < sizeof(*icmp))
			return REASON_INVALID_PACKET;
		p->type = icmp->type;
		if (is_icmp_error(p->ipv6, icmp->type)) {
			if (length < sizeof(*icmp) + (p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) + QUOTED_BYTES)
				return REASON_INVALID_PACKET;
			return parse_quoted(p, c);
		}
		set_icmp_ports(p, icmp->type, icmp->id, &p->key.source_port, &p->key.destination_port);
	} else if (p->protocol == IPPROTO_IGMP && !p->ipv6) {
		__u8 *type = TAKE(c, __u8);

		if (!type || !length)
			return REASON_INVALID_PACKET;
		p->type = *type;
	}
	return 0;
}

/*
 * A cursor at an offset. Read each time: where the compiler chooses between one from before a call and one
 * from behind it, the verifier knows none. Never let it choose between this and skb->data: it would cut both to the 32 bits that the
 * context's fields have in C.
 */
static always_inline struct cursor cursor_at(const struct __sk_buff *skb, __u32 offset)
{
	return (struct cursor){ .at = (void *)(long)*(const volatile __u32 *)&skb->data + offset,
				.end = (void *)(long)*(const volatile __u32 *)&skb->data_end };
}

/* RFC 8200, 4.1, and the authentication header, whose payload is in the clear (RFC 4302). */
static always_inline int is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_FRAGMENT ||
	       next == IPPROTO_DSTOPTS || next == IPPROTO_AH;
}

/*
 * Extension headers from `at` on, of which the packet's protocol is the first: that becomes what is behind them. How many bytes
 * they are, or below 0 where they are too many: rules would not know what they let through.
 */
static __attribute__((noinline)) int skip_extensions(struct __sk_buff *skb, struct packet *p, __u32 at)
{
	__u32 bytes = 0;

	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		struct { __u8 next, length; __be16 offset; __be32 id; } *header;
		void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

		if (bytes > EXTENSIONS || at > 128)
			return -1;
		header = data + at + bytes;
		if ((void *)(header + 1) > end)
			return -1;
		if (p->protocol == IPPROTO_FRAGMENT) {
			if (p->fragment)
				return -1;
			p->fragment = 1;
			p->later = (header->offset & bpf_htons(0xfff8)) != 0;
			p->identification = header->id;
			bytes += sizeof(*header);
		} else if (p->protocol == IPPROTO_AH) {
			bytes += (header->length + 2) * 4;
		} else {
			bytes += (header->length + 1) * 8;
		}
		p->protocol = header->next;
		if (p->later || !is_extension(p->protocol))
			return bytes;
	}
	return -1;
}

/* The IP packet at `l3`; 0 or a reason for a drop. */
static always_inline int parse_ip(struct __sk_buff *skb, struct packet *p, __u32 l3, __be16 type)
{
	struct cursor c = cursor_at(skb, l3);
	__u32 there = skb->len - l3, behind;

	p->l3 = l3;
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = take_ipv4(&c);
		__u16 fragment;

		if (!ip)
			return REASON_INVALID_PACKET;
		behind = ip->ihl * 4;
		p->length = bpf_ntohs(ip->tot_len);
		p->protocol = ip->protocol;
		p->class = ip->tos;
		p->ttl = ip->ttl;
		set_v4(&p->key.source, ip->saddr);
		set_v4(&p->key.destination, ip->daddr);
		fragment = bpf_ntohs(ip->frag_off);
		p->may_fragment = !(fragment & DONT_FRAGMENT);
		p->fragment = (fragment & IS_FRAGMENT) != 0;
		p->later = (fragment & FRAGMENT_OFFSET) != 0;
		p->identification = ip->id;
	} else {
		struct ipv6hdr *ip = take_ipv6(&c);

		if (!ip)
			return REASON_INVALID_PACKET;
		behind = sizeof(*ip);
		p->ipv6 = 1;
		p->length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
		p->protocol = ip->nexthdr;
		p->class = bpf_ntohl(*(__be32 *)ip) >> 20;
		p->ttl = ip->hop_limit;
		set_v6(&p->key.source, &ip->saddr);
		set_v6(&p->key.destination, &ip->daddr);
		/* Not on the wire: that would be IPv4's addresses by another name. */
		if (is_v4(&p->key.source) || is_v4(&p->key.destination))
			return REASON_INVALID_PACKET;
		if (is_extension(ip->nexthdr)) {
			int bytes = skip_extensions(skb, p, l3 + sizeof(*ip));

			if (bytes < 0 || bytes > EXTENSIONS)
				return REASON_INVALID_PACKET;
			behind += bytes;
		}
	}
	if (p->length < behind || p->length > there)
		return REASON_INVALID_PACKET;
	p->l4 = l3 + behind;
	c = cursor_at(skb, l3 + behind);
	return parse_l4(p, &c, p->length - behind);
}

/*
 * As `parse_ip`, for a packet whose headers may lie outside of the linear part of the skb; the packet is this CPU's. Global, so that the
 * verifier walks through it once.
 */
__attribute__((noinline)) int pull_and_parse_ip(struct __sk_buff *skb, __u32 l3, __u32 type)
{
	struct work *w = work_here();

	if (!w || l3 > MAX_L3 || pull_headers(skb, l3, type))
		return REASON_PULL;
	return parse_ip(skb, &w->packet, l3, type);
}

#endif
