/* Fairness between flows without a queue: how far above the gate's limit a packet of a flow may
 * still pass.
 *
 * signal: bytes that each flow has passed lately · model: one account per flow that decays with a
 * half-life of 100 ms, and the max-min fair share of all accounts · action: a factor on the
 * occupancy limit.
 *
 * The gate has no queue of its own, so it cannot reorder packets; it can only refuse some. A flow
 * above its fair share is refused as soon as the limit is reached. A flow below its share is
 * refused at twice the limit only, so that it gains until all are even. A TCP flow that was refused
 * lately is treated likewise, since a second refusal within one round trip would reduce it twice
 * for one cause. Sparse flows (hardly anything on their account: pings, names, voice, the first
 * packets of any flow) and bare acknowledgments are refused at four times the limit only, which
 * takes very many of them. Forwarded traffic cannot be queued above the gate: what is refused is
 * lost.
 *
 * A flow is what the kernel's flow hash identifies. There are 256 accounts, so that a sweep over
 * all of them costs microseconds. Flows that share an account share its treatment, as in FQ-CoDel
 * (RFC 8290 section 4.1.1). Traffic with a new hash per packet (a flood over many ports) makes the
 * fair share small instead of counting as sparse.
 */
#pragma once
#include "qcut.h"

#define GATE_FLOWS 256
/* Half-life of an account: several round trips of a mobile network, so that it does not follow the
 * gaps between bursts. */
#define GATE_HALF_LIFE_MS 100
/* Balance of an account at a constant rate: rate · this (100 ms / ln 2). */
#define GATE_MEMORY_NS 144270000ull
/* An account below this belongs to a flow that has ended. */
#define GATE_ENDED_BYTES 64
/* Sparse accounts. A flow of this host may have two packets, since its socket simply waits. A
 * forwarded flow loses what is refused, so it may have an initial window of ten segments (RFC
 * 6928). */
#define GATE_SPARSE_OWN 3000
#define GATE_SPARSE_FORWARDED 15000

/* The balance of an account in bytes. An account has bytes in the upper half and time in ms in the
 * lower half, so that it can be read at once without a lock. */
static __always_inline __u64 gate_account_read(__u64 account, __u64 now)
{
	__u64 bytes = account >> 32;
	__u32 age = (__u32)(now / 1000000) - (__u32)account;

	/* Time from another processor's clock. */
	if ((__s32)age < 0)
		return bytes;
	if (age >= 32 * GATE_HALF_LIFE_MS)
		return 0;
	bytes >>= age / GATE_HALF_LIFE_MS;
	/* Within a half-life the decay is linear. */
	return bytes - bytes * (age % GATE_HALF_LIFE_MS) / (2 * GATE_HALF_LIFE_MS);
}

static __always_inline __u64 gate_account_write(__u64 bytes, __u64 now)
{
	return law_min(bytes, 0xffffffff) << 32 | (__u32)(now / 1000000);
}

/* The fair share when all flows together have what the link moves: flows below it keep theirs, the
 * others divide the rest. */
struct gate_share {
	__u64 fair, all;
	/* Within the current round: bytes of flows below the share, number of flows above it. */
	__u64 below_bytes, above_flows;
};

/* Rounds of the search for the fair share, from below; stopping early gives a share that is too
 * small. */
#define GATE_ROUNDS 3

/* Adds one account in a round; before the first round `fair` is 0. */
static __always_inline void gate_share_add(struct gate_share *share, __u64 bytes)
{
	if (bytes > share->fair && bytes >= GATE_ENDED_BYTES) {
		share->above_flows++;
		if (!share->fair)
			share->all += bytes;
	} else if (bytes >= GATE_ENDED_BYTES) {
		share->below_bytes += bytes;
	}
}

/* Ends a round: the share of those above it. */
static __always_inline void gate_share_end_round(struct gate_share *share, __u64 rate)
{
	/* An idle link has its whole rate to share. */
	share->all = law_max(share->all, qcut_drained(rate, GATE_MEMORY_NS));
	share->fair = law_max(share->fair, law_less(share->all, share->below_bytes) / law_max(share->above_flows, 1));
	share->below_bytes = 0;
	share->above_flows = 0;
}

