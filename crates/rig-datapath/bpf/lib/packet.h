/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A packet's bytes, for XDP and tc alike: a cursor over them, and what headers have in common. Parsers copy what they need from the
 * headers themselves: fields that a function gathers in a structure of the stack are values that the verifier follows, with which
 * the vRouter's programs were beyond its limit.
 */
#ifndef LIB_PACKET_H
#define LIB_PACKET_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>

#include "address.h"

/* Of a VLAN tag, behind the addresses. */
#define TAG_BYTES 4

/* What is not read yet of a packet's linear part. */
struct cursor {
	void *at, *end;
};

/* Of a context, which has the same fields for XDP and tc. */
#define CURSOR(ctx)                                                                                                    \
	((struct cursor){ .at = (void *)(long)(ctx)->data, .end = (void *)(long)(ctx)->data_end })

/* The next bytes, which the cursor steps over; 0 where fewer are left. */
static always_inline void *take(struct cursor *c, __u32 bytes)
{
	void *at = c->at;

	if (at + bytes > c->end)
		return 0;
	c->at = at + bytes;
	return at;
}

#define TAKE(cursor, type) ((type *)take(cursor, sizeof(type)))

enum tcp_flag { TCP_FIN = 0x01, TCP_SYN = 0x02, TCP_RST = 0x04, TCP_ACK = 0x10 };

/* Of IPv4's flags and offset, in host byte order: DF, whether it is a fragment, and whether it is one behind the first. */
#define DONT_FRAGMENT 0x4000
#define IS_FRAGMENT 0x3fff
#define FRAGMENT_OFFSET 0x1fff

/* Of the packet that an ICMP error is about, behind its header, at least (RFC 792). */
#define QUOTED_BYTES 8

/* The part of TCP's and UDP's headers that says which sockets talk. */
struct ports {
	__u16 source, destination;
};

struct icmp_header {
	__u8 type, code;
	__u16 checksum;
	union {
		__be32 rest;
		struct {
			__be16 id, sequence;
		};
	};
};

/* RFC 792: unreachable, time exceeded, parameter problem. RFC 4443, 2.1: types below 128 are errors. */
static always_inline int is_icmp_error(int ipv6, __u8 type)
{
	return ipv6 ? type >= 1 && type <= 4 : type == 3 || type == 11 || type == 12;
}

static always_inline int is_icmp(int ipv6, __u8 protocol)
{
	return protocol == (ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
}

/* The header of an IP packet without its options or extension headers; 0 where there is none. */
static always_inline struct iphdr *take_ipv4(struct cursor *c)
{
	struct iphdr *ip = TAKE(c, struct iphdr);

	return ip && ip->version == 4 && ip->ihl >= 5 ? ip : 0;
}

static always_inline struct ipv6hdr *take_ipv6(struct cursor *c)
{
	struct ipv6hdr *ip = TAKE(c, struct ipv6hdr);

	return ip && ip->version == 6 ? ip : 0;
}

#endif
