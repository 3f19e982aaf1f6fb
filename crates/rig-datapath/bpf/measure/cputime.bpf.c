// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Where each CPU's time goes, counted at each change of what it does: switches between tasks, softirqs, hard interrupts. Only
 * the CPU that a state belongs to writes it. Hard interrupts and switches run with interrupts off; the others may be interrupted
 * at any place, and say so (`changing`): an interrupt that meets them changes nothing, and a reading is made again.
 *
 * The clock is what costs most. It is read once at an event, and not where the answer is known without: at polls of devices that
 * are all of one place, and at interrupts that meet a CPU at work, which count to what they meet unless they are asked for.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "cputime.h"
#include "lib/task.h"
#include "lib/types.h"

#define always_inline inline __attribute__((always_inline))

char _license[] SEC("license") = "Dual MIT/GPL";

/* What was found out about a process, by its number in the kernel's first namespace, or, with process 0, a device's namespace. */
struct known {
	__u32 process;
	__u32 namespace;
	__u32 generation;
	__u32 place;
};

#define KNOWN 16

/* A thread of the kernel, whose name says what it does. */
struct thread {
	__u64 task;
	__u32 id;
	__u32 kind;
};

#define THREADS 8

/* Softirqs for which each poll is measured after one that polled devices of several places. */
#define SEVERAL 64

struct cpu {
	/* When `times` was last added to; 0 while the CPU is not counted. */
	__u64 since;
	/* Whether a program is at its work here that an interrupt may meet. */
	__u32 changing;
	/* Whether a hard interrupt is served that is counted; they do not nest, since handlers run with interrupts off. */
	__u32 hard;
	/* Kind of the softirq that is served, or 0. */
	__u32 soft;
	/* Kind of the task, and whose it is. */
	__u32 task;
	__u32 place;
	/* Events since one was measured. */
	__u32 unmeasured;
	/* The task that is believed to run, when it came, and for how long it had run before, nanoseconds. */
	__u64 who;
	__u64 came;
	__u64 had;
	/* Receive work that is not accounted yet, the polls that were in it, and whose devices they were. */
	__u64 pending;
	__u32 polls;
	__u32 polled;
	/* How many more softirqs are expected to poll devices of several places. */
	__u32 several;
	/* What two looks at the clock are apart at least. */
	__u32 clock;
	struct known known[KNOWN];
	struct thread threads[THREADS];
	struct times times;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* `times` as they were at a reading. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct times);
} readings SEC(".maps");

/* The accounts of watched processes and namespaces. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct watch_key);
	__type(value, __u32);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watcher);
} watchers SEC(".maps");

static always_inline struct cpu *this_cpu(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&cpus, &key);
}

static always_inline struct watcher *watcher(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&watchers, &key);
}

/* Keeps the compiler from moving what an interrupt may see. */
#define barrier() asm volatile("" ::: "memory")

static always_inline void charge(struct cpu *cpu, __u64 from, __u64 until)
{
	__u32 kind = cpu->hard ? HARD : cpu->soft ? cpu->soft : cpu->task;
	__u64 spent = until - from;

	/* The clock may step back a little while it is being set (ktime_get_mono_fast_ns). */
	if ((__s64)spent < 0)
		return;
	cpu->times.kinds[kind & (KINDS - 1)] += spent;
	if (kind == PROCESS)
		cpu->times.places[cpu->place & (ACCOUNTS - 1)].processes += spent;
	else if (kind == NET_RX || kind == NAPI_THREAD)
		cpu->pending += spent;
}

/* At the begin of an event: one of a prime number is measured, so that all of a pattern have their turn. */
static always_inline __u64 begun(struct cpu *cpu)
{
	cpu->times.events++;
	/* Not by the remainder of a division, which costs as much as the clock. */
	if (++cpu->unmeasured < 61)
		return 0;
	cpu->unmeasured = 0;
	return bpf_ktime_get_ns();
}

/* At the end of an event, with what its begin said. */
static always_inline int done(struct cpu *cpu, __u64 begun)
{
	__u64 took;

	if (!begun)
		return 0;
	took = bpf_ktime_get_ns() - begun;
	/* One of the two looks at the clock would not have been without the measurement. */
	took = took > cpu->clock ? took - cpu->clock : 0;
	cpu->times.cost += (__s64)took < 0 ? 0 : took;
	cpu->times.measured++;
	return 0;
}

static always_inline void settle(struct cpu *cpu, __u32 place)
{
	cpu->times.places[place & (ACCOUNTS - 1)].network += cpu->pending;
	cpu->pending = 0;
}

/* The receive work of a softirq, or of a thread, ends. */
static always_inline void settle_all(struct cpu *cpu)
{
	if (cpu->pending)
		settle(cpu, cpu->polled);
	cpu->polled = 0;
	cpu->polls = 0;
}

