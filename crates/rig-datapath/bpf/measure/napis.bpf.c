// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * How the kernel receives from the queues of an interface, for kernels that do not tell (netlink does from Linux 6.8 on): walks the
 * list of the interface's NAPIs. Attached nowhere: it is run for the thread that asks.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "napis.h"
#include "lib/device.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Interfaces in a list that are looked through. */
#define MOST_IN_A_LIST 1024

/* In the list's order. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NAPIS_MOST);
	__type(key, __u32);
	__type(value, struct napi_entry);
} found SEC(".maps");

/* Argument: the number of an interface of the thread's network namespace. How many were found, or less than none. */
SEC("raw_tp")
int napis(__u64 *arguments)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct net_device *device = device_of(BPF_CORE_READ(task, nsproxy, net_ns), (int)arguments[0], MOST_IN_A_LIST);
	struct list_head *next;
	__u64 end, at;

	if (!device)
		return -1;
	end = (__u64)device + bpf_core_field_offset(struct net_device, napi_list);
	next = BPF_CORE_READ(device, napi_list.next);
	for (at = 0; at < NAPIS_MOST && (__u64)next != end; at++) {
		struct napi_struct *napi = (void *)next - bpf_core_field_offset(struct napi_struct, dev_list);
		/* Beside the counter, whose bounds are not known any more where its address is taken. */
		__u32 key = at;
		struct napi_entry *queue = bpf_map_lookup_elem(&found, &key);
		struct task_struct *thread = 0;

		if (!queue)
			break;
		queue->id = BPF_CORE_READ(napi, napi_id);
		if (bpf_core_field_exists(napi->thread))
			thread = BPF_CORE_READ(napi, thread);
		queue->thread = thread ? BPF_CORE_READ(thread, pid) : 0;
		next = BPF_CORE_READ(next, next);
	}
	return at;
}
