/* DRWA in the receiving host: the window of a socket follows RTTmin / RTT, without touching kernel or application.
 *
 * signal: every ACK that a socket is about to send (the header-option callback, which runs before its window is chosen) · model:
 * law.h, one state per socket; the smallest RTT shared by all sockets to one address, since a latecomer never sees the empty path ·
 * action: TCP_WINDOW_CLAMP on the socket, which never moves the right edge to the left (RFC 9293 section 3.8.6.2.1) and which is set
 * again whenever the kernel's own autotuning has moved it.
 *
 * The agent renews a lease. After it has run out the first ACK lifts the clamp, and the program does nothing more; so a killed
 * agent leaves no window behind. Sockets that send no ACK are idle; theirs is lifted at the next start.
 *
 * Needs Linux 5.11 (TCP_WINDOW_CLAMP from BPF) with BTF and cgroup v2.
 */
#include "kernel.h"
#include "law.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#ifndef barrier
#define barrier() asm volatile("" ::: "memory")
#endif

#define SOL_TCP 6
#define TCP_WINDOW_CLAMP 10
#define AF_INET 2
/* As good as none; the next step of autotuning puts its own there. */
#define NO_CLAMP 0x3fffffff
/* A kernel that only asks how long options are, for a segment that it does not send. */
#define CURRENT_MSS BPF_WRITE_HDR_TCP_CURRENT_MSS

/* What the agent sets; one entry. */
struct receive_config {
	struct drwa_law law;
	/* CLOCK_MONOTONIC, ns: nothing is done after this. */
	__u64 lease_until_ns;
	/* Bytes received before anything is done: handshakes and short replies stay as they are. */
	__u64 start_bytes;
	/* Floor of the window in segments; law.floor is set from it for each socket. */
	__u32 floor_segments;
	/* Segments that every decision adds. */
	__u32 increment_segments;
	/* 1: only destinations of `places`; 2: all but those. */
	__u32 by_place;
	__u32 shared_minimum;
};

/* One socket. */
struct receive_socket {
	struct drwa law;
	__u32 last_echo;
	/* What was set last; 0: nothing. */
	__u32 applied;
	__u32 reapplied;
	/* Not before the decision of place: 0 unknown, 1 ours, 2 not ours. */
	__u32 place;
};

/* What can be seen of a flow from outside, renewed at each decision. */
struct receive_flow {
	__u32 remote[4];
	__u32 local_port, remote_port;
	__u64 at_ns;
	__u64 received;
	__u32 rtt_us, rtt_min_us, wanted, advertised, clamp, reapplied;
};

struct receive_counters {
	__u64 sockets, samples, decisions, applied, reapplied, refused, lifted;
};

struct minimum {
	__u64 rtt_us;
	__u64 seen_ns;
};

struct place {
	__u32 prefix;
	__u32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct receive_config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct receive_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct receive_socket);
} sockets SEC(".maps");

/* By remote address, IPv4 as ::ffff:a.b.c.d. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32[4]);
	__type(value, struct minimum);
} minima SEC(".maps");

/* By socket cookie. Who is not seen for long is pushed out by others. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct receive_flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct place);
	__type(value, __u8);
} places SEC(".maps");

static __always_inline void remote_address(struct bpf_sock_ops *ctx, __u32 to[4])
{
	if (ctx->family == AF_INET) {
		to[0] = 0;
		to[1] = 0;
		to[2] = bpf_htonl(0xffff);
		to[3] = ctx->remote_ip4;
		/* Else the compiler makes one read at a chosen offset of both, which no verifier takes. */
		barrier();
	} else {
		to[0] = ctx->remote_ip6[0];
		to[1] = ctx->remote_ip6[1];
		to[2] = ctx->remote_ip6[2];
		to[3] = ctx->remote_ip6[3];
	}
}

static __always_inline int set_clamp(struct bpf_sock_ops *ctx, int clamp)
{
	return bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &clamp, sizeof(clamp));
}

/* The lease has run out: the socket is the kernel's again. */
static __always_inline void lift(struct bpf_sock_ops *ctx, struct receive_socket *s, struct receive_counters *count)
{
	if (s->applied && !set_clamp(ctx, NO_CLAMP))
		count->lifted++;
	/* A renewed lease begins a new state: what was learnt is old. */
	__builtin_memset(&s->law, 0, sizeof(s->law));
	s->applied = 0;
}

/* RTT in µs from the echo of our timestamp; 0: none that is new. */
static __always_inline __u64 echoed(struct tcp_sock *tp, struct receive_socket *s, __u64 now)
{
	__u32 echo = tp->rx_opt.rcv_tsecr;
	__u32 clock, age;
	bool fine = false;

	if (!echo || echo == s->last_echo)
		return 0;
	s->last_echo = echo;
	/* Since Linux 6.7 a route can have timestamps in microseconds. */
	if (bpf_core_field_exists(tp->tcp_usec_ts))
		fine = BPF_CORE_READ_BITFIELD(tp, tcp_usec_ts);
	clock = fine ? (__u32)(now / 1000) : (__u32)(now / 1000000);
	age = clock - echo;
	/* Echoes of a clock that was set back. */
	if (age > (fine ? 30000000u : 30000u))
		return 0;
	if (fine)
		return age ? age : 1;
	return (age ? age : 1) * 1000ull;
}

