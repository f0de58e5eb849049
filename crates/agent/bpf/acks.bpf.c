/* ACK-window rewriting: DRWA for flows that pass a device between their two ends. The receive
 * window in forwarded TCP segments is lowered so that no standing queue builds up.
 *
 * signal: TCP segments at tc of the uplink device, both ways · model: law.h, once per direction of
 * data of each flow; path.h for round trips, their minima, and which direction's queue it is ·
 * action: a smaller window in the segments that carry it. For downloads that is the outgoing
 * segments of this host and of the hosts behind it. For uploads it is the segments that come in
 * from the server, which limits the local sender without reports from the modem and without a
 * packet of our own.
 *
 * Invariants. It never enlarges a window. It never retracts an advertised right edge (RFC 9293
 * section 3.8.6.2.1), so the window that is left is rounded up to the scale. It never changes a
 * segment that is signed, of MPTCP, truncated or malformed, nor a flow whose window scale is
 * unknown. SYNs pass unchanged. What arrives before the start bytes, or again after a pause, passes
 * unchanged: short replies, handshakes and idle flows need no cure.
 *
 * Window = the law's window + the room that the queue in the opposite direction takes (path.h). A
 * round is a whole round trip, because within one ACKs come in the bursts of the other direction's
 * queue.
 *
 * Flows are known from their SYN and SYN-ACK, or from the window scales of the local socket; all
 * others pass. An entry ends with RST, with both FINs, or when other flows need its place (LRU).
 * Each word of an entry is written by only one of the two hooks.
 *
 * The agent finds programs (acks_out, acks_in) and maps by their names, so these stay the same from
 * version to version.
 *
 * Needs Linux 5.10, with BTF unless WITHOUT_TYPES is defined; TCX (6.6) or clsact.
 */
#include "acks.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* TC_ACT_UNSPEC, which is TCX_NEXT: the next program or filter decides; after the last one the
 * packet passes. */
#define NEXT (-1)
#define DOWN 1
#define UP 2
/* Sequence numbers farther ahead than this are invalid: comparison is defined within 2^31 only (RFC
 * 9293 section 3.4). */
#define HORIZON (1 << 30)
#define MSS_DEFAULT 536
/* The option and its padding, in every segment (RFC 7323 section 3.2, appendix A). */
#define TIMESTAMP_BYTES 12
/* Windows below so many segments are one segment larger. A factor alone leaves a window of two as
 * it is: 2 · 1.75 · RTTmin/RTT is below three as soon as sending them takes a tenth of RTTmin.
 * Larger windows would only get more delay, one segment per flow. */
#define SMALL_SEGMENTS 4
/* A connection that was silent for so long may have been replaced by another with the same ports.
 */
#define SYN_REUSE_NS (30 * NS_PER_S)

static __noinline int learn_place(const struct flow_key *key, struct half *h, __u64 now, __u32 clocked)
{
	return place_learn(&places, key->outside, h, now, clocked);
}

/* New data after a silence longer than pause_ns, which was application idle time: the law begins
 * again, and so do the start bytes, if it had not begun. */
static __always_inline void direction_resumes(struct direction *d, const struct acks_config *c, __u64 now)
{
	if (!d->law.begun) {
		if (d->begun_ns && now - d->begun_ns > c->pause_ns)
			d->started_at = d->passed;
	} else if (now - d->law.arrived_ns > c->pause_ns) {
		__builtin_memset(&d->law, 0, sizeof(d->law));
		__builtin_memset(&d->opposite, 0, sizeof(d->opposite));
		d->started_at = d->passed;
		d->grown = 0;
	}
}

/* The same for data that leaves. While older data is unacknowledged the silence is an outage, and the
 * window stays: one that then passed unchanged would release a burst. At the ACK that ends the
 * silence the two look alike, since it acknowledges data in both. */
static __always_inline void upload_resumes(struct flow *f, const struct acks_config *c, const struct segment *s, __u64 now)
{
	struct direction *d = &f->up;

	if (s->payload && d->max_seq_known && f->sent_out == d->max_seq && (__s32)(s->seq + s->payload - f->sent_out) > 0)
		direction_resumes(d, c, now);
}

