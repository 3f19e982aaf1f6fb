/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How a backend that sees a local address is told its client's: by an option of TCP of kind 254, as the kernel modules "toa" read it: its
 * length, 8 bytes or with IPv6 20, the client's port and its address. They look at the segment from which the backend's socket is made: the one
 * that completes the handshake, or with TCP Fast Open the SYN. So all of a client's segments have it, the repeated ones too, until the
 * backend sends data or its end, which it does behind that one only: an acknowledgment alone is also how it answers what it does not take
 * (RFC 9293, 3.10.7.4) before that. A SYN that has no room for it goes without, and is counted.
 *
 * Or it is told by the header of the PROXY protocol before the first byte of the stream, by which sequence numbers differ from there on.
 *
 * Of UDP, which has no options, by a header between those of IP and UDP, as DPVS's "uoa" has it: IP's protocol is 248; the header has a version in
 * its upper half byte, which is the family of the address, the protocol behind it, its own length with what it has, and an option as those of IP of
 * kind 31 with the length 8 or 20, port and address. All of a client's datagrams have it until the backend has answered, by which it shows that it
 * takes them. One that has no room, or comes in fragments, goes without, and is counted.
 *
 * The client is told that segments may be so much smaller, by the MSS of the backend's SYN-ACK (RFC 9293, 3.7.1).
 */
#ifndef BALANCER_CLIENT_ADDRESS_H
#define BALANCER_CLIENT_ADDRESS_H

#include "family.h"
#include "gap.h"
#include "syn_proxy.h"
#include "tunnel.h"
#include "unmatched.h"

#define MOST_TCP_HEADER 60
/* Smaller ones stay as they are: the SYN proxy knows none that are smaller. */
#define LEAST_MSS 216
/* Of options that are a byte each. */
#define MOST_SMALL_OPTIONS 40
/* In place of a client's own option of kind 254, which only the balancer may say: the other one for experiments (RFC 4727). */
#define OPTION_VOID 253
/* Four options that say nothing. */
#define ALL_NOPS 0x01010101

struct editing {
	struct xdp_md *ctx;
	__u32 at, end, l4;
	/* By how much the MSS is lowered; 0: not. And a kind that is made void, with OPTION_FAST_OPEN also OPTION_MPTCP. */
	__u32 lower, also;
	/* What the checksum changes by. */
	__u32 change;
};

/* Writes a word of an option at this offset in the frame. */
static always_inline void edit_word(struct editing *e, __u16 *word, __u32 at, __u16 new)
{
	__u16 change = fold((__u64)(__u16)~*word + new);

	*word = new;
	/* Bytes that are not on a word's boundary count the other way round (RFC 1071, 2 (B)). */
	e->change += (at - e->l4) & 1 ? swapped(change) : change;
}

static long edit_option(__u32 i, struct editing *e)
{
	__u32 length, next, at = e->at;
	__u8 *option = next_option(e->ctx, at, e->end, &next, &length), kind;
	void *end = (void *)(long)e->ctx->data_end;

	if (!option)
		return 1;
	e->at = next;
	kind = option[0];
	if ((kind == OPTION_TOA || kind == e->also || (kind == OPTION_MPTCP && e->also == OPTION_FAST_OPEN)) && (void *)(option + 2) <= end) {
		/* Two bytes as they stand in memory, of which the first changes. */
		__u16 word = *(__u16 *)option;

		*(__u8 *)&word = OPTION_VOID;
		edit_word(e, (void *)option, at, word);
	}
	if (e->lower && kind == OPTION_MSS && length == 4 && (void *)(option + 4) <= end) {
		__u32 mss = bpf_ntohs(*(__u16 *)(option + 2));

		if (mss >= LEAST_MSS + e->lower)
			edit_word(e, (void *)(option + 2), at, bpf_htons(mss - e->lower));
	}
	return 0;
}

/*
 * Takes the option for the client's address out of what the client has said itself, and lowers an MSS. What the checksum changes by; -1
 * where the header is none.
 */
