/* The uplink's gate: below the operating system there is never more than drains within the target.
 *
 * signal: every packet on its way into the uplink's device, and the modem's reports · model: qcut.h
 * (QCUT-D's estimate of the bytes in the firmware buffer), gate.h (fair shares) · action: a packet
 * above the limit is refused. A socket of this host sees backpressure: the packet returns to it and
 * is sent with the next acknowledgment. Forwarded traffic sees a loss, which gate.h makes fair;
 * there is no queue above the gate in which it could wait.
 *
 * Two programs share one state under its spin lock: `egress` runs for each packet, `report` for
 * each report of the modem. The agent runs `report` by BPF_PROG_TEST_RUN with the report in place
 * of a packet. So the agent decides nothing, the cost of a packet does not depend on the ring, and
 * any number of processors may send. The sweep over the accounts takes no lock: each account is
 * read at once.
 *
 * Without reports for the law's timeout the gate is open, with a driver's reports also before the
 * first estimate of the rate. The agent renews a lease; after it has
 * expired everything passes.
 *
 * With `pace` it says at which rate sockets of this host are to be paced (pacing.h), with each packet
 * and each report, and notes when a socket's packet came last; pacing.bpf.c sets the rate.
 *
 * The agent finds programs and maps by their names, so these stay the same from version to version.
 *
 * Needs Linux 5.6 (global functions; spin locks, bounded loops) with BTF.
 */
#include "kernel.h"
#include "pacing.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PACED_PINNING LIBBPF_PIN_NONE
#include "paced.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* TC_ACT_UNSPEC, which is TCX_NEXT: the next program or filter decides. TC_ACT_SHOT, which is
 * TCX_DROP. */
#define PASS -1
#define REFUSE 2
/* Interval between two sweeps of the accounts. */
#define SWEEP_NS 20000000ull
#define TCP 6
#define ACK 0x10
#define FIN_SYN_RST 0x07

/* What the agent sets; one entry. */
struct gate_config {
	struct qcut_law law;
	/* CLOCK_MONOTONIC, ns: after this everything passes. */
	__u64 lease_until_ns;
	/* Bytes of the link-layer header, which the modem does not count. */
	__u32 link_header;
	/* Everything passes before the first estimate of the rate: a driver's reports begin in the
	 * middle of a transfer. A modem's limit is the floor until then, as in QCUT. */
	__u32 wait_for_rate;
};

struct gate_state {
	struct bpf_spin_lock lock;
	__u32 pad;
	/* Fair share in units of an account, and when it was computed. It is an eighth below the
	 * exact one, so that flows that are even all count as above it. */
	__u64 fair, swept_ns;
	struct gate_share share;
	/* See gate_busy, and when it was updated last. */
	__u64 busy, busy_ns;
	/* Pacing: the share of a flow by the last sweep, an account of bare acknowledgments, and how
	 * steady the rate is. */
	__u64 part, acks;
	struct pacing_steadiness steadiness;
	__u64 accounts[GATE_FLOWS];
	/* When a flow was refused last, ms. */
	__u32 refused_ms[GATE_FLOWS];
	struct qcut law;
};

/* What the agent reads, updated with each report. */
struct gate_view {
	__u64 at_ns, written_ns, reports;
	__u64 occupancy, limit, rate, fair;
	/* As reported, before any estimate. */
	__u64 reported;
};

struct gate_counters {
	__u64 passed, passed_bytes;
	/* Of these, packets above the limit: below the fair share, sparse, or bare acknowledgments.
	 */
	__u64 privileged;
	/* Refused to sockets of this host, and to forwarded traffic. */
	__u64 refused_own, refused_forwarded;
	/* Passed because there was no fresh report, no estimate of the rate, or no lease. */
	__u64 unguarded;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_state);
} state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_view);
} view SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gate_counters);
} counters SEC(".maps");

