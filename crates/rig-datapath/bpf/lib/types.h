/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What of the kernel's types is read; where it is in them is found when a program is loaded. */
#ifndef LIB_TYPES_H
#define LIB_TYPES_H

#include <linux/types.h>

#define OF_THE_KERNEL __attribute__((preserve_access_index))

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000

struct list_head {
	struct list_head *next;
} OF_THE_KERNEL;

struct hlist_node {
	struct hlist_node *next;
} OF_THE_KERNEL;

struct hlist_head {
	struct hlist_node *first;
} OF_THE_KERNEL;

struct ns_common {
	unsigned int inum;
} OF_THE_KERNEL;

struct net {
	struct ns_common ns;
	struct hlist_head *dev_index_head;
} OF_THE_KERNEL;

struct nsproxy {
	struct net *net_ns;
} OF_THE_KERNEL;

struct sched_entity {
	__u64 sum_exec_runtime;
} OF_THE_KERNEL;

struct pid_namespace {
	struct ns_common ns;
} OF_THE_KERNEL;

/* Read as a whole, so that its layout is this one: there is one of it for each namespace that a process is in. */
struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
} OF_THE_KERNEL;

struct task_struct {
	unsigned int flags;
	struct sched_entity se;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	char comm[16];
	struct nsproxy *nsproxy;
} OF_THE_KERNEL;

typedef struct {
	struct net *net;
} OF_THE_KERNEL possible_net_t;

struct net_device {
	int ifindex;
	unsigned int mtu;
	const __u8 *dev_addr;
	/* What dev_addr points to, which a program may not follow, as the kernel keeps it to compare with; older ones have none. */
	__u8 dev_addr_shadow[32];
	struct hlist_node index_hlist;
	struct list_head napi_list;
	possible_net_t nd_net;
} OF_THE_KERNEL;

struct xdp_rxq_info {
	struct net_device *dev;
} OF_THE_KERNEL;

struct xdp_buff {
	struct xdp_rxq_info *rxq;
} OF_THE_KERNEL;

struct napi_struct {
	struct list_head dev_list;
	struct net_device *dev;
	unsigned int napi_id;
	/* Since Linux 5.12. */
	struct task_struct *thread;
} OF_THE_KERNEL;

#endif
