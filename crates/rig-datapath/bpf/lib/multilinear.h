/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A hash of five words; `Hasher` of src/balancer/hash.rs is the same in Rust. */
#ifndef LIB_MULTILINEAR_H
#define LIB_MULTILINEAR_H

#include "lib/address.h"

/* Two for each word, and one to begin with. */
#define HASH_KEYS 11

/* Both halves of a word, each with a key of its own. */
static always_inline __u64 keyed(const volatile __u64 *key, __u64 word, int pair)
{
	return (key[2 * pair] + (__u32)word) * (key[2 * pair + 1] + (word >> 32));
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
static always_inline __u64 hash_words(const volatile __u64 *key, const struct address *source,
				      const struct address *destination, __u64 last)
{
	__u64 h = key[10] + keyed(key, source->hi, 0) + keyed(key, source->lo, 1) + keyed(key, destination->hi, 2) +
		  keyed(key, destination->lo, 3) + keyed(key, last, 4);

	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

#endif
