/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Connections whose two sides have opened with different numbers: the client's with the SYN proxy, and the proxy's with the backend. What
 * differs is added in each packet: to the backend's sequence numbers and timestamps on their way out, and taken off where the client
 * echoes them.
 */
#ifndef BALANCER_SPLICE_H
#define BALANCER_SPLICE_H

#include "options.h"

/* Of `word`: the numbers' difference, or the cookie; and, where it is open, by how much windows are shifted. */
#define SPLICE_NUMBER(word) ((__u32)(word))
#define SPLICE_PHASE(word) ((__u32)((word) >> 32) & 0xff)
/* The backend's scale of windows, and how far the client's windows are to be shifted for it. */
#define SPLICE_OUT(word) ((__u32)((word) >> 40) & 15)
#define SPLICE_IN(word) ((__u32)((word) >> 48) & 15)
#define SPLICE_SCALED(word) ((__u32)((word) >> 56) & 1)

static always_inline struct splice *record_of_splice(__u32 slot)
{
	__u32 key = 0;
	void *inner = bpf_map_lookup_elem(&splices, &key);

	return inner ? bpf_map_lookup_elem(inner, &slot) : 0;
}

static always_inline struct splice *splice_at(__u32 slot)
{
#if TRACING
	struct trace *t = trace_record();

	return t ? &t->splice : 0;
#else
	return record_of_splice(slot);
#endif
}

static always_inline int is_spliced(const struct connection *c)
{
	return c->counter & SPLICED;
}

static always_inline __u16 swapped(__u16 word)
{
	return word << 8 | word >> 8;
}

struct shifting {
	struct xdp_md *ctx;
	__u32 at, end, l4;
	/* What is added, in host byte order: to sequence numbers of SACK, to the timestamp, and to its echo. */
	__u32 sack, time, echo;
	/* What the checksum changes by. */
	__u64 change;
};

/* Adds to a number that may be anywhere; the number is there. */
static always_inline void add_to(struct shifting *s, void *at, __u32 odd, __u32 what)
{
	__u16 *word = at;
	__u32 old = (__u32)word[0] | (__u32)word[1] << 16, new = bpf_htonl(bpf_ntohl(old) + what);
	__u16 change = fold((__u64)(__u32)~old + new);

	word[0] = new;
	word[1] = new >> 16;
	/* Bytes that are not on a word's boundary count the other way round (RFC 1071, 2 (B)). */
	s->change += odd & 1 ? swapped(change) : change;
}

static long shift_option(__u32 i, struct shifting *s)
{
	__u32 length, next, at = s->at;
	__u8 *option = next_option(s->ctx, at, s->end, &next, &length);
	void *end = (void *)(long)s->ctx->data_end;
	__u32 odd = at - s->l4;

	if (!option)
		return 1;
	s->at = next;
	if (option[0] == OPTION_TIME && length == TIME_BYTES && (void *)(option + TIME_BYTES) <= end) {
		add_to(s, option + 2, odd, s->time);
		/* RFC 7323, 3.2: without ACK it says nothing. */
		if (s->echo)
			add_to(s, option + 6, odd, s->echo);
	} else if (option[0] == OPTION_SACK && s->sack) {
#pragma unroll
		for (__u32 edge = 0; edge < 8; edge++) {
			__u8 *number = option + 2 + 4 * edge;

			if (length < 6 + 4 * edge || (void *)(number + 4) > end)
				break;
			add_to(s, number, odd, s->sack);
		}
	}
	return 0;
}

/* A window, as the other side is to read it. */
static always_inline __u16 shifted_window(__u16 window, __u64 word, enum direction direction)
{
	__u32 wide = bpf_ntohs(window);

	if (!SPLICE_SCALED(word))
		return window;
	if (direction == OUTWARD)
		wide = wide << SPLICE_OUT(word) >> OWN_SCALE;
	else
		wide <<= SPLICE_IN(word);
	return bpf_htons(wide > 0xffff ? 0xffff : wide);
}

/* The numbers of a segment that is translated; 0 or a reason for a drop. */
OF_PACKET(int, shift, (struct xdp_md *ctx, __u32 entry), (ctx, entry))
{
	const enum direction direction = DIRECTION(entry);
	struct splice *splice = splice_at(SLOT(entry));
	struct shifting s = { .ctx = ctx };
	struct tcphdr *tcp;
	__u64 word;
	__u32 l4, delta;
	__u16 window;

	if (!p || !splice)
		return DROP_INTERNAL;
	word = *(volatile __u64 *)&splice->word;
	if (SPLICE_PHASE(word) != SPLICE_OPEN)
		return 0;
	delta = SPLICE_NUMBER(word);
	l4 = p->l4 & L4_MASK;
	tcp = (void *)(long)ctx->data + l4;
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	s.l4 = l4;
	s.at = l4 + sizeof(*tcp);
	s.end = l4 + tcp->doff * 4;
	if (direction == OUTWARD) {
		s.time = splice->timestamp;
		add_to(&s, &tcp->seq, 0, delta);
	} else if (p->tcp_flags & TCP_ACK) {
		s.sack = -delta;
		s.echo = -splice->timestamp;
		add_to(&s, &tcp->ack_seq, 0, -delta);
	}
	window = shifted_window(tcp->window, word, direction);
	s.change += (__u16)~tcp->window + (__u64)window;
	tcp->window = window;
	LOOP(MOST_OPTIONS, MOST_OPTIONS, shift_option, &s);
	/* Such a checksum does not cover them. */
	if (p->partial)
		return 0;
	tcp = (void *)(long)ctx->data + l4;
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	tcp->check = updated(tcp->check, fold(s.change));
	return 0;
}

/* What to add to the sequence number that an error quotes of a backend's packet, as the client's side has it. */
static always_inline __u32 quoted_delta(__u32 slot)
{
	struct splice *splice = splice_at(slot);
	__u64 word = splice ? *(volatile __u64 *)&splice->word : 0;

	return SPLICE_PHASE(word) == SPLICE_OPEN ? -SPLICE_NUMBER(word) : 0;
}

#endif
