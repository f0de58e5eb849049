/* Equal shares for the flows of one host or device: the decisions of crates/algo/src/rwnd/fair.rs,
 * bit for bit. Why, and every constant, is written there.
 *
 * signal: rate and smallest RTT of each flow · model: the mean of the slot before, and the smallest
 * RTTmin; one queue for all · action: a window that moves the rate towards the mean.
 *
 * CPUs that write to a slot at the same time may lose a flow's rate: the mean of the others counts
 * then, for one second. Or they may lose a sample: a flow then learns of the others with a later one.
 */
#pragma once
#include "path.h"

#define FAIR_SLOT_NS NS_PER_S
#define FAIR_BETA 8
#define FAIR_GAIN 2
#define FAIR_DRAIN_EVERY_NS (5 * NS_PER_S)
#define FAIR_DRAIN_ROUNDS 3
#define FAIR_MET_NO_QUEUE (~0ull)

struct shares_slot {
	__u64 rates, lambdas, flows, rtt_min_us, rtt_max_us;
};

/* All flows of one direction. samples: of all of them. */
struct shares {
	__u64 samples, number;
	struct shares_slot current, last;
	__u64 drain_from_ns, drain_until_ns, newcomers;
};

/* What a flow keeps of its place among them. */
struct member {
	/* The slot that it has added itself to last, and the samples of all flows at its last one. */
	__u64 slot, samples;
	/* 1: no other flow has had a sample since this host opened it. */
	__u64 alone;
};

/* What a flow knows of the others; all zero: there are none. */
struct share {
	__u64 mean;
	/* Mean λ of all, and the smallest RTTmin. */
	__u32 lambda, rtt_min_us;
	/* known, 1: there are others. drains, 1: the queue is being emptied. */
	__u32 known, drains;
};

/* This host opens a connection, whose path is `known` if an earlier connection has measured it. */
static __always_inline void shares_open(const struct shares *s, __u64 now, bool known, struct member *m)
{
	__u64 slots = now / FAIR_SLOT_NS + 1 - s->number, others = 0;

	if (slots <= 1)
		others = s->current.flows;
	if (!slots)
		others += s->last.flows;
	m->slot = known || !others ? FAIR_MET_NO_QUEUE : 0;
	m->samples = s->samples;
	m->alone = 1;
}

/* A sample of a flow. */
static __always_inline void shares_take(struct shares *s, __u64 now, const struct drwa *d, struct member *m, struct share *share)
{
	__u64 number = now / FAIR_SLOT_NS + 1;
	struct shares_slot *slot = &s->current;

	__builtin_memset(share, 0, sizeof(*share));
	if (m->samples != s->samples)
		m->alone = 0;
	m->samples = ++s->samples;
	if (number != s->number) {
		if (number == s->number + 1)
			s->last = s->current;
		else
			__builtin_memset(&s->last, 0, sizeof(s->last));
		__builtin_memset(&s->current, 0, sizeof(s->current));
		s->number = number;
	}
	if (m->slot != number && d->rtt_us) {
		s->newcomers |= !m->slot;
		m->slot = number;
		if (!slot->flows || d->rtt_min_us < slot->rtt_min_us)
			slot->rtt_min_us = d->rtt_min_us;
		slot->rtt_max_us = law_max(slot->rtt_max_us, d->rtt_us);
		slot->rates += d->mean;
		slot->lambdas += d->lambda;
		slot->flows++;
	}
	if (s->last.flows < 2)
		return;
	if (s->newcomers && (!s->drain_from_ns || now - s->drain_from_ns >= FAIR_DRAIN_EVERY_NS)) {
		s->newcomers = 0;
		s->drain_from_ns = now;
		s->drain_until_ns = now + FAIR_DRAIN_ROUNDS * s->last.rtt_max_us * 1000;
	}
	share->mean = s->last.rates / s->last.flows;
	share->lambda = law_min(s->last.lambdas / s->last.flows, LAMBDA_MAX);
	share->rtt_min_us = law_min(s->last.rtt_min_us, LAW_MAX_RTT_US);
	share->known = 1;
	share->drains = now < s->drain_until_ns;
}

/* opposite_window beside other flows. `mss`: payload of a full segment. */
static __always_inline __u64 opposite_window_beside(const struct opposite *o, const struct drwa_law *law, const struct drwa *d,
						    const struct share *share, __u64 mss)
{
	__u64 rtt_min, rate, us, own, window;

	if (!share->known)
		return opposite_window(o, law, d);
	rtt_min = law_min(d->rtt_min_us, LAW_MAX_RTT_US);
	rate = o->added_us ? o->rate : d->mean;
	if (share->drains)
		return law_min(law_max(rate * rtt_min / 1000000 / 2 + law->increment, law->floor), law->max);
	us = rtt_min + law_min(share->rtt_min_us, rtt_min) * law_less(share->lambda, LAMBDA_ONE) / LAMBDA_ONE + o->added_us;
	own = rate * us / 1000000;
	window = (rate * (FAIR_BETA - 1) + law_min(share->mean, rate + FAIR_GAIN * rate)) / FAIR_BETA * us / 1000000;
	if (share->mean > rate && own < FAIR_BETA * mss)
		window = law_max(window, own + mss);
	else if (share->mean > rate + rate / 4)
		window = law_max(window, own + 2 * mss);
	return law_min(law_max(window + law->increment, law->floor), law->max);
}
