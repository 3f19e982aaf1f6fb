// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What receive processing costs: the time that polls of queues (NAPI) take, by queue and by CPU, and how long each CPU had nothing
 * to do. A queue is polled by one CPU at a time, so that its counters are written without locks.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "receive.h"
#include "lib/task.h"
#include "lib/types.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* include/linux/interrupt.h */
#define NET_RX_SOFTIRQ 3

/* Numbers of queues' NAPIs, and where in `queues` they are counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct queue_time);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_time);
} cpus SEC(".maps");

static inline __attribute__((always_inline)) struct cpu_time *this_cpu(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&cpus, &key);
}

/* Argument: the number of the softirq. */
SEC("raw_tp/softirq_entry")
int receive_soft_in(struct bpf_raw_tracepoint_args *arguments)
{
	struct cpu_time *cpu;

	if (arguments->args[0] != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (cpu) {
		cpu->since = bpf_ktime_get_ns();
		cpu->soft = 1;
	}
	return 0;
}

SEC("raw_tp/softirq_exit")
int receive_soft_out(struct bpf_raw_tracepoint_args *arguments)
{
	struct cpu_time *cpu;

	if (arguments->args[0] != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (cpu)
		cpu->soft = 0;
	return 0;
}

/*
 * After a poll: what passed since the one before it, or since the softirq or the thread that polls began. Arguments: the NAPI,
 * what it did, and what it might have.
 */
SEC("tp_btf/napi_poll")
int receive_polled(__u64 *arguments)
{
	struct napi_struct *napi = (struct napi_struct *)arguments[0];
	int work = (int)arguments[1];
	struct cpu_time *cpu = this_cpu();
	struct task_struct *task = current_task();
	__u64 now, spent;
	__u32 id, *at;

	/* Else it is a task that polls by itself, and the work is its own. */
	if (!cpu || !cpu->since || (!cpu->soft && !(task_field(task, flags) & PF_KTHREAD)))
		return 0;
	now = bpf_ktime_get_ns();
	spent = now - cpu->since;
	cpu->since = now;
	if (!task_field(task, pid))
		cpu->polls_of_idle += spent;
	id = napi->napi_id;
	at = id ? bpf_map_lookup_elem(&watched, &id) : 0;
	if (at) {
		struct queue_time *queue = bpf_map_lookup_elem(&queues, at);

		if (queue) {
			queue->time += spent;
			queue->packets += work > 0 ? work : 0;
			queue->polls++;
			queue->cpu = bpf_get_smp_processor_id();
		}
		cpu->watched += spent;
	} else if (!napi->dev || !id) {
		/* The CPU's own queue, into which RPS and virtual devices put packets. */
		cpu->backlog += spent;
		cpu->backlog_packets += work > 0 ? work : 0;
	} else {
		cpu->foreign += spent;
	}
	return 0;
}

/* With interrupts off. Arguments: whether the task was preempted, the one that leaves, the one that comes. */
SEC("tp_btf/sched_switch")
int receive_switch(__u64 *arguments)
{
	struct task_struct *gone = (struct task_struct *)arguments[1], *comes = (struct task_struct *)arguments[2];
	struct cpu_time *cpu;
	__u64 now;

	/* Of the others nothing is counted. */
	if (gone->pid && comes->pid && !(comes->flags & PF_KTHREAD))
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	now = bpf_ktime_get_ns();
	cpu->since = now;
	if (!gone->pid && cpu->idle_since) {
		cpu->idle += now - cpu->idle_since;
		cpu->idle_since = 0;
	}
	if (!comes->pid)
		cpu->idle_since = now;
	return 0;
}

/* Run on each CPU once, which may be idle for long before its next switch. */
SEC("raw_tp")
int receive_begin(void *arguments)
{
	struct cpu_time *cpu = this_cpu();

	if (cpu && !cpu->idle_since && !task_field(current_task(), pid))
		cpu->idle_since = bpf_ktime_get_ns();
	return 0;
}
