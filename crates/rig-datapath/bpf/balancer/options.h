/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* TCP's options (RFC 9293, 3.1; RFC 7323; RFC 2018): what of them the SYN proxy reads, and how it writes its own. */
#ifndef BALANCER_OPTIONS_H
#define BALANCER_OPTIONS_H

#include "packet.h"

enum option { OPTION_END = 0, OPTION_NOP = 1, OPTION_MSS = 2, OPTION_SCALE = 3, OPTION_MAY_SACK = 4, OPTION_SACK = 5, OPTION_TIME = 8,
	      OPTION_MPTCP = 30, OPTION_FAST_OPEN = 34, OPTION_TOA = 254 };
#define TIME_BYTES 10
/* Of one segment: senders have up to six, those that fill up included. */
#define MOST_OPTIONS 16
/* For the verifier: options begin at 78 at most, and end 40 bytes later. */
#define OPTION_MASK 127
/* In place of a window scale, of which the largest is 14. */
#define NO_SCALE 15
#define MOST_SCALE 14

/* Bytes that a packet grows by which tells a backend its client's address. */
static always_inline __u32 address_bytes(__u8 client_address, int ipv6)
{
	if (client_address == ADDRESS_TOA)
		return ipv6 ? 20 : 8;
	if (client_address == ADDRESS_PROXY_V2)
		return ipv6 ? 52 : 28;
	if (client_address == ADDRESS_UOA)
		return ipv6 ? 24 : 12;
	return 0;
}

/* What is read. */
struct options {
	struct xdp_md *ctx;
	/* Offsets in the frame. */
	__u32 at, end;
	__u16 mss;
	__u8 scale, may_sack;
	/* The offset of the timestamps' option in the frame; 0 where there is none. */
	__u32 time;
};

/* The option at `at` with its length, or 0 where there is no further one. `next` is where the one behind it is. */
static always_inline __u8 *next_option(struct xdp_md *ctx, __u32 at, __u32 end, __u32 *next, __u32 *length)
{
	__u32 offset = at & OPTION_MASK;
	__u8 *option;

	if (at >= end)
		return 0;
	option = (void *)(long)ctx->data + offset;
	if ((void *)(option + 1) > (void *)(long)ctx->data_end || option[0] == OPTION_END)
		return 0;
	*length = 1;
	if (option[0] != OPTION_NOP) {
		if ((void *)(option + 2) > (void *)(long)ctx->data_end)
			return 0;
		*length = option[1];
		if (*length < 2 || at + *length > end)
			return 0;
	}
	*next = (at + *length) & OPTION_MASK;
	return option;
}

static long read_option(__u32 i, struct options *o)
{
	__u32 length, next, at = o->at;
	__u8 *option = next_option(o->ctx, at, o->end, &next, &length);
	void *end = (void *)(long)o->ctx->data_end;

	if (!option)
		return 1;
	o->at = next;
	if (option[0] == OPTION_MSS && length == 4 && (void *)(option + 4) <= end)
		o->mss = (__u16)option[2] << 8 | option[3];
	else if (option[0] == OPTION_SCALE && length == 3 && (void *)(option + 3) <= end)
		o->scale = option[2] > MOST_SCALE ? MOST_SCALE : option[2];
	else if (option[0] == OPTION_MAY_SACK && length == 2)
		o->may_sack = 1;
	else if (option[0] == OPTION_TIME && length == TIME_BYTES && (void *)(option + TIME_BYTES) <= end)
		o->time = at & OPTION_MASK;
	return 0;
}

#define OPTIONS_MSS(word) ((__u16)(word))
#define OPTIONS_SCALE(word) ((__u32)((word) >> 16) & 15)
#define OPTIONS_MAY_SACK(word) ((__u32)((word) >> 20) & 1)
#define OPTIONS_TIME(word) ((__u32)((word) >> 24) & OPTION_MASK)

/* A segment's options in one word, see the macros; `l4` is where its header is. MSS is 0 where nothing is said of it. */
__noinline __u64 read_options(struct xdp_md *ctx, __u32 l4)
{
	__u32 none = UNKNOWN_ZERO(l4);
	struct options o = { .ctx = ctx, .mss = none, .scale = NO_SCALE + none, .may_sack = none, .time = none };
	struct tcphdr *tcp = (void *)(long)ctx->data + (l4 & L4_MASK);

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return (__u64)NO_SCALE << 16;
	o.at = (l4 & L4_MASK) + sizeof(*tcp);
	o.end = (l4 & L4_MASK) + tcp->doff * 4;
	LOOP(MOST_OPTIONS, MOST_OPTIONS, read_option, &o);
	return o.mss | (__u64)(o.scale & 15) << 16 | (__u64)(o.may_sack & 1) << 20 | (__u64)o.time << 24;
}

/* Both values of timestamps, as they stand in the packet: the sender's own, and in the upper half its echo; 0 where they are not there. */
static always_inline __u64 read_times(struct xdp_md *ctx, __u32 time)
{
	__u32 *value = (void *)(long)ctx->data + (time & OPTION_MASK) + 2;

	if (!time || (void *)(value + 2) > (void *)(long)ctx->data_end)
		return 0;
	return value[0] | (__u64)value[1] << 32;
}

/* What is written. Bytes of options: with timestamps, and without. */
#define OPTIONS_WITH_TIME 20
#define OPTIONS_WITHOUT_TIME 12

struct offer {
	__u16 mss;
	__u8 scale, may_sack;
	/* Whether there are timestamps: in network byte order. */
	__u32 has_time, time, echo;
};

/* What is not offered is filled up with options that say nothing. */
static always_inline void write_options(__be32 *to, const struct offer *o)
{
	__u32 may_sack = o->may_sack ? OPTION_MAY_SACK << 8 | 2 : OPTION_NOP << 8 | OPTION_NOP;
	__u32 scale = o->scale == NO_SCALE ? 0x01010101 : OPTION_NOP << 24 | OPTION_SCALE << 16 | 3 << 8 | o->scale;

	to[0] = bpf_htonl((__u32)OPTION_MSS << 24 | 4 << 16 | o->mss);
	if (!o->has_time) {
		to[1] = bpf_htonl(0x01010000 | may_sack);
		to[2] = bpf_htonl(scale);
		return;
	}
	to[1] = bpf_htonl(may_sack << 16 | OPTION_TIME << 8 | TIME_BYTES);
	to[2] = o->time;
	to[3] = o->echo;
	to[4] = bpf_htonl(scale);
}

#endif
