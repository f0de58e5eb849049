/* Runs the laws on recorded streams in the kernel, for comparison with the Rust side. Only tests
 * load it.
 *
 * A test writes a stream of samples into a map; law.h, qcut.h, pacing.h and receiving.h process it;
 * the map then has the window after each sample.
 */
#include "kernel.h"
#include "pacing.h"
#include "receiving.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define STREAM 4096

struct drwa_step {
	__u64 now_ns;
	struct drwa_sample sample;
	/* The results. */
	__u64 window, rtt_us, rtt_min_us;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAM);
	__type(key, __u32);
	__type(value, struct drwa_step);
} stream SEC(".maps");

struct drwa_bench {
	struct drwa_law law;
	struct drwa state;
	__u32 steps, done;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct drwa_bench);
} bench SEC(".maps");

static long step_drwa(__u32 i, void *unused)
{
	__u32 zero = 0;
	struct drwa_bench *b = bpf_map_lookup_elem(&bench, &zero);
	struct drwa_step *step = bpf_map_lookup_elem(&stream, &i);

	if (!b || !step)
		return 1;
	drwa_on_sample(&b->state, &b->law, step->now_ns, &step->sample);
	step->window = b->state.window;
	step->rtt_us = drwa_rtt_estimate(&b->state);
	step->rtt_min_us = b->state.rtt_min_us;
	b->done = i + 1;
	return 0;
}

SEC("classifier")
int run_drwa(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct drwa_bench *b = bpf_map_lookup_elem(&bench, &zero);

	if (!b)
		return 1;
	bpf_loop(b->steps, step_drwa, NULL, 0);
	return 0;
}

struct qcut_step {
	__u64 now_ns;
	/* Bytes of a packet, else 0. */
	__u64 passed;
	/* A report, where `passed` is 0 and `reported` is 1. */
	struct qcut_report report;
	__u32 reported, open;
	/* The results; `open` is one, too. */
	__u64 bytes, rate, limit;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAM);
	__type(key, __u32);
	__type(value, struct qcut_step);
} gate_stream SEC(".maps");

struct qcut_bench {
	struct qcut_law law;
	__u32 steps, done;
	struct qcut state;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct qcut_bench);
} gate_bench SEC(".maps");

static long step_qcut(__u32 i, void *unused)
{
	__u32 zero = 0;
	struct qcut_bench *b = bpf_map_lookup_elem(&gate_bench, &zero);
	struct qcut_step *step = bpf_map_lookup_elem(&gate_stream, &i);

	if (!b || !step)
		return 1;
	if (step->reported)
		qcut_on_report(&b->state, &b->law, step->now_ns, &step->report);
	else if (step->passed)
		qcut_on_passed(&b->state, step->now_ns, step->passed);
	step->bytes = qcut_bytes(&b->state, step->now_ns);
	step->rate = b->state.rated ? b->state.rate : ~0ull;
	step->limit = qcut_limit(&b->state, &b->law);
	step->open = qcut_silent(&b->state, &b->law, step->now_ns) || step->bytes <= step->limit;
	b->done = i + 1;
	return 0;
}

SEC("classifier")
int run_qcut(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct qcut_bench *b = bpf_map_lookup_elem(&gate_bench, &zero);

	if (!b)
		return 1;
	bpf_loop(b->steps, step_qcut, NULL, 0);
	return 0;
}

struct pacing_step {
	__u64 now_ns;
	/* A packet; a report of the rate, where `bytes` is 0. */
	__u64 bytes;
	__u32 flow, bare;
	__u64 rate, occupancy, full, target_ns, floor;
	/* The results. */
	__u64 pace, part, mean, deviation;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAM);
	__type(key, __u32);
	__type(value, struct pacing_step);
} pacing_stream SEC(".maps");

struct pacing_bench {
	__u32 steps, done;
	__u64 swept_ns, part, acks;
	struct pacing_steadiness steadiness;
	struct gate_share share;
	__u64 accounts[GATE_FLOWS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pacing_bench);
} pacing_bench SEC(".maps");

