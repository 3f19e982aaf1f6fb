/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What CPU time is counted as; cputime::shape has the same. */
#ifndef MEASURE_CPUTIME_H
#define MEASURE_CPUTIME_H

#include <linux/types.h>

/* Softirqs, in the kernel's order (include/linux/interrupt.h). */
#define SOFTIRQS 10

enum kind {
	/* The idle task, but for what interrupts it. */
	IDLE,
	PROCESS,
	KERNEL_THREAD,
	/* Threads that poll devices in place of softirqs. */
	NAPI_THREAD,
	HARD,
	/* The first of the softirqs. */
	SOFTIRQ,
	NET_RX = SOFTIRQ + 3,
	/* ksoftirqd between softirqs. */
	SOFTIRQ_THREAD = SOFTIRQ + SOFTIRQS,
	KINDS,
};

_Static_assert(KINDS == 16, "a power of two");

/* Account 0 is of all that is not watched. */
#define ACCOUNTS 64
/* Of the CPU's own queue of packets, which is of no device. */
#define BACKLOG 63

#define WATCHED_NAMESPACE 0
#define WATCHED_PROCESS 1

struct watch_key {
	__u32 kind;
	__u32 id;
};

/* The program that says what is watched. */
struct watcher {
	/* Rises when what is watched changes. */
	__u32 generation;
	/* Its namespace of process numbers: the number of its file, and how many there are above it. */
	__u32 namespace;
	__u32 level;
	/* Whether interrupts that meet a CPU at work are counted by themselves, not to what they meet. */
	__u32 interrupts;
	/* What two looks at the clock are apart at least, nanoseconds. */
	__u32 clock;
};

/* What the programs that are run on a CPU say. */
#define READ_DONE 0
#define READ_FAILED 1
/* They met a program that was at its work. */
#define READ_AGAIN 2

/* Nanoseconds. */
struct account_time {
	/* Of processes, outside of softirqs, and of interrupts where these are counted by themselves. */
	__u64 processes;
	/* Receive softirqs and threads, on behalf of devices. */
	__u64 network;
};

/* Nanoseconds, but for the counts. */
struct times {
	/* CLOCK_MONOTONIC */
	__u64 at;
	__u64 kinds[KINDS];
	struct account_time places[ACCOUNTS];
	/* Runs of the programs, and what the measured ones of these took together. */
	__u64 events;
	__u64 measured;
	__u64 cost;
	/* Times that a task had come without its switch being seen. */
	__u64 unseen;
};

#endif
