// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * For backends: what a header of client_address.h says of a client of UDP is what programs are told of who has sent a datagram. `take_off` takes the
 * header off datagrams as they come in, so that the kernel sees those of UDP, and keeps the client. Programs are told of it where the kernel is asked
 * for a sender (recvmsg(2), and getpeername(2) of a socket that is connected), and what they send to the client, or connect to it, goes to the
 * balancer's address and port.
 *
 * Balancers' ports serve one client after the other, and not each datagram has the header. So a client is forgotten where one comes without before
 * a program has answered, as a balancer leaves it out then where there is no room alone; and otherwise when there was none for as long as a balancer
 * keeps a connection.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "datagrams.h"
#include "lib/tc.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define always_inline inline __attribute__((__always_inline__))

#define ETHERNET_BYTES 14
#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86dd
#define PROTOCOL_UDP 17
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_OPTIONS 248
#define FRAGMENT_OFFSET 0x1fff
#define IS_FRAGMENT 0x3fff
#define FRAGMENT_OFFSET_V6 0xfff8
#define UDP_BYTES 8
#define OPTION_UOA 31
#define DROP 2

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_TRUSTED);
	__type(key, struct trusted_prefix);
	__type(value, __u32);
} trusted SEC(".maps");

/* Both get their sizes as they are loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2);
	__type(key, struct datagrams_key);
	__type(value, struct datagrams_client);
} told SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, struct answers_key);
	__type(value, struct answers_to);
} answers SEC(".maps");

/* For how long a client is known without a datagram, ns. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} idle SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DATAGRAMS);
	__type(key, __u32);
	__type(value, __u64);
} datagrams SEC(".maps");

static always_inline void count(enum datagram what)
{
	__u32 key = what;
	__u64 *count = bpf_map_lookup_elem(&datagrams, &key);

	if (count)
		*count += 1;
}

static always_inline void set(__u32 *to, const __u32 *from)
{
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
}

static always_inline void set_v4(__u32 *to, __u32 v4)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = bpf_htonl(0xffff);
	to[3] = v4;
}

static always_inline int same(const __u32 *a, const __u32 *b)
{
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
}

static always_inline int is_any(const __u32 *address)
{
	return !(address[0] | address[1] | address[2] | address[3]);
}

/* What is known, unless it is too old. */
static always_inline struct datagrams_client *known(const struct datagrams_key *key, __u64 now)
{
	struct datagrams_client *client = bpf_map_lookup_elem(&told, key);
	__u32 first = 0;
	const __u64 *most = bpf_map_lookup_elem(&idle, &first);

	return client && most && now - client->seen < *most ? client : 0;
}

static always_inline int is_client(const struct datagrams_client *known, const __u32 *address, __u16 port)
{
	return known && known->port == port && same(known->address, address);
}

/* What has come in. */
struct datagram_in {
	/* Of whom, and to whom. */
	struct datagrams_key key;
	/* The header of IP, which ends there, and what is behind it. */
	__u32 l4, bytes;
	__u8 protocol, is_whole, ipv6;
};

struct ipv4_header {
	__u8 version, class;
	__be16 length, id, offset;
	__u8 ttl, protocol;
	__u16 check;
	__u32 source, destination;
};
_Static_assert(sizeof(struct ipv4_header) == 20, "");

struct ipv6_header {
	__be32 flow;
	__be16 bytes;
	__u8 protocol, ttl;
	__u32 source[4], destination[4];
};
_Static_assert(sizeof(struct ipv6_header) == 40, "");

