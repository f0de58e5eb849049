/* DRWA in the receiving host: the window of a socket follows RTTmin / RTT, without changes to
 * kernel or application.
 *
 * signal: every ACK that a socket is about to send (the header-option callback, which runs before
 * its window is chosen) · model: law.h, one state per socket; the smallest RTT shared by all
 * sockets to one address, since a latecomer never sees the empty path; path.h, so that an upload's
 * queue does not close a download's window · action: TCP_WINDOW_CLAMP on the socket. It never moves
 * the right edge to the left (RFC 9293 section 3.8.6.2.1), and it is set again whenever the
 * kernel's autotuning has moved it.
 *
 * The agent renews a lease. After the lease has expired, the next ACK lifts the clamp and the
 * program does nothing more, so a killed agent leaves no window behind. Sockets that send no ACK
 * are idle; their clamp is lifted when the agent starts again.
 *
 * Needs Linux 5.11 (TCP_WINDOW_CLAMP from BPF) with BTF and cgroup v2.
 */
#define RECEIVING_APART
#include "receive.h"
#include "headroom.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The kernel only asks for the length of options, for a segment that it does not send. */
#define CURRENT_MSS BPF_WRITE_HDR_TCP_CURRENT_MSS
/* The kernel refuses smaller clamps (SOCK_MIN_RCVBUF / 2 is some 2.3 KB); a smaller target would be
 * set again with every ACK. */
#define MIN_WINDOW 4096
/* The initial window of a sender, in segments (RFC 6928). */
#define INITIAL_SEGMENTS 10

static __always_inline int set_clamp(struct bpf_sock_ops *ctx, int clamp)
{
	return bpf_setsockopt(ctx, SOL_TCP, TCP_WINDOW_CLAMP, &clamp, sizeof(clamp));
}

/* Restores the socket's window: the kernel's own, or the application's clamp. One that autotuning,
 * the application or another program has set since the last ACK stays. */
static __always_inline void lift(struct bpf_sock_ops *ctx, struct tcp_sock *tp, struct receive_socket *s,
				 struct receive_counters *count)
{
	bool ours = tp->window_clamp == s->applied;

	if (s->raised)
		headroom_return(ctx, tp, s, false);
	if (!s->applied)
		return;
	if (ours && !set_clamp(ctx, s->app_clamp ? s->app_clamp : kernel_clamp(tp, s)))
		count->lifted++;
	s->applied = 0;
}

/* RTT in µs from the echo of this host's timestamp; 0: no new echo. */
static __always_inline __u64 echo_rtt_us(struct tcp_sock *tp, struct receive_socket *s, __u64 now)
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
	/* An echo of a clock that was set back. */
	if (age > (fine ? 30000000u : 30000u))
		return 0;
	return law_max(fine ? age : age * 1000ull, LAW_MIN_RTT_US);
}

/* The minimum RTT to an address: of this socket, of its handshake, or of another socket. */
static __always_inline __u64 min_rtt_us(struct tcp_sock *tp, const __u32 address[4], __u64 own, __u64 sample, __u64 now)
{
	/* After an active open the handshake is the emptiest that this path ever was. */
	__u32 handshake = tp->rtt_min.s[0].v;

	if (handshake && handshake != ~0u)
		own = law_min(own, law_max(handshake, LAW_MIN_RTT_US));
	if (sample)
		own = law_min(own, sample);
	return minimum_of(&minima, address, own, now);
}

/* Splits the round trip's queueing into both directions, if a round trip has ended. Uploads are
 * measured, too, because a download that begins beside one could not know. */
static __noinline int measure_path(struct tcp_sock *tp, struct receive_socket *s, const __u32 *address, __u64 now, __u32 rtt_us)
{
	bool stamped = BPF_CORE_READ_BITFIELD(tp, rx_opt.tstamp_ok);

	receiving_measure(&s->path, &s->opposite, &s->law, &paths, address, now, rtt_us, stamped, tp->rx_opt.rcv_tsval);
	return 0;
}

static __always_inline void apply(struct bpf_sock_ops *ctx, struct tcp_sock *tp, struct receive_socket *s,
				  struct receive_counters *count, __u32 target)
{
	if (s->app_clamp)
		target = law_min(target, s->app_clamp);
	if (tp->window_clamp == target && tp->rcv_ssthresh <= target)
		return;
	if (!s->applied) {
		s->app_clamp = tp->window_clamp < kernel_clamp(tp, s) ? tp->window_clamp : 0;
		if (s->app_clamp)
			target = law_min(target, s->app_clamp);
	} else if (tp->window_clamp != s->applied) {
		/* Autotuning sets the clamp again whenever it lets the buffer grow: an
		 * application's clamp as well as this one. */
		s->app_clamp = 0;
		s->reapplied++;
		count->reapplied++;
	}
	if (set_clamp(ctx, target)) {
		count->refused++;
		return;
	}
	count->applied++;
	s->applied = target;
}

