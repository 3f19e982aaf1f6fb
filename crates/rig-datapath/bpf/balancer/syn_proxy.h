/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The SYN proxy: a SYN is answered here, by a SYN-ACK whose number is a cookie (cookie.h), and nothing is kept. Who acknowledges it has
 * the address that the SYN was from: then the connection is made, and opened with a backend by a SYN with what the client offered.
 *
 *	client                          here                          backend
 *	SYN             ------>
 *	                <------  SYN-ACK, window 0
 *	ACK             ------>  is made a SYN            ------>
 *	                                                  <------     SYN-ACK
 *	                <------  is made a keep-alive
 *	ACK, or data    ------>  numbers shifted          ------>
 *
 * The window is closed so that the client sends no data which could not go anywhere yet. What opens it is the backend's SYN-ACK, made a
 * keep-alive of one byte in the place of the SYN (RFC 9293, 3.8.4; RFC 1122, 4.2.3.6), which is acknowledged: so the backend's side
 * comes up also where the client waits for it to speak. One packet is made of one packet, and no timer is needed: a lost SYN goes
 * again with the client's next question whether the window is open, and a lost SYN-ACK the backend sends again.
 *
 * Where backends answer their clients by themselves, numbers cannot be translated. There only addresses that answer are let in, be it by
 * a host that has not asked:
 *
 *	SYN             ------>
 *	                <------  SYN-ACK of a number that it has not sent
 *	RST             ------>  is noted
 *	SYN again       ------>  goes on                  ------>
 *
 * Linux sends its SYN again at once (tcp_rcv_synsent_state_process, since 5.6), others after a second.
 */
#ifndef BALANCER_SYN_PROXY_H
#define BALANCER_SYN_PROXY_H

#include "cookie.h"
#include "gap.h"
#include "splice.h"
#include "state.h"
#include "route.h"

/* Of Ethernet (RFC 9293, 3.7.1), whatever there is behind: larger ones than fit are told of by ICMP. */
#define OWN_MSS_V4 1460
#define OWN_MSS_V6 1440
#define OWN_TTL 64
/* The timestamp is the time in units of 2^20 ns. */
#define TIME_SHIFT (TICK_SHIFT - 20)

/* How long a client is admitted: 10 min. */
#define ADMITTED_TICKS (600000000000ULL >> TICK_SHIFT)

/* Whether the proxy opens connections of this service. */
static always_inline int is_opened_here(const struct service *s)
{
	return s->syn_proxy != PROXY_OFF && !is_direct_return(s);
}

/* Whether connections of this service may begin with cookies. */
static always_inline int takes_cookies(const struct service *s)
{
	__u32 key = 0;

	return is_opened_here(s) && bpf_map_lookup_elem(&splices, &key);
}

/* Whether it only admits clients. */
static always_inline int is_admitting(const struct service *s)
{
	return s->syn_proxy != PROXY_OFF && is_direct_return(s);
}

/* Whether its SYNs are answered here now. A function of its own as `ask_kernel`. */
static __noinline int is_proxying(__u32 service)
{
	const struct service *s = service_at(service);
	__u64 *waiting;

	if (!s || !(is_admitting(s) || takes_cookies(s)))
		return 0;
	if (s->syn_proxy == PROXY_ALWAYS)
		return 1;
	waiting = unanswered_of(service);
	return waiting && *(volatile __u64 *)waiting >= s->proxy_from;
}

/* Makes the frame end `bytes` behind where TCP's header begins, all of which are to be written: they may be other ones before. */
static always_inline int resize(struct xdp_md *ctx, struct packet *p, __u32 bytes)
{
	__u32 length = (p->l4 & L4_MASK) + bytes;
	int lacking = (int)length - (int)frame_length(ctx);

	/* The kernel's copy of a packet, which veth makes of some, has no room behind it. */
	if (lacking && bpf_xdp_adjust_tail(ctx, lacking) &&
	    (lacking < 0 || make_gap(ctx, p->l4 & L4_MASK, lacking)))
		return DROP_INTERNAL;
	p->l3_length = length - (p->l3 & L3_MASK);
	return 0;
}

