// SPDX-License-Identifier: MIT OR Apache-2.0
/* What would happen to a packet: `balance` upon the same tables, which stay as they are. */
#define TRACING 1
#include "balance.h"

char _license[] SEC("license") = "Dual MIT/GPL";

SEC(XDP)
int trace(struct xdp_md *ctx)
{
	PACKET(packet);

	enum kind kind = parse(ctx, packet);

	TRACE(kind, kind + 1);
	TRACE(cpu, bpf_get_smp_processor_id());
	TRACE(owned, is_spread(packet, kind));
	return balance_parsed(ctx, packet, kind, STAGE_FORWARD);
}
