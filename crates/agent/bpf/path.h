/* What a device in the middle of a path can measure: the path has two halves, and each half has a
 * queue towards the device and a queue away from it.
 *
 * signal: timestamps that pass (RFC 7323), or sequence numbers and their acknowledgments where
 * there are none · model: a value that leaves and its echo that returns are one round trip of that
 * half; arrival time minus the sender's own clock is the one-way delay towards the device, up to a
 * constant · action: the round trip, its minimum, and how much of the queueing is certainly in
 * which direction.
 *
 * Why directions: a round trip contains both queues. A law that closes a download's window because
 * an upload fills the other direction gains nothing: that queue stays. So what is certainly in the
 * opposite direction is taken out.
 *
 * The constant is known as an interval. It is at most the smallest value seen (`high`: a queue is
 * never negative). It is at least each value minus the whole queue of that round trip (`low`).
 * Where the whole queue was empty once, both meet. Clocks drift, so the interval widens by 100 ppm
 * (crystals are better). What it leaves open counts as the flow's own queue, which is the error
 * that keeps delay low. An echo may also wait until its sender has something to send, so silence
 * before it counts as nothing certain. No clock is compared with another: only its own progress is
 * used.
 */
#pragma once
#include "law.h"
#include <bpf/bpf_helpers.h>

#ifndef barrier
#define barrier() asm volatile("" ::: "memory")
#endif

/* What a probe waits for: a timestamp's echo, or a sequence number's acknowledgment. */
enum { PROBE_NONE, PROBE_STAMP, PROBE_SEQUENCE };

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull
/* Clock tick of Linux, Android, Apple, Windows and FreeBSD; assumed until the clock is measured. */
#define TICK_NS NS_PER_MS
/* One second separates the usual clocks (10 and 4 ms, 1 ms, 1 µs) in spite of growing queues. */
#define TICK_LEARNT_NS NS_PER_S
/* Clock drift as a divisor: 100 ppm. */
#define DRIFT 10000
/* Maximum age of queue estimates of other flows: queues change within less. */
#define FRESH_NS NS_PER_S
/* Within this time the tighter of two bounds is taken. */
#define MERGED_NS (200 * NS_PER_MS)

struct far_clock {
	__u64 last_ns, begun_ns;
	/* Arrival minus sending time relative to the first packet, ns; and the bounds of its value
	 * without a queue. */
	__s64 delay, low, high;
	__u32 last, begun;
	__u32 tick_ns;
	/* Bits. 1: the tick has been measured. 2: there is a lower bound. */
	__u32 state;
};

/* A round-trip measurement: filled by the hook where the value leaves, emptied by the hook where
 * the echo returns. */
struct probe {
	__u64 sent_ns;
	__u32 value, kind;
};

/* Probes in flight at the same time, a quarter of a round trip apart. A single probe would leave
 * with the packet that follows the echo of the one before. So it would always ride at the head of
 * the same burst, where the burst's own queue is not seen. Two flows that fill both directions are
 * bursts that pass each other (ACK compression; Zhang, Shenker and Clark, SIGCOMM 1991), and each
 * would take all queueing for the other's. */
#define PROBES 4

struct half {
	/* When the last segment from its far end came. */
	__u64 received_ns;
	struct probe probes[PROBES];
	__u64 probed_ns;
	__u32 last_probed;
	__u32 rtt_us, rtt_min_us;
	/* Queueing that is certain: on the way towards the device, away from it. µs. */
	__u32 towards_us, away_us;
	/* The minimum round trip that clock.low was found with. */
	__u32 low_min_us;
	struct far_clock clock;
};

/* What all flows to a remote address (or, under ::, through the device) have measured. */
struct place_path {
	__u64 rtt_us;
	__u64 at_ns;
	__u32 towards_us, away_us;
};

/* Takes the timestamp of a segment from the far end of this half. */
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
	/* The first packet of a tick dates it best; reordered, older timestamps are ignored. */
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

