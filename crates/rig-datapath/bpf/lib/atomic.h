/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Changes of what all CPUs share, each at once. Before Linux 5.12 programs add so, and learn nothing of what was there: old kernels' programs
 * hold a lock meanwhile. What is changed by these is changed by nothing else while others may.
 */
#ifndef LIB_ATOMIC_H
#define LIB_ATOMIC_H

#include "address.h"

#ifdef OLD_KERNEL

#define LOCK_BITS 10
struct lock {
	struct bpf_spin_lock lock;
	/* A cache line for each. */
	__u32 pad[15];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << LOCK_BITS);
	__type(key, __u32);
	__type(value, struct lock);
} locks SEC(".maps");

/* That of a place in a map, which is as far from the locks for all CPUs; interrupts wait while it is held. */
static always_inline struct bpf_spin_lock *lock_of(const void *at)
{
	__u32 key = 0;
	const void *first = bpf_map_lookup_elem(&locks, &key);
	struct lock *l;
	__u64 away;

	if (!first)
		return 0;
	away = at - first;
	/* All of it: of half an address the verifier has it no more. */
	barrier_var(away);
	key = (__u32)(away >> 3) * 0x9e3779b9U >> (32 - LOCK_BITS);
	l = bpf_map_lookup_elem(&locks, &key);
	return l ? &l->lock : 0;
}

/*
 * There is a lock for each place, which the verifier does not know: what is there is read before, so that it has no number in place of it.
 */
#define LOCKED(at, type, what)                                                                                         \
	({                                                                                                             \
		struct bpf_spin_lock *lock = lock_of(at);                                                              \
		type before = *(at);                                                                                    \
		if (lock) {                                                                                            \
			bpf_spin_lock(lock);                                                                           \
			before = *(at);                                                                                \
			what;                                                                                          \
			bpf_spin_unlock(lock);                                                                         \
		}                                                                                                      \
		before;                                                                                                \
	})

/* What no one asks the value of before: no lock is needed for it. Newer compilers make of the builtin what old kernels do not know. */
static always_inline void sum_up(__u64 *at, __s64 what)
{
	asm volatile("lock *(u64 *)(%0 + 0) += %1" : : "r"(at), "r"(what) : "memory");
}

static inline __noinline __u64 atomic_add(__u64 *at, __s64 what)
{
	return LOCKED(at, __u64, *at = before + what);
}

static inline __noinline __u64 atomic_replace(__u64 *at, __u64 old, __u64 new)
{
	return LOCKED(at, __u64, *at = before == old ? new : before);
}

static inline __noinline int atomic_or(__u32 *at, __u32 bits)
{
	return LOCKED(at, __u32, *at = before | bits);
}

#else

/* The value before. */
#define atomic_add(at, what) __sync_fetch_and_add(at, what)
/* The value before; where that was `old` it is `new` now. */
#define atomic_replace(at, old, new) __sync_val_compare_and_swap(at, old, new)
#define atomic_or(at, bits) __sync_fetch_and_or(at, bits)
/* Without it. */
#define sum_up(at, what) __sync_fetch_and_add(at, what)

#endif

#endif
