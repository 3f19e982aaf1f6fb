/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the running kernel has. The verifier does not look at branches that these constants exclude. */
#ifndef LIB_KERNEL_H
#define LIB_KERNEL_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* Set when an object is loaded: src/kernel.rs. */
struct kernel {
	/* bpf_cast_to_kern_ctx, since Linux 6.2. */
	__u32 casts_contexts;
};
const volatile struct kernel kernel SEC(".rodata.kernel");

#endif