/* As `sweep` of gate.bpf.c. */
__noinline int sweep_pacing(__u32 i, __u64 now, __u64 rate)
{
	__u32 zero = 0;
	struct pacing_bench *b = bpf_map_lookup_elem(&pacing_bench, &zero);

	if (!b)
		return 0;
	gate_share_add(&b->share, gate_account_read(b->accounts[i % GATE_FLOWS], now));
	if (i % GATE_FLOWS == GATE_FLOWS - 1)
		gate_share_end_round(&b->share, rate);
	return 0;
}

static long step_pacing(__u32 i, void *unused)
{
	__u32 zero = 0;
	struct pacing_bench *b = bpf_map_lookup_elem(&pacing_bench, &zero);
	struct pacing_step *step = bpf_map_lookup_elem(&pacing_stream, &i);
	__u64 *account, now;

	if (!b || !step)
		return 1;
	now = step->now_ns;
	if (step->bytes) {
		account = &b->accounts[step->flow % GATE_FLOWS];
		*account = gate_account_write(law_more(gate_account_read(*account, now), step->bytes), now);
		if (step->bare)
			b->acks = gate_account_write(law_more(gate_account_read(b->acks, now), step->bytes), now);
	} else if (law_less(now, b->swept_ns) >= 20000000) {
		__builtin_memset(&b->share, 0, sizeof(b->share));
		for (__u32 n = 0; n < (GATE_ROUNDS + 1) * GATE_FLOWS; n++)
			sweep_pacing(n, now, step->rate);
		b->swept_ns = now;
		b->part = pacing_part(&b->share);
		pacing_sample(&b->steadiness, step->rate);
	}
	step->pace = 0;
	if (pacing_beside_download(b->acks, now) && pacing_paces(&b->steadiness, step->rate, step->target_ns, step->floor))
		step->pace = pacing_pace(step->rate, step->occupancy, step->full, b->part);
	step->part = b->part;
	step->mean = b->steadiness.mean;
	step->deviation = b->steadiness.deviation;
	b->done = i + 1;
	return 0;
}

SEC("classifier")
int run_pacing(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct pacing_bench *b = bpf_map_lookup_elem(&pacing_bench, &zero);

	if (!b)
		return 1;
	bpf_loop(b->steps, step_pacing, NULL, 0);
	return 0;
}

struct refusal_step {
	__u64 limit, fair, before, after, rate, busy, idle_ns, srtt_us, rtt_min_us;
	__u32 refused_lately, alone, busy_now, pad;
	/* The results. */
	__u64 allowed, train, busy_then, reaction_ms;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAM);
	__type(key, __u32);
	__type(value, struct refusal_step);
} refusal_stream SEC(".maps");

struct refusal_bench {
	__u32 steps, done;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct refusal_bench);
} refusal_bench SEC(".maps");

static long step_refusal(__u32 i, void *unused)
{
	__u32 zero = 0;
	struct refusal_bench *b = bpf_map_lookup_elem(&refusal_bench, &zero);
	struct refusal_step *step = bpf_map_lookup_elem(&refusal_stream, &i);

	if (!b || !step)
		return 1;
	step->reaction_ms = gate_reaction_ms(step->srtt_us);
	step->allowed = gate_allowed(step->limit, step->before, step->after, step->fair, false, GATE_TCP, step->refused_lately,
				     step->alone);
	step->train = gate_train(step->busy, step->rate, gate_longer_us(step->reaction_ms, step->rtt_min_us));
	step->busy_then = gate_busy(step->busy, step->busy_now, step->idle_ns);
	b->done = i + 1;
	return 0;
}

SEC("classifier")
int run_refusal(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct refusal_bench *b = bpf_map_lookup_elem(&refusal_bench, &zero);

	if (!b)
		return 1;
	bpf_loop(b->steps, step_refusal, NULL, 0);
	return 0;
}

struct backed_step {
	__u64 now_ns, rtt_us;
	struct drwa_sample sample;
	/* The results. */
	__u64 rate, buffer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAM);
	__type(key, __u32);
	__type(value, struct backed_step);
} backed_stream SEC(".maps");

struct backed_bench {
	__u64 own, rtt_min_us;
	__u32 steps, done;
	struct backed state;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct backed_bench);
} backed_bench SEC(".maps");