/* Takes a round trip of this half. It ended with the packet whose timestamp clock_tick has just
 * taken, or with a later one of the same tick. */
static __always_inline void half_sample(struct half *h, __u64 now, __u32 rtt_us, bool stamped, const struct place_path *known)
{
	__u64 silent_us = (now - h->received_ns) / 1000;
	struct far_clock *c = &h->clock;
	__s64 queue, low, delay;

	h->rtt_us = rtt_us;
	if (!h->rtt_min_us || rtt_us < h->rtt_min_us)
		h->rtt_min_us = rtt_us;
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
	/* With a smaller minimum every queue so far was larger, so the lower bound is less. Else a
	 * latecomer, which learns the minimum from others, takes the queue that it met for the
	 * opposite direction's. */
	if (h->rtt_min_us < h->low_min_us)
		c->low -= (__s64)(h->low_min_us - h->rtt_min_us) * 1000;
	h->low_min_us = h->rtt_min_us;
	/* A later packet of the same tick: a burst may have queued up since its first one. */
	delay = c->delay + (__s64)(now - c->last_ns);
	low = delay - queue;
	/* A new flow uses what other flows have measured: they have seen the path empty. */
	if (!(c->state & 2) && known && now - known->at_ns < FRESH_NS) {
		__s64 high = delay - (__s64)law_min(known->towards_us, micros_of(queue)) * 1000;

		if (high < c->high)
			c->high = high;
		low += (__s64)law_min(known->away_us, micros_of(queue)) * 1000;
	}
	/* A clock of milliseconds may be read up to one tick late. */
	low -= c->tick_ns;
	if (!(c->state & 2) || low > c->low) {
		c->low = low;
		c->state |= 2;
	}
	if (c->low > c->high)
		c->high = c->low;
	h->towards_us = law_min(micros_of(delay - c->high), micros_of(queue));
	/* A far end that was silent may have had nothing to send: that part of the round trip is
	 * not certainly queueing. */
	h->away_us = micros_of(queue - (delay - c->low) - (__s64)law_min(silent_us, LAW_MAX_RTT_US) * 1000);
}

/* The path state of an address, else of the whole device (::). */
static __always_inline struct place_path *place_of(void *places, const __u32 *address)
{
	__u32 device[4] = {};
	struct place_path *p = bpf_map_lookup_elem(places, address);

	return p && p->at_ns ? p : bpf_map_lookup_elem(places, device);
}

/* Shares a round trip with other flows to the same address, and with flows to addresses that are
 * still unknown. */
static __always_inline int place_learn(void *places, const __u32 *address, struct half *h, __u64 now, bool clocked)
{
	__u32 device[4] = {};
	struct place_path new = { .rtt_us = h->rtt_min_us };
	struct place_path *p = bpf_map_lookup_elem(places, address);

	if (p) {
		if (p->rtt_us < h->rtt_min_us)
			h->rtt_min_us = p->rtt_us;
		else
			p->rtt_us = h->rtt_min_us;
		/* All estimates are lower bounds of the same queue: the largest counts. */
		if (clocked && (now - p->at_ns > MERGED_NS || h->towards_us + h->away_us >= p->towards_us + p->away_us)) {
			p->towards_us = h->towards_us;
			p->away_us = h->away_us;
			p->at_ns = now;
		}
	} else {
		bpf_map_update_elem(places, address, &new, BPF_ANY);
	}
	if (!clocked)
		return 0;
	new.towards_us = h->towards_us;
	new.away_us = h->away_us;
	new.at_ns = now;
	new.rtt_us = 0;
	/* Paths differ but all share the device: what they have in common, the smallest, counts. */
	p = bpf_map_lookup_elem(places, device);
	if (!p)
		bpf_map_update_elem(places, device, &new, BPF_ANY);
	else if (now - p->at_ns > MERGED_NS || (h->towards_us <= p->towards_us && h->away_us <= p->away_us))
		*p = new;
	return 0;
}

/* Starts a probe in a free slot, at most four per round trip. One hook fills slots and the other
 * one empties them, so `kind` is written last. */
