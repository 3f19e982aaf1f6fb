// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Spends a known time on each packet that an interface receives, and lets it pass: a cost that is known tells whether what
 * measures costs finds it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "spin.h"
#include "lib/address.h"
#include "lib/old.h"
#include "lib/tc.h"

char _license[] SEC("license") = "Dual MIT/GPL";

const volatile struct spinning spinning SEC(".rodata.spinning");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spin_count);
} spun SEC(".maps");

struct until {
	__u64 end;
	__u64 now;
};

static int look(__u32 turn, void *context)
{
	struct until *until = context;

	until->now = bpf_ktime_get_ns();
	return until->now >= until->end;
}

#ifdef OLD_KERNEL
#define LOOKS_AT_ONCE 128

/* The time at the end, or before it behind so many looks: a loop of loops, as the verifier does not put off as many branches. */
__noinline __u64 look_often(__u64 end)
{
	struct until until = { .end = end };

	LOOP(LOOKS_AT_ONCE, LOOKS_AT_ONCE, look, &until);
	return until.now;
}

static always_inline void wait(struct until *until)
{
	for (int i = 0; i < SPIN_MOST_TURNS / LOOKS_AT_ONCE && until->now < until->end; i++)
		until->now = look_often(until->end);
}
#else
static always_inline void wait(struct until *until)
{
	bpf_loop(SPIN_MOST_TURNS, look, until, 0);
}
#endif

SEC("tc")
int spin(struct __sk_buff *packet)
{
	__u64 begin = bpf_ktime_get_ns();
	struct until until = { .end = begin + spinning.time, .now = begin };
	struct spin_count *count;
	__u32 key = 0;

	wait(&until);
	count = bpf_map_lookup_elem(&spun, &key);
	if (count) {
		count->packets++;
		count->time += until.now - begin;
	}
	return TCX_NEXT;
}