OF_PACKET(__s64, edit_options, (struct xdp_md *ctx, __u32 lower, __u32 also), (ctx, lower, also))
{
	struct editing e = { .ctx = ctx, .lower = lower, .also = also };
	struct tcphdr *tcp;

	if (!p)
		return -1;
	e.l4 = p->l4 & L4_MASK;
	tcp = (void *)(long)ctx->data + e.l4;
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return -1;
	e.at = e.l4 + sizeof(*tcp);
	e.end = e.l4 + tcp->doff * 4;
	LOOP(MOST_SMALL_OPTIONS, MOST_SMALL_OPTIONS, edit_option, &e);
	return e.change;
}

/* Whether the address that is told is of IPv6: of a connection to a backend of IPv4 it may be. */
static always_inline int tells_ipv6(const struct packet *p, const struct connection *c)
{
	return p->ipv6 || c->counter & MIXED;
}

/* How the backend of a connection is told. */
static always_inline __u8 way_told(const struct packet *p, const struct connection *c)
{
	if (c->counter & PREFIXED)
		return ADDRESS_PROXY_V2;
	return p->tuple.protocol == IPPROTO_UDP ? ADDRESS_UOA : ADDRESS_TOA;
}

/* Writes the option; what the checksum changes by, or -1. */
static always_inline __s64 write_toa(struct xdp_md *ctx, __u32 at, int ipv6, const struct connection *c)
{
	__u32 *option = (void *)(long)ctx->data + (at & OPTION_MASK);
	void *end = (void *)(long)ctx->data_end;

	if ((void *)(option + 2) > end)
		return -1;
	option[0] = bpf_htonl((__u32)OPTION_TOA << 24 | address_bytes(ADDRESS_TOA, ipv6) << 16 | bpf_ntohs(c->client_port));
	if (!ipv6) {
		option[1] = v4_of(&c->client);
		return (__u64)option[0] + option[1];
	}
	if ((void *)(option + 5) > end)
		return -1;
	get_v6((void *)(option + 1), &c->client);
	return SUM_BYTES(option, 20);
}

/* Counts a segment that goes to the backend without the client's address. A function of its own as `ask_kernel`. */
static __noinline int leave_out(__u32 service)
{
	refuse(service, DROP_NOT_TOLD);
	return 0;
}

struct filling {
	struct xdp_md *ctx;
	__u32 at;
	/* Of what was there. */
	__u64 sum;
};

static long fill_word(__u32 i, struct filling *f)
{
	__u32 *word = (void *)(long)f->ctx->data + ((f->at + 4 * i) & OPTION_MASK);

	if ((void *)(word + 1) > (void *)(long)f->ctx->data_end)
		return 1;
	f->sum += *word;
	*word = ALL_NOPS;
	return 0;
}

/*
 * Makes room in a full header by leaving out all options but timestamps, for a segment that is no SYN: among them is the D-SACK (RFC 2883)
 * that clients answer the SYN proxy's keep-alive with. `time` is where timestamps are in the frame, 0 where there are none, and `by` how long the option is. By how much the header grows, in the lower half what the checksum changes by, but
 * for the option itself; -1 where that does not work.
 */
OF_PACKET(__s64, make_room, (struct xdp_md *ctx, __u32 options, __u32 time, __u32 by), (ctx, options, time, by))
{
	__u32 need, grows, left, at;
	struct filling f = { .ctx = ctx };
	__u32 *word;
	__u64 times;

	if (!p || options > MOST_TCP_HEADER - sizeof(struct tcphdr))
		return -1;
	times = read_times(ctx, time);
	at = (p->l4 & L4_MASK) + sizeof(struct tcphdr);
	need = by + (time ? 2 + TIME_BYTES : 0);
	grows = need > options ? need - options : 0;
	f.at = at;
	LOOP(10, options / 4, fill_word, &f);
	if (grows && make_gap(ctx, at, grows))
		return -1;
	left = options + grows - need;
	f.sum = (__u64)fold(f.sum) ^ 0xffff;
	f.sum += (__u64)ALL_NOPS * (left / 4);
	if (time) {
		word = (void *)(long)ctx->data + ((at + by) & OPTION_MASK);
		if ((void *)(word + 3) > (void *)(long)ctx->data_end)
			return -1;
		word[0] = bpf_htonl(0x01010000 | OPTION_TIME << 8 | TIME_BYTES);
		word[1] = times;
		word[2] = times >> 32;
		f.sum += SUM_BYTES(word, 12);
	}
	return (__s64)grows << 16 | fold(f.sum);
}