static always_inline struct upid number_in(struct pid *pid, __u32 level)
{
	struct upid number = {};

	bpf_core_read(&number, sizeof(number), &pid->numbers[level]);
	return number;
}

/* The number of a process in the watching program's namespace; 0 where it has none there. */
static always_inline __u32 number_for(struct watcher *watcher, struct task_struct *task)
{
	struct pid *pid = TYPED_TASKS ? task->group_leader->thread_pid : BPF_CORE_READ(task, group_leader, thread_pid);
	struct upid number;

	/* An ending process has none any more, which reads as zero. */
	if (!pid || task_field(pid, level) < watcher->level)
		return 0;
	number = number_in(pid, watcher->level);
	return BPF_CORE_READ(number.ns, ns.inum) == watcher->namespace ? number.nr : 0;
}

static always_inline __u32 known_place(struct cpu *cpu, __u32 process, __u32 namespace, struct task_struct *task)
{
	struct known *known = &cpu->known[(process ^ namespace) & (KNOWN - 1)];
	struct watch_key watched = { .kind = WATCHED_PROCESS };
	struct watcher *watching = watcher();
	__u32 *place = 0;

	if (!watching)
		return 0;
	if (known->process == process && known->namespace == namespace && known->generation == watching->generation)
		return known->place;
	if (task) {
		watched.id = number_for(watching, task);
		if (watched.id)
			place = bpf_map_lookup_elem(&places, &watched);
	}
	if (!place) {
		watched.kind = WATCHED_NAMESPACE;
		watched.id = namespace;
		place = bpf_map_lookup_elem(&places, &watched);
	}
	known->process = process;
	known->namespace = namespace;
	known->generation = watching->generation;
	known->place = place ? *place : 0;
	return known->place;
}

/* An ending task has no namespaces any more, which reads as zero. */
static always_inline __u32 place_of_task(struct cpu *cpu, struct task_struct *task)
{
	__u32 namespace = TYPED_TASKS ? task->nsproxy->net_ns->ns.inum : BPF_CORE_READ(task, nsproxy, net_ns, ns.inum);

	return known_place(cpu, task_field(task, tgid), namespace, task);
}

static always_inline __u32 place_of_device(struct cpu *cpu, struct net_device *device)
{
	return known_place(cpu, 0, device->nd_net.net->ns.inum, 0);
}

/* bpf_strncmp came with Linux 5.17. */
static always_inline int begins_with(const char *name, const char *with, int length)
{
	int differ = 0;

#pragma unroll
	for (int i = 0; i < length; i++)
		differ |= name[i] ^ with[i];
	return !differ;
}

static always_inline __u32 kind_by_name(struct task_struct *task)
{
	char name[16];

	bpf_core_read(name, sizeof(name), &task->comm);
	if (begins_with(name, "napi/", 5) || begins_with(name, "backlog_", 8))
		return NAPI_THREAD;
	if (begins_with(name, "ksoftirqd/", 10))
		return SOFTIRQ_THREAD;
	return KERNEL_THREAD;
}

static always_inline __u32 kind_of_thread(struct cpu *cpu, struct task_struct *task)
{
	struct thread *thread = &cpu->threads[task_field(task, pid) & (THREADS - 1)];

	if (thread->task != (__u64)task || thread->id != (__u32)task_field(task, pid)) {
		thread->task = (__u64)task;
		thread->id = task_field(task, pid);
		thread->kind = kind_by_name(task);
	}
	return thread->kind;
}

static always_inline void takes_over(struct cpu *cpu, __u64 now, struct task_struct *task)
{
	cpu->who = (__u64)task;
	cpu->came = now;
	cpu->had = task_field(task, se.sum_exec_runtime);
	cpu->place = 0;
	if (!task_field(task, pid)) {
		cpu->task = IDLE;
	} else if (task_field(task, flags) & PF_KTHREAD) {
		cpu->task = kind_of_thread(cpu, task);
	} else {
		cpu->task = PROCESS;
		cpu->place = place_of_task(cpu, task);
	}
}

/*
 * The task that runs now came unseen: some kernels keep a task's switches from tracing. How long the other one ran is known to the
 * scheduler.
 */
static __noinline void repair(struct cpu *cpu, __u64 now, struct task_struct *task)
{
	struct task_struct *gone = (struct task_struct *)cpu->who;
	__u64 ran = 0, left;

	bpf_core_read(&ran, sizeof(ran), &gone->se.sum_exec_runtime);
	left = cpu->came + (ran - cpu->had);
	cpu->hard = 0;
	cpu->soft = 0;
	if (left > cpu->since && left < now) {
		charge(cpu, cpu->since, left);
		cpu->since = left;
	}
	cpu->times.unseen++;
	settle_all(cpu);
	takes_over(cpu, cpu->since, task);
}

