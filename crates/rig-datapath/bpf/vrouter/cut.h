/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * IPv4 packets that are larger than a tunnel takes, and that routers may cut into pieces (RFC 791, 3.2). Each piece is a copy of the
 * packet that comes in by the same interface once more, is cut there, and goes its way as any piece that a container has sent.
 */
#ifndef VROUTER_CUT_H
#define VROUTER_CUT_H

#include <stddef.h>

#include "flood.h"
#define CHUNKS_OF_TC
#include "lib/chunks.h"

/* Of a packet's mark: which piece of it this copy becomes, and how many times 8 bytes all but the last have. */
#define PIECE_MARK 0xfe000000U
#define PIECE_MARKED 0xff000000U
#define PIECE_SHIFT 16
/* As a packet of 64 KiB has through the smallest underlay. */
#define MOST_PIECES 128
/* Pieces of an interface's packets at a time; as many a second as copies. The other half of the CPU's backlog is for other senders. */
#define PIECES_AT_ONCE 500
/* bpf_skb_adjust_room takes away as much at a time. */
#define MOST_ROOM 0xff8
#define MORE_FRAGMENTS 0x2000

static always_inline int is_piece(const struct __sk_buff *skb)
{
	return (skb->mark & PIECE_MARKED) == PIECE_MARK;
}

/*
 * A checksum that the kernel would have made when the packet left (CHECKSUM_PARTIAL: there is the pseudo header's sum so far) is made
 * now, for pieces have none of their own.
 */
static __attribute__((noinline)) int finish_checksum(struct __sk_buff *skb, const struct packet *p)
{
	__u32 l4 = ETH_HLEN + sizeof(struct iphdr), length = p->length - sizeof(struct iphdr);
	__u32 at = l4 + (p->protocol == IPPROTO_UDP ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check));
	__u64 pseudo = (__u64)v4_of(&p->key.source) + v4_of(&p->key.destination) + bpf_htons(p->protocol) + bpf_htons(length);
	__u16 check;
	__s64 sum;

	if (bpf_skb_load_bytes(skb, at, &check, sizeof(check)))
		return REASON_PULL;
	/* One that is made already may be that, too, and is then made once more as it was. */
	if (check != fold(pseudo))
		return 0;
	sum = sum_bytes(skb, l4, length);
	if (sum < 0)
		return REASON_PULL;
	check = ~fold(sum);
	if (!check && p->protocol == IPPROTO_UDP)
		check = 0xffff;
	return bpf_skb_store_bytes(skb, at, &check, sizeof(check), 0) ? REASON_PULL : 0;
}

/*
 * Has the kernel forget that a checksum is still to be made: it does where the place that it begins at is taken away
 * (skb_postpull_rcsum in include/linux/skbuff.h). What stood there is put back.
 */
static __attribute__((noinline)) int forget_checksum(struct __sk_buff *skb)
{
	__u8 bytes[64];

	if (bpf_skb_load_bytes(skb, ETH_HLEN, bytes, sizeof(bytes)) ||
	    bpf_skb_adjust_room(skb, -(__s32)sizeof(bytes), BPF_ADJ_ROOM_MAC, 0) ||
	    bpf_skb_adjust_room(skb, sizeof(bytes), BPF_ADJ_ROOM_MAC, 0))
		return REASON_PUSH;
	return bpf_skb_store_bytes(skb, ETH_HLEN, bytes, sizeof(bytes), 0) ? REASON_PUSH : 0;
}

