/* What a box in the middle knows of a path: two halves, and in each the queue towards it and the queue away from it.
 *
 * signal: timestamps that pass (RFC 7323), or sequence numbers and their acknowledgments where there are none · model: a value that
 * leaves and its echo that returns are a round trip of that half; arrival minus the sender's own clock is the way towards us alone,
 * but for a constant · action: round trip, its minimum, and how much of the queue is certainly in which direction.
 *
 * Why directions: a round trip has both queues in it. A law that closes a download's window because an upload fills the other
 * direction would close it for nothing: the queue stays. So what is certainly in the opposite direction is taken out.
 *
 * The constant is known as an interval. It is at most the smallest value seen (`high`: the queue was not negative), and at least
 * each value minus the whole queue of that round trip (`low`). Where the whole queue was empty once, both meet. Clocks drift, so the
 * interval widens by 100 ppm (crystals are better); what it leaves open counts as the flow's own queue, which is the error that
 * keeps delay low. An echo also waits until its sender has something to send; the silence before it counts as nothing certain.
 * No clock is compared with another: only its own progress is used.
 */
#pragma once
#include "law.h"

/* A probe: what has to come back. */
enum { PROBE_NONE, PROBE_STAMP, PROBE_SEQUENCE };

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull
/* Linux, Android, Apple, Windows and FreeBSD count milliseconds; assumed until measured. */
#define TICK_NS NS_PER_MS
/* A second is long enough to tell the usual clocks (10 and 4 ms, 1 ms, 1 µs) apart in spite of growing queues. */
#define TICK_LEARNT_NS NS_PER_S
/* 100 ppm. */
#define DRIFT 10000
/* Of what was learnt elsewhere: it is about queues, which live for less. */
#define FRESH_NS NS_PER_S
/* Within this, the tighter of two bounds stands. */
#define MERGED_NS (200 * NS_PER_MS)

struct far_clock {
	__u64 last_ns, begun_ns;
	/* Arrival minus sending, ns, from the first packet on; and the bounds of what it is without a queue. */
	__s64 delay, low, high;
	__u32 last, begun;
	__u32 tick_ns;
	/* 1: measured. 2: there is a low bound. */
	__u32 state;
};

struct half {
	/* When its far end was heard last. */
	__u64 heard_ns;
	/* Mailbox: filled by the hook where the value leaves, emptied by the one where the echo returns. */
	__u64 probe_ns;
	__u32 probe_value, probe_kind;
	__u32 last_probed;
	__u32 rtt_us, rtt_min_us;
	/* Certainly queueing: on the way towards us, away from us. µs. */
	__u32 towards_us, away_us;
	__u32 samples;
	struct far_clock clock;
};

/* What all flows to a far address (or, under ::, through the device) have seen. */
struct place_seen {
	__u64 rtt_us;
	__u64 at_ns;
	__u32 towards_us, away_us;
};

/* On sight of a timestamp of the far end of this half. */
static __always_inline void clock_tick(struct far_clock *c, __u64 now, __u32 stamp)
{
	__s32 ticks = stamp - c->last;
	__u64 passed = now - c->last_ns;
	__s64 drift;

	if (!c->last_ns || passed > 30 * NS_PER_S) {
		__builtin_memset(c, 0, sizeof(*c));
		c->last_ns = c->begun_ns = now;
		c->last = c->begun = stamp;
		c->tick_ns = TICK_NS;
		return;
	}
	/* The first packet of a tick is the one that tells most; old ones tell nothing. */
	if (ticks <= 0)
		return;
	if (!(c->state & 1) && now - c->begun_ns >= TICK_LEARNT_NS) {
		__u64 hz = (__u64)(stamp - c->begun) * NS_PER_S / (now - c->begun_ns);
		__u32 tick = hz > 400000 && hz < 1600000 ? 1000 :
			     hz >= 400 && hz < 1600	  ? NS_PER_MS :
			     hz >= 160 && hz < 400	  ? 4 * NS_PER_MS :
			     hz > 60 && hz < 160	  ? 10 * NS_PER_MS :
							    0;

		c->state |= 1;
		if (tick != c->tick_ns) {
			c->tick_ns = tick;
			c->delay = c->low = c->high = 0;
			c->state = 1;
		}
	}
	c->last_ns = now;
	c->last = stamp;
	c->delay += (__s64)passed - (__s64)ticks * c->tick_ns;
	drift = passed / DRIFT;
	c->low -= drift;
	c->high += drift;
	if (c->delay < c->high)
		c->high = c->delay;
	if (c->low > c->high)
		c->low = c->high;
}

