// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Workers on CPUs that the interface's queues do not reach: `spread` on the interface gives each flow to one of them,
 * `balance_queued` is what they run.
 */
#include "balance.h"

char _license[] SEC("license") = "Dual MIT/GPL";

const volatile struct spreading spreading SEC(".rodata.spreading");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct worker_queue);
} queues SEC(".maps");

/* The kernel's number of `queues`, which a tracing program may not refer to: their programs would be of different types. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} queues_id SEC(".maps");

/*
 * Packets that are not the balancer's go on at once: in a queue they would lose the kernel's notes about them, such as that a checksum
 * is still to be made. All CPUs share the state, so any of them may have any packet; the hash chooses the CPU to keep a flow's packets
 * in order.
 */
SEC(XDP)
int spread(struct xdp_md *ctx)
{
	PACKET(packet);

	enum kind kind = parse(ctx, packet);

	if (is_spread(packet, kind)) {
		__u32 worker = (hash_tuple(&packet->tuple) & 0xffffffff) * spreading.workers >> 32;
		__u32 cpu = worker < MAX_WORKERS ? spreading.cpu[worker] : AT_ONCE;

		if (cpu != AT_ONCE && bpf_redirect_map(&queues, cpu, XDP_ABORTED) == XDP_REDIRECT)
			return XDP_REDIRECT;
	}
	return balance_parsed(ctx, packet, kind, STAGE_FORWARD);
}

SEC(XDP "/cpumap")
int balance_queued(struct xdp_md *ctx)
{
	PACKET(packet);

	enum kind kind = parse(ctx, packet);

	/* Behind that: before, the compiler keeps something more on the stack, which is full (Linux 6.1 counts 512 bytes). */
	packet->queued = 1;
	return balance_parsed(ctx, packet, kind, STAGE_FORWARD);
}

/*
 * The kernel puts packets into queues some at a time, after the program that redirects them; only its tracepoint says how
 * many found no room. Arguments: number of the map, packets put in, packets dropped, CPU.
 */
SEC("tp_btf/xdp_cpumap_enqueue")
int count_refused(__u64 *arguments)
{
	__u32 key = 0, *id = bpf_map_lookup_elem(&queues_id, &key);
	__u64 *count;

	if (!id || (__u32)arguments[0] != *id || !(__u32)arguments[2])
		return 0;
	key = DROP_WORKER_BUSY;
	count = bpf_map_lookup_elem(&drops, &key);
	if (count)
		*count += (__u32)arguments[2];
	return 0;
}