/* The segment, which is translated, gets the option; 0 or a reason for a drop. */
static always_inline int add_option(struct xdp_md *ctx, struct packet *p, const struct connection *c)
{
	__u32 l4 = p->l4 & L4_MASK, by = address_bytes(ADDRESS_TOA, tells_ipv6(p, c)), bytes = p->l3_length - (p->l4 - p->l3), header;
	struct tcphdr *tcp = (void *)(long)ctx->data + l4;
	__s64 change = 0, toa;
	__u16 *offset, before;

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	header = tcp->doff * 4;
	/* A checksum that a device completes would begin elsewhere. */
	if (header < sizeof(*tcp) || header > bytes || p->partial || (header + by > MOST_TCP_HEADER && p->tcp_flags & TCP_SYN))
		return leave_out(c->service);
	if (header + by > MOST_TCP_HEADER) {
		change = make_room(p, ctx, header - sizeof(*tcp), OPTIONS_TIME(read_options(ctx, p->l4)), by);
		if (change < 0)
			return DROP_INTERNAL;
		by = change >> 16 & 31;
		change &= 0xffff;
	} else if (make_gap(ctx, l4 + sizeof(*tcp), by)) {
		return DROP_INTERNAL;
	}
	toa = write_toa(ctx, l4 + sizeof(*tcp), tells_ipv6(p, c), c);
	tcp = (void *)(long)ctx->data + l4;
	if (toa < 0 || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	change += toa;
	offset = (void *)tcp + 12;
	before = *offset;
	*(__u8 *)offset += by / 4 << 4;
	change += (__u16)~before + (__u64)*offset;
	/* The pseudo header's length. */
	change += (__u16)~bpf_htons(bytes) + (__u64)bpf_htons(bytes + by);
	tcp->check = updated(tcp->check, fold(change));
	p->l3_length += by;
	return set_length(ctx, p, bytes + by) ?: keep_whole(ctx, p, c);
}

/* Edits options, and the checksum with them; 0 or a reason for a drop. */
static always_inline int edit(struct xdp_md *ctx, struct packet *p, __u32 lower, __u32 also)
{
	__s64 change = edit_options(p, ctx, lower, also);
	struct tcphdr *tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);

	if (change < 0 || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	if (!p->partial)
		tcp->check = updated(tcp->check, fold(change));
	return 0;
}

/*
 * The backend is to be told anew where it has another connection than before: it answers a SYN; or the client, whose old connection is closing, begins
 * one, which may be refused. One in the middle of a connection may be forged and changes nothing. Not where the SYN proxy has opened it, which
 * sees to that it ends.
 *
 * Of a prefix the first number is the one that the backend has answered, and only one is answered until the prefix is there: with SYN cookies a
 * backend would take any, and then a client could have its own first byte where the prefix belongs. 0 or a reason for a drop.
 */
static always_inline int tell_anew(struct xdp_md *ctx, const struct packet *p, struct connection *c, __u32 slot, enum direction direction)
{
	struct tcphdr *tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	__u32 answers = p->tcp_flags & TCP_ACK;
	__u32 tells = c->counter & TELLS, isn;
	struct splice *splice;

	if (is_spliced(c) || p->tcp_flags & TCP_RST || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return 0;
	if (direction == OUTWARD ? !answers : answers || STATE(c->live) != SYN_RECV)
		return 0;
	if (!tells)
		*(volatile __u16 *)&c->counter = c->counter | TELLS;
	splice = c->counter & PREFIXED ? splice_at(slot) : 0;
	if (!splice)
		return 0;
	isn = direction == OUTWARD ? bpf_ntohl(tcp->ack_seq) - 1 : bpf_ntohl(tcp->seq);
	if (tells && splice->timestamp)
		return direction == OUTWARD && isn != splice->isn ? DROP_BEFORE_FIRST : 0;
	splice->isn = isn;
	splice->timestamp = direction == OUTWARD ? ANSWERED : 0;
	return 0;
}

/* Whether a segment has data, or is its sender's last one. */
static always_inline int says_something(struct xdp_md *ctx, const struct packet *p)
{
	struct tcphdr *tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return 0;
	return p->tcp_flags & TCP_FIN || p->l3_length > p->l4 - p->l3 + tcp->doff * 4;
}

/* IP's protocol of the header before that of UDP, its version for IPv4 and for IPv6, and the kind of the option in it. */
#define PROTOCOL_OPTIONS 248
#define OPTIONS_V4 1u
#define OPTIONS_V6 2u
#define OPTION_UOA 31

/* A datagram of a connection whose backend has not answered yet, which is translated; 0 or a reason for a drop. */
static always_inline int tell_of_datagram(struct xdp_md *ctx, struct packet *p, struct connection *c, enum direction direction)
{
	__u32 l4 = p->l4 & L4_MASK, by = address_bytes(ADDRESS_UOA, tells_ipv6(p, c)), bytes = p->l3_length - (p->l4 - p->l3);
	__u32 *header;
	void *end;

	if (direction == OUTWARD) {
		*(volatile __u16 *)&c->counter = c->counter & ~TELLS;
		return 0;
	}
	if (p->full || p->part)
		return leave_out(c->service);
	if (make_gap(ctx, l4, by))
		return DROP_INTERNAL;
	header = (void *)(long)ctx->data + (p->l3 & L3_MASK);
	end = (void *)(long)ctx->data_end;
	if (p->ipv6) {
		struct ipv6hdr *ip = (void *)header;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		ip->nexthdr = PROTOCOL_OPTIONS;
	} else {
		struct iphdr *ip = (void *)header;
		__be16 before;

		if ((void *)(ip + 1) > end)
			return DROP_INTERNAL;
		before = *(__be16 *)&ip->ttl;
		ip->protocol = PROTOCOL_OPTIONS;
		ip->check = exchanged(ip->check, before, *(__be16 *)&ip->ttl);
	}
	header = (void *)(long)ctx->data + l4;
	if ((void *)(header + 3) > end)
		return DROP_INTERNAL;
	header[0] = bpf_htonl((tells_ipv6(p, c) ? OPTIONS_V6 : OPTIONS_V4) << 28 | IPPROTO_UDP << 16 | by);
	header[1] = bpf_htonl((__u32)OPTION_UOA << 24 | (by - 4) << 16 | bpf_ntohs(c->client_port));
	if (!tells_ipv6(p, c)) {
		header[2] = v4_of(&c->client);
	} else {
		if ((void *)(header + 6) > end)
			return DROP_INTERNAL;
		get_v6((void *)(header + 2), &c->client);
	}
	p->l3_length += by;
	return set_length(ctx, p, bytes + by) ?: keep_whole(ctx, p, c);
}

/*
 * What is made void in a client's SYN: with Multipath TCP (RFC 8684) a program's socket is none that the option is of. Where there is no room, the
 * connection must not begin with this segment, which is what TCP Fast Open is for.
 */
static always_inline __u32 barred_from_syn(struct xdp_md *ctx, const struct packet *p, const struct connection *c)
{
	struct tcphdr *tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);

	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return OPTION_FAST_OPEN;
	return tcp->doff * 4 + address_bytes(ADDRESS_TOA, tells_ipv6(p, c)) > MOST_TCP_HEADER ? OPTION_FAST_OPEN : OPTION_MPTCP;
}

/* A packet of a connection whose backend has not shown yet that it knows the client, or a SYN; 0 or a reason for a drop. */
OF_PACKET(int, tell, (struct xdp_md *ctx, __u32 entry), (ctx, entry))
{
	struct connection *c = connection_at(SLOT(entry));
	__u32 flags;

	if (!p || !c)
		return DROP_INTERNAL;
	if (p->tuple.protocol == IPPROTO_UDP)
		return tell_of_datagram(ctx, p, c, DIRECTION(entry));
	flags = p->tcp_flags;
	if (flags & TCP_RST)
		return 0;
	if (flags & TCP_SYN)
		tell_anew(ctx, p, c, SLOT(entry), DIRECTION(entry));
	if (!(c->counter & TELLS))
		return 0;
	if (DIRECTION(entry) == OUTWARD && (flags & (TCP_SYN | TCP_ACK)) != (TCP_SYN | TCP_ACK)) {
		/* What the SYN proxy has seen is a SYN-ACK that it has made something else of. */
		if (!p->seen && !(flags & TCP_SYN) && says_something(ctx, p))
			*(volatile __u16 *)&c->counter = c->counter & ~TELLS;
		return 0;
	}
	if (DIRECTION(entry) == OUTWARD)
		return edit(ctx, p, address_bytes(ADDRESS_TOA, p->ipv6), OPTION_TOA);
	return edit(ctx, p, 0, flags & TCP_SYN ? barred_from_syn(ctx, p, c) : OPTION_TOA) ?: add_option(ctx, p, c);
}

/*
 * The PROXY protocol's header, version 2 (HAProxy's proxy-protocol.txt, 2.2): signature, version 2 and the command PROXY, family and TCP, how many
 * bytes follow; the client's address and the service's, and their ports. What the checksum changes by, or -1.
 */
static always_inline __s64 write_prefix(struct xdp_md *ctx, __u32 at, int ipv6, const struct connection *c, const struct service *s)
{
	__u32 *prefix = (void *)(long)ctx->data + (at & OPTION_MASK), ports = c->client_port;
	void *end = (void *)(long)ctx->data_end;

	if ((void *)(prefix + 7) > end)
		return -1;
	ports |= (__u32)s->port << 16;
	prefix[0] = bpf_htonl(0x0d0a0d0a);
	prefix[1] = bpf_htonl(0x000d0a51);
	prefix[2] = bpf_htonl(0x5549540a);
	prefix[3] = bpf_htonl(ipv6 ? 0x21210024 : 0x2111000c);
	if (!ipv6) {
		prefix[4] = v4_of(&c->client);
		prefix[5] = v4_of(&s->address);
		prefix[6] = ports;
		return SUM_BYTES(prefix, 28);
	}
	if ((void *)(prefix + 13) > end)
		return -1;
	get_v6((void *)(prefix + 4), &c->client);
	get_v6((void *)(prefix + 8), &s->address);
	prefix[12] = ports;
	return SUM_BYTES(prefix, 52);
}

/* Puts the prefix before the payload of a segment with the client's first number; 0 or a reason for a drop. */
static __noinline int add_prefix(struct xdp_md *ctx, struct packet *p, const struct connection *c)
{
	__u32 l4 = p->l4 & L4_MASK, by = address_bytes(ADDRESS_PROXY_V2, tells_ipv6(p, c)), bytes = p->l3_length - (p->l4 - p->l3), header;
	struct tcphdr *tcp = (void *)(long)ctx->data + l4;
	const struct service *s = service_at(c->service);
	__s64 change;

	if (!s || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	header = tcp->doff * 4;
	/* The backend takes no such one. */
	if (header < sizeof(*tcp) || header > bytes)
		return 0;
	if (make_gap(ctx, l4 + header, by))
		return DROP_INTERNAL;
	change = write_prefix(ctx, l4 + header, tells_ipv6(p, c), c, s);
	tcp = (void *)(long)ctx->data + l4;
	if (change < 0 || (void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	/* The pseudo header's length. */
	change += (__u16)~bpf_htons(bytes) + (__u64)bpf_htons(bytes + by);
	if (tcp->urg) {
		__u16 before = tcp->urg_ptr;
		__u32 urgent = bpf_ntohs(before) + by;

		tcp->urg_ptr = bpf_htons(urgent > 0xffff ? 0xffff : urgent);
		change += (__u16)~before + (__u64)tcp->urg_ptr;
	}
	tcp->check = updated(tcp->check, fold(change));
	p->l3_length += by;
	return set_length(ctx, p, bytes + by) ?: keep_whole(ctx, p, c);
}

/*
 * A segment of a connection with a prefix before what the client sends. Until the backend has acknowledged all of that, each segment with the
 * client's first number has it, also one without data: who waits for the backend to speak lets it know, too. All others have numbers that are
 * so much larger for the backend. Data with a number before the first would come where the prefix belongs, and are dropped. 0 or a reason for a
 * drop.
 */
OF_PACKET(int, shift_prefixed, (struct xdp_md *ctx, __u32 entry), (ctx, entry))
{
	struct connection *c = connection_at(SLOT(entry));
	const struct splice *splice = splice_at(SLOT(entry));
	struct shifting s = { .ctx = ctx };
	struct tcphdr *tcp;
	__u32 by, behind, flags;

	if (!p || !c || !splice)
		return DROP_INTERNAL;
	by = address_bytes(ADDRESS_PROXY_V2, tells_ipv6(p, c));
	flags = p->tcp_flags;
	/*
	 * Data of a SYN would be before it: a backend takes none without the option of TCP Fast Open, and the client sends them again. Multipath
	 * TCP counts bytes from the first one, which is the prefix's.
	 */
	if (flags & TCP_SYN)
		return tell_anew(ctx, p, c, SLOT(entry), DIRECTION(entry)) ?:
		       edit(ctx, p, DIRECTION(entry) == OUTWARD ? by : 0, OPTION_FAST_OPEN);
	s.l4 = p->l4 & L4_MASK;
	tcp = (void *)(long)ctx->data + s.l4;
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	if (DIRECTION(entry) == INWARD) {
		behind = bpf_ntohl(tcp->seq) - (splice->isn + 1);
		/* An empty one asks for an acknowledgment, as a client does that has heard of no window. */
		if (c->counter & TELLS && behind >> 31)
			return says_something(ctx, p) ? DROP_BEFORE_FIRST : 0;
		if (c->counter & TELLS && !behind && !(flags & TCP_RST))
			return add_prefix(ctx, p, c);
		/* A reset counts for the number that the backend expects: the first one before an acknowledgment has brought it the prefix. */
		if (c->counter & TELLS && !behind && BEFORE(c->live) == SYN_RECV)
			return 0;
		add_to(&s, &tcp->seq, 0, by);
	} else {
		if (!(flags & TCP_ACK))
			return 0;
		behind = bpf_ntohl(tcp->ack_seq) - (splice->isn + 1);
		if (c->counter & TELLS && behind < by) {
			add_to(&s, &tcp->ack_seq, 0, -behind);
		} else {
			if (c->counter & TELLS && !(flags & TCP_RST) && !(behind >> 31))
				*(volatile __u16 *)&c->counter = c->counter & ~TELLS;
			add_to(&s, &tcp->ack_seq, 0, -by);
		}
		s.sack = -by;
		s.at = s.l4 + sizeof(*tcp);
		s.end = s.l4 + tcp->doff * 4;
		LOOP(MOST_OPTIONS, MOST_OPTIONS, shift_option, &s);
	}
	if (p->partial)
		return 0;
	tcp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(tcp + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	tcp->check = updated(tcp->check, fold(s.change));
	return 0;
}

/*
 * An error on its way to a client about a packet that was made larger. Where it was too big for a router behind here, the client is told that so
 * much less fits. What to add to the sequence number that is quoted.
 */
OF_PACKET(__u32, tell_of_error, (struct xdp_md *ctx, __u32 slot), (ctx, slot))
{
	struct connection *c = connection_at(slot);
	const struct splice *splice = c && c->counter & PREFIXED ? splice_at(slot) : 0;
	struct icmp_header *icmp;
	__u32 mtu, by;
	__be32 *number;

	if (!p || !c)
		return 0;
	icmp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	if ((void *)(icmp + 1) > (void *)(long)ctx->data_end)
		return 0;
	mtu = mtu_of_message(p, icmp);
	by = address_bytes(way_told(p, c), tells_ipv6(p, c));
	if (mtu && c->counter & TELLS) {
		__u32 before = icmp->rest;

		icmp->rest = bpf_htonl(mtu - by);
		icmp->checksum = updated(icmp->checksum, fold((__u64)(__u32)~before + icmp->rest));
	}
	if (!splice)
		return 0;
	number = (void *)(icmp + 1) + outer_length(p) + sizeof(struct ports);
	if ((void *)(number + 1) > (void *)(long)ctx->data_end || bpf_ntohl(*number) - splice->isn <= 1)
		return 0;
	return -by;
}

#endif
