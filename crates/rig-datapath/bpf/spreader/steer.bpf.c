// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Gives what an interface receives to CPUs: a flow's hash says its bucket, a table the CPU of each bucket, and a queue in memory
 * (a CPU map) leads there.
 *
 * A bucket that moves goes on to its old CPU until nothing of it can be unfinished there. That is so when the thread that
 * processes that CPU's queue has taken a batch from it after the bucket's last packet was put in, and then found the queue empty
 * and lay down: it lies down with nothing in its hands, merged segments included (kernel/bpf/cpumap.c, cpu_map_kthread_run). It
 * may lie down on what it saw just before a packet was put in, which is why the batch is asked for. Nothing is counted packet by
 * packet, so that what is dropped on the state does not matter.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include "lib/atomic.h"
#include "lib/chunks.h"
#include "lib/packet.h"
#include "steer.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define OF_THE_KERNEL __attribute__((preserve_access_index))

struct task_struct {
	int pid;
	unsigned int __state;
} OF_THE_KERNEL;

/* Before Linux 5.14. */
struct task_struct___before {
	long state;
} OF_THE_KERNEL;

const volatile struct steering steering SEC(".rodata.steering");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} queues SEC(".maps");

/* The kernel's number of `queues`, which a tracing program may not refer to: their programs would be of different types. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} queues_id SEC(".maps");

/* The CPU that each bucket is to be on, and AT_ONCE. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, __u32);
} wanted SEC(".maps");

/* By receive queue and bucket. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket_state);
} ways SEC(".maps");

/* By CPU that packets are given to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct processor);
} processors SEC(".maps");

#ifdef OLD_KERNEL
/* Before Linux 5.19 a program does not read what is another CPU's: by receiving CPU, and the CPU that packets are given to. */
#define OF_EACH_CPU BPF_MAP_TYPE_ARRAY
#else
#define OF_EACH_CPU BPF_MAP_TYPE_PERCPU_ARRAY
#endif
struct {
	__uint(type, OF_EACH_CPU);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct link);
} links SEC(".maps");

#ifdef OLD_KERNEL
static always_inline struct link *link_of(__u32 cpu, __u32 receiver)
{
	__u32 key = receiver * steering.cpus + cpu;

	return bpf_map_lookup_elem(&links, &key);
}

static always_inline struct link *link_here(__u32 cpu)
{
	return link_of(cpu, bpf_get_smp_processor_id());
}
#else
static always_inline struct link *link_of(__u32 cpu, __u32 receiver)
{
	return bpf_map_lookup_percpu_elem(&links, &cpu, receiver);
}

static always_inline struct link *link_here(__u32 cpu)
{
	return bpf_map_lookup_elem(&links, &cpu);
}
#endif

struct flow {
	struct address source, destination;
	__u16 source_port, destination_port;
	__u8 protocol;
	/* Behind the Ethernet header; all are in memory order. */
	__u32 l4, length;
};

/* Ports of TCP and UDP; all else goes by its addresses, fragments as well, because only the first of them has ports. */
static always_inline void read_ports(struct flow *flow, __u8 protocol, struct cursor *c)
{
	struct udphdr *ports = TAKE(c, struct udphdr);

	if ((protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) || !ports)
		return;
	flow->protocol = protocol;
	flow->source_port = ports->source;
	flow->destination_port = ports->dest;
}

/* Whether there is an address by which a packet can go. */
static always_inline int read_flow(struct xdp_md *ctx, struct flow *flow)
{
	struct cursor c = CURSOR(ctx);
	struct ethhdr *ethernet = TAKE(&c, struct ethhdr);
	__be16 type;

	if (!ethernet)
		return 0;
	type = ethernet->h_proto;
	flow->l4 = sizeof(*ethernet);
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)) {
		__be16 *tag = take(&c, TAG_BYTES);

		if (!tag)
			return 0;
		type = tag[1];
		flow->l4 += TAG_BYTES;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = take_ipv4(&c);
		__u32 header;

		if (!ip)
			return 0;
		set_v4(&flow->source, ip->saddr);
		set_v4(&flow->destination, ip->daddr);
		header = ip->ihl * 4;
		flow->length = bpf_ntohs(ip->tot_len) - header;
		flow->l4 += header;
		if (ip->frag_off & bpf_htons(IS_FRAGMENT))
			return 1;
		c.at = (void *)ip + header;
		read_ports(flow, ip->protocol, &c);
		return 1;
	}
	if (type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = take_ipv6(&c);

		if (!ip)
			return 0;
		set_v6(&flow->source, &ip->saddr);
		set_v6(&flow->destination, &ip->daddr);
		flow->length = bpf_ntohs(ip->payload_len);
		flow->l4 += sizeof(*ip);
		read_ports(flow, ip->nexthdr, &c);
		return 1;
	}
	return 0;
}

