/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Fields of the kernel's tasks: read as a pointer's where the verifier knows the current task's type (Linux 5.11), and copied out before,
 * which takes a call for each.
 */
#ifndef LIB_TASK_H
#define LIB_TASK_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define TYPED_TASKS bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_current_task_btf)

#define task_field(task, field) (TYPED_TASKS ? (task)->field : BPF_CORE_READ(task, field))

static inline __attribute__((always_inline)) struct task_struct *current_task(void)
{
	if (TYPED_TASKS)
		return bpf_get_current_task_btf();
	return (struct task_struct *)bpf_get_current_task();
}

#endif