/* The law's constants in bytes of this flow's segments. */
static __always_inline void law_of(struct drwa_law *law, const struct flow *f, const struct acks_config *c, bool up)
{
	__u64 mss = law_min(f->mss_out, f->mss_in);

	*law = up ? c->up : c->down;
	law->floor = law_min(law_max(c->floor_segments * mss, 1), law->max);
	law->increment = c->increment_segments * mss;
	law->mss = mss;
}

/* Flags of a sample: it belongs to an upload; a round trip has just ended; the flow has timestamps.
 */
enum { SAMPLE_UP = 1, SAMPLE_RTT = 2, SAMPLE_STAMP = 4 };
/* Its outcome: the law took it; with it a round has ended. */
enum { SAMPLE_TAKEN = 1, ROUND_ENDED = 2 };

/* A round of the law has ended: what is known of the opposite direction's queue. */
static __always_inline int take_round(struct flow *f, struct acks_config *c, __u32 flags, __u64 now)
{
	bool up = flags & SAMPLE_UP;
	struct direction *d = up ? &f->up : &f->down;

	opposite_round(&d->opposite, up ? &c->up : &c->down, &d->law, now, d->passed, up);
	d->law.beside_us = d->opposite.mean_us;
	return 0;
}

/* The target window of a direction after a sample of its law. */
static __always_inline int take_window(struct flow *f, struct acks_config *c, __u32 flags, __u64 now)
{
	bool up = flags & SAMPLE_UP;
	const struct drwa_law *set = up ? &c->up : &c->down;
	struct direction *d = up ? &f->up : &f->down;
	struct share share = {};
	/* Only what a window needs of the law, so that it stays in registers: the stack is short. */
	struct drwa_law law = { .max = set->max, .fair = set->fair, .mss = law_min(f->mss_out, f->mss_in) };

	/* Until the first round has ended the window passes unchanged. */
	if (!d->law.rtt_us)
		return 0;
	law.floor = law_min(law_max(c->floor_segments * law.mss, 1), law.max);
	law.increment = c->increment_segments * law.mss;
	if (law.fair) {
		__u32 which = up;
		struct shares *all = bpf_map_lookup_elem(&shares, &which);

		if (all)
			shares_take(all, now, &d->law, &d->member, &share);
	}
	d->target = opposite_window_beside(&d->opposite, &law, &d->law, &share, law.mss);
	if (!f->syn_out || !f->syn_in || share.drains || growth_ends(&d->law, d->member.alone))
		d->grown = 1;
	if (!d->grown)
		d->target = growth_window(d->target, &law, &d->law);
	if (d->target < SMALL_SEGMENTS * law.mss)
		d->target = law_min(d->target + law.mss, SMALL_SEGMENTS * law.mss);
	return 0;
}

/* Each is verified alone, as direction_sample is: together they have too many paths. */
__attribute__((noinline)) int end_round(__u32 flags, __u64 now)
{
	struct scratch *at = scratch_now();
	__u32 zero = 0;
	struct acks_config *c = bpf_map_lookup_elem(&config, &zero);
	struct flow *f = at ? bpf_map_lookup_elem(&flows, &at->key) : NULL;

	return f && c ? take_round(f, c, flags, now) : 0;
}

__attribute__((noinline)) int decide_window(__u32 flags, __u64 now)
{
	struct scratch *at = scratch_now();
	__u32 zero = 0;
	struct acks_config *c = bpf_map_lookup_elem(&config, &zero);
	struct flow *f = at ? bpf_map_lookup_elem(&flows, &at->key) : NULL;

	return f && c ? take_window(f, c, flags, now) : 0;
}

/* New data (downloads) or a new acknowledgment (uploads) has come in up to sequence number `upto`:
 * one sample for the law of that direction, which sets the direction's target window. */
