/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The route out: what the kernel's routes and neighbours say, cached until they change. */
#ifndef BALANCER_ROUTE_H
#define BALANCER_ROUTE_H

#include "lib/device.h"
#include "packet.h"

#define AF_INET 2
#define AF_INET6 10
/* Ticks for which a route holds while the control plane watches no changes, as a shift: 8 ticks are 1.07 s. */
#define ROUTE_SHIFT 3

struct route {
	__u32 ifindex;
	__u8 source[6], destination[6];
	__u16 mtu;
	__u16 pad;
};

#ifdef OLD_KERNEL
#define MOST_IN_A_LIST 256

/* What fits through a device of the namespace that the frame came in by. Before Linux 5.12 no helper tells. */
__noinline __u32 mtu_of(struct xdp_md *ctx, __u32 ifindex)
{
	/* A context is what it stands for: what of it programs see is translated as they are loaded. */
	const struct xdp_buff *buffer = (void *)ctx;
	struct net_device *device;

	if (BPF_CORE_READ_INTO(&device, buffer, rxq, dev))
		return 0;
	if (ifindex != ctx->ingress_ifindex)
		device = device_of(BPF_CORE_READ(device, nd_net.net), ifindex, MOST_IN_A_LIST);
	return device ? BPF_CORE_READ(device, mtu) : 0;
}
#else
static always_inline __u32 mtu_of(struct xdp_md *ctx, __u32 ifindex)
{
	__u32 mtu = 0;

	return bpf_check_mtu(ctx, ifindex, &mtu, 0, 0) >= 0 ? mtu : 0;
}
#endif

static always_inline struct next_hop next_hop_of(const struct bpf_fib_lookup *fib, __u32 backend)
{
	struct next_hop hop = { .ifindex = fib->ifindex, .backend = backend };

	/* The kernel has put the gateway in the destination's place, which IPv4 may have of IPv6 (RFC 5549). */
	if (fib->family == AF_INET6)
		set_v6(&hop.address, (struct in6_addr *)fib->ipv6_dst);
	else
		set_v4(&hop.address, fib->ipv4_dst);
	return hop;
}

static always_inline void note_next_hop(void *map, const struct next_hop *hop)
{
	__u32 noted = 1;

	/* Most packets find it noted, by other CPUs too: looking takes no lock. */
	if (!TRACING && !bpf_map_lookup_elem(map, hop))
		bpf_map_update_elem(map, hop, &noted, BPF_NOEXIST);
}

/* What routes may depend on of a packet that leaves. */
struct outward {
	const struct address *source, *destination;
	__u16 source_port, destination_port;
	/* 0: there are no ports, such as around a tunnel. */
	__u8 protocol;
	__u8 ipv6;
	/* 0 for a client's route. */
	__u16 backend;
	/* enum route_key */
	__u16 by;
	/* As of the packet. */
	__u32 came_by;
};

/* What the kernel is asked, and answers: it would take a fifth of the stack that there is. No program is interrupted by another packet's. */
struct question {
	struct bpf_fib_lookup fib;
	struct next_hop hop;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct question);
} questions SEC(".maps");

/* An interface as routes have it. A function of its own as `ask_kernel`. */
static __noinline __u32 way_by(__u32 ifindex)
{
	struct vlan_key key = { .ifindex = ifindex };

	return bpf_map_lookup_elem(&vlans, &key) ? ifindex | OF_VLAN : ifindex;
}

/*
 * Asks the kernel; 0 or a reason for a drop. The interface that `route` has before is one whose link is reached without a
 * neighbour entry.
 */