static __always_inline __u32 micros_of(__s64 ns)
{
	return ns <= 0 ? 0 : law_min(ns / 1000, LAW_MAX_RTT_US);
}

/* A round trip of this half has ended with the packet whose timestamp clock_tick has just seen. */
static __always_inline void half_sample(struct half *h, __u64 now, __u32 rtt_us, bool stamped, const struct place_seen *known)
{
	__u64 silent_us = (now - h->heard_ns) / 1000;
	struct far_clock *c = &h->clock;
	__s64 queue, low;

	h->rtt_us = rtt_us;
	if (!h->rtt_min_us || rtt_us < h->rtt_min_us)
		h->rtt_min_us = rtt_us;
	h->samples++;
	queue = (__s64)(rtt_us - h->rtt_min_us) * 1000;
	if (!stamped || !c->tick_ns) {
		h->towards_us = 0;
		h->away_us = 0;
		if (known && now - known->at_ns < FRESH_NS) {
			h->towards_us = law_min(known->towards_us, micros_of(queue));
			h->away_us = law_min(known->away_us, micros_of(queue) - h->towards_us);
		}
		return;
	}
	low = c->delay - queue;
	/* A flow that is new: others have seen the path when it was empty. */
	if (!(c->state & 2) && known && now - known->at_ns < FRESH_NS) {
		__s64 high = c->delay - (__s64)law_min(known->towards_us, micros_of(queue)) * 1000;

		if (high < c->high)
			c->high = high;
		low += (__s64)law_min(known->away_us, micros_of(queue)) * 1000;
	}
	/* A clock of milliseconds is read up to one late. */
	low -= c->tick_ns;
	if (!(c->state & 2) || low > c->low) {
		c->low = low;
		c->state |= 2;
	}
	if (c->low > c->high)
		c->high = c->low;
	h->towards_us = law_min(micros_of(c->delay - c->high), micros_of(queue));
	/* Who was silent may have had nothing to say: so much of the round trip is no queue for certain. */
	h->away_us = micros_of(queue - (c->delay - c->low) - (__s64)law_min(silent_us, LAW_MAX_RTT_US) * 1000);
}

/* The other hook sees whether it is empty before it takes it: one fills, one empties. */
static __always_inline void probe_send(struct half *h, __u64 now, __u32 value, __u32 kind)
{
	if (h->probe_kind != PROBE_NONE && now - h->probe_ns < 30 * NS_PER_S)
		return;
	if (kind == PROBE_STAMP && value == h->last_probed)
		return;
	h->last_probed = value;
	h->probe_value = value;
	h->probe_ns = now;
	barrier();
	*(volatile __u32 *)&h->probe_kind = kind;
}

/* RTT in µs where the echo is there, else 0. */
static __always_inline __u32 probe_return(struct half *h, __u64 now, bool stamped, __u32 echo, __u32 ack)
{
	__u32 kind = *(volatile __u32 *)&h->probe_kind;
	__u64 us;

	barrier();
	if (kind == PROBE_NONE || (kind == PROBE_STAMP && !stamped))
		return 0;
	if ((__s32)((kind == PROBE_STAMP ? echo : ack) - h->probe_value) < 0)
		return 0;
	us = (now - h->probe_ns) / 1000;
	*(volatile __u32 *)&h->probe_kind = PROBE_NONE;
	return us >= LAW_MAX_RTT_US ? 0 : us ? us : 1;
}