static __always_inline int take_sample(struct flow *f, struct acks_config *c, __u32 upto, __u32 flags, __u64 now)
{
	bool up = flags & SAMPLE_UP, fresh = flags & SAMPLE_RTT, stamped = flags & SAMPLE_STAMP;
	struct drwa_sample sample = { .arrived = 1 };
	struct direction *d;
	struct drwa_law law;
	struct acks_counters *count;
	__u64 rtt_min, queue, begun;
	__u32 zero = 0, begins = 0;
	__s32 more;

	d = up ? &f->up : &f->down;
	if (!d->max_seq_known) {
		d->max_seq = upto;
		d->max_seq_known = 1;
		return 0;
	}
	more = upto - d->max_seq;
	if (more <= 0 || more > HORIZON)
		return 0;
	d->max_seq = upto;
	d->passed += more;
	count = bpf_map_lookup_elem(&counters, &zero);
	if (count && up)
		count->up_bytes += more;
	else if (count)
		count->down_bytes += more;

	/* Of an upload, upload_resumes has seen the end of a pause. */
	if (!up)
		direction_resumes(d, c, now);
	d->begun_ns = now;
	if (d->passed - d->started_at < (up ? c->up_start_bytes : c->down_start_bytes))
		return 0;

	law_of(&law, f, c, up);
	/* Without timestamps uploads still have exact RTT samples by sequence number; downloads
	 * only have the time that a window takes to be used up. */
	law.by_window = !up && !stamped;

	/* RTTmin of the path is the sum of both halves, so both must be known; a local end has no
	 * inner half. */
	rtt_min = 0;
	if (f->outer.rtt_min_us && (f->inner.rtt_min_us || f->local))
		rtt_min = law_max((__u64)f->outer.rtt_min_us + f->inner.rtt_min_us, LAW_MIN_RTT_US);
	/* Forwarded data counts as read as soon as it has passed: the application cannot be seen
	 * from here. */
	sample.received = d->passed;
	sample.copied = d->passed;
	more = d->edge - upto;
	sample.right_edge = d->passed + (more > 0 ? more : 0);
	queue = up ? (__u64)f->outer.towards_us + f->inner.away_us : (__u64)f->outer.away_us + f->inner.towards_us;
	if (fresh && rtt_min) {
		opposite_sample(&d->opposite, queue);
		sample.rtt_us = law_max((__u64)f->outer.rtt_us + f->inner.rtt_us, rtt_min);
	}

	if (!d->law.ready) {
		drwa_init(&d->law, &law);
		begins = 1;
	}
	if (rtt_min && rtt_min < d->law.rtt_min_us)
		d->law.rtt_min_us = rtt_min;
	rtt_min = d->law.rtt_min_us;
	if (up && stamped)
		d->law.ack_delay_ns = f->outer.clock.delay;
	begun = d->law.begun_ns;
	drwa_on_sample(&d->law, &law, now, &sample);
	/* A new begun_ns means that a round of the law has ended: it has decided. */
	if (count) {
		count->samples++;
		count->decisions += begun != d->law.begun_ns;
	}
	/* Only tests set `tracing`. */
	if (c->tracing) {
		__u32 *n = bpf_map_lookup_elem(&traces, &zero);
		struct traced *t = n ? bpf_map_lookup_elem(&trace, n) : NULL;

		if (t) {
			t->now_ns = now;
			t->sample = sample;
			t->rtt_min_us = rtt_min;
			t->window = d->law.window;
			t->up = up;
			t->begins = begins;
			t->law = law;
			__sync_fetch_and_add(n, 1);
		}
	}
	return SAMPLE_TAKEN | (begun != d->law.begun_ns ? ROUND_ENDED : 0);
}

__attribute__((noinline)) int direction_sample(__u32 upto, __u32 flags, __u64 now)
{
	struct scratch *at = scratch_now();
	__u32 zero = 0;
	struct acks_config *c = bpf_map_lookup_elem(&config, &zero);
	struct flow *f = at ? bpf_map_lookup_elem(&flows, &at->key) : NULL;

	return f && c ? take_sample(f, c, upto, flags, now) : 0;
}

/* The end of a window for a sender that is Linux: it lets through an even number of segments and
 * less than one more. Linux sends two segments at a time or more (tcp_tso_autosize), and where the
 * window ends inside the second one, it sends a part of it. Nagle's algorithm, as modified by
 * Minshall, then holds the last part of an upload back until that one is acknowledged, which is up
 * to one RTT later: 300 KB at 1 Mbit/s and 300 ms took 8 % longer. An end inside the first one costs
 * nothing: the sender waits until a whole segment fits (tcp_snd_wnd_test). Above some 17 Mbit/s
 * Linux sends more at a time, and this does not help, but a round trip is short there.
 *
 * window: as the law and the advertised edge want it, in bytes; edge_window: what has been
 * advertised already; scale: its unit; sent: the highest sequence number that the sender has sent.
 * Where the advertised edge is the limit, ends inside the second segment of a pair, and the sender
 * is about to reach it, it moves on to the end of the pair: once, until the law is the limit again.
 * Each time would keep a window from becoming smaller. */