static always_inline int look_up_route(struct xdp_md *ctx, const struct outward *o, struct route *route)
{
	__u32 key = 0, reached = route->ifindex;
	struct question *q = bpf_map_lookup_elem(&questions, &key);
	struct bpf_fib_lookup *fib;
	int result;

	if (!q)
		return DROP_INTERNAL;
	fib = &q->fib;
	__builtin_memset(fib, 0, sizeof(*fib));
	fib->ifindex = o->came_by & ~OF_VLAN;
	fib->l4_protocol = o->protocol;
	fib->sport = o->source_port;
	fib->dport = o->destination_port;
	if (o->ipv6) {
		fib->family = AF_INET6;
		get_v6((struct in6_addr *)fib->ipv6_src, o->source);
		get_v6((struct in6_addr *)fib->ipv6_dst, o->destination);
	} else {
		fib->family = AF_INET;
		fib->ipv4_src = v4_of(o->source);
		fib->ipv4_dst = v4_of(o->destination);
	}
	result = bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
	route->ifindex = way_by(fib->ifindex);
	route->mtu = fib->mtu_result;
#ifdef OLD_KERNEL
	if (!route->mtu)
		route->mtu = mtu_of(ctx, fib->ifindex);
#endif
	if (result != BPF_FIB_LKUP_RET_SUCCESS && result != BPF_FIB_LKUP_RET_NO_NEIGH)
		return DROP_NO_ROUTE;
	q->hop = next_hop_of(fib, o->backend);
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH) {
		if (route->ifindex != reached)
			note_next_hop(&missed, &q->hop);
		return DROP_NO_NEIGHBOR;
	}
	__builtin_memcpy(route->source, fib->smac, 6);
	__builtin_memcpy(route->destination, fib->dmac, 6);
	if (o->by != BY_BACKEND)
		note_next_hop(&next_hops, &q->hop);
	return 0;
}

/* Never 0. */
static always_inline __u32 hash_route(const struct outward *o)
{
	__u64 h = o->destination->hi * 0x9e3779b97f4a7c15ULL + o->destination->lo * 0xc2b2ae3d27d4eb4fULL +
		  o->source->hi * 0x165667b19e3779f9ULL + o->source->lo * 0xd6e8feb86659fd93ULL +
		  o->came_by * 0xa0761d6478bd642fULL;

	if (o->by == BY_PORTS)
		h += ((__u64)o->source_port << 16 | o->destination_port) * 0xe7037ed1a0b428dbULL;
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15ULL;
	return (h >> 32) | 1;
}

#define ROUTE_MAC(route) ((route)&0xffffffffffffULL)
#define ROUTE_STAMP(route) ((__u16)((route) >> 48))
#define STAMP_OF_GENERATION 0x8000

static always_inline __u16 stamp_of_time(__u32 tick)
{
	return tick >> ROUTE_SHIFT & ~STAMP_OF_GENERATION;
}

/*
 * The stamp of routes that are looked up from here on, and of cached ones that hold. It is read before the kernel is asked for the
 * route: a change meanwhile leaves the route with an older stamp.
 */
static always_inline __u16 stamp_now(__u32 tick, __u16 *route_key)
{
	union {
		__u64 word;
		struct routing is;
	} r = {};
	__u32 key = 0;
	struct routing *at = bpf_map_lookup_elem(&routings, &key);

	if (at)
		r.word = *(volatile __u64 *)at;
	*route_key = r.is.key;
	return tick <= r.is.watched_until ? r.is.generation | STAMP_OF_GENERATION : stamp_of_time(tick);
}

static always_inline __u64 mac_number(const __u8 *mac)
{
	__u64 number = 0;

	__builtin_memcpy(&number, mac, 6);
	return number;
}

/*
 * Keeps the link addresses of the client's first packet, as a route that has to be looked up: the kernel is asked when there is
 * something to send there, which for many connections there never is.
 */
static always_inline void keep_arrival(struct xdp_md *ctx, const struct packet *p, struct connection *c, const struct ethhdr *arrived,
				       __u32 tick)
{
	c->route_ifindex = p->came_by;
	__builtin_memcpy(c->route_source, arrived->h_dest, 6);
	c->route_mtu = mtu_of(ctx, p->came_by & ~OF_VLAN);
	*(volatile __u64 *)&c->route = mac_number(arrived->h_source) | (__u64)stamp_of_time(tick - (1 << ROUTE_SHIFT)) << 48;
}

