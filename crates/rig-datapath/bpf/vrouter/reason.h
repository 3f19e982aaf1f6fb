/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Why packets are dropped. Numbers below 64 are Contrail's for the same reason (VP_DROP_ in its vr_packet.h); a number that
 * was once given is never given again. src/vrouter/reason.rs has the texts, and a test holds both lists against each other.
 */
#ifndef VROUTER_REASON_H
#define VROUTER_REASON_H

/* In place of REASON_DISCARD where 0 is none. */
#define NOWHERE 255

enum reason {
	REASON_DISCARD = 0,
	REASON_PULL = 1,
	REASON_INVALID_IF = 2,
	REASON_INVALID_ARP = 3,
	REASON_FLOW_ACTION_DROP = 10,
	REASON_FLOW_TABLE_FULL = 13,
	REASON_PUSH = 17,
	REASON_TTL_EXCEEDED = 18,
	REASON_INVALID_NH = 19,
	REASON_INVALID_LABEL = 20,
	REASON_INVALID_PROTOCOL = 21,
	REASON_CLONE = 27,
	REASON_INVALID_PACKET = 31,
	REASON_INVALID_VNID = 35,
	REASON_FRAGMENTS = 36,
	REASON_INVALID_SOURCE = 37,
	REASON_L2_NO_ROUTE = 38,
	REASON_NEW_FLOWS = 42,
	REASON_NO_ROUTE = 64,
	REASON_TOO_BIG = 65,
	REASON_TOO_BIG_TOLD = 66,
	REASON_TTL_TOLD = 67,
	REASON_POLICY = 68,
	REASON_ECN = 69,
	REASON_NO_PEER = 70,
	REASON_UNANSWERED = 71,
	REASON_MANY_COPIES = 76,
	REASON_MANY_PIECES = 77,
	REASON_CLAIM = 78,
	REASON_PEER_INTERFACE = 79,
	REASON_FOREIGN_MAC = 80,
};

#endif