/* Time until a refusal takes effect at the sender: one round trip of that flow where it is known,
 * at least CoDel's interval (RFC 8289 section 3.2), at most what a full buffer in the other
 * direction makes of it. */
#define GATE_REACTION_MS 100
#define GATE_MAX_REACTION_MS 3000

/* `reaction_ms` of refusal.rs. */
static __always_inline __u64 gate_reaction_ms(__u64 srtt_us)
{
	return law_min(law_max(srtt_us / 1000, GATE_REACTION_MS), GATE_MAX_REACTION_MS);
}

/* `longer_us`. */
static __always_inline __u64 gate_longer_us(__u64 reaction_ms, __u64 rtt_min_us)
{
	return law_less(reaction_ms * 1000, law_min(rtt_min_us, GATE_REACTION_MS * 1000));
}

/* A flow with a long round trip (a queue in the other direction, a far server) sends trains of
 * packets with gaps between them. A train grows by what the window grew, and ACKs that waited
 * behind another queue return as a burst of up to that queue's delay. If such trains were refused,
 * the window could never grow to fill the link. So as far as the link is idle on average, occupancy
 * may exceed the limit for a moment. The allowance is what drains in the time by which the flow's
 * round trip exceeds that of the empty path (at most GATE_REACTION_MS of it count). The average is
 * taken over about a second. */
#define GATE_BUSY_NS 1000000000ull
/* Interval between two samples of the average: packets of a train are closer, and each would add
 * less than one. */
#define GATE_BUSY_STEP_NS 10000000ull
#define GATE_BUSY_FULL (1ull << 24)

/* The average share of time in which the buffer was not empty, in units of GATE_BUSY_FULL; for the
 * last `ns` it was so (`now`) or not. */
static __always_inline __u64 gate_busy(__u64 busy, bool now, __u64 ns)
{
	__u64 share = law_min(ns, GATE_BUSY_NS);

	return busy - qcut_drained(busy, share) + (now ? qcut_drained(GATE_BUSY_FULL, share) : 0);
}

/* Bytes beyond the limit for a flow whose round trip is longer than that of the empty path by so
 * much. */
static __always_inline __u64 gate_train(__u64 busy, __u64 rate, __u64 longer_us)
{
	return qcut_drained(rate, longer_us * 1000) * law_less(GATE_BUSY_FULL, busy) / GATE_BUSY_FULL;
}

/* Two kinds of flow may pass one packet up to this occupancy, whatever the limit. One has passed
 * nothing for half a second (its account is below the first constant): a retransmission after an
 * outage that is refused would double its timer. The other is a socket of this host with nothing in
 * flight: no acknowledgment will make it try again, only a timer of a second or more. */
#define GATE_QUIET_BYTES 100
#define GATE_ONE_PACKET_LIMIT 24000

/* Kinds of packet. */
#define GATE_OTHER 0
#define GATE_TCP 1
/* An acknowledgment without data: refusing it would slow a download down. */
#define GATE_BARE 2

/* The occupancy up to which a packet passes. The balance of its flow's account is `before` without
 * the packet and `after` with it. TCP has half a limit more than others, because it reacts to a
 * refusal by going back to 0.7 (CUBIC, RFC 9438 section 4.6) or 0.5 of what filled path and limit:
 * with less above the path the link would run empty each time. */
static __always_inline __u64 gate_allowed(__u64 limit, __u64 before, __u64 after, __u64 fair, bool forwarded, __u32 kind,
					  bool refused_lately, bool alone)
{
	__u64 sparse = law_min(fair / 2, forwarded ? GATE_SPARSE_FORWARDED : GATE_SPARSE_OWN);

	if (alone || before < GATE_QUIET_BYTES)
		return law_max(4 * limit, GATE_ONE_PACKET_LIMIT);
	if (kind == GATE_BARE || after <= sparse)
		return 4 * limit;
	if (after <= fair || refused_lately)
		return 2 * limit;
	return kind == GATE_TCP ? limit + limit / 2 : limit;
}
