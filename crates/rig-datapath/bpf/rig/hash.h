/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The hash of a packet's addresses, ports and protocol; src/balancer/hash.rs is the same in Rust. */
#ifndef RIG_HASH_H
#define RIG_HASH_H

#include "maps.h"

struct tuple {
	struct address source, destination;
	__u16 source_port, destination_port;
	__u8 protocol;
	__u8 pad[3];
};

/* Both halves of a word, each with a key of its own. */
static always_inline __u64 keyed(__u64 word, int pair)
{
	return (tuning.key[2 * pair] + (__u32)word) * (tuning.key[2 * pair + 1] + (word >> 32));
}

/*
 * Multilinear over words of 32 bits, two to a product, with keys of 64 bits drawn at load (Lemire and Kaser, "Strongly
 * universal string hashing is fast", 2014: MULTILINEAR-HM). The sums of two tuples are the same for one draw in 2^33 at
 * most, whichever they are. Words must not be longer than half of a key: the topmost bit of a word of 64 bits would meet
 * the lowest bit of its key alone, which every odd key has.
 *
 * All of the sum goes into the finish. Its upper half alone would be strongly universal, but a run of ports has sums in
 * equal steps, and for one draw in a hundred these fall into few buckets.
 */
static always_inline __u64 hash_tuple(const struct tuple *t)
{
	__u64 last = (__u64)t->protocol << 32 | (__u32)t->destination_port << 16 | t->source_port;
	__u64 h = tuning.key[10] + keyed(t->source.hi, 0) + keyed(t->source.lo, 1) + keyed(t->destination.hi, 2) +
		  keyed(t->destination.lo, 3) + keyed(last, 4);

	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

/* Chooses from lists, as the control plane and other balancers must choose, too: its keys are written here. */
static always_inline __u32 hash_place(const struct address *a, __u16 port)
{
	__u64 h = a->hi * 0x9e3779b97f4a7c15ULL + a->lo * 0xc2b2ae3d27d4eb4fULL + port * 0x165667b19e3779f9ULL;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	return h >> 32;
}

#endif