static __always_inline __u32 paired(struct direction *d, __u32 window, __u32 edge_window, bool edge_limited, __u32 ack, __u32 sent,
				    __u32 mss)
{
	__u32 unit = (1u << d->scale) - 1;
	__s32 room = ack + window - sent;
	__u32 more, lower;

	if (!edge_limited)
		d->moved_on = 0;
	if (room < (__s32)mss || unit >= mss)
		return window;
	more = (__u32)room % (2 * mss);
	if (more < mss)
		return window;
	/* The end of the pair before, rounded up to the unit. */
	lower = law_max(window - more, edge_window);
	lower = (lower + unit) & ~unit;
	room = ack + lower - sent;
	if (room < 0 || (__u32)room % (2 * mss) < mss)
		return lower;
	if (room >= (__s32)(2 * mss) || d->moved_on)
		return window;
	d->moved_on = 1;
	return (window + 2 * mss - more + unit) & ~unit;
}

/* Smaller windows keep what they have: two segments of eight are a quarter of the rate. */
#define PAIRED_SEGMENTS 8

/* Lowers the window in a segment on its way to the sender, where the law asks for less, and records
 * the right edge that the sender gets to see. `sent`: the highest sequence number that the sender
 * has sent, and `mss`: the payload of its segments; 0 where they are not known. */
static __always_inline void rewrite_window(struct __sk_buff *skb, struct acks_config *c, struct acks_counters *count, const struct flow_key *key,
				 struct direction *d, const struct segment *s, __u64 now, bool allowed, bool unacknowledged, __u32 sent,
				 __u32 mss)
{
	__u32 advertised = (__u32)bpf_ntohs(s->window) << d->scale;
	__u32 unit = (1u << d->scale) - 1;
	__u32 window = advertised, target = d->target, edge_window, field, *exemption;
	bool edge_limited;
	__be16 written;

	allowed = allowed && d->edge_known && d->law.rtt_us && (unacknowledged || now - d->law.arrived_ns <= c->pause_ns);
	if (allowed && c->exempting && (exemption = bpf_map_lookup_elem(&exempt, key))) {
		/* In a trial the window follows the rate, so that a flow which the window limits
		 * grows from round to round, and a full link gets no more than that much delay. */
		target = law_max(target, law_min(d->law.rate * *exemption / 1000000, LAW_MAX_BYTES));
		allowed = *exemption > EXEMPT;
	}
	if (allowed && advertised > target) {
		/* The field counts in units of the scale. Round down, unless that loses more than a
		 * quarter: the window would fall below the floor, and ACKs would stop. */
		field = target >> d->scale;
		if ((field << d->scale) < target - target / 4)
			field++;
		/* An advertised right edge stays: round the rest of it up. */
		edge_window = d->edge - s->ack;
		if ((__s32)edge_window < 0)
			edge_window = 0;
		edge_limited = edge_window > (field << d->scale);
		if (edge_limited) {
			field = (edge_window + unit) >> d->scale;
			count->edge_limited++;
		}
		if (mss && (field << d->scale) >= PAIRED_SEGMENTS * mss)
			field = paired(d, field << d->scale, edge_window, edge_limited, s->ack, sent, mss) >> d->scale;
		window = field << d->scale;
		if (window < advertised && field <= 0xffff) {
			written = bpf_htons(field);
			if (bpf_l4_csum_replace(skb, s->tcp + offsetof(struct tcphdr, check), s->window, written, sizeof(written)) ||
			    bpf_skb_store_bytes(skb, s->tcp + offsetof(struct tcphdr, window), &written, sizeof(written), 0)) {
				window = advertised;
			} else {
				d->rewritten++;
				count->rewritten++;
			}
		} else {
			window = advertised;
		}
	}
	if (!d->edge_known || (__s32)(s->ack + window - d->edge) > 0) {
		d->edge = s->ack + window;
		d->edge_known = 1;
	}
	d->advertised = window;
}

