/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Limits of a service: how many connections each of its sources has, how fast each begins new ones, and all together.
 *
 * A source is an address or a prefix of one. Its counter is found by a keyed hash, in one of two sets of four, of which the emptier one
 * takes a new source; 32 bits of the hash tell apart those of a set. A counter is in use while its source has connections, or has not
 * all of its burst back. None that is in use is taken for another source: where all eight are, a new source is not limited.
 *
 * A first packet is asked about before anything is looked for, and counted when all the rest has been found, so that what is refused
 * for any reason writes nothing here. All is changed by compare-and-exchange of a word. What another CPU does at the same moment may give a
 * new source two counters, until both are free again.
 */
#ifndef BALANCER_SOURCES_H
#define BALANCER_SOURCES_H

#include <bpf/bpf_endian.h>

#include "given.h"

#define SOURCE_COUNT(word) ((__u32)(word))
/* A failure means that another CPU has succeeded. */
#define SOURCE_TRIES 16
/* In place of a protocol and what is around it: no packet's tuple hashes as a source. */
#define HASH_OF_SOURCE (1ULL << 40)

static always_inline const struct limits *limits_of(__u32 service)
{
	return bpf_map_lookup_elem(&limits, &service);
}

/* The coarse clock would make a burst of what comes within a jiffy. */
static always_inline __u64 now_ns(void)
{
	const struct control *c = settings();

	return c && c->fixed_tick ? (__u64)c->fixed_tick << TICK_SHIFT : bpf_ktime_get_ns();
}

/* So many bits, 1 to 64, of half an address. */
static always_inline __u64 first_bits(__u32 count)
{
	return bpf_cpu_to_be64(~0ULL << ((64 - count) & 63));
}

OF_POINTERS __u64 hash_of_source(const struct service *s, const struct address *client, __u32 length)
{
	struct address source = {};

	if (!s || !client)
		return 0;
	source.hi = client->hi;
	if (length > 64)
		source.lo = client->lo & first_bits(length - 64);
	else
		source.hi &= first_bits(length);
	return hash_words(tuning.key, &source, &s->address,
			  HASH_OF_SOURCE | (__u64)s->protocol << 32 | (length & 0xff) << 16 | s->port);
}

static always_inline struct source *source_at(__u32 number)
{
	__u32 key = number / SOURCE_WAYS;
	struct source_set *set = bpf_map_lookup_elem(&sources, &key);

	if (!set)
		return 0;
	/* Arithmetic before the check is nothing for the verifier. */
	barrier_var(set);
	return &set->way[number % SOURCE_WAYS];
}

/* The number of the first counter of one of a source's two sets. */
static always_inline __u32 first_source(__u64 hash, int other)
{
	__u32 low = (__u32)hash ^ (other ? (__u32)(hash >> 32) * 0x9e3779b1U : 0);

	return ((__u64)low * tuning.source_sets >> 32) * SOURCE_WAYS;
}

#define NO_SOURCE 0xffffffff

/* The number of a source's counter, which is in use, or otherwise of one that is free; NO_SOURCE where all are in use. */
__noinline __u32 find_source(__u64 hash, __u64 now)
{
	__u32 best = NO_SOURCE, most = 0;

	for (int other = 0; other < 2; other++) {
		__u32 first = first_source(hash, other), idle = 0, at = 0;

		for (int i = 0; i < SOURCE_WAYS; i++) {
			struct source *s = source_at(first + i);
			__u64 word;

			if (!s)
				return NO_SOURCE;
			word = *(volatile __u64 *)&s->word;
			if (SOURCE_COUNT(word) || *(volatile __u64 *)&s->next > now) {
				if (word >> 32 == hash >> 32)
					return first + i;
				continue;
			}
			idle++;
			at = first + i;
		}
		if (idle > most) {
			most = idle;
			best = at;
		}
	}
	return best;
}

/*
 * How far the next one is ahead of now. What is further ahead than a rate lets anything come is of a rate of before, which had more of a
 * burst, or was slower: then the burst is used up, and no more. CPUs' times differ by less than PACE_DOUBT, in nanoseconds.
 */
#define PACE_DOUBT 1000000000ULL

static always_inline __u64 ahead_by(const __u64 *next, __u64 now, __u64 gap, __u64 slack)
{
	__u64 at = *(const volatile __u64 *)next, by = at > now ? at - now : 0;

	return by > slack + gap + PACE_DOUBT ? slack : by;
}

/*
 * Counts one more, unless it is too far ahead of a rate: the generic cell rate algorithm (ITU-T I.371, A), a token bucket of one word.
 * 0, or `reason`, or DROP_CONTENDED where other CPUs were quicker each time.
 */
OF_POINTERS int keep_pace(__u64 *next, __u64 now, __u64 gap, __u64 slack, int reason)
{
	if (!next)
		return reason;
	for (int i = 0; i < SOURCE_TRIES; i++) {
		__u64 at = *(volatile __u64 *)next, by = ahead_by(&at, now, gap, slack);

		if (by > slack)
			return reason;
		if (replace(next, at, now + by + gap))
			return 0;
	}
	return DROP_CONTENDED;
}

