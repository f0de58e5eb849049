/* QCUT-D in C: the decisions of crates/algo/src/gate/{occupancy,slack,qcut_d}.rs, bit for bit.
 *
 * signal: packets that passed, reports of a modem · model: the same state machine in the same integers (bytes, nanoseconds, 64 bits,
 * divisions that round down) · action: whether a packet may pass.
 *
 * As law.h it uses no kernel type, is compared with the Rust side by `conformance.bpf.c`, and does not tell again what stands there.
 */
#pragma once
#include "law.h"

#ifndef barrier
#define barrier() asm volatile("" ::: "memory")
#endif

/* Packets remembered, interval of the average, share of padding that tells of missing data, and the bound of every factor: `RING`,
 * `INTERVAL_NS`, `STARVED`, `MOST`. */
#define QCUT_RING 512
#define QCUT_INTERVAL_NS 20000000ull
#define QCUT_STARVED 8
#define QCUT_MOST 0xffffffffull
/* The slack's step, how often dry is too often, up and down of a step, weight of a step in the slow average: `STEP_NS`, `DRY`, `UP_NS`,
 * `DOWN`, `DOWN_FULL`, `SLOW`, `LEARNT`. */
#define QCUT_STEP_NS 100000000ull
#define QCUT_DRY 8
#define QCUT_UP_NS 30000000ull
#define QCUT_DOWN 50
#define QCUT_DOWN_FULL 35
#define QCUT_SLOW 8
#define QCUT_LEARNT 20

/* The constants: `QcutD` after `new`. */
struct qcut_law {
	__u64 target_ns, slack_ns, floor, patience_ns;
	__u32 hold, pad;
};

struct qcut_report {
	__u64 at_ns, occupancy, granted, padding;
};

struct qcut_packet {
	__u64 at_ns;
	/* Its own, and B after it as believed then. */
	__u32 bytes, held;
};

/* `Occupancy`. Zeroes are its beginning. */
struct qcut {
	/* Bytes per second; means something once `rated`. */
	__u64 rate;
	/* The interval that is being measured. */
	__u64 begun_ns, moved, padding;
	/* The last report, and B after the last packet. */
	__u64 written_ns, heard_ns, held, since_ns;
	__u32 first, len;
	__u32 rated, measuring, heard, busy;
	/* `Occupancy::believed`. */
	__u64 believed_ns, believed;
	/* Of the report at hand, see qcut_on_report. */
	__u64 told_moved;
	__u32 told_empty, len_before;
	/* `Slack`. */
	__u64 step_ns, reports, dry, step_moved, slow, slack;
	__u32 stepping, learnt;
	struct qcut_packet ring[QCUT_RING];
};

/* `drained`. */
static __always_inline __u64 qcut_drained(__u64 rate, __u64 ns)
{
	return law_min(rate, QCUT_MOST) * law_min(ns, QCUT_MOST) / 1000000000;
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
		rate = rate > QCUT_MOST ? QCUT_MOST : rate * 1000000000;
	}
	return law_min(rate, QCUT_MOST);
}

/* `fold`. */
static __always_inline void qcut_fold(struct qcut *q, __u64 at_ns, __u64 bytes)
{
	__u64 left = law_less(q->held, qcut_drained(q->rate, law_less(at_ns, q->since_ns)));

	q->held = law_more(left, bytes);
	q->since_ns = law_max(q->since_ns, at_ns);
}

/* `on_passed`. */
static __always_inline void qcut_on_passed(struct qcut *q, __u64 now, __u64 bytes)
{
	struct qcut_packet *place;

	bytes = law_min(bytes, 0xffffffff);
	if (q->len >= QCUT_RING) {
		/* The oldest is taken together with the next. */
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
	place->held = law_min(q->held, 0xffffffff);
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
		q->rate = q->rated ? (3 * law_min(q->rate, QCUT_MOST) + law_min(sample, QCUT_MOST)) / 4 : sample;
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

/* `on_report`. What is known before the loop and needed behind it waits in `q`, and not in a register or on the stack: of those the
 * verifier knows a little more or less after each round of the loop, so that it would follow all that is behind it 512 times. */
static __always_inline void qcut_on_report(struct qcut *q, const struct qcut_law *law, __u64 now, const struct qcut_report *r)
{
	__u64 at = law_min(r->at_ns, now);
	__u64 moved = law_less(r->granted, r->padding);
	__u64 padding, believed;
	__u32 first, len;

	q->told_moved = moved;
	q->told_empty = !r->occupancy;
	if (moved || r->occupancy)
		q->busy = 1;
	padding = q->told_empty && !r->padding ? moved : law_min(r->granted, r->padding);
	qcut_measure(q, law, at, moved, padding);
	q->heard = 1;
	q->heard_ns = now;
	if (at < q->written_ns) {
		qcut_slack(q, law, at, moved, 0);
		return;
	}
	q->written_ns = at;
	q->held = r->occupancy;
	q->since_ns = at;
	/* One pass: what went before the report was written is forgotten, all else comes on top of it. */
	first = q->first;
	len = law_min(q->len, QCUT_RING);
	q->len_before = len;
	barrier();
	for (int i = 0; i < QCUT_RING; i++) {
		const struct qcut_packet *passed;

		if (i >= len)
			break;
		passed = &q->ring[(first + i) % QCUT_RING];
		/* Only from the front: packets of several processors may stand some nanoseconds out of order. */
		if (passed->at_ns <= at && q->len + i == len) {
			q->first = (first + i + 1) % QCUT_RING;
			q->len--;
		} else {
			qcut_fold(q, passed->at_ns, passed->bytes);
		}
	}
	barrier();
	/* The last one forgotten still stands in its place. */
	if (q->len < q->len_before) {
		const struct qcut_packet *forgotten = &q->ring[(q->first + QCUT_RING - 1) % QCUT_RING];

		q->believed_ns = forgotten->at_ns;
		q->believed = forgotten->held;
	}
	believed = law_less(q->believed, qcut_drained(q->rate, law_less(q->written_ns, q->believed_ns)));
	qcut_slack(q, law, q->written_ns, q->told_moved, q->told_empty ? believed : 0);
}

/* `Occupancy::bytes`. */
static __always_inline __u64 qcut_bytes(const struct qcut *q, __u64 now)
{
	return law_less(q->held, qcut_drained(q->rate, law_less(now, q->since_ns)));
}

/* `silent`. */
static __always_inline bool qcut_silent(const struct qcut *q, const struct qcut_law *law, __u64 now)
{
	return !q->heard || law_less(now, q->heard_ns) >= law->patience_ns;
}

/* `limit`. */
static __always_inline __u64 qcut_limit(const struct qcut *q, const struct qcut_law *law)
{
	__u64 limit = qcut_drained(q->rate, law_more(law->target_ns, q->slack));

	return law_max(law_max(limit, qcut_drained(q->slow, q->slack)), law->floor);
}
