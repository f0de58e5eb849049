/* Existing sockets: the walk over all sockets of a network namespace.
 *
 * signal: every TCP socket, when the agent walks · model: whether the socket is in the selected
 * cgroup and has a selected destination · action: its ACKs begin to call DRWA's program (`join`,
 * repeated now and then, since another program that sets the shared word of flags can silence it);
 * it is restored (`leave`); its congestion control is changed, and changed back; it is
 * paced no longer (`unpace`).
 *
 * A walk takes some 3 ms on a host with 262,144 hash buckets, however few sockets there are: fine
 * for a start, an end and every few seconds, not for every ACK. Needs Linux 6.12 for `join`
 * (TCP_BPF_SOCK_OPS_CB_FLAGS), 5.15 for the others (bpf_setsockopt in a walk).
 */
#define PACED_PINNING LIBBPF_PIN_BY_NAME
#include "receive.h"
#include "congestion.h"
#include "headroom.h"
#include "paced.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define TCP_BPF_SOCK_OPS_CB_FLAGS_OPTION 1008
#define ESTABLISHED 1
#define FIN_WAIT1 4
#define FIN_WAIT2 5
#define TIME_WAIT 6
#define LISTEN 10
#define NEW_SYN_RECV 12

enum action {
	JOIN = 1,
	LEAVE = 2,
	LIST = 3,
	SWITCH = 4,
	SWITCH_BACK = 5,
	UNPACE = 6,
};

/* The task of one walk, and its results. */
struct walk_task {
	__u32 action;
	/* Sockets visited, changed, and those that the kernel refused. */
	__u32 visited, changed, refused;
	/* Callbacks that another program had silenced. */
	__u32 silenced;
	/* The last refusal, negative errno. */
	__s32 error;
	/* The cgroup whose sockets join, are listed or change, and its depth; depth 0 is the root,
	 * so all sockets. */
	__u64 cgroup;
	__u32 cgroup_level;
	/* For LEAVE. 1: buffers shrink only as far as no advertised window is cut; number of
	 * sockets that are not there yet; padding, always zero. */
	__u32 gentle, waiting, pad;
	/* Bytes by which buffers are larger, all together. */
	__u64 headroom;
};

/* What LIST writes for each socket. */
struct walk_socket {
	__u32 local[4], remote[4];
	__u32 local_port, remote_port, state;
	__u32 rtt_us, rtt_min_us;
	/* In packets, except for `mss` (bytes). */
	__u32 cwnd, out, mss;
	__u32 clamp, advertised;
	/* Bits. 1: our callback is on. 2: our clamp is set. */
	__u32 ours, pad;
	__u64 received, acked;
	char congestion[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk_task);
} task SEC(".maps");

static __always_inline void socket_address(struct sock_common *sk, bool remote, __u32 to[4])
{
	if (sk->skc_family == AF_INET) {
		to[0] = 0;
		to[1] = 0;
		to[2] = bpf_htonl(0xffff);
		to[3] = remote ? sk->skc_daddr : sk->skc_rcv_saddr;
		return;
	}
	for (int i = 0; i < 4; i++)
		to[i] = remote ? sk->skc_v6_daddr.in6_u.u6_addr32[i] : sk->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
}

static __always_inline bool in_cgroup(struct tcp_sock *tp, __u64 id, __u32 level)
{
	return !level || group_at(group_of(tp), level) == id;
}

static __always_inline int set_flags(struct tcp_sock *tp, int flags)
{
	return bpf_setsockopt(tp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS_OPTION, &flags, sizeof(flags));
}