#ifdef OLD_KERNEL
/* For the verifier: the checksum of the longest headers begins before. */
#define MOST_BEFORE_CHECKSUM 127

static always_inline __u16 *word_at(struct xdp_md *ctx, __u32 at)
{
	__u16 *word = (void *)(long)ctx->data + (at & MOST_BEFORE_CHECKSUM);

	return (void *)(word + 1) <= (void *)(long)ctx->data_end ? word : 0;
}

static always_inline int load_word(struct xdp_md *ctx, __u32 at, __u16 *to)
{
	const __u16 *word = word_at(ctx, at);

	if (word)
		*to = *word;
	return !word;
}

static always_inline void store_word(struct xdp_md *ctx, __u32 at, __u16 value)
{
	__u16 *word = word_at(ctx, at);

	if (word)
		*word = value;
}
#else
static always_inline int load_word(struct xdp_md *ctx, __u32 at, __u16 *to)
{
	return bpf_xdp_load_bytes(ctx, at, to, sizeof(*to));
}

static always_inline void store_word(struct xdp_md *ctx, __u32 at, __u16 value)
{
	bpf_xdp_store_bytes(ctx, at, &value, sizeof(value));
}
#endif

/*
 * A sender on this machine may have left the checksum to its network device, which never came: then the field holds the sum of the
 * pseudo header alone, and that it is so is not known any more behind the queue. It is completed. A complete checksum may look
 * the same once in 65,536, and comes out as it was.
 */
static always_inline void complete(struct xdp_md *ctx, const struct flow *flow)
{
	__u32 at = flow->l4 + (flow->protocol == IPPROTO_TCP ? 16 : 6);
	__u16 checksum, pseudo, whole;
	__s64 sum;

	if (flow->length > 0xffff || load_word(ctx, at, &checksum))
		return;
	pseudo = fold(sum_address(&flow->source) + sum_address(&flow->destination) + bpf_htons(flow->length) +
		      bpf_htons(flow->protocol));
	if (checksum != pseudo)
		return;
	sum = sum_bytes(ctx, flow->l4, flow->length);
	if (sum < 0)
		return;
	/* Without the checksum field itself. */
	whole = ~fold((__u64)sum + (__u16)~checksum + pseudo);
	if (!whole && flow->protocol == IPPROTO_UDP)
		whole = 0xffff;
	if (whole != checksum)
		store_word(ctx, at, whole);
}

/* Whether nothing that went this state is unfinished. */
static always_inline int is_done(const struct bucket_state *state)
{
	__u32 cpu = state->cpu - 1;
	struct processor *processor = bpf_map_lookup_elem(&processors, &cpu);
	struct link *link = link_of(cpu, state->receiver);

	return processor && link && !link->open && processor->slept > link->rounds;
}

static always_inline void move(struct bucket_state *state, __u32 cpu)
{
	state->cpu = cpu;
	state->waits_since = 0;
}

SEC(XDP)
int steer(struct xdp_md *ctx)
{
	__u32 key, cpu, queue = ctx->rx_queue_index, *want;
	struct flow flow = {};
	struct link *link;
	struct bucket_state *state;
	__u64 now;

	if (queue >= steering.queues || !read_flow(ctx, &flow))
		return XDP_PASS;
	key = hash_words(steering.key, &flow.source, &flow.destination,
			 (__u64)flow.protocol << 32 | (__u32)flow.destination_port << 16 | flow.source_port) %
	      BUCKETS;
	want = bpf_map_lookup_elem(&wanted, &key);
	key += queue * BUCKETS;
	state = bpf_map_lookup_elem(&ways, &key);
	if (!want || !state)
		return XDP_ABORTED;
	cpu = (*want & ~AT_ONCE) + 1;
	if (state->cpu == cpu) {
		state->waits_since = 0;
	} else if (!state->cpu || is_done(state)) {
		move(state, cpu);
	} else if (*want & AT_ONCE) {
		move(state, cpu);
		state->forced++;
	} else if (!steering.strict || !state->waits_since) {
		now = bpf_ktime_get_ns();
		if (!state->waits_since) {
			state->waits_since = now;
		} else if (now - state->waits_since > MAX_WAIT) {
			move(state, cpu);
			state->forced++;
		}
	}
	if (steering.completes && flow.protocol)
		complete(ctx, &flow);
	state->packets++;
	state->bytes += frame_length(ctx);
	state->receiver = bpf_get_smp_processor_id();
	cpu = state->cpu - 1;
	link = link_here(cpu);
	if (!link)
		return XDP_ABORTED;
	link->open = 1;
	return bpf_redirect_map(&queues, cpu, XDP_ABORTED);
}

