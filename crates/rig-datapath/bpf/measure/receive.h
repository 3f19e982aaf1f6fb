/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What receive.bpf.c counts; src/receive/shape.rs has the same. Times are nanoseconds. */
#pragma once

#include <linux/types.h>

struct queue_time {
	__u64 time;
	/* As its poll function tells them: with receive offload before segments are merged. */
	__u64 packets;
	__u64 polls;
	/* The CPU that polled it last. */
	__u32 cpu;
	__u32 pad;
};

struct cpu_time {
	/* CLOCK_MONOTONIC since when it has been idle, 0 while it is not. */
	__u64 idle_since;
	__u64 idle;
	/* When the last poll ended, or what will poll next began. */
	__u64 since;
	/* Whether it is in a softirq of receiving. */
	__u64 soft;
	/* Polls while the idle task was there, which are no idleness. */
	__u64 polls_of_idle;
	/* Polls of watched queues, of other devices' and of its own queue. */
	__u64 watched;
	__u64 foreign;
	__u64 backlog;
	__u64 backlog_packets;
};
