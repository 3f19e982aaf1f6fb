// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The vRouter's programs for packets that are traced. They run on tables of their own where they change any (src/vrouter/trace.rs), and
 * send no copies; all else of them is the same source.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* Behind the declaration of the helper, which it replaces: each copy is made. */
#define bpf_clone_redirect(skb, ifindex, flags) 0

#include "vrouter.bpf.c"
