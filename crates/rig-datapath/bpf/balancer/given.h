/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Functions that the verifier looks at by themselves, once, and that are given a tuple, or the packet. Before Linux 5.12 such functions have
 * no pointers for arguments: on old kernels the tuple is written down for them, and the packet is there anyway. No program is
 * interrupted by another packet's on its CPU.
 */
#ifndef BALANCER_GIVEN_H
#define BALANCER_GIVEN_H

#include "hash.h"

struct packet {
	struct tuple tuple;
	__u16 l3_length;
	/* Offsets in the frame. */
	__u16 l3, l4;
	__u8 ipv6;
	__u8 tcp_flags;
	__u8 ttl;
	/* Why the packet is left to the kernel. */
	__u8 reason;
	/* It has come by a worker's queue, where there is no interface that could turn it round. */
	__u8 queued;
	/* Whether it is TCP's first one, and whether such ones of its service are answered here. */
	__u8 opens, proxied;
	/* enum cookie: what it has come to the SYN proxy with, which has made another one of it. */
	__u8 cookie;
	/* Its checksum stays one of addresses alone, which its device completes. */
	__u8 partial;
	/* The SYN proxy has seen it. */
	__u8 seen;
	/* enum kind: in a variable it would be one more on the stack, which is full. */
	__u8 kind;
	/* enum part: of a datagram. */
	__u8 part;
	/* As of its service, where it is one to a backend and has not got it yet. */
	__u8 dscp;
	/* A datagram that has no room in its link for the client's address. */
	__u8 full;
	/* The interface that it belongs to: of a tagged frame it may be a VLAN device, then with OF_VLAN. */
	__u32 came_by;
};

/* A whole one, or one of which no ports are known. Of the first part's checksum the others are a part. */
enum part { PART_UNKNOWN = 0, PART_FIRST = 1, PART_LATER = 2 };

/* Whose packet it is: a client's third, or its data; or how it asks whether the window is still closed, with the number before. */
enum cookie { NO_COOKIE = 0, COOKIE = 1, COOKIE_OF_PROBE = 2 };

#ifdef OLD_KERNEL

struct given {
	struct packet packet;
	struct tuple tuple;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct given);
} givens SEC(".maps");

static always_inline struct given *given_here(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&givens, &key);
}

static always_inline struct packet *packet_here(void)
{
	struct given *g = given_here();

	return g ? &g->packet : 0;
}

/* Declares a packet of which nothing is known. */
#define PACKET(name)                                                                                                   \
	struct packet *name = packet_here();                                                                           \
	if (!name)                                                                                                     \
		return XDP_PASS;                                                                                       \
	__builtin_memset(name, 0, sizeof(*name))

/* A function of a tuple `t` and of what is `declared`, the names of which are `names`. */
#define OF_TUPLE(type, name, declared, names)                                                                          \
	static always_inline type name##_of(const struct tuple *t, LISTED declared);                                   \
	__noinline type name##_given(LISTED declared)                                                                  \
	{                                                                                                              \
		const struct given *g = given_here();                                                                  \
		return name##_of(g ? &g->tuple : 0, LISTED names);                                                     \
	}                                                                                                              \
	static always_inline type name(const struct tuple *t, LISTED declared)                                         \
	{                                                                                                              \
		struct given *g = given_here();                                                                        \
		if (g)                                                                                                 \
			g->tuple = *t;                                                                                 \
		return name##_given(LISTED names);                                                                     \
	}                                                                                                              \
	static always_inline type name##_of(const struct tuple *t, LISTED declared)

/* The same of the packet `p`. */
#define OF_PACKET(type, name, declared, names)                                                                         \
	static always_inline type name##_of(struct packet *p, LISTED declared);                                        \
	__noinline type name##_given(LISTED declared)                                                                  \
	{                                                                                                              \
		return name##_of(packet_here(), LISTED names);                                                         \
	}                                                                                                              \
	static always_inline type name(struct packet *p, LISTED declared)                                              \
	{                                                                                                              \
		return name##_given(LISTED names);                                                                     \
	}                                                                                                              \
	static always_inline type name##_of(struct packet *p, LISTED declared)

#else

#define PACKET(name) struct packet name##_here = {}, *name = &name##_here
#define OF_TUPLE(type, name, declared, names) __noinline type name(const struct tuple *t, LISTED declared)
#define OF_PACKET(type, name, declared, names) __noinline type name(struct packet *p, LISTED declared)

#endif

#endif