static __always_inline __u32 kind_of(struct __sk_buff *skb)
{
	__u8 ip[20], tcp[2];
	__u32 header, total;

	if (bpf_skb_load_bytes_relative(skb, 0, ip, sizeof(ip), BPF_HDR_START_NET))
		return GATE_OTHER;
	if (ip[0] >> 4 == 4 && ip[9] == TCP) {
		header = (ip[0] & 15) * 4;
		total = ip[2] << 8 | ip[3];
	} else if (ip[0] >> 4 == 6 && ip[6] == TCP) {
		header = 40;
		total = 40 + (ip[4] << 8 | ip[5]);
	} else {
		return GATE_OTHER;
	}
	/* The header's length in words, and its flags. */
	if (bpf_skb_load_bytes_relative(skb, header + 12, tcp, sizeof(tcp), BPF_HDR_START_NET))
		return GATE_OTHER;
	if ((tcp[1] & (ACK | FIN_SYN_RST)) == ACK && total == header + (tcp[0] >> 4) * 4)
		return GATE_BARE;
	return GATE_TCP;
}

static __always_inline void update_busy(struct gate_state *s, __u64 now, __u64 occupancy)
{
	__u64 passed = law_less(now, s->busy_ns);

	if (passed < GATE_BUSY_STEP_NS)
		return;
	s->busy = gate_busy(s->busy, occupancy, passed);
	s->busy_ns = now;
}

/* Says at which rate each socket of this host is to be paced: `Pacer::decide`. */
static __always_inline void say_pace(const struct gate_state *s, const struct qcut_law *law, __u64 now, __u64 rate, __u64 occupancy,
				     __u64 limit, bool silent)
{
	__u32 zero = 0;
	struct pace *said = bpf_map_lookup_elem(&pace, &zero);
	bool paces = !silent && pacing_beside_download(s->acks, now) &&
		     pacing_paces(&s->steadiness, rate, law->target_ns, law->floor);

	if (!said)
		return;
	/* A TCP flow above its fair share is refused at one and a half limits, see gate_allowed. */
	said->rate = paces ? pacing_pace(rate, occupancy, limit + limit / 2, s->part) : 0;
	said->at_ns = now;
}

SEC("classifier")
int egress(struct __sk_buff *skb)
{
	__u32 zero = 0, segments, kind, flow, now_ms, *refused_ms;
	struct gate_config *c = bpf_map_lookup_elem(&config, &zero);
	struct gate_state *s = bpf_map_lookup_elem(&state, &zero);
	struct gate_counters *count = bpf_map_lookup_elem(&counters, &zero);
	__u64 now = bpf_ktime_get_ns();
	__u64 bytes, occupancy, left, limit, rate, before, after, allowed, *account;
	bool forwarded, silent, refused_lately, open, alone = false;
	__u32 reaction_ms = GATE_REACTION_MS;
	__u64 longer_us = 0;
	struct bpf_sock *sk = skb->sk;
	struct qcut_law law;

	if (!c || !s || !count)
		return PASS;
	if (now > c->lease_until_ns) {
		count->unguarded++;
		return PASS;
	}
	law = c->law;
	segments = law_max(skb->gso_segs, 1);
	/* On the wire each segment of a GSO packet has a header of its own. */
	bytes = law_less(law_max(skb->wire_len, skb->len), (__u64)segments * c->link_header);
	kind = kind_of(skb);
	forwarded = !sk;
	if (kind == GATE_TCP && sk && (sk = bpf_sk_fullsock(sk))) {
		struct bpf_tcp_sock *tp = bpf_tcp_sock(sk);

		if (law.pace) {
			struct paced_socket *seen = bpf_sk_storage_get(&paced, sk, 0, 0);

			if (seen)
				seen->seen_ns = now;
		}
		if (tp) {
			alone = !tp->packets_out;
			/* srtt_us is in eighths of a microsecond. */
			reaction_ms = gate_reaction_ms(tp->srtt_us / 8);
			longer_us = gate_longer_us(reaction_ms, tp->rtt_min);
		}
	}
	flow = bpf_get_hash_recalc(skb) % GATE_FLOWS;
	account = &s->accounts[flow];
	refused_ms = &s->refused_ms[flow];
	now_ms = now / 1000000;

	bpf_spin_lock(&s->lock);
	silent = qcut_silent(&s->law, &law, now) || (c->wait_for_rate && !s->law.rated);
	occupancy = qcut_bytes(&s->law, now);
	limit = qcut_limit(&s->law, &law);
	update_busy(s, now, occupancy);
	before = gate_account_read(*account, now);
	after = before + bytes;
	refused_lately = kind == GATE_TCP && now_ms - *refused_ms < reaction_ms;
	allowed = gate_allowed(limit, before, after, s->fair, forwarded, kind, refused_lately, alone);
	open = silent || occupancy <= allowed + gate_train(s->busy, s->law.rate, longer_us);
	if (open) {
		qcut_on_passed(&s->law, now, bytes);
		*account = gate_account_write(after, now);
		if (kind == GATE_BARE)
			s->acks = gate_account_write(gate_account_read(s->acks, now) + bytes, now);
	} else if (!refused_lately) {
		*refused_ms = now_ms;
	}
	left = qcut_bytes(&s->law, now);
	rate = s->law.rate;
	bpf_spin_unlock(&s->lock);
	if (law.pace)
		say_pace(s, &law, now, rate, left, limit, silent);

	if (!open) {
		if (forwarded)
			count->refused_forwarded++;
		else
			count->refused_own++;
		return REFUSE;
	}
	count->passed++;
	count->passed_bytes += bytes;
	if (silent)
		count->unguarded++;
	else if (occupancy > limit)
		count->privileged++;
	return PASS;
}

