// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The overlay vRouter: `from_container` on each container's interface, at the node's end of the veth pair, and
 * `from_underlay` on the interfaces that tunnels come by, both where the kernel takes packets in (tc ingress); `sweep` for flows
 * that are silent.
 */
#include "answer.h"
#include "cut.h"
#include "mirror.h"
#include "mss.h"
#include "source.h"
#include "sweep.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* One router further; with what IPv4's checksum of the header makes of that. */
static always_inline void decrement_ttl(struct iphdr *ip)
{
	__u32 check = ip->check + bpf_htons(0x0100);

	ip->check = check + (check >= 0xffff);
	ip->ttl--;
}

/*
 * To a container: its frame is in place but for the addresses of the link. It counts for the sending container, or for the receiving
 * one where the sender is on another node.
 */
static always_inline int deliver(struct __sk_buff *skb, const struct packet *p, const struct next_hop *nh,
				 const struct control *c, struct traffic *sender, int keeps_macs)
{
	struct traffic *t;

	struct ethhdr *ethernet = (void *)(long)skb->data;

	if ((void *)(ethernet + 1) > (void *)(long)skb->data_end)
		return drop(p, nh->number, REASON_PULL);
	set_receiver(ethernet->h_dest, nh);
	if (!keeps_macs)
		set_mac(ethernet->h_source, c->mac);
	/* The kernel has set the packet's type by the destination MAC address that it had before. */
	if (skb->pkt_type)
		bpf_skb_change_type(skb, 0);
	t = count_out(nh->number, skb->len);
	count_hop(sender ?: t, p, keeps_macs ? HOP_L2_ENCAP : HOP_ENCAP);
	/* On the way through the veth pair the kernel reads from the frame what it is. */
	if (skb->protocol != (p->ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP)))
		return bpf_redirect(nh->ifindex, 0);
	return bpf_redirect_peer(nh->ifindex, 0);
}

/* Makes an IP packet of a container go where `to` says. */
static always_inline int forward(struct __sk_buff *skb, struct packet *p, __u32 number, const struct resolution *to,
				 const struct control *c, struct traffic *t)
{
	const struct next_hop *nh = next_hop_at(to->route.next_hop);
	struct ethhdr inner;
	void *data, *end;

	if (!nh)
		return drop(p, number, REASON_INVALID_NH);
	if (nh->kind == TO_GATEWAY) {
		int verdict = answer_echo(skb, p, number, c);

		if (verdict == TC_ACT_REDIRECT)
			count_hop(t, p, HOP_RECEIVE);
		return verdict;
	}
	if (p->is_routed && p->ttl <= 1)
		return send_error(skb, p, number, 0);
	if (nh->kind == TO_TUNNEL && p->tcp_flags & TCP_SYN && on_the_wire(skb, p) <= nh->mtu)
		lower_mss(skb, nh->mtu);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	/* IPv6's is longer, and has been looked at. */
	if (data + ETH_HLEN + sizeof(struct iphdr) > end)
		return drop(p, number, REASON_PULL);
	if (nh->kind == TO_TUNNEL) {
		if (on_the_wire(skb, p) > nh->mtu) {
			if (p->may_fragment && !p->ipv6)
				return cut(skb, number, nh->mtu);
			return send_error(skb, p, number, nh->mtu);
		}
	} else if (nh->kind != TO_INTERFACE) {
		return drop(p, number, REASON_INVALID_NH);
	}
	if (p->is_routed) {
		if (p->ipv6)
			((struct ipv6hdr *)(data + ETH_HLEN))->hop_limit--;
		else
			decrement_ttl(data + ETH_HLEN);
		p->ttl--;
	}
	if (nh->kind == TO_INTERFACE)
		return deliver(skb, p, nh, c, t, !p->is_routed);
	set_mac(inner.h_dest, p->is_routed ? nh->mac : ((struct ethhdr *)data)->h_dest);
	set_mac(inner.h_source, p->is_routed ? c->mac : ((struct ethhdr *)data)->h_source);
	inner.h_proto = p->ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);

	int reason = encapsulate(skb, p, nh, to->route.label, to->tunnel_port, &inner);

	if (reason)
		return drop(p, number, reason);
	count_hop(t, p, HOP_TUNNEL + (nh->encapsulation & 3));

	struct bpf_redir_neigh gateway = { .nh_family = 2, .ipv4_nh = nh->gateway };

	return bpf_redirect_neigh(nh->ifindex, &gateway, sizeof(gateway), 0);
}