/* Charges the time since the last change to what was running. None of these programs that can be interrupted is at work then. */
static always_inline __u64 advance(struct cpu *cpu)
{
	__u64 now = bpf_ktime_get_ns();

	charge(cpu, cpu->since, now);
	cpu->since = now;
	return now;
}

static always_inline void check_task(struct cpu *cpu, struct task_struct *task)
{
	if (cpu->who != (__u64)task)
		repair(cpu, bpf_ktime_get_ns(), task);
}

/* Arguments: whether the task was preempted, the one that leaves, the one that comes. */
SEC("tp_btf/sched_switch")
int cputime_switch(__u64 *arguments)
{
	struct cpu *cpu = this_cpu();
	__u64 measure, now;

	if (!cpu || !cpu->since)
		return 0;
	measure = begun(cpu);
	check_task(cpu, (struct task_struct *)arguments[1]);
	now = advance(cpu);
	settle_all(cpu);
	/*
	 * Tasks are not switched inside an interrupt, so one that still counts as running has ended unseen. With PREEMPT_RT a softirq can
	 * be switched away from: its rest counts to its task.
	 */
	cpu->hard = 0;
	cpu->soft = 0;
	takes_over(cpu, now, (struct task_struct *)arguments[2]);
	return done(cpu, measure);
}

/* Argument: the number of the softirq. */
SEC("raw_tp/softirq_entry")
int cputime_soft_in(struct bpf_raw_tracepoint_args *arguments)
{
	struct cpu *cpu = this_cpu();
	__u64 measure;

	if (!cpu || !cpu->since)
		return 0;
	cpu->changing = 1;
	barrier();
	measure = begun(cpu);
	check_task(cpu, current_task());
	advance(cpu);
	/* What a thread that polls had not settled yet is its own. */
	if (cpu->polls)
		settle_all(cpu);
	/* Softirqs are not served in hard interrupts. */
	cpu->hard = 0;
	cpu->soft = SOFTIRQ + ((__u32)arguments->args[0] < SOFTIRQS ? (__u32)arguments->args[0] : 0);
	done(cpu, measure);
	barrier();
	cpu->changing = 0;
	return 0;
}

SEC("raw_tp/softirq_exit")
int cputime_soft_out(void *arguments)
{
	struct cpu *cpu = this_cpu();
	__u64 measure;

	/* It may have been switched away from, where softirqs can be, or have begun before the count. */
	if (!cpu || !cpu->since || !cpu->soft)
		return 0;
	cpu->changing = 1;
	barrier();
	measure = begun(cpu);
	advance(cpu);
	if (cpu->soft == NET_RX) {
		settle_all(cpu);
		if (cpu->several)
			cpu->several--;
	}
	cpu->soft = 0;
	done(cpu, measure);
	barrier();
	cpu->changing = 0;
	return 0;
}

/* Whether an interrupt is counted to what it meets. */
static always_inline int meets_work(struct cpu *cpu)
{
	struct watcher *watching;

	if (cpu->changing)
		return 1;
	if (!cpu->soft && cpu->task == IDLE)
		return 0;
	watching = watcher();
	return !watching || !watching->interrupts;
}

/* At the entries of device interrupts, and of those of the interrupt controller itself. */
SEC("raw_tp")
int cputime_hard_in(void *arguments)
{
	struct cpu *cpu = this_cpu();
	__u64 measure;

	if (!cpu || !cpu->since)
		return 0;
	measure = begun(cpu);
	if (!meets_work(cpu)) {
		check_task(cpu, current_task());
		advance(cpu);
		cpu->hard = 1;
	}
	return done(cpu, measure);
}

SEC("raw_tp")
int cputime_hard_out(void *arguments)
{
	struct cpu *cpu = this_cpu();
	__u64 measure;

	if (!cpu || !cpu->since)
		return 0;
	measure = begun(cpu);
	if (cpu->hard) {
		advance(cpu);
		cpu->hard = 0;
	}
	return done(cpu, measure);
}

/*
 * After the poll function of another place's device than of those before in the same softirq: where the one ended and the other
 * began was not measured. What has passed is shared out by the number of polls, and the next softirqs are measured.
 */
static __noinline void polls_several(struct cpu *cpu, __u32 place)
{
	__u64 each;

	advance(cpu);
	if (!cpu->several) {
		each = cpu->pending / (cpu->polls + 1);
		cpu->times.places[place & (ACCOUNTS - 1)].network += each;
		cpu->pending -= each;
		settle(cpu, cpu->polled);
	} else {
		settle(cpu, place);
	}
	if (cpu->polls && cpu->polled != place)
		cpu->several = SEVERAL;
}

