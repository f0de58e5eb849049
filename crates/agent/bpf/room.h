/* AFC's rate term: a socket with a buffer that its application fixed gets AR · RTT more of it, and gives it back.
 *
 * signal: each ACK of a socket with SO_RCVBUF · model: law.h's `backed`, in payload; the kernel counts memory, of which
 * scaling_ratio / 256 is payload · action: SO_RCVBUF. Nothing beyond memory is ever promised: the window follows the buffer.
 *
 * - Only buffers that are fixed already: SO_RCVBUF ends autotuning for ever, and where it works it needs no help, since it gives
 *   twice what was read in a round trip.
 * - A buffer shrinks no further than what is in it and what was promised, so that nothing on its way is dropped; ACK by ACK.
 * - All sockets together get no more than the agent's share of tcp_mem allows (`room_left`), and none while memory is scarce.
 * - The window's scale is chosen in the SYN, from the buffer: it is larger while a connection begins, and the first window is that of the application's.
 */
#pragma once
#include "receive.h"

#define SOL_SOCKET 1
#define SO_RCVBUF 8
#define SOCK_RCVBUF_LOCK 2
/* What a change is worth: an eighth up, a quarter down. */
#define ROOM_UNIT 4096

/* Bytes that buffers may yet grow by, all together; the agent writes it anew with each of its walks. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} room_left SEC(".maps");

static __always_inline bool room_fixed(struct tcp_sock *tp)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	return bpf_core_field_exists(tp->scaling_ratio) && tp->scaling_ratio &&
	       (BPF_CORE_READ_BITFIELD(sk, sk_userlocks) & SOCK_RCVBUF_LOCK);
}

static __always_inline __u64 room_payload(struct tcp_sock *tp, __u64 buffer)
{
	return buffer * tp->scaling_ratio >> 8;
}

static __always_inline __u64 room_buffer(struct tcp_sock *tp, __u64 payload)
{
	return ((payload << 8) / law_max(tp->scaling_ratio, 1) | (ROOM_UNIT - 1)) + 1;
}

/* What is in the buffer, and what may still come. */
static __always_inline __u64 room_needed(struct tcp_sock *tp)
{
	__s32 promised = tp->rcv_wup + tp->rcv_wnd - tp->rcv_nxt;
	int held = tp->inet_conn.icsk_inet.sk.sk_backlog.rmem_alloc.counter;

	return (held > 0 ? held : 0) + room_buffer(tp, promised > 0 ? promised : 0);
}

/* The buffer's new size; the kernel doubles what it is told. */
static __always_inline bool room_set(void *ctx, struct tcp_sock *tp, struct receive_socket *s, __u32 buffer)
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
	if (buffer == s->own_buffer)
		s->raised = 0;
	return true;
}

/* An application that sets its buffer anew has it. */
static __always_inline void room_noticed(struct tcp_sock *tp, struct receive_socket *s)
{
	__u32 zero = 0;
	__s64 *left;

	if (!s->raised || tp->inet_conn.icsk_inet.sk.sk_rcvbuf == s->raised)
		return;
	left = bpf_map_lookup_elem(&room_left, &zero);
	if (left)
		__sync_fetch_and_add(left, (__s64)s->raised - (__s64)s->own_buffer);
	s->raised = 0;
}

/* Back towards the application's own, as far as nothing is lost; at once where `all`. True: there. */
static __always_inline bool room_return(void *ctx, struct tcp_sock *tp, struct receive_socket *s, bool all)
{
	__u64 to = s->own_buffer;

	room_noticed(tp, s);
	if (!s->raised)
		return true;
	if (!all)
		to = law_max(to, room_needed(tp));
	if (to < s->raised)
		room_set(ctx, tp, s, to);
	return !s->raised;
}

/* The size that the law wants, at an ACK. */
static __always_inline void room_follow(void *ctx, struct tcp_sock *tp, struct receive_socket *s, const struct receive_config *c,
					struct receive_counters *count)
{
	__u64 payload, to, now;
	__u32 zero = 0;
	__s64 *left;

	room_noticed(tp, s);
	if (!room_fixed(tp))
		return;
	now = tp->inet_conn.icsk_inet.sk.sk_rcvbuf;
	if (!s->raised)
		s->own_buffer = now;
	/* Odd, or larger than SO_RCVBUF may make it (SO_RCVBUFFORCE): it could not be given back exactly. */
	if (s->own_buffer & 1 || s->own_buffer >= c->most_buffer)
		return;
	payload = room_payload(tp, s->own_buffer);
	to = backed_buffer(&s->reading, payload, s->law.rtt_min_us);
	to = law_min(to, c->law.max);
	to = law_min(to, 65535ull << BPF_CORE_READ_BITFIELD(tp, rx_opt.rcv_wscale));
	to = to > payload ? law_min(room_buffer(tp, to), c->most_buffer) : s->own_buffer;
	if (to <= s->own_buffer || c->scarce) {
		room_return(ctx, tp, s, false);
		return;
	}
	if (to > now + now / 8) {
		left = bpf_map_lookup_elem(&room_left, &zero);
		if (!left || *left < (__s64)(to - now)) {
			count->withheld++;
			return;
		}
		if (room_set(ctx, tp, s, to))
			count->raised++;
	} else if (to < now - now / 4) {
		to = law_max(to, room_needed(tp));
		if (to < now)
			room_set(ctx, tp, s, to);
	}
}

/* A connection of ours begins: as large as it may become, since the SYN tells its scale once for all. */
static __always_inline void room_begin(void *ctx, struct tcp_sock *tp, struct receive_socket *s, const struct receive_config *c)
{
	__u32 now = tp->inet_conn.icsk_inet.sk.sk_rcvbuf;

	room_noticed(tp, s);
	if (s->raised || !room_fixed(tp) || c->scarce || now & 1 || now >= c->most_buffer)
		return;
	s->own_buffer = now;
	room_set(ctx, tp, s, c->most_buffer);
}
