/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * MPLS over UDP (RFC 7510), MPLS over GRE (RFC 4023), VXLAN (RFC 7348), each over IPv4. Behind a label of MPLS is an IP packet, or,
 * where it is a network's for frames to all, an Ethernet frame without a control word (RFC 7432, 11.2 and 18).
 *
 * What the kernel still has to do to a packet, cutting it into segments and making its checksums, it does behind the
 * encapsulation: the packet says where its inner headers are, and stays one on the way to the other node.
 */
#ifndef VROUTER_TUNNEL_H
#define VROUTER_TUNNEL_H

#include "flow.h"

#define MPLS_PORT 6635
#define VXLAN_PORT 4789
#define ETH_MPLS 0x8847
#define OUTER_TTL 64
#define BOTTOM_OF_STACK 0x100
#define VNI_VALID 0x08000000

struct gre {
	__be16 flags, protocol;
};

struct vxlan {
	__be32 flags, vni;
};

/* Behind the outer Ethernet header. */
struct over_udp {
	struct iphdr ip;
	struct udphdr udp;
};

struct mpls_over_udp {
	struct over_udp outer;
	__be32 label;
};

struct mpls_over_gre {
	struct iphdr ip;
	struct gre gre;
	__be32 label;
};

/* The inner Ethernet header follows. */
struct over_vxlan {
	struct over_udp outer;
	struct vxlan vxlan;
};

/* No router may fragment it: so the identification, which would have to differ, is 0 (RFC 6864, 4.1). */
static always_inline void write_ip(struct iphdr *ip, const struct next_hop *nh, __u8 class, __u8 protocol, __u32 length)
{
	__u64 sum;

	*(__u8 *)ip = 0x45;
	/* DSCP as the inner packet's (RFC 2983), and ECN (RFC 6040, normal mode). */
	ip->tos = class;
	ip->tot_len = bpf_htons(length);
	ip->id = 0;
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = OUTER_TTL;
	ip->protocol = protocol;
	ip->check = 0;
	ip->saddr = nh->source;
	ip->daddr = nh->destination;
	sum = bpf_htons(0x4500 | class) + (__u64)ip->tot_len + bpf_htons(0x4000) +
	      bpf_htons(OUTER_TTL << 8 | protocol) + ip->saddr + ip->daddr;
	ip->check = ~fold(sum);
}

static always_inline void write_udp(struct udphdr *udp, __u16 source, __u16 destination, __u32 length)
{
	udp->source = bpf_htons(source);
	udp->dest = bpf_htons(destination);
	udp->len = bpf_htons(length);
	/* RFC 7510, 3.1 and RFC 7348, 5: none over IPv4. */
	udp->check = 0;
}

#define GROWN (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4)

/* Flags that room is made with: all, but where a benchmark wraps one packet again and again (bench.bpf.c). */
#ifndef ROOM_FLAGS
#define ROOM_FLAGS(flags) (flags)
#endif

/* Room for an outer header of `bytes` behind the Ethernet header, which becomes the outer one; 0 where there is none. */
static always_inline void *grow(struct __sk_buff *skb, __u32 bytes, __u64 flags)
{
	struct ethhdr *ethernet;

	if (bpf_skb_adjust_room(skb, bytes, BPF_ADJ_ROOM_MAC, ROOM_FLAGS(GROWN | flags)))
		return 0;
	ethernet = (void *)(long)skb->data;
	if ((void *)ethernet + ETH_HLEN + bytes > (void *)(long)skb->data_end)
		return 0;
	ethernet->h_proto = bpf_htons(ETH_P_IP);
	return ethernet + 1;
}

/* Into VXLAN, with `inner` for an Ethernet header. */
static always_inline int into_vxlan(struct __sk_buff *skb, const struct packet *p, const struct next_hop *nh, __u32 label,
				    __u16 port, const struct ethhdr *inner)
{
	/* The kernel looks for the inner frame there when it checks what is to be cut; VXLAN's header is in front of it. */
	struct over_vxlan *v =
		grow(skb, sizeof(*v) + ETH_HLEN,
		     BPF_F_ADJ_ROOM_ENCAP_L4_UDP | ENCAPSULATES_FRAMES | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN));
	__u32 length = p->length + sizeof(*v) + ETH_HLEN;

	if (!v)
		return REASON_PUSH;
	write_ip(&v->outer.ip, nh, p->class, IPPROTO_UDP, length);
	write_udp(&v->outer.udp, port, VXLAN_PORT, length - sizeof(struct iphdr));
	v->vxlan.flags = bpf_htonl(VNI_VALID);
	v->vxlan.vni = bpf_htonl(label << 8);
	__builtin_memcpy(v + 1, inner, ETH_HLEN);
	return 0;
}

