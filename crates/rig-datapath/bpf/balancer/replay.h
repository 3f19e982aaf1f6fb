/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What any one packet costs, for benchmarks. A repeated test run gives the packet as the repetition before left it: longer by an outer
 * header, shorter, rewritten. So each repetition first makes it what it was; `replay_nothing` does no more than that, and
 * is what is taken off.
 */
#ifndef BALANCER_REPLAY_H
#define BALANCER_REPLAY_H

#include "balance.h"

#define REPLAYED 256

struct replay {
	/* Of the frame. */
	__u32 length;
	/* Bytes that the program puts in front of it. */
	__s32 grows;
	/* How many bytes of it are written anew. */
	__u32 written;
	/* Where the client's port is, which becomes another one each time; 0 if it does not. */
	__u32 port_at;
	__u32 runs;
	__u32 pad;
	__u8 frame[REPLAYED];
};
_Static_assert(sizeof(struct replay) == 280, "");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct replay);
} replays SEC(".maps");

/* A function of its own because stack frames add up. */
static __noinline int restore(struct xdp_md *ctx)
{
	__u32 key = 0, port_at, written;
	struct replay *r = bpf_map_lookup_elem(&replays, &key);
	void *data, *end;

	if (!r)
		return 0;
	if (r->runs++ && r->grows && bpf_xdp_adjust_head(ctx, r->grows))
		return 0;

	__s32 lacking = r->length - (__u32)(ctx->data_end - ctx->data);

	if (lacking && bpf_xdp_adjust_tail(ctx, lacking))
		return 0;
	written = r->written;
	if (written < sizeof(struct ethhdr))
		return 0;
	/* Of both in one comparison, which compilers make, Linux 6.1 learns nothing. */
	barrier_var(written);
	if (written > REPLAYED || bpf_xdp_store_bytes(ctx, 0, r->frame, written))
		return 0;
	if (!r->port_at)
		return 1;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	port_at = r->port_at & L4_MASK;
	if (data + port_at + 2 > end)
		return 0;
	*(__be16 *)(data + port_at) = bpf_htons(r->runs);
	return 1;
}

SEC("xdp.frags")
int replay_nothing(struct xdp_md *ctx)
{
	return restore(ctx) ? XDP_PASS : XDP_ABORTED;
}

SEC("xdp.frags")
int replay_forward(struct xdp_md *ctx)
{
	return restore(ctx) ? balance_to(ctx, STAGE_FORWARD) : XDP_ABORTED;
}

#endif
