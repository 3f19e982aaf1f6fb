/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Persistence: new connections of a source go where its last one went, for a time. That is in a template, as IPVS calls it, one for each source
 * of a service. A connection that begins makes it, or leads it to its own backend; the sweep renews it as long as there are connections to that
 * one, so that the time begins anew when the last of them has gone. The control plane takes out what is over (src/balancer/persistence.rs).
 *
 * Services in a group share templates. Each has backends of its own, so that a template of another one leads to the backend with the same
 * address.
 *
 * As long as nobody has answered a SYN the template is for no longer than that is remembered: a flood of forged ones makes a template each.
 */
#ifndef BALANCER_PERSISTENCE_H
#define BALANCER_PERSISTENCE_H

#include <linux/errno.h>

#include "unmatched.h"

/* What a template has of a connection. */
enum keeping {
	/* It is there: a template that leads to its backend goes on. */
	RENEWS,
	/* It begins: the template leads to its backend. */
	BEGINS,
	/* Another balancer has told of it: so, unless the template is for longer than that, from what has begun or was renewed since. */
	TOLD,
};

/* Both halves are of one source: what is replaced by another CPU meanwhile may have become another one's. */
static always_inline struct template read_template(const struct template *template)
{
	union {
		__u64 word;
		struct template value;
	} both = { .word = *(const volatile __u64 *)template };

	return both.value;
}

static always_inline __u32 group_of(__u32 service)
{
	const struct limits *l = limits_of(service);

	return l ? READ_ONCE(l->group) : 0;
}

static always_inline void find_key(struct template_key *key, const struct service *s, __u32 service, __u32 group,
				   const struct address *client)
{
	__u32 bits = s->persistent_bits;

	key->service = group ?: service;
	key->source.hi = client->hi;
	if (bits > 64)
		key->source.lo = client->lo & first_bits(bits - 64);
	else
		key->source.hi &= first_bits(bits);
}

/* The service's own backend in place of one that may be another's of its group; 0 where it has none. */
static always_inline __u32 own_backend(__u32 service, __u32 group, __u32 number)
{
	const struct backend *b = backend_at(number);
	struct template_key key = {};
	const __u32 *own;

	if (!b)
		return 0;
	if (b->service == service)
		return number;
	if (!group)
		return 0;
	key.source = b->address;
	key.service = service;
	own = bpf_map_lookup_elem(&members, &key);
	return own ? *own : 0;
}

/* Whether both are one, or of one address and in services of a group. */
static always_inline int leads_to(__u32 group, __u32 number, __u32 other)
{
	const struct backend *b, *o;

	if (number == other || !group)
		return number == other;
	b = backend_at(number);
	o = backend_at(other);
	return b && o && same(&b->address, &o->address);
}

/*
 * The backend of the source's template, with a connection counted towards it; 0 where there is none, or it takes no more. A function of its own
 * as `ask_kernel`.
 */
OF_PACKET(__u32, persistent_backend, (__u32 service, __u32 tick), (service, tick))
{
	const struct service *s = service_at(service);
	struct template_key key = {};
	const struct template *template;
	struct template now;
	__u32 number, group = group_of(service);

	if (!p || !s)
		return 0;
	find_key(&key, s, service, group, &p->tuple.source);
	template = bpf_map_lookup_elem(&templates, &key);
	if (!template)
		return 0;
	now = read_template(template);
	if ((__s32)(now.until - tick) <= 0)
		return 0;
	number = own_backend(service, group, now.backend);
	return number && admit(number) ? number : 0;
}

/*
 * Keeps a connection's source where this one is; enum keeping. Elements are replaced, not written to: while a program that sleeps looks at
 * one it may have become another source's.
 */
__noinline int keep_template(__u32 slot, __u32 tick, int as)
{
	const struct connection *c = connection_at(slot);
	const struct service *s = c ? service_at(c->service) : 0;
	struct template_key key = {};
	struct template value = {};
	const struct template *there;
	struct template now = {};
	__u32 ticks, group;
	int leads, is_longer;

	if (!s || !s->persistence)
		return 0;
	ticks = s->persistence;
	if (STATE(c->live) == SYN_RECV && s->timeout[SYN_RECV] < ticks)
		ticks = s->timeout[SYN_RECV];
	value.until = tick + ticks;
	value.backend = c->backend;
	group = group_of(c->service);
	find_key(&key, s, c->service, group, &c->client);
	there = bpf_map_lookup_elem(&templates, &key);
	if (there)
		now = read_template(there);
	leads = there && leads_to(group, now.backend, value.backend);
	is_longer = there && (__s32)(now.until - value.until) >= 0;
	if (leads || as == TOLD ? is_longer : as == RENEWS)
		return 0;
	if (bpf_map_update_elem(&templates, &key, &value, BPF_ANY) == -E2BIG && as != RENEWS)
		count_refusal(c->service, DROP_NO_TEMPLATE);
	return 0;
}

#endif
