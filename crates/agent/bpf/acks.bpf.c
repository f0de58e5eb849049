/* DRWA on passing ACKs: the window field of who receives, rewritten at one device between the two ends.
 *
 * signal: TCP segments at tc of the uplink device, both ways · model: law.h, once per direction of data of each flow; path.h for round
 * trips, their minima and whose queue it is · action: a smaller window in the segments that carry it. Downloads: in what goes out, for
 * this host and for those behind it. Uploads: in what comes in from the server; so the sender is held without any word from the
 * modem, and without a packet of our own.
 *
 * Never: a window raised; a right edge taken back that was told (RFC 9293 section 3.8.6.2.1), so what is left of it rounds up to the
 * scale; a segment that is signed, of MPTCP, cut or malformed; a flow whose scale is not known. SYNs pass unchanged. What arrives
 * before its start, or after a pause, passes unchanged: short replies, handshakes and idle flows are none of our business.
 *
 * Window = what the law wants + what the queue in the opposite direction needs (path.h). Rounds are whole round trips: within one,
 * ACKs come in the bursts of the other queue.
 *
 * Flows: known from their SYN and SYN-ACK, or from the local socket's scales; others pass. An entry goes with RST, with both FINs, or
 * when others need its place (LRU). Each word of an entry is written by one of both hooks only.
 *
 * Needs Linux 5.12 with BTF; TCX (6.6) or clsact.
 */
#include "acks.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Go on with the next program or filter; at the end of all, pass. */
#define NEXT (-1)
#define DOWN 1
#define UP 2
/* Where an ACK or data is, that is none: RFC 9293's comparison has a horizon of 2^31. */
#define HORIZON (1 << 30)
#define MSS_UNTOLD 536
/* Below so many segments a window is one larger: a factor alone leaves one of two where it is, since 2 · 1.75 · RTTmin/RTT is below
 * three as soon as sending them takes a tenth of RTTmin. To larger ones it would only add delay, a segment for each flow. */
#define SMALL 4
/* A connection that is silent for so long may have been followed by another. */
#define SYN_AGAIN_NS (30 * NS_PER_S)

static __noinline int learn(const struct flow_key *key, struct half *h, __u64 now, __u32 clocked)
{
	return place_learn(&places, key->outside, h, now, clocked);
}

/* Of a sample: an upload's; a round trip has just ended; with timestamps. */
enum { SEEN_UP = 1, SEEN_RTT = 2, SEEN_STAMP = 4 };

