/* The rate at which sockets of this host are paced below the gate: `gate/pacing.rs` of the crate algo,
 * which says why, with the same integers. Accounts and fair share are those of gate.h.
 */
#pragma once
#include "gate.h"

#define PACING_FILL_NS 40000000ull
#define PACING_LEAST 15000
#define PACING_STEADY_ONE_IN 32
#define PACING_DEVIATES_ONE_IN 8
#define PACING_FLOORS 3
#define PACING_ACKS_BYTES 100
#define PACING_ALL 65536

/* `Steadiness`. All zero is its initial state. */
struct pacing_steadiness {
	__u64 mean, deviation;
};

/* `towards`. */
static __always_inline __u64 pacing_towards(__u64 value, __u64 sample)
{
	if (sample > value)
		return value + (sample - value) / PACING_STEADY_ONE_IN;
	return value - (value - sample) / PACING_STEADY_ONE_IN;
}

/* `Steadiness::with`. */
static __always_inline void pacing_sample(struct pacing_steadiness *s, __u64 rate)
{
	if (!s->mean) {
		s->mean = rate;
		s->deviation = rate;
		return;
	}
	s->mean = pacing_towards(s->mean, rate);
	s->deviation = pacing_towards(s->deviation, rate > s->mean ? rate - s->mean : s->mean - rate);
}

/* `Steadiness::paces`. Neither product overflows: rates have 32 bits, and so has a floor. */
static __always_inline bool pacing_paces(const struct pacing_steadiness *s, __u64 rate, __u64 target_ns, __u64 floor)
{
	return s->mean && s->deviation * PACING_DEVIATES_ONE_IN <= s->mean &&
	       qcut_drained(rate, target_ns) >= floor * PACING_FLOORS;
}

/* `part`. */
static __always_inline __u64 pacing_part(const struct gate_share *share)
{
	return share->all > share->fair ? (share->fair << 16) / share->all : PACING_ALL;
}

/* `beside_download`. */
static __always_inline bool pacing_beside_download(__u64 acks, __u64 now)
{
	return gate_account_read(acks, now) >= PACING_ACKS_BYTES;
}

/* `pace`. */
static __always_inline __u64 pacing_pace(__u64 rate, __u64 occupancy, __u64 full, __u64 part)
{
	__u64 level = full - full / 6;
	__u64 all;

	if (occupancy <= level)
		all = law_more(rate, qcut_rate_over(level - occupancy, PACING_FILL_NS));
	else
		all = law_max(law_less(rate, qcut_rate_over(occupancy - level, PACING_FILL_NS)), rate - rate / 4);
	return law_max(law_min(all, QCUT_MAX) * part >> 16, PACING_LEAST);
}
