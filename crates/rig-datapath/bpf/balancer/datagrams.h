/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What datagrams.bpf.c and its control plane both know; src/balancer/datagrams.rs has the Rust side. Addresses and ports are as they stand in
 * packets, those of IPv4 as IPv4-mapped.
 */
#ifndef BALANCER_DATAGRAMS_H
#define BALANCER_DATAGRAMS_H

#include "receiver.h"

/* Whose datagrams a client's are: a balancer's address and port, to one of this machine's. `own` of zeros: of whichever of its addresses. */
struct datagrams_key {
	__u32 from[4];
	__u32 own[4];
	__u16 from_port, own_port;
};
_Static_assert(sizeof(struct datagrams_key) == 36, "");

struct datagrams_client {
	__u32 address[4];
	/* Of this machine's, the one that the last datagram was to. */
	__u32 own[4];
	/* When there was last one, ns. */
	__u64 seen;
	__u16 port;
	/* A program has answered it, from which on the balancer need not tell any more. */
	__u8 answered;
	/* Another client has the same port of the balancer, with another of this machine's addresses: which one is meant cannot be told. */
	__u8 disputed;
	__u32 pad;
};
_Static_assert(sizeof(struct datagrams_client) == 48, "");

/* To whom an answer goes that is to a client, and where. */
struct answers_key {
	__u32 client[4];
	__u16 client_port, own_port;
};
_Static_assert(sizeof(struct answers_key) == 20, "");

struct answers_to {
	__u32 address[4];
	__u32 port;
};
_Static_assert(sizeof(struct answers_to) == 20, "");

/*
 * Datagrams from balancers: with a client's address, which was taken off; without, of a client that is known, and of one that is not, or that
 * cannot be told. With one from others, and with one that is not as it has to be: both are left to the kernel.
 */
enum datagram { DATAGRAM_TOLD = 0, DATAGRAM_KNOWN = 1, DATAGRAM_UNKNOWN = 2, DATAGRAM_OTHERS = 3, DATAGRAM_BROKEN = 4, DATAGRAMS = 5 };

#endif
