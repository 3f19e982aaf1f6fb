/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Who may begin connections: lists of who may and who may not, and limits. */
#ifndef BALANCER_ACCESS_H
#define BALANCER_ACCESS_H

#include "packet.h"
#include "table.h"

static always_inline const struct access_rule *rule_of(void *trie, struct access_key *key, __u32 list)
{
	key->list = list;
	return bpf_map_lookup_elem(trie, key);
}

/*
 * 0, or DROP_DENIED: what the longest prefix says that the client is in, of the service's own lists and those of all services; of two as
 * long, the service's own.
 */
static always_inline int refusal_by_list(const struct packet *p, const struct service *s, __u32 number)
{
	struct access_key key = { .bits = ACCESS_BITS, .address = p->tuple.source };
	__u32 at = 0, family = p->ipv6 ? ACCESS_V6 : 0;
	const struct access_rule *rule = 0, *of_all = 0;
	void *trie;
	__u64 *hits;

	trie = bpf_map_lookup_elem(&access, &at);
	if (!trie)
		return 0;
	if (s->access & ACCESS_OWN)
		rule = rule_of(trie, &key, number | family);
	if (s->access & ACCESS_OF_ALL)
		of_all = rule_of(trie, &key, family);
	if (!rule || (of_all && of_all->length > rule->length))
		rule = of_all;
	if (!rule)
		return 0;
	TRACE(client, key);
	TRACE(rule, *rule);
	at = rule->number;
	hits = TRACING ? 0 : bpf_map_lookup_elem(&access_hits, &at);
	if (hits)
		*hits += 1;
	return rule->allows ? 0 : DROP_DENIED;
}

/* 0, or why a service's first packet begins nothing. A function of its own as `ask_kernel`. */
static __noinline int refusal_of_first(const struct packet *p, __u32 number)
{
	const struct service *s = service_at(number);
	int reason = 0;

	if (!s || !s->access)
		return 0;
	if (s->access & (ACCESS_OWN | ACCESS_OF_ALL))
		reason = refusal_by_list(p, s, number);
	if (!reason && s->access & ACCESS_LIMITED)
		reason = refusal_by_limit(&p->tuple.source, number);
	return reason;
}

#endif
