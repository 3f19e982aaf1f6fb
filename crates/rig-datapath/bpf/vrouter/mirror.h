/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Copies of packets for analysers: the frame as the container has sent it, or as it gets it, in VXLAN (RFC 7348).
 *
 * A clone is sent to the container's own interface, where `to_analyser` takes it before it is out, wraps it and sends it on. Where that
 * program is missing the clone comes to a container that has it already, and goes nowhere else. All of it is done before the
 * original goes on, and losing the clone does not change the original.
 */
#ifndef VROUTER_MIRROR_H
#define VROUTER_MIRROR_H

#include "tunnel.h"

/* In front of the frame's IP header, behind the outer Ethernet header. */
#define COPY_HEADER (sizeof(struct over_vxlan) + ETH_HLEN)

static always_inline struct mirror_count *mirrored_of(__u32 analyser)
{
	return bpf_map_lookup_elem(&mirrored, &analyser);
}

static always_inline void count_failed(__u32 analyser)
{
	struct mirror_count *c = mirrored_of(analyser);

	if (c)
		c->failed++;
}

/*
 * Sends a copy of the packet, which has `outer` bytes of a tunnel's header and is the interface's with the kernel's number
 * `ifindex`. Pointers into the packet are void behind it.
 */
static __attribute__((noinline)) int mirror(struct __sk_buff *skb, __u32 ifindex, const struct resolution *to, __u32 outer,
					    const struct ethhdr *frame)
{
	__u32 number = to->mirror;
	const struct analyser *a = bpf_map_lookup_elem(&analysers, &number);
	struct work *w = work_here();

	if (!w)
		return 0;
	w->copy.analyser = number;
	w->copy.outer = outer;
	w->copy.port = to->tunnel_port;
	w->copy.is_single = outer == sizeof(struct mpls_over_gre);
	w->copy.frame = *frame;
	if (a && a->next_hop.ifindex)
		bpf_clone_redirect(skb, ifindex, 0);
	/* `to_analyser` has not taken it. */
	if (w->copy.analyser)
		count_failed(number);
	w->copy.analyser = 0;
	return 0;
}

/*
 * Room for the outer header in front of a copy's IP header. Segments that would be too large in it become smaller ones, where they
 * are TCP's; other packets are cut to one that fits. That the kernel refuses for packets that eBPF on another machine has wrapped.
 * Returns how many bytes of the IP packet the copy has, below 0 where there is no copy.
 */
static always_inline __s32 fit(struct __sk_buff *skb, const struct analyser *a, const struct work *w)
{
	const struct packet *p = &w->packet;
	__u32 outer = w->copy.outer, length = p->length, most = a->next_hop.mtu - COPY_HEADER;
	__u64 encapsulates = outer ? 0 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP |
						 ENCAPSULATES_FRAMES | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_HLEN);
	__u32 wire = length;

	if (a->next_hop.mtu <= COPY_HEADER + sizeof(struct ipv6hdr) + sizeof(struct tcphdr))
		return -1;
	if (skb->gso_size && !w->copy.is_single && length + COPY_HEADER <= 0xffff) {
		wire = p->l4 - p->l3 + p->header + skb->gso_size;
		if (wire > most && outer < COPY_HEADER && wire - most <= COPY_HEADER - outer && p->protocol == IPPROTO_TCP)
			return bpf_skb_adjust_room(skb, COPY_HEADER - outer, BPF_ADJ_ROOM_MAC, encapsulates) ? -1 :
													       (__s32)length;
	} else if (skb->gso_size) {
		wire = 0x10000;
	}
	if (wire > most) {
		if (length > most)
			length = most;
		if (bpf_skb_change_tail(skb, ETH_HLEN + outer + length, 0))
			return -1;
	}
	if (outer == COPY_HEADER)
		return length;
	return bpf_skb_adjust_room(skb, COPY_HEADER - outer, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO | encapsulates) ?
		       -1 :
		       (__s32)length;
}

SEC("tcx/egress")
int to_analyser(struct __sk_buff *skb)
{
	struct work *w = work_here();
	__u32 number = w ? w->copy.analyser : 0;
	const struct analyser *a;
	struct over_vxlan *header;
	struct ethhdr *ethernet, *inner;
	struct mirror_count *c;
	__s32 length;

	/* What the kernel itself sends to the container. */
	if (!number)
		return TCX_NEXT;
	w->copy.analyser = 0;
	a = bpf_map_lookup_elem(&analysers, &number);
	c = mirrored_of(number);
	if (!a || !c)
		return TC_ACT_SHOT;
	length = fit(skb, a, w);
	ethernet = (void *)(long)skb->data;
	header = (void *)(ethernet + 1);
	inner = (void *)(header + 1);
	if (length < 0 || (void *)(inner + 1) > (void *)(long)skb->data_end) {
		c->failed++;
		return TC_ACT_SHOT;
	}
	c->packets++;
	c->bytes += length + ETH_HLEN;
	c->cut += (__u32)length < w->packet.length;
	ethernet->h_proto = bpf_htons(ETH_P_IP);
	/* The address that it had may be one of a group's. */
	set_mac(ethernet->h_dest, ethernet->h_source);
	write_ip(&header->outer.ip, &a->next_hop, w->packet.class & ~3, IPPROTO_UDP, length + COPY_HEADER);
	write_udp(&header->outer.udp, w->copy.port, bpf_ntohs(a->port), length + COPY_HEADER - sizeof(struct iphdr));
	header->vxlan.flags = bpf_htonl(VNI_VALID);
	header->vxlan.vni = bpf_htonl(a->vni << 8);
	*inner = w->copy.frame;

	struct bpf_redir_neigh gateway = { .nh_family = 2, .ipv4_nh = a->next_hop.gateway };

	return bpf_redirect_neigh(a->next_hop.ifindex, &gateway, sizeof(gateway), 0);
}

#endif
