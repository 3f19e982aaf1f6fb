/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Programs that need it (build.rs has their list) are compiled twice: as they are, and with OLD_KERNEL for kernels that lack one of the helpers which
 * these call (src/kernel.rs), of which the oldest is 5.10. What those lack has one name for both here.
 */
#ifndef LIB_OLD_H
#define LIB_OLD_H

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* The items of a list in parentheses, which is one argument of a macro. */
#define LISTED(...) __VA_ARGS__

/*
 * 0, of which the verifier knows no more than of `word`. Before Linux 6.7 it follows the body of bpf_loop once alone, with what is known where
 * that begins, and takes out branches that it has not seen taken. So where a branch depends on what the body itself changes, that begins with this.
 */
#define UNKNOWN_ZERO(word)                                                                                             \
	({                                                                                                             \
		__u64 known = (word), unknown = known;                                                                 \
                                                                                                                       \
		barrier_var(unknown);                                                                                  \
		known ^ unknown;                                                                                       \
	})

#ifdef OLD_KERNEL

/*
 * Calls `body` with 0, 1 ... and `context` until it returns other than 0, `count` times at most, and never more than the constant `most`. The
 * compiler is not to take the comparison with that out, nor to make one of both, where it knows the count to be less: such a verifier may have
 * forgotten that (of a number on the stack it has only its value), and follows a loop of which it knows no end until it gives up.
 */
#define LOOP(most, count, body, context)                                                                               \
	do {                                                                                                           \
		__u32 rounds = (count), turn = 0;                                                                      \
                                                                                                                       \
		if (!__builtin_constant_p(count))                                                                      \
			barrier_var(rounds);                                                                           \
		for (; turn < (most); turn++) {                                                                        \
			barrier_var(turn);                                                                             \
			if (turn >= rounds || body(turn, context))                                                     \
				break;                                                                                 \
		}                                                                                                      \
	} while (0)

/* What the verifier learns of a copy of this behind here it does not know of it: what is known would differ each time round a loop. */
#define FORGET(copy) barrier_var(copy)

/* A function that the verifier walks through once, by itself, since Linux 5.12 also where it is given pointers; before, it does so for each call. */
#define OF_POINTERS static __attribute__((noinline))

/* Since Linux 5.11. */
#define coarse_ns bpf_ktime_get_ns

/* Since Linux 5.13, which types do not tell of; what they tell of came with the next. Before, the kernel cuts as well, but no device does. */
#define ENCAPSULATES_FRAMES                                                                                            \
	(bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_sys_bpf) ? BPF_F_ADJ_ROOM_ENCAP_L2_ETH : 0)

/* A frame is one piece before Linux 5.18. */
#define XDP "xdp"
static inline __attribute__((__always_inline__)) __u32 frame_length(const struct xdp_md *ctx)
{
	__u64 length = (long)ctx->data_end - (long)ctx->data;

	/* All of it: of half an address the verifier has it no more. */
	barrier_var(length);
	return length;
}

#else

#define LOOP(most, count, body, context) bpf_loop(count, body, context, 0)
#define coarse_ns bpf_ktime_get_coarse_ns
#define FORGET(copy)
#define OF_POINTERS __attribute__((noinline))
#define ENCAPSULATES_FRAMES BPF_F_ADJ_ROOM_ENCAP_L2_ETH
#define XDP "xdp.frags"
#define frame_length(ctx) bpf_xdp_get_buff_len(ctx)

#endif

#endif
