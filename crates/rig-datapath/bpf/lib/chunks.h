/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The sum over bytes of a frame: of XDP, or of tc where CHUNKS_OF_TC is defined before. */
#ifndef LIB_CHUNKS_H
#define LIB_CHUNKS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "old.h"

#ifdef CHUNKS_OF_TC
typedef struct __sk_buff frame_context;
#define load_bytes bpf_skb_load_bytes
#else
typedef struct xdp_md frame_context;
#define load_bytes bpf_xdp_load_bytes
#endif

/* What is summed up at a time; and how often that is of the largest packet. */
#define CHUNK 512
#define MOST_CHUNKS (0x10000 / CHUNK)

struct summing {
	frame_context *ctx;
	__u32 offset, length;
	__s64 sum;
};

#if !defined(OLD_KERNEL) || defined(CHUNKS_OF_TC)
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[CHUNK]);
} scratch SEC(".maps");

static long sum_chunk(__u32 i, struct summing *s)
{
	__u32 key = 0;
	__u8 *chunk = bpf_map_lookup_elem(&scratch, &key);

	if (!chunk || s->length < CHUNK || load_bytes(s->ctx, s->offset, chunk, CHUNK))
		return 1;
	s->sum = bpf_csum_diff(0, 0, (__be32 *)chunk, CHUNK, (__u32)s->sum);
	s->offset += CHUNK;
	s->length -= CHUNK;
	return s->sum < 0;
}

/* Less than a chunk. */
static long sum_rest(struct summing *s)
{
	__u32 key = 0, n = s->length, least = 1;
	__u8 *chunk = bpf_map_lookup_elem(&scratch, &key);

	/* Linux 6.1 learns from `n >= 1`, and not from `n != 0`, which compilers make of it, that n is not 0. */
	barrier_var(least);
	barrier_var(n);
	if (!chunk || n < least || n > CHUNK)
		return 1;
	__builtin_memset(chunk, 0, CHUNK);
	if (load_bytes(s->ctx, s->offset, chunk, n))
		return 1;
	s->sum = bpf_csum_diff(0, 0, (__be32 *)chunk, CHUNK, (__u32)s->sum);
	s->length = 0;
	return 0;
}
#else
/* The verifier follows offsets in 16 bits, to the end of what is looked at. */
#define MOST_OFFSET (0xffff - CHUNK)

/* The next bytes, so many as the compiler knows, of a frame that is one piece; 0 where they are not there. */
static always_inline void *next_part(struct summing *s, __u32 length)
{
	/*
	 * Not the offset itself: of that the verifier is to know no more than before, so that all parts look the same to it. It has not more
	 * bits, either: each part ends within them, and begins where one has ended.
	 */
	__u32 offset = s->offset & 0xffff;
	void *at;

	barrier_var(offset);
	if (offset > MOST_OFFSET)
		return 0;
	at = (void *)(long)s->ctx->data + offset;
	if (at + length > (void *)(long)s->ctx->data_end)
		return 0;
	s->offset += length;
	return at;
}

static always_inline long sum_part(struct summing *s, __u32 length)
{
	void *at = next_part(s, length);

	if (!at)
		return 1;
	s->sum = bpf_csum_diff(0, 0, at, length, (__u32)s->sum);
	return s->sum < 0;
}

static long sum_chunk(__u32 i, struct summing *s)
{
	if (s->length < CHUNK || sum_part(s, CHUNK))
		return 1;
	s->length -= CHUNK;
	return 0;
}

static long sum_rest(struct summing *s)
{
	__u32 n = s->length, last = 0;
	__u8 *at;

	if (n >= CHUNK)
		return 1;
#pragma unroll
	for (__u32 length = CHUNK / 2; length >= sizeof(last); length /= 2)
		if (n & length && sum_part(s, length))
			return 1;
	if (n & 2) {
		at = next_part(s, 2);
		if (!at)
			return 1;
		last = *(__u16 *)at;
	}
	if (n & 1) {
		at = next_part(s, 1);
		if (!at)
			return 1;
		if (n & 2)
			((__u8 *)&last)[2] = *at;
		else
			((__u8 *)&last)[0] = *at;
	}
	s->sum = bpf_csum_diff(0, 0, &last, sizeof(last), (__u32)s->sum);
	s->length = 0;
	return s->sum < 0;
}
#endif

/* The sum over `length` bytes of the packet from `offset`; negative when they are not there. */
__noinline __s64 sum_bytes(frame_context *ctx, __u32 offset, __u32 length)
{
	struct summing s = { .ctx = ctx, .offset = offset, .length = length };

	LOOP(MOST_CHUNKS, length / CHUNK, sum_chunk, &s);
	if (s.sum < 0 || (s.length && sum_rest(&s)))
		return -1;
	return s.sum;
}

#endif
