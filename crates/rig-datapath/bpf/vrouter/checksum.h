/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One's-complement sums (RFC 1071) and their incremental update (RFC 1624, equation 3). */
#ifndef VROUTER_CHECKSUM_H
#define VROUTER_CHECKSUM_H

#include <linux/types.h>

static inline __attribute__((always_inline)) __u16 fold(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum;
}

/* A checksum after a word of 16 bits has become another one. */
static inline __attribute__((always_inline)) __u16 exchanged(__u16 checksum, __u16 old, __u16 new)
{
	return ~fold((__u64)(__u16)~checksum + (__u16)~old + new);
}

#endif