static long step_backed(__u32 i, void *unused)
{
	__u32 zero = 0;
	struct backed_bench *b = bpf_map_lookup_elem(&backed_bench, &zero);
	struct backed_step *step = bpf_map_lookup_elem(&backed_stream, &i);

	if (!b || !step)
		return 1;
	backed_on_ack(&b->state, step->now_ns, &step->sample, step->rtt_us);
	step->rate = b->state.rate;
	step->buffer = backed_buffer(&b->state, b->own, b->rtt_min_us);
	b->done = i + 1;
	return 0;
}

SEC("classifier")
int run_backed(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct backed_bench *b = bpf_map_lookup_elem(&backed_bench, &zero);

	if (!b)
		return 1;
	bpf_loop(b->steps, step_backed, NULL, 0);
	return 0;
}

struct receive_step {
	__u64 now_ns;
	struct drwa_sample sample;
	/* TSval of the segment that arrives, in a connection that has timestamps. */
	__u32 stamp, stamped;
	/* The results; `target` is 0 before the first decision. */
	__u64 target, rtt_min_us;
	__u32 towards_us, away_us, added_us;
	/* Which of two connections, and 1: it begins; 2: this host opens it. */
	__u16 which, begins;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STREAM);
	__type(key, __u32);
	__type(value, struct receive_step);
} receive_stream SEC(".maps");

struct receive_bench {
	struct drwa_law law;
	__u32 steps, done;
	__u32 address[4];
	__u64 mss;
};

/* A connection. */
struct receiver {
	struct drwa state;
	struct half path;
	struct opposite opposite;
	struct member member;
	struct share share;
	__u64 grown;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct receiver);
} receivers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct receive_bench);
} receive_bench SEC(".maps");

/* As in receive.h: what all connections share. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32[4]);
	__type(value, struct minimum);
} shared_minima SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32[4]);
	__type(value, struct place_path);
} shared_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shares);
} shared_shares SEC(".maps");

static long step_receive(__u32 i, void *unused)
{
	__u32 zero = 0, which;
	struct receive_bench *b = bpf_map_lookup_elem(&receive_bench, &zero);
	struct receive_step *step = bpf_map_lookup_elem(&receive_stream, &i);
	struct receiver *r;
	__u32 address[4];
	__u64 own, target = 0;
	bool grows = false;

	if (!b || !step)
		return 1;
	which = step->which;
	r = bpf_map_lookup_elem(&receivers, &which);
	if (!r)
		return 1;
	__builtin_memcpy(address, b->address, sizeof(address));
	/* Two connections to two addresses. */
	address[0] += which;
	if (step->begins) {
		__builtin_memset(r, 0, sizeof(*r));
		drwa_init(&r->state, &b->law);
		if (step->begins == 2)
			receiving_open(&shared_shares, &shared_minima, address, step->now_ns, &r->member);
	}
	if (step->sample.arrived) {
		own = r->state.rtt_min_us;
		if (step->sample.rtt_us)
			own = law_min(own, step->sample.rtt_us);
		r->state.rtt_min_us = law_max(minimum_of(&shared_minima, address, own, step->now_ns), LAW_MIN_RTT_US);
		receiving_measure(&r->path, &r->opposite, &r->state, &shared_paths, address, step->now_ns, step->sample.rtt_us,
				  step->stamped, step->stamp);
		receiving_others(&shared_shares, &b->law, &r->state, step->now_ns, &r->member, &r->share);
	}
	if (receiving_sample(&r->state, &r->opposite, r->grown, r->member.alone, &b->law, step->now_ns, &step->sample, &r->share, b->mss, &grows, &target))
		r->grown = !grows;
	step->target = target;
	step->rtt_min_us = r->state.rtt_min_us;
	step->towards_us = r->path.towards_us;
	step->away_us = r->path.away_us;
	step->added_us = r->opposite.added_us;
	b->done = i + 1;
	return 0;
}

SEC("classifier")
int run_receive(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct receive_bench *b = bpf_map_lookup_elem(&receive_bench, &zero);

	if (!b)
		return 1;
	bpf_loop(b->steps, step_receive, NULL, 0);
	return 0;
}
