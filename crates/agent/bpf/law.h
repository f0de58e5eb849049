/* DRWA in C, and AFC's rate term: the decisions of crates/algo/src/rwnd/{drwa.rs,afc/backed.rs},
 * bit for bit.
 *
 * signal: samples of a connection · model: the same state machines in the same integers (bytes,
 * microseconds, sixteenths, 64 bits, divisions that round down) · action: a window.
 *
 * No kernel type is used, so that kernel programs and tests compile the same text.
 * `conformance.bpf.c` runs it in the kernel on recorded streams, and tests compare the answers with
 * the Rust side's. What the papers say and what differs from them is written there and not
 * repeated. Names in backticks are those of the Rust side.
 */
#pragma once
#include <linux/types.h>
#include <stdbool.h>

/* Windows end at 2^30 (RFC 7323 section 2.3). */
#define LAW_MAX_BYTES (1ull << 30)
/* Longer RTTs are measurement errors: 30 s. */
#define LAW_MAX_RTT_US 30000000ull
#define LAW_MAX_RATE (1ull << 32)
/* Minimum RTT for the callers of the law. Below a millisecond it is a late host, not a queue: a
 * handshake of 50 µs in a local network would allow 150 µs, and the flow lost four fifths of its
 * rate. Timestamps count milliseconds anyway. */
#define LAW_MIN_RTT_US 1000ull

