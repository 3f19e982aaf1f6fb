/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Room in the middle of a frame, which grows in front: there is always some, and behind a frame there may be none. */
#ifndef BALANCER_GAP_H
#define BALANCER_GAP_H

#include "packet.h"

/* Words of 4 bytes behind the first 2, of which no headers have more. */
#define MOST_WORDS 29

struct moving {
	struct xdp_md *ctx;
	__u32 by;
};

static long move_word(__u32 i, struct moving *m)
{
	__u32 at = (2 + 4 * i) & 127, from = (at + m->by) & 255;
	void *end = (void *)(long)m->ctx->data_end, *data = (void *)(long)m->ctx->data;
	__u32 *old = data + from, *new = data + at;

	if ((void *)(old + 1) > end || (void *)(new + 1) > end)
		return 1;
	*new = *old;
	return 0;
}

/* Makes room of `by` bytes behind the first ones of the frame, `headers` of them; 0 or a reason for a drop. */
static always_inline int make_gap(struct xdp_md *ctx, __u32 headers, __u32 by)
{
	/* For the verifier: at most 52. */
	struct moving m = { .ctx = ctx, .by = by & 63 };
	__u16 *first, *old;

	if (bpf_xdp_adjust_head(ctx, -(int)by))
		return DROP_INTERNAL;
	first = (void *)(long)ctx->data;
	old = (void *)first + (by & 63);
	if ((void *)(old + 1) > (void *)(long)ctx->data_end || (void *)(first + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	*first = *old;
	LOOP(MOST_WORDS, (headers - 2) / 4, move_word, &m);
	return 0;
}

#endif
