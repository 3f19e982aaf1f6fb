/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What steer.bpf.c shares with its control plane; src/steer/shape.rs has the same. Times are CLOCK_MONOTONIC, nanoseconds. */
#pragma once

#include "lib/multilinear.h"

#define BUCKETS 128
/* Of a CPU in the table: the bucket does not wait for its old one, which is gone. */
#define AT_ONCE 0x80000000
/* How long a move waits for the old CPU, unless it waits as long as it takes. */
#define MAX_WAIT 5000000ULL

struct steering {
	__u64 key[HASH_KEYS];
	/* Receive queues of the interface. */
	__u32 queues;
	/* Packets never overtake each other. */
	__u32 strict;
	/* Senders on this machine may have left checksums to a device. */
	__u32 completes;
	/* CPUs that there may be. */
	__u32 cpus;
};
_Static_assert(sizeof(struct steering) == 104, "");

/*
 * A bucket's packets of one receive queue. A queue is polled by one CPU at a time, so that these are written without locks, and
 * all packets of a flow come by one.
 */
struct bucket_state {
	__u64 packets;
	__u64 bytes;
	/* Moves that did not wait. */
	__u64 forced;
	/* Since when it waits for its old CPU; 0 while it does not. */
	__u64 waits_since;
	/* Where it goes, and 1; 0 before its first packet. */
	__u32 cpu;
	/* The CPU that received its last packet. */
	__u32 receiver;
};
_Static_assert(sizeof(struct bucket_state) == 40, "");

/* The kernel's thread that processes what is put into a CPU's queue. Only that CPU writes it, but for `refused`. */
struct processor {
	/* Batches that it has taken from its queue. */
	__u64 rounds;
	/* `rounds` when it found the queue empty and lay down. */
	__u64 slept;
	/* CPU time of its own: without softirqs that came meanwhile. */
	__u64 time;
	/* When it was put onto the CPU; 0 while it is not there. */
	__u64 since;
	__u64 packets;
	/* Packets that found the queue full, or for which there was no memory. */
	__u64 refused;
	/* When a softirq interrupted it; 0 while none does. */
	__u64 softirq;
	__u32 thread;
	__u32 pad;
};
_Static_assert(sizeof(struct processor) == 64, "");

/* What a receiving CPU has put into another one's queue. */
struct link {
	/* Packets are on their state there: the kernel puts some in at a time. */
	__u64 open;
	/* `rounds` of the other one after the last were put in. */
	__u64 rounds;
};
_Static_assert(sizeof(struct link) == 16, "");