/* So many bytes are behind the header of IP, which says so. */
static always_inline int set_length(struct xdp_md *ctx, const struct packet *p, __u32 bytes)
{
	void *end = (void *)(long)ctx->data_end, *l3 = (void *)(long)ctx->data + (p->l3 & L3_MASK);

	if (p->ipv6) {
		struct ipv6hdr *ip = l3;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		ip->payload_len = bpf_htons(bytes);
	} else {
		struct iphdr *ip = l3;
		__u16 length = bpf_htons(p->l3_length);

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		ip->check = exchanged(ip->check, ip->tot_len, length);
		ip->tot_len = length;
	}
	return 0;
}

/* The sum of so many bytes, a multiple of 4 that the compiler knows, which are there. */
#define SUM_BYTES(at, bytes)                                                                                           \
	({                                                                                                             \
		const __u32 *words = (const void *)(at);                                                               \
		__u64 sum_of_words = 0;                                                                                \
		_Pragma("unroll") for (__u32 word_at = 0; word_at < (bytes) / 4; word_at++) sum_of_words += words[word_at]; \
		sum_of_words;                                                                                          \
	})

/* What a header says. */
struct segment {
	/* In network byte order. */
	__be32 sequence, acknowledged;
	__u16 window;
	__u8 flags;
};

/*
 * Writes TCP's header but for ports, with options that were offered, and the length into that of IP. 0 or a reason for a drop. `p` is
 * what it answers or, where `back` is not set, what it is made of.
 */
static always_inline int write_segment(struct xdp_md *ctx, struct packet *p, const struct segment *s, const struct offer *o, int back)
{
	__u32 l4 = p->l4 & L4_MASK, bytes = sizeof(struct tcphdr) + (o->has_time ? OPTIONS_WITH_TIME : OPTIONS_WITHOUT_TIME);
	void *end;
	struct tcphdr *tcp;
	__u64 sum;

	if (resize(ctx, p, bytes))
		return DROP_INTERNAL;
	end = (void *)(long)ctx->data_end;
	tcp = (void *)(long)ctx->data + l4;
	if ((void *)tcp + sizeof(*tcp) + OPTIONS_WITHOUT_TIME > end)
		return DROP_INTERNAL;
	tcp->source = back ? p->tuple.destination_port : p->tuple.source_port;
	tcp->dest = back ? p->tuple.source_port : p->tuple.destination_port;
	tcp->seq = s->sequence;
	tcp->ack_seq = s->acknowledged;
	((__u8 *)tcp)[12] = bytes / 4 << 4;
	((__u8 *)tcp)[13] = s->flags;
	tcp->window = s->window;
	tcp->check = 0;
	tcp->urg_ptr = 0;
	sum = sum_pseudo(&p->tuple.source, &p->tuple.destination, IPPROTO_TCP, bytes);
	if (o->has_time) {
		if ((void *)tcp + sizeof(*tcp) + OPTIONS_WITH_TIME > end)
			return DROP_INTERNAL;
		write_options((__be32 *)(tcp + 1), o);
		sum += SUM_BYTES(tcp, sizeof(*tcp) + OPTIONS_WITH_TIME);
	} else {
		struct offer less = *o;

		less.has_time = 0;
		write_options((__be32 *)(tcp + 1), &less);
		sum += SUM_BYTES(tcp, sizeof(*tcp) + OPTIONS_WITHOUT_TIME);
	}
	tcp->check = ~fold(sum);
	return set_length(ctx, p, bytes);
}

/* The packet goes back to where it came from, with a header of its own. */
static always_inline int turn_round(struct xdp_md *ctx, const struct packet *p)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	__u8 mac[6];

	if ((void *)(ethernet + 1) > end)
		return DROP_INTERNAL;
	__builtin_memcpy(mac, ethernet->h_source, 6);
	__builtin_memcpy(ethernet->h_source, ethernet->h_dest, 6);
	__builtin_memcpy(ethernet->h_dest, mac, 6);
	if (p->ipv6) {
		struct ipv6hdr *ip = (void *)ethernet + (p->l3 & L3_MASK);

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		*(__be32 *)ip = bpf_htonl(6u << 28);
		ip->hop_limit = OWN_TTL;
		get_v6(&ip->saddr, &p->tuple.destination);
		get_v6(&ip->daddr, &p->tuple.source);
	} else {
		struct iphdr *ip = (void *)ethernet + (p->l3 & L3_MASK);
		__u64 sum;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		ip->tos = 0;
		ip->id = 0;
		ip->frag_off = bpf_htons(DONT_FRAGMENT);
		ip->ttl = OWN_TTL;
		ip->saddr = v4_of(&p->tuple.destination);
		ip->daddr = v4_of(&p->tuple.source);
		sum = bpf_htons(0x4500) + (__u64)ip->tot_len + ip->frag_off + bpf_htons(OWN_TTL << 8 | IPPROTO_TCP) + ip->saddr +
		      ip->daddr;
		ip->check = ~fold(sum);
	}
	return 0;
}