static always_inline int is_ours(__u64 map)
{
	__u32 key = 0, *id = bpf_map_lookup_elem(&queues_id, &key);

	return id && *id == (__u32)map;
}

/* And a barrier. Before Linux 5.12 what adds at once is all that could be one, and is one on x86. */
static always_inline void set_open(struct link *link, __u64 is)
{
#ifdef OLD_KERNEL
	*(volatile __u64 *)&link->open = is;
	sum_up(&link->open, 0);
#else
	__sync_lock_test_and_set(&link->open, is);
#endif
}

/*
 * On the receiving CPU, after packets were put into a queue, or found it full. Arguments: number of the map, packets put in,
 * packets dropped, CPU.
 */
SEC("tp_btf/xdp_cpumap_enqueue")
int steer_put(__u64 *arguments)
{
	__u32 cpu = arguments[3], dropped = arguments[2];
	struct processor *processor;
	struct link *link;

	if (!is_ours(arguments[0]))
		return 0;
	processor = bpf_map_lookup_elem(&processors, &cpu);
	link = link_here(cpu);
	if (!processor || !link)
		return 0;
	/* Also a barrier: that the packets are there comes before `rounds` is read. */
	set_open(link, 1);
	link->rounds = READ_ONCE(processor->rounds);
	set_open(link, 0);
	if (dropped)
		sum_up(&processor->refused, dropped);
	return 0;
}

static always_inline struct processor *this_cpus(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&processors, &cpu);
}

/*
 * In the thread, when it has taken a batch and not processed it yet. Arguments: number of the map, packets taken, packets for which
 * there was no memory, and others.
 */
SEC("tp_btf/xdp_cpumap_kthread")
int steer_taken(__u64 *arguments)
{
	struct processor *processor = this_cpus();
	__u32 thread = bpf_get_current_pid_tgid(), dropped = arguments[2];

	if (!processor || !is_ours(arguments[0]))
		return 0;
	processor->rounds++;
	processor->packets += (__u32)arguments[1];
	if (dropped)
		sum_up(&processor->refused, dropped);
	if (processor->thread != thread) {
		processor->thread = thread;
		processor->since = bpf_ktime_get_ns();
	}
	return 0;
}

/* Whether a task that leaves its CPU waits. */
static always_inline int waits(const struct task_struct *gone, const __u64 *arguments)
{
#ifdef OLD_KERNEL
	const struct task_struct___before *before = (void *)gone;

	if (bpf_core_field_exists(gone->__state))
		return gone->__state != 0;
	return before->state != 0;
#else
	return (__u32)arguments[3] != 0;
#endif
}

/*
 * Arguments: whether the task was preempted, the one that leaves, the one that comes, and since Linux 5.18 the state of the one that
 * leaves.
 */
SEC("tp_btf/sched_switch")
int steer_switch(__u64 *arguments)
{
	struct task_struct *gone = (struct task_struct *)arguments[1], *comes = (struct task_struct *)arguments[2];
	struct processor *processor = this_cpus();

	if (!processor || !processor->thread)
		return 0;
	if ((__u32)gone->pid == processor->thread) {
		if (processor->since)
			processor->time += bpf_ktime_get_ns() - processor->since;
		processor->since = 0;
		/* Else it was preempted, and has still to do. */
		if (!(arguments[0] & 1) && waits(gone, arguments))
			*(volatile __u64 *)&processor->slept = processor->rounds;
	} else if ((__u32)comes->pid == processor->thread) {
		processor->since = bpf_ktime_get_ns();
	}
	return 0;
}

SEC("raw_tp/softirq_entry")
int steer_soft_in(void *arguments)
{
	struct processor *processor = this_cpus();

	if (processor && processor->thread && processor->thread == (__u32)bpf_get_current_pid_tgid())
		processor->softirq = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tp/softirq_exit")
int steer_soft_out(void *arguments)
{
	struct processor *processor = this_cpus();

	if (processor && processor->softirq) {
		if (processor->since)
			processor->since += bpf_ktime_get_ns() - processor->softirq;
		processor->softirq = 0;
	}
	return 0;
}