/* One step of a sweep, numbered over all accounts and rounds. Not static, so that the verifier
 * checks it once and not a thousand times. */
__noinline int sweep(__u32 i, __u64 now)
{
	__u32 zero = 0;
	struct gate_state *s = bpf_map_lookup_elem(&state, &zero);

	if (!s)
		return 0;
	gate_share_add(&s->share, gate_account_read(s->accounts[i % GATE_FLOWS], now));
	if (i % GATE_FLOWS == GATE_FLOWS - 1)
		gate_share_end_round(&s->share, s->law.rate);
	return 0;
}

/* Takes a report in place of a packet, after 16 bytes of padding. */
SEC("classifier")
int report(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct gate_config *c = bpf_map_lookup_elem(&config, &zero);
	struct gate_state *s = bpf_map_lookup_elem(&state, &zero);
	struct gate_view *v = bpf_map_lookup_elem(&view, &zero);
	__u64 now = bpf_ktime_get_ns();
	__u64 occupancy, limit, rate, written;
	struct qcut_report r;
	struct qcut_law law;

	if (!c || !s || !v || bpf_skb_load_bytes(skb, 16, &r, sizeof(r)))
		return 1;
	law = c->law;
	bpf_spin_lock(&s->lock);
	qcut_on_report(&s->law, &law, now, &r);
	occupancy = qcut_bytes(&s->law, now);
	update_busy(s, now, occupancy);
	limit = qcut_limit(&s->law, &law);
	rate = s->law.rate;
	written = s->law.written_ns;
	bpf_spin_unlock(&s->lock);

	if (now - s->swept_ns >= SWEEP_NS) {
		__builtin_memset(&s->share, 0, sizeof(s->share));
		for (__u32 i = 0; i < (GATE_ROUNDS + 1) * GATE_FLOWS; i++)
			sweep(i, now);
		s->fair = s->share.fair - s->share.fair / 8;
		s->part = pacing_part(&s->share);
		pacing_sample(&s->steadiness, rate);
		s->swept_ns = now;
	}
	if (law.pace)
		say_pace(s, &law, now, rate, occupancy, limit, false);
	v->at_ns = now;
	v->written_ns = written;
	v->reports++;
	v->occupancy = occupancy;
	v->limit = limit;
	v->rate = rate;
	v->fair = s->fair;
	v->reported = r.occupancy;
	return 0;
}