/* Answers a SYN by a cookie; 0 or a reason for a drop. */
OF_PACKET(int, answer_syn, (struct xdp_md *ctx, __u32 number, __u32 tick), (ctx, number, tick))
{
	const struct service *service = service_at(number);
	struct segment s = { .flags = TCP_SYN | TCP_ACK };
	struct offer o = {};
	struct tcphdr *tcp;
	__u64 options;
	__u32 isn, time, mss;

	if (!p || !service)
		return DROP_INTERNAL;
	options = read_options(ctx, p->l4);
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	isn = bpf_ntohl(tcp->seq);
	mss = OPTIONS_MSS(options) ?: p->ipv6 ? DEFAULT_MSS_V6 : DEFAULT_MSS_V4;
	o.scale = OPTIONS_SCALE(options);
	o.may_sack = OPTIONS_MAY_SACK(options);
	if (is_direct_return(service)) {
		s.acknowledged = bpf_htonl(challenge_of(p));
	} else {
		s.acknowledged = bpf_htonl(isn + 1);
		s.sequence = bpf_htonl(cookie_of(p, isn, mss, o.may_sack, o.scale));
	}
	time = OPTIONS_TIME(options);
	if (time) {
		o.has_time = 1;
		o.echo = read_times(ctx, time);
		/* 0 would be none. */
		o.time = bpf_htonl(tick << TIME_SHIFT | 1);
	}
	o.mss = (p->ipv6 ? OWN_MSS_V6 : OWN_MSS_V4) - address_bytes(service->client_address, p->ipv6);
	if (o.scale != NO_SCALE)
		o.scale = OWN_SCALE;
	return write_segment(ctx, p, &s, &o, 1) ?: turn_round(ctx, p);
}

/*
 * Makes of a client's packet the SYN to the backend, from the client's address: it is translated as any packet is. 0 or a reason for a
 * drop.
 */
OF_PACKET(int, make_syn, (struct xdp_md *ctx), (ctx))
{
	struct segment s = { .flags = TCP_SYN };
	struct offer o = {};
	struct tcphdr *tcp;
	__u32 cookie, time, wide;

	if (!p)
		return DROP_INTERNAL;
	time = OPTIONS_TIME(read_options(ctx, p->l4));
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	cookie = bpf_ntohl(tcp->ack_seq) - 1;
	s.sequence = p->cookie == COOKIE_OF_PROBE ? tcp->seq : bpf_htonl(bpf_ntohl(tcp->seq) - 1);
	o.scale = COOKIE_SCALE(cookie);
	o.may_sack = COOKIE_MAY_SACK(cookie);
	o.mss = mss_of(COOKIE_MSS(cookie));
	/* In a SYN it is not scaled (RFC 7323, 2.2). */
	wide = bpf_ntohs(tcp->window);
	if (o.scale != NO_SCALE)
		wide <<= o.scale;
	s.window = bpf_htons(wide > 0xffff ? 0xffff : wide);
	if (time) {
		o.has_time = 1;
		o.time = read_times(ctx, time);
	}
	p->tcp_flags = TCP_SYN;
	return write_segment(ctx, p, &s, &o, 0);
}

/* What is remembered of a client that has come with a cookie, until its backend answers. */
OF_PACKET(int, begin_splice, (struct xdp_md *ctx, __u32 slot), (ctx, slot))
{
	struct connection *c = connection_at(slot);
	struct splice *splice = splice_at(slot);
	__u32 time;
	struct tcphdr *tcp;

	if (!p || !c || !splice)
		return DROP_INTERNAL;
	time = OPTIONS_TIME(read_options(ctx, p->l4));
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	splice->timestamp = bpf_ntohl(read_times(ctx, time) >> 32);
	splice->isn = bpf_ntohl(tcp->seq) - (p->cookie == COOKIE_OF_PROBE ? 0 : 1);
	*(volatile __u64 *)&splice->word = (__u32)(bpf_ntohl(tcp->ack_seq) - 1) | (__u64)SPLICE_WAITING << 32;
	c->counter |= SPLICED | OPENING;
	return 0;
}