static __always_inline __u64 law_min(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static __always_inline __u64 law_max(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/* Subtraction and addition that saturate. */
static __always_inline __u64 law_less(__u64 a, __u64 b)
{
	return a > b ? a - b : 0;
}

static __always_inline __u64 law_more(__u64 a, __u64 b)
{
	return a + b < a ? ~0ull : a + b;
}

/* λ counts in units of 1/256; at most 16. The constants of crates/algo/src/rwnd/adaptive.rs. */
#define LAMBDA_ONE 256
#define LAMBDA_MAX (16 * LAMBDA_ONE)
#define ADAPTIVE_STEP_UP (LAMBDA_ONE / 4)
#define ADAPTIVE_STEP_DOWN (LAMBDA_ONE / 64)
#define ADAPTIVE_EMPTY_NUM 3
#define ADAPTIVE_EMPTY_DEN 16
#define ADAPTIVE_FEW_SEGMENTS 2
#define ADAPTIVE_SMALL_SEGMENTS 8
#define ADAPTIVE_BESIDE 4
#define ADAPTIVE_BESIDE_DEN 32
#define ADAPTIVE_MEMORY 44
#define ADAPTIVE_MEMORY_LARGE 4
#define ADAPTIVE_LARGE 3
#define ADAPTIVE_MEAN 8
#define ADAPTIVE_SEGMENTS 4

/* The constants of a law: `Law` and the rest of `Config`. */
struct drwa_law {
	__u32 rate_form, alpha, lambda, quick;
	/* The smallest λ, where it adapts; whether λ and the rate do. */
	__u32 lambda_min, adaptive;
	/* Payload of a full segment. */
	__u64 mss;
	__u64 increment, floor, max, initial;
	/* Age at which RTTmin is measured again, ns; 0: never. */
	__u64 rtt_min_age_ns;
	/* RTT by window instead of timestamps; equal rates for the flows of one host (fair.h). */
	__u32 by_window, fair;
};

struct drwa_sample {
	__u64 received, copied, right_edge;
	/* RTT sample, µs; 0: none. */
	__u64 rtt_us;
	/* 1: data arrived; 0: the application read. */
	__u32 arrived, pad;
};

/* `Drwa`. All zero is a new connection, except for what drwa_init sets. */
struct drwa {
	__u64 cwnd, rate, mean, window;
	__u64 rtt_us, rtt_min_us, rtt_min_seen_ns;
	__u64 begun_ns, begun_copied, rtt_sum_us, rtt_count, silence_ns, arrived_ns, copied;
	/* `WindowRtt`: data beyond `edge` ends the sample; when that edge was advertised. */
	__u64 edge, edge_ns;
	/* `Probe`: measures RTTmin again with half a window. */
	__u64 probe_resume, probe_edge, probe_min_us;
	/* Delay of ACKs on their own way, up to a constant, and when the round began. */
	__s64 ack_delay_ns, begun_delay_ns;
	/* λ; 0: that of the law. The opposite direction's queue in the last round. */
	__u32 lambda, beside_us;
	__u32 probe_left;
	__u8 begun, pending, probing, ready;
};

static __always_inline void drwa_init(struct drwa *d, const struct drwa_law *law)
{
	d->window = law_min(law_max(law->initial, law->floor), law->max);
	d->rtt_min_us = LAW_MAX_RTT_US;
	d->ready = 1;
}

static __always_inline __u64 drwa_average(const struct drwa_law *law, __u64 old, __u64 new)
{
	__u64 alpha = law_min(law->alpha, 15);

	if (old == 0 || (law->quick && new > old))
		return new;
	return (alpha * old + (16 - alpha) * new) / 16;
}

/* `Law::bounded`. */
static __always_inline __u64 drwa_lambda(const struct drwa *d, const struct drwa_law *law)
{
	__u64 max = law_min(law->lambda, LAMBDA_MAX);

	return !d->lambda || !law->adaptive ? max : law_min(law_max(d->lambda, law->lambda_min), max);
}

/* `adaptive::rate` and `adaptive::lambda`. */
static __always_inline __u64 adaptive_rate(__u64 old, __u64 new, __u64 queue_us, __u64 rtt_min_us)
{
	if (new >= old)
		return new;
	if (queue_us > ADAPTIVE_LARGE * rtt_min_us)
		return (old * (ADAPTIVE_MEMORY_LARGE - 1) + new) / ADAPTIVE_MEMORY_LARGE;
	return (old * (ADAPTIVE_MEMORY - 1) + new) / ADAPTIVE_MEMORY;
}

static __always_inline __u64 adaptive_lambda(__u64 old, __u64 queue_us, __u64 rtt_min_us, __u64 rate, __u64 mss)
{
	bool few = rate * queue_us / 1000000 <= ADAPTIVE_FEW_SEGMENTS * mss && rate * rtt_min_us / 1000000 < ADAPTIVE_SMALL_SEGMENTS * mss;

	if (queue_us * ADAPTIVE_EMPTY_DEN <= rtt_min_us * ADAPTIVE_EMPTY_NUM || few)
		return old + ADAPTIVE_STEP_UP;
	return old > ADAPTIVE_STEP_DOWN ? old - ADAPTIVE_STEP_DOWN : 1;
}

/* `decide`. */
static __always_inline void drwa_decide(struct drwa *d, const struct drwa_law *law, __u64 elapsed_us, __u64 bytes)
{
	__u64 rtt_min = law_min(law_max(d->rtt_min_us, 1), LAW_MAX_RTT_US);
	__u64 rtt = law_min(law_max(d->rtt_us, rtt_min), LAW_MAX_RTT_US);
	__u64 elapsed = law_max(elapsed_us, 1);
	__u64 beside = ADAPTIVE_BESIDE * law_less(law_min(d->beside_us, LAW_MAX_RTT_US), rtt_min / ADAPTIVE_BESIDE_DEN);
	__u64 queue = law_less(rtt, rtt_min + beside);
	__u64 target, lambda, new;

	bytes = law_min(bytes, LAW_MAX_BYTES);
	new = law_min(bytes * 1000000 / elapsed, LAW_MAX_RATE);
	d->cwnd = drwa_average(law, d->cwnd, law_min(bytes * rtt / elapsed, LAW_MAX_BYTES));
	d->rate = law->adaptive ? adaptive_rate(d->rate, new, queue, rtt_min) : drwa_average(law, d->rate, new);
	d->mean = law->adaptive && d->mean ? (d->mean * (ADAPTIVE_MEAN - 1) + new) / ADAPTIVE_MEAN : law->adaptive ? new : d->rate;
	if (law->adaptive) {
		d->lambda = adaptive_lambda(d->lambda, queue, rtt_min, new, law->mss);
		d->lambda = drwa_lambda(d, law);
	}
	lambda = d->lambda;
	if (law->rate_form)
		target = d->rate * rtt_min / 1000000 * lambda / LAMBDA_ONE;
	else
		target = d->cwnd * (lambda / 16) * rtt_min / (16 * rtt);
	d->window = law_min(law_max(target + law->increment, law->floor), law->max);
}

static __always_inline void drwa_begin_round(struct drwa *d, __u64 now, __u64 copied)
{
	d->begun = 1;
	d->begun_ns = now;
	d->begun_copied = copied;
	d->rtt_sum_us = 0;
	d->rtt_count = 0;
	d->silence_ns = 0;
	d->begun_delay_ns = d->ack_delay_ns;
}

static __always_inline __u64 drwa_rtt_estimate(const struct drwa *d)
{
	return d->rtt_count ? d->rtt_sum_us / d->rtt_count : d->rtt_us;
}

/* `WindowRtt::on_data`: the sample in µs, valid if `sampled`. One below a microsecond counts as
 * one. */
static __always_inline __u64 drwa_window_rtt(struct drwa *d, __u64 now, const struct drwa_sample *s, bool *sampled)
{
	__u64 sample = 0;

	*sampled = false;
	if (d->pending) {
		if (s->received < d->edge)
			return 0;
		*sampled = true;
		sample = now - d->edge_ns;
	}
	d->pending = 1;
	d->edge = s->right_edge;
	d->edge_ns = now;
	return sample / 1000;
}

/* Windows between the return of the old window and the next decision: `SETTLING`. */
#define LAW_SETTLING 2

static __always_inline void drwa_on_aging(struct drwa *d, const struct drwa_law *law, __u64 now, const struct drwa_sample *s,
					  bool sampled, __u64 rtt_us)
{
	__u32 measured = law->by_window ? 2 : 1;
	bool passed, measuring;

	if (!d->probing) {
		if (d->rtt_us > 0 && now - d->rtt_min_seen_ns > law->rtt_min_age_ns) {
			__u64 half = d->cwnd / 2 * d->rtt_min_us / d->rtt_us;

			d->probing = 1;
			d->probe_resume = d->window;
			d->probe_edge = s->right_edge;
			d->probe_left = LAW_SETTLING + measured + 1;
			d->probe_min_us = LAW_MAX_RTT_US;
			d->window = law_min(law_max(half, law->floor), d->window);
		}
		return;
	}
	passed = s->received > d->probe_edge;
	if (passed) {
		d->probe_edge = s->right_edge;
		d->probe_left--;
	}
	measuring = d->probe_left >= LAW_SETTLING && d->probe_left <= LAW_SETTLING + measured;
	if (measuring && sampled)
		d->probe_min_us = law_min(d->probe_min_us, rtt_us);
	if (passed && d->probe_left == LAW_SETTLING) {
		if (d->probe_min_us < LAW_MAX_RTT_US)
			d->rtt_min_us = d->probe_min_us;
		d->rtt_min_seen_ns = now;
		d->window = d->probe_resume;
	}
	if (d->probe_left == 0) {
		d->probing = 0;
		drwa_begin_round(d, now, s->copied);
	}
}

/* `adaptive::round_ends`. */
static __always_inline bool drwa_round_ends(const struct drwa *d, const struct drwa_law *law, __u64 elapsed_us, __u64 rtt_us, __u64 bytes)
{
	if (elapsed_us >= rtt_us)
		return true;
	return law->adaptive && elapsed_us >= d->rtt_min_us && bytes >= ADAPTIVE_SEGMENTS * law->mss && d->rtt_count;
}

/* `adaptive::elapsed`. */
static __always_inline __u64 adaptive_elapsed(__u64 elapsed_us, __s64 sooner_ns, __u64 rtt_us)
{
	return elapsed_us + (sooner_ns > 0 ? law_min((__u64)sooner_ns / 1000, rtt_us) : 0);
}

static __always_inline void drwa_on_read(struct drwa *d, const struct drwa_law *law, __u64 now, __u64 copied)
{
	__u64 rtt_us, elapsed_us;
	bool idle;

	if (d->probing)
		return;
	rtt_us = drwa_rtt_estimate(d);
	elapsed_us = (now - d->begun_ns) / 1000;
	if (rtt_us == 0 || !drwa_round_ends(d, law, elapsed_us, rtt_us, copied - d->begun_copied))
		return;
	d->rtt_us = rtt_us;
	idle = elapsed_us > 2 * rtt_us && d->silence_ns / 1000 > rtt_us;
	if (!idle && law->adaptive)
		elapsed_us = adaptive_elapsed(elapsed_us, d->begun_delay_ns - d->ack_delay_ns, rtt_us);
	if (!idle)
		drwa_decide(d, law, elapsed_us, copied - d->begun_copied);
	drwa_begin_round(d, now, copied);
}

/* `on_sample`; afterwards the window is in d->window. */
static __always_inline void drwa_on_sample(struct drwa *d, const struct drwa_law *law, __u64 now, const struct drwa_sample *s)
{
	if (!d->ready)
		drwa_init(d, law);
	/* The bounds may have changed. */
	d->lambda = drwa_lambda(d, law);
	if (!d->begun) {
		d->arrived_ns = now;
		d->copied = s->copied;
		drwa_begin_round(d, now, s->copied);
	}
	if (s->arrived) {
		__u64 rtt_us = s->rtt_us;
		bool sampled = rtt_us > 0;

		d->silence_ns = law_max(d->silence_ns, now - d->arrived_ns);
		d->arrived_ns = now;
		if (law->by_window)
			rtt_us = drwa_window_rtt(d, now, s, &sampled);
		if (sampled) {
			bool first = d->rtt_us == 0 && d->rtt_count == 0;

			rtt_us = law_min(law_max(rtt_us, 1), LAW_MAX_RTT_US);
			if (rtt_us <= d->rtt_min_us || first) {
				d->rtt_min_us = law_min(d->rtt_min_us, rtt_us);
				d->rtt_min_seen_ns = now;
			}
			d->rtt_sum_us += rtt_us;
			d->rtt_count++;
		}
		if (law->rtt_min_age_ns)
			drwa_on_aging(d, law, now, s, sampled, rtt_us);
	}
	if (s->copied > d->copied) {
		d->copied = s->copied;
		drwa_on_read(d, law, now, s->copied);
	}
}

/* AFC's rate term: crates/algo/src/rwnd/afc/backed.rs. All zero is its initial state. */
#define BACKED_SLOT_NS 100000000ull
#define BACKED_SLOTS 32

struct backed {
	__u64 rate, slots;
	__u64 begun_ns, begun_copied;
	__u64 seen_ns, received, copied, right_edge;
	__u32 measuring, silent;
};

/* `on_ack` with `turn`. Of the sample it uses everything but the RTT, which is the law's. */
static __always_inline void backed_on_ack(struct backed *b, __u64 now, const struct drwa_sample *s, __u64 rtt_us)
{
	__u64 read, length;
	bool reading;

	rtt_us = law_min(rtt_us, LAW_MAX_RTT_US);
	if (b->right_edge > b->received && rtt_us && law_less(now, b->seen_ns) / 1000 > 2 * rtt_us)
		b->silent = 1;
	b->received = law_max(b->received, s->received);
	read = law_max(b->copied, law_min(s->copied, b->received));
	reading = b->received > b->copied || read > b->copied;
	b->copied = read;
	length = law_less(now, b->begun_ns);
	if (b->measuring && length >= BACKED_SLOT_NS) {
		b->measuring = 0;
		if (!b->silent) {
			__u64 bytes = law_min(b->copied - b->begun_copied, LAW_MAX_BYTES);
			__u64 drained = law_min(bytes * 1000000 / law_max(length / 1000, 1), LAW_MAX_RATE);

			b->slots = law_min(b->slots + 1, BACKED_SLOTS);
			b->rate = (b->rate * (b->slots - 1) + drained) / b->slots;
		}
	}
	if (!b->measuring && reading) {
		b->measuring = 1;
		b->silent = 0;
		b->begun_ns = now;
		b->begun_copied = b->copied;
	}
	b->seen_ns = now;
	b->right_edge = s->right_edge;
}

/* `buffer`: payload bytes of the larger buffer. */
static __always_inline __u64 backed_buffer(const struct backed *b, __u64 own, __u64 rtt_min_us)
{
	__u64 more = b->rate * law_min(rtt_min_us, LAW_MAX_RTT_US) / 1000000;

	return law_min(law_min(own, LAW_MAX_BYTES) + more, LAW_MAX_BYTES);
}
