/* DRWA's place in a socket, and what the programs that touch it share: its structs, its maps, and how a socket is given back.
 *
 * The maps are pinned by their names, so that a restarted agent finds what the one before it left. Their layout is part of the pin's
 * path (LAYOUT in src/sockets.rs): whoever changes a struct here changes that, too.
 */
#pragma once
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "path.h"

#define SOL_TCP 6
#define TCP_WINDOW_CLAMP 10
#define TCP_CONGESTION 13
#define AF_INET 2
/* As good as none; the next step of autotuning puts its own there. */
#define NO_CLAMP 0x3fffffff

/* What the agent sets; one entry. */
struct receive_config {
	struct drwa_law law;
	/* CLOCK_MONOTONIC, ns: nothing is done after this. */
	__u64 lease_until_ns;
	/* Bytes received before anything is done: handshakes and short replies stay as they are. */
	__u64 start_bytes;
	/* Whose sockets; for who comes later and has another one. A program sees those of its cgroup only. */
	__u64 cgroup;
	__u32 cgroup_level;
	/* Floor of the window in segments; law.floor is set from it for each socket. */
	__u32 floor_segments;
	/* Segments that every decision adds. */
	__u32 increment_segments;
	/* 1: only destinations of `places`; 2: all but those. */
	__u32 by_place;
	__u32 shared_minimum;
	/* 1: measure and decide, but set no clamp. */
	__u32 observe;
	/* Grows with every change of `places` or `by_place`, so that sockets ask again. */
	__u32 places_version;
	/* 1: only sockets of `user`. */
	__u32 by_user;
	__u32 user;
	/* 1: the rate term. */
	__u32 rate_term;
	/* Largest buffer that SO_RCVBUF may make (twice net.core.rmem_max); as the kernel counts, with its overhead. */
	__u32 most_buffer;
	/* 1: TCP's memory is scarce, so all is given back. */
	__u32 scarce;
};

/* One socket. */
struct receive_socket {
	struct drwa law;
	/* Received at the last ACK. */
	__u64 received;
	__u32 last_echo;
	/* What was set last; 0: nothing. */
	__u32 applied;
	__u32 reapplied;
	/* A clamp that the application had set before us; 0: none. */
	__u32 own;
	/* 2 × places_version + 1 where it is one of ours then. */
	__u32 place;
	/* 1: the callback's flag was set by us, so it is ours to clear. */
	__u32 flagged;
	/* The receive buffer that the application fixed, and what it is now by us; 0: nothing. */
	__u32 own_buffer, raised;
	struct backed reading;
	/* Whose queue it is. */
	struct half path;
	struct opposite opposite;
};

/* What can be seen of a flow from outside, renewed at each decision. */
struct receive_flow {
	__u32 remote[4];
	__u32 local_port, remote_port;
	__u64 at_ns;
	__u64 received;
	/* Average of the law, bytes per second. */
	__u64 rate;
	__u32 rtt_us, rtt_min_us, wanted, advertised, clamp, reapplied;
	/* 1: RTT by window, since the connection has no timestamps. */
	__u32 by_window;
	__u32 observed;
};

struct receive_counters {
	__u64 sockets, samples, decisions, applied, reapplied, refused, lifted;
	/* Buffers that were made larger, and that were not, for want of memory. */
	__u64 raised, withheld;
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
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct receive_counters);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct receive_socket);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sockets SEC(".maps");

/* By remote address, IPv4 as ::ffff:a.b.c.d. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32[4]);
	__type(value, struct minimum);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} minima SEC(".maps");

/* Whose queue it was, by remote address; :: is the device. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32[4]);
	__type(value, struct place_seen);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} paths SEC(".maps");

/* By socket cookie. Who is not seen for long is pushed out by others. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct receive_flow);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct place);
	__type(value, __u8);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} places SEC(".maps");

/* The remote address, IPv4 as ::ffff:a.b.c.d. */
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

/* Whether a destination is one of ours. */
static __always_inline bool wanted_place(const struct receive_config *c, const __u32 address[4])
{
	struct place key = { .prefix = 128, .address = { address[0], address[1], address[2], address[3] } };

	if (!c->by_place)
		return true;
	return (bpf_map_lookup_elem(&places, &key) != NULL) == (c->by_place == 1);
}

/* Whether its user is ours. */
static __always_inline bool wanted_user(const struct receive_config *c, struct tcp_sock *tp)
{
	return !c->by_user || tp->inet_conn.icsk_inet.sk.sk_uid.val == c->user;
}

/* What the kernel's clamp is where nobody set one: all the payload that the buffer holds (tcp_win_from_space). */
static __always_inline __u32 kernels_clamp(struct tcp_sock *tp, const struct receive_socket *s)
{
	__u64 space = tp->inet_conn.icsk_inet.sk.sk_rcvbuf;

	/* Else the compiler makes one read through either pointer, which no verifier takes. */
	barrier();
	/* Of the application's own buffer, where we made it larger. */
	if (s->raised)
		space = s->own_buffer;
	if (!bpf_core_field_exists(tp->scaling_ratio))
		return NO_CLAMP;
	return law_min(space * tp->scaling_ratio >> 8, NO_CLAMP);
}