/*
 * Wraps an IP packet, or the Ethernet frame that it is in where `is_frame`; `inner` is the Ethernet header of either, for VXLAN
 * and frames. `is_frame` is a constant at each call, so that only its own part is left there.
 *
 * The time to live in front of a frame is not the packet's: a packet to a group of the link has 1, and a router that takes off a
 * label that has run out has to drop what is behind it (RFC 3032, 2.4.2).
 */
static always_inline int wrap(struct __sk_buff *skb, const struct packet *p, const struct next_hop *nh, __u32 label, __u16 port,
			      const struct ethhdr *inner, int is_frame)
{
	const __u32 ethernet = is_frame ? ETH_HLEN : 0;
	/* The kernel looks for what it has to cut behind these; of a frame where VXLAN's is. */
	const __u64 between = is_frame ? ENCAPSULATES_FRAMES | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN) :
					 BPF_F_ADJ_ROOM_ENCAP_L2(sizeof(__be32));
	__be32 entry = bpf_htonl(label << 12 | BOTTOM_OF_STACK | (is_frame ? OUTER_TTL : p->ttl));
	__u32 length = p->length + ethernet;

	if (nh->encapsulation == MPLS_OVER_UDP) {
		struct mpls_over_udp *m = grow(skb, sizeof(*m) + ethernet, BPF_F_ADJ_ROOM_ENCAP_L4_UDP | between);

		if (!m)
			return REASON_PUSH;
		length += sizeof(*m);
		write_ip(&m->outer.ip, nh, p->class, IPPROTO_UDP, length);
		write_udp(&m->outer.udp, port, MPLS_PORT, length - sizeof(struct iphdr));
		m->label = entry;
		if (is_frame)
			__builtin_memcpy(m + 1, inner, ETH_HLEN);
		return 0;
	}
	if (nh->encapsulation == VXLAN)
		return into_vxlan(skb, p, nh, label, port, inner);
	if (nh->encapsulation == MPLS_OVER_GRE) {
		struct mpls_over_gre *m = grow(skb, sizeof(*m) + ethernet, BPF_F_ADJ_ROOM_ENCAP_L4_GRE | between);

		if (!m)
			return REASON_PUSH;
		length += sizeof(*m);
		write_ip(&m->ip, nh, p->class, IPPROTO_GRE, length);
		m->gre.flags = 0;
		m->gre.protocol = bpf_htons(ETH_MPLS);
		m->label = entry;
		if (is_frame)
			__builtin_memcpy(m + 1, inner, ETH_HLEN);
		return 0;
	}
	return REASON_INVALID_NH;
}

static always_inline int encapsulate(struct __sk_buff *skb, const struct packet *p, const struct next_hop *nh, __u32 label,
				     __u16 port, const struct ethhdr *inner)
{
	return wrap(skb, p, nh, label, port, inner, 0);
}

static always_inline int encapsulate_frame(struct __sk_buff *skb, const struct packet *p, const struct next_hop *nh, __u32 label,
					   __u16 port, const struct ethhdr *inner)
{
	return wrap(skb, p, nh, label, port, inner, 1);
}

/* What a packet from the underlay has in front of the inner one. */
struct outer {
	__u32 source;
	__u32 label;
	/* Where it ends, by its own headers: what is behind is the link's padding. */
	__u32 end;
	__u8 encapsulation;
	__u8 class;
};

/* Whether it is a tunnel's for this router; otherwise it is the host's own. Its defects are `reason`. */
static always_inline int parse_outer(struct __sk_buff *skb, const struct control *c, struct outer *o, int *reason)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *ethernet = data;
	struct over_udp *outer = (void *)(ethernet + 1);
	__be32 *label = 0;

	if ((void *)(&outer->ip + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP) ||
	    outer->ip.daddr != c->address || *(__u8 *)&outer->ip != 0x45)
		return 0;
	o->source = outer->ip.saddr;
	o->class = outer->ip.tos;
	o->end = ETH_HLEN + bpf_ntohs(outer->ip.tot_len);
	if (outer->ip.protocol == IPPROTO_GRE) {
		struct mpls_over_gre *m = (void *)outer;

		if ((void *)(m + 1) > end || m->gre.flags || m->gre.protocol != bpf_htons(ETH_MPLS))
			return 0;
		o->encapsulation = MPLS_OVER_GRE;
		label = &m->label;
	} else if (outer->ip.protocol == IPPROTO_UDP) {
		__u32 udp_end;

		if ((void *)(outer + 1) > end)
			return 0;
		udp_end = ETH_HLEN + sizeof(struct iphdr) + bpf_ntohs(outer->udp.len);
		if (o->end > udp_end)
			o->end = udp_end;
		if (outer->udp.dest == bpf_htons(MPLS_PORT)) {
			struct mpls_over_udp *m = (void *)outer;

			o->encapsulation = MPLS_OVER_UDP;
			if ((void *)(m + 1) > end)
				*reason = REASON_INVALID_PACKET;
			else
				label = &m->label;
		} else if (outer->udp.dest == bpf_htons(VXLAN_PORT)) {
			struct over_vxlan *v = (void *)outer;

			o->encapsulation = VXLAN;
			if ((void *)(v + 1) + ETH_HLEN > end) {
				*reason = REASON_INVALID_PACKET;
			} else {
				o->label = bpf_ntohl(v->vxlan.vni) >> 8;
				if (!(v->vxlan.flags & bpf_htonl(VNI_VALID)))
					*reason = REASON_INVALID_VNID;
			}
		} else {
			return 0;
		}
	} else {
		return 0;
	}
	if (outer->ip.frag_off & bpf_htons(0x3fff))
		*reason = REASON_FRAGMENTS;
	if (label) {
		__u32 entry = bpf_ntohl(*label);

		/* One label: the router that has assigned it expects no other in front. */
		if (!(entry & BOTTOM_OF_STACK) && !*reason)
			*reason = REASON_INVALID_LABEL;
		o->label = entry >> 12;
	}
	return 1;
}