/* This CPU's cache entry of the route to a backend, and the hash of the flow as far as routes depend on it. */
static always_inline struct cached_route *cached_for(struct outward *outward, __u32 *flow)
{
	__u32 key = outward->backend;

	*flow = 0;
	/* There are at least as many entries as backends. */
	if (outward->by != BY_BACKEND) {
		*flow = hash_route(outward);
		key = (*flow >> 1) & tuning.cached_mask;
	}
	return bpf_map_lookup_elem(&hops, &key);
}

static always_inline void copy_cached(const struct cached_route *cached, struct route *route)
{
	route->ifindex = cached->ifindex;
	__builtin_memcpy(route->source, cached->source, 6);
	__builtin_memcpy(route->destination, cached->destination, 6);
	route->mtu = cached->mtu;
}

/* `known` is the connection's `route`. */
static always_inline void copy_clients(const struct connection *c, __u64 known, struct route *route)
{
	route->ifindex = c->route_ifindex;
	route->mtu = c->route_mtu;
	__builtin_memcpy(route->source, c->route_source, 6);
	__builtin_memcpy(route->destination, &known, 6);
}

/*
 * Whether the route out is cached and nothing has changed since, as for nearly every packet: no function is called for it.
 * Toward the backend it does not read the part of the connection that holds the client's route, which may not be in the CPU's cache.
 */
static always_inline int has_route(const struct connection *c, enum direction direction, __u32 tick, struct route *route)
{
	__u16 route_key, stamp = stamp_now(tick, &route_key);
	__u32 key = c->backend;
	const struct cached_route *cached;

	if (direction == OUTWARD) {
		__u64 known = *(volatile __u64 *)&c->route;

		if (!known || ROUTE_STAMP(known) != stamp)
			return 0;
		copy_clients(c, known, route);
		return 1;
	}
	/* A traced packet asks the kernel. */
	if (TRACING || route_key != BY_BACKEND)
		return 0;
	cached = bpf_map_lookup_elem(&hops, &key);
	if (!cached || cached->known != KNOWN || cached->backend != key || cached->flow ||
	    cached->stamp != (tick >> ROUTE_SHIFT << 16 | stamp))
		return 0;
	copy_cached(cached, route);
	return 1;
}

/*
 * The route out that `has_route` does not have: from this CPU's cache of the flow, or from the kernel. A client without a neighbour
 * entry, on the link from which its packets have come, is reached at their source address there. `route` has the interface that the packet came
 * by. A function of its own because stack frames add up.
 */
OF_POINTERS int ask_kernel(struct xdp_md *ctx, struct connection *c, __u32 direction_and_ipv6, __u32 tick, struct route *route)
{
	const struct service *s = c ? service_at(c->service) : 0;
	const struct backend *b = c ? backend_at(c->backend) : 0;
	struct outward outward = { .ipv6 = direction_and_ipv6 >> 1 };
	__u64 known;
	struct cached_route *cached = 0;
	__u32 flow = 0;
	/* The time, and below it the stamp: one value, for there is no room on the stack for two. */
	__u32 mark = (tick >> ROUTE_SHIFT) << 16 | stamp_now(tick, &outward.by);
	int reason;

	if (!s || !b || !route)
		return DROP_INTERNAL;
	outward.came_by = route->ifindex;
	outward.protocol = s->protocol;
	route->ifindex = 0;
	if (direction_and_ipv6 & OUTWARD) {
		outward.source = &s->address;
		outward.source_port = service_port(c, s);
		outward.destination = &c->client;
		outward.destination_port = c->client_port;
		route->ifindex = ROUTE_MAC(*(volatile __u64 *)&c->route) ? c->route_ifindex : 0;
	} else {
		outward.source = &c->client;
		outward.source_port = c->client_port;
		outward.destination = &b->address;
		outward.destination_port = backend_port(c, b);
		outward.backend = c->backend;
		if (s->forward == FULLNAT || s->forward == TUNNEL) {
			outward.source = local_at(c->local);
			if (!outward.source)
				return DROP_INTERNAL;
			outward.source_port = c->local_port;
		}
		if (s->forward == TUNNEL)
			outward.protocol = outward.source_port = outward.destination_port = 0;
		cached = cached_for(&outward, &flow);
		if (!cached)
			return DROP_INTERNAL;
		/* A traced packet asks the kernel. */
		if (!TRACING && cached->known == KNOWN && cached->backend == outward.backend && cached->flow == flow &&
		    cached->stamp == mark) {
			copy_cached(cached, route);
			return 0;
		}
	}
	reason = look_up_route(ctx, &outward, route);
	if (cached) {
		cached->known = UNKNOWN;
		if (reason)
			return reason;
		cached->ifindex = route->ifindex;
		__builtin_memcpy(cached->source, route->source, 6);
		__builtin_memcpy(cached->destination, route->destination, 6);
		cached->mtu = route->mtu;
		cached->stamp = mark;
		cached->backend = outward.backend;
		cached->flow = flow;
		cached->known = KNOWN;
		return 0;
	}
	known = *(volatile __u64 *)&c->route;
	if (reason == DROP_NO_NEIGHBOR && ROUTE_MAC(known) && route->ifindex == c->route_ifindex) {
		known = ROUTE_MAC(known);
	} else if (reason) {
		return reason;
	} else {
		c->route_ifindex = route->ifindex;
		__builtin_memcpy(c->route_source, route->source, 6);
		c->route_mtu = route->mtu;
		known = mac_number(route->destination);
	}
	known |= (__u64)mark << 48;
	*(volatile __u64 *)&c->route = known;
	copy_clients(c, known, route);
	return 0;
}