/* Payload, or an acknowledgment of payload, has come in up to `upto`. */
__attribute__((noinline)) int direction_sample(struct flow *f, struct acks_config *c, __u32 upto, __u32 seen, __u64 now)
{
	bool up = seen & SEEN_UP, fresh = seen & SEEN_RTT, stamped = seen & SEEN_STAMP, waiting;
	struct drwa_sample sample = { .arrived = 1 };
	struct direction *d;
	struct drwa_law law;
	struct acks_counters *count;
	__u64 rtt_min, queue, begun, mss;
	__u32 zero = 0, begins = 0;
	__s32 more;

	if (!f || !c)
		return 0;
	d = up ? &f->up : &f->down;
	law = up ? c->up : c->down;
	if (!d->top_known) {
		d->top = upto;
		d->top_known = 1;
		return 0;
	}
	more = upto - d->top;
	if (more <= 0 || more > HORIZON)
		return 0;
	/* A silence with data on its way is an outage and no pause: whatever window then passed unchanged would go out at once. */
	waiting = up && (__s32)(f->sent_out - d->top) > 0;
	d->top = upto;
	d->passed += more;
	count = bpf_map_lookup_elem(&counters, &zero);
	if (count && up)
		count->up_bytes += more;
	else if (count)
		count->down_bytes += more;
	if (d->law.begun && now - d->law.arrived_ns > c->pause_ns && !waiting) {
		__builtin_memset(&d->law, 0, sizeof(d->law));
		__builtin_memset(&d->opposite, 0, sizeof(d->opposite));
		d->started_at = d->passed;
	}
	if (!d->begun_ns)
		d->begun_ns = now;
	/* A pause before the start, too. */
	if (!d->law.begun && now - d->begun_ns > c->pause_ns && !waiting)
		d->started_at = d->passed;
	d->begun_ns = now;
	if (d->passed - d->started_at < (up ? c->up_start_bytes : c->down_start_bytes))
		return 0;
	mss = law_min(f->mss_out, f->mss_in);
	law.floor = law_min(law_max(c->floor_segments * mss, 1), law.max);
	law.increment = c->increment_segments * mss;
	/* Uploads without timestamps have exact samples by sequence number; downloads only what the window tells. */
	law.by_window = !up && !stamped;
	/* Half a path is none; of a local end the other half is nothing. */
	rtt_min = 0;
	if (f->outer.rtt_min_us && (f->inner.rtt_min_us || f->local))
		rtt_min = law_max((__u64)f->outer.rtt_min_us + f->inner.rtt_min_us, LAW_LEAST_RTT_US);
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
	begun = d->law.begun_ns;
	drwa_on_sample(&d->law, &law, now, &sample);
	if (count) {
		count->samples++;
		count->decisions += begun != d->law.begun_ns;
	}
	if (begun != d->law.begun_ns)
		opposite_round(&d->opposite, &law, &d->law, now, d->passed, up);
	/* Until the first round has ended the window passes. */
	if (d->law.rtt_us)
		d->wanted = opposite_window(&d->opposite, &law, &d->law);
	if (d->law.rtt_us && d->wanted < SMALL * mss)
		d->wanted = law_min(d->wanted + mss, SMALL * mss);
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
			t->opposite_us = d->opposite.on_top_us;
			t->wanted = d->wanted;
			t->law = law;
			__sync_fetch_and_add(n, 1);
		}
	}
	return 0;
}

/* A segment that tells a window, on its way to the sender. */
static __always_inline void tell(struct __sk_buff *skb, struct acks_config *c, struct acks_counters *count, const struct flow_key *key,
				 struct direction *d, const struct segment *s, __u64 now, bool allowed, bool waiting)
{
	__u32 told = (__u32)bpf_ntohs(s->window) << d->scale;
	__u32 unit = (1u << d->scale) - 1;
	__u32 window = told, least, field;
	__be16 written;

