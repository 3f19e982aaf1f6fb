/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * QUIC: a client that moves to another address or port goes on with its backend, which the connection ID names. A server makes IDs in the
 * plaintext form of draft-ietf-quic-load-balancers: in the first octet, above 5 bits of its own, the number of the configuration; then the
 * server's ID; then what is its own.
 *
 * IDs that a client has made are at random: those of Initial and 0-RTT packets may be, those of Handshake packets and of such with a short
 * header are not (RFC 9000, 7.2 and 17.2). Versions that are not known may have it otherwise: of those nothing is read but short headers.
 */
#ifndef BALANCER_QUIC_H
#define BALANCER_QUIC_H

#include "table.h"

/* RFC 9000, 15; RFC 9369, 3.1. */
#define QUIC_V1 1
#define QUIC_V2 0x6b3343cf
/* Of packets of these versions with a long header, which are Handshake packets: RFC 9000, 17.2.4; RFC 9369, 3.2. */
#define HANDSHAKE_V1 2
#define HANDSHAKE_V2 3

#define QUIC_LONG_HEADER 0x80

/* As far as either header is looked at (RFC 8999, 5.1 and 5.2). Shorter packets there are none: each has a tag of 16 bytes. */
struct quic_long {
	__u8 first;
	__u8 version[4];
	__u8 length;
	__u8 configuration;
	__u8 server[8];
} __attribute__((packed));

struct quic_short {
	__u8 first;
	__u8 configuration;
	__u8 server[8];
} __attribute__((packed));

/*
 * The backend that the ID of a datagram names, also where it takes no new connections: this is none. 0 where it names none, or one whose
 * connections end; of what is no datagram `before`. A function of its own as `ask_kernel`.
 */
static __noinline __u32 named_backend(struct xdp_md *ctx, const struct packet *p, __u32 number, __u32 before)
{
	const struct service *s = service_at(number);
	struct udphdr *udp = (void *)(long)ctx->data + (p->l4 & L4_MASK);
	struct quic_long *header = (void *)(udp + 1);
	struct quic_short *brief = (void *)(udp + 1);
	struct template_key key = {};
	const struct backend *b;
	const __u32 *found;
	__u32 length, configuration, version, type;
	__u64 server;

	if (p->tuple.protocol != IPPROTO_UDP)
		return before;
	if (!s || !s->quic_length || (void *)(header + 1) > (void *)(long)ctx->data_end)
		return 0;
	length = s->quic_length;
	if (header->first & QUIC_LONG_HEADER) {
		__builtin_memcpy(&version, header->version, sizeof(version));
		type = header->first >> 4 & 3;
		if (!(version == bpf_htonl(QUIC_V1) && type == HANDSHAKE_V1) && !(version == bpf_htonl(QUIC_V2) && type == HANDSHAKE_V2))
			return 0;
		if (header->length <= length)
			return 0;
		configuration = header->configuration;
		__builtin_memcpy(&server, header->server, sizeof(server));
	} else {
		configuration = brief->configuration;
		__builtin_memcpy(&server, brief->server, sizeof(server));
	}
	if (configuration >> 5 != s->quic_configuration || length > 7)
		return 0;
	key.service = BY_QUIC | (number & 0xffff);
	key.source.hi = bpf_cpu_to_be64(QUIC_HI);
	key.source.lo = bpf_cpu_to_be64(bpf_be64_to_cpu(server) >> (64 - 8 * length));
	found = bpf_map_lookup_elem(&members, &key);
	if (!found)
		return 0;
	b = backend_at(*found);
	return b && b->service == number && !b->ends ? *found : 0;
}

#endif