static __always_inline long join(struct tcp_sock *tp, __u8 state, struct walk_task *t)
{
	struct receive_socket *s;
	long failed;

	/* Only sockets that can still receive. */
	if (state != ESTABLISHED && state != FIN_WAIT1 && state != FIN_WAIT2)
		return 0;
	if (tp->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)
		return 0;
	s = bpf_sk_storage_get(&sockets, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return 0;
	failed = set_flags(tp, tp->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	if (failed)
		return failed;
	if (s->flagged)
		t->silenced++;
	s->flagged = 1;
	t->changed++;
	return 0;
}

static __always_inline long leave(struct tcp_sock *tp, struct walk_task *t)
{
	struct receive_socket *s = bpf_sk_storage_get(&sockets, tp, 0, 0);
	long failed = 0;

	if (!s)
		return 0;
	/* A clamp that another program has set since the last ACK stays. */
	if (s->applied && tp->window_clamp == s->applied) {
		int clamp = s->app_clamp ? s->app_clamp : kernel_clamp(tp, s);

		failed = bpf_setsockopt(tp, SOL_TCP, TCP_WINDOW_CLAMP, &clamp, sizeof(clamp));
	}
	if (s->raised && !headroom_return(tp, tp, s, !t->gentle)) {
		t->waiting++;
		return 0;
	}
	if (s->flagged && (tp->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG))
		set_flags(tp, tp->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	if (failed)
		return failed;
	bpf_sk_storage_delete(&sockets, tp);
	t->changed++;
	return 0;
}

static __always_inline long change(struct tcp_sock *tp, __u8 state, const __u32 address[4], struct walk_task *t)
{
	struct route *route;
	struct congestion_before *before;
	char name[16], now[16] = {};
	long failed;

	if (state != ESTABLISHED)
		return 0;
	route = route_of(tp, address);
	if (!route)
		return 0;
	__builtin_memcpy(name, route->name, sizeof(name));
	bpf_probe_read_kernel(now, sizeof(now), tp->inet_conn.icsk_ca_ops->name);
	if (same_name(name, now))
		return 0;
	failed = bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
	if (failed)
		return failed;
	t->changed++;
	before = bpf_sk_storage_get(&switched, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (before && !before->name[0])
		__builtin_memcpy(before->name, now, sizeof(now));
	if (before)
		__builtin_memcpy(before->ours, name, sizeof(name));
	return 0;
}

static __always_inline long change_back(struct tcp_sock *tp, struct walk_task *t)
{
	struct congestion_before *before = bpf_sk_storage_get(&switched, tp, 0, 0);
	char name[16], now[16] = {};
	long failed;

	if (!before)
		return 0;
	bpf_probe_read_kernel(now, sizeof(now), tp->inet_conn.icsk_ca_ops->name);
	/* The application has chosen another one since. */
	if (!same_name(before->ours, now)) {
		bpf_sk_storage_delete(&switched, tp);
		return 0;
	}
	__builtin_memcpy(name, before->name, sizeof(name));
	failed = bpf_setsockopt(tp, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
	if (failed)
		return failed;
	bpf_sk_storage_delete(&switched, tp);
	t->changed++;
	return 0;
}

static __always_inline long unpace(struct tcp_sock *tp, struct walk_task *t)
{
	struct paced_socket *s = bpf_sk_storage_get(&paced, tp, 0, 0);
	__u32 before;
	long failed = 0;

	if (!s)
		return 0;
	before = s->before;
	/* A bound that the application has set since stays. */
	if (s->set && pacing_bound(tp) == s->set) {
		failed = bpf_setsockopt(tp, SOL_SOCKET, SO_MAX_PACING_RATE, &before, sizeof(before));
		t->changed += !failed;
	}
	if (s->flagged && (tp->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_RTT_CB_FLAG))
		set_flags(tp, tp->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_RTT_CB_FLAG);
	if (!failed)
		bpf_sk_storage_delete(&paced, tp);
	return failed;
}

static __always_inline void list(struct bpf_iter__tcp *ctx, struct tcp_sock *tp, struct sock_common *sk)
{
	struct receive_socket *s = bpf_sk_storage_get(&sockets, tp, 0, 0);
	struct walk_socket entry = {
		.local_port = sk->skc_num,
		.remote_port = bpf_ntohs(sk->skc_dport),
		.state = sk->skc_state,
		.rtt_us = tp->srtt_us >> 3,
		.rtt_min_us = tp->rtt_min.s[0].v,
		.cwnd = tp->snd_cwnd,
		.out = tp->packets_out,
		.mss = tp->mss_cache,
		.clamp = tp->window_clamp,
		.advertised = tp->rcv_wnd,
		.received = tp->bytes_received,
		.acked = tp->bytes_acked,
	};

	socket_address(sk, false, entry.local);
	socket_address(sk, true, entry.remote);
	if (tp->bpf_sock_ops_cb_flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)
		entry.ours |= 1;
	if (s && s->applied)
		entry.ours |= 2;
	bpf_probe_read_kernel(entry.congestion, sizeof(entry.congestion), tp->inet_conn.icsk_ca_ops->name);
	bpf_seq_write(ctx->meta->seq, &entry, sizeof(entry));
}

static __always_inline void headroom_count(struct tcp_sock *tp, struct walk_task *t)
{
	struct receive_socket *s = bpf_sk_storage_get(&sockets, tp, 0, 0);

	if (s && s->raised > s->app_buffer)
		t->headroom += s->raised - s->app_buffer;
}

SEC("iter/tcp")
int walk(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;
	struct receive_config *c;
	struct walk_task *t;
	struct tcp_sock *tp;
	__u32 zero = 0, address[4];
	long failed = 0;
	__u8 state;

	if (!sk)
		return 0;
	state = sk->skc_state;
	if (state == LISTEN || state == TIME_WAIT || state == NEW_SYN_RECV)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	c = bpf_map_lookup_elem(&config, &zero);
	t = bpf_map_lookup_elem(&task, &zero);
	if (!tp || !c || !t)
		return 0;
	socket_address(sk, true, address);
	headroom_count(tp, t);
	if (t->action == LEAVE) {
		failed = leave(tp, t);
	} else if (t->action == SWITCH_BACK) {
		failed = change_back(tp, t);
	} else if (t->action == UNPACE) {
		failed = unpace(tp, t);
	} else if (space_selected(tp) && in_cgroup(tp, t->cgroup, t->cgroup_level)) {
		if (t->action == LIST)
			list(ctx, tp, sk);
		else if (t->action == JOIN && user_selected(c, tp) && place_selected(c, address))
			failed = join(tp, state, t);
		else if (t->action == SWITCH)
			failed = change(tp, state, address, t);
	}
	t->visited++;
	if (failed) {
		t->refused++;
		t->error = failed;
	}
	return 0;
}
