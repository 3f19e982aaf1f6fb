/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The hash of a packet's addresses, ports and protocol; src/balancer/hash.rs is the same in Rust. */
#ifndef BALANCER_HASH_H
#define BALANCER_HASH_H

#include "maps.h"
#include "lib/multilinear.h"

struct tuple {
	struct address source, destination;
	__u16 source_port, destination_port;
	__u8 protocol;
	__u8 pad[3];
};

static always_inline __u64 hash_tuple(const struct tuple *t)
{
	return hash_words(tuning.key, &t->source, &t->destination,
			  (__u64)t->protocol << 32 | (__u32)t->destination_port << 16 | t->source_port);
}

/* Chooses from lists, as the control plane and other balancers must choose, too: its keys are written here. */
static always_inline __u32 hash_endpoint(const struct address *a, __u16 port)
{
	__u64 h = a->hi * 0x9e3779b97f4a7c15ULL + a->lo * 0xc2b2ae3d27d4eb4fULL + port * 0x165667b19e3779f9ULL;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ULL;
	return h >> 32;
}

#endif