/* What `step_splice` has made of a packet goes back to where the packet came from. */
#define TURNED -3

/*
 * A backend's answer is none to the connection's SYN: it has another connection of these ports, which ends by a reset as it would with a
 * client that has sent a SYN (RFC 9293, 3.10.7.3). TURNED or a reason for a drop.
 */
OF_PACKET(int, reset_backend, (struct xdp_md *ctx), (ctx))
{
	struct tcphdr *tcp;

	if (!p || resize(ctx, p, sizeof(*tcp)))
		return DROP_INTERNAL;
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	tcp->source = p->tuple.destination_port;
	tcp->dest = p->tuple.source_port;
	tcp->seq = tcp->ack_seq;
	tcp->ack_seq = 0;
	((__u8 *)tcp)[12] = sizeof(*tcp) / 4 << 4;
	((__u8 *)tcp)[13] = TCP_RST;
	tcp->window = 0;
	tcp->check = 0;
	tcp->urg_ptr = 0;
	tcp->check = ~fold(sum_pseudo(&p->tuple.source, &p->tuple.destination, IPPROTO_TCP, sizeof(*tcp)) +
			   SUM_BYTES(tcp, sizeof(*tcp)));
	return set_length(ctx, p, sizeof(*tcp)) ?: turn_round(ctx, p) ?: TURNED;
}

/* Makes of a backend's SYN-ACK what opens the client's window, and is acknowledged. */
static always_inline int make_keep_alive(struct xdp_md *ctx, struct packet *p, __u64 options)
{
	__u32 l4 = p->l4 & L4_MASK, scale = OPTIONS_SCALE(options);
	__u64 times = read_times(ctx, OPTIONS_TIME(options)), sum;
	int has_time = OPTIONS_TIME(options) != 0;
	__u32 header = sizeof(struct tcphdr) + (has_time ? 2 + TIME_BYTES : 0);
	struct tcphdr *tcp;
	__u8 *byte;
	void *end;

	if (resize(ctx, p, header + 1))
		return DROP_INTERNAL;
	end = (void *)(long)ctx->data_end;
	tcp = (void *)(long)ctx->data + l4;
	byte = (void *)(tcp + 1);
	if ((void *)(byte + 1) > end)
		return DROP_INTERNAL;
	((__u8 *)tcp)[12] = header / 4 << 4;
	((__u8 *)tcp)[13] = TCP_ACK;
	/* In a SYN it was not scaled; here it is read as if it were. */
	if (scale != NO_SCALE)
		tcp->window = bpf_htons(bpf_ntohs(tcp->window) >> scale);
	tcp->check = 0;
	tcp->urg_ptr = 0;
	sum = sum_pseudo(&p->tuple.source, &p->tuple.destination, IPPROTO_TCP, header + 1) +
	      SUM_BYTES(tcp, sizeof(*tcp));
	if (has_time) {
		__u32 *option = (void *)(tcp + 1);

		if ((void *)option + 2 + TIME_BYTES + 1 > end)
			return DROP_INTERNAL;
		option[0] = bpf_htonl(0x01010000 | OPTION_TIME << 8 | TIME_BYTES);
		option[1] = times;
		option[2] = times >> 32;
		sum += SUM_BYTES(option, 2 + TIME_BYTES);
		byte += 2 + TIME_BYTES;
	}
	*byte = 0;
	tcp->check = ~fold(sum);
	p->tcp_flags = TCP_ACK;
	return set_length(ctx, p, header + 1);
}

/* The difference is known from the backend's answer on; `next` is its number behind that. */
static always_inline __u64 opened(__u64 word, __u32 next, __u32 scale)
{
	__u32 cookie = SPLICE_NUMBER(word), offered = COOKIE_SCALE(cookie);
	__u64 shifts = 0;

	/* Who answers without window scale takes the client's without, too (RFC 7323, 1.3). */
	if (offered != NO_SCALE)
		shifts = 1ULL << 56 | (scale == NO_SCALE ? (__u64)offered << 48 : (__u64)scale << 40);
	return (__u32)(cookie + 1 - next) | (__u64)SPLICE_OPEN << 32 | shifts;
}

/* Whether it is this packet that opens it: two CPUs may have one each. */
static always_inline int open_splice(struct connection *c, struct splice *splice, __u64 waiting, __u64 word)
{
	if (atomic_replace(&splice->word, waiting, word) != waiting)
		return 0;
	*(volatile __u16 *)&c->counter = c->counter & ~OPENING;
	return 1;
}