static always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Whether it is of IP, of which all is there, with ports that can be read. */
static always_inline int read_header(struct __sk_buff *skb, struct datagram_in *d)
{
	__u16 ports[2];

	if (skb->protocol == bpf_htons(TYPE_IPV4)) {
		struct ipv4_header ip;
		__u32 length;

		if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)) || ip.version != 0x45)
			return 0;
		length = bpf_ntohs(ip.length);
		if (length < sizeof(ip) || length + ETHERNET_BYTES > skb->len || bpf_ntohs(ip.offset) & FRAGMENT_OFFSET)
			return 0;
		d->protocol = ip.protocol;
		d->is_whole = !(ip.offset & bpf_htons(IS_FRAGMENT));
		d->ipv6 = 0;
		d->l4 = ETHERNET_BYTES + sizeof(ip);
		d->bytes = length - sizeof(ip);
		set_v4(d->key.from, ip.source);
		set_v4(d->key.own, ip.destination);
		if (ip.protocol != PROTOCOL_UDP && ip.protocol != PROTOCOL_OPTIONS)
			return 0;
		/* Of a damaged header the addresses are nobody's. */
		if (ip.protocol == PROTOCOL_OPTIONS && fold(bpf_csum_diff(0, 0, (void *)&ip, sizeof(ip), 0)) != 0xffff)
			return 0;
	} else if (skb->protocol == bpf_htons(TYPE_IPV6)) {
		struct ipv6_header ip;

		if (bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)))
			return 0;
		d->protocol = ip.protocol;
		d->is_whole = 1;
		d->ipv6 = 1;
		d->l4 = ETHERNET_BYTES + sizeof(ip);
		d->bytes = bpf_ntohs(ip.bytes);
		set(d->key.from, ip.source);
		set(d->key.own, ip.destination);
		if (d->bytes + d->l4 > skb->len)
			return 0;
		if (ip.protocol == PROTOCOL_FRAGMENT) {
			struct {
				__u8 next, reserved;
				__be16 offset;
				__be32 id;
			} fragment;

			if (bpf_skb_load_bytes(skb, d->l4, &fragment, sizeof(fragment)) || fragment.offset & bpf_htons(FRAGMENT_OFFSET_V6) ||
			    fragment.next != PROTOCOL_UDP)
				return 0;
			d->protocol = PROTOCOL_UDP;
			d->is_whole = 0;
			d->l4 += sizeof(fragment);
		} else if (ip.protocol != PROTOCOL_UDP && ip.protocol != PROTOCOL_OPTIONS) {
			return 0;
		}
	} else {
		return 0;
	}
	if (d->protocol == PROTOCOL_OPTIONS)
		return 1;
	if (bpf_skb_load_bytes(skb, d->l4, ports, sizeof(ports)))
		return 0;
	d->key.from_port = ports[0];
	d->key.own_port = ports[1];
	return 1;
}

/* The header that tells of a client, as it is in the datagram. */
struct telling {
	__u8 version, protocol;
	__be16 length;
	__u8 kind, option_length;
	__u16 port;
	__u32 address[4];
};
_Static_assert(sizeof(struct telling) == 24, "");

/* A client is told of: what is known from here on. */
static always_inline void note(const struct datagram_in *d, const struct telling *t, __u64 now)
{
	struct datagrams_key key = d->key;
	struct datagrams_client client = {}, *before;

	if (d->ipv6)
		set(client.address, t->address);
	else
		set_v4(client.address, t->address[0]);
	set(client.own, d->key.own);
	client.port = t->port;
	client.seen = now;
	before = known(&key, now);
	/* One more before the balancer has got the answer is no new connection. */
	if (is_client(before, client.address, client.port))
		before->seen = now;
	else
		bpf_map_update_elem(&told, &key, &client, BPF_ANY);
	__builtin_memset(key.own, 0, sizeof(key.own));
	before = known(&key, now);
	if (is_client(before, client.address, client.port)) {
		before->seen = now;
		set(before->own, client.own);
		return;
	}
	client.disputed = before && (before->disputed || !same(before->own, client.own));
	bpf_map_update_elem(&told, &key, &client, BPF_ANY);
}

/*
 * One that tells of no client, of whom one may be known; whether one is. `anew`: it says that there is another one, of whom programs cannot be told.
 */
static always_inline int see(const struct datagram_in *d, int anew, __u64 now)
{
	struct datagrams_key key = d->key;
	struct datagrams_client *client = known(&key, now), *any;
	int is_known = client && client->answered && !anew;

	if (is_known)
		client->seen = now;
	else if (client)
		bpf_map_delete_elem(&told, &key);
	__builtin_memset(key.own, 0, sizeof(key.own));
	any = known(&key, now);
	if (!any)
		return is_known;
	if (!same(any->own, d->key.own)) {
		any->seen = now;
		any->disputed = 1;
	} else if (any->disputed || (any->answered && !anew)) {
		any->seen = now;
	} else {
		bpf_map_delete_elem(&told, &key);
	}
	return is_known;
}

/* Takes the header off, `length` bytes; 0 where all is well. */
static always_inline long cut(struct __sk_buff *skb, const struct datagram_in *d, __u32 length)
{
	if (d->ipv6) {
		struct ipv6_header ip;

		if (bpf_skb_adjust_room(skb, -(int)length, BPF_ADJ_ROOM_NET, 0) || bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)))
			return 1;
		ip.bytes = bpf_htons(d->bytes - length);
		ip.protocol = PROTOCOL_UDP;
		return bpf_skb_store_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
	} else {
		struct ipv4_header ip, after;
		__u32 check;

		if (bpf_skb_adjust_room(skb, -(int)length, BPF_ADJ_ROOM_NET, 0) || bpf_skb_load_bytes(skb, ETHERNET_BYTES, &ip, sizeof(ip)))
			return 1;
		after = ip;
		after.length = bpf_htons(sizeof(ip) + d->bytes - length);
		after.protocol = PROTOCOL_UDP;
		check = (__u16)~ip.check;
		after.check = ~fold(bpf_csum_diff((void *)&ip, sizeof(ip), (void *)&after, sizeof(after), check));
		return bpf_skb_store_bytes(skb, ETHERNET_BYTES, &after, sizeof(after), BPF_F_RECOMPUTE_CSUM);
	}
}