static __always_inline struct flow *flow_begin(const struct flow_key *key, struct acks_config *c, struct acks_counters *count)
{
	__u32 zero = 0;
	struct flow *f = bpf_map_lookup_elem(&blank, &zero);

	if (!f || bpf_map_update_elem(&flows, key, f, BPF_ANY))
		return NULL;
	f = bpf_map_lookup_elem(&flows, key);
	if (f) {
		f->generation = c->generation;
		count->flows++;
	}
	return f;
}

/* Window scales are in force if both SYNs carried the option (RFC 7323 section 2.2). */
static __always_inline void flow_opened(struct flow *f)
{
	if (!f->syn_out || !f->syn_in)
		return;
	f->down.scale = f->wscale_out && f->wscale_in ? f->wscale_out - 1 : 0;
	f->up.scale = f->wscale_out && f->wscale_in ? f->wscale_in - 1 : 0;
	f->ready = 1;
}

/* A SYN leaves. */
static __always_inline void opens(struct flow *f, const struct flow_key *key, __u64 now)
{
	__u32 of_downloads = 0, of_uploads = 1;
	struct shares *down = bpf_map_lookup_elem(&shares, &of_downloads), *up = bpf_map_lookup_elem(&shares, &of_uploads);
	bool known = bpf_map_lookup_elem(&places, key->outside) != NULL;

	if (down)
		shares_open(down, now, known, &f->down.member);
	if (up)
		shares_open(up, now, known, &f->up.member);
}

static __always_inline void on_syn(struct flow *f, const struct flow_key *key, struct acks_config *c, struct acks_counters *count,
				   const struct segment *s, bool out, __u64 now)
{
	struct half *h;

	/* In an established connection the peer answers a SYN with an ACK and goes on (RFC 5961
	 * section 4). */
	if (f && f->ready && now - f->seen_ns < SYN_REUSE_NS)
		return;
	/* A new connection: a SYN without ACK for an unknown flow, or one with another sequence
	 * number in the place of an old flow. */
	if (!s->acks && (!f || (out ? f->syn_out && f->first_out != s->seq : f->syn_in && f->first_in != s->seq)))
		f = flow_begin(key, c, count);
	if (!f)
		return;
	f->seen_ns = now;
	f->excluded |= s->excluded;
	h = out ? &f->outer : &f->inner;
	if (out ? f->syn_out : f->syn_in) {
		probe_forget(h);
		h->probed_ns = 0;
		h->last_probed = 0;
		return;
	}
	if (out) {
		if (!s->acks)
			opens(f, key, now);
		f->syn_out = 1;
		f->wscale_out = s->wscale;
		f->mss_out = s->mss ? s->mss : MSS_DEFAULT;
		f->first_out = s->seq;
		f->sent_out = s->seq + 1;
	} else {
		f->syn_in = 1;
		f->wscale_in = s->wscale;
		f->mss_in = s->mss ? s->mss : MSS_DEFAULT;
		f->first_in = s->seq;
		f->sent_in = s->seq + 1;
	}
	probe_send(h, now, s->seq + 1, PROBE_SEQUENCE);
	flow_opened(f);
}

#ifdef WITHOUT_TYPES
#define flow_of_socket(skb, key, c, count) NULL
#else
/* Takes up a connection that is older than the program and has an end on this host: the socket
 * knows its scales. */
static __always_inline struct flow *flow_of_socket(struct __sk_buff *skb, const struct flow_key *key, struct acks_config *c,
						   struct acks_counters *count)
{
	struct tcp_sock___scales *tp;
	struct flow *f;
	__u32 scaled = 0, rtt_min;
	__u16 mss;

	if (!skb->sk)
		return NULL;
	tp = (struct tcp_sock___scales *)bpf_skc_to_tcp_sock(skb->sk);
	if (!tp)
		return NULL;
	f = flow_begin(key, c, count);
	if (!f)
		return NULL;
	mss = tp->advmss;
	scaled = BPF_CORE_READ_BITFIELD(tp, rx_opt.wscale_ok);
	f->down.scale = scaled ? BPF_CORE_READ_BITFIELD(tp, rx_opt.rcv_wscale) : 0;
	f->up.scale = scaled ? BPF_CORE_READ_BITFIELD(tp, rx_opt.snd_wscale) : 0;
	f->mss_out = f->mss_in = mss ? mss : MSS_DEFAULT;
	/* The socket may have seen the path empty, which this program came too late for. */
	rtt_min = tp->rtt_min.s[0].v;
	if (rtt_min && rtt_min < LAW_MAX_RTT_US)
		f->outer.rtt_min_us = rtt_min;
	f->local = 1;
	f->ready = 1;
	return f;
}
#endif

