// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * For backends: what the option of client_address.h says is what programs are told of their connections' peers. `note_client` keeps it with
 * the socket as that is made; `tell_peer_v4` and `tell_peer_v6` answer with it where the kernel is asked for a peer's address, by
 * accept(2) as by getpeername(2), which both ask the same function of the kernel (inet_getname in net/ipv4/af_inet.c, inet6_getname in
 * net/ipv6/af_inet6.c).
 *
 * The helper that looks for options (bpf_load_hdr_opt) takes kind 254 with a number of RFC 6994 behind the length alone, which this option has
 * not: so the header is read itself.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "receiver.h"
#include "lib/old.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define ADDRESS_FAMILY_V4 2
#define ADDRESS_FAMILY_V6 10
#define HEADER 20
#define MOST_HEADER 60
#define MOST_OPTIONS 40
#define KIND 254
#define LENGTH_V4 8
#define LENGTH_V6 20

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct told_client);
} clients SEC(".maps");

/* Whose word is taken. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_TRUSTED);
	__type(key, struct trusted_prefix);
	__type(value, __u32);
} trusted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RECEPTIONS);
	__type(key, __u32);
	__type(value, __u64);
} receptions SEC(".maps");

static inline __attribute__((__always_inline__)) void count(enum reception what)
{
	__u32 key = what;
	__u64 *count = bpf_map_lookup_elem(&receptions, &key);

	if (count)
		*count += 1;
}

/* The word of 4 bytes at this offset of the header, in memory order; 0 behind its end. */
static inline __attribute__((__always_inline__)) __u32 word_at(struct bpf_sock_ops *ops, __u32 at)
{
	__u8 *byte = (__u8 *)ops->skb_data + (at & 63);

	if ((void *)(byte + 4) > ops->skb_data_end)
		return 0;
	return byte[0] | (__u32)byte[1] << 8 | (__u32)byte[2] << 16 | (__u32)byte[3] << 24;
}

/* Where in the header the option is, of this length or that of IPv6; 0 where it is not. */
static inline __attribute__((__always_inline__)) __u32 find_option(struct bpf_sock_ops *ops, __u8 wanted)
{
	void *end = ops->skb_data_end;
	__u8 *data = ops->skb_data;
	__u32 at = HEADER;

	for (int i = 0; i < MOST_OPTIONS; i++) {
		__u8 *option = data + at;
		__u32 length;

		if ((void *)(option + 2) > end || option[0] == 0)
			return 0;
		length = option[1];
		if (option[0] == 1)
			length = 1;
		else if (length < 2)
			return 0;
		/* One that goes on behind the header's end says nothing. */
		if (at + length > MOST_HEADER)
			return 0;
		if (option[0] == KIND && length == LENGTH_V6)
			return (void *)(option + LENGTH_V6) <= end ? at : 0;
		if (option[0] == KIND && length == wanted)
			return (void *)(option + wanted) <= end ? at : 0;
		/* As little is known to the verifier whichever way was taken here, so that it follows one. */
		at = (at + length + UNKNOWN_ZERO(option[1])) & 63;
	}
	return 0;
}

SEC("sockops")
int note_client(struct bpf_sock_ops *ops)
{
	struct trusted_prefix peer = {};
	struct told_client told = {}, *kept;
	struct bpf_sock *socket;
	__u32 at, v4, last;
	int ipv6;

	if (ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	/*
	 * Not in an initialiser: the compiler would keep that in a section .rodata without a variable, whose type Linux 5.10 refuses
	 * (btf_datasec_check_meta), and without types there is no storage with sockets.
	 */
	peer.bits = 128;
	peer.address[2] = bpf_htonl(0xffff);
	/* Fields of the context may not be reached by one instruction that has either's place. */
	v4 = ops->remote_ip4;
	barrier_var(v4);
	last = ops->remote_ip6[3];
	barrier_var(last);
	if (ops->family == ADDRESS_FAMILY_V6) {
		peer.address[0] = ops->remote_ip6[0];
		peer.address[1] = ops->remote_ip6[1];
		peer.address[2] = ops->remote_ip6[2];
		peer.address[3] = last;
	} else if (ops->family == ADDRESS_FAMILY_V4) {
		peer.address[3] = v4;
	} else {
		return 1;
	}
	if (!bpf_map_lookup_elem(&trusted, &peer)) {
		count(RECEPTION_OTHERS);
		return 1;
	}
	ipv6 = peer.address[0] || peer.address[1] || peer.address[2] != bpf_htonl(0xffff);
	at = find_option(ops, ipv6 ? LENGTH_V6 : LENGTH_V4);
	if (!at) {
		count(RECEPTION_WITHOUT);
		return 1;
	}
	/* A balancer may have a client of IPv6 for a backend of IPv4, which a socket of IPv6 can tell of, and no other. */
	ipv6 = (word_at(ops, at) >> 8 & 0xff) == LENGTH_V6;
	if (ipv6 && ops->family != ADDRESS_FAMILY_V6) {
		count(RECEPTION_WITHOUT);
		return 1;
	}
	told.port = bpf_htons(bpf_ntohl(word_at(ops, at)) & 0xffff);
	if (ipv6) {
		told.address[0] = word_at(ops, at + 4);
		told.address[1] = word_at(ops, at + 8);
		told.address[2] = word_at(ops, at + 12);
		told.address[3] = word_at(ops, at + 16);
	} else {
		told.address[2] = bpf_htonl(0xffff);
		told.address[3] = word_at(ops, at + 4);
	}
	socket = ops->sk;
	kept = socket ? bpf_sk_storage_get(&clients, socket, &told, BPF_SK_STORAGE_GET_F_CREATE) : 0;
	count(kept ? RECEPTION_TOLD : RECEPTION_NO_MEMORY);
	return 1;
}

SEC("cgroup/getpeername4")
int tell_peer_v4(struct bpf_sock_addr *peer)
{
	struct told_client *told = bpf_sk_storage_get(&clients, peer->sk, 0, 0);

	if (told) {
		peer->user_ip4 = told->address[3];
		peer->user_port = told->port;
	}
	return 1;
}

SEC("cgroup/getpeername6")
int tell_peer_v6(struct bpf_sock_addr *peer)
{
	struct told_client *told = bpf_sk_storage_get(&clients, peer->sk, 0, 0);

	if (told) {
		peer->user_ip6[0] = told->address[0];
		peer->user_ip6[1] = told->address[1];
		peer->user_ip6[2] = told->address[2];
		peer->user_ip6[3] = told->address[3];
		peer->user_port = told->port;
	}
	return 1;
}
