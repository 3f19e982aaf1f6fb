/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Addresses as all tables have them: 16 bytes, IPv4 as IPv4-mapped (RFC 4291, 2.5.5.2), so that one table serves both families. And
 * the sums that checksums are made of (RFC 1071), in memory order, which commutes with adding (section 2B there).
 */
#ifndef LIB_ADDRESS_H
#define LIB_ADDRESS_H

/* Before the macro below, whose name is a word in these. */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define always_inline inline __attribute__((always_inline))
/* What another CPU or a control plane may change meanwhile is read once. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))

#define MAPPED 0xffff0000ULL

struct address {
	__u64 hi, lo;
};

static always_inline void set_v4(struct address *a, __u32 v4)
{
	a->hi = 0;
	a->lo = (__u64)v4 << 32 | MAPPED;
}

static always_inline int is_v4(const struct address *a)
{
	return !a->hi && (__u32)a->lo == (__u32)MAPPED;
}

static always_inline __u32 v4_of(const struct address *a)
{
	return a->lo >> 32;
}

static always_inline void set_v6(struct address *a, const struct in6_addr *v6)
{
	a->hi = (__u64)v6->in6_u.u6_addr32[1] << 32 | v6->in6_u.u6_addr32[0];
	a->lo = (__u64)v6->in6_u.u6_addr32[3] << 32 | v6->in6_u.u6_addr32[2];
}

static always_inline void get_v6(struct in6_addr *v6, const struct address *a)
{
	v6->in6_u.u6_addr32[0] = a->hi;
	v6->in6_u.u6_addr32[1] = a->hi >> 32;
	v6->in6_u.u6_addr32[2] = a->lo;
	v6->in6_u.u6_addr32[3] = a->lo >> 32;
}

static always_inline __u16 fold(__u64 sum)
{
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 32) + (sum & 0xffffffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return sum;
}

static always_inline __u64 sum_address(const struct address *a)
{
	return (a->hi >> 32) + (a->hi & 0xffffffff) + (a->lo >> 32) + (a->lo & 0xffffffff);
}

/* A checksum after `delta`, the sum of what is new and of the complement of what was old (RFC 1624, equation 3). */
static always_inline __u16 updated(__u16 checksum, __u16 delta)
{
	return ~fold((__u64)(__u16)~checksum + delta);
}

/* A checksum after a word of 16 bits has changed from `old` to `new`. */
static always_inline __u16 exchanged(__u16 checksum, __u16 old, __u16 new)
{
	return ~fold((__u64)(__u16)~checksum + (__u16)~old + new);
}

#endif
