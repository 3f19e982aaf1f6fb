/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a hot packet costs, for benchmarks. A repeated test run gives the packet as the repetition before left it: longer or shorter by an
 * outer header, one router further. `replay` first makes it what it was, and then calls the program that is measured, or
 * `nothing`. Making room and taking it away again is part of no program's own cost: `replay_room` does both and no more.
 */
#ifndef VROUTER_REPLAY_H
#define VROUTER_REPLAY_H

#include "tunnel.h"

#define REPLAYED 96

struct replay {
	/* Bytes that the program puts behind the Ethernet header; below 0, that it takes away from there. */
	__s32 grows;
	/* How many bytes of the frame are written anew. */
	__u32 written;
	__u32 runs;
	/* Where the source port is, which becomes another one each time; 0 if it does not. */
	__u32 port_at;
	__u8 frame[REPLAYED];
};
_Static_assert(sizeof(struct replay) == 112, "");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct replay);
} replays SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} replayed SEC(".maps");

static always_inline struct replay *replay_now(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&replays, &zero);
}

static always_inline int make_room(struct __sk_buff *skb, __s32 bytes)
{
	return bytes && bpf_skb_adjust_room(skb, bytes, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
}

static always_inline int rewrite(struct __sk_buff *skb, const struct replay *r)
{
	__u32 written = r->written;
	__be16 port = bpf_htons(r->runs);

	if (written < ETH_HLEN || written > REPLAYED || bpf_skb_store_bytes(skb, 0, r->frame, written, 0))
		return 1;
	return r->port_at && bpf_skb_store_bytes(skb, r->port_at, &port, sizeof(port), 0);
}

/* What it takes to run a program at all, to compare with. */
SEC("tcx/ingress")
int nothing(struct __sk_buff *skb)
{
	return TCX_NEXT;
}

SEC("tcx/ingress")
int replay(struct __sk_buff *skb)
{
	struct replay *r = replay_now();

	if (!r || (r->runs++ && make_room(skb, -r->grows)) || rewrite(skb, r))
		return TC_ACT_SHOT;
	bpf_tail_call(skb, &replayed, 0);
	return TC_ACT_SHOT;
}

SEC("tcx/ingress")
int replay_room(struct __sk_buff *skb)
{
	struct replay *r = replay_now();

	if (!r)
		return TC_ACT_SHOT;
	r->runs++;
	if (make_room(skb, r->grows) || make_room(skb, -r->grows) || rewrite(skb, r))
		return TC_ACT_SHOT;
	bpf_tail_call(skb, &replayed, 0);
	return TC_ACT_SHOT;
}

#endif
