/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The SYN proxy's cookies: sequence numbers that say whether a client has had the answer to its SYN, and what it offered there. From the
 * lowest bit: 22 bits of a keyed hash of addresses, ports and the client's own number; 3 of the MSS, 1 whether it takes SACK, 4 of its
 * window scale; and 2 of the epoch, which has a key of its own. By chance a packet has one in three of four epochs, and there
 * are two numbers that it may be of: one in 2.8 million.
 */
#ifndef BALANCER_COOKIE_H
#define BALANCER_COOKIE_H

#include "lib/siphash.h"
#include "options.h"

#define COOKIE_HASH_BITS 22
#define COOKIE_MSS(cookie) ((cookie) >> 22 & 7)
#define COOKIE_MAY_SACK(cookie) ((cookie) >> 25 & 1)
#define COOKIE_SCALE(cookie) ((cookie) >> 26 & 15)
#define COOKIE_EPOCH(cookie) ((cookie) >> 30)

/* Of a client that says nothing of it (RFC 9293, 3.7.1). */
#define DEFAULT_MSS_V4 536
#define DEFAULT_MSS_V6 1220

/* The largest segments that a client takes, of which no larger one is offered to backends: by Ethernet, PPPoE, tunnels, jumbo frames. */
static always_inline __u16 mss_of(__u32 number)
{
	switch (number & 7) {
	case 0:
		return 216;
	case 1:
		return 536;
	case 2:
		return 1220;
	case 3:
		return 1360;
	case 4:
		return 1400;
	case 5:
		return 1440;
	case 6:
		return 1460;
	default:
		return 8940;
	}
}

static always_inline __u32 mss_number(__u16 mss)
{
	return (mss >= 536) + (mss >= 1220) + (mss >= 1360) + (mss >= 1400) + (mss >= 1440) + (mss >= 1460) +
	       (mss >= 8940);
}

/* Of a flow and the client's own number, or, one word longer, of a flow alone. */
static always_inline __u64 hash_flow(const struct tuple *t, int ipv6, __u32 isn, int alone, const __u64 *key)
{
	__u64 last = (__u64)isn << 32 | (__u32)t->destination_port << 16 | t->source_port;
	struct sip s;

	sip_begin(&s, key);
	if (ipv6) {
		sip_word(&s, t->source.hi);
		sip_word(&s, t->source.lo);
		sip_word(&s, t->destination.hi);
		sip_word(&s, t->destination.lo);
		sip_word(&s, last);
		if (alone)
			sip_word(&s, 0);
		return sip_end(&s, alone ? 6 : 5);
	}
	sip_word(&s, (__u64)v4_of(&t->destination) << 32 | v4_of(&t->source));
	sip_word(&s, last);
	if (alone)
		sip_word(&s, 0);
	return sip_end(&s, alone ? 3 : 2);
}

static always_inline __u32 hash_cookie(const struct tuple *t, int ipv6, __u32 isn, const __u64 *key)
{
	return hash_flow(t, ipv6, isn, 0, key) & ((1 << COOKIE_HASH_BITS) - 1);
}

static always_inline const struct cookie_keys *keys_of_cookies(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&cookie_keys, &key);
}

static always_inline __u32 cookie_of(const struct packet *p, __u32 isn, __u32 mss, int may_sack, __u32 scale)
{
	const struct cookie_keys *k = keys_of_cookies();
	__u32 epoch;

	if (!k)
		return 0;
	epoch = k->epoch % EPOCHS;
	return hash_cookie(&p->tuple, p->ipv6, isn, k->key[epoch]) | mss_number(mss) << 22 | may_sack << 25 | scale << 26 |
	       epoch << 30;
}

/* This epoch, the one before, and the next, which other balancers with the same secret may be in. */
static always_inline int is_near(__u32 epoch, const struct cookie_keys *k)
{
	return ((epoch - k->epoch) & (EPOCHS - 1)) != 2;
}

/*
 * What a client is asked for whose address only has to answer: a number of nothing that it has sent, which it refuses by a reset that has
 * it (RFC 9293, 3.10.7.3). 30 bits of a keyed hash of addresses and ports, and the epoch as in cookies.
 */
static always_inline __u32 challenge_in(const struct packet *p, __u32 epoch, const struct cookie_keys *k)
{
	return (hash_flow(&p->tuple, p->ipv6, 0, 1, k->key[epoch % EPOCHS]) & 0x3fffffff) | epoch << 30;
}

static always_inline __u32 challenge_of(const struct packet *p)
{
	const struct cookie_keys *k = keys_of_cookies();

	return k ? challenge_in(p, k->epoch % EPOCHS, k) : 0;
}

/* Whether a reset is the answer to a challenge. */
OF_PACKET(int, is_answer, (struct xdp_md *ctx), (ctx))
{
	const struct cookie_keys *k = keys_of_cookies();
	struct tcphdr *tcp;
	__u32 number;

	if (!p || !k)
		return 0;
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return 0;
	number = bpf_ntohl(tcp->seq);
	return is_near(COOKIE_EPOCH(number), k) && challenge_in(p, COOKIE_EPOCH(number), k) == number;
}

/* Whether a packet of no connection acknowledges a cookie: enum cookie. */
OF_PACKET(__u32, find_cookie, (struct xdp_md *ctx), (ctx))
{
	const struct cookie_keys *k = keys_of_cookies();
	struct tcphdr *tcp;
	__u32 cookie, hash, sequence, epoch;

	if (!p || !k || p->tuple.protocol != IPPROTO_TCP || (p->tcp_flags & (TCP_ACK | TCP_SYN | TCP_RST)) != TCP_ACK)
		return NO_COOKIE;
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return NO_COOKIE;
	cookie = bpf_ntohl(tcp->ack_seq) - 1;
	sequence = bpf_ntohl(tcp->seq);
	epoch = COOKIE_EPOCH(cookie);
	if (!is_near(epoch, k))
		return NO_COOKIE;
	hash = cookie & ((1 << COOKIE_HASH_BITS) - 1);
	if (hash_cookie(&p->tuple, p->ipv6, sequence - 1, k->key[epoch % EPOCHS]) == hash)
		return COOKIE;
	if (hash_cookie(&p->tuple, p->ipv6, sequence, k->key[epoch % EPOCHS]) == hash)
		return COOKIE_OF_PROBE;
	return NO_COOKIE;
}

#endif
