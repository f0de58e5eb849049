/* QCUT-D in C: the decisions of crates/algo/src/gate/{occupancy,slack,qcut_d}.rs, bit for bit.
 *
 * signal: packets that passed, reports of a modem · model: the same state machine in the same
 * integers (bytes, nanoseconds, 64 bits, divisions that round down) · action: whether a packet may
 * pass.
 *
 * Like law.h it uses no kernel type, and `conformance.bpf.c` compares it with the Rust side. The
 * reasons are given there and not repeated. Names in backticks are those of the Rust side.
 */
#pragma once
#include "law.h"

#ifndef barrier
#define barrier() asm volatile("" ::: "memory")
#endif

/* Ring of packets; interval of the average; padding as a part of what was moved that indicates
 * missing data; bound of every factor, so that no product overflows. See the constants of
 * occupancy.rs. */
#define QCUT_RING 512
#define QCUT_INTERVAL_NS 20000000ull
#define QCUT_STARVED 8
#define QCUT_MAX 0xffffffffull
/* Length of a slack step; how often starvation is too often; increase and decrease of a step;
 * weight in the slow average; warm-up steps. See the constants of slack.rs. */
#define QCUT_STEP_NS 100000000ull
#define QCUT_DRY 8
#define QCUT_UP_NS 30000000ull
#define QCUT_DOWN 50
#define QCUT_DOWN_FULL 35
#define QCUT_SLOW 8
#define QCUT_LEARNT 20

/* The constants: `QcutD` after `new`. */
struct qcut_law {
	__u64 target_ns, slack_ns, floor, timeout_ns;
	/* 1: as in `Config`. */
	__u32 hold, pace;
};

struct qcut_report {
	__u64 at_ns, occupancy, granted, padding;
};

struct qcut_packet {
	__u64 at_ns;
	/* Its bytes, and the estimated occupancy after it. */
	__u32 bytes, occupancy;
};

/* `Occupancy`. All zero is its initial state. */
struct qcut {
	/* Bytes per second; valid once `rated`. */
	__u64 rate;
	/* The current interval of the average: start, bytes moved, padding. */
	__u64 begun_ns, moved, padding;
	/* When the last report was written and received; estimated occupancy after the last packet,
	 * and when that was. */
	__u64 written_ns, received_ns, occupancy, since_ns;
	__u32 first, len;
	__u32 rated, measuring, has_report, busy;
	/* The estimate at the last packet before the newest report was written, to compare with it. */
	__u64 estimated_ns, estimated;
	/* Values of the current report that outlive its loop, see qcut_on_report. */
	__u64 report_moved;
	__u32 report_empty, len_before;
	/* `Slack`. */
	__u64 step_ns, reports, dry, step_moved, slow, slack;
	__u32 stepping, learnt;
	struct qcut_packet ring[QCUT_RING];
};

/* `drained`. */
static __always_inline __u64 qcut_drained(__u64 rate, __u64 ns)
{
	return law_min(rate, QCUT_MAX) * law_min(ns, QCUT_MAX) / 1000000000;
}

/* `rate_over`. */
static __always_inline __u64 qcut_rate_over(__u64 bytes, __u64 ns)
{
	__u64 rate;

	if (!ns)
		return 0;
	if (bytes <= ~0ull / 1000000000) {
		rate = bytes * 1000000000 / ns;
	} else {
		rate = bytes / ns;
		/* What would overflow is above the bound anyway. */
		rate = rate > QCUT_MAX ? QCUT_MAX : rate * 1000000000;
	}
	return law_min(rate, QCUT_MAX);
}

/* `fold`. */
static __always_inline void qcut_fold(struct qcut *q, __u64 at_ns, __u64 bytes)
{
	__u64 left = law_less(q->occupancy, qcut_drained(q->rate, law_less(at_ns, q->since_ns)));

	q->occupancy = law_more(left, bytes);
	q->since_ns = law_max(q->since_ns, at_ns);
}

/* `on_passed`. */
static __always_inline void qcut_on_passed(struct qcut *q, __u64 now, __u64 bytes)
{
	struct qcut_packet *place;

	bytes = law_min(bytes, 0xffffffff);
	if (q->len >= QCUT_RING) {
		/* The ring is full: the two oldest packets become one. */
		__u64 both = q->ring[q->first % QCUT_RING].bytes;

		q->first = (q->first + 1) % QCUT_RING;
		q->len = QCUT_RING - 1;
		place = &q->ring[q->first % QCUT_RING];
		place->bytes = law_min(both + place->bytes, 0xffffffff);
	}
	qcut_fold(q, now, bytes);
	place = &q->ring[(q->first + q->len) % QCUT_RING];
	place->at_ns = now;
	place->bytes = bytes;
	place->occupancy = law_min(q->occupancy, 0xffffffff);
	q->len++;
}

