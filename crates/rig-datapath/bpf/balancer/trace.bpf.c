// SPDX-License-Identifier: MIT OR Apache-2.0
/* What would happen to a packet: `balance` upon the same tables, which stay as they are. */
#define DRY 1
#include "balance.h"

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("xdp.frags")
int trace(struct xdp_md *ctx)
{
	struct packet packet = {};
	enum kind kind = parse(ctx, &packet);

	NOTE(kind, kind + 1);
	NOTE(cpu, bpf_get_smp_processor_id());
	NOTE(owned, is_spread(&packet, kind));
	return balance_parsed(ctx, &packet, kind, STAGE_FORWARD);
}
