/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sums over what checksums are of. */
#ifndef BALANCER_SUM_H
#define BALANCER_SUM_H

#include <bpf/bpf_endian.h>

#include "maps.h"
#include "lib/chunks.h"

/* The pseudo header of TCP and UDP (RFC 9293, 3.1; RFC 8200, 8.1). */
static always_inline __u64 sum_pseudo(const struct address *source, const struct address *destination, __u8 protocol,
				      __u16 length)
{
	return sum_address(source) + sum_address(destination) + bpf_htons(length) + bpf_htons(protocol);
}

#endif
