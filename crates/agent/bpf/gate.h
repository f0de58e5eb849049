/* Flow queueing without a queue: how far above the law's limit a packet of a flow may still pass.
 *
 * signal: bytes that each flow has passed lately · model: accounts that halve every 100 ms, and the fair share of them, by filling up
 * from the smallest flow · action: a factor on the limit of the occupancy.
 *
 * A gate has no queue of its own, so nobody waits there and no flow can be served before another; it can only refuse. What fair
 * queueing gives comes from whom it refuses. A flow above its fair share (fat) is refused as soon as the limit is reached; one below
 * (thin) only at twice the limit, so that it gains on the fat ones until they are even; so, too, a TCP flow that was refused lately,
 * since a second refusal within the same round trip would cut it twice for one cause; a flow with hardly anything on its account
 * (sparse: pings, names, voice, the first packets of anything) and bare acknowledgements only at four times the limit, which they reach
 * only when there are very many of them. As there is no queue above the gate, forwarded traffic cannot be queued there.
 *
 * A flow is what the kernel's flow hash takes for one; 256 accounts, so that a sweep over all of them costs microseconds: flows that
 * share one share its fate, as in FQ-CoDel (RFC 8290 section 4.1.1). One hashed for each packet (a flood over many ports) makes the fair
 * share small instead of itself sparse.
 */
#pragma once
#include "qcut.h"

#define GATE_FLOWS 256
/* Several round trips of a mobile network, so that an account does not follow the gaps between bursts. */
#define GATE_HALF_MS 100
/* Bytes on an account at a constant rate: rate * 100 ms / ln 2. */
#define GATE_MEMORY_NS 144270000ull
/* Below this a flow is over. */
#define GATE_OVER 64
/* Sparse flows of this host, whose sockets simply wait: two packets. Forwarded flows lose what is refused: an initial window of ten
 * (RFC 6928). */
#define GATE_SPARSE_OWN 3000
#define GATE_SPARSE_FORWARDED 15000

/* An account: bytes in the upper half, time in ms in the lower, so that it is read in one piece without a lock. */
static __always_inline __u64 gate_account(__u64 account, __u64 now)
{
	__u64 bytes = account >> 32;
	__u32 age = (__u32)(now / 1000000) - (__u32)account;

	/* Another processor's clock. */
	if ((__s32)age < 0)
		return bytes;
	if (age >= 32 * GATE_HALF_MS)
		return 0;
	bytes >>= age / GATE_HALF_MS;
	/* Within a half-life along a straight line. */
	return bytes - bytes * (age % GATE_HALF_MS) / (2 * GATE_HALF_MS);
}

static __always_inline __u64 gate_booked(__u64 bytes, __u64 now)
{
	return law_min(bytes, 0xffffffff) << 32 | (__u32)(now / 1000000);
}

/* The share that each flow may have, when all together have what the link moves: flows below it keep theirs, the others share the
 * rest. */
struct gate_share {
	__u64 fair, all;
	/* Of one round. */
	__u64 thin, fat;
};

/* Rounds from below; what they miss errs to the small side. */
#define GATE_ROUNDS 3

/* One account in a round; before the first, `fair` is 0. */
static __always_inline void gate_take(struct gate_share *share, __u64 bytes)
{
	if (bytes > share->fair && bytes >= GATE_OVER) {
		share->fat++;
		if (!share->fair)
			share->all += bytes;
	} else if (bytes >= GATE_OVER) {
		share->thin += bytes;
	}
}

/* After a round. */
static __always_inline void gate_took(struct gate_share *share, __u64 rate)
{
	/* An idle link has its whole rate to share. */
	share->all = law_max(share->all, qcut_drained(rate, GATE_MEMORY_NS));
	share->fair = law_max(share->fair, law_less(share->all, share->thin) / law_max(share->fat, 1));
	share->thin = 0;
	share->fat = 0;
}

/* A sender that was told needs a round trip until it is felt: its own where it is known, at least CoDel's interval (RFC 8289
 * section 3.2), at most what a full buffer of the other direction makes of it. */
#define GATE_FELT_MS 100
#define GATE_FELT_MOST_MS 3000

/* A long round trip (another direction's queue, a far server) is filled by trains of packets with gaps between them. A train grows by
 * what its window grew; and acknowledgements that waited behind another queue return pushed together, up to as much as that queue's
 * delay. Whoever is refused for that never has the window that fills the link. So as far as the link is idle on the whole, there may
 * lie more for a moment: what drains in the time by which the flow's round trip is longer than the empty path's (of which at most
 * GATE_FELT_MS counts). On the whole: on average over about a second. */
#define GATE_BUSY_NS 1000000000ull
/* Between two samples of it: packets of a train stand closer, and would each add less than one. */
#define GATE_BUSY_STEP_NS 10000000ull
#define GATE_ALWAYS (1ull << 24)

/* How much of the time something lay there, of GATE_ALWAYS; for the last `ns` it was so, or not. */
static __always_inline __u64 gate_busy(__u64 busy, bool now, __u64 ns)
{
	__u64 share = law_min(ns, GATE_BUSY_NS);

	return busy - qcut_drained(busy, share) + (now ? qcut_drained(GATE_ALWAYS, share) : 0);
}

/* Bytes that may lie there beyond the limit, for a flow whose round trip is longer by so much. */
static __always_inline __u64 gate_train(__u64 busy, __u64 rate, __u64 longer_us)
{
	return qcut_drained(rate, longer_us * 1000) * law_less(GATE_ALWAYS, busy) / GATE_ALWAYS;
}

/* A flow that has passed nothing for half a second (its account is below this), or a socket of this host that has nothing in flight,
 * may pass one packet up to this occupancy, whatever the limit: a retransmission after an outage, refused, would double its timer; and
 * without anything in flight no acknowledgement tells the socket to try again, but a timer does, of a second and more. */
#define GATE_SILENT 100
#define GATE_ONE_MORE 24000

/* What a packet is to the gate. */
#define GATE_OTHER 0
#define GATE_TCP 1
/* An acknowledgement without data: refused, it would slow a download. */
#define GATE_BARE 2

/* The occupancy up to which a packet passes whose flow has `before` on its account, and `booked` with it. TCP has half a limit more
 * than others, because it answers a refusal by going back to 0.7 (CUBIC, RFC 9438 section 4.6) or 0.5 of what filled the path and the
 * limit: with less above the path the link would run dry each time. */
static __always_inline __u64 gate_allowed(__u64 limit, __u64 before, __u64 booked, __u64 fair, bool forwarded, __u32 kind,
					  bool told, bool alone)
{
	__u64 sparse = law_min(fair / 2, forwarded ? GATE_SPARSE_FORWARDED : GATE_SPARSE_OWN);

	if (alone || before < GATE_SILENT)
		return law_max(4 * limit, GATE_ONE_MORE);
	if (kind == GATE_BARE || booked <= sparse)
		return 4 * limit;
	if (booked <= fair || told)
		return 2 * limit;
	return kind == GATE_TCP ? limit + limit / 2 : limit;
}
