/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What receiver.bpf.c and its control plane both know; src/balancer/receiver.rs has the Rust side. Addresses are as they stand in packets. */
#ifndef BALANCER_RECEIVER_H
#define BALANCER_RECEIVER_H

#include <linux/types.h>

#define MOST_TRUSTED 4096

/* IPv4 as IPv4-mapped (RFC 4291, 2.5.5.2), with 96 bits more. */
struct trusted_prefix {
	__u32 bits;
	__u32 address[4];
};
_Static_assert(sizeof(struct trusted_prefix) == 20, "");

struct told_client {
	__u32 address[4];
	__u32 port;
};
_Static_assert(sizeof(struct told_client) == 20, "");

/* Connections that were accepted: with an address that was told, without, of whom nothing is taken, and without memory to keep it. */
enum reception { RECEPTION_TOLD = 0, RECEPTION_WITHOUT = 1, RECEPTION_OTHERS = 2, RECEPTION_NO_MEMORY = 3, RECEPTIONS = 4 };

#endif