/* Whether a next hop leads to an interface here whose packets are held against lists. */
static __attribute__((noinline)) int has_policy(__u32 next_hop)
{
	const struct next_hop *nh = next_hop_at(next_hop);
	const struct interface *to = nh && nh->kind == TO_INTERFACE ? interface_at(nh->number) : 0;

	return to && to->flags & HAS_POLICY;
}

/* Whether two next hops lead to one node in different encapsulations, of which each has labels of its own. */
static __attribute__((noinline)) int lead_to_one_node(__u32 one, __u32 other)
{
	const struct next_hop *a = next_hop_at(one), *b = next_hop_at(other);

	return a && b && a->kind == TO_TUNNEL && b->kind == TO_TUNNEL && a->encapsulation != b->encapsulation &&
	       a->destination == b->destination;
}

SEC("tcx/ingress")
int from_container(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, *known = bpf_map_lookup_elem(&interface_of, &ifindex), number;
	const struct control *c = controls_now();
	const struct interface *at;
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	struct route bridged = {};
	struct traffic *t;
	struct resolution to = {};
	struct ethhdr *ethernet;
	int reason, is_held;
	__be16 type;

	if (!p || !c)
		return TC_ACT_SHOT;
	__builtin_memset(p, 0, sizeof(*p));
	if (!known)
		return drop(p, 0, REASON_INVALID_IF);
	number = *known;
	at = interface_at(number);
	if (!at)
		return drop(p, 0, REASON_INVALID_IF);
	if (is_piece(skb)) {
		reason = become_piece(skb);
		if (reason)
			return drop(p, number, reason);
		p->is_cut = 1;
		t = traffic_of(number);
	} else if (is_copy(skb)) {
		t = traffic_of(number);
	} else {
		t = count_in(number, skb->len);
		check_source(skb, p, number);
	}
	if (pull(skb, ETH_HLEN + sizeof(struct arp)))
		return drop(p, number, REASON_PULL);
	ethernet = (void *)(long)skb->data;
	if ((void *)(ethernet + 1) > (void *)(long)skb->data_end || skb->vlan_present)
		return drop(p, number, REASON_INVALID_PACKET);
	type = ethernet->h_proto;
	if (type == bpf_htons(ETH_P_ARP))
		return p->foreign ? drop(p, number, p->foreign) : answer_arp(skb, p, at, number, c);
	p->is_routed = is_mac(ethernet->h_dest, c->mac);
	if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6)) {
		p->key.source_port = type;
		return drop(p, number, REASON_INVALID_PROTOCOL);
	}
	p->vrf = at->vrf;
	/* Only now, so that the note of a frame from a foreign address says whose packet it was. */
	reason = pull_and_parse_ip(skb, ETH_HLEN, type) ?: p->foreign;
	if (reason)
		return drop(p, number, reason);
	if (p->ipv6 && p->protocol == IPPROTO_ICMPV6 && p->type == 135 && !p->error)
		return answer_solicitation(skb, p, at, number, c);
	reason = is_for_router_alone(p, at->flags & SERVES_DHCP);
	if (reason)
		return drop(p, number, reason);
	if (!p->is_routed) {
		struct mac_key key = { .vrf = at->vrf };
		const struct route *r;

		ethernet = (void *)(long)skb->data;
		if ((void *)(ethernet + 1) > (void *)(long)skb->data_end)
			return drop(p, number, REASON_PULL);
		set_mac(key.mac, ethernet->h_dest);
		r = bpf_map_lookup_elem(&macs, &key);
		if (!r || key.mac[0] & 1) {
			__u32 all = all_of_frame(at->vrf, key.mac);

			return all ? flood(skb, number, all) : drop(p, number, REASON_L2_NO_ROUTE);
		}
		bridged = *r;
	}
	is_held = at->flags & HAS_POLICY;
	if (!is_held) {
		__u32 hash;

		p->key.at = AT(number, p->protocol);
		hash = hash_of_packet(p);
		to.route = bridged;
		reason = p->is_routed ? resolve(at->vrf, &p->key.destination, hash, &to.route) : 0;
		if (reason)
			return drop(p, number, reason);
		to.tunnel_port = tunnel_port(hash);
		is_held = has_policy(to.route.next_hop);
		if (!is_held) {
			struct route back = {};

			/* As of a flow, when it begins. */
			reason = route_back(at, number, &p->key.source, 0, &back);
			if (reason)
				return drop(p, number, reason);
		}
	}
	if (is_held) {
		/* Its flow looks its route up, or knows it. */
		p->passed = 0;
		reason = follow(skb, p, number, 0, c, &to);
		if (reason)
			return drop(p, number, reason);
		/* Rules were looked up by the packet's IP address, for the gateway's none: the frame's MAC address must not lead to another container. */
		if (!p->is_routed && (bridged.next_hop != to.route.next_hop || bridged.label != to.route.label) &&
		    !lead_to_one_node(bridged.next_hop, to.route.next_hop))
			return drop(p, number, REASON_INVALID_NH);
		/* Of what was cut the analyser has the whole. */
		if (to.mirror && !p->is_cut) {
			ethernet = (void *)(long)skb->data;
			if ((void *)(ethernet + 1) > (void *)(long)skb->data_end)
				return drop(p, number, REASON_PULL);

			struct ethhdr frame = *ethernet;

			mirror(skb, ifindex, &to, 0, &frame);
		}
	}
	if (!p->is_routed)
		to.route = bridged;
	return forward(skb, p, number, &to, c, t);
}