static __always_inline void probe_send(struct half *h, __u64 now, __u32 value, __u32 kind)
{
	if (now - h->probed_ns < (__u64)h->rtt_us * (1000 / PROBES) || (kind == PROBE_STAMP && value == h->last_probed))
		return;
	for (int i = 0; i < PROBES; i++) {
		struct probe *p = &h->probes[i];

		if (p->kind != PROBE_NONE && now - p->sent_ns < 30 * NS_PER_S)
			continue;
		h->last_probed = value;
		h->probed_ns = now;
		p->value = value;
		p->sent_ns = now;
		barrier();
		*(volatile __u32 *)&p->kind = kind;
		return;
	}
}

/* The RTT in µs if an echo of a probe came back, else 0. If one echo answers several probes, the
 * last one counts: the earlier ones waited only because nothing was echoed in between. */
static __always_inline __u32 probe_return(struct half *h, __u64 now, bool stamped, __u32 echo, __u32 ack)
{
	__u64 last_ns = 0, us;

	for (int i = 0; i < PROBES; i++) {
		struct probe *p = &h->probes[i];
		__u32 kind = *(volatile __u32 *)&p->kind;

		barrier();
		if (kind == PROBE_NONE || (kind == PROBE_STAMP && !stamped))
			continue;
		if ((__s32)((kind == PROBE_STAMP ? echo : ack) - p->value) < 0)
			continue;
		last_ns = law_max(last_ns, p->sent_ns);
		*(volatile __u32 *)&p->kind = PROBE_NONE;
	}
	us = (now - last_ns) / 1000;
	return !last_ns || us >= LAW_MAX_RTT_US ? 0 : us ? us : 1;
}

/* Drops all probes after a retransmission: which of both transmissions is answered is unknown
 * (Karn's algorithm). */
static __always_inline void probe_forget(struct half *h)
{
	for (int i = 0; i < PROBES; i++)
		h->probes[i].kind = PROBE_NONE;
}

/* The window of a direction of data while the opposite direction has a queue.
 *
 * Window = rate · (λ · RTTmin + queue in the opposite direction − spare). The law alone (rate · λ ·
 * RTTmin) would take that queue for the flow's own, and close the window for what it cannot drain.
 * Of the (λ−1) · RTTmin that λ allows, a part is spare, since both directions share the delay. For
 * downloads it is half. For uploads it is all, because their bursts delay the ACKs of downloads,
 * whose link then runs empty: with half, a download beside an upload, both controlled, had 0.80 of
 * its lone rate; with all it has 0.85 to 0.90.
 */
struct opposite {
	/* The opposite queue in the current round: sum of samples (µs) and their number. */
	__u64 sum_us;
	__u32 count;
	/* Mean of the opposite queue in the last round and in the one before; what it adds to the
	 * window (as time); the flow's own queue in the last round; padding, always zero. */
	__u32 mean_us, before_us, added_us, own_us, pad;
	/* Rate in bytes per second (see opposite_round); when the round began, and the byte count
	 * then. */
	__u64 rate, begun_ns, begun_bytes;
};

static __always_inline void opposite_sample(struct opposite *o, __u64 queue_us)
{
	o->sum_us += queue_us;
	o->count++;
}

/* Ends a round of the law. `bytes` is the direction's byte count so far.
 *
 * Queue: its mean, since a right edge is never retracted, so that of single values only the largest
 * would count. A queue that grows from round to round is extrapolated, since it is known one round
 * trip late. One that comes and goes is taken at the mean of two rounds.
 *
 * Rate: an average of four rounds, since behind the other direction's queue ACKs come in bursts,
 * and what ends in one round may have been sent in two. While the flow's own queue is short of half
 * of what λ allows, the link was not its limit: its rate is what the window allowed. So the rate
 * does not fall then, and up to a quarter is added to the queue to let it rise.
 *
 * Extrapolation and the two rules of the rate apply to queues beyond one RTTmin: with smaller ones,
 * two laws would react to each other.
 */