SEC("tcx/ingress")
int take_off(struct __sk_buff *skb)
{
	struct trusted_prefix peer = {};
	struct datagram_in d = {};
	struct telling t = {};
	__u16 udp[4];
	__u32 length;
	int is_v6, fits;
	__u64 now;

	if (!read_header(skb, &d))
		return TCX_NEXT;
	peer.bits = 128;
	set(peer.address, d.key.from);
	if (!bpf_map_lookup_elem(&trusted, &peer)) {
		if (d.protocol == PROTOCOL_OPTIONS)
			count(DATAGRAM_OTHERS);
		return TCX_NEXT;
	}
	now = bpf_ktime_get_ns();
	if (d.protocol == PROTOCOL_UDP) {
		count(see(&d, 0, now) ? DATAGRAM_KNOWN : DATAGRAM_UNKNOWN);
		return TCX_NEXT;
	}
	/* With IPv4 the last twelve bytes are none of it, and may not be there. */
	if (!d.is_whole || bpf_skb_load_bytes(skb, d.l4, &t, 12))
		goto broken;
	is_v6 = t.version == 0x20;
	length = is_v6 ? 24 : 12;
	if ((!is_v6 && t.version != 0x10) || t.protocol != PROTOCOL_UDP || t.length != bpf_htons(length) || t.kind != OPTION_UOA ||
	    t.option_length != length - 4 || d.bytes < length + UDP_BYTES)
		goto broken;
	if (is_v6 && bpf_skb_load_bytes(skb, d.l4 + 12, &t.address[1], 12))
		goto broken;
	if (bpf_skb_load_bytes(skb, d.l4 + length, udp, sizeof(udp)) || bpf_ntohs(udp[2]) < UDP_BYTES || bpf_ntohs(udp[2]) > d.bytes - length)
		goto broken;
	d.key.from_port = udp[0];
	d.key.own_port = udp[1];
	/* By constants, of which a kernel knows that they are no more than there is. */
	if (is_v6 ? cut(skb, &d, 24) : cut(skb, &d, 12))
		return DROP;
	/* To a client of the other family no program could answer: the kernel makes no packets of IPv4 for addresses of IPv6 (udpv6_sendmsg). */
	fits = is_v6 == d.ipv6;
	if (fits)
		note(&d, &t, now);
	else
		see(&d, 1, now);
	count(fits ? DATAGRAM_TOLD : DATAGRAM_UNKNOWN);
	return TCX_NEXT;
broken:
	count(DATAGRAM_BROKEN);
	return TCX_NEXT;
}

/* A socket's own address, zeros where it has none, and its port. */
static always_inline void own_of(struct bpf_sock_addr *ctx, int ipv6, __u32 *own, __u16 *port)
{
	struct bpf_sock *sk = ctx->sk;
	__u32 v4;

	*port = bpf_htons(sk->src_port);
	if (ipv6) {
		own[0] = sk->src_ip6[0];
		own[1] = sk->src_ip6[1];
		own[2] = sk->src_ip6[2];
		own[3] = sk->src_ip6[3];
		/* `::ffff:0.0.0.0` is any of IPv4. */
		if (!own[0] && !own[1] && own[2] == bpf_htonl(0xffff) && !own[3])
			own[2] = 0;
		return;
	}
	v4 = sk->src_ip4;
	if (v4)
		set_v4(own, v4);
	else
		__builtin_memset(own, 0, 16);
}

/* Who the sender of what a program gets really is; 0 where it is who it seems to be. */
static always_inline struct datagrams_client *sender(struct bpf_sock_addr *ctx, int ipv6, const __u32 *from, int answers_it)
{
	struct datagrams_key key = {};
	struct answers_key back = {};
	struct answers_to to = {}, *before;
	struct datagrams_client *client;

	if (ctx->protocol != PROTOCOL_UDP)
		return 0;
	set(key.from, from);
	key.from_port = ctx->user_port;
	own_of(ctx, ipv6, key.own, &key.own_port);
	client = known(&key, bpf_ktime_get_ns());
	if (client && client->disputed)
		client = 0;
	if (!answers_it)
		return client;
	set(back.client, client ? client->address : from);
	back.client_port = client ? client->port : key.from_port;
	back.own_port = key.own_port;
	before = bpf_map_lookup_elem(&answers, &back);
	if (!client) {
		/* Who is this client itself gets answers itself. */
		if (before)
			bpf_map_delete_elem(&answers, &back);
		return 0;
	}
	if (before && before->port == key.from_port && same(before->address, from))
		return client;
	set(to.address, from);
	to.port = key.from_port;
	bpf_map_update_elem(&answers, &back, &to, BPF_ANY);
	return client;
}