SEC("tcx/ingress")
int from_underlay(struct __sk_buff *skb)
{
	const struct control *c = controls_now();
	const struct next_hop *nh = 0;
	const struct interface *to;
	const struct peer *peer;
	struct outer o = {};
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	struct mac_key key = {};
	__be16 type;
	__u32 number, next_hop = 0, *found;
	int reason = 0, keeps_macs = 0;
	struct ethhdr inner;

	if (!p || !c || pull(skb, ETH_HLEN + sizeof(struct over_vxlan) + ETH_HLEN) || !parse_outer(skb, c, &o, &reason))
		return TCX_NEXT;
	__builtin_memset(p, 0, sizeof(*p));
	peer = bpf_map_lookup_elem(&peers, &o.source);
	if (!peer || (peer->comes_by && peer->comes_by != skb->ifindex)) {
		set_v4(&p->key.source, o.source);
		return drop(p, 0, peer ? REASON_PEER_INTERFACE : REASON_NO_PEER);
	}
	if (reason)
		return drop(p, 0, reason);
	if (o.encapsulation == VXLAN) {
		struct ethhdr *frame = (void *)(long)skb->data + ETH_HLEN + sizeof(struct over_vxlan);

		if ((void *)(frame + 1) > (void *)(long)skb->data_end)
			return drop(p, 0, REASON_INVALID_PACKET);
		inner = *frame;
		type = inner.h_proto;
		if (type == bpf_htons(ETH_P_ARP))
			return answer_arp_of_peer(skb, &o, &inner);
		if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6))
			return drop(p, 0, REASON_INVALID_PROTOCOL);
		reason = pull_and_parse_ip(skb, ETH_HLEN + sizeof(struct over_vxlan) + ETH_HLEN, type);
		found = bpf_map_lookup_elem(&vnis, &o.label);
		if (!found)
			return drop(p, 0, REASON_INVALID_VNID);
		nh = next_hop_at(*found);
	} else {
		void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
		__u8 *first = data + ETH_HLEN + (o.encapsulation == MPLS_OVER_GRE ? sizeof(struct mpls_over_gre) :
										    sizeof(struct mpls_over_udp));

		if ((void *)(first + 1) > end)
			return drop(p, 0, REASON_INVALID_PACKET);
		found = bpf_map_lookup_elem(&labels, &o.label);
		nh = found && *found ? next_hop_at(*found) : 0;
		if (nh && nh->kind == TO_ALL) {
			next_hop = *found;
			reason = parse_flooded(skb, &o, next_hop, &inner);
			return reason ? drop(p, 0, reason) : flood_in(skb, &o, &inner, next_hop);
		}
		/* Behind the last label the packet's first bits say whether it is IPv4 or IPv6. */
		type = *first >> 4 == 6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
		reason = parse_behind_label(skb, &o, 0, type);
		/* Only now, so that the note of it says whose packet it was. */
		if (!found || !*found)
			return drop(p, 0, REASON_INVALID_LABEL);
	}
	if (reason)
		return drop(p, 0, reason);
	if (p->l3 + p->length > o.end)
		return drop(p, 0, REASON_INVALID_PACKET);
	next_hop = *found;
	if (o.encapsulation == VXLAN && p->ipv6 && p->protocol == IPPROTO_ICMPV6 && p->type == 135 && !p->error)
		return answer_solicitation_of_peer(skb, &o, &inner, next_hop);
	/* The sender's node checks whether it may serve DHCP. */
	reason = is_for_router_alone(p, 1);
	if (reason)
		return drop(p, 0, reason);
	if (nh && nh->kind == TO_VRF) {
		/* The label is a whole network's. */
		p->vrf = nh->number;
		if (o.encapsulation == VXLAN && !is_mac(inner.h_dest, c->mac)) {
			const struct route *r;

			key.vrf = p->vrf;
			set_mac(key.mac, inner.h_dest);
			r = bpf_map_lookup_elem(&macs, &key);
			if (!r || key.mac[0] & 1) {
				__u32 all = all_of_frame(p->vrf, key.mac);

				return all ? flood_in(skb, &o, &inner, all) : drop(p, 0, REASON_L2_NO_ROUTE);
			}
			next_hop = r->next_hop;
			keeps_macs = 1;
		} else {
			struct route r = {};

			reason = resolve(p->vrf, &p->key.destination, hash_of_packet(p), &r);
			if (reason)
				return drop(p, 0, reason);
			next_hop = r.next_hop;
		}
		nh = next_hop_at(next_hop);
	}
	/* What came by a tunnel never goes on by one. */
	if (!nh || nh->kind != TO_INTERFACE)
		return drop(p, 0, REASON_INVALID_NH);
	number = nh->number;
	to = interface_at(number);
	if (!to)
		return drop(p, 0, REASON_INVALID_IF);
	if (!(to->flags & HAS_POLICY)) {
		struct route back = {};

		reason = route_back(to, number, &p->key.source, o.source, &back);
		if (reason)
			return drop(p, number, reason);
	} else {
		struct resolution own = {};

		reason = follow(skb, p, number, o.source, c, &own);
		if (reason)
			return drop(p, number, reason);
		if (own.mirror) {
			set_receiver(inner.h_dest, nh);
			if (!keeps_macs) {
				set_mac(inner.h_source, c->mac);
				inner.h_proto = type;
			}
			mirror(skb, nh->ifindex, &own, overhead(o.encapsulation), &inner);
		}
	}
	reason = strip(skb, p, overhead(o.encapsulation), type);
	if (!reason && (o.class ^ p->class) & 3)
		reason = mark(skb, p, o.class);
	if (reason)
		return drop(p, number, reason);
	if (keeps_macs) {
		struct ethhdr *ethernet = (void *)(long)skb->data;

		if ((void *)(ethernet + 1) > (void *)(long)skb->data_end)
			return drop(p, number, REASON_PULL);
		set_mac(ethernet->h_dest, inner.h_dest);
		set_mac(ethernet->h_source, inner.h_source);
	}
	return deliver(skb, p, nh, c, 0, keeps_macs);
}

/*
 * A filter behind the others: what comes from a container while there is no router. Interfaces that come while the router runs have nothing
 * before it, and it leads to the router's program. Of the kind of that, or the kernel does not take that into the array.
 */
SEC("tcx/ingress")
int closed(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &router_program, 0);
	return TC_ACT_SHOT;
}