/* The route out for a connection's packets in this direction; 0 or a reason for a drop. */
static always_inline int find_route(struct xdp_md *ctx, const struct packet *p, struct connection *c, enum direction direction, int ipv6,
				    __u32 tick, struct route *route)
{
	if (has_route(c, direction, tick, route))
		return 0;
	route->ifindex = p->came_by;
	return ask_kernel(ctx, c, direction | (__u32)(ipv6 ? 2 : 0), tick, route);
}

static always_inline int set_link(struct xdp_md *ctx, const __u8 *source, const __u8 *destination)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;

	if ((void *)(ethernet + 1) > end)
		return DROP_INTERNAL;
	__builtin_memcpy(ethernet->h_dest, destination, 6);
	__builtin_memcpy(ethernet->h_source, source, 6);
	return 0;
}

/* Whether the kernel would keep a packet to there for itself, and not forward it. */
static __noinline int is_local(struct xdp_md *ctx, const struct packet *p)
{
	struct bpf_fib_lookup fib = { .ifindex = p->came_by & ~OF_VLAN };
	const struct tuple *t = &p->tuple;

	if (p->ipv6) {
		fib.family = AF_INET6;
		get_v6((struct in6_addr *)fib.ipv6_src, &t->source);
		get_v6((struct in6_addr *)fib.ipv6_dst, &t->destination);
	} else {
		fib.family = AF_INET;
		fib.ipv4_src = v4_of(&t->source);
		fib.ipv4_dst = v4_of(&t->destination);
	}
	/* Of neighbours nothing is asked here, but BPF_FIB_LOOKUP_SKIP_NEIGH, which says so, is refused before Linux 6.3. */
	return bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_NOT_FWDED;
}

/* Whether a socket of this machine is at the packet's end: a TCP connection, or any UDP socket that would receive it. */
static __noinline int has_socket(struct xdp_md *ctx, const struct tuple *t, int ipv6)
{
	struct bpf_sock_tuple at = {};
	__u32 size = ipv6 ? sizeof(at.ipv6) : sizeof(at.ipv4);
	struct bpf_sock *socket;
	int is;

	if (ipv6) {
		get_v6((struct in6_addr *)at.ipv6.saddr, &t->source);
		get_v6((struct in6_addr *)at.ipv6.daddr, &t->destination);
		at.ipv6.sport = t->source_port;
		at.ipv6.dport = t->destination_port;
	} else {
		at.ipv4.saddr = v4_of(&t->source);
		at.ipv4.daddr = v4_of(&t->destination);
		at.ipv4.sport = t->source_port;
		at.ipv4.dport = t->destination_port;
	}
	socket = t->protocol == IPPROTO_TCP ? bpf_sk_lookup_tcp(ctx, &at, size, BPF_F_CURRENT_NETNS, 0)
					   : bpf_sk_lookup_udp(ctx, &at, size, BPF_F_CURRENT_NETNS, 0);
	if (!socket)
		return 0;
	is = t->protocol != IPPROTO_TCP || socket->state != BPF_TCP_LISTEN;
	bpf_sk_release(socket);
	return is;
}