static __always_inline void publish_flow(struct bpf_sock_ops *ctx, struct tcp_sock *tp, const struct receive_socket *s,
				 const struct receive_config *c, const struct drwa_law *law, const __u32 address[4], __u64 now,
				 __u32 target)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	struct receive_flow flow = {
		.remote = { address[0], address[1], address[2], address[3] },
		.local_port = ctx->local_port,
		.remote_port = bpf_ntohl(ctx->remote_port),
		.at_ns = now,
		.received = s->received,
		.rate = s->law.mean,
		.lambda = s->law.lambda,
		.rtt_us = s->law.rtt_us,
		.rtt_min_us = s->law.rtt_min_us,
		.target = target,
		.advertised = tp->rcv_wnd,
		.clamp = tp->window_clamp,
		.reapplied = s->reapplied,
		.by_window = law->by_window,
		.observed = c->observe,
	};

	bpf_map_update_elem(&flows, &cookie, &flow, BPF_ANY);
}

static __always_inline void on_ack(struct bpf_sock_ops *ctx, struct receive_config *c, struct receive_counters *count)
{
	struct drwa_sample sample = {};
	struct drwa_law law;
	struct receive_socket *s;
	struct tcp_sock *tp;
	struct bpf_sock *sk = ctx->sk;
	__u64 now = bpf_ktime_get_ns();
	__u64 begun, wanted = 0;
	__u32 address[4], target;
	bool just_received, grows;

	if (!sk)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return;
	if (now > c->lease_until_ns) {
		lift(ctx, tp, s, count);
		/* A renewed lease begins with a new state: the old one is out of date. */
		if (s->law.ready) {
			__builtin_memset(&s->law, 0, sizeof(s->law));
			__builtin_memset(&s->path, 0, sizeof(s->path));
			__builtin_memset(&s->opposite, 0, sizeof(s->opposite));
		}
		return;
	}
	/* Checked at each ACK: until it is accepted, a connection belongs to the owner of the
	 * listening socket. */
	if (!user_selected(c, tp)) {
		lift(ctx, tp, s, count);
		return;
	}
	remote_address(ctx, address);
	if (c->by_place) {
		if (s->place_cached >> 1 != c->places_version)
			s->place_cached = c->places_version << 1 | place_selected(c, address);
		if (!(s->place_cached & 1)) {
			lift(ctx, tp, s, count);
			return;
		}
	}
	law = c->law;
	law.floor = law_min(law_max((__u64)c->floor_segments * tp->advmss, MIN_WINDOW), law.max);
	law.increment = (__u64)c->increment_segments * tp->advmss;
	law.mss = tp->advmss;
	if (!BPF_CORE_READ_BITFIELD(tp, rx_opt.tstamp_ok))
		law.by_window = 1;
	sample.received = tp->bytes_received;
	sample.copied = sample.received - law_min((__u32)(tp->rcv_nxt - tp->copied_seq), sample.received);
	sample.right_edge = sample.received + (__u32)(tp->rcv_wup + tp->rcv_wnd - tp->rcv_nxt);
	sample.rtt_us = echo_rtt_us(tp, s, now);
	if (c->rate_term)
		backed_on_ack(&s->reading, now, &sample, s->law.rtt_us);
	/* Outgoing data comes here, too, and so do window updates. */
	sample.arrived = sample.received != s->received || sample.rtt_us;
	/* Whether this ACK answers something that has just come: data, or an acknowledgment within
	 * this tick of the kernel's clock. Otherwise the application had something to send. */
	just_received = sample.received != s->received || (__u32)bpf_jiffies64() - tp->rcv_tstamp <= 1;
	s->received = sample.received;
	if (!s->law.ready) {
		drwa_init(&s->law, &law);
		/* A connection that has received more than an initial window (RFC 6928) began earlier. */
		s->grown = sample.received > INITIAL_SEGMENTS * tp->advmss;
	}
	if (c->shared_minimum)
		s->law.rtt_min_us = min_rtt_us(tp, address, s->law.rtt_min_us, sample.rtt_us, now);
	/* By window it is measured in nanoseconds, and may be smaller. */
	s->law.rtt_min_us = law_max(s->law.rtt_min_us, LAW_MIN_RTT_US);
	if (just_received) {
		measure_path(tp, s, address, now, sample.rtt_us);
		receiving_others(&shares, &law, &s->law, now, &s->member, &s->share);
	}
	count->samples++;
	if (sample.received < c->start_bytes) {
		/* Rounds begin with the start bytes; before them only the minimum RTT is of use. */
		if (sample.rtt_us)
			s->law.rtt_min_us = law_min(s->law.rtt_min_us, sample.rtt_us);
		return;
	}
	begun = s->law.begun_ns;
	if (!receiving_sample(&s->law, &s->opposite, s->grown, s->member.alone, &law, now, &sample, &s->share, tp->advmss, &grows, &wanted))
		return;
	s->grown = !grows;
	target = wanted;
	if (c->observe) {
		lift(ctx, tp, s, count);
	} else {
		if (c->rate_term)
			headroom_follow(ctx, tp, s, c, count);
		else if (s->raised)
			headroom_return(ctx, tp, s, false);
		apply(ctx, tp, s, count, target);
	}
	if (begun != s->law.begun_ns) {
		count->decisions++;
		publish_flow(ctx, tp, s, c, &law, address, now, target);
	}
}

