/* AFC's rate term: a socket whose application has fixed its buffer gets AR · RTT more of it, and
 * gives it back later.
 *
 * signal: each ACK of a socket with SO_RCVBUF · model: law.h's `backed`, in payload; the kernel
 * counts memory, of which scaling_ratio / 256 is payload · action: SO_RCVBUF. Nothing beyond memory
 * is ever advertised: the window follows the buffer.
 *
 * - Only buffers that are fixed already. SO_RCVBUF ends autotuning for good, and where autotuning
 *   works it needs no help, since it gives twice what was read in a round trip.
 * - A buffer shrinks no further than the data in it plus the advertised window, so that nothing in
 *   flight is dropped; it shrinks ACK by ACK.
 * - All sockets together get no more than the agent's share of tcp_mem allows (`room_left`), and
 *   nothing while memory is scarce.
 * - The window's scale is chosen in the SYN, from the buffer. So the buffer is larger while a
 *   connection begins, and the first window is that of the application's own buffer.
 */
#pragma once
#include "receive.h"

#define SOL_SOCKET 1
#define SO_RCVBUF 8
#define SOCK_RCVBUF_LOCK 2
/* Granularity of buffer sizes. A change must be worth its cost: an eighth up, a quarter down. */
#define HEADROOM_UNIT 4096

/* Bytes by which all buffers together may still grow; the agent writes it again with each of its
 * walks. Pinned by this name, so the name stays the same from version to version. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} room_left SEC(".maps");

static __always_inline bool headroom_fixed(struct tcp_sock *tp)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	if (!bpf_core_field_exists(tp->scaling_ratio))
		return false;
	return tp->scaling_ratio && (BPF_CORE_READ_BITFIELD(sk, sk_userlocks) & SOCK_RCVBUF_LOCK);
}

/* The buffer for so much payload. Only since Linux 6.6, as the rate term: before, a loader finds no
 * such field, and its relocation must lie behind the check. */
static __always_inline __u64 headroom_buffer(struct tcp_sock *tp, __u64 payload)
{
	if (!bpf_core_field_exists(tp->scaling_ratio))
		return 0;
	return ((payload << 8) / law_max(tp->scaling_ratio, 1) | (HEADROOM_UNIT - 1)) + 1;
}

/* Memory for the data in the buffer, and for what may still come within the advertised window. */
static __always_inline __u64 headroom_needed(struct tcp_sock *tp)
{
	__s32 promised = tp->rcv_wup + tp->rcv_wnd - tp->rcv_nxt;
	int queued = tp->inet_conn.icsk_inet.sk.sk_backlog.rmem_alloc.counter;

	return (queued > 0 ? queued : 0) + headroom_buffer(tp, promised > 0 ? promised : 0);
}

/* Sets the buffer; the kernel doubles the value that it gets. */
static __always_inline bool headroom_set(void *ctx, struct tcp_sock *tp, struct receive_socket *s, __u32 buffer)
{
	__u32 zero = 0, before = tp->inet_conn.icsk_inet.sk.sk_rcvbuf;
	__s64 *left = bpf_map_lookup_elem(&room_left, &zero);
	int half = buffer / 2;

	if (bpf_setsockopt(ctx, SOL_SOCKET, SO_RCVBUF, &half, sizeof(half)))
		return false;
	buffer = tp->inet_conn.icsk_inet.sk.sk_rcvbuf;
	if (left)
		__sync_fetch_and_add(left, (__s64)before - (__s64)buffer);
	s->raised = buffer;
	if (buffer == s->app_buffer)
		s->raised = 0;
	return true;
}

/* An application that sets its buffer again keeps that size. */
static __always_inline void headroom_notice(struct tcp_sock *tp, struct receive_socket *s)
{
	__u32 zero = 0;
	__s64 *left;

	if (!s->raised || tp->inet_conn.icsk_inet.sk.sk_rcvbuf == s->raised)
		return;
	left = bpf_map_lookup_elem(&room_left, &zero);
	if (left)
		__sync_fetch_and_add(left, (__s64)s->raised - (__s64)s->app_buffer);
	s->raised = 0;
}

/* Shrinks back towards the application's own size, as far as nothing is lost, or at once if `all`.
 * True: there. */
static __always_inline bool headroom_return(void *ctx, struct tcp_sock *tp, struct receive_socket *s, bool all)
{
	__u64 to = s->app_buffer;

	headroom_notice(tp, s);
	if (!s->raised)
		return true;
	if (!all)
		to = law_max(to, headroom_needed(tp));
	if (to < s->raised)
		headroom_set(ctx, tp, s, to);
	return !s->raised;
}

/* Sets the size that the law asks for, at an ACK. */
static __always_inline void headroom_follow(void *ctx, struct tcp_sock *tp, struct receive_socket *s, const struct receive_config *c,
					struct receive_counters *count)
{
	__u64 payload, to, now;
	__u32 zero = 0;
	__s64 *left;

	headroom_notice(tp, s);
	if (!headroom_fixed(tp))
		return;
	now = tp->inet_conn.icsk_inet.sk.sk_rcvbuf;
	if (!s->raised)
		s->app_buffer = now;
	/* Odd, or larger than SO_RCVBUF can set (SO_RCVBUFFORCE): it could not be restored exactly.
	 */
	if (s->app_buffer & 1 || s->app_buffer >= c->max_buffer)
		return;
	payload = payload_of(tp, s->app_buffer);
	to = backed_buffer(&s->reading, payload, s->law.rtt_min_us);
	to = law_min(to, c->law.max);
	to = law_min(to, 65535ull << BPF_CORE_READ_BITFIELD(tp, rx_opt.rcv_wscale));
	to = to > payload ? law_min(headroom_buffer(tp, to), c->max_buffer) : s->app_buffer;
	if (to <= s->app_buffer || c->scarce) {
		headroom_return(ctx, tp, s, false);
		return;
	}
	if (to > now + now / 8) {
		left = bpf_map_lookup_elem(&room_left, &zero);
		if (!left || *left < (__s64)(to - now)) {
			count->withheld++;
			return;
		}
		if (headroom_set(ctx, tp, s, to))
			count->raised++;
	} else if (to < now - now / 4) {
		to = law_max(to, headroom_needed(tp));
		if (to < now)
			headroom_set(ctx, tp, s, to);
	}
}

/* An active open: as large as it may become, since the scale is chosen once, in the SYN. */
static __always_inline void headroom_begin(void *ctx, struct tcp_sock *tp, struct receive_socket *s, const struct receive_config *c)
{
	__u32 now = tp->inet_conn.icsk_inet.sk.sk_rcvbuf;

	headroom_notice(tp, s);
	if (s->raised || !headroom_fixed(tp) || c->scarce || now & 1 || now >= c->max_buffer)
		return;
	s->app_buffer = now;
	headroom_set(ctx, tp, s, c->max_buffer);
}
