/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Why packets end here. A number that was once given is never given again; src/balancer/reason.rs has the texts, and a
 * test holds both lists against each other.
 */
#ifndef BALANCER_REASON_H
#define BALANCER_REASON_H

enum drop {
	DROP_FRAGMENT = 1,
	DROP_IP_OPTIONS = 2,
	DROP_TTL = 3,
	DROP_NO_CONNECTION = 4,
	DROP_NO_BACKEND = 5,
	DROP_BACKENDS_FULL = 6,
	DROP_TABLE_FULL = 7,
	DROP_INDEX_FULL = 8,
	DROP_NO_LOCAL_PORT = 9,
	DROP_NO_ROUTE = 10,
	DROP_NO_NEIGHBOR = 11,
	DROP_TOO_BIG = 12,
	DROP_CONTENDED = 13,
	DROP_NAT_CLASH = 14,
	DROP_NO_LOCAL_ADDRESS = 15,
	DROP_INTERNAL = 16,
	DROP_WORKER_BUSY = 17,
	DROP_TOO_BIG_TOLD = 18,
	DROP_NOT_SENT = 19,
	DROP_SERVICE_FULL = 20,
	DROP_STRAYS = 21,
	DROP_SYN_ANSWERED = 22,
	DROP_PROXY_WAITS = 23,
	DROP_DENIED = 24,
	DROP_SOURCE_LIMIT = 25,
	DROP_SOURCE_RATE = 26,
	DROP_NEW_RATE = 27,
	DROP_NOT_TOLD = 28,
	DROP_BEFORE_FIRST = 29,
	DROPS = 30,
};

/* Why packets are left to the kernel. */
enum pass {
	PASS_NOT_IP = 1,
	PASS_MALFORMED = 2,
	PASS_PROTOCOL = 3,
	PASS_NO_SERVICE = 4,
	PASS_FRAGMENT = 5,
	PASS_IP_OPTIONS = 6,
	PASS_ICMP_UNKNOWN = 7,
	PASS_OTHER_MAC = 8,
	PASS_NO_CONNECTION = 9,
	PASSES = 10,
};

#endif
