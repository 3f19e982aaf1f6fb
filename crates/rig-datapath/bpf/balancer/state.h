/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How a connection's state follows from its packets (RFC 9293, 3.3.2, seen from between the ends). */
#ifndef BALANCER_STATE_H
#define BALANCER_STATE_H

#include "packet.h"

/* Whether the backends of a service answer their clients directly, so that their packets do not pass here. */
static always_inline int is_direct_return(const struct service *s)
{
	return s->forward == ROUTE || s->forward == TUNNEL;
}

static always_inline int is_closing(enum state state)
{
	return state >= FIN_WAIT && state <= CLOSE;
}

/* All that a flood of packets with invented sources comes to. */
static always_inline int is_unanswered(enum state state)
{
	return state == NONE || state == SYN_RECV || state == UDP_ONEWAY;
}

/* `direct_return`: the backend's packets do not pass here, so that whether it answers is not seen. */
static always_inline enum state first_state(const struct packet *p, int direct_return)
{
	if (p->tuple.protocol == IPPROTO_UDP)
		return direct_return ? UDP_NORMAL : UDP_ONEWAY;
	return p->tcp_flags & TCP_SYN ? SYN_RECV : NONE;
}

/*
 * What follows `live`. `direct_return`: the backend's packets do not pass here.
 *
 * Whether a reset is in its receiver's window (RFC 5961, 3.2) only the receiver knows: to follow sequence numbers would be a write
 * for each packet. So a reset shortens the timeout, and the first packet behind it shows that the receiver has not accepted it. Late
 * packets behind an accepted one are answered by another reset.
 */
static always_inline __u64 next_state(__u64 live, const struct packet *p, enum direction direction, int direct_return)
{
	enum state state = STATE(live);
	__u8 flags = p->tcp_flags;

	if (p->tuple.protocol == IPPROTO_UDP)
		return direction == OUTWARD ? UDP_NORMAL : state;
	if (flags & TCP_RST)
		return state == CLOSE ? live >> 32 : CLOSE | state << 8 | (direction == OUTWARD ? RESET_BY_BACKEND : 0);
	if (state == CLOSE && !(flags & TCP_SYN))
		state = BEFORE(live) ?: ESTABLISHED;
	if (flags & TCP_SYN)
		return direction == INWARD && !(flags & TCP_ACK) && is_closing(state) ? SYN_RECV : live >> 32;
	if (flags & TCP_FIN) {
		if (state > ESTABLISHED && (state != (direction == INWARD ? FIN_WAIT : CLOSE_WAIT) || direct_return))
			return state;
		if (state == FIN_WAIT || state == CLOSE_WAIT)
			return TIME_WAIT;
		return direction == OUTWARD || direct_return ? FIN_WAIT : CLOSE_WAIT;
	}
	/* The backend's data alone does not say that the client is there. */
	if (state == NONE || (state == SYN_RECV && direction == INWARD))
		return ESTABLISHED;
	return state;
}

/*
 * Whether this packet of the backend, which has led to `live`, says that nobody listens there: a reset for a SYN has an acknowledgment, one
 * for an acknowledgment has none (RFC 9293, 3.10.7.1). A second SYN with another number is refused like this by a server that listens, too.
 */
static always_inline int is_refusal(const struct packet *p, __u64 live)
{
	return (p->tcp_flags & (TCP_RST | TCP_ACK)) == (TCP_RST | TCP_ACK) &&
	       live >> 32 == (CLOSE | SYN_RECV << 8 | RESET_BY_BACKEND);
}

/*
 * Whether a connection is over, so that a SYN with its ports opens another one (RFC 9293, 3.6.1; RFC 6191), as with IPVS's
 * conn_reuse_mode=1. Where the backend's packets do not pass here, the client's own FIN is all that is seen of the end.
 */
static always_inline int is_over(enum state state, int direct_return)
{
	return state == TIME_WAIT || state == CLOSE || (direct_return && state == FIN_WAIT);
}

#endif