/* Makes copies of a packet that become its pieces, each no longer than the tunnel takes; the packet itself is the last of them. */
static __attribute__((noinline)) int cut(struct __sk_buff *skb, __u32 number, __u32 mtu)
{
	struct work *w = work_here();
	struct packet *p = w ? &w->packet : 0;
	__u32 data, eights, count, mark, ifindex = skb->ifindex;
	struct flow *f;
	int reason = 0;

	if (!p)
		return TC_ACT_SHOT;
	/* Options would have to be copied, or not, each by its kind. */
	if (p->l4 != ETH_HLEN + sizeof(struct iphdr) || skb->gso_segs > 1 || mtu < sizeof(struct iphdr) + 8 ||
	    p->length > LARGEST)
		return drop(p, number, REASON_TOO_BIG);
	/* Its checksum (CRC32c, RFC 9260) may be left to the device; whether it is cannot be seen, nor can it be made here. */
	if (p->protocol == IPPROTO_SCTP && !p->fragment && !p->error)
		return drop(p, number, REASON_TOO_BIG);
	data = p->length - sizeof(struct iphdr);
	eights = (mtu - sizeof(struct iphdr)) / 8;
	if (!eights || eights > 0xffff)
		return drop(p, number, REASON_TOO_BIG);
	count = (data + 8 * eights - 1) / (8 * eights);
	if (count > MOST_PIECES)
		return drop(p, number, REASON_TOO_BIG);
	if (!may_copy(bpf_map_lookup_elem(&cutting, &number), count, PIECES_AT_ONCE))
		return drop(p, number, REASON_MANY_PIECES);
	if (!p->fragment && !p->error && (p->protocol == IPPROTO_UDP || p->protocol == IPPROTO_TCP))
		reason = finish_checksum(skb, p);
	if (!reason)
		reason = forget_checksum(skb);
	if (reason)
		return drop(p, number, reason);
	/* The flow counts each piece, in place of the packet's segments. */
	f = bpf_map_lookup_elem(&flows, &p->key);
	if (f && p->segments) {
		sum_up(&f->packets, -(__s64)p->segments);
		sum_up(&f->bytes, -(__s64)p->length);
	}
	mark = PIECE_MARK | eights;
	for (__u32 i = 0; i + 1 < count && i < MOST_PIECES; i++) {
		skb->mark = mark | i << PIECE_SHIFT;
		if (bpf_clone_redirect(skb, ifindex, BPF_F_INGRESS)) {
			skb->mark = 0;
			return drop(p, number, REASON_CLONE);
		}
	}
	skb->mark = mark | (count - 1) << PIECE_SHIFT;
	/* Behind the others, which the kernel has not looked at yet. */
	return bpf_redirect(ifindex, BPF_F_INGRESS);
}

/* Makes a copy the piece that its mark says; 0, or a reason for a drop. */
static __attribute__((noinline)) int become_piece(struct __sk_buff *skb)
{
	__u32 mark = skb->mark, piece = (mark >> PIECE_SHIFT) & 0xff, eights = mark & 0xffff;
	__u32 from = piece * eights * 8, bytes = eights * 8, data, more, left;
	struct iphdr ip;
	__u16 fragment;

	skb->mark = 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)) || *(__u8 *)&ip != 0x45)
		return REASON_INVALID_PACKET;
	data = bpf_ntohs(ip.tot_len) - sizeof(ip);
	if (from >= data || data > 0xffff)
		return REASON_INVALID_PACKET;
	more = data - from > bytes;
	if (!more)
		bytes = data - from;
	if (bpf_skb_change_tail(skb, ETH_HLEN + sizeof(ip) + from + bytes, 0))
		return REASON_PULL;
	left = from;
	for (int i = 0; i < 17 && left; i++) {
		__s32 away = left > MOST_ROOM ? MOST_ROOM : left;

		if (bpf_skb_adjust_room(skb, -away, BPF_ADJ_ROOM_NET, 0))
			return REASON_PULL;
		left -= away;
	}
	fragment = bpf_ntohs(ip.frag_off);
	if ((fragment & 0x1fff) + from / 8 > 0x1fff)
		return REASON_INVALID_PACKET;
	fragment += from / 8;
	if (more)
		fragment |= MORE_FRAGMENTS;
	ip.frag_off = bpf_htons(fragment);
	ip.tot_len = bpf_htons(sizeof(ip) + bytes);
	ip.check = 0;
	ip.check = ~fold((__u64)(__u32)bpf_csum_diff(0, 0, (__be32 *)&ip, sizeof(ip), 0));
	return bpf_skb_store_bytes(skb, ETH_HLEN, &ip, sizeof(ip), 0) ? REASON_PULL : 0;
}

#endif