static __always_inline void opposite_round(struct opposite *o, const struct drwa_law *law, const struct drwa *d, __u64 now, __u64 bytes,
					   bool up)
{
	__u64 rtt_min = d->rtt_min_us;
	__u64 left = rtt_min * law_less(d->lambda, LAMBDA_ONE) / LAMBDA_ONE;
	__u64 mean, own, now_own, large, ahead, rate;

	if (o->begun_ns) {
		rate = law_min(law_less(bytes, o->begun_bytes), LAW_MAX_BYTES) * 1000000 / law_max(law_less(now, o->begun_ns) / 1000, 1);
		rate = law_min(rate, LAW_MAX_RATE);
		mean = o->count ? o->sum_us / o->count : 0;
		now_own = law_less(d->rtt_us, rtt_min + mean);
		own = (o->own_us + now_own) / 2;
		o->own_us = law_min(now_own, LAW_MAX_RTT_US);
		large = law_less(mean, rtt_min);
		if (!o->rate)
			o->rate = rate;
		else if (rate > o->rate || !large || own >= left / 2)
			o->rate = (3 * o->rate + rate) / 4;
		/* The largest rate of seconds bridges what that average does. */
		if (law->adaptive)
			o->rate = d->rate;
		if (mean > o->mean_us && o->mean_us >= o->before_us)
			ahead = mean + law_min(mean - o->mean_us, large / 2);
		else
			ahead = (mean + o->mean_us) / 2;
		ahead += large * law_less(left, own) / (4 * law_max(left, 1));
		o->added_us = law_min(law_less(ahead, up ? left : left / 2), LAW_MAX_RTT_US);
		o->before_us = o->mean_us;
		o->mean_us = law_min(mean, LAW_MAX_RTT_US);
	}
	o->begun_ns = now;
	o->begun_bytes = bytes;
	o->sum_us = 0;
	o->count = 0;
}

/* The window in bytes, in place of the law's own. */
static __always_inline __u64 opposite_window(const struct opposite *o, const struct drwa_law *law, const struct drwa *d)
{
	__u64 us = law_min(d->rtt_min_us, LAW_MAX_RTT_US) * d->lambda / LAMBDA_ONE + o->added_us;

	if (!o->added_us)
		return d->window;
	return law_min(law_max(o->rate * us / 1000000 + law->increment, law->floor), law->max);
}

/* The window of a connection that still grows, for one that was seen from its SYN.
 *
 * Until a queue stands, in both directions together, the link is not the limit. Slow start doubles its
 * rate in each round trip (RFC 5681), and the last decision is up to one round trip old. So what is in
 * flight may be four times what the last complete round delivered. The window has room for five times the
 * rate of the last round: four, and a quarter for rounds that end late. Figures of all three constants are in
 * crates/algo/src/rwnd/opposite.rs.
 *
 * Afterwards the law alone decides: in a pause of the opposite direction's queue the rule would let
 * an upload take more than its share. Where the begin was not seen, a standing queue may count as
 * path, and the rule would let it grow.
 */
#define GROWTH 5
/* Mean queue of a round, in sixteenths of RTTmin, that ends the growth of a flow that is alone since it was
 * opened, and of any other. */
#define GROWTH_ALONE 7
#define GROWTH_BESIDE 3

/* Whether a queue stands that ends the growth. `alone`: see struct member in fair.h. */
static __always_inline bool growth_ends(const struct drwa *d, bool alone)
{
	__u64 rtt_min = law_min(d->rtt_min_us, LAW_MAX_RTT_US);

	return d->rtt_us >= rtt_min + rtt_min * (alone ? GROWTH_ALONE : GROWTH_BESIDE) / 16;
}

static __always_inline __u64 growth_window(__u64 window, const struct drwa_law *law, const struct drwa *d)
{
	__u64 rtt_min = law_min(d->rtt_min_us, LAW_MAX_RTT_US);

	return law_max(window, law_min(d->rate * rtt_min / 1000000 * GROWTH, law->max));
}