static __always_inline void on_ack(struct bpf_sock_ops *ctx, struct receive_config *c, struct receive_counters *count)
{
	struct drwa_sample sample = {};
	struct drwa_law law;
	struct receive_socket *s;
	struct tcp_sock *tp;
	struct bpf_sock *sk = ctx->sk;
	struct minimum *shared;
	__u64 now = bpf_ktime_get_ns();
	__u64 decided, cookie;
	__u32 address[4];
	__u32 wanted, unread;

	if (!sk)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return;
	if (now > c->lease_until_ns) {
		if (s->applied || s->law.ready)
			lift(ctx, s, count);
		return;
	}
	remote_address(ctx, address);
	if (c->by_place && !s->place) {
		struct place key = { .prefix = 128, .address = { address[0], address[1], address[2], address[3] } };
		bool listed = bpf_map_lookup_elem(&places, &key) != NULL;

		s->place = listed == (c->by_place == 1) ? 1 : 2;
	}
	if (c->by_place && s->place == 2)
		return;
	/* Before the first bytes of a bulk transfer only the smallest RTT is of use. */
	law = c->law;
	law.floor = law_min(law_max((__u64)c->floor_segments * tp->advmss, 1), law.max);
	law.increment = (__u64)c->increment_segments * tp->advmss;
	unread = tp->rcv_nxt - tp->copied_seq;
	sample.received = tp->bytes_received;
	sample.copied = sample.received - law_min(unread, sample.received);
	sample.right_edge = sample.received + (__u32)(tp->rcv_wup + tp->rcv_wnd - tp->rcv_nxt);
	sample.rtt_us = echoed(tp, s, now);
	sample.arrived = 1;
	if (!s->law.ready)
		drwa_init(&s->law, &law);
	if (c->shared_minimum) {
		/* The handshake's RTT, where this end opened the connection: the emptiest the path ever is. */
		__u64 own = s->law.rtt_min_us;
		__u32 handshake = tp->rtt_min.s[0].v;

		if (handshake && handshake != ~0u)
			own = law_min(own, law_max(handshake, 1));
		if (sample.rtt_us)
			own = law_min(own, sample.rtt_us);
		shared = bpf_map_lookup_elem(&minima, address);
		if (shared && shared->rtt_us <= own) {
			own = shared->rtt_us;
		} else if (own < LAW_MAX_RTT_US) {
			struct minimum new = { .rtt_us = own, .seen_ns = now };

			bpf_map_update_elem(&minima, address, &new, BPF_ANY);
		}
		s->law.rtt_min_us = own;
	}
	count->samples++;
	if (sample.received < c->start_bytes) {
		/* Its round begins when the transfer is one. */
		if (sample.rtt_us)
			s->law.rtt_min_us = law_min(s->law.rtt_min_us, sample.rtt_us);
		return;
	}
	decided = s->law.begun_ns;
	drwa_on_sample(&s->law, &law, now, &sample);
	wanted = s->law.window;
	/* Until the first round has ended the kernel's own window stands. */
	if (!s->law.rtt_us)
		return;
	if (tp->window_clamp != wanted || tp->rcv_ssthresh > wanted) {
		/* Autotuning sets the clamp anew whenever it lets the buffer grow. */
		if (s->applied && tp->window_clamp != s->applied) {
			s->reapplied++;
			count->reapplied++;
		}
		if (set_clamp(ctx, wanted)) {
			count->refused++;
		} else {
			count->applied++;
			s->applied = wanted;
		}
	}
	if (decided != s->law.begun_ns) {
		struct receive_flow flow = {
			.remote = { address[0], address[1], address[2], address[3] },
			.local_port = ctx->local_port,
			.remote_port = bpf_ntohl(ctx->remote_port),
			.at_ns = now,
			.received = sample.received,
			.rtt_us = s->law.rtt_us,
			.rtt_min_us = s->law.rtt_min_us,
			.wanted = wanted,
			.advertised = tp->rcv_wnd,
			.clamp = tp->window_clamp,
			.reapplied = s->reapplied,
		};

		count->decisions++;
		cookie = bpf_get_socket_cookie(ctx);
		bpf_map_update_elem(&flows, &cookie, &flow, BPF_ANY);
	}
}

SEC("sockops")
int receive(struct bpf_sock_ops *ctx)
{
	__u32 zero = 0;
	struct receive_config *c = bpf_map_lookup_elem(&config, &zero);
	struct receive_counters *count = bpf_map_lookup_elem(&counters, &zero);

	if (!c || !count)
		return 1;
	switch (ctx->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		/* One word of flags is shared by all programs on the socket: add to it, never replace it. */
		bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		count->sockets++;
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		/* No option is reserved: the callback is only the moment. */
		if (ctx->args[0] != CURRENT_MSS)
			on_ack(ctx, c, count);
		break;
	}
	return 1;
}