static always_inline int leave_as_it_is(struct xdp_md *ctx, const struct packet *p, __u32 ifindex, const struct control *c)
{
	return ifindex == ctx->ingress_ifindex && !c->redirects_back && !p->queued ? XDP_TX : bpf_redirect(ifindex, 0);
}

/* Puts a tag of this VLAN into a frame without one; 0 or a reason for a drop. */
static always_inline int put_tag(struct xdp_md *ctx, __u16 id)
{
	__u8 addresses[2 * ETH_ALEN];
	void *data = (void *)(long)ctx->data;

	if (data + sizeof(addresses) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	__builtin_memcpy(addresses, data, sizeof(addresses));
	if (bpf_xdp_adjust_head(ctx, -TAG_BYTES))
		return DROP_INTERNAL;
	data = (void *)(long)ctx->data;
	if (data + sizeof(addresses) + TAG_BYTES > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	__builtin_memcpy(data, addresses, sizeof(addresses));
	*(__be32 *)(data + sizeof(addresses)) = bpf_htonl((__u32)ETH_P_8021Q << 16 | id);
	return 0;
}

/* The tag of a frame is of this VLAN; its priority stays. */
static always_inline int change_tag(struct xdp_md *ctx, __u16 id)
{
	__be16 *tag = (void *)(long)ctx->data + sizeof(struct ethhdr);

	if ((void *)(tag + 1) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	*tag = bpf_htons((bpf_ntohs(*tag) & ~VLAN_ID) | id);
	return 0;
}

/* Takes the tag off. */
static always_inline int take_tag(struct xdp_md *ctx)
{
	__u8 addresses[2 * ETH_ALEN];
	void *data = (void *)(long)ctx->data;

	if (data + sizeof(addresses) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	__builtin_memcpy(addresses, data, sizeof(addresses));
	if (bpf_xdp_adjust_head(ctx, TAG_BYTES))
		return DROP_INTERNAL;
	data = (void *)(long)ctx->data;
	if (data + sizeof(addresses) > (void *)(long)ctx->data_end)
		return DROP_INTERNAL;
	__builtin_memcpy(data, addresses, sizeof(addresses));
	return 0;
}

/*
 * Where the packet came by a VLAN device, or leaves by one: XDP sends by its parent alone, and with its tag. What came by one and leaves by another
 * interface has none any more. A function of its own because stack frames add up.
 */
OF_PACKET(int, leave_tagged, (struct xdp_md *ctx, __u32 way), (ctx, way))
{
	struct vlan_key key = { .ifindex = way & ~OF_VLAN };
	const struct control *control = settings();
	__u32 ifindex = key.ifindex;
	int reason;

	if (!p || !control)
		return drop(DROP_INTERNAL);
	if (way & OF_VLAN) {
		const struct vlan *v = bpf_map_lookup_elem(&vlans, &key);

		/* It has gone meanwhile, and routes by it with it. */
		if (!v)
			return drop(DROP_NO_ROUTE);
		ifindex = v->ifindex;
		reason = p->l3 == sizeof(struct ethhdr) ? put_tag(ctx, v->id) : change_tag(ctx, v->id);
	} else {
		reason = take_tag(ctx);
	}
	return reason ? drop(reason) : leave_as_it_is(ctx, p, ifindex, control);
}

/* The verdict for a packet that leaves by an interface, as routes and packets have it. */
static always_inline int leave_by(struct xdp_md *ctx, struct packet *p, __u32 way, const struct control *c)
{
	return (way | p->came_by) & OF_VLAN ? leave_tagged(p, ctx, way) : leave_as_it_is(ctx, p, way, c);
}

#endif