/* The first segment after a lease had expired: which windows were advertised meanwhile is unknown,
 * and the state is old. */
static __always_inline void flow_renew(struct flow *f, struct acks_config *c)
{
	if (f->generation == c->generation)
		return;
	__builtin_memset(&f->down.law, 0, sizeof(f->down.law));
	__builtin_memset(&f->up.law, 0, sizeof(f->up.law));
	__builtin_memset(&f->down.opposite, 0, sizeof(f->down.opposite));
	__builtin_memset(&f->up.opposite, 0, sizeof(f->up.opposite));
	f->down.edge_known = f->up.edge_known = 0;
	f->down.max_seq_known = f->up.max_seq_known = 0;
	/* The minimum RTT stays in `places`, unless the agent has emptied it. */
	__builtin_memset(&f->outer, 0, sizeof(f->outer));
	__builtin_memset(&f->inner, 0, sizeof(f->inner));
	f->generation = c->generation;
}

/* Starts round-trip probes with a segment that leaves towards the far end of a half. */
static __always_inline void send_half(struct half *h, __u32 *sent, const struct segment *s, __u64 now)
{
	/* A FIN takes a sequence number, too (RFC 9293 section 3.4). */
	__u32 end = s->seq + s->payload + s->fin;
	__s32 more = end - *sent;

	if (end != s->seq && (!*sent || (more > 0 && more < HORIZON))) {
		*sent = end;
		if (!s->stamped)
			probe_send(h, now, end, PROBE_SEQUENCE);
	} else if (s->payload && more <= 0) {
		/* A retransmission: ACKs and echoes wait until the hole is filled, so running
		 * probes would measure that. */
		probe_forget(h);
	}
	if (s->stamped)
		probe_send(h, now, s->tsval, PROBE_STAMP);
}

static __always_inline bool flow_end(struct flow *f, const struct flow_key *key, const struct segment *s, bool out)
{
	if (s->fin) {
		if (out)
			f->fin_out = 1;
		else
			f->fin_in = 1;
	}
	if (s->rst || (f->fin_out && f->fin_in)) {
		bpf_map_delete_elem(&flows, key);
		return true;
	}
	return false;
}

/* Whether a segment acknowledges data that was never sent, or carries data beyond the advertised
 * window. Its receiver would ignore it, and so does this program; 64 KB of tolerance. */
static __always_inline bool is_out_of_window(const struct segment *s, __u32 sent_by_other, const struct direction *own)
{
	if (sent_by_other && (__s32)(s->ack - sent_by_other) > 0)
		return true;
	return s->payload && own->edge_known && (__s32)(s->seq + s->payload - own->edge) > 0x10000;
}

/* Of an upload's full segment. */
static __always_inline __u32 segment_payload(const struct flow *f, bool stamped)
{
	return law_less(law_min(f->mss_out, f->mss_in), stamped ? TIMESTAMP_BYTES : 0);
}

/* A sample for the law of a direction, then its window. Not nested, since all frames share 512 bytes
 * of stack. */
static __always_inline void direction_step(struct flow *f, struct acks_config *c, __u32 upto, __u32 flags, __u64 now)
{
	int outcome = direction_sample(upto, flags, now);
	__u32 zero = 0, last, *n;
	struct direction *d;
	struct traced *t;

	if (outcome & ROUND_ENDED)
		end_round(flags, now);
	if (outcome & SAMPLE_TAKEN)
		decide_window(flags, now);
	if (!c->tracing || !(outcome & SAMPLE_TAKEN))
		return;
	n = bpf_map_lookup_elem(&traces, &zero);
	last = n ? *n - 1 : 0;
	t = bpf_map_lookup_elem(&trace, &last);
	if (t) {
		d = flags & SAMPLE_UP ? &f->up : &f->down;
		t->opposite_us = d->opposite.added_us;
		t->target = d->target;
	}
}