/* An active open, before its SYN. */
static __always_inline void on_connect(struct bpf_sock_ops *ctx, struct receive_config *c)
{
	struct bpf_sock *sk = ctx->sk;
	struct receive_socket *s;
	struct tcp_sock *tp;
	__u32 address[4];

	if (!sk || !c->rate_term || c->observe || bpf_ktime_get_ns() > c->lease_until_ns)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	remote_address(ctx, address);
	if (!tp || !user_selected(c, tp) || !place_selected(c, address))
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (s)
		headroom_begin(ctx, tp, s, c);
}

/* The SYN is about to be sent: it advertises what the application's own buffer can take. */
static __always_inline void on_first_window(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct receive_socket *s;
	struct tcp_sock *tp;

	if (!sk)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (tp && s && s->raised)
		ctx->reply = law_max(payload_of(tp, s->app_buffer) / law_max(tp->advmss, 1), 1);
}

/* Gives back the buffer that the SYN needed, except for what was advertised; all of it if the lease
 * has expired and no ACK will call this program. */
static __always_inline void on_begun(struct bpf_sock_ops *ctx, struct receive_config *c)
{
	struct bpf_sock *sk = ctx->sk;
	struct receive_socket *s;
	struct tcp_sock *tp;

	if (!sk)
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	s = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (tp && s && s->raised)
		headroom_return(ctx, tp, s, bpf_ktime_get_ns() > c->lease_until_ns);
}

/* A connection is established: from now on its ACKs call this program. `active`: this host has opened
 * it. */
static __always_inline void on_established(struct bpf_sock_ops *ctx, struct receive_config *c, struct receive_counters *count,
					   bool active)
{
	__u32 flags = ctx->bpf_sock_ops_cb_flags;
	struct bpf_sock *sk = ctx->sk;
	struct receive_socket *s;
	__u32 address[4];

	if (!sk || bpf_ktime_get_ns() > c->lease_until_ns)
		return;
	remote_address(ctx, address);
	if (!place_selected(c, address))
		return;
	s = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	/* Without memory for its state: counted, so that an idle cure is seen. */
	if (!s) {
		count->refused++;
		return;
	}
	count->sockets++;
	if (active)
		receiving_open(&shares, &minima, address, bpf_ktime_get_ns(), &s->member);
	if (flags & BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG)
		return;
	/* All programs on the socket share this word of flags: add to it, never replace it. */
	if (!bpf_sock_ops_cb_flags_set(ctx, flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG))
		s->flagged = 1;
}

SEC("sockops")
int receive(struct bpf_sock_ops *ctx)
{
	__u32 zero = 0;
	struct receive_config *c = bpf_map_lookup_elem(&config, &zero);
	struct receive_counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tp;

	if (!c || !count || !sk)
		return 1;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !space_selected(tp))
		return 1;
	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		on_connect(ctx, c);
		break;
	case BPF_SOCK_OPS_RWND_INIT:
		on_first_window(ctx);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		on_begun(ctx, c);
		on_established(ctx, c, count, true);
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		on_established(ctx, c, count, false);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		/* No option is reserved: the callback only provides the moment. */
		if (ctx->args[0] != CURRENT_MSS)
			on_ack(ctx, c, count);
		break;
	}
	return 1;
}