/* RFC 6040, 4.2: what the inner packet's ECN becomes, or -1 where it must not go on. */
static always_inline int ecn_of(__u8 inner, __u8 outer)
{
	inner &= 3;
	outer &= 3;
	if (outer == 3)
		return inner ? 3 : -1;
	return outer == 1 && inner == 2 ? 1 : inner;
}

/* Linux 6.2; older headers do not have them. */
#define DECAP_L3_IPV4 (1ULL << 7)
#define DECAP_L3_IPV6 (1ULL << 8)

/* Bytes between the outer Ethernet header and the inner IP header. */
static always_inline __u32 overhead(__u8 encapsulation)
{
	switch (encapsulation) {
	case MPLS_OVER_UDP:
		return sizeof(struct mpls_over_udp);
	case MPLS_OVER_GRE:
		return sizeof(struct mpls_over_gre);
	default:
		return sizeof(struct over_vxlan) + ETH_HLEN;
	}
}

/* As `overhead`, where the tunnel carries an Ethernet frame of any protocol. */
static always_inline __u32 overhead_of_frame(__u8 encapsulation)
{
	return overhead(encapsulation) + (encapsulation == VXLAN ? 0 : ETH_HLEN);
}

/* The IP packet behind a label, or behind the Ethernet header of so many bytes that follows it; 0 or a reason for a drop. */
static always_inline int parse_behind_label(struct __sk_buff *skb, const struct outer *o, __u32 ethernet, __be16 type)
{
	return pull_and_parse_ip(skb, ETH_HLEN + overhead(o->encapsulation) + ethernet, type);
}

/* Takes away so many bytes in front of the inner IP header, all but one Ethernet header. */
static always_inline int strip(struct __sk_buff *skb, const struct packet *p, __s32 bytes, __be16 type)
{
	struct ethhdr *ethernet;

	/* A kernel that does not know the flags takes them for a mistake; then the packet's protocol stays the outer one's. */
	if (bpf_skb_adjust_room(skb, -bytes, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_FIXED_GSO | (p->ipv6 ? DECAP_L3_IPV6 : DECAP_L3_IPV4)) &&
	    bpf_skb_adjust_room(skb, -bytes, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO))
		return REASON_PULL;
	ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) > (void *)(long)skb->data_end)
		return REASON_PULL;
	ethernet->h_proto = type;
	return 0;
}

/* Congestion that the underlay has marked goes on inside; 0, or a reason for a drop. */
static __attribute__((noinline)) int mark(struct __sk_buff *skb, struct packet *p, __u32 class)
{
	int ecn = ecn_of(p->class, class);
	__u8 marked;

	if (ecn < 0)
		return REASON_ECN;
	marked = (p->class & ~3) | ecn;
	if (marked == p->class)
		return 0;
	if (p->ipv6) {
		__u8 word[2];

		if (bpf_skb_load_bytes(skb, ETH_HLEN, word, 2))
			return REASON_PULL;
		word[0] = 0x60 | marked >> 4;
		word[1] = (word[1] & 0x0f) | marked << 4;
		return bpf_skb_store_bytes(skb, ETH_HLEN, word, 2, BPF_F_RECOMPUTE_CSUM) ? REASON_PULL : 0;
	}
	struct iphdr *ip = (void *)(long)skb->data + ETH_HLEN;

	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return REASON_PULL;
	ip->check = exchanged(ip->check, bpf_htons(0x4500 | p->class) & bpf_htons(0xff),
			      bpf_htons(0x4500 | marked) & bpf_htons(0xff));
	ip->tos = marked;
	return 0;
}

#endif
