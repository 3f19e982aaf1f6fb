/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How large TCP's segments may be that come back by a tunnel. */
#ifndef VROUTER_MSS_H
#define VROUTER_MSS_H

#include <stddef.h>

#include "packet.h"

#define MOST_OPTIONS 40
enum tcp_option { OPTION_END = 0, OPTION_NOTHING = 1, OPTION_MSS = 2 };
#define MSS_LENGTH 4

/*
 * Of a SYN into a tunnel that takes IP packets of `mtu` bytes: its maximum segment size (RFC 9293, 3.7.1) becomes one that fits.
 * The size is without options of IP and TCP (RFC 6691). What has none, or options that cannot be, goes on as it is.
 */
__attribute__((noinline)) int lower_mss(struct __sk_buff *skb, __u32 mtu)
{
	const struct work *w = work_here();
	const struct packet *p = w ? &w->packet : 0;
	__u32 from, length, headers, at = 0;
	__u8 options[MOST_OPTIONS] = {};
	__u16 old, new;

	if (!p)
		return 0;
	from = p->l4 + sizeof(struct tcphdr);
	length = p->header - sizeof(struct tcphdr);
	headers = (p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) + sizeof(struct tcphdr);
	if (length < MSS_LENGTH || length > MOST_OPTIONS || p->l4 - p->l3 + p->header > p->length || mtu < headers)
		return 0;
	if (bpf_skb_load_bytes(skb, from, options, length))
		return 0;
	for (int i = 0; i < MOST_OPTIONS; i++) {
		__u8 kind, size;

		if (at + MSS_LENGTH > length || at > MOST_OPTIONS - MSS_LENGTH)
			return 0;
		kind = options[at];
		size = options[at + 1];
		if (kind == OPTION_MSS && size == MSS_LENGTH)
			break;
		if (kind == OPTION_NOTHING)
			size = 1;
		else if (kind == OPTION_END || size < 2)
			return 0;
		at += size;
	}
	if (at > MOST_OPTIONS - MSS_LENGTH)
		return 0;
	old = (__u16)options[at + 2] << 8 | options[at + 3];
	new = mtu - headers;
	if (old <= new)
		return 0;
	old = bpf_htons(old);
	new = bpf_htons(new);
	bpf_skb_store_bytes(skb, from + at + 2, &new, sizeof(new), 0);
	/* In words of the checksum, where the option may begin in the middle of one. */
	if (at & 1) {
		old = __builtin_bswap16(old);
		new = __builtin_bswap16(new);
	}
	bpf_l4_csum_replace(skb, p->l4 + offsetof(struct tcphdr, check), old, new, sizeof(new));
	return 0;
}

#endif
