// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Spends a known time on each packet that an interface receives, and lets it pass: a cost that is known tells whether what
 * measures costs finds it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "spin.h"
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

SEC("tc")
int spin(struct __sk_buff *packet)
{
	__u64 begin = bpf_ktime_get_ns();
	struct until until = { .end = begin + spinning.time, .now = begin };
	struct spin_count *count;
	__u32 key = 0;

	bpf_loop(SPIN_MOST_TURNS, look, &until, 0);
	count = bpf_map_lookup_elem(&spun, &key);
	if (count) {
		count->packets++;
		count->time += until.now - begin;
	}
	return TCX_NEXT;
}