/* After a device's poll function. Arguments: its NAPI, what it did, and what it might have. */
SEC("tp_btf/napi_poll")
int cputime_poll(__u64 *arguments)
{
	struct napi_struct *napi = (struct napi_struct *)arguments[0];
	struct cpu *cpu = this_cpu();
	__u64 measure;
	__u32 place;

	if (!cpu || !cpu->since)
		return 0;
	/* Else it is a task that polls by itself, and the work is its own. */
	if (cpu->hard || (cpu->soft != NET_RX && (cpu->soft || cpu->task != NAPI_THREAD)))
		return 0;
	cpu->changing = 1;
	barrier();
	measure = begun(cpu);
	/* The CPU's own queue has no device: packets of any may have been in it. */
	place = napi->dev ? place_of_device(cpu, napi->dev) : BACKLOG;
	if (cpu->several || (cpu->polls && cpu->polled != place))
		polls_several(cpu, place);
	cpu->polled = place;
	cpu->polls++;
	done(cpu, measure);
	barrier();
	cpu->changing = 0;
	return 0;
}

/* With interrupts on, unless the reading came from another CPU: what an interrupt charged in between is not charged again. */
static always_inline void advance_to_read(struct cpu *cpu, int exchanges)
{
	if (!exchanges) {
		/* Interrupts that come meanwhile charge nothing. */
		cpu->changing = 1;
		barrier();
		advance(cpu);
		barrier();
		cpu->changing = 0;
		return;
	}
	for (int i = 0; i < 4; i++) {
		__u64 since = *(volatile __u64 *)&cpu->since;
		__u64 now = bpf_ktime_get_ns();

		if (__sync_val_compare_and_swap(&cpu->since, since, now) == since) {
			charge(cpu, since, now);
			break;
		}
	}
}

/* Begins to count on this CPU, with the task that runs. */
static always_inline void begin(struct cpu *cpu, struct task_struct *task)
{
	struct watcher *watching = watcher();
	__u64 now = bpf_ktime_get_ns();

	cpu->changing = 0;
	cpu->hard = 0;
	cpu->soft = 0;
	cpu->pending = 0;
	cpu->polls = 0;
	cpu->polled = 0;
	cpu->clock = watching ? watching->clock : 0;
	takes_over(cpu, now, task);
	barrier();
	cpu->since = now;
}

static always_inline int read_cpu(int exchanges)
{
	struct task_struct *task = current_task();
	struct cpu *cpu = this_cpu();
	struct times *reading;
	__u32 key = 0;

	reading = bpf_map_lookup_elem(&readings, &key);
	if (!cpu || !reading)
		return READ_FAILED;
	if (!cpu->since) {
		begin(cpu, task);
	} else {
		if (cpu->changing)
			return READ_AGAIN;
		check_task(cpu, task);
		advance_to_read(cpu, exchanges);
		/* What is watched may have changed since this task came, and on a quiet CPU it stays for long. */
		if (cpu->task == PROCESS)
			cpu->place = place_of_task(cpu, task);
	}
	for (int i = 0; i < 4; i++) {
		__u64 events = *(volatile __u64 *)&cpu->times.events;

		cpu->times.at = *(volatile __u64 *)&cpu->since;
		bpf_probe_read_kernel(reading, sizeof(*reading), &cpu->times);
		if (*(volatile __u64 *)&cpu->times.events == events)
			return READ_DONE;
	}
	return READ_AGAIN;
}

/* Run on each CPU for a reading, with the time since the last change in it. */
SEC("raw_tp")
int cputime_read(void *arguments)
{
	return read_cpu(1);
}

/* The same where programs cannot compare and exchange: before Linux 5.12. */
SEC("raw_tp")
int cputime_read_plain(void *arguments)
{
	return read_cpu(0);
}

/* Run on a CPU that is to be counted no more: its events cost a look at that. */
SEC("raw_tp")
int cputime_rest(void *arguments)
{
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return READ_FAILED;
	if (cpu->changing)
		return READ_AGAIN;
	cpu->since = 0;
	return READ_DONE;
}

/* Run once by the watching program: numbers of processes are those of its namespace. */
SEC("raw_tp")
int cputime_own(void *arguments)
{
	struct task_struct *task = current_task();
	struct watcher *watching = watcher();
	struct pid *pid = task_field(task, thread_pid);
	__u64 least = 1000;
	__u32 level;

	if (!watching)
		return 1;
	level = task_field(pid, level);
	watching->level = level;
	watching->namespace = BPF_CORE_READ(number_in(pid, level).ns, ns.inum);
	for (int i = 0; i < 32; i++) {
		__u64 before = bpf_ktime_get_ns(), apart = bpf_ktime_get_ns() - before;

		if (apart < least)
			least = apart;
	}
	watching->clock = least;
	return 0;
}
