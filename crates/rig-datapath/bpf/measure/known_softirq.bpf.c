// SPDX-License-Identifier: MIT OR Apache-2.0
/* For tests: softirqs whose length is known, because they spin until their time is over, and count what they took. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

/* include/uapi/linux/time.h */
#define CLOCK_MONOTONIC 1
/* linux/bpf.h since 6.7; older headers lack it. */
#ifndef BPF_F_TIMER_CPU_PIN
#define BPF_F_TIMER_CPU_PIN (1ULL << 1)
#endif

struct load {
	struct bpf_timer timer;
	/* Nanoseconds of each softirq, and from one's end to the next one's begin. */
	__u64 length;
	__u64 pause;
	/* How many are to come. */
	__u64 left;
	/* What all took together, nanoseconds. */
	__u64 took;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct load);
} loads SEC(".maps");

static long spin(__u64 index, void *end)
{
	return bpf_ktime_get_ns() >= *(__u64 *)end;
}

/* On this CPU, where a timer mostly stays before Linux 6.7, too, which lets it be said. */
static long start(struct load *load)
{
	long failed = bpf_timer_start(&load->timer, load->pause, BPF_F_TIMER_CPU_PIN);

	return failed ? bpf_timer_start(&load->timer, load->pause, 0) : 0;
}

static int work(void *map, int *key, struct load *load)
{
	__u64 begin = bpf_ktime_get_ns(), end = begin + load->length;

	bpf_loop(1 << 22, spin, &end, 0);
	load->took += bpf_ktime_get_ns() - begin;
	if (load->left && --load->left)
		start(load);
	return 0;
}

SEC("xdp")
int begin(struct xdp_md *ctx)
{
	__u32 key = 0;
	struct load *load = bpf_map_lookup_elem(&loads, &key);

	if (!load)
		return XDP_ABORTED;
	bpf_timer_init(&load->timer, &loads, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&load->timer, work);
	return start(load) ? XDP_ABORTED : XDP_PASS;
}