static __always_inline int handle_segment(struct __sk_buff *skb, bool out)
{
	struct flow_key key = {};
	struct segment s = {};
	struct acks_counters *count;
	struct acks_config *c;
	struct place_path *known;
	struct flow *f;
	__u64 now;
	__u32 zero = 0, rtt, flags;

	c = bpf_map_lookup_elem(&config, &zero);
	count = bpf_map_lookup_elem(&counters, &zero);
	now = bpf_ktime_get_ns();
	if (!c || !count || now > c->lease_until_ns)
		return NEXT;
	if (c->tracing) {
		__u64 *at = bpf_map_lookup_elem(&traced_at, &zero);

		if (at)
			*at = now;
	}
	count->packets++;
	if (segment_read(skb, c->link_bytes, out, &key, &s))
		return NEXT;
	count->segments++;
	f = bpf_map_lookup_elem(&flows, &key);
	if (s.syn && !s.rst && !s.fin) {
		/* A SYN-ACK ends the round trip of the SYN. */
		if (f && s.acks) {
			rtt = probe_return(out ? &f->inner : &f->outer, now, false, 0, s.ack);
			if (rtt && out)
				half_sample(&f->inner, now, rtt, false, NULL);
			if (rtt && !out) {
				half_sample(&f->outer, now, rtt, false, NULL);
				learn_place(&key, &f->outer, now, 0);
			}
		}
		on_syn(f, &key, c, count, &s, out, now);
		return NEXT;
	}
	if (!f && out && !s.rst)
		f = flow_of_socket(skb, &key, c, count);
	if (!f || !f->ready) {
		count->unknown++;
		return NEXT;
	}
	f->excluded |= s.excluded;
	if (f->excluded) {
		count->excluded++;
		return NEXT;
	}
	flow_renew(f, c);
	f->seen_ns = now;
	count->gso_packets += skb->gso_segs > 1;
	if (is_out_of_window(&s, out ? f->sent_in : f->sent_out, out ? &f->up : &f->down)) {
		count->out_of_window++;
		return NEXT;
	}
	if (!s.acks) {
		flow_end(f, &key, &s, out);
		return NEXT;
	}
	if (out) {
		if (skb->sk)
			f->local = 1;
		if (s.stamped)
			clock_tick(&f->inner.clock, now, s.tsval);
		rtt = probe_return(&f->inner, now, s.stamped, s.tsecr, s.ack);
		if (rtt)
			half_sample(&f->inner, now, rtt, s.stamped, NULL);
		f->inner.received_ns = now;
		upload_resumes(f, c, &s, now);
		send_half(&f->outer, &f->sent_out, &s, now);
		rewrite_window(skb, c, count, &key, &f->down, &s, now, (c->directions & ~c->lifted & DOWN) && !(c->forwarded_only && f->local), false, 0, 0);
	} else {
		if (s.stamped)
			clock_tick(&f->outer.clock, now, s.tsval);
		rtt = probe_return(&f->outer, now, s.stamped, s.tsecr, s.ack);
		if (rtt) {
			known = place_of(&places, key.outside);
			half_sample(&f->outer, now, rtt, s.stamped, known);
			learn_place(&key, &f->outer, now, s.stamped);
		}
		f->outer.received_ns = now;
		send_half(&f->inner, &f->sent_in, &s, now);
		flags = (rtt ? SAMPLE_RTT : 0) | (s.stamped ? SAMPLE_STAMP : 0);
		if ((c->directions & UP) && f->sent_out)
			direction_step(f, c, s.ack, flags | SAMPLE_UP, now);
		if ((c->directions & DOWN) && s.payload)
			direction_step(f, c, s.seq + s.payload, flags, now);
		rewrite_window(skb, c, count, &key, &f->up, &s, now, c->directions & ~c->lifted & UP, (__s32)(f->sent_out - s.ack) > 0,
			       f->sent_out, segment_payload(f, s.stamped));
	}
	flow_end(f, &key, &s, out);
	return NEXT;
}

SEC("classifier")
int acks_out(struct __sk_buff *skb)
{
	return handle_segment(skb, true);
}

SEC("classifier")
int acks_in(struct __sk_buff *skb)
{
	return handle_segment(skb, false);
}
