/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Packets that are traced go the way of all others, compiled from the same source with DRY set, and leave nothing behind:
 * what all packets share is changed by the functions below alone, which then change nothing; a connection is a copy; and
 * counters are maps of the traced packets' own.
 */
#ifndef BALANCER_DRY_H
#define BALANCER_DRY_H

#ifndef DRY
#define DRY 0
#endif

/* The value before. */
static always_inline __u64 fetch_and_add(__u64 *at, __s64 what)
{
	return DRY ? *(volatile __u64 *)at : __sync_fetch_and_add(at, what);
}

/* Whether it was `old`, and so is `new` now. */
static always_inline int replace(__u64 *at, __u64 old, __u64 new)
{
	return DRY ? *(volatile __u64 *)at == old : __sync_val_compare_and_swap(at, old, new) == old;
}

/* Slots of the record that a traced packet has: as if at home, and as if in the overflow. No connection has these. */
#define COPY_AT_HOME 1
#define COPY_IN_OVERFLOW 2

#if DRY
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace);
} traces SEC(".maps");

static always_inline struct trace *noted(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&traces, &key);
}

/*
 * Whether the connection that would have ended, and whose place a traced packet's takes, has this in a field: it is counted and
 * found still.
 */
#define HAS_ENDED(field, what)                                                                                         \
	({                                                                                                             \
		struct trace *note = noted();                                                                          \
		note && note->anew && note->field == (what);                                                           \
	})

#define NOTE(field, what)                                                                                              \
	do {                                                                                                           \
		struct trace *note = noted();                                                                          \
		if (note)                                                                                              \
			note->field = (what);                                                                          \
	} while (0)
#else
#define HAS_ENDED(field, what) 0
#define NOTE(field, what)                                                                                              \
	do {                                                                                                           \
	} while (0)
#endif

#endif