/* `measure`. */
static __always_inline void qcut_measure(struct qcut *q, const struct qcut_law *law, __u64 at, __u64 moved, __u64 padding)
{
	__u64 span, sample, steps;
	bool starved, busy;

	if (!q->measuring) {
		q->measuring = 1;
		q->begun_ns = at;
		q->moved = 0;
		q->padding = 0;
		return;
	}
	moved = law_more(q->moved, moved);
	padding = law_more(q->padding, padding);
	span = law_less(at, q->begun_ns);
	if (span < QCUT_INTERVAL_NS) {
		q->moved = moved;
		q->padding = padding;
		return;
	}
	q->begun_ns = at;
	q->moved = 0;
	q->padding = 0;
	if (law->hold) {
		busy = q->busy;
		q->busy = 0;
		if (!busy)
			return;
	}
	sample = qcut_rate_over(moved, span);
	starved = padding > moved / QCUT_STARVED;
	if (law->hold && starved && q->rated && sample < q->rate)
		return;
	steps = span / QCUT_INTERVAL_NS;
	for (int i = 0; i < 16; i++) {
		if (i >= steps)
			break;
		q->rate = q->rated ? (3 * law_min(q->rate, QCUT_MAX) + law_min(sample, QCUT_MAX)) / 4 : sample;
		q->rated = 1;
	}
}

/* `Slack::on_report`. */
static __always_inline void qcut_slack(struct qcut *q, const struct qcut_law *law, __u64 at, __u64 moved, __u64 surplus)
{
	__u64 span;

	if (!q->stepping) {
		q->stepping = 1;
		q->step_ns = at;
		return;
	}
	q->reports++;
	q->dry += 2 * surplus > 3 * law->floor;
	q->step_moved = law_more(q->step_moved, moved);
	span = law_less(at, q->step_ns);
	if (span < QCUT_STEP_NS)
		return;
	if (q->step_moved && q->learnt < QCUT_LEARNT)
		q->learnt++;
	else if (q->dry * QCUT_DRY > q->reports)
		q->slack = law_min(q->slack + QCUT_UP_NS, law->slack_ns);
	else if (q->step_moved)
		q->slack -= (q->slack + (q->dry ? QCUT_DOWN : QCUT_DOWN_FULL) - 1) / (q->dry ? QCUT_DOWN : QCUT_DOWN_FULL);
	if (q->step_moved) {
		__u64 sample = qcut_rate_over(q->step_moved, span);

		q->slow = q->slow ? (q->slow * (QCUT_SLOW - 1) + sample) / QCUT_SLOW : sample;
	}
	q->step_ns = at;
	q->reports = 0;
	q->dry = 0;
	q->step_moved = 0;
}

/* `on_report`. Values that are computed before the loop and needed after it are stored in `q`, not
 * in a register or on the stack. The verifier tracks those exactly and knows a little more about
 * them after each iteration, so that it would walk all code after the loop 512 times. */
static __always_inline void qcut_on_report(struct qcut *q, const struct qcut_law *law, __u64 now, const struct qcut_report *r)
{
	__u64 at = law_min(r->at_ns, now);
	__u64 moved = law_less(r->granted, r->padding);
	__u64 padding, estimated;
	__u32 first, len;

	q->report_moved = moved;
	q->report_empty = !r->occupancy;
	if (moved || r->occupancy)
		q->busy = 1;
	padding = q->report_empty && !r->padding ? moved : law_min(r->granted, r->padding);
	qcut_measure(q, law, at, moved, padding);
	q->has_report = 1;
	q->received_ns = now;
	if (at < q->written_ns) {
		qcut_slack(q, law, at, moved, 0);
		return;
	}
	q->written_ns = at;
	q->occupancy = r->occupancy;
	q->since_ns = at;
	/* One pass over the ring: packets from before the report are dropped, all later ones are
	 * added to it. */
	first = q->first;
	len = law_min(q->len, QCUT_RING);
	q->len_before = len;
	barrier();
	for (int i = 0; i < QCUT_RING; i++) {
		const struct qcut_packet *passed;

		if (i >= len)
			break;
		passed = &q->ring[(first + i) % QCUT_RING];
		/* Drop from the front only: packets of several processors may be out of order by
		 * some nanoseconds. */
		if (passed->at_ns <= at && q->len + i == len) {
			q->first = (first + i + 1) % QCUT_RING;
			q->len--;
		} else {
			qcut_fold(q, passed->at_ns, passed->bytes);
		}
	}
	barrier();
	/* The last packet that was dropped is still in its slot. */
	if (q->len < q->len_before) {
		const struct qcut_packet *forgotten = &q->ring[(q->first + QCUT_RING - 1) % QCUT_RING];

		q->estimated_ns = forgotten->at_ns;
		q->estimated = forgotten->occupancy;
	}
	estimated = law_less(q->estimated, qcut_drained(q->rate, law_less(q->written_ns, q->estimated_ns)));
	qcut_slack(q, law, q->written_ns, q->report_moved, q->report_empty ? estimated : 0);
}

/* `Occupancy::bytes`. */
static __always_inline __u64 qcut_bytes(const struct qcut *q, __u64 now)
{
	return law_less(q->occupancy, qcut_drained(q->rate, law_less(now, q->since_ns)));
}

/* `silent`. */
static __always_inline bool qcut_silent(const struct qcut *q, const struct qcut_law *law, __u64 now)
{
	return !q->has_report || law_less(now, q->received_ns) >= law->timeout_ns;
}

/* `limit`. */
static __always_inline __u64 qcut_limit(const struct qcut *q, const struct qcut_law *law)
{
	__u64 limit = qcut_drained(q->rate, law_more(law->target_ns, q->slack));

	return law_max(law_max(limit, qcut_drained(q->slow, q->slack)), law->floor);
}
