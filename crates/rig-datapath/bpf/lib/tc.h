/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel's headers have since Linux 6.6 only. */
#pragma once

/* linux/bpf.h: to the programs of others behind this one, and then to the host. */
#ifndef TCX_NEXT
#define TCX_NEXT -1
#endif
