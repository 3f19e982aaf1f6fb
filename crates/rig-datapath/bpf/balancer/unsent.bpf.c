// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Packets that a device did not take. The kernel hands over those that are redirected some at a time, after the program has ended, and
 * drivers those that are sent back (XDP_TX); only tracepoints say what became of them.
 */
#include "maps.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* The kernel's numbers of the balancer's programs that packets come to; 0 for none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} entries SEC(".maps");

/* What of the kernel's types is read here; their places are found when the program is loaded. */
#define OF_THE_KERNEL __attribute__((preserve_access_index))

struct bpf_prog_aux {
	__u32 id;
} OF_THE_KERNEL;

struct bpf_prog {
	struct bpf_prog_aux *aux;
} OF_THE_KERNEL;

struct bpf_link {
	struct bpf_prog *prog;
} OF_THE_KERNEL;

struct bpf_xdp_link {
	struct bpf_link link;
} OF_THE_KERNEL;

struct bpf_xdp_entity {
	struct bpf_xdp_link *link;
} OF_THE_KERNEL;

/* Of enum bpf_xdp_mode. */
#define GENERIC 0
#define DRIVER 1

struct net_device {
	struct bpf_xdp_entity xdp_state[3];
} OF_THE_KERNEL;

static always_inline int is_ours(__u32 id)
{
	for (__u32 i = 0; id && i < 2; i++) {
		__u32 key = i, *entry = bpf_map_lookup_elem(&entries, &key);

		if (entry && *entry == id)
			return 1;
	}
	return 0;
}

static always_inline int has_ours(const struct bpf_xdp_link *attached)
{
	return attached && is_ours(attached->link.prog->aux->id);
}

static always_inline int add(__u32 packets)
{
	__u32 key = DROP_NOT_SENT;
	__u64 *count = bpf_map_lookup_elem(&drops, &key);

	if (count)
		*count += packets;
	return 0;
}

static always_inline int add_from(const struct net_device *from, __u32 packets)
{
	if (!packets || !from)
		return 0;
	/* The places of elements are found for numbers that are written out. */
	if (!has_ours(from->xdp_state[DRIVER].link) && !has_ours(from->xdp_state[GENERIC].link))
		return 0;
	return add(packets);
}

/* Arguments: the device that they came in by, the one they were to leave by, how many it took, how many it did not. */
SEC("tp_btf/xdp_devmap_xmit")
int count_unsent(__u64 *arguments)
{
	return add_from((const struct net_device *)arguments[0], arguments[3]);
}

/* Not even handed over: there is no such device, or it is down, or its driver has nothing for it. */
SEC("tp_btf/xdp_redirect_err")
int count_refused_redirect(__u64 *arguments)
{
	return add_from((const struct net_device *)arguments[0], 1);
}

/*
 * Turned round and not sent, as most drivers tell; in generic mode redirected packets come here, too, when the device's
 * queue is stopped. Arguments: device, program, what it returned.
 */
SEC("tp_btf/xdp_exception")
int count_unsent_back(__u64 *arguments)
{
	const struct bpf_prog *program = (const struct bpf_prog *)arguments[1];

	return (__u32)arguments[2] == XDP_TX && program && is_ours(program->aux->id) ? add(1) : 0;
}
