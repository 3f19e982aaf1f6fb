/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef NAPIS_H
#define NAPIS_H

#include <linux/types.h>

/* Queues of an interface that are told. */
#define NAPIS_MOST 256

/* How a queue is received from; thread 0 where none is. */
struct napi_entry {
	__u32 id;
	__u32 thread;
};

#endif