/* To whom what is for a client goes; 0 where it goes there itself. */
static always_inline struct answers_to *receiver(struct bpf_sock_addr *ctx, int ipv6, const __u32 *client)
{
	struct datagrams_key key = {};
	struct datagrams_client *told_of;
	struct answers_key back = {};
	struct answers_to *to;
	__u64 now;

	if (ctx->protocol != PROTOCOL_UDP)
		return 0;
	set(back.client, client);
	back.client_port = ctx->user_port;
	own_of(ctx, ipv6, key.own, &back.own_port);
	to = bpf_map_lookup_elem(&answers, &back);
	if (!to)
		return 0;
	now = bpf_ktime_get_ns();
	set(key.from, to->address);
	key.from_port = to->port;
	key.own_port = back.own_port;
	told_of = known(&key, now);
	/* The balancer's port may be another client's by now. */
	if (!is_client(told_of, client, back.client_port) || told_of->disputed) {
		bpf_map_delete_elem(&answers, &back);
		return 0;
	}
	told_of->answered = 1;
	told_of->seen = now;
	/* The same with and without this machine's own address. */
	if (is_any(key.own))
		set(key.own, told_of->own);
	else
		__builtin_memset(key.own, 0, sizeof(key.own));
	told_of = known(&key, now);
	if (is_client(told_of, client, back.client_port)) {
		told_of->answered = 1;
		told_of->seen = now;
	}
	return to;
}

static always_inline int tell_v4(struct bpf_sock_addr *ctx, int answers_it)
{
	struct datagrams_client *client;
	__u32 from[4];

	set_v4(from, ctx->user_ip4);
	client = sender(ctx, 0, from, answers_it);
	if (client) {
		ctx->user_ip4 = client->address[3];
		ctx->user_port = client->port;
	}
	return 1;
}

static always_inline int tell_v6(struct bpf_sock_addr *ctx, int answers_it)
{
	struct datagrams_client *client;
	__u32 from[4] = { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] };

	client = sender(ctx, 1, from, answers_it);
	if (client) {
		ctx->user_ip6[0] = client->address[0];
		ctx->user_ip6[1] = client->address[1];
		ctx->user_ip6[2] = client->address[2];
		ctx->user_ip6[3] = client->address[3];
		ctx->user_port = client->port;
	}
	return 1;
}

static always_inline int lead_v4(struct bpf_sock_addr *ctx)
{
	struct answers_to *to;
	__u32 client[4];

	set_v4(client, ctx->user_ip4);
	/* A socket of IPv6 that takes both sends here, too. */
	to = receiver(ctx, ctx->sk->family == 10, client);
	if (to) {
		ctx->user_ip4 = to->address[3];
		ctx->user_port = to->port;
	}
	return 1;
}

static always_inline int lead_v6(struct bpf_sock_addr *ctx)
{
	struct answers_to *to;
	__u32 client[4] = { ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3] };

	to = receiver(ctx, 1, client);
	if (to) {
		ctx->user_ip6[0] = to->address[0];
		ctx->user_ip6[1] = to->address[1];
		ctx->user_ip6[2] = to->address[2];
		ctx->user_ip6[3] = to->address[3];
		ctx->user_port = to->port;
	}
	return 1;
}

SEC("cgroup/recvmsg4")
int tell_sender_v4(struct bpf_sock_addr *ctx)
{
	return tell_v4(ctx, 1);
}

SEC("cgroup/recvmsg6")
int tell_sender_v6(struct bpf_sock_addr *ctx)
{
	return tell_v6(ctx, 1);
}

SEC("cgroup/getpeername4")
int tell_connected_v4(struct bpf_sock_addr *ctx)
{
	return tell_v4(ctx, 0);
}

SEC("cgroup/getpeername6")
int tell_connected_v6(struct bpf_sock_addr *ctx)
{
	return tell_v6(ctx, 0);
}

SEC("cgroup/sendmsg4")
int lead_answer_v4(struct bpf_sock_addr *ctx)
{
	return lead_v4(ctx);
}

SEC("cgroup/sendmsg6")
int lead_answer_v6(struct bpf_sock_addr *ctx)
{
	return lead_v6(ctx);
}

SEC("cgroup/connect4")
int lead_connected_v4(struct bpf_sock_addr *ctx)
{
	return lead_v4(ctx);
}

SEC("cgroup/connect6")
int lead_connected_v6(struct bpf_sock_addr *ctx)
{
	return lead_v6(ctx);
}
