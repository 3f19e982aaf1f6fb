/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The kernel's network devices. */
#ifndef LIB_DEVICE_H
#define LIB_DEVICE_H

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "address.h"
#include "types.h"

/* include/net/net_namespace.h, net/core/dev.h: lists of interfaces by the last bits of their numbers. */
#define LISTS 256

/* A namespace's device by its number, which is looked for among the first `most` of a list; 0 where there is none. */
static always_inline struct net_device *device_of(struct net *net, int index, int most)
{
	struct hlist_head *heads = BPF_CORE_READ(net, dev_index_head);
	struct hlist_node *node = BPF_CORE_READ(&heads[index & (LISTS - 1)], first);
	int at;

	for (at = 0; at < most && node; at++) {
		struct net_device *device = (void *)node - bpf_core_field_offset(struct net_device, index_hlist);

		if (BPF_CORE_READ(device, ifindex) == index)
			return device;
		node = BPF_CORE_READ(node, next);
	}
	return 0;
}

#endif
