/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What each stage of the packet path costs, for benchmarks. A repeated test run does not give the packet back as it was, so each
 * program first writes the headers anew; `stage_headers` does nothing else, and is what the others are compared with.
 */
#ifndef BALANCER_STAGES_H
#define BALANCER_STAGES_H

#include "balance.h"

#define HEADER_BYTES 54

struct stage_input {
	__u64 next;
	/* Flows less one, a power of two less one; the nth is that of n times the stride. */
	__u64 flow_mask;
	__u64 stride;
	/* First flow's client, in host byte order. */
	__u32 client;
	/* Not 0: packets are the replies of backends that `replies` has, in its order. */
	__u32 replies;
	__u8 headers[56];
};
_Static_assert(sizeof(struct stage_input) == 88, "");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stage_input);
} stage_inputs SEC(".maps");

/* As in the headers. */
struct reply {
	__u8 addresses[8], ports[4];
};
_Static_assert(sizeof(struct reply) == 12, "");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reply);
} replies SEC(".maps");

#define PORTS_PER_CLIENT_SHIFT 14
#define FIRST_PORT 16384

static always_inline int write_headers(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 key = 0;
	struct stage_input *l = bpf_map_lookup_elem(&stage_inputs, &key);
	__u64 flow;

	if (!l || data + HEADER_BYTES > end)
		return 0;
	__builtin_memcpy(data, l->headers, HEADER_BYTES);
	if (!l->flow_mask)
		return 1;
	if (l->replies) {
		struct reply *reply;

		key = l->next++ & l->flow_mask;
		reply = bpf_map_lookup_elem(&replies, &key);
		if (!reply)
			return 0;
		__builtin_memcpy(data + 26, reply->addresses, 8);
		__builtin_memcpy(data + 34, reply->ports, 4);
		return 1;
	}
	flow = l->next * l->stride & l->flow_mask;
	l->next++;
	*(__be32 *)(data + 26) = bpf_htonl(l->client + (flow >> PORTS_PER_CLIENT_SHIFT));
	*(__be16 *)(data + 34) = bpf_htons(FIRST_PORT + (flow & ((1 << PORTS_PER_CLIENT_SHIFT) - 1)));
	return 1;
}

SEC("xdp.frags")
int stage_empty(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp.frags")
int stage_headers(struct xdp_md *ctx)
{
	return write_headers(ctx) ? XDP_PASS : XDP_ABORTED;
}

SEC("xdp.frags")
int stage_parse(struct xdp_md *ctx)
{
	return write_headers(ctx) ? balance_to(ctx, STAGE_PARSE) : XDP_ABORTED;
}

SEC("xdp.frags")
int stage_lookup(struct xdp_md *ctx)
{
	return write_headers(ctx) ? balance_to(ctx, STAGE_LOOKUP) : XDP_ABORTED;
}

SEC("xdp.frags")
int stage_forward(struct xdp_md *ctx)
{
	return write_headers(ctx) ? balance_to(ctx, STAGE_FORWARD) : XDP_ABORTED;
}

#endif
