/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* SipHash-2-4 (Aumasson and Bernstein, 2012) of words of 8 bytes. */
#ifndef LIB_SIPHASH_H
#define LIB_SIPHASH_H

#include "address.h"

struct sip {
	__u64 v0, v1, v2, v3;
};

static always_inline __u64 rotated(__u64 x, int by)
{
	return x << by | x >> (64 - by);
}

static always_inline void sip_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v1 = rotated(s->v1, 13) ^ s->v0;
	s->v0 = rotated(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotated(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotated(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotated(s->v1, 17) ^ s->v2;
	s->v2 = rotated(s->v2, 32);
}

static always_inline void sip_begin(struct sip *s, const __u64 *key)
{
	s->v0 = key[0] ^ 0x736f6d6570736575ULL;
	s->v1 = key[1] ^ 0x646f72616e646f6dULL;
	s->v2 = key[0] ^ 0x6c7967656e657261ULL;
	s->v3 = key[1] ^ 0x7465646279746573ULL;
}

static always_inline void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

/* Of all words, which were so many. */
static always_inline __u64 sip_end(struct sip *s, __u64 words)
{
	sip_word(s, words * 8 << 56);
	s->v2 ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
