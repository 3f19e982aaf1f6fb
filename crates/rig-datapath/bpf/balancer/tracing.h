/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * `trace` is the balancer's program, compiled from the same source with TRACING set, and leaves nothing behind: what all packets
 * share is changed by the functions below alone, which then change nothing; a connection is a copy; and counters are maps of the
 * traced packets' own.
 */
#ifndef BALANCER_TRACING_H
#define BALANCER_TRACING_H

#include "lib/atomic.h"

#ifndef TRACING
#define TRACING 0
#endif

/* The value before. */
static always_inline __u64 fetch_and_add(__u64 *at, __s64 what)
{
	return TRACING ? *(volatile __u64 *)at : atomic_add(at, what);
}

/* Whether it was `old`, and so is `new` now. */
static always_inline int replace(__u64 *at, __u64 old, __u64 new)
{
	return TRACING ? *(volatile __u64 *)at == old : atomic_replace(at, old, new) == old;
}

/* Slots of the record that a traced packet has: as if in a set, and as if in the overflow. No connection has these. */
#define COPY_IN_SET 1
#define COPY_IN_OVERFLOW 2

#if TRACING
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace);
} traces SEC(".maps");

static always_inline struct trace *trace_record(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&traces, &key);
}

/*
 * Whether the connection that would have ended, where a traced packet opens another one, has this in a field: it is still counted
 * and found.
 */
#define HAS_ENDED(field, what)                                                                                         \
	({                                                                                                             \
		struct trace *record = trace_record();                                                                 \
		record && record->reopening && record->field == (what);                                                \
	})

#define TRACE(field, what)                                                                                             \
	do {                                                                                                           \
		struct trace *record = trace_record();                                                                 \
		if (record)                                                                                            \
			record->field = (what);                                                                        \
	} while (0)
#else
#define HAS_ENDED(field, what) 0
#define TRACE(field, what)                                                                                             \
	do {                                                                                                           \
	} while (0)
#endif

#endif
