/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What each step of a packet's way costs. A repeated test run does not give the packet back as it was, so each rung
 * first writes the headers anew; the lowest rung does nothing else, and is what the others are compared with.
 */
#ifndef BALANCER_LADDER_H
#define BALANCER_LADDER_H

#include "balance.h"

#define LADDER_HEADERS 54

struct ladder {
	__u64 next;
	/* Flows less one, a power of two less one; the nth in an order that jumps about. */
	__u64 flow_mask;
	__u64 stride;
	/* First flow's client, in host byte order. */
	__u32 client;
	/* Not 0: packets are those of backends that `answers` has, in its order. */
	__u32 answers;
	__u8 headers[56];
};
_Static_assert(sizeof(struct ladder) == 88, "");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ladder);
} ladders SEC(".maps");

/* As in the headers. */
struct answer {
	__u8 addresses[8], ports[4];
};
_Static_assert(sizeof(struct answer) == 12, "");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

#define PORTS_PER_CLIENT_SHIFT 14
#define FIRST_PORT 16384

static always_inline int write_headers(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 key = 0;
	struct ladder *l = bpf_map_lookup_elem(&ladders, &key);
	__u64 flow;

	if (!l || data + LADDER_HEADERS > end)
		return 0;
	__builtin_memcpy(data, l->headers, LADDER_HEADERS);
	if (!l->flow_mask)
		return 1;
	if (l->answers) {
		struct answer *answer;

		key = l->next++ & l->flow_mask;
		answer = bpf_map_lookup_elem(&answers, &key);
		if (!answer)
			return 0;
		__builtin_memcpy(data + 26, answer->addresses, 8);
		__builtin_memcpy(data + 34, answer->ports, 4);
		return 1;
	}
	flow = l->next * l->stride & l->flow_mask;
	l->next++;
	*(__be32 *)(data + 26) = bpf_htonl(l->client + (flow >> PORTS_PER_CLIENT_SHIFT));
	*(__be16 *)(data + 34) = bpf_htons(FIRST_PORT + (flow & ((1 << PORTS_PER_CLIENT_SHIFT) - 1)));
	return 1;
}

SEC("xdp.frags")
int ladder_empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp.frags")
int ladder_headers(struct xdp_md *ctx)
{
	return write_headers(ctx) ? XDP_PASS : XDP_ABORTED;
}

SEC("xdp.frags")
int ladder_parse(struct xdp_md *ctx)
{
	return write_headers(ctx) ? balance_to(ctx, PARSED) : XDP_ABORTED;
}

SEC("xdp.frags")
int ladder_find(struct xdp_md *ctx)
{
	return write_headers(ctx) ? balance_to(ctx, FOUND) : XDP_ABORTED;
}

SEC("xdp.frags")
int ladder_through(struct xdp_md *ctx)
{
	return write_headers(ctx) ? balance_to(ctx, THROUGH) : XDP_ABORTED;
}

#endif
