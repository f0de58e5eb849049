/* Sockets of this host are paced at the rate that the gate says, so that it need not refuse what they
 * send.
 *
 * signal: every RTT sample of a socket, and what the gate says (paced.h) · model: a socket is paced
 * while its packets come to the gate and the gate knows a rate · action: SO_MAX_PACING_RATE on the
 * socket, which the kernel keeps by a timer of its own where the device has no fq. A bound that the
 * application has set stays the upper bound, and is set again afterwards.
 *
 * The agent renews a lease. After it has expired, the next RTT sample restores the bound, so a killed
 * agent leaves no socket paced by it. Sockets without samples are idle or wait for an outage to end;
 * the walk of sockets.bpf.c restores those, too.
 *
 * A socket that was paced once has the kernel's own pacing from then on (SK_PACING_NEEDED, which no
 * call takes back): 120 % of its window per round trip, as on a host with fq.
 *
 * Needs Linux 5.9 (bpf_skc_to_tcp_sock) with BTF and cgroup v2.
 */
#define PACED_PINNING LIBBPF_PIN_BY_NAME
#include "receive.h"
#include "paced.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Without word of the gate, or a packet at the gate, for this long a socket is not paced: the default
 * timeout of the gate's law. */
#define STALE_NS 1000000000ull

/* What the agent sets; one entry. */
struct pacing_config {
	/* CLOCK_MONOTONIC, ns: after this nothing is paced. */
	__u64 lease_until_ns;
};

struct pacing_counters {
	/* Connections that are watched; bounds set, restored, and those that the kernel refused. */
	__u64 sockets, paced, restored, refused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pacing_config);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} pacing SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pacing_counters);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} pacing_tally SEC(".maps");

/* The rate at which the gate wants a socket paced; 0: not at all. */
static __always_inline __u64 wanted_rate(const struct pacing_config *c, const struct paced_socket *s)
{
	__u32 zero = 0;
	struct pace *said = bpf_map_lookup_elem(&pace, &zero);
	__u64 now = bpf_ktime_get_ns();

	if (!said || now > c->lease_until_ns)
		return 0;
	return law_less(now, law_min(said->at_ns, s->seen_ns)) < STALE_NS ? said->rate : 0;
}

static __always_inline int set_bound(struct bpf_sock_ops *ctx, __u32 bound)
{
	return bpf_setsockopt(ctx, SOL_SOCKET, SO_MAX_PACING_RATE, &bound, sizeof(bound));
}

static __always_inline void on_sample(struct bpf_sock_ops *ctx, const struct pacing_config *c, struct pacing_counters *count)
{
	struct bpf_sock *sk = ctx->sk;
	struct paced_socket *s;
	struct tcp_sock *tp;
	__u32 bound, wanted;
	bool ours;

	if (!sk)
		return;
	s = bpf_sk_storage_get(&paced, sk, 0, 0);
	tp = bpf_skc_to_tcp_sock(sk);
	if (!s || !tp)
		return;
	bound = pacing_bound(tp);
	wanted = law_min(wanted_rate(c, s), UNPACED - 1);
	/* One that the application or another program has set since stays. */
	ours = s->set && bound == s->set;
	if (!wanted || !bound) {
		if (ours && !set_bound(ctx, s->before))
			count->restored++;
		s->set = 0;
		return;
	}
	if (!ours)
		s->before = bound;
	wanted = law_min(wanted, s->before);
	if (wanted != bound && set_bound(ctx, wanted)) {
		count->refused++;
		return;
	}
	if (!s->set)
		count->paced++;
	s->set = wanted;
}

/* A connection is established: from now on its RTT samples call this program. */
static __always_inline void on_established(struct bpf_sock_ops *ctx, const struct pacing_config *c, struct pacing_counters *count)
{
	__u32 flags = ctx->bpf_sock_ops_cb_flags;
	struct bpf_sock *sk = ctx->sk;
	struct paced_socket *s;
	struct tcp_sock *tp;

	if (!sk || bpf_ktime_get_ns() > c->lease_until_ns)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !space_selected(tp))
		return;
	s = bpf_sk_storage_get(&paced, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		count->refused++;
		return;
	}
	count->sockets++;
	if (flags & BPF_SOCK_OPS_RTT_CB_FLAG)
		return;
	/* All programs on the socket share this word of flags: add to it, never replace it. */
	if (!bpf_sock_ops_cb_flags_set(ctx, flags | BPF_SOCK_OPS_RTT_CB_FLAG))
		s->flagged = 1;
}

SEC("sockops")
int pacing_sockets(struct bpf_sock_ops *ctx)
{
	__u32 zero = 0;
	struct pacing_config *c = bpf_map_lookup_elem(&pacing, &zero);
	struct pacing_counters *count = bpf_map_lookup_elem(&pacing_tally, &zero);

	if (!c || !count)
		return 1;
	if (ctx->op == BPF_SOCK_OPS_RTT_CB)
		on_sample(ctx, c, count);
	else if (ctx->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		on_established(ctx, c, count);
	return 1;
}