	allowed = allowed && d->edge_known && d->law.rtt_us && (waiting || now - d->law.arrived_ns <= c->pause_ns);
	if (allowed && c->exempting && bpf_map_lookup_elem(&exempt, key))
		allowed = false;
	if (allowed && told > d->wanted) {
		/* Down to what the field can tell, unless that is far less: below the floor ACKs would stop. */
		field = d->wanted >> d->scale;
		if ((field << d->scale) < d->wanted - d->wanted / 4)
			field++;
		/* What was told stays: up. */
		least = d->edge - s->ack;
		if ((__s32)least > 0 && least > (field << d->scale)) {
			field = (least + unit) >> d->scale;
			count->held++;
		}
		window = field << d->scale;
		if (window < told && field <= 0xffff) {
			written = bpf_htons(field);
			if (bpf_l4_csum_replace(skb, s->tcp + offsetof(struct tcphdr, check), s->window, written, sizeof(written)) ||
			    bpf_skb_store_bytes(skb, s->tcp + offsetof(struct tcphdr, window), &written, sizeof(written), 0)) {
				window = told;
			} else {
				d->rewritten++;
				count->rewritten++;
			}
		} else {
			window = told;
		}
	}
	if (!d->edge_known || (__s32)(s->ack + window - d->edge) > 0) {
		d->edge = s->ack + window;
		d->edge_known = 1;
	}
	d->told = window;
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

/* Scales are in force if both sides have offered one (RFC 7323 section 2.2). */
static __always_inline void flow_opened(struct flow *f)
{
	if (!f->syn_out || !f->syn_in)
		return;
	f->down.scale = f->offer_out && f->offer_in ? f->offer_out - 1 : 0;
	f->up.scale = f->offer_out && f->offer_in ? f->offer_in - 1 : 0;
	f->ready = 1;
}

static __always_inline void on_syn(struct flow *f, const struct flow_key *key, struct acks_config *c, struct acks_counters *count,
				   const struct segment *s, bool out, __u64 now)
{
	struct half *h;

	/* In the midst of a connection an end answers it with an ACK, and goes on (RFC 5961 section 4). */
	if (f && f->ready && now - f->seen_ns < SYN_AGAIN_NS)
		return;
	/* Its begin; a SYN with another number is another connection in the same place. */
	if (!s->acks && (!f || (out ? f->syn_out && f->first_out != s->seq : f->syn_in && f->first_in != s->seq)))
		f = flow_begin(key, c, count);
	if (!f)
		return;
	f->seen_ns = now;
	f->barred |= s->barred;
	h = out ? &f->outer : &f->inner;
	if (out ? f->syn_out : f->syn_in) {
		probe_forget(h);
		h->probed_ns = 0;
		h->last_probed = 0;
		return;
	}
	if (out) {
		f->syn_out = 1;
		f->offer_out = s->offer;
		f->mss_out = s->mss ? s->mss : MSS_UNTOLD;
		f->first_out = s->seq;
		f->sent_out = s->seq + 1;
	} else {
		f->syn_in = 1;
		f->offer_in = s->offer;
		f->mss_in = s->mss ? s->mss : MSS_UNTOLD;
		f->first_in = s->seq;
		f->sent_in = s->seq + 1;
	}
	probe_send(h, now, s->seq + 1, PROBE_SEQUENCE);
	flow_opened(f);
}

/* A connection that was there before us, with an end on this host. */
static __always_inline struct flow *flow_of_socket(struct __sk_buff *skb, const struct flow_key *key, struct acks_config *c,
						   struct acks_counters *count)
{
	struct tcp_sock___scales *tp;
	struct flow *f;
	__u32 told = 0, rtt_min;
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
	told = BPF_CORE_READ_BITFIELD(tp, rx_opt.wscale_ok);
	f->down.scale = told ? BPF_CORE_READ_BITFIELD(tp, rx_opt.rcv_wscale) : 0;
	f->up.scale = told ? BPF_CORE_READ_BITFIELD(tp, rx_opt.snd_wscale) : 0;
	f->mss_out = f->mss_in = mss ? mss : MSS_UNTOLD;
	/* It may have seen the path when it was empty; we come late. */
	rtt_min = tp->rtt_min.s[0].v;
	if (rtt_min && rtt_min < LAW_MAX_RTT_US)
		f->outer.rtt_min_us = rtt_min;
	f->local = 1;
	f->ready = 1;
	return f;
}

/* After a lease that had run out: what was told meanwhile is not known, and what was learnt is old. */
static __always_inline void flow_again(struct flow *f, struct acks_config *c)
{
	if (f->generation == c->generation)
		return;
	__builtin_memset(&f->down.law, 0, sizeof(f->down.law));
	__builtin_memset(&f->up.law, 0, sizeof(f->up.law));
	__builtin_memset(&f->down.opposite, 0, sizeof(f->down.opposite));
	__builtin_memset(&f->up.opposite, 0, sizeof(f->up.opposite));
	f->down.edge_known = f->up.edge_known = 0;
	f->down.top_known = f->up.top_known = 0;
	/* The place remembers its round trip, unless it was told to forget. */
	__builtin_memset(&f->outer, 0, sizeof(f->outer));
	__builtin_memset(&f->inner, 0, sizeof(f->inner));
	f->generation = c->generation;
}

/* Fills in what the segment sends towards the far end of a half. */
static __always_inline void send_half(struct half *h, __u32 *sent, const struct segment *s, __u64 now)
{
	/* A FIN takes a number, too (RFC 9293 section 3.4). */
	__u32 end = s->seq + s->payload + s->fin;
	__s32 more = end - *sent;

	if (end != s->seq && (!*sent || (more > 0 && more < HORIZON))) {
		*sent = end;
		if (!s->stamped)
			probe_send(h, now, end, PROBE_SEQUENCE);
	} else if (s->payload && more <= 0) {
		/* Echoes wait for the hole to be filled. */
		probe_forget(h);
	}
	if (s->stamped)
		probe_send(h, now, s->tsval, PROBE_STAMP);
}

static __always_inline bool ended(struct flow *f, const struct flow_key *key, const struct segment *s, bool out)
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

/* Acknowledges what was never sent, or sends what was never offered: an end would ignore it, and so do we. 64 KB of doubt. */
static __always_inline bool strange(const struct segment *s, __u32 sent_by_other, const struct direction *own)
{
	if (sent_by_other && (__s32)(s->ack - sent_by_other) > 0)
		return true;
	return s->payload && own->edge_known && (__s32)(s->seq + s->payload - own->edge) > 0x10000;
}

static __always_inline int pass(struct __sk_buff *skb, bool out)
{
	struct flow_key key = {};
	struct segment s = {};
	struct acks_counters *count;
	struct acks_config *c;
	struct place_seen *known;
	struct flow *f;
	__u64 now;
	__u32 zero = 0, rtt, seen;

	c = bpf_map_lookup_elem(&config, &zero);
	count = bpf_map_lookup_elem(&counters, &zero);
	now = bpf_ktime_get_ns();
	if (!c || !count || now > c->lease_until_ns)
		return NEXT;
	if (segment_read(skb, c->link_bytes, out, &key, &s))
		return NEXT;
	count->segments++;
	f = bpf_map_lookup_elem(&flows, &key);
	if (s.syn && !s.rst && !s.fin) {
		/* The answer to a SYN ends its round trip. */
		if (f && s.acks) {
			rtt = probe_return(out ? &f->inner : &f->outer, now, false, 0, s.ack);
			if (rtt && out)
				half_sample(&f->inner, now, rtt, false, NULL);
			if (rtt && !out) {
				half_sample(&f->outer, now, rtt, false, NULL);
				learn(&key, &f->outer, now, 0);
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
	f->barred |= s.barred;
	if (f->barred) {
		count->barred++;
		return NEXT;
	}
	flow_again(f, c);
	f->seen_ns = now;
	count->superpackets += skb->gso_segs > 1;
	if (strange(&s, out ? f->sent_in : f->sent_out, out ? &f->up : &f->down)) {
		count->strange++;
		return NEXT;
	}
	if (!s.acks) {
		ended(f, &key, &s, out);
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
		f->inner.heard_ns = now;
		send_half(&f->outer, &f->sent_out, &s, now);
		tell(skb, c, count, &key, &f->down, &s, now, (c->directions & ~c->lifted & DOWN) && !(c->forwarded_only && f->local), false);
	} else {
		if (s.stamped)
			clock_tick(&f->outer.clock, now, s.tsval);
		rtt = probe_return(&f->outer, now, s.stamped, s.tsecr, s.ack);
		if (rtt) {
			known = place_of(&places, key.outside);
			half_sample(&f->outer, now, rtt, s.stamped, known);
			learn(&key, &f->outer, now, s.stamped);
		}
		f->outer.heard_ns = now;
		send_half(&f->inner, &f->sent_in, &s, now);
		seen = (rtt ? SEEN_RTT : 0) | (s.stamped ? SEEN_STAMP : 0);
		if ((c->directions & UP) && f->sent_out)
			direction_sample(f, c, s.ack, seen | SEEN_UP, now);
		if ((c->directions & DOWN) && s.payload)
			direction_sample(f, c, s.seq + s.payload, seen, now);
		tell(skb, c, count, &key, &f->up, &s, now, c->directions & ~c->lifted & UP, (__s32)(f->sent_out - s.ack) > 0);
	}
	ended(f, &key, &s, out);
	return NEXT;
}

SEC("classifier")
int acks_out(struct __sk_buff *skb)
{
	return pass(skb, true);
}

SEC("classifier")
int acks_in(struct __sk_buff *skb)
{
	return pass(skb, false);
}