/*
 * Whether a client's packet is of another connection than the one that is known, which it takes the place of: one that is over; or one
 * that no backend has answered, which shows nobody else's packets, and is made again by what its client sends next.
 */
OF_PACKET(int, replaces, (struct xdp_md *ctx, __u32 slot, __u32 state), (ctx, slot, state))
{
	const struct connection *c = connection_at(slot);
	const struct service *s = c ? service_at(c->service) : 0;
	const struct backend *b = c ? backend_at(c->backend) : 0;
	const struct splice *splice = c && is_spliced(c) ? splice_at(slot) : 0;
	struct tcphdr *tcp;
	__u32 isn, cookie;
	int waits;

	if (!p || !s || !b)
		return 0;
	waits = splice && c->counter & OPENING;
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return 0;
	isn = bpf_ntohl(tcp->seq);
	if (waits && (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN)
		return isn != splice->isn;
	if ((!waits && state != TIME_WAIT && state != CLOSE) || !takes_cookies(s))
		return 0;
	cookie = find_cookie(p, ctx);
	if (cookie == COOKIE)
		isn--;
	/* With the same number it is the same connection, the reset of which was none. */
	return cookie && (!splice || isn != splice->isn || (waits && !b->weight));
}

/*
 * A packet of a connection that may be one made upon a cookie: what the proxy has to do with it before it is forwarded. 0, TURNED, or a
 * reason for a drop.
 */
OF_PACKET(int, step_splice, (struct xdp_md *ctx, __u32 slot, __u32 direction, __u32 tick), (ctx, slot, direction, tick))
{
	struct connection *c = connection_at(slot);
	struct splice *splice = splice_at(slot);
	struct tcphdr *tcp;
	__u32 sequence, acknowledged, flags;
	__u64 word, options;
	int ours;

	if (!p || !c)
		return DROP_INTERNAL;
	p->seen = 1;
	if (!is_spliced(c))
		return 0;
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if (!splice || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	word = *(volatile __u64 *)&splice->word;
	flags = p->tcp_flags;
	sequence = bpf_ntohl(tcp->seq);
	acknowledged = bpf_ntohl(tcp->ack_seq);
	if (direction == INWARD) {
		if (SPLICE_PHASE(word) != SPLICE_WAITING || flags & TCP_RST)
			return 0;
		/* What was sent is repeated once in a tick, so that a client does not send backends more than that. */
		if (flags & TCP_SYN || acknowledged - 1 != SPLICE_NUMBER(word) || TICK(c->live) == tick ||
		    (sequence != splice->isn && sequence != splice->isn + 1))
			return DROP_PROXY_WAITS;
		p->cookie = sequence == splice->isn ? COOKIE_OF_PROBE : COOKIE;
		return make_syn(p, ctx);
	}
	ours = flags & TCP_ACK && acknowledged == splice->isn + 1;
	if (flags & TCP_RST) {
		if (SPLICE_PHASE(word) != SPLICE_WAITING)
			return 0;
		if (!ours)
			return DROP_PROXY_WAITS;
		/* Its number is what the client expects next. */
		open_splice(c, splice, word, opened(word, sequence, NO_SCALE));
		return 0;
	}
	if ((flags & (TCP_SYN | TCP_ACK)) == (TCP_SYN | TCP_ACK)) {
		if (!ours) {
			/* An open one's backend answers another SYN of the client's: it knows nothing of this connection any more. */
			if (SPLICE_PHASE(word) == SPLICE_OPEN)
				end_connection(slot, *(volatile __u64 *)&c->live, tick);
			return reset_backend(p, ctx);
		}
		options = read_options(ctx, p->l4);
		if (SPLICE_PHASE(word) == SPLICE_WAITING &&
		    open_splice(c, splice, word, opened(word, sequence + 1, OPTIONS_SCALE(options))) && OPTIONS_TIME(options))
			splice->timestamp -= bpf_ntohl(read_times(ctx, OPTIONS_TIME(options)));
		return make_keep_alive(ctx, p, options);
	}
	if (SPLICE_PHASE(word) != SPLICE_WAITING)
		return 0;
	return flags & TCP_ACK && !ours ? reset_backend(p, ctx) : DROP_PROXY_WAITS;
}

#endif
