/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What spin.bpf.c shares with src/spin.rs. */
#pragma once

#include <linux/types.h>

/* So many looks at the clock take at least 100 microseconds. */
#define SPIN_MOST_TURNS 32768

struct spinning {
	/* Nanoseconds for each packet. */
	__u64 time;
};

struct spin_count {
	__u64 packets;
	/* Nanoseconds. */
	__u64 time;
};
