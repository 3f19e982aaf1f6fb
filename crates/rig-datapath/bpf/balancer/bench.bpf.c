// SPDX-License-Identifier: MIT OR Apache-2.0
/* The balancer with the programs that benchmarks run. */
#include "balancer.bpf.c"
#include "replay.h"
#include "stages.h"
