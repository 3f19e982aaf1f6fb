/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The sum over bytes of a frame: of XDP, or of tc where CHUNKS_OF_TC is defined before. */
#ifndef LIB_CHUNKS_H
#define LIB_CHUNKS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifdef CHUNKS_OF_TC
typedef struct __sk_buff frame_context;
#define load_bytes bpf_skb_load_bytes
#else
typedef struct xdp_md frame_context;
#define load_bytes bpf_xdp_load_bytes
#endif

/* Where the rest of a packet is summed up, a chunk at a time. */
#define CHUNK 512
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[CHUNK]);
} scratch SEC(".maps");

struct summing {
	frame_context *ctx;
	__u32 offset, length;
	__s64 sum;
};

static long sum_chunk(__u32 i, struct summing *s)
{
	__u32 key = 0, n = s->length < CHUNK ? s->length : CHUNK, least = 1;
	__u8 *chunk = bpf_map_lookup_elem(&scratch, &key);

	/* Linux 6.1 learns from `n >= 1`, and not from `n != 0`, which compilers make of it, that n is not 0. */
	barrier_var(least);
	barrier_var(n);
	if (!chunk || n < least || n > CHUNK)
		return 1;
	if (n < CHUNK)
		__builtin_memset(chunk, 0, CHUNK);
	if (load_bytes(s->ctx, s->offset, chunk, n))
		return 1;
	s->sum = bpf_csum_diff(0, 0, (__be32 *)chunk, CHUNK, (__u32)s->sum);
	s->offset += n;
	s->length -= n;
	return s->sum < 0;
}

/* The sum over `length` bytes of the packet from `offset`; negative when they are not there. */
__noinline __s64 sum_bytes(frame_context *ctx, __u32 offset, __u32 length)
{
	struct summing s = { .ctx = ctx, .offset = offset, .length = length };

	bpf_loop(length / CHUNK + 1, sum_chunk, &s, 0);
	return s.length || s.sum < 0 ? -1 : s.sum;
}

#endif
