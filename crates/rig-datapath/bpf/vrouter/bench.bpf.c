// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The vRouter with the programs that benchmarks run. What it wraps is not marked as encapsulated for the kernel, which takes no
 * packet for that twice.
 */
#define ROOM_FLAGS(flags) ((flags) & BPF_F_ADJ_ROOM_FIXED_GSO)
#include "vrouter.bpf.c"
#include "replay.h"
