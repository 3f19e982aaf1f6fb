/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sums over what checksums are of. */
#ifndef RIG_SUM_H
#define RIG_SUM_H

#include <bpf/bpf_endian.h>

#include "maps.h"

/* The pseudo header of TCP and UDP (RFC 9293, 3.1; RFC 8200, 8.1). */
static always_inline __u64 sum_pseudo(const struct address *source, const struct address *destination, __u8 protocol,
				      __u16 length)
{
	return sum_address(source) + sum_address(destination) + bpf_htons(length) + bpf_htons(protocol);
}

struct summing {
	struct xdp_md *ctx;
	__u32 offset, length;
	__s64 sum;
};

static long sum_chunk(__u32 i, struct summing *s)
{
	__u32 key = 0, n = s->length < CHUNK ? s->length : CHUNK;
	__u8 *chunk = bpf_map_lookup_elem(&scratch, &key);

	if (!chunk || !n || n > CHUNK)
		return 1;
	if (n < CHUNK)
		__builtin_memset(chunk, 0, CHUNK);
	if (bpf_xdp_load_bytes(s->ctx, s->offset, chunk, n))
		return 1;
	s->sum = bpf_csum_diff(0, 0, (__be32 *)chunk, CHUNK, (__u32)s->sum);
	s->offset += n;
	s->length -= n;
	return s->sum < 0;
}

/* The sum over `length` bytes of the packet from `offset`; negative when they are not there. */
__noinline __s64 sum_bytes(struct xdp_md *ctx, __u32 offset, __u32 length)
{
	struct summing s = { .ctx = ctx, .offset = offset, .length = length };

	bpf_loop(length / CHUNK + 1, sum_chunk, &s, 0);
	return s.length || s.sum < 0 ? -1 : s.sum;
}

#endif