/* Whether the connection that a traced packet would end is still counted. */
static always_inline __u32 has_ended(__u32 number, const struct limits *l)
{
#if TRACING
	struct trace *t = trace_record();

	return t && t->reopening && t->copy.service == number && OF_SOURCE(t->copy.counter) == l->current;
#endif
	return 0;
}

/* 0, or why a connection of this client does not begin now; nothing is counted. A function of its own as `ask_kernel`. */
OF_POINTERS int refusal_by_limit(const struct address *client, __u32 number)
{
	const struct service *s = bpf_map_lookup_elem(&services, &number);
	const struct limits *l = limits_of(number);
	const __u64 *pace = bpf_map_lookup_elem(&paces, &number);
	__u64 now = now_ns();
	__u32 current = l ? READ_ONCE(l->current) : 0;

	if (!client || !s || !l || !pace)
		return 0;
	if (current) {
		__u64 hash = hash_of_source(s, client, l->length[current % SOURCE_LENGTHS]);
		const struct source *source = source_at(find_source(hash, now));
		__u64 word = source ? *(const volatile __u64 *)&source->word : 0;

		if (source && word >> 32 == hash >> 32) {
			if (l->source_limit && SOURCE_COUNT(word) - has_ended(number, l) >= l->source_limit)
				return DROP_SOURCE_LIMIT;
			if (l->source_gap && ahead_by(&source->next, now, l->source_gap, l->source_slack) > l->source_slack)
				return DROP_SOURCE_RATE;
		}
	}
	return l->gap && ahead_by(pace, now, l->gap, l->slack) > l->slack ? DROP_NEW_RATE : 0;
}

/* Gives a connection its place with its source, of the length that is `current`; 0, or why it does not begin. */
static always_inline int take_source(struct connection *c, const struct service *s, const struct limits *l, __u32 current, __u64 now,
				     int told)
{
	__u64 hash = hash_of_source(s, &c->client, l->length[current % SOURCE_LENGTHS]), *none;
	__u32 number = c->service;

	for (int i = 0; i < SOURCE_TRIES; i++) {
		struct source *source = source_at(find_source(hash, now));
		__u64 word;
		__u32 count;

		if (!source) {
			none = bpf_map_lookup_elem(&unlimited, &number);
			if (none)
				*none += 1;
			return 0;
		}
		word = *(volatile __u64 *)&source->word;
		count = SOURCE_COUNT(word);
		if (word >> 32 != hash >> 32 && (count || *(volatile __u64 *)&source->next > now))
			continue;
		if (!told && l->source_limit && count >= l->source_limit)
			return DROP_SOURCE_LIMIT;
		if (!replace(&source->word, word, hash >> 32 << 32 | (count + 1)))
			continue;
		c->counter |= current << SOURCE_SHIFT;
		if (told || !l->source_gap)
			return 0;
		return keep_pace(&source->next, now, l->source_gap, l->source_slack, DROP_SOURCE_RATE);
	}
	return DROP_CONTENDED;
}

/*
 * Counts a connection: 0, or why it does not begin, as other CPUs may have begun some since it was asked about. One that another balancer has
 * told of is counted, and never refused. The record says whether it is counted.
 */
OF_POINTERS int count_at_source(struct connection *c, int told)
{
	__u32 number = c ? c->service : 0, current;
	const struct service *s = bpf_map_lookup_elem(&services, &number);
	const struct limits *l = limits_of(number);
	__u64 *pace = bpf_map_lookup_elem(&paces, &number), now = now_ns();
	int reason = 0;

	if (!c || !s || !l || !pace)
		return 0;
	current = READ_ONCE(l->current);
	if (current)
		reason = take_source(c, s, l, current, now, told);
	if (!reason && !told && l->gap)
		reason = keep_pace(pace, now, l->gap, l->slack, DROP_NEW_RATE);
	return told ? 0 : reason;
}

/* Takes one off a counter; whether it is this source's, and has some. */
__noinline int uncount_one(__u32 number, __u64 hash)
{
	struct source *source = source_at(number);

	if (!source)
		return 0;
	for (int i = 0; i < SOURCE_TRIES; i++) {
		__u64 word = *(volatile __u64 *)&source->word;

		if (word >> 32 != hash >> 32 || !SOURCE_COUNT(word))
			return 0;
		if (replace(&source->word, word, word - 1))
			return 1;
	}
	return 0;
}

/* Takes a connection off its source's where it is one of them. A function of its own as `ask_kernel`. */
OF_POINTERS int uncount_at_source(const struct connection *c)
{
	__u32 length = c ? OF_SOURCE(c->counter) : 0, number;
	const struct service *s;
	const struct limits *l;
	__u64 hash;

	if (!c || !length)
		return 0;
	number = c->service;
	s = bpf_map_lookup_elem(&services, &number);
	l = limits_of(number);
	if (!s || !l)
		return 0;
	hash = hash_of_source(s, &c->client, l->length[length]);
	for (int i = 0; i < 2 * SOURCE_WAYS; i++)
		if (uncount_one(first_source(hash, i / SOURCE_WAYS) + i % SOURCE_WAYS, hash))
			return 1;
	return 0;
}

#endif
